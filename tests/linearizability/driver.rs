//! Rounds under real threads: everybody makes its calls at once on a few keys that nobody has used,
//! and what they were told is checked.
//!
//! Some rounds follow one another on one cache, so that it is not always empty, with old keys about
//! that end, are reaped and free slots. All that a batch of rounds does is drawn from its seed; how
//! its threads interleave is not.

use std::env;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, RandomState, Reaper, Strategy};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::checker::{Checker, KEYS, Violation};
use crate::history::{Answer, Call, Decision, Event, timeline};
use crate::plan::{self, Mix, Planned};
use crate::spec::Rules;
use crate::subject::{Key, Payload, Subject, Times, UneasyClock, Unrest, be_uneasy, uneasy};

/// Rounds on one cache.
const BATCH: usize = 32;

/// What kind of cache, and what is done to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) live: Option<u32>,
    pub(crate) idle: Option<u32>,
    pub(crate) bound: Option<u64>,
    pub(crate) mix: Mix,
    /// Whether the clock moves.
    pub(crate) steps: bool,
    /// Units by which the cache's clock is behind: 0, but for a mutant.
    pub(crate) behind: u32,
}

impl Setup {
    pub(crate) const fn of(mix: Mix) -> Self {
        Setup {
            live: None,
            idle: None,
            bound: None,
            mix,
            steps: true,
            behind: 0,
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            live: self.live,
            idle: self.idle,
            lossy: self.bound.is_some(),
        }
    }
}

/// What else a batch draws from its seed.
#[derive(Clone, Copy, Debug)]
struct Chance {
    threads: usize,
    keys: usize,
    calls: usize,
    shards: usize,
    listener: bool,
    sample: bool,
    /// Whether crowds of other keys come and go.
    crowded: bool,
    unit: Duration,
    unrest: Unrest,
}

impl Chance {
    fn draw(random: &mut Xoshiro256PlusPlus) -> Self {
        let threads = random.random_range(2..=4);
        let keys = random.random_range(1..=KEYS);
        // Four to twelve on each key, on average.
        let calls = random.random_range((4 * keys).div_ceil(threads)..=12 * keys / threads);
        let crowded = random.random_bool(0.2);
        let units = [
            Duration::from_millis(1),
            Duration::from_nanos(1 << 26),
            Duration::from_secs(1),
        ];
        let unrests = [(5, 50), (60, 100), (150, 100), (300, 50)];
        let (yields, spins) = *unrests.choose(random).expect("some");
        Chance {
            threads,
            keys,
            calls: calls.min(9),
            shards: *[1, 1, 4].choose(random).expect("some"),
            listener: random.random_bool(0.25),
            sample: random.random_bool(0.25),
            crowded,
            unit: *units.choose(random).expect("some"),
            unrest: Unrest { yields, spins },
        }
    }

    fn cache<V: Payload>(&self, setup: &Setup, clock: &ManualClock) -> Cache<Key, V> {
        let behind = u64::try_from((self.unit * setup.behind).as_nanos()).expect("little");
        let strategy = match self.sample {
            true => Strategy::sample(),
            false => Strategy::sweep(),
        };
        let mut builder = Cache::builder()
            .shards(self.shards)
            .reaper(Reaper::manual().strategy(strategy))
            .clock(UneasyClock {
                time: clock.clone(),
                behind,
            });
        if let Some(live) = setup.live {
            builder = builder.time_to_live(self.unit * live);
        }
        if let Some(idle) = setup.idle {
            builder = builder.time_to_idle(self.unit * idle);
        }
        if let Some(bound) = setup.bound {
            builder = builder.max_entries(bound);
        }
        if self.listener {
            builder = builder.on_removal(|_, _, _| uneasy());
        }
        builder.build().expect("settings that contradict nothing")
    }
}

/// How often rounds met what they are there for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: usize,
    pub(crate) calls: usize,
    /// Calls that overlapped another thread's on the same key, or a step.
    pub(crate) overlapping: usize,
    /// Rounds with such calls.
    pub(crate) contended: usize,
}

/// A violation, with all that is needed to see it and to look for it again.
pub(crate) struct Failure {
    name: &'static str,
    seed: u64,
    setup: Setup,
    chance: Chance,
    round: usize,
    begin: u32,
    /// Rounds of the suite until then, those of this batch included.
    rounds: usize,
    all: Vec<Event>,
    pub(crate) violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        writeln!(f, "{name}: a history that is not linearizable")?;
        writeln!(f, "{:?}\n{:?}", self.setup, self.chance)?;
        writeln!(
            f,
            "found after {} rounds, in round {} of its batch; the clock began at {}",
            self.rounds, self.round, self.begin
        )?;
        match self.violation.key {
            Some(key) => writeln!(f, "\nno order explains this on key {key}:")?,
            None => writeln!(f, "\nno order explains these keys together:")?,
        }
        f.write_str(&timeline(&self.violation.minimal))?;
        writeln!(f, "\nthe whole round:\n{}", timeline(&self.all))?;
        writeln!(
            f,
            "the same calls again, until they interleave so:\n\
             EBBTIDE_SEED={} EBBTIDE_ROUNDS=100000 cargo test --test linearizability {name}",
            self.seed
        )
    }
}

/// A number from the environment.
fn from_env<N: std::str::FromStr>(name: &str) -> Option<N> {
    let value = env::var(name).ok()?;
    match value.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={value} is no number"),
    }
}

/// Runs a suite of `rounds` rounds on caches of `V` (or as many as EBBTIDE_ROUNDS says), each put
/// into `wrap`. Stops at the first violation.
pub(crate) fn run<V: Payload, S: Subject>(
    name: &'static str,
    setup: Setup,
    rounds: usize,
    wrap: impl Fn(Cache<Key, V>) -> S,
) -> Result<Tally, Box<Failure>> {
    let rounds = from_env("EBBTIDE_ROUNDS").unwrap_or(rounds);
    let given: Option<u64> = from_env("EBBTIDE_SEED");
    // Other rounds each time; a failure says which they were.
    let first = RandomState::new().build_hasher().finish();
    let mut tally = Tally::default();
    for batch in 0..rounds.div_ceil(BATCH) as u64 {
        let seed = given.unwrap_or(first.wrapping_add(batch));
        run_batch(name, setup, seed, &wrap, &mut tally)?;
    }
    Ok(tally)
}

/// What one batch does: by round, by thread.
type Plan = Vec<Vec<Vec<Planned>>>;

fn plan(setup: &Setup, chance: &Chance, random: &mut Xoshiro256PlusPlus) -> (Plan, Vec<u32>) {
    let (mut now, mut fresh) = (2, 0_i64);
    let mut begins = Vec::new();
    let rounds = (0..BATCH).map(|_| {
        let begin = now;
        begins.push(begin);
        let stepper = random.random_range(0..chance.threads);
        let threads = (0..chance.threads).map(|thread| {
            let mut calls = Vec::new();
            for _ in 0..chance.calls {
                if setup.steps && thread == stepper && random.random_bool(0.3) {
                    let units = random.random_range(1..=2);
                    now += units;
                    calls.push((0, Call::Step(units)));
                }
                if random.random_bool(0.1) {
                    calls.push((0, Call::Reap(random.random_range(1..=8))));
                }
                fresh += 1;
                if chance.crowded && setup.bound.is_none() && random.random_bool(0.1) {
                    let first = (fresh.unsigned_abs() + 1) << 32;
                    calls.push((0, Call::Crowd(first)));
                }
                let key = random.random_range(0..chance.keys);
                calls.push((key, plan::draw(setup.mix, random, begin, fresh)));
            }
            calls
        });
        threads.collect()
    });
    (rounds.collect(), begins)
}

fn run_batch<V: Payload, S: Subject>(
    name: &'static str,
    setup: Setup,
    seed: u64,
    wrap: impl Fn(Cache<Key, V>) -> S,
    tally: &mut Tally,
) -> Result<(), Box<Failure>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let chance = Chance::draw(&mut random);
    let (plan, begins) = plan(&setup, &chance, &mut random);
    let clock = ManualClock::new();
    let times = Times::new(chance.unit, &clock, setup.idle.is_some());
    clock.advance(times.units(begins[0]));
    let subject = wrap(chance.cache(&setup, &clock));
    let stage = Stage {
        subject: &subject,
        clock: &clock,
        times,
        moments: AtomicU64::new(0),
        ready: AtomicUsize::new(0),
        threads: chance.threads,
    };
    let mut histories: Vec<Vec<Event>> = vec![Vec::new(); BATCH];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..chance.threads)
            .map(|thread| {
                let (stage, plan) = (&stage, &plan);
                let nerves: u64 = random.random();
                scope.spawn(move || {
                    let _release = stage.release_if_panicking();
                    be_uneasy(chance.unrest, nerves);
                    let mine = plan.iter().map(|round| &round[thread]);
                    let rounds = mine.enumerate();
                    rounds
                        .map(|(round, calls)| stage.play(thread, round, calls))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            let rounds = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (history, part) in histories.iter_mut().zip(rounds) {
                history.extend(part);
            }
        }
    });
    for (round, (events, &begin)) in histories.into_iter().zip(&begins).enumerate() {
        let checker = Checker::new(setup.rules(), begin, &events);
        let overlapping = checker.overlapping();
        tally.rounds += 1;
        tally.calls += events.len();
        tally.overlapping += overlapping;
        tally.contended += usize::from(overlapping > 0);
        if let Err(violation) = checker.check() {
            return Err(Box::new(Failure {
                name,
                seed,
                setup,
                chance,
                round,
                begin,
                rounds: tally.rounds,
                all: events,
                violation,
            }));
        }
    }
    Ok(())
}

/// What the threads of a batch share.
struct Stage<'s, S> {
    subject: &'s S,
    clock: &'s ManualClock,
    times: Times,
    /// Numbers the moments at which calls begin and return. One counter for all threads: what
    /// returned before something was invoked also happened before it, for the memory model too.
    moments: AtomicU64,
    /// Arrivals at the beginnings of rounds.
    ready: AtomicUsize,
    threads: usize,
}

impl<S: Subject> Stage<'_, S> {
    /// Makes one thread's calls of a round, once all threads have come that far.
    fn play(&self, thread: usize, round: usize, calls: &[Planned]) -> Vec<Event> {
        self.meet(round);
        // What this thread last saw in each key: what its next compare_and_swap expects.
        let mut seen = [0; KEYS];
        let mut events = Vec::with_capacity(calls.len());
        for &(key, call) in calls {
            let call = match call {
                Call::CompareAndSwap { new, .. } => Call::CompareAndSwap {
                    expected: seen[key],
                    new,
                },
                other => other,
            };
            uneasy();
            let invoked = self.moments.fetch_add(1, Ordering::SeqCst);
            let answer = match call {
                Call::Step(units) => {
                    self.clock.advance(self.times.units(units));
                    Answer::Done
                }
                _ => {
                    let name = (round * KEYS + key) as u64;
                    self.subject.call(name, call, &self.times)
                }
            };
            let returned = self.moments.fetch_add(1, Ordering::SeqCst);
            if let Some(value) = learnt(call, answer) {
                seen[key] = value;
            }
            events.push(Event {
                thread,
                key,
                call,
                answer,
                invoked,
                returned,
            });
        }
        events
    }

    /// Lets the others go on, should this thread panic: its panic is what is to be seen.
    fn release_if_panicking(&self) -> impl Drop {
        struct Release<'r>(&'r AtomicUsize);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.fetch_add(1 << 32, Ordering::AcqRel);
                }
            }
        }
        Release(&self.ready)
    }

    /// Waits for the others, awake, so that all begin within some ten nanoseconds where there are
    /// cores for all.
    fn meet(&self, round: usize) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        let mut turns = 0u32;
        while self.ready.load(Ordering::Acquire) < (round + 1) * self.threads {
            turns += 1;
            match turns.is_multiple_of(64) {
                true => thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }
}

/// The value that a key had right after a call, as far as the caller can tell.
fn learnt(call: Call, answer: Answer) -> Option<i64> {
    match (call, answer) {
        (Call::Read(_) | Call::Peek | Call::Entry(_), Answer::Value(value)) => value,
        (Call::Insert(value, _), _) => Some(value),
        (Call::InsertIfAbsent(value), Answer::Whether(true)) => Some(value),
        (Call::CompareAndSwap { new, .. }, Answer::Whether(true)) => Some(new),
        (Call::Compute(Decision::Put(new)), Answer::Computed(seen, _)) => Some(new.value(seen)),
        (_, Answer::Sum(sum)) => sum,
        _ => None,
    }
}

/// Runs a suite on the cache itself and panics at a violation.
pub(crate) fn prove<V: Payload>(name: &'static str, setup: Setup, rounds: usize) {
    match run::<V, _>(name, setup, rounds, |cache| cache) {
        Ok(tally) => println!("{name}: {tally:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
