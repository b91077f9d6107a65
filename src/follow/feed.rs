//! What left a primary, in order, for whoever follows it.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use crate::RemovalCause;
use crate::sync::{Arc, Mutex, Signal, without_fork};

/// A value that left a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal<K> {
    /// One more than that of the value before.
    pub sequence: u64,
    /// Its key.
    pub key: K,
    /// Why it left.
    pub cause: RemovalCause,
}

/// Removals were lost because nobody fetched them in time: who follows has to begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} removals were lost: the feed was full of what nobody had fetched",
            self.missed
        )
    }
}

impl Error for Lagged {}

/// The queue between the two ends. Every value that leaves takes a number, also if there is no room for
/// it: a gap in the numbers is how a loss is noticed.
pub(crate) struct Feed<K> {
    state: Mutex<State<K>>,
    arrived: Signal,
    capacity: usize,
    clone: fn(&K) -> K,
}

struct State<K> {
    queue: VecDeque<Removal<K>>,
    /// The next one's number.
    next: u64,
    /// Somebody fetches.
    taken: bool,
    /// The cache has ended.
    ended: bool,
}

impl<K> Feed<K> {
    pub(crate) fn new(capacity: usize) -> Self
    where
        K: Clone,
    {
        Feed {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                next: 0,
                taken: false,
                ended: false,
            }),
            arrived: Signal::default(),
            capacity,
            clone: K::clone,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// A value has left. Runs the key's `Clone`: call without locks. If that panics, the removal counts as lost.
    pub(crate) fn push(&self, key: &K, cause: RemovalCause) {
        if !self.locked(|state| state.taken) {
            return;
        }
        let mut number = Number {
            feed: self,
            removal: None,
        };
        number.removal = Some(((self.clone)(key), cause));
    }

    fn locked<R>(&self, f: impl FnOnce(&mut State<K>) -> R) -> R {
        without_fork(|| f(&mut self.state.lock()))
    }

    fn end(&self) {
        self.locked(|state| state.ended = true);
        self.arrived.raise();
    }
}

/// Takes a number when it is dropped, with or without what belongs to it.
struct Number<'f, K> {
    feed: &'f Feed<K>,
    removal: Option<(K, RemovalCause)>,
}

impl<K> Drop for Number<'_, K> {
    fn drop(&mut self) {
        let removal = self.removal.take();
        // What there is no room for is dropped without the lock.
        let _lost = self.feed.locked(|state| {
            let sequence = state.next;
            state.next += 1;
            match removal {
                // (Who fetched may have gone since it was asked for.)
                Some((key, cause)) if state.taken && state.queue.len() < self.feed.capacity => {
                    state.queue.push_back(Removal {
                        sequence,
                        key,
                        cause,
                    });
                    None
                }
                lost => lost,
            }
        });
        self.feed.arrived.raise();
    }
}

/// Ends a feed with its cache.
pub(crate) struct Source<K>(pub(crate) Arc<Feed<K>>);

impl<K> Drop for Source<K> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Every value that leaves a cache, from [`Cache::removals`](crate::Cache::removals) on: expired, removed,
/// replaced, evicted. Each once.
///
/// Those of one key come in no particular order (two threads may report at once), which does not matter to
/// a [`Follower`](crate::Follower): it counts them.
pub struct Removals<K> {
    feed: Arc<Feed<K>>,
    /// The number of the one to come.
    expected: u64,
}

impl<K> Removals<K> {
    /// The only consumer of a feed, unless there is one.
    pub(crate) fn take(feed: &Arc<Feed<K>>) -> Option<Self> {
        let expected = feed.locked(|state| {
            let taken = std::mem::replace(&mut state.taken, true);
            (!taken).then_some(state.next)
        })?;
        Some(Removals {
            feed: Arc::clone(feed),
            expected,
        })
    }

    /// The next removal, if there is one.
    ///
    /// # Errors
    /// [`Lagged`] in the place of removals that were lost; those after them follow.
    pub fn try_next(&mut self) -> Result<Option<Removal<K>>, Lagged> {
        let expected = self.expected;
        let next = self.feed.locked(|state| {
            let arrived = state.queue.front().map_or(state.next, |next| next.sequence);
            match arrived - expected {
                0 => Ok(state.queue.pop_front()),
                missed => Err(Lagged { missed }),
            }
        });
        self.expected += match &next {
            Ok(next) => u64::from(next.is_some()),
            Err(lagged) => lagged.missed,
        };
        next
    }

    /// The next removal; waits for it for up to `limit`, or until the cache has ended.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Removal<K>>, Lagged> {
        // (What the clock cannot count is a very long time.)
        let until = Instant::now().checked_add(limit);
        loop {
            // Before the look: what arrives after it ends the wait.
            let ended = self.has_ended();
            if let Some(removal) = self.try_next()? {
                return Ok(Some(removal));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if ended || left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.feed.arrived.wait(left);
        }
    }

    /// Whether the cache has ended: what can be fetched now is all there will be. (What was there when it ended
    /// is not reported.)
    pub fn has_ended(&self) -> bool {
        self.feed.locked(|state| state.ended)
    }
}

impl<K> Drop for Removals<K> {
    /// Nothing is kept any more; [`Cache::removals`](crate::Cache::removals) may be called again.
    fn drop(&mut self) {
        let _unfetched = self.feed.locked(|state| {
            state.taken = false;
            std::mem::take(&mut state.queue)
        });
    }
}

impl<K> fmt::Debug for Removals<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removals")
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RemovalCause::Explicit;

    fn rig(capacity: usize) -> (Arc<Feed<u64>>, Removals<u64>) {
        let feed = Arc::new(Feed::new(capacity));
        let removals = Removals::take(&feed).unwrap();
        (feed, removals)
    }

    fn key(next: Result<Option<Removal<u64>>, Lagged>) -> Option<(u64, u64)> {
        next.unwrap().map(|removal| (removal.sequence, removal.key))
    }

    #[test]
    fn numbers_have_no_gaps_unless_something_was_lost() {
        let (feed, mut removals) = rig(3);
        assert_eq!(removals.try_next(), Ok(None));
        (10..15).for_each(|key| feed.push(&key, Explicit));
        assert_eq!(key(removals.try_next()), Some((0, 10)));
        feed.push(&15, Explicit);
        assert_eq!(key(removals.try_next()), Some((1, 11)));
        assert_eq!(key(removals.try_next()), Some((2, 12)));
        assert_eq!(removals.try_next(), Err(Lagged { missed: 2 }));
        assert_eq!(key(removals.try_next()), Some((5, 15)));
        assert_eq!(removals.try_next(), Ok(None));
        (0..4).for_each(|key| feed.push(&key, Explicit));
        (6..9).for_each(|n| assert_eq!(key(removals.try_next()), Some((n, n - 6))));
        assert_eq!(removals.try_next(), Err(Lagged { missed: 1 }));
        assert_eq!(removals.try_next(), Ok(None));
    }

    #[test]
    fn one_fetches_and_nothing_is_kept_for_nobody() {
        let (feed, removals) = rig(3);
        assert!(Removals::take(&feed).is_none());
        feed.push(&1, Explicit);
        drop(removals);
        feed.push(&2, Explicit);
        let mut removals = Removals::take(&feed).unwrap();
        assert_eq!(removals.try_next(), Ok(None));
        feed.push(&3, Explicit);
        assert_eq!(key(removals.try_next()), Some((1, 3)));
    }

    /// A removal that is being cloned for one who fetches, while that one goes and another comes.
    #[test]
    fn what_was_on_its_way_to_one_does_not_confuse_the_next() {
        for comes_first in [false, true] {
            let (feed, removals) = rig(3);
            let late = Number {
                feed: &feed,
                removal: Some((1, Explicit)),
            };
            drop(removals);
            let mut late = Some(late);
            if !comes_first {
                drop(late.take());
            }
            let mut removals = Removals::take(&feed).unwrap();
            drop(late);
            feed.push(&2, Explicit);
            if comes_first {
                assert_eq!(key(removals.try_next()), Some((0, 1)));
            }
            assert_eq!(key(removals.try_next()), Some((1, 2)));
            assert_eq!(removals.try_next(), Ok(None));
        }
    }
}
