//! The bound of a cache: how much may be linked, and how much is.
//!
//! One for all shards, so that they lend each other room. The sums change in the hold of the lock in which
//! entries are linked or unlinked: they are exact whenever nobody is inside a write.
//! Where entries are evicted the sum goes first and the writer then evicts until it is within the bound
//! again; nobody reserves room, because two writers that did could each wait for the other's. Where
//! nothing is evicted there is nothing to wait for, and room is reserved or the write refused.

use crate::order::{Need, Policy};
use crate::sync::{AtomicU64, Line, Ordering};

/// What a user's weigher is.
pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;

/// No bound.
pub(crate) const NONE: u64 = u64::MAX;

/// How much may be linked, and how much is.
pub(crate) struct Bound<K, V> {
    weigher: Option<Weigher<K, V>>,
    evicts: bool,
    /// Whether it was built with a bound on entries: otherwise [`NONE`] for ever.
    counts: bool,
    most_entries: AtomicU64,
    most_weight: AtomicU64,
    entries: Line<AtomicU64>,
    weight: Line<AtomicU64>,
}

/// There is no room, and nothing may be, or has been, evicted to make some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// What a writer has added to the sums: it owes as much room, and [`MORE`](Debt::MORE) entries, should
/// somebody else have had to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debt {
    entries: u64,
    weight: u64,
    more: u64,
}

impl Debt {
    const MORE: u64 = 2;

    /// Of one who has added so much.
    #[inline]
    pub(crate) fn of(entries: u64, weight: u64) -> Self {
        Debt {
            entries,
            weight,
            more: Debt::MORE,
        }
    }

    /// Of one who has added nothing.
    pub(crate) const NONE: Debt = Debt {
        entries: 0,
        weight: 0,
        more: 0,
    };

    /// Of one who takes out so many entries, whatever they weigh.
    pub(crate) fn of_slice(entries: u64) -> Self {
        Debt {
            entries: 0,
            weight: 0,
            more: entries,
        }
    }

    /// Whether there is more to pay while this is needed.
    #[inline]
    pub(crate) fn is_owed(&self, need: Need) -> bool {
        self.more > 0 || self.owes(need)
    }

    #[inline]
    fn owes(&self, need: Need) -> bool {
        match need {
            Need::Entries => self.entries > 0,
            Need::Weight => self.weight > 0,
        }
    }

    /// One entry of this weight has left.
    #[inline]
    pub(crate) fn pay(&mut self, need: Need, weight: u64) {
        if !self.owes(need) {
            self.more = self.more.saturating_sub(1);
        }
        self.entries = self.entries.saturating_sub(1);
        self.weight = self.weight.saturating_sub(weight);
    }
}

impl<K, V> Bound<K, V> {
    pub(crate) fn new(
        max_entries: Option<u64>,
        max_weight: Option<(u64, Weigher<K, V>)>,
        policy: &Policy,
    ) -> Self {
        let (most_weight, weigher) = max_weight.unzip();
        Bound {
            weigher,
            evicts: policy.evicts(),
            counts: max_entries.is_some(),
            most_entries: AtomicU64::new(max_entries.unwrap_or(NONE)),
            most_weight: AtomicU64::new(most_weight.unwrap_or(NONE)),
            entries: Line(AtomicU64::new(0)),
            weight: Line(AtomicU64::new(0)),
        }
    }

    /// Whether there is any bound.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.counts || self.weighs()
    }

    /// Whether entries are weighed.
    #[inline]
    pub(crate) fn weighs(&self) -> bool {
        self.weigher.is_some()
    }

    /// What an entry weighs: 1 where none is weighed. Runs the user's weigher: call without locks.
    #[inline]
    pub(crate) fn weigh(&self, key: &K, value: &V) -> u64 {
        self.weigher
            .as_ref()
            .map_or(1, |weigher| weigher(key, value))
    }

    /// Whether an entry of this weight would fit if it were the only one.
    #[inline]
    pub(crate) fn fits(&self, weight: u64) -> bool {
        // Relaxed, for the bounds as for the sums: each is a number of its own, and a thread sees
        // its own changes.
        if self.counts && self.most_entries.load(Ordering::Relaxed) == 0 {
            return false;
        }
        !self.weighs() || weight <= self.most_weight.load(Ordering::Relaxed)
    }

    /// Linked entries, where they are counted: where there is any bound.
    pub(crate) fn entries(&self) -> Option<u64> {
        self.is_any().then(|| self.entries.load(Ordering::Relaxed))
    }

    /// The sum of all weights; that of ones where nothing is weighed.
    pub(crate) fn weight(&self) -> Option<u64> {
        if self.weighs() {
            Some(self.weight.load(Ordering::Relaxed))
        } else {
            self.entries()
        }
    }

    /// The account of one hold of a shard's lock.
    #[inline]
    pub(crate) fn open(&self) -> Account<'_, K, V> {
        Account {
            bound: self,
            entries: 0,
        }
    }

    fn lacks(&self, weight: u64) -> bool {
        let most = self.most_weight.load(Ordering::Relaxed);
        let sum = self.weight.load(Ordering::Relaxed).checked_add(weight);
        self.weighs() && weight > 0 && sum.is_none_or(|sum| sum > most)
    }

    /// How far a sum may be raised before anything leaves.
    #[inline]
    fn limit(&self, most: &AtomicU64) -> u64 {
        if self.evicts {
            u64::MAX
        } else {
            most.load(Ordering::Relaxed)
        }
    }

    /// Counts the weight by which an entry will exceed the one whose place it takes, under the lock.
    ///
    /// # Errors
    /// As for [`Account::add`].
    #[inline]
    pub(crate) fn raise(&self, by: u64) -> Result<(), NoRoom> {
        if !self.weighs() || by == 0 {
            return Ok(());
        }
        add_within(&self.weight, by, self.limit(&self.most_weight))
    }

    /// Uncounts the weight by which an entry falls short of the one whose place it has taken, or that
    /// was [raised](Self::raise) for nothing.
    #[inline]
    pub(crate) fn lower(&self, by: u64) {
        if self.weighs() && by > 0 {
            self.weight.fetch_sub(by, Ordering::Relaxed);
        }
    }

    /// Whether living entries may be evicted.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.evicts
    }

    /// What there is too much of.
    #[inline]
    pub(crate) fn excess(&self) -> Option<Need> {
        self.excess_with(0)
    }

    /// The same if so many entries more were counted.
    #[inline]
    fn excess_with(&self, more: u64) -> Option<Need> {
        let exceeds = |sum: &AtomicU64, more: u64, most: &AtomicU64| {
            sum.load(Ordering::Relaxed).saturating_add(more) > most.load(Ordering::Relaxed)
        };
        if self.weighs() && exceeds(&self.weight, 0, &self.most_weight) {
            Some(Need::Weight)
        } else if self.counts && exceeds(&self.entries, more, &self.most_entries) {
            Some(Need::Entries)
        } else {
            None
        }
    }

    /// Changes the bound on entries; false if there is none to change.
    pub(crate) fn set_most_entries(&self, most: u64) -> bool {
        if self.counts {
            self.most_entries.store(most, Ordering::Relaxed);
        }
        self.counts
    }

    /// Changes the bound on weight; false if there is none to change.
    pub(crate) fn set_most_weight(&self, most: u64) -> bool {
        if self.weighs() {
            self.most_weight.store(most, Ordering::Relaxed);
        }
        self.weighs()
    }

    /// What the part of the bound of one of so many shards is, in weight if entries are weighed. (Their
    /// number is a power of two.)
    #[inline]
    pub(crate) fn share(&self, shards: usize) -> u64 {
        debug_assert!(shards.is_power_of_two());
        let most = if self.weighs() {
            &self.most_weight
        } else {
            &self.most_entries
        };
        (most.load(Ordering::Relaxed) >> shards.trailing_zeros()).max(1)
    }
}

/// What one hold of a shard's lock links and unlinks. Where entries are evicted, those that were linked are
/// counted when the account is closed, before the lock is let go, if as many have not left by then: a write
/// that evicts what it owes leaves the number alone, which is on a line that all writers share. (What
/// leaves otherwise is uncounted at once: others need not evict for it.)
pub(crate) struct Account<'b, K, V> {
    bound: &'b Bound<K, V>,
    /// Linked and not counted yet.
    entries: u64,
}

impl<K, V> Account<'_, K, V> {
    /// Counts an entry that is about to be linked.
    ///
    /// # Errors
    /// [`NoRoom`] if it would exceed the bound of a cache that does not evict, or the sum of weights
    /// the range of its type; nothing is counted then.
    #[inline]
    pub(crate) fn add(&mut self, weight: u64) -> Result<(), NoRoom> {
        let bound = self.bound;
        if !bound.is_any() {
            return Ok(());
        }
        if bound.evicts {
            bound.raise(weight)?;
            self.entries += 1;
            return Ok(());
        }
        if bound.lacks(weight) {
            // Before the entry is counted, which would be in the way of another with room.
            return Err(NoRoom);
        }
        add_within(
            &bound.entries,
            1,
            bound.most_entries.load(Ordering::Relaxed),
        )?;
        bound.raise(weight).inspect_err(|_| {
            bound.entries.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Uncounts an entry that was unlinked.
    #[inline]
    pub(crate) fn subtract(&mut self, weight: u64) {
        if !self.bound.is_any() {
            return;
        }
        if self.entries > 0 {
            self.entries -= 1;
        } else {
            self.bound.entries.fetch_sub(1, Ordering::Relaxed);
        }
        self.bound.lower(weight);
    }

    /// What there is too much of, with what this hold has done.
    #[inline]
    pub(crate) fn excess(&self) -> Option<Need> {
        self.bound.excess_with(self.entries)
    }
}

impl<K, V> Drop for Account<'_, K, V> {
    /// Closes it.
    #[inline]
    fn drop(&mut self) {
        if self.entries > 0 {
            self.bound
                .entries
                .fetch_add(self.entries, Ordering::Relaxed);
        }
    }
}

/// Adds to a sum that must not pass `most`.
#[inline]
fn add_within(sum: &AtomicU64, by: u64, most: u64) -> Result<(), NoRoom> {
    let mut seen = sum.load(Ordering::Relaxed);
    loop {
        let raised = seen.checked_add(by).filter(|&raised| raised <= most);
        let raised = raised.ok_or(NoRoom)?;
        match sum.compare_exchange_weak(seen, raised, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => seen = other,
        }
    }
}
