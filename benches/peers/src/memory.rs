//! `memory`: resident bytes per u64 -> u64 entry.

use std::error::Error;
use std::time::Duration;

use clap::Args;

use crate::Options;
use crate::adapters::{HOUR, Hashers, Plan, Store, View, Visitor};
use crate::adapters::{visit_all, visit_bounded, visit_caches, visit_lifetimes, visit_maps};
use crate::child::{self, Answer, ask};
use crate::keys::{count_name, scattered};
use crate::machine::{peak_resident_bytes, resident_bytes};
use crate::report::{Figure, Report};

#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Numbers of entries, separated by commas (several, to show growth in steps)
    #[arg(long, value_delimiter = ',', default_value = "700000,1000000,1400000")]
    entries: Vec<usize>,
}

/// Fills one contender and reads this process's resident memory.
#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long)]
    entries: usize,
    /// Seconds; 0: entries have no lifetime
    #[arg(long)]
    lifetime: u64,
}

/// `None` for a lifetime of zero seconds.
pub(crate) fn lifetime_of(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// A store for `entries` with a little room, for those that must be bounded:
/// their shards do not fill evenly, and early eviction would flatter them.
pub(crate) fn plan(entries: usize, lifetime: Option<Duration>) -> Plan {
    Plan {
        entries,
        bound: entries + entries / 16,
        lifetime,
    }
}

struct Weigh<'a> {
    task: &'a Task,
    answer: Option<Answer>,
}

impl Visitor for Weigh<'_> {
    fn visit<S: Store>(&mut self) {
        if S::name() != self.task.contender {
            return;
        }
        let before = resident_bytes();
        let store = S::build(&plan(self.task.entries, lifetime_of(self.task.lifetime)));
        let keys = S::FILLS * self.task.entries as u64;
        for i in 0..keys {
            store.insert(scattered(i), i);
        }
        store.settle();
        let after = resident_bytes();
        let peak = peak_resident_bytes();
        let view = store.view();
        let held = (0..keys)
            .filter(|&i| view.get(scattered(i)) == Some(i))
            .count() as f64;
        self.answer = Some(child::figures([
            ("entry", after.saturating_sub(before) as f64 / held),
            ("peak", peak.saturating_sub(before) as f64 / held),
            ("held", 100.0 * held / self.task.entries as f64),
        ]));
    }
}

pub(crate) fn measure(task: &Task) -> Option<Answer> {
    let mut weigh = Weigh { task, answer: None };
    visit_all(Hashers::Both, &mut weigh);
    visit_bounded(&mut weigh);
    weigh.answer
}

/// Names the contenders it is shown, each of them once.
pub(crate) struct Names<'a> {
    pub(crate) options: &'a Options,
    pub(crate) names: Vec<(String, &'static str)>,
}

impl Visitor for Names<'_> {
    fn visit<S: Store>(&mut self) {
        let entry = (S::name(), S::BASE);
        if !S::READS_ONLY && self.options.wants(&entry.0) && !self.names.contains(&entry) {
            self.names.push(entry);
        }
    }
}

impl<'a> Names<'a> {
    pub(crate) fn with_lifetimes(options: &'a Options) -> Self {
        let mut names = Self::none(options);
        visit_lifetimes(options.hashers, &mut names);
        names
    }

    /// Caches and maps, all without lifetimes.
    pub(crate) fn without_lifetimes(options: &'a Options) -> Self {
        let mut names = Self::none(options);
        visit_caches(options.hashers, &mut names);
        visit_maps(options.hashers, &mut names);
        names
    }

    fn none(options: &'a Options) -> Self {
        Self {
            options,
            names: Vec::new(),
        }
    }
}

const BYTES: &str = "bytes/entry";
const PEAK: &str = "peak bytes/entry";
const HELD: &str = "held, %";

pub(crate) fn run(options: &Options, args: &MemoryArgs) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("memory");
    let rounds = options.rounds_or(if options.quick { 1 } else { 3 });
    println!(
        "Resident memory per entry held, u64 -> u64, keys inserted in random order into a store that grows."
    );
    println!(
        "Each figure from a fresh process, {rounds} round(s) in turn. The peak counts what growing needed at once."
    );
    println!(
        "\"ebbtide, bounded\" is full: it gets twice the entries it may hold, and evicts half."
    );
    println!(
        "quick_cache and TinyUFO, which must be bounded, get room for 1/16 more entries. A ratio below 1: ebbtide is smaller.\n"
    );
    for lifetime in [Some(HOUR), None] {
        let mut names = match lifetime {
            Some(_) => Names::with_lifetimes(options),
            None => Names::without_lifetimes(options),
        };
        visit_bounded(&mut names);
        let names = names.names;
        for &entries in &args.entries {
            let mut rounds_of = vec![Vec::new(); names.len()];
            for _ in 0..rounds {
                for ((name, _), rounds) in names.iter().zip(&mut rounds_of) {
                    let seconds = lifetime.map_or(0, |lifetime| lifetime.as_secs());
                    rounds.push(ask(
                        "memory",
                        &[
                            ("contender", name.clone()),
                            ("entries", entries.to_string()),
                            ("lifetime", seconds.to_string()),
                        ],
                    )?);
                }
            }
            let case = format!(
                "{}, {} entries",
                lifetime.map_or("without lifetimes", |_| "with a lifetime"),
                count_name(entries as u64)
            );
            for ((name, base), rounds) in names.iter().zip(&rounds_of) {
                for (metric, field) in [(BYTES, "entry"), (PEAK, "peak"), (HELD, "held")] {
                    report.add(Figure {
                        case: case.clone(),
                        contender: name.clone(),
                        base,
                        metric,
                        rounds: rounds.iter().map(|answer| answer[field]).collect(),
                    });
                }
            }
            report.print_case(&case, &[BYTES, PEAK, HELD], BYTES);
        }
    }
    Ok(report)
}
