//! `reads`: read hits.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Options;
use crate::adapters::{HOUR, Plan, Store, View, Visitor, visit_bounded, visit_caches, visit_maps};
use crate::keys::{Draw, count_name, sequence, shuffled};
use crate::report::{EBBTIDE, Figure, Report, Spread, align, ratios, table};
use crate::rounds::{RATE, Ready, Timing, Work, alternate, next_chunk, rate};

#[derive(Args, Debug)]
pub(crate) struct ReadsArgs {
    /// Numbers of keys, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000,10000,100000,1000000"
    )]
    keys: Vec<usize>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    threads: Vec<usize>,
    /// Make each key depend on the value read before, so that the processor cannot overlap reads
    #[arg(long)]
    dependent: bool,
}

/// Every key of these is present: a miss would be a fault of the contender.
struct Setting {
    sequence: Vec<u32>,
    dependent: bool,
}

struct Filled<S>(S);

struct Reading<'a, S> {
    store: &'a S,
    setting: &'a Setting,
    misses: AtomicU64,
}

impl<S: Store> Reading<'_, S> {
    #[inline]
    fn read<const DEPENDENT: bool>(&self, position: &mut usize, until: Instant) -> u64 {
        let nothing = black_box(0_u64);
        let (mut operations, mut misses, mut carried) = (0, 0, 0);
        let mut view = self.store.view();
        while Instant::now() < until {
            view.renew();
            let chunk = next_chunk(&self.setting.sequence, position);
            for &key in chunk {
                match view.get(u64::from(key) | carried) {
                    Some(value) => {
                        let value = black_box(value);
                        if DEPENDENT {
                            carried = value & nothing;
                        }
                    }
                    None => misses += 1,
                }
            }
            operations += chunk.len() as u64;
        }
        self.misses.fetch_add(misses, Ordering::Relaxed);
        operations
    }
}

impl<S: Store> Work for Reading<'_, S> {
    fn run(&self, position: &mut usize, until: Instant) -> u64 {
        if self.setting.dependent {
            self.read::<true>(position, until)
        } else {
            self.read::<false>(position, until)
        }
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
        let reading = Reading {
            store: &self.0,
            setting,
            misses: AtomicU64::new(0),
        };
        let rate = rate(&reading, threads, setting.sequence.len(), timing);
        let misses = reading.misses.into_inner();
        assert_eq!(misses, 0, "{} missed keys that it holds", S::name());
        rate
    }
}

/// Builds and fills every contender that it is shown.
struct Fill<'a> {
    options: &'a Options,
    keys: &'a [u32],
    lifetime: Option<Duration>,
    ready: Vec<Box<dyn Ready<Setting>>>,
}

impl Visitor for Fill<'_> {
    fn visit<S: Store>(&mut self) {
        if self.options.wants(&S::name()) {
            let store = filled::<S>(self.keys, self.lifetime);
            self.ready.push(Box::new(Filled(store)));
        }
    }
}

/// A store that holds all of `keys`, checked.
pub(crate) fn filled<S: Store>(keys: &[u32], lifetime: Option<Duration>) -> S {
    let store = S::build(&Plan {
        entries: keys.len(),
        bound: 2 * keys.len(),
        lifetime,
    });
    for &key in keys {
        store.insert(u64::from(key), u64::from(key) + 1);
    }
    store.settle();
    let view = store.view();
    let held = keys
        .iter()
        .filter(|&&key| view.get(u64::from(key)) == Some(u64::from(key) + 1))
        .count();
    drop(view);
    assert_eq!(
        held,
        keys.len(),
        "{} holds all that it was given",
        S::name()
    );
    store
}

pub(crate) fn run(options: &Options, args: &ReadsArgs) -> Report {
    let mut report = Report::new("reads");
    let timing = Timing::of(options);
    println!(
        "Read hits, u64 -> u64, keys inserted in random order. {}.",
        timing.describe()
    );
    println!(
        "M op/s of all threads together; ns/op = threads / rate. A ratio above 1: ebbtide is faster."
    );
    println!("A held pin is renewed every 1,024 reads and compared with ebbtide's own held pin.");
    println!(
        "\"ebbtide, bounded\" may hold no more than it does: its ratio is the cost of a bound.\n"
    );
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
            visit_bounded(&mut fill);
            for draw in Draw::BOTH {
                let setting = Setting {
                    sequence: sequence(draw, keys, 12),
                    dependent: args.dependent,
                };
                for &threads in &args.threads {
                    let case = format!(
                        "{}, {}, {} keys, {threads} thread{}{}",
                        lifetime.map_or("maps, without lifetimes", |_| "caches, with a lifetime"),
                        draw.name(),
                        count_name(keys as u64),
                        if threads == 1 { "" } else { "s" },
                        if args.dependent { ", dependent" } else { "" },
                    );
                    alternate(&fill.ready, &setting, &case, threads, timing, &mut report);
                }
            }
        }
    }
    print_fastest(&report);
    report
}

/// The targets as they are put: ebbtide beside the fastest peer of each setting.
pub(crate) fn print_fastest(report: &Report) {
    let figures = || {
        report
            .figures()
            .iter()
            .filter(|figure| figure.metric == RATE)
    };
    let mut table = table();
    table.set_header([
        "setting",
        "ebbtide as",
        "M op/s",
        "fastest peer",
        "M op/s",
        "ebbtide/peer",
    ]);
    let mut rows = 0;
    for ours in figures().filter(|figure| figure.contender == figure.base) {
        let peers = figures()
            .filter(|peer| peer.case == ours.case && peer.base == ours.base)
            .filter(|peer| !peer.contender.starts_with(EBBTIDE));
        let Some(fastest) = peers.max_by(|a, b| median(a).total_cmp(&median(b))) else {
            continue;
        };
        table.add_row([
            ours.case.clone(),
            ours.contender.clone(),
            show(ours.spread()),
            fastest.contender.clone(),
            show(fastest.spread()),
            show(Spread::of(&ratios(ours, fastest))),
        ]);
        rows += 1;
    }
    if rows > 0 {
        align(&mut table);
        println!("ebbtide beside the fastest peer of each setting\n{table}\n");
    }
}

fn median(figure: &Figure) -> f64 {
    figure.spread().map_or(0.0, |spread| spread.median)
}

fn show(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| spread.show())
}
