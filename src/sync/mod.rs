//! The one place that names the primitives: atomics, locks, fences, the operating system.
//!
//! Everything else takes them from here, so that `--cfg ebbtide_loom` swaps all of them for the
//! model checker's at once, and `--cfg ebbtide_shuttle` for those of the schedule explorer. The
//! ordinary side has the model checker's shape where the two differ ([`Cell`] hands out pointers
//! through closures), never the other way round.

#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };

    pub(crate) use parking_lot::{Mutex, MutexGuard};
}

#[cfg(not(ebbtide_loom))]
mod cell {
    /// Plain memory behind a shared reference; who may touch it is the owner's protocol.
    #[repr(transparent)]
    pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        /// A pointer for reading.
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// A pointer for writing.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(ebbtide_loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };

    pub(crate) use super::checked::{Mutex, MutexGuard};
}

#[cfg(ebbtide_loom)]
mod cell {
    pub(crate) use loom::cell::UnsafeCell as Cell;
}

#[cfg(ebbtide_shuttle)]
#[path = "shuttled.rs"]
mod imp;

#[cfg(any(ebbtide_loom, ebbtide_shuttle))]
mod checked;

// (The abstract reclaimer of the models has no use for it.)
#[cfg_attr(any(ebbtide_loom, ebbtide_shuttle), allow(dead_code))]
pub(crate) mod barrier;

pub(crate) use cell::Cell;
pub(crate) use imp::*;

#[cfg(any(ebbtide_loom, ebbtide_shuttle))]
pub(crate) use checked::{Once, Signal};

/// A value that is said once, and seen from then on. (Never waited for: `set` and `get` are all.)
#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
pub(crate) use std::sync::OnceLock as Once;

pub(crate) use std::sync::{Arc, OnceLock, Weak};

/// A number that nothing is decided by, so that the models need not explore it: always the ordinary
/// atomic.
pub(crate) type Statistic = std::sync::atomic::AtomicU64;

/// A cache line to oneself, so that writers of one field do not slow readers of another.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Asks the core to fetch the line at `address`; a hint that may be anything, valid or not.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(ebbtide_loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address (Intel SDM, PREFETCHh), and SSE is
        // part of every x86_64 target.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(ebbtide_loom))))]
    let _ = address;
}

/// CLOCK_MONOTONIC_COARSE in nanoseconds: the time of the kernel's last tick, read without a
/// counter access. `None` where the platform has no such clock.
#[inline]
pub(crate) fn coarse_monotonic() -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        clock_nanos(libc::CLOCK_MONOTONIC_COARSE)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

/// CLOCK_MONOTONIC in nanoseconds, the zero that [`coarse_monotonic`] counts from.
#[inline]
pub(crate) fn fine_monotonic() -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        clock_nanos(libc::CLOCK_MONOTONIC)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn clock_nanos(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live, writable timespec for the whole call.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A flag that one thread at a time waits for.
///
/// Its lock is never held at the moment of a fork, and a waiter is parked on std's flag of its own:
/// parking_lot queues waiters in one table of the process, and a condition variable locks again when
/// it wakes, so that a forked child could find a thread there that does not exist in it.
#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
#[derive(Debug, Default)]
pub(crate) struct Signal(std::sync::Mutex<Raised>);

#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
#[derive(Debug, Default)]
struct Raised {
    raised: bool,
    waiter: Option<std::thread::Thread>,
}

#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
impl Signal {
    /// Lets the waiter go on, now or when it comes to wait.
    pub(crate) fn raise(&self) {
        let waiter = self.locked(|state| {
            state.raised = true;
            state.waiter.take()
        });
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }

    /// Waits until the signal is raised, at most for `limit`, and lowers it. May return sooner.
    pub(crate) fn wait(&self, limit: Option<std::time::Duration>) {
        let raised = self.locked(|state| {
            if !state.raised {
                state.waiter = Some(std::thread::current());
            }
            std::mem::take(&mut state.raised)
        });
        if raised {
            return;
        }
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
        self.locked(|state| *state = Raised::default());
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Raised) -> R) -> R {
        without_fork(|| {
            f(&mut self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner))
        })
    }
}

#[cfg(all(unix, not(any(ebbtide_loom, ebbtide_shuttle))))]
mod fork;

#[cfg(not(all(unix, not(any(ebbtide_loom, ebbtide_shuttle)))))]
mod fork {
    /// Processes do not fork here.
    pub(crate) fn forks() -> u64 {
        0
    }

    pub(crate) fn watch_forks() {}

    pub(crate) fn without_fork<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

pub(crate) use fork::{forks, watch_forks, without_fork};
