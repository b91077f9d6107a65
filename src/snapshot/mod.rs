//! Saving what a cache holds, and bringing it back with its lifetimes.
//!
//! [`Cache::save`] and [`Cache::load`] write and read a binary form of their own, with checksums;
//! [`Cache::snapshot`] and [`Cache::restore`] go through any serde format that can write a sequence
//! without knowing its length beforehand (JSON, CBOR, RON …). Both go entry by entry: neither ever holds
//! them all. Needs the feature `serde`.
//!
//! # What is in a snapshot
//! The entries that are alive when the walk comes to them, in no particular order. As with
//! [`Cache::iter`], one that is there throughout is in it exactly once, one that comes or goes meanwhile
//! may or may not be; it is not the state of one moment. Saving is not a use.
//!
//! Of each entry: key, value, deadline, and what [`Cache::touch`] and a time to idle need. A
//! [`Counter`](crate::Counter) has the number of the moment at which it is written. What does not
//! survive: how recently and how often entries were used, so that after a restart a bounded cache
//! learns anew whom to evict; since when a value is [stale](crate::Builder::refresh_after), which counts from
//! its return; statistics; loads in progress. Tags are asked for anew.
//!
//! # Time
//! Deadlines are kept as moments of the wall clock. A snapshot notes what the wall clock and the cache's
//! clock say when it begins, and restoring reads both again when it begins:
//!
//! - What was over meanwhile, by the wall clock, does not come back. What comes back has as much left as
//!   it had when it was saved, less what has passed.
//! - If the wall clock was **set forward** between saving and restoring, entries end sooner by as
//!   much. If it was **set back**, they end later by as much, but nothing ever comes back with more left
//!   than it had when the snapshot began: a wall clock before the snapshot's counts as no time passed.
//!   A step while a snapshot is being saved or restored changes nothing.
//! - The cache's own clock does not count while the machine is suspended; the wall clock does.
//! - Deadlines are exact to the nanosecond, less the moment between the readings of the two clocks, which
//!   always falls on the early side. (Wall clocks count from 1970 here, to 2554.)
//! - [`RestoreOptions::spread`] moves deadlines, and only to sooner.
//!
//! # What an entry comes back to
//! An entry that had a lifetime of its own keeps it: `touch` begins it again. One that had the cache's
//! has the restoring cache's from now on, and ends no later than if it were written to it now. So does
//! one in a cache with a time to idle, whatever was left of its idle time before (but for one that was
//! made persistent). [`Expiry`](crate::Expiry) policies are not asked again.
//!
//! # Cost
//! Saving notes some hundred entries in a short hold of a shard's lock, as every walk does, and takes the
//! lock again for a few steps to read each entry's lifetimes. Nothing is serialized under a lock, so that
//! `Serialize` may call the cache. An entry is serialized within a pin; the pin is renewed every
//! millisecond, so that what leaves the cache meanwhile is freed soon (unless the caller holds another
//! pin). Restoring writes each entry as an insert does.

mod error;
mod file;
mod frame;
mod record;
mod stream;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, SystemTime};

pub use error::{LoadError, SnapshotError};
pub use file::verify;

use self::record::{Header, Moment, VERSION};
use crate::{Cache, RandomState};

/// What a cache holds, to be serialized: from [`Cache::snapshot`].
///
/// It is a view: each time it is serialized, it shows what is there then.
#[must_use]
pub struct Snapshot<'c, K, V, S = RandomState> {
    cache: &'c Cache<K, V, S>,
    at: Option<SystemTime>,
    schema: u64,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What the cache holds, for a serde format, or for [`Snapshot::write_to`]. Costs nothing until
    /// it is serialized. See the [module](crate::snapshot), and [`restore`](Self::restore) for the way
    /// back.
    ///
    /// A format that has to know the length of a sequence beforehand refuses it; use
    /// [`save`](Self::save) then.
    pub fn snapshot(&self) -> Snapshot<'_, K, V, S> {
        Snapshot {
            cache: self,
            at: None,
            schema: 0,
        }
    }
}

impl<K, V, S> Snapshot<'_, K, V, S> {
    /// What the wall clock is to say at the moment when serializing begins, instead of the system's:
    /// for tests, and for a better clock.
    pub fn at(mut self, wall: SystemTime) -> Self {
        self.at = Some(wall);
        self
    }

    /// A number for what keys and values look like, 0 by default, which has to be the same when they
    /// are read: see [`RestoreOptions::schema`].
    pub fn schema(mut self, schema: u64) -> Self {
        self.schema = schema;
        self
    }
}

impl<K, V, S> Snapshot<'_, K, V, S>
where
    K: 'static,
    V: 'static,
{
    fn begin(&self) -> (Moment, Header) {
        let begun = Moment::to_save(&self.cache.core.rules, self.at);
        let header = Header {
            version: VERSION,
            schema: self.schema,
            saved_at: begun.wall,
        };
        (begun, header)
    }
}

impl<K, V, S> fmt::Debug for Snapshot<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("cache", self.cache)
            .field("at", &self.at)
            .field("schema", &self.schema)
            .finish()
    }
}

/// How a snapshot is to be restored.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::snapshot::RestoreOptions;
///
/// let options = RestoreOptions::new().schema(3).spread(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RestoreOptions {
    at: Option<SystemTime>,
    schema: u64,
    replace: bool,
    spread: Duration,
}

impl RestoreOptions {
    /// The defaults: the system's wall clock, schema 0, what the cache holds stays, nothing is spread.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the wall clock is to say at the moment when restoring begins, instead of the system's: for
    /// tests, and for a better clock.
    pub fn at(mut self, wall: SystemTime) -> Self {
        self.at = Some(wall);
        self
    }

    /// The [schema](Snapshot::schema) that the snapshot must have been written with.
    ///
    /// The binary form does not say of which types keys and values are. Bytes of one type may well
    /// be read as another, to values that nobody has stored. Choose another number whenever the
    /// types change, and an old snapshot is an error instead.
    pub fn schema(mut self, schema: u64) -> Self {
        self.schema = schema;
        self
    }

    /// Whether an entry of the snapshot takes the place of a live one with its key. By default it does
    /// not, because what is in the cache was stored after the snapshot was made. (An entry that is over
    /// replaces nothing, either way.)
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Ends each restored entry that has a deadline sooner by a random part of this, so that those
    /// of one deadline do not end, and are not all asked for again, at one moment. Never later, and
    /// none at once: an entry that has less left than this ends at a random moment of what it has.
    /// Lifetimes of entries, which `touch` begins again, stay as they were.
    pub fn spread(mut self, most: Duration) -> Self {
        self.spread = most;
        self
    }
}

/// What became of a snapshot's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Stored. (In a bounded cache some of them may have been evicted since.)
    pub inserted: u64,
    /// Left out: their deadlines have passed.
    pub expired: u64,
    /// Left out: the cache had a live entry of the key.
    pub kept: u64,
    /// Left out: the cache could not take them ([`RefusedReason`](crate::RefusedReason)). No listener
    /// hears of them.
    pub refused: u64,
}

/// How much a snapshot in its binary form holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Entries.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}
