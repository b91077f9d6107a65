//! One key, and what to do depending on whether it has a value.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::Cache;
use super::update::Op;
use crate::RandomState;
use crate::lifetime::Lifetime;

/// What `and_modify` was given.
type Modify<'c, V> = Box<dyn FnMut(&V) -> V + 'c>;

/// A key that is about to be looked up and changed in one atomic step, from [`Cache::entry`].
///
/// Holds nothing: no lock, no pin. What it does happens in the call that ends it.
#[must_use = "nothing happens before `or_insert`, or another method that ends it"]
pub struct Entry<'c, K, V, S = RandomState> {
    cache: &'c Cache<K, V, S>,
    key: K,
    modify: Option<Modify<'c, V>>,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Begins an atomic step on a key: changes its value if there is one, stores one if there is none.
    ///
    /// As values are not changed in place, [`and_modify`](Entry::and_modify) makes a new one of the old. For
    /// more than that see [`compute`](Self::compute), which this is made of; for values that are costly
    /// to make, [`get_or_insert_with`](Self::get_or_insert_with), which makes one at a time.
    ///
    /// ```
    /// let cache: ebbtide::Cache<&str, u32> = ebbtide::Cache::new(100);
    /// let visit = || cache.entry("home").and_modify(|count| count + 1).or_insert(1);
    /// assert_eq!((visit(), visit(), visit()), (1, 2, 3));
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry {
            cache: self,
            key,
            modify: None,
        }
    }
}

impl<'c, K, V, S> Entry<'c, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// If there is a live value, puts what `modify` makes of it in its place. It keeps its deadline.
    ///
    /// `modify` runs without any lock, and again if the entry changed before its result could be stored.
    /// After another `and_modify` it goes on from that one's result. Allocates a box.
    pub fn and_modify(mut self, mut modify: impl FnMut(&V) -> V + 'c) -> Self
    where
        V: 'c,
    {
        self.modify = Some(match self.modify.take() {
            None => Box::new(modify),
            Some(mut earlier) => Box::new(move |value| modify(&earlier(value))),
        });
        self
    }

    /// The value there is (modified, if that was asked for), or else this one, stored with the cache's own
    /// lifetime.
    ///
    /// Also where the cache cannot take it (see [`RefusedReason`](crate::RefusedReason)): then the value is
    /// returned and not stored. Cost as [`compute`](Cache::compute).
    pub fn or_insert(self, value: V) -> V {
        self.or_insert_with(|| value)
    }

    /// As [`or_insert`](Self::or_insert) with the type's default value.
    pub fn or_default(self) -> V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// As [`or_insert`](Self::or_insert) with a value that is made if it is needed: without any lock, at most once
    /// for this call. Of several calls at once each may make one; one of them is stored.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> V {
        self.upsert(|_| (make(), None))
    }

    /// As [`or_insert_with`](Self::or_insert_with); `make` sees the key.
    pub fn or_insert_with_key(self, make: impl FnOnce(&K) -> V) -> V {
        self.upsert(|key| (make(key), None))
    }

    /// As [`or_insert_with`](Self::or_insert_with); a value that this call stores gets a lifetime of its own.
    pub fn or_insert_with_ttl<L: Into<Lifetime>>(self, make: impl FnOnce() -> (V, L)) -> V {
        self.upsert(|_| {
            let (value, lifetime) = make();
            (value, Some(lifetime.into()))
        })
    }

    /// The value there is (modified, if that was asked for), if there is one; nothing is stored otherwise.
    pub fn if_present(self) -> Option<V> {
        let Entry { cache, key, modify } = self;
        let Some(mut modify) = modify else {
            return cache.get(&key);
        };
        let mut answer = None;
        cache.compute(key, |value| match value {
            None => {
                answer = None;
                Op::Keep
            }
            Some(value) => {
                let new = modify(value);
                answer = Some(new.clone());
                Op::Put(new)
            }
        });
        answer
    }

    fn upsert(self, make: impl FnOnce(&K) -> (V, Option<Lifetime>)) -> V {
        let Entry {
            cache,
            key,
            mut modify,
        } = self;
        let (mut make, mut made, mut answer) = (Some(make), None, None);
        cache.compute_with(key, |key, value| match (value, &mut modify) {
            (Some(value), None) => {
                answer = Some(value.clone());
                Op::Keep
            }
            (Some(value), Some(modify)) => {
                let new = modify(value);
                answer = Some(new.clone());
                Op::Put(new)
            }
            (None, _) => {
                let (value, lifetime) = made.get_or_insert_with(|| {
                    let make = make.take().expect("what it made is kept");
                    make(key)
                });
                answer = Some(value.clone());
                match *lifetime {
                    None => Op::Put(value.clone()),
                    Some(lifetime) => Op::PutWithTtl(value.clone(), lifetime),
                }
            }
        });
        answer.expect("it was decided at least once")
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for Entry<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
