//! Several threads, few keys, every operation, a clock that is stepped: nothing comes back, nothing
//! is lost, each value leaves once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Cache, Lifetime, ManualClock, Op, Reaper};

use crate::common::matrix::{Config, for_each};
use crate::common::{
    CountedKey, Events, Ledger, PATIENCE, S, Tracked, assert_counts_agree, eventually,
};

/// How long each configuration is worked on.
const SPELL: Duration = Duration::from_millis(250);

const KEYS: u8 = 5;
const MS: Duration = Duration::from_millis(1);

/// xorshift64*, so that runs differ only by their schedules.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

struct World {
    cache: Cache<CountedKey, Tracked>,
    clock: ManualClock,
    ledger: Ledger,
    keys: Arc<AtomicI64>,
    events: Events<u8>,
}

impl World {
    fn key(&self, number: u8) -> CountedKey {
        CountedKey::new(number, &self.keys)
    }

    /// A value that says by its tag to which key it belongs.
    fn value(&self, key: u8) -> Tracked {
        self.ledger.value(u64::from(key))
    }
}

/// What one thread has seen of each key. A value that was once found gone (absent, or another in
/// its place) is never found again: nobody stores a value twice.
#[derive(Default)]
struct Witness {
    last: HashMap<u8, usize>,
    gone: HashSet<usize>,
}

impl Witness {
    fn sees(&mut self, key: u8, found: Option<(u64, usize)>) {
        if let Some((tag, serial)) = found {
            assert_eq!(tag, u64::from(key), "a value of another key");
            assert!(
                !self.gone.contains(&serial),
                "key {key}: {serial} has come back"
            );
        }
        let before = match found {
            Some((_, serial)) => self.last.insert(key, serial),
            None => self.last.remove(&key),
        };
        if let Some(before) = before
            && found.is_none_or(|(_, serial)| serial != before)
        {
            self.gone.insert(before);
        }
    }
}

fn id(value: &Tracked) -> (u64, usize) {
    (value.tag(), value.serial())
}

/// One random operation.
fn step(world: &World, random: &mut Random, witness: &mut Witness) {
    let World { cache, clock, .. } = world;
    let k = random.below(u64::from(KEYS)) as u8;
    let life = Duration::from_micros(1 + random.below(3_000));
    match random.below(34) {
        0..=3 => witness.sees(k, cache.get(&k).as_ref().map(id)),
        4 => witness.sees(k, cache.with(&k, id)),
        5 => witness.sees(k, cache.pin().get(&k).map(id)),
        6 => witness.sees(k, cache.peek(&k).as_ref().map(id)),
        7 => {
            let all: Vec<u8> = (0..KEYS).collect();
            for (key, found) in all.iter().zip(cache.get_many(&all)) {
                witness.sees(*key, found.as_ref().map(id));
            }
        }
        8 => {
            for (key, value) in cache {
                witness.sees(key.number(), Some(id(&value)));
            }
        }
        9 => {
            let pinned = cache.pin();
            for (key, value) in pinned.iter() {
                witness.sees(key.number(), Some(id(value)));
            }
        }
        10 => {
            if cache.ttl(&k).is_none() || !cache.contains_key(&k) {
                witness.sees(k, None);
            }
        }
        11..=13 => cache.insert(world.key(k), world.value(k)),
        14..=16 => cache.insert_with_ttl(world.key(k), world.value(k), life),
        17 => drop(cache.insert_if_absent(world.key(k), world.value(k))),
        18 => {
            if let Some(value) = cache.remove(&k) {
                witness.sees(k, Some(id(&value)));
                witness.sees(k, None);
            }
        }
        19 => drop(cache.invalidate(&k)),
        20 => drop(cache.remove_if(&k, |value| value.serial() % 2 == 0)),
        21 => drop(cache.expire(&k, life)),
        22 => drop(cache.persist(&k)),
        23 => drop(cache.touch(&k)),
        24..=25 => {
            cache.compute(world.key(k), |old| match old {
                Some(old) if old.serial() % 3 == 0 => Op::PutWithTtl(world.value(k), life.into()),
                Some(old) if old.serial() % 3 == 1 => Op::Remove,
                _ => Op::Put(world.value(k)),
            });
        }
        26 => {
            let expected = world.value(k);
            drop(cache.compare_and_swap(world.key(k), &expected, world.value(k)));
        }
        27 => match random.below(20) {
            0 => cache.invalidate_all(),
            1 => cache.drain().take(2).for_each(drop),
            2 => cache.retain(|_, value| value.serial() % 2 == 0),
            _ => assert!(cache.live_count() <= u64::from(KEYS) + 1),
        },
        28..=29 => clock.advance(life / 4),
        30 => clock.step_back(life / 8),
        31 => drop(cache.reap(MS)),
        32 => drop(cache.reap_at_most(random.below(3))),
        _ => drop(cache.stats()),
    }
}

fn hammer(config: Config, reaper: Reaper, idle: bool) {
    let (clock, events) = (ManualClock::new(), Events::<u8>::new());
    clock.advance(1_000 * S);
    let mut builder = config
        .builder()
        .clock(clock.clone())
        .reaper(reaper.strategy(config.strategy()).interval(MS));
    if idle {
        builder = builder.time_to_idle(2 * MS);
    }
    if config.bound.is_some() {
        // Fewer than there are keys.
        builder = builder.max_entries(3);
    }
    if config.listener {
        let events = events.clone();
        builder = builder.on_removal(move |key: &CountedKey, value: &Tracked, cause| {
            events.record((key.number(), value.serial(), cause));
        });
    }
    let world = World {
        cache: builder.build().unwrap(),
        clock,
        ledger: Ledger::new(),
        keys: Arc::default(),
        events,
    };
    let begin = Instant::now();
    thread::scope(|scope| {
        for seed in 1..=4 {
            let world = &world;
            scope.spawn(move || {
                let (mut random, mut witness) = (Random(seed), Witness::default());
                while begin.elapsed() < SPELL {
                    step(world, &mut random, &mut witness);
                }
            });
        }
    });
    let World {
        cache,
        clock,
        ledger,
        keys,
        events,
    } = world;
    let bound = config.bound.map_or(u64::from(KEYS), |_| 3);
    assert!(
        cache.entry_count() <= bound,
        "{} entries",
        cache.entry_count()
    );
    // What is left with a deadline goes, and nothing else.
    clock.advance(3_600 * S);
    let lasting = cache.live_count();
    eventually("what is due is reclaimed", || {
        cache.reap(S);
        cache.entry_count() == lasting && cache.stats().limbo == 0
    });
    // (A worker may be between taking values out of limbo and counting them.)
    eventually("the counts come to rest", || {
        let stats = cache.stats();
        stats.inserted - stats.entries == stats.dropped
    });
    assert_counts_agree(&cache);
    events.assert_each_once();
    if config.listener {
        let stats = cache.stats();
        assert_eq!(events.all().len() as u64, stats.inserted - stats.entries);
    }
    assert_eq!(cache.stats().panics, 0);
    drop(cache);
    ledger.assert_all_dropped_once();
    assert_eq!(keys.load(Ordering::SeqCst), 0, "keys are left");
}

#[test]
fn many_threads_on_few_keys_reaped_by_hand() {
    for_each(Config::all(), |config| {
        hammer(config, Reaper::manual(), config.shards == 1);
    });
}

#[test]
fn many_threads_on_few_keys_with_workers() {
    for_each(Config::all(), |config| {
        hammer(config, Reaper::dedicated(2), config.shards != 1);
    });
}

#[test]
fn a_key_that_is_only_ever_replaced_is_always_there_and_never_older() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .shards(1)
        .build()
        .unwrap();
    cache.insert(0, 0);
    let (end, latest) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..2 {
            let (cache, end, latest) = (&cache, &end, &latest);
            scope.spawn(move || {
                let mut last = 0;
                while !end.load(Ordering::Relaxed) {
                    let least = latest.load(Ordering::SeqCst);
                    let found = match reader {
                        0 => cache.get(&0),
                        _ => cache
                            .iter()
                            .find(|(key, _)| *key == 0)
                            .map(|(_, value)| value),
                    };
                    let Some(found) = found else {
                        panic!("key 0 was there all the time");
                    };
                    assert!(
                        found >= last.max(least),
                        "{found} after {last}, {least} stored"
                    );
                    last = found;
                    assert!(!cache.insert_if_absent(0, u64::MAX));
                }
            });
        }
        // Deadlines of the old values pass while their successors live on.
        let begin = Instant::now();
        let mut value = 0;
        while begin.elapsed() < 2 * SPELL {
            value += 1;
            match value % 3 {
                0 => cache.insert_with_ttl(0, value, 10 * MS),
                1 => cache.insert(0, value),
                _ => {
                    cache.compute(0, |_| Op::PutWithTtl(value, Lifetime::For(10 * MS)));
                }
            }
            latest.store(value, Ordering::SeqCst);
            if value % 3 == 1 {
                // It has none now.
                clock.advance(10 * MS);
            }
            // Others make the index grow and shrink around it.
            let other = 1 + value % 5_000;
            if value / 5_000 % 2 == 0 {
                cache.insert(other, 0);
            } else {
                cache.remove(&other);
            }
            if value % 500 == 0 {
                cache.reap(MS);
            }
        }
        end.store(true, Ordering::Relaxed);
    });
    cache.validate();
}

#[test]
fn a_walk_meets_each_lasting_key_once_whatever_is_replaced_around_it() {
    const LASTING: u64 = 3_000;
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(ManualClock::new())
        .shards(2)
        .build()
        .unwrap();
    (0..LASTING).for_each(|key| cache.insert(key, 0));
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let (cache, end) = (&cache, &end);
        scope.spawn(move || {
            let mut random = Random(9);
            let mut value = 0;
            while !end.load(Ordering::Relaxed) {
                value += 1;
                cache.insert(random.below(LASTING), value);
                // A crowd that comes and goes.
                let other = LASTING + value % 20_000;
                if value / 20_000 % 2 == 0 {
                    cache.insert(other, value);
                } else {
                    cache.invalidate(&other);
                }
            }
        });
        let begin = Instant::now();
        let mut walks = 0;
        while begin.elapsed() < 2 * SPELL || walks < 4 {
            let keys: Vec<u64> = match walks % 3 {
                0 => cache.iter().map(|(key, _)| key).collect(),
                1 => cache.pin().iter().map(|(key, _)| *key).collect(),
                _ => {
                    let mut keys = Vec::new();
                    cache.retain(|key, _| {
                        keys.push(*key);
                        true
                    });
                    keys
                }
            };
            let mut met = vec![0u8; LASTING as usize];
            keys.iter()
                .filter(|key| **key < LASTING)
                .for_each(|key| met[*key as usize] += 1);
            let wrong = met.iter().position(|&times| times != 1);
            assert_eq!(
                wrong,
                None,
                "walk {walks} met it {:?} times",
                wrong.map(|k| met[k])
            );
            walks += 1;
        }
        end.store(true, Ordering::Relaxed);
    });
    cache.validate();
}

#[test]
fn one_hot_key_is_rewritten_on_each_miss_while_a_sweeper_ticks() {
    let (ledger, clock, events) = (Ledger::new(), ManualClock::new(), Events::new());
    let cache: Cache<u64, Tracked> = Cache::builder()
        .clock(clock.clone())
        .on_removal(events.listener())
        .build()
        .unwrap();
    const MISSES: u64 = 300;
    let (begin, misses) = (Instant::now(), AtomicU64::new(0));
    let goes_on = || misses.load(Ordering::Relaxed) < MISSES && begin.elapsed() < PATIENCE;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while goes_on() {
                    if cache.get(&1).is_none() {
                        misses.fetch_add(1, Ordering::Relaxed);
                        cache.insert_with_ttl(1, ledger.value(1), MS);
                    }
                }
            });
        }
        scope.spawn(|| {
            while goes_on() {
                clock.advance(MS / 3);
                cache.reap(MS);
            }
        });
    });
    let misses = misses.load(Ordering::Relaxed);
    assert!(misses >= MISSES, "{misses} misses");
    assert_eq!(cache.stats().inserted, misses);
    assert_counts_agree(&cache);
    events.assert_each_once();
    assert_eq!(events.all().len() as u64, misses - cache.entry_count());
    drop(cache);
    ledger.assert_all_dropped_once();
}
