//! The cache as its users see it.

#[cfg(test)]
mod audit_tests;
mod bulk;
pub(crate) mod core;
mod deadline;
mod entry;
mod extend;
mod iter;
mod load;
#[cfg(feature = "rayon")]
mod parallel;
mod pinned;
mod read;
mod refresh;
mod room;
mod tags;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
pub(crate) mod transfer;
mod update;
mod watch;
mod write;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::chance;
use crate::follow::Removals;
use crate::limits::{DROP_SLICE, GRACE_TRIES, GRACE_TRIES_OF_A_CYCLE};
use crate::reaper::budget::Budget;
use crate::reaper::crew::is_crew_thread;
use crate::reaper::sweep::Bounds;
use crate::reaper::{Kind, Reaped, Target, sample, sweep, worker};
use crate::stats::add;
use crate::sync::{Arc, Ordering};
use crate::{NotBounded, RandomState, lane};

pub use entry::Entry;
pub use iter::{Drain, IntoIter, Iter};
pub use load::{Loading, Turn};
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use pinned::{Pinned, PinnedIter};
pub use update::{Computed, Op};

use self::core::Core;

/// A concurrent cache whose entries have lifetimes.
///
/// A `Cache` is a handle: clones are cheap and share one cache, which ends with the last of them.
///
/// # Guarantees
/// - **Exact**: an entry is never read at or after its deadline, on any path, whether or not it has
///   been reclaimed. An entry that was once reported absent does not come back.
/// - **Prompt**: unless it is [reaped by hand](crate::Reaper::manual), an expired entry's value is
///   dropped soon after its deadline (about the reaper's interval) without anyone calling.
/// - **Quiet**: a read that hits takes no lock and writes no memory that other threads read, beyond
///   its own thread's epoch record and (in bounded caches) a mark that stops being written once the
///   entry is hot. Writes lock one shard for a bounded number of steps. Values are dropped by the
///   reaper.
///
/// # Values
/// A value is dropped only when no reader can be looking at it any more, so reads hand out clones
/// ([`get`](Self::get)) or references for a while ([`with`](Self::with), [`pin`](Self::pin)). Put
/// large values into an [`Arc`].
///
/// # Panics
/// Panics in `Hash`, `Eq`, closures and policies reach the caller, and leave the cache usable; those
/// in `Drop` and listeners are contained and counted. `Eq` and `Hash` of keys must not call the
/// cache: `Eq` runs under a shard's lock, and would wait for itself.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Cache;
///
/// let cache: Cache<String, u32> = Cache::builder()
///     .max_entries(10_000)
///     .time_to_live(Duration::from_secs(300))
///     .build()?;
/// cache.insert("answer".to_string(), 42);
/// assert_eq!(cache.get("answer"), Some(42));
/// # Ok::<(), ebbtide::BuildError>(())
/// ```
pub struct Cache<K, V, S = RandomState> {
    pub(crate) core: Arc<Core<K, V, S>>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A cache of at most `max_entries` entries, which live until they are removed, replaced or
    /// evicted, or as long as their writer says.
    ///
    /// Should no thread be available for the reaper, the cache is one that is reaped by hand; use
    /// [`builder`](Self::builder) to see the error instead.
    pub fn new(max_entries: u64) -> Self {
        Self::builder().max_entries(max_entries).build_or_manual()
    }

    /// A cache without a bound on its number of entries; otherwise as [`new`](Self::new).
    pub fn unbounded() -> Self {
        Self::builder().build_or_manual()
    }

    /// A cache with settings of your own.
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The name given to the builder.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Linked entries, expired ones that have not been unlinked yet among them.
    ///
    /// In a bounded cache one atomic load. Without a bound it takes each shard's lock in turn for a
    /// few instructions, so that it is no snapshot while others write.
    pub fn entry_count(&self) -> u64 {
        self.core.rules.bound.entries().unwrap_or_else(|| {
            let counts = self.core.shards.iter().map(|shard| shard.counts().0);
            counts.sum()
        })
    }

    /// The sum of all weights, as [`max_weight`](Builder::max_weight)'s weigher has it; without one
    /// every entry weighs 1. Cost as [`entry_count`](Self::entry_count).
    pub fn weight(&self) -> u64 {
        let weight = self.core.rules.bound.weight();
        weight.unwrap_or_else(|| self.entry_count())
    }

    /// Changes the bound on entries. If more are linked than may be, evicts until they are not, before it
    /// returns: in holds of at most 64 entries, from one shard after another, expired ones first. (With
    /// [`Policy::no_eviction`](crate::Policy::no_eviction) nothing is evicted, and nothing new fits until
    /// enough has left.) Writers meanwhile pay for no more than they bring.
    ///
    /// # Errors
    /// [`NotBounded`] if the cache was built without [`max_entries`](Builder::max_entries).
    pub fn set_max_entries(&self, entries: u64) -> Result<(), NotBounded> {
        self.change_bound(self.core.rules.bound.set_most_entries(entries))
    }

    /// Changes the bound on weight, as [`set_max_entries`](Self::set_max_entries) does that on entries.
    ///
    /// # Errors
    /// [`NotBounded`] if the cache was built without [`max_weight`](Builder::max_weight).
    pub fn set_max_weight(&self, weight: u64) -> Result<(), NotBounded> {
        self.change_bound(self.core.rules.bound.set_most_weight(weight))
    }

    fn change_bound(&self, is_bounded: bool) -> Result<(), NotBounded> {
        if !is_bounded {
            return Err(NotBounded);
        }
        self.core.bound_changed();
        Ok(())
    }

    /// What leaves from now on, for a [`Follower`](crate::Follower). `None` if the cache was built without a
    /// [`removal_feed`](Builder::removal_feed), or while another consumer exists.
    pub fn removals(&self) -> Option<Removals<K>> {
        Removals::take(self.core.rules.feed.as_ref()?)
    }

    /// Reclaims on this thread for about `budget`: unlinks expired entries from where the last
    /// call stopped, and drops values whose grace period is over.
    ///
    /// Meant for caches with [`Reaper::manual`](crate::Reaper::manual); on others it lends the
    /// reaper a hand. The budget is real time, whatever the cache's clock. Locks one shard at a
    /// time, for at most about 50 µs. Runs listeners and drops values on this thread.
    pub fn reap(&self, budget: Duration) -> Reaped {
        self.reap_within(budget, u64::MAX)
    }

    /// As [`reap`](Self::reap), but for as long as it takes to unlink up to `entries` expired
    /// entries.
    pub fn reap_at_most(&self, entries: u64) -> Reaped {
        self.reap_within(Duration::MAX, entries)
    }

    fn reap_within(&self, budget: Duration, most: u64) -> Reaped {
        let core = &*self.core;
        let begin = Instant::now();
        let clock = || u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let limit = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
        let bounds = Bounds {
            budget: Budget::new(0, limit),
            most,
            clock: &clock,
        };
        let mine = |_: usize| true;
        let report = match core.settings.strategy.kind {
            Kind::Sweep { tolerated } => {
                let mut next = core.next_shard.load(Ordering::Relaxed) % core.shards.len();
                let horizon = lane::unit_of(core.rules.time.now());
                let report = sweep::cycle(core, &mine, &mut next, horizon, tolerated, &bounds);
                core.next_shard.store(next, Ordering::Relaxed);
                report
            }
            Kind::Sample {
                size,
                threshold,
                rounds,
            } => {
                let mut random = chance::source();
                sample::cycle(core, &mine, (size, threshold, rounds), &bounds, &mut random)
            }
        };
        let dropped = self.drop_waiting(&bounds);
        let spent = clock();
        worker::count(core, &report, dropped, &bounds.budget, spent);
        add(&core.counts.time, spent);
        core.counts.note_look();
        Reaped {
            scanned: report.scanned,
            expired: report.expired,
            refiled: report.refiled,
            dropped,
            spent: Duration::from_nanos(spent),
            finished: report.finished,
        }
    }

    /// Seals what waits, and drops what is past its grace period within the budget.
    fn drop_waiting(&self, bounds: &Bounds<'_>) -> u64 {
        let core = &*self.core;
        let mut dropped = 0;
        let waiting: Vec<usize> = (0..core.shards.len())
            .filter(|&shard| core.waiting(shard) > 0)
            .collect();
        for &shard in &waiting {
            core.seal(shard);
        }
        for attempt in 0..GRACE_TRIES {
            if waiting.iter().all(|&shard| core.waiting(shard) == 0) {
                break;
            }
            core.flush();
            for &shard in &waiting {
                while let Some(count) = core.drop_some(shard, DROP_SLICE) {
                    dropped += count;
                    if bounds.budget.is_spent((bounds.clock)()) {
                        return dropped;
                    }
                }
            }
            if bounds.budget.is_spent((bounds.clock)()) {
                return dropped;
            }
            if attempt >= GRACE_TRIES_OF_A_CYCLE {
                // Some thread is pinned; it may only need a moment.
                std::thread::yield_now();
            }
        }
        // All: writers who helped may have dropped what waited here.
        for shard in 0..core.shards.len() {
            core.trim(shard);
        }
        crate::pages::trim();
        dropped
    }

    /// Recounts every structure of the cache against every other.
    ///
    /// # Panics
    /// When they disagree. For this library's own tests; call it while no other thread writes.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn validate(&self) {
        let guard = crate::reclaim::pin();
        let (mut entries, mut weight) = (0, 0_u64);
        for shard in &self.core.shards {
            let linked = shard.validate(!self.core.rules.time.follows(), &guard);
            entries += linked.0;
            weight = weight
                .checked_add(linked.1)
                .expect("weights fit their type");
        }
        let bound = &self.core.rules.bound;
        assert_eq!(bound.entries().unwrap_or(entries), entries, "entries");
        assert_eq!(bound.weight().unwrap_or(weight), weight, "weight");
        if bound.evicts() {
            assert_eq!(bound.excess(), None, "the bound is exceeded");
        }
    }
}

impl<K, V, S> Clone for Cache<K, V, S> {
    /// Another handle of the same cache.
    fn clone(&self) -> Self {
        // Relaxed: this handle keeps the cache from ending meanwhile.
        self.core.handles.fetch_add(1, Ordering::Relaxed);
        Cache {
            core: Arc::clone(&self.core),
        }
    }
}

impl<K, V, S> Drop for Cache<K, V, S> {
    fn drop(&mut self) {
        // AcqRel: what the other handles did happens before the end.
        if self.core.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.core.closing.store(true, Ordering::Release);
        let Some(enrolment) = self.core.enrolment.get() else {
            return;
        };
        enrolment.dismiss();
        if is_crew_thread() {
            // A reaper drops the last handle (it was inside a value or a listener) and must not wait
            // for itself or for another reaper that waits for it: the reference of whoever is inside
            // the cache ends it, perhaps higher up on this stack.
            return;
        }
        // A thread of the crew may still be inside a slice. Wait for it, so that every value is
        // dropped when this returns, on this thread. (If one was at the moment of a fork, the child
        // keeps the values: that thread's reference exists there, but not the thread.)
        let mut patience = 0u32;
        while !enrolment.is_left_alone() {
            patience += 1;
            if patience < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.core.name)
            .finish_non_exhaustive()
    }
}
