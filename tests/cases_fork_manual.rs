//! A process that forks and has no thread of the library's. The only test of its binary: a child has
//! only the thread that forked, and nothing else may have watched for forks.
#![cfg(unix)]

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Reaper};

#[test]
fn a_child_does_not_wait_for_the_pin_of_a_thread_that_it_lacks() {
    let cache: Cache<u64, u64> = Cache::builder().reaper(Reaper::manual()).build().unwrap();
    let (let_go, until_then) = channel::<()>();
    let (pinned, is_pinned) = channel();
    thread::scope(|threads| {
        let shared = &cache;
        threads.spawn(move || {
            let _pin = shared.pin();
            pinned.send(()).unwrap();
            let _ = until_then.recv();
        });
        is_pinned.recv().unwrap();
        // SAFETY: the child uses this library, the allocator and std's clock, and ends by `_exit`. The
        // other thread is inside neither.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            cache.insert(1, 1);
            cache.invalidate(&1);
            let dropped = (0..100).any(|_| cache.reap(Duration::from_millis(10)).dropped == 1);
            // SAFETY: ends the child at once, without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!dropped)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live integer for the whole call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        drop(let_go);
        assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child drops nothing");
    });
}
