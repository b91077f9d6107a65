//! What the eviction order sees of a shard's entries.

use crate::entry::word::NEVER;
use crate::lane::unit_of;
use crate::order::Entries;
use crate::reclaim::Guard;
use crate::slab::side::Side;
use crate::slab::{self, Slab};
use crate::sync::{AtomicU8, Ordering};

/// A shard's entries, under its lock.
pub(super) struct View<'a, K, V> {
    pub(super) slab: &'a Slab<K, V>,
    pub(super) owner: &'a slab::Owner,
    pub(super) hashes: &'a Side<u32>,
    pub(super) weights: &'a Side<u64>,
    pub(super) guard: &'a Guard,
}

impl<K, V> View<'_, K, V> {
    fn mark_of(&self, slot: u32) -> Option<&AtomicU8> {
        self.slab.mark(self.owner.linked(slot, self.guard)?)
    }
}

impl<K, V> Entries for View<'_, K, V> {
    fn hash(&self, slot: u32) -> u32 {
        self.hashes.get(slot)
    }

    fn mark(&self, slot: u32) -> u8 {
        // Relaxed, here and below: a mark is a hint; a reader's raise may be lost.
        self.mark_of(slot)
            .map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    fn set_mark(&self, slot: u32, value: u8) {
        if let Some(mark) = self.mark_of(slot) {
            mark.store(value, Ordering::Relaxed);
        }
    }

    fn weight(&self, slot: u32) -> u64 {
        self.weights.get(slot)
    }

    fn due(&self, slot: u32) -> u32 {
        // Not the lane's, which a read that renews an idle entry leaves too early.
        let slot = self.owner.linked(slot, self.guard);
        match slot.map_or(NEVER, |slot| self.slab.entry(slot).word.load()) {
            NEVER => u32::MAX,
            word => unit_of(word),
        }
    }
}
