//! The one file that names the primitives: atomics, locks, fences, the operating system.
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

/// shuttle runs one thread at a time and switches where it is asked to. These are the ordinary
/// atomics with such a point before each access, and not shuttle's own, which are larger and cannot
/// be made by zeroing memory: so the slab and the index keep the layout that ships. Whatever the
/// ordering says, what runs is sequentially consistent.
#[cfg(ebbtide_shuttle)]
mod imp {
    use std::sync::atomic as real;

    pub(crate) use std::sync::atomic::Ordering;

    pub(crate) use super::checked::{Mutex, MutexGuard};

    /// Lets another thread go first, if the schedule says so: what any access to an atomic of
    /// shuttle's does.
    fn switch() {
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }

    pub(crate) fn fence(ordering: Ordering) {
        switch();
        real::fence(ordering);
    }

    macro_rules! atomic {
        ($name:ident$(<$t:ident>)?, $value:ty) => {
            #[derive(Debug)]
            #[repr(transparent)]
            pub(crate) struct $name$(<$t>)?(real::$name$(<$t>)?);

            // No type needs all of them.
            #[allow(dead_code)]
            impl$(<$t>)? $name$(<$t>)? {
                pub(crate) const fn new(value: $value) -> Self {
                    $name(real::$name::new(value))
                }

                pub(crate) fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                pub(crate) fn load(&self, ordering: Ordering) -> $value {
                    switch();
                    self.0.load(ordering)
                }

                pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                    switch();
                    self.0.store(value, ordering);
                }

                pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                    switch();
                    self.0.swap(value, ordering)
                }

                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    switch();
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// Does not fail for no reason, which would be no choice of the schedule's.
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    macro_rules! integer {
        ($name:ident, $value:ty) => {
            atomic!($name, $value);

            impl Default for $name {
                fn default() -> Self {
                    Self::new(0)
                }
            }

            #[allow(dead_code)]
            impl $name {
                pub(crate) fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                    switch();
                    self.0.fetch_add(value, ordering)
                }

                pub(crate) fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                    switch();
                    self.0.fetch_sub(value, ordering)
                }

                pub(crate) fn fetch_or(&self, value: $value, ordering: Ordering) -> $value {
                    switch();
                    self.0.fetch_or(value, ordering)
                }

                pub(crate) fn fetch_max(&self, value: $value, ordering: Ordering) -> $value {
                    switch();
                    self.0.fetch_max(value, ordering)
                }
            }
        };
    }

    integer!(AtomicI64, i64);
    integer!(AtomicU8, u8);
    integer!(AtomicU32, u32);
    integer!(AtomicU64, u64);
    integer!(AtomicUsize, usize);
    atomic!(AtomicBool, bool);
    atomic!(AtomicPtr<T>, *mut T);
}

/// The checkers' lock and signal, in the shapes of the ordinary ones.
#[cfg(any(ebbtide_loom, ebbtide_shuttle))]
mod checked {
    #[cfg(ebbtide_loom)]
    use loom::sync;
    #[cfg(ebbtide_shuttle)]
    use shuttle::sync;

    pub(crate) use sync::MutexGuard;

    /// The checker's mutex with parking_lot's shape: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// While schedules are explored waiting has no time limit.
    #[derive(Debug)]
    pub(crate) struct Signal {
        raised: sync::Mutex<bool>,
        change: sync::Condvar,
    }

    impl Default for Signal {
        fn default() -> Self {
            Signal {
                raised: sync::Mutex::new(false),
                change: sync::Condvar::new(),
            }
        }
    }

    impl Signal {
        pub(crate) fn raise(&self) {
            *self.raised.lock().unwrap() = true;
            self.change.notify_one();
        }

        pub(crate) fn wait(&self, _limit: Option<std::time::Duration>) {
            let mut raised = self.raised.lock().unwrap();
            while !*raised {
                raised = self.change.wait(raised).unwrap();
            }
            *raised = false;
        }
    }
}

pub(crate) use cell::Cell;
pub(crate) use imp::*;

#[cfg(any(ebbtide_loom, ebbtide_shuttle))]
pub(crate) use checked::Signal;

pub(crate) use std::sync::{Arc, OnceLock, Weak};

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

/// Forking: how often this process's line has forked since the first cache, and a gate that keeps
/// the reaper's threads out of locks and pins at the moment of a fork.
#[cfg(all(unix, not(any(ebbtide_loom, ebbtide_shuttle))))]
mod fork {
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
            unsafe {
                libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child))
            };
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
}

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
