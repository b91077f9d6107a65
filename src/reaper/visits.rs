//! Who is inside a cache: so that its last handle's drop can wait for them.

use crate::sync::{AtomicU64, Ordering, forks};

/// How many of a crew's threads hold a cache, and in which process of a forking family: those of
/// another process do not exist here and will never let go.
#[derive(Debug, Default)]
pub(crate) struct Visits(AtomicU64);

impl Visits {
    const COUNT_BITS: u32 = 32;

    /// Nobody of this process.
    fn first() -> u64 {
        forks() << Self::COUNT_BITS
    }

    /// One more; says what [`leave`](Self::leave) has to be told. Only under the roster's lock.
    pub(crate) fn enter(&self) -> u64 {
        let first = Self::first();
        // Relaxed: the roster's lock orders this before the end of the job.
        let now = self.0.load(Ordering::Relaxed);
        if now >= first {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            // Nobody of this process is inside, or `now` would say so: no decrement can be lost.
            self.0.store(first + 1, Ordering::Relaxed);
        }
        first
    }

    pub(crate) fn leave(&self, first: u64) {
        if first == Self::first() {
            // Release: pairs with `is_over`'s Acquire, so that what the visitor did comes before.
            self.0.fetch_sub(1, Ordering::Release);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with `leave`'s Release.
        self.0.load(Ordering::Acquire) <= Self::first()
    }
}
