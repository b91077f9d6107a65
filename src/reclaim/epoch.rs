//! Epoch-based reclamation (Fraser, 2004) whose pins cost no barrier.
//!
//! Each thread has a record, alone on its lines, in which it notes the epoch when it pins. What was
//! unlinked before an epoch began is out of everybody's sight once no record shows an earlier one.
//!
//! Between noting the epoch and the first load of the index a reader needs a full barrier, or its
//! note may become visible after its loads. Where Linux offers `membarrier(2)`, whoever reclaims has
//! that barrier executed on all processors that run this process (as liburcu does; Desnoyers et al.,
//! "User-Level Implementations of Read-Copy Update", 2012) and a pin is two plain stores; elsewhere
//! every pin has a fence.

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Line, Ordering, barrier};

/// What a record shows while its thread is not pinned.
const UNPINNED: u64 = 0;

/// What one thread shows the others. Records are never freed: a thread that ends leaves its own to
/// the next one.
#[repr(align(128))]
pub(super) struct Record {
    /// The epoch at the beginning of the outermost pin, or [`UNPINNED`].
    pinned: AtomicU64,
    /// How many pins the thread holds. Only the owner touches it. (64 bits, because pins can be
    /// forgotten: a narrower count could come round to 0 while references are held.)
    depth: AtomicU64,
    /// Pins have to execute a fence of their own.
    fences: bool,
    /// To be given back when the last pin ends: its thread has no place left to remember it.
    orphaned: AtomicBool,
    owned: AtomicBool,
    /// The record that was added before this one.
    next: *const Record,
}

// SAFETY: `next` is written before the record is published and then only read; it points to a record
// that is never freed. Everything else is atomic or never written again.
unsafe impl Sync for Record {}

/// All records, and how far reclamation has come.
pub(super) struct Domain {
    /// The present epoch; grows with each [`begin`](Domain::begin).
    epoch: Line<AtomicU64>,
    /// Epochs before this one have been followed by a barrier on all processors.
    fenced: Line<AtomicU64>,
    /// What was unlinked in an epoch before this one is out of sight.
    over: AtomicU64,
    /// The record added last.
    records: AtomicPtr<Record>,
}

/// When a grace period began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began(u64);

impl Domain {
    #[cfg(not(ebbtide_loom))]
    pub(super) const fn new() -> Self {
        Domain {
            epoch: Line(AtomicU64::new(1)),
            fenced: Line(AtomicU64::new(0)),
            over: AtomicU64::new(0),
            records: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[cfg(ebbtide_loom)]
    pub(super) fn new() -> Self {
        Domain {
            epoch: Line(AtomicU64::new(1)),
            fenced: Line(AtomicU64::new(0)),
            over: AtomicU64::new(0),
            records: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Begins the grace period of what has been unlinked before this call (as its caller sees it).
    pub(super) fn begin(&self) -> Began {
        // Release: pairs with the Acquire in `enter`: who pins a later epoch sees what was unlinked
        // before. Acquire: and what came before the earlier beginnings.
        Began(self.epoch.fetch_add(1, Ordering::AcqRel))
    }

    /// Whether a grace period is over, as far as [`advance`](Self::advance) has found out.
    pub(super) fn is_over(&self, began: Began) -> bool {
        // Acquire: pairs with the Release in `advance`.
        began.0 < self.over.load(Ordering::Acquire)
    }

    /// Finds out which grace periods are over. Takes a system call if one began since the last call,
    /// and a load for each thread that ever was pinned at the same time as the others.
    pub(super) fn advance(&self) {
        // Acquire: what was unlinked before an epoch that ended is unlinked before the barrier.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Acquire: pairs with the Release below, so that this scan comes after that barrier.
        if self.fenced.load(Ordering::Acquire) < epoch {
            if !barrier::everywhere() {
                return;
            }
            self.fenced.fetch_max(epoch, Ordering::Release);
        }
        let mut oldest = epoch;
        // Acquire: pairs with the Release in `add`.
        let mut next: *const Record = self.records.load(Ordering::Acquire);
        // SAFETY: a record is never freed once it has been added to the list.
        while let Some(record) = unsafe { next.as_ref() } {
            // Acquire: pairs with the Releases in `enter` and `leave`: the owner's reads in earlier
            // pins come before what is dropped now.
            let pinned = record.pinned.load(Ordering::Acquire);
            if pinned != UNPINNED {
                oldest = oldest.min(pinned);
            }
            next = record.next;
        }
        // Release: pairs with the Acquire in `is_over`.
        self.over.fetch_max(oldest, Ordering::Release);
    }

    /// A record for the calling thread.
    pub(super) fn acquire(&self) -> &'static Record {
        let mut next: *const Record = self.records.load(Ordering::Acquire);
        // SAFETY: as in `advance`.
        while let Some(record) = unsafe { next.as_ref() } {
            // Acquire: pairs with the Release in `give_back`.
            if record
                .owned
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return record;
            }
            next = record.next;
        }
        self.add()
    }

    /// How many records there are.
    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        let first = self.records.load(Ordering::Acquire).cast_const();
        // SAFETY: as in `advance`.
        std::iter::successors(unsafe { first.as_ref() }, |record| unsafe {
            record.next.as_ref()
        })
        .count()
    }

    fn add(&self) -> &'static Record {
        let record = Box::leak(Box::new(Record {
            pinned: AtomicU64::new(UNPINNED),
            depth: AtomicU64::new(0),
            fences: barrier::needs_fences(),
            orphaned: AtomicBool::new(false),
            owned: AtomicBool::new(true),
            next: std::ptr::null(),
        }));
        let mut last = self.records.load(Ordering::Acquire);
        loop {
            record.next = last;
            // Release: the record is whole before it is found. Acquire: so is the one found instead.
            match self
                .records
                .compare_exchange(last, record, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return record,
                Err(other) => last = other,
            }
        }
    }

    /// In a child that has just been forked: unpins and gives back the records of all threads but
    /// the calling one, which do not exist here.
    pub(super) fn forget_others(&self, own: Option<&'static Record>) {
        let mut next: *const Record = self.records.load(Ordering::Acquire);
        // SAFETY: as in `advance`.
        while let Some(record) = unsafe { next.as_ref() } {
            if !own.is_some_and(|own| std::ptr::eq(own, record)) {
                record.depth.store(0, Ordering::Relaxed);
                record.pinned.store(UNPINNED, Ordering::Release);
                record.give_back();
            }
            next = record.next;
        }
    }
}

impl Record {
    /// Pins the owner: what it finds linked from here on stays readable until it leaves.
    #[inline]
    pub(super) fn enter(&self, domain: &Domain) {
        // Relaxed: the owner's alone.
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            self.note(domain);
        }
    }

    #[inline]
    fn note(&self, domain: &Domain) {
        // Acquire: pairs with the Release in `begin`, and keeps the loads of the index behind this one,
        // which a compiler fence below would not on a weakly ordered machine: who notes a later epoch
        // must not find what was unlinked in an earlier one. Release: pairs with the Acquire in
        // `advance`.
        let epoch = domain.epoch.load(Ordering::Acquire);
        self.pinned.store(epoch, Ordering::Release);
        // Either the barrier in `advance` comes before this one, and the loads that follow see what
        // was unlinked before it; or after it, and the scan sees the note.
        barrier::cheap(self.fences);
    }

    /// Ends the owner's innermost pin.
    #[inline]
    pub(super) fn leave(&self) {
        let depth = self.depth.load(Ordering::Relaxed) - 1;
        self.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            // Release: pairs with the Acquire in `advance`.
            self.pinned.store(UNPINNED, Ordering::Release);
            if self.orphaned.load(Ordering::Relaxed) {
                self.give_back();
            }
        }
    }

    /// Ends the owner's pin, if it has only one, and begins a new one.
    pub(super) fn repin(&self, domain: &Domain) {
        if self.depth.load(Ordering::Relaxed) == 1 {
            self.note(domain);
        }
    }

    /// Has it given back when the last pin ends.
    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Relaxed);
    }

    /// Lets another thread have it, now or, if pins are still held, after the last of them.
    pub(super) fn give_back(&self) {
        if self.depth.load(Ordering::Relaxed) > 0 {
            self.orphan();
            return;
        }
        self.orphaned.store(false, Ordering::Relaxed);
        // Release: pairs with the Acquire in `acquire`: the next owner finds the record as it is left.
        self.owned.store(false, Ordering::Release);
    }
}
