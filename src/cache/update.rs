//! Writes that depend on what is there: atomic for their key.

use std::borrow::ToOwned;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::Cache;
use super::core::{Address, judge};
use super::room::Written;
use super::write::{IfLive, NotStored};
use crate::RemovalCause;
use crate::counter::{self, Counter, Step, as_counter};
use crate::entry::word::DEAD;
use crate::error::{CounterError, Refused, RefusedReason};
use crate::index::Glance;
use crate::lifetime::Lifetime;
use crate::reclaim::pin;
use crate::shard::{Arrival, Lack};
use crate::slab::SlotRef;
use crate::stats::Path;

/// What the closure of [`Cache::compute`] wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<V> {
    /// Leave things as they are.
    Keep,
    /// Store this value. An entry that is there keeps its deadline; a new one gets the cache's own
    /// lifetime.
    Put(V),
    /// Store this value with this lifetime. One that is over at once removes the entry.
    PutWithTtl(V, Lifetime),
    /// Remove the entry.
    Remove,
}

/// What [`Cache::compute`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// Nothing: the closure said [`Op::Keep`], or there was nothing to remove, or the cache cannot
    /// take the value.
    Unchanged,
    /// Stored a value under a key that had none.
    Inserted,
    /// Stored a value in the place of another.
    Replaced,
    /// Removed the entry.
    Removed,
}

/// The step did not happen because the entry changed meanwhile.
struct Again;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Changes the entry of a key depending on its value, as one atomic step.
    ///
    /// Optimistic: `decide` runs without any lock, and runs again if the entry changed before its
    /// decision could be carried out. It gets `None` if there is no live entry, and for a
    /// [`Counter`] a private copy.
    ///
    /// # Cost
    /// Per try a lookup, and for a decision other than [`Op::Keep`] one hold of the shard's lock
    /// (for [`Op::Put`] on a counter one compare-and-swap instead).
    ///
    /// ```
    /// use ebbtide::{Cache, Computed, Op};
    ///
    /// let cache: Cache<&str, u32> = Cache::unbounded();
    /// let double = |value: Option<&u32>| match value {
    ///     Some(n) if *n > 100 => Op::Remove,
    ///     Some(n) => Op::Put(n * 2),
    ///     None => Op::Put(60),
    /// };
    /// assert_eq!(cache.compute("a", double), Computed::Inserted);
    /// assert_eq!(cache.compute("a", double), Computed::Replaced);
    /// assert_eq!(cache.compute("a", double), Computed::Removed);
    /// ```
    pub fn compute(&self, key: K, mut decide: impl FnMut(Option<&V>) -> Op<V>) -> Computed {
        self.compute_with(key, |_, value| decide(value))
    }

    /// [`compute`](Self::compute) with a look at the key.
    pub(super) fn compute_with(
        &self,
        key: K,
        mut decide: impl FnMut(&K, Option<&V>) -> Op<V>,
    ) -> Computed {
        let core = &*self.core;
        let address = core.address(&key);
        let mut key = key;
        loop {
            let guard = pin();
            let shard = core.shard(address);
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| *k == key);
            let Some(slot) = look.live() else {
                let op = decide(&key, None);
                drop(guard);
                match self.compute_absent(key, op) {
                    Ok(done) => return done,
                    Err(back) => key = back,
                }
                continue;
            };
            let (op, number) = judge(shard.entry(slot).value(), |value| decide(&key, Some(value)));
            let (value, lifetime) = match op {
                Op::Keep => return Computed::Unchanged,
                Op::Remove => match self.remove_slot(address, slot, number) {
                    Ok(()) => return Computed::Removed,
                    Err(Again) => continue,
                },
                Op::Put(value) => (value, None),
                Op::PutWithTtl(value, lifetime) => (value, Some(lifetime)),
            };
            match self.replace_slot(address, slot, key, value, lifetime, number) {
                Ok(done) => return done,
                Err(NotStored::Refused(_)) => return Computed::Unchanged,
                Err(NotStored::Again(back, _)) => key = back,
            }
        }
    }

    /// Carries out a decision about a key without a live entry; gives the key back if it has one
    /// by now.
    fn compute_absent(&self, key: K, op: Op<V>) -> Result<Computed, K> {
        let rules = &self.core.rules;
        let (value, lifetime) = match op {
            Op::Keep | Op::Remove => return Ok(Computed::Unchanged),
            Op::Put(value) => (value, None),
            Op::PutWithTtl(value, lifetime) => (value, Some(lifetime)),
        };
        let mut time = rules.time.reading();
        let Some(span) = rules.span(&key, &value, lifetime, &mut time) else {
            return Ok(Computed::Unchanged);
        };
        match self.link(key, value, span, time, IfLive::Leave, None) {
            Ok(()) => Ok(Computed::Inserted),
            Err(NotStored::Again(key, _)) => Err(key),
            Err(NotStored::Refused(_)) => Ok(Computed::Unchanged),
        }
    }

    /// Removes the entry in a slot that was judged, if it is still that one and alive.
    fn remove_slot(
        &self,
        address: Address,
        slot: SlotRef<'_>,
        number: Option<i64>,
    ) -> Result<(), Again> {
        let core = &*self.core;
        let guard = pin();
        let mut hold = core.hold(address.shard, &guard);
        let key = core.shard(address).entry(slot).key();
        hold.overtake(address.hash, |k| k == key);
        let place = hold
            .find_slot(slot.id())
            .filter(|place| hold.close_at(place, number));
        let removed =
            place.is_some_and(|place| hold.end(place, RemovalCause::Explicit, Path::Write));
        let released = hold.release();
        drop(guard);
        core.finish_write(address.shard, released, Written::NOTHING);
        if removed { Ok(()) } else { Err(Again) }
    }

    /// Puts a value in the place of the entry in a slot, if it is still that one and alive. Without a
    /// `lifetime` the deadline stays.
    ///
    /// The caller's pin, under which it found the slot, is still held: no other entry can have the
    /// slot.
    fn replace_slot(
        &self,
        address: Address,
        slot: SlotRef<'_>,
        key: K,
        value: V,
        lifetime: Option<Lifetime>,
        number: Option<i64>,
    ) -> Result<Computed, NotStored<K, V>> {
        let core = &*self.core;
        let rules = &core.rules;
        let shard = core.shard(address);
        if lifetime.is_none()
            && let Some(counter) = as_counter(shard.entry(slot).value())
            && let Some(new) = as_counter(&value)
        {
            // A counter changes in place, from the number that was judged.
            let judged = number.expect("a counter was judged by a copy");
            match counter.set_if(judged, new.get()) {
                Step::Done(_) => {
                    core.used(shard, slot);
                    return Ok(Computed::Replaced);
                }
                // Somebody is about to unlink it under the lock: waits for that, once.
                Step::Closed => core.pass_lock(address.shard),
                Step::Changed | Step::Overflow => {}
            }
            return Err(NotStored::Again(key, value));
        }
        let mut time = rules.time.reading();
        let explicit = match lifetime {
            None => None,
            Some(lifetime) => match rules.explicit_span(lifetime, &mut time) {
                Some(span) => Some(span),
                None => {
                    return match self.remove_slot(address, slot, number) {
                        Ok(()) => Ok(Computed::Removed),
                        Err(Again) => Err(NotStored::Again(key, value)),
                    };
                }
            },
        };
        let weight = rules.bound.weigh(&key, &value);
        if !rules.bound.fits(weight) {
            return Err(NotStored::Refused(Refused::because(
                RefusedReason::TooHeavy,
                (key, value),
            )));
        }
        let (soft, tags) = (rules.soft(&mut time), rules.tags(&key, &value));
        let guard = pin();
        let mut hold = core.hold_at(address.shard, time, &guard);
        hold.overtake(address.hash, |k| *k == key);
        let mut arrival = Arrival {
            hash: address.hash,
            pair: Some((key, value)),
            span: crate::rules::FOREVER,
            soft,
            tags,
            weight,
        };
        let mut written = Written::NOTHING;
        // Asked first, so that a counter is not closed nor a deadline changed for nothing.
        let mut lack = hold.is_full().then_some(Lack::Slot);
        let place = hold.find_slot(slot.id()).filter(|place| {
            if lack.is_none() && !hold.reserve(place, weight) {
                lack = Some(Lack::Room);
            }
            lack.is_none()
        });
        let old = hold.weight_of(slot);
        let done = match place {
            None => false,
            Some(place) if !hold.close_at(&place, number) => {
                hold.cancel(&place, weight);
                false
            }
            // The old word first gets the new deadline (refused when due), then the replacement is
            // published with that same deadline (P5).
            Some(place) => match hold.settle_span(place, explicit) {
                None => {
                    hold.cancel(&place, weight);
                    false
                }
                Some(span) => {
                    arrival.span = span;
                    match hold.replace(&place, &mut arrival, RemovalCause::Replaced, 0) {
                        Ok((new, was)) => {
                            written = Written::instead(new, weight, old);
                            if was == DEAD {
                                // Somebody found the old entry due between the two steps and may have
                                // said so: then its successor, with the same deadline, is over too.
                                hold.end_replacement(new);
                            }
                            true
                        }
                        Err(_) => {
                            hold.cancel(&place, weight);
                            false
                        }
                    }
                }
            },
        };
        core.make_room_at_once(&mut hold, &mut written);
        let released = hold.release();
        drop(guard);
        core.finish_write(address.shard, released, written);
        if done {
            return Ok(Computed::Replaced);
        }
        let (key, value) = arrival.into_pair();
        if let Some(lack) = lack
            && let Err(reason) = self.after_rejection(address.shard, time, lack)
        {
            let refused = Refused::because(reason, (key, value));
            return Err(NotStored::Refused(refused));
        }
        Err(NotStored::Again(key, value))
    }

    /// Stores `new` if the key's live entry equals `expected`, as one atomic step. The entry keeps
    /// its deadline.
    ///
    /// # Errors
    /// Gives `new` back if there is no live entry or it does not equal `expected` (or if the cache
    /// cannot take it: see [`RefusedReason`]).
    ///
    /// # Cost
    /// A comparison without any lock, then as [`insert`](Self::insert); for a [`Counter`] one
    /// compare-and-swap and no lock.
    pub fn compare_and_swap(&self, key: K, expected: &V, new: V) -> Result<(), V>
    where
        V: PartialEq,
    {
        let core = &*self.core;
        let address = core.address(&key);
        let (mut key, mut new) = (key, new);
        loop {
            let guard = pin();
            let shard = core.shard(address);
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| *k == key);
            let Some(slot) = look.live() else {
                return Err(new);
            };
            let (equal, number) = judge(shard.entry(slot).value(), |value| value == expected);
            if !equal {
                return Err(new);
            }
            match self.replace_slot(address, slot, key, new, None, number) {
                Ok(_) => return Ok(()),
                Err(NotStored::Again(back, value)) => (key, new) = (back, value),
                Err(NotStored::Refused(refused)) => return Err(refused.value),
            }
        }
    }
}

impl<K, S> Cache<K, Counter, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Adds `delta` to a key's counter, as one atomic step, and returns the sum. A key without a
    /// live entry gets a counter at `delta`, with the cache's own lifetime; an entry that is there
    /// keeps its deadline, except that with a time to idle an increment counts as a use.
    ///
    /// In a cache that holds nothing (`max_entries(0)`), and for a new counter whose lifetime is over
    /// at once, `delta` is returned and nothing is kept: do not build a limiter on such a cache. The
    /// key type must be what the looked-up form's `to_owned` makes (with `&str` keys pass `&"name"`).
    ///
    /// # Errors
    /// [`CounterError::Overflow`] if the sum would leave −2^62 … 2^62 − 1; the counter stays.
    /// [`CounterError::Full`] if the cache cannot take a new counter: see [`RefusedReason`].
    ///
    /// # Cost
    /// A lookup and one compare-and-swap on the entry; a lock only to create a counter.
    pub fn increment<Q>(&self, key: &Q, delta: i64) -> Result<i64, CounterError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.add(key, delta, None)
    }

    /// As [`increment`](Self::increment); a counter that this call creates gets `lifetime`. The
    /// window of a rate limiter: the first event begins it, the others do not prolong it.
    ///
    /// # Errors
    /// As for [`increment`](Self::increment).
    pub fn increment_with_ttl<Q>(
        &self,
        key: &Q,
        delta: i64,
        lifetime: impl Into<Lifetime>,
    ) -> Result<i64, CounterError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.add(key, delta, Some(lifetime.into()))
    }

    fn add<Q>(&self, key: &Q, delta: i64, lifetime: Option<Lifetime>) -> Result<i64, CounterError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        let shard = core.shard(address);
        {
            // All that nearly every call needs.
            let guard = pin();
            let is_key = |k: &K| key.equivalent(k);
            if let Glance::Found((slot, entry)) =
                shard.glance(&core.rules, address.hash, &guard, is_key)
                && let Step::Done(sum) = entry.value().add(delta)
            {
                core.used(shard, slot);
                return Ok(sum);
            }
        }
        self.add_carefully(address, key, delta, lifetime)
    }

    /// An increment for which a glance is not enough.
    #[inline(never)]
    fn add_carefully<Q>(
        &self,
        address: Address,
        key: &Q,
        delta: i64,
        lifetime: Option<Lifetime>,
    ) -> Result<i64, CounterError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let core = &*self.core;
        let shard = core.shard(address);
        loop {
            let guard = pin();
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| key.equivalent(k));
            if let Some(slot) = look.live() {
                match shard.entry(slot).value().add(delta) {
                    Step::Done(sum) => {
                        core.used(shard, slot);
                        return Ok(sum);
                    }
                    Step::Overflow => return Err(CounterError::Overflow),
                    Step::Closed | Step::Changed => core.pass_lock(address.shard),
                }
                continue;
            }
            drop(guard);
            let counter = counter::fresh(delta)?;
            let key = key.to_owned();
            let mut time = core.rules.time.reading();
            let span = core.rules.span(&key, &counter, lifetime, &mut time);
            match span.filter(|_| core.rules.bound.fits(0)) {
                // Over as soon as it was counted.
                None => return Ok(delta),
                Some(span) => match self.link(key, counter, span, time, IfLive::Leave, None) {
                    Ok(()) => return Ok(delta),
                    Err(NotStored::Again(..)) => {}
                    Err(NotStored::Refused(_)) => return Err(CounterError::Full),
                },
            }
        }
    }
}
