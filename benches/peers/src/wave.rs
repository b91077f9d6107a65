//! `wave`: a million entries with one deadline, and reads of other keys meanwhile.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;

use crate::Options;
use crate::adapters::{HOUR, Timed, TimedVisitor, visit_timed};
use crate::child::{self, Answer, ask};
use crate::keys::{Draw, count_name, scattered, sequence};
use crate::machine::resident_bytes;
use crate::report::{EBBTIDE, Figure, Report};

#[derive(Args, Debug)]
pub(crate) struct WaveArgs {
    /// How many entries share one deadline
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// How many other entries are read meanwhile
    #[arg(long, default_value_t = 10_000)]
    others: u64,
    /// For how long after the deadline reads are recorded, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    window: u64,
    /// For how long after the deadline the reader goes on, at most, if the wave is not gone, in milliseconds
    #[arg(long, default_value_t = 15_000)]
    patience: u64,
    /// Pairs of calm and wave for each contender (default 12; with --quick 2)
    #[arg(long)]
    pairs: Option<usize>,
}

/// One calm or one wave of one contender.
#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long)]
    entries: u64,
    #[arg(long)]
    others: u64,
    #[arg(long)]
    window: u64,
    #[arg(long)]
    patience: u64,
    /// From the first insert to the deadline, in milliseconds
    #[arg(long)]
    lead: u64,
    /// Whether the entries expire, or outlive the run
    #[arg(long, action = clap::ArgAction::Set)]
    wave: bool,
}

/// The control: reads the clock and nothing else.
#[derive(Args, Debug)]
pub(crate) struct SpinTask {
    #[arg(long)]
    window: u64,
}

/// A histogram of nanoseconds up to a minute, to three digits.
pub(crate) fn latency() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// The longest sample in nanoseconds (0 without samples).
pub(crate) fn longest(histogram: &Histogram<u64>) -> f64 {
    histogram.max() as f64
}

/// Reads the clock, back to back, for `window`.
pub(crate) fn spinning(window: Duration) -> Histogram<u64> {
    let mut pauses = latency();
    let began = Instant::now();
    let mut last = began;
    while last - began < window {
        let now = Instant::now();
        pauses.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    pauses
}

pub(crate) fn spin(task: &SpinTask) -> Answer {
    let pauses = spinning(Duration::from_millis(task.window));
    percentiles("window", &pauses).collect()
}

const QUANTILES: [(&str, f64); 4] = [
    ("p50", 0.5),
    ("p99", 0.99),
    ("p999", 0.999),
    ("p9999", 0.9999),
];

/// `prefix-p50` and so on to `prefix-max`, in microseconds.
fn percentiles(prefix: &str, histogram: &Histogram<u64>) -> impl Iterator<Item = (String, f64)> {
    QUANTILES
        .iter()
        .map(|&(name, quantile)| (name, histogram.value_at_quantile(quantile) as f64))
        .chain([("max", longest(histogram))])
        .map(move |(name, nanos)| (format!("{prefix}-{name}"), nanos / 1e3))
}

struct Phase<'a> {
    task: &'a Task,
    answer: Option<Answer>,
}

impl TimedVisitor<u64> for Phase<'_> {
    fn visit<T: Timed<u64>>(&mut self) {
        if T::NAME == self.task.contender {
            self.answer = Some(phase::<T>(self.task));
        }
    }
}

pub(crate) fn measure(task: &Task) -> Option<Answer> {
    let mut phase = Phase { task, answer: None };
    visit_timed(&mut phase);
    phase.answer
}

/// A store filled in time: the deadline lies ahead.
struct Filled<T> {
    store: T,
    deadline: Instant,
    took: Duration,
    attempts: u32,
}

/// Fills a store before the deadline comes, with a later one if it must.
fn fill<T: Timed<u64>>(task: &Task) -> Filled<T> {
    let mut lead = Duration::from_millis(task.lead);
    for attempts in 1.. {
        let began = Instant::now();
        let deadline = began + lead;
        let until = if task.wave { deadline } else { began + HOUR };
        let store = T::build();
        for i in 0..task.others {
            store.insert_until(scattered(i), i, began + HOUR);
        }
        for i in task.others..task.others + task.entries {
            store.insert_until(scattered(i), i, until);
        }
        store.settle();
        let took = began.elapsed();
        if took + Duration::from_millis(200) < lead {
            return Filled {
                store,
                deadline,
                took,
                attempts,
            };
        }
        drop(store);
        lead = 2 * took + Duration::from_millis(500);
    }
    unreachable!("the range of attempts has no end")
}

/// What the reader saw.
struct Seen {
    /// From the deadline until the wave was gone, or the window ended.
    during: Histogram<u64>,
    /// The rest of the window.
    after: Histogram<u64>,
    misses: u64,
}

fn phase<T: Timed<u64>>(task: &Task) -> Answer {
    let window = Duration::from_millis(task.window);
    let others = u32::try_from(task.others).expect("fewer than 2^32 other keys");
    let keys = sequence(Draw::Uniform, others as usize, 41);
    let empty = resident_bytes();
    let filled = fill::<T>(task);
    let (store, deadline) = (&filled.store, filled.deadline);
    let full = resident_bytes();
    let gone = AtomicBool::new(false);
    let stop = AtomicBool::new(false);

    let (seen, gone_after, dropped_after) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(store, &keys, deadline, window, &gone, &stop));
        let patience = Duration::from_millis(if task.wave { task.patience } else { 0 });
        let watched = watch(store, task, deadline, patience.max(window), &gone);
        stop.store(true, Ordering::Relaxed);
        let seen = reader.join().expect("the reader does not panic");
        (seen, watched.0, watched.1)
    });
    thread::sleep(Duration::from_millis(300));
    let after = resident_bytes();
    assert_eq!(seen.misses, 0, "{} missed keys that it holds", T::NAME);

    let mut whole = seen.after;
    whole.add(&seen.during).expect("both have the same bounds");
    let mut answer: Answer = percentiles("window", &whole).collect();
    answer.extend(percentiles("during", &seen.during));
    answer.extend(child::figures([
        ("reads", whole.len() as f64),
        ("gone", gone_after),
        ("dropped", dropped_after),
        ("left", store.held().saturating_sub(task.others) as f64),
        ("full", full.saturating_sub(empty) as f64 / 1e6),
        ("after", after.saturating_sub(empty) as f64 / 1e6),
        ("took", filled.took.as_secs_f64() * 1e3),
        ("attempts", f64::from(filled.attempts)),
    ]));
    answer
}

/// Reads other keys in a closed loop, from a little before the deadline; records
/// from the deadline on for `window`; then goes on until told to stop, because a
/// contender that needs calls must get them.
///
/// Back to back: each sample goes from the end of the read before to the end of
/// this one, so that no pause falls between two samples.
fn read<T: Timed<u64>>(
    store: &T,
    keys: &[u32],
    deadline: Instant,
    window: Duration,
    gone: &AtomicBool,
    stop: &AtomicBool,
) -> Seen {
    let mut seen = Seen {
        during: latency(),
        after: latency(),
        misses: 0,
    };
    let mut keys = keys.iter().cycle().map(|&key| scattered(u64::from(key)));
    let mut next = move || keys.next().expect("a cycle has no end");
    let lead_in = Duration::from_millis(100);
    thread::sleep(deadline.saturating_duration_since(Instant::now() + lead_in));
    let mut last = Instant::now();
    while last < deadline {
        seen.misses += u64::from(black_box(store.get(next())).is_none());
        last = Instant::now();
    }
    let end = deadline + window;
    while last < end {
        seen.misses += u64::from(black_box(store.get(next())).is_none());
        let now = Instant::now();
        let nanos = (now - last).as_nanos() as u64;
        if gone.load(Ordering::Relaxed) {
            seen.after.saturating_record(nanos);
        } else {
            seen.during.saturating_record(nanos);
        }
        last = now;
    }
    while !stop.load(Ordering::Relaxed) {
        seen.misses += u64::from(black_box(store.get(next())).is_none());
    }
    seen
}

/// Looks once a millisecond whether the wave is gone; gives the milliseconds from
/// the deadline until it had left the store, and until it was dropped.
/// (infinite: not within `patience`.)
fn watch<T: Timed<u64>>(
    store: &T,
    task: &Task,
    deadline: Instant,
    patience: Duration,
    gone: &AtomicBool,
) -> (f64, f64) {
    let mut gone_after = f64::INFINITY;
    let mut dropped_after = f64::INFINITY;
    let end = deadline + patience;
    let window_end = deadline + Duration::from_millis(task.window);
    thread::sleep(deadline.saturating_duration_since(Instant::now()));
    loop {
        let now = Instant::now();
        let late = now.saturating_duration_since(deadline).as_secs_f64() * 1e3;
        if gone_after.is_infinite() && store.held() <= task.others {
            gone_after = late;
            gone.store(true, Ordering::Relaxed);
        }
        if gone_after.is_finite() && dropped_after.is_infinite() && store.waiting() == 0 {
            dropped_after = late;
        }
        if now >= end || (now >= window_end && dropped_after.is_finite()) {
            return (gone_after, dropped_after);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

struct Names<'a> {
    options: &'a Options,
    names: Vec<&'static str>,
}

impl TimedVisitor<u64> for Names<'_> {
    fn visit<T: Timed<u64>>(&mut self) {
        if self.options.wants(T::NAME) {
            self.names.push(T::NAME);
        }
    }
}

/// What one pair of one contender gave.
struct Pair {
    calm: Answer,
    wave: Answer,
    control: Answer,
}

const LATENCIES: [(&str, &str); 5] = [
    ("p50, us", "p50"),
    ("p99, us", "p99"),
    ("p99.9, us", "p999"),
    ("p99.99, us", "p9999"),
    ("max, us", "max"),
];

pub(crate) fn run(options: &Options, args: &WaveArgs) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("wave");
    let pairs = args
        .pairs
        .or(options.rounds.map(usize::from))
        .unwrap_or(if options.quick { 2 } else { 12 });
    println!(
        "{} entries with one deadline; one thread reads {} other keys in a closed loop, back to back (each sample includes",
        count_name(args.entries),
        count_name(args.others)
    );
    println!(
        "reading the clock and recording: see the control). {pairs} pairs, in turn calm, wave, control; a fresh process each. Calm:"
    );
    println!(
        "the same store, but nothing expires. Recorded: {} ms from the deadline on. moka has nobody but this reader to clean up.\n",
        args.window
    );

    let mut names = Names {
        options,
        names: Vec::new(),
    };
    visit_timed(&mut names);
    let names = names.names;
    let mut leads = vec![Duration::from_millis(2_500); names.len()];
    let mut results: Vec<Vec<Pair>> = names.iter().map(|_| Vec::new()).collect();
    for _ in 0..pairs {
        for ((name, results), lead) in names.iter().zip(&mut results).zip(&mut leads) {
            let mut ask_phase = |wave: bool| -> Result<Answer, Box<dyn Error>> {
                let answer = ask("wave", &arguments(args, name, *lead, wave))?;
                // The lead follows what filling took, with room to spare.
                *lead = Duration::from_millis((answer["took"] * 1.6) as u64 + 800);
                Ok(answer)
            };
            let calm = ask_phase(false)?;
            let wave = ask_phase(true)?;
            let control = ask("spin", &[("window", args.window.to_string())])?;
            results.push(Pair {
                calm,
                wave,
                control,
            });
        }
    }
    for (name, pairs) in names.iter().zip(&results) {
        add_latencies(&mut report, name, pairs);
        add_outcome(&mut report, name, pairs);
    }
    print(&report);
    Ok(report)
}

fn arguments(
    args: &WaveArgs,
    name: &str,
    lead: Duration,
    wave: bool,
) -> Vec<(&'static str, String)> {
    vec![
        ("contender", name.to_owned()),
        ("entries", args.entries.to_string()),
        ("others", args.others.to_string()),
        ("window", args.window.to_string()),
        ("patience", args.patience.to_string()),
        ("lead", lead.as_millis().to_string()),
        ("wave", wave.to_string()),
    ]
}

const CALM: &str = "calm";
const WINDOW: &str = "wave: the whole window after the deadline";
const DURING: &str = "wave: until it was gone";
const CONTROL: &str = "spinning control";
const OUTCOME: &str = "wave beside calm";

/// Whose answer within a pair.
type Side = fn(&Pair) -> &Answer;

fn add_latencies(report: &mut Report, name: &str, pairs: &[Pair]) {
    let sides: [(&str, Side, &str); 4] = [
        (CALM, |pair| &pair.calm, "window"),
        (WINDOW, |pair| &pair.wave, "window"),
        (DURING, |pair| &pair.wave, "during"),
        (CONTROL, |pair| &pair.control, "window"),
    ];
    for (case, side, prefix) in sides {
        for (metric, field) in LATENCIES {
            let field = format!("{prefix}-{field}");
            report.add(Figure {
                case: case.to_owned(),
                contender: name.to_owned(),
                base: EBBTIDE,
                metric,
                rounds: pairs.iter().map(|pair| side(pair)[&field]).collect(),
            });
        }
    }
}

const GONE: &str = "gone after, ms";
const DROPPED: &str = "dropped after, ms";
const LEFT: &str = "left at the end";
const RATIO_WINDOW: &str = "p99.9 wave/calm, window";
const RATIO_DURING: &str = "p99.9 wave/calm, until gone";
const EXCESS: &str = "longest read over control's, ms";
const FULL: &str = "RSS full, MB";
const AFTER: &str = "RSS after, MB";

type PerPair = fn(&Pair) -> f64;

fn add_outcome(report: &mut Report, name: &str, pairs: &[Pair]) {
    let metrics: [(&'static str, PerPair); 8] = [
        (GONE, |pair| pair.wave["gone"]),
        (DROPPED, |pair| pair.wave["dropped"]),
        (LEFT, |pair| pair.wave["left"]),
        (RATIO_WINDOW, |pair| {
            pair.wave["window-p999"] / pair.calm["window-p999"]
        }),
        (RATIO_DURING, |pair| {
            pair.wave["during-p999"] / pair.calm["window-p999"]
        }),
        (EXCESS, |pair| {
            (pair.wave["window-max"] - pair.control["window-max"]) / 1e3
        }),
        (FULL, |pair| pair.wave["full"]),
        (AFTER, |pair| pair.wave["after"]),
    ];
    for (metric, value) in metrics {
        report.add(Figure {
            case: OUTCOME.to_owned(),
            contender: name.to_owned(),
            base: EBBTIDE,
            metric,
            rounds: pairs.iter().map(value).collect(),
        });
    }
}

fn print(report: &Report) {
    let latencies = LATENCIES.map(|(metric, _)| metric);
    for case in [CALM, WINDOW, DURING, CONTROL] {
        report.print_case(case, &latencies, "p99.9, us");
    }
    report.print_case(OUTCOME, &[GONE, DROPPED, LEFT, FULL, AFTER], GONE);
    report.print_case(OUTCOME, &[RATIO_WINDOW, RATIO_DURING, EXCESS], RATIO_WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds() {
        let mut histogram = latency();
        for nanos in 1..=1_000_u64 {
            histogram.record(nanos * 1_000).unwrap();
        }
        let values: Answer = percentiles("window", &histogram).collect();
        assert!((values["window-p50"] - 500.0).abs() < 1.0);
        assert!((values["window-p999"] - 999.0).abs() < 1.5);
        assert!((values["window-max"] - 1_000.0).abs() < 1.5);
    }

    #[test]
    fn spinning_fills_its_window_with_samples() {
        let window = Duration::from_millis(20);
        let pauses = spinning(window);
        let sum: f64 = pauses
            .iter_recorded()
            .map(|bin| bin.value_iterated_to() as f64 * bin.count_at_value() as f64)
            .sum();
        // Back to back: the samples add up to the window (bins round up by 0.1 %).
        assert!(sum >= window.as_nanos() as f64 * 0.99, "{sum}");
    }

    /// A small wave in this process, whatever contender is built in.
    struct Small(usize);

    impl TimedVisitor<u64> for Small {
        fn visit<T: Timed<u64>>(&mut self) {
            let mut task = Task {
                contender: T::NAME.to_owned(),
                entries: 2_000,
                others: 100,
                window: 300,
                patience: 20_000,
                lead: 400,
                wave: true,
            };
            let wave = phase::<T>(&task);
            assert!(wave["gone"].is_finite(), "{}: {wave:?}", T::NAME);
            assert_eq!(wave["left"], 0.0, "{}", T::NAME);
            assert!(wave["reads"] > 0.0, "{}", T::NAME);
            task.wave = false;
            let calm = phase::<T>(&task);
            assert!(calm["gone"].is_infinite(), "{}: {calm:?}", T::NAME);
            assert_eq!(calm["left"], 2_000.0, "{}", T::NAME);
            self.0 += 1;
        }
    }

    #[test]
    fn a_wave_goes_and_a_calm_stays() {
        let mut small = Small(0);
        visit_timed(&mut small);
        assert!(small.0 >= 1);
    }
}
