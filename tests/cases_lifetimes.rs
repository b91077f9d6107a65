//! Faults that caches with lifetimes have had: when an entry is over, on which paths, and what
//! keeps it alive. Everything under a clock moved by hand.

mod common;

use std::time::{Duration, Instant};

use ebbtide::{Cache, Clock, Lifetime, ManualClock, Op, Reaper, RemovalCause, Strategy};

use common::matrix::{Config, Rig, for_each, with_cache};
use common::sights::{Effect, Sight, reads, sights};
use common::{Ledger, NS, S, Tracked, tag};

/// The key of tests with one.
const KEY: u64 = 7;

/// A way to give an entry a deadline; returns it.
#[derive(Clone, Copy)]
struct Origin {
    name: &'static str,
    settings: fn(ebbtide::Builder<u64, Tracked>) -> ebbtide::Builder<u64, Tracked>,
    /// Stores the entry; the deadline is 10 s after the clock's zero unless this says otherwise.
    store: fn(&Rig) -> u64,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const TEN: u64 = 10_000_000_000;

fn origins() -> Vec<Origin> {
    fn plain(rig: &Rig) -> u64 {
        rig.cache.insert(KEY, rig.value(KEY));
        TEN
    }
    let origin = |name, settings, store| Origin {
        name,
        settings,
        store,
    };
    vec![
        origin(
            "insert_with_ttl",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                TEN
            },
        ),
        origin(
            "insert_with_ttl: until",
            |b| b,
            |rig| {
                let moment = Instant::now() + 10 * S;
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), moment);
                rig.clock.at(moment)
            },
        ),
        origin("time_to_live", |b| b.time_to_live(10 * S), plain),
        origin("time_to_idle", |b| b.time_to_idle(10 * S), plain),
        origin(
            "time_to_live before time_to_idle",
            |b| b.time_to_idle(100 * S).time_to_live(10 * S),
            plain,
        ),
        origin(
            "expiry policy",
            |b| b.expiry(|_: &u64, _: &Tracked| Lifetime::For(10 * S)),
            plain,
        ),
        origin(
            "try_insert",
            |b| b.time_to_live(10 * S),
            |rig| {
                rig.cache.try_insert(KEY, rig.value(KEY)).unwrap();
                TEN
            },
        ),
        origin(
            "insert_if_absent",
            |b| b.time_to_live(10 * S),
            |rig| {
                assert!(rig.cache.insert_if_absent(KEY, rig.value(KEY)));
                TEN
            },
        ),
        origin(
            "expire",
            |b| b,
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "expire sooner",
            |b| b.time_to_live(99 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "expire later",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "touch",
            |b| b.time_to_live(6 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                rig.clock.set_ns(4_000_000_000);
                assert!(rig.cache.touch(&KEY));
                TEN
            },
        ),
        origin(
            "touch of its own lifetime",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 6 * S);
                rig.clock.set_ns(4_000_000_000);
                assert!(rig.cache.touch(&KEY));
                TEN
            },
        ),
        origin(
            "compute: put with ttl",
            |b| b,
            |rig| {
                let put = || Op::PutWithTtl(rig.value(KEY), Lifetime::For(10 * S));
                rig.cache.compute(KEY, |_| put());
                TEN
            },
        ),
        origin(
            "compute: put keeps it",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                rig.clock.set_ns(5_000_000_000);
                rig.cache.compute(KEY, |_| Op::Put(rig.value(KEY)));
                TEN
            },
        ),
        origin(
            "compare_and_swap keeps it",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                rig.clock.set_ns(5_000_000_000);
                let expected = rig.value(KEY);
                let swapped = rig.cache.compare_and_swap(KEY, &expected, rig.value(KEY));
                swapped.unwrap();
                TEN
            },
        ),
        origin(
            "persist, then expire",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.persist(&KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
    ]
}

/// Two small configurations that differ in everything that matters to one key.
fn two_configs() -> [Config; 2] {
    [true, false].map(|listener| Config {
        shards: 1,
        sample: false,
        bound: listener.then_some(8),
        listener,
    })
}

#[test]
fn a_nanosecond_before_the_deadline_it_lives_and_at_it_it_is_over_on_every_path() {
    let paths = || {
        sights()
            .into_iter()
            .flat_map(|s| origins().into_iter().map(move |o| (s, o)))
    };
    for_each(paths(), |(sight, origin): (Sight, Origin)| {
        for swept in [false, true] {
            for (late, alive) in [(-1i64, true), (0, false), (1, false), (TEN as i64, false)] {
                with_cache(two_configs(), origin.settings, |rig| {
                    let deadline = (origin.store)(rig);
                    rig.clock.set_ns(deadline.checked_add_signed(late).unwrap());
                    if swept {
                        rig.cache.reap(S);
                        assert_eq!(rig.cache.entry_count(), u64::from(alive));
                    }
                    let seen = (sight.sees)(&rig.cache, KEY, &rig.ledger);
                    assert_eq!(seen, alive, "{late} ns after the deadline");
                });
            }
        }
    });
}

#[test]
fn what_one_path_found_expired_no_path_finds_again_though_the_clock_steps_back() {
    let pairs = || {
        sights()
            .into_iter()
            .flat_map(|a| sights().into_iter().map(move |b| (a, b)))
    };
    for_each(pairs(), |(first, second): (Sight, Sight)| {
        if first.effect == Effect::Create {
            return;
        }
        for back in [NS, Duration::from_millis(10), 9 * S] {
            with_cache(
                two_configs(),
                |b| b,
                |rig| {
                    rig.clock.set_ns(1);
                    rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                    rig.clock.advance(10 * S);
                    assert!(!(first.sees)(&rig.cache, KEY, &rig.ledger));
                    rig.clock.step_back(back);
                    assert!(!(second.sees)(&rig.cache, KEY, &rig.ledger), "{back:?}");
                },
            );
        }
    });
}

#[test]
fn a_clock_that_steps_back_loses_nothing_that_nobody_saw_expire() {
    for_each(sights(), |sight| {
        for back in [NS, Duration::from_millis(10), 365 * 86_400 * S] {
            with_cache(
                two_configs(),
                |b| b,
                |rig| {
                    let year = 365 * 86_400 * S;
                    rig.clock.advance(2 * year);
                    rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                    rig.clock.advance(10 * S);
                    rig.clock.step_back(back);
                    assert!((sight.sees)(&rig.cache, KEY, &rig.ledger), "{back:?}");
                },
            );
        }
    });
    // Time that goes back and forth while everything is in use: nothing is lost, nothing panics.
    with_cache(
        Config::unbounded(),
        |b| b.time_to_live(2_000 * S),
        |rig| {
            rig.clock.advance(3_000 * S);
            for round in 0..500u64 {
                rig.cache.insert(round, rig.value(round));
                match round % 4 {
                    0 => rig.clock.step_back(1_500 * S),
                    1 => rig.clock.advance(1_499 * S),
                    2 => rig.clock.step_back(NS),
                    _ => rig.clock.advance(2 * NS),
                }
                rig.cache.reap(S);
                assert_eq!(tag(rig.cache.get(&round)), Some(round));
            }
        },
    );
}

#[test]
fn a_deadline_does_not_outlive_its_entry() {
    type Removal = fn(&Rig);
    let removals: [(&str, Removal); 10] = [
        ("invalidate_all", |rig| rig.cache.invalidate_all()),
        ("remove", |rig| drop(rig.cache.remove(&KEY))),
        ("invalidate", |rig| assert!(rig.cache.invalidate(&KEY))),
        ("remove_if", |rig| {
            assert!(rig.cache.remove_if(&KEY, |_| true))
        }),
        ("retain", |rig| rig.cache.retain(|_, _| false)),
        ("drain", |rig| assert_eq!(rig.cache.drain().count(), 1)),
        ("drain dropped", |rig| drop(rig.cache.drain())),
        ("compute", |rig| {
            rig.cache.compute(KEY, |_| Op::Remove);
        }),
        ("expire to zero", |rig| {
            assert!(rig.cache.expire(&KEY, 0 * S))
        }),
        ("nothing", |_| ()),
    ];
    for_each(removals, |(_, remove)| {
        with_cache(
            Config::all(),
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(1), S);
                remove(rig);
                rig.cache.insert(KEY, rig.value(2));
                for _ in 0..3 {
                    rig.clock.advance(2 * S);
                    rig.cache.reap(S);
                    assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::Never));
                    assert_eq!(tag(rig.cache.get(&KEY)), Some(2));
                }
            },
        );
    });
}

#[test]
fn an_extended_entry_is_not_reported_at_its_old_deadline_and_once_at_its_new_one() {
    type Extension = fn(&Rig);
    // At 5 s, each to 15 s. The last two put another value in the place of the first.
    let extensions: [(&str, usize, Extension); 6] = [
        ("expire", 1, |rig| assert!(rig.cache.expire(&KEY, 10 * S))),
        ("touch", 1, |rig| assert!(rig.cache.touch(&KEY))),
        ("expire twice", 1, |rig| {
            assert!(rig.cache.expire(&KEY, 99 * S));
            assert!(rig.cache.expire(&KEY, 10 * S));
        }),
        ("persist, expire", 1, |rig| {
            assert!(rig.cache.persist(&KEY));
            assert!(rig.cache.expire(&KEY, 10 * S));
        }),
        ("insert", 2, |rig| rig.cache.insert(KEY, rig.value(KEY))),
        ("compute", 2, |rig| {
            let put = || Op::PutWithTtl(rig.value(KEY), Lifetime::For(10 * S));
            rig.cache.compute(KEY, |_| put());
        }),
    ];
    for_each(extensions, |(_, values, extend)| {
        let configs = Config::all().filter(|config| config.listener);
        with_cache(
            configs,
            |b| b.time_to_live(10 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                rig.clock.set_ns(5_000_000_000);
                extend(rig);
                for moment in [TEN - 1, TEN, TEN + 1, 14_999_999_999] {
                    rig.clock.set_ns(moment);
                    for _ in 0..20 {
                        rig.cache.reap(S);
                    }
                    assert_eq!(rig.events.count(RemovalCause::Expired), 0, "at {moment}");
                    assert_eq!(rig.cache.entry_count(), 1);
                }
                rig.clock.set_ns(15_000_000_000);
                rig.reap_until("it is gone", |rig| rig.cache.entry_count() == 0);
                let told = rig.events.all();
                assert_eq!(told.len(), values);
                assert_eq!(told[values - 1], (KEY, values - 1, RemovalCause::Expired));
            },
        );
    });
}

#[test]
fn a_lifetime_beyond_the_clock_is_never_and_not_the_one_before() {
    let endless = [
        Lifetime::Never,
        Lifetime::For(Duration::MAX),
        Lifetime::For(Duration::from_nanos(u64::MAX)),
        Lifetime::For(Duration::from_secs(u64::MAX)),
        Lifetime::For(Duration::from_nanos(u64::MAX) + NS),
    ];
    type Write = fn(&Rig, Lifetime);
    let writes: [Write; 4] = [
        |rig, life| assert!(rig.cache.expire(&KEY, life)),
        |rig, life| rig.cache.insert_with_ttl(KEY, rig.value(KEY), life),
        |rig, life| {
            rig.cache
                .compute(KEY, |_| Op::PutWithTtl(rig.value(KEY), life));
        },
        |rig, _| assert!(rig.cache.persist(&KEY)),
    ];
    for (life, write) in endless
        .iter()
        .flat_map(|life| writes.map(|write| (*life, write)))
    {
        with_cache(
            two_configs(),
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), S);
                write(rig, life);
                assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::Never), "{life:?}");
                for step in [2 * S, Duration::from_secs(1 << 33), Duration::MAX] {
                    rig.clock.advance(step);
                    rig.cache.reap(S);
                    assert_eq!(tag(rig.cache.get(&KEY)), Some(KEY), "{life:?}");
                }
            },
        );
    }
}

#[test]
fn no_length_of_life_wraps_wherever_the_clock_stands() {
    const UNIT: u64 = 1 << 26;
    let years = |n: u64| n * 365 * 86_400 * 1_000_000_000;
    let lane_end = (u64::from(u32::MAX) - 1) * UNIT;
    let begins = [
        0,
        1,
        UNIT - 1,
        UNIT,
        years(9),
        lane_end - 1,
        lane_end,
        lane_end + UNIT,
        lane_end + 2 * UNIT,
        years(300),
        u64::MAX - years(30),
        u64::MAX - 5_000_000_000,
        u64::MAX - 2,
    ];
    let lives = [
        NS,
        2 * NS,
        Duration::from_nanos(UNIT),
        S,
        Duration::from_secs(u64::from(u32::MAX)),
        Duration::from_nanos(years(20)),
        Duration::from_nanos(u64::MAX - 1),
        Duration::MAX,
    ];
    for_each(
        begins.into_iter().flat_map(|b| lives.map(|l| (b, l))),
        |(begin, life)| {
            with_cache(
                two_configs(),
                |b| b,
                |rig| {
                    let late = |ns: u64| {
                        rig.clock.set_ns(ns);
                        rig.cache.reap(S);
                        tag(rig.cache.peek(&KEY))
                    };
                    rig.clock.set_ns(begin);
                    rig.cache.insert_with_ttl(KEY, rig.value(KEY), 0 * S);
                    assert!(!rig.cache.contains_key(&KEY));
                    rig.cache.insert_with_ttl(KEY, rig.value(KEY), life);
                    let length = u64::try_from(life.as_nanos()).unwrap_or(u64::MAX);
                    match begin.checked_add(length).filter(|&end| end < u64::MAX) {
                        Some(end) => {
                            assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::For(life)));
                            assert_eq!(late(begin), Some(KEY));
                            assert_eq!(late(end - 1), Some(KEY));
                            assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::For(NS)));
                            rig.clock.set_ns(end);
                            rig.cache.reap(S);
                            assert_eq!(rig.cache.entry_count(), 0, "reclaimed on time");
                            assert_eq!(late(u64::MAX), None);
                        }
                        None => {
                            assert_eq!(late(u64::MAX), Some(KEY), "beyond the clock is never");
                            assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::Never));
                        }
                    }
                },
            );
        },
    );
}

#[test]
fn ttl_tells_what_is_left_and_none_of_what_is_not_there() {
    with_cache(
        two_configs(),
        |b| b,
        |rig| {
            let ttl = |key: u64| rig.cache.ttl(&key);
            assert_eq!(ttl(1), None);
            rig.cache.insert_with_ttl(1, rig.value(1), S);
            rig.cache.insert(2, rig.value(2));
            rig.cache.insert_with_ttl(3, rig.value(3), S);
            assert!(rig.cache.invalidate(&3));
            assert_eq!(
                (ttl(1), ttl(2), ttl(3)),
                (Some(S.into()), Some(Lifetime::Never), None)
            );
            rig.clock.advance(S - NS);
            assert_eq!(ttl(1), Some(NS.into()));
            rig.clock.advance(NS);
            assert_eq!((ttl(1), ttl(2)), (None, Some(Lifetime::Never)));
            rig.clock.advance(Duration::MAX);
            assert_eq!((ttl(1), ttl(2)), (None, Some(Lifetime::Never)));
            // A clock that steps back behind the beginning of an entry makes its life longer.
            rig.clock.set_ns(TEN);
            rig.cache.insert_with_ttl(4, rig.value(4), S);
            rig.clock.set_ns(0);
            assert_eq!(ttl(4), Some(Lifetime::For(11 * S)));
        },
    );
}

#[test]
fn a_persisted_entry_stays_whatever_comes_before_and_after() {
    type Change = fn(&Rig);
    // Each leaves an entry without a deadline as it is.
    let afterwards: [(&str, Change); 6] = [
        ("nothing", |_| ()),
        ("get", |rig| drop(rig.cache.get(&KEY))),
        ("touch", |rig| assert!(rig.cache.touch(&KEY))),
        ("compute: put", |rig| {
            rig.cache.compute(KEY, |_| Op::Put(rig.value(KEY)));
        }),
        ("compare_and_swap", |rig| {
            let expected = rig.value(KEY);
            let swapped = rig.cache.compare_and_swap(KEY, &expected, rig.value(KEY));
            swapped.unwrap();
        }),
        ("persist", |rig| assert!(rig.cache.persist(&KEY))),
    ];
    let pairs = || {
        origins()
            .into_iter()
            .flat_map(|o| afterwards.map(|a| (o, a)))
    };
    for_each(pairs(), |(origin, (_, then))| {
        with_cache(two_configs(), origin.settings, |rig| {
            let deadline = (origin.store)(rig);
            assert!(rig.cache.persist(&KEY));
            then(rig);
            assert_eq!(rig.cache.ttl(&KEY), Some(Lifetime::Never));
            for moment in [deadline, 10 * deadline, u64::MAX] {
                rig.clock.set_ns(moment);
                rig.cache.reap(S);
                assert!(rig.cache.contains_key(&KEY), "at {moment}");
            }
        });
    });
}

#[test]
fn persist_expire_touch_and_sweep_in_every_order_are_never_early_and_leak_nothing() {
    // 0 persist, 1 expire sooner, 2 expire later, 3 touch (4 s), 4 sweep; all orders of five.
    for order in 0..5u32.pow(5) {
        let order: Vec<u32> = (0..5).map(|place| order / 5u32.pow(place) % 5).collect();
        with_cache(
            two_configs(),
            |b| b.time_to_live(4 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                let (mut deadline, mut own) = (Some(4 * S), Some(4 * S));
                for (i, step) in order.iter().enumerate() {
                    rig.clock.advance(S / 2);
                    let now = (i as u32 + 1) * (S / 2);
                    let length = match step {
                        0 => None,
                        1 => Some(3 * S),
                        2 => Some(20 * S),
                        3 => own,
                        _ => {
                            rig.cache.reap(S);
                            assert_eq!(rig.cache.entry_count(), 1);
                            continue;
                        }
                    };
                    own = length;
                    deadline = length.map(|length| now + length);
                    assert!(match step {
                        0 => rig.cache.persist(&KEY),
                        1 | 2 => rig.cache.expire(&KEY, length.unwrap()),
                        _ => rig.cache.touch(&KEY),
                    });
                }
                let Some(deadline) = deadline else {
                    rig.clock.advance(1_000 * S);
                    rig.cache.reap(S);
                    assert!(rig.cache.contains_key(&KEY), "{order:?}");
                    return;
                };
                rig.clock.set_ns(deadline.as_nanos() as u64 - 1);
                rig.cache.reap(S);
                assert_eq!(rig.cache.live_count(), 1, "{order:?} was early");
                rig.clock.advance(NS);
                rig.cache.reap(S);
                assert_eq!(rig.cache.entry_count(), 0, "{order:?} leaks");
            },
        );
    }
}

#[test]
fn the_system_clock_is_as_strict_as_one_moved_by_hand() {
    let cache: Cache<u64, u64> = Cache::builder()
        .reaper(Reaper::manual().strategy(Strategy::sweep()))
        .build()
        .unwrap();
    for round in 0..40u64 {
        let deadline = Instant::now() + Duration::from_millis(5 + round % 7);
        cache.insert_with_ttl(round, round, deadline);
        loop {
            let before = Instant::now();
            let found = match round % 4 {
                0 => cache.get(&round).is_some(),
                1 => cache.ttl(&round).is_some(),
                2 => cache.pin().get(&round).is_some(),
                _ => cache.iter().any(|(key, _)| key == round),
            };
            let after = Instant::now();
            if found {
                assert!(before < deadline, "read {:?} late", before - deadline);
            } else {
                assert!(after >= deadline, "gone {:?} early", deadline - after);
                break;
            }
        }
    }
}

#[test]
fn a_use_renews_a_time_to_idle_and_a_mere_look_does_not() {
    let idle = 16 * S;
    for_each(reads(), |sight| {
        with_cache(
            two_configs(),
            |b| b.time_to_idle(idle),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                rig.clock.advance(15 * S);
                assert!((sight.sees)(&rig.cache, KEY, &rig.ledger));
                rig.clock.advance(S);
                let renewed = sight.effect == Effect::Use;
                assert_eq!(rig.cache.contains_key(&KEY), renewed);
                // A sweep that comes by at the old deadline leaves the renewed one alone.
                rig.cache.reap(S);
                assert_eq!(rig.cache.entry_count(), u64::from(renewed));
                rig.clock.advance(14 * S - NS);
                assert_eq!(rig.cache.contains_key(&KEY), renewed);
                // 16 s after the use it is over, whatever was skipped.
                rig.clock.advance(S + NS);
                assert!(!rig.cache.contains_key(&KEY));
            },
        );
    });
}

#[test]
fn an_idle_entry_is_never_missed_and_then_found_without_a_write() {
    let idle = 5 * S;
    let ledger = Ledger::new();
    let clock = ManualClock::new();
    let cache: Cache<u64, Tracked> = Cache::builder()
        .clock(clock.clone())
        .time_to_idle(idle)
        .build()
        .unwrap();
    // Gaps between reads around the idle time, from a fixed sequence.
    let mut random = 1u64;
    let mut gap = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Duration::from_millis(3_900 + (random >> 33) % 1_300)
    };
    let (mut hits, mut misses) = (0, 0);
    for key in 0..2_000 {
        cache.insert(key, ledger.value(key));
        loop {
            let gap = gap();
            clock.advance(gap);
            let found = cache.get(&key).is_some();
            // Early by at most a sixteenth of the idle time, never late.
            assert!(found || gap >= idle - idle / 16, "missed after {gap:?}");
            assert!(!found || gap < idle, "found after {gap:?}");
            hits += u32::from(found);
            if !found {
                break;
            }
        }
        misses += 1;
        for _ in 0..5 {
            clock.step_back(S);
            assert!(cache.get(&key).is_none(), "missed, then found");
        }
        clock.advance(5 * S);
    }
    assert!(hits > 2_000 && misses == 2_000, "{hits} hits");
    drop(cache);
    ledger.assert_all_dropped_once();
    // The row as it was reported: TTI 5, write at 0, reads at 4 and 6.
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .time_to_idle(5 * S)
        .build()
        .unwrap();
    cache.insert(1, 1);
    for step in [4, 2] {
        clock.advance(step * S);
        assert_eq!(cache.get(&1), Some(1));
    }
}
