//! Which live entry has to go when the cache is full: the policies, behind one seam.
//!
//! [`eviction`] is the seam; [`policy`] what users choose from. Two building blocks: [`queue`] (rings of
//! slot ids) and [`blocks`] (arrays that grow in small steps). Behind the seam: [`segmented`] with its
//! [`ghost`] and [`sketch`], [`ring`] for CLOCK and FIFO, [`sampled`] for what is drawn at random.

mod blocks;
mod eviction;
mod ghost;
mod policy;
mod queue;
mod ring;
mod sampled;
mod segmented;
mod sketch;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use eviction::{Entries, Need, Order};
pub use policy::Policy;

use crate::limits::MARK_MAX;
use crate::sync::{AtomicU8, Ordering};

/// Notes a use of an entry; stops writing once the entry is hot.
#[inline]
pub(crate) fn touch_mark(mark: &AtomicU8) {
    // Relaxed: a hint. Two readers may raise it by one together.
    let seen = mark.load(Ordering::Relaxed);
    if seen < MARK_MAX {
        mark.store(seen + 1, Ordering::Relaxed);
    }
}
