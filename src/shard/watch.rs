//! What can be seen of a shard from outside: its counts, what its memory is used for, what some of its
//! entries are like. Nothing here changes anything.

use std::time::Duration;

use crate::clock::Reading;
use crate::entry::word::{DEAD, NEVER};
use crate::lane;
use crate::order::Order;
use crate::reclaim::Guard;
use crate::stats::{Audit, MemoryUsage, Stats};

use super::Shard;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Shard<K, V> {
    /// Linked slots, and slots in limbo or being dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        let linked = state.slab.linked_count();
        (linked as u64, (state.slab.taken_count() - linked) as u64)
    }

    /// Adds the shard's counts up, as they are at `now`.
    pub(crate) fn add_to(&self, stats: &mut Stats, now: u64) {
        let state = self.state.lock();
        stats.entries += state.slab.linked_count() as u64;
        stats.limbo += (state.slab.taken_count() - state.slab.linked_count()) as u64;
        // What is filed under the unit that is passing may not be over yet.
        if let Some(passed) = lane::unit_of(now).checked_sub(1)
            && state.lane.min() <= passed
        {
            stats.backlog += state.lane.about_due(passed, &mut 0) as u64;
        }
        state.tally.add_to(stats);
    }

    /// How long, at most, an entry has been over at `now` and is still linked; by the published minimum.
    pub(crate) fn oldest_due_age(&self, now: u64) -> Duration {
        let due = self.due();
        if due == lane::NONE {
            return Duration::ZERO;
        }
        Duration::from_nanos(now.saturating_sub(lane::begin_of(due)))
    }

    /// Bytes by structure.
    pub(crate) fn memory(&self) -> MemoryUsage {
        let state = self.state.lock();
        let waiting = state.slab.taken_count() - state.slab.linked_count();
        MemoryUsage {
            slab: state.slab.bytes(),
            slab_in_limbo: waiting * self.slab.slot_bytes(),
            hashes: state.hashes.bytes(),
            index: self.index.bytes(&state.index),
            lane: state.lane.bytes(),
            lifetimes: state.lifetimes.bytes(),
            order: state.order.as_ref().map_or(0, Order::bytes),
            weights: state.weights.bytes(),
            tags: state.groups.as_ref().map_or(0, |groups| groups.bytes()),
            limbo: state.limbo.bytes(),
            shards: size_of::<Self>(),
        }
    }

    /// Linked slots, and how many slot ids there are below which all of them lie.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let state = self.state.lock();
        let linked = state.slab.linked_count() as u64;
        (linked, state.slab.linked_words() as u64 * 64)
    }

    /// Looks at the linked ones among these slots, in one hold. Ends nothing, whatever is over.
    pub(crate) fn audit(&self, slots: &[u32], time: Reading<'_>, guard: &Guard, audit: &mut Audit) {
        let state = self.state.lock();
        let linked = || {
            let slots = slots.iter();
            slots.filter_map(|&id| state.slab.linked(id, guard))
        };
        linked().for_each(|slot| self.slab.prefetch(slot));
        let now = time.now();
        for slot in linked() {
            audit.count(match self.slab.entry(slot).word.load() {
                NEVER => Some(Duration::MAX),
                DEAD => None,
                deadline if now >= deadline => None,
                deadline => Some(Duration::from_nanos(deadline - now)),
            });
        }
    }
}
