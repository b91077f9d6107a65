//! The extents, and who has which piece of them.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use crate::sync::without_fork;

/// Bytes of a unit; also the largest alignment.
const UNIT: usize = 256;
/// Bytes of an extent.
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
        self.note_free(first, units);
        self.freed = true;
    }

    /// Keeps `longest` right now that these units are free (nobody asks for more than `MOST`).
    fn note_free(&mut self, first: usize, units: usize) {
        let (mut begin, mut end) = (first, first + units);
        while begin > 0 && end - begin < MOST && self.free.get(begin - 1) {
            begin -= 1;
        }
        while end < UNITS && end - begin < MOST && self.free.get(end) {
            end += 1;
        }
        let run = if end - begin < MOST {
            end - begin
        } else {
            UNITS
        };
        self.longest = self.longest.max(run);
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

/// Units of the largest piece.
const MOST: usize = *SIZES.end() / UNIT;

struct Pool {
    /// By address.
    extents: BTreeMap<usize, Extent>,
    /// No extent below `from[n]` has `n` free units in a row.
    from: [usize; MOST + 1],
}

impl Pool {
    /// The extent at `base` may have `longest` free units in a row now.
    fn freed(&mut self, base: usize, longest: usize) {
        for from in &mut self.from[..=longest.min(MOST)] {
            *from = base.min(*from);
        }
    }
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    extents: BTreeMap::new(),
    from: [0; MOST + 1],
});

/// No fork happens while anyone holds the lock, so a child never finds it taken.
fn locked<R>(f: impl FnOnce(&mut Pool) -> R) -> R {
    without_fork(|| f(&mut POOL.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn units_of(layout: Layout) -> Option<usize> {
    let here = SIZES.contains(&layout.size()) && layout.align() <= UNIT;
    here.then(|| layout.size().div_ceil(UNIT))
}

/// # Safety
/// As for [`std::alloc::alloc_zeroed`].
pub(super) unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
    if units_of(layout).is_none() {
        // SAFETY: by the caller's contract.
        return unsafe { std::alloc::alloc_zeroed(layout) };
    }
    // SAFETY: by the caller's contract.
    let memory = unsafe { alloc(layout) };
    if !memory.is_null() {
        // SAFETY: as many bytes as the layout says, and the caller's alone.
        unsafe { memory.write_bytes(0, layout.size()) };
    }
    memory
}

/// # Safety
/// As for [`std::alloc::alloc`].
pub(super) unsafe fn alloc(layout: Layout) -> *mut u8 {
    let Some(units) = units_of(layout) else {
        // SAFETY: by the caller's contract.
        return unsafe { std::alloc::alloc(layout) };
    };
    locked(|pool| {
        let mut rest = pool.extents.range_mut(pool.from[units]..);
        let there = rest.find_map(|(&base, extent)| Some((base, extent.take(units)?)));
        if let Some((base, memory)) = there {
            pool.from[units] = base;
            return memory;
        }
        let Some(mut extent) = Extent::new() else {
            return ptr::null_mut();
        };
        let memory = extent.take(units).unwrap_or(ptr::null_mut());
        let base = extent.base.addr().get();
        pool.freed(base, UNITS);
        pool.from[units] = base;
        pool.extents.insert(base, extent);
        memory
    })
}

/// # Safety
/// As for [`std::alloc::dealloc`].
pub(super) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
    let Some(units) = units_of(layout) else {
        // SAFETY: by the caller's contract.
        return unsafe { std::alloc::dealloc(memory, layout) };
    };
    locked(|pool| {
        let (&base, extent) = pool
            .extents
            .range_mut(..=memory.addr())
            .next_back()
            .expect("memory of an extent");
        extent.give_back((memory.addr() - base) / UNIT, units);
        let longest = extent.longest;
        pool.freed(base, longest);
    });
}

pub(super) fn trim() {
    let mut after = Bound::Unbounded;
    loop {
        let next = locked(|pool| {
            let mut rest = pool.extents.range((after, Bound::Unbounded));
            let found = rest.find(|(_, extent)| extent.freed);
            found.map(|(&base, _)| base)
        });
        let Some(base) = next else { return };
        trim_extent(base);
        after = Bound::Excluded(base);
    }
}

fn trim_extent(base: usize) {
    let whole = locked(|Pool { extents, .. }| {
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
        let run = locked(|Pool { extents, .. }| {
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
        locked(|pool| {
            let extent = pool.extents.get_mut(&base).expect("an extent in use");
            extent
                .free
                .fill(first * PAGE_UNITS, count * PAGE_UNITS, true);
            extent.free_units += count * PAGE_UNITS;
            extent.note_free(first * PAGE_UNITS, count * PAGE_UNITS);
            let longest = extent.longest;
            if done {
                extent.backed.fill(first, count, false);
            }
            // Its last piece may have been freed meanwhile: then all of it goes the next time.
            extent.freed |= extent.free_units == UNITS;
            pool.freed(base, longest);
        });
        page = first + count;
    }
}

#[cfg(test)]
pub(super) fn backed_pages(memory: *mut u8) -> usize {
    locked(|Pool { extents, .. }| {
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
