//! What a cache tells about itself is so.

use std::time::Duration;

use ebbtide::{Cache, ManualClock};

/// What the lane knows deadlines to.
const UNIT: Duration = Duration::from_nanos(1 << 26);

/// A writer's look for a dead entry spent itself on the first ones whose deadlines come within the same 67 ms,
/// although the lane knew another one to be over.
#[test]
fn no_living_entry_goes_while_a_later_slot_is_known_to_be_over() {
    const MS: Duration = Duration::from_millis(1);
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .shards(1)
        .max_entries(101)
        .clock(clock.clone())
        .build()
        .unwrap();
    clock.advance(2 * UNIT - MS);
    for key in 0..100 {
        cache.insert_with_ttl(key, key, 30 * MS);
    }
    cache.insert_with_ttl(100, 100, MS / 2);
    clock.advance(2 * MS);
    cache.insert(200, 200);
    let stats = cache.stats();
    let left = (stats.expired_by_write, stats.evicted);
    assert_eq!((left, stats.live_evicted_while_dead), ((1, 0), 0));
    assert!((0..100).all(|key| cache.get(&key) == Some(key)));
}
