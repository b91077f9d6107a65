//! A reaper that goes to sleep, against a writer that has work for it: `src/reaper/bell.rs`.
//!
//! Under the model checker nobody wakes by himself, so a wake-up that is lost is a deadlock.

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(dead_code)]
#[path = "../../src/reaper/bell.rs"]
mod bell;
#[allow(
    dead_code,
    unused_imports,
    unsafe_code,
    clippy::unsafe_removed_from_name
)]
#[path = "../../src/sync/mod.rs"]
mod sync;

use std::sync::Arc;

use bell::Bell;
use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use loom::thread;
use sync::{AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Release, Signal};

/// The lane of nothing.
const NONE: u32 = u32::MAX;

/// One shard as its sleeping reaper sees it.
///
/// The worker sleeps for good here: an alarm at the deadline that it knew of would be too late. If
/// the writer's deadline is the one it knew of, it need not be rung.
struct Shard {
    /// The minimum when the model begins.
    first: u32,
    due: AtomicU32,
    waiting: AtomicUsize,
    bell: Bell,
    signal: Arc<Signal>,
}

impl Shard {
    /// Nothing waits, and nothing is due before `due`.
    fn new(due: u32) -> Arc<Self> {
        let signal = Arc::new(Signal::default());
        Arc::new(Shard {
            first: due,
            due: AtomicU32::new(due),
            waiting: AtomicUsize::new(0),
            bell: Bell::new(signal.clone()),
            signal,
        })
    }

    fn has_news(&self) -> bool {
        self.due.load(Acquire) < self.first || self.waiting.load(Acquire) > 0
    }

    /// The worker: sleeps for good unless there is news.
    fn sleep(&self) {
        if self.has_news() {
            return;
        }
        if self.bell.doze(self.first, || self.has_news()) {
            bell::sleep(&self.signal, None);
        }
        self.bell.rise();
    }

    /// The rule broken: looks, and then says that it dozes.
    fn sleep_without_looking_again(&self) {
        if !self.has_news() && self.bell.doze(self.first, || false) {
            bell::sleep(&self.signal, None);
        }
        self.bell.rise();
    }

    fn lower_minimum(&self, due: u32) {
        self.due.store(due, Release);
        self.bell.ring_for_lane(due);
    }

    /// The rule broken: rings before there is anything to see.
    fn ring_then_lower(&self, due: u32) {
        self.bell.ring_for_lane(due);
        self.due.store(due, Release);
    }

    fn fill_limbo(&self) {
        self.waiting.store(1, Release);
        self.bell.ring_for_limbo(true);
    }
}

/// The worker sleeps once while `write` gives it something to do.
fn sleep_against(due: u32, sleep: fn(&Shard), write: fn(&Shard)) {
    let shard = Shard::new(due);
    let worker = shard.clone();
    let worker = thread::spawn(move || sleep(&worker));
    write(&shard);
    worker.join().unwrap();
    assert!(shard.has_news());
}

#[test]
fn sleep_against_a_lowered_minimum() {
    check("bell_sleep_against_lowered_minimum", UNBOUNDED, || {
        sleep_against(NONE, Shard::sleep, |shard| shard.lower_minimum(7));
    });
    check("bell_sleep_against_sooner_minimum", UNBOUNDED, || {
        sleep_against(9, Shard::sleep, |shard| shard.lower_minimum(7));
    });
    must_fail(
        "bell_sleep_against_lowered_minimum: no second look",
        UNBOUNDED,
        "deadlock",
        || {
            sleep_against(NONE, Shard::sleep_without_looking_again, |shard| {
                shard.lower_minimum(7);
            });
        },
    );
    must_fail(
        "bell_sleep_against_lowered_minimum: rung too soon",
        UNBOUNDED,
        "deadlock",
        || {
            sleep_against(NONE, Shard::sleep, |shard| shard.ring_then_lower(7));
        },
    );
}

#[test]
fn sleep_against_limbo_that_is_no_longer_empty() {
    check("bell_sleep_against_limbo", UNBOUNDED, || {
        sleep_against(NONE, Shard::sleep, Shard::fill_limbo);
    });
    must_fail(
        "bell_sleep_against_limbo: no second look",
        UNBOUNDED,
        "deadlock",
        || {
            sleep_against(NONE, Shard::sleep_without_looking_again, Shard::fill_limbo);
        },
    );
}

#[test]
fn sleep_against_two_writers() {
    check("bell_sleep_against_two_writers", Some(3), || {
        let shard = Shard::new(NONE);
        let (worker, writer) = (shard.clone(), shard.clone());
        let worker = thread::spawn(move || worker.sleep());
        let writer = thread::spawn(move || writer.fill_limbo());
        shard.lower_minimum(7);
        worker.join().unwrap();
        writer.join().unwrap();
    });
}
