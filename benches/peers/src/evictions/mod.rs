//! `evictions`: bounded caches that are full. Fresh keys, so that every insert has
//! to make room, and a mixed load as a cache has it: a get, and an insert on a miss.

mod contenders;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

use crate::Options;
use crate::keys::{Draw, count_name, scattered, sequence};
use crate::reads::print_fastest;
use crate::report::{Figure, Report};
use crate::rounds::{CHUNK, COST, RATE, Timing, Work, rate};
use crate::wave::{latency, longest, spinning};
use contenders::{Bounded, BoundedVisitor, EBBTIDE_TTL, visit};

#[derive(Args, Debug)]
pub(crate) struct EvictionsArgs {
    /// Capacities in entries, at least 100, separated by commas [default: 10000,100000,1000000; with --quick the
    /// first two]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    capacities: Vec<u64>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
}

/// How many times the capacity is inserted before anything is measured.
const FILLS: u64 = 2;
/// Keys of the mixed load, in capacities.
const KEYS: u64 = 10;
/// Sequences of the mixed load that are put one after another: together so long
/// that a cache has forgotten their beginning when they begin again.
const SEQUENCES: u64 = 8;
/// Windows in which inserts are timed one by one: the slowest are rare.
const WINDOWS: u32 = 4;

/// The value of a key: no two keys have the same.
#[inline]
fn value_of(key: u64) -> u64 {
    !key
}

const P50: &str = "p50, us";
const P99: &str = "p99, us";
const P999: &str = "p99.9, us";
const MAX: &str = "slowest insert, ms";
const CONTROL: &str = "spinning control's longest pause, ms";
const HITS: &str = "hits, %";
const HELD: &str = "held, %";

/// What a contender does in a turn.
#[derive(Clone, Copy)]
enum Load<'a> {
    /// Inserts fresh keys.
    Fresh,
    /// The same, each insert timed.
    Each,
    /// Gets these keys, again and again, and inserts those that it misses.
    Mixed(&'a [u32]),
}

/// A contender that is full, and how far it has come in its keys.
struct Full<B> {
    cache: B,
    capacity: u64,
    next: AtomicU64,
}

impl<B: Bounded> Full<B> {
    /// One that has got [`FILLS`] times as many entries as it may hold.
    fn new(capacity: u64, load: Load<'_>) -> Self {
        let full = Self {
            cache: B::build(capacity),
            capacity,
            next: AtomicU64::new(0),
        };
        match load {
            Load::Fresh | Load::Each => {
                let inserting = Inserting(&full);
                while full.next.load(Ordering::Relaxed) < FILLS * capacity {
                    inserting.chunk(|| ());
                }
            }
            Load::Mixed(steps) => {
                let asking = Asking::new(&full, steps);
                let (mut misses, mut left) = (0, 2 * steps.len() / CHUNK);
                // (Somebody may hold more than its capacity, and then miss too little.)
                while misses < FILLS * capacity && left > 0 {
                    let (asked, hits) = asking.chunk();
                    misses += asked - hits;
                    left -= 1;
                }
            }
        }
        full
    }

    /// Claims the next of its keys, as many as a chunk has.
    fn claim(&self) -> u64 {
        self.next.fetch_add(CHUNK as u64, Ordering::Relaxed)
    }

    /// Entries held, in percent of the capacity.
    ///
    /// # Panics
    /// If they are more than the contender promises.
    fn held(&self) -> Option<f64> {
        self.cache.settle();
        let held = self.cache.held()?;
        if let Some(most) = self.cache.most(self.capacity) {
            assert!(held <= most, "{} holds {held} of {most}", B::name());
        }
        Some(100.0 * held as f64 / self.capacity as f64)
    }

    /// Reads some of the fresh keys: the newest, and some from when it was filled.
    ///
    /// # Panics
    /// If a value is not the one inserted, or nothing is found at all.
    fn check_values(&self) {
        let some = (self.capacity / 10).min(1_024);
        let next = self.next.load(Ordering::Relaxed);
        let filled = FILLS * self.capacity;
        let oldest = (0..filled).step_by((filled / some) as usize);
        let found = oldest.chain(next - some..next).filter(|&i| {
            let key = scattered(i);
            let value = self.cache.get(key);
            assert!(
                value.is_none_or(|value| value == value_of(key)),
                "{} has another key's value",
                B::name()
            );
            value.is_some()
        });
        assert!(found.count() > 0, "{} holds none of its keys", B::name());
    }
}

struct Inserting<'a, B>(&'a Full<B>);

impl<B: Bounded> Inserting<'_, B> {
    #[inline]
    fn chunk(&self, mut after_each: impl FnMut()) {
        let first = self.0.claim();
        for i in first..first + CHUNK as u64 {
            let key = scattered(i);
            self.0.cache.insert(key, value_of(key));
            after_each();
        }
    }
}

impl<B: Bounded> Work for Inserting<'_, B> {
    fn run(&self, _: &mut usize, until: Instant) -> u64 {
        let mut operations = 0;
        while Instant::now() < until {
            self.chunk(|| ());
            operations += CHUNK as u64;
        }
        operations
    }
}

struct Asking<'a, B> {
    full: &'a Full<B>,
    steps: &'a [u32],
    asked: AtomicU64,
    hits: AtomicU64,
}

impl<'a, B: Bounded> Asking<'a, B> {
    fn new(full: &'a Full<B>, steps: &'a [u32]) -> Self {
        Self {
            full,
            steps,
            asked: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// How many keys it asked for, and how many it found.
    #[inline]
    fn chunk(&self) -> (u64, u64) {
        let chunks = (self.steps.len() / CHUNK) as u64;
        let first = (self.full.claim() / CHUNK as u64 % chunks) as usize * CHUNK;
        let (mut hits, mut wrong) = (0, 0);
        for &step in &self.steps[first..first + CHUNK] {
            let key = u64::from(step);
            match self.full.cache.get(key) {
                Some(value) => {
                    hits += 1;
                    wrong += u64::from(value != value_of(key));
                }
                None => self.full.cache.insert(key, value_of(key)),
            }
        }
        assert_eq!(wrong, 0, "{} has other keys' values", B::name());
        (CHUNK as u64, hits)
    }
}

impl<B: Bounded> Work for Asking<'_, B> {
    fn run(&self, _: &mut usize, until: Instant) -> u64 {
        let (mut asked, mut hits) = (0, 0);
        while Instant::now() < until {
            let chunk = self.chunk();
            asked += chunk.0;
            hits += chunk.1;
        }
        self.asked.fetch_add(asked, Ordering::Relaxed);
        self.hits.fetch_add(hits, Ordering::Relaxed);
        asked
    }
}

/// A contender that is full, whatever its type. The one dynamic call is per turn.
trait Contender {
    fn name(&self) -> String;
    fn base(&self) -> &'static str;
    /// One turn, and the checks after it: figures by their metrics.
    fn turn(&self, load: Load<'_>, threads: usize, timing: Timing) -> Vec<(&'static str, f64)>;
}

impl<B: Bounded> Contender for Full<B> {
    fn name(&self) -> String {
        B::name()
    }

    fn base(&self) -> &'static str {
        B::BASE
    }

    fn turn(&self, load: Load<'_>, threads: usize, timing: Timing) -> Vec<(&'static str, f64)> {
        let cost = |rate: f64| (COST, threads as f64 * 1e3 / rate);
        let mut figures = match load {
            Load::Fresh => {
                let rate = rate(&Inserting(self), threads, 0, timing);
                vec![(RATE, rate), cost(rate)]
            }
            Load::Each => timed_each(&Inserting(self), timing),
            Load::Mixed(steps) => {
                let asking = Asking::new(self, steps);
                let rate = rate(&asking, threads, 0, timing);
                let hits = asking.hits.into_inner() as f64 / asking.asked.into_inner() as f64;
                vec![(RATE, rate), cost(rate), (HITS, 100.0 * hits)]
            }
        };
        figures.extend(self.held().map(|held| (HELD, held)));
        if !matches!(load, Load::Mixed(_)) {
            self.check_values();
        }
        figures
    }
}

/// Back to back, as [`crate::inserts`] times them, then the control for as long.
fn timed_each<B: Bounded>(
    inserting: &Inserting<'_, B>,
    timing: Timing,
) -> Vec<(&'static str, f64)> {
    inserting.run(&mut 0, Instant::now() + timing.warm);
    let mut inserts = latency();
    let began = Instant::now();
    let last = Cell::new(began);
    while last.get() < began + timing.window * WINDOWS {
        inserting.chunk(|| {
            let now = Instant::now();
            inserts.saturating_record((now - last.replace(now)).as_nanos() as u64);
        });
    }
    let control = spinning(began.elapsed());
    let quantile = |quantile| inserts.value_at_quantile(quantile) as f64 / 1e3;
    vec![
        (P50, quantile(0.5)),
        (P99, quantile(0.99)),
        (P999, quantile(0.999)),
        (MAX, longest(&inserts) / 1e6),
        (CONTROL, longest(&control) / 1e6),
    ]
}

/// Builds and fills every contender that it is shown.
struct Fill<'a> {
    options: &'a Options,
    capacity: u64,
    load: Load<'a>,
    full: Vec<Box<dyn Contender>>,
}

impl BoundedVisitor for Fill<'_> {
    fn visit<B: Bounded>(&mut self) {
        if self.options.wants(&B::name()) {
            self.full
                .push(Box::new(Full::<B>::new(self.capacity, self.load)));
        }
    }
}

fn filled(options: &Options, capacity: u64, load: Load<'_>) -> Vec<Box<dyn Contender>> {
    let mut fill = Fill {
        options,
        capacity,
        load,
        full: Vec::new(),
    };
    visit(options.hashers, &mut fill);
    fill.full
}

/// Lets the contenders take turns, and prints and keeps the figures.
fn take_turns(
    contenders: &[Box<dyn Contender>],
    load: Load<'_>,
    (capacity, threads): (u64, usize),
    timing: Timing,
    report: &mut Report,
) {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for _ in 0..timing.rounds {
        for (contender, rounds) in contenders.iter().zip(&mut rounds) {
            rounds.push(contender.turn(load, threads, timing));
        }
    }
    let (what, metrics, compared): (_, &[&str], _) = match load {
        Load::Fresh => ("fresh keys", &[RATE, COST, HELD], RATE),
        Load::Each => (
            "fresh keys, each insert timed",
            &[P50, P99, P999, MAX, CONTROL],
            MAX,
        ),
        Load::Mixed(_) => ("get, on a miss insert", &[RATE, COST, HITS, HELD], RATE),
    };
    let case = format!(
        "{what}, capacity {}, {threads} thread{}",
        count_name(capacity),
        if threads == 1 { "" } else { "s" }
    );
    for (contender, rounds) in contenders.iter().zip(&rounds) {
        for &metric in metrics {
            let values = rounds.iter().flatten().filter(|figure| figure.0 == metric);
            let rounds: Vec<f64> = values.map(|figure| figure.1).collect();
            if !rounds.is_empty() {
                report.add(Figure {
                    case: case.clone(),
                    contender: contender.name(),
                    base: contender.base(),
                    metric,
                    rounds,
                });
            }
        }
    }
    report.print_case(&case, metrics, compared);
}

pub(crate) fn run(options: &Options, args: &EvictionsArgs) -> Report {
    let mut report = Report::new("evictions");
    let timing = Timing::of(options);
    let capacities = match (args.capacities.as_slice(), options.quick) {
        ([], true) => &[10_000, 100_000][..],
        ([], false) => &[10_000, 100_000, 1_000_000],
        (asked, _) => asked,
    };
    println!(
        "Bounded caches, u64 -> u64, that got {FILLS} times their capacity beforehand. {}.",
        timing.describe()
    );
    println!(
        "Fresh keys: each insert needs room. Timed each: {} ms, then a control that only reads the clock, as long.",
        (timing.window * WINDOWS).as_millis()
    );
    println!(
        "Mixed: zipf 0.99 over {KEYS} times the capacity, a get, and an insert if it misses; hits are those of the whole turn."
    );
    println!(
        "A ratio above 1: ebbtide is faster; one below 1, of the slowest insert: its slowest is shorter."
    );
    println!("What has a lifetime is compared with \"{EBBTIDE_TTL}\".\n");
    for &capacity in capacities {
        let contenders = filled(options, capacity, Load::Fresh);
        for &threads in &args.threads {
            let at = (capacity, threads);
            take_turns(&contenders, Load::Fresh, at, timing, &mut report);
        }
        take_turns(&contenders, Load::Each, (capacity, 1), timing, &mut report);
        drop(contenders);
        let steps = mixed_steps(capacity);
        let load = Load::Mixed(&steps);
        let contenders = filled(options, capacity, load);
        for &threads in &args.threads {
            take_turns(&contenders, load, (capacity, threads), timing, &mut report);
        }
    }
    print_fastest(&report);
    report
}

fn mixed_steps(capacity: u64) -> Vec<u32> {
    let keys = (KEYS * capacity) as usize;
    (0..SEQUENCES)
        .flat_map(|seed| sequence(Draw::Zipf, keys, 31 + seed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::Hashers;
    use crate::keys::THETA;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    const CAPACITY: u64 = 2_000;
    const SHORT: Timing = Timing {
        rounds: 1,
        warm: Duration::from_millis(2),
        window: Duration::from_millis(5),
    };

    /// Takes a turn of each load with every contender.
    struct Turns<'a> {
        steps: &'a [u32],
        seen: Vec<String>,
    }

    impl BoundedVisitor for Turns<'_> {
        fn visit<B: Bounded>(&mut self) {
            let fresh = Full::<B>::new(CAPACITY, Load::Fresh);
            assert!(fresh.next.load(Ordering::Relaxed) >= FILLS * CAPACITY);
            for threads in [1, 2] {
                let figures = fresh.turn(Load::Fresh, threads, SHORT);
                assert!(figure(&figures, RATE) > 0.0, "{}", B::name());
            }
            let figures = fresh.turn(Load::Each, 1, SHORT);
            assert!(figure(&figures, P50) * 1e-3 <= figure(&figures, MAX));
            let load = Load::Mixed(self.steps);
            let mixed = Full::<B>::new(CAPACITY, load);
            let hits = figure(&mixed.turn(load, 2, SHORT), HITS);
            // Without knowing the future nobody does better than to hold the hottest.
            assert!(hits > 50.0, "{}: {hits}", B::name());
            assert!(hits < share(CAPACITY) + 1.0, "{}: {hits}", B::name());
            self.seen.push(B::name());
        }
    }

    /// What the `hottest` keys of the mixed load get, in percent.
    fn share(hottest: u64) -> f64 {
        let harmonic = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        100.0 * harmonic(hottest) / harmonic(KEYS * CAPACITY)
    }

    fn figure(figures: &[(&'static str, f64)], metric: &str) -> f64 {
        let found = figures.iter().find(|figure| figure.0 == metric);
        found.expect("it is measured").1
    }

    #[test]
    fn every_contender_takes_its_turns() {
        let mut turns = Turns {
            steps: &mixed_steps(CAPACITY),
            seen: Vec::new(),
        };
        visit(Hashers::Both, &mut turns);
        let seen = turns.seen.join("; ");
        for peer in ["moka, ttl, ahash", "mini-moka", "TinyUFO", "foyer lfu"] {
            assert!(turns.seen.iter().any(|name| name == peer), "{seen}");
        }
        turns.seen.sort();
        let all = turns.seen.len();
        turns.seen.dedup();
        assert_eq!(turns.seen.len(), all, "names are unique");
    }

    /// Never evicts, and answers with a value that is off by so much; promises `MOST` entries.
    struct Faulty<const OFF: u64, const MOST: u64>(Mutex<HashMap<u64, u64>>);

    impl<const OFF: u64, const MOST: u64> Bounded for Faulty<OFF, MOST> {
        fn name() -> String {
            "faulty".to_owned()
        }

        fn build(_: u64) -> Self {
            Self(Mutex::default())
        }

        fn get(&self, key: u64) -> Option<u64> {
            let map = self.0.lock().unwrap();
            map.get(&key).map(|value| value.wrapping_add(OFF))
        }

        fn insert(&self, key: u64, value: u64) {
            self.0.lock().unwrap().insert(key, value);
        }

        fn held(&self) -> Option<u64> {
            Some(self.0.lock().unwrap().len() as u64)
        }

        fn most(&self, _: u64) -> Option<u64> {
            Some(MOST)
        }
    }

    fn fails<const OFF: u64, const MOST: u64>(load: Load<'_>) -> bool {
        std::panic::catch_unwind(|| {
            Full::<Faulty<OFF, MOST>>::new(CAPACITY, load).turn(load, 1, SHORT)
        })
        .is_err()
    }

    #[test]
    fn faults_end_the_run() {
        let steps = mixed_steps(CAPACITY);
        for load in [Load::Fresh, Load::Each, Load::Mixed(&steps)] {
            assert!(!fails::<0, { u64::MAX }>(load), "no fault");
            assert!(fails::<1, { u64::MAX }>(load), "another key's value");
            assert!(fails::<0, { CAPACITY }>(load), "too many entries");
        }
    }
}
