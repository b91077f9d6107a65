//! What snapshots need of the cache: every entry with its span, and entries with a span given.

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use super::Cache;
use super::bulk::Walk;
use super::core::Core;
use super::write::{IfLive, NotStored};
use crate::clock::Reading;
use crate::reclaim::{Guard, pin};
use crate::rules::Span;
use crate::shard::Shard;
use crate::slab::SlotRef;

/// A visit lets go of its pin, between two entries, after this long: what has left the cache
/// meanwhile waits for it. (A walk of a million small entries pins some thousand times.)
const LONGEST_PIN: Duration = Duration::from_millis(1);

/// Sees every entry.
pub(crate) trait Visitor<K, V> {
    type Error;

    /// Called within a pin, without a lock. True asks for a [`pause`](Self::pause).
    fn entry(&mut self, key: &K, value: &V, span: Span) -> Result<bool, Self::Error>;

    /// Called without pin or lock, after some entries.
    fn pause(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// What became of an entry that was to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Inserted,
    /// The key has a live entry, which stays.
    Kept,
    Refused,
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The live entry that a noted slot stands for, with its span of one moment.
    fn current_span<'g>(
        &self,
        shard: &Shard<K, V>,
        slot: SlotRef<'g>,
        guard: &'g Guard,
    ) -> Option<(SlotRef<'g>, Span)> {
        let mut slot = slot;
        loop {
            slot = self.current(shard, slot, guard)?;
            let span = shard.span(slot);
            if !self.rules.time.is_due(span.word) {
                return Some((slot, span));
            }
            // It has ended since: look its key up.
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Shows every live entry to `visitor`; one that is there throughout exactly once.
    ///
    /// The entries of a stretch go by ascending hash, so that the walk can let go of its pin after any
    /// of them and note the rest again.
    pub(crate) fn visit<T: Visitor<K, V>>(&self, visitor: &mut T) -> Result<(), T::Error> {
        let core = &*self.core;
        let mut walk = Walk::START;
        while let Some(shard) = core.shards.get(walk.shard) {
            let guard = pin();
            let begin = Instant::now();
            let mut noted = Vec::new();
            let next = shard.note_hashes(walk.hash, &guard, &mut noted);
            noted.sort_unstable_by_key(|&(hash, _)| hash);
            let mut rest = noted.iter().peekable();
            let mut paused = None;
            let mut wanted = false;
            while let Some(&(hash, slot)) = rest.next() {
                if let Some((slot, span)) = core.current_span(shard, slot, &guard) {
                    let entry = shard.entry(slot);
                    wanted |= visitor.entry(entry.key(), entry.value(), span)?;
                }
                // (Never between two of one hash: the rest is noted again from a hash on.)
                paused = rest.peek().map(|&&(next, _)| next);
                if paused.is_some_and(|next| next != hash)
                    && (wanted || begin.elapsed() >= LONGEST_PIN)
                {
                    break;
                }
            }
            walk = match paused.or(next) {
                Some(hash) => Walk { hash, ..walk },
                None => Walk {
                    shard: walk.shard + 1,
                    hash: 0,
                    ..walk
                },
            };
            drop(guard);
            visitor.pause()?;
        }
        Ok(())
    }

    /// Links an entry with this span, in the place of a live one only if `replace` says so.
    pub(crate) fn store_span(
        &self,
        key: K,
        value: V,
        span: Span,
        time: Reading<'_>,
        replace: bool,
    ) -> Stored {
        let if_live = if replace {
            IfLive::Replace
        } else {
            IfLive::Leave
        };
        match self.link(key, value, span, time, if_live, None) {
            Ok(()) => Stored::Inserted,
            Err(NotStored::Again(..)) => Stored::Kept,
            Err(NotStored::Refused(_)) => Stored::Refused,
        }
    }
}
