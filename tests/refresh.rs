//! Stale values are served while one caller, or an executor, loads them again; and what keeps loads from
//! coming all at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{BuildError, Builder, Cache, Counter, Lifetime, ManualClock, RemovalCause};

const S: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// Values live for ten seconds and are stale after five.
fn builder(clock: &ManualClock) -> Builder<u64, u64> {
    Cache::builder()
        .clock(clock.clone())
        .time_to_live(10 * S)
        .refresh_after(5 * S)
}

fn rig() -> (Cache<u64, u64>, ManualClock) {
    let clock = ManualClock::new();
    (builder(&clock).build().unwrap(), clock)
}

/// Asks with an executor that keeps the job; what was answered, and the job if there was one.
fn ask(cache: &Cache<u64, u64>, key: u64, loaded: u64) -> (u64, Option<Job>) {
    let mut job = None;
    let value = cache.get_or_refresh_on(key, |given| job = Some(given), move || loaded);
    (value, job)
}

#[test]
fn a_thousand_threads_on_one_stale_key_load_once_and_only_that_one_waits() {
    let (cache, clock) = rig();
    let loads = AtomicU64::new(1);
    assert_eq!(cache.get_or_refresh_with(7, || 1), 1);
    for generation in 2..=4 {
        clock.advance(5 * S);
        let begin = Barrier::new(1_000);
        // The load ends when all others have their answers: they did not wait for it.
        let served = Barrier::new(1_000);
        let answers = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..1_000 {
                scope.spawn(|| {
                    begin.wait();
                    let mut leads = false;
                    let value = cache.get_or_refresh_with(7, || {
                        leads = true;
                        served.wait();
                        loads.fetch_add(1, Ordering::Relaxed) + 1
                    });
                    if !leads {
                        served.wait();
                    }
                    answers.lock().unwrap().push(value);
                });
            }
        });
        assert_eq!(loads.load(Ordering::Relaxed), generation);
        let mut answers = answers.into_inner().unwrap();
        answers.sort_unstable();
        assert!(answers[..999].iter().all(|&value| value == generation - 1));
        assert_eq!(answers[999], generation);
        assert_eq!(cache.get(&7), Some(generation));
    }
    cache.validate();
}

#[test]
fn with_an_executor_every_caller_gets_the_stale_value_and_one_hands_over_a_job() {
    let (cache, clock) = rig();
    assert!(matches!(ask(&cache, 1, 10), (10, None)), "loaded at once");
    clock.advance(5 * S - Duration::from_nanos(1));
    assert!(matches!(ask(&cache, 1, 11), (10, None)), "not stale yet");
    clock.advance(Duration::from_nanos(1));
    let (value, job) = ask(&cache, 1, 12);
    let job = job.expect("stale");
    assert_eq!(value, 10);
    assert!(matches!(ask(&cache, 1, 13), (10, None)), "being loaded");
    thread::spawn(job).join().unwrap();
    assert!(matches!(ask(&cache, 1, 14), (12, None)), "fresh");
    assert_eq!(cache.ttl(&1), Some(Lifetime::For(10 * S)), "a new lifetime");
}

#[test]
fn a_job_that_is_dropped_leaves_the_turn_to_the_next_caller() {
    let (cache, clock) = rig();
    ask(&cache, 1, 10);
    clock.advance(5 * S);
    let (_, job) = ask(&cache, 1, 11);
    drop(job.unwrap());
    let (value, job) = ask(&cache, 1, 12);
    assert_eq!(value, 10);
    job.unwrap()();
    assert_eq!(cache.get(&1), Some(12));
}

#[test]
fn what_is_written_or_removed_during_a_reload_stays_as_it_was_left() {
    type Change = fn(&Cache<u64, u64>);
    let changes: [(Change, Option<u64>); 6] = [
        (|cache| cache.insert(1, 20), Some(20)),
        (|cache| assert!(cache.invalidate(&1)), None),
        (|cache| cache.invalidate_all(), None),
        (|cache| cache.retain(|_, _| false), None),
        (
            |cache| assert!(cache.compare_and_swap(1, &10, 20).is_ok()),
            Some(20),
        ),
        (|cache| assert!(cache.expire(&1, Duration::ZERO)), None),
    ];
    for (change, left) in changes {
        let (cache, clock) = rig();
        ask(&cache, 1, 10);
        clock.advance(5 * S);
        let job = ask(&cache, 1, 11).1.unwrap();
        change(&cache);
        job();
        assert_eq!(cache.get(&1), left);
        cache.validate();
    }
}

#[test]
fn a_failure_is_answered_with_the_stale_value_while_there_is_one() {
    let (cache, clock) = rig();
    let fail = || Err::<u64, &str>("no route");
    assert_eq!(cache.try_get_or_refresh_with(1, fail), Err("no route"));
    assert_eq!(
        cache.try_get_or_refresh_with(1, || Ok::<_, &str>(10)),
        Ok(10)
    );
    clock.advance(5 * S);
    assert_eq!(cache.try_get_or_refresh_with(1, fail), Ok(10));
    assert_eq!(
        cache.try_get_or_refresh_with(1, || Ok::<_, &str>(11)),
        Ok(11)
    );
    clock.advance(10 * S);
    assert_eq!(cache.try_get_or_refresh_with(1, fail), Err("no route"));
}

#[test]
fn a_panic_is_the_loading_callers_and_the_stale_value_stays() {
    let (cache, clock) = rig();
    ask(&cache, 1, 10);
    clock.advance(5 * S);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        cache.get_or_refresh_with(1, || std::panic::resume_unwind(Box::new("mine")))
    }));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "mine");
    assert_eq!(cache.get(&1), Some(10));
    let job = ask(&cache, 1, 11).1.expect("nobody is loading it");
    job();
    assert_eq!(cache.get(&1), Some(11));
}

#[test]
fn who_finds_nothing_waits_for_the_reload_in_progress() {
    let (cache, clock) = rig();
    ask(&cache, 1, 10);
    clock.advance(5 * S);
    let job = ask(&cache, 1, 11).1.unwrap();
    clock.advance(5 * S);
    assert_eq!(cache.get(&1), None, "the old value is over");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get_or_insert_with(1, || unreachable!("in progress")));
        // (Too early, it makes the test weaker, not wrong.)
        thread::sleep(Duration::from_millis(20));
        job();
        assert_eq!(waiting.join().unwrap(), 11);
    });
}

#[test]
fn a_replacement_is_fresh_and_a_change_of_the_deadline_is_not() {
    let (cache, clock) = rig();
    cache.insert(1, 10);
    clock.advance(5 * S);
    cache.insert(1, 20);
    assert!(ask(&cache, 1, 0).1.is_none());
    clock.advance(5 * S);
    assert!(cache.touch(&1) && cache.expire(&1, 100 * S) && cache.persist(&1));
    assert!(ask(&cache, 1, 0).1.is_some());

    let counters: Cache<u64, Counter> = Cache::builder()
        .clock(clock.clone())
        .refresh_after(5 * S)
        .build()
        .unwrap();
    counters.increment(&1, 1).unwrap();
    clock.advance(5 * S);
    counters.increment(&1, 1).unwrap();
    let mut stale = false;
    let value = counters.get_or_refresh_on(1, |_| stale = true, || Counter::new(0));
    assert!(stale && value.get() == 2);
}

#[test]
fn values_without_a_lifetime_become_stale_too_and_reloads_are_replacements() {
    let clock = ManualClock::new();
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let events = told.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .refresh_after(5 * S)
        .max_entries(10)
        .on_removal(move |_, &value, cause| events.lock().unwrap().push((value, cause)))
        .build()
        .unwrap();
    ask(&cache, 1, 10);
    clock.advance(5 * S);
    ask(&cache, 1, 11).1.unwrap()();
    assert_eq!(cache.ttl(&1), Some(Lifetime::Never));
    assert_eq!(*told.lock().unwrap(), [(10, RemovalCause::Replaced)]);
    // Without `refresh_after` nothing is ever stale.
    let plain: Cache<u64, u64> = Cache::builder().clock(clock.clone()).build().unwrap();
    assert_eq!(plain.get_or_refresh_with(1, || 1), 1);
    clock.advance(Duration::from_secs(1 << 30));
    assert_eq!(plain.get_or_refresh_with(1, || 2), 1);
}

/// With loads that take a second, a read two seconds ahead is early with probability e^−2.
#[test]
fn early_refresh_finds_as_many_values_stale_as_its_source_says() {
    const KEYS: u64 = 20_000;
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = builder(&clock).early_refresh(1.0).build().unwrap();
    cache.get_or_insert_with(KEYS, || {
        clock.advance(S);
        0
    });
    (0..KEYS).for_each(|key| cache.insert(key, 0));
    let early = |ahead: Duration| {
        clock.set_ns((S + 5 * S - ahead).as_nanos() as u64);
        (0..KEYS)
            .filter(|&key| ask(&cache, key, 1).1.is_some())
            .count() as f64
    };
    // Jobs are dropped, so all stay stale. The mean is 2,707 and its deviation 48; seven of them are
    // allowed.
    let two_seconds = early(2 * S);
    assert!((two_seconds - 2_707.0).abs() < 340.0, "{two_seconds}");
    assert_eq!(early(Duration::ZERO), KEYS as f64);
    let calm: Cache<u64, u64> = builder(&clock).build().unwrap();
    calm.get_or_insert_with(0, || {
        clock.advance(S);
        0
    });
    clock.advance(5 * S - Duration::from_nanos(1));
    assert!(
        (0..1_000).all(|_| ask(&calm, 0, 1).1.is_none()),
        "never without"
    );
}

#[test]
fn jitter_shortens_the_caches_own_lifetimes_and_no_others() {
    const ENTRIES: u64 = 10_000;
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .time_to_live(100 * S)
        .expiry(|&key: &u64, _: &u64| match key % 2 {
            0 => Lifetime::Never,
            _ => Lifetime::For(40 * S),
        })
        .lifetime_jitter(0.25)
        .build()
        .unwrap();
    (0..ENTRIES).for_each(|key| cache.insert(key, 0));
    let left = |key: u64| match cache.ttl(&key) {
        Some(Lifetime::For(left)) => left,
        other => panic!("{other:?}"),
    };
    for (parity, longest) in [(0, 100 * S), (1, 40 * S)] {
        let mut all: Vec<Duration> = (parity..ENTRIES).step_by(2).map(left).collect();
        all.sort_unstable();
        assert!(all[0] >= longest * 3 / 4 && *all.last().unwrap() <= longest);
        // Evenly spread: each tenth of the time has about a tenth of the entries.
        for tenth in 0..10 {
            let begin = longest * 3 / 4 + longest / 40 * tenth;
            let count = all
                .iter()
                .filter(|&&left| left >= begin && left < begin + longest / 40);
            assert!((400..600).contains(&count.count()), "tenth {tenth}");
        }
    }
    assert!(cache.touch(&0) && left(0) >= 75 * S && left(0) <= 100 * S);
    cache.insert_with_ttl(2, 0, 7 * S);
    assert_eq!(left(2), 7 * S);
    assert!(cache.expire(&4, 9 * S) && left(4) == 9 * S);
    cache.validate();
}

#[test]
fn the_shortest_lifetimes_survive_the_largest_jitter() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .time_to_live(Duration::from_nanos(1))
        .lifetime_jitter(0.999_999)
        .build()
        .unwrap();
    for key in 0..1_000 {
        cache.insert(key, key);
        assert_eq!(cache.get(&key), Some(key));
    }
    clock.advance(Duration::from_nanos(1));
    assert_eq!(cache.live_count(), 0);
    // At the end of time.
    clock.set_ns(u64::MAX - 1);
    cache.insert(0, 0);
    clock.set_ns(u64::MAX);
    cache.insert(1, 0);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let build = |change: fn(Builder<u64, u64>) -> Builder<u64, u64>| {
        change(Cache::builder()).build().map(drop).unwrap_err()
    };
    assert_eq!(
        build(|b| b.refresh_after(Duration::ZERO)),
        BuildError::ZeroLifetime
    );
    assert_eq!(
        build(|b| b.early_refresh(1.0)),
        BuildError::EarlyRefreshWithoutRefresh
    );
    for wrong in [-0.1, f64::NAN, f64::INFINITY] {
        let change = |b: Builder<u64, u64>| b.refresh_after(S).early_refresh(wrong);
        let error = change(Cache::builder()).build().map(drop).unwrap_err();
        assert_eq!(error, BuildError::EagernessOutOfRange(wrong.to_string()));
    }
    for wrong in [-0.1, 1.0, f64::NAN] {
        let error = Cache::<u64, u64>::builder().lifetime_jitter(wrong).build();
        let error = error.map(drop).unwrap_err();
        assert_eq!(error, BuildError::JitterOutOfRange(wrong.to_string()));
        assert!(error.to_string().contains("lifetime_jitter"));
    }
}

#[test]
fn with_the_systems_clock_and_a_reaper_stale_values_are_loaded_again_too() {
    let cache: Cache<u64, usize> = Cache::builder()
        .time_to_live(Duration::from_secs(3600))
        .refresh_after(Duration::from_millis(20))
        .build()
        .unwrap();
    let loads = AtomicUsize::new(0);
    let load = || loads.fetch_add(1, Ordering::Relaxed) + 1;
    while cache.get_or_refresh_with(1, load) < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(loads.load(Ordering::Relaxed), 3);
}
