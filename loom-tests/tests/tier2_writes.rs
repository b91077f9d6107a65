//! Writes under the whole cache against idle extensions and against the deadline: remove, compute,
//! compare_and_swap, expire.
//!
//! The entry of each model is at 100 of its 160 ns of idleness when a read hit renews it.

use std::time::Duration;

use ebbtide::{Cache, Computed, Lifetime, ManualClock, Op};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Fixed, build, race};

const IDLE: u64 = 160;
const RENEWED_AT: u64 = 100;

/// Key 1 with value 10, idle since 0; the clock stands at 100.
fn idle_for_a_while() -> (Cache<u8, u8, Fixed>, ManualClock) {
    let clock = ManualClock::new();
    let cache = build(&clock, |b| b.time_to_idle(Duration::from_nanos(IDLE)));
    cache.insert(1, 10);
    clock.set_ns(RENEWED_AT);
    (cache, clock)
}

fn left(cache: &Cache<u8, u8, Fixed>) -> Option<u64> {
    match cache.ttl(&1)? {
        Lifetime::For(left) => Some(left.as_nanos() as u64),
        other => panic!("an entry with a time to idle has a deadline: {other:?}"),
    }
}

#[test]
fn remove_against_idle_extension() {
    check("writes_remove_against_extension", Some(3), || {
        let (cache, _clock) = idle_for_a_while();
        let (hit, removed) = race(&cache, |cache| cache.get(&1), |cache| cache.remove(&1));
        assert_eq!(removed, Some(10));
        assert!(hit.is_none_or(|value| value == 10));
        assert_eq!(cache.get(&1), None, "found after its removal");
        assert_eq!(cache.entry_count(), 0);
        cache.validate();
    });
    // The same while the deadline passes.
    check(
        "writes_remove_at_the_deadline_against_extension",
        Some(2),
        || {
            let (cache, clock) = idle_for_a_while();
            let (hit, removed) = race(
                &cache,
                |cache| cache.get(&1),
                move |cache| {
                    clock.set_ns(IDLE);
                    cache.remove(&1)
                },
            );
            // Removed alive means that the hit renewed it before.
            assert!(
                removed.is_none() || hit == Some(10),
                "what was absent came back"
            );
            assert_eq!(cache.get(&1), None, "found after its removal");
            cache.reap_at_most(8);
            let stats = cache.stats();
            let expired = stats.expired_by_read + stats.expired_by_write + stats.expired_by_sweep;
            assert_eq!(
                (stats.explicit, expired, stats.entries),
                (
                    u64::from(removed.is_some()),
                    u64::from(removed.is_none()),
                    0
                ),
                "one owns the end"
            );
            cache.validate();
        },
    );
}

/// What the writes that keep a deadline leave behind, whoever won: the new value, and no later
/// deadline than a hit could have given.
fn written_against_extension(write: fn(&Cache<u8, u8, Fixed>)) {
    let (cache, clock) = idle_for_a_while();
    let (hit, ()) = race(&cache, |cache| cache.get(&1), write);
    assert!(
        matches!(hit, Some(10 | 11)),
        "a key that is present was not found"
    );
    // (A write that meets the word as it is moves it by one nanosecond.)
    let left = left(&cache).expect("it is alive");
    assert!(
        (IDLE - RENEWED_AT - 1..=IDLE).contains(&left),
        "a deadline from nowhere: {left}"
    );
    assert_eq!(cache.peek(&1), Some(11), "a write is lost");
    assert_eq!(cache.entry_count(), 1);
    clock.set_ns(RENEWED_AT + IDLE);
    assert_eq!(cache.peek(&1), None, "read past its deadline");
    cache.validate();
}

#[test]
fn compute_and_compare_and_swap_against_idle_extension() {
    check("writes_compute_against_extension", Some(3), || {
        written_against_extension(|cache| {
            let done = cache.compute(1, |value| Op::Put(value.map_or(0, |value| value + 1)));
            assert_eq!(done, Computed::Replaced);
        });
    });
    check("writes_compare_and_swap_against_extension", Some(3), || {
        written_against_extension(|cache| assert_eq!(cache.compare_and_swap(1, &10, 11), Ok(())));
    });
}

#[test]
fn compute_and_compare_and_swap_against_each_other() {
    check("writes_compute_against_compare_and_swap", Some(2), || {
        let clock = ManualClock::new();
        let cache = build::<u8>(&clock, |b| b);
        cache.insert(1, 10);
        let (done, swapped) = race(
            &cache,
            |cache| cache.compute(1, |value| Op::Put(value.map_or(0, |value| value * 2))),
            |cache| cache.compare_and_swap(1, &10, 50),
        );
        assert_eq!(done, Computed::Replaced);
        let value = if swapped.is_ok() { 100 } else { 20 };
        assert_eq!(cache.get(&1), Some(value), "a write is lost");
        cache.validate();
    });
}

/// A value is replaced by `write` while another thread finds its deadline past, and says so. The
/// clock then steps back, and yet what was absent must not come back: `write` says whether it
/// stored its value as the successor of the old one, which had then been there before.
fn written_against_expiry(write: fn(&Cache<u8, u8, Fixed>) -> bool) {
    let clock = ManualClock::new();
    let cache = build(&clock, |b| b);
    cache.insert_with_ttl(1, 10, Duration::from_nanos(RENEWED_AT));
    let now = clock.clone();
    let (succeeded, seen) = race(&cache, write, move |cache| {
        now.set_ns(RENEWED_AT);
        let seen = cache.get(&1);
        now.set_ns(0);
        seen
    });
    if succeeded && seen.is_none() {
        assert_eq!(cache.get(&1), None, "what was absent came back");
    }
    cache.validate();
}

#[test]
fn compute_and_compare_and_swap_against_expiry() {
    check("writes_compute_against_expiry", Some(2), || {
        written_against_expiry(|cache| {
            let done = cache.compute(1, |value| match value {
                Some(value) => Op::Put(value + 1),
                None => Op::Keep,
            });
            done == Computed::Replaced
        });
    });
    check("writes_compare_and_swap_against_expiry", Some(2), || {
        written_against_expiry(|cache| cache.compare_and_swap(1, &10, 11).is_ok());
    });
}

#[test]
fn expire_sooner_against_idle_extension() {
    check("writes_expire_against_extension", Some(3), || {
        let clock = ManualClock::new();
        let cache = build(&clock, |b| {
            b.time_to_live(Duration::from_nanos(1_000))
                .time_to_idle(Duration::from_nanos(IDLE))
        });
        cache.insert(1, 10);
        clock.set_ns(RENEWED_AT);
        let (hit, changed) = race(
            &cache,
            |cache| cache.get(&1),
            |cache| cache.expire(&1, Duration::from_nanos(50)),
        );
        assert!(changed && hit == Some(10), "it was alive");
        clock.set_ns(RENEWED_AT + 50);
        assert_eq!(cache.get(&1), None, "read past its deadline");
        cache.validate();
    });
}
