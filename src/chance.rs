//! Random numbers that differ from one thread to the next, and from run to run.

use std::cell::RefCell;
use std::thread;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

thread_local! {
    static DRAWS: RefCell<SmallRng> = RefCell::new(source());
}

/// A source of randomness that differs from all others.
pub(crate) fn source() -> SmallRng {
    // ahash keeps random keys for the process and makes each state a different one of them.
    SmallRng::seed_from_u64(crate::RandomState::new().hash_one(thread::current().id()))
}

/// A number from 0 to 1, without 1, of this thread's own.
pub(crate) fn draw() -> f64 {
    // (In a thread that is ending the middle will do.)
    DRAWS
        .try_with(|draws| draws.borrow_mut().random())
        .unwrap_or(0.5)
}
