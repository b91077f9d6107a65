//! The last handle of a cache, dropped while threads of its crew are inside: `src/reaper/visits.rs`.
//!
//! Whoever drops the last handle takes the cache off the crew's list, waits until nobody is inside,
//! and then frees what the visitors used. The cell would show an access that is not over by then.

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(
    dead_code,
    unused_imports,
    unsafe_code,
    clippy::unsafe_removed_from_name
)]
#[path = "../../src/sync/mod.rs"]
mod sync;
#[allow(dead_code)]
#[path = "../../src/reaper/visits.rs"]
mod visits;

use std::sync::Arc;

use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use loom::cell::UnsafeCell;
use loom::thread;
use sync::Mutex;
use visits::Visits;

/// A crew's list with one cache on it, or none.
struct Crew {
    listed: Mutex<bool>,
    visits: Visits,
    /// The cache: read by visitors, written by whoever ends it.
    cache: UnsafeCell<()>,
}

impl Crew {
    fn new() -> Arc<Self> {
        Arc::new(Crew {
            listed: Mutex::new(true),
            visits: Visits::default(),
            cache: UnsafeCell::new(()),
        })
    }

    /// A thread of the crew: picks the cache up under the list's lock, and works on it outside.
    fn visit(&self) {
        let first = {
            let listed = self.listed.lock();
            listed.then(|| self.visits.enter())
        };
        if let Some(first) = first {
            self.work();
            self.visits.leave(first);
        }
    }

    /// The rule broken: says that it is inside when the lock is free again.
    fn visit_and_then_say_so(&self) {
        let listed = *self.listed.lock();
        if listed {
            let first = self.visits.enter();
            self.work();
            self.visits.leave(first);
        }
    }

    fn work(&self) {
        self.cache.with(|_| ());
    }

    /// The last handle: ends the cache.
    fn end(&self) {
        *self.listed.lock() = false;
        while !self.visits.is_over() {
            thread::yield_now();
        }
        self.cache.with_mut(|_| ());
    }
}

// SAFETY: the cell's content is never touched; the model checker judges every access to it.
#[allow(unsafe_code)]
unsafe impl Sync for Crew {}

fn end_against(visitors: usize, visit: fn(&Crew)) {
    let crew = Crew::new();
    let visitors: Vec<_> = (0..visitors)
        .map(|_| {
            let crew = crew.clone();
            thread::spawn(move || visit(&crew))
        })
        .collect();
    crew.end();
    for visitor in visitors {
        visitor.join().unwrap();
    }
    assert!(crew.visits.is_over());
}

#[test]
fn last_handle_against_a_visit() {
    check("visits_last_handle_against_visit", UNBOUNDED, || {
        end_against(1, Crew::visit);
    });
    must_fail(
        "visits_last_handle_against_visit: entered after the lock",
        UNBOUNDED,
        "Causality violation",
        || end_against(1, Crew::visit_and_then_say_so),
    );
}

#[test]
fn last_handle_against_two_visits() {
    check("visits_last_handle_against_two_visits", Some(3), || {
        end_against(2, Crew::visit);
    });
}

#[test]
fn last_handle_against_visits_one_after_another() {
    check(
        "visits_last_handle_against_a_second_visit",
        UNBOUNDED,
        || {
            end_against(1, |crew| {
                crew.visit();
                crew.visit();
            });
        },
    );
}
