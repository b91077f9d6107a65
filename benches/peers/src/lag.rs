//! `lag`: how long after its deadline a value is dropped, beside many live entries.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::Options;
use crate::adapters::{HOUR, Timed, TimedVisitor, visit_timed};
use crate::child::{self, Answer, ask};
use crate::keys::{count_name, scattered, shuffled};
use crate::machine::own_cpu_time;
use crate::report::{EBBTIDE, Figure, Report};

#[derive(Args, Debug)]
pub(crate) struct LagArgs {
    /// Numbers of live one-hour entries, separated by commas
    /// (default 0,100000,1000000,10000000; with --quick 0,100000,1000000)
    #[arg(long, value_delimiter = ',')]
    live: Option<Vec<u64>>,
    /// How many values are watched (default 1000; with --quick 200)
    #[arg(long)]
    probes: Option<u64>,
    /// From one probe's deadline to the next one's, in milliseconds
    #[arg(long, default_value_t = 10)]
    step: u64,
}

/// One number of live entries in one contender.
#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long)]
    live: u64,
    #[arg(long)]
    probes: u64,
    #[arg(long)]
    step: u64,
}

/// Where the probes note how late they were dropped, in nanoseconds (negative:
/// before their deadline).
type Notes = Arc<Mutex<Vec<i64>>>;

/// A value that notes when it is dropped.
struct Probe {
    deadline: Instant,
    notes: Notes,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let now = Instant::now();
        let late = (now.saturating_duration_since(self.deadline)).as_nanos() as i64;
        let early = (self.deadline.saturating_duration_since(now)).as_nanos() as i64;
        let mut notes = self.notes.lock().expect("no probe panics");
        notes.push(late - early);
    }
}

struct Measure<'a> {
    task: &'a Task,
    answer: Option<Answer>,
}

impl TimedVisitor<Option<Arc<Probe>>> for Measure<'_> {
    fn visit<T: Timed<Option<Arc<Probe>>>>(&mut self) {
        if T::NAME == self.task.contender {
            self.answer = Some(probe::<T>(self.task));
        }
    }
}

pub(crate) fn measure(task: &Task) -> Option<Answer> {
    let mut measure = Measure { task, answer: None };
    visit_timed(&mut measure);
    measure.answer
}

/// How long after the last deadline a probe that is still held counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);

fn probe<T: Timed<Option<Arc<Probe>>>>(task: &Task) -> Answer {
    let store = T::build();
    let hours = Instant::now() + HOUR;
    // One live key at least, for a caller to ask for.
    for i in 0..task.live.max(1) {
        store.insert_until(scattered(i), None, hours);
    }
    store.settle();

    let notes: Notes = Arc::new(Mutex::new(Vec::with_capacity(task.probes as usize)));
    let first = Instant::now() + Duration::from_millis(500);
    let step = Duration::from_millis(task.step);
    for place in shuffled(task.probes as usize, 51) {
        let deadline = first + step * place;
        let probe = Probe {
            deadline,
            notes: Arc::clone(&notes),
        };
        let key = scattered(task.live.max(1) + u64::from(place));
        store.insert_until(key, Some(Arc::new(probe)), deadline);
    }

    let (began, cpu) = (Instant::now(), own_cpu_time());
    let last = first + step * u32::try_from(task.probes).expect("fewer than 2^32 probes");
    let dropped = || notes.lock().expect("no probe panics").len();
    while dropped() < task.probes as usize && Instant::now() < last + PATIENCE {
        if T::NEEDS_CALLS {
            drop(store.get(scattered(0)));
            thread::sleep(Duration::from_millis(1));
        } else {
            thread::sleep(Duration::from_millis(20));
        }
    }
    let share = (own_cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();

    let mut lags = notes.lock().expect("no probe panics").clone();
    lags.sort_unstable();
    let millis = |quantile: f64| {
        let index = (quantile * lags.len() as f64).ceil() as usize;
        lags.get(index.saturating_sub(1))
            .map_or(f64::NAN, |&nanos| nanos as f64 / 1e6)
    };
    let own = store
        .own_lag()
        .map_or([f64::NAN; 2], |lag| lag.map(|lag| lag.as_secs_f64() * 1e3));
    child::figures([
        ("p50", millis(0.5)),
        ("p99", millis(0.99)),
        ("max", millis(1.0)),
        (
            "early",
            lags.iter().filter(|&&nanos| nanos < 0).count() as f64,
        ),
        ("missing", (task.probes as usize - lags.len()) as f64),
        ("cpu", 100.0 * share),
        ("own-p50", own[0]),
        ("own-p99", own[1]),
    ])
}

struct Names<'a> {
    options: &'a Options,
    names: Vec<&'static str>,
}

impl TimedVisitor<Option<Arc<Probe>>> for Names<'_> {
    fn visit<T: Timed<Option<Arc<Probe>>>>(&mut self) {
        if self.options.wants(T::NAME) {
            self.names.push(T::NAME);
        }
    }
}

pub(crate) const METRICS: [(&str, &str); 8] = [
    ("p50, ms", "p50"),
    ("p99, ms", "p99"),
    ("max, ms", "max"),
    ("dropped early", "early"),
    ("never dropped", "missing"),
    ("% of a core", "cpu"),
    ("its own p50, ms", "own-p50"),
    ("its own p99, ms", "own-p99"),
];

pub(crate) fn run(options: &Options, args: &LagArgs) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("lag");
    let rounds = options.rounds_or(if options.quick { 1 } else { 3 });
    let probes = args
        .probes
        .unwrap_or(if options.quick { 200 } else { 1_000 });
    let live = args.live.clone().unwrap_or_else(|| {
        let mut live = vec![0, 100_000, 1_000_000];
        if !options.quick {
            live.push(10_000_000);
        }
        live
    });
    println!(
        "From the deadline of a value to its Drop: {probes} values with deadlines {} ms apart, beside live one-hour entries.",
        args.step
    );
    println!(
        "{rounds} round(s) in turn, a fresh process each. ebbtide is left alone; moka, which frees nothing then, gets one get of"
    );
    println!(
        "a live key every millisecond. Processor time is that of the whole process. A ratio below 1: ebbtide is sooner.\n"
    );
    let mut names = Names {
        options,
        names: Vec::new(),
    };
    visit_timed(&mut names);
    let names = names.names;
    for live in live {
        let mut answers = vec![Vec::new(); names.len()];
        for _ in 0..rounds {
            for (name, answers) in names.iter().zip(&mut answers) {
                answers.push(ask(
                    "lag",
                    &[
                        ("contender", (*name).to_owned()),
                        ("live", live.to_string()),
                        ("probes", probes.to_string()),
                        ("step", args.step.to_string()),
                    ],
                )?);
            }
        }
        let case = format!("{} live entries", count_name(live));
        for (name, answers) in names.iter().zip(&answers) {
            for (metric, field) in METRICS {
                report.add(Figure {
                    case: case.clone(),
                    contender: (*name).to_owned(),
                    base: EBBTIDE,
                    metric,
                    rounds: answers.iter().map(|answer| answer[field]).collect(),
                });
            }
        }
        report.print_case(&case, &METRICS.map(|(metric, _)| metric), "p99, ms");
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Few(usize);

    impl TimedVisitor<Option<Arc<Probe>>> for Few {
        fn visit<T: Timed<Option<Arc<Probe>>>>(&mut self) {
            let answer = probe::<T>(&Task {
                contender: T::NAME.to_owned(),
                live: 100,
                probes: 20,
                step: 5,
            });
            assert_eq!(answer["missing"], 0.0, "{}: {answer:?}", T::NAME);
            assert!(answer["p50"] <= answer["p99"], "{}: {answer:?}", T::NAME);
            self.0 += 1;
        }
    }

    #[test]
    fn every_probe_is_dropped_and_counted() {
        let mut few = Few(0);
        visit_timed(&mut few);
        assert!(few.0 >= 1);
    }

    #[test]
    fn a_drop_before_the_deadline_is_noted_as_early() {
        let notes: Notes = Arc::default();
        for deadline in [
            Instant::now() + HOUR,
            Instant::now() - Duration::from_millis(5),
        ] {
            drop(Probe {
                deadline,
                notes: Arc::clone(&notes),
            });
        }
        let notes = notes.lock().unwrap();
        assert!(notes[0] < -1_000_000_000);
        assert!(notes[1] >= 5_000_000);
    }
}
