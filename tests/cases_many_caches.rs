//! Caches that come and go leave no thread behind. In a binary of its own, because it counts the
//! threads of the process.
#![cfg(target_os = "linux")]

mod common;

use std::time::Duration;

use ebbtide::{Cache, Reaper};

use common::{Ledger, Tracked, eventually};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_thousand_caches_leave_no_thread_and_no_value_behind() {
    let before = threads();
    let ledger = Ledger::new();
    for round in 0..1_000u64 {
        let reaper = match round % 10 {
            0 => Reaper::dedicated(2),
            1 => Reaper::manual(),
            _ => Reaper::shared(),
        };
        let cache: Cache<u64, Tracked> = Cache::builder().reaper(reaper).build().unwrap();
        cache.insert(1, ledger.value(1));
        cache.insert_with_ttl(2, ledger.value(2), Duration::from_micros(50));
        cache.insert(1, ledger.value(3));
        // (One that has been joined may be listed for a moment longer.)
        eventually("only this cache's threads are left", || {
            threads() <= before + 3
        });
        drop(cache);
        assert_eq!(ledger.dropped() as u64, 3 * (round + 1));
    }
    eventually("all threads have ended", || threads() == before);
    // Many at a time share the shared one's.
    let caches: Vec<Cache<u64, Tracked>> = (0..300).map(|_| Cache::unbounded()).collect();
    for cache in &caches {
        cache.insert_with_ttl(1, ledger.value(1), Duration::from_millis(5));
    }
    eventually("they share two threads", || threads() == before + 2);
    eventually("all are reclaimed", || ledger.dropped() == 3_300);
    drop(caches);
    eventually("all threads have ended", || threads() == before);
    ledger.assert_all_dropped_once();
}
