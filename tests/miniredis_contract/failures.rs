//! A failed operation leaves no change and no cleanup behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ebbtide::{CounterError, Lifetime, Op, RemovalCause, Stats};

use super::{Store, counters, left, observed, secs};

/// The largest number that a counter holds.
const COUNTER_END: i64 = (1 << 62) - 1;

#[test]
fn a_failed_swap_changes_neither_value_nor_deadline() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert_eq!(cache.compare_and_swap("loan", &5, 6), Err(6));
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert_eq!(cache.compare_and_swap("missing", &5, 6), Err(6));
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(removals.sorted(), []);
}

#[test]
fn a_swap_on_what_is_expired_fails_and_brings_nothing_back() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(10));
    assert_eq!(cache.compare_and_swap("loan", &1, 2), Err(2));
    assert_eq!(store.counts(), (1, 0), "and cleaned up nothing");
    assert_eq!(cache.get("loan"), None);
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.live_count(), 0);
}

#[test]
fn an_increment_out_of_range_changes_neither_count_nor_deadline() {
    let (clock, cache) = counters();
    assert_eq!(
        cache.increment_with_ttl("full", COUNTER_END, secs(10)),
        Ok(COUNTER_END)
    );
    clock.advance(secs(4));
    assert_eq!(cache.increment("full", 1), Err(CounterError::Overflow));
    assert_eq!(
        cache.increment_with_ttl("full", 1, secs(99)),
        Err(CounterError::Overflow)
    );
    let count = cache.get("full").map(|counter| counter.get());
    assert_eq!(count, Some(COUNTER_END));
    assert_eq!(cache.ttl("full"), left(6));

    assert_eq!(
        cache.increment("new", i64::MAX),
        Err(CounterError::Overflow)
    );
    assert!(!cache.contains_key("new"));
    assert_eq!(cache.entry_count(), 1);

    // Nor does one that fails on an expired counter clean it up.
    clock.advance(secs(6));
    assert_eq!(
        cache.increment("full", i64::MAX),
        Err(CounterError::Overflow)
    );
    assert_eq!((cache.entry_count(), cache.live_count()), (1, 0));
    assert_eq!(cache.ttl("full"), None);
}

#[test]
fn an_insert_that_finds_a_live_entry_changes_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert!(!cache.insert_if_absent("loan", 2));
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert_eq!(removals.sorted(), []);
    clock.advance(secs(6));
    assert!(cache.insert_if_absent("loan", 3), "expired is absent");
    assert_eq!(cache.get("loan"), Some(3));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
}

#[test]
fn changing_the_deadline_of_what_is_absent_creates_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("expired", 1, secs(10));
    clock.advance(secs(10));
    for key in ["expired", "missing"] {
        assert!(!cache.expire(key, secs(60)), "{key}");
        assert!(!cache.persist(key), "{key}");
        assert!(!cache.touch(key), "{key}");
        assert!(!cache.expire(key, Duration::ZERO), "{key}");
        assert_eq!(cache.ttl(key), None, "{key}");
        assert_eq!(cache.get(key), None, "{key}");
    }
    cache.reap(secs(1));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(removals.sorted(), [("expired", RemovalCause::Expired)]);
}

#[test]
fn a_computation_that_keeps_or_panics_changes_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |_| Op::Keep);
    cache.compute("missing", |_| Op::Keep);
    for key in ["loan", "missing"] {
        let failed = catch_unwind(AssertUnwindSafe(|| {
            cache.compute(key, |_| panic!("the computation fails"));
        }));
        assert!(failed.is_err(), "{key}: the caller sees the panic");
    }
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert!(!cache.contains_key("missing"));
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(removals.sorted(), []);
    cache.insert("loan", 2);
    assert_eq!(cache.get("loan"), Some(2), "still usable");
}

#[test]
fn a_failed_operation_cleans_up_nothing_on_the_side() {
    let store = Store::configured(|builder| builder.shards(1));
    let Store { clock, cache } = &store;
    cache.insert("live", 1);
    for key in ["a", "b", "c"] {
        cache.insert_with_ttl(key, 1, secs(5));
    }
    clock.advance(secs(5));
    assert_eq!(store.counts(), (4, 1));
    let before = cache.stats();

    assert_eq!(cache.compare_and_swap("live", &5, 6), Err(6));
    assert!(!cache.insert_if_absent("live", 2));
    assert!(!cache.expire("missing", secs(60)));
    assert_eq!(cache.remove("missing"), None);
    let failed = catch_unwind(AssertUnwindSafe(|| {
        cache.compute("live", |_| panic!("the computation fails"));
    }));
    assert!(failed.is_err());

    assert_eq!(store.counts(), (4, 1), "the expired ones wait as they did");
    let after = cache.stats();
    let expired = |stats: &Stats| {
        [
            stats.expired_by_read,
            stats.expired_by_write,
            stats.expired_by_sweep,
        ]
    };
    assert_eq!(expired(&before), expired(&after));
    assert_eq!(cache.reap(secs(1)).expired, 3);
}
