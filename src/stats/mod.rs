//! What a cache has done, how promptly, and what is left to be done.
//!
//! Counts under a shard's lock are plain ([`Tally`]), those of the reaper are atomic ([`ReapCounts`]), and
//! reads count only where that was asked for, by stripes ([`ReadCounts`]).

mod audit;
mod histogram;
mod memory;

use std::time::{Duration, Instant};

use crate::sync::{AtomicUsize, Line, Ordering, Statistic};

pub use audit::{Audit, Share};
pub(crate) use histogram::AtomicHistogram;
pub use histogram::LagHistogram;
pub use memory::MemoryUsage;

/// A cache's counts, from [`Cache::stats`](crate::Cache::stats).
///
/// Counts are since the cache was made. They are read one after another while other threads go on,
/// so sums over several fields may be off by what happened meanwhile.
///
/// # What to watch
/// - `oldest_due_age` above some intervals of the reaper, or a `backlog` that grows: expired entries stay
///   (where that is not [asked for](crate::Strategy)). If `budget_exhausted` grows too, the reaper has too
///   little time: raise [`budget`](crate::Reaper::budget) or [`max_duty`](crate::Reaper::max_duty). If
///   `reaper_alive` is false, there is none. If `last_look_age` grows, it is stuck in a listener or a clock.
/// - `limbo` that grows: a reader keeps its pin, or a value's `Drop` does not end (`slow_drops` and
///   `longest_drop` know of those that did).
/// - `longest_hold` and `contended`: what the reaper can have cost a writer.
/// - `refused`, `panics`, `live_evicted_while_dead`: should not grow.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Reads that found a live entry. Only with [`record_stats`](crate::Builder::record_stats).
    pub hits: u64,
    /// Reads that found none. Only with [`record_stats`](crate::Builder::record_stats).
    pub misses: u64,
    /// Those misses that found an expired entry. Only with
    /// [`record_stats`](crate::Builder::record_stats).
    pub expired_misses: u64,
    /// Entries that were linked, replacements included.
    pub inserted: u64,
    /// Entries linked now, the dead among them included.
    pub entries: u64,
    /// Unlinked entries whose values wait for readers to let go.
    pub limbo: u64,
    /// For how long, at most, any entry that is still linked has been over. By the lane's minima, which know
    /// deadlines to 67 ms and may still name an entry that was renewed or removed, until the reaper next
    /// comes by. 0 if no deadline is known to be past or within 67 ms.
    pub oldest_due_age: Duration,
    /// About how many linked entries are over, but for the last 67 ms. Exact, apart from renewals that the
    /// reaper has not met yet, with up to 4,096 slots a shard; beyond, estimated from 4,096 of them.
    pub backlog: u64,
    /// Whether the threads that reap for this cache are running; `None` if it is reaped by hand. False in a
    /// forked child until its first write starts them anew.
    pub reaper_alive: Option<bool>,
    /// How long ago whoever reaps last looked at this cache (any of its threads, or a call of `reap`); `None`
    /// before the first time. While nothing is due the reaper sleeps, and this grows.
    pub last_look_age: Option<Duration>,
    /// Expired entries that a read unlinked.
    pub expired_by_read: u64,
    /// Expired entries that a write met, or evicted before any living one.
    pub expired_by_write: u64,
    /// Expired entries that the reaper unlinked.
    pub expired_by_sweep: u64,
    /// Entries that left by a call (remove, invalidate, retain, drain, expire to a due time).
    pub explicit: u64,
    /// Live entries that a new value took the place of.
    pub replaced: u64,
    /// Live entries that had to go to keep the bound.
    pub evicted: u64,
    /// Live entries evicted although a minimum still said that an entry was over, after sixteen looks
    /// for it; 0 unless very many entries were renewed or overwritten at once.
    pub live_evicted_while_dead: u64,
    /// Entries that an insert brought and the cache could not take
    /// ([`RefusedReason`](crate::RefusedReason)). What `try_insert` gave back is not counted.
    pub refused: u64,
    /// Values dropped after their grace period.
    pub dropped: u64,
    /// Time that their drops took.
    pub drop_time: Duration,
    /// Batches (of at most 128 values) whose drops took longer than a cycle's budget.
    pub slow_drops: u64,
    /// The longest time that a batch's drops took.
    pub longest_drop: Duration,
    /// Panics of user code (`Drop`, listeners, tracing subscribers, a clock under a lock) that were
    /// contained.
    pub panics: u64,
    /// Cycles of the reaper (or calls of `reap`) over this cache.
    pub reap_cycles: u64,
    /// How long those cycles took; with calls of `reap` their drops too.
    pub cycle_time: LagHistogram,
    /// What a cycle may take: the setting [`budget`](crate::Reaper::budget). (Calls of `reap` have their own.)
    pub budget: Duration,
    /// Cycles in which the reaper had to stop for its budget with work left.
    pub budget_exhausted: u64,
    /// Cycles that took over 10 % more than their budget; slow drops of user values among them.
    pub budget_overruns: u64,
    /// Lane slots that the reaper looked at (slots drawn, with sampling).
    pub slots_scanned: u64,
    /// Entries that the reaper looked at.
    pub entries_inspected: u64,
    /// Entries that were due in the lane but had been renewed.
    pub refiled: u64,
    /// Rounds of the sampling strategy.
    pub sample_rounds: u64,
    /// Times that the reaper found a shard locked and came back later.
    pub contended: u64,
    /// Longest time for which the reaper held a shard's lock.
    pub longest_hold: Duration,
    /// Time that the reaper spent on this cache, drops included.
    pub reaper_time: Duration,
    /// How long after their deadlines expired entries were unlinked, on whatever path.
    pub reclaim_lag: LagHistogram,
}

impl Stats {
    /// Misses for which no entry was there, not even an expired one.
    pub fn absent_misses(&self) -> u64 {
        self.misses.saturating_sub(self.expired_misses)
    }

    /// Expired entries that were unlinked, on whatever path.
    pub fn expired(&self) -> u64 {
        self.expired_by_read + self.expired_by_write + self.expired_by_sweep
    }

    /// The share of reads that hit, between 0 and 1; `None` if none was counted.
    pub fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }
}

/// Who found an expired entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Read,
    Write,
    Sweep,
}

/// One shard's counts, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) inserted: u64,
    pub(crate) expired_by_read: u64,
    pub(crate) expired_by_write: u64,
    pub(crate) expired_by_sweep: u64,
    pub(crate) explicit: u64,
    pub(crate) replaced: u64,
    pub(crate) evicted: u64,
    pub(crate) live_evicted_while_dead: u64,
    pub(crate) lag: LagHistogram,
}

impl Tally {
    pub(crate) fn expired(&mut self, path: Path, lag: u64) {
        match path {
            Path::Read => self.expired_by_read += 1,
            Path::Write => self.expired_by_write += 1,
            Path::Sweep => self.expired_by_sweep += 1,
        }
        self.lag.record(lag);
    }

    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.inserted += self.inserted;
        stats.expired_by_read += self.expired_by_read;
        stats.expired_by_write += self.expired_by_write;
        stats.expired_by_sweep += self.expired_by_sweep;
        stats.explicit += self.explicit;
        stats.replaced += self.replaced;
        stats.evicted += self.evicted;
        stats.live_evicted_while_dead += self.live_evicted_while_dead;
        stats.reclaim_lag.merge(&self.lag);
    }
}

/// What the reaper counts, by the worker that does it. Relaxed throughout: statistics.
#[derive(Debug)]
pub(crate) struct ReapCounts {
    /// Where `last_look` counts from.
    begin: Instant,
    /// Nanoseconds to the last look, and one more; 0 before the first.
    last_look: Statistic,
    cycle_time: AtomicHistogram,
    drop_time: Statistic,
    slow_drops: Statistic,
    longest_drop: Statistic,
    pub(crate) cycles: Statistic,
    pub(crate) exhausted: Statistic,
    pub(crate) overruns: Statistic,
    pub(crate) scanned: Statistic,
    pub(crate) inspected: Statistic,
    pub(crate) refiled: Statistic,
    pub(crate) rounds: Statistic,
    pub(crate) contended: Statistic,
    pub(crate) longest_hold: Statistic,
    pub(crate) time: Statistic,
    pub(crate) dropped: Statistic,
    pub(crate) panics: Statistic,
    pub(crate) refused: Statistic,
}

impl ReapCounts {
    pub(crate) fn new() -> Self {
        let zero = || Statistic::new(0);
        ReapCounts {
            begin: Instant::now(),
            last_look: zero(),
            cycle_time: AtomicHistogram::new(),
            drop_time: zero(),
            slow_drops: zero(),
            longest_drop: zero(),
            cycles: zero(),
            exhausted: zero(),
            overruns: zero(),
            scanned: zero(),
            inspected: zero(),
            refiled: zero(),
            rounds: zero(),
            contended: zero(),
            longest_hold: zero(),
            time: zero(),
            dropped: zero(),
            panics: zero(),
            refused: zero(),
        }
    }

    /// Notes that whoever reaps has been here.
    pub(crate) fn note_look(&self) {
        let now = nanos(self.begin.elapsed()).saturating_add(1);
        // (Of several threads the last one's, not one that was stopped before its store.)
        self.last_look.fetch_max(now, Ordering::Relaxed);
    }

    /// Notes a cycle of this length, in nanoseconds.
    pub(crate) fn note_cycle(&self, spent: u64) {
        add(&self.cycles, 1);
        self.cycle_time.record(spent);
    }

    /// Notes the drops of a batch, which took this long, with the budget of a cycle.
    pub(crate) fn note_drops(&self, values: u64, spent: Duration, budget: Duration) {
        add(&self.dropped, values);
        add(&self.drop_time, nanos(spent));
        add(&self.slow_drops, u64::from(spent > budget));
        self.longest_drop.fetch_max(nanos(spent), Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let read = |counter: &Statistic| counter.load(Ordering::Relaxed);
        stats.last_look_age = read(&self.last_look).checked_sub(1).map(|look| {
            let look = Duration::from_nanos(look);
            self.begin.elapsed().saturating_sub(look)
        });
        stats.cycle_time.merge(&self.cycle_time.load());
        stats.drop_time += Duration::from_nanos(read(&self.drop_time));
        stats.slow_drops += read(&self.slow_drops);
        stats.longest_drop = Duration::from_nanos(read(&self.longest_drop));
        stats.reap_cycles += read(&self.cycles);
        stats.budget_exhausted += read(&self.exhausted);
        stats.budget_overruns += read(&self.overruns);
        stats.slots_scanned += read(&self.scanned);
        stats.entries_inspected += read(&self.inspected);
        stats.refiled += read(&self.refiled);
        stats.sample_rounds += read(&self.rounds);
        stats.contended += read(&self.contended);
        stats.longest_hold = stats
            .longest_hold
            .max(Duration::from_nanos(read(&self.longest_hold)));
        stats.reaper_time += Duration::from_nanos(read(&self.time));
        stats.refused += read(&self.refused);
        stats.dropped += read(&self.dropped);
        stats.panics += read(&self.panics);
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds to one of the counters.
pub(crate) fn add(counter: &Statistic, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

const STRIPES: usize = 16;

/// Hits and misses, spread over cache lines by thread so that readers do not meet.
#[derive(Debug)]
pub(crate) struct ReadCounts {
    stripes: [Line<Stripe>; STRIPES],
}

#[derive(Debug)]
struct Stripe {
    hits: Statistic,
    misses: Statistic,
    expired: Statistic,
}

fn stripe() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % STRIPES;
    }
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

impl ReadCounts {
    pub(crate) fn new() -> Self {
        let zero = || Statistic::new(0);
        ReadCounts {
            stripes: std::array::from_fn(|_| {
                Line(Stripe {
                    hits: zero(),
                    misses: zero(),
                    expired: zero(),
                })
            }),
        }
    }

    pub(crate) fn hit(&self) {
        add(&self.stripes[stripe()].hits, 1);
    }

    pub(crate) fn miss(&self, expired: bool) {
        let stripe = &self.stripes[stripe()];
        add(&stripe.misses, 1);
        add(&stripe.expired, u64::from(expired));
    }

    pub(crate) fn add_to(&self, stats: &mut Stats) {
        for stripe in &self.stripes {
            stats.hits += stripe.hits.load(Ordering::Relaxed);
            stats.misses += stripe.misses.load(Ordering::Relaxed);
            stats.expired_misses += stripe.expired.load(Ordering::Relaxed);
        }
    }
}

/// A count that many threads read; see the shard's `waiting`.
pub(crate) type Count = AtomicUsize;
