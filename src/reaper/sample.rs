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
const DRAWS: usize = 8;

/// Runs rounds of `size` looks over the shards that `mine` accepts.
pub(crate) fn cycle(
    target: &dyn Target,
    mine: &dyn Fn(usize) -> bool,
    (size, threshold, rounds): (usize, f64, usize),
    bounds: &Bounds<'_>,
    random: &mut impl Rng,
) -> CycleReport {
    let mut report = CycleReport::default();
    for _ in 0..rounds {
        let (inspected, expired) = round(target, mine, size, random);
        add(&target.counts().rounds, 1);
        report.scanned += inspected;
        report.inspected += inspected;
        report.expired += expired;
        if inspected == 0 || (expired as f64) < threshold * inspected as f64 {
            report.finished = true;
            break;
        }
        if bounds.budget.is_spent((bounds.clock)()) || report.expired >= bounds.most {
            break;
        }
    }
    report
}

/// One round: draws slots evenly over all shards until `size` timed entries were looked at or too
/// many draws were in vain.
fn round(
    target: &dyn Target,
    mine: &dyn Fn(usize) -> bool,
    size: usize,
    random: &mut impl Rng,
) -> (u64, u64) {
    let reach: Vec<(usize, u64)> = (0..target.shards())
        .filter(|&shard| mine(shard))
        .map(|shard| (shard, u64::from(target.reach(shard))))
        .collect();
    let total: u64 = reach.iter().map(|(_, slots)| slots).sum();
    if total == 0 {
        return (0, 0);
    }
    let (mut inspected, mut expired) = (0, 0);
    let mut draws = size * DRAWS;
    while inspected < size as u64 && draws > 0 {
        // Drawn together and sorted, so that each shard's lock is taken once.
        let wanted = (size - inspected as usize).min(draws);
        draws -= wanted;
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
                let found = target.sample(shard, &ids);
                inspected += found.inspected;
                expired += found.expired;
            }
            picks = &picks[within..];
            base += slots;
        }
    }
    (inspected, expired)
}
