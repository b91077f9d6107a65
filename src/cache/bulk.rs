//! Operations on all entries: one stretch of hashes at a time.
//!
//! A walk goes through each shard by ascending hash. For one index segment at a time (some hundred
//! entries) it notes the linked slots in a short hold of the lock, then looks at them without it,
//! within one pin. A slot whose entry has ended meanwhile is looked up again by its key, so a key
//! that is there throughout is met exactly once, whatever is replaced, split or merged on the way.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::Cache;
use super::core::{Core, judge};
use super::iter::{Drain, Iter};
use super::room::Written;
use crate::RemovalCause;
use crate::reclaim::{Guard, pin};
use crate::shard::{Look, Shard};
use crate::slab::SlotRef;
use crate::stats::Path;

/// Entries ended in one hold of a shard's lock.
const TOGETHER: usize = 128;

/// How far a walk has come, and before which shard it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) shard: usize,
    pub(super) hash: u32,
    pub(super) end: usize,
}

impl Walk {
    /// A walk through all shards.
    pub(super) const START: Walk = Walk {
        shard: 0,
        hash: 0,
        end: usize::MAX,
    };

    /// A walk through one shard.
    #[cfg(feature = "rayon")]
    fn through(shard: usize) -> Self {
        Walk {
            shard,
            hash: 0,
            end: shard + 1,
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Notes the slots of the next stretch, if there is one: its shard.
    pub(super) fn note<'g>(
        &self,
        walk: &mut Walk,
        guard: &'g Guard,
        slots: &mut Vec<SlotRef<'g>>,
    ) -> Option<usize> {
        let shard = walk.shard;
        if shard >= walk.end {
            return None;
        }
        let next = self.shards.get(shard)?.note(walk.hash, guard, slots);
        match next {
            Some(hash) => walk.hash = hash,
            None => (walk.shard, walk.hash) = (shard + 1, 0),
        }
        Some(shard)
    }

    /// The live entry that a noted slot stands for: its own, or the one that has replaced it.
    pub(super) fn current<'g>(
        &self,
        shard: &Shard<K, V>,
        slot: SlotRef<'g>,
        guard: &'g Guard,
    ) -> Option<SlotRef<'g>> {
        let entry = shard.entry(slot);
        if !self.rules.time.is_due(entry.word.load()) {
            return Some(slot);
        }
        let hash = self.address(entry.key()).hash;
        match shard.lookup(&self.rules, hash, guard, |k| k == entry.key()) {
            Look::Live(slot, _) => Some(slot),
            Look::Expired(..) | Look::Absent => None,
        }
    }

    /// Ends the entries in these slots that are still linked; those that were alive go to `ended`.
    pub(super) fn end_all<'g>(
        &self,
        shard: usize,
        slots: &[SlotRef<'g>],
        guard: &'g Guard,
        mut ended: impl FnMut(SlotRef<'g>),
    ) {
        for slots in slots.chunks(TOGETHER) {
            let mut hold = self.hold(shard, guard);
            let mut alive = [false; TOGETHER];
            for (slot, alive) in slots.iter().zip(&mut alive) {
                if let Some(place) = hold.find_slot(slot.id()) {
                    *alive = hold.end(place, RemovalCause::Explicit, Path::Write);
                }
            }
            let released = hold.release();
            // The pin keeps them readable. A panic of the user's waits until the books are closed.
            let told = catch_unwind(AssertUnwindSafe(|| {
                let alive = slots.iter().zip(alive).filter(|(_, alive)| *alive);
                alive.for_each(|(slot, _)| ended(*slot));
            }));
            self.finish_write(shard, released, Written::NOTHING);
            told.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Live entries, exactly: looks at the word of each.
    ///
    /// # Cost
    /// Proportional to the number of entries; a short hold of a shard's lock for some hundred.
    pub fn live_count(&self) -> u64 {
        let core = &*self.core;
        let (mut walk, mut count) = (Walk::START, 0);
        loop {
            let guard = pin();
            let mut slots = Vec::new();
            let Some(shard) = core.note(&mut walk, &guard, &mut slots) else {
                return count;
            };
            let shard = &core.shards[shard];
            count += slots
                .iter()
                .filter(|slot| core.current(shard, **slot, &guard).is_some())
                .count() as u64;
        }
    }

    /// Removes every entry. What other threads store meanwhile may stay.
    ///
    /// Each removal is reported. Locks one shard at a time, for at most 128 removals.
    pub fn invalidate_all(&self) {
        let core = &*self.core;
        core.rules.flights.overtake_all();
        let mut walk = Walk::START;
        loop {
            let guard = pin();
            let mut slots = Vec::new();
            let Some(shard) = core.note(&mut walk, &guard, &mut slots) else {
                return;
            };
            core.end_all(shard, &slots, &guard, |_| ());
        }
    }

    /// Removes the entries that `keep` does not want. What other threads store meanwhile may be
    /// passed over.
    ///
    /// `keep` runs without any lock, and again if an entry changed before it could be removed.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let core = &*self.core;
        core.rules.flights.overtake_all();
        let mut walk = Walk::START;
        loop {
            let guard = pin();
            let mut slots = Vec::new();
            let Some(shard) = core.note(&mut walk, &guard, &mut slots) else {
                return;
            };
            for slot in slots {
                self.retain_one(shard, slot, &guard, &mut keep);
            }
        }
    }

    fn retain_one<'g>(
        &self,
        shard: usize,
        slot: SlotRef<'g>,
        guard: &'g Guard,
        keep: &mut impl FnMut(&K, &V) -> bool,
    ) {
        let core = &*self.core;
        let mut slot = slot;
        while let Some(current) = core.current(&core.shards[shard], slot, guard) {
            slot = current;
            let entry = core.shards[shard].entry(slot);
            let (keeps, number) = judge(entry.value(), |value| keep(entry.key(), value));
            if keeps {
                return;
            }
            let mut hold = core.hold(shard, guard);
            let place = hold
                .find_slot(slot.id())
                .filter(|place| hold.close_at(place, number));
            let done =
                place.is_some_and(|place| hold.end(place, RemovalCause::Explicit, Path::Write));
            let released = hold.release();
            core.finish_write(shard, released, Written::NOTHING);
            if done {
                return;
            }
        }
    }

    /// Removes every entry and hands out clones of those that were alive, as it goes along. What is
    /// left when the iterator is dropped is removed too.
    pub fn drain(&self) -> Drain<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        self.core.rules.flights.overtake_all();
        Drain::of(self)
    }

    /// Clones of all live entries, in no particular order.
    ///
    /// Weakly consistent: an entry that is there throughout is met exactly once, one that comes or
    /// goes meanwhile may or may not be. Not a use. Holds no lock and no pin between two calls of
    /// `next`, and clones some hundred entries at a time.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::of(self, Walk::START)
    }

    /// [`iter`](Self::iter) for one shard.
    #[cfg(feature = "rayon")]
    pub(super) fn iter_shard(&self, shard: usize) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::of(self, Walk::through(shard))
    }
}
