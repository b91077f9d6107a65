//! What keeps a deadline, and what changes it.

use std::time::Duration;

use ebbtide::{Lifetime, Op, RemovalCause};

use super::{NANOSECOND, Store, counters, left, observed, secs};

#[test]
fn replacement_clears_the_deadline_unless_it_brings_one() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    cache.insert("loan", 2);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
    clock.advance(secs(10));
    assert_eq!(cache.get("loan"), Some(2));

    cache.insert_with_ttl("loan", 3, secs(10));
    clock.advance(secs(9));
    cache.insert_with_ttl("loan", 4, secs(20));
    assert_eq!(cache.ttl("loan"), left(20));
    clock.advance(secs(19));
    assert_eq!(cache.get("loan"), Some(4));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn replacement_renews_the_caches_own_lifetime() {
    let Store { clock, cache } = Store::configured(|builder| builder.time_to_live(secs(10)));
    cache.insert("loan", 1);
    clock.advance(secs(9));
    assert_eq!(cache.ttl("loan"), left(1));
    cache.insert("loan", 2);
    assert_eq!(cache.ttl("loan"), left(10));
    clock.advance(secs(9));
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn replacing_what_is_expired_reports_expired() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(5));
    clock.advance(secs(5));
    cache.insert("loan", 2);
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Expired)]);
    cache.insert("loan", 3);
    assert_eq!(
        removals.sorted(),
        [
            ("loan", RemovalCause::Expired),
            ("loan", RemovalCause::Replaced)
        ]
    );
    assert_eq!(cache.get("loan"), Some(3));
}

#[test]
fn a_value_computed_in_place_keeps_the_deadline() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |value| match value {
        Some(count) => Op::Put(count + 1),
        None => panic!("the entry is live"),
    });
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_value_computed_with_a_lifetime_takes_it() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |value| {
        Op::PutWithTtl(value.map_or(0, |count| count + 1), secs(60).into())
    });
    assert_eq!(cache.ttl("loan"), left(60));
    clock.advance(secs(59));
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn compare_and_swap_keeps_the_deadline() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert_eq!(cache.compare_and_swap("loan", &1, 2), Ok(()));
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn increment_keeps_the_deadline() {
    let (clock, cache) = counters();
    assert_eq!(cache.increment_with_ttl("loan", 1, secs(10)), Ok(1));
    clock.advance(secs(4));
    assert_eq!(cache.increment("loan", 1), Ok(2));
    assert_eq!(cache.ttl("loan"), left(6));
    // A lifetime given to an increment counts only when it creates.
    assert_eq!(cache.increment_with_ttl("loan", 1, secs(99)), Ok(3));
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.increment("loan", 1), Ok(4));
    clock.advance(NANOSECOND);
    // Expired: the count begins again, and persistent without a lifetime.
    assert_eq!(cache.increment("loan", 1), Ok(1));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
}

#[test]
fn expire_sets_a_deadline_from_now() {
    let Store { clock, cache } = Store::new();
    cache.insert("loan", 1);
    clock.advance(secs(100));
    assert!(cache.expire("loan", secs(10)));
    assert_eq!(cache.ttl("loan"), left(10));
    clock.advance(secs(5));
    assert!(cache.expire("loan", secs(10)), "later");
    assert_eq!(cache.ttl("loan"), left(10));
    assert!(cache.expire("loan", secs(2)), "sooner");
    assert_eq!(cache.ttl("loan"), left(2));
    clock.advance(secs(2) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(1));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_sooner_deadline_is_swept_on_time() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(3_600));
    assert!(cache.expire("loan", secs(2)));
    clock.advance(secs(2));
    assert_eq!(cache.reap(secs(1)).expired, 1);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn persist_takes_the_deadline_away() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(9));
    assert!(cache.persist("loan"));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
    assert!(cache.persist("loan"), "again");
    clock.advance(secs(1_000_000));
    assert_eq!(cache.reap(secs(1)).expired, 0);
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(store.counts(), (1, 1));
}

#[test]
fn expire_to_zero_deletes() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(5));
    assert!(cache.expire("loan", Duration::ZERO));
    assert_eq!(cache.entry_count(), 0, "at once");
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
    assert!(!cache.expire("loan", Duration::ZERO), "nothing left");
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Explicit)]);
}

#[test]
fn storing_for_no_time_at_all_stores_nothing() {
    let Store { cache, .. } = Store::new();
    cache.insert_with_ttl("new", 1, Duration::ZERO);
    assert_eq!(cache.entry_count(), 0);
    cache.insert("old", 1);
    cache.insert_with_ttl("old", 2, Duration::ZERO);
    assert_eq!(cache.get("old"), None);
    assert_eq!(cache.entry_count(), 0);
}
