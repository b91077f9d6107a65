//! `inserts`: fresh keys into a growing store, and the slowest single insert.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use clap::Args;
use hdrhistogram::Histogram;

use crate::Options;
use crate::adapters::{HOUR, Hashers, Store, Visitor, visit_all};
use crate::child::{self, Answer, ask};
use crate::keys::{count_name, scattered};
use crate::memory::{Names, lifetime_of, plan};
use crate::report::{EBBTIDE, Figure, Report};
use crate::rounds::RATE;
use crate::wave::{latency, longest, spinning};

#[derive(Args, Debug)]
pub(crate) struct InsertsArgs {
    /// Up to how many entries the store grows
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u64>,
}

/// Grows one contender.
#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long)]
    entries: u64,
    #[arg(long)]
    threads: u64,
    /// Seconds; 0: entries have no lifetime
    #[arg(long)]
    lifetime: u64,
    /// Time each insert by itself (one thread), then spin for as long
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    each: bool,
}

struct Grow<'a> {
    task: &'a Task,
    answer: Option<Answer>,
}

impl Visitor for Grow<'_> {
    fn visit<S: Store>(&mut self) {
        if S::name() != self.task.contender {
            return;
        }
        let lifetime = lifetime_of(self.task.lifetime);
        let store = S::build(&plan(self.task.entries as usize, lifetime));
        self.answer = Some(if self.task.each {
            grow_timing_each(&store, self.task.entries)
        } else {
            let seconds = grow(&store, self.task.entries, self.task.threads);
            child::figures([("rate", self.task.entries as f64 / seconds / 1e6)])
        });
    }
}

/// Seconds in which `threads` threads together insert `entries` fresh keys.
fn grow<S: Store>(store: &S, entries: u64, threads: u64) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let turns: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|first| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let began = Instant::now();
                    for i in (first..entries).step_by(threads as usize) {
                        store.insert(scattered(i), i);
                    }
                    (began, Instant::now())
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("an inserter does not panic"))
            .collect()
    });
    let began = turns.iter().map(|turn| turn.0).min();
    let ended = turns.iter().map(|turn| turn.1).max();
    match (began, ended) {
        (Some(began), Some(ended)) => (ended - began).as_secs_f64(),
        _ => f64::NAN,
    }
}

/// Back to back: each sample goes from the end of the insert before to the end of
/// this one, so no pause of the machine falls between two samples, neither here
/// nor in the control.
fn grow_timing_each<S: Store>(store: &S, entries: u64) -> Answer {
    let mut inserts: Histogram<u64> = latency();
    let began = Instant::now();
    let mut last = began;
    for i in 0..entries {
        store.insert(scattered(i), i);
        let now = Instant::now();
        inserts.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    let control = spinning(began.elapsed());
    child::figures([
        ("p50", inserts.value_at_quantile(0.5) as f64 / 1e3),
        ("p999", inserts.value_at_quantile(0.999) as f64 / 1e3),
        ("max", longest(&inserts) / 1e3),
        ("control", longest(&control) / 1e3),
    ])
}

pub(crate) fn measure(task: &Task) -> Option<Answer> {
    let mut grow = Grow { task, answer: None };
    visit_all(Hashers::Both, &mut grow);
    grow.answer
}

const P50: &str = "p50, us";
const P999: &str = "p99.9, us";
const MAX: &str = "slowest insert, ms";
const CONTROL: &str = "spinning control's longest pause, ms";

pub(crate) fn run(options: &Options, args: &InsertsArgs) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("inserts");
    let rounds = options.rounds_or(if options.quick { 2 } else { 7 });
    println!(
        "Fresh keys in random order, u64 -> u64, into a store that grows from nothing to {} entries.",
        count_name(args.entries)
    );
    println!(
        "Each figure from a fresh process, {rounds} rounds in turn; page faults of fresh memory are part of it, for all alike."
    );
    println!(
        "The control reads the clock and nothing else, right after, for as long: the machine's own pauses.\n"
    );
    for lifetime in [Some(HOUR), None] {
        let names = match lifetime {
            Some(_) => Names::with_lifetimes(options),
            None => Names::without_lifetimes(options),
        }
        .names;
        let seconds = lifetime.map_or(0, |lifetime| lifetime.as_secs());
        let group = lifetime.map_or("without lifetimes", |_| "with a lifetime");
        let ask_about = |name: &str, threads: u64| {
            vec![
                ("contender", name.to_owned()),
                ("entries", args.entries.to_string()),
                ("threads", threads.to_string()),
                ("lifetime", seconds.to_string()),
            ]
        };
        for &threads in &args.threads {
            let mut rates = vec![Vec::new(); names.len()];
            for _ in 0..rounds {
                for ((name, _), rates) in names.iter().zip(&mut rates) {
                    rates.push(ask("inserts", &ask_about(name, threads))?["rate"]);
                }
            }
            let case = format!(
                "{group}, {threads} thread{}",
                if threads == 1 { "" } else { "s" }
            );
            for ((name, base), rounds) in names.iter().zip(rates) {
                report.add(Figure {
                    case: case.clone(),
                    contender: name.clone(),
                    base,
                    metric: RATE,
                    rounds,
                });
            }
            println!("A ratio above 1: ebbtide is faster.");
            report.print_case(&case, &[RATE], RATE);
        }
        let mut answers = vec![Vec::new(); names.len()];
        for _ in 0..rounds {
            for ((name, _), answers) in names.iter().zip(&mut answers) {
                answers.push(ask("inserts", &each(ask_about(name, 1)))?);
            }
        }
        let case = format!("{group}, each insert timed, 1 thread");
        for ((name, _), answers) in names.iter().zip(&answers) {
            for (metric, field, scale) in [
                (P50, "p50", 1.0),
                (P999, "p999", 1.0),
                (MAX, "max", 1e-3),
                (CONTROL, "control", 1e-3),
            ] {
                report.add(Figure {
                    case: case.clone(),
                    contender: name.clone(),
                    base: EBBTIDE,
                    metric,
                    rounds: answers.iter().map(|answer| answer[field] * scale).collect(),
                });
            }
        }
        println!("A ratio below 1: ebbtide's slowest insert is shorter.");
        report.print_case(&case, &[P50, P999, MAX, CONTROL], MAX);
    }
    Ok(report)
}

/// The same question, with each insert timed.
fn each(mut arguments: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    arguments.push(("each", "true".to_owned()));
    arguments
}
