//! Lifetimes of entries that are there already.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;

use super::Cache;
use super::room::Written;
use crate::RemovalCause;
use crate::clock::Reading;
use crate::entry::word::NEVER;
use crate::index::Place;
use crate::lifetime::Lifetime;
use crate::reclaim::pin;
use crate::rules::Span;
use crate::shard::{Hold, Look};
use crate::stats::Path;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// How long an entry has still to live: `None` if there is none, [`Lifetime::Never`] if it has
    /// no deadline, else [`Lifetime::For`] what remains. Takes no lock; not a use.
    pub fn ttl<Q>(&self, key: &Q) -> Option<Lifetime>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let shard = core.shard(address);
        loop {
            let look = shard.lookup(&core.rules, address.hash, &guard, |k| key.equivalent(k));
            if let Look::Live(_, word) = look
                && word != NEVER
            {
                let left = word.saturating_sub(core.rules.time.now());
                if left == 0 {
                    // The clock has passed the deadline since the lookup; the next one makes that
                    // final before anybody is told (P1).
                    continue;
                }
                core.answered(address.shard, look, &guard);
                return Some(Lifetime::For(Duration::from_nanos(left)));
            }
            core.answered(address.shard, look, &guard);
            return look.live().map(|_| Lifetime::Never);
        }
    }

    /// Gives a live entry a new lifetime from now on; whether there was one.
    ///
    /// A lifetime that is over at once removes the entry (as by [`invalidate`](Self::invalidate)).
    /// The new lifetime is the entry's own from here on: [`touch`](Self::touch) repeats it. Locks
    /// the shard for a few steps.
    pub fn expire<Q>(&self, key: &Q, lifetime: impl Into<Lifetime>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut time = self.core.rules.time.reading();
        let span = self.core.rules.explicit_span(lifetime.into(), &mut time);
        self.on_entry_at(key, time, |hold, place| match span {
            None => {
                hold.overtake(place.hash, |k| key.equivalent(k));
                hold.end(place, RemovalCause::Explicit, Path::Write)
            }
            Some(span) => hold.change_span(place, |_| span).is_some(),
        })
    }

    /// Takes a live entry's deadline away, for good (time to idle included); whether there was an
    /// entry. Locks the shard for a few steps.
    pub fn persist<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let span = Span {
            word: NEVER,
            cap: NEVER,
            own: NEVER,
        };
        self.on_entry(key, |hold, place| {
            hold.change_span(place, |_| span).is_some()
        })
    }

    /// Begins a live entry's own lifetime again: the one it was given last, or else the cache's.
    /// Whether there was an entry.
    ///
    /// An entry that lives until a moment keeps that moment (and an end that the time to live set
    /// to it when it was written). Locks the shard for a few steps. This
    /// is the exact form of sliding: [`time_to_idle`](crate::Builder::time_to_idle) needs no lock
    /// but skips renewals that gain little.
    pub fn touch<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.on_entry(key, |hold, place| hold.touch(place))
    }

    /// Runs `f` on the place of a key's entry, dead or alive, under the lock; false if there is
    /// none.
    fn on_entry<Q>(
        &self,
        key: &Q,
        f: impl for<'s> FnOnce(&mut Hold<'s, K, V>, Place<'s>) -> bool,
    ) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.on_entry_at(key, self.core.rules.time.reading(), f)
    }

    fn on_entry_at<Q>(
        &self,
        key: &Q,
        time: Reading<'_>,
        f: impl for<'s> FnOnce(&mut Hold<'s, K, V>, Place<'s>) -> bool,
    ) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let mut hold = core.hold_at(address.shard, time, &guard);
        let answer = match hold.find(address.hash, |k| key.equivalent(k)) {
            Some(place) => f(&mut hold, place),
            None => false,
        };
        let released = hold.release();
        drop(guard);
        core.finish_write(address.shard, released, Written::NOTHING);
        answer
    }
}
