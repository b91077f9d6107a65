//! References into the cache, for as long as a pin lasts.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use equivalent::Equivalent;

use super::Cache;
use super::bulk::Walk;
use crate::reclaim::{Guard, pin};
use crate::slab::SlotRef;

/// A view of the cache that hands out references, from [`Cache::pin`].
///
/// While it exists nothing that leaves the cache is freed, in any cache of the process: keep it
/// short, or [`repin`](Self::repin) now and then. What waits is shown as
/// [`limbo`](crate::Stats::limbo). One that is forgotten (`mem::forget`) is held for ever.
///
/// ```
/// use ebbtide::Cache;
///
/// let cache: Cache<u32, String> = Cache::unbounded();
/// cache.insert(1, "one".into());
/// let pinned = cache.pin();
/// let one: &str = pinned.get(&1).unwrap();
/// cache.invalidate(&1);
/// assert_eq!(one, "one");
/// assert_eq!(pinned.get(&1), None);
/// ```
pub struct Pinned<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    guard: Guard,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Pins the current thread, for references instead of clones. About 4 ns; pins nest.
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned {
            cache: self,
            guard: pin(),
        }
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key, if there is a live entry. Counts as a use; cost as
    /// [`Cache::get`](crate::Cache::get) without the pin.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.core.read(key, &self.guard)
    }

    /// All live entries, as [`Cache::iter`](crate::Cache::iter) but by reference. Not a use.
    pub fn iter(&self) -> PinnedIter<'_, K, V, S> {
        PinnedIter {
            pinned: self,
            walk: Walk::START,
            shard: 0,
            noted: Vec::new().into_iter(),
        }
    }

    /// Lets go of everything and pins again, so that what has left meanwhile can be freed. Does nothing
    /// while the thread holds another pin (of whatever cache).
    pub fn repin(&mut self) {
        self.guard.repin();
    }
}

impl<K, V, S> fmt::Debug for Pinned<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("cache", self.cache)
            .finish_non_exhaustive()
    }
}

/// The iterator of [`Pinned::iter`].
pub struct PinnedIter<'p, K, V, S> {
    pinned: &'p Pinned<'p, K, V, S>,
    walk: Walk,
    shard: usize,
    noted: std::vec::IntoIter<SlotRef<'p>>,
}

impl<'p, K, V, S> Iterator for PinnedIter<'p, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (&'p K, &'p V);

    fn next(&mut self) -> Option<Self::Item> {
        let core = &*self.pinned.cache.core;
        let guard = &self.pinned.guard;
        loop {
            for slot in self.noted.by_ref() {
                let shard = &core.shards[self.shard];
                if let Some(slot) = core.current(shard, slot, guard) {
                    let entry = shard.entry(slot);
                    return Some((entry.key(), entry.value()));
                }
            }
            let mut slots = Vec::new();
            self.shard = core.note(&mut self.walk, guard, &mut slots)?;
            self.noted = slots.into_iter();
        }
    }
}

impl<K, V, S> FusedIterator for PinnedIter<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, V, S> fmt::Debug for PinnedIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedIter")
            .field("walk", &self.walk)
            .finish_non_exhaustive()
    }
}
