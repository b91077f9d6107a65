//! The whole cache on its own epochs (`src/reclaim/epoch.rs`) instead of the abstract reclaimer:
//! `./run --epochs`.
//!
//! Two threads, at most two interruptions: the epochs alone have many steps.
#![cfg(ebbtide_epoch)]

use std::time::Duration;

use ebbtide::ManualClock;
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Drops, Tracked, UNIT, build, race};
use loom::thread;

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
