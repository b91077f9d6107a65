//! Which live entry has to go when the cache is full: the seam that eviction policies fill.
//!
//! So far one policy stands behind it, the classic CLOCK (Corbató, 1968) over slot ids: readers
//! raise an entry's 2-bit mark, the hand lowers marks until it meets an entry with none.

use crate::limits::MARK_MAX;
use crate::reclaim::Guard;
use crate::slab::{self, Slab, SlotRef};
use crate::sync::{AtomicU8, Ordering};

/// The eviction order of one shard, under the shard lock.
#[derive(Debug, Default)]
pub(crate) struct Order {
    hand: u32,
}

impl Order {
    /// The next entry to go, other than `spare`. Looks at each linked slot at most
    /// `MARK_MAX + 2` times.
    pub(crate) fn victim<'g, K, V>(
        &mut self,
        slab: &Slab<K, V>,
        owner: &slab::Owner,
        spare: Option<u32>,
        guard: &'g Guard,
    ) -> Option<SlotRef<'g>> {
        let words = owner.linked_words();
        if words == 0 {
            return None;
        }
        // One step more than a full round for each mark, since the hand starts inside a word.
        for _ in 0..(words + 1) * (usize::from(MARK_MAX) + 1) {
            let word = (self.hand as usize / 64) % words;
            let mut bits = owner.linked_word(word) & (u64::MAX << (self.hand % 64));
            while bits != 0 {
                let id = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if spare == Some(id) {
                    continue;
                }
                let Some(slot) = owner.linked(id, guard) else {
                    continue;
                };
                match slab.mark(slot) {
                    Some(mark) if mark.load(Ordering::Relaxed) > 0 => {
                        // Relaxed: a mark is a hint; a reader's raise may be lost.
                        mark.fetch_sub(1, Ordering::Relaxed);
                    }
                    _ => {
                        self.hand = id + 1;
                        return Some(slot);
                    }
                }
            }
            self.hand = (word as u32 + 1) * 64;
        }
        None
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
