//! Active expiry: who reclaims, how, and how much of a core that may take.
//!
//! The parts that decide are pure, with time and randomness as parameters: [`budget`] (how long a
//! cycle may go on), [`pace`] (when the next one begins), [`sweep`] and [`sample`] (what a cycle
//! does). Around them are [`worker`] (what a thread does with one cache), [`crew`] (the threads,
//! and who is served by them) and [`trace`] (what tracing subscribers hear); [`bell`] and [`visits`] are the two protocols between threads and the
//! users of a cache, kept apart so that they can be model checked. All of them know a cache's shards
//! only through [`Target`].

pub(crate) mod bell;
pub(crate) mod budget;
pub(crate) mod crew;
pub(crate) mod pace;
pub(crate) mod sample;
pub(crate) mod sweep;
mod trace;
mod visits;
pub(crate) mod worker;

use std::time::Duration;

pub(crate) use bell::Bell;

use crate::error::BuildError;
use crate::shard::{Goal, SampleReport, Slice, SweepReport};
use crate::stats::ReapCounts;

/// Who reclaims a cache's expired entries, and how much of a core that may take.
///
/// The three levers are how often ([`interval`](Self::interval)), how much at a time
/// ([`budget`](Self::budget), and with sampling the sample size), and how much dead memory is
/// tolerated ([`Strategy`]). Neither changes what a read answers: an expired entry is never read.
///
/// With the feature `tracing` each cycle is told to the subscriber as an event of the target `ebbtide`, at
/// level debug, or warn if it took over 10 % more than its budget; drops of values likewise. It is called
/// without any lock, on the threads that reap; its panics are contained and counted.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Cache, Reaper, Strategy};
///
/// let cache: Cache<u64, u64> = Cache::builder()
///     .reaper(
///         Reaper::dedicated(1)
///             .interval(Duration::from_millis(20))
///             .budget(Duration::from_micros(500))
///             .strategy(Strategy::sweep()),
///     )
///     .build()?;
/// # drop(cache);
/// # Ok::<(), ebbtide::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reaper {
    pub(crate) who: Who,
    pub(crate) settings: Settings,
}

/// Whose threads do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Shared,
    Dedicated(usize),
    Manual,
}

/// How it is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) interval: Duration,
    pub(crate) budget: Duration,
    pub(crate) max_duty: f64,
    pub(crate) strategy: Strategy,
}

impl Reaper {
    /// One small process-wide pool, shared with other caches: a thread that sweeps and one that
    /// drops values. They start with the first cache and end with the last. The default.
    pub fn shared() -> Self {
        Self::new(Who::Shared)
    }

    /// `threads` threads of the cache's own that sweep (its shards are dealt out among them, so no
    /// more than there are shards), and one that drops values. They end with the cache.
    pub fn dedicated(threads: usize) -> Self {
        Self::new(Who::Dedicated(threads))
    }

    /// No thread: reads unlink what they find expired, writes drop a few values that are past
    /// their grace period, and [`Cache::reap`](crate::Cache::reap) and
    /// [`reap_at_most`](crate::Cache::reap_at_most) do the rest.
    pub fn manual() -> Self {
        Self::new(Who::Manual)
    }

    fn new(who: Who) -> Self {
        Reaper {
            who,
            settings: Settings {
                interval: Duration::from_millis(100),
                budget: Duration::from_millis(1),
                max_duty: 1.0,
                strategy: Strategy::sweep(),
            },
        }
    }

    /// The time between two cycles while entries are due at a steady rate (default 100 ms): how
    /// long after its deadline an entry may stay in memory when there is no backlog. A cycle that
    /// ran out of budget is followed by the next one sooner; while nothing is due, the reaper
    /// sleeps.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.settings.interval = interval;
        self
    }

    /// The time that one cycle may take (default 1 ms). Within it, a shard's lock is held for at
    /// most about 50 µs at a time.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.settings.budget = budget;
        self
    }

    /// How a cycle looks for the dead (default [`Strategy::sweep`]).
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.settings.strategy = strategy;
        self
    }

    /// The most of a core that sweeping this cache may take, above 0 and at most 1 (default 1).
    /// While the backlog is small a quarter of it is used.
    #[must_use]
    pub fn max_duty(mut self, share: f64) -> Self {
        self.settings.max_duty = share;
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        if self.who == Who::Dedicated(0) {
            return Err(BuildError::NoReaperThreads);
        }
        if settings.budget.is_zero() {
            return Err(BuildError::ZeroBudget);
        }
        if settings.interval.is_zero() {
            return Err(BuildError::ZeroInterval);
        }
        // Written so that NaN is refused.
        if !(settings.max_duty > 0.0 && settings.max_duty <= 1.0) {
            return Err(BuildError::DutyOutOfRange(settings.max_duty.to_string()));
        }
        match settings.strategy.kind {
            Kind::Sweep { tolerated } if !(0.0..1.0).contains(&tolerated) => {
                Err(BuildError::ToleratedDeadOutOfRange(tolerated.to_string()))
            }
            Kind::Sample { threshold, .. } if !(threshold > 0.0 && threshold <= 1.0) => {
                Err(BuildError::ThresholdOutOfRange(threshold.to_string()))
            }
            Kind::Sample { size, rounds, .. } if size == 0 || rounds == 0 => {
                Err(BuildError::EmptySample)
            }
            _ => Ok(()),
        }
    }
}

impl Default for Reaper {
    fn default() -> Self {
        Self::shared()
    }
}

/// How the reaper looks for expired entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Sweep {
        tolerated: f64,
    },
    Sample {
        size: usize,
        threshold: f64,
        rounds: usize,
    },
}

impl Strategy {
    /// A cursor goes over the lane, the array of coarse deadlines, and stops only at entries that
    /// are due: every expired entry is found, after the same time however many live ones there
    /// are. The default.
    pub fn sweep() -> Self {
        Strategy {
            kind: Kind::Sweep { tolerated: 0.0 },
        }
    }

    /// The adaptive random sampler that Redis made known: look at a few random entries with a
    /// lifetime, and again as long as many of them were expired. Cheap to run, but what it leaves
    /// behind is a matter of chance. By default 20 entries a round, again while at least a quarter
    /// were expired, at most 16 rounds a cycle.
    pub fn sample() -> Self {
        Strategy {
            kind: Kind::Sample {
                size: 20,
                threshold: 0.25,
                rounds: 16,
            },
        }
    }

    /// Sweep: leave a shard alone while at most this share of its entries is due (0 up to, not
    /// including, 1; default 0), estimated from at most 4,096 of its slots. No effect on sampling,
    /// whose tolerance is its threshold.
    #[must_use]
    pub fn tolerated_dead(mut self, share: f64) -> Self {
        if let Kind::Sweep { tolerated } = &mut self.kind {
            *tolerated = share;
        }
        self
    }

    /// Sampling: entries looked at in a round (at least 1, default 20). No effect on sweeping.
    #[must_use]
    pub fn sample_size(mut self, entries: usize) -> Self {
        if let Kind::Sample { size, .. } = &mut self.kind {
            *size = entries;
        }
        self
    }

    /// Sampling: another round follows one in which at least this share was expired (above 0, at
    /// most 1, default 0.25). No effect on sweeping.
    #[must_use]
    pub fn threshold(mut self, share: f64) -> Self {
        if let Kind::Sample { threshold, .. } = &mut self.kind {
            *threshold = share;
        }
        self
    }

    /// Sampling: rounds of a cycle, at most (at least 1, default 16). No effect on sweeping.
    #[must_use]
    pub fn max_rounds(mut self, most: usize) -> Self {
        if let Kind::Sample { rounds, .. } = &mut self.kind {
            *rounds = most;
        }
        self
    }
}

/// What a call of [`Cache::reap`](crate::Cache::reap) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reaped {
    /// Lane slots looked at (with sampling: slots drawn).
    pub scanned: u64,
    /// Expired entries unlinked.
    pub expired: u64,
    /// Entries that were due in the lane but had been renewed.
    pub refiled: u64,
    /// Values dropped, their grace period being over.
    pub dropped: u64,
    /// Real time spent.
    pub spent: Duration,
    /// Nothing that is due was left behind.
    pub finished: bool,
}

/// A cache as the reaper sees it: shards with something due and something to drop.
pub(crate) trait Target: Send + Sync {
    /// Whether its last handle is being dropped: whatever can wait should not begin.
    fn is_closing(&self) -> bool;
    /// Its cache's name.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code))]
    fn name(&self) -> &str;
    /// Number of shards.
    fn shards(&self) -> usize;
    /// The settings of its reaper.
    fn settings(&self) -> &Settings;
    /// Where the reaper counts.
    fn counts(&self) -> &ReapCounts;
    /// The time on the cache's clock.
    fn now(&self) -> u64;
    /// Whether that clock goes by itself, at the speed of the real one.
    fn keeps_real_time(&self) -> bool;
    /// No entry of the shard is due before this lane unit.
    fn due(&self, shard: usize) -> u32;
    /// About how many unlinked values wait in the shard.
    fn waiting(&self, shard: usize) -> usize;
    /// One hold of the shard's lock, sweeping. `None` if the lock was taken and `wait` is false.
    fn sweep(&self, shard: usize, goal: Goal, wait: bool, slice: Slice<'_>) -> Option<SweepReport>;
    /// Slot ids of the shard below which timed entries are to be found.
    fn reach(&self, shard: usize) -> u32;
    /// One hold of the shard's lock, looking at the timed entries among these slots until `most`
    /// were unlinked.
    fn sample(&self, shard: usize, slots: &[u32], most: u64) -> SampleReport;
    /// Begins the grace period of what is in the shard's limbo.
    fn seal(&self, shard: usize);
    /// Helps the grace periods along.
    fn flush(&self);
    /// Drops up to `most` values of the shard that are past their grace period; how many it
    /// dropped, or `None` if none is.
    fn drop_some(&self, shard: usize, most: usize) -> Option<u64>;
    /// Gives the shard's unused memory back.
    fn trim(&self, shard: usize);
}
