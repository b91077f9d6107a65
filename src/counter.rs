//! A number that many threads count up inside the cache without losing an increment.

use std::any::Any;
use std::fmt;

use crate::error::CounterError;
use crate::sync::{AtomicI64, Ordering};

/// The lowest bit: set once the counter has left the cache, and then for good.
const CLOSED: i64 = 1;

/// Exclusive bound of a counter's magnitude, 2^62: the value shares its word with the closed bit.
const BOUND: i64 = 1 << 62;

/// A value that [`Cache::increment`](crate::Cache::increment) counts up in place.
///
/// In a `Cache<K, Counter>` an increment is one atomic step on the entry: no lock, no replacement,
/// the deadline stays. Reading the entry gives a copy with the number of that moment, and the
/// number that a removal reports holds every increment that ever returned.
///
/// The range is −2^62 to 2^62 − 1.
///
/// ```
/// use ebbtide::{Cache, Counter};
///
/// let loans: Cache<String, Counter> = Cache::unbounded();
/// assert_eq!(loans.increment("book:100427", 1), Ok(1));
/// assert_eq!(loans.increment("book:100427", 2), Ok(3));
/// assert_eq!(loans.get("book:100427").map(|count| count.get()), Some(3));
/// ```
pub struct Counter {
    /// value << 1 | closed.
    word: AtomicI64,
}

/// What became of a step on a counter's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Done; the value is now this.
    Done(i64),
    /// The counter has left the cache.
    Closed,
    /// The result would leave the range; the value is as it was.
    Overflow,
    /// The value was not the expected one.
    Changed,
}

impl Counter {
    /// A counter that stands at `value`, or at the end of the range nearest to it.
    pub fn new(value: i64) -> Self {
        Counter {
            word: AtomicI64::new(value.clamp(-BOUND, BOUND - 1) << 1),
        }
    }

    /// The number.
    #[inline]
    pub fn get(&self) -> i64 {
        // Acquire: pairs with the Release half of `add`, so that what an incrementing thread did
        // before is seen with its increment.
        self.word.load(Ordering::Acquire) >> 1
    }

    /// Adds `delta` unless the counter is closed or would leave its range.
    #[inline]
    pub(crate) fn add(&self, delta: i64) -> Step {
        // Relaxed: only a first guess for the CAS.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & CLOSED != 0 {
                return Step::Closed;
            }
            let Some(sum) = (seen >> 1).checked_add(delta).filter(in_range) else {
                return Step::Overflow;
            };
            match self.swap_if(seen, sum << 1) {
                Ok(()) => return Step::Done(sum),
                Err(now) => seen = now,
            }
        }
    }

    /// Sets the value to `new` if it is open and still `expected`.
    pub(crate) fn set_if(&self, expected: i64, new: i64) -> Step {
        match self.swap_if(expected << 1, new << 1) {
            Ok(()) => Step::Done(new),
            Err(now) if now & CLOSED != 0 => Step::Closed,
            Err(_) => Step::Changed,
        }
    }

    /// Closes the counter for whoever unlinks its entry: the value is final from here on.
    pub(crate) fn close(&self) -> i64 {
        // AcqRel: the final value comes with what the incrementing threads did before (their
        // Release), and an increment that meets CLOSED sees the unlinking that came first.
        self.word.fetch_or(CLOSED, Ordering::AcqRel) >> 1
    }

    /// Closes the counter only at this value: for predicates that judged a copy.
    pub(crate) fn close_if(&self, expected: i64) -> Step {
        match self.swap_if(expected << 1, expected << 1 | CLOSED) {
            Ok(()) => Step::Done(expected),
            Err(now) if now & CLOSED != 0 => Step::Closed,
            Err(_) => Step::Changed,
        }
    }

    #[inline]
    fn swap_if(&self, seen: i64, new: i64) -> Result<(), i64> {
        // Release: pairs with the Acquire in `get` and `close`. Acquire: a CLOSED that is met
        // comes with the unlinking before it, so the lookup that follows does not find the entry.
        self.word
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

#[inline]
fn in_range(value: &i64) -> bool {
    (-BOUND..BOUND).contains(value)
}

impl Clone for Counter {
    /// A counter of its own with the number of this moment.
    fn clone(&self) -> Self {
        Counter::new(self.get())
    }
}

impl Default for Counter {
    fn default() -> Self {
        Counter::new(0)
    }
}

impl From<i64> for Counter {
    fn from(value: i64) -> Self {
        Counter::new(value)
    }
}

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Counter {}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// `value` as a counter, if that is its type: resolved at compile time.
#[inline]
pub(crate) fn as_counter<V: 'static>(value: &V) -> Option<&Counter> {
    (value as &dyn Any).downcast_ref()
}

/// Checks that a delta alone fits a new counter.
pub(crate) fn fresh(delta: i64) -> Result<Counter, CounterError> {
    if in_range(&delta) {
        Ok(Counter::new(delta))
    } else {
        Err(CounterError::Overflow)
    }
}
