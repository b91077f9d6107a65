//! One entry of the slab: its deadline word, its key and its value.
//!
//! A `&Entry` exists only for a slot whose key and value are written and not yet dropped; the slab
//! hands it out against a [`SlotRef`](crate::slab::SlotRef), which vouches for that.

pub(crate) mod word;

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::Cell;
use word::{DEAD, Word};

/// The memory of one slot.
#[repr(C)]
pub(crate) struct Entry<K, V> {
    pub(crate) word: Word,
    // Invariant: both are initialised from `Entry::fill` (under the shard lock, before the slot's
    // id is stored into an index cell) until `Entry::drop_contents` (after the slot's grace
    // period), and never written in between.
    key: Cell<MaybeUninit<K>>,
    value: Cell<MaybeUninit<V>>,
}

impl<K, V> Entry<K, V> {
    /// A slot without an entry. All zeroes, except under the model checker.
    #[cfg(ebbtide_loom)]
    pub(crate) fn vacant() -> Self {
        Entry {
            word: Word::new(DEAD),
            key: Cell::new(MaybeUninit::uninit()),
            value: Cell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: whoever holds a `&Entry` got it from the slab against a `SlotRef`, so the slot
        // is filled and cannot be dropped while the reference lives (see `key`'s invariant).
        self.key.with(|key| unsafe { (*key).assume_init_ref() })
    }

    #[inline]
    pub(crate) fn value(&self) -> &V {
        // SAFETY: as in `key`.
        self.value
            .with(|value| unsafe { (*value).assume_init_ref() })
    }

    /// Writes an entry into a vacant slot.
    ///
    /// # Safety
    /// The slot must be vacant and reserved for the caller: no `&Entry` to it is used, and no
    /// thread can find it in the index.
    pub(crate) unsafe fn fill(&self, word: u64, key: K, value: V) {
        debug_assert_ne!(word, DEAD);
        self.key.with_mut(|cell| {
            // SAFETY: the caller owns the vacant slot alone.
            unsafe { (*cell).write(key) };
        });
        self.value.with_mut(|cell| {
            // SAFETY: the caller owns the vacant slot alone.
            unsafe { (*cell).write(value) };
        });
        self.word.set(word);
    }

    /// Drops key and value. Panics of either are contained; returns how many there were.
    ///
    /// # Safety
    /// The slot must be filled, out of the index, and past its grace period; the caller owns it
    /// alone, and nobody uses it as an entry afterwards.
    pub(crate) unsafe fn drop_contents(&self) -> u64 {
        let mut panics = 0;
        if std::mem::needs_drop::<V>() {
            panics += self.value.with_mut(|cell| {
                // SAFETY: filled and owned alone, by the caller's contract; dropped only here.
                contained(|| unsafe { (*cell).assume_init_drop() })
            });
        }
        if std::mem::needs_drop::<K>() {
            panics += self.key.with_mut(|cell| {
                // SAFETY: filled and owned alone, by the caller's contract; dropped only here.
                contained(|| unsafe { (*cell).assume_init_drop() })
            });
        }
        panics
    }
}

/// Runs user code that must not take anything else down; 1 if it panicked.
pub(crate) fn contained(f: impl FnOnce()) -> u64 {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => 0,
        Err(payload) => {
            // A payload whose own Drop panics would unwind out of here.
            std::mem::forget(payload);
            1
        }
    }
}
