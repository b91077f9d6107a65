//! Every size that is a choice, with its unit and the reason for the number.
//!
//! Under the model checker they shrink, so that a handful of entries crosses every boundary.

/// Lane resolution: one lane unit is 2^26 ns, 67 ms. A `u32` of them is nine years of uptime.
pub(crate) const LANE_SHIFT: u32 = 26;

/// Slots that share one lane minimum.
pub(crate) const LANE_BLOCK: usize = 64;

/// Elements in one chunk of a per-slot side array: growth copies at most this many.
pub(crate) const SIDE_CHUNK: usize = 1024;

/// Buckets of a full-grown index segment, as a power of two: 64 buckets are one 4 KiB page of 768
/// cells, and splitting one moves at most 672 of them, about 3 µs.
#[cfg(not(ebbtide_loom))]
pub(crate) const SEGMENT_SHIFT: u32 = 6;
#[cfg(ebbtide_loom)]
pub(crate) const SEGMENT_SHIFT: u32 = 1;

/// Deepest directory of a shard as a power of two: beyond it (or when the keys' hashes do not
/// tell entries apart) segments double instead of splitting.
pub(crate) const DIRECTORY_SHIFT: u32 = 24;

/// Bytes of entries that a slab chunk aims at, and most slots it may have as a power of two: one
/// size for all chunks (deciding between sizes by the id's magnitude cost every lookup 2 ns), small
/// enough for a shard with few entries, large enough that the table of chunks stays in the nearest
/// caches (8 bytes for 256 entries).
#[cfg(not(ebbtide_loom))]
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;
#[cfg(ebbtide_loom)]
pub(crate) const CHUNK_BYTES: usize = 64;
pub(crate) const CHUNK_MAX_SHIFT: u32 = 8;

/// Slots of one shard, at most: leaves `u32` arithmetic headroom everywhere. (The library's own
/// tests fill a shard up.)
#[cfg(not(test))]
pub(crate) const MAX_SLOTS: u32 = 1 << 30;
#[cfg(test)]
pub(crate) const MAX_SLOTS: u32 = 1 << 12;

/// Unlinked slots in one limbo batch, at most; a fuller batch is set aside and a new one begun.
pub(crate) const LIMBO_BATCH: usize = 4096;

/// Values dropped in one slice between two looks at the clock.
pub(crate) const DROP_SLICE: usize = 128;

/// Looks for the end of a grace period in one cycle of a worker, or before a caller of `reap` lets
/// other threads run between them.
pub(crate) const GRACE_TRIES_OF_A_CYCLE: usize = 4;

/// Looks for the end of a grace period in one call of `reap`, before it is left to the next one.
#[cfg(not(ebbtide_loom))]
pub(crate) const GRACE_TRIES: usize = 32;
#[cfg(ebbtide_loom)]
pub(crate) const GRACE_TRIES: usize = 2;

/// A cache that reaps by hand lets a writer help once this many unlinked slots wait in its shard.
pub(crate) const MANUAL_HELP: usize = 64;

/// Lane blocks of a shard by which the reaper judges what share of its entries is due.
pub(crate) const TOLERANCE_BLOCKS: usize = 64;

/// Chunks looked at, or given back, in one hold of a shard's lock.
pub(crate) const TRIM_TOGETHER: usize = 16;

/// Reads that find the mark this high leave it alone.
pub(crate) const MARK_MAX: u8 = 3;

/// Listener calls nested inside one another on one thread before they are queued instead.
pub(crate) const LISTENER_DEPTH: u32 = 16;

/// An idle extension that would gain less than this fraction of the idle time is skipped.
pub(crate) const IDLE_GRAIN: u64 = 16;

/// Longest that the reaper means to hold a shard's lock at a time, in nanoseconds. (In a model
/// and in a schedule nothing may depend on real time.)
#[cfg(not(any(ebbtide_loom, ebbtide_shuttle)))]
pub(crate) const LOCK_SLICE_NS: u64 = 50_000;
#[cfg(any(ebbtide_loom, ebbtide_shuttle))]
pub(crate) const LOCK_SLICE_NS: u64 = u64::MAX;

/// Entries that the sweep deals with in a hold before it makes way for whoever wants the lock: some
/// 10 µs. Fewer would be kinder to writers, but where they want the lock all the time the sweep has to
/// take out more than they bring in: with 16, two threads that insert into one shard as fast as they can
/// left a growing share of the dead behind, with 64 they do not.
pub(crate) const MAKE_WAY: u64 = 64;

/// Entries unlinked in one hold of the lock, at most: a limit for when time stands still.
pub(crate) const SLICE_UNLINKS: u64 = 4096;

/// Entries that a writer looks at for a dead one before it evicts a living one: those filed under
/// the lane unit that is now passing may be looked at in vain.
pub(crate) const DEAD_LOOKS: u32 = 16;

/// Lane blocks that it looks into for them: minima may have become too low.
pub(crate) const DEAD_BLOCKS: u32 = 64;

/// Holds of one shard's lock in which a writer looks for a dead entry while the minimum says that there is
/// one, before it evicts a living one.
pub(crate) const DEAD_HOLDS: usize = 16;

/// Times that a writer does so before it says that a cache is full that does not evict.
pub(crate) const PATIENT_LOOKS: usize = 1_000;

/// Entries that the eviction hand passes at most before it takes the least used of them: bounds the
/// work of one eviction however busy the readers are.
pub(crate) const CLOCK_LOOKS: u32 = 128;

/// Entries evicted in one hold of a shard's lock, at most.
pub(crate) const EVICTIONS_TOGETHER: usize = 64;

/// Entries of a shard from which on an eviction asks for the lines of the next: fewer stay in the near
/// caches anyway.
pub(crate) const LOOK_AHEAD_FROM: usize = 2_048;

/// How long a shard in which a writer looked in vain for a dead entry is left alone by others, while
/// nothing there is over for certain: a lane unit has 64 such spans.
pub(crate) const VAIN_NS: u64 = 1 << 20;

/// Entries that an audit looks at, at most: a thousandth off at 95 % confidence, in about 0.1 s.
pub(crate) const AUDIT_MOST: u64 = 1 << 20;

/// Slots drawn for each of them, at most: free ones are drawn in vain.
pub(crate) const AUDIT_DRAWS: u64 = 64;

/// Slots drawn together: 32 KiB of numbers.
pub(crate) const AUDIT_TOGETHER: u64 = 4096;

/// Slots looked at in one hold of a shard's lock: some microseconds, with their misses overlapped.
pub(crate) const AUDIT_LOOKS: usize = 64;
