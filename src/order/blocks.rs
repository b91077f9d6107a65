//! Tables of small blocks that grow and shrink by one block at a time: linear hashing (Litwin,
//! 1980), so that no step costs more than copying one block or one chunk of the table.

use std::ops::RangeInclusive;

use crate::pages::Buffer;

/// Blocks of a full-grown chunk: 8 KiB of them.
const CHUNK: usize = 128;

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Block<T>(pub(super) T);

/// A growing table of blocks in chunks that do not move once they are full-grown.
#[derive(Debug)]
pub(super) struct Blocks<T: Copy> {
    chunks: Vec<Buffer<Block<T>>>,
    length: usize,
    /// The bits of a hash that number the blocks: the next power of two of `length`, less one.
    bits: usize,
    empty: T,
}

impl<T: Copy> Blocks<T> {
    /// A table of one block.
    pub(super) fn new(empty: T) -> Self {
        let mut blocks = Blocks {
            chunks: Vec::new(),
            length: 0,
            bits: 0,
            empty,
        };
        blocks.push(empty);
        blocks
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The number of the block that a key belongs to.
    #[inline]
    pub(super) fn number(&self, key: Mixed) -> usize {
        let number = key.0 as usize & self.bits;
        if number < self.length {
            number
        } else {
            number & (self.bits >> 1)
        }
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> &T {
        &self.chunks[number / CHUNK][number % CHUNK].0
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: usize) -> &mut T {
        &mut self.chunks[number / CHUNK][number % CHUNK].0
    }

    /// One block more. It and the block that its keys were in so far both begin with what that
    /// block held: which of its keys go where cannot be told.
    pub(super) fn split(&mut self) {
        let copy = *self.get(Self::origin(self.length));
        self.push(copy);
    }

    /// One block less, unless it is the only one: what the last one held is merged into the one
    /// that its keys belong to from now on.
    pub(super) fn merge(&mut self, merge: impl FnOnce(&mut T, &T)) {
        let Some(last) = self.length.checked_sub(1).filter(|&last| last > 0) else {
            return;
        };
        let gone = *self.get(last);
        merge(self.get_mut(Self::origin(last)), &gone);
        *self.get_mut(last) = self.empty;
        self.set_length(last);
        let used = self.length.div_ceil(CHUNK);
        // One empty chunk stays, so that a table about the edge of one does not come and go.
        self.chunks.truncate(used + 1);
    }

    /// Where the keys of block `number` are while there is no such block.
    fn origin(number: usize) -> usize {
        number & !(1 << number.ilog2())
    }

    fn push(&mut self, block: T) {
        let (chunk, offset) = (self.length / CHUNK, self.length % CHUNK);
        if chunk == self.chunks.len() {
            self.chunks.push(Buffer::new());
        }
        if offset >= self.chunks[chunk].len() {
            // In steps of two, so that a small cache stays small.
            let length = (offset + 1).next_power_of_two().min(CHUNK);
            self.chunks[chunk].grow(length, Block(self.empty));
        }
        self.set_length(self.length + 1);
        *self.get_mut(self.length - 1) = block;
    }

    fn set_length(&mut self, length: usize) {
        self.length = length;
        self.bits = length.next_power_of_two() - 1;
    }

    /// Asks for a block's line.
    #[inline]
    pub(super) fn prefetch(&self, number: usize) {
        crate::sync::prefetch(self.get(number));
    }

    /// Numbers of entries for which a table has its size: enough blocks for so many each, and not more
    /// than four times too many.
    pub(super) fn fits(&self, entries_per_block: usize) -> RangeInclusive<usize> {
        let fewest = self.length.div_ceil(4) - 1;
        let least = if fewest == 0 {
            0
        } else {
            fewest * entries_per_block + 1
        };
        least..=self.length * entries_per_block
    }

    /// Comes up to two blocks nearer to the size for this many entries.
    pub(super) fn fit(
        &mut self,
        entries: usize,
        entries_per_block: usize,
        merge: impl Fn(&mut T, &T),
    ) {
        for _ in 0..2 {
            let fits = self.fits(entries_per_block);
            if entries > *fits.end() {
                self.split();
            } else if entries < *fits.start() {
                self.merge(&merge);
            }
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Buffer<Block<T>>>()
            + self
                .chunks
                .iter()
                .map(|chunk| chunk.len() * size_of::<Block<T>>())
                .sum::<usize>()
    }
}

/// A key as the tables know it: 64 bits from the 32 that a slot has of its hash, by the finalizer of
/// SplitMix64 (Steele, Lea and Flood, 2014). The low ones number a block of a table, others are the
/// ghost's fingerprint and the sketch's counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixed(pub(super) u64);

impl From<u32> for Mixed {
    #[inline]
    fn from(hash: u32) -> Self {
        let mut x = u64::from(hash) ^ 0x6863_7465_6b73;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Mixed(x ^ (x >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the size, every block has keys, and a key's block is found by undoing splits.
    #[test]
    fn keys_move_only_between_a_block_and_its_origin() {
        let mut blocks = Blocks::new(0_u32);
        let keys: Vec<Mixed> = (0..20_000).map(Mixed::from).collect();
        let mut before: Vec<usize> = keys.iter().map(|&key| blocks.number(key)).collect();
        for length in 2..400 {
            blocks.split();
            assert_eq!(blocks.length(), length);
            let mut used = vec![false; length];
            for (key, before) in keys.iter().zip(&mut before) {
                let number = blocks.number(*key);
                used[number] = true;
                if number != *before {
                    assert_eq!(number, length - 1);
                    assert_eq!(*before, Blocks::<u32>::origin(number));
                    *before = number;
                }
            }
            assert!(used.iter().all(|&used| used), "length {length}");
        }
    }

    #[test]
    fn splitting_copies_and_merging_gathers() {
        let mut blocks = Blocks::new(0_u32);
        *blocks.get_mut(0) = 5;
        for _ in 1..1_000 {
            blocks.split();
        }
        assert!((0..1_000).all(|i| *blocks.get(i) == 5));
        let full = blocks.bytes();
        assert!((64_000..80_000).contains(&full), "{full}");
        for _ in 0..2_000 {
            blocks.merge(|into, from| *into += from);
        }
        assert_eq!((blocks.length(), *blocks.get(0)), (1, 5_000));
        assert!(blocks.bytes() < full / 3, "{}", blocks.bytes());
        // What was merged away is not found again, whichever block is next.
        blocks.split();
        assert_eq!(*blocks.get(1), 5_000);
    }
}
