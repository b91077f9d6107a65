//! Per-slot side arrays that only the shard lock's holder touches.

use crate::limits::SIDE_CHUNK;
use crate::pages::Buffer;
use crate::sync::prefetch;

/// A sparse array over slot ids in chunks, so that growing one copies at most a chunk and a chunk
/// that nobody uses takes no memory. Reading past what was written gives the default.
#[derive(Debug)]
pub(crate) struct Side<T: Copy> {
    chunks: Vec<Buffer<T>>,
    default: T,
}

impl<T: Copy + PartialEq> Side<T> {
    pub(crate) fn new(default: T) -> Self {
        Side {
            chunks: Vec::new(),
            default,
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> T {
        let slot = slot as usize;
        self.chunks
            .get(slot / SIDE_CHUNK)
            .and_then(|chunk| chunk.get(slot % SIDE_CHUNK))
            .copied()
            .unwrap_or(self.default)
    }

    /// Asks for the line of a slot's element.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        let slot = slot as usize;
        if let Some(chunk) = self.chunks.get(slot / SIDE_CHUNK) {
            prefetch(chunk.as_ptr().wrapping_add(slot % SIDE_CHUNK));
        }
    }

    /// The element of a slot whose chunk exists.
    #[inline]
    pub(crate) fn cell(&mut self, slot: u32) -> Option<&mut T> {
        let slot = slot as usize;
        self.chunks
            .get_mut(slot / SIDE_CHUNK)
            .and_then(|chunk| chunk.get_mut(slot % SIDE_CHUNK))
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: u32, value: T) {
        let (chunk, offset) = (slot as usize / SIDE_CHUNK, slot as usize % SIDE_CHUNK);
        match self
            .chunks
            .get_mut(chunk)
            .and_then(|chunk| chunk.get_mut(offset))
        {
            Some(cell) => *cell = value,
            None if value == self.default => {}
            None => self.grow(chunk, offset, value),
        }
    }

    #[cold]
    fn grow(&mut self, chunk: usize, offset: usize, value: T) {
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, Buffer::new);
        }
        let chunk = &mut self.chunks[chunk];
        // In steps of two, so that a small cache stays small; whole lane blocks at least.
        let length = (offset + 1).next_power_of_two().clamp(64, SIDE_CHUNK);
        chunk.grow(length, self.default);
        chunk[offset] = value;
    }

    /// Number of chunks that reach up to the last one ever written.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The elements of one chunk that exist.
    #[inline]
    pub(crate) fn chunk(&self, chunk: usize) -> &[T] {
        &self.chunks[chunk]
    }

    /// Gives back the memory of `chunk`, whose elements all read as the default afterwards.
    pub(crate) fn release_chunk(&mut self, chunk: usize) {
        if let Some(elements) = self.chunks.get_mut(chunk) {
            *elements = Buffer::new();
        }
        while self.chunks.last().is_some_and(|chunk| chunk.is_empty()) {
            self.chunks.pop();
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Buffer<T>>()
            + self
                .chunks
                .iter()
                .map(|chunk| chunk.len() * size_of::<T>())
                .sum::<usize>()
    }
}
