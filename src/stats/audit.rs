//! What a random sample says about all entries.

use std::time::Duration;

/// A look at some entries drawn at random; from [`Cache::audit`](crate::Cache::audit).
///
/// Each field from `dead` on counts sampled entries; [`share_of`](Self::share_of) says what share of all
/// entries that stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Entries linked when the audit began, the dead among them included.
    pub entries: u64,
    /// Entries looked at. Some may have been drawn more than once.
    pub sampled: u64,
    /// Those that are over and have not been unlinked yet.
    pub dead: u64,
    /// Living ones whose deadline comes within a second.
    pub due_in_1s: u64,
    /// Within ten seconds, those within a second included.
    pub due_in_10s: u64,
    /// Within a minute, all of the above included.
    pub due_in_1min: u64,
    /// Within ten minutes, all of the above included.
    pub due_in_10min: u64,
    /// Living ones without a deadline.
    pub never: u64,
}

impl Audit {
    /// The share of entries that are dead, between 0 and 1.
    pub fn dead_share(&self) -> Share {
        self.share_of(self.dead)
    }

    /// What share of all entries `count` of the sampled ones stand for.
    pub fn share_of(&self, count: u64) -> Share {
        Share::new(count, self.sampled)
    }

    /// Counts an entry, by its time left (`None`: it is over; [`Duration::MAX`]: no deadline).
    pub(crate) fn count(&mut self, left: Option<Duration>) {
        self.sampled += 1;
        let Some(left) = left else {
            self.dead += 1;
            return;
        };
        let within = |seconds| u64::from(left <= Duration::from_secs(seconds));
        self.due_in_1s += within(1);
        self.due_in_10s += within(10);
        self.due_in_1min += within(60);
        self.due_in_10min += within(600);
        self.never += u64::from(left == Duration::MAX);
    }
}

/// A share estimated from a sample, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Share {
    /// The share in the sample; 0 if nothing was sampled.
    pub estimate: f64,
    /// The lower end of the interval; 0 if nothing was sampled.
    pub low: f64,
    /// Its upper end; 1 if nothing was sampled.
    pub high: f64,
}

/// The standard normal distribution's 97.5 % point.
const Z: f64 = 1.959_963_984_540_054;

impl Share {
    /// Wilson's score interval, which keeps its promise for shares near 0 and 1 too, where `estimate ± 2
    /// standard errors` has no width. E. B. Wilson, "Probable inference, the law of succession, and
    /// statistical inference", Journal of the American Statistical Association 22 (1927), 209–212.
    fn new(count: u64, of: u64) -> Self {
        if of == 0 {
            return Share {
                estimate: 0.0,
                low: 0.0,
                high: 1.0,
            };
        }
        let n = of as f64;
        let estimate = count as f64 / n;
        let scale = 1.0 + Z * Z / n;
        let middle = (estimate + Z * Z / (2.0 * n)) / scale;
        let variance = estimate * (1.0 - estimate) / n + Z * Z / (4.0 * n * n);
        let half = Z / scale * variance.sqrt();
        // Rounding must not put the estimate outside, where it is 0 or 1.
        Share {
            estimate,
            low: (middle - half).clamp(0.0, estimate),
            high: (middle + half).clamp(estimate, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the interval's formula, computed with 40 decimal digits.
    #[test]
    fn wilsons_interval() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        let of = |count, of| Share::new(count, of);
        near(of(0, 10).low, 0.0);
        near(of(0, 10).high, 0.277_532_799_862_889);
        near(of(5, 10).low, 0.236_593_090_512_564);
        near(of(5, 10).high, 0.763_406_909_487_436);
        near(of(10, 10).low, 0.722_467_200_137_111);
        near(of(10, 10).high, 1.0);
        near(of(3, 1_000).low, 0.001_020_783_881_139);
        near(of(3, 1_000).high, 0.008_783_014_053_503);
        let none = of(0, 0);
        assert_eq!((none.estimate, none.low, none.high), (0.0, 0.0, 1.0));
    }

    #[test]
    fn an_interval_holds_its_estimate() {
        for of in [1u64, 2, 3, 7, 64, 1_000, 1 << 40] {
            for count in [0, 1, of / 3, of / 2, of - 1, of] {
                let share = Share::new(count, of);
                assert!(0.0 <= share.low && share.low <= share.estimate);
                assert!(share.estimate <= share.high && share.high <= 1.0);
            }
        }
    }
}
