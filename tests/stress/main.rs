//! Every public operation at once, under real threads, with books that must balance.
//!
//! Keys and values own heap memory and are accounted for one by one: each is dropped exactly once,
//! leaves with at most one event whose cause fits, and is never read at or after its deadline or by
//! a read that began after its removal was told. Counters conserve the sum of all increments.
//!
//! The short tests run with all the others. The long one:
//!
//! ```text
//! EBBTIDE_STRESS_SECONDS=300 cargo test --test stress -- --ignored --nocapture
//! ```
//!
//! A round is decided by its seed but for the schedule. What fails prints it, and
//! `EBBTIDE_STRESS_SEED=… EBBTIDE_STRESS_ROUNDS=50` runs the same round again, fifty times.
//! `EBBTIDE_STRESS_OPERATIONS` is the number of operations of a round.

// (The cases use more of it.)
#[path = "../common/mod.rs"]
mod common;

mod books;
mod carousel;
mod counters;
mod round;
mod worker;

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ebbtide::Cache;

/// Operations of a round, all its threads together, unless the environment says otherwise.
const OPERATIONS: u64 = 8_000;

/// A seed decides reaper, strategy, bound and listener by its remainder modulo this, so that as
/// many rounds in a row have all of them.
const CONFIGURATIONS: u64 = 24;

/// A number from the environment.
///
/// # Panics
/// If the variable is set and is no number.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

fn operations() -> u64 {
    setting("EBBTIDE_STRESS_OPERATIONS").unwrap_or(OPERATIONS)
}

/// Says how to repeat a round that failed.
struct Witness(&'static str, u64);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "to repeat: EBBTIDE_STRESS_SEED={} EBBTIDE_STRESS_ROUNDS=50 \
                 EBBTIDE_STRESS_OPERATIONS={} cargo test --test stress {}",
                self.1,
                operations(),
                self.0
            );
        }
    }
}

/// Runs `rounds` rounds with seeds in a row from a random one on, or those that the environment
/// asks for.
fn rounds(name: &'static str, rounds: u64, round: impl Fn(u64)) {
    let rounds = setting("EBBTIDE_STRESS_ROUNDS").unwrap_or(rounds);
    let replayed = setting("EBBTIDE_STRESS_SEED");
    let first = replayed.unwrap_or_else(|| RandomState::new().hash_one(name) >> 16);
    println!("{name}: {rounds} rounds, first seed {first}");
    for i in 0..rounds {
        let seed = if replayed.is_some() { first } else { first + i };
        let _witness = Witness(name, seed);
        round(seed);
    }
}

#[test]
fn every_operation_at_once() {
    rounds("every_operation_at_once", CONFIGURATIONS, round::run);
}

#[test]
fn counters_conserve_what_is_added() {
    rounds(
        "counters_conserve_what_is_added",
        CONFIGURATIONS,
        counters::run,
    );
}

#[test]
fn caches_come_and_go() {
    rounds("caches_come_and_go", 4, carousel::run);
}

/// For leak checkers: what a static holds is no leak, and they must be able to see that.
#[test]
fn a_cache_that_is_never_dropped_is_reachable() {
    static KEPT: OnceLock<Cache<u64, String>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| Cache::builder().shards(4).build().expect("they agree"));
    for key in 0..100 {
        kept.insert(key, format!("{key}"));
    }
    assert_eq!(kept.entry_count(), 100);
}

#[test]
#[ignore = "runs for minutes: EBBTIDE_STRESS_SECONDS, 120 by default"]
fn for_minutes() {
    let length = Duration::from_secs(setting("EBBTIDE_STRESS_SECONDS").unwrap_or(120));
    let begin = Instant::now();
    let mut seed = RandomState::new().hash_one("for_minutes") >> 16;
    let mut done = 0u64;
    while begin.elapsed() < length {
        for (name, run) in [
            ("every_operation_at_once", round::run as fn(u64)),
            ("counters_conserve_what_is_added", counters::run),
            ("caches_come_and_go", carousel::run),
        ] {
            let _witness = Witness(name, seed);
            run(seed);
            done += 1;
        }
        seed += 1;
        if done.is_multiple_of(300) {
            println!("{done} rounds, {} s", begin.elapsed().as_secs());
        }
    }
    println!("{done} rounds, {} s", begin.elapsed().as_secs());
}
