//! Where unlinked slots and replaced tables wait for their grace period.

use std::collections::VecDeque;

use super::{Began, begin};
use crate::limits::LIMBO_BATCH;
use crate::slab::Departed;

/// Memory that readers may still look at; dropping it frees it.
pub(crate) type Retired = Box<dyn Send>;

/// Slots and tables that left together.
#[derive(Default)]
struct Batch {
    slots: Vec<u32>,
    tables: Vec<Retired>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.tables.is_empty()
    }
}

/// Batches whose grace period has begun.
struct Sealed {
    batches: VecDeque<Batch>,
    began: Began,
}

/// Some slots and tables of a batch past its grace period: nobody else can see them.
///
/// Only [`Limbo::take_ripe`] makes one, so holding it proves the grace period.
#[must_use]
pub(crate) struct Ripe {
    slots: Vec<u32>,
    tables: Vec<Retired>,
}

impl Ripe {
    /// The slots, for their values to be dropped; frees the tables.
    pub(crate) fn into_slots(self) -> Vec<u32> {
        drop(self.tables);
        self.slots
    }

    /// How many values wait in it.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

/// One shard's limbo, under the shard lock.
#[derive(Default)]
pub(crate) struct Limbo {
    open: Batch,
    /// Full batches that wait for the next sealing.
    full: VecDeque<Batch>,
    sealed: VecDeque<Sealed>,
    slots: usize,
    tables: usize,
}

impl Limbo {
    /// Adds a slot that has left the index and whose event has been told.
    #[inline]
    pub(crate) fn push(&mut self, slot: Departed) {
        if self.open.slots.len() == LIMBO_BATCH {
            self.full.push_back(std::mem::take(&mut self.open));
        }
        self.open.slots.push(slot.id());
        self.slots += 1;
    }

    /// Adds memory that has been replaced.
    pub(crate) fn retire(&mut self, table: Retired) {
        self.open.tables.push(table);
        self.tables += 1;
    }

    /// Slots that wait.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Slots whose grace period has not begun (counted in whole batches, but for the newest).
    pub(crate) fn unsealed(&self) -> usize {
        self.open.slots.len() + self.full.len() * LIMBO_BATCH
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots == 0 && self.tables == 0
    }

    /// Begins the grace period of everything added so far.
    pub(crate) fn seal(&mut self) {
        if !self.open.is_empty() {
            self.full.push_back(std::mem::take(&mut self.open));
        }
        if self.full.is_empty() {
            return;
        }
        self.sealed.push_back(Sealed {
            batches: std::mem::take(&mut self.full),
            began: begin(),
        });
    }

    /// Up to `most` slots (and the tables beside them) whose grace period is over, oldest first.
    pub(crate) fn take_ripe(&mut self, most: usize) -> Option<Ripe> {
        loop {
            let sealed = self.sealed.front_mut()?;
            if !sealed.began.is_over() {
                return None;
            }
            let Some(batch) = sealed.batches.front_mut() else {
                self.sealed.pop_front();
                continue;
            };
            let tables = std::mem::take(&mut batch.tables);
            let slots = if batch.slots.len() <= most {
                std::mem::take(&mut batch.slots)
            } else {
                batch.slots.split_off(batch.slots.len() - most)
            };
            if batch.slots.is_empty() {
                sealed.batches.pop_front();
            }
            self.slots -= slots.len();
            self.tables -= tables.len();
            return Some(Ripe { slots, tables });
        }
    }

    /// Bytes held by the bookkeeping.
    pub(crate) fn bytes(&self) -> usize {
        let batches = std::iter::once(&self.open)
            .chain(&self.full)
            .chain(self.sealed.iter().flat_map(|sealed| &sealed.batches));
        batches.map(|batch| batch.slots.capacity() * 4).sum()
    }
}

impl std::fmt::Debug for Limbo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limbo")
            .field("slots", &self.slots)
            .field("tables", &self.tables)
            .finish()
    }
}
