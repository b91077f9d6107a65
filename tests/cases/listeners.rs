//! Listeners that are slow, that call the cache, that call another cache: who hears of what, when,
//! and that nothing waits for them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use ebbtide::{Cache, Lifetime, ManualClock, Op, Reaper, RemovalCause};

use crate::common::matrix::{Config, Rig, for_each, with_cache};
use crate::common::pause::Gate;
use crate::common::{
    Events, Ledger, S, Tracked, ZERO, assert_counts_agree, eventually, promptly, tag,
};

const KEY: u64 = 7;

#[test]
fn each_way_out_has_its_cause() {
    use RemovalCause::{Evicted, Expired, Explicit, Replaced};
    type Way = fn(&Rig);
    // The cause for a live entry, and for one whose deadline has passed.
    let ways: [(&str, Option<RemovalCause>, Option<RemovalCause>, Way); 16] = [
        ("remove", Some(Explicit), Some(Expired), |rig| {
            drop(rig.cache.remove(&KEY));
        }),
        ("remove_with", Some(Explicit), Some(Expired), |rig| {
            rig.cache.remove_with(&KEY, |_| ());
        }),
        ("invalidate", Some(Explicit), Some(Expired), |rig| {
            rig.cache.invalidate(&KEY);
        }),
        ("invalidate_all", Some(Explicit), Some(Expired), |rig| {
            rig.cache.invalidate_all();
        }),
        ("drain", Some(Explicit), Some(Expired), |rig| {
            rig.cache.drain().for_each(drop);
        }),
        ("drain dropped", Some(Explicit), Some(Expired), |rig| {
            drop(rig.cache.drain());
        }),
        ("expire: zero", Some(Explicit), Some(Expired), |rig| {
            rig.cache.expire(&KEY, ZERO);
        }),
        (
            "insert_with_ttl: zero",
            Some(Explicit),
            Some(Expired),
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(2), ZERO);
            },
        ),
        ("compute: remove", Some(Explicit), None, |rig| {
            rig.cache.compute(KEY, |_| Op::Remove);
        }),
        ("compute: put with zero", Some(Explicit), None, |rig| {
            let zero = Lifetime::For(Duration::ZERO);
            rig.cache
                .compute(KEY, |_| Op::PutWithTtl(rig.value(2), zero));
        }),
        ("remove_if", Some(Explicit), None, |rig| {
            rig.cache.remove_if(&KEY, |_| true);
        }),
        ("insert", Some(Replaced), Some(Expired), |rig| {
            rig.cache.insert(KEY, rig.value(2));
        }),
        ("compute: put", Some(Replaced), Some(Expired), |rig| {
            rig.cache.compute(KEY, |_| Op::Put(rig.value(2)));
        }),
        ("insert_if_absent", None, Some(Expired), |rig| {
            rig.cache.insert_if_absent(KEY, rig.value(2));
        }),
        ("insert another", Some(Evicted), Some(Expired), |rig| {
            rig.cache.insert(KEY + 1, rig.value(2));
        }),
        ("reap", None, Some(Expired), |rig| {
            rig.cache.reap(S);
        }),
    ];
    let config = Config {
        shards: 1,
        sample: false,
        bound: Some(1),
        listener: true,
    };
    for_each(ways, |(_, alive, due, way)| {
        for (late, cause) in [(false, alive), (true, due)] {
            // Also when somebody has already found it expired, and left it to others.
            for seen in [false, true] {
                with_cache(
                    [config],
                    |b| b,
                    |rig| {
                        rig.cache.insert_with_ttl(KEY, rig.value(1), 10 * S);
                        if late {
                            rig.clock.advance(10 * S);
                        }
                        if seen {
                            assert_eq!(rig.cache.get(&KEY).is_some(), !late);
                            assert_eq!(rig.events.all(), [], "a read does not call listeners");
                        }
                        way(rig);
                        let told: Vec<_> = rig.events.all();
                        let expected: Vec<_> =
                            cause.map(|cause| (KEY, 0, cause)).into_iter().collect();
                        assert_eq!(told, expected);
                    },
                );
            }
        }
    });
}

/// A cell through which a listener finds its own cache.
type Own = Arc<OnceLock<Cache<u64, Tracked>>>;

/// A cache whose listener may call it.
fn with_own_listener(
    settings: impl FnOnce(ebbtide::Builder<u64, Tracked>) -> ebbtide::Builder<u64, Tracked>,
    listener: impl Fn(&Cache<u64, Tracked>, u64, RemovalCause) + Send + Sync + 'static,
) -> (Cache<u64, Tracked>, Own) {
    let own = Own::default();
    let cache = {
        let own = Arc::clone(&own);
        settings(Cache::builder().shards(2))
            .on_removal(move |key: &u64, _: &Tracked, cause| {
                if let Some(cache) = own.get() {
                    listener(cache, *key, cause);
                }
            })
            .build()
            .unwrap()
    };
    let _ = own.set(cache.clone());
    (cache, own)
}

#[test]
fn a_listener_may_call_whatever_it_likes_of_its_own_cache() {
    promptly("listeners that call the cache", || {
        for manual in [true, false] {
            let (ledger, clock) = (Ledger::new(), ManualClock::new());
            let told = Arc::new(AtomicU64::new(0));
            let (cache, own) = with_own_listener(
                |b| {
                    let b = b.clock(clock.clone()).max_entries(50);
                    match manual {
                        true => b,
                        false => b.reaper(Reaper::dedicated(1).interval(Duration::from_millis(1))),
                    }
                },
                {
                    let (told, ledger) = (Arc::clone(&told), ledger.clone());
                    move |cache, key, _| {
                        told.fetch_add(1, Ordering::SeqCst);
                        cache.get(&key);
                        cache.contains_key(&(key + 1));
                        cache.ttl(&key);
                        cache.iter().take(3).for_each(drop);
                        assert!(cache.live_count() <= cache.entry_count() + 50);
                        cache.stats();
                        cache.touch(&(key + 2));
                        cache.reap(Duration::from_micros(50));
                        if key < 1_000 {
                            // Ends: what these displace is above 1,000.
                            cache.insert_with_ttl(key + 1_000, ledger.value(0), S);
                            cache.remove(&(key + 1_000));
                            cache.compute(key + 2_000, |_| Op::Put(ledger.value(0)));
                            cache.invalidate(&(key + 2_000));
                        }
                    }
                },
            );
            for key in 0..200 {
                cache.insert_with_ttl(key, ledger.value(key), S);
                match key % 4 {
                    0 => cache.insert(key, ledger.value(key)),
                    1 => drop(cache.remove(&key)),
                    _ => {}
                }
            }
            clock.advance(S);
            eventually("all timed ones are gone", || {
                if manual {
                    cache.reap(S);
                }
                cache.ttl(&3).is_none() && cache.entry_count() <= 50
            });
            cache.invalidate_all();
            eventually("every removal is told", || {
                let stats = cache.stats();
                told.load(Ordering::SeqCst) == stats.inserted - stats.entries
            });
            eventually("and its value dropped", || {
                if manual {
                    cache.reap(S);
                }
                cache.stats().limbo == 0
            });
            assert_counts_agree(&cache);
            assert_eq!(cache.stats().panics, 0);
            drop(own);
            end_of(cache);
            ledger.assert_none_dropped_twice();
        }
    });
}

/// (A cache whose listener holds its handle never ends: empty it instead.)
fn end_of(cache: Cache<u64, Tracked>) {
    cache.invalidate_all();
    assert_eq!(cache.live_count(), 0);
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn listeners_that_cause_removals_nest_sixteen_deep_and_the_rest_is_told_after() {
    const CHAIN: u64 = 300;
    // Each removal causes the next: by an eviction, a replacement, a removal, a refusal, a sweep.
    type Next = fn(&Cache<u64, Tracked>, u64, &Ledger);
    let chains: [(&str, Option<u64>, Next); 4] = [
        ("eviction", Some(1), |cache, key, ledger| {
            cache.insert(key + 2, ledger.value(0));
        }),
        ("removal", None, |cache, key, ledger| {
            cache.insert(key + 1, ledger.value(0));
            cache.invalidate(&(key + 1));
        }),
        ("expiry", None, |cache, key, ledger| {
            cache.insert(key + 1, ledger.value(0));
            cache.expire(&(key + 1), ZERO);
        }),
        ("refusal", Some(0), |cache, key, ledger| {
            cache.insert(key + 1, ledger.value(0));
        }),
    ];
    for_each(chains, |(_, bound, next)| {
        let (ledger, deepest) = (Ledger::new(), Arc::new(AtomicU32::new(0)));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (cache, _own) = with_own_listener(
            |b| {
                let b = b.clock(ManualClock::new());
                match bound {
                    Some(bound) => b.max_entries(bound),
                    None => b,
                }
            },
            {
                let (ledger, deepest, heard) =
                    (ledger.clone(), Arc::clone(&deepest), Arc::clone(&heard));
                move |cache, key, _| {
                    heard.lock().unwrap().push(key);
                    let depth = DEPTH.get() + 1;
                    DEPTH.set(depth);
                    deepest.fetch_max(depth, Ordering::SeqCst);
                    if key < CHAIN {
                        next(cache, key, &ledger);
                    }
                    DEPTH.set(depth - 1);
                }
            },
        );
        cache.insert(0, ledger.value(0));
        if bound == Some(1) {
            cache.insert(1, ledger.value(0));
        }
        cache.invalidate(&0);
        let mut heard = heard.lock().unwrap().clone();
        heard.sort_unstable();
        assert!(
            heard.iter().copied().eq(0..=CHAIN),
            "{} were told",
            heard.len()
        );
        let deepest = deepest.load(Ordering::SeqCst);
        assert!(deepest <= 16, "{deepest} deep");
        assert!(deepest >= 2, "told inline, not put off");
        assert_counts_agree(&cache);
    });
}

#[test]
fn a_removal_inside_a_listener_is_told_before_the_call_that_caused_it_returns() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let ledger = Ledger::new();
    let (cache, _own) = with_own_listener(|b| b.clock(ManualClock::new()), {
        let order = Arc::clone(&order);
        move |cache, key, _| {
            order.lock().unwrap().push(format!("{key} begins"));
            if key < 3 {
                cache.invalidate(&(key + 1));
            }
            order.lock().unwrap().push(format!("{key} ends"));
        }
    });
    (1..=3).for_each(|key| cache.insert(key, ledger.value(key)));
    cache.invalidate(&1);
    let told = order.lock().unwrap().join(", ");
    assert_eq!(told, "1 begins, 2 begins, 3 begins, 3 ends, 2 ends, 1 ends");
}

#[test]
fn nothing_waits_for_a_listener_that_takes_its_time() {
    let (ledger, gate) = (Ledger::new(), Gate::new());
    let (cache, own) = with_own_listener(|b| b.clock(ManualClock::new()).max_entries(100), {
        let gate = gate.clone();
        move |_, key, _| {
            if key == KEY {
                gate.pass();
            }
        }
    });
    for key in 0..100 {
        cache.insert(key, ledger.value(key));
    }
    let slow = {
        let cache = cache.clone();
        thread::spawn(move || cache.remove(&KEY).map(|value| value.tag()))
    };
    gate.wait_reached();
    let (other, values) = (cache.clone(), ledger.clone());
    promptly("everybody else", move || {
        assert!(other.get(&KEY).is_none(), "it is gone for all others");
        for key in (0..300).filter(|key| *key != KEY) {
            other.insert(key, values.value(key));
            assert_eq!(tag(other.get(&key)), Some(key));
            if key % 3 == 0 {
                assert!(other.remove(&key).is_some());
            }
        }
        other.insert(KEY + 1_000, values.value(0));
        assert!(other.live_count() <= 100);
        for _ in 0..20 {
            other.reap(S);
        }
    });
    assert!(
        !ledger.is_dropped(KEY as usize),
        "the listener still looks at it"
    );
    gate.open();
    assert_eq!(slow.join().unwrap(), Some(KEY));
    eventually("then it is dropped", || {
        cache.reap(S);
        ledger.is_dropped(KEY as usize)
    });
    assert_counts_agree(&cache);
    drop(own);
}

#[test]
fn a_slow_listener_loses_no_event_of_many_writers() {
    let (ledger, events) = (Ledger::new(), Events::new());
    let cache: Cache<u64, Tracked> = {
        let events = events.clone();
        Cache::builder()
            .max_entries(50)
            .shards(4)
            .on_removal(move |key: &u64, value: &Tracked, cause| {
                thread::sleep(Duration::from_micros(50));
                events.record((*key, value.serial(), cause));
            })
            .build()
            .unwrap()
    };
    thread::scope(|scope| {
        for writer in 0..3u64 {
            let (cache, ledger) = (&cache, &ledger);
            scope.spawn(move || {
                for i in 0..1_500 {
                    let key = (i * 17 + writer * 5) % 120;
                    match i % 7 {
                        5 => drop(cache.remove(&key)),
                        6 => cache.insert_with_ttl(key, ledger.value(key), S / 1_000),
                        _ => cache.insert(key, ledger.value(key)),
                    }
                }
            });
        }
    });
    cache.invalidate_all();
    eventually("the worker has told its part", || {
        let stats = cache.stats();
        events.all().len() as u64 == stats.inserted - stats.entries && stats.limbo == 0
    });
    events.assert_each_once();
    assert_counts_agree(&cache);
    drop(cache);
    ledger.assert_all_dropped_once();
}

#[test]
fn removals_are_told_on_the_thread_that_made_them() {
    let threads: Arc<Mutex<Vec<(u64, ThreadId)>>> = Arc::default();
    let ledger = Ledger::new();
    let cache: Cache<u64, Tracked> = {
        let threads = Arc::clone(&threads);
        Cache::builder()
            .on_removal(move |key: &u64, _: &Tracked, _| {
                threads.lock().unwrap().push((*key, thread::current().id()));
            })
            .build()
            .unwrap()
    };
    cache.insert(1, ledger.value(1));
    cache.insert(1, ledger.value(1));
    cache.remove(&1);
    let me = thread::current().id();
    assert_eq!(*threads.lock().unwrap(), [(1, me), (1, me)]);
    cache.insert_with_ttl(2, ledger.value(2), Duration::from_millis(2));
    eventually("the worker reports", || threads.lock().unwrap().len() == 3);
    let (key, worker) = threads.lock().unwrap()[2];
    assert!(key == 2 && worker != me);
}

#[test]
fn two_caches_that_write_to_each_other_get_through() {
    promptly("two caches", || {
        let ledger = Ledger::new();
        let second: Cache<u64, Tracked> = Cache::builder()
            .clock(ManualClock::new())
            .max_entries(10)
            .build()
            .unwrap();
        let spill = second.clone();
        let told = Arc::new(AtomicU64::new(0));
        let (first, _own) = with_own_listener(|b| b.clock(ManualClock::new()).max_entries(10), {
            let (told, ledger) = (Arc::clone(&told), ledger.clone());
            move |first, key, cause| {
                told.fetch_add(1, Ordering::SeqCst);
                // What does not fit goes to the second; one in ten comes back.
                spill.insert(key, ledger.value(key));
                if cause == RemovalCause::Evicted && key % 10 == 0 && key < 10_000 {
                    spill.invalidate(&key);
                    first.insert(key + 10_000, ledger.value(key));
                }
            }
        });
        thread::scope(|scope| {
            for writer in 0..3 {
                let (first, ledger) = (&first, &ledger);
                scope.spawn(move || {
                    for i in 0..2_000 {
                        first.insert(writer * 3_000 + i, ledger.value(i));
                    }
                });
            }
        });
        let stats = first.stats();
        assert_eq!(told.load(Ordering::SeqCst), stats.inserted - stats.entries);
        assert_eq!((stats.entries, second.entry_count()), (10, 10));
        assert_counts_agree(&first);
        assert_counts_agree(&second);
    });
}

#[test]
fn the_end_of_a_cache_is_no_removal() {
    with_cache(
        Config::all().filter(|config| config.listener),
        |b| b,
        |rig| {
            for key in 0..100 {
                rig.cache.insert_with_ttl(key, rig.value(key), S);
            }
            rig.clock.advance((rig.config.shards % 2) as u32 * S);
            assert_eq!(rig.events.all(), []);
            // The rest is checked where the rig is finished: no event, every value dropped.
        },
    );
}
