//! What a thread of a crew does with one cache: a cycle when it is time for one, sealing and flushing
//! while something waits in limbo, trimming and dozing when there is nothing to do.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;

use super::bell::Bell;
use super::budget::Budget;
use super::pace::{Cycle, LONGEST, Pace};
use super::sweep::{Bounds, CycleReport};
use super::{Kind, Target, sample, sweep, trace};
use crate::chance;
use crate::lane;
use crate::limits::{DROP_SLICE, GRACE_TRIES_OF_A_CYCLE};
use crate::pages;
use crate::stats::add;
use crate::sync::{Arc, Signal, Weak};

/// Idle cycles at its interval before a worker sleeps until something is due.
const IDLE_CYCLES: u32 = 5;

/// While values wait for their grace period, somebody comes by at least this often.
const LIMBO_POLL: Duration = Duration::from_millis(5);

/// How often unused memory is given back while there is no quiet moment for it.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Whole nanoseconds.
fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Which shards a sweeping thread serves, and the bell that wakes it.
pub(super) struct Worker<'a> {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) bell: &'a Bell,
}

/// A sweeping thread's memory of one cache.
pub(super) struct Plan {
    /// Kept so that no other cache can get its address.
    target: Weak<dyn Target>,
    pace: Pace,
    next_shard: usize,
    /// When to sweep next, and when to look after limbo, which may be sooner.
    next_cycle: Instant,
    next_look: Instant,
    /// Cycles in a row with nothing to do.
    idle: u32,
    /// Something left since memory was last trimmed.
    untrimmed: bool,
    next_trim: Instant,
    dozing: bool,
    /// Still on the list.
    pub(super) seen: bool,
    random: SmallRng,
}

impl Plan {
    pub(super) fn new(target: &Arc<dyn Target>) -> Self {
        let settings = target.settings();
        Plan {
            target: Arc::downgrade(target),
            pace: Pace::new(settings.interval, settings.max_duty),
            next_shard: 0,
            next_cycle: Instant::now(),
            next_look: Instant::now(),
            idle: 0,
            untrimmed: false,
            next_trim: Instant::now(),
            dozing: false,
            seen: true,
            random: chance::source(),
        }
    }

    pub(super) fn is_for(&self, target: &Arc<dyn Target>) -> bool {
        std::ptr::addr_eq(self.target.as_ptr(), Arc::as_ptr(target))
    }

    /// Does a cycle if it is time for one; says when to come by next (`None`: when rung).
    pub(super) fn come_by(
        &mut self,
        target: &dyn Target,
        worker: &Worker<'_>,
        dropper: &Signal,
    ) -> Option<Instant> {
        let now = Instant::now();
        if self.next_look > now && !self.dozing {
            return Some(self.next_look);
        }
        if self.dozing {
            worker.bell.rise();
            self.dozing = false;
        }
        let mine = |shard: usize| shard % worker.of == worker.number;
        let mut busy = false;
        if self.next_cycle <= now {
            let report = self.cycle(target, &mine);
            busy = report.inspected > 0;
            let exhausted = !report.finished && report.expired > report.refiled;
            let spent = now.elapsed();
            self.next_cycle = Instant::now() + self.pace.rest(Cycle { spent, exhausted });
        }
        let waiting = (0..target.shards()).any(|shard| mine(shard) && target.waiting(shard) > 0);
        if waiting {
            self.untrimmed = true;
            for shard in (0..target.shards()).filter(|&shard| mine(shard)) {
                target.seal(shard);
            }
            for _ in 0..GRACE_TRIES_OF_A_CYCLE {
                target.flush();
            }
            dropper.raise();
        }
        add(&target.counts().time, nanos(now.elapsed()));
        target.counts().note_look();
        if busy || waiting {
            self.idle = 0;
        } else {
            self.idle = self.idle.saturating_add(1);
        }
        self.next_look = self.next_cycle;
        if waiting {
            let poll = LIMBO_POLL.min(target.settings().interval);
            self.next_look = self.next_look.min(Instant::now() + poll);
        }
        let idle = self.idle >= IDLE_CYCLES;
        if self.untrimmed && (idle || self.next_trim <= now) {
            self.untrimmed = false;
            self.next_trim = now + TRIM_INTERVAL;
            for shard in (0..target.shards()).filter(|&shard| mine(shard)) {
                target.trim(shard);
            }
            pages::trim();
        }
        if !idle {
            return Some(self.next_look);
        }
        self.doze(target, worker, &mine)
    }

    fn cycle(&mut self, target: &dyn Target, mine: &dyn Fn(usize) -> bool) -> CycleReport {
        let settings = target.settings();
        let begin = Instant::now();
        let clock = || nanos(begin.elapsed());
        let bounds = Bounds {
            budget: Budget::new(0, nanos(settings.budget)),
            most: u64::MAX,
            clock: &clock,
        };
        let horizon = lane::unit_of(target.now());
        let due = (0..target.shards()).any(|shard| mine(shard) && target.due(shard) <= horizon);
        if !due {
            return CycleReport {
                finished: true,
                ..CycleReport::default()
            };
        }
        let report = match settings.strategy.kind {
            Kind::Sweep { tolerated } => sweep::cycle(
                target,
                mine,
                &mut self.next_shard,
                horizon,
                tolerated,
                &bounds,
            ),
            Kind::Sample {
                size,
                threshold,
                rounds,
            } => {
                let how = (size, threshold, rounds);
                sample::cycle(target, mine, how, &bounds, &mut self.random)
            }
        };
        count(target, &report, 0, &bounds.budget, clock());
        report
    }

    /// Makes sleep until the next deadline safe, and says when that is.
    fn doze(
        &mut self,
        target: &dyn Target,
        worker: &Worker<'_>,
        mine: &dyn Fn(usize) -> bool,
    ) -> Option<Instant> {
        let next_due = || {
            (0..target.shards())
                .filter(|&shard| mine(shard))
                .map(|shard| target.due(shard))
                .min()
        };
        let due = next_due().unwrap_or(lane::NONE);
        if due != lane::NONE && !target.keeps_real_time() {
            return Some(self.next_cycle);
        }
        let now = target.now();
        if due <= lane::unit_of(now) {
            return Some(self.next_cycle);
        }
        let has_news = || {
            next_due().unwrap_or(lane::NONE) < due
                || (0..target.shards()).any(|shard| mine(shard) && target.waiting(shard) > 0)
        };
        if !worker.bell.doze(due, has_news) {
            return Some(self.next_cycle);
        }
        self.dozing = true;
        if due == lane::NONE {
            return None;
        }
        let left = Duration::from_nanos(lane::begin_of(due).saturating_sub(now));
        Some(Instant::now() + left.min(LONGEST))
    }
}

/// Drops what is past its grace period; whether there was anything.
pub(super) fn drop_ripe_values(target: &dyn Target) -> bool {
    let budget = nanos(target.settings().budget);
    let begin = Instant::now();
    let mut slice = Budget::new(0, budget);
    let (mut any, mut dropped, mut slow) = (false, 0, false);
    for shard in 0..target.shards() {
        while target.waiting(shard) > 0 && !target.is_closing() {
            let Some(count) = target.drop_some(shard, DROP_SLICE) else {
                break;
            };
            dropped += count;
            any = true;
            let now = nanos(begin.elapsed());
            if slice.is_overrun(now) {
                add(&target.counts().overruns, 1);
                slow = true;
            }
            if slice.is_spent(now) {
                slice = Budget::new(now, budget);
            }
        }
    }
    if any {
        let spent = begin.elapsed();
        add(&target.counts().time, nanos(spent));
        trace::drops(target, dropped, spent, slow);
    }
    any
}

/// Adds a cycle, in which so many values were dropped as well, to the cache's counts, and tells of it.
pub(crate) fn count(
    target: &dyn Target,
    report: &CycleReport,
    dropped: u64,
    budget: &Budget,
    now: u64,
) {
    let counts = target.counts();
    counts.note_cycle(now);
    add(&counts.scanned, report.scanned);
    add(&counts.inspected, report.inspected);
    add(&counts.refiled, report.refiled);
    add(
        &counts.exhausted,
        u64::from(!report.finished && budget.is_spent(now)),
    );
    add(&counts.overruns, u64::from(budget.is_overrun(now)));
    trace::cycle(target, report, dropped, budget, now);
}
