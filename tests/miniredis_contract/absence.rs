//! The logical absence of what is expired can precede its physical removal.

use ebbtide::{Op, RemovalCause};

use super::{Store, observed, secs};

#[test]
fn a_read_answers_absent_before_the_removal_and_then_removes() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 7, secs(5));
    assert_eq!(store.counts(), (1, 1));
    clock.advance(secs(5));
    assert_eq!(store.counts(), (1, 0), "present, and dead");

    assert_eq!(cache.get("loan"), None);
    assert_eq!(store.counts(), (0, 0), "the read removed it");
    let stats = cache.stats();
    assert_eq!(stats.expired_by_read, 1);
    assert_eq!((stats.expired_by_write, stats.expired_by_sweep), (0, 0));

    assert_eq!(cache.get("loan"), None);
    assert_eq!(cache.stats().expired_by_read, 1, "once");
}

#[test]
fn an_entry_that_a_read_found_expired_is_reported_once() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 7, secs(5));
    clock.advance(secs(5));
    for _ in 0..3 {
        assert_eq!(cache.get("loan"), None);
    }
    cache.reap(secs(1));
    cache.reap(secs(1));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Expired)]);
}

#[test]
fn every_read_path_hides_what_is_expired() {
    let Store { clock, cache } = Store::new();
    cache.insert("live", 1);
    // One key for each path, so that no path meets what another cleaned up.
    let keys = ["get", "with", "peek", "contains", "ttl", "pin", "compute"];
    for key in keys {
        cache.insert_with_ttl(key, 2, secs(5));
    }
    clock.advance(secs(5));
    let iterated: Vec<_> = cache.iter().collect();
    assert_eq!(iterated, [("live", 1)]);
    let pinned = cache.pin();
    let pinned_keys: Vec<_> = pinned.iter().map(|(key, _)| *key).collect();
    assert_eq!(pinned_keys, ["live"]);
    assert_eq!(pinned.get("pin"), None);
    drop(pinned);
    assert_eq!(cache.get("get"), None);
    assert_eq!(cache.with("with", |value| *value), None);
    assert_eq!(cache.peek("peek"), None);
    assert!(!cache.contains_key("contains"));
    assert_eq!(cache.ttl("ttl"), None);
    let mut seen = Some(0);
    cache.compute("compute", |value| {
        seen = value.copied();
        Op::Keep
    });
    assert_eq!(seen, None);
    assert_eq!(cache.live_count(), 1);
}

#[test]
fn get_many_hides_what_is_expired_and_keeps_the_order() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("short", 1, secs(5));
    cache.insert_with_ttl("long", 2, secs(50));
    cache.insert("persistent", 3);
    let keys = ["long", "short", "missing", "persistent", "short", "long"];
    assert_eq!(
        cache.get_many(keys),
        [Some(2), Some(1), None, Some(3), Some(1), Some(2)]
    );
    clock.advance(secs(5));
    assert_eq!(
        cache.get_many(keys),
        [Some(2), None, None, Some(3), None, Some(2)]
    );
    assert_eq!(cache.live_count(), 2);
}

#[test]
fn removing_what_is_expired_answers_absent_and_reports_expired() {
    let (Store { clock, cache }, removals) = observed();
    for key in ["a", "b"] {
        cache.insert_with_ttl(key, 1, secs(5));
    }
    clock.advance(secs(5));
    assert_eq!(cache.remove("a"), None);
    assert!(!cache.invalidate("b"));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(
        removals.sorted(),
        [("a", RemovalCause::Expired), ("b", RemovalCause::Expired)]
    );
}
