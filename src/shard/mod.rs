//! One shard: the four views of its slots, and the only code that changes them together.
//!
//! Readers go through [`Shard::lookup`] under a pin, without the lock. Everything else happens in
//! a [`Hold`] of the shard's lock, which is where the protocol's order lives:
//!
//! - P2: every lookup looks again when it meets a dead entry;
//! - P3, P4: [`Hold::unlink`] for ends without a successor (the word is DEAD first), and
//!   [`Hold::replace`] for replacements (the new id first, then the old word);
//! - P7: a hold finds its slot again, by key or by stored hash and id;
//! - P8: what a hold unlinks goes to limbo, at once or, when a listener has to hear of it first,
//!   by [`Shard::bury`].

mod evict;
mod hold;
mod lookup;
mod sweep;
mod view;
mod watch;

use std::fmt;

use crate::RemovalCause;
use crate::clock::Reading;
use crate::entry::{Entry, contained};
use crate::groups::Groups;
use crate::index::{self, Index};
use crate::lane::{self, Lane};
use crate::limits::{TRIM_TOGETHER, VAIN_NS};
use crate::order::{Order, Policy};
use crate::reaper::Bell;
use crate::reclaim::{Guard, Limbo, Ripe};
use crate::rules::Rules;
#[cfg(feature = "serde")]
use crate::rules::Span;
use crate::slab::lifetimes::Lifetimes;
use crate::slab::side::Side;
use crate::slab::{self, Departed, Dropped, Extras, Slab, SlotRef};
use crate::stats::{Count, Tally};
use crate::sync::{AtomicU32, AtomicU64, Line, Mutex, MutexGuard, Ordering, forks};

pub(crate) use hold::{Arrival, Hold, Lack, Released};
pub(crate) use lookup::Look;
pub(crate) use sweep::{Goal, Round, SampleReport, Slice, SweepReport};

/// One shard of a cache.
#[repr(align(64))]
pub(crate) struct Shard<K, V> {
    index: Index,
    slab: Slab<K, V>,
    /// The lane's minimum, for the scheduler to read without the lock.
    due: Line<AtomicU32>,
    /// Whether anything is in limbo: 0, or one more than the number of slots (there may be tables
    /// alone).
    waiting: Count,
    /// Boxed, so that the shards of a cache lie close together: readers touch one line of each.
    state: Line<Mutex<Box<State>>>,
    /// What is linked here, in the unit of the bound: for who looks for a shard to evict from.
    load: AtomicU64,
    /// How many threads found the lock taken and wait for it: the sweep makes way for them.
    waiters: Line<AtomicU32>,
    /// Until when (on the cache's clock) writers in need of room have no need to look here for an
    /// entry that is over among those filed under the unit that is passing.
    vain_until: AtomicU64,
}

/// What only the lock's holder touches.
struct State {
    index: index::Owner,
    slab: slab::Owner,
    hashes: Side<u32>,
    lane: Lane,
    lifetimes: Lifetimes,
    limbo: Limbo,
    /// Only in a cache with tags.
    groups: Option<Box<Groups>>,
    /// Only in a bounded cache.
    order: Option<Order>,
    /// What entries weigh; 1 each, and empty, where they are not weighed.
    weights: Side<u64>,
    /// Their sum over all linked entries.
    load: u64,
    tally: Tally,
    /// Counts changes of deadlines, downwards: each takes a nanosecond where idle extensions are about
    /// (P5).
    changes: u64,
    /// The lane block where the sweep goes on.
    cursor: usize,
    /// Values whose drop has begun and whose slots are not free yet.
    dropping: usize,
    /// In which process of a forking family they are being dropped.
    process: u64,
    /// Slots have become free since unused memory was last given back.
    untrimmed: bool,
}

impl State {
    /// Gives back what is kept beside a chunk of slots none of which is taken.
    fn release_side_chunk(&mut self, chunk: usize) {
        self.hashes.release_chunk(chunk);
        self.weights.release_chunk(chunk);
        if let Some(groups) = &mut self.groups {
            groups.release_slots(chunk);
        }
        if let Some(order) = &mut self.order {
            order.release_chunk(chunk);
        }
    }

    /// What the order sees.
    #[cfg(any(test, debug_assertions))]
    fn view<'a, K, V>(&'a self, slab: &'a Slab<K, V>, guard: &'a Guard) -> view::View<'a, K, V> {
        view::View {
            slab,
            owner: &self.slab,
            hashes: &self.hashes,
            weights: &self.weights,
            guard,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Shard<K, V> {
    /// A shard with room in its index for `entries`; if it is bounded, with its policy and share.
    pub(crate) fn new(
        entries: usize,
        extras: Extras,
        tags: bool,
        bounded: Option<(&Policy, u64)>,
    ) -> Self {
        let (index, owner) = Index::new(entries);
        Shard {
            index,
            slab: Slab::new(extras),
            due: Line(AtomicU32::new(lane::NONE)),
            waiting: Count::new(0),
            load: AtomicU64::new(0),
            waiters: Line(AtomicU32::new(0)),
            vain_until: AtomicU64::new(0),
            state: Line(Mutex::new(Box::new(State {
                index: owner,
                slab: slab::Owner::default(),
                hashes: Side::new(0),
                lane: Lane::new(),
                lifetimes: Lifetimes::default(),
                limbo: Limbo::default(),
                groups: tags.then(|| Box::new(Groups::new())),
                order: bounded.map(|(policy, share)| Order::new(policy, share)),
                weights: Side::new(1),
                load: 0,
                tally: Tally::default(),
                changes: 0,
                cursor: 0,
                dropping: 0,
                process: forks(),
                untrimmed: false,
            }))),
        }
    }

    /// The entry behind a slot.
    #[inline]
    pub(crate) fn entry<'g>(&self, slot: SlotRef<'g>) -> &'g Entry<K, V> {
        self.slab.entry(slot)
    }

    /// The slab, for marks, caps and departed entries.
    #[inline]
    pub(crate) fn slab(&self) -> &Slab<K, V> {
        &self.slab
    }

    /// Asks for the index line of a hash.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u32, guard: &Guard) {
        self.index.prefetch(hash, guard);
    }

    /// Asks for the entry line of the first cell with the tag of this hash.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u32, guard: &Guard) {
        self.index.find(hash, guard, |slot| {
            self.slab.prefetch(slot);
            true
        });
    }

    /// Takes the lock.
    pub(crate) fn hold<'s>(
        &'s self,
        rules: &'s Rules<K, V>,
        time: Reading<'s>,
        bell: &'s Bell,
        guard: &'s Guard,
    ) -> Hold<'s, K, V> {
        Hold::new(self, self.lock(), rules, time, bell, guard)
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Box<State>> {
        // (Two steps for one would only give the models more to do: who waits is a hint.)
        #[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
        {
            self.state.try_lock().unwrap_or_else(|| self.wait())
        }
        #[cfg(any(ebbtide_loom, ebbtide_shuttle))]
        {
            self.state.lock()
        }
    }

    #[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
    #[cold]
    fn wait(&self) -> MutexGuard<'_, Box<State>> {
        // Relaxed, here and in `is_wanted`: a hint.
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        state
    }

    #[cfg(test)]
    pub(crate) fn pretend_to_be_wanted(&self, by: u32) {
        self.waiters.store(by, Ordering::Relaxed);
    }

    /// Whether somebody waits for the lock.
    #[inline]
    fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn try_hold<'s>(
        &'s self,
        rules: &'s Rules<K, V>,
        time: Reading<'s>,
        bell: &'s Bell,
        guard: &'s Guard,
    ) -> Option<Hold<'s, K, V>> {
        let state = self.state.try_lock()?;
        Some(Hold::new(self, state, rules, time, bell, guard))
    }

    /// Puts what was unlinked, and has been reported, into limbo.
    pub(crate) fn bury(&self, bell: &Bell, departed: Vec<Departed>) {
        if departed.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let quiet = state.limbo.is_empty();
        for slot in departed {
            state.limbo.push(slot);
        }
        self.publish(&state);
        drop(state);
        bell.ring_for_limbo(quiet);
    }

    /// Tells the scheduler what is due and what waits, without the lock.
    fn publish(&self, state: &State) {
        // Release / Relaxed: the fence in `Bell::ring` orders both before its look at the sleeper.
        self.due.store(state.lane.min(), Ordering::Release);
        let dropping = if state.process == forks() {
            state.dropping
        } else {
            0
        };
        let waiting = state.limbo.slots() + dropping + usize::from(!state.limbo.is_empty());
        self.waiting.store(waiting, Ordering::Release);
    }

    /// No entry of the shard is due before this lane unit.
    #[inline]
    pub(crate) fn due(&self) -> u32 {
        // Acquire: pairs with the Release in `publish`.
        self.due.load(Ordering::Acquire)
    }

    /// About how much is linked here, in the unit of the bound.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        // Relaxed: a hint, stored by each write of a bounded cache before it unlocks.
        self.load.load(Ordering::Relaxed)
    }

    /// Whether a writer in need of room has looked here in vain just before.
    pub(crate) fn is_vain(&self, now: u64) -> bool {
        // Relaxed, here and below: a hint.
        now < self.vain_until.load(Ordering::Relaxed)
    }

    /// Notes that a look at `now` for an entry that is over was in vain.
    pub(crate) fn note_vain(&self, now: u64) {
        self.vain_until
            .store(now.saturating_add(VAIN_NS), Ordering::Relaxed);
    }

    /// Lets the next writer in need of room look again.
    pub(crate) fn forget_vain(&self) {
        self.vain_until.store(0, Ordering::Relaxed);
    }

    /// Whether so many slots wait for their grace period to begin.
    pub(crate) fn has_unsealed(&self, many: usize) -> bool {
        self.state.lock().limbo.unsealed() >= many
    }

    /// Whether something is in limbo.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// About how many slots wait in limbo.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        // Acquire: pairs with the Release in `publish`.
        self.waiting.load(Ordering::Acquire)
    }

    /// Begins the grace period of everything in limbo.
    pub(crate) fn seal(&self) {
        if self.has_waiting() {
            let mut state = self.state.lock();
            state.limbo.seal();
            if state.process != forks() {
                self.publish(&state);
            }
        }
    }

    /// Up to `most` slots whose grace period is over. They go to [`drop_ripe`](Self::drop_ripe)
    /// and from there to [`release`](Self::release).
    pub(crate) fn take_ripe(&self, most: usize) -> Option<Ripe> {
        let mut state = self.state.lock();
        let ripe = state.limbo.take_ripe(most)?;
        if state.process != forks() {
            (state.process, state.dropping) = (forks(), 0);
        }
        state.dropping += ripe.len();
        self.publish(&state);
        Some(ripe)
    }

    /// Drops the values of a batch, without the lock; returns the number of panics in user code.
    pub(crate) fn drop_ripe(&self, ripe: Ripe) -> (Dropped, u64) {
        self.slab.drop_entries(ripe)
    }

    /// Makes the slots of dropped values free again.
    pub(crate) fn release(&self, dropped: Dropped) {
        let mut state = self.state.lock();
        let State {
            slab,
            dropping,
            untrimmed,
            ..
        } = &mut **state;
        *dropping = dropping.saturating_sub(dropped.len());
        *untrimmed = true;
        self.slab.release(slab, dropped);
        self.publish(&state);
    }

    /// Gives memory that nothing uses any more back to the allocator, if slots have become free
    /// since it last did.
    pub(crate) fn trim(&self) {
        if !std::mem::take(&mut self.state.lock().untrimmed) {
            return;
        }
        let mut next = slab::Trim::default();
        loop {
            let mut state = self.state.lock();
            let chunks = self.slab.empty_chunks(&mut state.slab, &mut next);
            drop(state);
            // Freed without the lock.
            if chunks.map(drop).is_none() {
                break;
            }
        }
        while self.trim_side_arrays() {}
        let mut chunk = 0;
        while self.trim_between(&mut chunk) {}
    }

    /// Gives back what lies beside chunks of slots none of which is taken, though later ones are; whether
    /// there may be more. (The lane and the lifetimes are given back from the end only.)
    fn trim_between(&self, next: &mut usize) -> bool {
        let mut state = self.state.lock();
        let end = (*next + TRIM_TOGETHER).min(state.hashes.chunks());
        for chunk in *next..end {
            if state.slab.is_unused_side_chunk(chunk) {
                state.release_side_chunk(chunk);
            }
        }
        *next = end;
        end < state.hashes.chunks()
    }

    /// Gives back some of the side arrays' memory; whether there may be more.
    fn trim_side_arrays(&self) -> bool {
        let mut state = self.state.lock();
        let state = &mut **state;
        let unused = state.slab.first_unused_side_chunk();
        let longest = state
            .hashes
            .chunks()
            .max(state.lane.chunks())
            .max(state.lifetimes.chunks());
        let from = unused.max(longest.saturating_sub(TRIM_TOGETHER));
        for chunk in (from..state.hashes.chunks()).rev() {
            state.release_side_chunk(chunk);
        }
        state.lane.shrink(from);
        state.lifetimes.shrink(from);
        // (Shrinking the lane may have raised its minimum.)
        self.publish(state);
        let nodes = state
            .groups
            .as_mut()
            .is_some_and(|groups| groups.trim(TRIM_TOGETHER));
        from > unused || nodes
    }

    /// How many entries carry a tag.
    pub(crate) fn tagged(&self, tag: u64) -> u32 {
        let state = self.state.lock();
        state.groups.as_ref().map_or(0, |groups| groups.count(tag))
    }

    /// The slots of one stretch of hashes from `hash` on, and where the next stretch begins.
    pub(crate) fn note<'g>(
        &self,
        hash: u32,
        guard: &'g Guard,
        slots: &mut Vec<SlotRef<'g>>,
    ) -> Option<u32> {
        let state = self.state.lock();
        self.index
            .note(&state.index, hash, guard, |id| state.hashes.get(id), slots)
    }

    /// As [`note`](Self::note), each slot with its hash.
    #[cfg(feature = "serde")]
    pub(crate) fn note_hashes<'g>(
        &self,
        hash: u32,
        guard: &'g Guard,
        slots: &mut Vec<(u32, SlotRef<'g>)>,
    ) -> Option<u32> {
        let state = self.state.lock();
        let mut noted = Vec::new();
        let hash_of = |id| state.hashes.get(id);
        let next = self
            .index
            .note(&state.index, hash, guard, hash_of, &mut noted);
        slots.extend(noted.into_iter().map(|slot| (hash_of(slot.id()), slot)));
        next
    }

    /// The span of a slot, of one moment: a hold of a few steps. Its word is DEAD if it has left.
    #[cfg(feature = "serde")]
    pub(crate) fn span(&self, slot: SlotRef<'_>) -> Span {
        let state = self.lock();
        // The word first: an idle extension may come between, and goes no farther than the cap.
        let word = self.slab.entry(slot).word.load();
        let cap = self.slab.cap(slot);
        Span {
            word,
            // Relaxed: stored under the lock.
            cap: cap.map_or(word, |cap| cap.load(Ordering::Relaxed)),
            own: state.lifetimes.get(slot.id()),
        }
    }

    /// Changes the shard's part of the bound.
    pub(crate) fn set_share(&self, share: u64) {
        if let Some(order) = &mut self.state.lock().order {
            order.set_share(share);
        }
    }

    /// Recounts every structure against every other; how much is linked, and its weight. `files`: entries
    /// with a deadline are in the lane.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self, files: bool, guard: &Guard) -> (u64, u64) {
        let state = self.state.lock();
        self.slab.validate(&state.slab);
        let mut linked = self.index.validate(&state.index, |id| state.hashes.get(id));
        linked.sort_unstable();
        let count = linked.len();
        linked.dedup();
        assert_eq!(count, linked.len(), "a slot is linked twice");
        assert_eq!(count, state.slab.linked_count());
        state.lane.validate();
        for &id in &linked {
            let slot = state
                .slab
                .linked(id, guard)
                .expect("an indexed slot is linked");
            let word = self.slab.entry(slot).word.load();
            if files && word != crate::entry::word::NEVER && word != crate::entry::word::DEAD {
                assert!(
                    state.lane.get(id) <= lane::unit_of(word),
                    "slot {id} is filed too late"
                );
            }
        }
        let waiting = state.slab.taken_count() - count;
        assert!(state.limbo.slots() + state.dropping <= waiting);
        assert!(self.due.load(Ordering::Relaxed) <= state.lane.min());
        if let Some(groups) = &state.groups {
            groups.validate(&linked);
        }
        if let Some(order) = &state.order {
            order.validate(linked.iter().copied(), &state.view(&self.slab, guard));
        }
        let weights = linked.iter().map(|&id| state.weights.get(id));
        let weight = weights.sum();
        assert!(state.order.is_none() || state.load == weight, "load");
        (count as u64, weight)
    }
}

impl<K, V> Shard<K, V> {
    /// Drops every entry. The last use of the shard: no pin, no worker is left.
    pub(crate) fn dismantle(&mut self) -> u64 {
        let mut state = self.state.lock();
        let panics = self.slab.dismantle(&mut state.slab);
        self.index.dismantle();
        panics
    }
}

impl<K, V> fmt::Debug for Shard<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("due", &*self.due)
            .finish_non_exhaustive()
    }
}

/// Runs a listener for one departed entry; 1 if it panicked.
pub(crate) fn report<K, V>(
    entry: &Entry<K, V>,
    cause: RemovalCause,
    listener: &(dyn Fn(&K, &V, RemovalCause) + Send + Sync),
) -> u64 {
    contained(|| listener(entry.key(), entry.value(), cause))
}
