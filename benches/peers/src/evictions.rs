//! `evictions`: bounded caches that are full. Fresh keys, so that every insert has
//! to make room, and a mixed load as a cache has it: a get, and an insert on a miss.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use foyer_memory::{CacheBuilder, EvictionConfig, LfuConfig, S3FifoConfig};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, UnitWeighter};

use crate::Options;
use crate::adapters::{Fast, HOUR, Hasher, Hashers, Sip};
use crate::keys::{Draw, count_name, scattered, sequence};
use crate::reads::print_fastest;
use crate::report::{EBBTIDE, Figure, Report};
use crate::rounds::{CHUNK, COST, RATE, Timing, Work, rate};
use crate::wave::{latency, longest, spinning};

#[derive(Args, Debug)]
pub(crate) struct EvictionsArgs {
    /// Capacities in entries, at least 100, separated by commas [default: 10000,100000,1000000; with --quick the
    /// first two]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    capacities: Vec<u64>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
}

/// How many times the capacity is inserted before anything is measured.
const FILLS: u64 = 2;
/// Keys of the mixed load, in capacities.
const KEYS: u64 = 10;
/// Sequences of the mixed load that are put one after another: together so long
/// that a cache has forgotten their beginning when they begin again.
const SEQUENCES: u64 = 8;
/// Windows in which inserts are timed one by one: the slowest are rare.
const WINDOWS: u32 = 4;

/// A bounded cache from u64 to u64.
trait Bounded: Sized + Send + Sync + 'static {
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
trait BoundedVisitor {
    fn visit<B: Bounded>(&mut self);
}

fn visit<V: BoundedVisitor>(hashers: Hashers, visitor: &mut V) {
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

const EBBTIDE_TTL: &str = "ebbtide, ttl";

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

/// The hasher in a type of foyer's, which does not export its default one.
trait HasherOf {
    type Hasher;
}

impl<S: Hasher> HasherOf for foyer_memory::Cache<u64, u64, S> {
    type Hasher = S;
}
