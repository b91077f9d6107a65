//! Fresh processes: a contender that is to be measured in memory that nobody used
//! before it, or with nobody else's threads, runs in a child of this program.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, Stdio};

use clap::Subcommand;

use crate::{costs, idle, inserts, lab, lag, latency, memory, wave};

/// What a child measured: figures by name.
pub(crate) type Answer = BTreeMap<String, f64>;

/// What a child is asked to do. (Not for use by hand.)
#[derive(Subcommand, Debug)]
pub(crate) enum Task {
    Memory(memory::Task),
    Inserts(inserts::Task),
    Wave(wave::Task),
    Spin(wave::SpinTask),
    Lag(lag::Task),
    Idle(idle::Task),
    Costs(costs::Task),
    Latency(lab::task::Task),
}

/// Runs `task` in a fresh process and reads its answer.
pub(crate) fn ask(task: &str, arguments: &[(&str, String)]) -> Result<Answer, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", task]);
    for (name, value) in arguments {
        command.arg(format!("--{name}")).arg(value);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        let asked = format!("{command:?}");
        return Err(format!("a measuring process failed ({}): {asked}", output.status).into());
    }
    parse(&String::from_utf8(output.stdout)?)
}

pub(crate) fn parse(text: &str) -> Result<Answer, Box<dyn Error>> {
    text.lines()
        .map(|line| {
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| format!("a measuring process answered {line:?}"))?;
            Ok((name.to_owned(), value.parse()?))
        })
        .collect()
}

/// In the child: does the task and prints the answer.
pub(crate) fn answer(task: &Task) -> Result<(), Box<dyn Error>> {
    let answer = match task {
        Task::Memory(task) => memory::measure(task),
        Task::Inserts(task) => inserts::measure(task),
        Task::Wave(task) => wave::measure(task),
        Task::Spin(task) => Some(wave::spin(task)),
        Task::Lag(task) => lag::measure(task),
        Task::Idle(task) => idle::measure(task),
        Task::Costs(task) => costs::measure(task),
        Task::Latency(task) => return latency::answer(task),
    };
    let answer = answer.ok_or("no contender of that name")?;
    for (name, value) in answer {
        println!("{name} {value}");
    }
    Ok(())
}

/// Builds an answer from pairs.
pub(crate) fn figures<const N: usize>(pairs: [(&str, f64); N]) -> Answer {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_pipe() {
        let answer = figures([("rate", 1.25), ("missing", f64::NAN)]);
        let text: String = answer
            .iter()
            .map(|(name, value)| format!("{name} {value}\n"))
            .collect();
        let read = parse(&text).unwrap();
        assert_eq!(read["rate"], 1.25);
        assert!(read["missing"].is_nan());
        assert!(parse("garbage").is_err());
        assert!(parse("rate fast").is_err());
    }
}
