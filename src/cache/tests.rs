//! What the public calls cannot bring about: a shard without a free slot (the library's own tests have
//! small shards), one whose lock is wanted all the time.

use crate::limits::{MAKE_WAY, MAX_SLOTS};
use crate::reaper::Target;
use crate::shard::{Goal, Slice};
use crate::{
    BuildError, Cache, Computed, Counter, CounterError, Lifetime, ManualClock, Op, Reaper,
};
use std::time::Duration;

/// A cache with one shard that has no slot left. Nobody reaps, so that everything stays as it is.
fn full() -> Cache<u64, Counter> {
    let cache = Cache::builder()
        .shards(1)
        .reaper(Reaper::manual())
        .build()
        .expect("nothing is wrong");
    for key in 0..u64::from(MAX_SLOTS) {
        assert_eq!(cache.increment(&key, 1), Ok(1));
    }
    cache
}

/// "Somebody was first" and "there is no slot" were the same to those who try again.
#[test]
fn a_shard_without_a_slot_refuses_and_goes_on() {
    let cache = full();
    let new = u64::from(MAX_SLOTS);
    assert_eq!(cache.increment(&new, 1), Err(CounterError::Full));
    assert!(!cache.insert_if_absent(new, Counter::new(1)));
    let back = cache.try_insert(new, Counter::new(9)).unwrap_err();
    assert_eq!((back.key, back.value.get()), (new, 9));
    let put = |_: Option<&Counter>| Op::Put(Counter::new(5));
    assert_eq!(cache.compute(new, put), Computed::Unchanged);
    // A live counter stays, open, with its deadline.
    let forever = |_: Option<&Counter>| Op::PutWithTtl(Counter::new(5), Lifetime::Never);
    assert_eq!(cache.compute(1, forever), Computed::Unchanged);
    assert_eq!(cache.increment(&1, 1), Ok(2));
    assert_eq!(cache.compute(1, put), Computed::Replaced, "in place");
    assert_eq!(cache.increment(&1, 1), Ok(6));
    cache.validate();

    assert!(cache.invalidate(&7));
    while cache.stats().limbo > 0 {
        cache.reap(Duration::from_secs(1));
    }
    assert_eq!(cache.increment(&new, 1), Ok(1));
    assert_eq!(cache.increment(&7, 1), Err(CounterError::Full));
    assert_eq!(cache.entry_count(), u64::from(MAX_SLOTS));
}

#[test]
fn a_capacity_beyond_all_slots_is_refused() {
    let build = |capacity| {
        Cache::<u64, u64>::builder()
            .shards(3)
            .initial_capacity(capacity)
            .build()
    };
    let most = 4 * MAX_SLOTS as usize;
    assert!(build(most).is_ok());
    let error = build(most + 1).unwrap_err();
    assert_eq!(error, BuildError::CapacityOutOfRange(most + 1));
}

/// In a wave, writers waited for whole slices of the sweep, and what they were to serve queued up.
#[test]
fn the_sweep_makes_way_for_whoever_wants_the_lock() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .shards(1)
        .clock(clock.clone())
        .build()
        .expect("nothing is wrong");
    for key in 0..300 {
        cache.insert_with_ttl(key, key, Duration::from_secs(1));
    }
    clock.advance(Duration::from_secs(100));
    let core = &cache.core;
    let sweep = |round| {
        let goal = Goal {
            round,
            horizon: u32::MAX - 1,
            tolerated: 0.0,
        };
        let slice = Slice {
            most: u64::MAX,
            clock: &|| 0,
            length: u64::MAX,
        };
        core.sweep(0, goal, true, slice).expect("waits")
    };
    core.shards[0].pretend_to_be_wanted(1);
    let mut round = None;
    for left in [300 - MAKE_WAY, 300 - 2 * MAKE_WAY] {
        let report = sweep(round);
        assert_eq!((report.expired, report.finished), (MAKE_WAY, false));
        assert_eq!(cache.entry_count(), left);
        round = report.round;
    }
    core.shards[0].pretend_to_be_wanted(0);
    let report = sweep(round);
    assert_eq!(
        (report.expired, report.finished),
        (300 - 2 * MAKE_WAY, true)
    );
    cache.validate();
}
