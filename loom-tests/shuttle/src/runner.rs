//! Runs scenarios, and says how to run a failure again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Steps after which a schedule counts as one that never ends.
const MOST_STEPS: usize = 400_000;

/// PCT's depths: a bug of depth d needs d − 1 interruptions at the right places.
const DEPTHS: [usize; 3] = [2, 3, 6];

/// The seed of a run that names none.
const SEED: u64 = 0xebb;

/// Runs a scenario `iterations` times at random and as often with PCT (several depths). Its name is
/// the test function's.
///
/// `EBBTIDE_SHUTTLE_FACTOR` multiplies the iterations, `EBBTIDE_SHUTTLE_SEED` is where they begin,
/// and `EBBTIDE_SHUTTLE_REPLAY` is the file of a schedule to run instead, once; `./run` sets them.
///
/// # Panics
/// When a schedule fails; after saying which, and how to replay it.
pub fn check(name: &str, iterations: usize, scenario: fn()) {
    if let Some(file) = env::var_os("EBBTIDE_SHUTTLE_REPLAY") {
        replay(&file, scenario);
        return;
    }
    let seed = number("EBBTIDE_SHUTTLE_SEED").unwrap_or(SEED);
    let factor = usize::try_from(number("EBBTIDE_SHUTTLE_FACTOR").unwrap_or(1)).expect("a factor");
    let begin = Instant::now();
    for plan in plans(iterations * factor) {
        let before = saved();
        let run = catch_unwind(AssertUnwindSafe(|| run(plan, seed, scenario)));
        if let Err(panic) = run {
            eprintln!("{name}: {plan:?} with seed {seed} failed.");
            // shuttle writes one at the panic and one after the unwinding; the last is complete.
            let written: Vec<OsString> = saved().difference(&before).cloned().collect();
            if let Some((whole, parts)) = written.split_last() {
                parts.iter().for_each(discard);
                eprintln!(
                    "Run this schedule again with: loom-tests/shuttle/run --replay {name} '{}'",
                    keep(name, whole).display()
                );
            }
            resume_unwind(panic);
        }
    }
    report(name, "holds", iterations * factor, begin);
}

/// A broken scenario: some schedule must fail, and with this message.
///
/// # Panics
/// When none of them does.
pub fn must_fail(name: &str, iterations: usize, message: &str, scenario: fn()) {
    if env::var_os("EBBTIDE_SHUTTLE_REPLAY").is_some() {
        return;
    }
    let begin = Instant::now();
    let before = saved();
    let failed = plans(iterations).into_iter().find_map(|plan| {
        catch_unwind(AssertUnwindSafe(|| run(plan, SEED, scenario)))
            .err()
            .map(|panic| (plan, panic))
    });
    saved().difference(&before).for_each(discard);
    let (plan, panic) = failed.unwrap_or_else(|| panic!("{name}: no schedule failed"));
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(
        said.contains(message),
        "{name}: failed with {said:?}, and not with {message:?}"
    );
    report(
        &format!("broken: {name}"),
        &format!("caught by {plan:?}"),
        iterations,
        begin,
    );
}

/// Runs a scenario in some random schedules, each twice: the second must go like the first, or no
/// failure of it could be replayed.
///
/// # Panics
/// When something but the schedule decides what happens.
pub fn check_replayable(name: &str, iterations: usize, scenario: fn()) {
    if env::var_os("EBBTIDE_SHUTTLE_REPLAY").is_some() {
        return;
    }
    let begin = Instant::now();
    let random = RandomScheduler::new_from_seed(SEED, iterations);
    let runs = Runner::new(
        UncontrolledNondeterminismCheckScheduler::new(random),
        config(),
    )
    .run(scenario);
    assert_eq!(runs, 2 * iterations, "{name}: not every schedule ran twice");
    let seconds = begin.elapsed().as_secs_f64();
    println!("\n@shuttle\tagain: {name}\t{runs}\t{seconds:.2}\tthe same");
}

/// Which scheduler, and how often.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Random { iterations: usize },
    Pct { depth: usize, iterations: usize },
}

impl Plan {
    fn iterations(&self) -> usize {
        match *self {
            Plan::Random { iterations } | Plan::Pct { iterations, .. } => iterations,
        }
    }
}

/// Half of them at random, half by PCT.
fn plans(iterations: usize) -> Vec<Plan> {
    let mut plans = vec![Plan::Random { iterations }];
    plans.extend(DEPTHS.map(|depth| Plan::Pct {
        depth,
        // (The first one only counts the steps.)
        iterations: iterations / DEPTHS.len() + 2,
    }));
    plans
}

fn run(plan: Plan, seed: u64, scenario: fn()) {
    match plan {
        Plan::Random { iterations } => {
            Runner::new(RandomScheduler::new_from_seed(seed, iterations), config()).run(scenario)
        }
        Plan::Pct { depth, iterations } => Runner::new(
            PctScheduler::new_from_seed(seed, depth, iterations),
            config(),
        )
        .run(scenario),
    };
}

fn replay(file: &OsString, scenario: fn()) {
    let scheduler = ReplayScheduler::new_from_file(file).expect("a readable schedule");
    Runner::new(scheduler, config()).run(scenario);
    println!("The schedule does not fail (any more).");
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.failure_persistence = if env::var_os("EBBTIDE_SHUTTLE_REPLAY").is_some() {
        FailurePersistence::None
    } else {
        FailurePersistence::File(Some(folder()))
    };
    // The warning that all orderings are SeqCst: README.md says so too.
    config.silence_warnings = true;
    config
}

/// Where failing schedules are written.
fn folder() -> PathBuf {
    let folder = env::var_os("EBBTIDE_SHUTTLE_FAILURES")
        .map_or_else(|| env::temp_dir().join("ebbtide-shuttle"), PathBuf::from);
    fs::create_dir_all(&folder).expect("a folder for failing schedules");
    folder
}

fn saved() -> BTreeSet<OsString> {
    fs::read_dir(folder())
        .expect("the folder is there")
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect()
}

fn discard(file: &OsString) {
    // One that stays only takes up a name.
    let _ = fs::remove_file(folder().join(file));
}

/// Gives a saved schedule a name of its own.
fn keep(name: &str, file: &OsString) -> PathBuf {
    let (from, folder) = (folder().join(file), folder());
    let free = (0..)
        .map(|n| folder.join(format!("{name}-{n}.schedule")))
        .find(|path| !Path::exists(path))
        .expect("numbers enough");
    fs::rename(&from, &free).map_or(from, |()| free)
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {value}")),
    )
}

fn report(name: &str, result: &str, iterations: usize, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    let most: usize = plans(iterations).iter().map(Plan::iterations).sum();
    // On a line of its own, whatever the test harness has begun to write.
    println!("\n@shuttle\t{name}\t{most}\t{seconds:.2}\t{result}");
}
