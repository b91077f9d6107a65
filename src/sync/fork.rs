//! Forking: how often this process's line has forked since the first cache, and a gate that keeps
//! the reaper's threads out of locks and pins at the moment of a fork.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::yield_now;

static FORKS: AtomicU64 = AtomicU64::new(0);
/// Threads inside the gate, and whether it is closed. Two numbers and not a lock, which could
/// keep waiters that a forked child does not have. SeqCst on both: whoever comes second sees
/// the other.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How many forks lie between the first process that used the library and this one.
#[inline]
pub(crate) fn forks() -> u64 {
    // Relaxed: only changed in a child that has no other thread yet.
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn before() {
    // One fork at a time.
    while CLOSED.swap(true, Ordering::SeqCst) {
        yield_now();
    }
    while INSIDE.load(Ordering::SeqCst) > 0 {
        yield_now();
    }
}

extern "C" fn after_in_parent() {
    CLOSED.store(false, Ordering::SeqCst);
}

extern "C" fn after_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::barrier::register_again();
    crate::reclaim::after_fork_in_child();
    // The thread that would renew it is not here.
    crate::lease::revoke();
    // Who was only about to enter is not here to step back.
    INSIDE.store(0, Ordering::SeqCst);
    after_in_parent();
}

/// Has the handlers called at each fork from now on.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three functions live as long as the program, take nothing, and only
        // touch statics. If there is no memory for them (the only failure), a forked
        // child has no reaper and a fork may meet a held lock: as without the call.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    });
}

thread_local! {
    /// Whether this thread is inside the gate.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` while no fork can happen. Keep it short. The only user code in it may be a clock, which
/// must not fork.
pub(crate) fn without_fork<R>(f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = IS_INSIDE.try_with(|inside| inside.set(false));
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // (Where thread-locals can be gone, a thread that is ending counts as outside.)
    if IS_INSIDE.try_with(Cell::get).unwrap_or(false) {
        return f();
    }
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if !CLOSED.load(Ordering::SeqCst) {
            break;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        yield_now();
    }
    let _ = IS_INSIDE.try_with(|inside| inside.set(true));
    let _leave = Leave;
    f()
}
