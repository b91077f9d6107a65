//! What the reaper tells a tracing subscriber (feature `tracing`): an event for each cycle and for each time
//! that values were dropped, at level debug; at level warn if it took over 10 % more than its budget. The
//! target is `ebbtide`. Called without any lock, and not on the ways of reads and writes; without the feature
//! there is nothing to call.

#[cfg(feature = "tracing")]
mod imp {
    use std::time::Duration;

    use tracing::{debug, warn};

    use crate::entry::contained;
    use crate::reaper::Target;
    use crate::reaper::budget::Budget;
    use crate::reaper::sweep::CycleReport;
    use crate::stats::add;

    /// A subscriber is user code: its panics must not keep anything from being reaped.
    fn tell(target: &dyn Target, event: impl FnOnce()) {
        add(&target.counts().panics, contained(event));
    }

    /// A cycle over some of a cache's shards, which took `spent` nanoseconds and dropped so many values
    /// itself (as only calls of `reap` do).
    pub(crate) fn cycle(
        target: &dyn Target,
        report: &CycleReport,
        dropped: u64,
        budget: &Budget,
        spent: u64,
    ) {
        let exhausted = !report.finished && budget.is_spent(spent);
        macro_rules! event {
            ($level:ident, $message:literal) => {
                $level!(
                    target: "ebbtide",
                    cache = target.name(),
                    shards = report.shards,
                    expired = report.expired,
                    refiled = report.refiled,
                    dropped,
                    spent = ?Duration::from_nanos(spent),
                    // (A cycle counts from 0.)
                    budget = ?Duration::from_nanos(budget.left(0)),
                    exhausted,
                    $message
                )
            };
        }
        tell(target, || {
            if budget.is_overrun(spent) {
                event!(warn, "reap cycle over its budget");
            } else {
                event!(debug, "reap cycle");
            }
        });
    }

    /// Values were dropped; `slow` if they took longer than a cycle may.
    pub(crate) fn drops(target: &dyn Target, dropped: u64, spent: Duration, slow: bool) {
        let budget = target.settings().budget;
        macro_rules! event {
            ($level:ident, $message:literal) => {
                $level!(target: "ebbtide", cache = target.name(), dropped, ?spent, ?budget, $message)
            };
        }
        tell(target, || {
            if slow {
                event!(warn, "slow drops");
            } else {
                event!(debug, "values dropped");
            }
        });
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use std::time::Duration;

    use crate::reaper::Target;
    use crate::reaper::budget::Budget;
    use crate::reaper::sweep::CycleReport;

    #[inline]
    pub(crate) fn cycle(_: &dyn Target, _: &CycleReport, _: u64, _: &Budget, _: u64) {}

    #[inline]
    pub(crate) fn drops(_: &dyn Target, _: u64, _: Duration, _: bool) {}
}

pub(crate) use imp::{cycle, drops};
