//! The counter, as the library compiles it: `src/counter.rs`.
//!
//! What must hold: every increment that returned is in exactly one reported value, and a value once
//! reported as final does not change.

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/counter.rs"]
mod counter;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/error.rs"]
mod error;
#[allow(
    dead_code,
    unused_imports,
    unsafe_code,
    clippy::unsafe_removed_from_name
)]
#[path = "../../src/sync/mod.rs"]
mod sync;

use std::sync::Arc;

use counter::{Counter, Step};
use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use loom::thread;

/// A counter that leaves the cache, and the one that takes its place.
struct Counters {
    old: Counter,
    new: Counter,
}

impl Counters {
    fn new(value: i64) -> Arc<Self> {
        Arc::new(Counters {
            old: Counter::new(value),
            new: Counter::new(0),
        })
    }

    /// An increment that begins with the lookup again when the counter it found is closed.
    fn increment(&self) {
        match self.old.add(1) {
            Step::Done(_) => {}
            Step::Closed => assert!(matches!(self.new.add(1), Step::Done(_))),
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// `threads` increments against the end of the counter; `close` reports the final value.
fn increments_against_end(threads: usize, close: fn(&Counter) -> i64) {
    let counters = Counters::new(0);
    let increments: Vec<_> = (0..threads)
        .map(|_| {
            let counters = counters.clone();
            thread::spawn(move || counters.increment())
        })
        .collect();
    let reported = close(&counters.old);
    for increment in increments {
        increment.join().unwrap();
    }
    assert_eq!(
        reported + counters.new.get(),
        threads as i64,
        "increments reported"
    );
    assert_eq!(counters.old.get(), reported, "a final value changed");
}

/// The rule broken: the value that is reported was read before the counter was closed.
fn read_then_close(counter: &Counter) -> i64 {
    let value = counter.get();
    counter.close();
    value
}

/// The rule broken: nobody closes.
fn only_read(counter: &Counter) -> i64 {
    counter.get()
}

#[test]
fn increment_against_close_and_re_creation() {
    check("counter_increment_against_close", UNBOUNDED, || {
        increments_against_end(1, Counter::close);
    });
    check("counter_two_increments_against_close", UNBOUNDED, || {
        increments_against_end(2, Counter::close);
    });
    must_fail(
        "counter_increment_against_close: read first",
        UNBOUNDED,
        "increments reported",
        || increments_against_end(1, read_then_close),
    );
    must_fail(
        "counter_increment_against_close: left open",
        UNBOUNDED,
        "increments reported",
        || increments_against_end(1, only_read),
    );
}

/// The rule broken: an increment that does not ask whether it was the next.
fn increment_by_set(counter: &Counter) {
    let seen = counter.get();
    // (Ignores the answer.)
    counter.set_if(seen, seen + 1);
}

fn two_increments(increment: fn(&Counter)) {
    let counter = Arc::new(Counter::new(0));
    let theirs = counter.clone();
    let thread = thread::spawn(move || increment(&theirs));
    increment(&counter);
    thread.join().unwrap();
    assert_eq!(counter.get(), 2, "an increment is lost");
}

#[test]
fn increment_against_increment() {
    check("counter_increment_against_increment", UNBOUNDED, || {
        two_increments(|counter| assert!(matches!(counter.add(1), Step::Done(_))));
    });
    must_fail(
        "counter_increment_against_increment: set",
        UNBOUNDED,
        "an increment is lost",
        || two_increments(increment_by_set),
    );
}

#[test]
fn judged_copies_against_increment() {
    // Put: the value in place from a private copy, asked again when it was outrun.
    check("counter_put_against_increment", UNBOUNDED, || {
        let counters = Counters::new(5);
        let theirs = counters.clone();
        let thread = thread::spawn(move || theirs.increment());
        loop {
            let copy = counters.old.get();
            match counters.old.set_if(copy, copy * 10) {
                Step::Done(_) => break,
                Step::Changed => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        thread.join().unwrap();
        let value = counters.old.get();
        assert!(value == 51 || value == 60, "{value} is neither order");
    });

    // Remove, retain: closed at the value that was judged, so that it is the one reported.
    fn end_at_judged(close_at: fn(&Counter, i64) -> bool) {
        let counters = Counters::new(5);
        let theirs = counters.clone();
        let thread = thread::spawn(move || theirs.increment());
        let judged = loop {
            let copy = counters.old.get();
            if close_at(&counters.old, copy) {
                break copy;
            }
        };
        thread.join().unwrap();
        assert_eq!(counters.old.get(), judged, "ended at another value");
        assert_eq!(judged + counters.new.get(), 6, "increments reported");
    }
    check("counter_remove_if_against_increment", UNBOUNDED, || {
        end_at_judged(|counter, judged| matches!(counter.close_if(judged), Step::Done(_)));
    });
    must_fail(
        "counter_remove_if_against_increment: close unasked",
        UNBOUNDED,
        "ended at another value",
        || {
            end_at_judged(|counter, _| {
                counter.close();
                true
            });
        },
    );
}

#[test]
fn overflow_leaves_the_value() {
    const TOP: i64 = (1 << 62) - 1;
    check("counter_overflow_against_decrement", UNBOUNDED, || {
        let counter = Arc::new(Counter::new(TOP));
        let theirs = counter.clone();
        let thread = thread::spawn(move || theirs.add(-1));
        let up = counter.add(1);
        let down = thread.join().unwrap();
        match up {
            Step::Overflow => {
                assert_eq!((down, counter.get()), (Step::Done(TOP - 1), TOP - 1));
            }
            Step::Done(TOP) => {
                assert_eq!((down, counter.get()), (Step::Done(TOP - 1), TOP));
            }
            other => panic!("unexpected {other:?}"),
        }
    });
    check("counter_overflow_against_close", UNBOUNDED, || {
        let counter = Arc::new(Counter::new(TOP));
        let theirs = counter.clone();
        let thread = thread::spawn(move || theirs.close());
        let up = counter.add(1);
        assert!(matches!(up, Step::Overflow | Step::Closed));
        assert_eq!((thread.join().unwrap(), counter.get()), (TOP, TOP));
    });
}
