//! One load, and those who wait for it.

use std::collections::HashMap;
use std::task::{Poll, Waker};

use ahash::RandomState;

use crate::sync::{Arc, AtomicBool, Mutex, Once, Ordering, forks};

/// A load in progress or just over.
pub(crate) struct Flight<K, V> {
    hash: u32,
    key: K,
    /// In which process of a forking family it began.
    process: u64,
    /// The key was written or removed after the load began.
    overtaken: AtomicBool,
    /// What became of it: a value, or none (it failed, panicked, or was given up).
    end: Once<Option<V>>,
    waiting: Mutex<Waiting>,
}

/// Whom to wake.
#[derive(Default)]
struct Waiting {
    wakers: HashMap<u64, Waker, RandomState>,
    /// The next one's number.
    next: u64,
}

impl<K, V> Flight<K, V> {
    pub(super) fn new(hash: u32, key: K) -> Self {
        Flight {
            hash,
            key,
            process: forks(),
            overtaken: AtomicBool::new(false),
            end: Once::new(),
            waiting: Mutex::new(Waiting::default()),
        }
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Whether it began in a process that this one was forked from: its thread is not here.
    pub(super) fn is_orphan(&self) -> bool {
        self.process != forks()
    }

    pub(super) fn overtake(&self) {
        // Relaxed: whoever publishes looks under the shard's lock, which this caller holds or takes
        // after it.
        self.overtaken.store(true, Ordering::Relaxed);
    }

    /// Whether a value that was loaded must not be stored. Ask under the shard's lock.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.overtaken.load(Ordering::Relaxed)
    }

    /// Says what became of the load, and wakes everybody, without any lock.
    pub(super) fn end(&self, value: Option<V>) {
        let _ = self.end.set(value);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.wakers.into_values().for_each(Waker::wake);
    }
}

/// A place among those who wait for a load. Given up when dropped.
pub(crate) struct Wait<K, V> {
    flight: Arc<Flight<K, V>>,
    /// This one's number, once it was pending.
    number: Option<u64>,
}

impl<K, V> Wait<K, V> {
    pub(crate) fn new(flight: Arc<Flight<K, V>>) -> Self {
        Wait {
            flight,
            number: None,
        }
    }

    /// Ready when the load is over: its value, or `None` if there is none and somebody else has to
    /// load. Until then the last waker given is woken.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Option<&V>> {
        if self.flight.end.get().is_none() {
            let mut waiting = self.flight.waiting.lock();
            // Again, under the lock: who ends the load takes the wakers after saying so.
            if self.flight.end.get().is_none() {
                let number = *self.number.get_or_insert(waiting.next);
                waiting.next = waiting.next.max(number + 1);
                let old = waiting.wakers.insert(number, waker.clone());
                // (Its drop is somebody else's code.)
                drop(waiting);
                drop(old);
                return Poll::Pending;
            }
        }
        let end = self.flight.end.get().expect("looked at above");
        Poll::Ready(end.as_ref())
    }
}

impl<K, V> Drop for Wait<K, V> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.flight.waiting.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}
