//! `hit-ratio`: replays request traces through caches of several capacities.
//!
//! For each request a get, and an insert when it misses; one thread, one pass, nothing left out as
//! warm-up. Entries weigh 1, or with `--weights` what the trace says; with `--lifetimes` they
//! expire.

mod capacities;
mod contenders;
mod files;
mod opt;
mod pool;
mod replay;
mod tables;
mod traces;

use std::path::PathBuf;

use clap::Args;

use crate::Options;
use crate::lab::Outcome;
use crate::report::{EBBTIDE, Figure, Report};
use crate::timeline::Compression;

use capacities::{Capacity, Cell};
use contenders::{Contender, Kind, Setup};
use files::Folder;
use replay::Tally;
use traces::{FOLDER_VARIABLE, Source, Trace};

#[derive(Args, Debug)]
pub(crate) struct HitRatioArgs {
    /// The folder of traces (NAME.zst), else that of the variable EBBTIDE_TRACES, else the committed
    /// trace alone
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these traces, separated by commas: names of files without .zst
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    traces_named: Vec<String>,
    /// Capacities, separated by commas: shares of the distinct keys (0.1%), numbers of entries, or
    /// "published" for the sizes used in publications. With --weights shares of the keys' bytes,
    /// and bytes [default: 0.1%,1%,10%,published; with --quick 1%]
    #[arg(long, value_delimiter = ',', value_parser = capacities::parse, value_name = "LIST")]
    capacities: Vec<Capacity>,
    /// Entries of weight 1 (this is also what runs when no replay is asked for)
    #[arg(long)]
    unit: bool,
    /// Also, or instead: sizes as weights, for the traces that have sizes
    #[arg(long)]
    weights: bool,
    /// Also, or instead: entries that expire, for the traces that have lifetimes
    #[arg(long)]
    lifetimes: bool,
    /// What lifetimes are divided by. Those of the committed trace are assigned, and far longer
    /// than the trace
    #[arg(long, default_value_t = 600.0, value_parser = factor, value_name = "N")]
    lifetimes_divided_by: f64,
    /// How many times faster than logged those replay whose clock cannot be moved (with
    /// --lifetimes; default 10, with --quick 50)
    #[arg(long, value_parser = factor, value_name = "N")]
    speed: Option<f64>,
    /// Cells that run at the same time, each on one thread
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Also write all cells (CSV) and a plot for each trace (SVG) into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn factor(word: &str) -> Result<f64, String> {
    match word.parse() {
        Ok(factor) if (0.001..=1e9).contains(&factor) => Ok(factor),
        _ => Err(format!("\"{word}\" is no number within 0.001 and 1e9")),
    }
}

/// What an entry weighs, and whether it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replay {
    Unit,
    Weights,
    Lifetimes,
}

impl Replay {
    fn name(self) -> &'static str {
        match self {
            Replay::Unit => "unit",
            Replay::Weights => "weights",
            Replay::Lifetimes => "lifetimes",
        }
    }

    /// What a trace must have for it.
    fn suits(self, trace: &Trace) -> bool {
        match self {
            Replay::Unit => true,
            Replay::Weights => !trace.sizes.is_empty(),
            Replay::Lifetimes => trace.times.is_some(),
        }
    }

    fn weighted(self) -> bool {
        self == Replay::Weights
    }
}

/// Cells whose means are compared.
#[derive(Debug)]
struct Group {
    name: &'static str,
    /// How many cells it has when every trace takes part.
    cells: usize,
    /// Its cells have a share of the distinct keys as capacity, and at least so many entries; or
    /// none: its cells have published capacities.
    least: Option<u64>,
}

const GROUPS: [Group; 4] = [
    Group {
        name: "shares",
        cells: 61,
        least: Some(0),
    },
    Group {
        name: "shares >= 250",
        cells: 34,
        least: Some(250),
    },
    Group {
        name: "shares >= 1,000",
        cells: 19,
        least: Some(1_000),
    },
    Group {
        name: "published",
        cells: 30,
        least: None,
    },
];

/// All rounds of one contender in one cell.
#[derive(Debug)]
struct Measured {
    replay: Replay,
    trace: String,
    cell: Cell,
    contender: &'static str,
    /// A reference, not something to use.
    reference: bool,
    ours: bool,
    rounds: Vec<Tally>,
}

impl Measured {
    fn case(&self) -> String {
        let unit = if self.replay.weighted() {
            "bytes"
        } else {
            "entries"
        };
        format!(
            "{}, {} @ {} {unit}",
            self.replay.name(),
            self.trace,
            self.cell.capacity
        )
    }

    /// Percent, the mean of the rounds.
    fn mean(&self, of: fn(&Tally) -> f64) -> f64 {
        self.rounds.iter().map(of).sum::<f64>() / self.rounds.len() as f64
    }

    fn hit_ratio(&self) -> f64 {
        self.mean(Tally::hit_ratio)
    }
}

/// A contender that takes no part, and why.
type Absent = (&'static str, &'static str);

/// One cell of one contender.
struct Job<'a> {
    cell: Cell,
    contender: &'a Contender,
}

pub(crate) fn run(options: &Options, args: &HitRatioArgs) -> Outcome<Report> {
    let plan = Plan::of(options, args)?;
    let out = args.out.as_deref().map(Folder::open).transpose()?;
    let variable = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    let folder = args.traces.clone().or(variable.map(PathBuf::from));
    let (sources, notes) = traces::choose(folder.as_deref(), &args.traces_named, options.quick)?;
    let mut report = Report::new("hit-ratio");
    println!("{}\n", versions());
    for note in notes {
        println!("{note}\n");
    }
    plan.describe(&sources);
    let mut all = Vec::new();
    let mut said = Vec::new();
    for source in &sources {
        let trace = source.load()?;
        for &replay in &plan.replays {
            if !replay.suits(&trace) {
                if !args.traces_named.is_empty() || sources.len() == 1 {
                    println!("{} has no {}: skipped.\n", trace.name, replay.name());
                }
                continue;
            }
            let (measured, absent) = plan.measure(&trace, replay)?;
            for (name, why) in absent {
                if !said.contains(&(replay, name)) {
                    println!("{}: {name} takes no part: {why}.\n", replay.name());
                    said.push((replay, name));
                }
            }
            if measured.is_empty() {
                continue;
            }
            tables::print_trace(&trace, replay, &measured);
            if let Some(out) = &out {
                out.plot(&trace.name, replay, &measured)?;
            }
            for one in &measured {
                add(&mut report, one);
            }
            all.extend(measured);
        }
    }
    if all.is_empty() {
        let names: Vec<&str> = plan.replays.iter().map(|replay| replay.name()).collect();
        let names = names.join(", ");
        return Err(
            format!("nothing was replayed: no chosen trace or contender suits {names}").into(),
        );
    }
    tables::print_means(&all);
    if let Some(out) = out {
        out.finish(&all)?;
    }
    Ok(report)
}

/// The crates that only this bench uses; all others stand in the report's head.
fn versions() -> String {
    let version = |name: &str| {
        let lock = include_str!("../../Cargo.lock");
        let package = lock
            .split(&format!("name = \"{name}\"\nversion = \""))
            .nth(1);
        let version = package.and_then(|rest| rest.split('"').next());
        format!("{name} {}", version.unwrap_or("of an unknown version"))
    };
    format!("    and: {}, {}", version("foyer-memory"), version("lru"))
}

fn add(report: &mut Report, one: &Measured) {
    let mut figure = |metric, of: fn(&Tally) -> f64| {
        report.add(Figure {
            case: one.case(),
            contender: one.contender.to_owned(),
            base: EBBTIDE,
            metric,
            rounds: one.rounds.iter().map(of).collect(),
        });
    };
    figure("hit ratio, %", Tally::hit_ratio);
    if one.replay.weighted() {
        figure("byte hit ratio, %", Tally::byte_hit_ratio);
    }
}

/// What is to be done with each trace.
struct Plan<'a> {
    options: &'a Options,
    replays: Vec<Replay>,
    capacities: Vec<Capacity>,
    rounds: usize,
    threads: usize,
    /// Trace time for those whose clock is moved, and for those in real time.
    stepped: Compression,
    real: Compression,
}

impl<'a> Plan<'a> {
    fn of(options: &'a Options, args: &HitRatioArgs) -> Outcome<Self> {
        let asked = [
            (args.unit, Replay::Unit),
            (args.weights, Replay::Weights),
            (args.lifetimes, Replay::Lifetimes),
        ];
        let mut replays: Vec<Replay> = asked
            .into_iter()
            .filter_map(|(asked, replay)| asked.then_some(replay))
            .collect();
        if replays.is_empty() {
            replays.push(Replay::Unit);
        }
        let capacities = match (args.capacities.as_slice(), options.quick) {
            ([], true) => capacities::QUICK.to_vec(),
            ([], false) => capacities::DEFAULT.to_vec(),
            (asked, _) => asked.to_vec(),
        };
        let speed = args
            .speed
            .unwrap_or(if options.quick { 50.0 } else { 10.0 });
        let lifetime_factor = args.lifetimes_divided_by;
        let plan = Self {
            options,
            replays,
            capacities,
            rounds: options.rounds_or(1),
            threads: usize::from(args.threads),
            stepped: Compression {
                speed: 1.0,
                lifetime_factor,
            },
            real: Compression {
                speed,
                lifetime_factor,
            },
        };
        for &replay in &plan.replays {
            let everybody = contenders::contenders(replay, plan.stepped, plan.real);
            if !everybody.iter().any(|one| options.wants(one.name)) {
                let names: Vec<&str> = everybody.iter().map(|one| one.name).collect();
                let names = names.join("; ");
                return Err(format!("--only picks nobody of these: {names}").into());
            }
        }
        Ok(plan)
    }

    fn describe(&self, sources: &[Source]) {
        let rounds = match self.rounds {
            1 => "one run a cell".to_owned(),
            rounds => format!("the mean of {rounds} runs a cell"),
        };
        println!(
            "{} trace(s); a get for each request, and an insert when it misses; one thread, one\n\
             pass, nothing left out as warm-up; {rounds}, {} at a time.\n",
            sources.len(),
            self.threads
        );
        if self.replays.contains(&Replay::Lifetimes) {
            println!(
                "Lifetimes are divided by {}; in twitter_c52_1m they are assigned, not logged.\n\
                 moka's clock cannot be moved: it replays in real time, {} times faster than\n\
                 logged, its lifetimes as much shorter. \"Deadline in the value\": the cache knows\n\
                 nothing of lifetimes, its reader takes what has expired for a miss.\n",
                self.stepped.lifetime_factor, self.real.speed
            );
        }
    }

    /// All cells of a trace in one replay, by capacity, then in the order of the contenders; and
    /// who takes no part, and why.
    fn measure(&self, trace: &Trace, replay: Replay) -> Outcome<(Vec<Measured>, Vec<Absent>)> {
        let everybody = contenders::contenders(replay, self.stepped, self.real);
        let wanted = everybody.iter().filter(|one| self.options.wants(one.name));
        let cells = capacities::cells(trace, replay, &self.capacities);
        let heaviest = match replay {
            Replay::Weights => trace.sizes.iter().copied().max().unwrap_or(1),
            _ => 1,
        };
        let mean = trace.distinct_bytes / u64::from(trace.distinct.max(1));
        let setup = |cell: Cell| Setup {
            bound: cell.capacity,
            weighted: replay.weighted(),
            entries: match replay {
                Replay::Weights => (cell.capacity / mean.max(1)).max(1) as usize,
                _ => cell.capacity as usize,
            },
            heaviest,
        };
        let mut jobs = Vec::new();
        let mut absent = Vec::new();
        for contender in wanted {
            if let (Kind::Cache { make, .. }, Some(&cell)) = (contender.kind, cells.first())
                && let Err(why) = make(&setup(cell))
            {
                absent.push((contender.name, why));
                continue;
            }
            jobs.extend(cells.iter().map(|&cell| Job { cell, contender }));
        }
        let answers = pool::run(
            &jobs,
            self.threads,
            |job| job.contender.in_real_time(),
            |job| {
                let setup = setup(job.cell);
                (0..self.rounds)
                    .map(|_| once(trace, job.contender, &setup))
                    .collect::<Result<Vec<Tally>, String>>()
            },
        )?;
        let mut measured: Vec<Measured> = jobs
            .iter()
            .zip(answers)
            .map(|(job, rounds)| Measured {
                replay,
                trace: trace.name.clone(),
                cell: job.cell,
                contender: job.contender.name,
                reference: job.contender.is_reference(),
                ours: contenders::is_ours(job.contender.name),
                rounds,
            })
            .collect();
        measured.sort_by_key(|one| one.cell.capacity);
        Ok((measured, absent))
    }
}

/// One contender through one cell.
fn once(trace: &Trace, contender: &Contender, setup: &Setup) -> Result<Tally, String> {
    let named = |error: String| {
        format!(
            "{}, {} @ {}: {error}",
            contender.name, trace.name, setup.bound
        )
    };
    match contender.kind {
        Kind::Opt => Ok(opt::replay(trace, setup.bound, setup.weighted)),
        Kind::Cache { make, life } => {
            let mut subject = make(setup).map_err(|why| named(why.to_owned()))?;
            let tally = replay::replay(trace, subject.as_mut(), setup.weighted, life);
            let tally = tally.map_err(named)?;
            match subject.held() {
                Some(held) if held > setup.bound => {
                    Err(named(format!("{held} held with room for {}", setup.bound)))
                }
                _ => Ok(tally),
            }
        }
    }
}

#[cfg(test)]
mod tests;
