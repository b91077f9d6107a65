//! The eviction order of one shard: which of its entries goes next.
//!
//! Plain single-threaded data over slot ids. All calls come under the shard's lock, from writers
//! only; a reader does no more than raise an entry's mark. The shard links a new entry, tells the
//! order ([`Order::link`]), and while the cache is over its bound asks for a victim
//! ([`Order::victim`]), unlinks it and tells that too ([`Order::unlink`]). The bound is the whole
//! cache's: a shard may hold more or less than its share at any time.
//!
//! No call does more than a fixed number of steps (see [`CLOCK_LOOKS`](crate::limits::CLOCK_LOOKS)),
//! and none copies more than 8 KiB, and a table of 16 bytes for 8 KiB of ghost or sketch when that
//! doubles.

use super::policy::{Policy, Rule};
use super::queue::{Links, Tag};
use super::ring::{Hand, Ring};
use super::sampled::{Rank, Sampled};
use super::segmented::Segmented;

/// What an order sees of its shard's entries. Only linked slots are asked about.
pub(crate) trait Entries {
    /// The hash of the key, well mixed.
    fn hash(&self, slot: u32) -> u32;
    /// Uses since the mark was last lowered, 0 to [`MARK_MAX`](crate::limits::MARK_MAX).
    fn mark(&self, slot: u32) -> u8;
    /// Lowers the mark, or gives an entry that of its predecessor.
    fn set_mark(&self, slot: u32, mark: u8);
    /// What the entry counts in the bound: 1 unless there is a weigher. Does not change while the
    /// slot is linked.
    fn weight(&self, slot: u32) -> u64;
    /// The lane unit of its deadline, `u32::MAX` for none.
    fn due(&self, slot: u32) -> u32;
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Entries: any may go.
    Entries,
    /// Weight: an entry without weight is of no use as a victim.
    Weight,
}

/// The eviction order of one shard.
#[derive(Debug)]
pub(crate) struct Order {
    links: Links,
    /// Entries without weight, in a CLOCK of their own: they are in no policy's way when weight is
    /// needed.
    weightless: Ring,
    kind: Kind,
}

// (One for each shard, boxed with the rest of its state: what a smaller one would leave over is not
// worth another step on every write.)
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Kind {
    Segmented(Segmented),
    Ring(Ring),
    Sampled(Sampled),
    Nothing,
}

impl Order {
    /// The order of a shard whose part of the bound is `share`, in entries or weight: while it holds
    /// less, it counts on growing to that.
    pub(crate) fn new(policy: &Policy, share: u64) -> Self {
        let kind = match policy.rule {
            Rule::SegmentedClock { cold_share } => {
                Kind::Segmented(Segmented::new(cold_share, share))
            }
            Rule::Clock => Kind::Ring(Ring::new(Tag::First, Hand::Spares)),
            Rule::Fifo => Kind::Ring(Ring::new(Tag::First, Hand::Takes)),
            Rule::NearestDeadline => Kind::Sampled(Sampled::new(Rank::Deadline)),
            Rule::Random => Kind::Sampled(Sampled::new(Rank::Chance)),
            Rule::NoEviction => Kind::Nothing,
        };
        Order {
            links: Links::new(),
            weightless: Ring::new(Tag::Weightless, Hand::Spares),
            kind,
        }
    }

    /// Changes the shard's part of the bound. Moves nothing: who is too many now goes as victims
    /// are asked for.
    pub(crate) fn set_share(&mut self, share: u64) {
        if let Kind::Segmented(segmented) = &mut self.kind {
            segmented.set_share(share);
        }
    }

    /// A new key's entry was linked.
    pub(crate) fn link(&mut self, slot: u32, entries: &impl Entries) {
        let links = &mut self.links;
        if matches!(self.kind, Kind::Nothing) {
            return;
        }
        if entries.weight(slot) == 0 {
            self.weightless.link(links, slot, 0);
            return;
        }
        match &mut self.kind {
            Kind::Segmented(segmented) => segmented.link(links, slot, entries),
            Kind::Ring(ring) => ring.link(links, slot, entries.weight(slot)),
            Kind::Sampled(sampled) => sampled.link(links, slot),
            Kind::Nothing => {}
        }
    }

    /// The new entry of `old`'s key was linked in its place: `new` inherits where it stood and its
    /// mark. Both slots can still be asked about; `old` is out of the order from now on.
    pub(crate) fn replace(&mut self, old: u32, new: u32, entries: &impl Entries) {
        if matches!(self.kind, Kind::Nothing) {
            return;
        }
        entries.set_mark(new, entries.mark(old));
        let links = &mut self.links;
        let weights = (entries.weight(old), entries.weight(new));
        match (&mut self.kind, weights) {
            (_, (0, 0)) => self.weightless.replace(links, (old, 0), (new, 0)),
            (_, (0, _) | (_, 0)) => {
                self.unlink(old, false, entries);
                self.link(new, entries);
            }
            (Kind::Segmented(segmented), weights) => {
                segmented.replace(links, (old, weights.0), (new, weights.1));
            }
            (Kind::Ring(ring), weights) => ring.replace(links, (old, weights.0), (new, weights.1)),
            (Kind::Sampled(sampled), _) => sampled.replace(links, old, new),
            (Kind::Nothing, _) => {}
        }
    }

    /// An entry left, because this order or another gave it up (`evicted`) or for any other reason.
    /// The slot can still be asked about.
    pub(crate) fn unlink(&mut self, slot: u32, evicted: bool, entries: &impl Entries) {
        let links = &mut self.links;
        match (&mut self.kind, links.tag(slot)) {
            (Kind::Nothing, _) => {}
            (_, Tag::Weightless) => self.weightless.unlink(links, slot, 0),
            (Kind::Segmented(segmented), _) => segmented.unlink(links, slot, evicted, entries),
            (Kind::Ring(ring), _) => ring.unlink(links, slot, entries.weight(slot)),
            (Kind::Sampled(sampled), _) => sampled.unlink(links, slot),
        }
    }

    /// The entry to give up, never `spare` (the one just written, which its writer expects to
    /// find). `None` if there is no other, or the policy gives none up. It stays in the order until
    /// [`unlink`](Self::unlink).
    pub(crate) fn victim(
        &mut self,
        spare: Option<u32>,
        need: Need,
        entries: &impl Entries,
    ) -> Option<u32> {
        let links = &mut self.links;
        let weightless = self.weightless.length();
        let others = match &mut self.kind {
            Kind::Segmented(segmented) => segmented.length(),
            Kind::Ring(ring) => ring.length(),
            Kind::Sampled(sampled) => sampled.length(),
            Kind::Nothing => return None,
        };
        // Where both kinds may go, the more numerous gives one up.
        if need == Need::Entries
            && weightless > others
            && let Some(victim) = self.weightless.victim(links, spare, entries)
        {
            return Some(victim);
        }
        let victim = match &mut self.kind {
            Kind::Segmented(segmented) => segmented.victim(links, spare, entries),
            Kind::Ring(ring) => ring.victim(links, spare, entries),
            Kind::Sampled(sampled) => sampled.victim(links, spare, entries),
            Kind::Nothing => None,
        };
        victim.or_else(|| match need {
            Need::Entries => self.weightless.victim(&mut self.links, spare, entries),
            Need::Weight => None,
        })
    }

    /// The next two to be asked for, as far as that can be told: worth a prefetch.
    #[inline]
    pub(crate) fn upcoming(&self) -> [Option<u32>; 2] {
        match &self.kind {
            Kind::Segmented(segmented) => segmented.upcoming(&self.links),
            Kind::Ring(ring) => ring.upcoming(&self.links),
            Kind::Sampled(_) | Kind::Nothing => [None; 2],
        }
    }

    /// Asks for the lines that a new entry with this hash will be looked up in.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Kind::Segmented(segmented) = &self.kind {
            segmented.prefetch(hash);
        }
    }

    /// Asks for the line that an entry with this hash will be noted in when it is evicted.
    #[inline]
    pub(crate) fn prefetch_departure(&self, hash: u32) {
        if let Kind::Segmented(segmented) = &self.kind {
            segmented.prefetch_departure(hash);
        }
    }

    /// Asks for a slot's links.
    #[inline]
    pub(crate) fn prefetch_links(&self, slot: u32) {
        self.links.prefetch(slot);
    }

    /// Bytes held, beside the order itself.
    pub(crate) fn bytes(&self) -> usize {
        self.links.bytes()
            + match &self.kind {
                Kind::Segmented(segmented) => segmented.bytes(),
                Kind::Sampled(sampled) => sampled.bytes(),
                Kind::Ring(_) | Kind::Nothing => 0,
            }
    }

    /// Gives back the memory beside one chunk of slots ([`SIDE_CHUNK`](crate::limits::SIDE_CHUNK)
    /// of them) none of which is linked.
    pub(crate) fn release_chunk(&mut self, chunk: usize) {
        self.links.release_chunk(chunk);
    }

    /// Checks that every slot of `linked` is in one place of the order, that nothing else is, and
    /// all sums. `linked` must not name a slot twice.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self, linked: impl Iterator<Item = u32>, entries: &impl Entries) {
        let mut found = self.weightless.validate(&self.links, entries);
        assert!(found.iter().all(|&slot| entries.weight(slot) == 0));
        let weightless = found.len();
        match &self.kind {
            Kind::Segmented(segmented) => found.extend(segmented.validate(&self.links, entries)),
            Kind::Ring(ring) => found.extend(ring.validate(&self.links, entries)),
            Kind::Sampled(sampled) => found.extend(sampled.validate(&self.links)),
            Kind::Nothing => return,
        }
        assert!(
            found[weightless..]
                .iter()
                .all(|&slot| entries.weight(slot) > 0)
        );
        found.sort_unstable();
        let mut linked: Vec<u32> = linked.collect();
        linked.sort_unstable();
        assert_eq!(found, linked);
    }
}
