//! What a slot may be used for: see the [module](super).

use std::marker::PhantomData;

use crate::RemovalCause;
use crate::reclaim::Guard;

/// A slot that was linked at some moment of the pin `'g`: its entry stays filled until that pin
/// ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRef<'g> {
    pub(super) id: u32,
    pin: PhantomData<&'g Guard>,
}

impl<'g> SlotRef<'g> {
    /// # Safety
    /// While `guard` was pinned, the id must have been stored in an index cell of the shard that
    /// the reference will be used with.
    pub(crate) unsafe fn new(id: u32, _guard: &'g Guard) -> Self {
        SlotRef {
            id,
            pin: PhantomData,
        }
    }

    /// The slot's number.
    #[inline]
    pub(crate) fn id(self) -> u32 {
        self.id
    }
}

/// A slot reserved for one writer.
#[derive(Debug)]
#[must_use]
pub(crate) struct Vacant(pub(super) u32);

/// A slot taken out of the index: its value is to be reported, then to go into limbo.
#[derive(Debug)]
#[must_use]
pub(crate) struct Departed {
    pub(super) id: u32,
    /// Why it left.
    pub(crate) cause: RemovalCause,
}

impl Departed {
    /// The slot's number.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

/// The slots of a batch whose values are dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Dropped(pub(super) Vec<u32>);

impl Dropped {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
