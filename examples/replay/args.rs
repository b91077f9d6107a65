//! The command line, and the plan of a run that comes of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use ebbtide::{Reaper, Strategy};

use crate::timeline::Compression;
use crate::trace::Defaults;
use crate::units::{parse_factor, parse_share, parse_time};

/// The committed trace, found from any working directory.
const COMMITTED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/data/twitter_c52_1m.zst"
);

const SPEED: f64 = 25.0;
const LIFETIME_FACTOR: f64 = 600.0;
const PASSES: u32 = 10;
/// With --quick: some 76 s of the committed trace in 2.5 s, lifetimes shortened so that most entries
/// still expire within it.
const QUICK_REQUESTS: usize = 150_000;
const QUICK_SPEED: f64 = 30.0;
const QUICK_LIFETIME_FACTOR: f64 = 4_000.0;
const QUICK_PASSES: u32 = 20;

/// Replays a request trace through one shared ebbtide cache.
///
/// Several threads share the cache. Each request is a get; after a miss a value of
/// the logged size is inserted with the trace's lifetime. Time and lifetimes are
/// compressed, so that most entries expire within a run of 20 s. At the end a table
/// says how fast it was and what became of the entries whose lifetimes ended.
#[derive(Debug, Parser)]
#[command(name = "replay", verbatim_doc_comment)]
pub(crate) struct Args {
    /// Trace file, plain text or zstd [default: the committed Twitter trace]
    ///
    /// A request a line: "key", "key size", "key size ttl time" or
    /// "key size ttl time op"; lifetimes and times in whole seconds.
    #[arg(verbatim_doc_comment)]
    trace: Option<PathBuf>,

    /// Worker threads that share the cache [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,

    /// How expired entries are found
    #[arg(long, value_enum, default_value_t = Search::Sweep, help_heading = "Reaper")]
    strategy: Search,

    /// Longest reaper cycle, such as 500us [default: the library's]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Reaper")]
    budget: Option<Duration>,

    /// Time between reaper cycles, such as 100ms [default: the library's]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Reaper")]
    interval: Option<Duration>,

    /// sweep: share of dead entries that may stay [default: the library's]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Reaper")]
    tolerated_dead: Option<f64>,

    /// sample: entries looked at in a round [default: the library's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Reaper")]
    sample_size: Option<u32>,

    /// sample: go on while this share of a round had expired [default: the library's]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Reaper")]
    threshold: Option<f64>,

    /// Bound on the number of entries [default: unbounded]
    #[arg(long, value_name = "N")]
    max_entries: Option<u64>,

    /// Times as fast as logged [default: 25, with --quick 30]
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, help_heading = "Time")]
    speed: Option<f64>,

    /// Lifetimes are divided by this and by the speed [default: 600, with --quick 4000]
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, help_heading = "Time")]
    lifetime_factor: Option<f64>,

    /// As fast as possible, several passes over the trace: measures throughput
    ///
    /// Lifetimes are those of a paced run. Only one request in 64 is timed.
    #[arg(long, help_heading = "Time")]
    unpaced: bool,

    /// Passes over the trace with --unpaced [default: 10, with --quick 20]
    #[arg(long, value_name = "N", requires = "unpaced", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Time")]
    passes: Option<u32>,

    /// Only the first N requests of the trace [default: all, with --quick 150000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Trace")]
    requests: Option<u64>,

    /// Bytes of a value where the trace has no sizes
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=1 << 30), help_heading = "Trace")]
    default_size: u32,

    /// Lifetime in seconds of trace time where the trace has none; 0 never expires
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u32).range(..=1_000_000_000), help_heading = "Trace")]
    default_ttl: u32,

    /// Requests a second of trace time where the trace has no times
    #[arg(long, value_name = "RATE", default_value_t = 2_000.0, value_parser = parse_factor, help_heading = "Trace")]
    rate: f64,

    /// Draw held and live entries over time and the latency distribution
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// A run of 2 to 3 seconds, for continuous integration
    #[arg(long)]
    quick: bool,
}

/// How expired entries are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Search {
    /// The lane of deadlines is swept
    Sweep,
    /// Random entries are looked at, as in Redis
    Sample,
    /// No reaper: what lazy expiry alone leaves behind
    Off,
}

/// Everything that a run needs to know, defaults filled in.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) trace: PathBuf,
    pub(crate) limit: Option<usize>,
    pub(crate) defaults: Defaults,
    pub(crate) workers: usize,
    pub(crate) max_entries: Option<u64>,
    pub(crate) search: Search,
    pub(crate) reaper: Reaper,
    /// The reaper's settings in words.
    pub(crate) reaper_words: String,
    pub(crate) compression: Compression,
    /// Passes of an unpaced run; none: paced.
    pub(crate) passes: Option<u32>,
    pub(crate) plot: Option<PathBuf>,
}

impl Args {
    /// Fills in the defaults; a usage error for options that contradict each other.
    pub(crate) fn plan(self) -> Result<Plan, clap::Error> {
        self.check()?;
        let quick = |value, otherwise| if self.quick { value } else { otherwise };
        let (reaper, reaper_words) = self.reaper();
        Ok(Plan {
            limit: match self.requests {
                Some(n) => Some(usize::try_from(n).unwrap_or(usize::MAX)),
                None => self.quick.then_some(QUICK_REQUESTS),
            },
            defaults: Defaults {
                size: self.default_size,
                ttl: self.default_ttl,
                rate: self.rate,
            },
            workers: match self.workers {
                Some(n) => n as usize,
                None => std::thread::available_parallelism().map_or(2, usize::from),
            },
            max_entries: self.max_entries,
            search: self.strategy,
            reaper,
            reaper_words,
            compression: Compression {
                speed: self.speed.unwrap_or(quick(QUICK_SPEED, SPEED)),
                lifetime_factor: self
                    .lifetime_factor
                    .unwrap_or(quick(QUICK_LIFETIME_FACTOR, LIFETIME_FACTOR)),
            },
            passes: self.unpaced.then(|| {
                let default = if self.quick { QUICK_PASSES } else { PASSES };
                self.passes.unwrap_or(default)
            }),
            trace: self.trace.unwrap_or_else(|| PathBuf::from(COMMITTED)),
            plot: self.plot,
        })
    }

    fn check(&self) -> Result<(), clap::Error> {
        let given = [
            (
                "--tolerated-dead",
                self.tolerated_dead.is_some(),
                Search::Sweep,
            ),
            ("--sample-size", self.sample_size.is_some(), Search::Sample),
            ("--threshold", self.threshold.is_some(), Search::Sample),
        ];
        for (option, is_given, needs) in given {
            if is_given && self.strategy != needs {
                let needs = if needs == Search::Sweep {
                    "sweep"
                } else {
                    "sample"
                };
                return Err(conflict(format!("{option} needs --strategy {needs}")));
            }
        }
        if self.strategy == Search::Off && (self.budget.is_some() || self.interval.is_some()) {
            return Err(conflict(
                "--budget and --interval need a reaper: not with --strategy off",
            ));
        }
        Ok(())
    }

    fn reaper(&self) -> (Reaper, String) {
        let mut words = Vec::new();
        let strategy = match self.strategy {
            Search::Off => {
                return (Reaper::manual(), "off: lazy expiry alone".to_owned());
            }
            Search::Sweep => {
                words.push("sweep".to_owned());
                let mut strategy = Strategy::sweep();
                if let Some(share) = self.tolerated_dead {
                    words.push(format!("tolerates {share} dead"));
                    strategy = strategy.tolerated_dead(share);
                }
                strategy
            }
            Search::Sample => {
                words.push("sample".to_owned());
                let mut strategy = Strategy::sample();
                if let Some(size) = self.sample_size {
                    words.push(format!("{size} a round"));
                    strategy = strategy.sample_size(size as usize);
                }
                if let Some(share) = self.threshold {
                    words.push(format!("again at {share} expired"));
                    strategy = strategy.threshold(share);
                }
                strategy
            }
        };
        let mut reaper = Reaper::shared().strategy(strategy);
        if let Some(budget) = self.budget {
            words.push(format!("budget {budget:?}"));
            reaper = reaper.budget(budget);
        }
        if let Some(interval) = self.interval {
            words.push(format!("interval {interval:?}"));
            reaper = reaper.interval(interval);
        }
        if self.budget.is_none() && self.interval.is_none() {
            words.push("default budget and interval".to_owned());
        }
        (reaper, words.join(", "))
    }
}

impl Plan {
    /// Whether the trace is the one in the repository (by its name: whoever copies it elsewhere
    /// shall still be told where its lifetimes come from).
    pub(crate) fn is_committed_trace(&self) -> bool {
        self.trace.file_stem() == Path::new(COMMITTED).file_stem()
    }
}

/// An error that is reported with the usage and exit code 2.
pub(crate) fn conflict(message: impl std::fmt::Display) -> clap::Error {
    Args::command().error(ErrorKind::ArgumentConflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &[&str]) -> Result<Plan, clap::Error> {
        Args::try_parse_from([&["replay"], options].concat())?.plan()
    }

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_replay_the_whole_committed_trace_paced() {
        let plan = plan(&[]).unwrap();
        assert!(plan.trace.is_file(), "{}", plan.trace.display());
        assert!(plan.is_committed_trace());
        assert_eq!((plan.limit, plan.passes), (None, None));
        assert_eq!(plan.compression.speed, SPEED);
        assert!(plan.workers >= 1);
    }

    #[test]
    fn quick_gives_way_to_what_is_said() {
        let quick = plan(&["--quick"]).unwrap();
        assert_eq!(quick.limit, Some(QUICK_REQUESTS));
        assert_eq!(quick.compression.lifetime_factor, QUICK_LIFETIME_FACTOR);
        let said = plan(&["--quick", "--requests", "7", "--speed", "2"]).unwrap();
        assert_eq!(said.limit, Some(7));
        assert_eq!(said.compression.speed, 2.0);
        let unpaced = plan(&["--quick", "--unpaced"]).unwrap();
        assert_eq!(unpaced.passes, Some(QUICK_PASSES));
    }

    #[test]
    fn options_that_do_nothing_together_are_refused() {
        for options in [
            &["--threshold", "0.5"][..],
            &["--sample-size", "5"],
            &["--strategy", "sample", "--tolerated-dead", "0.1"],
            &["--strategy", "off", "--budget", "1ms"],
            &["--strategy", "off", "--interval", "1ms"],
            &["--passes", "3"],
            &["--workers", "0"],
            &["--sample-size", "0", "--strategy", "sample"],
            &["--speed", "0"],
            &["--requests", "0"],
            &["--budget", "0ms"],
            &["a.zst", "b.zst"],
        ] {
            let error = plan(options).expect_err(&options.join(" "));
            assert_eq!(error.exit_code(), 2, "{options:?}");
        }
    }

    #[test]
    fn the_reaper_is_said_in_words() {
        let words = |options| plan(options).unwrap().reaper_words;
        assert_eq!(words(&[]), "sweep, default budget and interval");
        assert_eq!(words(&["--strategy", "off"]), "off: lazy expiry alone");
        assert_eq!(
            words(&[
                "--strategy=sample",
                "--sample-size=5",
                "--threshold=0.1",
                "--budget=500us",
                "--interval=20ms"
            ]),
            "sample, 5 a round, again at 0.1 expired, budget 500µs, interval 20ms"
        );
    }
}
