//! When the next cycle begins: sooner while there is a backlog, later while there is little to do.

use std::time::Duration;

/// The share of the permitted duty that is used while the backlog is small.
const POLITE: f64 = 0.25;

/// The longest rest, whatever the settings say.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// Cycles in a row that ran out of budget before the duty doubles.
const PATIENCE: u32 = 2;

/// What the last cycle was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    /// Time that it took.
    pub(crate) spent: Duration,
    /// It unlinked something and had to stop before it was done.
    pub(crate) exhausted: bool,
}

/// The pacing of one cache's cycles: no clock, no thread.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    interval: Duration,
    max_duty: f64,
    exhausted: u32,
}

impl Pace {
    pub(crate) fn new(interval: Duration, max_duty: f64) -> Self {
        Pace {
            interval,
            max_duty,
            exhausted: 0,
        }
    }

    /// The share of a core that the next cycles may take.
    pub(crate) fn duty(&self) -> f64 {
        let doublings = (self.exhausted / PATIENCE).min(16);
        (self.max_duty * POLITE * f64::from(1u32 << doublings)).min(self.max_duty)
    }

    /// How long to rest after a cycle.
    pub(crate) fn rest(&mut self, cycle: Cycle) -> Duration {
        if cycle.exhausted {
            self.exhausted = self.exhausted.saturating_add(1);
        } else {
            self.exhausted = 0;
        }
        let duty = self.duty();
        let fair = cycle.spent.as_secs_f64() * (1.0 - duty) / duty;
        let fair = Duration::try_from_secs_f64(fair).map_or(LONGEST, |fair| fair.min(LONGEST));
        if cycle.exhausted {
            fair
        } else {
            fair.max(self.interval).min(LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn cycle(exhausted: bool) -> Cycle {
        Cycle {
            spent: MS,
            exhausted,
        }
    }

    #[test]
    fn a_backlog_is_met_politely_first_then_at_full_duty() {
        let mut pace = Pace::new(100 * MS, 1.0);
        assert_eq!(pace.rest(cycle(true)), 3 * MS);
        let mut last = 3 * MS;
        for _ in 0..10 {
            let rest = pace.rest(cycle(true));
            assert!(rest <= last);
            last = rest;
        }
        assert_eq!(last, Duration::ZERO);
        assert_eq!(pace.rest(cycle(false)), 100 * MS);
        assert_eq!(pace.rest(cycle(true)), 3 * MS);
    }

    #[test]
    fn absurd_settings_only_make_it_slow() {
        let mut pace = Pace::new(Duration::MAX, 1e-300);
        assert_eq!(pace.rest(cycle(true)), LONGEST);
        assert_eq!(pace.rest(cycle(false)), LONGEST);
    }

    #[test]
    fn the_duty_is_never_exceeded() {
        for max_duty in [0.01, 0.1, 0.5, 1.0] {
            let mut pace = Pace::new(Duration::from_secs(10), max_duty);
            for _ in 0..50 {
                let rest = pace.rest(cycle(true));
                let share = MS.as_secs_f64() / (MS + rest).as_secs_f64();
                assert!(share <= max_duty * 1.000_001, "{share} of {max_duty}");
            }
        }
    }
}
