//! Faults that caches with lifetimes have had: what moves a deadline, and what does not.

use std::time::Duration;

use ebbtide::{Cache, Lifetime, ManualClock, Op, RemovalCause};

use crate::common::matrix::{Config, Rig, for_each, with_cache};
use crate::common::origins::{KEY, TEN, origins, two_configs};
use crate::common::sights::{Effect, reads};
use crate::common::{Ledger, NS, S, Tracked};

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
