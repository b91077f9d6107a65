//! The index: from a key's hash to a slot id, read without a lock.
//!
//! Extendible hashing (Fagin, Nievergelt, Pippenger and Strong, 1979) over small tables, as in
//! Dash (Lu, Hao, Wang and Lo, 2020): a *directory* of 2^d pointers, chosen by the hash's top d
//! bits, to *segments* of 64-byte [buckets](bucket). Inside a segment, open addressing over its
//! buckets (triangular steps); a full bucket counts the entries that went past it, so a lookup
//! stops at the first bucket that nobody passed, and removal leaves no tombstones.
//!
//! Growth replaces one segment by a bigger one until that has 64 buckets, then splits it in two.
//! So an insert moves at most 672 slot ids (4 bytes each, from the hash array beside the slab,
//! without a look at any entry), plus the directory's pointers when those double. A segment is
//! never changed once it is out of the directory: readers that are still on it are saved by
//! looking again (P2), writers find again under the lock (P7).
//!
//! # Concurrency
//! [`Index`] is the readers' side; everything that changes it asks for the lock's [`Owner`].
//! A tagged pointer carries the size of what it points to, so that a lookup touches no header on
//! its way.

mod bucket;
mod resize;
mod segment;

use std::ptr;

use crate::limits::{DIRECTORY_SHIFT, SEGMENT_SHIFT};
use crate::reclaim::{Guard, Limbo};
use crate::slab::SlotRef;
use crate::sync::{AtomicPtr, Ordering};
use bucket::tag_of;
use segment::{Cell, Directory, OldDirectory, OldSegment, Segment, room};
/// Where a slot is linked; valid until the lock is released.
#[derive(Clone, Copy)]
pub(crate) struct Place<'g> {
    segment: Segment,
    bucket: usize,
    cell: usize,
    pub(crate) hash: u32,
    /// The slot whose id the cell holds.
    pub(crate) slot: SlotRef<'g>,
}

/// The answer of a look at one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Glance<T> {
    /// Accepted.
    Found(T),
    /// Nothing of this hash was accepted, here or anywhere.
    Absent,
    /// Nothing here, but some entries went past the bucket.
    Elsewhere,
}

/// The writers' side, under the shard lock.
#[derive(Debug)]
pub(crate) struct Owner {
    linked: usize,
    bytes: usize,
    /// Segments of each depth: when none has the directory's, that can halve.
    by_depth: [u32; DIRECTORY_SHIFT as usize + 1],
}

/// The readers' side of one shard's index.
pub(crate) struct Index {
    directory: AtomicPtr<Cell>,
}

impl Index {
    /// An index with room for `entries` before it grows.
    pub(crate) fn new(entries: usize) -> (Self, Owner) {
        let mut depth = 0;
        while depth < DIRECTORY_SHIFT && entries > (room(SEGMENT_SHIFT) as usize * 9 / 10) << depth
        {
            depth += 1;
        }
        let shift = if depth > 0 {
            SEGMENT_SHIFT
        } else {
            (0..SEGMENT_SHIFT)
                .find(|&s| room(s) as usize >= entries)
                .unwrap_or(SEGMENT_SHIFT)
        };
        let directory = Directory::new(depth, |_| Segment::new(shift, depth));
        let bytes =
            Directory::layout(depth).size() + (Segment::layout(shift).0.size() << depth as usize);
        let owner = Owner {
            linked: 0,
            bytes,
            by_depth: std::array::from_fn(|d| if d == depth as usize { 1 << depth } else { 0 }),
        };
        (
            Index {
                directory: AtomicPtr::new(directory.0),
            },
            owner,
        )
    }

    #[inline]
    fn directory(&self) -> Directory {
        // Acquire: pairs with the Release in `publish_directory`.
        Directory(self.directory.load(Ordering::Acquire))
    }

    /// # Safety
    /// As for [`Segment::bucket`], for the directory: the caller is pinned or holds the lock.
    #[inline]
    unsafe fn segment(&self, hash: u32) -> Segment {
        let directory = self.directory();
        // SAFETY: `position` is below the length; loaded under the caller's pin or lock.
        let cell = unsafe { directory.cell(directory.position(hash)) };
        // Acquire: pairs with the Release in `publish`.
        Segment(cell.load(Ordering::Acquire))
    }

    /// Asks for the line where a lookup of this hash begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32, _guard: &Guard) {
        // SAFETY: `_guard` is pinned; the address is only prefetched.
        let segment = unsafe { self.segment(hash) };
        crate::sync::prefetch(
            segment
                .buckets()
                .wrapping_add(hash as usize & segment.mask()),
        );
    }

    /// What `is` makes of the first of this hash's slots for which it makes anything, as far as that
    /// can be said from the bucket where lookups of the hash begin: enough for nearly all.
    #[inline]
    pub(crate) fn glance<'g, R>(
        &self,
        hash: u32,
        guard: &'g Guard,
        mut is: impl FnMut(SlotRef<'g>) -> Option<R>,
    ) -> Glance<R> {
        // SAFETY: `guard` is pinned, so what the directory names stays alive.
        let segment = unsafe { self.segment(hash) };
        // SAFETY: as above.
        let bucket = unsafe { segment.bucket(hash as usize) };
        let look = bucket.look();
        for cell in look.matching(tag_of(hash)) {
            // SAFETY: the id was in this cell of the shard's index while `guard` was pinned.
            let slot = unsafe { SlotRef::new(bucket.id(cell), guard) };
            if let Some(found) = is(slot) {
                return Glance::Found(found);
            }
        }
        if look.passed() {
            Glance::Elsewhere
        } else {
            Glance::Absent
        }
    }

    /// The first slot of this hash's cells that `is` accepts. Loads the directory anew each time.
    pub(crate) fn find<'g>(
        &self,
        hash: u32,
        guard: &'g Guard,
        mut is: impl FnMut(SlotRef<'g>) -> bool,
    ) -> Option<Place<'g>> {
        // SAFETY: `guard` is pinned, so what the directory names stays alive.
        let segment = unsafe { self.segment(hash) };
        let tag = tag_of(hash);
        let mut position = hash as usize & segment.mask();
        let mut step = 0;
        loop {
            // SAFETY: as above.
            let bucket = unsafe { segment.bucket(position) };
            let look = bucket.look();
            for cell in look.matching(tag) {
                // SAFETY: the id was in this cell of the shard's index while `guard` was pinned.
                let slot = unsafe { SlotRef::new(bucket.id(cell), guard) };
                if is(slot) {
                    return Some(Place {
                        segment,
                        bucket: position,
                        cell,
                        hash,
                        slot,
                    });
                }
            }
            step += 1;
            if !look.passed() || step > segment.mask() {
                return None;
            }
            position = (position + step) & segment.mask();
        }
    }

    /// Stores another slot of the same hash into the place's cell.
    pub(crate) fn replace(&self, _owner: &mut Owner, place: &Place<'_>, id: u32) {
        // SAFETY: the place was found under this hold of the lock.
        unsafe { place.segment.bucket(place.bucket) }.set_id(place.cell, id);
    }

    /// Links a slot. `hash_of` gives the hash of any linked slot, should the segment have to grow.
    pub(crate) fn link(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        hash: u32,
        id: u32,
        hash_of: impl Fn(u32) -> u32,
    ) {
        let segment = loop {
            // SAFETY: the caller holds the lock (it has the owner).
            let segment = unsafe { self.segment(hash) };
            // SAFETY: as above. Relaxed: only the lock's holder writes it.
            if unsafe { segment.tail() }.linked.load(Ordering::Relaxed) < segment.room() {
                break segment;
            }
            self.grow(owner, limbo, hash, segment, &hash_of);
        };
        // SAFETY: as above.
        unsafe { place_in(segment, hash, id) };
        owner.linked += 1;
    }

    /// Takes the place's slot out, and merges segments that have become sparse.
    pub(crate) fn unlink(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        place: Place<'_>,
        hash_of: impl Fn(u32) -> u32,
    ) {
        let segment = place.segment;
        // SAFETY: the place was found under this hold of the lock.
        unsafe { segment.bucket(place.bucket) }.vacate(place.cell);
        let mut position = place.hash as usize & segment.mask();
        let mut step = 0;
        while position != place.bucket {
            // SAFETY: as above.
            unsafe { segment.bucket(position) }.unpass();
            step += 1;
            position = (position + step) & segment.mask();
        }
        // SAFETY: as above. Relaxed: only the lock's holder writes it.
        let tail = unsafe { segment.tail() };
        let left = tail.linked.load(Ordering::Relaxed) - 1;
        tail.linked.store(left, Ordering::Relaxed);
        owner.linked -= 1;
        if left <= segment.room() / 6 {
            self.shrink(owner, limbo, place.hash, segment, &hash_of);
        }
    }
    /// The slots linked in the segment that holds `hash`, whose hashes are at least `hash`, and
    /// the first hash after the segment's range (`None` at the end). For walking through the whole
    /// index by ascending hash, one short hold of the lock after another.
    pub(crate) fn note<'g>(
        &self,
        _owner: &Owner,
        hash: u32,
        guard: &'g Guard,
        hash_of: impl Fn(u32) -> u32,
        slots: &mut Vec<SlotRef<'g>>,
    ) -> Option<u32> {
        // SAFETY: the caller holds the lock (it has the owner) and a pin.
        let segment = unsafe { self.segment(hash) };
        for id in ids(segment) {
            if hash_of(id) >= hash {
                // SAFETY: the id is in a cell of the index now, and `guard` is pinned.
                slots.push(unsafe { SlotRef::new(id, guard) });
            }
        }
        // SAFETY: as above.
        let depth = unsafe { segment.tail() }.depth.load(Ordering::Relaxed);
        let width = 1u64 << (32 - depth);
        u32::try_from((u64::from(hash) & !(width - 1)) + width).ok()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self, owner: &Owner) -> usize {
        owner.bytes
    }

    /// Frees everything. The index must not be used again.
    pub(crate) fn dismantle(&mut self) {
        let directory = self.directory();
        let mut last = None;
        for i in 0..1 << directory.depth() {
            let segment = load(directory, i);
            if last != Some(segment) {
                drop(OldSegment(segment));
                last = Some(segment);
            }
        }
        self.directory.store(ptr::null_mut(), Ordering::Relaxed);
        drop(OldDirectory(directory));
    }

    /// Recounts everything; returns the linked ids.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self, owner: &Owner, hash_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let directory = self.directory();
        let mut all = Vec::new();
        let mut by_depth = [0; DIRECTORY_SHIFT as usize + 1];
        let (mut last, mut bytes) = (None, Directory::layout(directory.depth()).size());
        for i in 0..1usize << directory.depth() {
            let segment = load(directory, i);
            if last == Some(segment) {
                continue;
            }
            last = Some(segment);
            // SAFETY: in the directory, and the caller holds the lock.
            let tail = unsafe { segment.tail() };
            let depth = tail.depth.load(Ordering::Relaxed);
            by_depth[depth as usize] += 1;
            bytes += Segment::layout(segment.shift()).0.size();
            let linked: Vec<u32> = ids(segment).collect();
            assert_eq!(linked.len(), tail.linked.load(Ordering::Relaxed) as usize);
            assert!(linked.len() <= segment.room() as usize);
            let mut passed = vec![0u32; segment.mask() + 1];
            for &id in &linked {
                let hash = hash_of(id);
                assert_eq!(
                    load(directory, directory.position(hash)).0,
                    segment.0,
                    "slot {id}"
                );
                let mut position = hash as usize & segment.mask();
                let mut step = 0;
                loop {
                    // SAFETY: as above.
                    let bucket = unsafe { segment.bucket(position) };
                    if bucket
                        .look()
                        .matching(tag_of(hash))
                        .any(|cell| bucket.id(cell) == id)
                    {
                        break;
                    }
                    passed[position] += 1;
                    step += 1;
                    position = (position + step) & segment.mask();
                }
            }
            for (i, &count) in passed.iter().enumerate() {
                // SAFETY: as above.
                let look = unsafe { segment.bucket(i) }.look();
                assert_eq!(look.passed_count(), count, "bucket {i}");
            }
            all.extend(linked);
        }
        assert_eq!(all.len(), owner.linked);
        assert_eq!(by_depth, owner.by_depth);
        assert_eq!(bytes, owner.bytes);
        all
    }
}

/// The segment in a directory cell, for the lock's holder.
fn load(directory: Directory, i: usize) -> Segment {
    // SAFETY: callers hold the lock (or are the last), and pass an index below the length.
    Segment(unsafe { directory.cell(i) }.load(Ordering::Relaxed))
}

/// The ids in a segment, for the lock's holder.
fn ids(segment: Segment) -> impl Iterator<Item = u32> {
    (0..=segment.mask()).flat_map(move |i| {
        // SAFETY: callers hold the lock, and the segment is in the directory or was until just
        // now under this hold.
        let bucket = unsafe { segment.bucket(i) };
        bucket.look().occupied().map(|cell| bucket.id(cell))
    })
}
/// Puts an id into the first bucket on its way that has an empty cell.
///
/// # Safety
/// The segment has room and is alive; the caller holds the lock or owns it unpublished.
unsafe fn place_in(segment: Segment, hash: u32, id: u32) {
    let mut position = hash as usize & segment.mask();
    let mut step = 0;
    loop {
        // SAFETY: by the caller's contract.
        let bucket = unsafe { segment.bucket(position) };
        if let Some(cell) = bucket.look().empty().next() {
            bucket.occupy(cell, tag_of(hash), id);
            break;
        }
        bucket.pass();
        step += 1;
        debug_assert!(
            step <= segment.mask(),
            "a segment with room has an empty cell"
        );
        position = (position + step) & segment.mask();
    }
    // SAFETY: by the caller's contract. Relaxed: only the lock's holder writes it.
    let tail = unsafe { segment.tail() };
    tail.linked
        .store(tail.linked.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
