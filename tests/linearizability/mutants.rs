//! Caches that are wrong, each in a way that a cache could be: the same rounds, recorder and checker
//! have to find every one of them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use ebbtide::{Cache, Counter};

use crate::driver::{Setup, Tally, run};
use crate::history::{Answer, Call, Decision, How, New};
use crate::plan::Mix;
use crate::subject::{Key, Payload, Subject, Times, Value, stored, uneasy};

/// Rounds within which a mutant must be found: for the slowest of them a hundred times what it
/// takes on two busy cores.
const PATIENCE: usize = 200_000;

/// Runs `setup` on the mutant until it is found; what it was accused of.
#[track_caller]
fn must_be_found<V: Payload, S: Subject>(
    name: &'static str,
    setup: Setup,
    mutant: impl Fn(Cache<Key, V>) -> S,
) {
    match run(name, setup, PATIENCE, mutant) {
        Err(failure) => {
            println!("{failure}");
            assert!(!failure.violation.minimal.is_empty());
        }
        Ok(Tally { rounds, .. }) => panic!("{name}: not found in {rounds} rounds"),
    }
}

const GET: Call = Call::Read(How::Get);

/// Whether the mutant misbehaves this time: once in `of`.
fn now_and_then(turn: &AtomicU32, of: u32) -> bool {
    turn.fetch_add(1, Ordering::Relaxed) % of == of - 1
}

/// Answers now and then what a key had before.
struct Stale<C> {
    cache: C,
    turn: AtomicU32,
    last: Mutex<HashMap<u64, Answer>>,
}

impl<C: Subject> Subject for Stale<C> {
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer {
        let answer = self.cache.call(key, call, times);
        if !matches!(call, Call::Read(_)) {
            return answer;
        }
        let mut last = self.last.lock().unwrap();
        let before = last.insert(key, answer).unwrap_or(answer);
        match now_and_then(&self.turn, 8) {
            true => before,
            false => answer,
        }
    }
}

#[test]
fn a_stale_answer_is_found() {
    must_be_found::<Value, _>("a_stale_answer_is_found", Setup::of(Mix::Values), |cache| {
        Stale {
            cache,
            turn: AtomicU32::new(0),
            last: Mutex::default(),
        }
    });
}

/// Says now and then that it touched, and did not.
struct Untouched<C>(C, AtomicU32);

impl<C: Subject> Subject for Untouched<C> {
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer {
        match call {
            Call::Touch if now_and_then(&self.1, 4) => self.0.call(key, Call::ContainsKey, times),
            _ => self.0.call(key, call, times),
        }
    }
}

#[test]
fn a_touch_that_was_not_is_found() {
    let setup = Setup {
        live: Some(3),
        ..Setup::of(Mix::Values)
    };
    must_be_found::<Value, _>("a_touch_that_was_not_is_found", setup, |cache| {
        Untouched(cache, AtomicU32::new(0))
    });
}

#[test]
fn a_deadline_that_is_kept_late_is_found() {
    let setup = Setup {
        live: Some(3),
        behind: 1,
        ..Setup::of(Mix::Values)
    };
    must_be_found::<Value, _>("a_deadline_that_is_kept_late_is_found", setup, |cache| {
        cache
    });
}

/// A remove that is undone now and then, as by a rebuild of the index that copied too early.
struct Undone<C>(C, AtomicU32);

impl<C: Subject> Subject for Undone<C> {
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer {
        let answer = self.0.call(key, call, times);
        if let (Call::Remove, Answer::Value(Some(value))) = (call, answer)
            && now_and_then(&self.1, 8)
        {
            self.0.call(key, Call::Insert(value, None), times);
        }
        answer
    }
}

#[test]
fn a_remove_that_is_undone_is_found() {
    must_be_found::<Value, _>(
        "a_remove_that_is_undone_is_found",
        Setup::of(Mix::Values),
        |cache| Undone(cache, AtomicU32::new(0)),
    );
}

/// Makes the calls that must be atomic of two that are. Nothing is wrong unless something comes
/// between them.
struct Split<C>(C);

impl<C: Subject> Split<C> {
    fn get(&self, key: u64, times: &Times) -> Option<i64> {
        let Answer::Value(seen) = self.0.call(key, GET, times) else {
            unreachable!("a read answers a value");
        };
        uneasy();
        seen
    }
}

impl<C: Subject> Subject for Split<C> {
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer {
        let insert = |value| self.0.call(key, Call::Insert(value, None), times);
        match call {
            Call::InsertIfAbsent(value) => {
                let absent = self.get(key, times).is_none();
                if absent {
                    insert(value);
                }
                Answer::Whether(absent)
            }
            Call::CompareAndSwap { expected, new } => {
                let equal = self.get(key, times) == Some(expected);
                if equal {
                    insert(new);
                }
                Answer::Whether(equal)
            }
            Call::Compute(Decision::Put(new)) => {
                let seen = self.get(key, times);
                insert(new.value(seen));
                Answer::Computed(seen, stored(seen))
            }
            Call::Increment(delta, None) => {
                let sum = self.get(key, times).unwrap_or(0) + delta;
                insert(sum);
                Answer::Sum(Some(sum))
            }
            Call::Remove => {
                let seen = self.get(key, times);
                self.0.call(key, Call::Remove, times);
                Answer::Value(seen)
            }
            _ => self.0.call(key, call, times),
        }
    }
}

/// Only these calls, no lifetimes: nothing but the missing atomicity can be noticed.
const fn quiet(calls: &'static [Call]) -> Setup {
    Setup {
        steps: false,
        ..Setup::of(Mix::Only(calls))
    }
}

#[test]
fn an_insert_if_absent_in_two_steps_is_found() {
    const CALLS: &[Call] = &[
        Call::InsertIfAbsent(0),
        Call::InsertIfAbsent(0),
        Call::Remove,
    ];
    must_be_found::<Value, _>(
        "an_insert_if_absent_in_two_steps_is_found",
        quiet(CALLS),
        Split,
    );
}

#[test]
fn a_compare_and_swap_in_two_steps_is_found() {
    const CALLS: &[Call] = &[
        Call::Insert(0, None),
        Call::CompareAndSwap {
            expected: 0,
            new: 0,
        },
        Call::CompareAndSwap {
            expected: 0,
            new: 0,
        },
    ];
    must_be_found::<Value, _>(
        "a_compare_and_swap_in_two_steps_is_found",
        quiet(CALLS),
        Split,
    );
}

#[test]
fn a_compute_in_two_steps_is_found() {
    const CALLS: &[Call] = &[
        Call::Insert(0, None),
        Call::Compute(Decision::Put(New::Fixed(0))),
    ];
    must_be_found::<Value, _>("a_compute_in_two_steps_is_found", quiet(CALLS), Split);
}

#[test]
fn an_increment_in_two_steps_is_found() {
    const CALLS: &[Call] = &[Call::Increment(1, None), Call::Increment(2, None)];
    must_be_found::<Counter, _>("an_increment_in_two_steps_is_found", quiet(CALLS), Split);
}

#[test]
fn a_remove_in_two_steps_is_found() {
    const CALLS: &[Call] = &[Call::Increment(1, None), Call::Remove];
    must_be_found::<Counter, _>("a_remove_in_two_steps_is_found", quiet(CALLS), Split);
}

#[test]
fn two_steps_that_nothing_can_part_are_accepted() {
    // The other half of the experiment: reads and inserts alone are no different in two steps.
    const CALLS: &[Call] = &[Call::Insert(0, None), Call::ContainsKey];
    let tally = run::<Value, _>("split", quiet(CALLS), 320, Split).map_err(|f| f.to_string());
    assert!(tally.unwrap().rounds >= 320);
}
