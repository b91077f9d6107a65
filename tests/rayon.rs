//! Bulk work on rayon's pool: `cargo test --features rayon --test rayon`.
#![cfg(feature = "rayon")]

use std::time::Duration;

use ebbtide::{Cache, ManualClock};
use rayon::prelude::*;

#[test]
fn every_pair_arrives_from_whichever_thread() {
    let cache: Cache<u64, u64> = Cache::unbounded();
    (&cache).par_extend((0..100_000u64).into_par_iter().map(|n| (n, n + 1)));
    assert_eq!(cache.entry_count(), 100_000);
    assert!(
        (0..100_000u64)
            .into_par_iter()
            .all(|n| cache.get(&n) == Some(n + 1))
    );
}

#[test]
fn the_bound_holds_at_the_end() {
    let mut cache: Cache<u64, u64> = Cache::new(1_000);
    cache.par_extend((0..50_000u64).into_par_iter().map(|n| (n, n)));
    // (Two writers may each have evicted one for what was too much by one.)
    let held = cache.entry_count();
    let threads = rayon::current_num_threads() as u64;
    assert!((1_000 - threads..=1_000).contains(&held), "{held}");
}

#[test]
fn every_live_entry_is_met_once_on_whichever_thread() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder().clock(clock.clone()).build().unwrap();
    (&cache).par_extend((0..50_000u64).into_par_iter().map(|n| (n, n)));
    cache.insert_many_with_ttl((50_000..60_000).map(|n| (n, n)), Duration::from_secs(1));
    clock.advance(Duration::from_secs(1));
    let mut met: Vec<u64> = cache.par_iter().map(|(key, _)| key).collect();
    met.sort_unstable();
    assert!(met.into_iter().eq(0..50_000));
    // While others write: what is there throughout is met.
    let met: usize = std::thread::scope(|scope| {
        scope.spawn(|| (100_000..150_000u64).for_each(|n| cache.insert(n, n)));
        let met = (&cache).into_par_iter();
        met.filter(|(key, _)| *key < 50_000).count()
    });
    assert_eq!(met, 50_000);
    let copy: Cache<u64, u64> = cache.par_iter().collect();
    assert_eq!(copy.entry_count(), 100_000);
}
