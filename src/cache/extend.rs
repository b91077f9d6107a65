//! Many entries at once, from one thread or, with the `rayon` feature, from a pool's.

use std::hash::{BuildHasher, Hash};

use super::Cache;

/// [`insert`](Cache::insert)s each pair, in order.
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
        (&*self).extend(pairs);
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
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

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
#[cfg(feature = "rayon")]
impl<K, V, S> rayon::iter::ParallelExtend<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn par_extend<I: rayon::iter::IntoParallelIterator<Item = (K, V)>>(&mut self, pairs: I) {
        (&*self).par_extend(pairs);
    }
}

/// As for the cache itself; a shared handle is enough.
#[cfg(feature = "rayon")]
impl<K, V, S> rayon::iter::ParallelExtend<(K, V)> for &Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn par_extend<I: rayon::iter::IntoParallelIterator<Item = (K, V)>>(&mut self, pairs: I) {
        use rayon::iter::ParallelIterator;
        let cache: &Cache<K, V, S> = self;
        pairs
            .into_par_iter()
            .for_each(|(key, value)| cache.insert(key, value));
    }
}
