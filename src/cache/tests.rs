//! What only a shard without a free slot shows: the library's own tests have small shards.

use crate::limits::MAX_SLOTS;
use crate::{BuildError, Cache, Computed, Counter, CounterError, Lifetime, Op, Reaper};

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
        cache.reap(std::time::Duration::from_secs(1));
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
