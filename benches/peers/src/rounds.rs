//! Rounds in one process: all contenders stand ready, and every round lets each
//! of them run once, in turn (A B C, A B C, …), so that a change of the machine's
//! mood meets all alike.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Options;
use crate::report::{Figure, Report};

/// How long one contender runs in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) rounds: usize,
    /// Untimed, at the start of each turn: refills the processor's caches.
    pub(crate) warm: Duration,
    pub(crate) window: Duration,
}

impl Timing {
    pub(crate) fn of(options: &Options) -> Self {
        let (rounds, warm, window) = if options.quick {
            (3, 10, 25)
        } else {
            (9, 40, 120)
        };
        Self {
            rounds: options.rounds_or(rounds),
            warm: Duration::from_millis(warm),
            window: Duration::from_millis(window),
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} rounds, each contender once a round in turn, {} ms after {} ms of warming up",
            self.rounds,
            self.window.as_millis(),
            self.warm.as_millis()
        )
    }
}

/// What the threads of one turn do.
pub(crate) trait Work: Sync {
    /// Goes on until `until`, from `position` on in whatever it goes through;
    /// answers how many operations that were.
    fn run(&self, position: &mut usize, until: Instant) -> u64;
}

/// Operations per second, in millions, of `threads` threads together.
pub(crate) fn rate(work: &impl Work, threads: usize, length: usize, timing: Timing) -> f64 {
    let barrier = Barrier::new(threads);
    let turns: Vec<(Instant, Instant, u64)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut position = length / threads * index;
                    barrier.wait();
                    work.run(&mut position, Instant::now() + timing.warm);
                    barrier.wait();
                    let began = Instant::now();
                    let operations = work.run(&mut position, began + timing.window);
                    (began, Instant::now(), operations)
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a worker does not panic"))
            .collect()
    });
    let began = turns.iter().map(|turn| turn.0).min();
    let ended = turns.iter().map(|turn| turn.1).max();
    let (Some(began), Some(ended)) = (began, ended) else {
        return f64::NAN;
    };
    let operations: u64 = turns.iter().map(|turn| turn.2).sum();
    operations as f64 / (ended - began).as_secs_f64() / 1e6
}

/// The steps between two looks at the clock.
pub(crate) const CHUNK: usize = 1024;

/// The next chunk of `sequence` at `position`, which moves on and wraps.
#[inline]
pub(crate) fn next_chunk<'a>(sequence: &'a [u32], position: &mut usize) -> &'a [u32] {
    if *position >= sequence.len() {
        *position = 0;
    }
    let end = (*position + CHUNK).min(sequence.len());
    let chunk = &sequence[*position..end];
    *position = end;
    chunk
}

/// A contender ready to run, whatever its type. The one dynamic call is per turn.
pub(crate) trait Ready<Setting> {
    fn name(&self) -> String;
    fn base(&self) -> &'static str;
    /// One turn: M op/s.
    fn turn(&self, setting: &Setting, threads: usize, timing: Timing) -> f64;
}

/// Throughput of all threads together.
pub(crate) const RATE: &str = "M op/s";
/// Time of a thread per operation: threads / rate. (With more threads than
/// cores it counts the waiting for a core.)
pub(crate) const COST: &str = "ns/op";

/// Lets the contenders alternate in one setting, and prints and keeps the figures.
pub(crate) fn alternate<Setting>(
    contenders: &[Box<dyn Ready<Setting>>],
    setting: &Setting,
    case: &str,
    threads: usize,
    timing: Timing,
    report: &mut Report,
) {
    let mut rates = vec![Vec::new(); contenders.len()];
    for _ in 0..timing.rounds {
        for (contender, rates) in contenders.iter().zip(&mut rates) {
            rates.push(contender.turn(setting, threads, timing));
        }
    }
    for (contender, rates) in contenders.iter().zip(rates) {
        let costs = rates
            .iter()
            .map(|rate| threads as f64 * 1e3 / rate)
            .collect();
        for (metric, rounds) in [(RATE, rates), (COST, costs)] {
            report.add(Figure {
                case: case.to_owned(),
                contender: contender.name(),
                base: contender.base(),
                metric,
                rounds,
            });
        }
    }
    report.print_case(case, &[RATE, COST], RATE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn chunks_cover_the_sequence_and_wrap() {
        let sequence: Vec<u32> = (0..2_500).collect();
        let mut position = 2_048;
        assert_eq!(next_chunk(&sequence, &mut position), &sequence[2_048..]);
        assert_eq!(next_chunk(&sequence, &mut position), &sequence[..1_024]);
        assert_eq!(position, 1_024);
    }

    /// An operation that takes a known time.
    struct Sleeper(AtomicU64);

    impl Work for Sleeper {
        fn run(&self, _position: &mut usize, until: Instant) -> u64 {
            let mut operations = 0;
            while Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
                operations += 1;
            }
            self.0.fetch_add(operations, Ordering::Relaxed);
            operations
        }
    }

    #[test]
    fn a_rate_counts_the_timed_part_of_all_threads() {
        let timing = Timing {
            rounds: 1,
            warm: Duration::from_millis(20),
            window: Duration::from_millis(100),
        };
        let sleeper = Sleeper(AtomicU64::new(0));
        let rate = rate(&sleeper, 2, 0, timing) * 1e6;
        // At most two threads at 500 operations a second each, and only the timed
        // ones; no lower bound on a busy machine but that some were counted.
        assert!(rate > 0.0 && rate <= 1_001.0, "{rate}");
        let all = sleeper.0.load(Ordering::Relaxed) as f64;
        assert!(rate * 0.1 < all, "the warm-up is not counted");
    }
}
