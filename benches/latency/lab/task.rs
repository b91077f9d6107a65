//! One measurement in a process of its own: memory that another contender used before, or its
//! threads, would tell.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};

use super::ledger::MOST_LEAD;
use super::record::{QUANTILES, Row, phase};
use super::scenario::Scenario;
use super::subject::Settings;
use super::{Host, Outcome, measure};

/// How requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loop {
    /// At a rate, whatever became of those before; latency counts from when they were due
    Open,
    /// Each after the one before; latency counts from its beginning
    Closed,
}

impl Loop {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Loop::Open => "open",
            Loop::Closed => "closed",
        }
    }
}

/// What is to be measured. (Not for use by hand.) Times are in milliseconds.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct Task {
    #[arg(long)]
    pub(crate) contender: String,
    #[arg(long)]
    pub(crate) settings: Settings,
    #[arg(long, value_enum)]
    pub(crate) scenario: Scenario,
    #[arg(long = "loop", value_enum)]
    pub(crate) kind: Loop,
    /// Entries of the wave
    #[arg(long)]
    pub(crate) entries: u64,
    /// Requests a second, of all threads together
    #[arg(long)]
    pub(crate) rate: f64,
    /// The share of writes
    #[arg(long)]
    pub(crate) writes: f64,
    #[arg(long)]
    pub(crate) threads: u64,
    /// What is recorded: from the wave's deadline on, at least
    #[arg(long)]
    pub(crate) duration: u64,
    #[arg(long)]
    pub(crate) ttl: u64,
    /// What is recorded before the wave's deadline
    #[arg(long)]
    pub(crate) calm: u64,
    /// What is recorded after it at most, if the wave is not gone
    #[arg(long)]
    pub(crate) patience: u64,
    /// From the beginning to the wave's deadline
    #[arg(long)]
    pub(crate) lead: u64,
    /// One step of the time line
    #[arg(long)]
    pub(crate) tick: u64,
}

impl Task {
    fn arguments(&self) -> Vec<String> {
        let pairs: [(&str, String); 14] = [
            ("contender", self.contender.clone()),
            ("settings", self.settings.to_string()),
            ("scenario", self.scenario.name().to_owned()),
            ("loop", self.kind.name().to_owned()),
            ("entries", self.entries.to_string()),
            ("rate", self.rate.to_string()),
            ("writes", self.writes.to_string()),
            ("threads", self.threads.to_string()),
            ("duration", self.duration.to_string()),
            ("ttl", self.ttl.to_string()),
            ("calm", self.calm.to_string()),
            ("patience", self.patience.to_string()),
            ("lead", self.lead.to_string()),
            ("tick", self.tick.to_string()),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| format!("--{name}={value}"))
            .collect()
    }

    /// The phase in which contenders and settings are compared.
    pub(crate) fn compared(&self) -> &'static str {
        match self.scenario {
            Scenario::Wave => phase::WINDOW,
            _ => phase::RUN,
        }
    }

    /// The scenario as the tables name it.
    pub(crate) fn case(&self) -> String {
        match self.scenario {
            Scenario::Wave => format!("wave of {}", grouped(self.entries)),
            other => other.name().to_owned(),
        }
    }
}

/// A whole number with a comma every three digits.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One look at the memory, and the latencies of the time around it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tick {
    /// Seconds from the deadline of the wave, or from the beginning of the record.
    pub(crate) at: f64,
    /// Resident bytes above those before the subject was made (NaN: not known).
    pub(crate) resident: f64,
    pub(crate) held: u64,
    pub(crate) dead: u64,
    /// Of reads and writes together, in nanoseconds.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
    pub(crate) requests: u64,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) rows: Vec<Row>,
    pub(crate) ticks: Vec<Tick>,
}

impl Answer {
    /// A figure; not a number if there is none of that name.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn row(&self, phase: &str, op: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.phase == phase && row.op == op)
    }

    /// As text, one thing a line.
    pub(crate) fn write(&self) -> String {
        let mut text = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            text.write_fmt(words).expect("a string takes everything");
            text.push('\n');
        };
        for (name, value) in &self.figures {
            line(format_args!("figure {name} {value}"));
        }
        for row in &self.rows {
            let [a, b, c, d, e] = row.quantiles;
            let (phase, op) = (&row.phase, &row.op);
            line(format_args!(
                "row {phase} {op} {} {a} {b} {c} {d} {e} {}",
                row.count, row.max
            ));
        }
        for tick in &self.ticks {
            line(format_args!(
                "tick {} {} {} {} {} {} {} {}",
                tick.at,
                tick.resident,
                tick.held,
                tick.dead,
                tick.p50,
                tick.p99,
                tick.max,
                tick.requests
            ));
        }
        text
    }

    pub(crate) fn read(text: &str) -> Outcome<Answer> {
        let mut answer = Answer::default();
        for line in text.lines() {
            answer
                .take(line)
                .ok_or_else(|| format!("a measuring process answered {line:?}"))?;
        }
        Ok(answer)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "figure" => {
                let name = words.next()?.to_owned();
                self.figures.insert(name, words.next()?.parse().ok()?);
            }
            "row" => {
                let (phase, op) = (words.next()?.to_owned(), words.next()?.to_owned());
                let mut number = || words.next()?.parse::<u64>().ok();
                let count = number()?;
                let mut quantiles = [0; QUANTILES.len()];
                for quantile in &mut quantiles {
                    *quantile = number()?;
                }
                let max = number()?;
                self.rows.push(Row {
                    phase,
                    op,
                    count,
                    quantiles,
                    max,
                });
            }
            "tick" => {
                let (at, resident) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let mut number = || words.next()?.parse::<u64>().ok();
                self.ticks.push(Tick {
                    at,
                    resident,
                    held: number()?,
                    dead: number()?,
                    p50: number()?,
                    p99: number()?,
                    max: number()?,
                    requests: number()?,
                });
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }
}

/// The figure of an answer that says no more than that filling took longer than the lead.
pub(crate) const LATE: &str = "late";

/// Runs `task` in a fresh process, with a longer lead if it must.
pub(crate) fn ask(host: &Host, task: &mut Task) -> Outcome<Answer> {
    while task.lead <= MOST_LEAD {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(host.child).args(task.arguments());
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            let status = output.status;
            return Err(format!("a measuring process failed ({status}): {command:?}").into());
        }
        let answer = Answer::read(&String::from_utf8(output.stdout)?)?;
        let late = answer.figure(LATE);
        if late.is_nan() {
            return Ok(answer);
        }
        // Only as far as it came is known, when its time was up.
        task.lead = 2 * late.ceil() as u64 + 500;
    }
    let (who, entries) = (&task.contender, task.entries);
    Err(format!("{who} could not be filled with {entries} entries in time").into())
}

/// In the child: does the task and prints the answer.
pub(crate) fn answer(host: &Host, task: &Task) -> Outcome<()> {
    print!("{}", measure::measure(host, task)?.write());
    Ok(())
}
