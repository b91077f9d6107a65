//! Atomic updates: sums that are exact through `increment` and `compute`, whatever expires or is
//! removed meanwhile.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use ebbtide::{
    Builder, Cache, Computed, Counter, CounterError, Lifetime, ManualClock, Op, RemovalCause,
};
use proptest::prelude::*;

use crate::common::matrix::{Config, for_each};
use crate::common::model::{Model, Settings};
use crate::common::pause::{Gate, PausingClock, pause_at};
use crate::common::{NS, S, ZERO, assert_counts_agree, promptly};

const THREADS: u64 = 2;
const EACH: u64 = 20_000;

/// Sums up what leaves for good: a replaced value lives on in its successor.
#[derive(Clone, Default)]
struct Departed {
    sum: Arc<AtomicI64>,
    events: Arc<AtomicU64>,
}

impl Departed {
    fn hear(&self, number: i64, cause: RemovalCause) {
        self.events.fetch_add(1, Ordering::SeqCst);
        if cause != RemovalCause::Replaced {
            self.sum.fetch_add(number, Ordering::SeqCst);
        }
    }
}

/// Runs `add` on some threads, while others remove, expire, sweep and read.
fn race<V: Clone + Send + Sync + 'static>(
    config: Config,
    number: fn(&V) -> i64,
    add: fn(&Cache<u64, V>, u64, Lifetime),
) {
    let (clock, departed) = (ManualClock::new(), Departed::default());
    let builder: Builder<u64, V> = config.builder().clock(clock.clone());
    let cache = {
        let departed = departed.clone();
        let builder = match config.bound {
            // Fewer than there are keys.
            Some(_) => builder.max_entries(2),
            None => builder,
        };
        builder
            .on_removal(move |_: &u64, value: &V, cause| departed.hear(number(value), cause))
            .build()
            .unwrap()
    };
    let adding = AtomicU64::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, adding) = (&cache, &adding);
            scope.spawn(move || {
                for i in 0..EACH {
                    let life = match i % 3 {
                        0 => Lifetime::Never,
                        _ => Lifetime::For(1_000 * NS),
                    };
                    add(cache, (i + thread) % 3, life);
                }
                adding.fetch_sub(1, Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            let mut i = 0;
            while adding.load(Ordering::SeqCst) > 0 {
                i += 1;
                let key = i % 3;
                match i % 11 {
                    0 => drop(cache.invalidate(&key)),
                    1 => drop(cache.remove(&key)),
                    2 => drop(cache.remove_if(&key, |value| number(value) % 2 == 0)),
                    3 => drop(cache.compute(key, |_| Op::Remove)),
                    4 => drop(cache.expire(&key, 100 * NS)),
                    5 => drop(cache.expire(&key, ZERO)),
                    6 => drop(cache.persist(&key)),
                    7 if i % 5 == 0 => cache.retain(|_, value| number(value) % 3 != 0),
                    8 if i % 5 == 0 => cache.invalidate_all(),
                    9 => drop(cache.reap_at_most(2)),
                    _ => clock.advance(300 * NS),
                }
                if let Some(value) = cache.get(&key) {
                    assert!(number(&value) >= 1, "a live one has been counted up");
                }
            }
        });
    });
    let left: i64 = cache.iter().map(|(_, value)| number(&value)).sum();
    cache.invalidate_all();
    assert_eq!(cache.entry_count(), 0);
    let sum = departed.sum.load(Ordering::SeqCst);
    assert!(left <= sum);
    assert_eq!(sum, (THREADS * EACH) as i64);
    assert_eq!(
        departed.events.load(Ordering::SeqCst),
        cache.stats().inserted
    );
    assert_counts_agree(&cache);
}

fn small_configs() -> impl Iterator<Item = Config> {
    Config::sweeping().filter(|config| config.listener)
}

#[test]
fn no_increment_is_lost_to_expiry_or_removal() {
    for_each(small_configs(), |config| {
        race::<Counter>(config, Counter::get, |cache, key, life| {
            cache.increment_with_ttl(&key, 1, life).unwrap();
        });
    });
}

#[test]
fn no_addition_through_compute_is_lost_to_expiry_or_removal() {
    for_each(small_configs(), |config| {
        race::<i64>(
            config,
            |number| *number,
            |cache, key, life| {
                cache.compute(key, |old| match old {
                    Some(number) => Op::Put(number + 1),
                    None => Op::PutWithTtl(1, life),
                });
            },
        );
    });
    // With a new lifetime each time.
    for_each(small_configs(), |config| {
        race::<i64>(
            config,
            |number| *number,
            |cache, key, life| {
                cache.compute(key, |old| {
                    Op::PutWithTtl(old.map_or(1, |number| number + 1), life)
                });
            },
        );
    });
}

#[test]
fn increments_and_computes_and_swaps_of_one_counter_add_up() {
    for_each(small_configs(), |config| {
        race::<Counter>(config, Counter::get, |cache, key, life| {
            let number = cache.get(&key).map_or(0, |counter| counter.get());
            match number % 4 {
                0 => drop(cache.increment(&key, 1).unwrap()),
                1 => {
                    cache.compute(key, |old| match old {
                        Some(counter) => Op::Put(Counter::new(counter.get() + 1)),
                        None => Op::PutWithTtl(Counter::new(1), life),
                    });
                }
                2 => {
                    cache.compute(key, |old| {
                        let number = old.map_or(0, Counter::get);
                        Op::PutWithTtl(Counter::new(number + 1), life)
                    });
                }
                _ => {
                    let (old, new) = (Counter::new(number), Counter::new(number + 1));
                    if cache.compare_and_swap(key, &old, new).is_err() {
                        cache.increment_with_ttl(&key, 1, life).unwrap();
                    }
                }
            }
        });
    });
}

#[test]
fn a_removed_counter_says_its_last_number_and_the_next_begins_anew() {
    let cache: Cache<String, Counter> = Cache::unbounded();
    assert_eq!(cache.increment("a", 5), Ok(5));
    assert_eq!(cache.remove("a"), Some(5.into()));
    assert_eq!(cache.increment("a", 1), Ok(1));
    cache.insert("a".into(), Counter::new(7));
    assert_eq!(cache.increment("a", -10), Ok(-3));
    assert!(cache.expire("a", ZERO));
    assert_eq!(cache.get("a"), None);
}

#[test]
fn a_counter_at_the_end_of_its_range_stays_there() {
    const MOST: i64 = (1 << 62) - 1;
    const LEAST: i64 = -(1 << 62);
    let cache: Cache<u64, Counter> = Cache::unbounded();
    assert_eq!(cache.increment(&1, MOST), Ok(MOST));
    assert_eq!(cache.increment(&2, LEAST), Ok(LEAST));
    for delta in [1, 2, MOST, i64::MAX] {
        assert_eq!(cache.increment(&1, delta), Err(CounterError::Overflow));
        assert_eq!(cache.increment(&2, -delta), Err(CounterError::Overflow));
        assert_eq!(
            cache.increment_with_ttl(&1, delta, S),
            Err(CounterError::Overflow)
        );
    }
    assert_eq!(cache.get(&1), Some(MOST.into()));
    assert_eq!(cache.get(&2), Some(LEAST.into()));
    assert_eq!(cache.increment(&1, -1), Ok(MOST - 1));
    assert_eq!(cache.increment(&1, LEAST), Ok(-2));
    for delta in [MOST + 1, LEAST - 1, i64::MIN, i64::MAX] {
        assert_eq!(cache.increment(&3, delta), Err(CounterError::Overflow));
    }
    assert!(
        !cache.contains_key(&3),
        "a refused one leaves nothing behind"
    );
}

#[test]
fn only_the_increment_that_creates_a_counter_gives_it_its_lifetime() {
    let clock = ManualClock::new();
    let cache: Cache<u64, Counter> = Cache::builder().clock(clock.clone()).build().unwrap();
    for expected in 1..=9 {
        assert_eq!(cache.increment_with_ttl(&1, 1, 10 * S), Ok(expected));
        clock.advance(S);
    }
    assert_eq!(cache.ttl(&1), Some(Lifetime::For(S)));
    clock.advance(S);
    assert_eq!(
        cache.increment_with_ttl(&1, 1, 10 * S),
        Ok(1),
        "a new window"
    );
    assert_eq!(cache.ttl(&1), Some(Lifetime::For(10 * S)));
}

#[test]
fn an_increment_that_stalls_over_the_deadline_is_counted_once_somewhere() {
    for reading in 1..10 {
        let (clock, departed) = (PausingClock::new(), Departed::default());
        let cache: Cache<u64, Counter> = {
            let departed = departed.clone();
            Cache::builder()
                .clock(clock.clone())
                .shards(1)
                .on_removal(move |_: &u64, value: &Counter, cause| {
                    departed.hear(value.get(), cause);
                })
                .build()
                .unwrap()
        };
        assert_eq!(cache.increment_with_ttl(&1, 10, 10 * S), Ok(10));
        clock.set(9 * S);
        let gate = Gate::new();
        let thread = {
            let (cache, gate) = (cache.clone(), gate.clone());
            thread::spawn(move || {
                pause_at(reading, &gate);
                let sum = cache.increment_with_ttl(&1, 1, 10 * S).unwrap();
                // If it was through sooner, nobody is waiting.
                gate.open();
                sum
            })
        };
        let stalled = loop {
            if gate.is_reached_within(S / 1_000) {
                break true;
            }
            if thread.is_finished() && !gate.is_reached_within(ZERO) {
                break false;
            }
        };
        clock.set(10 * S);
        let found = cache.get(&1);
        gate.open();
        let sum = thread.join().unwrap();
        if !stalled {
            assert_eq!(sum, 11);
            assert!(reading > 1, "it never looked at the clock");
            break;
        }
        assert!(found.is_none());
        assert!(sum == 11 || sum == 1);
        clock.set(9 * S);
        // What was said to be absent is counted on in its event, or a new counter was begun.
        let now = cache.get(&1).map(|counter| counter.get());
        assert_eq!(now, (sum == 1).then_some(1));
        cache.invalidate_all();
        assert_eq!(departed.sum.load(Ordering::SeqCst), 11);
        assert_counts_agree(&cache);
    }
}

#[test]
fn an_increment_goes_on_while_the_shard_is_locked() {
    use crate::common::pause::GatedKey;
    let cache: Cache<GatedKey, Counter> = Cache::builder().shards(1).build().unwrap();
    cache.increment(&GatedKey::new(1), 1).unwrap();
    cache.increment(&GatedKey::new(2), 1).unwrap();
    let gate = Gate::new();
    let holder = {
        let (cache, gate) = (cache.clone(), gate.clone());
        thread::spawn(move || cache.remove(&GatedKey::waiting(1, &gate)))
    };
    gate.wait_reached();
    let other = cache.clone();
    promptly("increments while the lock is held", move || {
        let key = GatedKey::new(2);
        assert_eq!(other.increment(&key, 1), Ok(2));
        let double = |old: Option<&Counter>| Op::Put(Counter::new(old.unwrap().get() * 2));
        assert_eq!(other.compute(key.clone(), double), Computed::Replaced);
        assert_eq!(
            other.compare_and_swap(key.clone(), &4.into(), 9.into()),
            Ok(())
        );
        assert_eq!(other.get(&key), Some(9.into()));
        // The one that is being removed, too, until it has left.
        assert_eq!(other.increment(&GatedKey::new(1), 1), Ok(2));
    });
    gate.open();
    assert_eq!(holder.join().unwrap(), Some(2.into()));
}

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Ttl(u8),
    Increment(u8, i64),
    IncrementWith(u8, i64, u64),
    Double(u8),
    DoubleWith(u8, u64),
    Swap(u8, i64),
    Remove(u8),
    Expire(u8, u64),
    Persist(u8),
    Touch(u8),
    Insert(u8, i64),
    Advance(u64),
    TurnBack(u64),
    Reap,
}

fn step() -> impl Strategy<Value = Step> {
    let k = || 0u8..4;
    let ms = || 0u64..12_000;
    prop_oneof![
        2 => k().prop_map(Step::Get),
        1 => k().prop_map(Step::Ttl),
        4 => (k(), -3i64..9).prop_map(|(k, d)| Step::Increment(k, d)),
        4 => (k(), -3i64..9, ms()).prop_map(|(k, d, l)| Step::IncrementWith(k, d, l)),
        2 => k().prop_map(Step::Double),
        2 => (k(), ms()).prop_map(|(k, l)| Step::DoubleWith(k, l)),
        2 => (k(), 0i64..9).prop_map(|(k, n)| Step::Swap(k, n)),
        1 => k().prop_map(Step::Remove),
        2 => (k(), ms()).prop_map(|(k, l)| Step::Expire(k, l)),
        1 => k().prop_map(Step::Persist),
        1 => k().prop_map(Step::Touch),
        1 => (k(), 0i64..9).prop_map(|(k, n)| Step::Insert(k, n)),
        4 => ms().prop_map(Step::Advance),
        2 => (0u64..4_000).prop_map(Step::TurnBack),
        1 => Just(Step::Reap),
    ]
}

/// Numbers as the model's tags and serial numbers.
fn bits(number: i64) -> u64 {
    number.cast_unsigned()
}

fn run(live: Option<u64>, idle: Option<u64>, shards: usize, steps: Vec<Step>) {
    let ms = std::time::Duration::from_millis;
    let clock = ManualClock::new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut builder = Cache::<u8, Counter>::builder()
        .clock(clock.clone())
        .shards(shards);
    if let Some(live) = live {
        builder = builder.time_to_live(ms(live));
    }
    if let Some(idle) = idle {
        builder = builder.time_to_idle(ms(idle));
    }
    let cache = {
        let events = Arc::clone(&events);
        builder
            .on_removal(move |key: &u8, value: &Counter, cause| {
                let event = (*key, bits(value.get()) as usize, cause);
                events.lock().unwrap().push(event);
            })
            .build()
            .unwrap()
    };
    let settings = Settings {
        live: live.map(ms),
        idle: idle.map(ms),
        policy: false,
        bound: None,
        listener: true,
    };
    let mut model = Model::new(settings, clock.clone());
    let add = |model: &mut Model, key: u8, delta: i64, life: Option<Lifetime>| {
        let sum = match life {
            None => cache.increment(&key, delta),
            Some(life) => cache.increment_with_ttl(&key, delta, life),
        };
        let sum = sum.unwrap();
        match model.number(key) {
            // Of one that may be over, the answer tells whether it was.
            Some(number) if number.cast_signed() + delta == sum && model.may_live(key) => {
                model.observe(key, Some(number));
                model.change_in_place(key, bits(sum) as usize, bits(sum));
            }
            _ => {
                model.observe(key, None);
                assert_eq!(sum, delta);
                model.insert_absent(key, bits(sum) as usize, bits(sum), life);
            }
        }
    };
    for step in steps {
        match step {
            Step::Get(k) => model.used(k, cache.get(&k).map(|counter| bits(counter.get()))),
            Step::Ttl(k) => model.observe_ttl(k, cache.ttl(&k)),
            Step::Increment(k, delta) => add(&mut model, k, delta, None),
            Step::IncrementWith(k, delta, life) => {
                add(&mut model, k, delta, Some(ms(life).into()));
            }
            Step::Double(k) | Step::DoubleWith(k, _) => {
                let life = match step {
                    Step::DoubleWith(_, life) => Some(Lifetime::For(ms(life))),
                    _ => None,
                };
                let mut found = None;
                cache.compute(k, |old| {
                    found = old.map(Counter::get);
                    match (old, life) {
                        (None, _) => Op::Keep,
                        (Some(old), None) => Op::Put(Counter::new(old.get() * 2 % 1_000)),
                        (Some(old), Some(life)) => {
                            Op::PutWithTtl(Counter::new(old.get() * 2 % 1_000), life)
                        }
                    }
                });
                if model.observe(k, found.map(bits)) {
                    let new = bits(found.unwrap() * 2 % 1_000);
                    match life {
                        None => model.change_in_place(k, new as usize, new),
                        Some(life) => drop(model.replace_with(k, new as usize, new, life)),
                    }
                }
            }
            Step::Swap(k, number) => {
                let expected = Counter::new(number);
                match cache.compare_and_swap(k, &expected, Counter::new(number + 1)) {
                    Ok(()) => {
                        model.observe(k, Some(bits(number)));
                        let new = bits(number + 1);
                        model.change_in_place(k, new as usize, new);
                    }
                    Err(_) => model.not_equal(k, bits(number)),
                }
            }
            Step::Remove(k) => {
                let found = cache.remove(&k).map(|counter| bits(counter.get()));
                if model.observe(k, found) {
                    model.remove(k);
                }
            }
            Step::Expire(k, life) => {
                if model.observe_whether(k, cache.expire(&k, ms(life))) {
                    model.expire(k, ms(life).into());
                }
            }
            Step::Persist(k) => {
                if model.observe_whether(k, cache.persist(&k)) {
                    model.persist(k);
                }
            }
            Step::Touch(k) => {
                if model.observe_whether(k, cache.touch(&k)) {
                    model.touch(k);
                }
            }
            Step::Insert(k, number) => {
                cache.insert(k, Counter::new(number));
                model.insert(k, bits(number) as usize, bits(number), None);
            }
            Step::Advance(length) => clock.advance(ms(length)),
            Step::TurnBack(length) => clock.step_back(ms(length)),
            Step::Reap => {
                assert!(cache.reap(20 * S).finished);
                model.reaped(true);
            }
        }
        assert_counts_agree(&cache);
        model.hear(&std::mem::take(&mut *events.lock().unwrap()));
        assert_eq!(cache.entry_count(), model.keys().len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_operations_on_counters_agree_with_the_model(
        live in prop::option::of(1_000u64..15_000),
        idle in prop::option::of(1_000u64..15_000),
        shards in prop::sample::select(vec![1usize, 4]),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        run(live, idle, shards, steps);
    }
}
