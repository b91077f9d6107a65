//! When nobody looks any more: pins, and the limbo in which unlinked slots wait.
//!
//! Readers pin an epoch of one process-wide collector of ebbtide's own. (crossbeam's default one
//! would not do: a pin held in any other crate would stop us, and that crate's threads would run
//! our closures.) An unlinked slot goes to its shard's [`Limbo`] under the shard lock. Whoever
//! reaps seals what waits into a batch, and defers a closure that merely marks the batch once
//! every pin from before is gone; it never waits for that, it drops what is marked already.
//!
//! Nothing is added to a sealed batch (P8): its grace period began with the sealing.

mod limbo;

pub(crate) use limbo::{Limbo, Ripe};

#[cfg(any(not(any(ebbtide_loom, ebbtide_shuttle)), crossbeam_loom))]
mod epoch {
    use crossbeam_epoch::{Collector, LocalHandle};

    #[cfg(not(ebbtide_loom))]
    mod own {
        use super::{Collector, LocalHandle};
        use std::sync::LazyLock;

        static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

        thread_local! {
            static HANDLE: LocalHandle = COLLECTOR.register();
        }

        #[inline]
        pub(crate) fn pin() -> crossbeam_epoch::Guard {
            // A thread that is ending may have lost its handle already; it gets one for this pin.
            HANDLE
                .try_with(LocalHandle::pin)
                .unwrap_or_else(|_| COLLECTOR.register().pin())
        }
    }

    #[cfg(ebbtide_loom)]
    mod own {
        // Statics of a model must be made anew in each run, which crossbeam's own default
        // collector is under its model-checking cfg.
        pub(crate) fn pin() -> crossbeam_epoch::Guard {
            let _: Option<(super::Collector, super::LocalHandle)> = None;
            crossbeam_epoch::pin()
        }
    }

    /// A pin: what was linked while it lasts stays readable until it ends.
    pub(crate) struct Guard(crossbeam_epoch::Guard);

    /// Pins the current thread. Costs about 4 ns; pins nest.
    #[inline]
    pub(crate) fn pin() -> Guard {
        Guard(own::pin())
    }

    impl Guard {
        /// Runs `f` on some thread once every pin of this moment is gone.
        pub(crate) fn defer(&self, f: impl FnOnce() + Send + 'static) {
            self.0.defer(f);
        }

        /// Moves what this thread has deferred to where all threads can run it, and helps.
        pub(crate) fn flush(&self) {
            self.0.flush();
        }

        /// Lets go and pins again: nothing read before may be used after.
        pub(crate) fn repin(&mut self) {
            self.0.repin();
            // SeqCst: as in `pin`, so that no later load of the index is satisfied before the new
            // epoch is. (`repin` loads it Relaxed and has no fence behind it.)
            crate::sync::fence(crate::sync::Ordering::SeqCst);
        }
    }
}

/// The abstract reclaimer of the second tier of models and of shuttle's schedules: exactly the
/// contract and nothing else. A deferred closure runs when the last pin of its moment ends, on
/// whichever thread that is.
#[cfg(all(any(ebbtide_loom, ebbtide_shuttle), not(crossbeam_loom)))]
mod epoch {
    use crate::sync::{Arc, Mutex};

    type Deferred = (Vec<usize>, Box<dyn FnOnce() + Send>);

    #[derive(Default)]
    struct Pins {
        next: usize,
        held: Vec<usize>,
        deferred: Vec<Deferred>,
    }

    struct Collector(Arc<Mutex<Pins>>);

    #[cfg(ebbtide_loom)]
    use loom::lazy_static;
    #[cfg(ebbtide_shuttle)]
    use shuttle::lazy_static;

    lazy_static! {
        static ref COLLECTOR: Collector = Collector(Arc::new(Mutex::new(Pins::default())));
    }

    /// A pin: what was linked while it lasts stays readable until it ends.
    pub(crate) struct Guard(usize);

    /// Pins the current thread.
    pub(crate) fn pin() -> Guard {
        let mut pins = COLLECTOR.0.lock();
        let pin = pins.next;
        pins.next += 1;
        pins.held.push(pin);
        Guard(pin)
    }

    impl Guard {
        /// Runs `f` once every other pin of this moment is gone.
        pub(crate) fn defer(&self, f: impl FnOnce() + Send + 'static) {
            let mut pins = COLLECTOR.0.lock();
            let waits = pins
                .held
                .iter()
                .copied()
                .filter(|&pin| pin != self.0)
                .collect();
            pins.deferred.push((waits, Box::new(f)));
            drop(pins);
            run_ready();
        }

        pub(crate) fn flush(&self) {
            run_ready();
        }

        /// Lets go and pins again.
        pub(crate) fn repin(&mut self) {
            *self = pin();
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let mut pins = COLLECTOR.0.lock();
            let pin = self.0;
            pins.held.retain(|&held| held != pin);
            for (waits, _) in &mut pins.deferred {
                waits.retain(|&held| held != pin);
            }
            drop(pins);
            run_ready();
        }
    }

    fn run_ready() {
        loop {
            let mut pins = COLLECTOR.0.lock();
            let Some(ready) = pins.deferred.iter().position(|(waits, _)| waits.is_empty()) else {
                return;
            };
            let (_, f) = pins.deferred.swap_remove(ready);
            drop(pins);
            f();
        }
    }
}

pub(crate) use epoch::{Guard, pin};

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}
