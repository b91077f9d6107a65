//! A concurrent in-process cache whose entries have lifetimes.
//!
//! > An expired entry is never read, its memory comes back soon after without anyone asking, and
//! > no caller ever pays for that.
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::Cache;
//!
//! let cache: Cache<String, String> = Cache::new(100_000);
//! cache.insert_with_ttl("session:42".into(), "alice".into(), Duration::from_secs(1800));
//! assert_eq!(cache.get("session:42").as_deref(), Some("alice"));
//! ```
//!
//! Begin with [`Cache`]; [`Builder`] has the settings, [`Reaper`] says who reclaims and how much
//! that may cost, [`Lifetime`] how long an entry lives, [`Counter`] how to count.

mod bound;
mod builder;
mod cache;
mod chance;
mod clock;
mod counter;
mod entry;
mod error;
mod follow;
mod groups;
mod index;
mod lane;
mod lease;
mod lifetime;
mod limits;
mod load;
#[cfg(feature = "metrics")]
pub mod metrics;
mod order;
mod pages;
mod reaper;
mod reclaim;
mod rules;
mod shard;
mod slab;
#[cfg(feature = "serde")]
pub mod snapshot;
mod stats;
mod sync;

/// The README's examples are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

pub mod docs {
    //! How and why: the design, the argument about time, and the memory orderings.

    /// The structure, the rules, and the choices that were measured.
    #[doc = include_str!("docs/design.md")]
    pub mod design {}

    /// What "now" is.
    #[doc = include_str!("docs/clock.md")]
    pub mod clock {}

    /// From moka, quick_cache and dashmap.
    #[doc = include_str!("docs/migration.md")]
    pub mod migration {}

    /// Every atomic, its orderings, their partners, and the mutant that fails when one is weakened.
    #[doc = include_str!("docs/orderings.md")]
    pub mod orderings {}
}

pub use ahash::RandomState;

pub use builder::Builder;
#[cfg(feature = "rayon")]
pub use cache::ParIter;
pub use cache::{
    Cache, Computed, Drain, Entry, IntoIter, Iter, Loading, Op, Pinned, PinnedIter, Turn,
};
pub use clock::{Clock, ManualClock};
pub use counter::Counter;
pub use error::{BuildError, CounterError, NotBounded, Refused, RefusedReason};
pub use follow::{Follower, Lagged, Removal, Removals};
pub use groups::Tags;
pub use lifetime::{Expiry, Lifetime};
pub use order::Policy;
pub use reaper::{Reaped, Reaper, Strategy};
pub use stats::{Audit, LagHistogram, MemoryUsage, Share, Stats};

/// Why an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalCause {
    /// Its lifetime was over.
    Expired,
    /// A call removed it.
    Explicit,
    /// A new value took its place, or would have: if the cache cannot take the new one, it is reported
    /// as evicted after this.
    Replaced,
    /// The cache was full, or could not take it.
    Evicted,
}
