//! moka, mini-moka, quick_cache and TinyUFO. Their `get` gives a clone of the value, so that they
//! hold it in an `Arc`, as their documentation advises. moka and mini-moka hash with ahash, as the
//! library does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lab::{Contender, Lifetimes, Setup, Subject, Value};

pub(super) fn contenders() -> [Contender; 4] {
    [
        Contender::new(
            "moka",
            Lifetimes::PerEntry,
            "unbounded, ahash, Expiry per entry, Arc'd values; cleans up on its callers' threads",
            moka,
        ),
        Contender::new(
            "mini-moka",
            Lifetimes::PerCache,
            "unbounded, ahash, Arc'd values; one lifetime for the whole cache: no wave beside others",
            mini_moka,
        ),
        Contender::new(
            "quick_cache",
            Lifetimes::None,
            "no lifetimes: reads and writes only; bounded, Arc'd values",
            |setup| {
                let room = setup.room as usize;
                Ok(Box::new(QuickCache(quick_cache::sync::Cache::new(room))))
            },
        ),
        Contender::new(
            "TinyUFO",
            Lifetimes::None,
            "no lifetimes: reads and writes only; bounded, Arc'd values",
            |setup| {
                let room = setup.room as usize;
                Ok(Box::new(TinyUfo(tinyufo::TinyUfo::new(room, room))))
            },
        ),
    ]
}

/// The lifetime beside the value: moka's only way to give two entries different ones.
type Timed = (Duration, Arc<Value>);

struct ByEntry;

impl moka::Expiry<u64, Timed> for ByEntry {
    fn expire_after_create(&self, _: &u64, value: &Timed, _: Instant) -> Option<Duration> {
        Some(value.0)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        value: &Timed,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(value.0)
    }
}

struct Moka(moka::sync::Cache<u64, Timed, ahash::RandomState>);

fn moka(setup: &Setup) -> Result<Box<dyn Subject>, String> {
    let builder = moka::sync::Cache::builder();
    let builder = if setup.sliding {
        builder.time_to_idle(setup.lifetime)
    } else {
        builder.expire_after(ByEntry)
    };
    Ok(Box::new(Moka(
        builder.build_with_hasher(ahash::RandomState::new()),
    )))
}

impl Subject for Moka {
    fn get(&self, key: u64) -> bool {
        self.0.get(&key).inspect(|value| value.1.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, lifetime: Duration) {
        self.0.insert(key, (lifetime, Arc::new(value)));
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

struct MiniMoka(mini_moka::sync::Cache<u64, Arc<Value>, ahash::RandomState>);

fn mini_moka(setup: &Setup) -> Result<Box<dyn Subject>, String> {
    let builder = mini_moka::sync::Cache::builder();
    let builder = if setup.sliding {
        builder.time_to_idle(setup.lifetime)
    } else {
        builder.time_to_live(setup.lifetime)
    };
    Ok(Box::new(MiniMoka(
        builder.build_with_hasher(ahash::RandomState::new()),
    )))
}

impl Subject for MiniMoka {
    fn get(&self, key: u64) -> bool {
        self.0.get(&key).inspect(|value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        self.0.insert(key, Arc::new(value));
    }

    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(&self.0);
    }
}

struct QuickCache(quick_cache::sync::Cache<u64, Arc<Value>>);

impl Subject for QuickCache {
    fn get(&self, key: u64) -> bool {
        self.0.get(&key).inspect(|value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        self.0.insert(key, Arc::new(value));
    }
}

struct TinyUfo(tinyufo::TinyUfo<u64, Arc<Value>>);

impl Subject for TinyUfo {
    fn get(&self, key: u64) -> bool {
        self.0.get(&key).inspect(|value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        drop(self.0.put(key, Arc::new(value), 1));
    }
}
