//! The deadline word: one atomic decides whether an entry lives.
//!
//! | from → to | who | how |
//! |---|---|---|
//! | due → DEAD | anyone about to act on "expired" ([`Word::settle`]) | CAS, without the lock |
//! | live → DEAD | remove, evict, clear, retain, expire to zero ([`Word::kill`]) | CAS, under the lock |
//! | any → DEAD | the writer that published a replacement ([`Word::retire`]) | swap, under the lock |
//! | live → another deadline | expire, persist, touch, writes that keep one ([`Word::change`]) | CAS, under the lock |
//! | live → later | a read hit with time to idle ([`Word::extend_idle`]) | CAS, without the lock |
//!
//! DEAD is final (P1): no transition leaves it, and every transition out of a finite deadline
//! first finds that it is not due. So nothing that was once reported absent comes back.

use crate::sync::{AtomicU64, Ordering};

/// The word of an entry that has ended.
pub(crate) const DEAD: u64 = 0;

/// The word of an entry without a deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where idle extensions are about, the lowest bits of a changed deadline count changes, so that a
/// word does not come back to what an extension in flight has read (it would go through with the
/// cap of that time). So a changed deadline is at most this many nanoseconds early.
const COUNT: u64 = 63;

/// What a look at a word found, with "expired" already made final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Alive, with this deadline.
    Live(u64),
    /// Due, and this call ended it: the deadline that had passed.
    Expired(u64),
    /// Somebody had ended it before.
    Dead,
}

/// The deadline word of one entry, in nanoseconds of the cache's clock.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// A word of its own; in the slab they come as zeroed memory.
    #[cfg(ebbtide_loom)]
    pub(crate) fn new(word: u64) -> Self {
        Word(AtomicU64::new(word))
    }

    #[inline]
    pub(crate) fn load(&self) -> u64 {
        // Acquire: DEAD written by `retire` comes with the replacement's index cell, which was
        // stored before it; a deadline written by `change` comes with the cap stored before it.
        self.0.load(Ordering::Acquire)
    }

    /// Sets the word of an entry that nobody else can reach yet.
    #[inline]
    pub(crate) fn set(&self, word: u64) {
        // Relaxed: the index cell's Release store publishes it together with the entry.
        self.0.store(word, Ordering::Relaxed);
    }

    /// Looks, and makes "expired" final before anyone is told (P1).
    #[inline]
    pub(crate) fn settle(&self, is_due: impl Fn(u64) -> bool) -> Found {
        let mut seen = self.load();
        loop {
            if seen == DEAD {
                return Found::Dead;
            }
            if !is_due(seen) {
                return Found::Live(seen);
            }
            match self.replace(seen, DEAD) {
                Ok(()) => return Found::Expired(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Ends the entry whatever its deadline (P4); the winner's clock decides the cause:
    /// [`Found::Live`] means that it was alive and this call ended it.
    #[inline]
    pub(crate) fn kill(&self, is_due: impl Fn(u64) -> bool) -> Found {
        let mut seen = self.load();
        loop {
            if seen == DEAD {
                return Found::Dead;
            }
            let due = is_due(seen);
            match self.replace(seen, DEAD) {
                Ok(()) if due => return Found::Expired(seen),
                Ok(()) => return Found::Live(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Ends an entry whose replacement is already published in its index cell; returns what the
    /// word was.
    #[inline]
    pub(crate) fn retire(&self) -> u64 {
        // Release: a reader that loads this DEAD finds the replacement's id when it looks again
        // (P2). Acquire: as in `load`.
        self.0.swap(DEAD, Ordering::AcqRel)
    }

    /// Moves the deadline of a live entry to what `next` makes of the old one. Every retry decides
    /// afresh. [`Found::Live`] carries the deadline now in force.
    ///
    /// Where idle extensions are about, `count` goes by the changes of the shard ([`COUNT`]): an
    /// extension that read the word and the cap before this change then fails. (It would take a
    /// multiple of 64 changes in between, and the same deadline again with another cap.)
    pub(crate) fn change(
        &self,
        is_due: impl Fn(u64) -> bool,
        count: Option<u64>,
        mut next: impl FnMut(u64) -> u64,
    ) -> Found {
        loop {
            let seen = match self.settle(&is_due) {
                Found::Live(seen) => seen,
                over => return over,
            };
            let mut new = next(seen);
            if let Some(count) = count {
                new = counted(new, count);
                // (Nothing extends an entry that never ends, and there is nothing before 1.)
                if new == seen && seen != NEVER && seen > 1 {
                    new -= 1;
                }
            }
            if self.replace(seen, new).is_ok() {
                return Found::Live(new);
            }
        }
    }

    /// A read hit's renewal (time to idle): to `until(word)` when that is later by at least
    /// `grain`. Refused when dead or due; may lose against a concurrent write. `until` must load
    /// the cap, then the clock, in this order, each time it is called.
    pub(crate) fn extend_idle(
        &self,
        is_due: impl Fn(u64) -> bool,
        grain: u64,
        mut until: impl FnMut() -> u64,
    ) {
        loop {
            let seen = self.load();
            if seen == NEVER || seen == DEAD {
                return;
            }
            // The count stays: this is not a change.
            let target = counted(until(), seen);
            if target < seen.saturating_add(grain) || is_due(seen) {
                return;
            }
            if self.replace(seen, target).is_ok() {
                return;
            }
        }
    }

    #[inline]
    fn replace(&self, seen: u64, new: u64) -> Result<(), u64> {
        // Release: pairs with the Acquire in `load`. Acquire on both: the value that won or lost
        // is acted upon like a loaded one.
        self.0
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

/// The latest deadline up to this one whose lowest bits are those of `count`.
fn counted(deadline: u64, count: u64) -> u64 {
    if deadline == NEVER || deadline <= COUNT {
        return deadline;
    }
    deadline - (deadline.wrapping_sub(count) & COUNT)
}
