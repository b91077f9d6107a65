//! A barrier in two halves: a cheap one that runs often, and a dear one that makes up for it.
//!
//! The pair is what two SeqCst fences are: of two threads that each write, execute their half and then
//! read what the other writes, at least one sees the other's write.

#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
use std::sync::atomic::compiler_fence;

use super::{Ordering, fence};

/// The cheap half. `fences` says that it has to be a real fence: what [`needs_fences`] answered.
#[inline]
pub(crate) fn cheap(fences: bool) {
    #[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
    if !fences {
        compiler_fence(Ordering::SeqCst);
        return;
    }
    let _ = fences;
    fence(Ordering::SeqCst);
}

/// Whether the cheap half has to be a real fence, because the system has no barrier that reaches
/// other threads. The same answer for the whole life of the process.
pub(crate) fn needs_fences() -> bool {
    !membarrier::is_registered()
}

/// Finds out now what [`needs_fences`] will answer. Linux takes some ten milliseconds for that in a process of
/// several threads, and next to nothing in one of a single thread.
pub(crate) fn prepare() {
    let _ = membarrier::is_registered();
}

/// The dear half: a full barrier here, and on every other thread of the process unless they have
/// [fences of their own](needs_fences). False if the system refused, which it does not once it has
/// agreed, unless a sandbox was closed in between.
pub(crate) fn everywhere() -> bool {
    fence(Ordering::SeqCst);
    // (Registered once more: a process that was restored from an image may have lost it.)
    !membarrier::is_registered()
        || membarrier::execute()
        || membarrier::register() && membarrier::execute()
}

/// Registers a child that has just been forked as its parent was.
#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
#[cfg(unix)]
pub(crate) fn register_again() {
    if membarrier::is_registered() {
        membarrier::register();
    }
}

/// membarrier(2), in its form for one process.
#[cfg(all(target_os = "linux", not(any(ebbtide_loom, ebbtide_shuttle))))]
mod membarrier {
    use std::sync::atomic::{AtomicU8, Ordering};

    // Of <linux/membarrier.h>; libc has no names for them.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    const UNKNOWN: u8 = 0;
    const REGISTERED: u8 = 1;
    const REFUSED: u8 = 2;

    // Not a OnceLock, which a fork could find half-way: to register twice does no harm.
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the system call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(super) fn register() -> bool {
        call(REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn is_registered() -> bool {
        // Relaxed: every thread that asks gets the same answer.
        let known = ANSWER.load(Ordering::Relaxed);
        let answer = if known == UNKNOWN { ask() } else { known };
        answer == REGISTERED
    }

    #[cold]
    fn ask() -> u8 {
        let answer = if register() { REGISTERED } else { REFUSED };
        // Who answers first is believed by all.
        match ANSWER.compare_exchange(UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => answer,
            Err(first) => first,
        }
    }

    pub(super) fn execute() -> bool {
        call(PRIVATE_EXPEDITED)
    }
}

#[cfg(not(all(target_os = "linux", not(any(ebbtide_loom, ebbtide_shuttle)))))]
mod membarrier {
    pub(super) fn is_registered() -> bool {
        false
    }

    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn execute() -> bool {
        true
    }
}
