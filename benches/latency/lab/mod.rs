//! The latency lab: what a caller waits, and what memory is held, while entries expire.
//!
//! One implementation for two programs: the bench of the library alone, and the one of the package
//! that measures the peers, which includes this folder. They differ in their [`Host`]: the
//! contenders that they bring, each behind the small trait [`Subject`].
//!
//! Every measurement runs in a process of its own ([`task`]). In it, threads make requests in an
//! open or a closed loop ([`load`]), whose keys and lifetimes a scenario decides ([`scenario`]),
//! and another looks at the memory ([`measure`]). The [`ledger`] counts the values themselves, so
//! that what is held and what is dead is known for every contender alike.

pub(crate) mod args;
#[allow(
    dead_code,
    reason = "a program with a test harness has them in its tests only"
)]
pub(crate) mod checks;
mod compare;
mod ledger;
mod load;
mod machine;
mod measure;
pub(crate) mod plain;
pub(crate) mod plots;
mod record;
mod report;
mod scenario;
mod subject;
pub(crate) mod task;

use std::error::Error;

pub(crate) use args::{LabArgs, Run};
pub(crate) use ledger::Value;
#[allow(unused_imports, reason = "for contenders in a process of their own")]
pub(crate) use machine::resident_bytes_of;
pub(crate) use subject::{Contender, Lifetimes, Search, Setup, Subject};

/// The name of the library itself among the contenders.
pub(crate) const OURS: &str = "ebbtide";

/// What goes wrong is said to a person.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The program that the lab runs in.
#[derive(Debug)]
pub(crate) struct Host {
    /// Everybody who takes part. The first is the one that settings are swept for.
    pub(crate) contenders: Vec<Contender>,
    /// What this program must be called with to run a [`task::Task`].
    pub(crate) child: &'static [&'static str],
    /// Names and versions of what is measured.
    pub(crate) versions: String,
}

impl Host {
    fn contender(&self, name: &str) -> Outcome<&Contender> {
        let found = self.contenders.iter().find(|one| one.name == name);
        found.ok_or_else(|| format!("no contender is called '{name}'").into())
    }
}

/// Measures everything that was asked for, prints the tables, writes the files.
pub(crate) fn run(host: &Host, args: &LabArgs, run: &Run<'_>) -> Outcome<()> {
    let plan = args.plan(host, run)?;
    compare::run(host, &plan)
}
