//! The index under the whole cache: reads against writes of the same key, of its neighbours, and
//! against a rebuild. A key that is there throughout is found, a removed one is not found
//! afterwards, and nobody meets an entry that is half written or freed.
//!
//! Under the model checker segments grow from one bucket to two, then split.

use std::time::Duration;

use ebbtide::{Cache, ManualClock};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Drops, Fixed, Same, Tracked, UNIT, build, build_with, race};
use loom::sync::atomic::{AtomicBool, Ordering};

/// Entries in one bucket before the segment grows to two, and in two before it splits.
const ONE_BUCKET: u8 = 10;
const TWO_BUCKETS: u8 = 21;

/// A cache with the keys below `keys`, each with itself as value.
fn filled(keys: u8) -> Cache<u8, u8, Fixed> {
    let cache = build(&ManualClock::new(), |b| b);
    for key in 0..keys {
        cache.insert(key, key);
    }
    cache
}

/// One key is looked up while `write` makes the index change its shape; then all are.
fn get_against(keys: u8, write: fn(&Cache<u8, u8, Fixed>), key: u8, left: std::ops::Range<u8>) {
    let cache = filled(keys);
    let (seen, ()) = race(&cache, move |cache| cache.get(&key), write);
    assert_eq!(seen, Some(key), "a key that is present was not found");
    for key in left {
        assert_eq!(cache.get(&key), Some(key), "lost in the rebuild");
    }
    cache.validate();
}

#[test]
fn get_against_growth() {
    check("index_get_against_growth", Some(2), || {
        let grow: fn(&Cache<u8, u8, Fixed>) = |cache| cache.insert(ONE_BUCKET, ONE_BUCKET);
        get_against(ONE_BUCKET, grow, 3, 0..ONE_BUCKET + 1);
    });
}

#[test]
fn get_against_split() {
    // The directory doubles as well.
    check("index_get_against_split", Some(1), || {
        let split: fn(&Cache<u8, u8, Fixed>) = |cache| cache.insert(TWO_BUCKETS, TWO_BUCKETS);
        get_against(TWO_BUCKETS, split, 3, 0..TWO_BUCKETS + 1);
    });
}

#[test]
fn get_against_shrinking() {
    check("index_get_against_shrinking", Some(2), || {
        let cache = filled(ONE_BUCKET + 1);
        // Two buckets, and the next removal leaves a sixth of what they could hold.
        for key in 4..=ONE_BUCKET {
            assert!(cache.invalidate(&key));
        }
        let (seen, removed) = race(&cache, |cache| cache.get(&2), |cache| cache.invalidate(&0));
        assert_eq!(seen, Some(2), "a key that is present was not found");
        assert!(removed);
        cache.validate();
    });
}

#[test]
fn replace_against_growth() {
    // Nothing that was found before the lock may be trusted under it (P7).
    check("index_replace_against_growth", Some(2), || {
        let cache = filled(ONE_BUCKET);
        race(
            &cache,
            |cache| cache.insert(3, 103),
            |cache| cache.insert(ONE_BUCKET, ONE_BUCKET),
        );
        assert_eq!(cache.get(&3), Some(103), "a replacement is lost");
        assert_eq!(cache.entry_count(), u64::from(ONE_BUCKET) + 1);
        cache.validate();
    });
}

#[test]
fn lazy_removal_against_growth() {
    // The reader finds the expired entry in one segment and unlinks it from another.
    check("index_lazy_removal_against_growth", Some(2), || {
        let clock = ManualClock::new();
        let cache = build(&clock, |b| b);
        for key in 0..ONE_BUCKET {
            cache.insert(key, key);
        }
        assert!(cache.expire(&3, Duration::from_nanos(UNIT)));
        clock.set_ns(UNIT);
        let (seen, ()) = race(
            &cache,
            |cache| cache.get(&3),
            |cache| cache.insert(ONE_BUCKET, ONE_BUCKET),
        );
        assert_eq!(seen, None, "read past its deadline");
        cache.reap_at_most(8);
        let stats = cache.stats();
        assert_eq!(stats.expired_by_read + stats.expired_by_sweep, 1, "ends");
        assert_eq!(cache.entry_count(), u64::from(ONE_BUCKET));
        for key in (0..=ONE_BUCKET).filter(|&key| key != 3) {
            assert_eq!(cache.get(&key), Some(key), "the wrong entry was removed");
        }
        cache.validate();
    });
}

#[test]
fn get_against_insert_into_a_used_cell() {
    // The cell still has the id of a slot whose memory has been given back: whoever sees the tag
    // must see the new id too (P6).
    check("index_get_against_insert_into_used_cell", Some(2), || {
        let cache = build::<[u64; 8]>(&ManualClock::new(), |b| b);
        cache.insert(0, [0; 8]);
        cache.insert(1, [1; 8]);
        assert!(cache.invalidate(&1));
        // Slot 1 is in limbo: this is slot 2, in the same cell.
        cache.insert(2, [2; 8]);
        assert!(cache.invalidate(&2));
        cache.reap_at_most(8);
        let (seen, ()) = race(
            &cache,
            |cache| cache.get(&3),
            |cache| cache.insert(3, [3; 8]),
        );
        assert!(seen.is_none_or(|value| value == [3; 8]));
        assert_eq!(cache.get(&3), Some([3; 8]));
        cache.validate();
    });
}

/// A neighbour with the same hash comes, changes and goes; each time a reader looks for key 1.
fn get_against_neighbour(write: fn(&Cache<u8, u8, Same>)) {
    let clock = ManualClock::new();
    let cache = build_with(&clock, Same, |b| b);
    cache.insert(0, 10);
    cache.insert(1, 11);
    let (seen, ()) = race(&cache, |cache| cache.get(&1), write);
    assert_eq!(seen, Some(11), "a key that is present was not found");
    assert_eq!(cache.get(&1), Some(11), "the wrong entry was changed");
    cache.validate();
}

#[test]
fn get_against_a_neighbour_in_its_bucket() {
    check("index_get_against_insert_of_neighbour", Some(3), || {
        get_against_neighbour(|cache| cache.insert(2, 12));
    });
    check("index_get_against_replace_of_neighbour", Some(3), || {
        get_against_neighbour(|cache| cache.insert(0, 20));
    });
    check("index_get_against_remove_of_neighbour", Some(3), || {
        get_against_neighbour(|cache| assert_eq!(cache.remove(&0), Some(10)));
    });
    check("index_get_against_compute_of_neighbour", Some(3), || {
        get_against_neighbour(|cache| {
            cache.compute(0, |value| {
                assert_eq!(value, Some(&10));
                ebbtide::Op::Put(20)
            });
        });
    });
}

#[test]
fn get_past_a_full_bucket() {
    // All keys begin in one bucket: the last ones had to go on to the next, and a lookup has to
    // know that.
    const FULL: u8 = 12;
    fn get_against(write: fn(&Cache<u8, u8, Same>)) {
        let cache = build_with(&ManualClock::new(), Same, |b| b);
        for key in 0..FULL + 2 {
            cache.insert(key, key);
        }
        let (seen, ()) = race(&cache, |cache| cache.get(&FULL), write);
        assert_eq!(seen, Some(FULL), "a key that is present was not found");
        assert_eq!(cache.get(&FULL), Some(FULL), "lost behind a full bucket");
        cache.validate();
    }
    check("index_get_past_full_against_insert", Some(2), || {
        get_against(|cache| cache.insert(FULL + 2, FULL + 2));
    });
    check("index_get_past_full_against_remove", Some(2), || {
        get_against(|cache| assert!(cache.invalidate(&0) && cache.invalidate(&(FULL + 1))));
    });
}

#[test]
fn get_against_reap_of_a_neighbour_in_its_bucket() {
    check("index_get_against_reap_of_neighbour", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build_with(&clock, Same, |b| b);
        cache.insert(1, Tracked::new(11, &drops));
        cache.insert_with_ttl(0, Tracked::new(10, &drops), Duration::from_nanos(UNIT));
        cache.insert(2, Tracked::new(12, &drops));
        clock.set_ns(UNIT);
        let (seen, reaped) = race(
            &cache,
            |cache| [1, 0, 2].map(|key| cache.get(&key).map(|value| value.number())),
            |cache| cache.reap_at_most(8).expired,
        );
        assert_eq!(
            seen,
            [Some(11), None, Some(12)],
            "the wrong entry was removed"
        );
        assert!(reaped <= 1);
        cache.reap_at_most(8);
        assert_eq!(
            (cache.entry_count(), drops.count()),
            (2, 1),
            "entries, drops"
        );
        cache.validate();
    });
}

#[test]
fn get_against_remove_and_reap_of_its_key() {
    check("index_get_against_remove", Some(3), || {
        let drops = Drops::default();
        let cache = build(&ManualClock::new(), |b| b);
        cache.insert(1, Tracked::new(10, &drops));
        let (seen, removed) = race(
            &cache,
            |cache| [(); 2].map(|()| cache.get(&1).map(|value| value.number())),
            |cache| cache.remove(&1).map(|value| value.number()),
        );
        assert_eq!(removed, Some(10));
        assert!(
            matches!(seen, [Some(10), None | Some(10)] | [None, None]),
            "what was absent came back: {seen:?}"
        );
        assert!(cache.get(&1).is_none(), "found after its removal");
        cache.reap_at_most(8);
        assert_eq!(drops.count(), 1, "drops");
        cache.validate();
    });
    check("index_get_against_reap", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let cache = build(&clock, |b| b);
        cache.insert_with_ttl(1, Tracked::new(10, &drops), Duration::from_nanos(UNIT));
        let now = clock.clone();
        let (seen, ()) = race(
            &cache,
            |cache| [(); 2].map(|()| cache.get(&1).map(|value| value.number())),
            move |cache| {
                now.set_ns(UNIT);
                cache.reap_at_most(8);
            },
        );
        assert!(
            matches!(seen, [Some(10), None | Some(10)] | [None, None]),
            "what was absent came back: {seen:?}"
        );
        assert!(cache.get(&1).is_none(), "read past its deadline");
        cache.reap_at_most(8);
        assert_eq!(drops.count(), 1, "drops");
        cache.validate();
    });
}

#[test]
fn iteration_against_remove() {
    // What an iterator has noted, it hands out only while it is alive.
    check("index_iteration_against_remove", Some(2), || {
        let cache = filled(2);
        let gone = std::sync::Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        race(
            &cache,
            |cache| {
                let pinned = cache.pin();
                let mut entries = pinned.iter();
                let first = entries.next().map(|(&key, _)| key);
                assert!(matches!(first, Some(0 | 1)), "the first is there");
                let was_gone = gone.load(Ordering::Acquire);
                let second = entries.next().map(|(&key, _)| key);
                assert!(!(was_gone && second == Some(1)), "found after its removal");
                assert_eq!(entries.next().map(|(&key, _)| key), None);
            },
            move |cache| {
                assert_eq!(cache.remove(&1), Some(1));
                flag.store(true, Ordering::Release);
            },
        );
        cache.validate();
    });
}
