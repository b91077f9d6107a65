//! Bulk work on rayon's thread pool.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use rayon::iter::plumbing::UnindexedConsumer;
use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};

use super::Cache;

/// [`insert`](Cache::insert)s each pair, on the threads of rayon's current pool. Of pairs with the
/// same key any may be the last.
///
/// ```
/// use rayon::prelude::*;
///
/// let mut cache = ebbtide::Cache::unbounded();
/// cache.par_extend((0..1_000u64).into_par_iter().map(|n| (n, n * n)));
/// assert_eq!(cache.get(&30), Some(900));
/// ```
impl<K, V, S> ParallelExtend<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, pairs: I) {
        (&*self).par_extend(pairs);
    }
}

/// As for the cache itself; a shared handle is enough.
impl<K, V, S> ParallelExtend<(K, V)> for &Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, pairs: I) {
        let cache: &Cache<K, V, S> = self;
        pairs
            .into_par_iter()
            .for_each(|(key, value)| cache.insert(key, value));
    }
}

/// An [unbounded](Cache::unbounded) cache of these pairs; of pairs with the same key any may stay.
impl<K, V> FromParallelIterator<(K, V)> for Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut cache = Cache::unbounded();
        cache.par_extend(pairs);
        cache
    }
}

/// Clones of all live entries, one shard after another on each of the pool's threads; `par_iter` is its
/// other name. As consistent as [`iter`](Cache::iter).
///
/// ```
/// use rayon::prelude::*;
///
/// let cache: ebbtide::Cache<u64, u64> = (0..1_000).map(|n| (n, 2 * n)).collect();
/// let sum: u64 = cache.par_iter().map(|(_, value)| value).sum();
/// assert_eq!(sum, 999_000);
/// ```
impl<'c, K, V, S> IntoParallelIterator for &'c Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);
    type Iter = ParIter<'c, K, V, S>;

    fn into_par_iter(self) -> ParIter<'c, K, V, S> {
        ParIter(self)
    }
}

/// The parallel iterator of a cache.
pub struct ParIter<'c, K, V, S>(&'c Cache<K, V, S>);

impl<K, V, S> ParallelIterator for ParIter<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<(K, V)>>(self, consumer: C) -> C::Result {
        (0..self.0.core.shards.len())
            .into_par_iter()
            .flat_map_iter(|shard| self.0.iter_shard(shard))
            .drive_unindexed(consumer)
    }
}

impl<K, V, S> fmt::Debug for ParIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParIter").finish_non_exhaustive()
    }
}
