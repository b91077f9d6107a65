//! Writes: one shard's lock, a bounded number of steps.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use equivalent::Equivalent;

use super::Cache;
use super::core::{Address, judge};
use super::room::Written;
use crate::RemovalCause;
use crate::clock::Reading;
use crate::entry::word::Found;
use crate::error::{Refused, RefusedReason};
use crate::index::Place;
use crate::lifetime::Lifetime;
use crate::load::Flight;
use crate::reclaim::pin;
use crate::rules::Span;
use crate::shard::{Arrival, Hold, Lack, Look};
use crate::stats::Path;

/// Why an entry was not stored. (It comes back, also so that it is dropped without the lock.)
pub(super) enum NotStored<K, V> {
    /// The key's entry is another one by now: look again.
    Again(K, V),
    /// The cache cannot take it.
    Refused(Refused<K, V>),
}

/// What becomes of a key's live entry when another is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfLive {
    Replace,
    Leave,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Stores a value with the cache's own lifetime, in the place of whatever the key had.
    ///
    /// The old value is not returned, because a reader may still be looking at it; it is dropped
    /// by the reaper. An entry that the cache cannot take ([`RefusedReason`]) is not stored, and what
    /// the key had is removed: an old value is never read after a newer one was given. A listener
    /// hears of it as [`Evicted`](RemovalCause::Evicted).
    ///
    /// # Cost
    /// One shard's lock for a bounded number of steps; a growing shard moves at most 672 slot ids
    /// of 4 bytes (and copies its directory, 8 bytes for some 450 entries, when that doubles). At
    /// the bound, one eviction for each entry added (with weights, as many as make up for the weight
    /// added), and at most two more, should another thread have had to give up.
    pub fn insert(&self, key: K, value: V) {
        self.insert_or_report(key, value, None);
    }

    /// Stores a value with a lifetime of its own, which replaces the cache's time to live and
    /// expiry policy (a time to idle still caps it).
    ///
    /// A lifetime that is over at once stores nothing and removes what was there. Cost as
    /// [`insert`](Self::insert).
    pub fn insert_with_ttl(&self, key: K, value: V, lifetime: impl Into<Lifetime>) {
        self.insert_or_report(key, value, Some(lifetime.into()));
    }

    /// As [`insert`](Self::insert), but gives key and value back if the cache cannot take them.
    ///
    /// # Errors
    /// [`Refused`] with its [reason](RefusedReason): the entry weighs more than the whole bound, the cache
    /// is full and does not evict, or its shard has 2^30 entries. What was there before stays.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), Refused<K, V>> {
        self.put(key, value, None)
    }

    fn insert_or_report(&self, key: K, value: V, lifetime: Option<Lifetime>) {
        let address = self.core.address(&key);
        self.insert_at(address, key, value, lifetime);
    }

    /// [`insert`](Self::insert) of a key that has been hashed.
    pub(super) fn insert_at(&self, address: Address, key: K, value: V, lifetime: Option<Lifetime>) {
        if let Err(Refused { key, value, .. }) = self.put_at(address, key, value, lifetime) {
            self.end(&key, RemovalCause::Replaced, |_| ());
            self.core.report_refused(key, value);
        }
    }

    fn put(&self, key: K, value: V, lifetime: Option<Lifetime>) -> Result<(), Refused<K, V>> {
        let address = self.core.address(&key);
        self.put_at(address, key, value, lifetime)
    }

    fn put_at(
        &self,
        Address { shard, hash }: Address,
        key: K,
        value: V,
        lifetime: Option<Lifetime>,
    ) -> Result<(), Refused<K, V>> {
        let core = &*self.core;
        let weight = core.rules.bound.weigh(&key, &value);
        if !core.rules.bound.fits(weight) {
            return Err(Refused::because(RefusedReason::TooHeavy, (key, value)));
        }
        let mut time = core.rules.time.reading();
        let Some(span) = core.rules.span(&key, &value, lifetime, &mut time) else {
            self.invalidate(&key);
            if let Some(feed) = &core.rules.feed {
                // A value all the same, for those who count them.
                feed.push(&key, RemovalCause::Expired);
            }
            return Ok(());
        };
        let mut arrival = Arrival {
            hash,
            tags: core.rules.tags(&key, &value),
            pair: Some((key, value)),
            span,
            soft: core.rules.soft(&mut time),
            weight,
        };
        match self.store(shard, &mut arrival, time, IfLive::Replace, None) {
            Ok(_) => Ok(()),
            Err(reason) => Err(Refused::because(reason, arrival.into_pair())),
        }
    }

    /// Stores an entry, in the place of whatever the key had; false, and it was not stored, if the key
    /// has a live entry that is to stay, or if it was loaded and the load has been overtaken.
    fn store(
        &self,
        shard: usize,
        arrival: &mut Arrival<K, V>,
        time: Reading<'_>,
        if_live: IfLive,
        loaded: Option<&Flight<K, V>>,
    ) -> Result<bool, RefusedReason> {
        let core = &*self.core;
        let (hash, weight) = (arrival.hash, arrival.weight);
        loop {
            let guard = pin();
            // The line that the lookup will wait for, while the lock is being taken.
            core.shards[shard].prefetch_index(hash, &guard);
            let mut hold = core.hold_at(shard, time, &guard);
            let place = hold.find(hash, |k| k == arrival.key());
            let found = place.as_ref().map(|place| match if_live {
                IfLive::Replace => hold.settle_doomed(place),
                IfLive::Leave => hold.settle(place),
            });
            let stays = matches!(found, Some(Found::Live(_))) && if_live == IfLive::Leave;
            if stays || loaded.is_some_and(Flight::is_overtaken) {
                let released = hold.release();
                core.finish_write(shard, released, Written::NOTHING);
                return Ok(false);
            }
            if loaded.is_none() {
                hold.overtake(hash, |k| k == arrival.key());
            }
            let outcome = match (place, found) {
                (Some(place), Some(found)) => Self::swap(&mut hold, &place, arrival, found),
                _ => hold.link(arrival).map(|slot| Written::new(slot, weight)),
            };
            let (mut written, lack) = match outcome {
                Ok(written) => (written, None),
                Err(lack) => (Written::NOTHING, Some(lack)),
            };
            core.make_room_at_once(&mut hold, &mut written);
            let released = hold.release();
            drop(guard);
            core.finish_write(shard, released, written);
            match lack {
                None => return Ok(true),
                Some(lack) => self.after_rejection(shard, time, lack)?,
            }
        }
    }

    /// After an entry was not linked: whether there is room for it now, or why not.
    #[cold]
    pub(super) fn after_rejection(
        &self,
        shard: usize,
        time: Reading<'_>,
        lack: Lack,
    ) -> Result<(), RefusedReason> {
        match lack {
            Lack::Room if self.core.make_room_before(shard, time) => Ok(()),
            Lack::Room => Err(RefusedReason::Full),
            Lack::Slot => Err(RefusedReason::NoSlot),
        }
    }

    /// Stores a value only if the key has no live entry; whether it did. (Also false if the cache cannot
    /// take the entry: see [`RefusedReason`].)
    ///
    /// Of several threads, one does. Takes no lock if it finds a live entry; else as
    /// [`insert`](Self::insert).
    pub fn insert_if_absent(&self, key: K, value: V) -> bool {
        let core = &*self.core;
        let address = core.address(&key);
        {
            let guard = pin();
            let shard = core.shard(address);
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| *k == key);
            if let Look::Live(..) = look {
                return false;
            }
        }
        let mut time = core.rules.time.reading();
        let Some(span) = core.rules.span(&key, &value, None, &mut time) else {
            return false;
        };
        self.link(key, value, span, time, IfLive::Leave, None)
            .is_ok()
    }

    /// Links an entry, unless the key has a live one that is to stay, or it was loaded and the load has
    /// been overtaken.
    pub(super) fn link(
        &self,
        key: K,
        value: V,
        span: Span,
        mut time: Reading<'_>,
        if_live: IfLive,
        loaded: Option<&Flight<K, V>>,
    ) -> Result<(), NotStored<K, V>> {
        let core = &*self.core;
        let weight = core.rules.bound.weigh(&key, &value);
        if !core.rules.bound.fits(weight) {
            return Err(NotStored::Refused(Refused::because(
                RefusedReason::TooHeavy,
                (key, value),
            )));
        }
        let Address { shard, hash } = core.address(&key);
        let mut arrival = Arrival {
            hash,
            tags: core.rules.tags(&key, &value),
            pair: Some((key, value)),
            span,
            soft: core.rules.soft(&mut time),
            weight,
        };
        match self.store(shard, &mut arrival, time, if_live, loaded) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let (key, value) = arrival.into_pair();
                Err(NotStored::Again(key, value))
            }
            Err(reason) => {
                let refused = Refused::because(reason, arrival.into_pair());
                Err(NotStored::Refused(refused))
            }
        }
    }

    /// Puts a new entry in the place of an old one that was found to be so, and counts its weight.
    #[inline]
    fn swap<'s>(
        hold: &mut Hold<'s, K, V>,
        place: &Place<'s>,
        arrival: &mut Arrival<K, V>,
        found: Found,
    ) -> Result<Written, Lack> {
        let (cause, lag) = match found {
            Found::Live(_) => (RemovalCause::Replaced, 0),
            over => (RemovalCause::Expired, hold.lag_of(place.slot, over)),
        };
        let (old, new) = (hold.weight_of(place.slot), arrival.weight);
        if !hold.reserve(place, new) {
            return Err(Lack::Room);
        }
        match hold.replace(place, arrival, cause, lag) {
            Ok((slot, _)) => Ok(Written::instead(slot, new, old)),
            Err(lack) => {
                hold.cancel(place, new);
                Err(lack)
            }
        }
    }

    /// Removes an entry and returns a clone of its value, if it was alive.
    ///
    /// The clone is made without the lock; the value itself is dropped by the reaper.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.remove_with(key, V::clone)
    }

    /// Removes an entry and runs `f` on its value, if it was alive, without the lock.
    pub fn remove_with<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.end(key, RemovalCause::Explicit, f)
    }

    /// Ends a key's entry, for this cause if it was alive; then `f` runs on its value.
    pub(crate) fn end<Q, R>(
        &self,
        key: &Q,
        cause: RemovalCause,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let mut hold = core.hold(address.shard, &guard);
        hold.overtake(address.hash, |k| key.equivalent(k));
        let place = hold.find(address.hash, |k| key.equivalent(k));
        let ended = place.is_some_and(|place| hold.end(place, cause, Path::Write));
        let released = hold.release();
        // Without a listener the slot is in limbo already; the pin keeps it readable. A panic of
        // the user's waits until the books are closed.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let place = place.filter(|_| ended)?;
            Some(f(core.shard(address).entry(place.slot).value()))
        }));
        drop(guard);
        core.finish_write(address.shard, released, Written::NOTHING);
        answer.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Removes an entry; whether it was alive.
    pub fn invalidate<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.remove_with(key, |_| ()).is_some()
    }

    /// Removes a live entry if `judge` says so of its value; whether it did.
    ///
    /// `judge` runs without any lock, and again if the entry changed meanwhile; what it judged is
    /// what is removed.
    pub fn remove_if<Q>(&self, key: &Q, mut judge_value: impl FnMut(&V) -> bool) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        loop {
            let guard = pin();
            let shard = core.shard(address);
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| key.equivalent(k));
            let Some(slot) = look.live() else {
                return false;
            };
            let (doomed, number) = judge(shard.entry(slot).value(), &mut judge_value);
            if !doomed {
                return false;
            }
            let mut hold = core.hold(address.shard, &guard);
            hold.overtake(address.hash, |k| key.equivalent(k));
            let place = hold
                .find_slot(slot.id())
                .filter(|place| hold.close_at(place, number));
            let removed = place.map(|place| hold.end(place, RemovalCause::Explicit, Path::Write));
            let released = hold.release();
            drop(guard);
            core.finish_write(address.shard, released, Written::NOTHING);
            if removed == Some(true) {
                return true;
            }
            // It was over, or another entry took its place: judge what is there now.
        }
    }
}
