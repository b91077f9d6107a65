//! `idle`: processor time of a process that holds many entries and does nothing.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::Options;
use crate::adapters::{HOUR, Hashers, Store, Visitor, visit_all};
use crate::child::{self, Answer, ask};
use crate::keys::{count_name, scattered};
use crate::machine::own_cpu_time;
use crate::memory::{lifetime_of, plan};
use crate::report::{EBBTIDE, Figure, Report};

#[derive(Args, Debug)]
pub(crate) struct IdleArgs {
    /// How many entries are held (default 10000000; with --quick 1000000)
    #[arg(long)]
    entries: Option<u64>,
    /// For how many seconds the process is watched (default 10; with --quick 3)
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long)]
    entries: u64,
    /// Seconds; 0: entries have no lifetime
    #[arg(long)]
    lifetime: u64,
    #[arg(long)]
    seconds: u64,
}

struct Watch<'a> {
    task: &'a Task,
    answer: Option<Answer>,
}

impl Visitor for Watch<'_> {
    fn visit<S: Store>(&mut self) {
        if S::name() != self.task.contender {
            return;
        }
        let lifetime = lifetime_of(self.task.lifetime);
        let store = S::build(&plan(self.task.entries as usize, lifetime));
        for i in 0..self.task.entries {
            store.insert(scattered(i), i);
        }
        store.settle();
        // What filling has left behind is done by then.
        thread::sleep(Duration::from_secs(2));
        let (began, cpu) = (Instant::now(), own_cpu_time());
        thread::sleep(Duration::from_secs(self.task.seconds));
        let used = (own_cpu_time() - cpu).as_secs_f64();
        self.answer = Some(child::figures([(
            "share",
            100.0 * used / began.elapsed().as_secs_f64(),
        )]));
        drop(store);
    }
}

pub(crate) fn measure(task: &Task) -> Option<Answer> {
    let mut watch = Watch { task, answer: None };
    visit_all(Hashers::Both, &mut watch);
    watch.answer
}

const SHARE: &str = "% of a core";

pub(crate) fn run(options: &Options, args: &IdleArgs) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("idle");
    let rounds = options.rounds_or(if options.quick { 1 } else { 3 });
    let entries = args
        .entries
        .unwrap_or(if options.quick { 1_000_000 } else { 10_000_000 });
    let seconds = args.seconds.unwrap_or(if options.quick { 3 } else { 10 });
    println!(
        "A process that holds {} entries, filled two seconds ago, and sleeps for {seconds} s: getrusage before and after.",
        count_name(entries)
    );
    println!(
        "{rounds} round(s), a fresh process each. dashmap and moka run no thread: they show what sleeping itself costs.\n"
    );
    for (case, lifetime, names) in [
        ("entries that never expire", None, [EBBTIDE, "dashmap"]),
        ("entries with one hour each", Some(HOUR), [EBBTIDE, "moka"]),
    ] {
        for name in names {
            let built_in = name != EBBTIDE || cfg!(feature = "ebbtide");
            if !built_in || !options.wants(name) {
                continue;
            }
            let lifetime = lifetime.map_or(0, |lifetime| lifetime.as_secs());
            let mut shares = Vec::new();
            for _ in 0..rounds {
                let answer = ask(
                    "idle",
                    &[
                        ("contender", name.to_owned()),
                        ("entries", entries.to_string()),
                        ("lifetime", lifetime.to_string()),
                        ("seconds", seconds.to_string()),
                    ],
                )?;
                shares.push(answer["share"]);
            }
            report.add(Figure {
                case: case.to_owned(),
                contender: name.to_owned(),
                base: EBBTIDE,
                metric: SHARE,
                rounds: shares,
            });
        }
        report.print_case(case, &[SHARE], SHARE);
    }
    Ok(report)
}
