//! The latency lab: what callers wait and what memory is held while entries expire, against the
//! reaper's settings, beside a cache written by hand.
//!
//! ```text
//! cargo bench --bench latency                          # everything, some hours
//! cargo bench --bench latency -- --quick               # everything, roughly, within two minutes
//! cargo bench --bench latency -- --scenario wave --sweep budget --rounds 5
//! cargo test --bench latency                           # checks of the lab itself
//! ```
//!
//! The same lab with the peers: `cargo run --release -- latency` in `benches/peers`.

mod lab;
mod ours;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use lab::{Host, LabArgs, Outcome, Run, plain, task};

/// What callers wait and what memory is held while entries expire.
#[derive(Parser, Debug)]
#[command(name = "latency", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
    /// A short run of everything, within two minutes: its figures are rough
    #[arg(long)]
    quick: bool,
    /// Rounds, each measuring all in turn (default 3; with --quick 1)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Only contenders whose names begin so, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Passed by `cargo bench`; without it (`cargo test`) the lab checks itself
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Subcommand, Debug)]
enum Child {
    /// One measurement (started by the lab)
    #[command(hide = true)]
    Measure(task::Task),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Outcome<()> {
    let mut contenders = vec![ours::contender()];
    contenders.extend(plain::contenders());
    let host = Host {
        contenders,
        child: &["measure"],
        versions: format!("ebbtide {}", env!("CARGO_PKG_VERSION")),
    };
    if let Some(Child::Measure(task)) = &cli.child {
        return task::answer(&host, task);
    }
    if !cli.bench {
        for (name, check) in lab::checks::CHECKS {
            println!("check {name} …");
            check();
        }
        println!("all checks hold; `cargo bench --bench latency` measures");
        return Ok(());
    }
    let run = Run {
        quick: cli.quick,
        rounds: cli.rounds.map(usize::from),
        only: &cli.only,
    };
    lab::run(&host, &cli.lab, &run)
}
