//! Bounds by weight, bounds that change, and the policies: sums that hold at every step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use ebbtide::{
    BuildError, Builder, Cache, Computed, Counter, CounterError, ManualClock, NotBounded, Op,
    Policy, RefusedReason, RemovalCause,
};

use crate::common::S;

/// The value is the weight.
fn weighed(most: u64) -> Builder<u64, u64> {
    Cache::builder()
        .max_weight(most, |_, weight| *weight)
        .clock(ManualClock::new())
}

/// Everything that is linked, by looking.
fn members(cache: &Cache<u64, u64>) -> HashMap<u64, u64> {
    cache.iter().collect()
}

#[track_caller]
fn check(cache: &Cache<u64, u64>, most: u64) {
    cache.validate();
    let members = members(cache);
    assert_eq!(members.len() as u64, cache.entry_count());
    assert_eq!(members.values().sum::<u64>(), cache.weight());
    assert!(cache.weight() <= most, "{} of {most}", cache.weight());
}

fn policies() -> [Policy; 5] {
    [
        Policy::segmented_clock(),
        Policy::clock(),
        Policy::fifo(),
        Policy::nearest_deadline(),
        Policy::random(),
    ]
}

#[test]
fn one_entry_as_heavy_as_the_bound_fits_and_a_heavier_one_is_refused() {
    for shards in [1, 16] {
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let cache = weighed(100)
            .shards(shards)
            .on_removal(move |key, weight, cause| told.lock().unwrap().push((*key, *weight, cause)))
            .build()
            .unwrap();
        for key in 0..10 {
            cache.insert(key, 10);
            check(&cache, 100);
        }
        assert_eq!((cache.entry_count(), cache.weight()), (10, 100));
        cache.insert(50, 100);
        check(&cache, 100);
        assert_eq!(members(&cache), HashMap::from([(50, 100)]));
        // Refused: it comes back, and what was there stays.
        let refused = cache.try_insert(50, 101).unwrap_err();
        assert_eq!((refused.key, refused.value), (50, 101));
        assert_eq!(refused.reason, RefusedReason::TooHeavy);
        assert_eq!(cache.get(&50), Some(100));
        assert_eq!(cache.compute(50, |_| Op::Put(101)), Computed::Unchanged);
        assert_eq!(cache.compare_and_swap(50, &100, 101), Err(101));
        assert!(!cache.insert_if_absent(51, 101));
        assert_eq!(members(&cache), HashMap::from([(50, 100)]));
        // An insert that cannot say so leaves nothing that is out of date.
        events.lock().unwrap().clear();
        cache.insert(50, 101);
        assert_eq!(cache.get(&50), None);
        assert_eq!(
            *events.lock().unwrap(),
            [
                (50, 100, RemovalCause::Replaced),
                (50, 101, RemovalCause::Evicted)
            ]
        );
        check(&cache, 100);
    }
}

#[test]
fn what_weighs_nothing_is_never_evicted_for_weight() {
    for policy in policies() {
        let cache = weighed(10).shards(4).policy(policy).build().unwrap();
        for key in 0..1_000 {
            cache.insert(key, 0);
        }
        for key in 1_000..2_000 {
            cache.insert(key, 1 + key % 10);
            check(&cache, 10);
        }
        let light = members(&cache).values().filter(|w| **w == 0).count();
        assert_eq!(light, 1_000);
        // Under a bound on entries they count like all others.
        let both = weighed(10).max_entries(100).shards(4).build().unwrap();
        for key in 0..1_000 {
            both.insert(key, key % 2);
            check(&both, 10);
            assert!(both.entry_count() <= 100);
        }
        // (Who goes for an entry's room may have weighed something.)
        assert_eq!(both.entry_count(), 100);
        assert!((5..=10).contains(&both.weight()), "{}", both.weight());
    }
}

#[test]
fn replacements_change_the_sum_by_the_difference() {
    for policy in policies() {
        let cache = weighed(100).shards(4).policy(policy).build().unwrap();
        let mut weight = 1;
        for round in 0..3_000_u64 {
            // Somewhere between nothing and a third of the bound.
            weight = (weight * 31 + round) % 34;
            let key = (round * 7) % 23;
            match round % 4 {
                0 => cache.insert(key, weight),
                1 => assert_ne!(cache.compute(key, |_| Op::Put(weight)), Computed::Unchanged),
                2 => cache.insert_with_ttl(key, weight, 5 * S),
                _ => {
                    if let Some(old) = cache.get(&key) {
                        assert_eq!(cache.compare_and_swap(key, &old, weight), Ok(()));
                    }
                }
            }
            if round % 4 < 3 {
                assert_eq!(cache.get(&key), Some(weight), "what was written last");
            }
            check(&cache, 100);
        }
        cache.invalidate_all();
        assert_eq!((cache.weight(), cache.entry_count()), (0, 0));
    }
}

#[test]
fn a_writer_evicts_no_more_than_it_brings() {
    let cache = weighed(1_000).shards(4).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, 1);
    }
    for (key, weight) in (2_000..2_100).zip([1, 2, 10, 40].into_iter().cycle()) {
        let before = cache.weight();
        cache.insert(key, weight);
        let freed = before + weight - cache.weight();
        // Up to 40 heavy ones may be among those that go.
        assert!(freed < weight + 40, "{freed} for {weight}");
        check(&cache, 1_000);
    }
}

#[test]
fn weights_may_be_as_large_as_their_type() {
    let half = u64::MAX / 2;
    let cache = weighed(u64::MAX).shards(4).build().unwrap();
    for (key, weight) in [
        (1, half),
        (2, half),
        (3, half),
        (4, u64::MAX),
        (5, 1),
        (6, half),
    ] {
        cache.insert(key, weight);
        assert_eq!(cache.get(&key), Some(weight));
        check(&cache, u64::MAX);
    }
    assert_eq!(cache.weight(), half + 1);
    // (The entry may itself be what makes room.)
    assert_ne!(cache.compute(5, |_| Op::Put(u64::MAX)), Computed::Unchanged);
    assert_eq!(members(&cache), HashMap::from([(5, u64::MAX)]));
    check(&cache, u64::MAX);
}

#[test]
fn bounds_can_be_changed_to_nothing_and_back() {
    for policy in policies() {
        for shards in [1, 8] {
            let builder = weighed(1_000).max_entries(100).shards(shards);
            let cache = builder.policy(policy.clone()).build().unwrap();
            let fill = || (0..200).for_each(|key| cache.insert(key, 10));
            fill();
            assert_eq!((cache.entry_count(), cache.weight()), (100, 1_000));
            for most in [50, 1, 0, 2, 100] {
                cache.set_max_entries(most).unwrap();
                assert!(cache.entry_count() <= most);
                cache.validate();
                fill();
                assert_eq!(cache.entry_count(), most);
                check(&cache, 1_000);
            }
            for most in [500, 9, 0, 20, 1_000] {
                cache.set_max_weight(most).unwrap();
                assert!(cache.weight() <= most);
                cache.validate();
                fill();
                assert_eq!(cache.weight(), most / 10 * 10);
                check(&cache, most);
            }
        }
    }
    let unbounded: Cache<u64, u64> = Cache::unbounded();
    assert_eq!(unbounded.set_max_entries(5), Err(NotBounded));
    assert_eq!(unbounded.set_max_weight(5), Err(NotBounded));
    assert_eq!(Cache::<u64, u64>::new(5).set_max_weight(5), Err(NotBounded));
}

#[test]
fn a_full_cache_that_does_not_evict_says_so() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(10)
        .max_weight(100, |_, weight| *weight)
        .policy(Policy::no_eviction())
        .clock(clock.clone())
        .shards(4)
        .build()
        .unwrap();
    for key in 0..10 {
        assert!(cache.try_insert(key, 5).is_ok());
    }
    let refused = cache.try_insert(10, 5).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Full);
    assert_eq!((refused.key, refused.value), (10, 5));
    assert!(!cache.insert_if_absent(10, 5));
    assert_eq!(cache.compute(10, |_| Op::Put(5)), Computed::Unchanged);
    // What is there can be replaced, as far as the weight allows.
    assert!(cache.try_insert(3, 55).is_ok());
    assert_eq!(cache.weight(), 100);
    assert_eq!(
        cache.try_insert(4, 6).unwrap_err().reason,
        RefusedReason::Full
    );
    assert_eq!(cache.get(&4), Some(5), "the old value stays");
    assert_eq!(cache.compute(4, |_| Op::Put(6)), Computed::Unchanged);
    assert_eq!(cache.compare_and_swap(4, &5, 6), Err(6));
    assert!(cache.try_insert(4, 4).is_ok());
    // An insert that cannot say so leaves nothing that is out of date.
    cache.insert(4, 90);
    assert_eq!((cache.get(&4), cache.entry_count()), (None, 9));
    // What is over makes room, and nothing else does.
    assert!(cache.expire(&5, S));
    clock.advance(S);
    assert!(cache.try_insert(11, 1).is_ok());
    assert!(cache.try_insert(12, 1).is_ok());
    assert!(cache.try_insert(13, 1).is_err());
    check(&cache, 100);
    assert_eq!(cache.stats().evicted, 0);
    // Fewer than there are: nothing new until enough has left.
    cache.set_max_entries(8).unwrap();
    assert_eq!(cache.entry_count(), 10);
    cache.invalidate(&0);
    cache.invalidate(&1);
    assert!(cache.try_insert(20, 1).is_err());
    cache.invalidate(&2);
    assert!(cache.try_insert(20, 1).is_ok());
    let counters: Cache<u64, Counter> = Cache::builder()
        .max_entries(1)
        .policy(Policy::no_eviction())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    assert_eq!(counters.increment(&1, 1), Ok(1));
    assert_eq!(counters.increment(&2, 1), Err(CounterError::Full));
    assert_eq!(counters.increment(&1, 1), Ok(2));
}

#[test]
fn the_nearest_deadline_goes_first_and_none_goes_last() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(10)
        .policy(Policy::nearest_deadline())
        .clock(ManualClock::new())
        .shards(1)
        .build()
        .unwrap();
    for key in 0..10 {
        if key % 2 == 0 {
            cache.insert(key, key);
        } else {
            cache.insert_with_ttl(key, key, (100 - key as u32) * S);
        }
    }
    for (i, gone) in [9, 7, 5, 3, 1].into_iter().enumerate() {
        cache.insert(100 + i as u64, 0);
        assert!(!cache.contains_key(&gone), "{gone}");
    }
    assert_eq!(
        cache
            .iter()
            .filter(|(key, _)| key % 2 == 0 && *key < 10)
            .count(),
        5
    );
}

#[test]
fn a_policy_that_cannot_be_is_an_error() {
    for share in [0.0, 1.0, -1.0, f64::NAN] {
        let built = Cache::<u64, u64>::builder()
            .max_entries(10)
            .policy(Policy::segmented_clock().cold_share(share))
            .build();
        let error = built.map(drop).unwrap_err();
        assert_eq!(error, BuildError::ColdShareOutOfRange(share.to_string()));
        assert!(error.to_string().contains(&share.to_string()));
    }
}

#[test]
fn a_weigher_that_panics_changes_nothing() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_weight(100, |_, weight| {
            assert_ne!(*weight, 13, "on purpose");
            *weight
        })
        .clock(ManualClock::new())
        .build()
        .unwrap();
    cache.insert(1, 10);
    let writes: [&dyn Fn(); 4] = [
        &|| cache.insert(1, 13),
        &|| drop(cache.try_insert(2, 13)),
        &|| assert!(cache.insert_if_absent(2, 13)),
        &|| assert_eq!(cache.compute(1, |_| Op::Put(13)), Computed::Unchanged),
    ];
    for write in writes {
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
        assert!(panics.is_err());
        assert_eq!(members(&cache), HashMap::from([(1, 10)]));
        check(&cache, 100);
    }
}

#[test]
fn writers_keep_sums_and_bounds_whatever_they_do_together() {
    const MOST: u64 = 300;
    const WRITERS: u64 = 3;
    for policy in policies() {
        for (shards, listens) in [(1, true), (8, false), (64, true)] {
            // What is told is what has left: the weights of all events and of what stays add up.
            let told = Arc::new(AtomicU64::new(0));
            let mut builder = weighed(MOST).max_entries(60).shards(shards);
            builder = builder.policy(policy.clone());
            if listens {
                let told = told.clone();
                builder = builder.on_removal(move |_, weight: &u64, _| {
                    told.fetch_add(*weight, Ordering::Relaxed);
                });
            }
            let cache = builder.build().unwrap();
            let brought = AtomicU64::new(0);
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (cache, brought, over) = (&cache, &brought, &over);
                    scope.spawn(move || {
                        for i in 0..1_500_u64 {
                            let key = (i * 7 + writer * 13) % 101;
                            let weight = (i * 5 + writer) % 30;
                            let bring = |by| brought.fetch_add(by, Ordering::Relaxed);
                            match i % 6 {
                                0 => {
                                    cache.remove(&key);
                                }
                                1 => {
                                    if cache.insert_if_absent(key, weight) {
                                        bring(weight);
                                    }
                                }
                                2 => {
                                    if cache.compute(key, |_| Op::Put(weight))
                                        != Computed::Unchanged
                                    {
                                        bring(weight);
                                    }
                                }
                                3 => {
                                    cache.expire(&key, S * (i % 3) as u32);
                                    cache.touch(&key);
                                }
                                4 => {
                                    cache.insert_with_ttl(key, weight, S);
                                    bring(weight);
                                }
                                _ => {
                                    cache.insert(key, weight);
                                    bring(weight);
                                }
                            }
                            if cache.weight() > MOST + WRITERS * 29
                                || cache.entry_count() > 60 + WRITERS
                            {
                                over.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                }
                // Somebody who changes the bounds meanwhile.
                for most in [200, 0, 1, MOST, 50, MOST] {
                    cache.set_max_weight(most).unwrap();
                    thread::yield_now();
                }
            });
            assert!(!over.load(Ordering::Relaxed), "more than each brings");
            check(&cache, MOST);
            if listens {
                cache.invalidate_all();
                let told = told.load(Ordering::Relaxed);
                assert_eq!(told, brought.load(Ordering::Relaxed));
                assert_eq!(cache.weight(), 0);
            }
        }
    }
}

#[test]
fn a_counter_that_is_evicted_tells_its_final_value() {
    const EACH: i64 = 3_000;
    for (shards, bound) in [(1, 1), (4, 3), (16, 70)] {
        let told = Arc::new(AtomicI64::new(0));
        let sum = told.clone();
        let cache: Cache<u64, Counter> = Cache::builder()
            .max_entries(bound)
            .shards(shards)
            .on_removal(move |_, counter: &Counter, _| {
                sum.fetch_add(counter.get(), Ordering::Relaxed);
            })
            .clock(ManualClock::new())
            .build()
            .unwrap();
        thread::scope(|scope| {
            for adder in 0..2_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let key = (i as u64 * 3 + adder) % (bound + 2);
                        cache.increment(&key, 1).unwrap();
                    }
                });
            }
        });
        let held: i64 = cache.iter().map(|(_, counter)| counter.get()).sum();
        assert_eq!(told.load(Ordering::Relaxed) + held, 2 * EACH);
        assert!(cache.entry_count() <= bound);
        cache.validate();
    }
}

#[test]
fn nobody_pays_for_a_backlog_of_dead_entries_without_weight() {
    let clock = ManualClock::new();
    let builder = Cache::builder().max_weight(100, |_, weight| *weight);
    let cache: Cache<u64, u64> = builder.clock(clock.clone()).shards(4).build().unwrap();
    for key in 0..10_000 {
        cache.insert_with_ttl(key, 0, S);
    }
    for key in 20_000..20_010 {
        cache.insert(key, 10);
    }
    clock.advance(10 * S);
    let before = cache.stats().expired_by_write;
    cache.insert(30_000, 10);
    let paid = cache.stats().expired_by_write - before;
    assert!(paid <= 16, "one insert took out {paid}");
    cache.validate();
}

#[test]
fn a_cache_that_does_not_evict_is_not_full_while_an_entry_is_over() {
    let full = |most: u64, clock: &ManualClock| -> Builder<u64, u64> {
        let builder = Cache::builder().policy(Policy::no_eviction());
        builder.max_entries(most).shards(1).clock(clock.clone())
    };
    // One that is over among many that were renewed, which the lane does not know.
    let clock = ManualClock::new();
    let cache = full(200, &clock).time_to_idle(10 * S).build().unwrap();
    for key in 0..200 {
        cache.try_insert(key, key).unwrap();
    }
    clock.advance(5 * S);
    for key in 0..199 {
        assert_eq!(cache.get(&key), Some(key));
    }
    clock.advance(7 * S);
    assert_eq!(cache.live_count(), 199);
    assert!(cache.try_insert(1_000, 1).is_ok());
    // One that is over just after somebody has looked in vain.
    let clock = ManualClock::new();
    let cache = full(1, &clock).build().unwrap();
    cache.insert_with_ttl(1, 1, S / 2_000);
    clock.advance(S / 2_500);
    let refused = cache.try_insert(2, 2).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Full);
    clock.advance(S / 5_000);
    assert!(cache.try_insert(2, 2).is_ok());
}

#[test]
fn the_nearest_deadline_is_what_reads_have_made_of_it() {
    let mut right = 0;
    for _ in 0..100 {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .max_entries(8)
            .policy(Policy::nearest_deadline())
            .time_to_idle(100 * S)
            .clock(clock.clone())
            .build()
            .unwrap();
        for key in 0..8 {
            cache.insert(key, key);
        }
        clock.advance(50 * S);
        for key in 0..7 {
            assert!(cache.get(&key).is_some());
        }
        cache.insert(100, 100);
        right += usize::from(!cache.contains_key(&7));
    }
    assert_eq!(right, 100);
}

#[test]
fn among_equal_deadlines_the_old_do_not_stay_for_ever() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(1_000)
        .shards(1)
        .policy(Policy::nearest_deadline())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    for key in 0..11_000 {
        cache.insert(key, key);
    }
    let old = (0..1_000).filter(|key| cache.contains_key(key)).count();
    // Each has survived ten thousand draws of one in a thousand.
    assert!(old < 30, "{old} of the first thousand are left");
}

#[test]
fn what_is_refused_is_counted() {
    let cache = weighed(10).build().unwrap();
    cache.insert(1, 11);
    cache.insert_with_ttl(1, 12, S);
    assert!(cache.try_insert(1, 13).is_err());
    assert_eq!(cache.stats().refused, 2);
    assert_eq!(cache.stats().evicted, 0);
}
