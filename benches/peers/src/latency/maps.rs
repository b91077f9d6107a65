//! dashmap, papaya, and scc's HashMap and HashIndex: maps, without lifetimes; with ahash.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;

use crate::lab::{Contender, Lifetimes, Setup, Subject, Value};

pub(super) fn contenders() -> [Contender; 4] {
    let contender = |name, note, build| Contender::new(name, Lifetimes::None, note, build);
    const MAP: &str = "a map, no lifetimes: reads and writes only; unbounded, ahash";
    const INDEX: &str =
        "a map, no lifetimes: reads and writes only; unbounded, ahash, Arc'd values";
    [
        contender("dashmap", MAP, |_: &Setup| {
            Ok(Box::new(Dashmap(dashmap::DashMap::default())))
        }),
        contender("papaya", MAP, |_| {
            Ok(Box::new(Papaya(papaya::HashMap::default())))
        }),
        contender("scc", MAP, |_| Ok(Box::new(Scc(scc::HashMap::default())))),
        contender("scc HashIndex", INDEX, |_| {
            Ok(Box::new(SccIndex(scc::HashIndex::default())))
        }),
    ]
}

struct Dashmap(dashmap::DashMap<u64, Value, RandomState>);

impl Subject for Dashmap {
    fn get(&self, key: u64) -> bool {
        self.0.get(&key).inspect(|value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        // Dropped here, not under the map's lock.
        drop(self.0.insert(key, value));
    }
}

struct Papaya(papaya::HashMap<u64, Value, RandomState>);

impl Subject for Papaya {
    fn get(&self, key: u64) -> bool {
        self.0.pin().get(&key).map(Value::read).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        self.0.pin().insert(key, value);
    }
}

struct Scc(scc::HashMap<u64, Value, RandomState>);

impl Subject for Scc {
    fn get(&self, key: u64) -> bool {
        self.0.read_sync(&key, |_, value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        drop(self.0.upsert_sync(key, value));
    }
}

/// scc's map for reading: its reads take no lock.
struct SccIndex(scc::HashIndex<u64, Arc<Value>, RandomState>);

impl Subject for SccIndex {
    fn get(&self, key: u64) -> bool {
        self.0.peek_with(&key, |_, value| value.read()).is_some()
    }

    fn insert(&self, key: u64, value: Value, _: Duration) {
        let value = Arc::new(value);
        match self.0.entry_sync(key) {
            scc::hash_index::Entry::Occupied(mut entry) => entry.update(value),
            scc::hash_index::Entry::Vacant(entry) => drop(entry.insert_entry(value)),
        }
    }
}
