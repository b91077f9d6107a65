//! The memory of a slab: chunks of slots, and the table that names them.

use std::alloc::Layout;
use std::ptr;

use crate::pages;
use crate::sync::AtomicPtr;

/// The table that readers go through, with as many cells as the owner says.
pub(crate) struct Table {
    pub(super) cells: *mut AtomicPtr<u8>,
    pub(super) length: usize,
}

// SAFETY: the owner of a `Table` is its only user (it was unpublished and its grace period is
// over, or it was never published), so it may be freed on any thread.
unsafe impl Send for Table {}

impl Table {
    pub(super) fn new(length: usize) -> Self {
        let cells: Box<[AtomicPtr<u8>]> = (0..length)
            .map(|_| AtomicPtr::new(ptr::null_mut()))
            .collect();
        Table {
            cells: Box::into_raw(cells).cast(),
            length,
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let cells = ptr::slice_from_raw_parts_mut(self.cells, self.length);
        // SAFETY: made from a boxed slice of this length in `new`, and owned (see `Send`).
        drop(unsafe { Box::from_raw(cells) });
    }
}

/// The memory of a chunk in which no slot is taken.
pub(crate) struct Chunk {
    pub(super) memory: *mut u8,
    pub(super) layout: Layout,
}

// SAFETY: the chunk is out of the table and no slot of it is taken, so its owner is its only user.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `Slab::allocate`, and owned (see `Send`).
        unsafe { pages::dealloc(self.memory, self.layout) }
    }
}

/// How far the giving back of a shard's chunks has come.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    pub(super) chunk: usize,
    pub(super) has_spare: bool,
}
