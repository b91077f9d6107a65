//! Counters under the whole cache: every increment that returned is in exactly one value that was
//! reported, or in the one that is still there.
//!
//! Values are reported to a removal listener. (Those keep a `std::thread_local!`, which the threads
//! of a model share: it counts how deep listeners are nested, and two threads beside each other
//! look like two levels of sixteen.)

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ebbtide::{Builder, Cache, Counter, ManualClock};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Fixed, UNIT, build, race};

type Counters = Cache<u8, Counter, Fixed>;

/// The sum of what the listener was told of key 1.
///
/// Not one of the model checker's atomics: reporting is no step of the model.
#[derive(Clone, Default)]
struct Reported(Arc<AtomicI64>);

impl Reported {
    fn sum(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn counters(
    clock: &ManualClock,
    settings: impl FnOnce(Builder<u8, Counter>) -> Builder<u8, Counter>,
) -> (Counters, Reported) {
    let reported = Reported::default();
    let sum = reported.0.clone();
    let cache = build(clock, |b| {
        settings(b).on_removal(move |&key: &u8, value: &Counter, _| {
            if key == 1 {
                sum.fetch_add(value.get(), Ordering::Relaxed);
            }
        })
    });
    (cache, reported)
}

/// `increments` that returned are all accounted for.
fn balance(cache: &Counters, reported: &Reported, increments: i64) {
    let left = cache.peek(&1).map_or(0, |counter| counter.get());
    assert_eq!(reported.sum() + left, increments, "increments reported");
    cache.validate();
}

#[test]
fn increment_against_expiry_and_reap() {
    check("counters_increment_against_expiry", Some(2), || {
        let clock = ManualClock::new();
        let (cache, reported) = counters(&clock, |b| b.time_to_live(Duration::from_nanos(UNIT)));
        assert_eq!(cache.increment(&1, 1), Ok(1));
        let now = clock.clone();
        let (counted, ()) = race(
            &cache,
            |cache| cache.increment(&1, 1),
            move |cache| {
                now.set_ns(UNIT);
                cache.reap_at_most(8);
            },
        );
        assert!(matches!(counted, Ok(1 | 2)));
        cache.reap_at_most(8);
        balance(&cache, &reported, 2);
    });
}

#[test]
fn increment_against_replace() {
    check("counters_increment_against_replace", Some(3), || {
        let (cache, reported) = counters(&ManualClock::new(), |b| b);
        assert_eq!(cache.increment(&1, 1), Ok(1));
        let (counted, ()) = race(
            &cache,
            |cache| cache.increment(&1, 1),
            |cache| cache.insert(1, Counter::new(0)),
        );
        assert!(matches!(counted, Ok(1 | 2)));
        balance(&cache, &reported, 2);
    });
}

#[test]
fn increment_against_evict() {
    check("counters_increment_against_evict", Some(2), || {
        let (cache, reported) = counters(&ManualClock::new(), |b| b.max_entries(1));
        assert_eq!(cache.increment(&1, 1), Ok(1));
        let (counted, ()) = race(
            &cache,
            |cache| cache.increment(&1, 1),
            |cache| cache.insert(2, Counter::new(7)),
        );
        assert!(matches!(counted, Ok(1 | 2)));
        balance(&cache, &reported, 2);
    });
}

#[test]
fn increment_against_increment_that_creates() {
    check("counters_increment_against_creation", Some(2), || {
        let (cache, reported) = counters(&ManualClock::new(), |b| b);
        let (one, other) = race(
            &cache,
            |cache| cache.increment(&1, 1),
            |cache| cache.increment(&1, 1),
        );
        assert!(
            matches!((one, other), (Ok(1), Ok(2)) | (Ok(2), Ok(1))),
            "{one:?}, {other:?}"
        );
        balance(&cache, &reported, 2);
    });
}

#[test]
fn increment_against_remove_if() {
    check("counters_increment_against_remove_if", Some(2), || {
        let (cache, reported) = counters(&ManualClock::new(), |b| b);
        assert_eq!(cache.increment(&1, 1), Ok(1));
        let (counted, removed) = race(
            &cache,
            |cache| cache.increment(&1, 1),
            |cache| cache.remove_if(&1, |counter| counter.get() == 1),
        );
        // What was judged is what is removed: with the increment it would not have been.
        assert_eq!(
            counted,
            Ok(if removed { 1 } else { 2 }),
            "judged another value"
        );
        balance(&cache, &reported, 2);
    });
}
