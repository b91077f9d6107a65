//! Does loom explore what it says it explores? Nothing else here is trusted unless this passes.
//!
//! Each canary is a small program whose possible outcomes are known; together, all schedules that
//! loom runs must show every one of them, and no other. loom 0.7.3 as published fails several
//! (tokio-rs/loom #166, #392, #376), so these run against the copy that `./run` patches, and
//! `./run --stock-canary` shows that they fail against the original.
//!
//! Which thread does what matters: loom lets the main thread run first, and what it misses depends
//! on who was first. So every shape is checked both ways round.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use ebbtide_loom_tests::{UNBOUNDED, explore, report};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use loom::thread;

const BOUNDS: [Option<usize>; 3] = [UNBOUNDED, Some(2), Some(3)];

/// Explores `model` under each bound; the outcomes must be exactly `expected`. What is wrong.
#[must_use]
fn see<T: Ord + Debug + Send + Clone + 'static>(
    name: &str,
    bounds: &[Option<usize>],
    expected: &[T],
    model: impl Fn() -> T + Send + Sync + Clone + 'static,
) -> Vec<String> {
    let expected: BTreeSet<T> = expected.iter().cloned().collect();
    let mut failures = Vec::new();
    for &bound in bounds {
        let (seen, run) = explore(bound, model.clone());
        let missed: Vec<&T> = expected.difference(&seen).collect();
        let impossible: Vec<&T> = seen.difference(&expected).collect();
        let verdict = match (missed.is_empty(), impossible.is_empty()) {
            (true, true) => "complete".to_string(),
            (false, _) => format!("MISSES {} of {}", missed.len(), expected.len()),
            (true, false) => format!("IMPOSSIBLE {}", impossible.len()),
        };
        report("canary", name, bound, run, &verdict);
        if verdict != "complete" {
            failures.push(format!(
                "{name}, bound {bound:?}: never seen {missed:?}, seen although impossible {impossible:?}"
            ));
        }
    }
    failures
}

/// Fails if anything was wrong, after all shapes of a test have been explored and reported.
fn assert_complete(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two threads over one shared value, `first` on the main thread; their two results.
fn race<S: Send + Sync + 'static, A, B: 'static>(
    shared: S,
    main: impl FnOnce(&S) -> A,
    spawned: impl FnOnce(&S) -> B + 'static,
) -> (A, B, Arc<S>) {
    let shared = Arc::new(shared);
    let theirs = shared.clone();
    let thread = thread::spawn(move || spawned(&theirs));
    let mine = main(&shared);
    let their = thread.join().unwrap();
    (mine, their, shared)
}

/// The shape of every transition of the deadline word and of the counter: load, then CAS.
fn load_then_cas(word: &AtomicU64, from: u64, to: u64) -> bool {
    let seen = word.load(Acquire);
    seen == from && word.compare_exchange(seen, to, AcqRel, Acquire).is_ok()
}

#[test]
fn a_reader_sees_both_sides_of_a_load_then_cas() {
    let mut wrong = Vec::new();
    wrong.extend(see(
        "load_cas_against_main_reader",
        &BOUNDS,
        &[0, 1],
        || {
            race(
                AtomicU64::new(0),
                |word| word.load(Acquire),
                |word| load_then_cas(word, 0, 1),
            )
            .0
        },
    ));
    wrong.extend(see(
        "load_cas_against_spawned_reader",
        &BOUNDS,
        &[0, 1],
        || {
            race(
                AtomicU64::new(0),
                |word| load_then_cas(word, 0, 1),
                |word| word.load(Acquire),
            )
            .1
        },
    ));
    assert_complete(&wrong);
}

#[test]
fn a_reader_sees_both_sides_of_an_irrelevant_load_then_store() {
    let mut wrong = Vec::new();
    // The program of tokio-rs/loom #392.
    wrong.extend(see(
        "load_store_against_main_reader",
        &BOUNDS,
        &[0, 1],
        || {
            race(
                AtomicU64::new(0),
                |word| word.load(Acquire),
                |word| {
                    word.load(Acquire);
                    word.swap(1, AcqRel);
                },
            )
            .0
        },
    ));
    assert_complete(&wrong);
}

#[test]
fn a_reader_sees_both_sides_of_a_fetch_add() {
    let mut wrong = Vec::new();
    wrong.extend(see(
        "fetch_add_against_main_reader",
        &BOUNDS,
        &[0, 1],
        || {
            race(
                AtomicU64::new(0),
                |word| word.load(Acquire),
                |word| word.fetch_add(1, AcqRel),
            )
            .0
        },
    ));
    wrong.extend(see(
        "fetch_add_against_spawned_reader",
        &BOUNDS,
        &[0, 1],
        || {
            race(
                AtomicU64::new(0),
                |word| word.fetch_add(1, AcqRel),
                |word| word.load(Acquire),
            )
            .1
        },
    ));
    assert_complete(&wrong);
}

#[test]
fn two_writers_come_in_both_orders() {
    let mut wrong = Vec::new();
    // (what each found, what stays)
    wrong.extend(see(
        "swap_against_swap",
        &BOUNDS,
        &[(0, 1, 2), (2, 0, 1)],
        || {
            let (mine, theirs, word) = race(
                AtomicU64::new(0),
                |word| word.swap(1, AcqRel),
                |word| word.swap(2, AcqRel),
            );
            (mine, theirs, word.load(Acquire))
        },
    ));
    assert_complete(&wrong);
}

#[test]
fn of_two_load_then_cas_either_may_win() {
    let mut wrong = Vec::new();
    wrong.extend(see(
        "load_cas_against_load_cas",
        &BOUNDS,
        &[(true, false, 1), (false, true, 2)],
        || {
            let (mine, theirs, word) = race(
                AtomicU64::new(0),
                |word| load_then_cas(word, 0, 1),
                |word| load_then_cas(word, 0, 2),
            );
            (mine, theirs, word.load(Acquire))
        },
    ));
    assert_complete(&wrong);
}

/// Extends a word of 10 to 20; refused when it is over.
fn extend(word: &AtomicU64) -> bool {
    load_then_cas(word, 10, 20)
}

/// Ends a word that is due at 15; what the word was.
fn finalize(word: &AtomicU64) -> u64 {
    let mut seen = word.load(Acquire);
    while seen != 0 && seen <= 15 {
        match word.compare_exchange(seen, 0, AcqRel, Acquire) {
            Ok(_) => return 0,
            Err(now) => seen = now,
        }
    }
    seen
}

#[test]
fn an_idle_extension_and_a_finalizer_each_may_win() {
    let mut wrong = Vec::new();
    // (extended, what the finalizer left): the deadline word's rule P1 in small.
    wrong.extend(see(
        "finalizer_against_idle_extension",
        &BOUNDS,
        &[(0, false), (20, true)],
        || {
            let (left, extended, _) = race(AtomicU64::new(10), finalize, extend);
            (left, extended)
        },
    ));
    wrong.extend(see(
        "idle_extension_against_finalizer",
        &BOUNDS,
        &[(false, 0), (true, 20)],
        || {
            let (extended, left, _) = race(AtomicU64::new(10), extend, finalize);
            (extended, left)
        },
    ));
    // A reader that looks twice sees the word go forward in every way that it can.
    wrong.extend(see(
        "reader_against_idle_extension",
        &BOUNDS,
        &[(10, 10), (10, 20), (20, 20)],
        || {
            race(
                AtomicU64::new(10),
                |word| (word.load(Acquire), word.load(Acquire)),
                extend,
            )
            .0
        },
    ));
    assert_complete(&wrong);
}

/// 1 or 2: acquired, and the other had or had not been there; 9: refused.
fn try_to_lock(mutex: &Mutex<u64>) -> u64 {
    match mutex.try_lock() {
        Ok(there) => 1 + *there,
        Err(_) => 9,
    }
}

#[test]
fn try_lock_comes_before_during_and_after_another_hold() {
    let mut wrong = Vec::new();
    wrong.extend(see(
        "main_try_lock_against_lock",
        &BOUNDS,
        &[1, 2, 9],
        || {
            race(Mutex::new(0), try_to_lock, |mutex| {
                *mutex.lock().unwrap() += 1;
            })
            .0
        },
    ));
    wrong.extend(see(
        "spawned_try_lock_against_lock",
        &BOUNDS,
        &[1, 2, 9],
        || {
            race(
                Mutex::new(0),
                |mutex| *mutex.lock().unwrap() += 1,
                try_to_lock,
            )
            .1
        },
    ));
    assert_complete(&wrong);
}

#[test]
fn try_lock_does_not_wait_for_a_holder_that_waits_for_it() {
    let mut wrong = Vec::new();
    // tokio-rs/loom #376: reported as a deadlock.
    wrong.extend(see(
        "try_lock_against_a_joining_holder",
        &BOUNDS,
        &[(true, true), (true, false), (false, true)],
        || {
            let mutex = Arc::new(Mutex::new(()));
            let theirs = mutex.clone();
            let thread = thread::spawn(move || theirs.try_lock().is_ok());
            let mine = mutex.try_lock();
            let their = thread.join().unwrap();
            (mine.is_ok(), their)
        },
    ));
    assert_complete(&wrong);
}

/// Two readers against a writer of 1, then 2; what they saw. Read-modify-writes read the latest
/// value only, so that the outcome is the schedule.
fn two_observers() -> (u64, u64) {
    let word = Arc::new(AtomicU64::new(0));
    let observer = || {
        let word = word.clone();
        thread::spawn(move || word.fetch_or(0, AcqRel))
    };
    let (one, two) = (observer(), observer());
    word.swap(1, AcqRel);
    word.swap(2, AcqRel);
    (one.join().unwrap(), two.join().unwrap())
}

#[test]
fn a_bound_leaves_out_nothing_that_it_allows() {
    let mut wrong = Vec::new();
    // Interrupting the writer once lets one observer or both run there: going on with the other
    // observer after the first has ended is no interruption.
    let once = [(2, 2), (0, 0), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1)];
    wrong.extend(see(
        "two_observers_bound_1",
        &[Some(1)],
        &once,
        two_observers,
    ));
    let all = [&once[..], &[(0, 1), (1, 0)]].concat();
    let bounds = [Some(2), Some(3), UNBOUNDED];
    wrong.extend(see("two_observers", &bounds, &all, two_observers));
    assert_complete(&wrong);
}
