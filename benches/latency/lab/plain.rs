//! What people write by hand, and nothing at all: the controls beside which caches are measured.
//!
//! The by-hand caches clean up as such code does: a thread comes by at an interval and throws out
//! the expired with `retain`, under the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ledger::Value;
use super::{Contender, Lifetimes, Setup, Subject};

/// The contenders of this file.
pub(crate) fn contenders() -> [Contender; 3] {
    [
        Contender::new(
            ONE_LOCK,
            Lifetimes::PerEntry,
            "by hand: a Mutex<HashMap>, a thread that calls retain under the lock every 100 ms",
            |setup| ByHand::<Mutex<Map>>::build(setup, 1),
        ),
        Contender::new(
            SHARDED,
            Lifetimes::PerEntry,
            "by hand: 16 RwLock<HashMap>, a thread that calls retain under each lock every 100 ms",
            |setup| ByHand::<RwLock<Map>>::build(setup, 16),
        ),
        Contender::new(
            NOTHING,
            Lifetimes::None,
            "an array that is read and written, no cache: what the loop itself costs",
            |_| Ok(Box::new(Nothing::new())),
        ),
    ]
}

pub(crate) const ONE_LOCK: &str = "mutex+retain";
pub(crate) const SHARDED: &str = "rwlock+retain";
pub(crate) const NOTHING: &str = "no cache";

type Map = HashMap<u64, Entry, ahash::RandomState>;

struct Entry {
    value: Value,
    /// Nanoseconds from the cache's beginning.
    deadline: AtomicU64,
}

/// A lock around a map, of either kind.
trait Locked: Default + Send + Sync + 'static {
    fn read<R>(&self, f: impl FnOnce(&Map) -> R) -> R;
    fn write<R>(&self, f: impl FnOnce(&mut Map) -> R) -> R;
}

impl Locked for Mutex<Map> {
    fn read<R>(&self, f: impl FnOnce(&Map) -> R) -> R {
        f(&self.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, f: impl FnOnce(&mut Map) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked for RwLock<Map> {
    fn read<R>(&self, f: impl FnOnce(&Map) -> R) -> R {
        f(&RwLock::read(self).unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, f: impl FnOnce(&mut Map) -> R) -> R {
        f(&mut RwLock::write(self).unwrap_or_else(PoisonError::into_inner))
    }
}

struct ByHand<L> {
    shards: Arc<[L]>,
    hasher: ahash::RandomState,
    began: Instant,
    /// Reads renew by this much.
    idle: Option<u64>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    cleaner: Option<JoinHandle<()>>,
}

impl<L: Locked> ByHand<L> {
    fn build(setup: &Setup, shards: usize) -> Result<Box<dyn Subject>, String> {
        let shards: Arc<[L]> = (0..setup.settings.shards.unwrap_or(shards))
            .map(|_| L::default())
            .collect();
        let began = Instant::now();
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let interval = setup
            .settings
            .interval
            .unwrap_or(Duration::from_millis(100));
        let cleaner = {
            let (shards, stop) = (Arc::clone(&shards), Arc::clone(&stop));
            thread::Builder::new()
                .name("retain".to_owned())
                .spawn(move || clean(&shards, began, interval, &stop))
                .map_err(|error| format!("cannot start a thread: {error}"))?
        };
        Ok(Box::new(ByHand {
            shards,
            hasher: ahash::RandomState::new(),
            began,
            idle: setup.sliding.then_some(setup.lifetime.as_nanos() as u64),
            stop,
            cleaner: Some(cleaner),
        }))
    }

    fn shard(&self, key: u64) -> &L {
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % self.shards.len()]
    }
}

fn clean<L: Locked>(
    shards: &[L],
    began: Instant,
    interval: Duration,
    stop: &(Mutex<bool>, Condvar),
) {
    loop {
        let asleep = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = stop
            .1
            .wait_timeout_while(asleep, interval, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        if *stopped {
            return;
        }
        drop(stopped);
        for shard in shards {
            shard.write(|map| {
                let now = began.elapsed().as_nanos() as u64;
                map.retain(|_, entry| *entry.deadline.get_mut() > now);
            });
        }
    }
}

impl<L: Locked> Subject for ByHand<L> {
    fn get(&self, key: u64) -> bool {
        self.shard(key).read(|map| {
            let Some(entry) = map.get(&key) else {
                return false;
            };
            let now = self.began.elapsed().as_nanos() as u64;
            if entry.deadline.load(Ordering::Relaxed) <= now {
                return false;
            }
            if let Some(idle) = self.idle {
                entry.deadline.store(now + idle, Ordering::Relaxed);
            }
            entry.value.read();
            true
        })
    }

    fn insert(&self, key: u64, value: Value, lifetime: Duration) {
        let deadline = (self.began.elapsed() + lifetime).as_nanos() as u64;
        let entry = Entry {
            value,
            deadline: AtomicU64::new(deadline),
        };
        let replaced = self.shard(key).write(|map| map.insert(key, entry));
        drop(replaced);
    }
}

impl<L> Drop for ByHand<L> {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(cleaner) = self.cleaner.take()
            && cleaner.join().is_err()
        {
            eprintln!("the cleaning thread panicked");
        }
    }
}

/// No cache: an array of numbers.
struct Nothing {
    slots: Box<[AtomicU64]>,
}

impl Nothing {
    fn new() -> Self {
        Nothing {
            slots: (0..1 << 16).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.slots[key as usize % self.slots.len()]
    }
}

impl Subject for Nothing {
    fn get(&self, key: u64) -> bool {
        self.slot(key).load(Ordering::Relaxed) != u64::MAX
    }

    fn insert(&self, key: u64, value: Value, _lifetime: Duration) {
        drop(value);
        self.slot(key).store(key >> 1, Ordering::Relaxed);
    }
}
