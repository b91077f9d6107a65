//! moka, mini-moka, quick_cache and TinyUFO.

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, UnitWeighter};

use super::{Fast, Hasher, Hashers, Plan, Sip, Store, View, Visitor};

pub(super) fn visit<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    visit_lifetimes(hashers, visitor);
    // Their defaults, foldhash and ahash, are fast already.
    visitor.visit::<QuickCache>();
    visitor.visit::<TinyUfo>();
}

pub(super) fn visit_lifetimes<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    if hashers.own() {
        visitor.visit::<Moka<Sip>>();
        visitor.visit::<MiniMoka<Sip>>();
    }
    if hashers.ahash() {
        visitor.visit::<Moka<Fast>>();
        visitor.visit::<MiniMoka<Fast>>();
    }
}

/// moka, unbounded: without a bound it does not keep its admission policy, which
/// is the fastest it can be.
struct Moka<S>(moka::sync::Cache<u64, u64, S>);

impl<S: Hasher> Store for Moka<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("moka{}", S::SUFFIX)
    }

    fn build(plan: &Plan) -> Self {
        let builder = moka::sync::Cache::builder();
        let builder = match plan.lifetime {
            Some(lifetime) => builder.time_to_live(lifetime),
            None => builder,
        };
        Self(builder.build_with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

impl<S: Hasher> View for &Moka<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}

/// mini-moka, unbounded.
struct MiniMoka<S>(mini_moka::sync::Cache<u64, u64, S>);

impl<S: Hasher> Store for MiniMoka<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("mini-moka{}", S::SUFFIX)
    }

    fn build(plan: &Plan) -> Self {
        let builder = mini_moka::sync::Cache::builder();
        let builder = match plan.lifetime {
            Some(lifetime) => builder.time_to_live(lifetime),
            None => builder,
        };
        Self(builder.build_with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(&self.0);
    }
}

impl<S: Hasher> View for &MiniMoka<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}

/// quick_cache. It must be bounded.
struct QuickCache(quick_cache::sync::Cache<u64, u64>);

impl Store for QuickCache {
    type View<'a> = &'a Self;

    fn name() -> String {
        "quick_cache".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        Self(quick_cache::sync::Cache::with(
            plan.entries,
            plan.bound as u64,
            UnitWeighter,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

impl View for &QuickCache {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}

/// TinyUFO, in its default, fast form. It must be bounded.
struct TinyUfo(tinyufo::TinyUfo<u64, u64>);

impl Store for TinyUfo {
    type View<'a> = &'a Self;

    fn name() -> String {
        "TinyUFO".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        Self(tinyufo::TinyUfo::new(plan.bound, plan.entries))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        drop(self.0.put(key, value, 1));
    }
}

impl View for &TinyUfo {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}
