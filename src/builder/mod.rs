//! Settings of a cache; [`build`] checks them and makes it.

mod build;

use std::fmt;
use std::time::Duration;

use crate::bound::Weigher;
use crate::clock::Clock;
use crate::follow::Feed;
use crate::groups::{Tagger, Tags};
use crate::lifetime::Expiry;
use crate::order::Policy;
use crate::reaper::Reaper;
use crate::rules::Listener;
use crate::sync::Arc;
use crate::{RandomState, RemovalCause};

/// Makes a [`Cache`](crate::Cache) with settings of your own. From [`Cache::builder`](crate::Cache::builder).
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
    choices: Choices<K, V>,
    hasher: S,
}

/// What has been chosen, but for the hasher, whose type changes the builder's.
struct Choices<K, V> {
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
            choices: Choices {
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
                clock: None,
                lease: None,
                reaper: None,
                record_stats: false,
                tagger: None,
                listener: None,
                feed: None,
                initial_capacity: 0,
                name: String::new(),
            },
            hasher: RandomState::new(),
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
        self.choices.max_entries = Some(entries);
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
        self.choices.max_weight = Some((weight, Box::new(weigher)));
        self
    }

    /// Which living entry has to go when the cache is full; [`Policy::segmented_clock`] by default.
    /// Without a bound nothing is evicted, whatever the policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.choices.policy = policy;
        self
    }

    /// How long an entry lives after it was written, unless it is given a lifetime of its own.
    pub fn time_to_live(mut self, length: Duration) -> Self {
        self.choices.live = Some(length);
        self
    }

    /// How long an entry lives after it was last used (read by `get`, `with`, `get_many` or a
    /// pinned `get`, incremented, or written). With other lifetimes besides, the earliest deadline
    /// counts.
    ///
    /// A renewal by a read takes no lock, and is left out when it would gain less than a sixteenth
    /// of the idle time: an entry may expire that much early.
    pub fn time_to_idle(mut self, length: Duration) -> Self {
        self.choices.idle = Some(length);
        self
    }

    /// Decides each entry's lifetime from its key and value, unless it is given one.
    pub fn expiry(mut self, policy: impl Expiry<K, V>) -> Self {
        self.choices.expiry = Some(Box::new(policy));
        self
    }

    /// From when on a value is stale, counted from when it was written: still read like any other, and
    /// loaded again by the `get_or_refresh` calls
    /// ([`get_or_refresh_with`](crate::Cache::get_or_refresh_with)). Choose it shorter than the lifetime
    /// by what a load may take, so that nobody has to wait for one.
    ///
    /// Takes 8 bytes an entry. A [`Counter`](crate::Counter) that is incremented keeps its age.
    pub fn refresh_after(mut self, length: Duration) -> Self {
        self.choices.refresh = Some(length);
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
        self.choices.eagerness = eagerness;
        self
    }

    /// Shortens each lifetime of the cache's own ([`time_to_live`](Self::time_to_live), or a length that
    /// [`expiry`](Self::expiry) gives) by a random part of up to this share of it, so that entries that
    /// were written together do not end, and are not loaded again, together. 0 (the default) to below 1;
    /// 0.1 is a good choice. Lifetimes given to a call are kept exactly.
    pub fn lifetime_jitter(mut self, share: f64) -> Self {
        self.choices.jitter = share;
        self
    }

    /// Says which tags each entry carries, for [`Cache::invalidate_tag`](crate::Cache::invalidate_tag): any number, of any types.
    ///
    /// It runs once for each value that is stored, on the writing thread, without any lock. A
    /// [`Counter`](crate::Counter) that is incremented keeps its tags.
    ///
    /// # Cost
    /// For each tag of an entry a step in a table under the shard's lock when it is stored and when it leaves, and 24
    /// bytes (and some 40 for each tag that is in use). Nothing for reads.
    pub fn tags(mut self, tagger: impl Fn(&K, &V, &mut Tags) + Send + Sync + 'static) -> Self {
        self.choices.tagger = Some(Box::new(tagger));
        self
    }

    /// How many shards, rounded up to a power of two, at most 65,536. By default four for each core and
    /// at least 16, with at least 64 entries a shard if the cache is bounded; where only the weight is
    /// bounded, one for each core and at least 4.
    pub fn shards(mut self, shards: usize) -> Self {
        self.choices.shards = Some(shards);
        self
    }

    /// The hasher of keys, ahash with random keys by default.
    pub fn hasher<H>(self, hasher: H) -> Builder<K, V, H> {
        Builder {
            choices: self.choices,
            hasher,
        }
    }

    /// Where the time comes from: the system's monotonic clock by default. A clock that is
    /// [manual](Clock::is_manual) makes [`Reaper::manual`] the default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.choices.clock = Some(Box::new(clock));
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
        self.choices.lease = Some(lease);
        self
    }

    /// Who reclaims expired entries; [`Reaper::shared`] by default.
    pub fn reaper(mut self, reaper: Reaper) -> Self {
        self.choices.reaper = Some(reaper);
        self
    }

    /// Whether reads are counted (`hits`, `misses`, `expired_misses`). Off by default: it costs a
    /// write to memory of the thread's stripe on every read.
    pub fn record_stats(mut self, record: bool) -> Self {
        self.choices.record_stats = record;
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
        self.choices.listener = Some(Box::new(listener));
        self
    }

    /// Keeps what leaves for a consumer of [`Cache::removals`](crate::Cache::removals), up to so many removals while there is one. It costs
    /// what a listener costs, and a clone of each key.
    pub fn removal_feed(mut self, capacity: usize) -> Self
    where
        K: Clone,
    {
        self.choices.feed = Some(Arc::new(Feed::new(capacity)));
        self
    }

    /// Entries that the index should have room for from the start (some 8 bytes for each are
    /// allocated at once; not for more than the bound). Entries themselves are allocated as they
    /// come. At most 2^30, or as many for each shard if their number is given; more is refused.
    pub fn initial_capacity(mut self, entries: usize) -> Self {
        self.choices.initial_capacity = entries;
        self
    }

    /// A name, for the reaper's threads and for debugging.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.choices.name = name.into();
        self
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.choices.name)
            .field("max_entries", &self.choices.max_entries)
            .field("policy", &self.choices.policy)
            .field("time_to_live", &self.choices.live)
            .field("time_to_idle", &self.choices.idle)
            .field("reaper", &self.choices.reaper)
            .finish_non_exhaustive()
    }
}
