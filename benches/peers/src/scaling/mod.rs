//! `scaling`: rates at several numbers of threads, and what they allow to say of more cores.

mod bound;
mod law;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Options;
use crate::adapters::{
    Counters, CountersVisitor, HOUR, Store, Visitor, visit_caches, visit_counters, visit_maps,
};
use crate::keys::{Draw, count_name, shuffled};
use crate::mixed::{Filled, Setting, steps};
use crate::reads::filled;
use crate::report::{Figure, Report, align, number, table};
use crate::rounds::{CHUNK, RATE, Ready, Timing, Work, alternate, rate};
use bound::HOT;
use law::{FEWEST_POINTS, Law};

#[derive(Args, Debug)]
pub(crate) struct ScalingArgs {
    /// Numbers of keys of reads and mixed steps
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..1 << 31))]
    keys: u32,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Numbers of cores to predict for, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "16,64", value_parser = clap::value_parser!(u16).range(1..))]
    predict: Vec<u16>,
    /// Times that handing a written cache line to another core may take, in ns, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "50,100", value_parser = clap::value_parser!(u32).range(1..))]
    transfer: Vec<u32>,
}

/// One counter that every thread adds to.
struct Counting<C> {
    counters: C,
    done: AtomicU64,
}

impl<C: Counters> Work for Counting<C> {
    fn run(&self, _position: &mut usize, until: Instant) -> u64 {
        let mut operations = 0;
        while Instant::now() < until {
            for _ in 0..CHUNK {
                self.counters.add_one(black_box(0));
            }
            operations += CHUNK as u64;
        }
        self.done.fetch_add(operations, Ordering::Relaxed);
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

    fn turn(&self, _setting: &Setting, threads: usize, timing: Timing) -> f64 {
        let rate = rate(self, threads, 0, timing);
        let done = self.done.load(Ordering::Relaxed);
        let counted = self.counters.value(0).unsigned_abs();
        assert_eq!(counted, done, "{} lost increments", C::name());
        rate
    }
}

struct Fill<'a> {
    options: &'a Options,
    keys: &'a [u32],
    lifetime: Option<Duration>,
    writes: bool,
    ready: Vec<Box<dyn Ready<Setting>>>,
}

impl Visitor for Fill<'_> {
    fn visit<S: Store>(&mut self) {
        if self.options.wants(&S::name()) && !(self.writes && S::READS_ONLY) {
            let store = filled::<S>(self.keys, self.lifetime);
            self.ready.push(Box::new(Filled(store)));
        }
    }
}

impl CountersVisitor for Fill<'_> {
    fn visit<C: Counters>(&mut self) {
        if self.options.wants(&C::name()) {
            let counters = C::build();
            counters.add_one(0);
            self.ready.push(Box::new(Counting {
                counters,
                done: AtomicU64::new(1),
            }));
        }
    }
}

/// One kind of work, which all its contenders do at every number of threads.
struct Scenario {
    name: String,
    ready: Vec<Box<dyn Ready<Setting>>>,
    setting: Setting,
}

pub(crate) fn run(options: &Options, args: &ScalingArgs) -> Report {
    let mut report = Report::new("scaling");
    let timing = Timing::of(options);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Rates at several numbers of threads. {}.",
        timing.describe()
    );
    println!(
        "This machine has {cores} cores: more threads than that measure contention under\n\
         preemption, not parallelism.\n"
    );
    let mut threads: Vec<usize> = args.threads.iter().map(|&n| usize::from(n)).collect();
    threads.sort_unstable();
    threads.dedup();
    let keys = args.keys as usize;
    let order = shuffled(keys, 11);
    let of = |lifetime: Option<Duration>| {
        lifetime.map_or("maps, without lifetimes", |_| "caches, with a lifetime")
    };
    for lifetime in [Some(HOUR), None] {
        for (what, draw, reads) in [
            ("read hits", Draw::Uniform, 100),
            ("read hits", Draw::Zipf, 100),
            ("95/5 reads/inserts", Draw::Zipf, 95),
        ] {
            let mut fill = Fill {
                options,
                keys: &order,
                lifetime,
                writes: reads < 100,
                ready: Vec::new(),
            };
            match lifetime {
                Some(_) => visit_caches(options.hashers, &mut fill),
                None => visit_maps(options.hashers, &mut fill),
            }
            let scenario = Scenario {
                name: format!(
                    "{}, {what}, {}, {} keys",
                    of(lifetime),
                    draw.name(),
                    count_name(keys as u64)
                ),
                ready: fill.ready,
                setting: Setting {
                    steps: steps(draw, keys, reads),
                },
            };
            measure(&scenario, &threads, args, cores, timing, &mut report);
        }
    }
    let mut fill = Fill {
        options,
        keys: &[],
        lifetime: None,
        writes: true,
        ready: Vec::new(),
    };
    visit_counters(options.hashers, &mut fill);
    let scenario = Scenario {
        name: "increments of one key".to_owned(),
        ready: fill.ready,
        setting: Setting { steps: Vec::new() },
    };
    measure(&scenario, &threads, args, cores, timing, &mut report);
    print_bounds(&args.transfer);
    report
}

fn case(scenario: &str, threads: usize) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{scenario}, {threads} thread{plural}")
}

fn measure(
    scenario: &Scenario,
    threads: &[usize],
    args: &ScalingArgs,
    cores: usize,
    timing: Timing,
    report: &mut Report,
) {
    if scenario.ready.is_empty() {
        return;
    }
    for &n in threads {
        let case = case(&scenario.name, n);
        alternate(&scenario.ready, &scenario.setting, &case, n, timing, report);
    }
    let parallel: Vec<usize> = threads.iter().copied().filter(|&n| n <= cores).collect();
    let known = parallel.len() >= FEWEST_POINTS;
    if known {
        println!(
            "{}: the universal scalability law X(n) = λn / (1 + σ(n − 1) + κn(n − 1)), fitted to\n\
             n = {parallel:?}. A prediction assumes that more cores are as near to each other as these.",
            scenario.name
        );
    } else {
        println!(
            "{}: only n = {parallel:?} ran in parallel, the law has three coefficients: nothing is\n\
             known of more cores, and nothing is predicted. The coefficients below are those of all\n\
             n = {threads:?}, most of which waited for a core: they tell what preemption costs.",
            scenario.name
        );
    }
    let mut table = table();
    let mut head = vec!["contender".to_owned()];
    head.extend(["λ, M op/s", "σ", "κ", "error"].map(str::to_owned));
    head.extend(args.predict.iter().map(|n| format!("M op/s at {n} cores")));
    table.set_header(head);
    for contender in &scenario.ready {
        let name = contender.name();
        let used = if known { parallel.as_slice() } else { threads };
        let points: Vec<(f64, f64)> = used
            .iter()
            .filter_map(|&n| {
                let case = case(&scenario.name, n);
                let figure = report.figures().iter().find(|figure| {
                    figure.case == case && figure.contender == name && figure.metric == RATE
                })?;
                Some((n as f64, figure.spread()?.median))
            })
            .collect();
        let mut row = vec![name.clone()];
        match Law::fit(&points) {
            None => {
                row.extend((0..4 + args.predict.len()).map(|_| "–".to_owned()));
            }
            Some(law) => {
                row.extend([law.lambda, law.sigma, law.kappa, law.error(&points)].map(number));
                row.extend(args.predict.iter().map(|&n| match known {
                    true => number(law.rate(f64::from(n))),
                    false => "not known".to_owned(),
                }));
                for (metric, value) in [("λ", law.lambda), ("σ", law.sigma), ("κ", law.kappa)] {
                    report.add(Figure {
                        case: format!("{}, fitted to n = {used:?}", scenario.name),
                        contender: name.clone(),
                        base: contender.base(),
                        metric,
                        rounds: vec![value],
                    });
                }
            }
        }
        table.add_row(row);
    }
    align(&mut table);
    println!("{table}\n");
}

fn print_bounds(transfers: &[u32]) {
    println!(
        "What a hot cache line allows at most, all threads together, whatever the number of cores:\n\
         one operation after another hands it on. Assumed is the time of one transfer between two\n\
         cores (within a die some 50 ns, between dies 100 and more); that it is never faster, that\n\
         nothing else costs anything, and that no thread does two operations in a row undisturbed.\n\
         (Few threads do that often, and then exceed it.)\n"
    );
    let mut table = table();
    let mut head = vec!["operation".to_owned(), "contender".to_owned()];
    head.extend(["transfers", "of which lines"].map(str::to_owned));
    head.extend(transfers.iter().map(|ns| format!("M op/s at {ns} ns")));
    table.set_header(head);
    for hot in &HOT {
        let mut row = vec![hot.operation.to_owned(), hot.contender.to_owned()];
        row.push(hot.transfers.to_string());
        row.push(match hot.any_key {
            true => format!("{}; of any key", hot.lines),
            false => hot.lines.to_owned(),
        });
        row.extend(transfers.iter().map(|&ns| {
            hot.most(f64::from(ns)).map_or_else(
                || "no bound".to_owned(),
                |most| format!("≤ {}", number(most)),
            )
        }));
        table.add_row(row);
    }
    println!("{table}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixed::INSERT;

    #[test]
    fn a_twentieth_of_mixed_steps_are_inserts() {
        let mixed = steps(Draw::Zipf, 1_000, 95);
        let inserts = mixed.iter().filter(|&&step| step & INSERT != 0).count();
        let share = inserts as f64 / mixed.len() as f64;
        assert!((share - 0.05).abs() < 0.01, "{share}");
        let reads = steps(Draw::Uniform, 1_000, 100);
        assert!(reads.iter().all(|&step| step < 1_000));
    }
}
