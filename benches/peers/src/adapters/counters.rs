//! Counters: what each contender offers for adding one to a value.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{Fast, Hasher, Hashers, Sip};
use crate::report::EBBTIDE;

/// A shared store of counters.
pub(crate) trait Counters: Sized + Send + Sync + 'static {
    const BASE: &'static str = EBBTIDE;

    fn name() -> String;
    fn build() -> Self;
    /// Adds one to the counter of `key`, which begins at zero.
    fn add_one(&self, key: u64);
    /// The counter of `key`.
    fn value(&self, key: u64) -> i64;
}

/// Gets to see contenders as types.
pub(crate) trait CountersVisitor {
    fn visit<C: Counters>(&mut self);
}

pub(crate) fn visit_counters<V: CountersVisitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    {
        visitor.visit::<with_ebbtide::Plain>();
        visitor.visit::<with_ebbtide::Lasting>();
    }
    if hashers.own() {
        visit_with::<Sip, V>(visitor);
    }
    if hashers.ahash() {
        visit_with::<Fast, V>(visitor);
    }
}

fn visit_with<S: Hasher, V: CountersVisitor>(visitor: &mut V) {
    visitor.visit::<Dashmap<S>>();
    visitor.visit::<Scc<S>>();
    visitor.visit::<PapayaUpdate<S>>();
    visitor.visit::<PapayaAtomic<S>>();
    visitor.visit::<Moka<S>>();
}

#[cfg(feature = "ebbtide")]
mod with_ebbtide {
    use ebbtide::{Cache, Counter};

    use super::super::HOUR;
    use super::Counters;

    pub(super) struct Plain(Cache<u64, Counter>);

    impl Counters for Plain {
        fn name() -> String {
            "ebbtide".to_owned()
        }

        fn build() -> Self {
            Self(Cache::unbounded())
        }

        #[inline]
        fn add_one(&self, key: u64) {
            self.0.increment(&key, 1).expect("far from the limit");
        }

        fn value(&self, key: u64) -> i64 {
            self.0.increment(&key, 0).expect("far from the limit")
        }
    }

    /// Counters that each have a lifetime.
    pub(super) struct Lasting(Cache<u64, Counter>);

    impl Counters for Lasting {
        fn name() -> String {
            "ebbtide, increment_with_ttl".to_owned()
        }

        fn build() -> Self {
            Self(Cache::unbounded())
        }

        #[inline]
        fn add_one(&self, key: u64) {
            self.0
                .increment_with_ttl(&key, 1, HOUR)
                .expect("far from the limit");
        }

        fn value(&self, key: u64) -> i64 {
            self.0.increment(&key, 0).expect("far from the limit")
        }
    }
}

struct Dashmap<S>(dashmap::DashMap<u64, i64, S>);

impl<S: Hasher> Counters for Dashmap<S> {
    fn name() -> String {
        format!("dashmap entry{}", S::SUFFIX)
    }

    fn build() -> Self {
        Self(dashmap::DashMap::with_hasher(S::default()))
    }

    #[inline]
    fn add_one(&self, key: u64) {
        *self.0.entry(key).or_insert(0) += 1;
    }

    fn value(&self, key: u64) -> i64 {
        self.0.get(&key).map_or(0, |value| *value)
    }
}

struct Scc<S: Hasher>(scc::HashMap<u64, i64, S>);

impl<S: Hasher> Counters for Scc<S> {
    fn name() -> String {
        format!("scc entry{}", S::SUFFIX)
    }

    fn build() -> Self {
        Self(scc::HashMap::with_hasher(S::default()))
    }

    #[inline]
    fn add_one(&self, key: u64) {
        *self.0.entry_sync(key).or_insert(0).get_mut() += 1;
    }

    fn value(&self, key: u64) -> i64 {
        self.0.read_sync(&key, |_, value| *value).unwrap_or(0)
    }
}

/// papaya's way for plain values: every change makes a new entry.
struct PapayaUpdate<S>(papaya::HashMap<u64, i64, S>);

impl<S: Hasher> Counters for PapayaUpdate<S> {
    fn name() -> String {
        format!("papaya update{}", S::SUFFIX)
    }

    fn build() -> Self {
        Self(papaya::HashMap::with_hasher(S::default()))
    }

    #[inline]
    fn add_one(&self, key: u64) {
        self.0.pin().update_or_insert(key, |value| value + 1, 1);
    }

    fn value(&self, key: u64) -> i64 {
        self.0.pin().get(&key).copied().unwrap_or(0)
    }
}

/// papaya with an atomic as the value: its fastest way.
struct PapayaAtomic<S>(papaya::HashMap<u64, AtomicI64, S>);

impl<S: Hasher> Counters for PapayaAtomic<S> {
    fn name() -> String {
        format!("papaya atomic{}", S::SUFFIX)
    }

    fn build() -> Self {
        Self(papaya::HashMap::with_hasher(S::default()))
    }

    #[inline]
    fn add_one(&self, key: u64) {
        let map = self.0.pin();
        let counter = match map.get(&key) {
            Some(counter) => counter,
            None => map.get_or_insert(key, AtomicI64::new(0)),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self, key: u64) -> i64 {
        let map = self.0.pin();
        map.get(&key)
            .map_or(0, |value| value.load(Ordering::Relaxed))
    }
}

struct Moka<S>(moka::sync::Cache<u64, i64, S>);

impl<S: Hasher> Counters for Moka<S> {
    fn name() -> String {
        format!("moka entry{}", S::SUFFIX)
    }

    fn build() -> Self {
        Self(moka::sync::Cache::builder().build_with_hasher(S::default()))
    }

    #[inline]
    fn add_one(&self, key: u64) {
        self.0
            .entry(key)
            .and_upsert_with(|entry| entry.map_or(1, |entry| entry.into_value() + 1));
    }

    fn value(&self, key: u64) -> i64 {
        self.0.get(&key).unwrap_or(0)
    }
}
