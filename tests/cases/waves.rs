//! Waves of deadlines, and the workers that clear them away while nobody calls.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ebbtide::{Cache, ManualClock, Reaper};

use crate::common::matrix::{Config, for_each};
use crate::common::pause::Gate;
use crate::common::{
    Events, Ledger, S, Tracked, ZERO, assert_counts_agree, eventually, promptly, tag,
};

const MS: Duration = Duration::from_millis(1);

fn reapers() -> [Reaper; 3] {
    [Reaper::shared(), Reaper::dedicated(1), Reaper::dedicated(3)].map(|r| r.interval(5 * MS))
}

/// A value that notes on which thread it is dropped.
struct Noting(Arc<Notes>);

#[derive(Default)]
struct Notes {
    dropped: AtomicUsize,
    threads: Mutex<HashSet<ThreadId>>,
}

impl Drop for Noting {
    fn drop(&mut self) {
        thread_local! {
            static NOTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
        }
        // Once for each thread and book, not for each of many values.
        let book = Arc::as_ptr(&self.0).addr();
        if NOTED.replace(book) != book {
            self.0
                .threads
                .lock()
                .unwrap()
                .insert(thread::current().id());
        }
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_wave_with_one_deadline_goes_at_no_readers_expense() {
    const WAVE: usize = 200_000;
    // The deadline has to lie after the filling, however long this machine takes for that.
    let mut lead = 400 * MS;
    let (notes, cache, deadline) = loop {
        let notes = Arc::<Notes>::default();
        let cache: Cache<usize, Noting> = Cache::unbounded();
        for key in 0..1_000 {
            cache.insert(WAVE + key, Noting(notes.clone()));
        }
        let deadline = Instant::now() + lead;
        for key in 0..WAVE {
            cache.insert_with_ttl(key, Noting(notes.clone()), deadline);
        }
        if Instant::now() < deadline {
            break (notes, cache, deadline);
        }
        lead *= 2;
    };
    let done = AtomicBool::new(false);
    let callers = Mutex::new(HashSet::from([thread::current().id()]));
    thread::scope(|scope| {
        for reader in 0..2 {
            let (cache, done, callers) = (&cache, &done, &callers);
            scope.spawn(move || {
                callers.lock().unwrap().insert(thread::current().id());
                let mut key = reader;
                while !done.load(Ordering::Relaxed) {
                    key = (key + 7) % WAVE;
                    let lasting = WAVE + key % 1_000;
                    assert!(cache.with(&lasting, |_| ()).is_some(), "others stay");
                    let before = Instant::now();
                    let found = cache.contains_key(&key);
                    assert!(!found || before < deadline, "read after its deadline");
                }
            });
        }
        eventually("the wave is gone", || {
            notes.dropped.load(Ordering::SeqCst) == WAVE
        });
        done.store(true, Ordering::Relaxed);
    });
    assert!(Instant::now() >= deadline);
    let (callers, threads) = (callers.into_inner().unwrap(), notes.threads.lock().unwrap());
    assert!(threads.is_disjoint(&callers), "a caller has dropped values");
    drop(threads);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.limbo, stats.panics), (1_000, 0, 0));
    assert_eq!(stats.reclaim_lag.count(), WAVE as u64);
    // A cycle has a budget of a millisecond: 200,000 are not done in one.
    assert!(stats.reap_cycles > 1, "{stats:?}");
    assert_counts_agree(&cache);
}

#[test]
fn what_is_due_is_dropped_though_nobody_calls() {
    let cases = || {
        let listens = Config::unbounded().filter(|config| config.shards == 16);
        listens.flat_map(|config| reapers().map(|reaper| (config, reaper)))
    };
    for_each(cases(), |(config, reaper)| {
        let (ledger, events) = (Ledger::new(), Events::new());
        let mut builder = config.builder().reaper(reaper.strategy(config.strategy()));
        if config.listener {
            builder = builder.on_removal(events.listener());
        }
        let cache: Cache<u64, Tracked> = builder.build().unwrap();
        for key in 0..500 {
            cache.insert_with_ttl(key, ledger.value(key), (1 + key % 30) as u32 * MS);
        }
        // Looks at the ledger, never at the cache.
        eventually("all are dropped", || ledger.dropped() == 500);
        if config.listener {
            eventually("and told", || events.all().len() == 500);
        }
        assert_eq!(cache.entry_count(), 0);
        assert_counts_agree(&cache);
        events.assert_each_once();
        drop(cache);
        ledger.assert_all_dropped_once();
    });
}

#[test]
fn whatever_leaves_is_dropped_though_nobody_calls_again() {
    type Leave = fn(&Cache<u64, Tracked>, &Ledger);
    let ways: [(&str, usize, Leave); 7] = [
        ("remove", 1, |cache, _| drop(cache.remove(&1))),
        ("replace", 1, |cache, ledger| {
            cache.insert(1, ledger.value(2))
        }),
        ("invalidate_all", 1, |cache, _| cache.invalidate_all()),
        ("drain", 1, |cache, _| drop(cache.drain())),
        ("a sooner deadline", 1, |cache, _| {
            assert!(cache.expire(&1, 3 * MS));
        }),
        ("a write with a sooner deadline", 2, |cache, ledger| {
            cache.insert_with_ttl(1, ledger.value(2), 3 * MS);
        }),
        ("touch of a short life", 1, |cache, _| {
            assert!(cache.expire(&1, 20 * MS));
            assert!(cache.touch(&1));
        }),
    ];
    let cases = || {
        ways.into_iter()
            .flat_map(|way| reapers().map(|reaper| (way, reaper)))
    };
    for_each(cases(), |((_, drops, leave), reaper)| {
        let ledger = Ledger::new();
        let cache: Cache<u64, Tracked> = Cache::builder()
            .reaper(reaper)
            .time_to_live(3_600 * S)
            .build()
            .unwrap();
        cache.insert(1, ledger.value(1));
        // Long enough for the worker to go to sleep for the hour.
        thread::sleep(40 * MS);
        leave(&cache, &ledger);
        eventually("it is dropped", || ledger.dropped() == drops);
    });
}

#[test]
fn no_wake_up_is_lost_however_the_worker_is_met() {
    // Each round meets it at another point between working and sleeping.
    let ledger = Ledger::new();
    let cache: Cache<u64, Tracked> = Cache::builder()
        .reaper(Reaper::dedicated(1).interval(MS / 2))
        .build()
        .unwrap();
    for round in 0..150usize {
        let key = round as u64;
        cache.insert_with_ttl(key, ledger.value(key), Duration::from_micros(300));
        eventually("it is dropped", || ledger.dropped() > round);
        let rest = Duration::from_micros((round as u64 * 137) % 6_000);
        thread::sleep(rest);
    }
}

#[test]
fn a_worker_follows_a_clock_that_is_moved_by_hand() {
    for reaper in reapers() {
        let (ledger, clock) = (Ledger::new(), ManualClock::new());
        let cache: Cache<u64, Tracked> = Cache::builder()
            .reaper(reaper)
            .clock(clock.clone())
            .build()
            .unwrap();
        for round in 1..=3 {
            for key in 0..300 {
                cache.insert_with_ttl(key, ledger.value(key), 1_800 * S);
            }
            thread::sleep(20 * MS);
            assert_eq!(cache.live_count(), 300);
            clock.advance(1_800 * S);
            eventually("the leap has been noticed", || {
                ledger.dropped() == 300 * round
            });
        }
    }
}

#[test]
fn a_drop_that_takes_its_time_holds_no_lock_and_holds_up_no_unlinking() {
    struct Slow {
        inner: Tracked,
        gate: Option<Gate>,
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            if let Some(gate) = &self.gate {
                gate.pass();
                // Longer than the budget of a millisecond and a tenth.
                thread::sleep(3 * MS);
            }
        }
    }
    const SMALL: u64 = 20_000;
    for_each(reapers(), |reaper| {
        let (ledger, gate) = (Ledger::new(), Gate::new());
        let cache: Cache<u64, Slow> = Cache::builder().shards(4).reaper(reaper).build().unwrap();
        let value = |key: u64| Slow {
            inner: ledger.value(key),
            gate: (key < 10).then(|| gate.clone()),
        };
        let deadline = Instant::now() + 100 * MS;
        for key in 0..SMALL {
            cache.insert_with_ttl(key, value(key), deadline);
        }
        gate.wait_reached();
        // The first slow drop goes on until the gate is opened.
        eventually("all small ones are unlinked", || cache.entry_count() == 0);
        let other = cache.clone();
        let values = ledger.clone();
        promptly("writers in every shard", move || {
            for key in SMALL..SMALL + 1_000 {
                let inner = values.value(key);
                other.insert(key, Slow { inner, gate: None });
                assert_eq!(other.with(&key, |value| value.inner.tag()), Some(key));
            }
            other.invalidate_all();
        });
        assert!(!ledger.is_dropped(0), "still at it");
        gate.open();
        eventually("all are dropped", || {
            ledger.dropped() as u64 == SMALL + 1_000
        });
        eventually("and counted", || cache.stats().limbo == 0);
        let stats = cache.stats();
        assert!(stats.budget_overruns >= 1, "{stats:?}");
        assert_counts_agree(&cache);
        drop(cache);
        ledger.assert_all_dropped_once();
    });
}

#[test]
fn a_drop_may_call_the_cache_it_comes_from() {
    // A value whose drop would wait for ever if any drop ran under a lock.
    struct Calling {
        inner: Tracked,
        cache: Cache<u64, u64>,
        own: std::sync::Weak<Cache<u64, Calling>>,
    }
    impl Drop for Calling {
        fn drop(&mut self) {
            self.cache.insert(self.inner.tag(), 1);
            if let Some(own) = self.own.upgrade() {
                for key in 0..8 {
                    own.contains_key(&key);
                    own.touch(&key);
                    own.expire(&(key + 1_000), S);
                }
            }
        }
    }
    promptly("values that call the cache when dropped", || {
        for manual in [true, false] {
            let ledger = Ledger::new();
            let notes: Cache<u64, u64> = Cache::unbounded();
            let builder = Cache::builder().shards(1).max_entries(4);
            let cache = Arc::new(match manual {
                true => builder.reaper(Reaper::manual()).build().unwrap(),
                false => builder.build().unwrap(),
            });
            let value = |tag: u64| Calling {
                inner: ledger.value(tag),
                cache: notes.clone(),
                own: Arc::downgrade(&cache),
            };
            for key in 0..300 {
                cache.insert(key % 8, value(key));
                cache.insert_with_ttl(key % 8 + 1, value(key), ZERO);
                cache.insert_if_absent(key % 8, value(key));
                cache.compute(key % 8, |_| ebbtide::Op::Put(value(key)));
                cache.insert_with_ttl(key % 8 + 2, value(key), MS / 10);
                cache.invalidate(&(key % 5));
                if manual {
                    cache.reap(MS);
                }
            }
            cache.retain(|key, _| key % 2 == 0);
            cache.invalidate_all();
            eventually("all are dropped", || {
                if manual {
                    cache.reap(S);
                }
                ledger.dropped() == ledger.made()
            });
            assert_counts_agree(&*cache);
            drop(cache);
            ledger.assert_all_dropped_once();
            assert!(notes.entry_count() > 0);
        }
    });
}

#[test]
fn the_last_handle_ends_the_cache_in_the_middle_of_a_wave() {
    for round in 0..30u32 {
        let ledger = Ledger::new();
        let cache: Cache<u64, Tracked> = match round % 3 {
            0 => Cache::unbounded(),
            1 => Cache::builder()
                .reaper(Reaper::dedicated(2))
                .build()
                .unwrap(),
            _ => Cache::builder().reaper(Reaper::manual()).build().unwrap(),
        };
        let deadline = Instant::now() + 15 * MS;
        for key in 0..5_000 {
            cache.insert_with_ttl(key, ledger.value(key), deadline);
        }
        assert_eq!(tag(cache.get(&0)).unwrap_or(0), 0);
        thread::sleep(deadline.saturating_duration_since(Instant::now()) + round * MS / 20);
        promptly("the end", move || drop(cache));
        ledger.assert_all_dropped_once();
    }
}

#[test]
fn a_value_may_hold_the_last_handle_of_its_own_cache() {
    struct Owner {
        _inner: Tracked,
        _cache: Option<Cache<u64, Owner>>,
    }
    for_each(reapers(), |reaper| {
        let ledger = Ledger::new();
        let cache: Cache<u64, Owner> = Cache::builder().reaper(reaper).build().unwrap();
        for key in 0..100 {
            let _inner = ledger.value(key);
            let _cache = None;
            cache.insert(key, Owner { _inner, _cache });
        }
        let owner = Owner {
            _inner: ledger.value(100),
            _cache: Some(cache.clone()),
        };
        cache.insert_with_ttl(100, owner, 10 * MS);
        drop(cache);
        eventually("the worker ends the cache that it works for", || {
            ledger.dropped() == 101
        });
        ledger.assert_all_dropped_once();
    });
}

/// Each hold of the lock began a round of its own, and a round over so many entries takes longer
/// than a hold may: none was ever complete, and the sweep went round until its budget was spent.
#[test]
fn a_sweep_over_many_that_are_not_over_yet_goes_round_once() {
    const MANY: u64 = 50_000;
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .shards(1)
        .clock(clock.clone())
        .build()
        .unwrap();
    for key in 0..MANY {
        // All filed under the lane unit that is passing.
        cache.insert_with_ttl(key, key, 10 * MS);
    }
    let reaped = cache.reap(120 * S);
    assert!(reaped.finished, "{reaped:?}");
    assert_eq!((reaped.expired, reaped.refiled), (0, MANY));
    // Without a limit in time it did not come back at all.
    let reaped = cache.reap_at_most(1);
    assert_eq!((reaped.expired, reaped.refiled), (0, MANY));
    clock.advance(10 * MS);
    assert_eq!(cache.reap_at_most(7).expired, 7);
    let reaped = cache.reap(120 * S);
    assert_eq!((reaped.expired, reaped.finished), (MANY - 7, true));
    assert_counts_agree(&cache);
}
