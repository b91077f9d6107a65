//! Time that is published instead of asked for.

use std::time::Duration;

use ebbtide::{BuildError, Cache, ManualClock};

use crate::common::eventually;

#[test]
fn a_leased_clock_is_checked_and_lets_entries_end() {
    let build = |lease| {
        Cache::<u64, u64>::builder()
            .clock_lease(Duration::from_millis(lease))
            .build()
    };
    for wrong in [0, 9, 3_600_001] {
        let error = build(wrong).unwrap_err();
        assert_eq!(
            error,
            BuildError::LeaseOutOfRange(Duration::from_millis(wrong))
        );
        assert!(error.to_string().contains("10 ms"));
    }
    let error = Cache::<u64, u64>::builder()
        .clock(ManualClock::new())
        .clock_lease(Duration::from_secs(1))
        .build()
        .unwrap_err();
    assert_eq!(error, BuildError::LeasedCustomClock);

    let cache = build(10).unwrap();
    cache.insert_with_ttl(1, 1, Duration::from_secs(3600));
    cache.insert_with_ttl(2, 2, Duration::from_millis(50));
    eventually("the entry ends", || cache.get(&2).is_none());
    eventually("the entry is reclaimed", || cache.entry_count() == 1);
    assert_eq!(cache.get(&1), Some(1));
    assert!(cache.expire(&1, Duration::from_millis(1)));
    eventually("an earlier deadline counts", || cache.get(&1).is_none());
}
