//! Where slab chunks, index segments and side arrays live: memory that goes back to the system.
//!
//! A general allocator keeps what it is given back (after a wave of a million entries glibc held 45
//! of 43 MB, jemalloc 52 and mimalloc 56, for as long as nobody called them), which would make
//! "its memory comes back" true on paper only. So pieces of 2 to 64 KiB are cut out of *extents*
//! of 2 MiB, which come from the global allocator and serve all caches of the process: first fit,
//! lowest extent first, in units of 256 bytes. [`trim`], which the reaper calls, returns the memory
//! behind pages that nobody uses (`madvise`), and extents that nobody uses, a run at a time and
//! without the lock.
//!
//! Smaller and larger pieces, platforms other than Unix, and builds with `--cfg
//! ebbtide_system_alloc` (for tools that watch single allocations) go straight to the global
//! allocator.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[cfg(all(
    unix,
    not(any(ebbtide_loom, ebbtide_shuttle, ebbtide_system_alloc, miri))
))]
mod pool {
    use std::alloc::Layout;
    use std::collections::BTreeMap;
    use std::ops::Bound;
    use std::ptr::{self, NonNull};
    use std::sync::{Mutex, PoisonError};

    use crate::sync::without_fork;

    /// Bytes of a unit; also the largest alignment.
    const UNIT: usize = 256;
    /// Bytes of an extent: a huge page of most processors.
    const EXTENT: usize = 2 << 20;
    /// Bytes of a page, or a multiple of them: smaller than the system's would be refused.
    const PAGE: usize = if cfg!(target_arch = "x86_64") {
        4 << 10
    } else {
        64 << 10
    };
    const UNITS: usize = EXTENT / UNIT;
    const PAGE_UNITS: usize = PAGE / UNIT;
    const PAGES: usize = EXTENT / PAGE;
    /// Sizes that are served from here.
    const SIZES: std::ops::RangeInclusive<usize> = 2 << 10..=64 << 10;

    /// A fixed set of numbers below `64 * WORDS`.
    struct Bits<const WORDS: usize>([u64; WORDS]);

    impl<const WORDS: usize> Bits<WORDS> {
        fn get(&self, i: usize) -> bool {
            self.0[i / 64] >> (i % 64) & 1 != 0
        }

        fn fill(&mut self, first: usize, count: usize, value: bool) {
            let (mut i, end) = (first, first + count);
            while i < end {
                let (word, bit) = (i / 64, i % 64);
                let length = (64 - bit).min(end - i);
                let mask = (u64::MAX >> (64 - length)) << bit;
                if value {
                    self.0[word] |= mask;
                } else {
                    self.0[word] &= !mask;
                }
                i += length;
            }
        }

        /// The first of `count` members in a row.
        fn run(&self, count: usize) -> Option<usize> {
            let (mut first, mut length) = (0, 0);
            for (i, &word) in self.0.iter().enumerate() {
                let mut bit = 0;
                while bit < 64 {
                    let rest = word >> bit;
                    let absent = (rest.trailing_zeros() as usize).min(64 - bit);
                    if absent > 0 {
                        length = 0;
                        bit += absent;
                        continue;
                    }
                    let present = (rest.trailing_ones() as usize).min(64 - bit);
                    if length == 0 {
                        first = i * 64 + bit;
                    }
                    length += present;
                    if length >= count {
                        return Some(first);
                    }
                    bit += present;
                }
            }
            None
        }
    }

    /// One mapping.
    struct Extent {
        base: NonNull<u8>,
        free: Bits<{ UNITS / 64 }>,
        free_units: usize,
        /// No run of free units is longer.
        longest: usize,
        /// Pages that may have memory behind them.
        backed: Bits<{ PAGES.div_ceil(64) }>,
        /// Something was freed since the last trim came by.
        freed: bool,
    }

    // SAFETY: an extent is memory and bookkeeping; whoever holds the pool's lock may use both from
    // any thread.
    unsafe impl Send for Extent {}

    impl Extent {
        const LAYOUT: Layout = match Layout::from_size_align(EXTENT, PAGE) {
            Ok(layout) => layout,
            Err(_) => panic!("a power of two"),
        };

        fn new() -> Option<Self> {
            // SAFETY: the layout has a size.
            let memory = unsafe { std::alloc::alloc(Self::LAYOUT) };
            Some(Extent {
                base: NonNull::new(memory)?,
                free: Bits([u64::MAX; UNITS / 64]),
                free_units: UNITS,
                longest: UNITS,
                // The allocator may have used it before.
                backed: Bits([u64::MAX; PAGES.div_ceil(64)]),
                freed: false,
            })
        }

        /// Gives back an extent that nobody uses.
        fn end(self) {
            // SAFETY: all of it is ours. (First, because an allocator may keep what it gets.)
            unsafe { discard(self.base.as_ptr(), EXTENT) };
            // SAFETY: allocated in `new` with this layout.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::LAYOUT) }
        }

        fn take(&mut self, units: usize) -> Option<*mut u8> {
            if self.longest < units {
                return None;
            }
            let Some(first) = self.free.run(units) else {
                self.longest = units - 1;
                return None;
            };
            self.free.fill(first, units, false);
            self.free_units -= units;
            let (from, to) = (first / PAGE_UNITS, (first + units).div_ceil(PAGE_UNITS));
            self.backed.fill(from, to - from, true);
            // SAFETY: below the extent's end.
            Some(unsafe { self.base.as_ptr().add(first * UNIT) })
        }

        fn give_back(&mut self, first: usize, units: usize) {
            debug_assert!((first..first + units).all(|unit| !self.free.get(unit)));
            self.free.fill(first, units, true);
            self.free_units += units;
            self.longest = UNITS;
            self.freed = true;
        }

        /// The next run of pages from `page` on that nobody uses and that have memory behind them.
        fn unused(&self, page: usize) -> Option<(usize, usize)> {
            let unused = |page: usize| {
                let units = page * PAGE_UNITS..(page + 1) * PAGE_UNITS;
                self.backed.get(page) && units.into_iter().all(|unit| self.free.get(unit))
            };
            let first = (page..PAGES).find(|&page| unused(page))?;
            let end = (first..PAGES).find(|&page| !unused(page)).unwrap_or(PAGES);
            Some((first, end - first))
        }
    }

    /// Takes the memory from behind these pages, whose contents are lost (or not: nobody may rely on
    /// that). Whether that succeeded.
    ///
    /// # Safety
    /// Whole pages of an extent, whose contents nobody needs.
    unsafe fn discard(pages: *mut u8, bytes: usize) -> bool {
        // SAFETY: by the caller's contract. In memory that is no private anonymous mapping (an
        // allocator may have other ideas) the call does nothing or fails.
        unsafe { libc::madvise(pages.cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    /// All extents by address.
    static POOL: Mutex<BTreeMap<usize, Extent>> = Mutex::new(BTreeMap::new());

    /// No fork happens while anyone holds the lock, so a child never finds it taken.
    fn locked<R>(f: impl FnOnce(&mut BTreeMap<usize, Extent>) -> R) -> R {
        without_fork(|| f(&mut POOL.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn units_of(layout: Layout) -> Option<usize> {
        let here = SIZES.contains(&layout.size()) && layout.align() <= UNIT;
        here.then(|| layout.size().div_ceil(UNIT))
    }

    /// # Safety
    /// As for [`std::alloc::alloc`].
    pub(super) unsafe fn alloc(layout: Layout) -> *mut u8 {
        let Some(units) = units_of(layout) else {
            // SAFETY: by the caller's contract.
            return unsafe { std::alloc::alloc(layout) };
        };
        locked(|extents| {
            let there = extents.values_mut().find_map(|extent| extent.take(units));
            there.unwrap_or_else(|| {
                let Some(mut extent) = Extent::new() else {
                    return ptr::null_mut();
                };
                let memory = extent.take(units).unwrap_or(ptr::null_mut());
                extents.insert(extent.base.addr().get(), extent);
                memory
            })
        })
    }

    /// # Safety
    /// As for [`std::alloc::dealloc`].
    pub(super) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
        let Some(units) = units_of(layout) else {
            // SAFETY: by the caller's contract.
            return unsafe { std::alloc::dealloc(memory, layout) };
        };
        locked(|extents| {
            let (base, extent) = extents
                .range_mut(..=memory.addr())
                .next_back()
                .expect("memory of an extent");
            extent.give_back((memory.addr() - base) / UNIT, units);
        });
    }

    pub(super) fn trim() {
        let mut after = Bound::Unbounded;
        loop {
            let next = locked(|extents| {
                let mut rest = extents.range((after, Bound::Unbounded));
                let found = rest.find(|(_, extent)| extent.freed);
                found.map(|(&base, _)| base)
            });
            let Some(base) = next else { return };
            trim_extent(base);
            after = Bound::Excluded(base);
        }
    }

    fn trim_extent(base: usize) {
        let whole = locked(|extents| {
            extents.get_mut(&base)?.freed = false;
            let is_unused = extents[&base].free_units == UNITS;
            is_unused.then(|| extents.remove(&base)).flatten()
        });
        if let Some(extent) = whole {
            extent.end();
            return;
        }
        let mut page = 0;
        loop {
            // Taken, so that nobody is given the run while it is being emptied.
            let run = locked(|extents| {
                let extent = extents.get_mut(&base)?;
                let (first, count) = extent.unused(page)?;
                extent
                    .free
                    .fill(first * PAGE_UNITS, count * PAGE_UNITS, false);
                extent.free_units -= count * PAGE_UNITS;
                Some((extent.base, first, count))
            });
            let Some((memory, first, count)) = run.map(|(base, first, count)| {
                // SAFETY: below the extent's end.
                (unsafe { base.as_ptr().add(first * PAGE) }, first, count)
            }) else {
                return;
            };
            // SAFETY: whole pages of an extent, taken just now: nobody else uses them, and the
            // extent stays because not all of it is free.
            let done = unsafe { discard(memory, count * PAGE) };
            locked(|extents| {
                let extent = extents.get_mut(&base).expect("an extent in use");
                extent
                    .free
                    .fill(first * PAGE_UNITS, count * PAGE_UNITS, true);
                extent.free_units += count * PAGE_UNITS;
                extent.longest = UNITS;
                if done {
                    extent.backed.fill(first, count, false);
                }
            });
            page = first + count;
        }
    }

    #[cfg(test)]
    pub(super) fn backed_pages(memory: *mut u8) -> usize {
        locked(|extents| {
            let (_, extent) = extents
                .range(..=memory.addr())
                .next_back()
                .expect("memory of an extent");
            (0..PAGES).filter(|&page| extent.backed.get(page)).count()
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn runs_are_found_across_words_and_only_where_they_fit() {
            let mut bits = Bits([0u64; 4]);
            assert_eq!(bits.run(1), None);
            bits.fill(3, 2, true);
            bits.fill(60, 10, true);
            bits.fill(128, 128, true);
            assert_eq!(bits.run(1), Some(3));
            assert_eq!(bits.run(3), Some(60));
            assert_eq!(bits.run(10), Some(60));
            assert_eq!(bits.run(11), Some(128));
            assert_eq!(bits.run(128), Some(128));
            assert_eq!(bits.run(129), None);
            bits.fill(127, 1, true);
            assert_eq!(bits.run(129), Some(127));
            bits.fill(200, 1, false);
            assert_eq!(bits.run(74), None);
        }
    }
}

#[cfg(not(all(
    unix,
    not(any(ebbtide_loom, ebbtide_shuttle, ebbtide_system_alloc, miri))
)))]
mod pool {
    pub(super) use std::alloc::{alloc, dealloc};

    pub(super) fn trim() {}
}

/// Memory for `layout`. Does not return if there is none.
///
/// # Safety
/// The layout must have a size. The memory is not initialized.
pub(crate) unsafe fn alloc(layout: Layout) -> NonNull<u8> {
    // SAFETY: by the caller's contract.
    let memory = unsafe { pool::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// `memory` must come from [`alloc`] with the same layout, and nobody may use it any more.
pub(crate) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
    // SAFETY: by the caller's contract.
    unsafe { pool::dealloc(memory, layout) }
}

/// Gives memory that nothing uses any more back to the system. Proportional to what was freed since
/// the last call; the lock is held for one run of pages at a time, and not while the system works.
pub(crate) fn trim() {
    pool::trim();
}

/// Trims when it is dropped: the last field of what owns a lot of this memory.
#[derive(Debug)]
pub(crate) struct TrimAtEnd;

impl Drop for TrimAtEnd {
    fn drop(&mut self) {
        trim();
    }
}

/// A growing array of plain values in this memory.
#[derive(Debug)]
pub(crate) struct Buffer<T: Copy> {
    memory: NonNull<T>,
    length: usize,
}

// SAFETY: it owns its memory, like a Vec.
unsafe impl<T: Copy + Send> Send for Buffer<T> {}
// SAFETY: as above; `&Buffer` gives `&T` only.
unsafe impl<T: Copy + Sync> Sync for Buffer<T> {}

impl<T: Copy> Buffer<T> {
    pub(crate) const fn new() -> Self {
        Buffer {
            memory: NonNull::dangling(),
            length: 0,
        }
    }

    fn layout(length: usize) -> Layout {
        Layout::array::<T>(length).expect("a buffer fits in memory")
    }

    /// Makes it longer, with copies of `value`.
    pub(crate) fn grow(&mut self, length: usize, value: T) {
        const { assert!(size_of::<T>() > 0) }
        assert!(length > self.length);
        // SAFETY: the length is not zero, nor is the size of an element.
        let memory: NonNull<T> = unsafe { alloc(Self::layout(length)) }.cast();
        // SAFETY: `length` elements fit, the first of them come from the old memory, which is
        // another piece.
        unsafe {
            memory.copy_from_nonoverlapping(self.memory, self.length);
            for i in self.length..length {
                memory.add(i).write(value);
            }
        }
        let old = std::mem::replace(self, Buffer { memory, length });
        drop(old);
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: from `grow`, with this layout.
            unsafe { dealloc(self.memory.as_ptr().cast(), Self::layout(self.length)) };
        }
    }
}

impl<T: Copy> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `grow` wrote `length` elements.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl<T: Copy> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.length) }
    }
}

#[cfg(all(test, unix, not(any(ebbtide_loom, ebbtide_system_alloc))))]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// One test at a time: they share the extents.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pieces of every size that is served, each filled with its own number, in and out in another
    /// order: no two overlap, all are as aligned as asked.
    #[test]
    fn pieces_do_not_overlap() {
        let _alone = alone();
        let mut pieces: Vec<(NonNull<u8>, Layout, u8)> = Vec::new();
        let mut state = 88_172_645_463_325_252_u64;
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let check = |memory: NonNull<u8>, layout: Layout, number: u8| {
            // SAFETY: filled when it was made.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == number));
        };
        for round in 0..3_000 {
            if pieces.len() > 200 || !pieces.is_empty() && draw(3) == 0 {
                let (memory, layout, number) = pieces.swap_remove(draw(pieces.len()));
                check(memory, layout, number);
                // SAFETY: made below with this layout.
                unsafe { dealloc(memory.as_ptr(), layout) };
            } else {
                let align = 1 << draw(9);
                let layout = Layout::from_size_align(1_000 + draw(70_000), align).unwrap();
                // SAFETY: a size, and the bytes are written before they are read.
                let memory = unsafe { alloc(layout) };
                assert_eq!(memory.addr().get() % align, 0);
                let number = (round % 251) as u8;
                // SAFETY: within the piece.
                unsafe { memory.write_bytes(number, layout.size()) };
                pieces.push((memory, layout, number));
            }
            if round % 100 == 0 {
                trim();
            }
        }
        for (memory, layout, number) in pieces {
            check(memory, layout, number);
            // SAFETY: made above with this layout.
            unsafe { dealloc(memory.as_ptr(), layout) };
        }
        trim();
    }

    /// What is freed has no memory behind it after a trim, though a neighbour stays.
    #[test]
    fn trimming_returns_what_nobody_uses() {
        let _alone = alone();
        let layout = Layout::from_size_align(64 << 10, 8).unwrap();
        // SAFETY: a size.
        let pieces: Vec<NonNull<u8>> = (0..20).map(|_| unsafe { alloc(layout) }).collect();
        let stays = pieces[10];
        // SAFETY: within the piece.
        unsafe { stays.write_bytes(7, 64 << 10) };
        let before = pool::backed_pages(stays.as_ptr());
        for piece in pieces.into_iter().filter(|&piece| piece != stays) {
            // SAFETY: made above with this layout.
            unsafe { dealloc(piece.as_ptr(), layout) };
        }
        trim();
        // (Other tests use the same extents, but not a megabyte of them.)
        assert!(pool::backed_pages(stays.as_ptr()) < before);
        // SAFETY: filled above.
        assert!((0..64 << 10).all(|i| unsafe { stays.add(i).read() } == 7));
        // SAFETY: made above with this layout.
        unsafe { dealloc(stays.as_ptr(), layout) };
    }
}
