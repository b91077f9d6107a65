//! Writes: one shard's lock, a bounded number of steps.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use equivalent::Equivalent;

use super::Cache;
use super::core::{Address, judge};
use crate::RemovalCause;
use crate::clock::Reading;
use crate::entry::word::Found;
use crate::error::Refused;
use crate::lifetime::Lifetime;
use crate::reclaim::pin;
use crate::rules::Span;
use crate::shard::{Arrival, Hold, Look};
use crate::slab::SlotRef;
use crate::stats::Path;

/// Why an entry was not stored. (It comes back, also so that it is dropped without the lock.)
pub(super) enum NotStored<K, V> {
    /// The key's entry is another one by now: look again.
    Again(K, V),
    /// The shard has no slot left.
    Full(K, V),
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
    /// by the reaper. In a cache with `max_entries(0)` nothing is stored.
    ///
    /// # Cost
    /// One shard's lock for a bounded number of steps; a growing shard moves at most 672 slot ids
    /// of 4 bytes (and copies its directory, 8 bytes for some 450 entries, when that doubles). At
    /// the bound, one eviction for each entry added.
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
    /// [`Refused`] in a cache with `max_entries(0)`, and when a shard has 2^30 entries (those that
    /// wait for their grace period among them). What was there before stays.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), Refused<K, V>> {
        self.put(key, value, None)
    }

    fn insert_or_report(&self, key: K, value: V, lifetime: Option<Lifetime>) {
        if let Err(Refused { key, value }) = self.put(key, value, lifetime) {
            self.core.report_refused(key, value);
        }
    }

    fn put(&self, key: K, value: V, lifetime: Option<Lifetime>) -> Result<(), Refused<K, V>> {
        let core = &*self.core;
        if core.rules.max_entries == 0 {
            return Err(Refused { key, value });
        }
        let Address { shard, hash } = core.address(&key);
        let mut time = core.rules.time.reading();
        let Some(span) = core.rules.span(&key, &value, lifetime, &mut time) else {
            self.invalidate(&key);
            return Ok(());
        };
        let guard = pin();
        // The line that the lookup will wait for, while the lock is being taken.
        core.shards[shard].prefetch_index(hash, &guard);
        let mut hold = core.hold_at(shard, time, &guard);
        let found = hold.find(hash, |k| *k == key);
        let arrival = Arrival {
            hash,
            key,
            value,
            span,
        };
        let written = match found {
            Some(place) => match hold.settle(&place) {
                Found::Live(_) => hold
                    .replace(place, arrival, RemovalCause::Replaced, 0)
                    .map(|(slot, _)| slot),
                over => Self::replace_expired(&mut hold, place, over, arrival),
            },
            None => hold.link(arrival),
        };
        let (written, refused) = match written {
            Ok(slot) => (Some(slot.id()), None),
            Err(Arrival { key, value, .. }) => (None, Some(Refused { key, value })),
        };
        let released = hold.release();
        drop(guard);
        core.finish_write(shard, released, written);
        refused.map_or(Ok(()), Err)
    }

    /// Stores a value only if the key has no live entry; whether it did.
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
        if core.rules.max_entries == 0 {
            return false;
        }
        let mut time = core.rules.time.reading();
        let Some(span) = core.rules.span(&key, &value, None, &mut time) else {
            return false;
        };
        self.link_if_absent(key, value, span, time).is_ok()
    }

    /// Links an entry unless the key has a live one.
    pub(super) fn link_if_absent(
        &self,
        key: K,
        value: V,
        span: Span,
        time: Reading<'_>,
    ) -> Result<(), NotStored<K, V>> {
        let core = &*self.core;
        let address = core.address(&key);
        let guard = pin();
        let mut hold = core.hold_at(address.shard, time, &guard);
        let found = hold.find(address.hash, |k| *k == key);
        let arrival = Arrival {
            hash: address.hash,
            key,
            value,
            span,
        };
        let full = |arrival: Arrival<K, V>| NotStored::Full(arrival.key, arrival.value);
        let linked = match found {
            Some(place) => match hold.settle(&place) {
                Found::Live(_) => Err(NotStored::Again(arrival.key, arrival.value)),
                over => Self::replace_expired(&mut hold, place, over, arrival).map_err(full),
            },
            None => hold.link(arrival).map_err(full),
        };
        let released = hold.release();
        let linked = linked.map(SlotRef::id);
        drop(guard);
        let written = linked.as_ref().ok().copied();
        core.finish_write(address.shard, released, written);
        linked.map(drop)
    }

    /// Puts a new entry in the place of one that is over.
    pub(super) fn replace_expired<'s>(
        hold: &mut Hold<'s, K, V>,
        place: crate::index::Place<'s>,
        over: Found,
        arrival: Arrival<K, V>,
    ) -> Result<SlotRef<'s>, Arrival<K, V>> {
        let lag = hold.lag_of(place.slot, over);
        hold.replace(place, arrival, RemovalCause::Expired, lag)
            .map(|(slot, _)| slot)
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
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let mut hold = core.hold(address.shard, &guard);
        let place = hold.find(address.hash, |k| key.equivalent(k));
        let ended = place.is_some_and(|place| hold.end(place, RemovalCause::Explicit, Path::Write));
        let released = hold.release();
        // Without a listener the slot is in limbo already; the pin keeps it readable. A panic of
        // the user's waits until the books are closed.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let place = place.filter(|_| ended)?;
            Some(f(core.shard(address).entry(place.slot).value()))
        }));
        drop(guard);
        core.finish_write(address.shard, released, None);
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
            let place = hold
                .find_slot(slot.id())
                .filter(|place| hold.close_at(place, number));
            let removed = place.map(|place| hold.end(place, RemovalCause::Explicit, Path::Write));
            let released = hold.release();
            drop(guard);
            core.finish_write(address.shard, released, None);
            if removed == Some(true) {
                return true;
            }
            // It was over, or another entry took its place: judge what is there now.
        }
    }
}
