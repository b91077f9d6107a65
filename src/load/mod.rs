//! Loads in progress: one for each key at a time, whoever asks meanwhile waits for it.
//!
//! [`flight`] is one load and those who wait for it, threads and tasks alike; [`nesting`] finds out
//! when waiting would never end, [`refresh`] when a value that is there should be loaded again. This file is the table of all loads of a cache.
//!
//! | step | who | under |
//! |---|---|---|
//! | join: begin a load or find the one in progress | callers that found no entry | the table's lock |
//! | begin: take and leave the shard's lock once, before the loader runs | the leader | – |
//! | overtake: take the load out of the table, mark it | writes and removals of the key | the shard's lock |
//! | publish: link the value unless the load is marked | the leader | the shard's lock |
//! | end: take the load out, say what became of it, wake | the leader | the table's lock |
//!
//! A write that holds the shard's lock after *begin* sees the load in the table and overtakes it; one
//! that held it before is seen by the loader. So no loaded value is left behind that is older than a
//! write or a removal of its key, and writes ask one counter.

mod flight;
mod nesting;
mod refresh;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ahash::RandomState;

use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, fence, without_fork};

pub(crate) use flight::{Flight, Wait};
pub(crate) use nesting::{Inside, Nested};
pub(crate) use refresh::Refresh;

/// What a caller that found no entry has to do.
pub(crate) enum Joined<K, V> {
    /// Load the value.
    Lead(Arc<Flight<K, V>>),
    /// Wait for who does.
    Wait(Arc<Flight<K, V>>),
}

/// Loads by the hash of their key.
type Table<K, V> = HashMap<u32, Vec<Arc<Flight<K, V>>>, RandomState>;

/// All loads in progress of one cache, by the hash of their key.
pub(crate) struct Flights<K, V> {
    table: Mutex<Table<K, V>>,
    /// How many there are in the table.
    count: AtomicUsize,
}

impl<K, V> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Flights {
            table: Mutex::new(HashMap::default()),
            count: AtomicUsize::new(0),
        }
    }

    /// Finds the load of a key that is in progress, or begins one.
    pub(crate) fn join(&self, hash: u32, key: &K) -> Joined<K, V>
    where
        K: Eq + Clone,
    {
        // (Its key is dropped without the lock.)
        let mut orphan = None;
        self.locked(|table| {
            let found = table.get(&hash).and_then(|flights| {
                let found = flights.iter().find(|flight| flight.key() == key);
                found.cloned()
            });
            if let Some(flight) = found {
                if !flight.is_orphan() {
                    return Joined::Wait(flight);
                }
                self.take_out(table, hash, |other| Arc::ptr_eq(other, &flight));
                orphan = Some(flight);
            }
            let flight = Arc::new(Flight::new(hash, key.clone()));
            let flights = table.entry(hash).or_default();
            flights.push(Arc::clone(&flight));
            // SeqCst with the fence: see `overtake_all`. (`overtake` sees it by the shard's lock.)
            self.count.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            Joined::Lead(flight)
        })
    }

    /// Runs `f` on the table, whose lock is never held at the moment of a fork.
    fn locked<R>(&self, f: impl FnOnce(&mut Table<K, V>) -> R) -> R {
        without_fork(|| f(&mut self.table.lock()))
    }

    /// A write or a removal of a key, whose shard's lock is held: what is being loaded for it is
    /// older.
    #[inline]
    pub(crate) fn overtake(&self, hash: u32, is_key: impl Fn(&K) -> bool) {
        // Relaxed: a load that began before this hold of the shard's lock took and left that lock
        // after it was counted.
        if self.count.load(Ordering::Relaxed) > 0 {
            self.overtake_slow(hash, is_key);
        }
    }

    #[cold]
    fn overtake_slow(&self, hash: u32, is_key: impl Fn(&K) -> bool) {
        self.locked(|table| {
            if let Some(flight) = self.take_out(table, hash, |flight| is_key(flight.key())) {
                flight.overtake();
            }
        });
    }

    fn take_out(
        &self,
        table: &mut Table<K, V>,
        hash: u32,
        is_it: impl Fn(&Arc<Flight<K, V>>) -> bool,
    ) -> Option<Arc<Flight<K, V>>> {
        let Entry::Occupied(mut flights) = table.entry(hash) else {
            return None;
        };
        let place = flights.get().iter().position(is_it)?;
        let flight = flights.get_mut().swap_remove(place);
        if flights.get().is_empty() {
            flights.remove();
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(flight)
    }

    /// Overtakes every load, before entries of all keys are removed. Without any lock.
    pub(crate) fn overtake_all(&self) {
        // SeqCst, with the one in `join`: either the load is counted here, or its loader sees what
        // the caller did before.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let overtaken = self.locked(std::mem::take);
        for flight in overtaken.into_values().flatten() {
            flight.overtake();
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The load is over, with a value or without: takes it out and wakes who waits. `value` is not
    /// asked if nobody does.
    pub(crate) fn end(&self, flight: &Arc<Flight<K, V>>, value: impl FnOnce() -> Option<V>) {
        let is_it = |other: &Arc<Flight<K, V>>| Arc::ptr_eq(other, flight);
        let taken = self.locked(|table| self.take_out(table, flight.hash(), is_it));
        drop(taken);
        // Nobody can join it any more; whoever has joined holds on to it.
        if Arc::strong_count(flight) > 1 {
            flight.end(value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(flights: &Flights<u32, u32>, key: u32) -> Arc<Flight<u32, u32>> {
        match flights.join(7, &key) {
            Joined::Lead(flight) => flight,
            Joined::Wait(_) => panic!("somebody loads {key}"),
        }
    }

    #[test]
    fn keys_of_one_hash_do_not_wait_for_each_other() {
        let flights = Flights::new();
        let (one, two) = (lead(&flights, 1), lead(&flights, 2));
        assert!(matches!(flights.join(7, &1), Joined::Wait(found) if Arc::ptr_eq(&found, &one)));
        flights.end(&one, || Some(10));
        let again = lead(&flights, 1);
        assert!(!again.is_overtaken());
        flights.overtake(7, |key| *key == 2);
        assert!(two.is_overtaken() && !again.is_overtaken());
        let newer = lead(&flights, 2);
        // The overtaken load does not take its successor out.
        flights.end(&two, || Some(20));
        assert!(matches!(flights.join(7, &2), Joined::Wait(found) if Arc::ptr_eq(&found, &newer)));
        flights.overtake_all();
        assert!(again.is_overtaken() && newer.is_overtaken());
        assert_eq!(flights.count.load(Ordering::Relaxed), 0);
        assert!(flights.table.lock().is_empty());
    }
}
