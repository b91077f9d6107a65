//! Reads: under a pin, without the lock.

use super::Shard;
use crate::entry::Entry;
use crate::entry::word::{DEAD, Found};
use crate::index::Glance;
use crate::reclaim::Guard;
use crate::rules::Rules;
use crate::slab::SlotRef;

/// The answer of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look<'g> {
    /// Alive, with this word.
    Live(SlotRef<'g>, u64),
    /// An entry of the key is still linked, but it is over; with its deadline if this lookup is
    /// the one that ended it.
    Expired(SlotRef<'g>, Option<u64>),
    /// Nothing.
    Absent,
}

impl<'g> Look<'g> {
    pub(crate) fn live(self) -> Option<SlotRef<'g>> {
        match self {
            Look::Live(slot, _) => Some(slot),
            _ => None,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Shard<K, V> {
    /// Looks a key up as most reads can: [`Glance::Elsewhere`] asks for a whole
    /// [`lookup`](Self::lookup), of which this is the beginning.
    #[inline]
    pub(crate) fn glance<'g>(
        &self,
        rules: &Rules<K, V>,
        hash: u32,
        guard: &'g Guard,
        is_key: impl Fn(&K) -> bool,
    ) -> Glance<(SlotRef<'g>, &'g Entry<K, V>)> {
        let found = self.index.glance(hash, guard, |slot| {
            let entry = self.slab.entry(slot);
            is_key(entry.key()).then_some((slot, entry))
        });
        match found {
            Glance::Found((_, entry)) if rules.time.is_due(entry.word.load()) => Glance::Elsewhere,
            found => found,
        }
    }

    /// Looks a key up (P1, P2). Takes no lock; reads the clock only for an entry that has a
    /// deadline.
    pub(crate) fn lookup<'g>(
        &self,
        rules: &Rules<K, V>,
        hash: u32,
        guard: &'g Guard,
        is_key: impl Fn(&K) -> bool,
    ) -> Look<'g> {
        let found = self
            .index
            .find(hash, guard, |slot| is_key(self.slab.entry(slot).key()));
        let Some(place) = found else {
            return Look::Absent;
        };
        let word = self.slab.entry(place.slot).word.load();
        if rules.time.is_due(word) {
            return if rules.time.follows() {
                self.look_behind(rules, hash, guard, is_key, place.slot)
            } else {
                self.look_again(rules, hash, guard, is_key, place.slot)
            };
        }
        Look::Live(place.slot, word)
    }

    /// Makes "expired" final and looks again until the answer is certain: alive, nothing, or the
    /// same slot twice running. Each further round means that another writer has finished.
    #[cold]
    fn look_again<'g>(
        &self,
        rules: &Rules<K, V>,
        hash: u32,
        guard: &'g Guard,
        is_key: impl Fn(&K) -> bool,
        first: SlotRef<'g>,
    ) -> Look<'g> {
        let mut slot = first;
        loop {
            let word = &self.slab.entry(slot).word;
            let deadline = match word.settle(|w| rules.time.is_due(w)) {
                Found::Live(word) => return Look::Live(slot, word),
                Found::Expired(deadline) => Some(deadline),
                Found::Dead => None,
            };
            let again = self
                .index
                .find(hash, guard, |slot| is_key(self.slab.entry(slot).key()));
            match again {
                None => return Look::Absent,
                Some(place) if place.slot.id() == slot.id() => {
                    return Look::Expired(slot, deadline);
                }
                Some(place) => slot = place.slot,
            }
        }
    }

    /// The same for a follower, which hides what is over and ends nothing: an entry that is there says
    /// `Absent` here.
    #[cold]
    fn look_behind<'g>(
        &self,
        rules: &Rules<K, V>,
        hash: u32,
        guard: &'g Guard,
        is_key: impl Fn(&K) -> bool,
        first: SlotRef<'g>,
    ) -> Look<'g> {
        let mut slot = first;
        loop {
            let word = self.slab.entry(slot).word.load();
            if word != DEAD {
                return match rules.time.is_due(word) {
                    true => Look::Absent,
                    false => Look::Live(slot, word),
                };
            }
            let again = self
                .index
                .find(hash, guard, |slot| is_key(self.slab.entry(slot).key()));
            match again {
                Some(place) if place.slot.id() != slot.id() => slot = place.slot,
                _ => return Look::Absent,
            }
        }
    }

    /// Whether a key has an entry that has not ended, hidden or not.
    pub(crate) fn holds(&self, hash: u32, guard: &Guard, is_key: impl Fn(&K) -> bool) -> bool {
        let find = || {
            self.index
                .find(hash, guard, |slot| is_key(self.slab.entry(slot).key()))
        };
        find().is_some_and(|place| self.slab.entry(place.slot).word.load() != DEAD)
    }
}
