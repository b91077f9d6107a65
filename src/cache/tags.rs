//! Operations on all entries that carry a tag.

use std::hash::{BuildHasher, Hash};

use super::Cache;
use super::room::Written;
use crate::RemovalCause;
use crate::reclaim::pin;
use crate::stats::Path;

/// Entries ended in one hold of a shard's lock.
const TOGETHER: usize = 128;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Removes every entry that carries a tag, as [`Builder::tags`](crate::Builder::tags) gave it; how many were
    /// alive. 0 if the cache was built without tags.
    ///
    /// When it returns, no entry that carried the tag before the call is there. What other threads store
    /// meanwhile may stay; loads that are in progress, of whatever key, are not stored. Each removal is reported as
    /// explicit. (Two tags whose 64-bit hashes are equal are one tag: with a million tags the odds that there are such
    /// are one to 37 million.)
    ///
    /// # Cost
    /// A lookup in each shard, and a step for each entry that carries the tag, however many others there are: in holds of
    /// at most 128 removals.
    ///
    /// ```
    /// use ebbtide::Cache;
    ///
    /// struct Page { author: u64, text: &'static str }
    ///
    /// let pages: Cache<String, Page> = Cache::builder()
    ///     .tags(|path: &String, page: &Page, tags| {
    ///         tags.add(&("author", page.author));
    ///         // A prefix is a tag like any other.
    ///         tags.add(path.split('/').next().unwrap_or_default());
    ///     })
    ///     .build()?;
    /// pages.insert("blog/tides".into(), Page { author: 7, text: "…" });
    /// pages.insert("blog/moon".into(), Page { author: 8, text: "…" });
    /// pages.insert("about/us".into(), Page { author: 7, text: "…" });
    /// assert_eq!(pages.invalidate_tag(&("author", 7_u64)), 2);
    /// assert_eq!(pages.invalidate_tag("blog"), 1);
    /// # Ok::<(), ebbtide::BuildError>(())
    /// ```
    pub fn invalidate_tag(&self, tag: &(impl Hash + ?Sized)) -> u64 {
        let core = &*self.core;
        let Some(tagging) = &core.rules.tagging else {
            return 0;
        };
        let tag = tagging.hash(tag);
        core.rules.flights.overtake_all();
        let mut removed = 0;
        // The oldest come first: as many as there are now are all that are there now.
        let counts: Vec<u32> = core.shards.iter().map(|shard| shard.tagged(tag)).collect();
        for (number, count) in counts.into_iter().enumerate() {
            let mut left = count as usize;
            while left > 0 {
                let guard = pin();
                let mut hold = core.hold(number, &guard);
                let slots = hold.tagged(tag, left.min(TOGETHER));
                for &slot in &slots {
                    if let Some(place) = hold.find_slot(slot) {
                        removed += u64::from(hold.end(place, RemovalCause::Explicit, Path::Write));
                    }
                }
                let released = hold.release();
                drop(guard);
                core.finish_write(number, released, Written::NOTHING);
                if slots.is_empty() {
                    break;
                }
                left -= slots.len();
            }
        }
        removed
    }

    /// How many entries carry a tag, those among them that are over and still linked. Locks one shard after
    /// another for a lookup.
    pub fn tagged_count(&self, tag: &(impl Hash + ?Sized)) -> u64 {
        let core = &*self.core;
        let Some(tagging) = &core.rules.tagging else {
            return 0;
        };
        let tag = tagging.hash(tag);
        let counts = core.shards.iter().map(|shard| shard.tagged(tag));
        counts.map(u64::from).sum()
    }
}
