//! What can go wrong, and how it is said.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a [`Builder`](crate::Builder) refused its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// `Reaper::dedicated(0)`: a reaper without a thread reclaims nothing. Use
    /// [`Reaper::manual`](crate::Reaper::manual) to reclaim by hand.
    NoReaperThreads,
    /// A reaper's budget of zero lets no cycle do anything.
    ZeroBudget,
    /// A reaper's interval of zero would never let it rest.
    ZeroInterval,
    /// The most of a core that a reaper may use must be above 0 and at most 1.
    DutyOutOfRange(String),
    /// The tolerated dead share must be at least 0 and below 1.
    ToleratedDeadOutOfRange(String),
    /// A sampling threshold must be above 0 and at most 1.
    ThresholdOutOfRange(String),
    /// A sampling reaper needs at least one entry a round and one round a cycle.
    EmptySample,
    /// `shards(0)`, or more shards than a cache can have (65,536).
    ShardsOutOfRange(usize),
    /// A default lifetime of zero would let no entry live.
    ZeroLifetime,
    /// An initial capacity of more entries than the shards can have slots for.
    CapacityOutOfRange(usize),
    /// A lease of the clock must be between 10 ms and an hour.
    LeaseOutOfRange(Duration),
    /// Only the default clock's time can be leased.
    LeasedCustomClock,
    /// The eagerness of early refresh must be at least 0, and finite.
    EagernessOutOfRange(String),
    /// [`early_refresh`](crate::Builder::early_refresh) is ahead of
    /// [`refresh_after`](crate::Builder::refresh_after), which was not set.
    EarlyRefreshWithoutRefresh,
    /// The jitter of lifetimes must be at least 0 and below 1.
    JitterOutOfRange(String),
    /// A feed of removals without room for any.
    EmptyFeed,
    /// A follower with a bound or a time to idle would remove or hide by its own lights what its primary
    /// keeps.
    FollowerDecides,
    /// A policy's cold share must be above 0 and below 1.
    ColdShareOutOfRange(String),
    /// A thread of the library could not be started.
    Thread(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoReaperThreads => f.write_str(
                "a dedicated reaper needs at least one thread; Reaper::manual() has none",
            ),
            BuildError::ZeroBudget => f.write_str("the reaper's budget must be above zero"),
            BuildError::ZeroInterval => f.write_str("the reaper's interval must be above zero"),
            BuildError::DutyOutOfRange(given) => {
                write!(f, "max_duty must be above 0 and at most 1, not {given}")
            }
            BuildError::ToleratedDeadOutOfRange(given) => {
                write!(
                    f,
                    "tolerated_dead must be at least 0 and below 1, not {given}"
                )
            }
            BuildError::ThresholdOutOfRange(given) => {
                write!(f, "threshold must be above 0 and at most 1, not {given}")
            }
            BuildError::EmptySample => {
                f.write_str("a sampling reaper needs a sample_size and max_rounds of at least 1")
            }
            BuildError::ShardsOutOfRange(given) => {
                write!(f, "a cache has 1 to 65536 shards, not {given}")
            }
            BuildError::ZeroLifetime => {
                f.write_str("time_to_live, time_to_idle and refresh_after must be above zero")
            }
            BuildError::CapacityOutOfRange(given) => {
                write!(
                    f,
                    "an initial_capacity of {given} is more than 2^30 entries a shard"
                )
            }
            BuildError::LeaseOutOfRange(given) => {
                write!(f, "a clock_lease is 10 ms to an hour long, not {given:?}")
            }
            BuildError::LeasedCustomClock => f.write_str(
                "clock_lease needs the default clock; a clock of your own is always asked",
            ),
            BuildError::EagernessOutOfRange(given) => {
                write!(
                    f,
                    "early_refresh must be at least 0 and finite, not {given}"
                )
            }
            BuildError::EarlyRefreshWithoutRefresh => {
                f.write_str("early_refresh needs a refresh_after to be ahead of")
            }
            BuildError::JitterOutOfRange(given) => {
                write!(
                    f,
                    "lifetime_jitter must be at least 0 and below 1, not {given}"
                )
            }
            BuildError::EmptyFeed => f.write_str("a removal_feed needs a capacity of at least 1"),
            BuildError::FollowerDecides => f.write_str(
                "a follower has no bound and no time to idle: its primary decides what ends",
            ),
            BuildError::ColdShareOutOfRange(given) => {
                write!(f, "a cold_share must be above 0 and below 1, not {given}")
            }
            BuildError::Thread(reason) => {
                write!(f, "a thread could not be started: {reason}")
            }
        }
    }
}

impl Error for BuildError {}

/// Why an increment was refused; the counter is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterError {
    /// The sum would leave −2^62 … 2^62 − 1.
    Overflow,
    /// There is no counter yet and no room for one: the cache is full and does not evict, a counter
    /// weighs more than the whole bound, or its shard has 2^30 entries.
    Full,
}

impl fmt::Display for CounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterError::Overflow => f.write_str("the counter would leave -2^62 .. 2^62 - 1"),
            CounterError::Full => f.write_str("the cache has no room for another counter"),
        }
    }
}

impl Error for CounterError {}

/// A key and value that the cache could not take, given back.
#[derive(Clone, PartialEq, Eq)]
pub struct Refused<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// Why.
    pub reason: RefusedReason,
}

/// Why the cache could not take an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedReason {
    /// It weighs more than the whole bound, or the bound is no entry at all.
    TooHeavy,
    /// The cache is full and [does not evict](crate::Policy::no_eviction).
    Full,
    /// The shard of the key has 2^30 entries, those among them that wait for readers to let go.
    NoSlot,
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedReason::TooHeavy => "the entry weighs more than the cache may hold",
            RefusedReason::Full => "the cache is full and does not evict",
            RefusedReason::NoSlot => "the key's shard has as many entries as it can have",
        })
    }
}

/// A bound cannot be changed that the cache was built without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotBounded;

impl fmt::Display for NotBounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cache was built without this bound")
    }
}

impl Error for NotBounded {}

impl<K, V> Refused<K, V> {
    pub(crate) fn because(reason: RefusedReason, (key, value): (K, V)) -> Self {
        Refused { key, value, reason }
    }
}

impl<K, V> fmt::Debug for Refused<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for Refused<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<K, V> Error for Refused<K, V> {}
