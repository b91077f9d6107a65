//! All measurements of a plan, in turn, round by round; then the tables, files and plots.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::args::{Plan, Point};
use super::machine::{self, Neighbours};
use super::task::{Answer, Task, ask};
use super::{Host, Outcome, plots, report};

/// How long a contender needs to be filled with so many entries, once that is known: it is given
/// that long at once.
type Leads = HashMap<(String, u64), u64>;

/// One point of one group, with every round's answer.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    pub(crate) task: Task,
    pub(crate) answers: Vec<Answer>,
}

impl Measured {
    /// Every round's value.
    pub(crate) fn values(&self, value: impl Fn(&Answer) -> f64) -> Vec<f64> {
        self.answers.iter().map(value).collect()
    }

    /// Every round's quantile of these latencies, in nanoseconds.
    pub(crate) fn quantiles(&self, phase: &str, op: &str, quantile: &str) -> Vec<f64> {
        self.values(|answer| {
            answer
                .row(phase, op)
                .map_or(f64::NAN, |row| row.quantile(quantile) as f64)
        })
    }
}

/// The middle one; not a number if one of them is not.
pub(crate) fn median(values: &[f64]) -> f64 {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

pub(crate) fn run(host: &Host, plan: &Plan) -> Outcome<()> {
    let machine = machine::description(&host.versions);
    println!("## latency\n");
    for (name, value) in &machine {
        println!("{name:>9}: {value}");
    }
    let count = plan.groups.iter().map(Vec::len).sum::<usize>() * plan.rounds;
    announce(host, plan, count);
    let neighbours = Neighbours::watch();
    let began = Instant::now();

    let mut progress = Progress::of(count);
    let mut leads = Leads::new();
    let mut groups = Vec::new();
    let mut failure = None;
    for group in &plan.groups {
        let (measured, outcome) = take_turns(host, plan.rounds, group, &mut leads, &mut progress);
        progress.clear();
        report::print(host, &measured);
        groups.push(measured);
        if let Err(error) = outcome {
            failure = Some(error);
            break;
        }
    }
    match neighbours.as_ref().and_then(Neighbours::cores_used) {
        Some(cores) => println!("Other processes kept {cores:.2} cores busy while this ran."),
        None => println!("How busy other processes were is not known on this system."),
    }
    // What was measured before a failure is not lost.
    report::write(&plan.out, &machine, &groups)?;
    let drawn = plots::draw(&plan.out, &groups)?;
    println!(
        "{} measurements in {} s. Tables and plots in {}: {}",
        progress.done,
        began.elapsed().as_secs(),
        plan.out.display(),
        drawn.join(", ")
    );
    failure.map_or(Ok(()), Err)
}

/// Measures a group's points in turn, round by round, as far as all goes well.
fn take_turns(
    host: &Host,
    rounds: usize,
    group: &[(Point, Task)],
    leads: &mut Leads,
    progress: &mut Progress,
) -> (Vec<Measured>, Outcome<()>) {
    let mut measured: Vec<Measured> = group
        .iter()
        .map(|(point, task)| Measured {
            point: point.clone(),
            task: task.clone(),
            answers: Vec::new(),
        })
        .collect();
    for _ in 0..rounds {
        for one in &mut measured {
            progress.step(&one.task);
            let whose = (one.task.contender.clone(), one.task.entries);
            let lead = leads.entry(whose).or_insert(one.task.lead);
            one.task.lead = one.task.lead.max(*lead);
            match ask(host, &mut one.task) {
                Ok(answer) => one.answers.push(answer),
                Err(error) => {
                    // Of those without an answer there is nothing to show.
                    measured.retain(|one| !one.answers.is_empty());
                    return (measured, Err(error));
                }
            }
            *lead = one.task.lead;
        }
    }
    (measured, Ok(()))
}

fn announce(host: &Host, plan: &Plan, count: usize) {
    let Some((_, task)) = plan.groups.first().and_then(|group| group.first()) else {
        return;
    };
    let about: u64 = plan
        .groups
        .iter()
        .flatten()
        .map(|(_, task)| expected(task))
        .sum();
    println!(
        "\n{count} measurements in {} round(s), each in a process of its own: about {} min.",
        plan.rounds,
        (about * plan.rounds as u64).div_ceil(60_000)
    );
    println!(
        "{} thread(s) make requests, {} % of them writes; open loop: {} a second together, \
         latency from when a request was due.",
        task.threads,
        task.writes * 100.0,
        task.rate
    );
    println!(
        "control: the same loop without a cache, in turn with the requests: the machine's own \
         pauses. A write includes making its value."
    );
    for contender in &host.contenders {
        let taking_part = |(point, _): &(Point, Task)| point.contender == contender.name;
        if !contender.note.is_empty() && plan.groups.iter().flatten().any(taking_part) {
            println!("{}: {}.", contender.name, contender.note);
        }
    }
    if machine::resident_bytes().is_none() {
        println!("Resident memory is not known on this system: its columns are empty.");
    }
    if plan.quick {
        println!("--quick: these figures are rough.");
    }
    println!();
}

/// Milliseconds that a measurement takes, if a wave is gone soon.
fn expected(task: &Task) -> u64 {
    let before = if task.entries > 0 {
        task.lead
    } else {
        task.ttl * 5 / 4
    };
    before + task.duration + 400
}

/// Where we are, on a terminal only.
struct Progress {
    done: usize,
    count: usize,
    shown: bool,
    last: Option<Instant>,
}

impl Progress {
    fn of(count: usize) -> Self {
        Progress {
            done: 0,
            count,
            shown: io::stderr().is_terminal(),
            last: None,
        }
    }

    fn step(&mut self, task: &Task) {
        self.done += 1;
        let due = self
            .last
            .is_none_or(|last| last.elapsed() > Duration::from_millis(200));
        if self.shown && due {
            self.last = Some(Instant::now());
            let (done, count, case) = (self.done, self.count, task.case());
            eprint!("\r\x1b[K{done}/{count} {case}, {}", task.contender);
            // Only a display: what cannot be shown is not missed.
            let _ = io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
