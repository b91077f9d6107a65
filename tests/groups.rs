//! Entries that carry a tag end together: exactly those, each reported once, whatever else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{
    Builder, Cache, Computed, Counter, ManualClock, Op, Policy, Reaper, RemovalCause, Tags,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const S: Duration = Duration::from_secs(1);

/// A value carries the tags that it names, and a prefix tag of its key's hundreds.
type Value = Vec<u64>;

fn tagged() -> Builder<u64, Value> {
    Cache::builder().tags(|key: &u64, value: &Value, tags: &mut Tags| {
        value.iter().for_each(|tag| tags.add(tag));
        tags.add(&("hundred", key / 100));
    })
}

fn rig() -> (Cache<u64, Value>, ManualClock) {
    let clock = ManualClock::new();
    (tagged().clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn those_that_carry_the_tag_go_and_no_others() {
    let (cache, _clock) = rig();
    cache.insert(1, vec![7, 8]);
    cache.insert(2, vec![8, 8, 9]);
    cache.insert(101, vec![]);
    cache.insert(102, vec![7]);
    assert_eq!(cache.tagged_count(&7_u64), 2);
    assert_eq!(cache.tagged_count(&8_u64), 2);
    assert_eq!(cache.invalidate_tag(&8_u64), 2);
    assert_eq!(
        cache.iter().map(|(key, _)| key).collect::<BTreeSet<_>>(),
        [101, 102].into()
    );
    assert_eq!(cache.invalidate_tag(&8_u64), 0);
    assert_eq!(cache.invalidate_tag(&("hundred", 1_u64)), 2);
    assert_eq!(cache.entry_count(), 0);
    cache.validate();
}

#[test]
fn a_cache_without_tags_has_none() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1);
    assert_eq!(
        (cache.invalidate_tag("any"), cache.tagged_count("any")),
        (0, 0)
    );
}

#[test]
fn a_replacement_carries_its_own_tags() {
    let (cache, _clock) = rig();
    cache.insert(1, vec![7]);
    cache.insert(1, vec![8]);
    cache.compute(1, |_| Op::Put(vec![9]));
    assert_eq!(
        cache.invalidate_tag(&7_u64) + cache.invalidate_tag(&8_u64),
        0
    );
    cache.compare_and_swap(1, &vec![9], vec![10]).unwrap();
    cache.entry(1).and_modify(|_| vec![11]).or_insert(vec![]);
    assert_eq!(cache.get_or_insert_with(2, || vec![11]), [11]);
    assert!(cache.insert_if_absent(3, vec![11]));
    assert_eq!(cache.tagged_count(&11_u64), 3);
    assert_eq!(cache.invalidate_tag(&11_u64), 3);
    cache.validate();
}

#[test]
fn counters_keep_their_tags_and_are_tagged_when_they_are_made() {
    let cache: Cache<&str, Counter> = Cache::builder()
        .tags(|key: &&str, _: &Counter, tags: &mut Tags| tags.add(&key.len()))
        .build()
        .unwrap();
    cache.increment(&"one", 1).unwrap();
    cache.increment(&"one", 1).unwrap();
    cache.increment(&"three", 1).unwrap();
    assert_eq!(cache.invalidate_tag(&3_usize), 1);
    assert!(!cache.contains_key(&"one") && cache.contains_key(&"three"));
}

#[test]
fn what_leaves_in_other_ways_leaves_its_groups() {
    let (cache, clock) = rig();
    for key in 0..500 {
        cache.insert_with_ttl(key, vec![key % 5], S * (1 + (key % 2) as u32));
    }
    clock.advance(S);
    assert_eq!(cache.tagged_count(&0_u64), 100, "the dead are still linked");
    // They are found over, and counted as such.
    assert_eq!(cache.invalidate_tag(&0_u64), 50);
    let stats = cache.stats();
    assert_eq!((stats.explicit, stats.expired_by_write), (50, 50));
    cache.reap(S);
    assert_eq!(cache.tagged_count(&1_u64), 50);
    cache.retain(|key, _| key % 5 != 1);
    assert_eq!(cache.tagged_count(&1_u64), 0);
    assert!(cache.drain().count() > 0);
    assert_eq!(cache.tagged_count(&2_u64), 0);
    cache.validate();
}

#[test]
fn evicted_entries_leave_their_groups_under_every_policy() {
    for policy in [
        Policy::segmented_clock(),
        Policy::clock(),
        Policy::fifo(),
        Policy::nearest_deadline(),
        Policy::random(),
    ] {
        let cache = tagged().max_entries(200).policy(policy).build().unwrap();
        for key in 0..2_000 {
            cache.insert(key, vec![key % 3]);
        }
        let counts = (0..3_u64).map(|tag| cache.tagged_count(&tag)).sum::<u64>();
        assert_eq!(counts, 200);
        cache.validate();
        let removed = (0..3_u64)
            .map(|tag| cache.invalidate_tag(&tag))
            .sum::<u64>();
        assert_eq!((removed, cache.entry_count()), (200, 0));
    }
}

#[test]
fn each_removal_is_reported_once_as_explicit_and_may_write() {
    let told: Arc<Mutex<Vec<(u64, RemovalCause)>>> = Arc::default();
    let again: Arc<Mutex<Option<Cache<u64, Value>>>> = Arc::default();
    let (events, handle) = (told.clone(), again.clone());
    let cache = tagged()
        .on_removal(move |&key, _, cause| {
            events.lock().unwrap().push((key, cause));
            if let Some(cache) = &*handle.lock().unwrap() {
                cache.insert(key + 1_000, vec![7]);
            }
        })
        .build()
        .unwrap();
    for key in 0..300 {
        cache.insert(key, vec![7]);
    }
    *again.lock().unwrap() = Some(cache.clone());
    // What the listener stores meanwhile stays.
    assert_eq!(cache.invalidate_tag(&7_u64), 300);
    *again.lock().unwrap() = None;
    let mut told = told.lock().unwrap();
    told.sort_unstable_by_key(|told| told.0);
    assert!(told.iter().map(|told| told.0).eq(0..300));
    assert!(told.iter().all(|told| told.1 == RemovalCause::Explicit));
    assert_eq!(cache.tagged_count(&7_u64), 300);
    cache.validate();
}

#[test]
fn a_load_in_progress_is_not_stored() {
    let (cache, _clock) = rig();
    let value = cache.get_or_insert_with(1, || {
        assert_eq!(cache.invalidate_tag(&7_u64), 0);
        vec![7]
    });
    assert_eq!(value, [7]);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_panic_of_the_tagger_changes_nothing() {
    let cache: Cache<u64, u64> = Cache::builder()
        .tags(|_: &u64, &value: &u64, tags: &mut Tags| {
            tags.add(&value);
            if value == 13 {
                std::panic::resume_unwind(Box::new(()));
            }
        })
        .build()
        .unwrap();
    cache.insert(1, 1);
    let calls: [&dyn Fn(); 4] = [
        &|| cache.insert(1, 13),
        &|| assert!(cache.insert_if_absent(2, 13)),
        &|| assert_eq!(cache.compute(1, |_| Op::Put(13)), Computed::Replaced),
        &|| assert_eq!(cache.get_or_insert_with(3, || 13), 13),
    ];
    for call in calls {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }
    assert_eq!(cache.iter().collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(cache.tagged_count(&13_u64), 0);
    assert_eq!(
        cache.get_or_insert_with(3, || 3),
        3,
        "nobody loads it any more"
    );
    cache.validate();
}

#[test]
fn random_operations_agree_with_a_plain_map() {
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (cache, clock) = rig();
        let mut model: BTreeMap<u64, (Value, u64)> = BTreeMap::new();
        let mut now = 0;
        for _ in 0..2_000 {
            let key = random.random_range(0..300);
            match random.random_range(0..20) {
                0..12 => {
                    let tags = 0..random.random_range(0..4);
                    let value: Value = tags.map(|_| random.random_range(0..6)).collect();
                    let seconds = random.random_range(1..20);
                    cache.insert_with_ttl(key, value.clone(), S * seconds);
                    model.insert(key, (value, now + u64::from(seconds)));
                }
                12..15 => {
                    let removed = cache.invalidate(&key);
                    assert_eq!(removed, model.remove(&key).is_some());
                }
                15 => {
                    clock.advance(S);
                    now += 1;
                    model.retain(|_, (_, end)| *end > now);
                }
                16 => drop(cache.reap_at_most(20)),
                17 => {
                    let tag = random.random_range(0..6);
                    let before = model.len();
                    model.retain(|_, (value, _)| !value.contains(&tag));
                    assert_eq!(cache.invalidate_tag(&tag), (before - model.len()) as u64);
                }
                _ => {
                    let hundred = key / 100;
                    if random.random_bool(0.2) {
                        let before = model.len();
                        model.retain(|key, _| key / 100 != hundred);
                        let removed = cache.invalidate_tag(&("hundred", hundred));
                        assert_eq!(removed, (before - model.len()) as u64);
                    }
                }
            }
        }
        let entries: BTreeMap<u64, Value> = cache.iter().collect();
        let expected = model.into_iter().map(|(key, (value, _))| (key, value));
        assert!(entries.into_iter().eq(expected), "seed {seed}");
        cache.validate();
    }
}

/// Writers store versions; what was stored before an invalidation began is not seen after it.
#[test]
fn nothing_older_survives_an_invalidation_beside_writers() {
    const WRITERS: u64 = 3;
    let cache: Cache<u64, (u64, u64)> = Cache::builder()
        .tags(|_: &u64, value: &(u64, u64), tags: &mut Tags| tags.add(&value.0))
        .reaper(Reaper::dedicated(1).interval(Duration::from_millis(1)))
        .build()
        .unwrap();
    // What each writer has finished, and what has been invalidated.
    let finished: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (cache, finished, done) = (&cache, &finished, &done);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(writer);
                for version in 1..=30_000 {
                    let key = WRITERS * random.random_range(0..50) + writer;
                    let lifetime = Duration::from_micros(random.random_range(1..2_000));
                    cache.insert_with_ttl(key, (random.random_range(0..4), version), lifetime);
                    finished[writer as usize].store(version, Ordering::SeqCst);
                }
                done.store(true, Ordering::SeqCst);
            });
        }
        let mut tag = 0;
        while !done.load(Ordering::SeqCst) {
            tag = (tag + 1) % 4;
            let before: Vec<u64> = finished.iter().map(|v| v.load(Ordering::SeqCst)).collect();
            cache.invalidate_tag(&tag);
            for (key, (of, version)) in &cache {
                assert!(
                    of != tag || version > before[(key % WRITERS) as usize],
                    "version {version} of key {key} has survived"
                );
            }
        }
    });
    cache.validate();
    for tag in 0..4_u64 {
        cache.invalidate_tag(&tag);
    }
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn a_wave_of_tags_leaves_no_memory_behind() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .time_to_live(S)
        .tags(|key: &u64, _: &u64, tags: &mut Tags| tags.add(key))
        .build()
        .unwrap();
    let empty = cache.memory_usage().total();
    cache.insert_many((0..200_000).map(|n| (n, n)));
    let full = cache.memory_usage().total();
    clock.advance(S);
    while !cache.reap(S).finished || cache.stats().limbo > 0 {}
    cache.reap(S);
    let after = cache.memory_usage().total() - empty;
    assert!(
        full > 200_000 * 90 && after < full / 10,
        "{empty} {full} {after}"
    );
}
