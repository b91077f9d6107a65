//! MiniRedis's contract of expiration, held by the cache: absolute deadlines, a
//! logical absence that can precede the physical removal, bounded passes of active
//! expiry. Everything runs under a clock moved by hand; nothing sleeps.

#[path = "miniredis_contract/absence.rs"]
mod absence;
#[path = "miniredis_contract/changes.rs"]
mod changes;
#[path = "miniredis_contract/deadlines.rs"]
mod deadlines;
#[path = "miniredis_contract/failures.rs"]
mod failures;
#[path = "miniredis_contract/passes.rs"]
mod passes;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide::{Builder, Cache, Counter, Lifetime, ManualClock, Reaper, RemovalCause};

const NANOSECOND: Duration = Duration::from_nanos(1);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn left(seconds: u64) -> Option<Lifetime> {
    Some(Lifetime::For(secs(seconds)))
}

type Key = &'static str;

/// A cache under a clock that stands at 1,000 s when the test begins.
struct Store<V> {
    clock: ManualClock,
    cache: Cache<Key, V>,
}

impl<V: Clone + Send + Sync + 'static> Store<V> {
    fn new() -> Self {
        Self::configured(|builder| builder)
    }

    fn configured(configure: impl FnOnce(Builder<Key, V>) -> Builder<Key, V>) -> Self {
        let clock = ManualClock::new();
        clock.advance(secs(1_000));
        let builder = Cache::builder()
            .clock(clock.clone())
            .reaper(Reaper::manual());
        Self {
            cache: configure(builder).build().expect("valid settings"),
            clock,
        }
    }

    /// Physical and live entries.
    fn counts(&self) -> (u64, u64) {
        (self.cache.entry_count(), self.cache.live_count())
    }
}

/// What a removal listener was told, in order.
#[derive(Clone, Default)]
struct Removals(Arc<Mutex<Vec<(Key, RemovalCause)>>>);

impl Removals {
    fn listener<V>(&self) -> impl Fn(&Key, &V, RemovalCause) + Send + Sync + use<V> {
        let log = self.clone();
        move |key: &Key, _: &V, cause| log.lock().push((*key, cause))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Key, RemovalCause)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything told so far, by key.
    fn sorted(&self) -> Vec<(Key, RemovalCause)> {
        let mut told = self.lock().clone();
        told.sort_by_key(|&(key, _)| key);
        told
    }
}

/// A store whose removals are listened to.
fn observed<V: Clone + Send + Sync + 'static>() -> (Store<V>, Removals) {
    let removals = Removals::default();
    let store = Store::configured(|builder| builder.on_removal(removals.listener()));
    (store, removals)
}

/// A cache of counters under a clock that stands at zero.
fn counters() -> (ManualClock, Cache<String, Counter>) {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    (clock, cache)
}
