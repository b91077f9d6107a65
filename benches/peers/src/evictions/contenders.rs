//! Who takes part: bounded by entries, with their defaults otherwise.

use std::hash::BuildHasher;
use std::marker::PhantomData;

use foyer_memory::{CacheBuilder, EvictionConfig, LfuConfig, S3FifoConfig};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, UnitWeighter};

use crate::adapters::{Fast, HOUR, Hasher, Hashers, Sip};
use crate::report::EBBTIDE;

/// A bounded cache from u64 to u64.
pub(super) trait Bounded: Sized + Send + Sync + 'static {
    /// Which contender this one's figures are compared with.
    const BASE: &'static str = EBBTIDE;

    fn name() -> String;
    /// A cache of at most `capacity` entries.
    fn build(capacity: u64) -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
    /// Does what the contender has put off (called between timed parts only).
    fn settle(&self) {}
    /// Entries held, if it tells.
    fn held(&self) -> Option<u64>;
    /// The most it may ever hold while nobody writes, if it promises that.
    fn most(&self, capacity: u64) -> Option<u64>;
}

/// Gets to see contenders as types.
pub(super) trait BoundedVisitor {
    fn visit<B: Bounded>(&mut self);
}

pub(super) fn visit<V: BoundedVisitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    {
        visitor.visit::<Ebbtide<false>>();
        visitor.visit::<Ebbtide<true>>();
    }
    if hashers != Hashers::Ahash {
        visit_with::<Sip, DefaultHashBuilder, FoyerHasher, V>(visitor);
    }
    if hashers != Hashers::Own {
        visit_with::<Fast, Fast, Fast, V>(visitor);
    }
    // Always with ahash.
    visitor.visit::<TinyUfo>();
}

/// `M` is the hasher of moka and mini-moka, `Q` that of quick_cache, `F` foyer's.
fn visit_with<M: Hasher, Q: Hasher, F: Hasher, V: BoundedVisitor>(visitor: &mut V) {
    visitor.visit::<Moka<M, false>>();
    visitor.visit::<Moka<M, true>>();
    visitor.visit::<MiniMoka<M>>();
    visitor.visit::<QuickCache<Q>>();
    visitor.visit::<Foyer<S3Fifo, F>>();
    visitor.visit::<Foyer<Lfu, F>>();
}

pub(super) const EBBTIDE_TTL: &str = "ebbtide, ttl";

/// The one to compare with: what has lifetimes with what has lifetimes.
const fn base(ttl: bool) -> &'static str {
    if ttl { EBBTIDE_TTL } else { EBBTIDE }
}

#[cfg(feature = "ebbtide")]
struct Ebbtide<const TTL: bool>(ebbtide::Cache<u64, u64>);

#[cfg(feature = "ebbtide")]
impl<const TTL: bool> Bounded for Ebbtide<TTL> {
    const BASE: &'static str = base(TTL);

    fn name() -> String {
        base(TTL).to_owned()
    }

    fn build(capacity: u64) -> Self {
        let builder = ebbtide::Cache::builder().max_entries(capacity);
        let builder = if TTL {
            builder.time_to_live(HOUR)
        } else {
            builder
        };
        Self(builder.build().expect("nothing contradictory was asked"))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn held(&self) -> Option<u64> {
        Some(self.0.entry_count())
    }

    fn most(&self, capacity: u64) -> Option<u64> {
        Some(capacity)
    }
}

struct Moka<S, const TTL: bool>(moka::sync::Cache<u64, u64, S>);

impl<S: Hasher, const TTL: bool> Bounded for Moka<S, TTL> {
    const BASE: &'static str = base(TTL);

    fn name() -> String {
        format!("moka{}{}", if TTL { ", ttl" } else { "" }, S::SUFFIX)
    }

    fn build(capacity: u64) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(capacity);
        let builder = if TTL {
            builder.time_to_live(HOUR)
        } else {
            builder
        };
        Self(builder.build_with_hasher(S::default()))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }

    fn held(&self) -> Option<u64> {
        Some(self.0.entry_count())
    }

    fn most(&self, _: u64) -> Option<u64> {
        None
    }
}

struct MiniMoka<S>(mini_moka::sync::Cache<u64, u64, S>);

impl<S: Hasher> Bounded for MiniMoka<S> {
    fn name() -> String {
        format!("mini-moka{}", S::SUFFIX)
    }

    fn build(capacity: u64) -> Self {
        let builder = mini_moka::sync::Cache::builder().max_capacity(capacity);
        Self(builder.build_with_hasher(S::default()))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(&self.0);
    }

    fn held(&self) -> Option<u64> {
        Some(self.0.entry_count())
    }

    fn most(&self, _: u64) -> Option<u64> {
        None
    }
}

impl Hasher for DefaultHashBuilder {
    const SUFFIX: &'static str = "";
}

struct QuickCache<S>(quick_cache::sync::Cache<u64, u64, UnitWeighter, S>);

impl<S: Hasher> Bounded for QuickCache<S> {
    fn name() -> String {
        format!("quick_cache{}", S::SUFFIX)
    }

    fn build(capacity: u64) -> Self {
        Self(quick_cache::sync::Cache::with(
            capacity as usize,
            capacity,
            UnitWeighter,
            S::default(),
            DefaultLifecycle::default(),
        ))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn held(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    /// What was asked for, rounded up to a multiple of its shards.
    fn most(&self, _: u64) -> Option<u64> {
        Some(self.0.capacity())
    }
}

/// In its default, fast form. It does not tell how much it holds.
struct TinyUfo(tinyufo::TinyUfo<u64, u64>);

impl Bounded for TinyUfo {
    fn name() -> String {
        "TinyUFO".to_owned()
    }

    fn build(capacity: u64) -> Self {
        Self(tinyufo::TinyUfo::new(capacity as usize, capacity as usize))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        drop(self.0.put(key, value, 1));
    }

    fn held(&self) -> Option<u64> {
        None
    }

    fn most(&self, _: u64) -> Option<u64> {
        None
    }
}

/// Names foyer's default hasher, a type that foyer-memory does not export.
trait HasherOf {
    type Hasher;
}

impl<S: BuildHasher + Send + Sync + 'static> HasherOf for foyer_memory::Cache<u64, u64, S> {
    type Hasher = S;
}

type FoyerHasher = <foyer_memory::Cache<u64, u64> as HasherOf>::Hasher;

impl Hasher for FoyerHasher {
    const SUFFIX: &'static str = "";
}

/// A policy of foyer's, with its own default parameters.
trait FoyerPolicy: Send + Sync + 'static {
    const NAME: &'static str;
    fn config() -> EvictionConfig;
}

struct S3Fifo;

impl FoyerPolicy for S3Fifo {
    const NAME: &'static str = "foyer s3fifo";

    fn config() -> EvictionConfig {
        S3FifoConfig::default().into()
    }
}

struct Lfu;

impl FoyerPolicy for Lfu {
    const NAME: &'static str = "foyer lfu";

    fn config() -> EvictionConfig {
        LfuConfig::default().into()
    }
}

struct Foyer<P, S: Hasher>(foyer_memory::Cache<u64, u64, S>, PhantomData<P>);

impl<P: FoyerPolicy, S: Hasher> Bounded for Foyer<P, S> {
    fn name() -> String {
        format!("{}{}", P::NAME, S::SUFFIX)
    }

    fn build(capacity: u64) -> Self {
        let builder = CacheBuilder::new(capacity as usize)
            .with_eviction_config(P::config())
            .with_hash_builder(S::default());
        Self(builder.build(), PhantomData)
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        drop(self.0.insert(key, value));
    }

    fn held(&self) -> Option<u64> {
        Some(self.0.entries() as u64)
    }

    fn most(&self, capacity: u64) -> Option<u64> {
        Some(capacity)
    }
}
