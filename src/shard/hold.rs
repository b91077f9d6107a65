//! A hold of a shard's lock: where linking, unlinking and deadlines change, in the protocol's
//! order.

use crate::RemovalCause;
use crate::bound::Account;
use crate::clock::Reading;
use crate::counter::{Step, as_counter};
use crate::entry::word::{DEAD, Found, NEVER};
use crate::index::Place;
use crate::lane;
use crate::order::Order;
use crate::reaper::Bell;
use crate::reclaim::Guard;
use crate::rules::{Rules, Span};
use crate::slab::{Departed, SlotRef};
use crate::stats::Path;
use crate::sync::{MutexGuard, Ordering};

use super::view::View;
use super::{Shard, State};

/// The shard's lock, held.
///
/// Ends with [`release`](Hold::release), which tells the scheduler what changed and gives back
/// what has to be reported before it may go to limbo.
#[must_use]
pub(crate) struct Hold<'s, K, V> {
    pub(super) shard: &'s Shard<K, V>,
    /// Before the lock's guard: closed before the lock is let go, also when user code panics.
    pub(super) account: Account<'s, K, V>,
    pub(super) state: MutexGuard<'s, Box<State>>,
    pub(super) rules: &'s Rules<K, V>,
    pub(super) time: Reading<'s>,
    bell: &'s Bell,
    pub(super) guard: &'s Guard,
    departed: Vec<Departed>,
    /// Limbo was empty when the hold began: nobody may know yet that something waits.
    quiet: bool,
    min_before: u32,
}

/// What a hold leaves to be done without the lock, best without the pin too.
#[derive(Debug)]
#[must_use = "departed entries have to be reported and buried"]
pub(crate) struct Released {
    /// Entries to be reported and then buried; empty when nobody listens.
    pub(crate) departed: Vec<Departed>,
    /// What the clock said, if it was asked before the hold.
    pub(crate) asked: Option<u64>,
}

/// A new entry, to be linked. (Lent to whoever links it: it is large, and what is copied right after it was
/// written has to wait.)
pub(crate) struct Arrival<K, V> {
    pub(crate) hash: u32,
    /// Key and value, until it is linked.
    pub(crate) pair: Option<(K, V)>,
    pub(crate) span: Span,
    /// When the value becomes stale.
    pub(crate) soft: u64,
    /// The tags that it carries.
    pub(crate) tags: Box<[u64]>,
    /// What it weighs; 1 where nothing is weighed.
    pub(crate) weight: u64,
}

/// What there was none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The shard has no free slot.
    Slot,
    /// The bound has no room, and nothing may be, or has been, evicted to make some.
    Room,
}

impl<K, V> Arrival<K, V> {
    const LINKED: &str = "it has not been linked yet";

    /// The key of an entry that has not been linked.
    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.pair.as_ref().expect(Self::LINKED).0
    }

    /// Key and value of an entry that has not been linked.
    pub(crate) fn into_pair(self) -> (K, V) {
        self.pair.expect(Self::LINKED)
    }
}

impl<'s, K: Send + Sync + 'static, V: Send + Sync + 'static> Hold<'s, K, V> {
    pub(super) fn new(
        shard: &'s Shard<K, V>,
        state: MutexGuard<'s, Box<State>>,
        rules: &'s Rules<K, V>,
        time: Reading<'s>,
        bell: &'s Bell,
        guard: &'s Guard,
    ) -> Self {
        let min_before = state.lane.min();
        let quiet = state.limbo.is_empty();
        Hold {
            shard,
            account: rules.bound.open(),
            state,
            rules,
            time,
            bell,
            guard,
            departed: Vec::new(),
            quiet,
            min_before,
        }
    }

    /// Unlocks, and publishes for the reaper what changed.
    pub(crate) fn release(self) -> Released {
        let Hold {
            shard,
            account,
            state,
            rules,
            bell,
            departed,
            quiet,
            min_before,
            time,
            ..
        } = self;
        let due = state.lane.min();
        let waits = !state.limbo.is_empty();
        if state.order.is_some() && state.load != shard.load() {
            shard.load.store(state.load, Ordering::Relaxed);
        }
        if due != shard.due() || waits || !quiet {
            shard.publish(&state);
        }
        drop(account);
        drop(state);
        if due < min_before {
            // Release: with the minimum that was published before; see `Core::may_hold_dead`. A
            // read-modify-write even where it changes nothing, so that a raise from there sees it.
            rules.soonest.fetch_min(due, Ordering::AcqRel);
            bell.ring_for_lane(due);
        }
        if waits {
            bell.ring_for_limbo(quiet);
        }
        Released {
            departed,
            asked: time.last(),
        }
    }

    /// Finds a key again (P7): the place of its linked entry, dead or alive.
    pub(crate) fn find(&self, hash: u32, is_key: impl Fn(&K) -> bool) -> Option<Place<'s>> {
        self.shard.index.find(hash, self.guard, |slot| {
            is_key(self.shard.slab.entry(slot).key())
        })
    }

    /// Finds a slot again (P7), if it is still linked.
    pub(crate) fn find_slot(&self, slot: u32) -> Option<Place<'s>> {
        if !self.state.slab.is_linked(slot) {
            return None;
        }
        let hash = self.state.hashes.get(slot);
        self.shard
            .index
            .find(hash, self.guard, |found| found.id() == slot)
    }

    /// The key is written or removed in this hold: what is being loaded for it is older.
    #[inline]
    pub(crate) fn overtake(&self, hash: u32, is_key: impl Fn(&K) -> bool) {
        self.rules.flights.overtake(hash, is_key);
    }

    /// Whether the entry at a place lives, with "expired" made final (P1).
    pub(crate) fn settle(&self, place: &Place<'_>) -> Found {
        self.settle_at(place, self.time)
    }

    /// The same for an entry that another will replace whatever it is: whether it lived at some moment
    /// of the call.
    pub(crate) fn settle_doomed(&self, place: &Place<'_>) -> Found {
        self.settle_at(place, self.time.of_call())
    }

    #[inline]
    fn settle_at(&self, place: &Place<'_>, time: Reading<'_>) -> Found {
        let entry = self.shard.slab.entry(place.slot);
        entry.word.settle(|word| time.is_due(word))
    }

    /// Links a new entry whose key is not linked, unless there is no slot or no room.
    pub(crate) fn link(&mut self, arrival: &mut Arrival<K, V>) -> Result<SlotRef<'s>, Lack> {
        let (hash, weight) = (arrival.hash, arrival.weight);
        if self.account.add(weight).is_err() {
            return Err(Lack::Room);
        }
        if let Some(order) = &self.state.order {
            order.prefetch(hash);
        }
        let id = match self.fill(arrival) {
            Ok(id) => id,
            Err(lack) => {
                self.account.subtract(weight);
                return Err(lack);
            }
        };
        let State {
            index,
            limbo,
            hashes,
            slab,
            ..
        } = &mut **self.state;
        self.shard
            .index
            .link(index, limbo, hash, id, |id| hashes.get(id));
        slab.arrive(id);
        let slot = slab.linked(id, self.guard).expect("just linked");
        self.state.load += weight;
        self.tell_order(|order, view| order.link(id, view));
        Ok(slot)
    }

    /// Tells the order, if there is one, what happened to the entries.
    #[inline]
    pub(super) fn tell_order<R>(
        &mut self,
        tell: impl FnOnce(&mut Order, &View<'_, K, V>) -> R,
    ) -> Option<R> {
        let State {
            order,
            slab,
            hashes,
            weights,
            ..
        } = &mut **self.state;
        let view = View {
            slab: &self.shard.slab,
            owner: slab,
            hashes,
            weights,
            guard: self.guard,
        };
        order.as_mut().map(|order| tell(order, &view))
    }

    /// Puts a new entry in the place of an old one of the same key, whose cause the caller has
    /// settled (P3): the new id first, then the old word (P4). The caller has
    /// [reserved](Self::reserve) room. An error when there is no slot.
    ///
    /// Returns the new slot and what the old word was at the exchange.
    pub(crate) fn replace(
        &mut self,
        place: &Place<'s>,
        arrival: &mut Arrival<K, V>,
        cause: RemovalCause,
        lag: u64,
    ) -> Result<(SlotRef<'s>, u64), Lack> {
        let (old, new) = (self.weight_of(place.slot), arrival.weight);
        let id = self.fill(arrival)?;
        self.rules.bound.lower(old.saturating_sub(new));
        self.state.load = self.state.load - old + new;
        let state = &mut **self.state;
        self.shard.index.replace(&mut state.index, place, id);
        state.slab.arrive(id);
        let gone = place.slot.id();
        self.tell_order(|order, view| order.replace(gone, id, view));
        let was = self.shard.slab.entry(place.slot).word.retire();
        self.part(place.slot, cause, Path::Write, lag);
        let slot = self.state.slab.linked(id, self.guard).expect("just linked");
        Ok((slot, was))
    }

    /// Writes the entry into a slot, with its side arrays.
    #[inline]
    fn fill(&mut self, arrival: &mut Arrival<K, V>) -> Result<u32, Lack> {
        let state = &mut **self.state;
        let Some(vacant) = self.shard.slab.reserve(&mut state.slab, &mut state.limbo) else {
            return Err(Lack::Slot);
        };
        let span = arrival.span;
        let (key, value) = arrival.pair.take().expect(Arrival::<K, V>::LINKED);
        let id = self
            .shard
            .slab
            .fill(vacant, span.word, span.cap, arrival.soft, key, value);
        state.hashes.set(id, arrival.hash);
        state.lifetimes.set(id, span.own);
        if let Some(groups) = &mut state.groups {
            groups.enter(id, &arrival.tags);
        }
        if self.rules.bound.weighs() {
            state.weights.set(id, arrival.weight);
        }
        if span.word != NEVER && !self.rules.time.follows() {
            state.lane.file(id, lane::unit_of(span.word));
        }
        state.tally.inserted += 1;
        Ok(id)
    }

    /// Takes an entry out whose word is DEAD (P4). The hold owns its event (P3).
    pub(crate) fn unlink(&mut self, place: Place<'s>, cause: RemovalCause, path: Path, lag: u64) {
        debug_assert_eq!(self.shard.slab.entry(place.slot).word.load(), DEAD);
        let State {
            index,
            limbo,
            hashes,
            ..
        } = &mut **self.state;
        self.shard
            .index
            .unlink(index, limbo, place, |id| hashes.get(id));
        let weight = self.weight_of(place.slot);
        self.account.subtract(weight);
        self.state.load -= weight;
        let (id, evicted) = (place.slot.id(), cause == RemovalCause::Evicted);
        self.tell_order(|order, view| order.unlink(id, evicted, view));
        self.part(place.slot, cause, path, lag);
    }

    /// What a linked entry weighs.
    #[inline]
    pub(crate) fn weight_of(&self, slot: SlotRef<'_>) -> u64 {
        self.state.weights.get(slot.id())
    }

    /// Before [`replace`](Self::replace): counts what the new entry will weigh more than the old one;
    /// false if there is no room for it.
    pub(crate) fn reserve(&self, place: &Place<'_>, weight: u64) -> bool {
        let more = weight.saturating_sub(self.weight_of(place.slot));
        self.rules.bound.raise(more).is_ok()
    }

    /// Instead of [`replace`](Self::replace), after [`reserve`](Self::reserve).
    pub(crate) fn cancel(&self, place: &Place<'_>, weight: u64) {
        // (A slot's weight is known until it is used again, also if it has just been unlinked.)
        let more = weight.saturating_sub(self.weight_of(place.slot));
        self.rules.bound.lower(more);
    }

    /// What is left to do for a slot that no index cell names any more.
    fn part(&mut self, slot: SlotRef<'s>, cause: RemovalCause, path: Path, lag: u64) {
        let state = &mut **self.state;
        state.lane.clear(slot.id());
        if let Some(groups) = &mut state.groups {
            groups.leave(slot.id());
        }
        match cause {
            RemovalCause::Expired => state.tally.expired(path, lag),
            RemovalCause::Explicit => state.tally.explicit += 1,
            RemovalCause::Replaced => state.tally.replaced += 1,
            RemovalCause::Evicted => state.tally.evicted += 1,
        }
        if let Some(counter) = as_counter(self.shard.slab.entry(slot).value()) {
            // The slot has left the index and its word is DEAD: from here on the value is final.
            counter.close();
        }
        let departed = state.slab.depart(slot.id(), cause);
        if self.rules.listener.is_some() {
            self.departed.push(departed);
        } else {
            state.limbo.push(departed);
        }
    }

    /// How late an entry is: its deadline against now, or, when somebody else has ended it, the
    /// beginning of the lane unit that it was filed under.
    pub(crate) fn lag(&self, slot: SlotRef<'_>, deadline: Option<u64>, now: u64) -> u64 {
        let deadline = deadline.unwrap_or_else(|| match self.state.lane.get(slot.id()) {
            lane::NONE => now,
            filed => lane::begin_of(filed),
        });
        now.saturating_sub(deadline)
    }

    /// How late an entry is that was found to be over.
    pub(crate) fn lag_of(&self, slot: SlotRef<'_>, found: Found) -> u64 {
        let deadline = match found {
            Found::Expired(deadline) => Some(deadline),
            _ => None,
        };
        self.lag(slot, deadline, self.time.now())
    }

    /// Unlinks what turned out to be over: its cause is Expired.
    pub(crate) fn unlink_expired(&mut self, place: Place<'s>, found: Found, path: Path) {
        let lag = self.lag_of(place.slot, found);
        self.unlink(place, RemovalCause::Expired, path, lag);
    }

    /// Ends the entry at a place and takes it out: `cause` if it was alive (then true), Expired
    /// if it was over.
    pub(crate) fn end(&mut self, place: Place<'s>, cause: RemovalCause, path: Path) -> bool {
        self.end_at(place, cause, path, self.time)
    }

    pub(super) fn end_at(
        &mut self,
        place: Place<'s>,
        cause: RemovalCause,
        path: Path,
        time: Reading<'_>,
    ) -> bool {
        let entry = self.shard.slab.entry(place.slot);
        match entry.word.kill(|word| time.is_due(word)) {
            Found::Live(_) => {
                self.unlink(place, cause, path, 0);
                true
            }
            over => {
                self.unlink_expired(place, over, path);
                false
            }
        }
    }

    /// Gives the live entry at a place another span (P5); the word now in force. `None` when it
    /// turned out to be over; it is unlinked then. `span` is asked again on every retry, with the word of that moment.
    pub(crate) fn change_span(
        &mut self,
        place: Place<'s>,
        mut span: impl FnMut(u64) -> Span,
    ) -> Option<u64> {
        let entry = self.shard.slab.entry(place.slot);
        let cap = self.shard.slab.cap(place.slot);
        let mut own = 0;
        self.state.changes = self.state.changes.wrapping_sub(1);
        let changed = entry.word.change(
            |word| self.time.is_due(word),
            (self.rules.idle != 0).then_some(self.state.changes),
            |word| {
                let span = span(word);
                own = span.own;
                if let Some(cap) = cap {
                    // Relaxed: the word's CAS that follows releases it to the idle extension,
                    // which loads the word first (P5).
                    cap.store(span.cap, Ordering::Relaxed);
                }
                span.word
            },
        );
        match changed {
            Found::Live(word) => {
                let id = place.slot.id();
                self.state.lifetimes.set(id, own);
                let filed = if word == NEVER || self.rules.time.follows() {
                    lane::NONE
                } else {
                    lane::unit_of(word)
                };
                self.state.lane.file(id, filed);
                Some(word)
            }
            over => {
                self.unlink_expired(place, over, Path::Write);
                None
            }
        }
    }

    /// Begins the own lifetime of the entry at a place again; false if it is over (and unlinked
    /// then).
    pub(crate) fn touch(&mut self, place: Place<'s>) -> bool {
        let (rules, own) = (self.rules, self.state.lifetimes.get(place.slot.id()));
        let (time, cap) = (self.time, self.shard.slab.cap(place.slot));
        self.change_span(place, |word| {
            if word == NEVER {
                // Persistent, or never had a deadline: there is nothing to begin again.
                return Span {
                    word,
                    cap: NEVER,
                    own,
                };
            }
            // Without idleness the word is the cap.
            let cap = cap.map_or(word, |cap| cap.load(Ordering::Relaxed));
            rules.renewed(own, cap, time.now())
        })
        .is_some()
    }

    /// Before a live entry's value is replaced: gives its word the deadline that the replacement
    /// will have (P5), which is `explicit` or else the one it has. `None` when it turned out to be
    /// over; it is unlinked then.
    pub(crate) fn settle_span(&mut self, place: Place<'s>, explicit: Option<Span>) -> Option<Span> {
        let (rules, own) = (self.rules, self.state.lifetimes.get(place.slot.id()));
        let (time, cap) = (self.time, self.shard.slab.cap(place.slot));
        if explicit.is_none() && rules.idle == 0 {
            // The deadline stays: only "not over" has to be made sure of.
            return match self.settle(&place) {
                Found::Live(word) => Some(Span {
                    word,
                    cap: word,
                    own,
                }),
                over => {
                    self.unlink_expired(place, over, Path::Write);
                    None
                }
            };
        }
        let mut chosen = None;
        let word = self.change_span(place, |word| {
            let span = explicit.unwrap_or_else(|| {
                let cap = cap.map_or(word, |cap| cap.load(Ordering::Relaxed));
                rules.kept(word, cap, own, || time.now())
            });
            chosen = Some(span);
            span
        })?;
        chosen.map(|span| Span { word, ..span })
    }

    /// Ends a replacement whose predecessor was found due between its settling and its exchange.
    pub(crate) fn end_replacement(&mut self, new: SlotRef<'s>) {
        if let Some(place) = self.find_slot(new.id()) {
            let word = self.shard.slab.entry(new).word.retire();
            let found = if word == DEAD {
                Found::Dead
            } else {
                Found::Expired(word)
            };
            self.unlink_expired(place, found, Path::Write);
        }
    }

    /// Before an entry is ended because of a judgement on a copy of its counter: closes the counter
    /// at that value. False if it has another value by now (or is closed): judge again.
    pub(crate) fn close_at(&self, place: &Place<'_>, judged: Option<i64>) -> bool {
        match (
            as_counter(self.shard.slab.entry(place.slot).value()),
            judged,
        ) {
            (Some(counter), Some(value)) => matches!(counter.close_if(value), Step::Done(_)),
            _ => true,
        }
    }

    /// Whether the shard has as many slots as it can have, and none is free.
    pub(crate) fn is_full(&self) -> bool {
        self.state.slab.is_full()
    }

    /// What the clock said when the call began, if it was asked then; else what it says.
    pub(crate) fn began(&mut self) -> u64 {
        self.time.began()
    }

    /// The slots of the oldest entries that carry a tag, `most` of them.
    pub(crate) fn tagged(&self, tag: u64, most: usize) -> Vec<u32> {
        let groups = self.state.groups.iter();
        groups
            .flat_map(|groups| groups.oldest(tag))
            .take(most)
            .collect()
    }

    /// Linked entries.
    pub(crate) fn linked(&self) -> usize {
        self.state.slab.linked_count()
    }
}
