//! Latencies, by what was done and when.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    /// Nothing: see [`super::load`].
    Control,
}

impl Op {
    pub(crate) const ALL: [Op; 3] = [Op::Read, Op::Write, Op::Control];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Control => "control",
        }
    }
}

/// When it was. The names are those of the tables.
pub(crate) mod phase {
    /// Before the wave.
    pub(crate) const CALM: &str = "calm";
    /// The whole run of a scenario without a wave; from the common deadline until all is gone.
    pub(crate) const RUN: &str = "run";
    /// After the wave was gone.
    pub(crate) const AFTER: &str = "after";
    /// As long from the common deadline on for every contender, however long it takes: what is
    /// compared.
    pub(crate) const WINDOW: &str = "window";

    pub(crate) const ALL: [&str; 4] = [CALM, RUN, AFTER, WINDOW];
}

/// Disjoint spans of time, of which phases are made.
#[derive(Clone, Copy, Debug)]
enum Span {
    Calm,
    RunInWindow,
    RunLater,
    AfterInWindow,
    AfterLater,
}

const SPANS: usize = 5;

impl Span {
    fn of(phase: &str) -> &'static [Span] {
        match phase {
            phase::CALM => &[Span::Calm],
            phase::RUN => &[Span::RunInWindow, Span::RunLater],
            phase::AFTER => &[Span::AfterInWindow, Span::AfterLater],
            _ => &[Span::RunInWindow, Span::AfterInWindow],
        }
    }
}

/// The moments that part a run, in nanoseconds; others than the recorder may move the last.
#[derive(Debug)]
pub(crate) struct Moments {
    /// Nothing is recorded before this.
    pub(crate) record: u64,
    /// Here the wave breaks, or the run begins.
    pub(crate) mark: u64,
    /// Where the window from the mark on ends.
    pub(crate) window: u64,
    /// From here on the wave is gone.
    pub(crate) gone: AtomicU64,
    /// The end.
    pub(crate) stop: AtomicU64,
}

impl Moments {
    fn span(&self, from: u64) -> Option<Span> {
        if from < self.record {
            return None;
        }
        if from < self.mark {
            return Some(Span::Calm);
        }
        let gone = from >= self.gone.load(Ordering::Relaxed);
        Some(match (gone, from < self.window) {
            (false, true) => Span::RunInWindow,
            (false, false) => Span::RunLater,
            (true, true) => Span::AfterInWindow,
            (true, false) => Span::AfterLater,
        })
    }

    /// Whether there is a time before the mark: that of a wave.
    fn parted(&self) -> bool {
        self.record < self.mark
    }
}

/// The quantiles of every table.
pub(crate) const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// Longest latency told apart: longer ones count as this, in nanoseconds.
const MOST: u64 = 120_000_000_000;

/// A histogram of nanoseconds to three digits.
pub(crate) fn fine() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST, 3).expect("the bounds are in order")
}

/// One of the many of a time line: two digits.
fn coarse() -> Histogram<u32> {
    let mut histogram = Histogram::new_with_bounds(1, MOST, 2).expect("the bounds are in order");
    // Its pages are touched now, not by a recorded call.
    histogram.saturating_record(1);
    histogram.reset();
    histogram
}

/// One thread's latencies.
#[derive(Debug)]
pub(crate) struct Recorder {
    spans: [[Histogram<u64>; Op::ALL.len()]; SPANS],
    /// Reads and writes together, by when they were due or begun.
    line: Vec<Histogram<u32>>,
    tick: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Recorder {
    /// With a time line of so many ticks of so many nanoseconds each.
    pub(crate) fn new(ticks: usize, tick: u64) -> Self {
        let touched = || {
            let mut histogram = fine();
            histogram.saturating_record(1);
            histogram.reset();
            histogram
        };
        Recorder {
            spans: std::array::from_fn(|_| std::array::from_fn(|_| touched())),
            line: (0..ticks).map(|_| coarse()).collect(),
            tick,
            hits: 0,
            misses: 0,
        }
    }

    #[inline]
    pub(crate) fn note(&mut self, moments: &Moments, op: Op, from: u64, done: u64) {
        let Some(span) = moments.span(from) else {
            return;
        };
        let nanos = done.saturating_sub(from);
        self.spans[span as usize][op as usize].saturating_record(nanos);
        if op != Op::Control
            && let Some(tick) = self
                .line
                .get_mut(((from - moments.record) / self.tick) as usize)
        {
            tick.saturating_record(nanos);
        }
    }

    /// Takes another thread's latencies in.
    pub(crate) fn merge(&mut self, other: &Recorder) {
        for (mine, theirs) in self.spans.iter_mut().zip(&other.spans) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.add(theirs).expect("all have the same bounds");
            }
        }
        for (mine, theirs) in self.line.iter_mut().zip(&other.line) {
            mine.add(theirs).expect("all have the same bounds");
        }
        self.hits += other.hits;
        self.misses += other.misses;
    }

    /// A row for everything of which there was any.
    pub(crate) fn rows(&self, moments: &Moments) -> Vec<Row> {
        let mut rows = Vec::new();
        // Without a wave all phases are one.
        let phases = if moments.parted() {
            &phase::ALL[..]
        } else {
            &[phase::RUN]
        };
        for &phase in phases {
            for op in Op::ALL {
                let mut sum = fine();
                for &span in Span::of(phase) {
                    let part = &self.spans[span as usize][op as usize];
                    sum.add(part).expect("all have the same bounds");
                }
                if !sum.is_empty() {
                    rows.push(Row::of(phase, op.name(), &sum));
                }
            }
        }
        rows
    }

    /// p50, p99 and the longest of a tick, in nanoseconds, and how many there were.
    pub(crate) fn tick(&self, index: usize) -> [u64; 4] {
        self.line.get(index).map_or([0; 4], |tick| {
            [
                tick.value_at_quantile(0.5),
                tick.value_at_quantile(0.99),
                tick.max(),
                tick.len(),
            ]
        })
    }
}

/// The latencies of one kind of request in one phase, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) phase: String,
    pub(crate) op: String,
    pub(crate) count: u64,
    pub(crate) quantiles: [u64; QUANTILES.len()],
    pub(crate) max: u64,
}

impl Row {
    pub(crate) fn of(phase: &str, op: &str, histogram: &Histogram<u64>) -> Row {
        Row {
            phase: phase.to_owned(),
            op: op.to_owned(),
            count: histogram.len(),
            quantiles: QUANTILES.map(|(_, quantile)| histogram.value_at_quantile(quantile)),
            max: histogram.max(),
        }
    }

    pub(crate) fn quantile(&self, name: &str) -> u64 {
        let at = QUANTILES.iter().position(|(other, _)| *other == name);
        at.map_or(self.max, |at| self.quantiles[at])
    }
}
