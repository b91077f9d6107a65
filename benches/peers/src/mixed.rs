//! `mixed`: reads and replacing inserts over keys that exist.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::Options;
use crate::adapters::{HOUR, Store, View, Visitor, visit_caches, visit_maps};
use crate::keys::{Draw, count_name, sequence, shuffled};
use crate::reads::{filled, print_fastest};
use crate::report::Report;
use crate::rounds::{Ready, Timing, Work, alternate, next_chunk, rate};

#[derive(Args, Debug)]
pub(crate) struct MixedArgs {
    /// Numbers of keys, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000")]
    keys: Vec<usize>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Percentages of reads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "95,50")]
    reads: Vec<u32>,
}

/// The bit that makes a step of the sequence an insert.
pub(crate) const INSERT: u32 = 1 << 31;

/// What the threads go through.
pub(crate) struct Setting {
    pub(crate) steps: Vec<u32>,
}

/// An access sequence in which all but `reads` percent are inserts.
pub(crate) fn steps(draw: Draw, keys: usize, reads: u32) -> Vec<u32> {
    let mut rng = SmallRng::seed_from_u64(22);
    let mut steps = sequence(draw, keys, 21);
    for step in &mut steps {
        if rng.random_range(0..100) >= reads {
            *step |= INSERT;
        }
    }
    steps
}

/// A store that holds all keys of the steps.
pub(crate) struct Filled<S>(pub(crate) S);

struct Mixing<'a, S> {
    store: &'a S,
    steps: &'a [u32],
}

impl<S: Store> Work for Mixing<'_, S> {
    fn run(&self, position: &mut usize, until: Instant) -> u64 {
        let mut operations = 0;
        let mut view = self.store.view();
        while Instant::now() < until {
            view.renew();
            let chunk = next_chunk(self.steps, position);
            for &step in chunk {
                let key = u64::from(step & !INSERT);
                if step & INSERT == 0 {
                    black_box(view.get(key));
                } else {
                    self.store.insert(key, black_box(key + 2));
                }
            }
            operations += chunk.len() as u64;
        }
        operations
    }
}

impl<S: Store> Ready<Setting> for Filled<S> {
    fn name(&self) -> String {
        S::name()
    }

    fn base(&self) -> &'static str {
        S::BASE
    }

    fn turn(&self, setting: &Setting, threads: usize, timing: Timing) -> f64 {
        let mixing = Mixing {
            store: &self.0,
            steps: &setting.steps,
        };
        rate(&mixing, threads, setting.steps.len(), timing)
    }
}

struct Fill<'a> {
    options: &'a Options,
    keys: &'a [u32],
    lifetime: Option<Duration>,
    ready: Vec<Box<dyn Ready<Setting>>>,
}

impl Visitor for Fill<'_> {
    fn visit<S: Store>(&mut self) {
        if !S::READS_ONLY && self.options.wants(&S::name()) {
            let store = filled::<S>(self.keys, self.lifetime);
            self.ready.push(Box::new(Filled(store)));
        }
    }
}

pub(crate) fn run(options: &Options, args: &MixedArgs) -> Report {
    let mut report = Report::new("mixed");
    let timing = Timing::of(options);
    println!(
        "Reads and replacing inserts, u64 -> u64, zipf 0.99 over keys that exist. {}.",
        timing.describe()
    );
    println!("A ratio above 1: ebbtide is faster.\n");
    for lifetime in [Some(HOUR), None] {
        for &keys in &args.keys {
            let order = shuffled(keys, 11);
            let mut fill = Fill {
                options,
                keys: &order,
                lifetime,
                ready: Vec::new(),
            };
            match lifetime {
                Some(_) => visit_caches(options.hashers, &mut fill),
                None => visit_maps(options.hashers, &mut fill),
            }
            for &reads in &args.reads {
                let setting = Setting {
                    steps: steps(Draw::Zipf, keys, reads),
                };
                for &threads in &args.threads {
                    let case = format!(
                        "{}, {reads}/{} reads/inserts, {} keys, {threads} thread{}",
                        lifetime.map_or("maps, without lifetimes", |_| "caches, with a lifetime"),
                        100 - reads,
                        count_name(keys as u64),
                        if threads == 1 { "" } else { "s" },
                    );
                    alternate(&fill.ready, &setting, &case, threads, timing, &mut report);
                }
            }
        }
    }
    print_fastest(&report);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_for_share_of_steps_are_inserts() {
        for reads in [95, 50] {
            let steps = steps(Draw::Zipf, 1_000, reads);
            let inserts = steps.iter().filter(|&&step| step & INSERT != 0).count();
            let share = inserts as f64 / steps.len() as f64;
            assert!((share - f64::from(100 - reads) / 100.0).abs() < 0.01);
            assert!(steps.iter().all(|step| step & !INSERT < 1_000));
        }
    }
}
