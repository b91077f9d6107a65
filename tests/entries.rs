//! `entry`: one atomic step on a key, whether or not it has a value.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Counter, Lifetime, ManualClock, RemovalCause};

const S: Duration = Duration::from_secs(1);

fn rig() -> (Cache<&'static str, u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Cache::builder().clock(clock.clone()).time_to_live(10 * S);
    (builder.build().unwrap(), clock)
}

#[test]
fn what_is_absent_is_stored_and_what_is_there_is_changed_or_left() {
    let (cache, clock) = rig();
    assert_eq!(cache.entry("a").or_insert(1), 1);
    assert_eq!(cache.entry("a").or_insert(2), 1);
    assert_eq!(cache.entry("a").or_insert_with(|| unreachable!()), 1);
    clock.advance(4 * S);
    assert_eq!(cache.entry("a").and_modify(|n| n + 10).or_insert(3), 11);
    assert_eq!(
        cache.ttl(&"a"),
        Some(Lifetime::For(6 * S)),
        "the deadline stays"
    );
    let twice = cache.entry("a").and_modify(|n| n + 1).and_modify(|n| n * 2);
    assert_eq!(twice.or_insert(3), 24);
    clock.advance(6 * S);
    assert_eq!(
        cache.entry("a").and_modify(|_| unreachable!()).or_insert(3),
        3
    );
    assert_eq!(cache.ttl(&"a"), Some(Lifetime::For(10 * S)));
    assert_eq!(
        cache
            .entry("key")
            .or_insert_with_key(|key| key.len() as u64),
        3
    );
    assert_eq!(cache.entry("b").or_default(), 0);
    assert_eq!(cache.entry("c").or_insert_with_ttl(|| (1, 2 * S)), 1);
    assert_eq!(cache.ttl(&"c"), Some(Lifetime::For(2 * S)));
    assert_eq!(cache.entry("c").or_insert_with_ttl(|| (2, 5 * S)), 1);
    assert_eq!(cache.ttl(&"c"), Some(Lifetime::For(2 * S)));
    assert_eq!(
        cache.entry("d").or_insert_with_ttl(|| (7, Duration::ZERO)),
        7
    );
    assert!(!cache.contains_key(&"d"), "it was over at once");
    assert_eq!(cache.entry("b").key(), &"b");
    cache.validate();
}

#[test]
fn if_present_stores_nothing_new() {
    let (cache, clock) = rig();
    assert_eq!(cache.entry("a").if_present(), None);
    assert_eq!(cache.entry("a").and_modify(|n| n + 1).if_present(), None);
    assert_eq!(cache.entry_count(), 0);
    cache.insert("a", 1);
    assert_eq!(cache.entry("a").if_present(), Some(1));
    assert_eq!(cache.entry("a").and_modify(|n| n + 1).if_present(), Some(2));
    assert_eq!(cache.get(&"a"), Some(2));
    clock.advance(10 * S);
    assert_eq!(cache.entry("a").and_modify(|n| n + 1).if_present(), None);
}

#[test]
fn an_entry_that_is_dropped_does_nothing() {
    let (cache, _clock) = rig();
    cache.insert("a", 1);
    drop(cache.entry("a").and_modify(|_| unreachable!()));
    assert_eq!(cache.get(&"a"), Some(1));
}

#[test]
fn counters_are_changed_in_place() {
    let cache: Cache<u64, Counter> = Cache::unbounded();
    for expected in 5..8 {
        let counter = cache
            .entry(1)
            .and_modify(|counter| Counter::new(counter.get() + 1))
            .or_insert_with(|| Counter::new(5));
        assert_eq!(counter.get(), expected);
    }
    assert_eq!(cache.stats().replaced, 0);
}

#[test]
fn no_change_is_lost_between_threads() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let cache: Cache<u64, u64> = Cache::unbounded();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for i in 0..EACH {
                    cache.entry(i % 3).and_modify(|n| n + 1).or_insert(1);
                }
            });
        }
    });
    let sum: u64 = (0..3).map(|key| cache.get(&key).unwrap()).sum();
    assert_eq!(sum, THREADS * EACH);
    cache.validate();
}

/// The race is forced: the value goes, or comes, while the closure runs.
#[test]
fn what_was_made_once_is_kept_for_another_try() {
    let (cache, _clock) = rig();
    let made = Cell::new(0);
    let value = cache.entry("a").and_modify(|n| n + 1).or_insert_with(|| {
        made.set(made.get() + 1);
        // Somebody else is first.
        cache.insert("a", 10);
        100
    });
    assert_eq!((value, made.get()), (11, 1));

    let tries = Cell::new(0);
    let value = cache
        .entry("a")
        .and_modify(|n| {
            tries.set(tries.get() + 1);
            if tries.get() == 1 {
                cache.invalidate(&"a");
            }
            n + 1
        })
        .or_insert(7);
    assert_eq!((value, tries.get()), (7, 1));
    assert_eq!(cache.get(&"a"), Some(7));
}

#[test]
fn a_value_that_the_cache_cannot_take_is_returned_and_not_stored() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let events = told.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_weight(10, |_, &value| value)
        .on_removal(move |_, &value, cause| events.lock().unwrap().push((value, cause)))
        .build()
        .unwrap();
    assert_eq!(cache.entry(1).or_insert(11), 11);
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(cache.entry(1).or_insert(4), 4);
    assert_eq!(cache.entry(1).and_modify(|n| n + 2).or_insert(0), 6);
    assert_eq!((cache.weight(), cache.get(&1)), (6, Some(6)));
    assert_eq!(*told.lock().unwrap(), [(4, RemovalCause::Replaced)]);
}

#[test]
fn a_panic_in_a_closure_leaves_the_entry_alone() {
    let (cache, _clock) = rig();
    cache.insert("a", 1);
    let panic = || -> u64 { std::panic::resume_unwind(Box::new(())) };
    for call in [
        &(|| cache.entry("a").and_modify(|_| panic()).or_insert(2)) as &dyn Fn() -> u64,
        &|| cache.entry("b").or_insert_with(panic),
    ] {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }
    assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), None));
    cache.validate();
}
