//! A cache's settings that its shards obey.

use crate::RemovalCause;
use crate::bound::Bound;
use crate::chance;
use crate::clock::{Reading, Time, nanos};
use crate::entry::word::NEVER;
use crate::follow::Feed;
use crate::groups::Tagging;
use crate::lifetime::{Expiry, Lifetime};
use crate::load::{Flights, Refresh};
use crate::slab::lifetimes::{DEFAULT, FIXED};
use crate::sync::{Arc, AtomicU32};

/// What a removal listener is.
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

/// The settings of one cache.
pub(crate) struct Rules<K, V> {
    pub(crate) time: Time,
    /// Time to live, or [`NEVER`].
    pub(crate) live: u64,
    /// Time to idle, or 0 for none.
    pub(crate) idle: u64,
    pub(crate) expiry: Option<Box<dyn Expiry<K, V>>>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) bound: Bound<K, V>,
    /// No shard's minimum is below this lane unit, as far as is known: for writers that look for the
    /// dead. Lowered by whoever lowers a minimum, raised by whoever has looked at all of them.
    pub(crate) soonest: AtomicU32,
    /// What leaves, for whoever follows.
    pub(crate) feed: Option<Arc<Feed<K>>>,
    /// Which tags entries carry.
    pub(crate) tagging: Option<Tagging<K, V>>,
    /// Loads in progress.
    pub(crate) flights: Flights<K, V>,
    /// Where stale values are loaded again.
    pub(crate) refresh: Option<Refresh>,
    /// Up to which share of itself each lifetime of the cache's own is shortened.
    pub(crate) jitter: f64,
    /// Whether nothing reclaims but calls.
    pub(crate) manual: bool,
}

/// When an entry is to end, decided before the lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The deadline word.
    pub(crate) word: u64,
    /// The deadline without idleness.
    pub(crate) cap: u64,
    /// The entry's own lifetime, for `touch`.
    pub(crate) own: u64,
}

/// The span of an entry without a deadline.
pub(crate) const FOREVER: Span = Span {
    word: NEVER,
    cap: NEVER,
    own: DEFAULT,
};

impl<K: 'static, V: 'static> Rules<K, V> {
    /// Whether entries have any lifetime unless told otherwise.
    #[inline]
    fn mortal(&self) -> bool {
        self.live != NEVER || self.idle != 0 || self.expiry.is_some()
    }

    /// The tags of a new entry. Runs the user's code: call without locks.
    #[inline]
    pub(crate) fn tags(&self, key: &K, value: &V) -> Box<[u64]> {
        match &self.tagging {
            None => Box::default(),
            Some(tagging) => tagging.tags(key, value),
        }
    }

    /// When a value that is written now becomes stale.
    #[inline]
    pub(crate) fn soft(&self, time: &mut Reading<'_>) -> u64 {
        match &self.refresh {
            None => NEVER,
            Some(refresh) => refresh.soft(time.ask()),
        }
    }

    /// A deadline of the cache's own choice, or a random one somewhat earlier; after `now`.
    #[inline]
    fn spread(&self, deadline: u64, now: u64) -> u64 {
        if self.jitter == 0.0 || deadline == NEVER {
            return deadline;
        }
        self.spread_out(deadline, now)
    }

    #[cold]
    fn spread_out(&self, deadline: u64, now: u64) -> u64 {
        let most = (deadline - now) as f64 * self.jitter;
        // (The product may be rounded up.)
        (deadline - (most * chance::draw()) as u64).max(now + 1)
    }

    /// The span of a new entry: `explicit` replaces time to live and expiry policy; a time to idle
    /// caps either. `None` when it would be over at once. Runs the user's policy: call without
    /// locks.
    #[inline]
    pub(crate) fn span(
        &self,
        key: &K,
        value: &V,
        explicit: Option<Lifetime>,
        time: &mut Reading<'_>,
    ) -> Option<Span> {
        match explicit {
            None if !self.mortal() => Some(FOREVER),
            None => self.default_span(key, value, time),
            Some(lifetime) => self.explicit_span(lifetime, time),
        }
    }

    #[inline]
    fn default_span(&self, key: &K, value: &V, time: &mut Reading<'_>) -> Option<Span> {
        let policy = self
            .expiry
            .as_ref()
            .map(|expiry| expiry.lifetime(key, value));
        let now = time.ask();
        let live = self.spread(now.saturating_add(self.live), now);
        let Some(lifetime) = policy else {
            return Some(self.capped(live, now, DEFAULT));
        };
        let cap = self.time.deadline(lifetime, now)?;
        let cap = match lifetime {
            Lifetime::For(_) => self.spread(cap, now),
            Lifetime::Never | Lifetime::Until(_) => cap,
        }
        .min(live);
        let own = match lifetime {
            Lifetime::Never => self.live,
            Lifetime::For(length) => nanos(length).min(self.live),
            Lifetime::Until(_) => FIXED,
        };
        Some(self.capped(cap, now, own))
    }

    /// The span of an entry that is given `lifetime`, from now on.
    pub(crate) fn explicit_span(&self, lifetime: Lifetime, time: &mut Reading<'_>) -> Option<Span> {
        let now = time.ask();
        let cap = self.time.deadline(lifetime, now)?;
        let own = match lifetime {
            Lifetime::Never => NEVER,
            Lifetime::For(length) => nanos(length),
            Lifetime::Until(_) => FIXED,
        };
        Some(self.capped(cap, now, own))
    }

    /// The span of an entry whose own lifetime begins again now; `cap` is its deadline without
    /// idleness so far.
    pub(crate) fn renewed(&self, own: u64, cap: u64, now: u64) -> Span {
        let cap = match own {
            DEFAULT => self.spread(now.saturating_add(self.live), now),
            FIXED => cap,
            NEVER => NEVER,
            length => now.saturating_add(length),
        };
        self.capped(cap, now, own)
    }

    /// The span of an entry that is written anew and keeps its deadline: with a time to idle the
    /// write counts as a use.
    pub(crate) fn kept(&self, word: u64, cap: u64, own: u64, now: impl FnOnce() -> u64) -> Span {
        if self.idle == 0 || word == NEVER {
            return Span { word, cap, own };
        }
        self.capped(cap, now(), own)
    }

    /// The span of an entry that comes back from a snapshot: no longer than this cache would let it live
    /// if it were written now.
    #[cfg(feature = "serde")]
    pub(crate) fn restored(&self, saved: Span, now: u64) -> Span {
        let Span { word, mut cap, own } = saved;
        if own == DEFAULT {
            cap = cap.min(now.saturating_add(self.live));
        }
        if self.idle == 0 {
            let word = word.min(cap);
            return Span {
                word,
                cap: word,
                own,
            };
        }
        if word == NEVER && own == NEVER {
            // Made persistent, for good.
            return Span { word, cap, own };
        }
        // Coming back is no use: what is left of the idle time stays, too.
        let word = word.min(self.capped(cap, now, own).word);
        Span { word, cap, own }
    }

    /// The word of an entry whose deadline without idleness is `cap`, used now.
    #[inline]
    fn capped(&self, cap: u64, now: u64, own: u64) -> Span {
        let word = if self.idle == 0 {
            cap
        } else {
            cap.min(now.saturating_add(self.idle))
        };
        Span { word, cap, own }
    }
}
