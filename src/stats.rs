//! What a cache has done, and how promptly.

use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Line, Ordering};

/// A cache's counts, from [`Cache::stats`](crate::Cache::stats).
///
/// Counts are since the cache was made. They are read one after another while other threads go on,
/// so sums over several fields may be off by what happened meanwhile.
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
    /// Panics of user code (`Drop`, listeners, a clock under a lock) that were contained.
    pub panics: u64,
    /// Cycles of the reaper (or calls of `reap`) over this cache.
    pub reap_cycles: u64,
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

/// Sub-buckets of a power of two.
const FINE: u32 = 4;
/// Buckets: 4 ns resolution at the bottom is never needed, half an hour at the top is.
const BUCKETS: usize = 168;

/// Durations counted in buckets a quarter of a power of two wide (at most 19 % off).
#[derive(Clone)]
pub struct LagHistogram {
    counts: [u64; BUCKETS],
    max: u64,
}

impl LagHistogram {
    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.max = self.max.max(nanos);
    }

    pub(crate) fn merge(&mut self, other: &LagHistogram) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.max = self.max.max(other.max);
    }

    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest one, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// An upper bound, at most 19 % too high, of the duration that a share `quantile` (0 to 1) of
    /// all recorded ones did not exceed. Zero when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0) as u64;
        let mut seen = 0;
        for (i, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper(i).min(self.max));
            }
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(FINE) {
        return nanos as usize;
    }
    let top = nanos.ilog2();
    let fine = (nanos >> (top - 2)) as u32 & (FINE - 1);
    (((top - 1) * FINE + fine) as usize).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> u64 {
    if bucket < FINE as usize {
        return bucket as u64;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (top, fine) = (bucket as u32 / FINE + 1, bucket as u64 % u64::from(FINE));
    (1 << top) + ((fine + 1) << (top - 2)) - 1
}

impl Default for LagHistogram {
    fn default() -> Self {
        LagHistogram {
            counts: [0; BUCKETS],
            max: 0,
        }
    }
}

impl std::fmt::Debug for LagHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LagHistogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
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
#[derive(Debug, Default)]
pub(crate) struct ReapCounts {
    pub(crate) cycles: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    pub(crate) overruns: AtomicU64,
    pub(crate) scanned: AtomicU64,
    pub(crate) inspected: AtomicU64,
    pub(crate) refiled: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) contended: AtomicU64,
    pub(crate) longest_hold: AtomicU64,
    pub(crate) time: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl ReapCounts {
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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

/// Adds to one of the counters.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
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
    hits: AtomicU64,
    misses: AtomicU64,
    expired: AtomicU64,
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
        let zero = || AtomicU64::new(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_what_was_recorded() {
        let mut lag = LagHistogram::default();
        assert_eq!(lag.quantile(0.99), Duration::ZERO);
        for nanos in 1..=1_000_000u64 {
            lag.record(nanos);
        }
        for quantile in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let exact = quantile * 1e6;
            let got = lag.quantile(quantile).as_nanos() as f64;
            assert!(
                got >= exact - 1.0 && got <= exact * 1.19 + 1.0,
                "{quantile}: {got}"
            );
        }
        assert_eq!(lag.quantile(1.0), lag.max());
        lag.record(u64::MAX);
        assert_eq!(lag.quantile(1.0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn buckets_are_contiguous() {
        for nanos in (0..100_000u64).chain([u64::MAX / 3, u64::MAX]) {
            let i = bucket(nanos);
            assert!(upper(i) >= nanos);
            assert!(
                i == 0 || i == BUCKETS - 1 || upper(i - 1) < nanos,
                "{nanos}"
            );
        }
    }
}
