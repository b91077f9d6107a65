//! `counters`: adding one, on one hot key and spread over many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

use crate::Options;
use crate::adapters::{Counters, CountersVisitor, visit_counters};
use crate::keys::{Draw, count_name, sequence};
use crate::reads::print_fastest;
use crate::report::Report;
use crate::rounds::{CHUNK, Ready, Timing, Work, alternate, next_chunk, rate};

#[derive(Args, Debug)]
pub(crate) struct CountersArgs {
    /// Over how many keys the spread ones go
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
}

struct Setting {
    sequence: Vec<u32>,
}

struct Counting<C> {
    counters: C,
    keys: usize,
    /// Every increment ever done, filling and warming up included.
    done: AtomicU64,
}

struct Turn<'a, C> {
    counting: &'a Counting<C>,
    sequence: &'a [u32],
}

impl<C: Counters> Work for Turn<'_, C> {
    fn run(&self, position: &mut usize, until: Instant) -> u64 {
        let mut operations = 0;
        while Instant::now() < until {
            let chunk = next_chunk(self.sequence, position);
            for &key in chunk {
                self.counting.counters.add_one(u64::from(key));
            }
            operations += chunk.len() as u64;
        }
        self.counting.done.fetch_add(operations, Ordering::Relaxed);
        operations
    }
}

impl<C: Counters> Ready<Setting> for Counting<C> {
    fn name(&self) -> String {
        C::name()
    }

    fn base(&self) -> &'static str {
        C::BASE
    }

    fn turn(&self, setting: &Setting, threads: usize, timing: Timing) -> f64 {
        let turn = Turn {
            counting: self,
            sequence: &setting.sequence,
        };
        let rate = rate(&turn, threads, setting.sequence.len(), timing);
        let sum: i64 = (0..self.keys as u64)
            .map(|key| self.counters.value(key))
            .sum();
        let done = self.done.load(Ordering::Relaxed);
        assert_eq!(sum.unsigned_abs(), done, "{} lost increments", C::name());
        rate
    }
}

struct Fill<'a> {
    options: &'a Options,
    keys: usize,
    ready: Vec<Box<dyn Ready<Setting>>>,
}

impl CountersVisitor for Fill<'_> {
    fn visit<C: Counters>(&mut self) {
        if self.options.wants(&C::name()) {
            // Every counter exists before the first turn.
            let counters = C::build();
            (0..self.keys as u64).for_each(|key| counters.add_one(key));
            self.ready.push(Box::new(Counting {
                counters,
                keys: self.keys,
                done: AtomicU64::new(self.keys as u64),
            }));
        }
    }
}

pub(crate) fn run(options: &Options, args: &CountersArgs) -> Report {
    let mut report = Report::new("counters");
    let timing = Timing::of(options);
    println!("Increments by one. {}.", timing.describe());
    println!(
        "Every turn ends with the sum of all counters being checked. A ratio above 1: ebbtide is faster.\n"
    );
    for keys in [1, args.keys] {
        let mut fill = Fill {
            options,
            keys,
            ready: Vec::new(),
        };
        visit_counters(options.hashers, &mut fill);
        let setting = Setting {
            sequence: match keys {
                1 => vec![0; CHUNK],
                _ => sequence(Draw::Uniform, keys, 31),
            },
        };
        for &threads in &args.threads {
            let case = format!(
                "{}, {threads} thread{}",
                match keys {
                    1 => "one hot key".to_owned(),
                    _ => format!("spread over {} keys", count_name(keys as u64)),
                },
                if threads == 1 { "" } else { "s" },
            );
            alternate(&fill.ready, &setting, &case, threads, timing, &mut report);
        }
    }
    print_fastest(&report);
    report
}
