//! Which entries of a shard carry a tag: an index beside the others, exact at all times.
//!
//! A tag is a 64-bit hash. Each membership is a node in two lists, that of its tag (oldest first) and that of its
//! slot; nodes lie in a side array and are handed out lowest first. Tags are found through 256 small tables, so
//! that the one that grows copies little: what an entry's arrival and departure take is proportional
//! to the number of its tags.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::RandomState;
use crate::slab::bitmap::Bitmap;
use crate::slab::side::Side;

/// What says which tags an entry carries.
pub(crate) type Tagger<K, V> = Box<dyn Fn(&K, &V, &mut Tags) + Send + Sync>;

/// A cache's way to tag its entries.
pub(crate) struct Tagging<K, V> {
    tagger: Tagger<K, V>,
    hasher: RandomState,
}

impl<K, V> Tagging<K, V> {
    pub(crate) fn new(tagger: Tagger<K, V>) -> Self {
        Tagging {
            tagger,
            hasher: RandomState::new(),
        }
    }

    /// The tags of an entry. Runs the user's code: call without locks.
    pub(crate) fn tags(&self, key: &K, value: &V) -> Box<[u64]> {
        let mut tags = Tags {
            hasher: self.hasher.clone(),
            tags: Vec::new(),
        };
        (self.tagger)(key, value, &mut tags);
        let mut tags = tags.tags;
        tags.sort_unstable();
        tags.dedup();
        tags.into_boxed_slice()
    }

    pub(crate) fn hash(&self, tag: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(tag)
    }
}

/// The tags of one entry, as [`Builder::tags`](crate::Builder::tags) collects them.
#[derive(Debug)]
pub struct Tags {
    hasher: RandomState,
    tags: Vec<u64>,
}

impl Tags {
    /// Gives the entry a tag: anything that can be hashed. It is the same tag wherever it hashes alike: `"a"` and
    /// `String::from("a")` are one, `1u32` and `1u64` are two. A tag given twice counts once.
    pub fn add(&mut self, tag: &(impl Hash + ?Sized)) {
        self.tags.push(self.hasher.hash_one(tag));
    }
}

/// No node.
const NONE: u32 = u32::MAX;

/// Tables of tags: chosen by a hash's top byte.
const TABLES: usize = 256;

/// Words of the bitmap of nodes beside a chunk of them.
const WORDS: usize = crate::limits::SIDE_CHUNK / 64;

/// That an entry carries a tag.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    tag: u64,
    slot: u32,
    /// In the list of the tag.
    before: u32,
    after: u32,
    /// In the list of the slot.
    next: u32,
}

const FREE: Node = Node {
    tag: 0,
    slot: NONE,
    before: NONE,
    after: NONE,
    next: NONE,
};

/// The members of a tag, oldest first.
#[derive(Clone, Copy, Debug)]
struct Members {
    first: u32,
    last: u32,
    count: u32,
}

/// A tag is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("tags are numbers")
    }

    fn write_u64(&mut self, tag: u64) {
        self.0 = tag;
    }
}

type Table = HashMap<u64, Members, BuildHasherDefault<AsItIs>>;

/// The index of one shard, under its lock.
#[derive(Debug)]
pub(crate) struct Groups {
    tables: Box<[Table]>,
    nodes: Side<Node>,
    taken: Bitmap,
    /// The first node of each slot's list.
    of_slot: Side<u32>,
    /// The chunk of nodes where trimming goes on.
    cursor: usize,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Groups {
            tables: (0..TABLES).map(|_| Table::default()).collect(),
            nodes: Side::new(FREE),
            taken: Bitmap::default(),
            of_slot: Side::new(NONE),
            cursor: 0,
        }
    }

    fn table(&mut self, tag: u64) -> &mut Table {
        &mut self.tables[(tag >> 56) as usize % TABLES]
    }

    /// A slot has been filled with an entry that carries these tags, all different.
    pub(crate) fn enter(&mut self, slot: u32, tags: &[u64]) {
        let mut next = NONE;
        for &tag in tags {
            let node = self.taken.lowest_absent();
            self.taken.insert(node);
            let before = match self.table(tag).entry(tag) {
                Entry::Vacant(vacant) => {
                    vacant.insert(Members {
                        first: node,
                        last: node,
                        count: 1,
                    });
                    NONE
                }
                Entry::Occupied(mut members) => {
                    let members = members.get_mut();
                    members.count += 1;
                    std::mem::replace(&mut members.last, node)
                }
            };
            if before != NONE {
                self.change(before, |other| other.after = node);
            }
            let this = Node {
                tag,
                slot,
                before,
                after: NONE,
                next: std::mem::replace(&mut next, node),
            };
            self.nodes.set(node, this);
        }
        self.of_slot.set(slot, next);
    }

    /// The entry in a slot has left.
    pub(crate) fn leave(&mut self, slot: u32) {
        let mut node = self.of_slot.get(slot);
        self.of_slot.set(slot, NONE);
        while node != NONE {
            let Node {
                tag,
                before,
                after,
                next,
                ..
            } = self.nodes.get(node);
            if before != NONE {
                self.change(before, |other| other.after = after);
            }
            if after != NONE {
                self.change(after, |other| other.before = before);
            }
            let table = self.table(tag);
            let Entry::Occupied(mut members) = table.entry(tag) else {
                unreachable!("a node's tag has members")
            };
            if members.get().count == 1 {
                members.remove();
                // (Twice as much as it would grow to: not at every turn.)
                if table.capacity() > 32 && table.len() < table.capacity() / 8 {
                    let few = 2 * table.len();
                    table.shrink_to(few);
                }
            } else {
                let members = members.get_mut();
                members.count -= 1;
                if before == NONE {
                    members.first = after;
                }
                if after == NONE {
                    members.last = before;
                }
            }
            self.nodes.set(node, FREE);
            self.taken.remove(node);
            node = next;
        }
    }

    fn change(&mut self, node: u32, change: impl FnOnce(&mut Node)) {
        change(self.nodes.cell(node).expect("a linked node is there"));
    }

    /// How many entries carry a tag.
    pub(crate) fn count(&self, tag: u64) -> u32 {
        let table = &self.tables[(tag >> 56) as usize % TABLES];
        table.get(&tag).map_or(0, |members| members.count)
    }

    /// The slots of the oldest entries that carry a tag.
    pub(crate) fn oldest(&self, tag: u64) -> impl Iterator<Item = u32> + '_ {
        let table = &self.tables[(tag >> 56) as usize % TABLES];
        let mut node = table.get(&tag).map_or(NONE, |members| members.first);
        std::iter::from_fn(move || {
            let this = (node != NONE).then(|| self.nodes.get(node))?;
            node = this.after;
            Some(this.slot)
        })
    }

    /// Gives back what is beside a chunk of slots none of which is taken.
    pub(crate) fn release_slots(&mut self, chunk: usize) {
        self.of_slot.release_chunk(chunk);
    }

    /// Gives back unused memory among `most` chunks of nodes; whether there may be more.
    pub(crate) fn trim(&mut self, most: usize) -> bool {
        let end = (self.cursor + most).min(self.nodes.chunks());
        for chunk in self.cursor..end {
            if self.taken.is_empty_at(chunk * WORDS..(chunk + 1) * WORDS) {
                self.nodes.release_chunk(chunk);
            }
        }
        let more = end < self.nodes.chunks();
        self.cursor = if more { end } else { 0 };
        if !more {
            self.taken.shrink();
        }
        more
    }

    pub(crate) fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| {
            // (A byte of control and one in eight free, as hashbrown has it.)
            size_of::<Table>() + table.capacity() * 8 / 7 * (size_of::<(u64, Members)>() + 1)
        });
        tables.sum::<usize>()
            + self.nodes.bytes()
            + self.of_slot.bytes()
            + self.taken.bytes()
            + size_of::<Self>()
    }

    /// Recounts everything; `linked` are all slots with an entry.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn validate(&self, linked: &[u32]) {
        let mut of_slots = 0;
        for &slot in linked {
            let mut node = self.of_slot.get(slot);
            while node != NONE {
                let this = self.nodes.get(node);
                assert_eq!(this.slot, slot, "a slot's node is another's");
                assert!(self.taken.contains(node));
                of_slots += 1;
                node = this.next;
            }
        }
        let mut of_tags = 0;
        for (tag, members) in self.tables.iter().flatten() {
            let slots: Vec<u32> = self.oldest(*tag).collect();
            assert_eq!(slots.len(), members.count as usize);
            assert_eq!(self.nodes.get(members.last).after, NONE);
            assert!(
                slots.iter().all(|slot| linked.binary_search(slot).is_ok()),
                "a tag names a slot that is not linked"
            );
            of_tags += slots.len();
        }
        assert_eq!(of_slots, of_tags);
        assert_eq!(of_tags, self.taken.count());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn tags(random: &mut SmallRng) -> Vec<u64> {
        let few: BTreeSet<u64> = (0..random.random_range(0..5))
            .map(|_| random.random_range(0..40u64) << random.random_range(48..58))
            .collect();
        few.into_iter().collect()
    }

    /// Against plain sets, in the order of arrival.
    #[test]
    fn random_arrivals_and_departures_agree_with_plain_lists() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut groups = Groups::new();
        let mut slots: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut members: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for round in 0..60_000u32 {
            let slot = random.random_range(0..3_000);
            if let Some(gone) = slots.remove(&slot) {
                groups.leave(slot);
                for tag in gone {
                    members
                        .get_mut(&tag)
                        .unwrap()
                        .retain(|&other| other != slot);
                }
            } else if !(round / 10_000).is_multiple_of(2) || random.random_bool(0.1) {
                let tags = tags(&mut random);
                groups.enter(slot, &tags);
                for &tag in &tags {
                    members.entry(tag).or_default().push(slot);
                }
                slots.insert(slot, tags);
            }
            if round % 997 == 0 {
                let linked: Vec<u32> = slots.keys().copied().collect();
                groups.validate(&linked);
                for (&tag, slots) in &members {
                    assert!(groups.oldest(tag).eq(slots.iter().copied()), "order");
                    assert_eq!(groups.count(tag) as usize, slots.len());
                }
                while groups.trim(3) {}
            }
        }
        slots.keys().for_each(|&slot| groups.leave(slot));
        groups.validate(&[]);
    }

    #[test]
    fn what_millions_of_tags_took_is_given_back() {
        let mut groups = Groups::new();
        let empty = groups.bytes();
        for slot in 0..200_000u32 {
            groups.enter(slot, &[u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15)]);
        }
        let full = groups.bytes();
        (0..200_000).for_each(|slot| groups.leave(slot));
        (0..200_000 / crate::limits::SIDE_CHUNK + 1).for_each(|chunk| groups.release_slots(chunk));
        while groups.trim(4) {}
        let after = groups.bytes() - empty;
        assert!(
            full > 200_000 * 40 && after < full / 20,
            "{empty} {full} {after}"
        );
    }
}
