//! Durations counted in buckets.

use std::time::Duration;

use crate::sync::{Ordering, Statistic};

/// Sub-buckets of a power of two.
const FINE: u32 = 4;
/// Buckets: 4 ns resolution at the bottom is never needed, half an hour at the top is.
const BUCKETS: usize = 168;

/// Durations counted in buckets a quarter of a power of two wide (at most 19 % off).
#[derive(Clone)]
pub struct LagHistogram {
    counts: [u64; BUCKETS],
    max: u64,
    /// Of all durations, in nanoseconds; saturates after 584 years.
    sum: u64,
}

impl LagHistogram {
    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.max = self.max.max(nanos);
        self.sum = self.sum.saturating_add(nanos);
    }

    pub(crate) fn merge(&mut self, other: &LagHistogram) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest one, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The sum of all, exactly.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// How many were recorded of at most each length, for the buckets in which there are any: the longest
    /// duration of the bucket, and the count of all up to there. Ascending in both.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut seen = 0;
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(move |(i, count)| {
                seen += count;
                (Duration::from_nanos(upper(i)), seen)
            })
    }

    /// An upper bound, at most 19 % too high, of the duration that a share `quantile` (0 to 1) of
    /// all recorded ones did not exceed. Zero when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0) as u64;
        let mut seen = 0;
        for (i, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper(i).min(self.max));
            }
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(FINE) {
        return nanos as usize;
    }
    let top = nanos.ilog2();
    let fine = (nanos >> (top - 2)) as u32 & (FINE - 1);
    (((top - 1) * FINE + fine) as usize).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> u64 {
    if bucket < FINE as usize {
        return bucket as u64;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (top, fine) = (bucket as u32 / FINE + 1, bucket as u64 % u64::from(FINE));
    (1 << top) + ((fine + 1) << (top - 2)) - 1
}

impl Default for LagHistogram {
    fn default() -> Self {
        LagHistogram {
            counts: [0; BUCKETS],
            max: 0,
            sum: 0,
        }
    }
}

/// The same, for several threads to record in.
#[derive(Debug)]
pub(crate) struct AtomicHistogram {
    counts: [Statistic; BUCKETS],
    max: Statistic,
    sum: Statistic,
}

impl AtomicHistogram {
    pub(crate) fn new() -> Self {
        AtomicHistogram {
            counts: std::array::from_fn(|_| Statistic::new(0)),
            max: Statistic::new(0),
            sum: Statistic::new(0),
        }
    }

    pub(crate) fn record(&self, nanos: u64) {
        // Relaxed, all: statistics.
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(nanos, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> LagHistogram {
        let read = |count: &Statistic| count.load(Ordering::Relaxed);
        LagHistogram {
            counts: std::array::from_fn(|i| read(&self.counts[i])),
            max: read(&self.max),
            sum: read(&self.sum),
        }
    }
}

impl std::fmt::Debug for LagHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LagHistogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_what_was_recorded() {
        let mut lag = LagHistogram::default();
        assert_eq!(lag.quantile(0.99), Duration::ZERO);
        for nanos in 1..=1_000_000u64 {
            lag.record(nanos);
        }
        for quantile in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let exact = quantile * 1e6;
            let got = lag.quantile(quantile).as_nanos() as f64;
            assert!(
                got >= exact - 1.0 && got <= exact * 1.19 + 1.0,
                "{quantile}: {got}"
            );
        }
        assert_eq!(lag.quantile(1.0), lag.max());
        lag.record(u64::MAX);
        assert_eq!(lag.quantile(1.0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn an_atomic_one_counts_the_same() {
        let (mut one, atomic) = (LagHistogram::default(), AtomicHistogram::new());
        for nanos in [0, 1, 5, 999, 1_000_000, 1_000_001, 3_600_000_000_000] {
            one.record(nanos);
            atomic.record(nanos);
        }
        let other = atomic.load();
        assert_eq!(
            (one.count(), one.max(), one.sum()),
            (7, other.max(), other.sum())
        );
        assert_eq!(one.sum(), Duration::from_nanos(3_600_002_001_006));
        assert!(one.cumulative().eq(other.cumulative()));
        let ends: Vec<_> = one.cumulative().collect();
        assert_eq!(ends[0], (Duration::ZERO, 1));
        assert_eq!(ends.last().map(|&(_, count)| count), Some(7));
        assert!(ends.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn buckets_are_contiguous() {
        for nanos in (0..100_000u64).chain([u64::MAX / 3, u64::MAX]) {
            let i = bucket(nanos);
            assert!(upper(i) >= nanos);
            assert!(
                i == 0 || i == BUCKETS - 1 || upper(i - 1) < nanos,
                "{nanos}"
            );
        }
    }
}
