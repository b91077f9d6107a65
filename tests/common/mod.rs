//! What the case files share: values that count their drops, a recorder of removal events, points
//! at which a thread can be made to wait, and the matrix of configurations.

// Each test binary uses its own part of this.
#![allow(dead_code)]

pub(crate) mod matrix;
pub(crate) mod model;
pub(crate) mod origins;
pub(crate) mod pause;
pub(crate) mod sights;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ebbtide::RemovalCause;

/// Longest that anything may take before a test fails; far more than any of it needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// No time, one second, and one nanosecond.
pub(crate) const ZERO: Duration = Duration::ZERO;
pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const NS: Duration = Duration::from_nanos(1);

/// Waits until `condition` holds; fails after [`PATIENCE`].
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(
            begin.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `f` on a thread of its own and fails if it hangs (or panics).
#[track_caller]
pub(crate) fn promptly<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = f();
        // Nobody listens any more if it took too long.
        let _ = done.send(result);
    });
    match result.recv_timeout(PATIENCE) {
        Ok(result) => {
            thread.join().expect("it has sent its result");
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => unreachable!("it ended without a result"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// Makes [`Tracked`] values and knows what became of each.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Books>);

#[derive(Default)]
struct Books {
    /// How often each original was dropped, by serial number.
    drops: Mutex<Vec<u8>>,
    /// Clones that exist.
    clones: AtomicI64,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A new value; `tag` is what it is compared by.
    pub(crate) fn value(&self, tag: u64) -> Tracked {
        let mut drops = self.0.drops.lock().unwrap();
        drops.push(0);
        Tracked {
            tag,
            serial: drops.len() - 1,
            original: true,
            ledger: self.clone(),
        }
    }

    /// Values made so far; the next one gets this serial number.
    pub(crate) fn made(&self) -> usize {
        self.0.drops.lock().unwrap().len()
    }

    /// Originals dropped so far.
    pub(crate) fn dropped(&self) -> usize {
        let drops = self.0.drops.lock().unwrap();
        drops.iter().filter(|&&n| n > 0).count()
    }

    /// Whether the original with this serial number was dropped.
    pub(crate) fn is_dropped(&self, serial: usize) -> bool {
        self.0.drops.lock().unwrap()[serial] > 0
    }

    /// Fails if a value was dropped twice.
    #[track_caller]
    pub(crate) fn assert_none_dropped_twice(&self) {
        let drops = self.0.drops.lock().unwrap();
        assert_eq!(drops.iter().position(|&n| n > 1), None, "dropped twice");
    }

    /// Fails unless every original was dropped exactly once and no clone is left.
    #[track_caller]
    pub(crate) fn assert_all_dropped_once(&self) {
        let drops = self.0.drops.lock().unwrap();
        assert_eq!(drops.iter().position(|&n| n > 1), None, "dropped twice");
        assert_eq!(drops.iter().position(|&n| n == 0), None, "never dropped");
        assert_eq!(self.0.clones.load(Ordering::SeqCst), 0, "clones are left");
    }
}

/// A value that reports its drop; equal to others with its tag.
pub(crate) struct Tracked {
    tag: u64,
    serial: usize,
    original: bool,
    ledger: Ledger,
}

impl Tracked {
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Tells the values of one ledger apart; a clone has its original's.
    pub(crate) fn serial(&self) -> usize {
        self.serial
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        self.ledger.0.clones.fetch_add(1, Ordering::SeqCst);
        assert!(
            !self.original || !self.ledger.is_dropped(self.serial),
            "cloned after its drop"
        );
        Tracked {
            tag: self.tag,
            serial: self.serial,
            original: false,
            ledger: self.ledger.clone(),
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.original {
            let mut drops = self.ledger.0.drops.lock().unwrap();
            drops[self.serial] = drops[self.serial].saturating_add(1);
        } else {
            self.ledger.0.clones.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        self.tag == other.tag
    }
}

impl fmt::Debug for Tracked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tag)
    }
}

/// Shorthand for the tags of what a read found.
pub(crate) fn tag(found: Option<Tracked>) -> Option<u64> {
    found.map(|value| value.tag)
}

/// A removal as a listener heard of it: the key, the value's serial number, the cause.
pub(crate) type Event<K> = (K, usize, RemovalCause);

/// Records removal events.
pub(crate) struct Events<K>(Arc<Mutex<Vec<Event<K>>>>);

impl<K> Clone for Events<K> {
    fn clone(&self) -> Self {
        Events(Arc::clone(&self.0))
    }
}

impl<K: Clone + Send + 'static> Events<K> {
    pub(crate) fn new() -> Self {
        Events(Arc::default())
    }

    /// What to give to `on_removal`.
    pub(crate) fn listener(
        &self,
    ) -> impl Fn(&K, &Tracked, RemovalCause) + Send + Sync + 'static + use<K> {
        let events = self.clone();
        move |key, value, cause| events.record((key.clone(), value.serial, cause))
    }

    pub(crate) fn record(&self, event: Event<K>) {
        self.0.lock().unwrap().push(event);
    }

    /// All events so far.
    pub(crate) fn all(&self) -> Vec<Event<K>> {
        self.0.lock().unwrap().clone()
    }

    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<Event<K>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// How many events had this cause.
    pub(crate) fn count(&self, cause: RemovalCause) -> usize {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| event.2 == cause).count()
    }

    /// Fails if a value was reported more than once.
    #[track_caller]
    pub(crate) fn assert_each_once(&self) {
        let mut seen: HashMap<usize, RemovalCause> = HashMap::new();
        for (_, serial, cause) in self.0.lock().unwrap().iter() {
            if let Some(before) = seen.insert(*serial, *cause) {
                panic!("value {serial} was reported as {before:?} and as {cause:?}");
            }
        }
    }
}

/// Checks that what was ever linked is still linked or has left for exactly one cause, as far as
/// the cache's own counts know. Call it while no other thread writes.
#[track_caller]
pub(crate) fn assert_counts_agree<K, V, S>(cache: &ebbtide::Cache<K, V, S>)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: std::hash::BuildHasher + Send + Sync + 'static,
{
    let stats = cache.stats();
    assert_eq!(stats.entries, cache.entry_count());
    let expired = stats.expired_by_read + stats.expired_by_write + stats.expired_by_sweep;
    let left = expired + stats.explicit + stats.replaced + stats.evicted;
    assert_eq!(stats.inserted, stats.entries + left, "{stats:?}");
    assert_eq!(left, stats.limbo + stats.dropped, "{stats:?}");
    assert_eq!(stats.reclaim_lag.count(), expired, "{stats:?}");
    cache.validate();
}

/// A key that counts how many of its kind exist.
pub(crate) struct CountedKey {
    number: u8,
    alive: Arc<AtomicI64>,
}

impl CountedKey {
    pub(crate) fn new(number: u8, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        CountedKey {
            number,
            alive: Arc::clone(alive),
        }
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }
}

impl Clone for CountedKey {
    fn clone(&self) -> Self {
        CountedKey::new(self.number, &self.alive)
    }
}

impl Drop for CountedKey {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PartialEq for CountedKey {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for CountedKey {}

impl Hash for CountedKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl std::borrow::Borrow<u8> for CountedKey {
    fn borrow(&self) -> &u8 {
        &self.number
    }
}
