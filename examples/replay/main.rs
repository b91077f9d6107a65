//! Replays a real request trace through one shared cache, and shows what became of the entries whose
//! lifetimes ended.
//!
//! ```text
//! cargo run --release --example replay                       the committed trace, some 20 s
//! cargo run --release --example replay -- --strategy off     the same without a reaper
//! cargo run --release --example replay -- --unpaced          throughput
//! cargo run --release --example replay -- --help             everything else
//! ```
//!
//! The modules: [`args`] the command line, [`input`] and [`trace`] reading the trace, [`timeline`]
//! its time, [`value`] values that count themselves, [`worker`] the threads that use the cache,
//! [`monitor`] what is sampled meanwhile, [`report`] and [`plot`] what comes out, [`units`] numbers
//! for people.

mod args;
mod input;
mod monitor;
mod plot;
mod report;
mod timeline;
mod trace;
mod units;
mod value;
mod worker;

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::args::{Args, Plan, conflict};
use crate::report::Results;
use crate::trace::Trace;
use crate::value::Ledger;
use crate::worker::{Job, Outcome, Progress, Store};

/// The workers' time to get ready before the first request is due.
const LEAD: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let result = Args::parse()
        .plan()
        .map_err(Failure::Usage)
        .and_then(|plan| run(&plan));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => error.exit(),
        Err(Failure::Run(message)) => {
            // Nobody is left to be told if this fails.
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Why there was no replay.
enum Failure {
    /// The options are wrong: exit code 2.
    Usage(clap::Error),
    /// The trace, the plot or the output is: exit code 1.
    Run(String),
}

fn run(plan: &Plan) -> Result<(), Failure> {
    let failure = |message: String| Failure::Run(message);
    if let Some(file) = &plan.plot {
        // Better known now than after the run.
        plot::check(file).map_err(|e| failure(format!("{}: {e}", file.display())))?;
    }
    let trace = input::open(&plan.trace)
        .and_then(|input| trace::read(input, plan.defaults, plan.limit))
        .map_err(|e| failure(format!("{}: {e}", plan.trace.display())))?;
    let show =
        |text: String| report::print(text).map_err(|e| failure(format!("standard output: {e}")));
    show(report::heading(plan, &trace))?;
    let results = replay(plan, &trace)?;
    show(report::table(plan, &trace, &results))?;
    if let Some(file) = &plan.plot {
        plot::draw(file, plan, &results)
            .map_err(|e| failure(format!("{}: {e}", file.display())))?;
        show(format!("\nPlot: {}\n", file.display()))?;
    }
    Ok(())
}

/// Builds the cache and lets the workers loose on it.
fn replay(plan: &Plan, trace: &Trace) -> Result<Results, Failure> {
    let mut builder = Store::builder().reaper(plan.reaper.clone()).name("replay");
    if let Some(n) = plan.max_entries {
        builder = builder.max_entries(n);
    }
    let store = builder
        .build()
        .map_err(|error| Failure::Usage(conflict(error)))?;
    let start = Instant::now() + LEAD;
    let ledger = Ledger::new(start);
    let progress: Vec<Progress> = (0..plan.workers).map(|_| Progress::default()).collect();
    let job = Job {
        requests: &trace.requests,
        store: &store,
        ledger: &ledger,
        compression: plan.compression,
        workers: plan.workers,
        passes: plan.passes,
        start,
        barrier: &Barrier::new(plan.workers),
    };
    let (sender, finished) = mpsc::channel();
    let (outcomes, watched) = thread::scope(|scope| {
        for (index, progress) in progress.iter().enumerate() {
            let (job, sender) = (&job, sender.clone());
            scope.spawn(move || {
                let outcome = worker::work(job, index, progress);
                // The monitor only goes before us if another worker has panicked.
                let _ = sender.send(outcome);
            });
        }
        drop(sender);
        monitor::watch(&job, &progress, &finished)
    });
    let ended = Instant::now();
    let (held, dead, stats) = (ledger.held(), ledger.dead(ended), store.stats());
    let (linked, live) = (store.entry_count(), store.live_count());
    let mut outcome = Outcome::new();
    for part in &outcomes {
        outcome.merge(part);
    }
    Ok(Results {
        outcome,
        watched,
        stats,
        linked,
        live,
        held,
        dead,
        made: ledger.made(),
        freed: ledger.lag(),
        start,
    })
}
