//! Keys: everything random is drawn before a clock starts, from fixed seeds.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// The skew used throughout (YCSB's).
pub(crate) const THETA: f64 = 0.99;

/// How the keys of an access sequence are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    Uniform,
    Zipf,
}

impl Draw {
    pub(crate) const BOTH: [Self; 2] = [Self::Uniform, Self::Zipf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf 0.99",
        }
    }
}

/// All keys below `n`, in random order: the order in which stores are filled, so
/// that neither key order nor popularity matches the order in memory.
pub(crate) fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let n = u32::try_from(n).expect("fewer than 2^32 keys");
    let mut keys: Vec<u32> = (0..n).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(seed));
    keys
}

/// An access sequence over the keys below `n`. Four times as long as there are
/// keys, within [2^15, 2^22]: long enough that a million keys are really visited,
/// and 4 bytes an access, read in order, so that it costs the cache little.
pub(crate) fn sequence(draw: Draw, n: usize, seed: u64) -> Vec<u32> {
    let length = (4 * n).clamp(1 << 15, 1 << 22);
    let mut rng = SmallRng::seed_from_u64(seed);
    let top = u32::try_from(n).expect("fewer than 2^32 keys");
    match draw {
        Draw::Uniform => (0..length).map(|_| rng.random_range(0..top)).collect(),
        Draw::Zipf => {
            let zipf = Zipf::new(f64::from(top), THETA).expect("n >= 1 and theta > 0");
            (0..length)
                .map(|_| zipf.sample(&mut rng) as u32 - 1)
                .collect()
        }
    }
}

/// The `i`-th of a sequence of distinct keys in random order, without an array
/// (SplitMix64's finalizer is a bijection): for tests that measure memory.
pub(crate) fn scattered(i: u64) -> u64 {
    let mut z = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `count` with its unit, as the tables write it: 1 k, 100 k, 1 M, 700 k.
pub(crate) fn count_name(count: u64) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(100_000) => {
            let millions = format!("{:.1}", count as f64 / 1e6);
            format!("{} M", millions.trim_end_matches(".0"))
        }
        1_000.. if count.is_multiple_of(1_000) => format!("{} k", count / 1_000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut keys = shuffled(5_000, 1);
        assert_ne!(keys, (0..5_000).collect::<Vec<_>>());
        keys.sort_unstable();
        assert_eq!(keys, (0..5_000).collect::<Vec<_>>());
    }

    #[test]
    fn sequences_stay_below_n_and_zipf_is_skewed_as_stated() {
        let n = 1_000;
        let share_of_first = |draw| {
            let keys = sequence(draw, n, 7);
            assert_eq!(keys.len(), 1 << 15);
            assert!(keys.iter().all(|&key| (key as usize) < n));
            keys.iter().filter(|&&key| key == 0).count() as f64 / keys.len() as f64
        };
        // The first of 1,000 keys gets 1 / H(1000, 0.99) = 12.9 % of a zipf sequence.
        let harmonic: f64 = (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum();
        assert!((share_of_first(Draw::Zipf) - 1.0 / harmonic).abs() < 0.01);
        assert!((share_of_first(Draw::Uniform) - 0.001).abs() < 0.001);
    }

    #[test]
    fn scattered_keys_are_distinct() {
        let keys: HashSet<u64> = (0..100_000).map(scattered).collect();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn counts_are_named() {
        for (count, name) in [
            (0, "0"),
            (1_000, "1 k"),
            (700_000, "700 k"),
            (1_000_000, "1 M"),
            (1_400_000, "1.4 M"),
            (10_000_000, "10 M"),
        ] {
            assert_eq!(count_name(count), name);
        }
    }
}
