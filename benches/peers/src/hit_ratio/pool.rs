//! Cells in parallel: each is single-threaded, a few run at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does all `jobs`, on `threads` threads at most, in their order; those that `sleepy` picks each on
/// a thread of their own beside them, as they mostly wait. Answers in the order of the jobs.
///
/// # Errors
///
/// The first error; the jobs that have not begun by then never do.
pub(super) fn run<J: Sync, A: Send>(
    jobs: &[J],
    threads: usize,
    sleepy: impl Fn(&J) -> bool,
    work: impl Fn(&J) -> Result<A, String> + Sync,
) -> Result<Vec<A>, String> {
    let (waiting, busy): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|&job| sleepy(&jobs[job]));
    let answers: Mutex<Vec<Option<A>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let locked = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |job: usize| match work(&jobs[job]) {
        Ok(answer) => {
            answers.lock().unwrap_or_else(PoisonError::into_inner)[job] = Some(answer);
        }
        Err(error) => {
            locked().get_or_insert(error);
        }
    };
    let in_turn = || {
        while locked().is_none() {
            let Some(&job) = busy.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            one(job);
        }
    };
    thread::scope(|scope| {
        for &job in &waiting {
            scope.spawn(move || one(job));
        }
        for _ in 0..threads.min(busy.len()) {
            scope.spawn(in_turn);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failed {
        Some(error) => Err(error),
        None => {
            let answers = answers.into_inner();
            let answers = answers.unwrap_or_else(PoisonError::into_inner);
            Ok(answers.into_iter().flatten().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        for threads in [1, 3] {
            let answers = run(&jobs, threads, |job| job % 10 == 0, |job| Ok(job * 2));
            let expected: Vec<u32> = jobs.iter().map(|job| job * 2).collect();
            assert_eq!(answers.unwrap(), expected);
        }
    }

    #[test]
    fn an_error_ends_it() {
        let begun = AtomicUsize::new(0);
        let jobs: Vec<usize> = (0..100).collect();
        let answers = run(
            &jobs,
            1,
            |_| false,
            |&job| {
                begun.fetch_add(1, Ordering::Relaxed);
                match job {
                    3 => Err("the third".to_owned()),
                    _ => Ok(()),
                }
            },
        );
        assert_eq!(answers.unwrap_err(), "the third");
        assert_eq!(begun.into_inner(), 4);
    }
}
