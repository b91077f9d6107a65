//! How the index grows and shrinks: a new segment, or two, in the place of an old one, and the directory
//! twice as long or half.

use super::segment::{Directory, OldDirectory, OldSegment, Segment};
use super::{Index, Owner, ids, load, place_in};
use crate::limits::{DIRECTORY_SHIFT, SEGMENT_SHIFT};
use crate::reclaim::Limbo;
use crate::sync::Ordering;

impl Index {
    /// Replaces a full segment by a bigger one, or by two.
    #[cold]
    pub(super) fn grow(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        hash: u32,
        segment: Segment,
        hash_of: &impl Fn(u32) -> u32,
    ) {
        // SAFETY: the caller holds the lock; the segment is in the directory.
        let depth = unsafe { segment.tail() }.depth.load(Ordering::Relaxed);
        // Entries whose hashes agree in all these bits cannot be told apart by splitting: a
        // directory far larger than the number of entries calls for means just that.
        let useful = (owner.linked >> SEGMENT_SHIFT).max(1).ilog2() + 4;
        if segment.shift() < SEGMENT_SHIFT || depth >= useful.min(DIRECTORY_SHIFT) {
            let bigger = Segment::new(segment.shift() + 1, depth);
            self.exchange(owner, limbo, hash, &[segment], bigger, hash_of);
            return;
        }
        if depth == self.directory().depth() {
            self.double_directory(owner, limbo);
        }
        let halves = [
            Segment::new(segment.shift(), depth + 1),
            Segment::new(segment.shift(), depth + 1),
        ];
        for (hash, id) in hashed(segment, hash_of) {
            let half = halves[(hash >> (31 - depth) & 1) as usize];
            // SAFETY: the halves are ours until they are published.
            unsafe { place_in(half, hash, id) };
        }
        let low = if depth == 0 {
            0
        } else {
            hash >> (32 - depth) << (32 - depth)
        };
        self.publish(low, halves[0], depth + 1);
        self.publish(low | 1 << (31 - depth), halves[1], depth + 1);
        let size = Segment::layout(segment.shift()).0.size();
        owner.bytes += size;
        owner.by_depth[depth as usize] -= 1;
        owner.by_depth[depth as usize + 1] += 2;
        limbo.retire(Box::new(OldSegment(segment)));
    }

    /// Replaces a sparse segment by a smaller one, or it and its sibling by one.
    #[cold]
    pub(super) fn shrink(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        hash: u32,
        segment: Segment,
        hash_of: &impl Fn(u32) -> u32,
    ) {
        // SAFETY: the caller holds the lock; the segment is in the directory.
        let tail = unsafe { segment.tail() };
        let depth = tail.depth.load(Ordering::Relaxed);
        if depth == 0 || segment.shift() > SEGMENT_SHIFT {
            if segment.shift() > 0 {
                let smaller = Segment::new(segment.shift() - 1, depth);
                self.exchange(owner, limbo, hash, &[segment], smaller, hash_of);
            }
            return;
        }
        // SAFETY: as above.
        let sibling = unsafe { self.segment(hash ^ 1 << (32 - depth)) };
        // SAFETY: as above.
        let other = unsafe { sibling.tail() };
        let both = tail.linked.load(Ordering::Relaxed) + other.linked.load(Ordering::Relaxed);
        if other.depth.load(Ordering::Relaxed) != depth
            || sibling.shift() != segment.shift()
            || both > segment.room() / 3
        {
            return;
        }
        owner.by_depth[depth as usize] -= 2;
        owner.by_depth[depth as usize - 1] += 1;
        let merged = Segment::new(segment.shift(), depth - 1);
        self.exchange(owner, limbo, hash, &[segment, sibling], merged, hash_of);
        while owner.by_depth[self.directory().depth() as usize] == 0 {
            self.halve_directory(owner, limbo);
        }
    }

    /// Copies the ids of `old` into `new`, which takes their place in the directory.
    fn exchange(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        hash: u32,
        old: &[Segment],
        new: Segment,
        hash_of: &impl Fn(u32) -> u32,
    ) {
        for &segment in old {
            for (hash, id) in hashed(segment, hash_of) {
                // SAFETY: `new` is ours until it is published.
                unsafe { place_in(new, hash, id) };
            }
        }
        // SAFETY: as above.
        let depth = unsafe { new.tail() }.depth.load(Ordering::Relaxed);
        self.publish(hash, new, depth);
        owner.bytes += Segment::layout(new.shift()).0.size();
        for &segment in old {
            owner.bytes -= Segment::layout(segment.shift()).0.size();
            limbo.retire(Box::new(OldSegment(segment)));
        }
    }

    /// Points every directory cell of the hash's first `depth` bits to `segment`.
    fn publish(&self, hash: u32, segment: Segment, depth: u32) {
        let directory = self.directory();
        let run = 1 << (directory.depth() - depth);
        let first = directory.position(hash) & !(run - 1);
        for i in first..first + run {
            // SAFETY: below the length; the caller holds the lock, so the directory stays.
            // Release: pairs with the Acquire in `segment`: the buckets come with the pointer.
            unsafe { directory.cell(i) }.store(segment.0, Ordering::Release);
        }
    }

    fn double_directory(&self, owner: &mut Owner, limbo: &mut Limbo) {
        let old = self.directory();
        let new = Directory::new(old.depth() + 1, |i| load(old, i / 2));
        self.publish_directory(owner, limbo, old, new);
    }

    fn halve_directory(&self, owner: &mut Owner, limbo: &mut Limbo) {
        let old = self.directory();
        let new = Directory::new(old.depth() - 1, |i| load(old, i * 2));
        self.publish_directory(owner, limbo, old, new);
    }

    fn publish_directory(
        &self,
        owner: &mut Owner,
        limbo: &mut Limbo,
        old: Directory,
        new: Directory,
    ) {
        // Release: pairs with the Acquire in `directory`.
        self.directory.store(new.0, Ordering::Release);
        owner.bytes += Directory::layout(new.depth()).size();
        owner.bytes -= Directory::layout(old.depth()).size();
        limbo.retire(Box::new(OldDirectory(old)));
    }
}

/// The hashes and ids in a segment, for the lock's holder. Collected first: the hashes lie far
/// apart, and a loop that does nothing else overlaps their cache misses.
fn hashed(segment: Segment, hash_of: &impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
    let mut hashed = Vec::with_capacity(segment.room() as usize);
    hashed.extend(ids(segment).map(|id| (0, id)));
    for (hash, id) in &mut hashed {
        *hash = hash_of(*id);
    }
    hashed
}
