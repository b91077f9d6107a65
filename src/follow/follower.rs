//! A cache that hides what is over and leaves it to its primary to end it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;

use super::feed::Removal;
use crate::cache::{Cache, Iter, Pinned};
use crate::lifetime::Lifetime;
use crate::reaper::Reaped;
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard};
use crate::{RandomState, RemovalCause};

/// Locks among which keys are dealt out.
const STRIPES: usize = 16;

/// A cache that follows another one, its *primary*: made by
/// [`Builder::build_follower`](crate::Builder::build_follower).
///
/// Both are fed by one log of the values that the primary stored; the follower is also fed by the primary's
/// [`removals`](Cache::removals). What is over by the follower's own clock is hidden: no read finds it. But
/// it stays, and is neither removed by reads nor swept, until the primary's removal of it is
/// [applied](Self::apply): its clock may be fast or slow, or step, and the two hold the same
/// entries once both have seen all of log and feed. (So does Redis, whose replicas hide expired keys and wait for their
/// primary's `DEL`.)
///
/// # What must be in the log, and how the two are matched
/// In the order of the log each value of a key on the primary is one [`store`](Self::store) here: log what
/// `insert` was given (a lifetime of zero and a moment that has passed included), and of conditional writes (`insert_if_absent`,
/// `compute`, …) those that stored a new value. Each value leaves the primary once and is in its feed once, whatever the cause, replaced
/// ones too; begin to fetch it before the first value is stored. So the follower only counts for each key: as long as more
/// values were stored than have left, the last one is there. Log and feed may run ahead of each other
/// as they like. Removals need not be in the log. What the primary does not remember (reads, `touch`, a changed deadline) only
/// matters to what is hidden: see [`expire`](Self::expire) and [`persist`](Self::persist).
///
/// # Cost
/// Reads are a [`Cache`]'s. Writes take one of sixteen locks besides the shard's; a key that was replaced is kept in
/// a table until its removal comes in. `Hash`, `Eq` and `Clone` of keys, an [`Expiry`](crate::Expiry) policy and a listener run under that lock and
/// must not write to the follower.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Cache, ManualClock};
///
/// let primary: Cache<&str, u32> = Cache::builder().removal_feed(1_000).build()?;
/// let mut removals = primary.removals().expect("nobody else follows");
/// let clock = ManualClock::new();
/// let follower = Cache::builder().clock(clock.clone()).build_follower()?;
///
/// primary.insert_with_ttl("a", 1, Duration::from_secs(60));
/// follower.store_with_ttl("a", 1, Duration::from_secs(60));
/// clock.advance(Duration::from_secs(61)); // it is ahead of the primary's
/// assert_eq!(follower.get("a"), None);
/// assert_eq!(follower.entry_count(), 1);
/// primary.invalidate("a");
/// follower.apply(&removals.try_next()?.expect("it has left"));
/// assert_eq!(follower.entry_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Follower<K, V, S = RandomState> {
    cache: Cache<K, V, S>,
    /// For keys whose last value is not simply there or gone: values that left here by other ways than a
    /// removal of the primary's, less removals that came before their values.
    ahead: Box<[Ahead<K>]>,
}

type Ahead<K> = Mutex<HashMap<K, i64, RandomState>>;

impl<K, V, S> Follower<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn new(cache: Cache<K, V, S>) -> Self {
        let ahead = (0..STRIPES).map(|_| Mutex::new(HashMap::default()));
        Follower {
            cache,
            ahead: ahead.collect(),
        }
    }

    /// Stores a value that the primary has stored, with this cache's own lifetime.
    pub fn store(&self, key: K, value: V) {
        self.put(key, value, None);
    }

    /// Stores a value that the primary has stored with this lifetime, which begins now. One that is over
    /// is stored and hidden.
    pub fn store_with_ttl(&self, key: K, value: V, lifetime: impl Into<Lifetime>) {
        self.put(key, value, Some(lifetime.into()));
    }

    fn put(&self, key: K, value: V, lifetime: Option<Lifetime>) {
        let mut ahead = self.stripe(&key);
        if ahead.get(&key).is_some_and(|&count| count < 0) {
            // It has left the primary already.
            count(&mut ahead, key, 1);
            return;
        }
        let replaces = self.cache.holds(&key);
        let again = replaces.then(|| key.clone());
        match lifetime {
            None => self.cache.insert(key, value),
            Some(lifetime) => self.cache.insert_with_ttl(key, value, lifetime),
        }
        if let Some(key) = again {
            // The removal of the one before is still to come.
            count(&mut ahead, key, 1);
        }
    }

    /// Carries out a removal of the primary's; whether that removed an entry here. (It does not if the value
    /// it is about has been replaced here, or is still to come.)
    pub fn apply(&self, removal: &Removal<K>) -> bool {
        let key = &removal.key;
        let mut ahead = self.stripe(key);
        let owed = ahead.get(key).is_some_and(|&count| count > 0);
        if !owed && self.cache.holds(key) {
            return self.cache.end(key, removal.cause, |_| ()).is_some();
        }
        count(&mut ahead, key.clone(), -1);
        false
    }

    /// Removes an entry before the primary's removal of it comes in, which then does nothing. Whether there
    /// was one, hidden or not.
    pub fn remove_early(&self, key: &K) -> bool {
        let mut ahead = self.stripe(key);
        let removed = self
            .cache
            .end(key, RemovalCause::Explicit, |_| ())
            .is_some();
        if removed {
            count(&mut ahead, key.clone(), 1);
        }
        removed
    }

    /// Gives an entry, also a hidden one, a new lifetime from now on; whether there was one. See
    /// [`Cache::expire`]; here a lifetime that is over hides the entry.
    pub fn expire(&self, key: &K, lifetime: impl Into<Lifetime>) -> bool {
        let _ahead = self.stripe(key);
        self.cache.expire(key, lifetime)
    }

    /// Takes an entry's deadline away, also a hidden one's; whether there was an entry. See [`Cache::persist`].
    pub fn persist(&self, key: &K) -> bool {
        let _ahead = self.stripe(key);
        self.cache.persist(key)
    }

    /// Keys of which the log or the feed has brought more here than the other: 0 when both were carried out to the
    /// same point. Takes sixteen locks in turn.
    pub fn unmatched(&self) -> usize {
        self.ahead.iter().map(|stripe| stripe.lock().len()).sum()
    }

    fn stripe(&self, key: &K) -> MutexGuard<'_, HashMap<K, i64, RandomState>> {
        let address = self.cache.core.address(key);
        self.ahead[address.hash as usize % STRIPES].lock()
    }

    /// As [`Cache::get`].
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.cache.get(key)
    }

    /// As [`Cache::with`].
    pub fn with<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.with(key, f)
    }

    /// As [`Cache::pin`].
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        self.cache.pin()
    }

    /// As [`Cache::get_many`].
    pub fn get_many<'q, Q, I>(&self, keys: I) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'q,
        I: IntoIterator<Item = &'q Q>,
        V: Clone,
    {
        self.cache.get_many(keys)
    }

    /// As [`Cache::contains_key`].
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.contains_key(key)
    }

    /// As [`Cache::ttl`].
    pub fn ttl<Q>(&self, key: &Q) -> Option<Lifetime>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.ttl(key)
    }

    /// As [`Cache::iter`].
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        V: Clone,
    {
        self.cache.iter()
    }

    /// Entries, the hidden ones among them. Cost as [`Cache::entry_count`].
    pub fn entry_count(&self) -> u64 {
        self.cache.entry_count()
    }

    /// Entries that are not hidden. Cost as [`Cache::live_count`].
    pub fn live_count(&self) -> u64 {
        self.cache.live_count()
    }

    /// As [`Cache::stats`]; what expired was ended by the primary.
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// As [`Cache::reap`]: drops values that have left; ends nothing.
    pub fn reap(&self, budget: Duration) -> Reaped {
        self.cache.reap(budget)
    }
}

/// Adds to a key's count, and forgets it at 0.
fn count<K: Hash + Eq>(ahead: &mut HashMap<K, i64, RandomState>, key: K, by: i64) {
    match ahead.entry(key) {
        Entry::Vacant(vacant) => {
            vacant.insert(by);
        }
        Entry::Occupied(mut count) => {
            *count.get_mut() += by;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<K, V, S> fmt::Debug for Follower<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}
