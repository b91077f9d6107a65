//! One cycle of the sweep: due shards in turn, a short hold of each lock at a time.

use super::Target;
use super::budget::Budget;
use crate::limits::{LOCK_SLICE_NS, SLICE_UNLINKS};
use crate::shard::{Goal, Round, Slice, SweepReport};
use crate::stats::add;
use crate::sync::Ordering;

/// What a cycle did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CycleReport {
    /// Shards that were swept (sampling: drawn from).
    #[cfg_attr(not(feature = "tracing"), allow(dead_code))]
    pub(crate) shards: usize,
    /// Lane slots looked at (sampling: slots drawn).
    pub(crate) scanned: u64,
    /// Entries looked at.
    pub(crate) inspected: u64,
    /// Entries unlinked.
    pub(crate) expired: u64,
    /// Entries filed anew.
    pub(crate) refiled: u64,
    /// Nothing that is due was left behind.
    pub(crate) finished: bool,
}

/// What bounds a cycle.
pub(crate) struct Bounds<'a> {
    pub(crate) budget: Budget,
    /// Entries to unlink, at most.
    pub(crate) most: u64,
    /// Real time in nanoseconds.
    pub(crate) clock: &'a dyn Fn() -> u64,
}

/// Sweeps the shards that `mine` accepts, beginning at `*next`, which is left at the shard to begin
/// with the next time: the one that has waited longest. Each visit is one hold of a shard's lock,
/// so a shard with much to do does not hold up the others. A locked shard is passed over at first
/// and waited for only when nothing else is left. Shards of which at most the share `tolerated` is
/// due are left alone.
pub(crate) fn cycle(
    target: &dyn Target,
    mine: &dyn Fn(usize) -> bool,
    next: &mut usize,
    horizon: u32,
    tolerated: f64,
    bounds: &Bounds<'_>,
) -> CycleReport {
    let shards = target.shards();
    let mut report = CycleReport::default();
    let mut done = vec![false; shards];
    // Whether a shard is worth sweeping is asked at its first visit.
    let mut rounds: Vec<Option<Round>> = vec![None; shards];
    let goal_of = |round: Option<Round>| Goal {
        round,
        horizon,
        tolerated: if round.is_some() { 0.0 } else { tolerated },
    };
    loop {
        let (mut visited, mut locked) = (false, None);
        let start = *next;
        for shard in (start..start + shards).map(|shard| shard % shards) {
            if done[shard] || !mine(shard) || target.due(shard) > horizon {
                continue;
            }
            if bounds.is_reached(&report) {
                *next = shard;
                return report;
            }
            let goal = goal_of(rounds[shard]);
            match visit(target, shard, goal, bounds, false, &mut report) {
                Some(swept) => {
                    (visited, rounds[shard], done[shard]) = (true, swept.round, swept.finished);
                }
                None => locked = Some(shard),
            }
            *next = (shard + 1) % shards;
        }
        match locked {
            _ if visited => {}
            None => {
                report.finished = true;
                return report;
            }
            Some(shard) => {
                if bounds.is_reached(&report) {
                    return report;
                }
                let goal = goal_of(rounds[shard]);
                if let Some(swept) = visit(target, shard, goal, bounds, true, &mut report) {
                    (rounds[shard], done[shard]) = (swept.round, swept.finished);
                }
            }
        }
    }
}

/// One hold of a shard's lock, or `None` if it was locked.
fn visit(
    target: &dyn Target,
    shard: usize,
    goal: Goal,
    bounds: &Bounds<'_>,
    wait: bool,
    report: &mut CycleReport,
) -> Option<SweepReport> {
    let slice = Slice {
        most: (bounds.most - report.expired).min(SLICE_UNLINKS),
        clock: bounds.clock,
        length: LOCK_SLICE_NS.min(bounds.budget.left((bounds.clock)())),
    };
    let Some(swept) = target.sweep(shard, goal, wait, slice) else {
        add(&target.counts().contended, 1);
        return None;
    };
    target
        .counts()
        .longest_hold
        .fetch_max(swept.held, Ordering::Relaxed);
    report.shards += usize::from(goal.round.is_none());
    report.scanned += swept.scanned;
    report.inspected += swept.inspected;
    report.expired += swept.expired;
    report.refiled += swept.refiled;
    Some(swept)
}

impl Bounds<'_> {
    fn is_reached(&self, report: &CycleReport) -> bool {
        report.expired >= self.most || self.budget.is_spent((self.clock)())
    }
}
