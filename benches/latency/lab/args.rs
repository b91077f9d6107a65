//! What can be asked for, and the plan that becomes of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::scenario::Scenario;
use super::subject::{Lifetimes, Search, Settings, millis};
use super::task::{Loop, Task};
use super::{Host, Outcome};

/// Options of the lab, whichever program it runs in.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    /// Which traffic expires, separated by commas (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Numbers of entries that share one deadline (default 1000000,5000000; with --quick 100000)
    #[arg(long, value_delimiter = ',', value_parser = entries, value_name = "N")]
    wave_entries: Vec<u64>,
    /// Which settings are varied, separated by commas (default: all)
    #[arg(long, value_parser = sweep, value_delimiter = ',', value_name = "SETTING",
        help = "Which settings are varied, separated by commas: budget, interval, strategy, workers, shards, all, none [default: all]")]
    sweep: Vec<Sweep>,
    /// The budgets to vary, in milliseconds (default 0.1,0.25,0.5,1,2,5,10; with --quick 0.1,1,10)
    #[arg(long, value_parser = millis, value_delimiter = ',', value_name = "MS")]
    budgets: Vec<Duration>,
    /// The intervals to vary, in milliseconds (default 10,50,100,500; with --quick 10,500)
    #[arg(long, value_parser = millis, value_delimiter = ',', value_name = "MS")]
    intervals: Vec<Duration>,
    /// The worker counts to vary (default 1,2,4; with --quick 1,2)
    #[arg(long, value_parser = count, value_delimiter = ',', value_name = "N")]
    workers: Vec<usize>,
    /// The shard counts to vary (default 1,4,16,64,256; with --quick 1,64)
    #[arg(long, value_parser = count, value_delimiter = ',', value_name = "N")]
    shards: Vec<usize>,
    /// How requests are made, separated by commas (default: open,closed; with --quick, what is
    /// varied is measured in the open loop only)
    #[arg(long = "loop", value_enum, value_delimiter = ',')]
    loops: Vec<Loop>,
    /// Requests a second in the open loop, of all threads together
    #[arg(long, default_value = "200000", value_parser = rate)]
    rate: f64,
    /// The share of requests that write, above 0 and below 1
    #[arg(long, default_value = "0.25", value_parser = share)]
    writes: f64,
    /// Threads that make requests. One leaves the second of two cores to the reaper
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// For how long latencies are recorded, in milliseconds; from the deadline on in a wave
    /// (default 5000, a wave 2000; with --quick 500)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=90_000), value_name = "MS")]
    duration: Option<u64>,
    /// The lifetime of what expires, in milliseconds (default 2000; with --quick 200)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=30_000), value_name = "MS")]
    ttl: Option<u64>,
    /// For how long after a wave's deadline it is waited for, at most, in milliseconds
    /// (default 15000; with --quick 2000)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60_000), value_name = "MS")]
    patience: Option<u64>,
    /// Where tables (CSV) and plots (SVG) go (default: `latency` in the build's target folder)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What the program around the lab asks for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// A short run, to see that everything works: its figures are rough.
    pub(crate) quick: bool,
    pub(crate) rounds: Option<usize>,
    /// Only contenders whose names begin so.
    pub(crate) only: &'a [String],
}

/// A setting that can be varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sweep {
    Budget,
    Interval,
    Strategy,
    Workers,
    Shards,
    All,
    None,
}

impl Sweep {
    const EACH: [Sweep; 5] = [
        Sweep::Budget,
        Sweep::Interval,
        Sweep::Strategy,
        Sweep::Workers,
        Sweep::Shards,
    ];
}

/// The lock slice is named by those who read of it, and is not there.
fn sweep(text: &str) -> Result<Sweep, String> {
    if text == "slice" {
        return Err(
            "the lock slice is a constant of the library (50 µs), not a setting: the \
                    column `longest-hold` shows what became of it"
                .to_owned(),
        );
    }
    Sweep::from_str(text, false)
        .map_err(|_| "there are: budget, interval, strategy, workers, shards, all, none".to_owned())
}

fn entries(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(entries @ 1..=100_000_000) => Ok(entries),
        _ => Err("must be a number from 1 to 100000000".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=65_536) => Ok(count),
        _ => Err("must be a number from 1 to 65536".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // Beyond that, requests would be due between two readings of the clock.
        Ok(rate) if (1.0..=2e7).contains(&rate) => Ok(rate),
        _ => Err("must be at least 1 and at most 20000000 requests a second".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("must be above 0 and below 1".to_owned()),
    }
}

/// A contender with settings, and what it is measured for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) contender: &'static str,
    pub(crate) settings: Settings,
    /// The setting that is varied; none for a contender with its defaults.
    pub(crate) sweep: Option<Sweep>,
}

/// Everything that is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// One list of measurements that are compared with each other after the other.
    pub(crate) groups: Vec<Vec<(Point, Task)>>,
    pub(crate) out: PathBuf,
}

impl LabArgs {
    /// The plan, and the folder made ready for it.
    pub(crate) fn plan(&self, host: &Host, run: &Run<'_>) -> Outcome<Plan> {
        let points = self.points(host, run);
        if points.is_empty() {
            let names: Vec<_> = host.contenders.iter().map(|one| one.name).collect();
            let names = names.join(", ");
            return Err(format!("--only leaves nobody; there are: {names}").into());
        }
        let mut groups = Vec::new();
        for scenario in or(&self.scenario, Scenario::value_variants()) {
            let waves: &[u64] = if run.quick {
                &[100_000]
            } else {
                &[1_000_000, 5_000_000]
            };
            let sizes = match scenario {
                Scenario::Wave => or(&self.wave_entries, waves),
                _ => vec![0],
            };
            for entries in sizes {
                for kind in or(&self.loops, Loop::value_variants()) {
                    let group = self.group(host, run, &points, scenario, entries, kind);
                    if !group.is_empty() {
                        groups.push(group);
                    }
                }
            }
        }
        if groups.is_empty() {
            return Err("nobody of those chosen can take part in these scenarios".into());
        }
        let out = match &self.out {
            Some(out) => out.clone(),
            None => default_out()?,
        };
        make_ready(&out)?;
        Ok(Plan {
            quick: run.quick,
            rounds: run.rounds.unwrap_or(if run.quick { 1 } else { 3 }),
            groups,
            out,
        })
    }

    fn group(
        &self,
        host: &Host,
        run: &Run<'_>,
        points: &[Point],
        scenario: Scenario,
        entries: u64,
        kind: Loop,
    ) -> Vec<(Point, Task)> {
        let short = run.quick && self.loops.is_empty() && kind == Loop::Closed;
        points
            .iter()
            .filter(|point| !(short && point.sweep.is_some()))
            .filter_map(|point| {
                let contender = host.contender(point.contender).ok()?;
                let able = match scenario {
                    Scenario::Steady | Scenario::Skewed => true,
                    Scenario::Sliding => contender.lifetimes != Lifetimes::None,
                    Scenario::Wave => contender.lifetimes == Lifetimes::PerEntry,
                };
                // Its values are not counted, so only a wave, which can be, tells something.
                let able = able && (contender.most_rate.is_none() || scenario == Scenario::Wave);
                let rate = self.rate.min(contender.most_rate.unwrap_or(f64::INFINITY));
                let task = self.task(run.quick, point, scenario, entries, kind, rate);
                able.then(|| (point.clone(), task))
            })
            .collect()
    }

    fn task(
        &self,
        quick: bool,
        point: &Point,
        scenario: Scenario,
        entries: u64,
        kind: Loop,
        rate: f64,
    ) -> Task {
        let pick = |quickly, thoroughly| if quick { quickly } else { thoroughly };
        let duration = match scenario {
            Scenario::Wave => pick(500, 2_000),
            _ => pick(500, 5_000),
        };
        Task {
            contender: point.contender.to_owned(),
            settings: point.settings.clone(),
            scenario,
            kind,
            entries,
            rate,
            writes: self.writes,
            threads: self.threads,
            duration: self.duration.unwrap_or(duration),
            ttl: self.ttl.unwrap_or(pick(200, 2_000)),
            calm: pick(200, 1_000),
            patience: self.patience.unwrap_or(pick(2_000, 15_000)),
            lead: pick(450, 1_500) + entries * 3 / 2_000,
            tick: pick(10, 25),
        }
    }

    fn points(&self, host: &Host, run: &Run<'_>) -> Vec<Point> {
        let wanted =
            |name: &str| run.only.is_empty() || run.only.iter().any(|only| name.starts_with(only));
        let mut points: Vec<Point> = host
            .contenders
            .iter()
            .filter(|contender| wanted(contender.name))
            .map(|contender| Point {
                contender: contender.name,
                settings: Settings::default(),
                sweep: None,
            })
            .collect();
        let Some(ours) = host.contenders.first() else {
            return points;
        };
        // Only the library has these settings; a build without it varies nothing.
        if ours.name != super::OURS || !wanted(ours.name) {
            return points;
        }
        for sweep in self.sweeps() {
            let varied = self.varied(sweep, run.quick);
            points.extend(varied.into_iter().map(|settings| Point {
                contender: ours.name,
                settings,
                sweep: Some(sweep),
            }));
        }
        points
    }

    fn sweeps(&self) -> Vec<Sweep> {
        if self.sweep.is_empty() || self.sweep.contains(&Sweep::All) {
            return Sweep::EACH.to_vec();
        }
        let chosen = |sweep: &Sweep| self.sweep.contains(sweep);
        Sweep::EACH.into_iter().filter(chosen).collect()
    }

    fn varied(&self, sweep: Sweep, quick: bool) -> Vec<Settings> {
        let list = |of: &[f64]| {
            of.iter()
                .map(|millis| Duration::from_secs_f64(millis / 1e3))
                .collect::<Vec<_>>()
        };
        let make = |f: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            f(&mut settings);
            settings
        };
        match sweep {
            Sweep::Budget => {
                let usual = list(if quick {
                    &[0.1, 1.0, 10.0]
                } else {
                    &[0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0]
                });
                let budgets = or(&self.budgets, &usual);
                budgets
                    .iter()
                    .map(|&budget| make(&|to| to.budget = Some(budget)))
                    .collect()
            }
            Sweep::Interval => {
                let usual = list(if quick {
                    &[10.0, 500.0]
                } else {
                    &[10.0, 50.0, 100.0, 500.0]
                });
                let intervals = or(&self.intervals, &usual);
                intervals
                    .iter()
                    .map(|&interval| make(&|to| to.interval = Some(interval)))
                    .collect()
            }
            Sweep::Strategy => {
                let searches = [
                    Search::Sweep,
                    Search::Sample(5),
                    Search::Sample(20),
                    Search::Sample(100),
                ];
                searches
                    .iter()
                    .map(|&search| make(&|to| to.search = Some(search)))
                    .collect()
            }
            Sweep::Workers => {
                let workers = or(&self.workers, if quick { &[1, 2] } else { &[1, 2, 4] });
                workers
                    .iter()
                    .map(|&count| make(&|to| to.workers = Some(count)))
                    .collect()
            }
            Sweep::Shards => {
                let shards = or(
                    &self.shards,
                    if quick {
                        &[1, 64]
                    } else {
                        &[1, 4, 16, 64, 256]
                    },
                );
                shards
                    .iter()
                    .map(|&count| make(&|to| to.shards = Some(count)))
                    .collect()
            }
            Sweep::All | Sweep::None => Vec::new(),
        }
    }
}

fn or<T: Clone>(asked: &[T], usual: &[T]) -> Vec<T> {
    if asked.is_empty() {
        usual.to_vec()
    } else {
        asked.to_vec()
    }
}

/// `latency` beside the profile's folder of the program that runs.
fn default_out() -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program
        .ancestors()
        .skip(1)
        .find(|folder| folder.ends_with("release") || folder.ends_with("debug"));
    let target = profile.and_then(Path::parent);
    Ok(target.unwrap_or(Path::new(".")).join("latency"))
}

pub(crate) const RESULTS: &str = "results.csv";

/// A run of an hour must not end in a folder that cannot be written.
pub(crate) fn make_ready(out: &Path) -> Outcome<()> {
    let wrong = |error| format!("cannot write into {}: {error}", out.display());
    fs::create_dir_all(out).map_err(wrong)?;
    File::create(out.join(RESULTS)).map_err(wrong)?;
    Ok(())
}
