//! What the memory of a cache is used for.

/// Bytes that a cache's own structures hold, by structure; from
/// [`Cache::memory_usage`](crate::Cache::memory_usage).
///
/// What keys and values own elsewhere (the characters of a `String`) is not known, and not counted. Bytes
/// are counted as they were asked for; what is free in the memory that all caches share is in nobody's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Chunks of slots (words, keys, values; use marks in bounded caches; deadlines without idleness with a
    /// time to idle), free slots among them, and what says which slots are free.
    pub slab: usize,
    /// Of `slab`: slots whose entry has left and whose value waits for readers to let go, or is being
    /// dropped. Already in `slab`, so not added by [`total`](Self::total).
    pub slab_in_limbo: usize,
    /// Hashes, one for each slot.
    pub hashes: usize,
    /// Buckets and directories.
    pub index: usize,
    /// Coarse deadlines and their minima.
    pub lane: usize,
    /// Lifetimes that entries were given as their own, for [`touch`](crate::Cache::touch).
    pub lifetimes: usize,
    /// Queues, ghost and sketch of the eviction policy; 0 without a bound.
    pub order: usize,
    /// Weights, where entries are weighed.
    pub weights: usize,
    /// Which entries carry which tag; 0 where no entry was given one.
    pub tags: usize,
    /// The lists of slots in limbo. (Not the replaced tables of index and slab that wait there too.)
    pub limbo: usize,
    /// The shards themselves: fixed when the cache is made.
    pub shards: usize,
}

impl MemoryUsage {
    /// All of it: the sum of the parts but for `slab_in_limbo`, which is a part of `slab`.
    pub fn total(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Each part that [`total`](Self::total) adds up, with its name.
    pub fn parts(&self) -> [(&'static str, usize); 10] {
        [
            ("slab", self.slab),
            ("hashes", self.hashes),
            ("index", self.index),
            ("lane", self.lane),
            ("lifetimes", self.lifetimes),
            ("order", self.order),
            ("weights", self.weights),
            ("tags", self.tags),
            ("limbo", self.limbo),
            ("shards", self.shards),
        ]
    }

    /// Adds another shard's.
    pub(crate) fn add(&mut self, other: &MemoryUsage) {
        self.slab += other.slab;
        self.slab_in_limbo += other.slab_in_limbo;
        self.hashes += other.hashes;
        self.index += other.index;
        self.lane += other.lane;
        self.lifetimes += other.lifetimes;
        self.order += other.order;
        self.weights += other.weights;
        self.tags += other.tags;
        self.limbo += other.limbo;
        self.shards += other.shards;
    }
}
