//! What a forked child is told of its reaper. The only test of its binary: a child has only the thread that
//! forked.
#![cfg(unix)]

mod common;

use ebbtide::{Cache, Reaper};

use common::eventually;

/// A child has the handles of threads that it has not.
#[test]
fn a_forked_child_knows_that_nobody_reaps() {
    let cache: Cache<u64, u64> = Cache::builder()
        .reaper(Reaper::dedicated(1))
        .build()
        .unwrap();
    eventually("the thread has begun", || {
        cache.stats().last_look_age.is_some()
    });
    // SAFETY: the child uses this cache alone, which no thread of the parent's is writing to, and leaves
    // with its findings.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let before = cache.stats().reaper_alive;
        // A write brings the threads back.
        cache.insert(1, 1);
        let after = cache.stats().reaper_alive;
        let right = (before, after) == (Some(false), Some(true));
        // SAFETY: ends the child without running what the parent's test harness registered.
        unsafe { libc::_exit(if right { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(cache.stats().reaper_alive, Some(true));
}
