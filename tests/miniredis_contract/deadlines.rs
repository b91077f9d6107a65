//! Deadlines are absolute, and an entry is expired at its deadline.

use std::time::Instant;

use ebbtide::{Cache, Lifetime, ManualClock};

use super::{Key, NANOSECOND, Store, left, secs};

#[test]
fn a_deadline_is_absolute_and_reads_do_not_move_it() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 7, secs(10));
    for passed in 0..10 {
        assert_eq!(cache.ttl("loan"), left(10 - passed), "after {passed} s");
        assert_eq!(cache.get("loan"), Some(7));
        assert_eq!(cache.peek("loan"), Some(7));
        assert!(cache.contains_key("loan"));
        clock.advance(secs(1) - NANOSECOND);
        assert_eq!(cache.get("loan"), Some(7));
        clock.advance(NANOSECOND);
    }
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_deadline_can_be_given_as_a_moment() {
    let before = Instant::now();
    let clock = ManualClock::new();
    let after = Instant::now();
    let cache = Cache::<Key, u32>::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    cache.insert_with_ttl("loan", 7, after + secs(100));
    let Some(Lifetime::For(remaining)) = cache.ttl("loan") else {
        panic!("a live entry with a deadline: {:?}", cache.ttl("loan"));
    };
    assert!(remaining >= secs(100), "{remaining:?}");
    assert!(remaining <= secs(100) + (after - before), "{remaining:?}");

    clock.advance(remaining - NANOSECOND);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::For(NANOSECOND)));
    assert_eq!(cache.get("loan"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);

    // A moment that has passed is over at once.
    cache.insert_with_ttl("loan", 8, after + secs(50));
    assert_eq!(cache.get("loan"), None);
    cache.insert("loan", 9);
    assert!(cache.expire("loan", after + secs(50)), "it deletes");
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn an_entry_is_expired_at_its_deadline_and_not_before() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 7, secs(5));
    clock.advance(secs(5) - NANOSECOND);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::For(NANOSECOND)));
    assert_eq!(cache.get("loan"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn ttl_tells_absent_persistent_and_remaining_apart() {
    let Store { clock, cache } = Store::new();
    cache.insert("persistent", 1);
    cache.insert_with_ttl("timed", 2, secs(30));
    clock.advance(secs(10));
    assert_eq!(cache.ttl("missing"), None);
    assert_eq!(cache.ttl("persistent"), Some(Lifetime::Never));
    assert_eq!(cache.ttl("timed"), left(20));
    clock.advance(secs(20));
    assert_eq!(cache.ttl("timed"), None);
}

#[test]
fn decades_pass_without_waiting() {
    let Store { clock, cache } = Store::new();
    let years = secs(20 * 365 * 86_400);
    cache.insert_with_ttl("archive", 7, years);
    clock.advance(years - NANOSECOND);
    assert_eq!(cache.get("archive"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("archive"), None);
}
