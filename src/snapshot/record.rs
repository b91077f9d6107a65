//! What is saved of an entry, and how its times come back.
//!
//! A snapshot has one reading of the wall clock, and of each deadline how far it was ahead then. So
//! deadlines are absolute, equal ones stay equal, and no sum leaves the range of its type.

use std::time::SystemTime;

use rand::RngExt;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::RestoreOptions;
use crate::clock::nanos;
use crate::entry::word::NEVER;
use crate::rules::{Rules, Span};
use crate::slab::lifetimes::{DEFAULT, FIXED};

/// The version of the format, of both forms.
pub(super) const VERSION: u32 = 1;

/// What a snapshot begins with in any serde format. Later versions may add fields, no more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) schema: u64,
    /// What the wall clock said, in nanoseconds since 1970.
    pub(super) saved_at: u64,
}

/// An entry as it is written.
#[derive(Serialize)]
pub(super) struct Outgoing<'a, K, V> {
    key: &'a K,
    value: &'a V,
    left: Option<u64>,
    cap: Cap,
    own: Own,
}

/// An entry as it is read: [`Outgoing`]'s fields.
#[derive(Deserialize)]
pub(super) struct Incoming<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    /// Nanoseconds from `saved_at` to the deadline; none if there is none, which has to be said.
    #[serde(deserialize_with = "Option::deserialize")]
    left: Option<u64>,
    cap: Cap,
    own: Own,
}

/// How far the deadline without idleness is ahead.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Cap {
    /// As far as the deadline.
    Same,
    Never,
    In(u64),
}

/// What `touch` begins again.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Own {
    /// The lifetime of the cache.
    Default,
    Never,
    For(u64),
    /// Nothing: the entry lives until a moment.
    Fixed,
}

/// Nanoseconds since 1970; 0 before, and the last that can be counted from 2554 on.
fn wall(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, nanos)
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// By the wall clock.
    pub(super) wall: u64,
    /// By the cache's.
    pub(super) now: u64,
}

impl Moment {
    /// To save by. Time passes between the two readings: this way round less is left.
    pub(super) fn to_save<K: 'static, V: 'static>(
        rules: &Rules<K, V>,
        at: Option<SystemTime>,
    ) -> Self {
        let wall = wall(at.unwrap_or_else(SystemTime::now));
        let now = rules.time.now();
        Moment { wall, now }
    }

    /// To restore by; the other way round, so that again less is left.
    pub(super) fn to_restore<K: 'static, V: 'static>(
        rules: &Rules<K, V>,
        at: Option<SystemTime>,
    ) -> Self {
        let now = rules.time.now();
        let wall = wall(at.unwrap_or_else(SystemTime::now));
        Moment { wall, now }
    }
}

impl<'a, K, V> Outgoing<'a, K, V> {
    pub(super) fn new(key: &'a K, value: &'a V, span: Span, begun: Moment) -> Self {
        let left = |deadline: u64| match deadline {
            NEVER => None,
            deadline => Some(deadline.saturating_sub(begun.now)),
        };
        let cap = match left(span.cap) {
            _ if span.cap == span.word => Cap::Same,
            None => Cap::Never,
            Some(left) => Cap::In(left),
        };
        let own = match span.own {
            DEFAULT => Own::Default,
            FIXED => Own::Fixed,
            NEVER => Own::Never,
            length => Own::For(length),
        };
        Outgoing {
            key,
            value,
            left: left(span.word),
            cap,
            own,
        }
    }
}

/// Brings times back: made when the header has been read.
#[derive(Debug)]
pub(super) struct Times {
    now: u64,
    /// What has passed by the wall clock since the snapshot was made.
    passed: u64,
}

impl Times {
    pub(super) fn new(moment: Moment, saved_at: u64) -> Self {
        Times {
            now: moment.now,
            passed: moment.wall.saturating_sub(saved_at),
        }
    }

    /// The span that an entry comes back with, as `now` sees it; `None` when it is over.
    pub(super) fn span<K: 'static, V: 'static>(
        &self,
        rules: &Rules<K, V>,
        entry: &Incoming<K, V>,
        now: u64,
        spread: &mut Spread,
    ) -> Option<Span> {
        let mut early = self.passed;
        let mut word = NEVER;
        if let Some(left) = entry.left {
            early = early.saturating_add(spread.sooner(left.saturating_sub(self.passed)));
            word = self.deadline(left, early);
        }
        let cap = match entry.cap {
            Cap::Same => word,
            Cap::Never => NEVER,
            Cap::In(left) => self.deadline(left, early),
        };
        let own = match entry.own {
            Own::Default => DEFAULT,
            Own::Never => NEVER,
            Own::Fixed => FIXED,
            // (The numbers at both ends mean something else.)
            Own::For(length) => length.clamp(DEFAULT + 1, FIXED - 1),
        };
        let span = rules.restored(Span { word, cap, own }, now);
        (span.word > now).then_some(span)
    }

    fn deadline(&self, left: u64, early: u64) -> u64 {
        self.now.saturating_add(left.saturating_sub(early))
    }
}

/// How much sooner entries are to end, by [`RestoreOptions::spread`].
#[derive(Debug)]
pub(super) struct Spread {
    most: u64,
    random: Option<SmallRng>,
}

impl Spread {
    pub(super) fn new(options: &RestoreOptions) -> Self {
        let most = nanos(options.spread);
        let random = (most > 0).then(crate::chance::source);
        Spread { most, random }
    }

    /// For an entry that has so long to live. Not as much as that: what is spread does not end at once.
    fn sooner(&mut self, left: u64) -> u64 {
        let most = self.most.min(left.saturating_sub(1));
        self.random
            .as_mut()
            .map_or(0, |random| random.random_range(0..=most))
    }
}
