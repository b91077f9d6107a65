//! Room for what a write brings to a bounded cache: the dead first, wherever they are, then the
//! policy's choice.

use std::hash::{BuildHasher, Hash};

use super::core::Core;
use crate::bound::Debt;
use crate::clock::Reading;
use crate::lane;
use crate::limits::{DEAD_HOLDS, EVICTIONS_TOGETHER, PATIENT_LOOKS};
use crate::order::Need;
use crate::reclaim::pin;
use crate::shard::{Hold, Shard};
use crate::slab::SlotRef;
use crate::sync::Ordering;

/// What a look for dead entries, before a living one is evicted, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dead {
    /// One was unlinked, of this weight.
    Reaped(u64),
    /// There is none whose lane unit has passed.
    None,
    /// The bounded look met only renewed entries, and a minimum says that there is more.
    Suspected,
}

/// What a write has linked, and what it owes the bound for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) slot: Option<u32>,
    pub(crate) debt: Debt,
}

impl Written {
    /// Nothing was linked.
    pub(crate) const NOTHING: Written = Written {
        slot: None,
        debt: Debt::NONE,
    };

    /// A new entry of this weight.
    pub(crate) fn new(slot: SlotRef<'_>, weight: u64) -> Self {
        Written {
            slot: Some(slot.id()),
            debt: Debt::of(1, weight),
        }
    }

    /// An entry that took the place of one that weighed `old`.
    pub(crate) fn instead(slot: SlotRef<'_>, weight: u64, old: u64) -> Self {
        Written {
            slot: Some(slot.id()),
            debt: Debt::of(0, weight.saturating_sub(old)),
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// In a write's own hold, where that is all there is to do: evicts from its shard what it owes. Not
    /// if an entry somewhere may be over, which would have to go first.
    #[inline]
    pub(crate) fn make_room_at_once(&self, hold: &mut Hold<'_, K, V>, written: &mut Written) {
        if hold.excess().is_some() {
            self.evict_in(hold, written);
        }
    }

    /// Nor if the shard has no more than its part: others have taken more, and give it back first.
    /// (Otherwise what heavy entries leave free, when they make room for light ones, would wander off to
    /// other shards for good.)
    #[inline(never)]
    fn evict_in(&self, hold: &mut Hold<'_, K, V>, written: &mut Written) {
        let share = self.rules.bound.share(self.shards.len());
        if hold.is_over_share(share) && !self.may_hold_dead(hold) {
            hold.evict(written.slot, &mut written.debt, false);
        }
    }

    /// Whether an entry somewhere may be over that a look could find.
    fn may_hold_dead(&self, hold: &mut Hold<'_, K, V>) -> bool {
        // Relaxed: a hint; what was filed just now is not over yet.
        let known = self.rules.soonest.load(Ordering::Relaxed);
        if known == lane::NONE {
            return false;
        }
        let now = hold.began();
        if known > lane::unit_of(now) {
            return false;
        }
        let (mut worth, mut soonest) = (false, lane::NONE);
        for shard in &self.shards {
            let due = shard.due();
            soonest = soonest.min(due);
            worth |= due != lane::NONE && self.is_worth_a_look(shard, due, now);
        }
        if !worth && soonest > known {
            self.raise_soonest(known, soonest);
        }
        worth
    }

    /// So that writers need not look at every shard before one has something due.
    #[cold]
    fn raise_soonest(&self, known: u32, soonest: u32) {
        let cell = &self.rules.soonest;
        // AcqRel: a minimum that was lowered meanwhile is either seen below, or lowers the cell again
        // (or has made this fail).
        if cell
            .compare_exchange(known, soonest, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            && let Some(due) = self.shards.iter().map(|shard| shard.due()).min()
        {
            cell.fetch_min(due, Ordering::AcqRel);
        }
    }

    /// Whether a shard whose minimum is `due` has an entry that is over at `now`, or may have one.
    /// What is filed under the unit that is now passing may not be over yet: such a shard is looked
    /// into, but not again and again.
    fn is_worth_a_look(&self, shard: &Shard<K, V>, due: u32, now: u64) -> bool {
        let horizon = lane::unit_of(now);
        due < horizon || due == horizon && !shard.is_vain(now)
    }

    /// While there is too much, takes out as much as is owed, one shard at a time: the dead first,
    /// wherever they are, then the policy's choice in the writer's shard or the next that holds more
    /// than its part, or else in any that has one; what was just written only if there is nothing else.
    pub(super) fn make_room(
        &self,
        home: usize,
        written: Option<u32>,
        debt: &mut Debt,
        time: Reading<'_>,
    ) {
        let mut spare = written;
        while let Some(need) = self.rules.bound.excess() {
            if !debt.is_owed(need) {
                return;
            }
            let known = match self.reap_one_dead(home, time) {
                // (One without weight is of no use where weight is needed.)
                Dead::Reaped(weight) if weight > 0 || need == Need::Entries => {
                    debt.pay(need, weight);
                    continue;
                }
                Dead::Reaped(_) | Dead::None => false,
                Dead::Suspected => true,
            };
            if !self.rules.bound.evicts() {
                return;
            }
            let mut evict = |hold: &mut Hold<'_, K, V>, shard| {
                hold.evict(spare.filter(|_| shard == home), debt, known) || hold.excess().is_none()
            };
            if !self.until_found(home, time, &mut evict) && spare.take().is_none() {
                return;
            }
        }
    }

    /// Before a write that the sums have no room for: takes out what is over or, where entries are
    /// evicted, one that lives. Whether anything left.
    pub(crate) fn make_room_before(&self, home: usize, time: Reading<'_>) -> bool {
        let evicts = self.rules.bound.evicts();
        // A refusal is what the caller sees: looks until nothing is suspected any more. (Each look
        // files the renewed anew; the limit is for those who renew as fast as that.)
        let mut looks = if evicts { 1 } else { PATIENT_LOOKS };
        if !evicts {
            self.shards.iter().for_each(Shard::forget_vain);
        }
        let known = loop {
            looks -= 1;
            match self.reap_one_dead(home, time) {
                Dead::Reaped(_) => return true,
                Dead::None => break false,
                Dead::Suspected if looks == 0 => break true,
                Dead::Suspected => {}
            }
        };
        // (Only the range of the sum of weights makes an evicting cache refuse anything.)
        let mut evict =
            |hold: &mut Hold<'_, K, V>, _| hold.evict_one(None, Need::Weight, known).is_some();
        evicts && self.until_found(home, time, &mut evict)
    }

    /// Holds one shard after another, from `home` on, until `evict` says that it found something: first
    /// those that hold more than their part, then all.
    fn until_found<'s>(
        &'s self,
        home: usize,
        time: Reading<'s>,
        evict: &mut impl FnMut(&mut Hold<'_, K, V>, usize) -> bool,
    ) -> bool {
        let share = self.rules.bound.share(self.shards.len());
        let is_over = |shard: &usize| self.shards[*shard].load() > share;
        let over = self.from(home).filter(is_over);
        over.chain(self.from(home))
            .any(|shard| self.within(shard, time, |hold| evict(hold, shard)))
    }

    /// Runs `f` in a hold of a shard's lock, and tells of what left.
    fn within<'s, R>(
        &'s self,
        shard: usize,
        time: Reading<'s>,
        f: impl FnOnce(&mut Hold<'_, K, V>) -> R,
    ) -> R {
        let guard = pin();
        let mut hold = self.hold_at(shard, time, &guard);
        let answer = f(&mut hold);
        let released = hold.release();
        drop(guard);
        self.finish(shard, released);
        answer
    }

    fn reap_one_dead(&self, home: usize, mut time: Reading<'_>) -> Dead {
        let mut known = Dead::None;
        for shard in self.from(home) {
            let due = self.shards[shard].due();
            if due == lane::NONE {
                continue;
            }
            let now = time.ask();
            if !self.is_worth_a_look(&self.shards[shard], due, now) {
                continue;
            }
            for _ in 0..DEAD_HOLDS {
                if let Some(weight) = self.within(shard, time, |hold| hold.reap_one()) {
                    return Dead::Reaped(weight);
                }
                if self.shards[shard].due() >= lane::unit_of(now) {
                    break;
                }
            }
            self.shards[shard].note_vain(now);
            if self.shards[shard].due() < lane::unit_of(now) {
                known = Dead::Suspected;
            }
        }
        known
    }

    /// After the bound was changed: tells the shards, and takes out what is too much, in holds of at
    /// most [`EVICTIONS_TOGETHER`] entries, from one shard after another.
    pub(crate) fn bound_changed(&self) {
        let share = self.rules.bound.share(self.shards.len());
        for shard in &self.shards {
            shard.set_share(share);
        }
        if !self.rules.bound.evicts() {
            return;
        }
        // A slice of each shard in turn, so that none loses more than the others.
        for home in (0..self.shards.len()).cycle() {
            if self.rules.bound.excess().is_none() {
                return;
            }
            let mut debt = Debt::of_slice(EVICTIONS_TOGETHER as u64);
            self.make_room(home, None, &mut debt, self.rules.time.reading());
        }
    }

    fn from(&self, home: usize) -> impl Iterator<Item = usize> {
        let shards = self.shards.len();
        (home..home + shards).map(move |shard| shard % shards)
    }
}
