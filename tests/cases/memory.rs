//! What must not pile up: side structures behind a bound, the dead behind the living, values behind
//! a thread that stays.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, Reaper, RemovalCause, Strategy};

use crate::common::matrix::{Config, for_each, with_cache};
use crate::common::{Events, Ledger, S, Tracked, ZERO, assert_counts_agree, eventually, tag};

/// Memory of a hundred entries at worst, after some thread was pinned while a million passed: each
/// alone in a chunk of 16 KiB, 10 bytes beside each slot up to the highest in use, and a megabyte
/// for the rest. A million entries would be more than 40 MB.
const AT_MOST: usize = 100 * 16_384 + 10 * 1_000_000 + 1_000_000;

#[test]
fn a_million_keys_that_came_by_leave_no_more_behind_than_the_bound() {
    for listener in [false, true] {
        let events = Events::<u64>::new();
        let mut builder = Cache::builder()
            .clock(ManualClock::new())
            .max_entries(100)
            .time_to_live(3_600 * S);
        if listener {
            let events = events.clone();
            builder = builder.on_removal(move |key: &u64, _: &u64, cause| {
                if key.is_multiple_of(1_000) {
                    events.record((*key, 0, cause));
                }
            });
        }
        let cache: Cache<u64, u64> = builder.build().unwrap();
        for key in 0..1_000_000 {
            cache.insert(key, key);
            if key % 10_000 == 9_999 {
                assert_eq!(cache.entry_count(), 100);
            }
        }
        // Writers have dropped most of it on their way (how much depends on who was pinned and
        // not running meanwhile), and what they left behind goes without a rest.
        let stats = cache.stats();
        assert!(stats.dropped >= 200_000, "{stats:?}");
        eventually("nothing but the hundred is left", || {
            cache.reap(S);
            cache.stats().limbo == 0 && cache.memory_usage().total() < AT_MOST
        });
        if listener {
            // (The first may have come to stay.)
            let watched = (0..1_000_000).step_by(1_000);
            let left = watched.filter(|key| cache.contains_key(key)).count();
            assert_eq!(events.count(RemovalCause::Evicted) + left, 1_000);
        }
        assert_counts_agree(&cache);
    }
}

#[test]
fn a_million_keys_behind_a_bound_are_dropped_by_the_worker() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(100)
        .time_to_live(3_600 * S)
        .build()
        .unwrap();
    cache.insert(0, 0);
    for key in 0..1_000_000 {
        cache.insert(key, key);
    }
    eventually("nothing waits any more", || cache.stats().limbo == 0);
    eventually("memory is what a hundred entries need", || {
        cache.memory_usage().total() < AT_MOST
    });
    assert_eq!(cache.entry_count(), 100);
}

#[test]
fn a_few_timed_entries_among_many_lasting_ones_are_reclaimed_as_promptly() {
    // One in a hundred, one in two, all of them: late by exactly what the clock is past them.
    for_each([100, 2, 1], |one_in| {
        with_cache(
            Config::sweeping(),
            |b| b,
            |rig| {
                let held = rig.config.bound.unwrap_or(20_000);
                for key in 0..held {
                    if key % one_in == 0 {
                        rig.cache.insert_with_ttl(key, rig.value(key), 10 * S);
                    } else {
                        rig.cache.insert(key, rig.value(key));
                    }
                }
                rig.clock.advance(10 * S + S / 4);
                let reaped = rig.cache.reap(20 * S);
                let timed = held.div_ceil(one_in);
                assert_eq!((reaped.expired, reaped.finished), (timed, true));
                let lag = rig.cache.stats().reclaim_lag;
                assert_eq!((lag.count(), lag.max()), (timed, S / 4));
                assert_eq!(rig.cache.entry_count(), held - timed);
            },
        );
    });
}

#[test]
fn due_entries_cost_the_same_looks_however_many_live_behind_them() {
    const PROBES: u64 = 1_000;
    let mut looks = Vec::new();
    for living in [0, 10_000, 1_000_000] {
        for together in [true, false] {
            let clock = ManualClock::new();
            let cache: Cache<u64, ()> = Cache::builder()
                .clock(clock.clone())
                .shards(1)
                .build()
                .unwrap();
            let probe = |key| cache.insert_with_ttl(1_000_000_000 + key, (), S);
            let every = (living / PROBES).max(1);
            let mut probes = 0;
            for key in 0..living {
                cache.insert_with_ttl(key, (), 3_600 * S);
                if !together && key % every == 0 {
                    probe(probes);
                    probes += 1;
                }
            }
            (probes..PROBES).for_each(probe);
            clock.advance(2 * S);
            let reaped = cache.reap(20 * S);
            assert_eq!((reaped.expired, reaped.finished), (PROBES, true));
            let stats = cache.stats();
            assert_eq!(
                stats.entries_inspected, PROBES,
                "only the due are looked at"
            );
            assert_eq!((stats.reap_cycles, stats.refiled), (1, 0));
            assert_eq!(cache.entry_count(), living);
            // Nothing is due any more: nothing is looked at.
            clock.advance(S);
            assert_eq!(cache.reap(20 * S).scanned, 0);
            looks.push((living, together, reaped.scanned));
        }
    }
    for (living, together, scanned) in looks {
        // Blocks of 64 lane slots; one for each probe if they lie apart.
        let most = if together {
            PROBES + 2 * 64
        } else {
            PROBES * 64
        };
        assert!(scanned <= most, "{scanned} slots behind {living}");
    }
}

#[test]
fn a_leap_of_the_clock_is_one_wave_worked_off_within_the_budget() {
    const ENTRIES: u64 = 200_000;
    let (ledger, clock) = (Ledger::new(), ManualClock::new());
    let cache: Cache<u64, Tracked> = Cache::builder().clock(clock.clone()).build().unwrap();
    for key in 0..ENTRIES {
        cache.insert_with_ttl(key, ledger.value(key), (1 + key % 1_800) as u32 * S);
    }
    cache.insert(ENTRIES, ledger.value(ENTRIES));
    clock.advance(1_800 * S);
    let (mut expired, mut calls) = (0, 0);
    loop {
        let reaped = cache.reap(Duration::from_micros(500));
        expired += reaped.expired;
        calls += 1;
        assert!(tag(cache.get(&(calls % ENTRIES))).is_none());
        assert_eq!(tag(cache.get(&ENTRIES)), Some(ENTRIES));
        if reaped.finished {
            break;
        }
    }
    let by_reads = cache.stats().expired_by_read;
    assert_eq!(expired + by_reads, ENTRIES);
    // Half a millisecond does not suffice for 200,000 on any machine.
    assert!(calls >= 5, "{calls} calls: the budget was not obeyed");
    assert_eq!(cache.stats().budget_exhausted, calls - 1);
    eventually("all are dropped", || {
        cache.reap(S);
        ledger.dropped() as u64 == ENTRIES
    });
    assert_counts_agree(&cache);
    drop(cache);
    ledger.assert_all_dropped_once();
}

#[test]
fn memory_falls_when_a_wave_has_passed() {
    let clock = ManualClock::new();
    let cache: Cache<u64, [u64; 4]> = Cache::builder().clock(clock.clone()).build().unwrap();
    cache.insert(u64::MAX, [0; 4]);
    for wave in 0..3 {
        for key in 0..200_000 {
            cache.insert_with_ttl(key, [key; 4], S);
        }
        let full = cache.memory_usage().total();
        assert!(full >= 200_000 * 40, "{full} bytes");
        clock.advance(2 * S);
        eventually("its memory is given back", || {
            cache.reap(S);
            cache.stats().limbo == 0 && cache.memory_usage().total() < full / 20
        });
        assert_eq!(cache.entry_count(), 1, "wave {wave}");
    }
    assert_eq!(cache.get(&u64::MAX), Some([0; 4]));
    cache.validate();
}

#[test]
fn what_a_thread_removed_is_dropped_though_the_thread_stays_for_ever() {
    for_each(
        [Reaper::shared(), Reaper::dedicated(2), Reaper::manual()],
        |reaper| {
            let manual = reaper == Reaper::manual();
            let ledger = Ledger::new();
            let cache: Cache<u64, Tracked> = Cache::builder().reaper(reaper).build().unwrap();
            for key in 0..1_000 {
                cache.insert(key, ledger.value(key));
            }
            let (leave, stay) = mpsc::channel::<()>();
            let (done, is_done) = mpsc::channel();
            let thread = {
                let (cache, ledger) = (cache.clone(), ledger.clone());
                thread::spawn(move || {
                    for key in 0..1_000 {
                        match key % 4 {
                            0 => drop(cache.remove(&key)),
                            1 => assert!(cache.invalidate(&key)),
                            2 => cache.insert(key, ledger.value(key)),
                            _ => assert!(cache.expire(&key, ZERO)),
                        }
                    }
                    if manual {
                        // Even its own unfinished reaping is taken over by others.
                        cache.reap(Duration::from_nanos(1));
                    }
                    done.send(()).unwrap();
                    // Until the test lets it go.
                    let _ = stay.recv();
                })
            };
            is_done.recv().unwrap();
            eventually("all are dropped", || {
                if manual {
                    cache.reap(S);
                }
                ledger.dropped() == 1_000
            });
            drop(leave);
            thread.join().unwrap();
            drop(cache);
            ledger.assert_all_dropped_once();
        },
    );
}

#[test]
fn the_gate_opens_for_a_share_of_the_entries_not_for_a_percentage() {
    // Ten thousand timed entries, a share of them stale, through one cycle of the sampler.
    let sampled = |stale: u64| {
        let clock = ManualClock::new();
        let cache: Cache<u64, ()> = Cache::builder()
            .clock(clock.clone())
            .reaper(Reaper::manual().strategy(Strategy::sample()))
            .build()
            .unwrap();
        for key in 0..10_000 {
            let life = if key % 100 < stale { 1 } else { 3_600 };
            cache.insert_with_ttl(key, (), life * S);
        }
        clock.advance(2 * S);
        cache.reap(20 * S);
        (cache.stats().sample_rounds, cache.stats().expired_by_sweep)
    };
    assert_eq!(sampled(0), (1, 0));
    assert_eq!(sampled(100), (16, 320), "20 a round, 16 rounds");
    let most = (0..20).map(|_| sampled(50)).max().unwrap();
    assert!(most.0 >= 8 && most.1 >= 40, "half are stale: {most:?}");
    // The sweep's tolerated share: left alone up to it, all gone above it.
    let swept = |stale: u64| {
        let clock = ManualClock::new();
        let strategy = Strategy::sweep().tolerated_dead(0.25);
        let cache: Cache<u64, ()> = Cache::builder()
            .clock(clock.clone())
            .shards(1)
            .reaper(Reaper::manual().strategy(strategy))
            .build()
            .unwrap();
        for key in 0..1_000 {
            let life = if key < stale { 1 } else { 3_600 };
            cache.insert_with_ttl(key, (), life * S);
        }
        clock.advance(2 * S);
        cache.reap(20 * S).expired
    };
    assert_eq!(
        (swept(0), swept(250), swept(251), swept(1_000)),
        (0, 0, 251, 1_000)
    );
}

/// A value that takes its time to be dropped.
struct Slow(#[allow(dead_code)] [u8; 30_000]);

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(40));
    }
}

/// The reaper saw nothing in limbo any more while the last values were still being dropped, dozed off,
/// and nobody came to give their memory back.
#[test]
fn the_memory_of_values_whose_drop_is_slow_comes_back() {
    // It dozes off after a few intervals: sooner than the last few values are dropped.
    let reaper = Reaper::dedicated(1).interval(Duration::from_millis(5));
    let cache: Cache<u64, Slow> = Cache::builder().shards(1).reaper(reaper).build().unwrap();
    let empty = cache.memory_usage().total();
    for key in 0..30 {
        cache.insert_with_ttl(key, Slow([1; 30_000]), Duration::from_millis(200));
    }
    assert!(cache.memory_usage().total() > empty + 30 * 30_000);
    eventually("the memory has come back", || {
        cache.memory_usage().total() < empty + 200_000
    });
}
