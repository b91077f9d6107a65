//! When a live value is stale enough to be loaded again.
//!
//! A value becomes stale at its *soft deadline*, a fixed time after it was written. With a thousand readers of one
//! key that is still one load (there is one flight for a key), but it may be a thousand keys' loads at one moment,
//! and each begins only once its value is stale. Early refresh spreads and advances them: each read
//! takes itself to be ahead of time by `mean load time × eagerness × −ln(u)`, where u is drawn evenly from (0, 1].
//! That is XFetch (Vattani, Chierichetti, Lowenstein: "Optimal Probabilistic Cache Stampede Prevention",
//! PVLDB 8, 2015), with the mean of this cache's loads in the place of the time that the key's last one took.

use crate::chance;
use crate::entry::word::NEVER;
use crate::sync::{AtomicU64, Ordering};

/// How much each load weighs in the mean, as a power of two.
const WEIGHT: u32 = 3;

/// The settings of one cache, and how long its loads take.
pub(crate) struct Refresh {
    /// From a write to the soft deadline, in nanoseconds.
    after: u64,
    /// 0 for no early refresh.
    eagerness: f64,
    /// Mean time of a load in nanoseconds, 0 before the first one.
    mean: AtomicU64,
}

impl Refresh {
    pub(crate) fn new(after: u64, eagerness: f64) -> Self {
        Refresh {
            after,
            eagerness,
            mean: AtomicU64::new(0),
        }
    }

    /// The soft deadline of a value that is written now.
    pub(crate) fn soft(&self, now: u64) -> u64 {
        now.saturating_add(self.after)
    }

    /// Whether a reader should have the value loaded again.
    pub(crate) fn is_stale(&self, soft: u64, now: u64) -> bool {
        soft != NEVER && (now >= soft || self.is_early(soft - now, chance::draw))
    }

    fn is_early(&self, left: u64, draw: impl FnOnce() -> f64) -> bool {
        if self.eagerness == 0.0 {
            return false;
        }
        // Relaxed: an estimate.
        let scale = self.mean.load(Ordering::Relaxed) as f64 * self.eagerness;
        // No double draws more than this; nearly all reads are farther away, and need not draw.
        const MOST: f64 = 38.0;
        let left = left as f64;
        left < scale * MOST && -(1.0 - draw()).ln() * scale >= left
    }

    /// A load took so long.
    pub(crate) fn took(&self, nanos: u64) {
        // Relaxed: an estimate; of two loads that end together one may be forgotten.
        let mean = self.mean.load(Ordering::Relaxed);
        let mean = match mean {
            0 => nanos,
            mean => mean - (mean >> WEIGHT) + (nanos >> WEIGHT),
        };
        self.mean.store(mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_eagerness_stale_is_what_has_passed_its_soft_deadline() {
        let refresh = Refresh::new(10, 0.0);
        refresh.took(1_000_000);
        assert_eq!(refresh.soft(5), 15);
        assert!(!refresh.is_stale(15, 14));
        assert!(refresh.is_stale(15, 15));
        assert!(!refresh.is_stale(NEVER, NEVER - 1));
        assert_eq!(Refresh::new(NEVER, 0.0).soft(5), NEVER);
    }

    #[test]
    fn the_mean_follows_the_loads() {
        let refresh = Refresh::new(10, 1.0);
        refresh.took(800);
        assert_eq!(refresh.mean.load(Ordering::Relaxed), 800);
        (0..100).for_each(|_| refresh.took(80));
        let mean = refresh.mean.load(Ordering::Relaxed);
        assert!((80..=88).contains(&mean), "{mean}");
    }

    /// A read that is `left` ahead of the soft deadline is early with probability e^(−left ÷ (mean × eagerness)).
    #[test]
    fn early_reads_are_as_likely_as_the_paper_says() {
        let refresh = Refresh::new(10, 2.0);
        refresh.took(1_000);
        let (left, draws) = (3_000, 100_000);
        let early = (0..draws)
            .filter(|i| refresh.is_early(left, || (*i as f64 + 0.5) / draws as f64))
            .count();
        let expected = (-1.5f64).exp() * draws as f64;
        assert!(
            (early as f64 - expected).abs() < 2.0,
            "{early}, not {expected}"
        );
        assert!(!refresh.is_early(2_000 * 38, || unreachable!("too far away to draw")));
    }
}
