//! Bulk work on rayon's pool: `cargo test --features rayon --test rayon`.
#![cfg(feature = "rayon")]

use ebbtide::Cache;
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
