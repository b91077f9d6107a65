//! Reads: no lock, no shared write.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::Cache;
use super::core::Address;
use crate::reclaim::pin;

/// Keys that [`Cache::get_many`] looks up together, so that their cache misses overlap.
const TOGETHER: usize = 16;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A clone of the value of a key, if there is a live entry. Counts as a use.
    ///
    /// # Cost
    /// One pin, one index line, one entry line; the clock only if the entry has a deadline. No
    /// lock, no allocation besides the clone's. A read that meets an expired entry unlinks it if
    /// the shard's lock is free.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.with(key, V::clone)
    }

    /// Runs `f` on the value of a key, if there is a live entry. Counts as a use.
    ///
    /// `f` runs under a pin and without any lock: it may call the cache, but while it runs nothing
    /// that was displaced meanwhile is freed. Otherwise as [`get`](Self::get).
    #[inline]
    pub fn with<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let guard = pin();
        self.core.read(key, &guard).map(f)
    }

    /// As [`get`](Self::get), but not a use: neither eviction nor time to idle hears of it.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.look_at(key, |value| value.clone())
    }

    /// Whether a key has a live entry. Not a use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.look_at(key, |_| ()).is_some()
    }

    /// Whether a key has an entry that has not ended, be it over or not.
    pub(crate) fn holds(&self, key: &K) -> bool {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        core.shard(address)
            .holds(address.hash, &guard, |k| k == key)
    }

    fn look_at<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let shard = core.shard(address);
        let look = shard.lookup(&core.rules, address.hash, &guard, |k| key.equivalent(k));
        core.answered(address.shard, look, &guard);
        Some(f(shard.entry(look.live()?).value()))
    }

    /// The values of several keys, in their order. Each counts as a use.
    ///
    /// The lines that the lookups need are asked for some keys ahead, so that their cache misses
    /// overlap; from some hundred thousand entries on that is several times faster than one
    /// [`get`](Self::get) after another. Each lookup is exact on its own; together they are no
    /// snapshot.
    pub fn get_many<'q, Q, I>(&self, keys: I) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'q,
        I: IntoIterator<Item = &'q Q>,
        V: Clone,
    {
        let core = &*self.core;
        let keys: Vec<(&Q, Address)> = keys
            .into_iter()
            .map(|key| (key, core.address(key)))
            .collect();
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER) {
            let guard = pin();
            for &(_, address) in keys {
                core.shard(address).prefetch_index(address.hash, &guard);
            }
            for &(_, address) in keys {
                core.shard(address).prefetch_entry(address.hash, &guard);
            }
            for &(key, address) in keys {
                let shard = core.shard(address);
                let look = shard.lookup(&core.rules, address.hash, &guard, |k| key.equivalent(k));
                core.answered(address.shard, look, &guard);
                values.push(look.live().map(|slot| {
                    core.used(shard, slot);
                    shard.entry(slot).value().clone()
                }));
            }
        }
        values
    }
}
