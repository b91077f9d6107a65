//! One queue with a hand at its old end: CLOCK, and first in, first out.

use super::eviction::Entries;
use super::queue::{Links, Queue, Tag};
use crate::limits::CLOCK_LOOKS;

/// What the hand does with an entry that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// Lowers its mark and passes on (CLOCK: Corbató, 1968).
    Spares,
    /// Takes it all the same (first in, first out).
    Takes,
}

/// A queue that gives up its entries from the old end.
#[derive(Debug)]
pub(super) struct Ring {
    queue: Queue,
    hand: Hand,
}

impl Ring {
    pub(super) fn new(tag: Tag, hand: Hand) -> Self {
        Ring {
            queue: Queue::new(tag),
            hand,
        }
    }

    pub(super) fn length(&self) -> u32 {
        self.queue.length()
    }

    pub(super) fn link(&mut self, links: &mut Links, slot: u32, weight: u64) {
        self.queue.push(links, slot, weight);
    }

    pub(super) fn replace(&mut self, links: &mut Links, old: (u32, u64), new: (u32, u64)) {
        self.queue.replace(links, old, new);
    }

    pub(super) fn unlink(&mut self, links: &mut Links, slot: u32, weight: u64) {
        self.queue.remove(links, slot, weight);
    }

    pub(super) fn victim(
        &mut self,
        links: &mut Links,
        spare: Option<u32>,
        entries: &impl Entries,
    ) -> Option<u32> {
        match self.hand {
            Hand::Spares => turn(&mut self.queue, links, spare, entries, |_| {}),
            Hand::Takes => self.queue.oldest_but(links, spare),
        }
    }

    /// Where the hand is, and what it comes to next.
    #[inline]
    pub(super) fn upcoming(&self, links: &Links) -> [Option<u32>; 2] {
        self.queue.two_oldest(links)
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn validate(&self, links: &Links, entries: &impl Entries) -> Vec<u32> {
        self.queue.validate(links, entries)
    }
}

/// Turns the hand to the first entry that was not used, or past [`CLOCK_LOOKS`] entries and then
/// takes the least used of them; never `spare`. Whom it passes it tells to `spared`, lowers its mark,
/// and makes it the newest. The entry it stops at stays where it is.
pub(super) fn turn(
    queue: &mut Queue,
    links: &mut Links,
    spare: Option<u32>,
    entries: &impl Entries,
    mut spared: impl FnMut(u32),
) -> Option<u32> {
    let mut least: Option<(u8, u32)> = None;
    for _ in 0..CLOCK_LOOKS {
        let slot = queue.oldest()?;
        if spare == Some(slot) {
            if queue.length() == 1 {
                return None;
            }
            queue.renew(links, slot);
            continue;
        }
        let mark = entries.mark(slot);
        if mark == 0 {
            return Some(slot);
        }
        entries.set_mark(slot, mark - 1);
        spared(slot);
        queue.renew(links, slot);
        if least.is_none_or(|(lowest, _)| mark < lowest) {
            least = Some((mark, slot));
        }
    }
    least.map(|(_, slot)| slot)
}
