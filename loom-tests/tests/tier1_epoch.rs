//! Epochs: `src/reclaim/epoch.rs`, with pins that execute a fence of their own.
//!
//! (A barrier that one thread has executed on all others gives a pin without one at least the same
//! guarantee: it stands between the pin's note and its loads wherever it falls. The model checker
//! has no such thing.)

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(dead_code, unsafe_code)]
#[path = "../../src/reclaim/epoch.rs"]
mod epoch;
#[allow(
    dead_code,
    unused_imports,
    unsafe_code,
    clippy::unsafe_removed_from_name
)]
#[path = "../../src/sync/mod.rs"]
mod sync;

use std::sync::Arc;

use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use epoch::{Domain, Record};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

/// Cells of which one is linked, readers of the linked one, and somebody who replaces it.
struct Shared {
    domain: Domain,
    linked: AtomicUsize,
    cells: [UnsafeCell<()>; 3],
}

// SAFETY: the cells' content is never touched; the model checker judges every access to them.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            domain: Domain::new(),
            linked: AtomicUsize::new(0),
            cells: Default::default(),
        })
    }

    fn read(&self) {
        self.cells[self.linked.load(Acquire)].with(|_| ());
    }

    fn read_under_a_pin(&self, record: &Record) {
        record.enter(&self.domain);
        self.read();
        record.leave();
    }

    /// Links the next cell, and writes the one before if nobody can be looking any more.
    fn replace(&self, looks: usize) -> bool {
        let old = self.linked.load(Relaxed);
        self.linked.store(old + 1, Release);
        let began = self.domain.begin();
        for _ in 0..looks {
            self.domain.advance();
            if self.domain.is_over(began) {
                self.cells[old].with_mut(|_| ());
                return true;
            }
        }
        false
    }
}

fn race(shared: &Arc<Shared>, reader: fn(&Shared), writer: fn(&Shared)) {
    let theirs = shared.clone();
    let reader = thread::spawn(move || reader(&theirs));
    writer(shared);
    reader.join().unwrap();
}

#[test]
fn pin_against_reclaim() {
    check("epoch_pin_against_reclaim", UNBOUNDED, || {
        let shared = Shared::new();
        race(
            &shared,
            |shared| shared.read_under_a_pin(shared.domain.acquire()),
            |shared| _ = shared.replace(1),
        );
        // Nothing is held up by a pin that is over.
        assert!(shared.replace(1));
    });
    must_fail(
        "epoch_pin_against_reclaim: read after the pin",
        UNBOUNDED,
        "Causality violation",
        || {
            race(
                &Shared::new(),
                |shared| {
                    let record = shared.domain.acquire();
                    record.enter(&shared.domain);
                    let linked = shared.linked.load(Acquire);
                    record.leave();
                    shared.cells[linked].with(|_| ());
                },
                |shared| _ = shared.replace(1),
            );
        },
    );
}

#[test]
fn two_pins_against_reclaim() {
    // The second pin's note is what shows that the first is over.
    check("epoch_two_pins_against_reclaim", Some(4), || {
        race(
            &Shared::new(),
            |shared| {
                let record = shared.domain.acquire();
                shared.read_under_a_pin(record);
                shared.read_under_a_pin(record);
            },
            |shared| _ = shared.replace(2),
        );
    });
}

#[test]
fn pin_against_two_reclamations() {
    check("epoch_pin_against_two_reclamations", Some(4), || {
        race(
            &Shared::new(),
            |shared| shared.read_under_a_pin(shared.domain.acquire()),
            |shared| {
                shared.replace(1);
                shared.replace(1);
            },
        );
    });
}

#[test]
fn repin_against_reclaim() {
    check("epoch_repin_against_reclaim", Some(4), || {
        race(
            &Shared::new(),
            |shared| {
                let record = shared.domain.acquire();
                record.enter(&shared.domain);
                shared.read();
                record.repin(&shared.domain);
                shared.read();
                record.leave();
            },
            |shared| _ = shared.replace(2),
        );
    });
}

#[test]
fn nested_pin_against_reclaim() {
    check("epoch_nested_pin_against_reclaim", Some(4), || {
        race(
            &Shared::new(),
            |shared| {
                let record = shared.domain.acquire();
                record.enter(&shared.domain);
                let linked = shared.linked.load(Acquire);
                record.enter(&shared.domain);
                record.repin(&shared.domain);
                record.leave();
                shared.cells[linked].with(|_| ());
                record.leave();
            },
            |shared| _ = shared.replace(2),
        );
    });
}

#[test]
fn pin_against_reclaim_by_another() {
    // One unlinks and begins, another finds out that it is over, and frees.
    check("epoch_pin_against_reclaim_by_another", Some(2), || {
        let shared = Shared::new();
        let (a, b) = (shared.clone(), shared.clone());
        let reader = thread::spawn(move || a.read_under_a_pin(a.domain.acquire()));
        let asker = thread::spawn(move || b.domain.advance());
        shared.linked.store(1, Release);
        let began = shared.domain.begin();
        if shared.domain.is_over(began) {
            shared.cells[0].with_mut(|_| ());
        }
        reader.join().unwrap();
        asker.join().unwrap();
    });
}

#[test]
fn record_passed_on_against_reclaim() {
    // Two threads, one after the other or beside one another, and whoever frees.
    check("epoch_record_passed_on_against_reclaim", Some(2), || {
        let shared = Shared::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let record = shared.domain.acquire();
                    shared.read_under_a_pin(record);
                    record.give_back();
                })
            })
            .collect();
        shared.replace(1);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(shared.replace(1));
    });
}
