//! Evictions: what the policy chooses goes, in a hold of the lock.

use super::Hold;
use crate::RemovalCause;
use crate::bound::Debt;
use crate::limits::{EVICTIONS_TOGETHER, LOOK_AHEAD_FROM};
use crate::order::Need;
use crate::stats::Path;

impl<'s, K: Send + Sync + 'static, V: Send + Sync + 'static> Hold<'s, K, V> {
    /// While there is too much and something is owed, evicts the policy's choice of this shard, other
    /// than `spare`, some [`EVICTIONS_TOGETHER`] at most; pays what left off the debt. Whether there
    /// was anything to evict. `dead_known` says that an entry somewhere is over for certain and was not
    /// found.
    pub(crate) fn evict(&mut self, spare: Option<u32>, debt: &mut Debt, dead_known: bool) -> bool {
        let mut found = false;
        for _ in 0..EVICTIONS_TOGETHER {
            let excess = self.excess();
            let Some(need) = excess.filter(|&need| debt.is_owed(need)) else {
                break;
            };
            let Some(weight) = self.evict_one(spare, need, dead_known) else {
                break;
            };
            found = true;
            debt.pay(need, weight);
        }
        if found && self.linked() >= LOOK_AHEAD_FROM {
            self.look_ahead();
        }
        found
    }

    /// Asks for what the next evictions of this shard will look at, so that the writers that come by
    /// then do not wait for memory: of the next entry to go what its hash leads to, of the one after
    /// that the entry with its side arrays.
    fn look_ahead(&self) {
        let Some(order) = &self.state.order else {
            return;
        };
        let [next, after] = order.upcoming();
        if let Some(slot) = next {
            let hash = self.state.hashes.get(slot);
            self.shard.index.prefetch(hash, self.guard);
            order.prefetch_departure(hash);
        }
        if let Some(slot) = after {
            self.state.hashes.prefetch(slot);
            order.prefetch_links(slot);
            if let Some(slot) = self.state.slab.linked(slot, self.guard) {
                self.shard.slab.prefetch(slot);
                self.shard.slab.prefetch_mark(slot);
            }
        }
    }

    /// Evicts one entry; what it weighed.
    pub(crate) fn evict_one(
        &mut self,
        spare: Option<u32>,
        need: Need,
        dead_known: bool,
    ) -> Option<u64> {
        let victim = self.tell_order(|order, view| order.victim(spare, need, view))??;
        let place = self.find_slot(victim).expect("an ordered slot is linked");
        let weight = self.weight_of(place.slot);
        // It goes whatever it is: evicted, if it lived at some moment of the call.
        let time = self.time.of_call();
        let alive = self.end_at(place, RemovalCause::Evicted, Path::Write, time);
        if alive && dead_known {
            self.state.tally.live_evicted_while_dead += 1;
        }
        Some(weight)
    }

    /// What there is too much of, with what this hold has done.
    #[inline]
    pub(crate) fn excess(&self) -> Option<Need> {
        self.account.excess()
    }

    /// Whether the shard holds more than its part of the bound.
    pub(crate) fn is_over_share(&self, share: u64) -> bool {
        self.state.load > share
    }
}
