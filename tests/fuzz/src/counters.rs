//! Counters: increments within and beyond the range, changes in place, and everything that ends
//! one, against the same model. A value is known by its number alone.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use arbitrary::{Result, Unstructured};
use ebbtide::{Cache, Computed, Counter, CounterError, Lifetime, ManualClock, Op};

use crate::common::model::{Model, policy};
use crate::common::{CountedKey, Events, assert_counts_agree};
use crate::{AMPLE, Case, Life, arbitrary_life, builder, lifetime};

/// The ends of a counter's range, as documented.
const LEAST: i64 = -(1 << 62);
const MOST: i64 = (1 << 62) - 1;

#[derive(Clone, Copy, Debug)]
enum Wish {
    Keep,
    Remove,
    /// Add this, keep the deadline.
    Add(i64),
    AddWith(i64, Life),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u8),
    With(u8),
    Pinned(u8),
    Iter,
    Ttl(u8),
    Increment(u8, i64),
    IncrementWith(u8, i64, Life),
    Compute(u8, Wish),
    Swap(u8, i64, i64),
    /// As `Swap`, from the number that is there.
    SwapPresent(u8, i64),
    Insert(u8, i64),
    InsertWith(u8, i64, Life),
    InsertIfAbsent(u8, i64),
    Remove(u8),
    /// Whether it should go.
    RemoveIf(u8, bool),
    RetainOdd,
    Drain,
    InvalidateAll,
    Expire(u8, Life),
    Persist(u8),
    Touch(u8),
    Advance(u64),
    TurnBack(u64),
    Reap,
    ReapAtMost(u64),
}

/// Few, so that much happens to each.
fn key(u: &mut Unstructured<'_>) -> Result<u8> {
    u.int_in_range(0..=3)
}

/// Mostly small; else near, at or beyond an end of the range.
fn number(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=19u8)? {
        0 => MOST - u.int_in_range(-2..=2)?,
        1 => LEAST + u.int_in_range(-2..=2)?,
        2 => *u.choose(&[i64::MAX, i64::MIN, MOST / 2, LEAST / 2])?,
        _ => u.int_in_range(-3..=9)?,
    })
}

fn arbitrary_step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=41u8)? {
        0 => Step::Get(key(u)?),
        1 => Step::With(key(u)?),
        2 => Step::Pinned(key(u)?),
        3 => Step::Iter,
        4 => Step::Ttl(key(u)?),
        5..10 => Step::Increment(key(u)?, number(u)?),
        10..15 => Step::IncrementWith(key(u)?, number(u)?, arbitrary_life(u)?),
        15 => Step::Compute(key(u)?, Wish::Keep),
        16 => Step::Compute(key(u)?, Wish::Remove),
        17 | 18 => Step::Compute(key(u)?, Wish::Add(number(u)?)),
        19 | 20 => Step::Compute(key(u)?, Wish::AddWith(number(u)?, arbitrary_life(u)?)),
        21 => Step::Swap(key(u)?, number(u)?, number(u)?),
        22 | 23 => Step::SwapPresent(key(u)?, number(u)?),
        24 => Step::Insert(key(u)?, number(u)?),
        25 => Step::InsertWith(key(u)?, number(u)?, arbitrary_life(u)?),
        26 => Step::InsertIfAbsent(key(u)?, number(u)?),
        27 => Step::Remove(key(u)?),
        28 => Step::RemoveIf(key(u)?, u.arbitrary()?),
        29 => match u.int_in_range(0..=5u8)? {
            // Seldom: what they end has no history.
            0 => Step::RetainOdd,
            1 => Step::Drain,
            2 => Step::InvalidateAll,
            _ => Step::Iter,
        },
        30 | 31 => Step::Get(key(u)?),
        32 | 33 => Step::Expire(key(u)?, arbitrary_life(u)?),
        34 => Step::Persist(key(u)?),
        35 => Step::Touch(key(u)?),
        36..39 => Step::Advance(u.int_in_range(0..=12_000)?),
        39 => Step::TurnBack(u.int_in_range(0..=6_000)?),
        40 => Step::Reap,
        _ => Step::ReapAtMost(u.int_in_range(0..=2)?),
    })
}

/// Numbers as the model's tags and serial numbers.
fn bits(number: i64) -> u64 {
    number.cast_unsigned()
}

fn tag(counter: &Counter) -> u64 {
    bits(counter.get())
}

fn in_range(number: i64) -> bool {
    (LEAST..=MOST).contains(&number)
}

/// A new counter's number: what is beyond the range becomes its end.
fn clamped(number: i64) -> i64 {
    number.clamp(LEAST, MOST)
}

/// A cache of counters and its model.
struct Rig {
    cache: Cache<CountedKey, Counter>,
    model: Model,
    clock: ManualClock,
    begin: Instant,
    events: Events<u8>,
    keys: Arc<AtomicI64>,
    case: Case,
    evicted: u64,
}

impl Rig {
    fn new(case: Case) -> Self {
        let begin = Instant::now();
        let (clock, events) = (ManualClock::new(), Events::<u8>::new());
        let mut builder = builder::<CountedKey, Counter>(&case, &clock);
        if case.settings.policy {
            builder = builder.expiry(|_: &CountedKey, counter: &Counter| policy(tag(counter)));
        }
        if case.settings.listener {
            let events = events.clone();
            builder = builder.on_removal(move |key: &CountedKey, counter: &Counter, cause| {
                events.record((key.number(), tag(counter) as usize, cause));
            });
        }
        Rig {
            cache: builder.build().unwrap(),
            model: Model::new(case.settings.clone(), clock.clone()),
            clock,
            begin,
            events,
            keys: Arc::default(),
            case,
            evicted: 0,
        }
    }

    fn key(&self, number: u8) -> CountedKey {
        CountedKey::new(number, &self.keys)
    }

    /// The number that the key's entry has if it is alive.
    fn possible(&self, key: u8) -> Option<i64> {
        let number = self.model.number(key)?;
        self.model.may_live(key).then_some(number.cast_signed())
    }

    fn step(&mut self, step: Step) {
        let (cache, model) = (&self.cache, &mut self.model);
        match step {
            Step::Get(k) => model.used(k, cache.get(&k).as_ref().map(tag)),
            Step::With(k) => model.used(k, cache.with(&k, tag)),
            Step::Pinned(k) => model.used(k, cache.pin().get(&k).map(tag)),
            Step::Iter => {
                let mut found = BTreeMap::new();
                for (key, counter) in cache {
                    let twice = found.insert(key.number(), tag(&counter));
                    assert_eq!(twice, None);
                }
                model.observe_all(found);
            }
            Step::Ttl(k) => model.observe_ttl(k, cache.ttl(&k)),
            Step::Increment(k, delta) => self.increment(k, delta, None),
            Step::IncrementWith(k, delta, life) => {
                self.increment(k, delta, Some(lifetime(self.begin, life)));
            }
            Step::Compute(k, wish) => self.compute(k, wish),
            Step::Swap(k, expected, number) => self.swap(k, expected, number),
            Step::SwapPresent(k, number) => {
                let expected = self.possible(k).unwrap_or(0);
                self.swap(k, expected, number);
            }
            Step::Remove(k) => {
                if model.observe(k, cache.remove(&k).as_ref().map(tag)) {
                    model.remove(k);
                }
            }
            Step::RemoveIf(k, doomed) => {
                let judged = Cell::new(None);
                let removed = cache.remove_if(&k, |counter| {
                    assert_eq!(judged.replace(Some(tag(counter))), None, "judged twice");
                    doomed
                });
                assert_eq!(removed, doomed && judged.get().is_some());
                if model.observe(k, judged.get()) && doomed {
                    model.remove(k);
                }
            }
            Step::Insert(..)
            | Step::InsertWith(..)
            | Step::InsertIfAbsent(..)
            | Step::RetainOdd
            | Step::Drain
            | Step::InvalidateAll => self.write(step),
            Step::Expire(k, life) => {
                let life = lifetime(self.begin, life);
                if model.observe_whether(k, cache.expire(&k, life)) {
                    model.expire(k, life);
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
            Step::Advance(ms) => self.clock.advance(std::time::Duration::from_millis(ms)),
            Step::TurnBack(ms) => self.clock.step_back(std::time::Duration::from_millis(ms)),
            Step::Reap => {
                assert!(cache.reap(AMPLE).finished);
                model.reaped(!self.case.sample);
            }
            Step::ReapAtMost(most) => {
                cache.reap_at_most(most);
                model.reaped(false);
            }
        }
        self.check();
    }

    fn increment(&mut self, key: u8, delta: i64, life: Option<Lifetime>) {
        if self.possible(key) == Some(0) {
            // The sum would not tell whether it was there.
            let there = self.cache.contains_key(&key);
            self.model.observe_whether(key, there);
        }
        let before = self.possible(key);
        let answer = match life {
            None => self.cache.increment(&self.key(key), delta),
            Some(life) => self.cache.increment_with_ttl(&self.key(key), delta, life),
        };
        let model = &mut self.model;
        match answer {
            Ok(sum) => {
                assert!(in_range(sum), "{sum} is beyond the range");
                if let Some(number) = before.filter(|number| number.checked_add(delta) == Some(sum))
                {
                    model.observe(key, Some(bits(number)));
                    model.change_in_place(key, bits(sum) as usize, bits(sum));
                } else {
                    model.observe(key, None);
                    assert_eq!(sum, delta, "{before:?} before");
                    model.insert_absent(key, bits(sum) as usize, bits(sum), life);
                }
            }
            Err(error) => {
                assert_eq!(error, CounterError::Overflow);
                let there = self.cache.contains_key(&key);
                model.observe_whether(key, there);
                let number = before.filter(|_| there).unwrap_or(0);
                let sum = number.checked_add(delta);
                assert!(!sum.is_some_and(in_range), "{number} + {delta} was refused");
            }
        }
    }

    fn compute(&mut self, key: u8, wish: Wish) {
        let begin = self.begin;
        let mut calls = Vec::new();
        let done = self.cache.compute(self.key(key), |counter| {
            calls.push(counter.map(Counter::get));
            let number = counter.map_or(0, Counter::get);
            match wish {
                Wish::Keep => Op::Keep,
                Wish::Remove => Op::Remove,
                Wish::Add(delta) => Op::Put(number.saturating_add(delta).into()),
                Wish::AddWith(delta, life) => {
                    Op::PutWithTtl(number.saturating_add(delta).into(), lifetime(begin, life))
                }
            }
        });
        let [found] = calls[..] else {
            panic!("asked {} times", calls.len());
        };
        let model = &mut self.model;
        let there = model.observe(key, found.map(bits));
        let (delta, life) = match wish {
            Wish::Keep => return assert_eq!(done, Computed::Unchanged),
            Wish::Remove if there => {
                model.remove(key);
                return assert_eq!(done, Computed::Removed);
            }
            Wish::Remove => return assert_eq!(done, Computed::Unchanged),
            Wish::Add(delta) => (delta, None),
            Wish::AddWith(delta, life) => (delta, Some(lifetime(begin, life))),
        };
        let new = bits(clamped(found.unwrap_or(0).saturating_add(delta)));
        let expected = match (there, life) {
            (true, None) => {
                model.change_in_place(key, new as usize, new);
                Computed::Replaced
            }
            (true, Some(life)) if model.replace_with(key, new as usize, new, life) => {
                Computed::Replaced
            }
            (true, Some(_)) => Computed::Removed,
            (false, life) if model.insert_absent(key, new as usize, new, life) => {
                Computed::Inserted
            }
            (false, _) => Computed::Unchanged,
        };
        assert_eq!(done, expected);
    }

    fn swap(&mut self, key: u8, expected: i64, number: i64) {
        let (expected, new) = (Counter::from(expected), Counter::from(number));
        let (old_tag, new_tag) = (tag(&expected), tag(&new));
        assert_eq!(new_tag, bits(clamped(number)));
        match self.cache.compare_and_swap(self.key(key), &expected, new) {
            Ok(()) => {
                self.model.observe(key, Some(old_tag));
                self.model.change_in_place(key, new_tag as usize, new_tag);
            }
            Err(back) => {
                assert_eq!(tag(&back), new_tag);
                self.model.not_equal(key, old_tag);
            }
        }
    }

    fn write(&mut self, step: Step) {
        let (cache, model) = (&self.cache, &mut self.model);
        match step {
            Step::Insert(k, number) => {
                cache.insert(CountedKey::new(k, &self.keys), number.into());
                let tag = bits(clamped(number));
                model.insert(k, tag as usize, tag, None);
            }
            Step::InsertWith(k, number, life) => {
                let life = lifetime(self.begin, life);
                cache.insert_with_ttl(CountedKey::new(k, &self.keys), number.into(), life);
                let tag = bits(clamped(number));
                model.insert(k, tag as usize, tag, Some(life));
            }
            Step::InsertIfAbsent(k, number) => {
                let tag = bits(clamped(number));
                if cache.insert_if_absent(CountedKey::new(k, &self.keys), number.into()) {
                    model.observe_whether(k, false);
                    assert!(model.insert_absent(k, tag as usize, tag, None));
                } else {
                    model.refused(k, tag);
                }
            }
            Step::RetainOdd => {
                let mut seen = BTreeMap::new();
                cache.retain(|key, counter| {
                    let twice = seen.insert(key.number(), tag(counter));
                    assert_eq!(twice, None);
                    counter.get() % 2 != 0
                });
                model.observe_all(seen.clone());
                for (key, tag) in seen {
                    if tag % 2 == 0 {
                        model.remove(key);
                    }
                }
            }
            Step::Drain => {
                let mut found = BTreeMap::new();
                for (key, counter) in cache.drain() {
                    let twice = found.insert(key.number(), tag(&counter));
                    assert_eq!(twice, None);
                }
                model.observe_all(found);
                model.clear();
                assert_eq!(cache.entry_count(), 0);
            }
            Step::InvalidateAll => {
                cache.invalidate_all();
                model.clear();
                assert_eq!(cache.entry_count(), 0);
            }
            _ => unreachable!("not a write"),
        }
    }

    fn check(&mut self) {
        let (cache, model) = (&self.cache, &mut self.model);
        assert_counts_agree(cache);
        let evicted = cache.stats().evicted;
        if self.case.settings.listener {
            model.hear(&self.events.take());
        } else {
            model.guess(
                |key| cache.contains_key(&key),
                (evicted - self.evicted) as usize,
            );
        }
        self.evicted = evicted;
        let linked = cache.entry_count();
        let (least, most) = model.linked_counts();
        assert!(least as u64 <= linked && linked <= most as u64);
        assert!(linked <= self.case.settings.bound.unwrap_or(u64::MAX));
        assert_eq!(cache.stats().live_evicted_while_dead, 0);
    }

    fn end(self) {
        let Rig {
            cache,
            keys,
            events,
            ..
        } = self;
        drop(cache);
        assert!(events.all().is_empty(), "an event for a cache that ended");
        assert_eq!(keys.load(Ordering::SeqCst), 0, "keys are left");
    }
}

/// One input.
pub(crate) fn run(case: Case, u: &mut Unstructured<'_>) {
    let mut rig = Rig::new(case);
    for _ in 0..crate::STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = arbitrary_step(u) else {
            break;
        };
        crate::show(&step);
        rig.step(step);
    }
    rig.end();
}
