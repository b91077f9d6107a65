//! How long a cycle may go on.

/// A span of time to spend, in nanoseconds of whatever clock the caller reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    begin: u64,
    limit: u64,
}

impl Budget {
    /// A budget of `limit` that begins at `now`.
    pub(crate) fn new(now: u64, limit: u64) -> Self {
        Budget { begin: now, limit }
    }

    /// Time spent at `now`.
    pub(crate) fn spent(&self, now: u64) -> u64 {
        now.saturating_sub(self.begin)
    }

    /// Time left at `now`.
    pub(crate) fn left(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.spent(now))
    }

    /// Whether it is used up at `now`.
    pub(crate) fn is_spent(&self, now: u64) -> bool {
        self.spent(now) >= self.limit
    }

    /// Whether it was exceeded by more than a tenth.
    pub(crate) fn is_overrun(&self, now: u64) -> bool {
        self.spent(now) > self.limit.saturating_add(self.limit / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_its_beginning_and_survives_a_clock_that_steps_back() {
        let budget = Budget::new(1_000, 500);
        assert!(!budget.is_spent(1_499));
        assert!(budget.is_spent(1_500));
        assert!(!budget.is_overrun(1_550));
        assert!(budget.is_overrun(1_551));
        assert_eq!(budget.spent(10), 0);
        assert_eq!((budget.left(1_100), budget.left(9_000)), (400, 0));
        assert!(!Budget::new(0, u64::MAX).is_overrun(u64::MAX));
    }
}
