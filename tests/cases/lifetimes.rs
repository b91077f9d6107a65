//! Faults that caches with lifetimes have had: when an entry is over, on which paths, and what
//! a clock that jumps does to it. Everything under a clock moved by hand.

use std::time::{Duration, Instant};

use ebbtide::{Cache, Lifetime, Op, Reaper, Strategy};

use crate::common::matrix::{Config, Rig, for_each, with_cache};
use crate::common::origins::{KEY, Origin, TEN, origins, two_configs};
use crate::common::sights::{Effect, Sight, sights};
use crate::common::{NS, S, ZERO, tag};

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
            assert!(rig.cache.expire(&KEY, ZERO))
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
                    rig.cache.insert_with_ttl(KEY, rig.value(KEY), ZERO);
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
