//! What is put to the test: a cache behind one call for every operation, and the places inside its
//! operations at which a thread may lose the processor.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Cache, Clock, Computed, Counter, CounterError, Lifetime, ManualClock, Op};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::history::{Answer, Call, Decision, How, Left, Life};

// --- losing the processor ----------------------------------------------------------------------

/// How often a thread is held up, of 1,000 places that it passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unrest {
    pub(crate) yields: u32,
    pub(crate) spins: u32,
}

struct Nerves {
    unrest: Unrest,
    random: Xoshiro256PlusPlus,
}

thread_local! {
    static NERVES: RefCell<Option<Nerves>> = const { RefCell::new(None) };
}

/// Makes the calling thread uneasy from here on.
pub(crate) fn be_uneasy(unrest: Unrest, seed: u64) {
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    NERVES.with_borrow_mut(|nerves| *nerves = Some(Nerves { unrest, random }));
}

/// A place at which a thread may yield or dawdle: between operations, and inside them where the
/// cache calls user code (the clock, keys' `Eq`, values' `Clone`).
pub(crate) fn uneasy() {
    let pause = NERVES.with_borrow_mut(|nerves| {
        let Nerves { unrest, random } = nerves.as_mut()?;
        let draw = random.random_range(0..1000);
        if draw < unrest.yields {
            Some(0)
        } else if draw < unrest.yields + unrest.spins {
            Some(random.random_range(1..200))
        } else {
            None
        }
    });
    match pause {
        None => {}
        Some(0) => thread::yield_now(),
        Some(turns) => (0..turns).for_each(|_| std::hint::spin_loop()),
    }
}

/// The manual clock, between whose readings and their use much may happen.
#[derive(Clone, Debug)]
pub(crate) struct UneasyClock {
    pub(crate) time: ManualClock,
    /// Nanoseconds by which it is behind: 0, but for a mutant.
    pub(crate) behind: u64,
}

impl Clock for UneasyClock {
    fn now(&self) -> u64 {
        let now = self.time.now();
        uneasy();
        now.saturating_sub(self.behind)
    }

    fn at(&self, moment: Instant) -> u64 {
        self.time.at(moment)
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// A key at whose comparison, which runs under locks too, a thread may lose the processor.
#[derive(Clone, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        uneasy();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A value that would show if it was read half-written or after it was freed.
#[derive(Debug)]
pub(crate) struct Value {
    number: i64,
    same: Box<i64>,
}

impl Value {
    fn new(number: i64) -> Self {
        let same = Box::new(number);
        Value { number, same }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        uneasy();
        Value::new(self.number())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

// --- values of both suites ----------------------------------------------------------------------

/// A value that stands for a number.
pub(crate) trait Payload: Clone + PartialEq + Send + Sync + Sized + 'static {
    fn of(number: i64) -> Self;
    fn number(&self) -> i64;
    /// `increment` or, with a lifetime, `increment_with_ttl`.
    fn add(
        cache: &Cache<Key, Self>,
        key: &Key,
        delta: i64,
        life: Option<Lifetime>,
    ) -> Result<i64, CounterError>;
}

impl Payload for Value {
    fn of(number: i64) -> Self {
        Value::new(number)
    }

    fn number(&self) -> i64 {
        assert_eq!(self.number, *self.same, "a torn or freed value");
        self.number
    }

    fn add(
        _: &Cache<Key, Self>,
        _: &Key,
        _: i64,
        _: Option<Lifetime>,
    ) -> Result<i64, CounterError> {
        unreachable!("only counters are incremented")
    }
}

impl Payload for Counter {
    fn of(number: i64) -> Self {
        Counter::new(number)
    }

    fn number(&self) -> i64 {
        self.get()
    }

    fn add(
        cache: &Cache<Key, Self>,
        key: &Key,
        delta: i64,
        life: Option<Lifetime>,
    ) -> Result<i64, CounterError> {
        match life {
            None => cache.increment(key, delta),
            Some(life) => cache.increment_with_ttl(key, delta, life),
        }
    }
}

// --- the seam -------------------------------------------------------------------------------------

/// What a unit of time is, and when the clock began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    unit: u64,
    begin: Instant,
    /// Whether deadlines may be some nanoseconds early (time to idle: rule P5).
    early: bool,
}

impl Times {
    pub(crate) fn new(unit: Duration, clock: &ManualClock, early: bool) -> Self {
        let now = Instant::now();
        Times {
            unit: u64::try_from(unit.as_nanos()).expect("a short unit"),
            begin: now - Duration::from_nanos(clock.at(now)),
            early,
        }
    }

    pub(crate) fn units(&self, units: u32) -> Duration {
        Duration::from_nanos(self.unit * u64::from(units))
    }

    fn lifetime(&self, life: Life) -> Lifetime {
        match life {
            Life::Never => Lifetime::Never,
            Life::For(units) => Lifetime::For(self.units(units)),
            Life::Until(units) => Lifetime::Until(self.begin + self.units(units)),
        }
    }

    fn left(&self, left: Lifetime) -> Left {
        let nanos = match left {
            Lifetime::Never => return Left::Never,
            Lifetime::For(left) => u64::try_from(left.as_nanos()).unwrap_or(u64::MAX),
            Lifetime::Until(_) => return Left::Odd(0),
        };
        // The lowest six bits of a deadline count changes.
        let slack = if self.early { 1_000 } else { 0 };
        let units = nanos.div_ceil(self.unit);
        match u32::try_from(units) {
            Ok(few) if units * self.unit - nanos <= slack => Left::Units(few),
            _ => Left::Odd(nanos),
        }
    }
}

/// Keys of one [`Call::Crowd`]: seven of them fill a segment of the index.
pub(crate) const CROWD: u64 = 96;

/// Something that answers calls as a cache should.
pub(crate) trait Subject: Send + Sync {
    /// Carries out a call (any but a step of the clock) on `key`.
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer;
}

impl<V: Payload> Subject for Cache<Key, V> {
    fn call(&self, key: u64, call: Call, times: &Times) -> Answer {
        let key = Key(key);
        let life = |life| times.lifetime(life);
        let number = |value: V| value.number();
        match call {
            Call::Read(How::Get) => Answer::Value(self.get(&key).map(number)),
            Call::Read(How::With) => Answer::Value(self.with(&key, V::number)),
            Call::Read(How::Pinned) => Answer::Value(self.pin().get(&key).map(V::number)),
            Call::Read(How::GetMany) => {
                Answer::Value(self.get_many([&key]).pop().flatten().map(number))
            }
            Call::Peek => Answer::Value(self.peek(&key).map(number)),
            Call::ContainsKey => Answer::Whether(self.contains_key(&key)),
            Call::Ttl => Answer::Left(self.ttl(&key).map(|left| times.left(left))),
            Call::Insert(value, None) => {
                self.insert(key, V::of(value));
                Answer::Done
            }
            Call::Insert(value, Some(l)) => {
                self.insert_with_ttl(key, V::of(value), life(l));
                Answer::Done
            }
            Call::InsertIfAbsent(value) => {
                Answer::Whether(self.insert_if_absent(key, V::of(value)))
            }
            Call::Remove => Answer::Value(self.remove(&key).map(number)),
            Call::CompareAndSwap { expected, new } => {
                let swapped = self.compare_and_swap(key, &V::of(expected), V::of(new));
                if let Err(back) = &swapped {
                    assert_eq!(back.number(), new, "the new value comes back");
                }
                Answer::Whether(swapped.is_ok())
            }
            Call::Compute(decision) => {
                let mut seen = None;
                let done = self.compute(key, |value| {
                    seen = value.map(V::number);
                    uneasy();
                    match decision {
                        Decision::Keep => Op::Keep,
                        Decision::Put(new) => Op::Put(V::of(new.value(seen))),
                        Decision::PutWithTtl(new, l) => {
                            Op::PutWithTtl(V::of(new.value(seen)), life(l))
                        }
                        Decision::Remove => Op::Remove,
                    }
                });
                Answer::Computed(seen, done)
            }
            Call::Entry(new) => {
                let change = |seen| {
                    uneasy();
                    V::of(new.value(seen))
                };
                let value = self
                    .entry(key)
                    .and_modify(move |value| change(Some(value.number())))
                    .or_insert_with(move || change(None));
                Answer::Value(Some(value.number()))
            }
            Call::RemoveIf => {
                let mut seen = None;
                let removed = self.remove_if(&key, |value| {
                    seen = Some(value.number());
                    uneasy();
                    true
                });
                match removed {
                    true => Answer::Computed(seen, Computed::Removed),
                    false => Answer::Computed(None, Computed::Unchanged),
                }
            }
            Call::Increment(delta, l) => Answer::Sum(V::add(self, &key, delta, l.map(life)).ok()),
            Call::Expire(l) => Answer::Whether(self.expire(&key, life(l))),
            Call::Touch => Answer::Whether(self.touch(&key)),
            Call::Persist => Answer::Whether(self.persist(&key)),
            Call::Reap(entries) => {
                self.reap_at_most(entries);
                Answer::Done
            }
            Call::Crowd(first) => {
                for other in first..first + CROWD {
                    self.insert_with_ttl(Key(other), V::of(0), times.units(1));
                }
                Answer::Done
            }
            Call::Step(_) => unreachable!("the clock is not the cache's to move"),
        }
    }
}

/// What a compute answers that replaced a value or did not.
pub(crate) fn stored(seen: Option<i64>) -> Computed {
    match seen {
        None => Computed::Inserted,
        Some(_) => Computed::Replaced,
    }
}
