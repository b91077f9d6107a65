//! What all models share: run one, count its schedules, and say so in a line that `./run` reads.
//!
//! A *model* must hold in every schedule ([`check`]). A *mutant* is the same model with the rule it
//! checks broken; some schedule must show that ([`must_fail`]). An *exploration* collects what all
//! schedules together can see ([`explore`]).
//!
//! The preemption bound is part of each model: [`UNBOUNDED`], or `Some(n)` for all schedules in
//! which a thread that could go on is interrupted at most `n` times.
//!
//! Nothing from loom's environment variables can cut an exploration short here. `LOOM_LOG=trace`
//! and `LOOM_LOCATION=1` still print the schedule that fails.

#[cfg(not(ebbtide_loom))]
compile_error!("the models only mean something with `--cfg ebbtide_loom`: use loom-tests/run");

pub mod whole;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use loom::model::Builder;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Every schedule, however often threads are interrupted.
pub const UNBOUNDED: Option<usize> = None;

/// Scheduling points in one schedule, at most: a model that needs more does not end.
const MAX_BRANCHES: usize = 5_000;

/// What an exploration came to.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Schedules that were executed.
    pub iterations: usize,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// Checks that `model` holds in every schedule within `bound`.
///
/// # Panics
/// With the model's own message, in the first schedule in which it does not hold.
pub fn check(name: &str, bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> Run {
    let (run, failure) = run(bound, model);
    match failure {
        None => report("model", name, bound, run, "holds"),
        Some(payload) => {
            report("model", name, bound, run, "FAILS");
            std::panic::resume_unwind(payload);
        }
    }
    run
}

/// Checks that `mutant`, a model with its rule broken, fails within `bound`, and for the reason
/// meant: the panic's message must contain `message`.
///
/// # Panics
/// When every schedule holds, or one fails with another message.
pub fn must_fail(
    name: &str,
    bound: Option<usize>,
    message: &str,
    mutant: impl Fn() + Send + Sync + 'static,
) -> Run {
    let (run, failure) = run(bound, mutant);
    let Some(payload) = failure else {
        report("mutant", name, bound, run, "SURVIVES");
        panic!("{name}: the rule is broken, and no schedule shows it");
    };
    let said = panic_message(payload.as_ref());
    if !said.contains(message) {
        report("mutant", name, bound, run, "FAILS OTHERWISE");
        panic!("{name}: failed with {said:?}, not because of {message:?}");
    }
    report("mutant", name, bound, run, "killed");
    run
}

/// As [`must_fail`], in a process of its own: for mutants whose failure takes the process down
/// because destructors fail as well, on the way out of the panic. Call it from a test function, and
/// once only.
///
/// The schedules that it took are not known (0 in the table).
///
/// # Panics
/// As [`must_fail`], or when the process cannot be started.
pub fn must_fail_in_child(
    name: &str,
    bound: Option<usize>,
    message: &str,
    mutant: impl Fn() + Send + Sync + 'static,
) {
    const CHILD: &str = "EBBTIDE_LOOM_MUTANT";
    if std::env::var_os(CHILD).is_some_and(|child| child == name) {
        check(name, bound, mutant);
        return;
    }
    let test = std::thread::current();
    let test = test.name().expect("libtest names its threads after tests");
    let begin = Instant::now();
    let child = std::process::Command::new(std::env::current_exe().expect("this is a test binary"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("the test binary starts again");
    let run = Run {
        iterations: 0,
        seconds: begin.elapsed().as_secs_f64(),
    };
    let said = String::from_utf8_lossy(&child.stderr);
    if child.status.success() {
        report("mutant", name, bound, run, "SURVIVES");
        panic!("{name}: the rule is broken, and no schedule shows it");
    }
    if !said.contains(message) {
        report("mutant", name, bound, run, "FAILS OTHERWISE");
        panic!("{name}: failed, but not because of {message:?}:\n{said}");
    }
    report("mutant", name, bound, run, "killed");
}

/// Everything that `model` returns in any schedule within `bound`.
///
/// # Panics
/// With the model's own message if it panics in some schedule.
pub fn explore<T: Ord + Send + 'static>(
    bound: Option<usize>,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> (BTreeSet<T>, Run) {
    // Not one of loom's mutexes: it lives through all schedules and is no part of any.
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let sink = seen.clone();
    let (run, failure) = run(bound, move || {
        let outcome = model();
        sink.lock().unwrap().insert(outcome);
    });
    if let Some(payload) = failure {
        std::panic::resume_unwind(payload);
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, run)
}

/// Prints one line of the table that `./run` makes.
///
/// `kind` and `verdict` are words of their own: model, mutant, canary; holds, killed, seen.
pub fn report(kind: &str, name: &str, bound: Option<usize>, run: Run, verdict: &str) {
    let bound = bound.map_or("none".to_string(), |bound| bound.to_string());
    println!(
        "\n@loom\t{kind}\t{name}\t{bound}\t{}\t{:.2}\t{verdict}",
        run.iterations, run.seconds
    );
}

type Payload = Box<dyn std::any::Any + Send>;

fn run(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> (Run, Option<Payload>) {
    let iterations = Arc::new(AtomicUsize::new(0));
    let counter = iterations.clone();
    let mut builder = Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = MAX_BRANCHES;
    // These three would end an exploration early and call it a success.
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.checkpoint_file = None;
    let _trace = std::env::var_os("LOOM_LOG").map(|_| {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_env("LOOM_LOG"))
            .with_test_writer()
            .without_time()
            .finish()
            .set_default()
    });
    let begin = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }));
    let run = Run {
        iterations: iterations.load(Ordering::Relaxed),
        seconds: begin.elapsed().as_secs_f64(),
    };
    (run, result.err())
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel};

    fn two_increments(atomic: bool) {
        let number = Arc::new(AtomicUsize::new(0));
        let other = number.clone();
        let increment = move |number: &AtomicUsize| {
            if atomic {
                number.fetch_add(1, AcqRel);
            } else {
                let seen = number.load(Ordering::Acquire);
                number.store(seen + 1, Ordering::Release);
            }
        };
        let thread = loom::thread::spawn(move || increment(&other));
        increment(&number);
        thread.join().unwrap();
        assert_eq!(number.load(Ordering::Acquire), 2, "an increment is lost");
    }

    #[test]
    fn a_model_that_holds_passes_and_counts_its_schedules() {
        let run = check("self_test_atomic_increments", UNBOUNDED, || {
            two_increments(true);
        });
        assert!(run.iterations > 1);
    }

    #[test]
    #[should_panic(expected = "an increment is lost")]
    fn a_model_that_does_not_hold_panics() {
        check("self_test_lost_increment", UNBOUNDED, || {
            two_increments(false);
        });
    }

    #[test]
    fn a_mutant_is_killed_for_its_own_reason() {
        must_fail(
            "self_test_lost_increment",
            UNBOUNDED,
            "an increment is lost",
            || two_increments(false),
        );
    }

    #[test]
    fn a_mutant_is_killed_in_a_process_of_its_own() {
        must_fail_in_child("self_test_child", UNBOUNDED, "an increment is lost", || {
            two_increments(false)
        });
    }

    #[test]
    #[should_panic(expected = "no schedule shows it")]
    fn a_mutant_that_survives_is_a_failure() {
        must_fail(
            "self_test_survivor",
            UNBOUNDED,
            "an increment is lost",
            || {
                two_increments(true);
            },
        );
    }

    #[test]
    #[should_panic(expected = "not because of")]
    fn a_mutant_that_fails_for_another_reason_is_a_failure() {
        must_fail("self_test_otherwise", UNBOUNDED, "a leak", || {
            two_increments(false);
        });
    }
}
