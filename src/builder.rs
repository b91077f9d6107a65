//! Settings of a cache, checked before it is made.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::bound::{Bound, NONE, Weigher};
use crate::cache::Cache;
use crate::cache::core::Core;
use crate::clock::{Clock, Time, nanos};
use crate::entry::word::NEVER;
use crate::error::BuildError;
use crate::follow::{Feed, Follower, Source};
use crate::groups::{Tagger, Tagging, Tags};
use crate::lane;
use crate::lifetime::Expiry;
use crate::limits::MAX_SLOTS;
use crate::load::{Flights, Refresh};
use crate::order::Policy;
use crate::reaper::crew::Enrolment;
use crate::reaper::{Reaper, Target, Who};
use crate::rules::{Listener, Rules};
use crate::shard::Shard;
use crate::slab::Extras;
use crate::sync::{Arc, AtomicU32, Weak, watch_forks};
use crate::{RandomState, RemovalCause};

/// Most shards of a cache.
const MAX_SHARDS: usize = 1 << 16;

/// Fewest entries of a bounded cache's shard, on average: smaller shards would not let the eviction
/// policy tell entries apart.
const ENTRIES_PER_SHARD: u64 = 64;

/// Limits of a clock's lease: a shorter one would keep the publisher busy, and a longer one leave
/// nearly all lifetimes to the clock.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// Makes a [`Cache`] with settings of your own. From [`Cache::builder`].
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{BuildError, Cache, Reaper};
///
/// let cache: Cache<String, Vec<u8>> = Cache::builder()
///     .max_entries(1_000_000)
///     .time_to_live(Duration::from_secs(3600))
///     .time_to_idle(Duration::from_secs(600))
///     .name("sessions")
///     .build()?;
///
/// let wrong = Cache::<u8, u8>::builder().reaper(Reaper::dedicated(0)).build();
/// assert_eq!(wrong.unwrap_err(), BuildError::NoReaperThreads);
/// # drop(cache);
/// # Ok::<(), BuildError>(())
/// ```
#[must_use]
pub struct Builder<K, V, S = RandomState> {
    max_entries: Option<u64>,
    max_weight: Option<(u64, Weigher<K, V>)>,
    policy: Policy,
    live: Option<Duration>,
    idle: Option<Duration>,
    expiry: Option<Box<dyn Expiry<K, V>>>,
    refresh: Option<Duration>,
    eagerness: f64,
    jitter: f64,
    shards: Option<usize>,
    hasher: S,
    clock: Option<Box<dyn Clock>>,
    lease: Option<Duration>,
    reaper: Option<Reaper>,
    record_stats: bool,
    tagger: Option<Tagger<K, V>>,
    listener: Option<Listener<K, V>>,
    feed: Option<Arc<Feed<K>>>,
    initial_capacity: usize,
    name: String,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new() -> Self {
        Builder {
            max_entries: None,
            max_weight: None,
            policy: Policy::default(),
            live: None,
            idle: None,
            expiry: None,
            refresh: None,
            eagerness: 0.0,
            jitter: 0.0,
            shards: None,
            hasher: RandomState::new(),
            clock: None,
            lease: None,
            reaper: None,
            record_stats: false,
            tagger: None,
            listener: None,
            feed: None,
            initial_capacity: 0,
            name: String::new(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Most entries at a time, expired ones that are still linked among them; 0 is a cache that
    /// holds nothing. Without this and [`max_weight`](Self::max_weight) the cache is unbounded; with
    /// both, both hold.
    ///
    /// The bound is one for all shards: `entries` of them fit before the first is evicted. It is hard
    /// whenever no write is under way; while some are, each may exceed it by the one entry that it is
    /// adding. (Writers that are one too many together may each evict one.) What has left and waits for readers to let go ([`Stats::limbo`](crate::Stats::limbo))
    /// is not counted.
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = Some(entries);
        self
    }

    /// Most weight at a time, where `weigher` says what an entry weighs: bytes, or whatever you like.
    ///
    /// Entries are weighed once, when they are written, without any lock; a [`Counter`](crate::Counter)
    /// that is incremented keeps its weight. One entry may be as heavy as the whole bound; a heavier
    /// one is [refused](crate::RefusedReason::TooHeavy). An entry of weight 0 is never evicted for
    /// weight. The bound is as hard as that on entries: a write may exceed it by what it is adding,
    /// until it has evicted as much again.
    pub fn max_weight(
        mut self,
        weight: u64,
        weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.max_weight = Some((weight, Box::new(weigher)));
        self
    }

    /// Which living entry has to go when the cache is full; [`Policy::segmented_clock`] by default.
    /// Without a bound nothing is evicted, whatever the policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How long an entry lives after it was written, unless it is given a lifetime of its own.
    pub fn time_to_live(mut self, length: Duration) -> Self {
        self.live = Some(length);
        self
    }

    /// How long an entry lives after it was last used (read by `get`, `with`, `get_many` or a
    /// pinned `get`, incremented, or written). With other lifetimes besides, the earliest deadline
    /// counts.
    ///
    /// A renewal by a read takes no lock, and is left out when it would gain less than a sixteenth
    /// of the idle time: an entry may expire that much early.
    pub fn time_to_idle(mut self, length: Duration) -> Self {
        self.idle = Some(length);
        self
    }

    /// Decides each entry's lifetime from its key and value, unless it is given one.
    pub fn expiry(mut self, policy: impl Expiry<K, V>) -> Self {
        self.expiry = Some(Box::new(policy));
        self
    }

    /// From when on a value is stale, counted from when it was written: still read like any other, and
    /// loaded again by the `get_or_refresh` calls
    /// ([`get_or_refresh_with`](Cache::get_or_refresh_with)). Choose it shorter than the lifetime
    /// by what a load may take, so that nobody has to wait for one.
    ///
    /// Takes 8 bytes an entry. A [`Counter`](crate::Counter) that is incremented keeps its age.
    pub fn refresh_after(mut self, length: Duration) -> Self {
        self.refresh = Some(length);
        self
    }

    /// Lets reads find a value stale a random time early: with 1, by about as long as a load takes on average;
    /// with more, earlier. 0 (the default) is never. Needs [`refresh_after`](Self::refresh_after).
    ///
    /// Busy keys are then loaded again before they are stale, and keys that were written together at
    /// different times. The method is XFetch: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache
    /// Stampede Prevention", PVLDB 8, 2015 (there with each key's own load time, here with the mean of
    /// the cache's loads).
    pub fn early_refresh(mut self, eagerness: f64) -> Self {
        self.eagerness = eagerness;
        self
    }

    /// Shortens each lifetime of the cache's own ([`time_to_live`](Self::time_to_live), or a length that
    /// [`expiry`](Self::expiry) gives) by a random part of up to this share of it, so that entries that
    /// were written together do not end, and are not loaded again, together. 0 (the default) to below 1;
    /// 0.1 is a good choice. Lifetimes given to a call are kept exactly.
    pub fn lifetime_jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Says which tags each entry carries, for [`Cache::invalidate_tag`]: any number, of any types.
    ///
    /// It runs once for each value that is stored, on the writing thread, without any lock. A
    /// [`Counter`](crate::Counter) that is incremented keeps its tags.
    ///
    /// # Cost
    /// For each tag of an entry a step in a table under the shard's lock when it is stored and when it leaves, and 24
    /// bytes (and some 40 for each tag that is in use). Nothing for reads.
    pub fn tags(mut self, tagger: impl Fn(&K, &V, &mut Tags) + Send + Sync + 'static) -> Self {
        self.tagger = Some(Box::new(tagger));
        self
    }

    /// How many shards, rounded up to a power of two, at most 65,536. By default four for each core and
    /// at least 16, with at least 64 entries a shard if the cache is bounded; where only the weight is
    /// bounded, one for each core and at least 4.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The hasher of keys, ahash with random keys by default.
    pub fn hasher<H>(self, hasher: H) -> Builder<K, V, H> {
        Builder {
            max_entries: self.max_entries,
            max_weight: self.max_weight,
            policy: self.policy,
            live: self.live,
            idle: self.idle,
            expiry: self.expiry,
            refresh: self.refresh,
            eagerness: self.eagerness,
            jitter: self.jitter,
            shards: self.shards,
            hasher,
            clock: self.clock,
            lease: self.lease,
            reaper: self.reaper,
            record_stats: self.record_stats,
            tagger: self.tagger,
            listener: self.listener,
            feed: self.feed,
            initial_capacity: self.initial_capacity,
            name: self.name,
        }
    }

    /// Where the time comes from: the system's monotonic clock by default. A clock that is
    /// [manual](Clock::is_manual) makes [`Reaper::manual`] the default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Lets reads trust a published time instead of asking the clock: an entry whose deadline is
    /// farther than `lease` beyond it counts as alive. From 10 ms to an hour; a second is a good choice.
    /// It helps only entries whose lifetime is longer than the lease.
    ///
    /// One thread of the process publishes the time four times per lease (the shortest there is).
    /// A read of an entry with a lifetime then costs what a read of one without does, which is most
    /// worth having where reads miss the processor's caches: a call of a clock keeps the processor
    /// from overlapping them. The last `lease` of each lifetime is decided by the clock as ever.
    ///
    /// What it asks in return: "an expired entry is never read" holds only while the publishing
    /// thread is never kept from running for three quarters of the lease. If the machine is so
    /// overloaded, or the process was stopped (`SIGSTOP`, a debugger, a frozen container) and goes
    /// on, an entry may be read past its deadline until that thread has run again. Without this
    /// setting nothing depends on any thread. A process that was forked from this one does not
    /// publish: there, caches from before the fork ask the clock, until a new one is given a lease.
    pub fn clock_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Who reclaims expired entries; [`Reaper::shared`] by default.
    pub fn reaper(mut self, reaper: Reaper) -> Self {
        self.reaper = Some(reaper);
        self
    }

    /// Whether reads are counted (`hits`, `misses`, `expired_misses`). Off by default: it costs a
    /// write to memory of the thread's stripe on every read.
    pub fn record_stats(mut self, record: bool) -> Self {
        self.record_stats = record;
        self
    }

    /// Hears of every entry that leaves the cache while the cache exists, exactly once, with its
    /// cause.
    ///
    /// It runs without any lock on the thread that unlinked the entry (a writer's, or a reaper's),
    /// before that thread's call returns, and may call the cache. What it causes to leave is
    /// reported inline, up to 16 listeners deep; deeper ones are reported when the outermost is
    /// done. A slow listener slows down whoever removes. A panic in it is contained and counted.
    /// At the bound, a listener that inserts another entry for each one evicted never comes to an end.
    /// With a listener, reads leave expired entries to writers and the reaper. A listener that owns
    /// a handle of its own cache keeps it from ever ending.
    pub fn on_removal(
        mut self,
        listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Keeps what leaves for a consumer of [`Cache::removals`], up to so many removals while there is one. It costs
    /// what a listener costs, and a clone of each key.
    pub fn removal_feed(mut self, capacity: usize) -> Self
    where
        K: Clone,
    {
        self.feed = Some(Arc::new(Feed::new(capacity)));
        self
    }

    /// Entries that the index should have room for from the start (some 8 bytes for each are
    /// allocated at once; not for more than the bound). Entries themselves are allocated as they
    /// come. At most 2^30, or as many for each shard if their number is given; more is refused.
    pub fn initial_capacity(mut self, entries: usize) -> Self {
        self.initial_capacity = entries;
        self
    }

    /// A name, for the reaper's threads and for debugging.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

impl<K, V, S> Builder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the cache.
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
        if self.max_entries.is_some() || self.max_weight.is_some() || self.idle.is_some() {
            return Err(BuildError::FollowerDecides);
        }
        Ok(Follower::new(self.build_as(true)?))
    }

    fn build_as(mut self, follows: bool) -> Result<Cache<K, V, S>, BuildError> {
        let clock_is_manual = self.clock.as_ref().is_some_and(|clock| clock.is_manual());
        let reaper = match &self.reaper {
            Some(reaper) => reaper.clone(),
            None if clock_is_manual => Reaper::manual(),
            None => Reaper::shared(),
        };
        self.check(&reaper)?;
        let mut time = match (self.clock.take(), self.lease) {
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
        if let Some(shards) = self.shards
            && !(1..=MAX_SHARDS).contains(&shards)
        {
            return Err(BuildError::ShardsOutOfRange(shards));
        }
        if self.live == Some(Duration::ZERO) || self.idle == Some(Duration::ZERO) {
            return Err(BuildError::ZeroLifetime);
        }
        if self.refresh == Some(Duration::ZERO) {
            return Err(BuildError::ZeroLifetime);
        }
        if !(self.eagerness >= 0.0 && self.eagerness.is_finite()) {
            return Err(BuildError::EagernessOutOfRange(self.eagerness.to_string()));
        }
        if self.eagerness > 0.0 && self.refresh.is_none() {
            return Err(BuildError::EarlyRefreshWithoutRefresh);
        }
        if !(0.0..1.0).contains(&self.jitter) {
            return Err(BuildError::JitterOutOfRange(self.jitter.to_string()));
        }
        if self.feed.as_ref().is_some_and(|feed| feed.capacity() == 0) {
            return Err(BuildError::EmptyFeed);
        }
        self.policy
            .check()
            .map_err(BuildError::ColdShareOutOfRange)?;
        let shards = self.shards.unwrap_or(1).next_power_of_two();
        if self.initial_capacity > shards.saturating_mul(MAX_SLOTS as usize) {
            return Err(BuildError::CapacityOutOfRange(self.initial_capacity));
        }
        if let Some(lease) = self.lease {
            if self.clock.is_some() {
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
        let count = match self.shards {
            Some(shards) => shards.next_power_of_two(),
            None => {
                // (Hardly any entry weighs less than 1.)
                let most_weight = self.max_weight.as_ref().map(|(most, _)| *most);
                default_shards(self.max_entries, most_weight)
            }
        };
        // A deadline that cannot be counted to is none.
        let idle = self.idle.map_or(0, nanos);
        let idle = if idle == NEVER { 0 } else { idle };
        let bound = Bound::new(self.max_entries, self.max_weight, &self.policy);
        let extras = Extras {
            marks: bound.is_any(),
            caps: idle != 0,
            softs: self.refresh.is_some(),
        };
        let most = self.max_entries.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        let room = self.initial_capacity.min(most).div_ceil(count);
        let ordered = bound.is_any().then(|| (&self.policy, bound.share(count)));
        let shards = (0..count)
            .map(|_| Shard::new(room, extras, self.tagger.is_some(), ordered))
            .collect();
        let rules = Rules {
            time,
            live: self.live.map_or(NEVER, nanos),
            idle,
            expiry: self.expiry,
            listener: heard(self.listener, self.feed.as_ref()),
            feed: self.feed,
            bound,
            soonest: AtomicU32::new(lane::NONE),
            tagging: self.tagger.map(Tagging::new),
            flights: Flights::new(),
            refresh: self
                .refresh
                .map(|after| Refresh::new(nanos(after), self.eagerness)),
            jitter: self.jitter,
            manual: reaper.who == Who::Manual,
        };
        let settings = reaper.settings.clone();
        Core::new(
            shards,
            self.hasher,
            rules,
            settings,
            self.record_stats,
            self.name,
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
        let max_entries = self.max_entries;
        self.build().unwrap_or_else(|_| {
            let mut manual = Builder::new().reaper(Reaper::manual());
            manual.max_entries = max_entries;
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

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("max_entries", &self.max_entries)
            .field("policy", &self.policy)
            .field("time_to_live", &self.live)
            .field("time_to_idle", &self.idle)
            .field("reaper", &self.reaper)
            .finish_non_exhaustive()
    }
}
