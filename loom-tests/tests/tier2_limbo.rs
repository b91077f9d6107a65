//! Slots on their way out, under the whole cache: a slot is used again only after its grace period,
//! and every value is dropped once, whoever drops it.

use std::time::Duration;

use ebbtide::ManualClock;
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Drops, Tracked, UNIT, build, race};
use loom::thread;

#[test]
fn a_slot_is_not_used_again_under_a_pin() {
    check("limbo_pinned_reader_against_reuse", Some(2), || {
        let drops = Drops::default();
        let cache = build(&ManualClock::new(), |b| b);
        cache.insert(1, Tracked::new(10, &drops));
        let counted = drops.clone();
        let made = drops.clone();
        race(
            &cache,
            |cache| {
                let pinned = cache.pin();
                if let Some(value) = pinned.get(&1) {
                    assert_eq!(value.number(), 10);
                    thread::yield_now();
                    assert_eq!(counted.count(), 0, "dropped under a pin");
                    assert_eq!(value.number(), 10, "used again under a pin");
                }
            },
            move |cache| {
                assert!(cache.invalidate(&1));
                cache.reap_at_most(8);
                // Takes the lowest free slot.
                cache.insert(2, Tracked::new(20, &made));
            },
        );
        cache.reap_at_most(8);
        assert_eq!(drops.count(), 1, "drops");
        assert_eq!(cache.get(&2).map(|value| value.number()), Some(20));
        cache.validate();
    });
}

#[test]
fn nothing_is_added_to_a_sealed_batch() {
    check("limbo_sealed_batch", Some(2), || {
        let drops = Drops::default();
        let cache = build(&ManualClock::new(), |b| b);
        cache.insert(1, Tracked::new(10, &drops));
        cache.insert(2, Tracked::new(20, &drops));
        assert!(cache.invalidate(&1));
        {
            // Seals, but cannot drop: this pin is in the way. When it has gone the grace period is
            // over, and the batch is still there.
            let _pinned = cache.pin();
            assert_eq!(cache.reap_at_most(8).dropped, 0);
        }
        let counted = drops.clone();
        race(
            &cache,
            |cache| {
                let pinned = cache.pin();
                if let Some(value) = pinned.get(&2) {
                    thread::yield_now();
                    assert!(counted.count() <= 1, "dropped under a pin");
                    assert_eq!(value.number(), 20);
                }
            },
            |cache| {
                assert!(cache.invalidate(&2));
                cache.reap_at_most(8);
            },
        );
        cache.reap_at_most(8);
        assert_eq!(drops.count(), 2, "drops");
        cache.validate();
    });
}

#[test]
fn the_last_handle_is_dropped_during_a_reap() {
    check("limbo_last_handle_against_reap", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), Duration::from_nanos(UNIT));
        cache.insert(2, Tracked::new(20, &drops));
        assert!(cache.invalidate(&2));
        cache.insert(3, Tracked::new(30, &drops));
        clock.set_ns(UNIT);
        let theirs = cache.clone();
        let reaper = thread::spawn(move || {
            theirs.reap_at_most(8);
        });
        drop(cache);
        reaper.join().unwrap();
        assert_eq!(drops.count(), 3, "drops");
    });
}

#[test]
fn reap_against_reap() {
    check("limbo_reap_against_reap", Some(1), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), Duration::from_nanos(UNIT));
        cache.insert(2, Tracked::new(20, &drops));
        assert!(cache.invalidate(&2));
        clock.set_ns(UNIT);
        let (mine, theirs) = race(
            &cache,
            |cache| cache.reap_at_most(8),
            |cache| cache.reap_at_most(8),
        );
        let later = cache.reap_at_most(8);
        assert_eq!(mine.expired + theirs.expired, 1, "ends");
        assert_eq!(mine.dropped + theirs.dropped + later.dropped, 2);
        assert_eq!(drops.count(), 2, "drops");
        cache.validate();
    });
}
