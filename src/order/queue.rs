//! Queues of slots, linked through arrays beside the slab: every step is O(1).

#[cfg(any(test, debug_assertions))]
use super::eviction::Entries;
use crate::slab::side::Side;

/// A slot as a link names it: one more than its id, so that 0 is nobody. Ids end below 2^30, which
/// leaves the highest bit of both links of a slot for the name of its queue.
type Name = u32;

const NAME: u32 = u32::MAX >> 1;

/// Which queue a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    /// None.
    Out = 0,
    /// The policy's first queue, or its only one.
    First = 1,
    /// The policy's second queue.
    Second = 2,
    /// Entries without weight, whatever the policy.
    Weightless = 3,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Link {
    newer: u32,
    older: u32,
}

impl Link {
    fn new(tag: Tag, newer: Name, older: Name) -> Self {
        Link {
            newer: newer | (tag as u32 & 1) << 31,
            older: older | (tag as u32 >> 1) << 31,
        }
    }

    #[inline]
    fn newer(self) -> Name {
        self.newer & NAME
    }

    #[inline]
    fn older(self) -> Name {
        self.older & NAME
    }

    #[inline]
    fn tag(self) -> Tag {
        match (self.older >> 31, self.newer >> 31) {
            (0, 0) => Tag::Out,
            (0, _) => Tag::First,
            (_, 0) => Tag::Second,
            _ => Tag::Weightless,
        }
    }
}

/// The links of all slots of a shard: 8 bytes each.
#[derive(Debug)]
pub(super) struct Links(Side<Link>);

impl Links {
    pub(super) fn new() -> Self {
        Links(Side::new(Link::default()))
    }

    /// The queue that the slot is in.
    #[inline]
    pub(super) fn tag(&self, slot: u32) -> Tag {
        self.0.get(slot).tag()
    }

    /// Files a slot that is in no queue under a number (below 2^31) instead of neighbours.
    pub(super) fn set_place(&mut self, slot: u32, tag: Tag, place: u32) {
        self.0.set(slot, Link::new(tag, place, 0));
    }

    /// The number given to [`set_place`](Self::set_place).
    pub(super) fn place(&self, slot: u32) -> u32 {
        self.0.get(slot).newer()
    }

    #[inline]
    pub(super) fn clear(&mut self, slot: u32) {
        self.0.set(slot, Link::default());
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Asks for a slot's line.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        self.0.prefetch(slot);
    }

    /// As `Side::release_chunk`: gives back the links of slots that are all free.
    pub(super) fn release_chunk(&mut self, chunk: usize) {
        self.0.release_chunk(chunk);
    }

    #[inline]
    fn edit(&mut self, name: Name, edit: impl FnOnce(Link) -> Link) {
        if let Some(slot) = name.checked_sub(1)
            && let Some(link) = self.0.cell(slot)
        {
            *link = edit(*link);
        }
    }
}

/// A queue from the newest to the oldest slot, with the sum of their weights.
#[derive(Debug)]
pub(super) struct Queue {
    tag: Tag,
    newest: Name,
    oldest: Name,
    length: u32,
    weight: u64,
}

impl Queue {
    pub(super) fn new(tag: Tag) -> Self {
        Queue {
            tag,
            newest: 0,
            oldest: 0,
            length: 0,
            weight: 0,
        }
    }

    #[inline]
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    #[inline]
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<u32> {
        self.oldest.checked_sub(1)
    }

    /// The oldest slot other than `spare`.
    #[inline]
    pub(super) fn oldest_but(&self, links: &Links, spare: Option<u32>) -> Option<u32> {
        let oldest = self.oldest()?;
        if spare == Some(oldest) {
            links.0.get(oldest).newer().checked_sub(1)
        } else {
            Some(oldest)
        }
    }

    /// The oldest and the one after it.
    #[inline]
    pub(super) fn two_oldest(&self, links: &Links) -> [Option<u32>; 2] {
        let oldest = self.oldest();
        let next = oldest.and_then(|oldest| links.0.get(oldest).newer().checked_sub(1));
        [oldest, next]
    }

    /// Adds a slot that is in no queue as the newest.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, slot: u32, weight: u64) {
        debug_assert_eq!(links.tag(slot), Tag::Out, "slot {slot} is in a queue");
        self.attach(links, slot);
        self.length += 1;
        self.weight += weight;
    }

    /// Takes out a slot of this queue, which was counted with this weight.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, slot: u32, weight: u64) {
        debug_assert_eq!(links.tag(slot), self.tag, "slot {slot}");
        self.detach(links, slot);
        links.clear(slot);
        self.length -= 1;
        self.weight -= weight;
    }

    /// Makes a slot of this queue the newest.
    pub(super) fn renew(&mut self, links: &mut Links, slot: u32) {
        debug_assert_eq!(links.tag(slot), self.tag, "slot {slot}");
        if self.newest != slot + 1 {
            self.detach(links, slot);
            self.attach(links, slot);
        }
    }

    /// Puts `new`, which is in no queue, where `old` of this queue was.
    pub(super) fn replace(&mut self, links: &mut Links, old: (u32, u64), new: (u32, u64)) {
        debug_assert_eq!(links.tag(old.0), self.tag, "slot {}", old.0);
        debug_assert_eq!(links.tag(new.0), Tag::Out, "slot {}", new.0);
        let link = links.0.get(old.0);
        self.join(links, link.newer(), new.0 + 1);
        self.join(links, new.0 + 1, link.older());
        links.0.set(new.0, link);
        links.clear(old.0);
        self.weight = self.weight - old.1 + new.1;
    }

    #[inline]
    fn attach(&mut self, links: &mut Links, slot: u32) {
        let (newest, name, tag) = (self.newest, slot + 1, self.tag);
        links.0.set(slot, Link::new(tag, 0, newest));
        if newest == 0 {
            self.oldest = name;
        } else {
            links.edit(newest, |link| Link::new(tag, name, link.older()));
        }
        self.newest = name;
    }

    #[inline]
    fn detach(&mut self, links: &mut Links, slot: u32) {
        let link = links.0.get(slot);
        self.join(links, link.newer(), link.older());
    }

    /// Makes two slots neighbours; nobody on one side makes the other an end of the queue.
    #[inline]
    fn join(&mut self, links: &mut Links, newer: Name, older: Name) {
        let tag = self.tag;
        links.edit(newer, |link| Link::new(tag, link.newer(), older));
        links.edit(older, |link| Link::new(tag, newer, link.older()));
        if newer == 0 {
            self.newest = older;
        }
        if older == 0 {
            self.oldest = newer;
        }
    }

    /// Walks the queue both ways and recounts it; returns its slots, the newest first.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn validate(&self, links: &Links, entries: &impl Entries) -> Vec<u32> {
        let mut slots = Vec::new();
        let (mut newer, mut name) = (0, self.newest);
        let mut weight = 0;
        while let Some(slot) = name.checked_sub(1) {
            let link = links.0.get(slot);
            assert_eq!(link.tag(), self.tag, "slot {slot}");
            assert_eq!(link.newer(), newer, "slot {slot}");
            slots.push(slot);
            assert!(slots.len() <= self.length as usize, "the queue goes round");
            weight += entries.weight(slot);
            (newer, name) = (name, link.older());
        }
        assert_eq!(self.oldest, newer);
        assert_eq!(self.length as usize, slots.len());
        assert_eq!(self.weight, weight);
        slots
    }
}
