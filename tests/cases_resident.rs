//! What the system gets back. The only test of its binary: it looks at the memory of the process.
#![cfg(target_os = "linux")]

mod common;

use std::time::{Duration, Instant};

use ebbtide::Cache;

use common::eventually;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("/proc is there");
    let line = rollup.lines().find(|line| line.starts_with("Rss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes
        .and_then(|n| n.parse::<u64>().ok())
        .expect("Rss in kB")
        * 1_024
}

#[test]
fn the_system_gets_a_waves_memory_back_without_a_call() {
    let cache: Cache<u64, u64> = Cache::unbounded();
    for key in 0..5_000 {
        cache.insert(1_000_000 + key, key);
    }
    let before = resident();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut inserted = 0;
    while inserted < 500_000 && Instant::now() < deadline {
        cache.insert_with_ttl(inserted, inserted, deadline);
        inserted += 1;
    }
    let full = resident();
    assert!(full > before + 30 * inserted, "{before} {full} {inserted}");
    eventually("most of what the wave took is the system's again", || {
        resident() < before + (full - before) / 5
    });
    assert_eq!(cache.entry_count(), 5_000);
    assert_eq!(cache.get(&1_000_007), Some(7));

    // Also when the cache goes, and nobody reaps any more.
    let deadline = Duration::from_secs(3_600);
    for key in 0..500_000 {
        cache.insert_with_ttl(key, key, deadline);
    }
    let full = resident();
    drop(cache);
    assert!(resident() < before + (full - before) / 5);
}
