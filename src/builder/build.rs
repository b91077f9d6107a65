//! From settings to a cache.

use std::hash::{BuildHasher, Hash};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::Builder;
use crate::bound::{Bound, NONE};
use crate::cache::Cache;
use crate::cache::core::Core;
use crate::clock::{Time, nanos};
use crate::entry::word::NEVER;
use crate::error::BuildError;
use crate::follow::{Feed, Follower, Source};
use crate::groups::Tagging;
use crate::lane;
use crate::limits::MAX_SLOTS;
use crate::load::{Flights, Refresh};
use crate::reaper::crew::Enrolment;
use crate::reaper::{Reaper, Target, Who};
use crate::rules::{Listener, Rules};
use crate::shard::Shard;
use crate::slab::Extras;
use crate::sync::{Arc, AtomicU32, Weak, barrier, watch_forks};

/// Most shards of a cache.
const MAX_SHARDS: usize = 1 << 16;

/// Fewest entries of a bounded cache's shard, on average: smaller shards would not let the eviction
/// policy tell entries apart.
const ENTRIES_PER_SHARD: u64 = 64;

/// Limits of a clock's lease: a shorter one would keep the publisher busy, and a longer one leave
/// nearly all lifetimes to the clock.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

impl<K, V, S> Builder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the cache.
    ///
    /// # Cost
    /// Starts the reaper's threads, if they do not run yet. The first cache of a process that has several
    /// threads by then waits some ten milliseconds for Linux to agree to `membarrier(2)`.
    ///
    /// # Errors
    /// A [`BuildError`] for settings that contradict themselves, or if a reaper thread cannot be
    /// started.
    pub fn build(self) -> Result<Cache<K, V, S>, BuildError> {
        self.build_as(false)
    }

    /// Makes a cache that follows another one: see [`Follower`].
    ///
    /// # Errors
    /// As [`build`](Self::build); and with a bound or a time to idle, which would have the follower decide what
    /// is the primary's to decide.
    pub fn build_follower(self) -> Result<Follower<K, V, S>, BuildError>
    where
        K: Clone,
    {
        if self.choices.max_entries.is_some()
            || self.choices.max_weight.is_some()
            || self.choices.idle.is_some()
        {
            return Err(BuildError::FollowerDecides);
        }
        Ok(Follower::new(self.build_as(true)?))
    }

    fn build_as(mut self, follows: bool) -> Result<Cache<K, V, S>, BuildError> {
        let clock_is_manual = self
            .choices
            .clock
            .as_ref()
            .is_some_and(|clock| clock.is_manual());
        let reaper = match &self.choices.reaper {
            Some(reaper) => reaper.clone(),
            None if clock_is_manual => Reaper::manual(),
            None => Reaper::shared(),
        };
        self.check(&reaper)?;
        // Not by the first call that pins, and not beside threads that are started here.
        barrier::prepare();
        let mut time = match (self.choices.clock.take(), self.choices.lease) {
            (Some(clock), _) => Time::custom(clock),
            (None, Some(lease)) => Time::leased(lease).map_err(BuildError::Thread)?,
            (None, None) => Time::system(),
        };
        if follows {
            time.follow();
        }
        let core = Arc::new(self.into_core(time, &reaper));
        let target: Weak<dyn Target> = {
            let core: Weak<Core<K, V, S>> = Arc::downgrade(&core);
            core
        };
        let enrolment = match reaper.who {
            Who::Manual => return Ok(Cache { core }),
            Who::Shared => Enrolment::shared(target),
            Who::Dedicated(threads) => {
                // More threads than shards would have nothing to do.
                Enrolment::dedicated(target, threads.min(core.shards.len()), &core.name)
            }
        };
        let enrolment = enrolment.map_err(BuildError::Thread)?;
        let set = core.enrolment.set(enrolment);
        debug_assert!(set.is_ok());
        Ok(Cache { core })
    }

    fn check(&self, reaper: &Reaper) -> Result<(), BuildError> {
        reaper.check()?;
        if let Some(shards) = self.choices.shards
            && !(1..=MAX_SHARDS).contains(&shards)
        {
            return Err(BuildError::ShardsOutOfRange(shards));
        }
        if self.choices.live == Some(Duration::ZERO) || self.choices.idle == Some(Duration::ZERO) {
            return Err(BuildError::ZeroLifetime);
        }
        if self.choices.refresh == Some(Duration::ZERO) {
            return Err(BuildError::ZeroLifetime);
        }
        if !(self.choices.eagerness >= 0.0 && self.choices.eagerness.is_finite()) {
            return Err(BuildError::EagernessOutOfRange(
                self.choices.eagerness.to_string(),
            ));
        }
        if self.choices.eagerness > 0.0 && self.choices.refresh.is_none() {
            return Err(BuildError::EarlyRefreshWithoutRefresh);
        }
        if !(0.0..1.0).contains(&self.choices.jitter) {
            return Err(BuildError::JitterOutOfRange(
                self.choices.jitter.to_string(),
            ));
        }
        if self
            .choices
            .feed
            .as_ref()
            .is_some_and(|feed| feed.capacity() == 0)
        {
            return Err(BuildError::EmptyFeed);
        }
        self.choices
            .policy
            .check()
            .map_err(BuildError::ColdShareOutOfRange)?;
        let shards = self.choices.shards.unwrap_or(1).next_power_of_two();
        if self.choices.initial_capacity > shards.saturating_mul(MAX_SLOTS as usize) {
            return Err(BuildError::CapacityOutOfRange(
                self.choices.initial_capacity,
            ));
        }
        if let Some(lease) = self.choices.lease {
            if self.choices.clock.is_some() {
                return Err(BuildError::LeasedCustomClock);
            }
            if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
                return Err(BuildError::LeaseOutOfRange(lease));
            }
        }
        Ok(())
    }

    fn into_core(self, time: Time, reaper: &Reaper) -> Core<K, V, S> {
        // Also where no thread of the library's is: a child must forget the pins of threads it lacks.
        watch_forks();
        let count = match self.choices.shards {
            Some(shards) => shards.next_power_of_two(),
            None => {
                // (Hardly any entry weighs less than 1.)
                let most_weight = self.choices.max_weight.as_ref().map(|(most, _)| *most);
                default_shards(self.choices.max_entries, most_weight)
            }
        };
        // A deadline that cannot be counted to is none.
        let idle = self.choices.idle.map_or(0, nanos);
        let idle = if idle == NEVER { 0 } else { idle };
        let bound = Bound::new(
            self.choices.max_entries,
            self.choices.max_weight,
            &self.choices.policy,
        );
        let extras = Extras {
            marks: bound.is_any(),
            caps: idle != 0,
            softs: self.choices.refresh.is_some(),
        };
        let most = self.choices.max_entries.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        let room = self.choices.initial_capacity.min(most).div_ceil(count);
        let ordered = bound
            .is_any()
            .then(|| (&self.choices.policy, bound.share(count)));
        let shards = (0..count)
            .map(|_| Shard::new(room, extras, self.choices.tagger.is_some(), ordered))
            .collect();
        let rules = Rules {
            time,
            live: self.choices.live.map_or(NEVER, nanos),
            idle,
            expiry: self.choices.expiry,
            listener: heard(self.choices.listener, self.choices.feed.as_ref()),
            feed: self.choices.feed,
            bound,
            soonest: AtomicU32::new(lane::NONE),
            tagging: self.choices.tagger.map(Tagging::new),
            flights: Flights::new(),
            refresh: self
                .choices
                .refresh
                .map(|after| Refresh::new(nanos(after), self.choices.eagerness)),
            jitter: self.choices.jitter,
            manual: reaper.who == Who::Manual,
        };
        let settings = reaper.settings.clone();
        Core::new(
            shards,
            self.hasher,
            rules,
            settings,
            self.choices.record_stats,
            self.choices.name,
        )
    }
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A cache with the default settings but for the bound: they contradict nothing, so only a
    /// thread can be missing.
    pub(crate) fn build_or_manual(self) -> Cache<K, V> {
        let max_entries = self.choices.max_entries;
        self.build().unwrap_or_else(|_| {
            let mut manual = Builder::new().reaper(Reaper::manual());
            manual.choices.max_entries = max_entries;
            Cache {
                core: Arc::new(manual.into_core(Time::system(), &Reaper::manual())),
            }
        })
    }
}

/// What is told of removals: the feed first, which must miss nothing.
fn heard<K: Send + 'static, V: 'static>(
    listener: Option<Listener<K, V>>,
    feed: Option<&Arc<Feed<K>>>,
) -> Option<Listener<K, V>> {
    let Some(feed) = feed else {
        return listener;
    };
    let source = Source(Arc::clone(feed));
    Some(Box::new(move |key, value, cause| {
        // (A key's `Clone` that panics is no reason not to tell the listener.)
        let fed = catch_unwind(AssertUnwindSafe(|| source.0.push(key, cause)));
        if let Some(listener) = &listener {
            listener(key, value, cause);
        }
        fed.unwrap_or_else(|panic| resume_unwind(panic));
    }))
}

/// Four shards a core, at least 16; where only the weight is bounded, so that nobody knows how many
/// entries there will be, one a core, at least 4; but at least 64 entries each.
fn default_shards(max_entries: Option<u64>, max_weight: Option<u64>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let shards = match (max_entries, max_weight) {
        (None, Some(_)) => cores.next_power_of_two().clamp(4, MAX_SHARDS),
        _ => (4 * cores).next_power_of_two().clamp(16, MAX_SHARDS),
    };
    let most = max_entries.unwrap_or(NONE).min(max_weight.unwrap_or(NONE));
    let most = (most / ENTRIES_PER_SHARD).max(1);
    shards.min(1 << most.ilog2().min(16))
}
