//! The reaper's work on one shard: a slice of the sweep, or some random looks.

use crate::entry::word::{Found, NEVER};
use crate::lane::{self, NONE};
use crate::limits::{DEAD_BLOCKS, DEAD_LOOKS, LANE_BLOCK, MAKE_WAY};
use crate::slab::SlotRef;
use crate::stats::Path;

use super::Hold;

/// Once around the lane, in as many holds as it takes. Without it each hold would begin a round of
/// its own, and where one takes longer than a slice and meets entries that are not over yet, none
/// would ever be complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// The block where it began, and ends.
    start: usize,
    /// It has gone on from the beginning.
    wrapped: bool,
}

/// What a sweep is after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The round to go on with; a new one if there is none.
    pub(crate) round: Option<Round>,
    /// The last lane unit whose entries may be due.
    pub(crate) horizon: u32,
    /// The share of due entries that is left alone.
    pub(crate) tolerated: f64,
}

/// How much one hold may do.
pub(crate) struct Slice<'a> {
    /// Entries to unlink, at most.
    pub(crate) most: u64,
    /// Real time in nanoseconds.
    pub(crate) clock: &'a dyn Fn() -> u64,
    /// Time after which to stop; looked at after each block of 64 slots.
    pub(crate) length: u64,
}

/// What a slice of the sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SweepReport {
    /// Lane slots looked at.
    pub(crate) scanned: u64,
    /// Entries looked at.
    pub(crate) inspected: u64,
    /// Entries unlinked.
    pub(crate) expired: u64,
    /// Entries that had been renewed.
    pub(crate) refiled: u64,
    /// Nothing that was due when the round began was left behind.
    pub(crate) finished: bool,
    /// What to go on with.
    pub(crate) round: Option<Round>,
    /// For how long the lock was held, in nanoseconds.
    pub(crate) held: u64,
}

/// What some random looks found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SampleReport {
    /// Timed entries looked at.
    pub(crate) inspected: u64,
    /// Those that were over, and are unlinked.
    pub(crate) expired: u64,
}

impl<'s, K: Send + Sync + 'static, V: Send + Sync + 'static> Hold<'s, K, V> {
    /// Goes on from the cursor: unlinks what is over among the slots whose lane is at most
    /// `horizon`, files the renewed anew, and raises the minima behind itself.
    pub(crate) fn sweep(&mut self, goal: Goal, slice: Slice<'_>) -> SweepReport {
        let horizon = goal.horizon;
        let begin = (slice.clock)();
        let mut report = SweepReport::default();
        if goal.tolerated > 0.0 {
            let many = goal.tolerated * self.linked() as f64;
            if !self
                .state
                .lane
                .has_more_due(many, horizon, &mut report.scanned)
            {
                report.finished = true;
                report.held = (slice.clock)().saturating_sub(begin);
                return report;
            }
        }
        let now = self.time.now();
        let blocks = self.state.lane.blocks();
        let mut block = if self.state.cursor < blocks {
            self.state.cursor
        } else {
            0
        };
        // From the cursor to the end, then from the beginning to where the round began.
        let Round { start, mut wrapped } = goal.round.unwrap_or(Round {
            start: block,
            wrapped: false,
        });
        report.finished = loop {
            let next = self.state.lane.next_due_block(block, horizon);
            let next = match next {
                Some(next) if !wrapped || next < start => next,
                _ if wrapped => break true,
                _ => {
                    (block, wrapped) = (0, true);
                    continue;
                }
            };
            let left = slice.most - report.expired;
            if !self.sweep_block(next, horizon, now, left, &mut report) {
                self.state.cursor = next;
                break false;
            }
            block = next + 1;
            self.state.cursor = block;
            if (slice.clock)().saturating_sub(begin) >= slice.length {
                break false;
            }
        };
        report.round = Some(Round { start, wrapped });
        self.state.lane.raise_min();
        report.finished |= self.state.lane.min() > horizon;
        report.held = (slice.clock)().saturating_sub(begin);
        report
    }

    /// Goes through one block until `most` entries are unlinked, or until somebody wants the lock and
    /// [`MAKE_WAY`] were dealt with in this hold; whether that was all of it.
    fn sweep_block(
        &mut self,
        block: usize,
        horizon: u32,
        now: u64,
        most: u64,
        report: &mut SweepReport,
    ) -> bool {
        let due = self.state.lane.due_in_block(block, horizon);
        report.scanned += LANE_BLOCK as u64;
        let first = (block * LANE_BLOCK) as u32;
        for id in bits(due).map(|bit| first + bit) {
            if let Some(slot) = self.state.slab.linked(id, self.guard) {
                self.shard.slab.prefetch(slot);
                self.shard
                    .index
                    .prefetch(self.state.hashes.get(id), self.guard);
            }
        }
        let (mut unlinked, mut done) = (0, true);
        for id in bits(due).map(|bit| first + bit) {
            if unlinked == most || report.inspected >= MAKE_WAY && self.shard.is_wanted() {
                done = false;
                break;
            }
            let Some(slot) = self.state.slab.linked(id, self.guard) else {
                debug_assert!(false, "slot {id} is filed but not linked");
                self.state.lane.clear(id);
                continue;
            };
            report.inspected += 1;
            if self.reap_slot(slot, now, Path::Sweep) {
                unlinked += 1;
            } else {
                report.refiled += 1;
            }
        }
        report.expired += unlinked;
        self.state.lane.raise_block(block);
        done
    }

    /// Unlinks a linked slot if it is over (then true), else files it anew.
    fn reap_slot(&mut self, slot: SlotRef<'s>, now: u64, path: Path) -> bool {
        let word = &self.shard.slab.entry(slot).word;
        let deadline = match word.settle(|word| word != NEVER && now >= word) {
            Found::Live(word) => {
                let filed = if word == NEVER {
                    NONE
                } else {
                    lane::unit_of(word)
                };
                self.state.lane.file(slot.id(), filed);
                return false;
            }
            Found::Expired(deadline) => Some(deadline),
            Found::Dead => None,
        };
        let place = self
            .find_slot(slot.id())
            .expect("a linked slot has an index cell");
        let lag = self.lag(slot, deadline, now);
        self.unlink(place, crate::RemovalCause::Expired, path, lag);
        true
    }

    /// Unlinks one entry that is known to be over, if a bounded look finds one: dead entries go
    /// before the living when room is needed. What it weighed.
    pub(crate) fn reap_one(&mut self) -> Option<u64> {
        let now = self.time.now();
        let passing = lane::unit_of(now);
        let mut bounds = (DEAD_LOOKS, DEAD_BLOCKS);
        // First those whose unit has passed: they are over for certain, unless they were renewed. Of those
        // filed under the passing unit many may not be over, and would use up the looks.
        for horizon in passing.saturating_sub(1)..=passing {
            if self.state.lane.min() > horizon {
                continue;
            }
            let found = self.reap_one_up_to(horizon, now, &mut bounds);
            self.state.lane.raise_min();
            if found.is_some() || bounds.0 == 0 || bounds.1 == 0 {
                return found;
            }
        }
        None
    }

    /// The same among slots whose lane is at most `horizon`, with so many looks at entries and into blocks.
    fn reap_one_up_to(
        &mut self,
        horizon: u32,
        now: u64,
        (looks, blocks): &mut (u32, u32),
    ) -> Option<u64> {
        let mut block = 0;
        while let Some(next) = self.state.lane.next_due_block(block, horizon) {
            let first = (next * LANE_BLOCK) as u32;
            let mut found = None;
            for id in bits(self.state.lane.due_in_block(next, horizon)).map(|bit| first + bit) {
                let Some(slot) = self.state.slab.linked(id, self.guard) else {
                    continue;
                };
                *looks -= 1;
                let weight = self.weight_of(slot);
                found = self.reap_slot(slot, now, Path::Write).then_some(weight);
                if found.is_some() || *looks == 0 {
                    break;
                }
            }
            self.state.lane.raise_block(next);
            *blocks -= 1;
            if found.is_some() || *looks == 0 || *blocks == 0 {
                return found;
            }
            block = next + 1;
        }
        None
    }

    /// Looks at the timed entries among the given slots, and unlinks those that are over until
    /// `most` are.
    pub(crate) fn sample(&mut self, slots: &[u32], most: u64, report: &mut SampleReport) {
        let now = self.time.now();
        for &id in slots {
            if report.expired == most {
                break;
            }
            if self.state.lane.get(id) == NONE {
                continue;
            }
            let Some(slot) = self.state.slab.linked(id, self.guard) else {
                continue;
            };
            report.inspected += 1;
            if self.reap_slot(slot, now, Path::Sweep) {
                report.expired += 1;
                // So that the reaper can sleep once nothing is left.
                self.state.lane.raise_block(id as usize / LANE_BLOCK);
            }
        }
        self.state.lane.raise_min();
    }

    /// Slot ids below which all timed entries are.
    pub(crate) fn timed_reach(&self) -> u32 {
        (self.state.lane.blocks() * LANE_BLOCK).min(self.state.slab.linked_words() * 64) as u32
    }
}

/// The positions of the set bits.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}
