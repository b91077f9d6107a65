//! Who takes part, each as its users build it, bounded by entries or by bytes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foyer_memory::{CacheBuilder, EvictionConfig, LfuConfig, S3FifoConfig};
use quick_cache::{DefaultHashBuilder, Weighter};

use super::Replay;
use super::replay::{FOREVER, Life, Subject, Value};
use crate::report::EBBTIDE;
use crate::timeline::Compression;

/// What a contender is built for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Entries, or bytes when `weighted`.
    pub(super) bound: u64,
    pub(super) weighted: bool,
    /// How many entries the bound has room for, about.
    pub(super) entries: usize,
    /// The greatest weight that will come.
    pub(super) heaviest: u32,
}

/// A contender ready for a replay, or why it cannot take part.
pub(super) type Made = Result<Box<dyn Subject>, &'static str>;
type Make = fn(&Setup) -> Made;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Knows the future: see [`super::opt`].
    Opt,
    Cache {
        make: Make,
        life: Life,
    },
}

#[derive(Clone, Copy)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

impl Contender {
    /// Mostly sleeps, so that it needs no core for itself.
    pub(super) fn in_real_time(&self) -> bool {
        matches!(
            self.kind,
            Kind::Cache {
                life: Life::Real(_),
                ..
            }
        )
    }

    /// A reference, not something to use.
    pub(super) fn is_reference(&self) -> bool {
        [OPT, FARTHEST, UNBOUNDED].contains(&self.name)
    }
}

/// The library, in whichever form.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(EBBTIDE)
}

const OPT: &str = "OPT";
/// OPT's rule where it is no bound.
const FARTHEST: &str = "farthest next use";
const UNBOUNDED: &str = "without a bound";

/// Everybody of a replay. `real` is trace time as those in real time meet it, `stepped` as all
/// others do.
pub(super) fn contenders(
    replay: Replay,
    stepped: Compression,
    real: Compression,
) -> Vec<Contender> {
    let cache = |name, make: Make, life| Contender {
        name,
        kind: Kind::Cache { make, life },
    };
    let future = |name| Contender {
        name,
        kind: Kind::Opt,
    };
    let plain = |name, make: Make| cache(name, make, Life::Endless);
    if replay != Replay::Lifetimes {
        let mut all = vec![future(match replay {
            Replay::Weights => FARTHEST,
            _ => OPT,
        })];
        #[cfg(feature = "ebbtide")]
        all.extend([
            plain(EBBTIDE, ours::plain),
            plain("ebbtide, clock", ours::clock),
            plain("ebbtide, fifo", ours::fifo),
            plain("ebbtide, random", ours::random),
        ]);
        all.extend([
            plain("moka", moka::<SOMETIMES>),
            plain("moka, tasks after every insert", moka::<ALWAYS>),
            plain("mini-moka", mini_moka),
            plain("quick_cache", quick_cache),
            plain("TinyUFO", tiny_ufo),
            plain("foyer s3fifo", foyer_s3fifo),
            plain("foyer lfu", foyer_lfu),
            plain("LRU", lru),
        ]);
        return all;
    }
    let reader = |name, make: Make| cache(name, make, Life::Reader(stepped));
    let mut all = vec![reader(UNBOUNDED, unbounded)];
    #[cfg(feature = "ebbtide")]
    all.extend([
        cache(EBBTIDE, ours::reaped, Life::Stepped(stepped)),
        cache("ebbtide, not reaped", ours::timed, Life::Stepped(stepped)),
        reader("ebbtide, deadline in the value", ours::plain),
    ]);
    all.extend([
        cache("moka", moka_timed::<SOMETIMES>, Life::Real(real)),
        cache(
            "moka, tasks after every insert",
            moka_timed::<ALWAYS>,
            Life::Real(real),
        ),
        reader("moka, deadline in the value", moka::<SOMETIMES>),
        reader("mini-moka, deadline in the value", mini_moka),
        reader("quick_cache, deadline in the value", quick_cache),
        reader("TinyUFO, deadline in the value", tiny_ufo),
        reader("foyer s3fifo, deadline in the value", foyer_s3fifo),
        reader("foyer lfu, deadline in the value", foyer_lfu),
        reader("LRU, deadline in the value", lru),
    ]);
    all
}

/// The library, at its default sharding.
#[cfg(feature = "ebbtide")]
mod ours {
    use ::ebbtide::{Builder, Cache, Lifetime, ManualClock, Policy};

    use super::{Duration, FOREVER, Made, Setup, Subject, Value};

    struct Plain {
        cache: Cache<u64, Value>,
    }

    impl Subject for Plain {
        fn get(&mut self, key: u64) -> Option<Value> {
            self.cache.get(&key)
        }

        fn insert(&mut self, key: u64, value: Value) {
            self.cache.insert(key, value);
        }

        fn held(&self) -> Option<u64> {
            Some(self.cache.weight())
        }
    }

    /// With lifetimes, on a clock that the replay moves.
    struct Timed {
        cache: Cache<u64, Value>,
        clock: ManualClock,
        /// When it is reaped next, in nanoseconds; never when [`FOREVER`].
        reap_at: u64,
    }

    /// The default reaper looks ten times as often at what may be due.
    const REAP_EVERY: u64 = 1_000_000_000;

    impl Subject for Timed {
        fn get(&mut self, key: u64) -> Option<Value> {
            self.cache.get(&key)
        }

        fn insert(&mut self, key: u64, value: Value) {
            let lifetime = match value.lifetime {
                FOREVER => Lifetime::Never,
                nanos => Lifetime::For(Duration::from_nanos(nanos)),
            };
            self.cache.insert_with_ttl(key, value, lifetime);
        }

        fn advance(&mut self, at: u64) {
            self.clock.set_ns(at);
            if at >= self.reap_at {
                self.cache.reap_at_most(u64::MAX);
                self.reap_at = at + REAP_EVERY;
            }
        }

        fn held(&self) -> Option<u64> {
            Some(self.cache.weight())
        }
    }

    fn bounded(setup: &Setup) -> Builder<u64, Value> {
        if setup.weighted {
            let bytes = |_: &u64, value: &Value| u64::from(value.weight);
            Cache::builder().max_weight(setup.bound, bytes)
        } else {
            Cache::builder().max_entries(setup.bound)
        }
    }

    const NOTHING_CONTRADICTORY: &str = "nothing contradictory was asked for";

    fn with(setup: &Setup, policy: Policy) -> Made {
        let cache = bounded(setup).policy(policy).build();
        let cache = cache.expect(NOTHING_CONTRADICTORY);
        Ok(Box::new(Plain { cache }))
    }

    /// With the default policy.
    pub(super) fn plain(setup: &Setup) -> Made {
        with(setup, Policy::default())
    }

    pub(super) fn clock(setup: &Setup) -> Made {
        with(setup, Policy::clock())
    }

    pub(super) fn fifo(setup: &Setup) -> Made {
        with(setup, Policy::fifo())
    }

    pub(super) fn random(setup: &Setup) -> Made {
        with(setup, Policy::random())
    }

    fn on_a_clock(setup: &Setup, reap_at: u64) -> Made {
        let clock = ManualClock::new();
        let cache = bounded(setup)
            .clock(clock.clone())
            .build()
            .expect(NOTHING_CONTRADICTORY);
        Ok(Box::new(Timed {
            cache,
            clock,
            reap_at,
        }))
    }

    /// Reaped once a second of trace time.
    pub(super) fn reaped(setup: &Setup) -> Made {
        on_a_clock(setup, REAP_EVERY)
    }

    /// Never reaped: what expired goes only where an insert needs its room.
    pub(super) fn timed(setup: &Setup) -> Made {
        on_a_clock(setup, FOREVER)
    }
}

/// How many operations lie between two calls of `run_pending_tasks`.
const SOMETIMES: u32 = 64;
/// After every insert, and only then.
const ALWAYS: u32 = 0;

struct Moka<const EVERY: u32> {
    cache: moka::sync::Cache<u64, Value>,
    operations: u32,
}

/// Each entry's own lifetime, from the value.
struct OwnLifetime;

fn length(value: &Value) -> Option<Duration> {
    (value.lifetime != FOREVER).then(|| Duration::from_nanos(value.lifetime))
}

impl moka::Expiry<u64, Value> for OwnLifetime {
    fn expire_after_create(&self, _: &u64, value: &Value, _: Instant) -> Option<Duration> {
        length(value)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        value: &Value,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        length(value)
    }
}

type MokaBuilder = moka::sync::CacheBuilder<u64, Value, moka::sync::Cache<u64, Value>>;

fn moka_builder(setup: &Setup) -> MokaBuilder {
    let builder = moka::sync::Cache::builder().max_capacity(setup.bound);
    match setup.weighted {
        true => builder.weigher(|_, value: &Value| value.weight),
        false => builder,
    }
}

fn moka<const EVERY: u32>(setup: &Setup) -> Made {
    Ok(Box::new(Moka::<EVERY> {
        cache: moka_builder(setup).build(),
        operations: 0,
    }))
}

/// With lifetimes of its own. Its clock is the machine's and cannot be moved.
fn moka_timed<const EVERY: u32>(setup: &Setup) -> Made {
    Ok(Box::new(Moka::<EVERY> {
        cache: moka_builder(setup).expire_after(OwnLifetime).build(),
        operations: 0,
    }))
}

impl<const EVERY: u32> Subject for Moka<EVERY> {
    fn get(&mut self, key: u64) -> Option<Value> {
        if EVERY > 0 {
            self.operations += 1;
            if self.operations == EVERY {
                self.operations = 0;
                self.cache.run_pending_tasks();
            }
        }
        self.cache.get(&key)
    }

    fn insert(&mut self, key: u64, value: Value) {
        self.cache.insert(key, value);
        if EVERY == ALWAYS {
            self.cache.run_pending_tasks();
        }
    }
}

struct MiniMoka(mini_moka::sync::Cache<u64, Value>);

/// Without explicit maintenance.
fn mini_moka(setup: &Setup) -> Made {
    let builder = mini_moka::sync::Cache::builder().max_capacity(setup.bound);
    let builder = match setup.weighted {
        true => builder.weigher(|_, value: &Value| value.weight),
        false => builder,
    };
    Ok(Box::new(MiniMoka(builder.build())))
}

impl Subject for MiniMoka {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.0.get(&key)
    }

    fn insert(&mut self, key: u64, value: Value) {
        self.0.insert(key, value);
    }
}

/// A value's weight, which is 1 in a replay without weights.
#[derive(Clone)]
struct ByWeight;

impl Weighter<u64, Value> for ByWeight {
    fn weight(&self, _: &u64, value: &Value) -> u64 {
        u64::from(value.weight)
    }
}

struct QuickCache(quick_cache::sync::Cache<u64, Value, ByWeight>);

fn quick_cache(setup: &Setup) -> Made {
    Ok(Box::new(QuickCache(quick_cache::sync::Cache::with(
        setup.entries,
        setup.bound,
        ByWeight,
        DefaultHashBuilder::default(),
        Default::default(),
    ))))
}

impl Subject for QuickCache {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.0.get(&key)
    }

    fn insert(&mut self, key: u64, value: Value) {
        self.0.insert(key, value);
    }
}

/// In its default, fast form.
struct TinyUfo {
    cache: tinyufo::TinyUfo<u64, Value>,
    /// Its weights are u16: bytes that make one of its units.
    unit: u32,
}

fn tiny_ufo(setup: &Setup) -> Made {
    let unit = setup.heaviest.div_ceil(u32::from(u16::MAX)).max(1);
    let bound = setup.bound / u64::from(unit);
    let bound = usize::try_from(bound).map_err(|_| "the bound is too large for it")?;
    Ok(Box::new(TinyUfo {
        cache: tinyufo::TinyUfo::new(bound, setup.entries),
        unit,
    }))
}

impl Subject for TinyUfo {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.cache.get(&key)
    }

    fn insert(&mut self, key: u64, value: Value) {
        let weight = value.weight.div_ceil(self.unit);
        let weight = u16::try_from(weight).unwrap_or(u16::MAX);
        drop(self.cache.put(key, value, weight));
    }
}

struct Foyer(foyer_memory::Cache<u64, Value>);

/// One shard; the policy's own default parameters.
fn foyer(setup: &Setup, policy: impl Into<EvictionConfig>) -> Made {
    let bound = usize::try_from(setup.bound).map_err(|_| "the bound is too large for it")?;
    let builder = CacheBuilder::new(bound)
        .with_shards(1)
        .with_eviction_config(policy)
        .with_weighter(|_: &u64, value: &Value| value.weight as usize);
    Ok(Box::new(Foyer(builder.build())))
}

fn foyer_s3fifo(setup: &Setup) -> Made {
    foyer(setup, S3FifoConfig::default())
}

fn foyer_lfu(setup: &Setup) -> Made {
    foyer(setup, LfuConfig::default())
}

impl Subject for Foyer {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    fn insert(&mut self, key: u64, value: Value) {
        drop(self.0.insert(key, value));
    }
}

/// Exact least recently used; by weight too, which the crate leaves to its user.
struct Lru {
    cache: lru::LruCache<u64, Value>,
    used: u64,
    bound: u64,
}

fn lru(setup: &Setup) -> Made {
    Ok(Box::new(Lru {
        cache: lru::LruCache::unbounded(),
        used: 0,
        bound: setup.bound,
    }))
}

impl Subject for Lru {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.cache.get(&key).copied()
    }

    fn insert(&mut self, key: u64, value: Value) {
        let weight = u64::from(value.weight);
        if let Some(old) = self.cache.pop(&key) {
            self.used -= u64::from(old.weight);
        }
        if weight > self.bound {
            return;
        }
        while self.used + weight > self.bound {
            let (_, old) = self.cache.pop_lru().expect("what is used is held");
            self.used -= u64::from(old.weight);
        }
        self.cache.push(key, value);
        self.used += weight;
    }

    fn held(&self) -> Option<u64> {
        Some(self.used)
    }
}

/// Holds everything, whatever the bound: with lifetimes nothing can have more hits, as long as a
/// key's lifetime is always the same.
struct Unbounded(HashMap<u64, Value, ahash::RandomState>);

fn unbounded(_: &Setup) -> Made {
    Ok(Box::new(Unbounded(HashMap::default())))
}

impl Subject for Unbounded {
    fn get(&mut self, key: u64) -> Option<Value> {
        self.0.get(&key).copied()
    }

    fn insert(&mut self, key: u64, value: Value) {
        self.0.insert(key, value);
    }
}
