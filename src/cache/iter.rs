//! The iterators over all entries: clones, some hundred at a time.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use super::Cache;
use super::bulk::Walk;
use super::core::Core;
use crate::reclaim::pin;

impl<'c, K, V, S> IntoIterator for &'c Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);
    type IntoIter = Iter<'c, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The entries of this handle's cache, as [`iter`](Cache::iter) has them. The handle lives as long as the
/// iterator.
impl<K, V, S> IntoIterator for Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        IntoIter {
            cache: self,
            clones: Clones::of(Walk::START),
        }
    }
}

/// Clones of live entries, and how far the walk has come that finds them.
#[derive(Debug)]
struct Clones<K, V> {
    walk: Walk,
    ready: std::vec::IntoIter<(K, V)>,
}

impl<K, V> Clones<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn of(walk: Walk) -> Self {
        Clones {
            walk,
            ready: Vec::new().into_iter(),
        }
    }

    fn next<S>(&mut self, core: &Core<K, V, S>) -> Option<(K, V)>
    where
        S: BuildHasher + Send + Sync + 'static,
    {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            let guard = pin();
            let mut slots = Vec::new();
            let shard = &core.shards[core.note(&mut self.walk, &guard, &mut slots)?];
            let live = slots
                .into_iter()
                .filter_map(|slot| core.current(shard, slot, &guard));
            let clones: Vec<(K, V)> = live
                .map(|slot| {
                    let entry = shard.entry(slot);
                    (entry.key().clone(), entry.value().clone())
                })
                .collect();
            self.ready = clones.into_iter();
        }
    }
}

/// The iterator of [`Cache::iter`].
pub struct Iter<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    clones: Clones<K, V>,
}

impl<'c, K, V, S> Iter<'c, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn of(cache: &'c Cache<K, V, S>, walk: Walk) -> Self {
        Iter {
            cache,
            clones: Clones::of(walk),
        }
    }
}

impl<K, V, S> Iterator for Iter<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.clones.next(&self.cache.core)
    }
}

impl<K, V, S> FusedIterator for Iter<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("walk", &self.clones.walk)
            .finish_non_exhaustive()
    }
}

/// The iterator of a cache that was turned into one.
pub struct IntoIter<K, V, S> {
    cache: Cache<K, V, S>,
    clones: Clones<K, V>,
}

impl<K, V, S> Iterator for IntoIter<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.clones.next(&self.cache.core)
    }
}

impl<K, V, S> FusedIterator for IntoIter<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter")
            .field("walk", &self.clones.walk)
            .finish_non_exhaustive()
    }
}

/// The iterator of [`Cache::drain`].
pub struct Drain<'c, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    cache: &'c Cache<K, V, S>,
    walk: Walk,
    ready: std::vec::IntoIter<(K, V)>,
}

impl<'c, K, V, S> Drain<'c, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn of(cache: &'c Cache<K, V, S>) -> Self {
        Drain {
            cache,
            walk: Walk::START,
            ready: Vec::new().into_iter(),
        }
    }
}

impl<K, V, S> Iterator for Drain<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let core = &*self.cache.core;
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            let guard = pin();
            let mut slots = Vec::new();
            let shard = core.note(&mut self.walk, &guard, &mut slots)?;
            let mut clones = Vec::new();
            core.end_all(shard, &slots, &guard, |slot| {
                let entry = core.shards[shard].entry(slot);
                clones.push((entry.key().clone(), entry.value().clone()));
            });
            self.ready = clones.into_iter();
        }
    }
}

impl<K, V, S> FusedIterator for Drain<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, V, S> Drop for Drain<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        let core = &*self.cache.core;
        loop {
            let guard = pin();
            let mut slots = Vec::new();
            let Some(shard) = core.note(&mut self.walk, &guard, &mut slots) else {
                return;
            };
            core.end_all(shard, &slots, &guard, |_| ());
        }
    }
}

impl<K, V, S> fmt::Debug for Drain<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("walk", &self.walk)
            .finish_non_exhaustive()
    }
}
