//! Where slab chunks, index segments and side arrays live: memory that goes back to the system.
//!
//! A general allocator keeps what it is given back (after a wave of a million entries glibc held 45
//! of 43 MB, jemalloc 52 and mimalloc 56, for as long as nobody called them), which would make
//! "its memory comes back" true on paper only. So pieces of 2 to 64 KiB are cut out of *extents*
//! of 2 MiB (aligned to pages), which come from the global allocator and serve all caches of the process: first fit,
//! lowest extent first, in units of 256 bytes. [`trim`], which the reaper calls, returns the memory
//! behind pages that nobody uses (`madvise`), and extents that nobody uses, a run at a time and
//! without the lock.
//!
//! Smaller and larger pieces, platforms that are not listed below, and builds with `--cfg
//! ebbtide_system_alloc` (for tools that watch single allocations) go straight to the global
//! allocator.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[cfg(all(
    any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly"
    ),
    not(any(ebbtide_loom, ebbtide_shuttle, ebbtide_system_alloc, miri))
))]
mod pool;

#[cfg(not(all(
    any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly"
    ),
    not(any(ebbtide_loom, ebbtide_shuttle, ebbtide_system_alloc, miri))
)))]
mod pool {
    pub(super) use std::alloc::{alloc, alloc_zeroed, dealloc};

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

/// As [`alloc`], and zeroed. Large pieces come zeroed from the global allocator, which for the largest
/// costs nothing before they are used.
///
/// # Safety
/// The layout must have a size.
pub(crate) unsafe fn alloc_zeroed(layout: Layout) -> NonNull<u8> {
    // SAFETY: by the caller's contract.
    let memory = unsafe { pool::alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// `memory` must come from [`alloc`] or [`alloc_zeroed`] with the same layout, and nobody may use it any more.
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

#[cfg(all(
    test,
    target_os = "linux",
    not(any(ebbtide_loom, ebbtide_system_alloc))
))]
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
