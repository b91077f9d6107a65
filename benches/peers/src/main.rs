//! ebbtide beside the caches and maps that Rust users pick today.
//!
//! One subcommand a question; each prints tables with the machine and the
//! versions above them. A time never decides whether a run succeeds; an entry or
//! an increment that a contender loses does.

mod adapters;
mod child;
mod costs;
mod counters;
mod evictions;
mod hit_ratio;
mod idle;
/// Reading traces, as the library's `replay` example does it.
#[path = "../../../examples/replay/input.rs"]
mod input;
mod inserts;
mod keys;
/// The lab that the library's own bench runs too.
#[path = "../../latency/lab/mod.rs"]
mod lab;
mod lag;
mod latency;
mod machine;
mod memory;
mod mixed;
/// The library in the lab.
#[cfg(feature = "ebbtide")]
#[path = "../../latency/ours.rs"]
mod ours;
mod reads;
#[cfg(feature = "redis")]
mod redis;
mod report;
mod rounds;
mod scaling;
#[allow(dead_code, reason = "the example looks at more columns")]
#[path = "../../../examples/replay/timeline.rs"]
mod timeline;
#[allow(dead_code, reason = "the example looks at more columns")]
#[path = "../../../examples/replay/trace.rs"]
mod trace;
mod wave;

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use adapters::Hashers;

#[derive(Parser, Debug)]
#[command(name = "ebbtide-peers", version, about)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    bench: Bench,
}

/// What all benches take.
#[derive(Args, Debug)]
struct Options {
    /// A short run, to see that everything works: its figures are rough
    #[arg(long, global = true)]
    quick: bool,
    /// Rounds (each bench has its default)
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Also write every figure with all its rounds into this file
    #[arg(long, global = true, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Only contenders whose names begin so, separated by commas
    #[arg(long, global = true, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Which hashers the contenders use
    #[arg(long, global = true, value_enum, default_value_t = Hashers::Both)]
    hashers: Hashers,
}

impl Options {
    /// The asked-for number of rounds, or a bench's own.
    fn rounds_or(&self, default: usize) -> usize {
        self.rounds.map_or(default, usize::from)
    }

    fn wants(&self, contender: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| contender.starts_with(name))
    }
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// Read hits, uniform and zipf
    Reads(reads::ReadsArgs),
    /// Resident bytes per entry
    Memory(memory::MemoryArgs),
    /// Fresh keys into a growing store: rate, and the slowest single insert
    Inserts(inserts::InsertsArgs),
    /// A million entries with one deadline, and reads meanwhile
    Wave(wave::WaveArgs),
    /// From a deadline to the value's drop, beside many live entries
    Lag(lag::LagArgs),
    /// Processor time of a process that only holds entries
    Idle(idle::IdleArgs),
    /// Reads and replacing inserts
    Mixed(mixed::MixedArgs),
    /// Increments, on one hot key and spread
    Counters(counters::CountersArgs),
    /// What one operation costs, counted instead of timed: instructions, locks, allocations, misses
    Costs(costs::CostsArgs),
    /// Rates at several numbers of threads, and what they allow to say of more cores
    Scaling(scaling::ScalingArgs),
    /// What callers wait and what memory is held while entries expire: the latency lab
    Latency(latency::LatencyArgs),
    /// Bounded caches that are full: inserts that evict, and reads with inserts on a miss
    Evictions(evictions::EvictionsArgs),
    /// Hit ratios of bounded caches on request traces
    HitRatio(hit_ratio::HitRatioArgs),
    /// Redis as a reference: its reclaim lag, and the library hour beside ebbtide's
    #[cfg(feature = "redis")]
    Redis(redis::RedisArgs),
    /// One measurement in a process of its own (started by the others)
    #[command(hide = true, subcommand)]
    Child(child::Task),
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

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let options = &cli.options;
    // Opened first: a run of an hour must not end in a path that cannot be written.
    let csv = match &options.csv {
        Some(path) => Some(
            File::create(path)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        ),
        None => None,
    };
    let neighbours = machine::Neighbours::watch();
    let report = match &cli.bench {
        Bench::Child(task) => return child::answer(task),
        Bench::Latency(args) => return latency::run(options, args),
        #[cfg(feature = "redis")]
        Bench::Redis(args) => match redis::run(options, args)? {
            Some(report) => report,
            None => return Ok(()),
        },
        Bench::Reads(args) => reads::run(options, args),
        Bench::Memory(args) => memory::run(options, args)?,
        Bench::Inserts(args) => inserts::run(options, args)?,
        Bench::Wave(args) => wave::run(options, args)?,
        Bench::Lag(args) => lag::run(options, args)?,
        Bench::Idle(args) => idle::run(options, args)?,
        Bench::Mixed(args) => mixed::run(options, args),
        Bench::Counters(args) => counters::run(options, args),
        Bench::Scaling(args) => scaling::run(options, args),
        Bench::Evictions(args) => evictions::run(options, args),
        Bench::HitRatio(args) => hit_ratio::run(options, args)?,
        Bench::Costs(args) => match costs::run(options, args)? {
            Some(report) => report,
            None => return Ok(()),
        },
    };
    println!(
        "Other processes kept {:.2} cores busy while this ran.\n",
        neighbours.cores_used()
    );
    if report.figures().is_empty() {
        return Err("nobody took part: see --only and the lists of settings".into());
    }
    if let Some(csv) = csv {
        report.write_csv(csv)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn only_picks_by_the_beginning_of_names() {
        let cli = Cli::parse_from(["peers", "reads", "--only", "ebbtide,dashmap"]);
        assert!(cli.options.wants("dashmap, ahash"));
        assert!(cli.options.wants("ebbtide, pin held"));
        assert!(!cli.options.wants("moka"));
    }
}
