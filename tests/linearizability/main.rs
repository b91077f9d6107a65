//! Linearizability: what threads are told by one cache could have been told by calls one after the
//! other, each at an instant between its invocation and its return.
//!
//! Two to four threads make random calls at once on up to three keys, one of them moves a manual
//! clock, others reap; [`checker`] decides about each recorded history, [`spec`] says what a single
//! call may do. The checker is itself tried on histories that it has to accept and to reject
//! ([`verdicts`]), and the whole pipeline on caches that are wrong ([`mutants`]).
//!
//! A failure prints the smallest offending history and how to run its calls again. Longer:
//!
//! ```text
//! EBBTIDE_ROUNDS=1000000 cargo test --test linearizability
//! ```

mod checker;
mod driver;
mod history;
mod mutants;
mod plan;
mod spec;
mod subject;
mod verdicts;

use ebbtide::Counter;

use crate::driver::{Setup, prove};
use crate::plan::Mix;
use crate::subject::Value;

/// Rounds of each suite unless EBBTIDE_ROUNDS says otherwise.
const ROUNDS: usize = 3_200;

const VALUES: Setup = Setup::of(Mix::Values);
const COUNTERS: Setup = Setup::of(Mix::Counters);

#[test]
fn values() {
    prove::<Value>("values", VALUES, ROUNDS);
}

#[test]
fn values_with_time_to_live() {
    let setup = Setup {
        live: Some(3),
        ..VALUES
    };
    prove::<Value>("values_with_time_to_live", setup, ROUNDS);
}

#[test]
fn values_with_time_to_idle() {
    let setup = Setup {
        idle: Some(4),
        ..VALUES
    };
    prove::<Value>("values_with_time_to_idle", setup, ROUNDS);
}

#[test]
fn values_with_time_to_live_and_to_idle() {
    let setup = Setup {
        live: Some(5),
        idle: Some(3),
        ..VALUES
    };
    prove::<Value>("values_with_time_to_live_and_to_idle", setup, ROUNDS);
}

#[test]
fn values_at_the_bound() {
    let setup = Setup {
        live: Some(4),
        bound: Some(2),
        ..VALUES
    };
    prove::<Value>("values_at_the_bound", setup, ROUNDS);
}

#[test]
fn counters() {
    prove::<Counter>("counters", COUNTERS, ROUNDS);
}

#[test]
fn counters_with_time_to_live() {
    let setup = Setup {
        live: Some(3),
        ..COUNTERS
    };
    prove::<Counter>("counters_with_time_to_live", setup, ROUNDS);
}

#[test]
fn counters_at_the_bound() {
    let setup = Setup {
        live: Some(4),
        bound: Some(2),
        ..COUNTERS
    };
    prove::<Counter>("counters_at_the_bound", setup, ROUNDS);
}
