//! ebbtide: with its defaults, unbounded, and once bounded.

use super::{HOUR, Plan, Store, View, Visitor};

pub(super) fn visit<V: Visitor>(visitor: &mut V) {
    visitor.visit::<Ebbtide>();
    visitor.visit::<EbbtidePinned>();
}

pub(super) fn visit_lifetimes<V: Visitor>(visitor: &mut V) {
    visit(visitor);
    visitor.visit::<EbbtidePerEntry>();
}

/// Where the cost of a bound is asked for.
pub(super) fn visit_bounded<V: Visitor>(visitor: &mut V) {
    visitor.visit::<EbbtideBounded>();
}

fn cache(plan: &Plan) -> ::ebbtide::Cache<u64, u64> {
    built(::ebbtide::Cache::builder(), plan)
}

fn built(builder: ::ebbtide::Builder<u64, u64>, plan: &Plan) -> ::ebbtide::Cache<u64, u64> {
    let builder = match plan.lifetime {
        Some(lifetime) => builder.time_to_live(lifetime),
        None => builder,
    };
    builder
        .build()
        .expect("nothing contradictory was asked for")
}

struct Ebbtide(::ebbtide::Cache<u64, u64>);

impl Store for Ebbtide {
    type View<'a> = &'a Self;

    fn name() -> String {
        "ebbtide".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        Self(cache(plan))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

impl View for &Ebbtide {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}

/// Bounded by just as many entries as it is to hold: full to the brim.
struct EbbtideBounded(::ebbtide::Cache<u64, u64>);

impl Store for EbbtideBounded {
    const FILLS: u64 = 2;
    type View<'a> = &'a Self;

    fn name() -> String {
        "ebbtide, bounded".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        let builder = ::ebbtide::Cache::builder().max_entries(plan.entries as u64);
        Self(built(builder, plan))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

impl View for &EbbtideBounded {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}

/// With a pin held over a thousand reads.
struct EbbtidePinned(::ebbtide::Cache<u64, u64>);

impl Store for EbbtidePinned {
    const BASE: &'static str = "ebbtide, pin held";
    const READS_ONLY: bool = true;
    type View<'a> = ::ebbtide::Pinned<'a, u64, u64, ::ebbtide::RandomState>;

    fn name() -> String {
        "ebbtide, pin held".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        Self(cache(plan))
    }

    fn view(&self) -> ::ebbtide::Pinned<'_, u64, u64, ::ebbtide::RandomState> {
        self.0.pin()
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

impl View for ::ebbtide::Pinned<'_, u64, u64, ::ebbtide::RandomState> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        ::ebbtide::Pinned::get(self, &key).copied()
    }

    fn renew(&mut self) {
        self.repin();
    }
}

/// The lifetime given with every insert, always the same one.
struct EbbtidePerEntry(::ebbtide::Cache<u64, u64>);

impl Store for EbbtidePerEntry {
    type View<'a> = &'a Self;

    fn name() -> String {
        "ebbtide, insert_with_ttl".to_owned()
    }

    fn build(_plan: &Plan) -> Self {
        Self(::ebbtide::Cache::unbounded())
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert_with_ttl(key, value, HOUR);
    }
}

impl View for &EbbtidePerEntry {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
}
