//! Segmented CLOCK with a ghost and a sketch gate: the default policy.
//!
//! Descends from S3-FIFO (Yang and others, 2023: a small queue for what is new, a large one, a
//! ghost) and TinyLFU (Einziger, Friedman and Manes, 2017: how often both were asked for decides
//! between a newcomer and a resident), chosen by replaying 27 real traces.
//!
//! 1. While there is room, new entries go to *hot* until its part is full, then to *cold*.
//! 2. A new entry whose key the ghost knows challenges the hot entry that the CLOCK hand finds: it
//!    takes that entry's place, with a mark to begin with, if its key was asked for more often.
//! 3. Else the oldest cold entry goes, and the ghost remembers its key; but one that was used
//!    challenges the hot entry in the same way, and the loser goes. Its uses are spent by that: in
//!    hot it begins without a mark. (The ghost remembers what left cold, not what left hot.)
//!
//! Parts are measured in weight. The room of a shard is not its share of the bound, because shards
//! lend each other room: it is the share until a victim has to be found for the first time, and from
//! then on what the shard held before the entry that was one too many, or more as soon as it holds more.

use std::ops::RangeInclusive;

use super::blocks::Mixed;
use super::eviction::Entries;
use super::ghost::Ghost;
use super::queue::{Links, Queue, Tag};
use super::ring::turn;
use super::sketch::Sketch;
use crate::limits::CLOCK_LOOKS;

#[derive(Debug)]
pub(super) struct Segmented {
    cold: Queue,
    hot: Queue,
    ghost: Ghost,
    sketch: Sketch,
    /// Numbers of entries for which both have the right size.
    fits: RangeInclusive<usize>,
    /// The part of the room that hot may fill, in 2^-32.
    hot_part: u64,
    /// What the shard can hold, as far as is known.
    room: u64,
    /// The newest entry, if it is cold though the ghost knew its key.
    challenger: Option<u32>,
}

impl Segmented {
    pub(super) fn new(cold_share: f64, share: u64) -> Self {
        Segmented {
            cold: Queue::new(Tag::First),
            hot: Queue::new(Tag::Second),
            ghost: Ghost::new(),
            sketch: Sketch::new(),
            fits: 0..=0,
            hot_part: ((1.0 - cold_share).clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64,
            room: share,
            challenger: None,
        }
    }

    pub(super) fn set_share(&mut self, share: u64) {
        self.room = share;
    }

    #[inline]
    pub(super) fn length(&self) -> u32 {
        self.cold.length() + self.hot.length()
    }

    fn weight(&self) -> u64 {
        self.cold.weight() + self.hot.weight()
    }

    /// The weight that hot may have.
    #[inline]
    fn hot_room(&self) -> u64 {
        ((u128::from(self.room) * u128::from(self.hot_part)) >> 32) as u64
    }

    pub(super) fn link(&mut self, links: &mut Links, slot: u32, entries: &impl Entries) {
        let (key, weight) = (Mixed::from(entries.hash(slot)), entries.weight(slot));
        self.room = self.room.max(self.weight());
        self.sketch.add(key);
        let known = self.ghost.take(key);
        self.challenger = None;
        if self.hot.weight().saturating_add(weight) <= self.hot_room() {
            self.hot.push(links, slot, weight);
        } else {
            self.cold.push(links, slot, weight);
            self.challenger = known.then_some(slot);
        }
        self.fit();
    }

    pub(super) fn replace(&mut self, links: &mut Links, old: (u32, u64), new: (u32, u64)) {
        self.queue(links.tag(old.0)).replace(links, old, new);
        if self.challenger == Some(old.0) {
            self.challenger = Some(new.0);
        }
    }

    pub(super) fn unlink(
        &mut self,
        links: &mut Links,
        slot: u32,
        evicted: bool,
        entries: &impl Entries,
    ) {
        let tag = links.tag(slot);
        self.queue(tag).remove(links, slot, entries.weight(slot));
        if evicted && tag == Tag::First {
            self.ghost.add(entries.hash(slot));
        }
        if self.challenger == Some(slot) {
            self.challenger = None;
        }
        self.fit();
    }

    #[inline]
    fn queue(&mut self, tag: Tag) -> &mut Queue {
        match tag {
            Tag::Second => &mut self.hot,
            _ => &mut self.cold,
        }
    }

    /// Lets ghost and sketch follow the number of entries.
    #[inline]
    fn fit(&mut self) {
        let entries = self.length() as usize;
        if !self.fits.contains(&entries) {
            self.resize(entries);
        }
    }

    #[cold]
    fn resize(&mut self, entries: usize) {
        self.ghost.fit(entries);
        self.sketch.fit(entries);
        let (ghost, sketch) = (self.ghost.fits(), self.sketch.fits());
        self.fits = *ghost.start().max(sketch.start())..=*ghost.end().min(sketch.end());
    }

    pub(super) fn victim(
        &mut self,
        links: &mut Links,
        spare: Option<u32>,
        entries: &impl Entries,
    ) -> Option<u32> {
        let spared = spare.filter(|&slot| matches!(links.tag(slot), Tag::First | Tag::Second));
        self.room = self.weight() - spared.map_or(0, |slot| entries.weight(slot));
        if let Some(challenger) = self.challenger.take()
            && let Some(resident) = self.resident(links, spare, entries)
            && self.sketch.count(entries.hash(challenger))
                > self.sketch.count(entries.hash(resident))
        {
            let mark = entries.mark(challenger).max(1);
            self.promote(links, challenger, mark, entries);
            return Some(resident);
        }
        // Hot has more than its part: the room has shrunk, or a heavy entry came in.
        if self.hot.weight() > self.hot_room()
            && let Some(resident) = self.resident(links, spare, entries)
        {
            return Some(resident);
        }
        for _ in 0..CLOCK_LOOKS {
            let Some(oldest) = self.cold.oldest_but(links, spare) else {
                break;
            };
            if entries.mark(oldest) == 0 {
                return Some(oldest);
            }
            self.sketch.add(entries.hash(oldest));
            let weight = entries.weight(oldest);
            if self.hot.weight().saturating_add(weight) <= self.hot_room() {
                // Entries have left hot for other reasons: nobody has to go for this one.
                self.promote(links, oldest, 0, entries);
                continue;
            }
            let Some(resident) = self.resident(links, spare, entries) else {
                return Some(oldest);
            };
            if self.sketch.count(entries.hash(oldest)) <= self.sketch.count(entries.hash(resident))
            {
                return Some(oldest);
            }
            self.promote(links, oldest, 0, entries);
            return Some(resident);
        }
        self.resident(links, spare, entries)
    }

    /// The hot entry that has to go if one has to.
    fn resident(
        &mut self,
        links: &mut Links,
        spare: Option<u32>,
        entries: &impl Entries,
    ) -> Option<u32> {
        let sketch = &mut self.sketch;
        turn(&mut self.hot, links, spare, entries, |slot| {
            sketch.add(entries.hash(slot));
        })
    }

    /// Moves a cold entry to hot, with this mark to begin with.
    fn promote(&mut self, links: &mut Links, slot: u32, mark: u8, entries: &impl Entries) {
        entries.set_mark(slot, mark);
        let weight = entries.weight(slot);
        self.cold.remove(links, slot, weight);
        self.hot.push(links, slot, weight);
    }

    /// The two oldest cold entries: nearly always the next to go.
    #[inline]
    pub(super) fn upcoming(&self, links: &Links) -> [Option<u32>; 2] {
        self.cold.two_oldest(links)
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        let key = Mixed::from(hash);
        self.sketch.prefetch(key);
        self.ghost.prefetch(key);
    }

    #[inline]
    pub(super) fn prefetch_departure(&self, hash: u32) {
        self.ghost.prefetch(Mixed::from(hash));
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.ghost.bytes() + self.sketch.bytes()
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn validate(&self, links: &Links, entries: &impl Entries) -> Vec<u32> {
        let mut slots = self.cold.validate(links, entries);
        if let Some(challenger) = self.challenger {
            assert!(slots.contains(&challenger));
        }
        slots.extend(self.hot.validate(links, entries));
        slots
    }
}
