//! The memory of the index: segments of buckets, and the directory that points to them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use super::bucket::{Bucket, CELLS};
use crate::limits::SEGMENT_SHIFT;
use crate::pages;
use crate::sync::{AtomicPtr, AtomicU32};

/// The low bits of a segment's or a directory's address that carry its size.
const TAG: usize = 127;

/// In a segment's tag: it has more buckets than an ordinary one, and the other bits are the
/// logarithm of their number. Otherwise they are that number minus one.
const LONG: usize = 64;

/// Most linked entries of a segment with so many buckets: seven eighths of its cells.
#[inline]
pub(super) const fn room_of(buckets: u32) -> u32 {
    CELLS as u32 * buckets * 7 / 8
}

/// The same with 2^`shift` buckets.
#[inline]
pub(super) const fn room(shift: u32) -> u32 {
    room_of(1 << shift)
}

/// The writers' part of a segment, behind its buckets.
#[repr(C, align(64))]
pub(super) struct Tail {
    /// Linked entries in the segment.
    pub(super) linked: AtomicU32,
    /// How many top bits of the hash all its entries share.
    pub(super) depth: AtomicU32,
}

/// A segment: its buckets' address with their number in the low bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment(pub(super) *mut Bucket);

impl Segment {
    pub(super) fn layout(shift: u32) -> (Layout, usize) {
        let buckets = Layout::array::<Bucket>(1 << shift).expect("a segment fits in memory");
        let (layout, tail) = buckets
            .extend(Layout::new::<Tail>())
            .expect("a segment fits");
        let layout = layout.align_to(TAG + 1).expect("a segment fits");
        (layout, tail)
    }

    pub(super) fn new(shift: u32, depth: u32) -> Self {
        let (layout, tail) = Self::layout(shift);
        // SAFETY: the layout has at least one bucket.
        let memory = unsafe { pages::alloc(layout) }.as_ptr();
        let buckets: *mut Bucket = memory.cast();
        for i in 0..1 << shift {
            // SAFETY: within the layout, and ours alone.
            unsafe { buckets.add(i).write(Bucket::new()) };
        }
        // SAFETY: within the layout, and ours alone.
        unsafe {
            memory.add(tail).cast::<Tail>().write(Tail {
                linked: AtomicU32::new(0),
                depth: AtomicU32::new(depth),
            });
        }
        let tag = if shift <= SEGMENT_SHIFT {
            (1 << shift) - 1
        } else {
            LONG | shift as usize
        };
        Segment(buckets.map_addr(|address| address | tag))
    }

    #[inline]
    pub(super) fn shift(self) -> u32 {
        self.mask().count_ones()
    }

    /// The number of buckets minus one.
    #[inline]
    pub(super) fn mask(self) -> usize {
        let tag = self.0.addr() & TAG;
        if tag < LONG {
            tag
        } else {
            Self::long_mask(tag)
        }
    }

    #[cold]
    pub(super) fn long_mask(tag: usize) -> usize {
        (1 << (tag & !LONG)) - 1
    }

    #[inline]
    pub(super) fn buckets(self) -> *mut Bucket {
        self.0.map_addr(|address| address & !TAG)
    }

    /// Bucket `i`, modulo their number.
    ///
    /// # Safety
    /// The segment must outlive 'a: it was in the directory during a pin, or under a hold of the
    /// lock, that is not over.
    #[inline]
    pub(super) unsafe fn bucket<'a>(self, i: usize) -> &'a Bucket {
        // SAFETY: masked to the buckets that `new` wrote; alive by the caller's contract.
        unsafe { &*self.buckets().add(i & self.mask()) }
    }

    /// Most linked entries.
    #[inline]
    pub(super) fn room(self) -> u32 {
        room_of(self.mask() as u32 + 1)
    }

    /// # Safety
    /// As for [`bucket`](Self::bucket).
    #[inline]
    pub(super) unsafe fn tail<'a>(self) -> &'a Tail {
        // SAFETY: `new` wrote the tail behind the buckets, whose size is a multiple of its alignment;
        // alive by the caller's contract.
        unsafe { &*self.buckets().add(self.mask() + 1).cast::<Tail>() }
    }
}

/// A segment out of the directory, to be freed after its grace period.
pub(super) struct OldSegment(pub(super) Segment);

// SAFETY: it is out of the directory, and dropped only after its grace period (or when no reader
// can exist), so whoever drops it is its only user.
unsafe impl Send for OldSegment {}

impl Drop for OldSegment {
    fn drop(&mut self) {
        let (layout, _) = Segment::layout(self.0.shift());
        // SAFETY: allocated with this layout by `Segment::new`; nobody else uses it (see `Send`).
        unsafe { pages::dealloc(self.0.buckets().cast(), layout) }
    }
}

/// An array of 2^d segment pointers: its address with 32 − d in the low bits, by which a hash is
/// shifted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Directory(pub(super) *mut Cell);

/// A directory cell; aligned so that the array's address has room for its length.
pub(super) type Cell = AtomicPtr<Bucket>;

impl Directory {
    pub(super) fn layout(depth: u32) -> Layout {
        Layout::array::<Cell>(1 << depth)
            .and_then(|layout| layout.align_to(TAG + 1))
            .expect("a directory fits in memory")
            // So that the tagged address lies inside: leak checkers look for such.
            .pad_to_align()
    }

    pub(super) fn new(depth: u32, mut segment: impl FnMut(usize) -> Segment) -> Self {
        let layout = Self::layout(depth);
        // SAFETY: the layout has at least one cell.
        let cells: *mut Cell = unsafe { alloc(layout) }.cast();
        if cells.is_null() {
            handle_alloc_error(layout);
        }
        for i in 0..1 << depth {
            // SAFETY: within the layout, and ours alone.
            unsafe { cells.add(i).write(AtomicPtr::new(segment(i).0)) };
        }
        Directory(cells.map_addr(|address| address | (32 - depth) as usize))
    }

    #[inline]
    pub(super) fn depth(self) -> u32 {
        32 - (self.0.addr() & TAG) as u32
    }

    #[inline]
    pub(super) fn position(self, hash: u32) -> usize {
        // In 64 bits, so that depth 0 shifts everything out.
        (u64::from(hash) >> (self.0.addr() & TAG)) as usize
    }

    /// # Safety
    /// The directory must outlive 'a (as for a segment's bucket), and `i` be below its length.
    #[inline]
    pub(super) unsafe fn cell<'a>(self, i: usize) -> &'a Cell {
        // SAFETY: within the array that `new` wrote; alive by the caller's contract.
        unsafe { &*self.0.map_addr(|address| address & !TAG).add(i) }
    }
}

/// A directory that has been replaced.
pub(super) struct OldDirectory(pub(super) Directory);

// SAFETY: as for `OldSegment`.
unsafe impl Send for OldDirectory {}

impl Drop for OldDirectory {
    fn drop(&mut self) {
        let cells = self.0.0.map_addr(|address| address & !TAG);
        // SAFETY: allocated with this layout by `Directory::new`; nobody else uses it.
        unsafe { dealloc(cells.cast(), Directory::layout(self.0.depth())) }
    }
}
