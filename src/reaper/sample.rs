//! The adaptive random sampler: a few random looks, and again while many of them were expired.
//!
//! The scheme is that of Redis 2.6 to 5 (`activeExpireCycle`), with the repeat rule of the
//! project's seed program: another round when the expired share is *at least* the threshold.

use rand::{Rng, RngExt};

use super::Target;
use super::sweep::{Bounds, CycleReport};
use crate::stats::add;

/// Slots drawn for each entry wanted, at most: free slots and entries without a lifetime are drawn
/// in vain.
const DRAWS: u64 = 8;

/// Slots drawn together at most: bounds a hold of a lock, and the memory for the draws.
const TOGETHER: u64 = 64;

/// Runs rounds of `size` looks over the shards that `mine` accepts.
pub(crate) fn cycle(
    target: &dyn Target,
    mine: &dyn Fn(usize) -> bool,
    (size, threshold, rounds): (usize, f64, usize),
    bounds: &Bounds<'_>,
    random: &mut impl Rng,
) -> CycleReport {
    let mut report = CycleReport {
        shards: (0..target.shards()).filter(|&shard| mine(shard)).count(),
        ..CycleReport::default()
    };
    for _ in 0..rounds {
        let left = bounds.most - report.expired;
        if left == 0 || bounds.budget.is_spent((bounds.clock)()) {
            break;
        }
        let round = round(target, mine, size, left, random);
        add(&target.counts().rounds, 1);
        report.scanned += round.drawn;
        report.inspected += round.inspected;
        report.expired += round.expired;
        let share = round.expired as f64 / round.inspected as f64;
        if round.inspected == 0 || share < threshold {
            report.finished = true;
            break;
        }
    }
    report
}

/// What a round came to.
#[derive(Default)]
struct Round {
    /// Slots drawn.
    drawn: u64,
    /// Timed entries among them.
    inspected: u64,
    /// Those that were over.
    expired: u64,
}

/// One round: draws slots evenly over all shards until `size` timed entries were looked at, `most`
/// were unlinked, or too many draws were in vain.
fn round(
    target: &dyn Target,
    mine: &dyn Fn(usize) -> bool,
    size: usize,
    most: u64,
    random: &mut impl Rng,
) -> Round {
    let reach: Vec<(usize, u64)> = (0..target.shards())
        .filter(|&shard| mine(shard))
        .map(|shard| (shard, u64::from(target.reach(shard))))
        .collect();
    let total: u64 = reach.iter().map(|(_, slots)| slots).sum();
    let mut round = Round::default();
    if total == 0 {
        return round;
    }
    let draws = (size as u64).saturating_mul(DRAWS);
    while round.inspected < size as u64 && round.expired < most && round.drawn < draws {
        // Drawn together and sorted, so that each shard's lock is taken once.
        let wanted = (size as u64 - round.inspected).min(draws - round.drawn);
        let wanted = wanted.min(TOGETHER);
        round.drawn += wanted;
        let mut picks: Vec<u64> = (0..wanted).map(|_| random.random_range(0..total)).collect();
        picks.sort_unstable();
        let (mut picks, mut base) = (&picks[..], 0);
        for &(shard, slots) in &reach {
            let within = picks.partition_point(|&pick| pick < base + slots);
            if within > 0 {
                let ids: Vec<u32> = picks[..within]
                    .iter()
                    .map(|pick| (pick - base) as u32)
                    .collect();
                let found = target.sample(shard, &ids, most - round.expired);
                round.inspected += found.inspected;
                round.expired += found.expired;
            }
            picks = &picks[within..];
            base += slots;
        }
    }
    round
}
