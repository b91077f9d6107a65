//! The lab's own account of values: which are held, and which of those are dead.
//!
//! A value is held from its making until its `Drop`, wherever the cache keeps it meanwhile, and dead
//! from its deadline on. So a contender is charged for what waits for a grace period, a queue or a
//! caller, whatever it says of itself.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Deadlines are told apart to a millisecond, over some four minutes from the start; later ones count
/// as never.
const MILLIS: usize = 1 << 18;
/// The latest deadline of a wave, in milliseconds, so that it counts.
pub(crate) const MOST_LEAD: u64 = MILLIS as u64 - 1;
/// Milliseconds that a value may be late to be made: older counts that are 0 stay 0.
const LATE: usize = 1_000;
const NEVER: u32 = u32::MAX;

/// Counts on lines of their own: makers and droppers are different threads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug)]
pub(crate) struct Ledger {
    began: Instant,
    /// A read renews a value's deadline by this many milliseconds (0: it does not).
    idle: u32,
    made: Count,
    dropped: Count,
    /// Values not yet dropped, by the millisecond in which they are due.
    due: Box<[AtomicU32]>,
    /// Before this there is nothing, so that looking need not begin with the first.
    first: AtomicUsize,
    /// The time in milliseconds, as of the last look: renewals need no better.
    coarse: AtomicU32,
}

impl Ledger {
    /// A ledger for the rest of the process: values may outlive whatever owns it.
    pub(crate) fn open(idle: Duration) -> &'static Ledger {
        let due = (0..MILLIS).map(|_| AtomicU32::new(0)).collect();
        Box::leak(Box::new(Ledger {
            began: Instant::now(),
            idle: u32::try_from(idle.as_millis()).unwrap_or(0),
            made: Count::default(),
            dropped: Count::default(),
            due,
            first: AtomicUsize::new(0),
            coarse: AtomicU32::new(0),
        }))
    }

    /// The moment that all times of a run count from.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// A value due this many nanoseconds after the beginning.
    pub(crate) fn value(&'static self, due: u64) -> Value {
        let due = bucket(due);
        self.made.0.fetch_add(1, Ordering::Relaxed);
        self.change(due, 1);
        Value {
            ledger: self,
            due: AtomicU32::new(due),
            payload: [1; PAYLOAD],
        }
    }

    fn change(&self, due: u32, by: u32) {
        if let Some(count) = self.due.get(due as usize) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// What is held and what is dead at `now` (in nanoseconds since the beginning).
    pub(crate) fn look(&self, now: u64) -> Holding {
        let millis = (now / 1_000_000) as usize;
        self.coarse.store(millis as u32, Ordering::Relaxed);
        let count = |at: usize| u64::from(self.due[at].load(Ordering::Relaxed));
        let end = (millis + 1).min(MILLIS);
        let mut first = self.first.load(Ordering::Relaxed);
        while first + LATE < end && count(first) == 0 {
            first += 1;
        }
        self.first.store(first, Ordering::Relaxed);
        let dead = (first..end).map(count).sum();
        // Dropped first: what goes between the two loads must not make the difference negative.
        let dropped = self.dropped.0.load(Ordering::Relaxed);
        let held = self.made.0.load(Ordering::Relaxed).saturating_sub(dropped);
        Holding {
            held: held.max(dead),
            dead,
        }
    }
}

/// Rounded up: no value counts as dead before it is.
fn bucket(nanos: u64) -> u32 {
    match u32::try_from(nanos.div_ceil(1_000_000)) {
        Ok(millis) if (millis as usize) < MILLIS => millis,
        _ => NEVER,
    }
}

/// Numbers of values at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) held: u64,
    pub(crate) dead: u64,
}

const PAYLOAD: usize = 20;

/// Bytes of an entry's key and value.
pub(crate) const ENTRY_BYTES: u64 = (size_of::<u64>() + size_of::<Value>()) as u64;

/// What is cached: 32 bytes that the ledger knows of until they are dropped.
#[derive(Debug)]
pub(crate) struct Value {
    ledger: &'static Ledger,
    due: AtomicU32,
    payload: [u8; PAYLOAD],
}

impl Value {
    /// What a reader does with a value: looks at it, and, under a sliding lifetime, notes that it
    /// lives longer.
    #[inline]
    pub(crate) fn read(&self) {
        black_box(self.payload[0]);
        let ledger = self.ledger;
        if ledger.idle != 0 {
            let due = ledger.coarse.load(Ordering::Relaxed) + ledger.idle;
            let due = if (due as usize) < MILLIS { due } else { NEVER };
            let before = self.due.load(Ordering::Relaxed);
            if before < due
                && self
                    .due
                    .compare_exchange(before, due, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                ledger.change(due, 1);
                ledger.change(before, 1u32.wrapping_neg());
            }
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.ledger.change(*self.due.get_mut(), 1u32.wrapping_neg());
        self.ledger.dropped.0.fetch_add(1, Ordering::Relaxed);
    }
}
