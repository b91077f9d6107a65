//! Faults that bounded caches have had: bounds that are not kept, or not reached, and who has to
//! go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ebbtide::{Cache, Computed, Counter, Lifetime, ManualClock, Op, RemovalCause};

use crate::common::matrix::{Config, Rig, for_each, with_cache};
use crate::common::{Ledger, NS, S, Tracked, ZERO, assert_counts_agree, eventually, tag};

/// A way to store a value; whether the cache took it, as it says.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    store: fn(&Cache<u64, Tracked>, u64, Tracked) -> bool,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn put(cache: &Cache<u64, Tracked>, key: u64, value: Tracked, life: Option<Lifetime>) -> bool {
    let mut value = Some(value);
    let done = cache.compute(key, |_| {
        let value = value.take().expect("asked once");
        match life {
            None => Op::Put(value),
            Some(life) => Op::PutWithTtl(value, life),
        }
    });
    done != Computed::Unchanged
}

/// Every way in for a key that is absent; all but `insert_if_absent` also update one that is not.
fn ways() -> Vec<Way> {
    let way = |name, store| Way { name, store };
    vec![
        way("insert", |cache, key, value| {
            cache.insert(key, value);
            true
        }),
        way("insert_with_ttl", |cache, key, value| {
            cache.insert_with_ttl(key, value, 9 * S);
            true
        }),
        way("try_insert", |cache, key, value| {
            let serial = value.serial();
            match cache.try_insert(key, value) {
                Ok(()) => true,
                Err(refused) => {
                    assert_eq!((refused.key, refused.value.serial()), (key, serial));
                    false
                }
            }
        }),
        way("compute: put", |cache, key, value| {
            put(cache, key, value, None)
        }),
        way("compute: put with ttl", |cache, key, value| {
            put(cache, key, value, Some(Lifetime::For(9 * S)))
        }),
        way("insert_if_absent", |cache, key, value| {
            cache.insert_if_absent(key, value)
        }),
    ]
}

fn config(bound: u64, shards: usize, listener: bool) -> Config {
    Config {
        shards,
        sample: false,
        bound: Some(bound),
        listener,
    }
}

#[test]
fn bounds_of_nothing_one_and_two_are_exact_for_every_way_in() {
    let shapes = [1, 4, 64]
        .into_iter()
        .flat_map(|shards| [0, 1, 2].map(|bound| (bound, shards)));
    let cases = || {
        shapes
            .clone()
            .flat_map(|shape| ways().into_iter().map(move |w| (shape, w)))
    };
    for_each(cases(), |((bound, shards), way)| {
        for listener in [false, true] {
            with_cache(
                [config(bound, shards, listener)],
                |b| b,
                |rig| {
                    for i in 0..40u64 {
                        let took = (way.store)(&rig.cache, i, rig.value(i));
                        // A plain insert does not say, it reports.
                        let says =
                            !way.name.starts_with("insert") || way.name == "insert_if_absent";
                        assert_eq!(took, bound > 0 || !says);
                        assert_eq!(rig.cache.entry_count(), (i + 1).min(bound));
                        assert_eq!(tag(rig.cache.get(&i)), (bound > 0).then_some(i));
                        assert_eq!(rig.cache.live_count(), (i + 1).min(bound));
                        if bound == 0 {
                            let told = rig.events.take();
                            let reported = listener && !says;
                            let event = (i, i as usize, RemovalCause::Evicted);
                            assert_eq!(told, if reported { vec![event] } else { vec![] });
                            rig.cache.reap(S);
                            assert_eq!(rig.ledger.dropped() as u64, i + 1);
                        }
                    }
                },
            );
        }
    });
}

#[test]
fn a_counter_that_does_not_fit_is_counted_and_forgotten() {
    let cache: Cache<u64, Counter> = Cache::builder()
        .max_entries(0)
        .clock(ManualClock::new())
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(cache.increment(&1, 5), Ok(5));
        assert_eq!(cache.increment_with_ttl(&1, 5, S), Ok(5));
    }
    assert_eq!(cache.entry_count(), 0);
    let cache: Cache<u64, Counter> = Cache::builder()
        .max_entries(2)
        .shards(8)
        .clock(ManualClock::new())
        .build()
        .unwrap();
    for key in 0..50 {
        assert_eq!(cache.increment(&key, 1), Ok(1));
        assert_eq!(
            cache.increment(&key, 1),
            Ok(2),
            "the newest is not the one to go"
        );
        assert_eq!(cache.entry_count(), (key + 1).min(2));
    }
    assert_counts_agree(&cache);
}

#[test]
fn all_that_fit_fit_before_the_first_has_to_go_and_never_one_more() {
    for_each(
        [(1, 100_000), (16, 100_000), (256, 20_000)],
        |(shards, keys)| {
            with_cache(
                [config(1_000, shards, false)],
                |b| b.time_to_live(3_600 * S),
                |rig| {
                    for key in 0..keys {
                        rig.cache.insert(key, rig.value(key));
                        assert_eq!(rig.cache.entry_count(), (key + 1).min(1_000));
                        if key % 1_000 == 999 {
                            assert_eq!(rig.cache.stats().evicted, key + 1 - 1_000);
                            assert_eq!(rig.cache.live_count(), 1_000);
                        }
                    }
                },
            );
        },
    );
}

#[test]
fn an_update_at_the_bound_is_what_the_next_read_returns_and_displaces_nobody() {
    let mut ways = ways();
    ways.retain(|way| way.name != "insert_if_absent");
    let cases = || {
        [1, 16]
            .into_iter()
            .flat_map(|s| ways.clone().into_iter().map(move |w| (s, w)))
    };
    for_each(cases(), |(shards, way): (usize, Way)| {
        with_cache(
            [config(64, shards, true)],
            |b| b,
            |rig| {
                for key in 0..64 {
                    rig.cache.insert(key, rig.value(key));
                }
                for round in 1..20 {
                    for key in 0..64 {
                        let new = round * 100 + key;
                        (way.store)(&rig.cache, key, rig.value(new));
                        assert_eq!(tag(rig.cache.get(&key)), Some(new));
                    }
                }
                assert_eq!(rig.cache.live_count(), 64);
                assert_eq!(rig.cache.stats().evicted, 0);
                assert_eq!(rig.events.count(RemovalCause::Replaced), 64 * 19);
            },
        );
    });
}

#[test]
fn writers_who_exceed_the_bound_together_bring_it_back_together() {
    const WRITERS: u64 = 3;
    // Thousands of shards make the search for somebody to evict long, and with it every gap
    // through which an entry could slip.
    let shapes = [(1, 4_096), (2, 4_096), (1, 16), (2, 2), (7, 64), (100, 16)];
    for_each(shapes, |(bound, shards)| {
        for round in 0..20 {
            let (ledger, clock) = (Ledger::new(), ManualClock::new());
            let cache: Cache<u64, Tracked> = Cache::builder()
                .clock(clock.clone())
                .max_entries(bound)
                .shards(shards)
                .build()
                .unwrap();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (cache, ledger, over) = (&cache, &ledger, &over);
                    scope.spawn(move || {
                        for i in 0..60 {
                            let key = (i * 7 + writer * 13) % (2 * bound + 5);
                            match i % 5 {
                                3 => drop(cache.remove(&key)),
                                4 => cache.insert_with_ttl(key, ledger.value(key), NS),
                                _ => cache.insert(key, ledger.value(key)),
                            }
                            if cache.entry_count() > bound + WRITERS {
                                over.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            let held = cache.entry_count();
            assert!(held <= bound, "round {round}: {held} entries");
            assert!(!over.load(Ordering::Relaxed), "more than one each too many");
            assert_counts_agree(&cache);
            // The bound is not a lower one either: as many as it says fit.
            cache.invalidate_all();
            for key in 0..bound {
                cache.insert(key, ledger.value(key));
            }
            assert_eq!(cache.live_count(), bound, "round {round}");
            drop(cache);
            ledger.assert_all_dropped_once();
        }
    });
}

/// Fills a cache of 100 with 50 that live on and 50 that are dead by `late`.
fn half_dead(rig: &Rig, late: std::time::Duration) {
    for key in 0..100 {
        if key % 2 == 0 {
            rig.cache.insert(key, rig.value(key));
        } else {
            rig.cache.insert_with_ttl(key, rig.value(key), 10 * S);
        }
    }
    assert_eq!(rig.cache.entry_count(), 100);
    rig.clock.advance(10 * S + late);
}

#[test]
fn the_dead_go_before_the_living_wherever_they_are() {
    let cases = || {
        [1, 4, 16]
            .into_iter()
            .flat_map(|s| ways().into_iter().map(move |w| (s, w)))
    };
    for_each(cases(), |(shards, way): (usize, Way)| {
        // Late by nothing: the lane unit of the deadline is still passing.
        for late in [ZERO, S] {
            with_cache(
                [config(100, shards, true)],
                |b| b,
                |rig| {
                    half_dead(rig, late);
                    for key in 1_000..1_050 {
                        (way.store)(&rig.cache, key, rig.value(key));
                        assert_eq!(rig.cache.entry_count(), 100);
                    }
                    assert_eq!(rig.events.count(RemovalCause::Evicted), 0);
                    assert_eq!(rig.events.count(RemovalCause::Expired), 50);
                    assert_eq!(rig.cache.live_count(), 100);
                    // Now nobody is dead any more.
                    (way.store)(&rig.cache, 2_000, rig.value(2_000));
                    assert_eq!(rig.events.count(RemovalCause::Evicted), 1);
                    assert_eq!(rig.cache.stats().live_evicted_while_dead, 0);
                },
            );
        }
    });
}

#[test]
fn one_dead_entry_is_found_among_the_renewed() {
    // Renewed by reads, which leave the lane as it is: looked at in vain before the dead one.
    with_cache(
        [config(10, 1, true)],
        |b| b.time_to_idle(16 * S),
        |rig| {
            for key in 0..10 {
                rig.cache.insert(key, rig.value(key));
            }
            rig.clock.advance(10 * S);
            for key in 0..9 {
                assert!(rig.cache.get(&key).is_some());
            }
            rig.clock.advance(10 * S);
            rig.cache.insert(100, rig.value(100));
            let told = rig.events.all();
            assert_eq!(told, [(9, 9, RemovalCause::Expired)]);
            assert_eq!(rig.cache.live_count(), 10);
        },
    );
}

#[test]
fn an_eviction_is_not_counted_as_unjust_when_nothing_is_dead_any_more() {
    type Leave = fn(&Rig);
    // Ways in which the last timed entry leaves without a sweep that finds it due.
    let ways: [(&str, Leave); 4] = [
        ("evicted", |rig| rig.cache.insert(2, rig.value(2))),
        ("removed", |rig| assert!(rig.cache.invalidate(&1))),
        ("replaced", |rig| rig.cache.insert(1, rig.value(2))),
        ("read when it was over", |rig| {
            rig.clock.advance(20 * S);
            assert!(rig.cache.get(&1).is_none());
        }),
    ];
    let cases = || {
        let shapes = [(1, false), (1, true), (4, false), (4, true)];
        shapes
            .into_iter()
            .flat_map(|shape| ways.map(|w| (shape, w)))
    };
    for_each(cases(), |((shards, sample), (_, leave))| {
        let config = Config {
            sample,
            ..config(1, shards, false)
        };
        with_cache(
            [config],
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(1, rig.value(1), 10 * S);
                leave(rig);
                // Reaping drops it and gives the memory back.
                eventually("it is dropped", || {
                    rig.cache.reap(S);
                    rig.ledger.dropped() == 1
                });
                rig.clock.advance(20 * S);
                for key in 3..10 {
                    rig.cache.insert(key, rig.value(key));
                }
                let stats = rig.cache.stats();
                assert!(stats.evicted >= 6, "{stats:?}");
                assert_eq!(stats.live_evicted_while_dead, 0, "{stats:?}");
            },
        );
    });
}

#[test]
fn what_is_used_outlives_what_is_not() {
    with_cache(
        [config(100, 1, false), config(100, 4, false)],
        |b| b,
        |rig| {
            for key in 0..100 {
                rig.cache.insert(key, rig.value(key));
            }
            for key in 1_000..2_000u64 {
                for used in 0..10 {
                    assert!(rig.cache.get(&used).is_some(), "{used} was in use");
                }
                rig.cache.insert(key, rig.value(key));
            }
        },
    );
}

#[test]
fn steady_expiry_at_full_capacity_is_a_plateau() {
    // One new entry a millisecond, each for a second, in caches of 500 and without a bound.
    for bound in [Some(500), None] {
        let shape = Config {
            shards: 4,
            sample: false,
            bound,
            listener: true,
        };
        with_cache(
            [shape],
            |b| b.time_to_live(S),
            |rig| {
                let mut used = [0; 4];
                for key in 0..40_000u64 {
                    rig.clock.advance(S / 1_000);
                    rig.cache.insert(key, rig.value(key));
                    if key % 50 == 0 {
                        rig.cache.reap(S);
                        let stats = rig.cache.stats();
                        // (A lane unit and 50 ms may be over without having been reaped yet.)
                        assert!(stats.entries <= bound.unwrap_or(1_200), "{stats:?}");
                    }
                    if key % 10_000 == 9_999 {
                        // Whoever else is pinned in this process holds things up for a while.
                        eventually("what has left is gone", || {
                            rig.cache.reap(S);
                            rig.cache.stats().limbo == 0
                        });
                        used[key as usize / 10_000] = rig.cache.memory_usage().total();
                    }
                }
                // (The highest slot in use makes some difference; ten thousand that stay would make
                // ten.)
                let [_, second, third, last] = used;
                assert!(last.max(third) <= 3 * second, "it grows: {used:?}");
            },
        );
    }
}

#[test]
fn one_dead_entry_is_found_behind_thousands_of_stale_minima() {
    // Overwritten without a lifetime: their lanes are clear, the minima above them are too low.
    with_cache(
        [config(10_000, 1, true)],
        |b| b,
        |rig| {
            for key in 0..10_000 {
                rig.cache.insert_with_ttl(key, rig.value(key), S);
            }
            for key in 0..9_999 {
                rig.cache.insert(key, rig.value(key));
            }
            rig.clock.advance(10 * S);
            rig.cache.insert(20_000, rig.value(20_000));
            let stats = rig.cache.stats();
            assert_eq!((stats.evicted, stats.expired_by_write), (0, 1), "{stats:?}");
            assert_eq!(stats.live_evicted_while_dead, 0);
        },
    );
}
