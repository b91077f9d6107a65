//! Panics in code that the cache calls: the cache stays usable, every other value is dropped once,
//! every removal is reported, the bound stays what it was.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ebbtide::{Cache, Clock, Lifetime, ManualClock, Op, RandomState};

use crate::common::matrix::for_each;
use crate::common::{Events, Ledger, S, Tracked, ZERO, assert_counts_agree, eventually, promptly};

/// User code that may panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Part {
    Nothing,
    Hash,
    Hasher,
    KeyEq,
    KeyClone,
    KeyDrop,
    ValueClone,
    ValueEq,
    ValueDrop,
    Closure,
    Listener,
    Policy,
    /// The clock, when it is asked for the first, the second or the fourth time.
    Clock,
    Clock2,
    Clock3,
    Clock4,
}

const PARTS: [Part; 14] = [
    Part::Hash,
    Part::Hasher,
    Part::KeyEq,
    Part::KeyClone,
    Part::KeyDrop,
    Part::ValueClone,
    Part::ValueEq,
    Part::ValueDrop,
    Part::Closure,
    Part::Listener,
    Part::Policy,
    Part::Clock,
    Part::Clock2,
    Part::Clock4,
];

/// Blows once, in the part that it was set for.
#[derive(Clone)]
struct Fuse(Arc<AtomicU32>);

impl Fuse {
    fn new() -> Self {
        Fuse(Arc::new(AtomicU32::new(Part::Nothing as u32)))
    }

    fn set(&self, part: Part) {
        self.0.store(part as u32, Ordering::SeqCst);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Part::Nothing as u32
    }

    /// The clock is asked. What is to blow later comes nearer.
    fn reach_clock(&self) {
        self.reach(Part::Clock);
        self.turn(Part::Clock2, Part::Clock);
        self.turn(Part::Clock3, Part::Clock2);
        self.turn(Part::Clock4, Part::Clock3);
    }

    fn turn(&self, from: Part, to: Part) {
        let _ = self
            .0
            .compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn reach(&self, part: Part) {
        let set = (part as u32, Part::Nothing as u32);
        let order = Ordering::SeqCst;
        if self.0.compare_exchange(set.0, set.1, order, order).is_ok() {
            std::panic::panic_any(Blown);
        }
    }
}

/// A manual clock that may blow.
struct FuseClock(ManualClock, Fuse);

impl Clock for FuseClock {
    fn now(&self) -> u64 {
        self.1.reach_clock();
        self.0.now()
    }

    fn at(&self, moment: Instant) -> u64 {
        self.0.at(moment)
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// The payload of these panics, which are not printed.
struct Blown;

fn print_only_other_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<Blown>().is_none() {
                usual(info);
            }
        }));
    });
}

struct Key {
    number: u64,
    fuse: Fuse,
    alive: Arc<AtomicI64>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuse.reach(Part::Hash);
        self.number.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.fuse.reach(Part::KeyEq);
        self.number == other.number
    }
}

impl Eq for Key {}

impl Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.fuse.reach(Part::KeyClone);
        self.alive.fetch_add(1, Ordering::SeqCst);
        Key {
            number: self.number,
            fuse: self.fuse.clone(),
            alive: Arc::clone(&self.alive),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
        self.fuse.reach(Part::KeyDrop);
    }
}

struct Value {
    inner: Tracked,
    fuse: Fuse,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.fuse.reach(Part::ValueClone);
        Value {
            inner: self.inner.clone(),
            fuse: self.fuse.clone(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.fuse.reach(Part::ValueEq);
        self.inner == other.inner
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.fuse.reach(Part::ValueDrop);
    }
}

#[derive(Clone)]
struct FuseHasher(RandomState, Fuse);

impl BuildHasher for FuseHasher {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.1.reach(Part::Hasher);
        self.0.build_hasher()
    }
}

struct Rig {
    cache: Cache<Key, Value, FuseHasher>,
    clock: ManualClock,
    events: Events<u64>,
    ledger: Ledger,
    alive: Arc<AtomicI64>,
    fuse: Fuse,
}

const BOUND: u64 = 6;

impl Rig {
    fn new(listener: bool) -> Self {
        let (fuse, events, clock) = (Fuse::new(), Events::<u64>::new(), ManualClock::new());
        let mut builder = Cache::builder()
            .clock(FuseClock(clock.clone(), fuse.clone()))
            .shards(2)
            .max_entries(BOUND)
            .expiry({
                let fuse = fuse.clone();
                move |_: &Key, _: &Value| {
                    fuse.reach(Part::Policy);
                    Lifetime::For(10 * S)
                }
            });
        if listener {
            let (fuse, events) = (fuse.clone(), events.clone());
            builder = builder.on_removal(move |key: &Key, value: &Value, cause| {
                events.record((key.number, value.inner.serial(), cause));
                fuse.reach(Part::Listener);
            });
        }
        let hasher = FuseHasher(RandomState::with_seeds(1, 2, 3, 4), fuse.clone());
        let rig = Rig {
            cache: builder.hasher(hasher).build().unwrap(),
            clock,
            events,
            ledger: Ledger::new(),
            alive: Arc::default(),
            fuse,
        };
        for number in 0..BOUND {
            rig.cache.insert(rig.key(number), rig.value(number));
        }
        rig
    }

    fn key(&self, number: u64) -> Key {
        self.alive.fetch_add(1, Ordering::SeqCst);
        Key {
            number,
            fuse: self.fuse.clone(),
            alive: Arc::clone(&self.alive),
        }
    }

    fn value(&self, tag: u64) -> Value {
        Value {
            inner: self.ledger.value(tag),
            fuse: self.fuse.clone(),
        }
    }
}

type Step = fn(&Rig);

/// Everything that runs user code, on a cache that holds the keys 0 to 5 with equal tags.
fn steps() -> Vec<(&'static str, Step)> {
    vec![
        ("get", |rig| drop(rig.cache.get(&rig.key(0)))),
        ("with", |rig| {
            rig.cache
                .with(&rig.key(0), |_| rig.fuse.reach(Part::Closure));
        }),
        ("pin().get", |rig| {
            assert!(rig.cache.pin().get(&rig.key(0)).is_some())
        }),
        ("peek", |rig| drop(rig.cache.peek(&rig.key(0)))),
        ("get_many", |rig| {
            let keys: Vec<Key> = (0..3).map(|number| rig.key(number)).collect();
            drop(rig.cache.get_many(&keys));
        }),
        ("iter", |rig| drop(rig.cache.iter().collect::<Vec<_>>())),
        ("insert: replace", |rig| {
            rig.cache.insert(rig.key(0), rig.value(9))
        }),
        ("insert: evict", |rig| {
            rig.cache.insert(rig.key(50), rig.value(9))
        }),
        ("insert over an expired one", |rig| {
            rig.clock.advance(10 * S);
            rig.cache.insert(rig.key(0), rig.value(9));
        }),
        ("insert_with_ttl: zero", |rig| {
            rig.cache.insert_with_ttl(rig.key(0), rig.value(9), ZERO);
        }),
        ("try_insert", |rig| {
            drop(rig.cache.try_insert(rig.key(50), rig.value(9)))
        }),
        ("insert_if_absent: there", |rig| {
            rig.cache.insert_if_absent(rig.key(0), rig.value(9));
        }),
        ("insert_if_absent: not there", |rig| {
            rig.cache.insert_if_absent(rig.key(50), rig.value(9));
        }),
        ("remove", |rig| drop(rig.cache.remove(&rig.key(0)))),
        ("remove_with", |rig| {
            rig.cache
                .remove_with(&rig.key(0), |_| rig.fuse.reach(Part::Closure));
        }),
        ("remove_if", |rig| {
            rig.cache.remove_if(&rig.key(0), |_| {
                rig.fuse.reach(Part::Closure);
                true
            });
        }),
        ("invalidate", |rig| {
            rig.cache.invalidate(&rig.key(0));
        }),
        ("invalidate_all", |rig| rig.cache.invalidate_all()),
        ("retain", |rig| {
            let mut seen = 0;
            rig.cache.retain(|_, _| {
                seen += 1;
                if seen == 3 {
                    rig.fuse.reach(Part::Closure);
                }
                false
            });
        }),
        ("drain", |rig| drop(rig.cache.drain().collect::<Vec<_>>())),
        ("drain a few", |rig| {
            drop(rig.cache.drain().take(2).collect::<Vec<_>>())
        }),
        ("expire: zero", |rig| {
            rig.cache.expire(&rig.key(0), ZERO);
        }),
        ("touch", |rig| {
            rig.cache.touch(&rig.key(0));
        }),
        ("compute: put", |rig| {
            rig.cache.compute(rig.key(0), |_| {
                rig.fuse.reach(Part::Closure);
                Op::Put(rig.value(9))
            });
        }),
        ("compute: put under an absent key", |rig| {
            rig.cache.compute(rig.key(50), |_| {
                rig.fuse.reach(Part::Closure);
                Op::Put(rig.value(9))
            });
        }),
        ("compute: remove", |rig| {
            rig.cache.compute(rig.key(0), |_| Op::Remove);
        }),
        ("compare_and_swap", |rig| {
            let expected = rig.value(0);
            drop(
                rig.cache
                    .compare_and_swap(rig.key(0), &expected, rig.value(9)),
            );
        }),
        ("reap", |rig| {
            rig.clock.advance(10 * S);
            rig.cache.reap(20 * S);
        }),
        ("a read that expires", |rig| {
            rig.clock.advance(10 * S);
            drop(rig.cache.get(&rig.key(0)));
            rig.cache.reap(20 * S);
        }),
        ("remove and reap", |rig| {
            drop(rig.cache.remove(&rig.key(0)));
            rig.cache.reap(20 * S);
        }),
    ]
}

#[test]
fn a_panic_in_user_code_costs_nothing_but_its_own_call() {
    print_only_other_panics();
    let cases = || {
        PARTS
            .into_iter()
            .flat_map(|p| steps().into_iter().map(move |s| (p, s)))
    };
    let mut blown = 0;
    for_each(cases(), |(part, (name, step))| {
        for listener in [false, true] {
            blown += promptly(name, move || check(part, step, listener));
        }
    });
    // The matrix is worth something only if most parts are reached by several steps.
    assert!(blown > 150, "only {blown} panics");
}

/// Returns 1 if the step reached the part.
fn check(part: Part, step: Step, listener: bool) -> u32 {
    let rig = Rig::new(listener);
    rig.fuse.set(part);
    let result = catch_unwind(AssertUnwindSafe(|| step(&rig)));
    let reached = !rig.fuse.is_set();
    rig.fuse.set(Part::Nothing);
    if let Err(panic) = result {
        assert!(panic.is::<Blown>(), "another panic");
        assert!(reached);
    }
    if part == Part::Listener && reached {
        assert_eq!(rig.cache.stats().panics, 1, "contained and counted");
    }

    // Whatever happened, the books agree, and every removal has been reported, once.
    assert_counts_agree(&rig.cache);
    let stats = rig.cache.stats();
    assert!(stats.entries <= BOUND);
    if listener {
        let left = stats.inserted - stats.entries;
        assert_eq!(rig.events.all().len() as u64, left, "events");
        rig.events.assert_each_once();
    }

    // The cache goes on, with room for as many as before.
    rig.cache.invalidate_all();
    for number in 100..100 + BOUND {
        rig.cache.insert(rig.key(number), rig.value(number));
    }
    assert_eq!(rig.cache.live_count(), BOUND, "the bound has shrunk");
    for number in 100..100 + BOUND {
        let found = rig.cache.get(&rig.key(number));
        assert_eq!(found.map(|value| value.inner.tag()), Some(number));
    }
    rig.cache.insert(rig.key(200), rig.value(200));
    assert_eq!(rig.cache.entry_count(), BOUND, "the bound has grown");

    // What has left is dropped while the cache lives.
    rig.cache.invalidate_all();
    eventually("nothing waits", || {
        rig.cache.reap(S);
        rig.cache.stats().limbo == 0
    });
    assert_counts_agree(&rig.cache);
    assert_eq!(rig.ledger.dropped(), rig.ledger.made());
    let Rig {
        cache,
        ledger,
        alive,
        ..
    } = rig;
    drop(cache);
    ledger.assert_all_dropped_once();
    assert_eq!(alive.load(Ordering::SeqCst), 0, "keys are left");
    u32::from(reached)
}

#[test]
fn panics_on_the_workers_threads_are_contained_and_counted() {
    print_only_other_panics();
    for part in [Part::ValueDrop, Part::KeyDrop, Part::Listener] {
        let (fuse, ledger, alive) = (Fuse::new(), Ledger::new(), Arc::<AtomicI64>::default());
        let cache: Cache<Key, Value> = {
            let fuse = fuse.clone();
            Cache::builder()
                .on_removal(move |_: &Key, _: &Value, _| fuse.reach(Part::Listener))
                .build()
                .unwrap()
        };
        for round in 1..=5 {
            fuse.set(part);
            for number in 0..100 {
                alive.fetch_add(1, Ordering::SeqCst);
                let key = Key {
                    number,
                    fuse: fuse.clone(),
                    alive: Arc::clone(&alive),
                };
                let value = Value {
                    inner: ledger.value(number),
                    fuse: fuse.clone(),
                };
                cache.insert_with_ttl(key, value, Duration::from_millis(2));
            }
            eventually("all are dropped, the worker lives", || {
                ledger.dropped() == 100 * round && alive.load(Ordering::SeqCst) == 0
            });
            eventually("the panic is counted", || {
                cache.stats().panics == round as u64
            });
        }
        assert_eq!(cache.entry_count(), 0);
        drop(cache);
        ledger.assert_all_dropped_once();
    }
}

#[test]
fn a_panic_in_a_drop_at_the_very_end_leaves_no_other_value_undropped() {
    print_only_other_panics();
    let rig = Rig::new(false);
    let Rig {
        cache,
        ledger,
        alive,
        fuse,
        ..
    } = rig;
    fuse.set(Part::ValueDrop);
    drop(cache);
    assert!(!fuse.is_set());
    ledger.assert_all_dropped_once();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
