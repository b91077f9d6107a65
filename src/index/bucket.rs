//! One cache line of the index: twelve cells and how many keys passed by.
//!
//! ```text
//! bytes  0..12   tags, one a cell: 0 empty, else eight bits of the hash
//! bytes 12..16   how many linked entries passed this full bucket on their way
//! bytes 16..64   slot ids, one a cell
//! ```
//!
//! Only the shard lock's holder writes. Tags and the passed count are written as whole words with
//! Release, after the id; a freed cell is cleared tag first (P6), and its id stays behind.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Cells of a bucket.
pub(super) const CELLS: usize = 12;

const ONE_PASSED: u64 = 1 << 32;

/// The tag of a hash: bits that choose neither the shard nor the bucket, never 0.
#[inline]
pub(super) fn tag_of(hash: u32) -> u8 {
    ((hash >> 6) as u8).max(1)
}

#[repr(C, align(64))]
pub(super) struct Bucket {
    words: [AtomicU64; 2],
    ids: [AtomicU32; CELLS],
}

#[cfg(not(ebbtide_loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// One consistent-enough look at a bucket's words.
#[derive(Clone, Copy)]
pub(super) struct Look {
    first: u64,
    second: u64,
}

impl Bucket {
    pub(super) fn new() -> Self {
        Bucket {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            ids: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    #[inline]
    pub(super) fn look(&self) -> Look {
        // Acquire: pairs with the Release in `store`; a tag that is seen comes with its id.
        Look {
            first: self.words[0].load(Ordering::Acquire),
            second: self.words[1].load(Ordering::Acquire),
        }
    }

    #[inline]
    pub(super) fn id(&self, cell: usize) -> u32 {
        debug_assert!(cell < CELLS);
        // SAFETY: cells come from a `Cells`, whose bits are below `CELLS`, or from a `Place` made
        // of one.
        let id = unsafe { self.ids.get_unchecked(cell) };
        // Acquire: pairs with the Release in `set_id`; the id comes with its entry.
        id.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_id(&self, cell: usize, id: u32) {
        // Release: pairs with the Acquire in `id`.
        self.ids[cell].store(id, Ordering::Release);
    }

    /// Publishes an entry in an empty cell.
    #[inline]
    pub(super) fn occupy(&self, cell: usize, tag: u8, id: u32) {
        self.set_id(cell, id);
        self.set_tag(cell, tag);
    }

    /// Empties a cell.
    #[inline]
    pub(super) fn vacate(&self, cell: usize) {
        self.set_tag(cell, 0);
    }

    #[inline]
    pub(super) fn pass(&self) {
        self.store(1, self.own(1) + ONE_PASSED);
    }

    #[inline]
    pub(super) fn unpass(&self) {
        self.store(1, self.own(1) - ONE_PASSED);
    }

    #[inline]
    fn set_tag(&self, cell: usize, tag: u8) {
        let (word, shift) = (cell / 8, cell % 8 * 8);
        self.store(
            word,
            self.own(word) & !(0xff << shift) | u64::from(tag) << shift,
        );
    }

    #[inline]
    fn own(&self, word: usize) -> u64 {
        // Relaxed: only the lock's holder writes, and that is the caller.
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, word: usize, value: u64) {
        // Release: pairs with the Acquire in `look`.
        self.words[word].store(value, Ordering::Release);
    }
}

/// A set of cells, one bit each.
#[derive(Clone, Copy)]
pub(super) struct Cells(u32);

impl Iterator for Cells {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let cell = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(cell)
    }
}

/// All cells of a bucket.
const ALL: u32 = (1 << CELLS) - 1;

impl Look {
    /// The cells with this tag. The words were loaded atomically; the comparison is of registers.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn matching(self, tag: u8) -> Cells {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        // SAFETY: SSE2 is part of every x86_64 target.
        let mask = unsafe {
            let tags = _mm_set_epi64x(self.second as i64, self.first as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag as i8)))
        };
        Cells(mask as u32 & ALL)
    }

    /// The cells with this tag.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub(super) fn matching(self, tag: u8) -> Cells {
        self.matching_by_words(tag)
    }

    /// The cells with this tag, by arithmetic on whole words.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn matching_by_words(self, tag: u8) -> Cells {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        /// Brings the bits at 0, 8, … 56 together.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let zero_bytes = |word: u64| {
            let marks = !(((word & !HIGH) + !HIGH) | word | !HIGH);
            ((marks >> 7).wrapping_mul(GATHER) >> 56) as u32
        };
        let pattern = u64::from(tag) * LOW;
        Cells((zero_bytes(self.first ^ pattern) | zero_bytes(self.second ^ pattern) << 8) & ALL)
    }

    /// The empty cells.
    #[inline]
    pub(super) fn empty(self) -> Cells {
        self.matching(0)
    }

    /// The cells in use.
    #[inline]
    pub(super) fn occupied(self) -> Cells {
        Cells(self.empty().0 ^ ALL)
    }

    /// Whether some linked entry passed this bucket.
    #[inline]
    pub(super) fn passed(self) -> bool {
        self.second >> 32 != 0
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn passed_count(self) -> u32 {
        (self.second >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_matching_is_exact() {
        for pattern in [
            0u64,
            1,
            0x0100,
            0x0180_7f01_0001_80ff,
            u64::MAX,
            0x8000_0080_0100_0001,
        ] {
            for tag in [0u8, 1, 0x7f, 0x80, 0xff] {
                let look = Look {
                    first: pattern,
                    second: pattern.rotate_left(8),
                };
                let bytes: Vec<u8> = look
                    .first
                    .to_le_bytes()
                    .into_iter()
                    .chain(look.second.to_le_bytes().into_iter().take(4))
                    .collect();
                let expected: Vec<usize> = (0..CELLS).filter(|&i| bytes[i] == tag).collect();
                assert_eq!(look.matching(tag).collect::<Vec<_>>(), expected);
                assert_eq!(look.matching_by_words(tag).collect::<Vec<_>>(), expected);
                let used: Vec<usize> = (0..CELLS).filter(|&i| bytes[i] != 0).collect();
                assert_eq!(look.occupied().collect::<Vec<_>>(), used);
                let empty: Vec<usize> = (0..CELLS).filter(|&i| bytes[i] == 0).collect();
                assert_eq!(look.empty().collect::<Vec<_>>(), empty);
            }
        }
    }

    #[test]
    fn cells_keep_their_tags_and_ids_apart() {
        let bucket = Bucket::new();
        for cell in 0..CELLS {
            bucket.occupy(cell, cell as u8 + 1, cell as u32 + 100);
        }
        bucket.pass();
        bucket.vacate(9);
        let look = bucket.look();
        assert!(look.passed());
        assert_eq!(look.empty().collect::<Vec<_>>(), [9]);
        for cell in (0..CELLS).filter(|&cell| cell != 9) {
            assert_eq!(look.matching(cell as u8 + 1).collect::<Vec<_>>(), [cell]);
            assert_eq!(bucket.id(cell), cell as u32 + 100);
        }
        bucket.unpass();
        assert!(!bucket.look().passed());
    }
}
