//! OPT: what a cache that knows the future could reach.
//!
//! L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966: evict what is needed again last. Here with bypass: what is itself needed
//! last (or never) does not enter. For entries of one size nothing can have more hits.
//!
//! With sizes the same rule is a reference only, not a bound: the best choice of sizes is NP-hard.

use std::collections::BTreeSet;

use super::replay::{Tally, sizes_of};
use super::traces::Trace;

/// A place that no request has: never again.
const NEVER: u32 = u32::MAX;

/// For each request the place of the next one for the same key.
fn next_uses(trace: &Trace) -> Vec<u32> {
    let mut next = vec![NEVER; trace.keys.len()];
    let mut seen = vec![NEVER; trace.distinct as usize];
    for (place, &key) in trace.keys.iter().enumerate().rev() {
        next[place] = seen[key as usize];
        seen[key as usize] = place as u32;
    }
    next
}

/// What is resident.
struct Resident {
    /// Next use and key, so that the farthest is last.
    by_next_use: BTreeSet<(u32, u32)>,
    /// The weight of each resident key; 0 is absent.
    weights: Vec<u32>,
    used: u64,
    bound: u64,
}

impl Resident {
    fn take(&mut self, next_use: u32, key: u32) {
        self.by_next_use.remove(&(next_use, key));
        self.used -= u64::from(std::mem::take(&mut self.weights[key as usize]));
    }

    fn put(&mut self, next_use: u32, key: u32, weight: u32) {
        self.by_next_use.insert((next_use, key));
        self.weights[key as usize] = weight;
        self.used += u64::from(weight);
    }

    /// Makes room out of what is needed later than `next_use`; false, and nothing is changed, when
    /// that is not enough.
    fn make_room(&mut self, next_use: u32, weight: u32) -> bool {
        let free = self.bound.saturating_sub(self.used);
        let mut missing = u64::from(weight).saturating_sub(free);
        let mut leaving = Vec::new();
        for &(other, key) in self.by_next_use.iter().rev() {
            if missing == 0 {
                break;
            }
            if other <= next_use {
                return false;
            }
            missing = missing.saturating_sub(u64::from(self.weights[key as usize]));
            leaving.push((other, key));
        }
        if missing > 0 {
            return false;
        }
        for (other, key) in leaving {
            self.take(other, key);
        }
        true
    }
}

/// Replays a trace with `bound` entries, or bytes when `weighted`. Logarithmic in the bound for a
/// request; 4 bytes for a request and for a distinct key, some 20 for a resident one.
pub(super) fn replay(trace: &Trace, bound: u64, weighted: bool) -> Tally {
    let next = next_uses(trace);
    let mut tally = Tally::default();
    let mut resident = Resident {
        by_next_use: BTreeSet::new(),
        weights: vec![0; trace.distinct as usize],
        used: 0,
        bound,
    };
    let places = (0_u32..).zip(&trace.keys).zip(sizes_of(trace, weighted));
    for (((place, &key), size), &next_use) in places.zip(&next) {
        let held = resident.weights[key as usize];
        tally.count(size, held > 0);
        if held > 0 {
            resident.take(place, key);
        }
        let weight = if held > 0 { held } else { size };
        if next_use != NEVER && (held > 0 || resident.make_room(next_use, weight)) {
            resident.put(next_use, key, weight);
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Op, Request};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    fn trace(requests: &[(u64, u32)]) -> Trace {
        let requests: Vec<Request> = requests
            .iter()
            .map(|&(key, size)| Request {
                key,
                at: 0,
                size,
                ttl: 0,
                op: Op::Fetch,
            })
            .collect();
        Trace::new("test", &requests, true, false)
    }

    /// The most hits that any sequence of choices reaches: after each miss, any subset of what is
    /// resident and new that fits may stay.
    fn brute_force(keys: &[u32], resident: u32, bound: u32) -> u64 {
        let Some((&key, rest)) = keys.split_first() else {
            return 0;
        };
        let bit = 1 << key;
        if resident & bit != 0 {
            return 1 + brute_force(rest, resident, bound);
        }
        let mut best = 0;
        let all = resident | bit;
        // Every subset of `all`.
        let mut subset = all;
        loop {
            if subset.count_ones() <= bound {
                best = best.max(brute_force(rest, subset, bound));
            }
            if subset == 0 {
                return best;
            }
            subset = (subset - 1) & all;
        }
    }

    #[test]
    fn no_choices_have_more_hits() {
        let mut rng = SmallRng::seed_from_u64(5);
        let mut hits = 0;
        for _ in 0..300 {
            let length = rng.random_range(1..=11);
            let (keys, bound) = (rng.random_range(1..=5), rng.random_range(1..=3));
            let requests: Vec<(u64, u32)> = (0..length)
                .map(|_| (rng.random_range(0..keys), 1))
                .collect();
            let trace = trace(&requests);
            let expected = brute_force(&trace.keys, 0, bound);
            for weighted in [false, true] {
                let tally = replay(&trace, u64::from(bound), weighted);
                assert_eq!(tally.hits, expected, "{requests:?} with room for {bound}");
                assert_eq!(tally.requests, length as u64);
            }
            hits += expected;
        }
        assert!(hits > 500, "the traces are worth caching: {hits}");
    }

    #[test]
    fn sizes_are_kept_within_the_bound_and_count_in_bytes() {
        // 0 (60) and 1 (60) do not fit together; 1 is needed first. 2 is too heavy at all.
        let trace = trace(&[(0, 60), (1, 60), (2, 200), (1, 60), (2, 200), (0, 60)]);
        let tally = replay(&trace, 100, true);
        assert_eq!((tally.hits, tally.hit_bytes), (1, 60));
        assert_eq!((tally.requests, tally.bytes), (6, 640));
        let tally = replay(&trace, 320, true);
        assert_eq!((tally.hits, tally.hit_bytes), (3, 320));
    }
}
