//! A shard's entries as tests make them up.

use std::cell::Cell;

use super::eviction::{Entries, Need, Order};
use crate::limits::MARK_MAX;

#[derive(Debug)]
struct Fake {
    hash: u32,
    weight: u64,
    due: u32,
    mark: Cell<u8>,
}

/// Slots, some of them linked. Asking about one that is not fails the test.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Fake>>,
    free: Vec<u32>,
    looks: Cell<u32>,
}

impl Slots {
    fn slot(&self, slot: u32) -> &Fake {
        self.slots[slot as usize]
            .as_ref()
            .unwrap_or_else(|| panic!("slot {slot} is not linked"))
    }

    /// Fills a free slot, the last that became free first.
    pub(super) fn fill(&mut self, hash: u32, weight: u64, due: u32) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(Fake {
            hash,
            weight,
            due,
            mark: Cell::new(0),
        });
        slot
    }

    pub(super) fn free(&mut self, slot: u32) {
        assert!(self.slots[slot as usize].take().is_some());
        self.free.push(slot);
    }

    /// What a reader's hit does.
    pub(super) fn read(&self, slot: u32) {
        let mark = &self.slot(slot).mark;
        mark.set((mark.get() + 1).min(MARK_MAX));
    }

    pub(super) fn linked(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize].is_some())
    }

    /// Marks asked for since the last call.
    pub(super) fn looks(&self) -> u32 {
        self.looks.take()
    }
}

impl Entries for Slots {
    fn hash(&self, slot: u32) -> u32 {
        self.slot(slot).hash
    }

    fn mark(&self, slot: u32) -> u8 {
        self.looks.set(self.looks.get() + 1);
        self.slot(slot).mark.get()
    }

    fn set_mark(&self, slot: u32, mark: u8) {
        assert!(mark <= MARK_MAX);
        self.slot(slot).mark.set(mark);
    }

    fn weight(&self, slot: u32) -> u64 {
        self.slot(slot).weight
    }

    fn due(&self, slot: u32) -> u32 {
        self.slot(slot).due
    }
}

/// A cache of one shard with a bound on the number of entries.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) order: Order,
    pub(super) slots: Slots,
    bound: usize,
    count: usize,
}

impl Small {
    pub(super) fn new(order: Order, bound: usize) -> Self {
        Small {
            order,
            slots: Slots::default(),
            bound,
            count: 0,
        }
    }

    pub(super) fn find(&self, key: u32) -> Option<u32> {
        self.slots
            .linked()
            .find(|&slot| self.slots.hash(slot) == key)
    }

    /// Looks the key up and inserts it when it is missing; whether it was there.
    pub(super) fn get(&mut self, key: u32) -> bool {
        if let Some(slot) = self.find(key) {
            self.slots.read(slot);
            return true;
        }
        self.insert(key, 1);
        false
    }

    /// Links a new key's entry and evicts what is too much; returns the keys that had to go.
    pub(super) fn insert(&mut self, key: u32, weight: u64) -> Vec<u32> {
        let slot = self.slots.fill(key, weight, u32::MAX);
        self.order.link(slot, &self.slots);
        self.count += 1;
        let mut gone = Vec::new();
        while self.count > self.bound {
            let victim = self
                .order
                .victim(Some(slot), Need::Entries, &self.slots)
                .expect("there are others");
            gone.push(self.slots.hash(victim));
            self.leave(victim, true);
        }
        gone
    }

    pub(super) fn leave(&mut self, slot: u32, evicted: bool) {
        self.order.unlink(slot, evicted, &self.slots);
        self.slots.free(slot);
        self.count -= 1;
    }
}
