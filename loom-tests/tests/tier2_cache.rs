//! The whole cache, through its public calls, on the abstract reclaimer (`src/reclaim/mod.rs`):
//! index, slab, limbo, lane and words together, with a clock that one of the threads moves.
//!
//! Values count their drops; keys and values lie in the model checker's cells, so that a reader
//! that met a freed or half-written entry would be seen.

use std::time::Duration;

use ebbtide::{Cache, Counter, Lifetime, ManualClock};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Drops, Fixed, Tracked, UNIT, build, race};
use loom::thread;

fn units(n: u64) -> Duration {
    Duration::from_nanos(n * UNIT)
}

#[test]
fn slow_idle_extension_against_get_past_the_deadline() {
    check("cache_slow_extension_against_get", Some(3), || {
        let clock = ManualClock::new();
        let cache = build(&clock, |b| b.time_to_idle(Duration::from_nanos(160)));
        cache.insert(1, 10);
        clock.set_ns(100);
        let now = clock.clone();
        let (first, hit) = race(
            &cache,
            |cache| {
                now.set_ns(160);
                cache.get(&1)
            },
            |cache| cache.get(&1),
        );
        let second = cache.get(&1);
        assert!(
            first.is_some() || second.is_none(),
            "what was absent came back"
        );
        assert!(hit.is_some() || second.is_none());
        // Extended at 100, or at 160 by the second thread's or this one's later hit.
        if let Some(Lifetime::For(left)) = cache.ttl(&1) {
            assert!(left <= Duration::from_nanos(160));
        }
        cache.validate();
    });
}

#[test]
fn slow_idle_extension_against_insert_if_absent_past_the_deadline() {
    check(
        "cache_slow_extension_against_insert_if_absent",
        Some(3),
        || {
            let clock = ManualClock::new();
            let cache = build(&clock, |b| b.time_to_idle(Duration::from_nanos(160)));
            cache.insert(1, 10);
            clock.set_ns(100);
            let now = clock.clone();
            let (inserted, hit) = race(
                &cache,
                |cache| {
                    now.set_ns(160);
                    cache.insert_if_absent(1, 11)
                },
                |cache| cache.get(&1),
            );
            let value = if inserted { 11 } else { 10 };
            assert_eq!(cache.get(&1), Some(value));
            assert!(
                inserted || hit == Some(10),
                "a live entry was not found: {hit:?}"
            );
            assert_eq!(cache.entry_count(), 1);
            cache.validate();
        },
    );
}

#[test]
fn lazy_reader_against_reaper() {
    check("cache_lazy_reader_against_reaper", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), units(2));
        clock.set_ns(3 * UNIT);
        let (reaped, read) = race(
            &cache,
            |cache| cache.reap_at_most(8),
            |cache| cache.get(&1).map(|value| value.number()),
        );
        assert_eq!(read, None, "read past its deadline");
        let later = cache.reap_at_most(8);
        let stats = cache.stats();
        assert_eq!(
            (
                stats.expired_by_read + stats.expired_by_sweep,
                stats.entries,
                stats.limbo
            ),
            (1, 0, 0),
            "one owns the end, and nothing stays"
        );
        assert_eq!(reaped.dropped + later.dropped, 1);
        assert_eq!(drops.count(), 1, "drops");
        cache.validate();
    });
}

#[test]
fn a_reader_in_a_pin_keeps_the_value_that_the_reaper_takes_out() {
    check("cache_pinned_reader_against_reaper", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), units(2));
        clock.set_ns(UNIT);
        let now = clock.clone();
        let counted = drops.clone();
        race(
            &cache,
            |cache| {
                now.set_ns(3 * UNIT);
                cache.reap_at_most(8);
            },
            move |cache| {
                let pinned = cache.pin();
                if let Some(value) = pinned.get(&1) {
                    thread::yield_now();
                    assert_eq!(counted.count(), 0, "dropped under a pin");
                    assert_eq!(value.number(), 10);
                }
            },
        );
        cache.reap_at_most(8);
        assert_eq!(drops.count(), 1, "drops");
    });
}

/// An entry that was extended, so that it is filed too early, is swept while `change` gives it
/// another deadline. When that one has passed, a sweep must find the entry.
fn refile_against(change: fn(&Cache<u8, u8, Fixed>) -> bool, ends: Option<u64>) {
    let clock = ManualClock::new();
    let cache = build(&clock, |b| b.time_to_idle(units(4)));
    cache.insert(1, 10);
    clock.set_ns(3 * UNIT);
    assert_eq!(cache.get(&1), Some(10));
    // Filed under 4, ends in 7.
    clock.set_ns(5 * UNIT);
    let (reaped, changed) = race(&cache, |cache| cache.reap_at_most(8), change);
    assert!(changed, "it was alive");
    assert_eq!(reaped.expired, 0);
    cache.validate();
    clock.set_ns(ends.unwrap_or(1_000) * UNIT);
    cache.reap_at_most(8);
    assert_eq!(cache.entry_count(), u64::from(ends.is_none()), "a leak");
}

#[test]
fn refile_against_a_shortened_deadline_and_persist() {
    check("cache_refile_against_expire", Some(3), || {
        refile_against(|cache| cache.expire(&1, units(1)), Some(6));
    });
    check("cache_refile_against_persist", Some(3), || {
        refile_against(|cache| cache.persist(&1), None);
    });
}

#[test]
fn minimum_recomputed_against_a_new_sooner_deadline() {
    check("cache_minimum_against_new_deadline", Some(2), || {
        let clock = ManualClock::new();
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, 10, units(4));
        clock.set_ns(5 * UNIT);
        race(
            &cache,
            |cache| cache.reap_at_most(8),
            |cache| cache.insert_with_ttl(2, 20, units(1)),
        );
        cache.validate();
        clock.set_ns(6 * UNIT);
        cache.reap_at_most(8);
        assert_eq!(cache.entry_count(), 0, "a leak");
    });
}

#[test]
fn increment_against_remove_and_re_creation() {
    check("cache_increment_against_remove", Some(3), || {
        let clock = ManualClock::new();
        let cache = build::<Counter>(&clock, |b| b);
        assert_eq!(cache.increment(&1, 1), Ok(1));
        let (removed, counted) = race(
            &cache,
            |cache| cache.remove(&1),
            |cache| cache.increment(&1, 1),
        );
        let reported = removed.expect("it was there").get();
        let left = cache.get(&1).map_or(0, |counter| counter.get());
        assert_eq!(reported + left, 2, "increments reported");
        // It joined the old counter, or began one.
        assert_eq!(counted, Ok(reported.max(left)));
        cache.validate();
    });
}

#[test]
fn get_against_insert_and_replace() {
    check("cache_get_against_insert", Some(3), || {
        let clock = ManualClock::new();
        let cache = build::<u8>(&clock, |b| b);
        let ((), seen) = race(&cache, |cache| cache.insert(1, 10), |cache| cache.get(&1));
        assert!(seen.is_none_or(|value| value == 10));
        assert_eq!(cache.get(&1), Some(10));
    });
    check("cache_get_against_replace", Some(3), || {
        let clock = ManualClock::new();
        let cache = build::<u8>(&clock, |b| b);
        cache.insert(1, 10);
        let ((), seen) = race(&cache, |cache| cache.insert(1, 11), |cache| cache.get(&1));
        assert!(
            matches!(seen, Some(10 | 11)),
            "a key that is present was not found"
        );
        assert_eq!(cache.get(&1), Some(11));
    });
}

#[test]
fn get_against_two_replacements() {
    // A reader whose first look met a dead entry meets another one with its second.
    check("cache_get_against_two_replacements", Some(3), || {
        let clock = ManualClock::new();
        let cache = build::<u8>(&clock, |b| b);
        cache.insert(1, 10);
        let (seen, ()) = race(
            &cache,
            |cache| cache.get(&1),
            |cache| {
                cache.insert(1, 11);
                cache.insert(1, 12);
            },
        );
        assert!(
            matches!(seen, Some(10..=12)),
            "a key that is present was not found"
        );
        assert_eq!(cache.get(&1), Some(12));
    });
}
