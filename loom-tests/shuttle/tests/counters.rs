//! Counters: every increment that returned is in exactly one final value.
//!
//! Final is the number that a removal reports, and for a counter that is still there at the end
//! the one that it stands at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{Builder, Cache, Computed, Counter, Lifetime, ManualClock, Op, RemovalCause};
use ebbtide_shuttle_tests::{Fixed, Random, UNIT, check, must_fail, settle};
use shuttle::thread;

type Counters = Cache<u8, Counter, Fixed>;

/// Per key: the sum of what has been counted, and of what has been reported.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<HashMap<u8, (i64, i64)>>>);

impl Sums {
    fn counted(&self, key: u8, number: i64) {
        self.0.lock().unwrap().entry(key).or_default().0 += number;
    }

    fn reported(&self, key: u8, number: i64) {
        self.0.lock().unwrap().entry(key).or_default().1 += number;
    }
}

fn build(sums: &Sums, clock: &ManualClock, most: Option<u64>) -> Counters {
    let heard = sums.clone();
    let mut builder: Builder<u8, Counter> = Cache::builder().shards(1).clock(clock.clone());
    if let Some(most) = most {
        builder = builder.max_entries(most);
    }
    let listen = move |key: &u8, value: &Counter, _: RemovalCause| {
        heard.reported(*key, value.get());
    };
    builder
        .on_removal(listen)
        .hasher(Fixed::default())
        .build()
        .expect("valid settings")
}

/// One operation; counts what it has counted.
fn step(cache: &Counters, sums: &Sums, key: u8, kind: usize) {
    let ttl = Duration::from_nanos(UNIT);
    match kind {
        0..=3 => {
            cache.increment(&key, 1).expect("far from the end");
            sums.counted(key, 1);
        }
        4 | 5 => {
            cache
                .increment_with_ttl(&key, 1, ttl)
                .expect("far from the end");
            sums.counted(key, 1);
        }
        6 => drop(cache.remove(&key)),
        7 => {
            cache.insert(key, Counter::new(10));
            sums.counted(key, 10);
        }
        8 => drop(cache.expire(&key, Lifetime::For(ttl))),
        9 => drop(cache.expire(&key, Duration::ZERO)),
        10 => drop(cache.reap_at_most(u64::MAX)),
        11 => {
            // A read, then an exchange: counts only if nobody came between.
            if let Some(seen) = cache.get(&key)
                && cache
                    .compare_and_swap(key, &seen, Counter::new(seen.get() + 1))
                    .is_ok()
            {
                sums.counted(key, 1);
            }
        }
        12 => {
            let computed = cache.compute(key, |old| {
                Op::Put(Counter::new(old.map_or(0, Counter::get) + 1))
            });
            assert!(matches!(computed, Computed::Inserted | Computed::Replaced));
            sums.counted(key, 1);
        }
        13 => {
            // The old number is reported, a new one begins.
            cache.compute(key, |_| Op::PutWithTtl(Counter::new(1), Lifetime::For(ttl)));
            sums.counted(key, 1);
        }
        14 => cache.retain(|_, value| value.get() % 2 == 0),
        15 => drop(cache.remove_if(&key, |value| value.get() % 2 == 1)),
        16 => drop(cache.persist(&key)),
        _ => drop(cache.compute(key, |old| match old {
            Some(number) if number.get() > 1 => Op::Remove,
            _ => Op::Keep,
        })),
    }
}

fn count(keys: u8, most: Option<u64>, operations: usize, kinds: &[usize]) {
    let mut random = Random::of_schedule();
    let (sums, clock) = (Sums::default(), ManualClock::new());
    let cache = build(&sums, &clock, most);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let program: Vec<(u8, usize)> = (0..operations)
                .map(|_| (random.below(usize::from(keys)) as u8, random.one_of(kinds)))
                .collect();
            let (cache, sums) = (cache.clone(), sums.clone());
            thread::spawn(move || {
                for (key, kind) in program {
                    step(&cache, &sums, key, kind);
                }
            })
        })
        .collect();
    for _ in 0..3 {
        clock.advance(Duration::from_nanos(UNIT));
        thread::yield_now();
    }
    for thread in threads {
        thread.join().expect("its panic has failed the schedule");
    }
    cache.validate();
    if let Some(most) = most {
        assert!(cache.entry_count() <= most, "over the bound");
    }
    // What has ended is reported, what has not is still there.
    clock.advance(Duration::from_nanos(100 * UNIT));
    settle(&cache);
    for (key, value) in cache.iter() {
        sums.reported(key, value.get());
    }
    for (key, (counted, reported)) in &*sums.0.lock().unwrap() {
        assert_eq!(
            counted, reported,
            "key {key}: the final values do not hold what was counted"
        );
    }
    let other = cache.clone();
    let thread = thread::spawn(move || drop(other));
    drop(cache);
    thread.join().expect("its panic has failed the schedule");
}

const ALL: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

#[test]
fn increments_against_everything() {
    check("increments_against_everything", 600, || {
        count(1, None, 5, ALL);
    });
}

#[test]
fn increments_against_ends() {
    check("increments_against_ends", 600, || {
        count(1, None, 5, &[0, 1, 2, 3, 4, 5, 6, 9, 10, 15]);
    });
}

#[test]
fn increments_against_eviction() {
    check("increments_against_eviction", 600, || {
        count(3, Some(1), 6, ALL);
    });
}

#[test]
fn an_increment_by_get_and_insert_is_lost() {
    must_fail("an_increment_by_get_and_insert", 1_000, "lost", || {
        let (sums, clock) = (Sums::default(), ManualClock::new());
        let cache = build(&sums, &clock, None);
        cache.insert(1, Counter::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let cache = cache.clone();
                thread::spawn(move || {
                    let seen = cache.get(&1).expect("always there").get();
                    cache.insert(1, Counter::new(seen + 1));
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("its panic has failed the schedule");
        }
        let total = cache.get(&1).expect("always there").get();
        assert_eq!(total, 3, "an increment is lost");
    });
}
