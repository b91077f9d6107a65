//! Everybody through small traces, and the files of a run.

use std::collections::VecDeque;
use std::fs;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::capacities::cells;
use super::contenders::{Kind, contenders};
use super::*;
use crate::trace::{Op, Request};

const TIME: Compression = Compression {
    speed: 1.0,
    lifetime_factor: 1.0,
};
const FAST: Compression = Compression {
    speed: 1_000.0,
    lifetime_factor: 1.0,
};

/// Skewed keys with a size and a lifetime each; ten requests a second of trace time.
fn skewed(name: &str, requests: u64) -> Trace {
    let mut rng = SmallRng::seed_from_u64(17);
    let requests: Vec<Request> = (0..requests)
        .map(|place| {
            let draw: f64 = rng.random();
            let key = (draw * draw * draw * 2_000.0) as u64;
            Request {
                key,
                at: place * 100_000_000,
                size: 1 + (key * 37 % 900) as u32,
                ttl: 20,
                op: Op::Fetch,
            }
        })
        .collect();
    Trace::new(name, &requests, true, true)
}

fn setup(bound: u64, weighted: bool) -> Setup {
    Setup {
        bound,
        weighted,
        entries: if weighted {
            bound as usize / 450
        } else {
            bound as usize
        },
        heaviest: if weighted { 900 } else { 1 },
    }
}

/// Every contender's hits in one cell, those that take part.
fn hits(replay: Replay, trace: &Trace, bound: u64) -> Vec<(&'static str, u64)> {
    let setup = setup(bound, replay.weighted());
    contenders(replay, TIME, FAST)
        .iter()
        .filter(|one| match one.kind {
            Kind::Opt => true,
            Kind::Cache { make, .. } => make(&setup).is_ok(),
        })
        .map(|one| (one.name, once(trace, one, &setup).unwrap().hits))
        .collect()
}

#[test]
fn everybody_hits_and_nobody_more_than_opt() {
    let trace = skewed("test", 20_000);
    let all = hits(Replay::Unit, &trace, 200);
    assert_eq!(all[0].0, "OPT");
    let peers = all.iter().filter(|(name, _)| *name != "OPT");
    let mut count = 0;
    for (name, hits) in peers {
        // Whoever kept 200 fixed keys of these 2,000 would have a third of OPT's hits.
        assert!(*hits > all[0].1 / 3, "{name}: {hits} of {}", all[0].1);
        if !name.starts_with("moka") {
            // (moka holds more than its bound between two runs of its tasks.)
            assert!(*hits <= all[0].1, "{name}: {hits} of {}", all[0].1);
        }
        count += 1;
    }
    assert!(count >= 8, "{all:?}");
}

#[test]
fn everybody_with_weights_hits() {
    let trace = skewed("test", 20_000);
    let all = hits(Replay::Weights, &trace, 100_000);
    for (name, hits) in &all {
        assert!(*hits > all[0].1 / 4, "{name}: {hits} of {}", all[0].1);
    }
    assert!(all.len() >= 9, "{all:?}");
}

#[test]
fn nobody_with_lifetimes_hits_more_than_without_a_bound() {
    let trace = skewed("test", 4_000);
    let all = hits(Replay::Lifetimes, &trace, 200);
    assert_eq!(all[0].0, "without a bound");
    for (name, hits) in &all {
        let real = ["moka", "moka, tasks after every insert"].contains(name);
        if real {
            // A loaded machine makes requests late, and more or less expires.
            assert!(*hits > 0, "{name}");
        } else {
            assert!(*hits <= all[0].1, "{name}: {hits} of {}", all[0].1);
            assert!(*hits > all[0].1 / 4, "{name}: {hits} of {}", all[0].1);
        }
    }
    assert!(all.len() >= 10, "{all:?}");
    let endless = hits(Replay::Unit, &trace, 2_000)[0].1;
    assert!(all[0].1 < endless, "lifetimes cost hits");
}

/// Least recently used, by scanning.
fn slow_lru(trace: &Trace, bound: u64, weighted: bool) -> u64 {
    let mut order: VecDeque<(u32, u64)> = VecDeque::new();
    let mut hits = 0;
    for (&key, size) in trace.keys.iter().zip(replay::sizes_of(trace, weighted)) {
        let size = u64::from(size);
        match order.iter().position(|&(other, _)| other == key) {
            Some(place) => {
                let entry = order.remove(place).unwrap();
                order.push_back(entry);
                hits += 1;
            }
            None if size <= bound => {
                order.push_back((key, size));
                while order.iter().map(|&(_, size)| size).sum::<u64>() > bound {
                    order.pop_front();
                }
            }
            None => {}
        }
    }
    hits
}

#[test]
fn lru_is_exact() {
    let trace = skewed("test", 3_000);
    for (replay, bound) in [
        (Replay::Unit, 100),
        (Replay::Weights, 30_000),
        (Replay::Weights, 700),
    ] {
        let all = hits(replay, &trace, bound);
        let (_, lru) = all.iter().find(|(name, _)| *name == "LRU").unwrap();
        let expected = slow_lru(&trace, bound, replay.weighted());
        assert_eq!(*lru, expected, "{replay:?} within {bound}");
        assert!(expected > 0);
    }
}

fn options() -> Options {
    Options {
        quick: false,
        rounds: Some(2),
        csv: None,
        only: vec!["OPT".to_owned(), "farthest".to_owned(), "LRU".to_owned()],
        hashers: crate::adapters::Hashers::Both,
    }
}

fn args(words: &[&str]) -> HitRatioArgs {
    #[derive(clap::Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        args: HitRatioArgs,
    }
    let words = std::iter::once("hit-ratio").chain(words.iter().copied());
    <Cli as clap::Parser>::try_parse_from(words).unwrap().args
}

#[test]
fn a_run_leaves_its_cells_means_and_plots() {
    let folder = std::env::temp_dir().join(format!("ebbtide-hits-{}", std::process::id()));
    let options = options();
    let plan = Plan::of(&options, &args(&["--unit", "--weights"])).unwrap();
    let trace = skewed("lirs_cs", 2_000);
    let out = Folder::open(&folder).unwrap();
    let mut all = Vec::new();
    for &replay in &plan.replays {
        let (measured, absent) = plan.measure(&trace, replay).unwrap();
        assert_eq!(absent, [], "OPT and LRU always take part");
        let cells = cells(&trace, replay, &plan.capacities).len();
        assert_eq!(measured.len(), 2 * cells, "two contenders");
        out.plot(&trace.name, replay, &measured).unwrap();
        all.extend(measured);
    }
    out.finish(&all).unwrap();
    let mut cells = csv::Reader::from_path(folder.join("cells.csv")).unwrap();
    let rows: Vec<csv::StringRecord> = cells.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2 * all.len(), "two rounds each");
    let opt = rows.iter().find(|row| &row[4] == "OPT").unwrap();
    assert_eq!((&opt[0], &opt[1], &opt[6]), ("unit", "lirs_cs", "2000"));
    let (hits, percent): (f64, f64) = (opt[7].parse().unwrap(), opt[8].parse().unwrap());
    assert!((hits / 20.0 - percent).abs() < 1e-3 && percent > 1.0);
    assert_eq!(&opt[11], "", "no bytes without weights");
    let means = fs::read_to_string(folder.join("means.csv")).unwrap();
    assert!(means.contains("all of weights,LRU,2,2,"), "{means}");
    assert!(means.contains("shares,OPT,2,61,"), "{means}");
    for replay in ["unit", "weights"] {
        let svg = fs::read_to_string(folder.join(format!("{replay}-lirs_cs.svg"))).unwrap();
        assert!(svg.contains("LRU") && svg.contains("polyline"));
        let titles = svg.matches("hit ratio, %").count();
        assert_eq!(titles, if replay == "unit" { 1 } else { 2 });
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let file = std::env::temp_dir().join(format!("ebbtide-hits-file-{}", std::process::id()));
    fs::write(&file, "").unwrap();
    let error = Folder::open(&file.join("below")).err().unwrap();
    assert!(
        error.to_string().contains("cannot make the folder"),
        "{error}"
    );
    fs::remove_file(file).unwrap();
}

#[test]
fn what_is_asked_for_is_planned() {
    let mut options = options();
    let plan = Plan::of(&options, &args(&[])).unwrap();
    assert_eq!(plan.replays, [Replay::Unit]);
    assert_eq!(plan.capacities, capacities::DEFAULT);
    let words = ["--lifetimes", "--weights", "--capacities", "5%,70"];
    options.only.clear();
    let plan = Plan::of(&options, &args(&words)).unwrap();
    assert_eq!(plan.replays, [Replay::Weights, Replay::Lifetimes]);
    let asked = [Capacity::Share(5_000), Capacity::Exactly(70)];
    assert_eq!(plan.capacities, asked);
    options.only = vec!["nobody".to_owned()];
    let error = Plan::of(&options, &args(&[])).err().unwrap().to_string();
    assert!(error.contains("picks nobody of these: OPT; "), "{error}");
}

#[test]
fn a_trace_without_what_a_replay_needs_is_told() {
    let trace = "twitter_c52_1m";
    let mut options = options();
    options.only = vec!["ebbtide".to_owned(), "LRU".to_owned()];
    // The committed trace has everything; a text file beside it has keys only.
    let folder = std::env::temp_dir().join(format!("ebbtide-hits-keys-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let bytes = ruzstd::encoding::compress_to_vec(&b"1\n2\n1\n"[..], level);
    fs::write(folder.join(format!("{trace}.zst")), bytes).unwrap();
    let folder_word = folder.to_str().unwrap();
    let error = run(&options, &args(&["--lifetimes", "--traces", folder_word])).unwrap_err();
    assert!(error.to_string().contains("suits lifetimes"), "{error}");
    let report = run(&options, &args(&["--traces", folder_word])).unwrap();
    let lru = report.figures().iter().find(|one| one.contender == "LRU");
    let lru = lru.unwrap();
    assert_eq!(lru.case, format!("unit, {trace} @ 50 entries"));
    assert_eq!(lru.rounds.len(), 2);
    assert!((lru.rounds[0] - 100.0 / 3.0).abs() < 1e-9);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_shown_versions_are_those_of_the_lock_file() {
    let shown = versions();
    assert!(!shown.contains("unknown"), "{shown}");
    assert!(shown.contains("foyer-memory 0."), "{shown}");
}
