//! Loads: one for each key at a time, whoever asks meanwhile; nobody waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Computed, Lifetime, ManualClock, Op, Reaper, Refused, RemovalCause, Turn};

/// Longer than anything here takes unless it hangs.
const EVER: Duration = Duration::from_secs(60);

/// Runs `f` on a thread of its own; fails if it hangs.
fn within_reason<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (answer, answered) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = answer.send(f());
    });
    match answered.recv_timeout(EVER) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing"))
        }
    }
}

/// Waits until so many callers wait for a load. (There is no way to ask; a caller that is late makes
/// a test weaker, not wrong.)
fn let_others_wait() {
    thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_thousand_threads_on_one_key_at_its_expiry_load_once() {
    within_reason(|| {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .clock(clock.clone())
            .time_to_live(Duration::from_secs(1))
            .reaper(Reaper::manual())
            .build()
            .unwrap();
        let loads = AtomicUsize::new(0);
        for generation in 1..=3 {
            let begin = Barrier::new(1_000);
            thread::scope(|scope| {
                for _ in 0..1_000 {
                    scope.spawn(|| {
                        begin.wait();
                        let value = cache.get_or_insert_with(7, || {
                            thread::sleep(Duration::from_millis(20));
                            loads.fetch_add(1, Ordering::Relaxed) as u64 + 1
                        });
                        assert_eq!(value, generation);
                    });
                }
            });
            assert_eq!(loads.load(Ordering::Relaxed) as u64, generation);
            clock.advance(Duration::from_secs(1));
        }
        cache.validate();
    });
}

#[test]
fn errors_and_panics_are_the_leaders_and_somebody_takes_over() {
    for panics in [false, true] {
        within_reason(move || {
            let cache: Cache<&str, usize> = Cache::new(10);
            let (turns, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let begin = Barrier::new(9);
            thread::scope(|scope| {
                for _ in 0..9 {
                    scope.spawn(|| {
                        begin.wait();
                        let load = || {
                            let turn = turns.fetch_add(1, Ordering::SeqCst);
                            let_others_wait();
                            match turn {
                                0..=3 if panics => panic!("turn {turn}"),
                                0..=3 => Err(turn),
                                _ => Ok(turn),
                            }
                        };
                        let answer = catch_unwind(AssertUnwindSafe(|| {
                            cache.try_get_or_insert_with("k", load)
                        }));
                        match answer {
                            Ok(Ok(value)) => assert_eq!(value, 4),
                            Ok(Err(_)) | Err(_) => {
                                failures.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    });
                }
            });
            assert_eq!(turns.load(Ordering::SeqCst), 5);
            assert_eq!(failures.load(Ordering::SeqCst), 4);
            assert_eq!(cache.get("k"), Some(4));
        });
    }
}

/// What happens to the key between the beginning and the end of its load, and what is there after it.
type Overtaking = (&'static str, fn(&Cache<u64, u64>), Option<u64>);

#[test]
fn a_write_or_a_removal_during_a_load_wins() {
    let overtakings: [Overtaking; 11] = [
        ("invalidate", |c| assert!(!c.invalidate(&1)), None),
        ("remove", |c| assert_eq!(c.remove(&1), None), None),
        ("invalidate_all", |c| c.invalidate_all(), None),
        ("retain", |c| c.retain(|_, _| true), None),
        ("drain", |c| drop(c.drain()), None),
        ("insert", |c| c.insert(1, 50), Some(50)),
        ("try_insert", |c| c.try_insert(1, 50).unwrap(), Some(50)),
        (
            "insert_if_absent",
            |c| assert!(c.insert_if_absent(1, 50)),
            Some(50),
        ),
        (
            "insert and remove",
            |c| {
                c.insert(1, 50);
                assert!(c.invalidate(&1));
            },
            None,
        ),
        (
            "compute",
            |c| assert_ne!(c.compute(1, |_| Op::Put(50)), Computed::Unchanged),
            Some(50),
        ),
        (
            "insert and expire",
            |c| {
                c.insert(1, 50);
                assert!(c.expire(&1, Duration::ZERO));
            },
            None,
        ),
    ];
    for (name, overtake, left) in overtakings {
        within_reason(move || {
            let cache: Cache<u64, u64> = Cache::new(100);
            let (loading, waits) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                let leader = scope.spawn(|| {
                    cache.get_or_insert_with(1, || {
                        loading.wait();
                        waits.wait();
                        1
                    })
                });
                loading.wait();
                let waiter = scope.spawn(|| cache.get_or_insert_with(1, || 2));
                let_others_wait();
                overtake(&cache);
                // Who asks from now on does not get what is older than the change.
                let later = cache.get_or_insert_with(1, || 3);
                assert_eq!(later, left.unwrap_or(3), "{name}");
                waits.wait();
                assert_eq!(leader.join().unwrap(), 1, "{name}");
                // (It had waited, or came after the change.)
                let waited = waiter.join().unwrap();
                assert!(waited == 1 || waited == later, "{name}: {waited}");
            });
            assert_eq!(cache.get(&1), Some(left.unwrap_or(3)), "{name}");
            cache.validate();
        });
    }
}

/// Random invalidations by a thread that changes the source first: after an invalidation nobody may
/// read what is older than it.
#[test]
fn nothing_older_than_an_invalidation_is_read_after_it() {
    within_reason(|| {
        let cache: Cache<u8, usize> = Cache::new(100);
        let source = AtomicUsize::new(0);
        let over = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while over.load(Ordering::Acquire) == 0 {
                        let least = source.load(Ordering::SeqCst).saturating_sub(1);
                        let value = cache.get_or_insert_with(1, || source.load(Ordering::SeqCst));
                        // (The last change may not have been followed by its invalidation yet.)
                        assert!(value >= least, "{value} after {least}");
                    }
                });
            }
            for _ in 0..20_000 {
                source.fetch_add(1, Ordering::SeqCst);
                cache.invalidate(&1);
            }
            over.store(1, Ordering::Release);
        });
        assert_eq!(cache.get_or_insert_with(1, || 20_000), 20_000);
    });
}

#[test]
fn who_is_impatient_stops_waiting() {
    within_reason(|| {
        let cache: Cache<u64, u64> = Cache::new(100);
        let Turn::Load(loading) = cache.get_or_load(1, None) else {
            panic!("nobody has it");
        };
        thread::scope(|scope| {
            let impatient = scope.spawn(|| {
                matches!(
                    cache.get_or_load(1, Some(Duration::from_millis(5))),
                    Turn::TimedOut
                )
            });
            assert!(impatient.join().unwrap());
            let patient = scope.spawn(|| match cache.get_or_load(1, Some(Duration::MAX)) {
                Turn::Value(value) => value,
                other => panic!("{other:?}"),
            });
            let_others_wait();
            assert_eq!(loading.key(), &1);
            assert_eq!(loading.insert(5), 5);
            assert_eq!(patient.join().unwrap(), 5);
        });
        assert!(matches!(cache.get_or_load(1, None), Turn::Value(5)));
    });
}

#[test]
fn a_turn_that_is_dropped_goes_to_somebody_who_waits() {
    within_reason(|| {
        let cache: Cache<u64, u64> = Cache::new(100);
        let turn = cache.get_or_load(1, None);
        assert!(matches!(turn, Turn::Load(_)));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cache.get_or_insert_with(1, || 9));
            let_others_wait();
            drop(turn);
            assert_eq!(waiter.join().unwrap(), 9);
        });
    });
}

#[test]
fn a_recursive_load_panics_at_once_and_says_why() {
    within_reason(|| {
        let cache: Cache<u64, u64> = Cache::new(100);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            cache.get_or_insert_with(1, || cache.get_or_insert_with(1, || 2))
        }))
        .unwrap_err();
        let said = panic.downcast_ref::<String>().expect("a message");
        assert!(said.contains("recursive load"), "{said}");
        // The primitive answers instead, and other keys may be loaded inside.
        let value = cache.get_or_insert_with(1, || {
            assert!(matches!(cache.get_or_load(1, None), Turn::Recursive));
            cache.get_or_insert_with(2, || cache.get_or_insert_with(3, || 4) + 1) + 1
        });
        assert_eq!((value, cache.get(&2), cache.get(&3)), (6, Some(5), Some(4)));
    });
}

/// Loaders of a ring of keys, each on its own thread, that ask for each other: somebody is told.
#[test]
fn loads_that_wait_for_each_other_are_found_out() {
    for ring in [2, 3, 5] {
        within_reason(move || {
            let cache: Cache<usize, usize> = Cache::new(100);
            let all_loading = Barrier::new(ring);
            let recursive = AtomicUsize::new(0);
            thread::scope(|scope| {
                for key in 0..ring {
                    let (cache, all_loading, recursive) = (&cache, &all_loading, &recursive);
                    scope.spawn(move || {
                        cache.get_or_insert_with(key, || {
                            all_loading.wait();
                            match cache.get_or_load((key + 1) % ring, None) {
                                Turn::Value(value) => value + 1,
                                Turn::Recursive => {
                                    recursive.fetch_add(1, Ordering::SeqCst);
                                    0
                                }
                                other => panic!("{other:?}"),
                            }
                        })
                    });
                }
            });
            assert_eq!(recursive.load(Ordering::SeqCst), 1);
            // The others counted from there.
            let mut values: Vec<usize> = (0..ring).map(|key| cache.get(&key).unwrap()).collect();
            values.sort_unstable();
            assert_eq!(values, (0..ring).collect::<Vec<_>>());
        });
    }
}

/// Absences for a short while, values for longer.
fn patience(found: Option<u64>) -> Duration {
    Duration::from_secs(if found.is_some() { 100 } else { 2 })
}

#[test]
fn absences_can_be_cached_for_a_short_while() {
    let clock = ManualClock::new();
    let builder = || Cache::<u64, Option<u64>>::builder().clock(clock.clone());
    let by_policy = builder()
        .expiry(|_: &u64, found: &Option<u64>| Lifetime::For(patience(*found)))
        .build()
        .unwrap();
    let by_result = builder().build().unwrap();
    let get = |key: u64, found: Option<u64>| {
        let loaded = by_policy.get_or_insert_with(key, || found);
        let also = by_result.get_or_insert_with_ttl(key, || (found, patience(found)));
        assert_eq!(loaded, also);
        loaded
    };
    assert_eq!((get(1, None), get(2, Some(2))), (None, Some(2)));
    assert_eq!((get(1, Some(7)), get(2, Some(7))), (None, Some(2)));
    clock.advance(Duration::from_secs(2));
    assert_eq!((get(1, Some(7)), get(2, Some(7))), (Some(7), Some(2)));
    // One that is over at once is not stored.
    assert_eq!(
        by_result.get_or_insert_with_ttl(3, || (Some(1), Duration::ZERO)),
        Some(1)
    );
    assert_eq!(by_result.get(&3), None);
}

#[test]
fn what_the_cache_cannot_take_is_returned_all_the_same() {
    let cache: Cache<u64, u64> = Cache::new(0);
    assert_eq!(cache.get_or_insert_with(1, || 2), 2);
    assert_eq!(cache.get(&1), None);
    assert!(matches!(cache.try_insert(1, 1), Err(Refused { .. })));
}

/// A listener may load what has just left.
#[test]
fn a_listener_may_load_what_has_left() {
    within_reason(|| {
        let handle: Arc<Mutex<Option<Cache<u64, u64>>>> = Arc::default();
        let heard = handle.clone();
        let cache: Cache<u64, u64> = Cache::builder()
            .on_removal(move |key, value, cause| {
                let cache = heard.lock().unwrap().clone();
                if let (Some(cache), RemovalCause::Explicit) = (cache, cause) {
                    assert_eq!(cache.get_or_insert_with(*key, || value + 1), value + 1);
                }
            })
            .build()
            .unwrap();
        *handle.lock().unwrap() = Some(cache.clone());
        cache.insert(1, 1);
        assert!(cache.invalidate(&1));
        assert_eq!(cache.get(&1), Some(2));
        assert_eq!(cache.stats().panics, 0);
        *handle.lock().unwrap() = None;
    });
}
