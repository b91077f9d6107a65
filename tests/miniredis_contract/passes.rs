//! Bounded passes of active expiry, and expiry before eviction.

use std::time::Duration;

use ebbtide::{Cache, ManualClock, Reaper, RemovalCause, Strategy};

use super::{Removals, Store, observed, secs};

#[test]
fn bounded_passes_remove_two_two_and_one() {
    let (Store { clock, cache }, removals) = observed();
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        cache.insert_with_ttl(key, 1, secs(1));
    }
    clock.advance(secs(1));
    let passes: Vec<u64> = (0..3).map(|_| cache.reap_at_most(2).expired).collect();
    assert_eq!(passes, [2, 2, 1]);
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(cache.reap_at_most(2).expired, 0, "nothing left");
    assert_eq!(
        removals.sorted(),
        keys.map(|key| (key, RemovalCause::Expired))
    );
    assert_eq!(cache.stats().expired_by_sweep, 5);
}

#[test]
fn a_pass_bounded_to_nothing_removes_nothing() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 1, secs(1));
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(0).expired, 0);
    assert_eq!(store.counts(), (1, 0));
}

#[test]
fn passes_of_random_sampling_are_bounded_too() {
    let store =
        Store::configured(|builder| builder.reaper(Reaper::manual().strategy(Strategy::sample())));
    let Store { clock, cache } = &store;
    for key in ["a", "b", "c", "d", "e"] {
        cache.insert_with_ttl(key, 1, secs(1));
    }
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(0).expired, 0);
    let mut expired = 0;
    for _ in 0..1_000 {
        let pass = cache.reap_at_most(2).expired;
        assert!(pass <= 2, "a pass of two removed {pass}");
        expired += pass;
    }
    assert_eq!(expired, 5);
    assert_eq!(store.counts(), (0, 0));
}

#[test]
fn a_read_and_bounded_passes_share_the_work() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("lazy", 1, Duration::from_millis(100));
    clock.advance(Duration::from_millis(100));
    assert_eq!(cache.get("lazy"), None);
    assert_eq!(cache.entry_count(), 0);
    for key in ["a", "b"] {
        cache.insert(key, 1);
        assert!(cache.expire(key, secs(1)));
    }
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(1).expired, 1);
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(cache.reap_at_most(1).expired, 1);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn what_a_bounded_pass_left_behind_stays_hidden() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        cache.insert_with_ttl(key, 1, secs(1));
    }
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(2).expired, 2);
    assert_eq!(store.counts(), (3, 0));
    assert_eq!(cache.get_many(keys), [None; 5]);
}

#[test]
fn a_pass_can_inspect_entries_and_remove_none() {
    let store = Store::configured(|builder| builder.time_to_idle(secs(160)));
    let Store { clock, cache } = &store;
    let keys = ["a", "b", "c"];
    for key in keys {
        cache.insert(key, 1);
    }
    // Renewed by reads: the sweep finds them where their old deadlines were.
    clock.advance(secs(100));
    assert_eq!(cache.get_many(keys), [Some(1); 3]);
    clock.advance(secs(100));
    let (mut passes, mut inspected) = (0, cache.stats().entries_inspected);
    while !cache.reap_at_most(1).finished {
        passes += 1;
        assert!(passes < 100, "a pass must come to its end");
    }
    inspected = cache.stats().entries_inspected - inspected;
    assert_eq!(inspected, 3);
    assert_eq!(store.counts(), (3, 3), "and removed none");

    clock.advance(secs(60));
    assert_eq!(cache.reap(secs(1)).expired, 3, "later passes go on");
    assert_eq!(store.counts(), (0, 0));
}

#[test]
fn passes_over_live_entries_remove_none_and_reach_the_dead_ones() {
    let clock = ManualClock::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    for key in 0..1_000 {
        cache.insert_with_ttl(key, key, secs(3_600));
    }
    for _ in 0..10 {
        assert_eq!(cache.reap_at_most(2).expired, 0);
    }
    assert_eq!(cache.live_count(), 1_000);

    // Every 200th is due now: passes of two must reach all five.
    for key in (0..1_000).step_by(200) {
        assert!(cache.expire(&key, secs(1)));
    }
    clock.advance(secs(1));
    let mut expired = 0;
    for _ in 0..1_000 {
        let pass = cache.reap_at_most(2).expired;
        assert!(pass <= 2);
        expired += pass;
    }
    assert_eq!(expired, 5);
    assert_eq!((cache.entry_count(), cache.live_count()), (995, 995));
}

#[test]
fn dead_entries_are_given_up_before_live_ones() {
    let removals = Removals::default();
    let Store { clock, cache } = Store::configured(|builder| {
        builder
            .max_entries(3)
            .shards(1)
            .on_removal(removals.listener())
    });
    cache.insert("live", 1);
    cache.insert_with_ttl("a", 1, secs(5));
    cache.insert_with_ttl("b", 1, secs(5));
    clock.advance(secs(5));
    cache.insert("c", 1);
    cache.insert("d", 1);
    assert_eq!(cache.get_many(["live", "c", "d"]), [Some(1); 3]);
    assert_eq!(
        removals.sorted(),
        [("a", RemovalCause::Expired), ("b", RemovalCause::Expired)]
    );
    let stats = cache.stats();
    assert_eq!((stats.evicted, stats.live_evicted_while_dead), (0, 0));
}
