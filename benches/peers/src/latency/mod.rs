//! `latency`: the library's latency lab (`benches/latency/lab`) with the peers in it.

mod caches;
mod maps;

use clap::Args;

use crate::Options;
use crate::lab::{self, Host, LabArgs, Outcome, Run, plain, task};

#[derive(Args, Debug)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    lab: LabArgs,
}

pub(crate) fn run(options: &Options, args: &LatencyArgs) -> Outcome<()> {
    if options.csv.is_some() {
        return Err("latency writes several files: say where with --out, not --csv".into());
    }
    let run = Run {
        quick: options.quick,
        rounds: options.rounds.map(usize::from),
        only: &options.only,
    };
    lab::run(&host(true), &args.lab, &run)
}

/// In a child: one measurement.
pub(crate) fn answer(task: &task::Task) -> Outcome<()> {
    task::answer(&host(false), task)
}

/// Everybody; who is missing is said aloud.
fn host(say: bool) -> Host {
    let mut contenders = Vec::new();
    #[cfg(feature = "ebbtide")]
    contenders.push(crate::ours::contender());
    contenders.extend(plain::contenders());
    contenders.extend(caches::contenders());
    contenders.extend(maps::contenders());
    #[cfg(feature = "redis")]
    match crate::redis::contender() {
        Ok(contender) => contenders.push(contender),
        Err(missing) if say => println!("Redis is skipped: {missing}."),
        Err(_) => {}
    }
    #[cfg(not(feature = "redis"))]
    if say {
        println!("Redis is skipped: built without the feature `redis`.");
    }
    Host {
        contenders,
        child: &["child", "latency"],
        versions: env!("PEERS_VERSIONS").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Lifetimes, Setup, Value};
    use std::time::Duration;

    #[test]
    fn the_labs_own_checks_hold() {
        for (name, check) in lab::checks::CHECKS {
            println!("{name}");
            check();
        }
    }

    /// One entry with a lifetime and one without, in everybody who lives in this process.
    #[test]
    fn every_subject_reads_writes_and_expires() {
        const SHORT: Duration = Duration::from_millis(60);
        let host = host(false);
        assert!(host.contenders.len() >= 11);
        let local = |one: &&lab::Contender| one.most_rate.is_none() && one.name != plain::NOTHING;
        for contender in host.contenders.iter().filter(local) {
            for sliding in [false, true] {
                let setup = Setup {
                    settings: "defaults".parse().unwrap(),
                    lifetime: SHORT,
                    sliding,
                    room: 1_000,
                };
                let subject = (contender.build)(&setup).unwrap();
                let name = contender.name;
                subject.insert(1, lab::checks::value(), SHORT);
                subject.insert(1, lab::checks::value(), SHORT);
                subject.settle();
                assert!(subject.get(1), "{name}");
                assert!(!subject.get(2), "{name}");
                std::thread::sleep(2 * SHORT);
                let stays = contender.lifetimes == Lifetimes::None;
                assert_eq!(subject.get(1), stays, "{name}, sliding {sliding}");
            }
        }
    }

    /// A replaced entry lives as long as its new value says.
    #[test]
    fn a_new_value_brings_its_own_lifetime() {
        let host = host(false);
        let able =
            |one: &&lab::Contender| one.lifetimes == Lifetimes::PerEntry && one.most_rate.is_none();
        for contender in host.contenders.iter().filter(able) {
            let subject = (contender.build)(&Setup {
                settings: "defaults".parse().unwrap(),
                lifetime: Duration::from_secs(3_600),
                sliding: false,
                room: 1_000,
            })
            .unwrap();
            let put = |key, millis| {
                let value: Value = lab::checks::value();
                subject.insert(key, value, Duration::from_millis(millis));
            };
            put(1, 40);
            put(1, 3_600_000);
            put(2, 3_600_000);
            put(2, 40);
            std::thread::sleep(Duration::from_millis(100));
            let name = contender.name;
            assert_eq!((subject.get(1), subject.get(2)), (true, false), "{name}");
        }
    }
}
