//! Victims from a random sample: no order is kept, only who is there.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::eviction::Entries;
use super::queue::{Links, Tag};
use crate::slab::side::Side;

/// Entries drawn for one victim, and the most that are remembered from earlier draws.
const SAMPLE: usize = 16;

/// What makes one entry of a sample go before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Nothing: one entry is drawn.
    Chance,
    /// The nearer deadline.
    Deadline,
}

/// The linked slots in no order, for drawing from: 4 bytes each beside their links.
#[derive(Debug)]
pub(super) struct Sampled {
    rank: Rank,
    members: Side<u32>,
    length: u32,
    random: SmallRng,
    /// The nearest deadlines of earlier draws (Redis's eviction pool). Slots may have left, or have
    /// other entries by now.
    pool: Vec<u32>,
}

impl Sampled {
    pub(super) fn new(rank: Rank) -> Self {
        Sampled {
            rank,
            members: Side::new(u32::MAX),
            length: 0,
            random: SmallRng::seed_from_u64(crate::RandomState::new().hash_one(SAMPLE)),
            pool: Vec::new(),
        }
    }

    pub(super) fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn link(&mut self, links: &mut Links, slot: u32) {
        debug_assert_eq!(links.tag(slot), Tag::Out, "slot {slot} is a member");
        self.place(links, slot, self.length);
        self.length += 1;
    }

    pub(super) fn replace(&mut self, links: &mut Links, old: u32, new: u32) {
        let place = links.place(old);
        links.clear(old);
        self.place(links, new, place);
    }

    /// The last member takes the place of the one that leaves.
    pub(super) fn unlink(&mut self, links: &mut Links, slot: u32) {
        debug_assert_eq!(links.tag(slot), Tag::First, "slot {slot}");
        let place = links.place(slot);
        links.clear(slot);
        self.length -= 1;
        if place != self.length {
            let last = self.members.get(self.length);
            self.place(links, last, place);
        }
        self.members.set(self.length, u32::MAX);
        // One chunk more than needed stays, so that the edge of one can be crossed for nothing.
        let chunk = crate::limits::SIDE_CHUNK;
        if (self.length as usize).is_multiple_of(chunk) {
            self.members.release_chunk(self.length as usize / chunk + 1);
        }
    }

    fn place(&mut self, links: &mut Links, slot: u32, place: u32) {
        self.members.set(place, slot);
        links.set_place(slot, Tag::First, place);
    }

    pub(super) fn victim(
        &mut self,
        links: &Links,
        spare: Option<u32>,
        entries: &impl Entries,
    ) -> Option<u32> {
        match self.rank {
            Rank::Chance => self.draw(spare),
            Rank::Deadline => self.nearest(links, spare, entries),
        }
    }

    /// Any member but `spare`, each as likely.
    fn draw(&mut self, spare: Option<u32>) -> Option<u32> {
        if self.length == 0 {
            return None;
        }
        let last = self.members.get(self.length - 1);
        let drawn = self.members.get(self.random.random_range(0..self.length));
        if spare != Some(drawn) {
            return Some(drawn);
        }
        // Among all places but the last, which stands in for the spare one's.
        if self.length == 1 {
            return None;
        }
        let other = self
            .members
            .get(self.random.random_range(0..self.length - 1));
        Some(if other == drawn { last } else { other })
    }

    /// The nearest deadline among new draws and the best of the earlier ones.
    fn nearest(
        &mut self,
        links: &Links,
        spare: Option<u32>,
        entries: &impl Entries,
    ) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.pool);
        candidates.retain(|&slot| links.tag(slot) == Tag::First && spare != Some(slot));
        if self.length as usize <= 2 * SAMPLE {
            // So few that all can be looked at.
            let all = (0..self.length).map(|place| self.members.get(place));
            candidates.extend(all.filter(|&slot| spare != Some(slot)));
        } else {
            for _ in 0..SAMPLE {
                candidates.extend(self.draw(spare));
            }
        }
        // Deadlines may have changed since a slot came into the pool.
        let candidates: Vec<(u32, u32)> = candidates
            .into_iter()
            .map(|slot| (entries.due(slot), slot))
            .collect();
        // Each once, in the order of the draws where deadlines are the same: slot ids say how old an
        // entry is.
        let mut each: Vec<(u32, u32)> = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            if !each.contains(&candidate) {
                each.push(candidate);
            }
        }
        each.sort_by_key(|&(due, _)| due);
        let mut slots = each.into_iter();
        let victim = slots.next().map(|(_, slot)| slot);
        self.pool = slots
            .take(SAMPLE)
            .filter(|&(due, _)| due != u32::MAX)
            .map(|(_, slot)| slot)
            .collect();
        victim
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.members.bytes() + self.pool.capacity() * size_of::<u32>()
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn validate(&self, links: &Links) -> Vec<u32> {
        let members: Vec<u32> = (0..self.length).map(|i| self.members.get(i)).collect();
        for (place, &slot) in members.iter().enumerate() {
            assert_eq!(links.tag(slot), Tag::First, "slot {slot}");
            assert_eq!(links.place(slot) as usize, place, "slot {slot}");
        }
        assert_eq!(self.members.get(self.length), u32::MAX);
        members
    }
}
