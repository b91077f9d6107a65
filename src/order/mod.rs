//! Which live entry has to go when the cache is full: the seam that eviction policies fill.
//!
//! So far one policy stands behind it, the classic CLOCK (Corbató, 1968) over slot ids: readers
//! raise an entry's 2-bit mark, the hand lowers marks until it meets an entry with none.

use crate::limits::{CLOCK_LOOKS, MARK_MAX};
use crate::reclaim::Guard;
use crate::slab::{self, Slab, SlotRef};
use crate::sync::{AtomicU8, Ordering};

/// The eviction order of one shard, under the shard lock.
#[derive(Debug, Default)]
pub(crate) struct Order {
    hand: u32,
}

impl Order {
    /// The next entry to go, other than `spare`: the first from the hand on that nobody marked, or
    /// the least marked of the first [`CLOCK_LOOKS`]. Lowers the marks that it passes.
    pub(crate) fn victim<'g, K, V>(
        &mut self,
        slab: &Slab<K, V>,
        owner: &slab::Owner,
        spare: Option<u32>,
        guard: &'g Guard,
    ) -> Option<SlotRef<'g>> {
        let words = owner.linked_words();
        let mut least: Option<(u8, SlotRef<'g>)> = None;
        let mut looks = 0;
        // One step more than a round, since the hand starts inside a word.
        for _ in 0..=words {
            let word = (self.hand as usize / 64) % words.max(1);
            let mut bits = owner.linked_word(word) & (u64::MAX << (self.hand % 64));
            while bits != 0 {
                let id = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let Some(slot) = owner.linked(id, guard).filter(|_| spare != Some(id)) else {
                    continue;
                };
                // Relaxed, here and below: a mark is a hint; a reader's raise may be lost.
                let mark = slab.mark(slot).map_or(0, |mark| {
                    let seen = mark.load(Ordering::Relaxed);
                    mark.store(seen.saturating_sub(1), Ordering::Relaxed);
                    seen
                });
                if least.is_none_or(|(lowest, _)| mark < lowest) {
                    least = Some((mark, slot));
                }
                looks += 1;
                if mark == 0 || looks == CLOCK_LOOKS {
                    self.hand = id + 1;
                    return least.map(|(_, slot)| slot);
                }
            }
            self.hand = (word as u32 + 1) * 64;
        }
        least.map(|(_, slot)| slot)
    }
}

/// Notes a use of an entry; stops writing once the entry is hot.
#[inline]
pub(crate) fn touch_mark(mark: &AtomicU8) {
    // Relaxed: a hint. Two readers may raise it by one together.
    let seen = mark.load(Ordering::Relaxed);
    if seen < MARK_MAX {
        mark.store(seen + 1, Ordering::Relaxed);
    }
}
