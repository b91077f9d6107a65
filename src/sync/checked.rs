//! The checkers' lock and signal, in the shapes of the ordinary ones.

#[cfg(ebbtide_loom)]
use loom::sync;
#[cfg(ebbtide_shuttle)]
use shuttle::sync;

pub(crate) use sync::MutexGuard;
use sync::atomic::{AtomicBool, Ordering};

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

/// std's `OnceLock`, as far as it is used, where its being set is a step that a schedule can come before
/// or after.
pub(crate) struct Once<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Once<T> {
    pub(crate) fn new() -> Self {
        Once {
            is_set: AtomicBool::new(false),
            value: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let set = self.value.set(value);
        // Release: pairs with the Acquire in `get`.
        self.is_set.store(true, Ordering::Release);
        set
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let is_set = self.is_set.load(Ordering::Acquire);
        is_set.then(|| self.value.get()).flatten()
    }
}
