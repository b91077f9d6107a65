//! The process's one domain, each thread's record in it, and the guard that callers hold.

use std::marker::PhantomData;

use super::epoch::{Began, Record};

#[cfg(not(ebbtide_loom))]
mod local {
    use super::super::epoch::{Domain, Record};
    use std::cell::Cell;

    /// One for the process, and ebbtide's own: pins of other crates do not hold it up.
    static DOMAIN: Domain = Domain::new();

    #[inline]
    pub(super) fn domain() -> &'static Domain {
        &DOMAIN
    }

    thread_local! {
        /// The thread's record. Has no destructor, so that reading it takes one instruction.
        static RECORD: Cell<Option<&'static Record>> = const { Cell::new(None) };
        static OWNER: Owner = const { Owner };
    }

    /// Gives the thread's record back at its end.
    struct Owner;

    impl Drop for Owner {
        fn drop(&mut self) {
            if let Some(record) = RECORD.take() {
                record.give_back();
            }
        }
    }

    #[inline]
    pub(super) fn record() -> &'static Record {
        RECORD.get().unwrap_or_else(enrol)
    }

    #[cold]
    fn enrol() -> &'static Record {
        let record = DOMAIN.acquire();
        if OWNER.try_with(|_| ()).is_ok() {
            RECORD.set(Some(record));
        } else {
            // The thread is ending: this pin is the last that it has the record for.
            record.orphan();
        }
        record
    }

    pub(crate) fn after_fork_in_child() {
        DOMAIN.forget_others(RECORD.get());
    }
}

#[cfg(ebbtide_loom)]
mod local {
    use super::super::epoch::{Domain, Record};
    use std::cell::Cell;

    // Statics of a model are made anew in each run.
    loom::lazy_static! {
        static ref DOMAIN: Domain = Domain::new();
    }
    loom::thread_local! {
        static RECORD: Cell<Option<&'static Record>> = Cell::new(None);
    }

    pub(super) fn domain() -> &'static Domain {
        &DOMAIN
    }

    /// (A thread of a model keeps its record: giving it back has a model of its own.)
    pub(super) fn record() -> &'static Record {
        RECORD.with(|own| {
            let record = own.get().unwrap_or_else(|| DOMAIN.acquire());
            own.set(Some(record));
            record
        })
    }
}

#[cfg(not(ebbtide_loom))]
pub(crate) use local::after_fork_in_child;

/// A pin: what was linked while it lasts stays readable until it ends. Stays on its thread.
pub(crate) struct Guard {
    record: &'static Record,
    here: PhantomData<*const ()>,
}

/// Pins the current thread. Two plain stores where the system can have a barrier executed
/// everywhere, else a fence (some 4 ns) as well; pins nest.
#[inline]
pub(crate) fn pin() -> Guard {
    let record = local::record();
    record.enter(local::domain());
    Guard {
        record,
        here: PhantomData,
    }
}

impl Guard {
    /// Lets go and pins again, if it is the thread's only pin: nothing read before may be used after.
    pub(crate) fn repin(&mut self) {
        self.record.repin(local::domain());
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.record.leave();
    }
}

/// Begins the grace period of what the caller, or whoever held its lock before, has unlinked.
pub(crate) fn begin() -> Began {
    local::domain().begin()
}

/// Finds out which grace periods are over. Never waits.
pub(crate) fn advance() {
    local::domain().advance();
}

impl Began {
    /// Whether every pin from before is gone, as far as [`advance`] has found out.
    pub(crate) fn is_over(self) -> bool {
        local::domain().is_over(self)
    }
}
