//! The slab: entries in chunks that never move, named by slot ids.
//!
//! Readers go from an id to the entry without a lock: table of chunks → chunk → entry. All chunks
//! are alike, up to 256 slots or some 16 KiB of entries; their memory is asked for zeroed. Ids are handed out lowest first, so that the chunks at the
//! end run empty after a wave and their memory goes back to the allocator.
//!
//! # Concurrency
//! [`Slab`] is what readers share; [`Owner`] is the writers' part, which lives under the shard
//! lock, and asking for `&mut Owner` is how a function says that it needs the lock. What a slot is
//! allowed to be used for is carried by three tokens:
//!
//! | token | the slot is | made by | ends in |
//! |---|---|---|---|
//! | [`SlotRef`] | filled, and stays so while its pin lasts | index lookup, [`Owner::linked`] | – |
//! | [`Vacant`] | reserved for one writer, unreachable | [`Slab::reserve`] | [`Slab::fill`] |
//! | [`Departed`] | filled, unlinked, not yet in limbo | [`Owner::depart`] | `Limbo::push` |
//!
//! A slot's memory is written only while the slot is [`Vacant`] and dropped only against a
//! [`Ripe`] batch, which exists only after the batch's grace period.

pub(crate) mod bitmap;
pub(crate) mod lifetimes;
mod memory;
pub(crate) mod side;
mod tokens;

use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::ptr;

use crate::RemovalCause;
use crate::entry::Entry;
use crate::limits::{CHUNK_BYTES, CHUNK_MAX_SHIFT, MAX_SLOTS, SIDE_CHUNK, TRIM_TOGETHER};
use crate::pages;
use crate::reclaim::{Guard, Limbo, Ripe};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU64, Ordering, without_fork};
use bitmap::Bitmap;
use memory::{Chunk, Table};

pub(crate) use memory::Trim;
pub(crate) use tokens::{Departed, Dropped, SlotRef, Vacant};

/// The readers' side of one shard's slots.
pub(crate) struct Slab<K, V> {
    /// Invariant: points to as many cells as `Owner::table` says; each is null or a chunk laid out
    /// by `layout` for its number. A cell is only cleared when no slot of its chunk is taken.
    table: AtomicPtr<AtomicPtr<u8>>,
    extras: Extras,
    entries: PhantomData<(K, V)>,
}

/// What a chunk holds besides entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    /// A use mark for each slot: only in bounded caches.
    pub(crate) marks: bool,
    /// The deadline without idleness for each slot: only with a time to idle.
    pub(crate) caps: bool,
    /// When the value becomes stale, for each slot: only where stale values are loaded again.
    pub(crate) softs: bool,
}

impl Extras {
    /// Words beside each entry: its cap, then its soft deadline.
    fn words(self) -> usize {
        usize::from(self.caps) + usize::from(self.softs)
    }

    /// Which of them is the soft deadline.
    fn soft(self) -> usize {
        usize::from(self.caps)
    }
}

/// Which word beside an entry is its cap.
const CAP: usize = 0;

/// The writers' side, under the shard lock.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    table: usize,
    /// Slots that are not free: linked, departed, in limbo.
    taken: Bitmap,
    /// Slots that an index cell names.
    linked: Bitmap,
    /// Slots taken in each chunk.
    used: Vec<u32>,
    chunk_bytes: usize,
}

impl Owner {
    /// Linked slots.
    #[inline]
    pub(crate) fn linked_count(&self) -> usize {
        self.linked.count()
    }

    /// Slots that are not free.
    pub(crate) fn taken_count(&self) -> usize {
        self.taken.count()
    }

    /// Whether no slot is free.
    pub(crate) fn is_full(&self) -> bool {
        self.taken.count() >= MAX_SLOTS as usize
    }

    /// The slot, if an index cell names it now.
    #[inline]
    pub(crate) fn linked<'g>(&self, id: u32, guard: &'g Guard) -> Option<SlotRef<'g>> {
        // SAFETY: the bit is set exactly while the id is in an index cell of this shard, the
        // caller holds the shard lock (it has the owner), and `guard` is pinned now.
        self.linked
            .contains(id)
            .then(|| unsafe { SlotRef::new(id, guard) })
    }

    /// Whether an index cell names it now.
    #[inline]
    pub(crate) fn is_linked(&self, id: u32) -> bool {
        self.linked.contains(id)
    }

    /// How many words of 64 slots the bitmap of linked slots has.
    pub(crate) fn linked_words(&self) -> usize {
        self.linked.words()
    }

    /// Notes that an index cell names the slot from now on.
    #[inline]
    pub(crate) fn arrive(&mut self, id: u32) {
        self.linked.insert(id);
    }

    /// Notes that no index cell names the slot any more. The caller owns its value and its event
    /// (P3).
    #[inline]
    pub(crate) fn depart(&mut self, id: u32, cause: RemovalCause) -> Departed {
        self.linked.remove(id);
        Departed { id, cause }
    }

    /// Whether no slot beside a chunk of a side array is taken.
    pub(crate) fn is_unused_side_chunk(&self, chunk: usize) -> bool {
        const WORDS: usize = SIDE_CHUNK / 64;
        self.taken.is_empty_at(chunk * WORDS..(chunk + 1) * WORDS)
    }

    /// Chunks of side arrays that lie wholly above the last taken slot.
    pub(crate) fn first_unused_side_chunk(&self) -> usize {
        (self.taken.words() * 64).div_ceil(SIDE_CHUNK)
    }

    /// Bytes of entries (with what lies beside them) and of bookkeeping.
    pub(crate) fn bytes(&self) -> usize {
        self.chunk_bytes
            + self.table * size_of::<AtomicPtr<u8>>()
            + self.taken.bytes()
            + self.linked.bytes()
            + self.used.capacity() * 4
    }
}

const fn shift_below(bytes: usize, of: usize, most: u32) -> u32 {
    // An entry has at least its word.
    let fit = bytes / of;
    if fit < 2 {
        0
    } else {
        let shift = fit.ilog2();
        if shift < most { shift } else { most }
    }
}

impl<K, V> Slab<K, V> {
    /// Slots of a chunk, as a power of two.
    const SHIFT: u32 = shift_below(CHUNK_BYTES, size_of::<Entry<K, V>>(), CHUNK_MAX_SHIFT);
    const SLOTS: usize = 1 << Self::SHIFT;

    pub(crate) fn new(extras: Extras) -> Self {
        Slab {
            table: AtomicPtr::new(ptr::null_mut()),
            extras,
            entries: PhantomData,
        }
    }

    /// Chunk and offset of a slot.
    #[inline]
    const fn locate(id: u32) -> (usize, usize) {
        (
            (id >> Self::SHIFT) as usize,
            id as usize & (Self::SLOTS - 1),
        )
    }

    /// Where a chunk has the words beside its entries: after these, whose size is a multiple of a word's.
    const WORDS_AT: usize = Self::SLOTS * size_of::<Entry<K, V>>();

    /// Where it has its marks: after the words, if it has any.
    #[inline]
    fn marks_at(&self) -> usize {
        Self::WORDS_AT + self.extras.words() * Self::SLOTS * size_of::<AtomicU64>()
    }

    /// Bytes of a chunk for each of its slots.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.layout().size() / Self::SLOTS
    }

    /// The layout of a chunk.
    fn layout(&self) -> Layout {
        let marks = if self.extras.marks {
            Self::SLOTS * size_of::<AtomicU8>()
        } else {
            0
        };
        Layout::from_size_align(self.marks_at() + marks, align_of::<Entry<K, V>>())
            .expect("a chunk is far smaller than the address space")
    }

    /// # Safety
    /// The slot must be taken, and the table that names its chunk must stay: a pin that began
    /// before this call, or the shard lock, is held until the call is over.
    #[inline]
    unsafe fn chunk(&self, chunk: usize) -> *mut u8 {
        // Acquire: pairs with the Release stores of `reserve`. (The Acquire load of the slot's id
        // has brought both along already.)
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: the table cell of a taken slot's chunk was published before the slot's id was,
        // so it lies within the table; the table stays, by the caller's contract.
        unsafe { (*table.add(chunk)).load(Ordering::Acquire) }
    }

    /// # Safety
    /// As for [`chunk`](Self::chunk). The address is good for as long as the slot is taken.
    #[inline]
    unsafe fn entry_at(&self, id: u32) -> *const Entry<K, V> {
        let (chunk, offset) = Self::locate(id);
        // SAFETY: a taken slot's chunk has memory, laid out with the entries first; the rest is
        // the caller's contract.
        unsafe { self.chunk(chunk).cast::<Entry<K, V>>().add(offset) }
    }

    /// The entry of a slot.
    #[inline]
    pub(crate) fn entry<'g>(&self, slot: SlotRef<'g>) -> &'g Entry<K, V> {
        // SAFETY: a `SlotRef<'g>` vouches that the pin 'g lasts, and that the slot, linked during
        // it, stays filled until it ends: its grace period outlasts the pin.
        unsafe { &*self.entry_at(slot.id) }
    }

    /// The entry of a slot that has left the index and has not reached limbo. The pin is needed
    /// only to find it.
    pub(crate) fn departed<'d>(&'d self, slot: &'d Departed, _guard: &Guard) -> &'d Entry<K, V> {
        // SAFETY: pinned; and a departed slot stays filled until its token is given to limbo.
        unsafe { &*self.entry_at(slot.id) }
    }

    /// Asks for the slot's line.
    #[inline]
    pub(crate) fn prefetch(&self, slot: SlotRef<'_>) {
        // SAFETY: as in `entry`.
        crate::sync::prefetch::<Entry<K, V>>(unsafe { self.entry_at(slot.id) });
    }

    /// Asks for the line of the slot's use mark.
    #[inline]
    pub(crate) fn prefetch_mark(&self, slot: SlotRef<'_>) {
        if let Some(mark) = self.mark(slot) {
            crate::sync::prefetch(mark);
        }
    }

    /// The use mark of a slot of a bounded cache.
    #[inline]
    pub(crate) fn mark<'g>(&self, slot: SlotRef<'g>) -> Option<&'g AtomicU8> {
        if !self.extras.marks {
            return None;
        }
        // SAFETY: the slot is taken and pinned, and stays so for 'g (as in `entry`).
        Some(unsafe { &*self.mark_at(slot.id) })
    }

    /// The deadline without idleness of a slot of a cache with a time to idle.
    #[inline]
    pub(crate) fn cap<'g>(&self, slot: SlotRef<'g>) -> Option<&'g AtomicU64> {
        if !self.extras.caps {
            return None;
        }
        // SAFETY: the slot is taken, and stays so for 'g (as in `entry`).
        Some(unsafe { &*self.word_at(CAP, slot.id) })
    }

    /// When the value in a slot becomes stale, where stale values are loaded again.
    #[inline]
    pub(crate) fn soft<'g>(&self, slot: SlotRef<'g>) -> Option<&'g AtomicU64> {
        if !self.extras.softs {
            return None;
        }
        // SAFETY: the slot is taken, and stays so for 'g (as in `entry`).
        Some(unsafe { &*self.word_at(self.extras.soft(), slot.id) })
    }

    /// # Safety
    /// As for [`chunk`](Self::chunk), in a slab with more than `which` words beside an entry.
    unsafe fn word_at(&self, which: usize, id: u32) -> *const AtomicU64 {
        let (chunk, offset) = Self::locate(id);
        // SAFETY: by the caller's contract; the words lie here, those of one kind together.
        unsafe {
            self.chunk(chunk)
                .add(Self::WORDS_AT)
                .cast::<AtomicU64>()
                .add(which * Self::SLOTS + offset)
        }
    }

    /// # Safety
    /// As for [`chunk`](Self::chunk), in a slab with marks.
    unsafe fn mark_at(&self, id: u32) -> *const AtomicU8 {
        let (chunk, offset) = Self::locate(id);
        // SAFETY: by the caller's contract; the marks lie here.
        unsafe {
            self.chunk(chunk)
                .add(self.marks_at())
                .cast::<AtomicU8>()
                .add(offset)
        }
    }

    /// Reserves the lowest free slot. A replaced table goes to limbo. `None` when the shard has as
    /// many slots as it can have.
    #[inline]
    pub(crate) fn reserve(&self, owner: &mut Owner, limbo: &mut Limbo) -> Option<Vacant> {
        let id = owner.taken.lowest_absent();
        if id >= MAX_SLOTS {
            return None;
        }
        let (chunk, _) = Self::locate(id);
        if chunk >= owner.table {
            self.grow_table(owner, limbo, chunk);
        }
        // Relaxed: only the lock's holder stores it.
        let table = self.table.load(Ordering::Relaxed);
        // SAFETY: `chunk` is below the table's length, and the caller holds the lock (it has the
        // owner), so nobody replaces the table.
        let cell = unsafe { &*table.add(chunk) };
        if cell.load(Ordering::Relaxed).is_null() {
            self.provide(owner, cell);
        }
        owner.taken.insert(id);
        owner.used[chunk] += 1;
        Some(Vacant(id))
    }

    #[cold]
    fn grow_table(&self, owner: &mut Owner, limbo: &mut Limbo, chunk: usize) {
        let old = self.table.load(Ordering::Relaxed);
        let new = Table::new((chunk + 1).next_power_of_two().max(8));
        for i in 0..owner.table {
            // SAFETY: both tables have at least `owner.table` cells; the old one is still
            // published and the new one is ours.
            unsafe {
                (*new.cells.add(i)).store((*old.add(i)).load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire in `chunk`, for the copied cells.
        self.table.store(new.cells, Ordering::Release);
        let old = Table {
            cells: old,
            length: owner.table,
        };
        owner.table = new.length;
        owner.used.resize(new.length, 0);
        std::mem::forget(new);
        if old.length > 0 {
            limbo.retire(Box::new(old));
        } else {
            std::mem::forget(old);
        }
    }

    /// Gives a cell of the table its chunk.
    #[cold]
    fn provide(&self, owner: &mut Owner, cell: &AtomicPtr<u8>) {
        // Release: pairs with the Acquire in `chunk`.
        cell.store(self.allocate(), Ordering::Release);
        owner.chunk_bytes += self.layout().size();
    }

    fn allocate(&self) -> *mut u8 {
        let layout = self.layout();
        // SAFETY: an entry has at least its word, so the size is not zero.
        let memory = unsafe { pages::alloc_zeroed(layout) }.as_ptr();
        // Zeroes are vacant entries, words and marks. The model checker's atomics have to be made.
        #[cfg(ebbtide_loom)]
        for i in 0..Self::SLOTS {
            // SAFETY: all within the layout; nobody else has the memory yet.
            unsafe {
                memory.cast::<Entry<K, V>>().add(i).write(Entry::vacant());
                for which in 0..self.extras.words() {
                    memory
                        .add(Self::WORDS_AT)
                        .cast::<AtomicU64>()
                        .add(which * Self::SLOTS + i)
                        .write(AtomicU64::new(0));
                }
                if self.extras.marks {
                    memory
                        .add(self.marks_at())
                        .cast::<AtomicU8>()
                        .add(i)
                        .write(AtomicU8::new(0));
                }
            }
        }
        memory
    }

    /// Writes an entry into a reserved slot, with the words beside it; the index may name it afterwards.
    #[inline]
    pub(crate) fn fill(
        &self,
        slot: Vacant,
        word: u64,
        cap: u64,
        soft: u64,
        key: K,
        value: V,
    ) -> u32 {
        // SAFETY: the slot is taken (by `reserve`), not linked, and the token is the only right to
        // use it. The caller still holds the lock under which it reserved the slot.
        unsafe { (*self.entry_at(slot.0)).fill(word, key, value) };
        if self.extras.caps {
            // SAFETY: as above. Relaxed: published with the id's Release store.
            unsafe { (*self.word_at(CAP, slot.0)).store(cap, Ordering::Relaxed) };
        }
        if self.extras.softs {
            // SAFETY: as above. Relaxed: as above.
            unsafe { (*self.word_at(self.extras.soft(), slot.0)).store(soft, Ordering::Relaxed) };
        }
        if self.extras.marks {
            // SAFETY: as above. Relaxed: a mark is a hint.
            unsafe { (*self.mark_at(slot.0)).store(0, Ordering::Relaxed) };
        }
        slot.0
    }

    /// Drops the keys and values of a batch past its grace period; returns the number of panics
    /// in user code, which are contained. Call without the lock.
    pub(crate) fn drop_entries(&self, batch: Ripe) -> (Dropped, u64) {
        let slots = batch.into_slots();
        if !needs_drop::<K>() && !needs_drop::<V>() {
            // Their lines stay where the next writer has them.
            return (Dropped(slots), 0);
        }
        // The addresses are looked up under a pin, which keeps the table that names the chunks;
        // the drops, which run user code, are not.
        let entries: Vec<*const Entry<K, V>> = without_fork(|| {
            let _guard = crate::reclaim::pin();
            // SAFETY: the slots are taken until they are released, and the pin is held.
            slots
                .iter()
                .map(|&id| unsafe { self.entry_at(id) })
                .collect()
        });
        let mut panics = 0;
        for (i, &entry) in entries.iter().enumerate() {
            if let Some(&ahead) = entries.get(i + 8) {
                crate::sync::prefetch(ahead);
            }
            // SAFETY: a ripe slot is filled, was unlinked before its batch was sealed, and no pin
            // from before is left: the batch owns it alone, and is consumed here. Its chunk has
            // memory until the slot is released.
            panics += unsafe { (*entry).drop_contents() };
        }
        (Dropped(slots), panics)
    }

    /// Makes the slots of a dropped batch free again.
    pub(crate) fn release(&self, owner: &mut Owner, slots: Dropped) {
        for id in slots.0 {
            owner.taken.remove(id);
            owner.used[Self::locate(id).0] -= 1;
        }
    }

    /// Takes out the memory of chunks without a taken slot, leaving one of them for the next
    /// writer, among a few chunks from `next` on, which is moved; `None` at the end. Free them
    /// without the lock.
    pub(crate) fn empty_chunks(&self, owner: &mut Owner, next: &mut Trim) -> Option<Vec<Chunk>> {
        if next.chunk >= owner.table {
            owner.taken.shrink();
            owner.linked.shrink();
            return None;
        }
        let mut freed = Vec::new();
        let table = self.table.load(Ordering::Relaxed);
        let end = (next.chunk + TRIM_TOGETHER).min(owner.table);
        for chunk in next.chunk..end {
            // SAFETY: `chunk` is below the table's length; the caller holds the lock.
            let cell = unsafe { &*table.add(chunk) };
            let memory = cell.load(Ordering::Relaxed);
            if memory.is_null() || owner.used[chunk] > 0 {
                continue;
            }
            if !std::mem::replace(&mut next.has_spare, true) {
                continue;
            }
            let layout = self.layout();
            // Relaxed: no slot of the chunk is taken, so nobody reads the cell.
            cell.store(ptr::null_mut(), Ordering::Relaxed);
            owner.chunk_bytes -= layout.size();
            freed.push(Chunk { memory, layout });
        }
        next.chunk = end;
        Some(freed)
    }

    /// Drops every entry that is left and frees all memory; returns the number of panics in user
    /// code. The slab must not be used again.
    pub(crate) fn dismantle(&mut self, owner: &mut Owner) -> u64 {
        let mut panics = 0;
        for id in std::mem::take(&mut owner.taken).iter() {
            // SAFETY: a taken slot is filled (`Vacant` tokens do not outlive the lock, and slots
            // are freed in the same breath in which their values are dropped), and `&mut self`
            // means that nobody else is left.
            panics += unsafe { (*self.entry_at(id)).drop_contents() };
        }
        let table = self.table.load(Ordering::Relaxed);
        for chunk in 0..owner.table {
            // SAFETY: within the table, which nobody else uses any more.
            let memory = unsafe { (*table.add(chunk)).load(Ordering::Relaxed) };
            if !memory.is_null() {
                drop(Chunk {
                    memory,
                    layout: self.layout(),
                });
            }
        }
        if owner.table > 0 {
            drop(Table {
                cells: table,
                length: owner.table,
            });
        }
        self.table.store(ptr::null_mut(), Ordering::Relaxed);
        *owner = Owner::default();
        panics
    }

    /// Recounts the bookkeeping.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self, owner: &Owner) {
        let mut used = vec![0; owner.table];
        for id in owner.taken.iter() {
            used[Self::locate(id).0] += 1;
            // SAFETY: the slot is taken and the caller holds the lock (it has the owner).
            let chunk = unsafe { self.chunk(Self::locate(id).0) };
            assert!(!chunk.is_null(), "slot {id} has no chunk");
        }
        assert_eq!(used, owner.used);
        for id in owner.linked.iter() {
            assert!(owner.taken.contains(id), "slot {id} is linked but free");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_tile_the_chunks_without_gap_or_overlap() {
        fn check<K, V>() {
            let mut expected = (0, 0);
            for id in 0..200_000 {
                let (chunk, offset) = Slab::<K, V>::locate(id);
                assert_eq!((chunk, offset), expected, "slot {id}");
                expected = if offset + 1 == Slab::<K, V>::SLOTS {
                    (chunk + 1, 0)
                } else {
                    (chunk, offset + 1)
                };
            }
        }
        check::<u64, u64>();
        check::<u64, [u64; 40]>();
        check::<[u8; 3000], [u8; 5000]>();
        check::<u8, [u8; 1 << 20]>();
        check::<(), ()>();
    }
}
