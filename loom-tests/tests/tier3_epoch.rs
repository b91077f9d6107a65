//! On the real crossbeam-epoch, under its own model-checking cfgs: `./run --real-epoch`.
//!
//! Two threads, at most two interruptions: the epoch machinery alone has many steps. Each model
//! ends with what its contract allows; when a deferred drop runs is crossbeam's own affair.
#![cfg(feature = "real-epoch")]

use std::sync::Arc;
use std::time::Duration;

use crossbeam_epoch::{self as epoch, Atomic, Owned};
use ebbtide::ManualClock;
use ebbtide_loom_tests::whole::{Drops, Tracked, UNIT, build, race};
use ebbtide_loom_tests::{check, must_fail_in_child};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire};
use loom::thread;

/// Reads what `atomic` points to while it is swapped for something else and reclaimed.
///
/// The cell is the model checker's: a reclamation that overlaps the read would be seen, since
/// `reclaim` takes the cell for writing first.
#[allow(unsafe_code)]
fn swap_while_reading(read_under_pin: bool) {
    struct Value(UnsafeCell<u32>);

    impl Drop for Value {
        fn drop(&mut self) {
            // SAFETY: `&mut self`; the model checker objects if a reader is still there.
            self.0.with_mut(|value| unsafe { *value = 0 });
        }
    }

    // SAFETY: shared only for reading, except by `Drop`; that is what the model checks.
    unsafe impl Send for Value {}
    // SAFETY: as above.
    unsafe impl Sync for Value {}

    let shared = Arc::new(Atomic::new(Value(UnsafeCell::new(1))));
    let theirs = shared.clone();
    let reader = thread::spawn(move || {
        let guard = epoch::pin();
        let seen = theirs.load(Acquire, &guard).as_raw();
        if !read_under_pin {
            drop(guard);
        }
        // SAFETY: loaded under the pin, and (except in the mutant) read under it.
        let value = unsafe { (*seen).0.with(|value| *value) };
        assert!(value == 1 || value == 2, "a freed value was read");
    });
    {
        let guard = epoch::pin();
        let old = shared.swap(Owned::new(Value(UnsafeCell::new(2))), AcqRel, &guard);
        // SAFETY: `old` is out of reach for every later pin.
        unsafe { guard.defer_destroy(old) };
        guard.flush();
    }
    // A later pin may run what has become ripe.
    epoch::pin().flush();
    reader.join().unwrap();
    // SAFETY: both threads are done with it.
    unsafe {
        drop(
            shared
                .swap(epoch::Shared::null(), AcqRel, epoch::unprotected())
                .into_owned(),
        )
    };
}

#[test]
fn swap_while_reading_under_a_pin() {
    check("epoch_swap_while_reading", Some(2), || {
        swap_while_reading(true);
    });
}

#[test]
fn swap_while_reading_after_the_pin() {
    must_fail_in_child(
        "epoch_swap_while_reading: pin dropped too soon",
        Some(2),
        "Concurrent read and write accesses to `UnsafeCell`",
        || swap_while_reading(false),
    );
}

#[test]
fn pinned_reader_against_reaper() {
    // The reader is the first thread: interrupted once, it has found the value and not used it.
    check("epoch_cache_pinned_reader_against_reaper", Some(1), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        let lifetime = Duration::from_nanos(2 * UNIT);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), lifetime);
        clock.set_ns(UNIT);
        let (now, counted) = (clock.clone(), drops.clone());
        race(
            &cache,
            |cache| {
                let pinned = cache.pin();
                if let Some(value) = pinned.get(&1) {
                    thread::yield_now();
                    assert_eq!(counted.count(), 0, "dropped under a pin");
                    assert_eq!(value.number(), 10);
                }
            },
            move |cache| {
                now.set_ns(3 * UNIT);
                cache.reap_at_most(8);
            },
        );
        assert_eq!(cache.get(&1).map(|value| value.number()), None);
        drop(cache);
        assert_eq!(drops.count(), 1, "drops");
    });
}

#[test]
fn get_against_replace() {
    check("epoch_cache_get_against_replace", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert(1, Tracked::new(10, &drops));
        let ((), seen) = race(
            &cache,
            |cache| cache.insert(1, Tracked::new(11, &drops)),
            |cache| cache.get(&1).map(|value| value.number()),
        );
        assert!(
            matches!(seen, Some(10 | 11)),
            "a key that is present was not found: {seen:?}"
        );
        drop(cache);
        assert_eq!(drops.count(), 2, "drops");
    });
}
