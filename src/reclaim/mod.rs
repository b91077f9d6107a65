//! When nobody looks any more: pins, and the limbo in which unlinked slots wait.
//!
//! Readers pin an epoch. An unlinked slot goes to its shard's [`Limbo`] under the
//! shard lock. Whoever reaps seals what waits into a batch, whose grace period begins with that, and
//! asks now and then which grace periods are over; it never waits for one, it drops what is ripe.
//!
//! Nothing is added to a sealed batch (P8): its grace period began with the sealing.

mod limbo;

pub(crate) use limbo::{Limbo, Ripe};

#[cfg(any(not(any(ebbtide_loom, ebbtide_shuttle)), ebbtide_epoch))]
mod epoch;
#[cfg(any(not(any(ebbtide_loom, ebbtide_shuttle)), ebbtide_epoch))]
mod pin;
#[cfg(test)]
mod tests;

/// The abstract reclaimer of the second tier of models and of shuttle's schedules: exactly the
/// contract and nothing else.
#[cfg(all(any(ebbtide_loom, ebbtide_shuttle), not(ebbtide_epoch)))]
mod pin {
    use crate::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Pins {
        next: usize,
        held: Vec<usize>,
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
        /// Lets go and pins again.
        pub(crate) fn repin(&mut self) {
            *self = pin();
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let pin = self.0;
            COLLECTOR.0.lock().held.retain(|&held| held != pin);
        }
    }

    /// When a grace period began: the pins before this one have to go.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Began(usize);

    /// Begins the grace period of what has been unlinked.
    pub(crate) fn begin() -> Began {
        Began(COLLECTOR.0.lock().next)
    }

    /// Nothing has to be found out here.
    pub(crate) fn advance() {}

    impl Began {
        /// Whether every pin from before is gone.
        pub(crate) fn is_over(self) -> bool {
            COLLECTOR.0.lock().held.iter().all(|&pin| pin >= self.0)
        }
    }
}

#[cfg(any(not(any(ebbtide_loom, ebbtide_shuttle)), ebbtide_epoch))]
use epoch::Began;
#[cfg(all(any(ebbtide_loom, ebbtide_shuttle), not(ebbtide_epoch)))]
use pin::Began;
#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
pub(crate) use pin::after_fork_in_child;
pub(crate) use pin::{Guard, advance, begin, pin};

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}
