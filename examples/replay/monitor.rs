//! Watching a run: samples for the table and the plot, and the live progress line.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::{grouped, percent};
use crate::value::{Ledger, Tally};
use crate::worker::{Job, Outcome, Progress};

/// Time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);
/// The progress line is renewed after so many samples.
const SAMPLES_PER_REFRESH: u64 = 4;
/// Rates on the progress line are means over this time.
const WINDOW: Duration = Duration::from_secs(1);
/// More samples than this are thinned out: every second one goes.
const MOST_SAMPLES: usize = 4_096;

/// What the values held at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Time since the run began.
    pub(crate) at: Duration,
    pub(crate) held: Tally,
    pub(crate) dead: Tally,
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// In order of time, at most some thousands.
    pub(crate) samples: Vec<Sample>,
    /// The sample with the most dead bytes, thinned out or not.
    pub(crate) peak: Option<Sample>,
    taken: u64,
    keep_one_in: u64,
    held_bytes: u128,
    dead_bytes: u128,
}

impl Watched {
    fn take(&mut self, sample: Sample) {
        if self
            .peak
            .is_none_or(|peak| peak.dead.bytes < sample.dead.bytes)
        {
            self.peak = Some(sample);
        }
        self.held_bytes += u128::from(sample.held.bytes);
        self.dead_bytes += u128::from(sample.dead.bytes);
        if self.samples.len() >= MOST_SAMPLES {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.keep_one_in = self.keep_one_in.max(1) * 2;
        }
        if self.taken.is_multiple_of(self.keep_one_in.max(1)) {
            self.samples.push(sample);
        }
        self.taken += 1;
    }

    /// The dead share of the bytes held, in the mean over the run, in percent.
    pub(crate) fn mean_dead_percent(&self) -> Option<f64> {
        (self.held_bytes > 0).then(|| self.dead_bytes as f64 * 100.0 / self.held_bytes as f64)
    }
}

/// Samples until every worker has sent what it did. Ends early if a worker is gone without a word.
pub(crate) fn watch(
    job: &Job<'_>,
    progress: &[Progress],
    finished: &Receiver<Outcome>,
) -> (Vec<Outcome>, Watched) {
    let requests = job.requests.len() as u64 * u64::from(job.passes.unwrap_or(1));
    let mut line = Line::new(requests, job.start);
    let mut watched = Watched::default();
    let mut outcomes = Vec::with_capacity(job.workers);
    let mut ticks = 0;
    let mut next = job.start;
    while outcomes.len() < job.workers {
        match finished.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(outcome) => outcomes.push(outcome),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let sample = sample(job.ledger, job.start);
                watched.take(sample);
                if ticks % SAMPLES_PER_REFRESH == 0 {
                    line.refresh(job, progress, &sample);
                }
                ticks += 1;
                next = (next + INTERVAL).max(Instant::now());
            }
        }
    }
    watched.take(sample(job.ledger, job.start));
    line.bar.finish_and_clear();
    (outcomes, watched)
}

fn sample(ledger: &Ledger, start: Instant) -> Sample {
    let now = Instant::now();
    // Dead first: what is made meanwhile makes the share smaller, never larger than 1.
    let dead = ledger.dead(now);
    Sample {
        at: now.saturating_duration_since(start),
        held: ledger.held(),
        dead,
    }
}

/// The progress line. indicatif draws nothing where standard error is no terminal.
struct Line {
    bar: ProgressBar,
    /// Moment, requests done and the reaper's time, over the last [`WINDOW`].
    recent: VecDeque<(Instant, u64, Duration)>,
}

impl Line {
    fn new(requests: u64, start: Instant) -> Self {
        let bar = ProgressBar::with_draw_target(Some(requests), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{wide_bar:.cyan/blue} {percent:>3} %, {eta} left\n{msg}")
                .expect("the template is valid")
                .progress_chars("━╸─");
        bar.set_style(style);
        Self {
            bar,
            recent: VecDeque::from([(start, 0, Duration::ZERO)]),
        }
    }

    fn refresh(&mut self, job: &Job<'_>, progress: &[Progress], sample: &Sample) {
        if self.bar.is_hidden() {
            return;
        }
        let (mut done, mut reads, mut hits) = (0, 0, 0);
        for worker in progress {
            done += worker.done.load(Relaxed);
            reads += worker.reads.load(Relaxed);
            hits += worker.hits.load(Relaxed);
        }
        let now = Instant::now();
        let reaper = job.store.stats().reaper_time;
        self.recent.push_back((now, done, reaper));
        while self.recent.len() > 2 && now - self.recent[1].0 >= WINDOW {
            self.recent.pop_front();
        }
        let (then, done_then, reaper_then) = self.recent[0];
        let seconds = now.saturating_duration_since(then).as_secs_f64().max(1e-3);
        let rate = done.saturating_sub(done_then) as f64 / seconds;
        let reaper = reaper.saturating_sub(reaper_then).as_secs_f64() * 100.0 / seconds;
        self.bar.set_position(done);
        self.bar.set_message(format!(
            "{} req/s · hits {} · {} held, {} dead · reaper {reaper:.1} % cpu",
            grouped(rate as u64),
            percent(hits, reads),
            grouped(sample.held.count),
            percent(sample.dead.count, sample.held.count),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64, held: u64, dead: u64) -> Sample {
        let tally = |bytes| Tally { count: 1, bytes };
        Sample {
            at: Duration::from_millis(millis),
            held: tally(held),
            dead: tally(dead),
        }
    }

    #[test]
    fn the_mean_weighs_bytes_and_the_peak_survives_thinning() {
        let mut watched = Watched::default();
        assert_eq!(watched.mean_dead_percent(), None);
        for millis in 0..20_000 {
            let dead = if millis == 4_097 { 900 } else { 10 };
            watched.take(at(millis, 1_000, dead));
        }
        assert!(watched.samples.len() <= MOST_SAMPLES);
        assert!(watched.samples.is_sorted_by_key(|sample| sample.at));
        let last = watched.samples.last().unwrap().at;
        assert!(last > Duration::from_millis(19_980), "{last:?}");
        assert_eq!(watched.peak.unwrap().at, Duration::from_millis(4_097));
        let mean = watched.mean_dead_percent().unwrap();
        assert!((mean - (10.0 * 19_999.0 + 900.0) / 20_000.0 / 10.0).abs() < 1e-9);
    }
}
