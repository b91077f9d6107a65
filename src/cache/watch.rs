//! What a cache tells about itself.

use std::hash::{BuildHasher, Hash};

use rand::{Rng, RngExt};

use super::Cache;
use crate::chance;
use crate::lane;
use crate::limits::{AUDIT_DRAWS, AUDIT_LOOKS, AUDIT_MOST, AUDIT_TOGETHER};
use crate::reclaim::pin;
use crate::stats::{Audit, MemoryUsage, Stats};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What the cache has done so far, and what is left to be done.
    ///
    /// # Cost
    /// Takes each shard's lock in turn for a short copy, and for a look at up to 4,096 lanes (some
    /// microseconds) where something is due; asks the clock once if there are lifetimes. No allocation.
    pub fn stats(&self) -> Stats {
        let core = &*self.core;
        let mut stats = Stats::default();
        let timed = core.shards.iter().any(|shard| shard.due() != lane::NONE);
        // Before any lock: the clock may be a user's.
        let now = if timed { core.rules.time.now() } else { 0 };
        for shard in &core.shards {
            let age = shard.oldest_due_age(now);
            stats.oldest_due_age = stats.oldest_due_age.max(age);
            shard.add_to(&mut stats, now);
        }
        core.counts.add_to(&mut stats);
        stats.budget = core.settings.budget;
        stats.reaper_alive = core.enrolment.get().map(|enrolment| enrolment.is_staffed());
        stats.panics += core.rules.time.panics();
        if let Some(reads) = &core.reads {
            reads.add_to(&mut stats);
        }
        stats
    }

    /// Bytes that the cache's own structures hold, by structure: entries (without what keys and values own
    /// elsewhere), index, lane, eviction order, limbo.
    ///
    /// # Cost
    /// Takes each shard's lock in turn, for a walk over its lists of chunks. No allocation.
    pub fn memory_usage(&self) -> MemoryUsage {
        let mut all = MemoryUsage::default();
        for shard in &self.core.shards {
            all.add(&shard.memory());
        }
        all
    }

    /// Looks at `samples` entries drawn at random (at most 1,048,576): what share of the linked entries is
    /// dead, and what share will be due soon.
    ///
    /// The draws are independent of each other and of the reaper's cursor, each entry is as likely as any
    /// other, and one may be drawn twice: the estimate has no bias, and [`Share`](crate::Share) gives its
    /// interval. What is written or unlinked while the audit runs may or may not be among the entries.
    /// Nothing is changed: what is dead stays linked for the reaper, and no code of keys or values runs.
    /// With a time to idle, reads may put off what [`Audit`] says is due soon.
    ///
    /// Free slots are drawn in vain, 64 for each sample at most: where nearly all slots have become free,
    /// [`Audit::sampled`] may be less than what was asked for, without a bias either.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Cache, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let cache = Cache::builder().clock(clock.clone()).build()?;
    /// for key in 0..1_000 {
    ///     cache.insert_with_ttl(key, (), Duration::from_secs(if key % 4 == 0 { 5 } else { 60 }));
    /// }
    /// clock.advance(Duration::from_secs(6));
    /// let audit = cache.audit(1_000_000);
    /// let dead = audit.dead_share();
    /// assert!((dead.estimate - 0.25).abs() < 0.01 && dead.high - dead.low < 0.01);
    /// assert_eq!(audit.share_of(audit.due_in_10s).estimate, 0.0);
    /// assert_eq!(audit.due_in_1min, audit.sampled - audit.dead);
    /// # Ok::<(), ebbtide::BuildError>(())
    /// ```
    ///
    /// # Cost
    /// One look at an entry for each sample, 10 to 100 ns, in holds of a shard's lock of at most 64 looks.
    /// Allocates 32 KiB at most, and 8 bytes for each shard.
    pub fn audit(&self, samples: u64) -> Audit {
        self.audit_by(samples, &mut chance::source())
    }

    /// With draws by this source of randomness.
    pub(crate) fn audit_by(&self, samples: u64, random: &mut impl Rng) -> Audit {
        let samples = samples.min(AUDIT_MOST);
        let mut audit = Audit::default();
        let mut reach = Vec::with_capacity(self.core.shards.len());
        for shard in &self.core.shards {
            let (linked, slots) = shard.extent();
            audit.entries += linked;
            reach.push(slots);
        }
        let total: u64 = reach.iter().sum();
        let mut draws = samples * AUDIT_DRAWS;
        while total > 0 && audit.sampled < samples && draws > 0 {
            // Never more than are missing: to stop at the last one of several shards' would favour the
            // first shards.
            let wanted = (samples - audit.sampled).min(draws).min(AUDIT_TOGETHER);
            draws -= wanted;
            let mut picks: Vec<u64> = (0..wanted).map(|_| random.random_range(0..total)).collect();
            // So that each shard's lock is taken as seldom as can be.
            picks.sort_unstable();
            let (mut picks, mut base) = (&picks[..], 0);
            for (shard, &slots) in reach.iter().enumerate() {
                let (here, rest) = picks.split_at(picks.partition_point(|&p| p < base + slots));
                self.audit_shard(shard, here, base, &mut audit);
                (picks, base) = (rest, base + slots);
            }
        }
        audit
    }

    /// Looks at the slots of one shard that were drawn, of which `base` is the first.
    fn audit_shard(&self, shard: usize, picks: &[u64], base: u64, audit: &mut Audit) {
        let core = &*self.core;
        let mut ids = [0; AUDIT_LOOKS];
        for picks in picks.chunks(AUDIT_LOOKS) {
            for (id, pick) in ids.iter_mut().zip(picks) {
                *id = (pick - base) as u32;
            }
            let time = core.rules.time.reading();
            core.shards[shard].audit(&ids[..picks.len()], time, &pin(), audit);
        }
    }
}
