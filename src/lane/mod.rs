//! The lane: one coarse deadline per slot, swept by a cursor.
//!
//! `lane[slot]` is `floor(deadline / 67 ms)` for a linked entry with a finite deadline and
//! [`NONE`] otherwise. The lane is a hint, the word decides: a value that is too low costs a look,
//! one that is too high would be a leak, so
//!
//! > **Invariant**: lane <= floor(word / unit) for every linked finite entry, and every minimum <=
//! > each lane value below it.
//!
//! One minimum per 64 slots, one per 1,024 and one for the shard let a sweep skip what is not due.
//! Everything here is touched only under the shard lock: a minimum is raised from one whole scan
//! in one hold. (The shard's own minimum is published to the scheduler by the shard.)
//!
//! Cost: writing a lane is one store and up to three compares; raising the minima after a block
//! was swept reads 64 values, 16 block minima and one chunk minimum per 1,024 slots.

use crate::limits::{LANE_BLOCK, LANE_SHIFT, SIDE_CHUNK, TOLERANCE_BLOCKS};
use crate::slab::side::Side;

/// The lane of a slot that cannot expire.
pub(crate) const NONE: u32 = u32::MAX;

/// The last lane of finite deadlines; later ones are looked at early, harmlessly.
const LAST: u32 = u32::MAX - 1;

const BLOCKS_PER_CHUNK: usize = SIDE_CHUNK / LANE_BLOCK;

/// The lane unit that holds the moment `nanos`; saturates, never wraps.
#[inline]
pub(crate) fn unit_of(nanos: u64) -> u32 {
    u32::try_from(nanos >> LANE_SHIFT).map_or(LAST, |unit| unit.min(LAST))
}

/// The first nanosecond of a lane unit.
#[inline]
pub(crate) fn begin_of(unit: u32) -> u64 {
    u64::from(unit) << LANE_SHIFT
}

/// The lane of one shard.
#[derive(Debug)]
pub(crate) struct Lane {
    lanes: Side<u32>,
    block_min: Side<u32>,
    chunk_min: Vec<u32>,
    min: u32,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Lane {
            lanes: Side::new(NONE),
            block_min: Side::new(NONE),
            chunk_min: Vec::new(),
            min: NONE,
        }
    }

    /// No entry of the shard is due before this unit.
    #[inline]
    pub(crate) fn min(&self) -> u32 {
        self.min
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> u32 {
        self.lanes.get(slot)
    }

    /// Files `slot` under `lane` and lowers the minima above it.
    #[inline]
    pub(crate) fn file(&mut self, slot: u32, lane: u32) {
        self.lanes.set(slot, lane);
        if lane == NONE {
            return;
        }
        let block = slot / LANE_BLOCK as u32;
        if lane < self.block_min.get(block) {
            self.lower(block, slot, lane);
        }
    }

    /// Lowers a block's minimum. (Those above it are no higher.)
    #[cold]
    fn lower(&mut self, block: u32, slot: u32, lane: u32) {
        self.block_min.set(block, lane);
        let chunk = slot as usize / SIDE_CHUNK;
        if chunk >= self.chunk_min.len() {
            self.chunk_min.resize(chunk + 1, NONE);
        }
        self.chunk_min[chunk] = self.chunk_min[chunk].min(lane);
        self.min = self.min.min(lane);
    }

    /// Takes `slot` out. The minima above it may stay too low until a sweep raises them.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        self.lanes.set(slot, NONE);
    }

    /// Number of blocks that a sweep can come by.
    pub(crate) fn blocks(&self) -> usize {
        self.chunk_min.len() * BLOCKS_PER_CHUNK
    }

    /// The first block from `from` on (no wrap-around) whose minimum is at most `horizon`.
    pub(crate) fn next_due_block(&self, from: usize, horizon: u32) -> Option<usize> {
        let mut block = from;
        while block < self.blocks() {
            let chunk = block / BLOCKS_PER_CHUNK;
            if self.chunk_min[chunk] > horizon {
                block = (chunk + 1) * BLOCKS_PER_CHUNK;
                continue;
            }
            let end = (chunk + 1) * BLOCKS_PER_CHUNK;
            if let Some(due) = (block..end).find(|&b| self.block_min.get(b as u32) <= horizon) {
                return Some(due);
            }
            block = end;
        }
        None
    }

    /// The slots of `block` whose lane is at most `horizon`, as bits.
    #[inline]
    pub(crate) fn due_in_block(&self, block: usize, horizon: u32) -> u64 {
        let mut due = 0;
        for (i, &lane) in self.block(block).iter().enumerate() {
            due |= u64::from(lane <= horizon) << i;
        }
        due
    }

    /// Whether more than `many` lanes are at most `horizon`, judged by a bounded number of blocks at
    /// even distances (others each time the horizon moves); adds the slots looked at to `scanned`.
    pub(crate) fn has_more_due(&self, many: f64, horizon: u32, scanned: &mut u64) -> bool {
        self.about_due(horizon, scanned) as f64 > many
    }

    /// About how many lanes are at most `horizon`, judged in the same way.
    pub(crate) fn about_due(&self, horizon: u32, scanned: &mut u64) -> usize {
        let distance = self.blocks().div_ceil(TOLERANCE_BLOCKS).max(1);
        let first = horizon as usize % distance;
        let mut due = 0;
        for block in (first..self.blocks()).step_by(distance) {
            if self.block_min.get(block as u32) <= horizon {
                due += self.due_in_block(block, horizon).count_ones() as usize;
                *scanned += LANE_BLOCK as u64;
            }
        }
        due * distance
    }

    /// Raises the minima of `block` and its chunk to what one scan finds. Call
    /// [`raise_min`](Self::raise_min) before the hold ends.
    pub(crate) fn raise_block(&mut self, block: usize) {
        let min = self.block(block).iter().copied().min().unwrap_or(NONE);
        self.block_min.set(block as u32, min);
        let chunk = block / BLOCKS_PER_CHUNK;
        let first = chunk * BLOCKS_PER_CHUNK;
        self.chunk_min[chunk] = (first..first + BLOCKS_PER_CHUNK)
            .map(|block| self.block_min.get(block as u32))
            .min()
            .unwrap_or(NONE);
    }

    /// Raises the shard's minimum to what one scan of the chunk minima finds.
    pub(crate) fn raise_min(&mut self) {
        self.min = self.chunk_min.iter().copied().min().unwrap_or(NONE);
    }

    fn block(&self, block: usize) -> &[u32] {
        let chunk = block / BLOCKS_PER_CHUNK;
        if chunk >= self.lanes.chunks() {
            return &[];
        }
        let lanes = self.lanes.chunk(chunk);
        let begin = (block % BLOCKS_PER_CHUNK * LANE_BLOCK).min(lanes.len());
        &lanes[begin..(begin + LANE_BLOCK).min(lanes.len())]
    }

    /// Chunks of lanes.
    pub(crate) fn chunks(&self) -> usize {
        self.lanes.chunks()
    }

    /// Gives back the memory of chunks in which nothing is filed, from chunk `unused` on.
    pub(crate) fn shrink(&mut self, unused: usize) {
        for chunk in (unused..self.lanes.chunks()).rev() {
            // (Giving one back may have taken empty ones below it along.)
            if chunk < self.lanes.chunks()
                && self.lanes.chunk(chunk).iter().all(|&lane| lane == NONE)
            {
                self.lanes.release_chunk(chunk);
                for block in 0..BLOCKS_PER_CHUNK {
                    self.block_min
                        .set((chunk * BLOCKS_PER_CHUNK + block) as u32, NONE);
                }
                self.chunk_min[chunk] = NONE;
            }
        }
        while self.chunk_min.len() > self.lanes.chunks() {
            self.chunk_min.pop();
        }
        self.raise_min();
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.lanes.bytes() + self.block_min.bytes() + self.chunk_min.capacity() * 4
    }

    /// Recounts: every minimum is at most each lane below it.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self) {
        for chunk in 0..self.lanes.chunks() {
            for (i, &lane) in self.lanes.chunk(chunk).iter().enumerate() {
                let slot = chunk * SIDE_CHUNK + i;
                if lane == NONE {
                    continue;
                }
                assert!(
                    self.block_min.get((slot / LANE_BLOCK) as u32) <= lane,
                    "block of {slot}"
                );
                assert!(self.chunk_min[chunk] <= lane, "chunk of {slot}");
                assert!(self.min <= lane, "shard minimum above slot {slot}");
            }
        }
    }
}
