//! Random small programs, each explored as it is and with a *clock*: before every step the thread
//! also increments one shared number. Increments of one number never commute, so with the clock
//! loom has to try every interleaving of the steps and cannot leave any out as equivalent. What it
//! sees with the clock it must therefore see without.
//!
//! (The converse is not required: the clock's increments make loom's memory model forget fewer
//! values.)

use std::sync::Arc;
use std::time::Instant;

use ebbtide_loom_tests::{Run, UNBOUNDED, explore, report};
use loom::sync::Mutex;
use loom::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use loom::thread;

#[derive(Clone, Copy, Debug)]
enum Step {
    Load(usize),
    Store(usize),
    Swap(usize),
    Add(usize),
    /// From what the thread loaded last.
    Cas(usize),
    Lock,
    TryLock,
}

type Program = [Vec<Step>; 2];

struct World {
    words: [AtomicU64; 2],
    mutex: Mutex<u64>,
    clock: AtomicU64,
}

/// Runs one thread of a program; everything that it sees.
fn steps(world: &World, steps: &[Step], thread: u64, with_clock: bool) -> Vec<u64> {
    let tick = || {
        if with_clock {
            // Relaxed: orders the schedule, not the memory.
            world.clock.fetch_add(1, Relaxed);
        }
    };
    let (mut seen, mut loaded) = (Vec::new(), [0; 2]);
    for (i, &step) in steps.iter().enumerate() {
        let mine = thread * 10 + i as u64 + 1;
        tick();
        match step {
            Step::Load(word) => {
                loaded[word] = world.words[word].load(Acquire);
                seen.push(loaded[word]);
            }
            Step::Store(word) => world.words[word].store(mine, Release),
            Step::Swap(word) => seen.push(world.words[word].swap(mine, AcqRel)),
            Step::Add(word) => seen.push(world.words[word].fetch_add(100, AcqRel)),
            Step::Cas(word) => {
                let result =
                    world.words[word].compare_exchange(loaded[word], mine, AcqRel, Acquire);
                seen.push(result.unwrap_or_else(|now| 1000 + now));
            }
            Step::Lock => {
                let mut held = world.mutex.lock().unwrap();
                seen.push(std::mem::replace(&mut *held, mine));
                tick();
            }
            Step::TryLock => match world.mutex.try_lock() {
                Ok(mut held) => {
                    seen.push(std::mem::replace(&mut *held, mine));
                    tick();
                }
                Err(_) => seen.push(9999),
            },
        }
    }
    seen
}

fn outcomes(program: &Program, with_clock: bool) -> (std::collections::BTreeSet<Vec<u64>>, Run) {
    let program = Arc::new(program.clone());
    explore(UNBOUNDED, move || {
        let world = Arc::new(World {
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            mutex: Mutex::new(0),
            clock: AtomicU64::new(0),
        });
        let (their_world, their_program) = (world.clone(), program.clone());
        let thread = thread::spawn(move || steps(&their_world, &their_program[1], 1, with_clock));
        let mut seen = steps(&world, &program[0], 0, with_clock);
        seen.extend(thread.join().unwrap());
        seen.extend(world.words.iter().map(|word| word.load(Acquire)));
        seen
    })
}

/// xorshift64: the programs are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn check_programs(name: &str, count: usize, step: impl Fn(&mut Random) -> Step) {
    let begin = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut plain = Run {
        iterations: 0,
        seconds: 0.0,
    };
    let mut incomplete = Vec::new();
    for _ in 0..count {
        // Four steps in all, split 1:3, 2:2 or 3:1.
        let first = 1 + random.below(3);
        let program = [first, 4 - first].map(|n| (0..n).map(|_| step(&mut random)).collect());
        let (seen, run) = outcomes(&program, false);
        plain.iterations += run.iterations;
        plain.seconds += run.seconds;
        let (possible, _) = outcomes(&program, true);
        if let Some(missed) = possible.difference(&seen).next() {
            incomplete.push(format!("{program:?} never ends with {missed:?}"));
        }
    }
    let verdict = match incomplete.len() {
        0 => "complete".to_string(),
        n => format!("MISSES in {n} of {count}"),
    };
    report("canary", name, UNBOUNDED, plain, &verdict);
    println!(
        "{name}: {:.1} s with the clocked runs",
        begin.elapsed().as_secs_f64()
    );
    assert!(incomplete.is_empty(), "{name}: {}", incomplete.join("\n"));
}

#[test]
fn loads_and_read_modify_writes_of_one_word() {
    check_programs("programs_on_one_word", 60, |random| match random.below(4) {
        0 | 1 => Step::Load(0),
        2 => Step::Cas(0),
        _ => Step::Add(0),
    });
}

#[test]
fn all_accesses_to_two_words() {
    check_programs("programs_on_two_words", 200, |random| {
        let word = random.below(2);
        match random.below(5) {
            0 => Step::Load(word),
            1 => Step::Store(word),
            2 => Step::Swap(word),
            3 => Step::Add(word),
            _ => Step::Cas(word),
        }
    });
}

#[test]
fn locks_and_attempts_to_lock() {
    check_programs("programs_with_a_lock", 25, |random| match random.below(4) {
        0 => Step::Lock,
        1 => Step::TryLock,
        2 => Step::Load(0),
        _ => Step::Swap(0),
    });
}
