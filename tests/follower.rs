//! A follower hides what is over by its own clock and removes nothing before its primary does; fed by the
//! same log and by the primary's removals, it ends up with the same entries.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{
    BuildError, Cache, Computed, Follower, Lagged, Lifetime, ManualClock, Op, Reaper, Removal,
    RemovalCause, Removals,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

const S: Duration = Duration::from_secs(1);

struct Rig {
    primary: Cache<u64, u64>,
    removals: Removals<u64>,
    clock: ManualClock,
    follower: Follower<u64, u64>,
    theirs: ManualClock,
}

impl Rig {
    fn new() -> Self {
        let (clock, theirs) = (ManualClock::new(), ManualClock::new());
        let primary = Cache::builder()
            .clock(clock.clone())
            .removal_feed(1_000)
            .build()
            .unwrap();
        Rig {
            removals: primary.removals().unwrap(),
            primary,
            clock,
            follower: Cache::builder()
                .clock(theirs.clone())
                .build_follower()
                .unwrap(),
            theirs,
        }
    }

    /// One record of the log, to both.
    fn store(&self, key: u64, value: u64, lifetime: impl Into<Lifetime>) {
        let lifetime = lifetime.into();
        self.primary.insert_with_ttl(key, value, lifetime);
        self.follower.store_with_ttl(key, value, lifetime);
    }

    /// What the primary has removed, carried out; how many entries that removed.
    fn apply(&mut self) -> usize {
        let mut removed = 0;
        while let Some(removal) = self.removals.try_next().unwrap() {
            removed += usize::from(self.follower.apply(&removal));
        }
        removed
    }

    fn seen(&self, key: u64) -> (Option<u64>, Option<u64>) {
        (self.primary.get(&key), self.follower.get(&key))
    }
}

#[test]
fn a_fast_clock_hides_on_every_path_and_deletes_nothing() {
    let mut rig = Rig::new();
    rig.store(1, 10, 60 * S);
    rig.store(2, 20, Lifetime::Never);
    rig.theirs.advance(60 * S);
    let (follower, key) = (&rig.follower, &1);
    assert_eq!(follower.get(key), None);
    assert_eq!(follower.with(key, |_| ()), None);
    assert_eq!(follower.pin().get(key), None);
    assert_eq!(follower.get_many([key, &2]), [None, Some(20)]);
    assert!(!follower.contains_key(key));
    assert_eq!(follower.ttl(key), None);
    assert_eq!(follower.iter().collect::<Vec<_>>(), [(2, 20)]);
    assert_eq!(follower.pin().iter().count(), 1);
    assert_eq!((follower.entry_count(), follower.live_count()), (2, 1));
    // Neither reads nor the reaper ended it.
    let reaped = follower.reap(10 * S);
    assert_eq!((reaped.expired, reaped.dropped), (0, 0));
    rig.theirs.step_back(S);
    assert_eq!(rig.seen(1), (Some(10), Some(10)));
    // Nor does a new deadline: the primary knows it to be alive.
    rig.theirs.advance(S);
    assert!(rig.follower.expire(&1, 30 * S) && rig.follower.persist(&2));
    assert_eq!(rig.seen(1), (Some(10), Some(10)));
    rig.theirs.advance(30 * S);
    assert_eq!(rig.follower.get(&1), None);
    // Until the primary says so.
    rig.clock.advance(60 * S);
    rig.primary.reap(10 * S);
    assert_eq!(rig.apply(), 1);
    assert_eq!(
        (rig.follower.entry_count(), rig.follower.unmatched()),
        (1, 0)
    );
    assert_eq!(rig.follower.stats().expired_by_write, 1);
}

#[test]
fn a_slow_clock_serves_until_the_primary_removes() {
    let mut rig = Rig::new();
    rig.store(1, 10, 60 * S);
    rig.clock.advance(60 * S);
    assert_eq!(rig.seen(1), (None, Some(10)));
    rig.primary.reap(10 * S);
    assert_eq!(rig.follower.get(&1), Some(10), "it has not heard of it");
    assert_eq!(rig.apply(), 1);
    assert_eq!(rig.seen(1), (None, None));
    assert_eq!(rig.follower.entry_count(), 0);
}

#[test]
fn an_idle_follower_with_a_reaper_and_the_systems_clock_keeps_what_is_over() {
    let follower: Follower<u64, u64> = Cache::builder()
        .reaper(Reaper::dedicated(1).interval(Duration::from_millis(1)))
        .build_follower()
        .unwrap();
    for key in 0..1_000 {
        follower.store_with_ttl(key, key, Duration::from_millis(key % 3));
    }
    while follower.live_count() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(30));
    assert_eq!(follower.entry_count(), 1_000);
    assert!(follower.expire(&7, S) && follower.get(&7) == Some(7));
}

#[test]
fn a_removal_is_about_the_value_that_left_and_no_later_one() {
    // The feed lags behind the log.
    let mut rig = Rig::new();
    rig.store(1, 10, 5 * S);
    rig.clock.advance(5 * S);
    rig.primary.reap(S);
    rig.store(1, 11, 5 * S);
    assert_eq!(rig.follower.unmatched(), 1);
    assert_eq!(rig.apply(), 0);
    assert_eq!(
        (rig.seen(1), rig.follower.unmatched()),
        ((Some(11), Some(11)), 0)
    );
    // The log lags behind the feed.
    rig.primary.insert(1, 12);
    rig.primary.insert(1, 13);
    rig.primary.invalidate(&1);
    rig.primary.insert(1, 14);
    assert_eq!(rig.apply(), 1);
    assert_eq!(
        (rig.follower.entry_count(), rig.follower.unmatched()),
        (0, 1)
    );
    rig.follower.store(1, 12);
    rig.follower.store(1, 13);
    assert_eq!(
        (rig.follower.entry_count(), rig.follower.unmatched()),
        (0, 0)
    );
    rig.follower.store(1, 14);
    assert_eq!(rig.seen(1), (Some(14), Some(14)));
}

#[test]
fn every_cause_is_fed_and_keeps_its_name() {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let told = causes.clone();
    let mut rig = Rig::new();
    rig.follower = Cache::builder()
        .clock(rig.theirs.clone())
        .on_removal(move |&key, _, cause| told.lock().unwrap().push((key, cause)))
        .build_follower()
        .unwrap();
    for key in 1..=2 {
        rig.store(key, 0, 5 * S);
    }
    rig.store(3, 0, Lifetime::Never);
    rig.store(3, 1, Lifetime::Never);
    rig.primary.invalidate(&1);
    rig.clock.advance(5 * S);
    rig.primary.reap(S);
    rig.apply();
    use RemovalCause::{Expired, Explicit, Replaced};
    let mut causes = causes.lock().unwrap();
    causes.sort_by_key(|told| told.0);
    assert_eq!(*causes, [(1, Explicit), (2, Expired), (3, Replaced)]);
}

/// What is over when it is stored: each of the two decides by its own clock, and yet they agree.
#[test]
fn a_lifetime_that_is_over_at_once_is_a_value_all_the_same() {
    let mut rig = Rig::new();
    // (There is no deadline before the clock's first nanosecond.)
    rig.theirs.advance(S);
    let passed = Instant::now() - Duration::from_secs(1 << 20);
    for lifetime in [Lifetime::For(Duration::ZERO), Lifetime::Until(passed)] {
        rig.store(1, 10, S);
        rig.store(1, 11, lifetime);
        assert_eq!(rig.seen(1), (None, None));
        rig.apply();
        assert_eq!(
            (rig.follower.entry_count(), rig.follower.unmatched()),
            (0, 0)
        );
    }
    // Over here, not there.
    let moment = Instant::now() + Duration::from_secs(1 << 20);
    rig.theirs.set_ns(u64::MAX / 2);
    rig.store(1, 12, moment);
    assert_eq!(rig.seen(1), (Some(12), None));
    assert_eq!((rig.apply(), rig.follower.entry_count()), (0, 1));
    rig.theirs.set_ns(1_000_000_000);
    assert_eq!(rig.seen(1), (Some(12), Some(12)));
    assert!(rig.primary.expire(&1, Duration::ZERO) && rig.follower.expire(&1, Duration::ZERO));
    assert_eq!(rig.seen(1), (None, None));
    assert_eq!((rig.apply(), rig.follower.entry_count()), (1, 0));
}

#[test]
fn a_removal_that_was_carried_out_early_does_nothing_when_it_comes() {
    let mut rig = Rig::new();
    rig.store(1, 10, S);
    assert!(!rig.follower.remove_early(&2));
    assert!(rig.follower.remove_early(&1));
    assert_eq!(rig.follower.unmatched(), 1);
    rig.primary.invalidate(&1);
    rig.store(1, 11, S);
    assert_eq!(rig.apply(), 0);
    assert_eq!(
        (rig.seen(1), rig.follower.unmatched()),
        ((Some(11), Some(11)), 0)
    );
}

/// A record of the log.
#[derive(Clone, Copy)]
enum Record {
    Store(u64, u64, Lifetime),
    Expire(u64, Lifetime),
    Persist(u64),
}

fn carry_out(follower: &Follower<u64, u64>, record: Record) {
    match record {
        Record::Store(key, value, lifetime) => follower.store_with_ttl(key, value, lifetime),
        Record::Expire(key, lifetime) => drop(follower.expire(&key, lifetime)),
        Record::Persist(key) => drop(follower.persist(&key)),
    }
}

fn step(primary: &Cache<u64, u64>, random: &mut SmallRng, value: u64, log: &mut Vec<Record>) {
    let key = random.random_range(0..12);
    let length = S * random.random_range(0..5);
    let lifetime = if random.random_bool(0.1) {
        Lifetime::Never
    } else {
        length.into()
    };
    match random.random_range(0..12) {
        0..4 => {
            primary.insert_with_ttl(key, value, lifetime);
            log.push(Record::Store(key, value, lifetime));
        }
        4 => {
            if primary.insert_if_absent(key, value) {
                log.push(Record::Store(key, value, Lifetime::Never));
            }
        }
        5 => drop(primary.invalidate(&key)),
        6 => {
            if primary.expire(&key, lifetime) {
                log.push(Record::Expire(key, lifetime));
            }
        }
        7 => {
            if primary.persist(&key) {
                log.push(Record::Persist(key));
            }
        }
        8 => {
            let put = |_: Option<&u64>| Op::PutWithTtl(value, lifetime);
            if matches!(
                primary.compute(key, put),
                Computed::Inserted | Computed::Replaced
            ) {
                log.push(Record::Store(key, value, lifetime));
            }
        }
        9 => drop(primary.reap_at_most(random.random_range(0..4))),
        10 => primary.retain(|&other, _| other != key),
        _ => drop(primary.get(&key)),
    }
}

/// Everything that is physically there: the clock stands at its beginning, so nothing is hidden.
fn entries(follower: &Follower<u64, u64>) -> BTreeMap<u64, u64> {
    follower.iter().collect()
}

#[test]
fn however_log_feed_and_clocks_run_apart_the_two_agree_in_the_end() {
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        let mut log = VecDeque::new();
        let mut feed: VecDeque<Removal<u64>> = VecDeque::new();
        for value in 0..random.random_range(1..400) {
            let mut records = Vec::new();
            step(&rig.primary, &mut random, value, &mut records);
            log.extend(records);
            while let Some(removal) = rig.removals.try_next().unwrap() {
                feed.push_back(removal);
            }
            if random.random_bool(0.3) {
                rig.clock.advance(S);
            }
            rig.theirs
                .set_ns(random.random_range(0..100) * 1_000_000_000);
            for _ in 0..random.random_range(0..3) {
                if random.random_bool(0.5) {
                    if let Some(record) = log.pop_front() {
                        carry_out(&rig.follower, record);
                    }
                } else if let Some(removal) = feed.pop_front() {
                    rig.follower.apply(&removal);
                }
            }
        }
        log.drain(..)
            .for_each(|record| carry_out(&rig.follower, record));
        for removal in &feed {
            rig.follower.apply(removal);
        }
        // What the primary holds, the dead that it has not removed yet among them.
        rig.theirs.set_ns(0);
        assert_eq!(
            rig.follower.entry_count(),
            rig.primary.entry_count(),
            "seed {seed}"
        );
        while rig.primary.entry_count() > rig.primary.live_count() {
            rig.primary.reap(S);
        }
        rig.apply();
        let live: BTreeMap<u64, u64> = rig.primary.iter().collect();
        assert_eq!(entries(&rig.follower), live, "seed {seed}");
        assert_eq!(rig.follower.unmatched(), 0, "seed {seed}");
    }
}

#[test]
fn with_threads_on_both_sides_and_a_reaper_the_two_agree_in_the_end() {
    const EACH: u64 = 20_000;
    let primary: Cache<u64, u64> = Cache::builder()
        .removal_feed(1 << 20)
        .reaper(Reaper::dedicated(1).interval(Duration::from_millis(1)))
        .max_entries(300)
        .build()
        .unwrap();
    let mut removals = primary.removals().unwrap();
    let follower: Follower<u64, u64> = Cache::builder().build_follower().unwrap();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        // A thread for each part of the keys: the log of a key has one order.
        for part in 0..3u64 {
            let (primary, follower, done) = (&primary, &follower, &done);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(part);
                for value in 0..EACH {
                    let key = 3 * random.random_range(0..200) + part;
                    if random.random_bool(0.2) {
                        primary.invalidate(&key);
                        continue;
                    }
                    let lifetime = Duration::from_micros(random.next_u32() as u64 % 3_000);
                    primary.insert_with_ttl(key, value, lifetime);
                    follower.store_with_ttl(key, value, lifetime);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let (follower, done) = (&follower, &done);
        scope.spawn(move || {
            let (mut expected, begin) = (0, Instant::now());
            // (What has left the primary may be about to be reported.)
            while done.load(Ordering::SeqCst) < 3 || follower.entry_count() > 0 {
                assert!(
                    begin.elapsed() < 60 * S,
                    "{} are left",
                    follower.entry_count()
                );
                if let Some(removal) = removals.next_within(Duration::from_millis(5)).unwrap() {
                    assert_eq!(removal.sequence, expected);
                    expected += 1;
                    follower.apply(&removal);
                }
            }
        });
    });
    assert_eq!(follower.unmatched(), 0);
    assert_eq!((primary.entry_count(), follower.entry_count()), (0, 0));
}

#[test]
fn what_nobody_fetches_is_lost_and_said_to_be() {
    let primary: Cache<u64, u64> = Cache::builder().removal_feed(2).build().unwrap();
    primary.insert(0, 0);
    primary.invalidate(&0);
    let mut removals = primary.removals().unwrap();
    assert!(primary.removals().is_none(), "one consumer");
    for key in 1..=5 {
        primary.insert(key, 0);
        primary.invalidate(&key);
    }
    let key = |next: Result<Option<Removal<u64>>, Lagged>| next.unwrap().unwrap().key;
    assert_eq!(key(removals.try_next()), 1);
    assert_eq!(key(removals.try_next()), 2);
    let lagged = removals.try_next().unwrap_err();
    assert_eq!(lagged.missed, 3);
    assert!(lagged.to_string().contains("3 removals were lost"));
    assert_eq!(removals.try_next(), Ok(None));
    assert_eq!(removals.next_within(Duration::from_millis(1)), Ok(None));
    drop(removals);
    assert!(primary.removals().is_some());
    let plain: Cache<u64, u64> = Cache::unbounded();
    assert!(plain.removals().is_none());
}

#[test]
fn a_consumer_that_waits_is_woken_by_a_removal_and_by_the_end() {
    let primary: Cache<u64, u64> = Cache::builder().removal_feed(10).build().unwrap();
    let mut removals = primary.removals().unwrap();
    primary.insert(1, 1);
    let consumer = thread::spawn(move || {
        let first = removals.next_within(60 * S);
        let last = removals.next_within(60 * S);
        (first, last, removals.has_ended())
    });
    thread::sleep(Duration::from_millis(10));
    primary.invalidate(&1);
    thread::sleep(Duration::from_millis(10));
    let begin = Instant::now();
    drop(primary);
    let (first, last, ended) = consumer.join().unwrap();
    assert!(begin.elapsed() < 50 * S, "it was not woken");
    assert_eq!(first.unwrap().unwrap().cause, RemovalCause::Explicit);
    assert!(last == Ok(None) && ended);
}

#[test]
fn what_would_have_the_follower_decide_is_refused() {
    let builder = Cache::<u64, u64>::builder;
    for wrong in [
        builder().max_entries(10),
        builder().max_weight(10, |_, _| 1),
        builder().time_to_idle(S),
    ] {
        assert_eq!(
            wrong.build_follower().unwrap_err(),
            BuildError::FollowerDecides
        );
    }
    let empty = builder().removal_feed(0).build();
    assert_eq!(empty.unwrap_err(), BuildError::EmptyFeed);
}
