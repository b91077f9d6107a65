//! Many entries at once, from one thread or, with the `rayon` feature, from a pool's.

use std::hash::{BuildHasher, Hash};

use super::Cache;
use crate::lifetime::Lifetime;
use crate::reclaim::pin;

/// Pairs whose index lines are asked for together, so that their cache misses overlap.
const TOGETHER: usize = 16;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// [`insert`](Self::insert)s pairs, in order.
    ///
    /// The lines that the inserts need are asked for sixteen pairs ahead, so that their cache misses overlap: among a
    /// million entries an insert takes six tenths of the time. Each
    /// insert is one of its own: others may read and write between two of them, and a panic of the
    /// iterator's leaves those before it (but for up to fifteen that were taken from it) in the cache.
    pub fn insert_many(&self, pairs: impl IntoIterator<Item = (K, V)>) {
        self.insert_all(pairs, None);
    }

    /// As [`insert_many`](Self::insert_many), each with this lifetime, counted from its own insert.
    pub fn insert_many_with_ttl(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
        lifetime: impl Into<Lifetime>,
    ) {
        self.insert_all(pairs, Some(lifetime.into()));
    }

    fn insert_all(&self, pairs: impl IntoIterator<Item = (K, V)>, lifetime: Option<Lifetime>) {
        let core = &*self.core;
        let mut pairs = pairs.into_iter().fuse();
        let mut ready = Vec::with_capacity(pairs.size_hint().0.clamp(1, TOGETHER));
        loop {
            // The iterator is the user's: not under the pin.
            let next = pairs.by_ref().take(TOGETHER);
            ready.extend(next.map(|(key, value)| (core.address(&key), key, value)));
            if ready.is_empty() {
                return;
            }
            {
                let guard = pin();
                for &(address, ..) in &ready {
                    core.shard(address).prefetch_index(address.hash, &guard);
                }
                for &(address, ..) in &ready {
                    core.shard(address).prefetch_entry(address.hash, &guard);
                }
            }
            for (address, key, value) in ready.drain(..) {
                self.insert_at(address, key, value, lifetime);
            }
        }
    }
}

/// As [`insert_many`](Cache::insert_many).
///
/// ```
/// let mut cache = ebbtide::Cache::unbounded();
/// cache.extend([("a", 1), ("b", 2)]);
/// assert_eq!(cache.get("b"), Some(2));
/// ```
impl<K, V, S> Extend<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        self.insert_many(pairs);
    }
}

/// As for the cache itself; a shared handle is enough.
impl<K, V, S> Extend<(K, V)> for &Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        self.insert_many(pairs);
    }
}

/// An [unbounded](Cache::unbounded) cache of these pairs; of pairs with the same key the last stays.
///
/// ```
/// let cache: ebbtide::Cache<&str, u32> = [("a", 1), ("b", 2)].into_iter().collect();
/// assert_eq!(cache.get("a"), Some(1));
/// ```
impl<K, V> FromIterator<(K, V)> for Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let cache = Cache::unbounded();
        cache.insert_many(pairs);
        cache
    }
}
