//! Random operations against a plain model, every structure recounted after each.
//!
//! `PROPTEST_CASES=10000 cargo test --test model` runs more of them.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ebbtide::{Cache, Computed, Lifetime, ManualClock, Op, Policy, RandomState, Reaper};
use proptest::prelude::*;

use common::model::{Model, Settings, moment, policy};
use common::{CountedKey, Events, Ledger, Tracked, assert_counts_agree};

const KEYS: u8 = 7;
/// More than any sweep of these small caches takes.
const AMPLE: Duration = Duration::from_secs(20);

/// A lifetime that is written down: moments as milliseconds from the beginning of the case.
#[derive(Clone, Copy, Debug)]
enum Life {
    Never,
    For(u64),
    Max,
    Until(i64),
}

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    With(u8),
    Peek(u8),
    Contains(u8),
    GetMany(Vec<u8>),
    Pinned(u8),
    Iter,
    PinnedIter,
    LiveCount,
    Ttl(u8),
    Insert(u8, u64),
    InsertWith(u8, u64, Life),
    TryInsert(u8, u64),
    InsertIfAbsent(u8, u64),
    Remove(u8),
    RemoveWith(u8),
    Invalidate(u8),
    RemoveIf(u8, bool),
    InvalidateAll,
    RetainOdd,
    Drain(Option<usize>),
    Expire(u8, Life),
    Persist(u8),
    Touch(u8),
    Keep(u8),
    Put(u8, u64),
    PutWith(u8, u64, Life),
    ComputeRemove(u8),
    Swap(u8, u64, u64),
    Advance(u64),
    TurnBack(u64),
    Reap,
    ReapAtMost(u64),
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![
        1 => Just(Life::Never),
        1 => Just(Life::Max),
        1 => Just(Life::For(0)),
        5 => (1u64..20_000).prop_map(Life::For),
        2 => (-5_000i64..30_000).prop_map(Life::Until),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let k = || 0..KEYS;
    let tag = || 0u64..10;
    prop_oneof![
        3 => k().prop_map(Step::Get),
        1 => k().prop_map(Step::With),
        1 => k().prop_map(Step::Peek),
        1 => k().prop_map(Step::Contains),
        1 => prop::collection::vec(0..KEYS, 0..20).prop_map(Step::GetMany),
        1 => k().prop_map(Step::Pinned),
        1 => Just(Step::Iter),
        1 => Just(Step::PinnedIter),
        1 => Just(Step::LiveCount),
        2 => k().prop_map(Step::Ttl),
        6 => (k(), tag()).prop_map(|(k, t)| Step::Insert(k, t)),
        6 => (k(), tag(), life()).prop_map(|(k, t, l)| Step::InsertWith(k, t, l)),
        1 => (k(), tag()).prop_map(|(k, t)| Step::TryInsert(k, t)),
        3 => (k(), tag()).prop_map(|(k, t)| Step::InsertIfAbsent(k, t)),
        1 => k().prop_map(Step::Remove),
        1 => k().prop_map(Step::RemoveWith),
        1 => k().prop_map(Step::Invalidate),
        1 => (k(), any::<bool>()).prop_map(|(k, b)| Step::RemoveIf(k, b)),
        1 => Just(Step::InvalidateAll),
        1 => Just(Step::RetainOdd),
        1 => prop::option::of(0usize..3).prop_map(Step::Drain),
        3 => (k(), life()).prop_map(|(k, l)| Step::Expire(k, l)),
        2 => k().prop_map(Step::Persist),
        2 => k().prop_map(Step::Touch),
        1 => k().prop_map(Step::Keep),
        3 => (k(), tag()).prop_map(|(k, t)| Step::Put(k, t)),
        3 => (k(), tag(), life()).prop_map(|(k, t, l)| Step::PutWith(k, t, l)),
        1 => k().prop_map(Step::ComputeRemove),
        2 => (k(), tag(), tag()).prop_map(|(k, a, b)| Step::Swap(k, a, b)),
        6 => (0u64..12_000).prop_map(Step::Advance),
        2 => (0u64..6_000).prop_map(Step::TurnBack),
        2 => Just(Step::Reap),
        2 => (0u64..3).prop_map(Step::ReapAtMost),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    settings: Settings,
    shards: usize,
    sample: bool,
    record: bool,
    eviction: Policy,
}

/// Those that give somebody up.
fn policies() -> Vec<Policy> {
    vec![
        Policy::segmented_clock(),
        Policy::clock(),
        Policy::fifo(),
        Policy::nearest_deadline(),
        Policy::random(),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let bound = prop_oneof![
        4 => Just(None),
        1 => Just(Some(0)),
        5 => prop::sample::select(vec![1u64, 2, 4]).prop_map(Some),
    ];
    let length = || prop::option::of((1_000u64..15_000).prop_map(Duration::from_millis));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        bound,
        length(),
        length(),
        0..4u8,
        flags,
        prop::sample::select(vec![1, 4]),
        prop::sample::select(policies()),
    )
        .prop_map(
            |(bound, live, idle, policy, (listener, sample, record), shards, eviction)| Case {
                settings: Settings {
                    live,
                    idle,
                    policy: policy == 0,
                    bound,
                    listener,
                },
                shards,
                sample,
                record,
                eviction,
            },
        )
}

/// A cache, its model, and everything that counts.
struct Rig {
    cache: Cache<CountedKey, Tracked>,
    model: Model,
    clock: ManualClock,
    begin: Instant,
    events: Events<u8>,
    ledger: Ledger,
    keys: Arc<AtomicI64>,
    case: Case,
    evicted: u64,
}

impl Rig {
    fn new(case: Case) -> Self {
        let begin = Instant::now();
        let clock = ManualClock::new();
        let events: Events<u8> = Events::new();
        let Case {
            settings,
            shards,
            sample,
            record,
            eviction,
        } = case.clone();
        let mut builder = Cache::builder()
            .clock(clock.clone())
            // The same in every run, so that a failure can be repeated and made smaller.
            .hasher(RandomState::with_seeds(1, 2, 3, 4))
            .shards(shards)
            .record_stats(record)
            .reaper(Reaper::manual().strategy(if sample {
                ebbtide::Strategy::sample()
            } else {
                ebbtide::Strategy::sweep()
            }));
        if let Some(bound) = settings.bound {
            builder = builder.max_entries(bound).policy(eviction);
        }
        if let Some(live) = settings.live {
            builder = builder.time_to_live(live);
        }
        if let Some(idle) = settings.idle {
            builder = builder.time_to_idle(idle);
        }
        if settings.policy {
            builder = builder.expiry(|_: &CountedKey, value: &Tracked| policy(value.tag()));
        }
        if settings.listener {
            let events = events.clone();
            builder = builder.on_removal(move |key: &CountedKey, value: &Tracked, cause| {
                events.record((key.number(), value.serial(), cause));
            });
        }
        Rig {
            cache: builder.build().unwrap(),
            model: Model::new(settings, clock.clone()),
            clock,
            begin,
            events,
            ledger: Ledger::new(),
            keys: Arc::default(),
            case,
            evicted: 0,
        }
    }

    fn key(&self, number: u8) -> CountedKey {
        CountedKey::new(number, &self.keys)
    }

    fn lifetime(&self, life: Life) -> Lifetime {
        match life {
            Life::Never => Lifetime::Never,
            Life::For(ms) => Lifetime::For(Duration::from_millis(ms)),
            Life::Max => Lifetime::For(Duration::MAX),
            Life::Until(ms) => Lifetime::Until(moment(self.begin, ms)),
        }
    }

    /// A new value, and its serial number.
    fn value(&self, tag: u64) -> (Tracked, usize) {
        let value = self.ledger.value(tag);
        let serial = value.serial();
        (value, serial)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Get(_)
            | Step::With(_)
            | Step::Peek(_)
            | Step::Contains(_)
            | Step::GetMany(_)
            | Step::Pinned(_)
            | Step::Iter
            | Step::PinnedIter
            | Step::LiveCount
            | Step::Ttl(_) => self.read(step),
            Step::Keep(_) | Step::Put(..) | Step::PutWith(..) | Step::ComputeRemove(_) => {
                self.compute(step)
            }
            Step::Advance(ms) => self.clock.advance(Duration::from_millis(ms)),
            Step::TurnBack(ms) => self.clock.step_back(Duration::from_millis(ms)),
            Step::Reap => {
                let reaped = self.cache.reap(AMPLE);
                assert!(reaped.finished);
                self.model.reaped(!self.case.sample);
            }
            Step::ReapAtMost(most) => {
                let before = self.cache.stats().expired_by_sweep;
                let reaped = self.cache.reap_at_most(most);
                let after = self.cache.stats().expired_by_sweep;
                assert_eq!(reaped.expired, after - before);
                assert!(self.case.sample || reaped.expired <= most);
                self.model.reaped(false);
            }
            _ => self.write(step),
        }
        self.check();
    }

    fn read(&mut self, step: Step) {
        let (cache, model) = (&self.cache, &mut self.model);
        let tag = |value: Tracked| value.tag();
        match step {
            Step::Get(k) => model.used(k, cache.get(&k).map(tag)),
            Step::With(k) => model.used(k, cache.with(&k, Tracked::tag)),
            Step::Peek(k) => {
                model.observe(k, cache.peek(&k).map(tag));
            }
            Step::Contains(k) => {
                model.observe_whether(k, cache.contains_key(&k));
            }
            Step::GetMany(keys) => {
                let found = cache.get_many(&keys);
                assert_eq!(found.len(), keys.len());
                for (key, value) in keys.into_iter().zip(found) {
                    model.used(key, value.map(tag));
                }
            }
            Step::Pinned(k) => model.used(k, cache.pin().get(&k).map(Tracked::tag)),
            Step::Iter => {
                let mut found = BTreeMap::new();
                for (key, value) in cache {
                    let twice = found.insert(key.number(), value.tag());
                    assert_eq!(twice, None);
                }
                model.observe_all(found);
            }
            Step::PinnedIter => {
                let pinned = cache.pin();
                let mut found = BTreeMap::new();
                for (key, value) in pinned.iter() {
                    let twice = found.insert(key.number(), value.tag());
                    assert_eq!(twice, None);
                }
                model.observe_all(found);
            }
            Step::LiveCount => {
                let (least, most) = model.live_counts();
                let count = cache.live_count() as usize;
                assert!(least <= count && count <= most, "{count} live");
                model.all_looked_at();
            }
            Step::Ttl(k) => model.observe_ttl(k, cache.ttl(&k)),
            _ => unreachable!("not a read"),
        }
    }

    fn write(&mut self, step: Step) {
        match step {
            Step::Insert(k, tag) => {
                let (value, serial) = self.value(tag);
                self.cache.insert(self.key(k), value);
                self.model.insert(k, serial, tag, None);
            }
            Step::InsertWith(k, tag, life) => {
                let (value, serial) = self.value(tag);
                let life = self.lifetime(life);
                self.cache.insert_with_ttl(self.key(k), value, life);
                self.model.insert(k, serial, tag, Some(life));
            }
            Step::TryInsert(k, tag) => {
                let (value, serial) = self.value(tag);
                match self.cache.try_insert(self.key(k), value) {
                    Ok(()) => self.model.insert(k, serial, tag, None),
                    Err(back) => {
                        assert!(self.model.holds_nothing());
                        assert_eq!((back.key.number(), back.value.serial()), (k, serial));
                    }
                }
            }
            Step::InsertIfAbsent(k, tag) => {
                let (value, serial) = self.value(tag);
                let stored = self.cache.insert_if_absent(self.key(k), value);
                if stored {
                    self.model.observe_whether(k, false);
                    assert!(self.model.insert_absent(k, serial, tag, None));
                } else {
                    // Because there is one, or because it would be over at once.
                    self.model.refused(k, tag);
                }
            }
            Step::Remove(k) => {
                let found = self.cache.remove(&k).map(|value| value.tag());
                self.removed(k, found.is_some(), found);
            }
            Step::RemoveWith(k) => {
                let found = self.cache.remove_with(&k, Tracked::tag);
                self.removed(k, found.is_some(), found);
            }
            Step::Invalidate(k) => {
                let found = self.cache.invalidate(&k);
                self.removed(k, found, None);
            }
            Step::RemoveIf(k, doomed) => {
                let judged = Cell::new(None);
                let removed = self.cache.remove_if(&k, |value| {
                    assert_eq!(judged.replace(Some(value.tag())), None, "judged twice");
                    doomed
                });
                assert_eq!(removed, doomed && judged.get().is_some());
                if self.model.observe(k, judged.get()) && doomed {
                    self.model.remove(k);
                }
            }
            Step::InvalidateAll => {
                self.cache.invalidate_all();
                self.model.clear();
                assert_eq!(self.cache.entry_count(), 0);
            }
            Step::RetainOdd => {
                let mut seen = BTreeMap::new();
                self.cache.retain(|key, value| {
                    let twice = seen.insert(key.number(), value.tag());
                    assert_eq!(twice, None);
                    value.tag() % 2 == 1
                });
                self.model.observe_all(seen.clone());
                for (key, tag) in seen {
                    if tag % 2 == 0 {
                        self.model.remove(key);
                    }
                }
            }
            Step::Drain(most) => {
                let found: Vec<(u8, u64)> = self
                    .cache
                    .drain()
                    .take(most.unwrap_or(usize::MAX))
                    .map(|(key, value)| (key.number(), value.tag()))
                    .collect();
                let distinct: BTreeMap<u8, u64> = found.iter().copied().collect();
                assert_eq!(distinct.len(), found.len());
                for (key, tag) in distinct {
                    self.model.observe(key, Some(tag));
                }
                if most.is_none() {
                    let (least, possible) = self.model.live_counts();
                    assert!(least <= found.len() && found.len() <= possible);
                }
                self.model.clear();
                assert_eq!(self.cache.entry_count(), 0);
            }
            Step::Expire(k, life) => {
                let life = self.lifetime(life);
                let found = self.cache.expire(&k, life);
                if self.model.observe_whether(k, found) {
                    self.model.expire(k, life);
                }
            }
            Step::Persist(k) => {
                let found = self.cache.persist(&k);
                if self.model.observe_whether(k, found) {
                    self.model.persist(k);
                }
            }
            Step::Touch(k) => {
                let found = self.cache.touch(&k);
                if self.model.observe_whether(k, found) {
                    self.model.touch(k);
                }
            }
            Step::Swap(k, expected, tag) => {
                let (value, serial) = self.value(tag);
                let expected_value = self.ledger.value(expected);
                match self
                    .cache
                    .compare_and_swap(self.key(k), &expected_value, value)
                {
                    Ok(()) => {
                        self.model.observe(k, Some(expected));
                        self.model.replace_keeping(k, serial, tag);
                    }
                    Err(back) => {
                        assert_eq!(back.serial(), serial);
                        self.model.not_equal(k, expected);
                    }
                }
            }
            _ => unreachable!("not a write"),
        }
    }

    fn removed(&mut self, key: u8, found: bool, tag: Option<u64>) {
        let found = match tag {
            Some(tag) => self.model.observe(key, Some(tag)),
            None => self.model.observe_whether(key, found),
        };
        if found {
            self.model.remove(key);
        }
    }

    fn compute(&mut self, step: Step) {
        let (Step::Keep(k) | Step::Put(k, _) | Step::PutWith(k, ..) | Step::ComputeRemove(k)) =
            step
        else {
            unreachable!("not a compute");
        };
        let (tag, life) = match step {
            Step::Put(_, tag) => (tag, None),
            Step::PutWith(_, tag, life) => (tag, Some(self.lifetime(life))),
            _ => (0, None),
        };
        let (value, serial) = self.value(tag);
        let mut value = Some(value);
        let mut calls = Vec::new();
        let done = self.cache.compute(self.key(k), |found| {
            calls.push(found.map(Tracked::tag));
            let value = value.take().expect("nobody else writes: asked once");
            match (&step, life) {
                (Step::Keep(_), _) => Op::Keep,
                (Step::ComputeRemove(_), _) => Op::Remove,
                (_, None) => Op::Put(value),
                (_, Some(life)) => Op::PutWithTtl(value, life),
            }
        });
        let [found] = calls[..] else {
            panic!("asked {} times", calls.len());
        };
        let model = &mut self.model;
        let expected = match (model.observe(k, found), &step, life) {
            (_, Step::Keep(_), _) | (false, Step::ComputeRemove(_), _) => Computed::Unchanged,
            (true, Step::ComputeRemove(_), _) => {
                model.remove(k);
                Computed::Removed
            }
            (true, _, None) => {
                model.replace_keeping(k, serial, tag);
                Computed::Replaced
            }
            (true, _, Some(life)) if model.replace_with(k, serial, tag, life) => Computed::Replaced,
            (true, _, Some(_)) => Computed::Removed,
            (false, _, life) if model.insert_absent(k, serial, tag, life) => Computed::Inserted,
            (false, ..) => Computed::Unchanged,
        };
        assert_eq!(done, expected);
    }

    fn check(&mut self) {
        assert_counts_agree(&self.cache);
        let evicted = self.cache.stats().evicted;
        if self.case.settings.listener {
            self.model.hear(&self.events.take());
        } else {
            let cache = &self.cache;
            self.model.guess(
                |key| cache.contains_key(&key),
                (evicted - self.evicted) as usize,
            );
        }
        self.evicted = evicted;
        let linked = self.cache.entry_count();
        let (least, most) = self.model.linked_counts();
        assert!(
            least as u64 <= linked && linked <= most as u64,
            "{linked} linked"
        );
        assert!(linked <= self.case.settings.bound.unwrap_or(u64::MAX));
        let stats = self.cache.stats();
        assert_eq!(stats.live_evicted_while_dead, 0, "{stats:?}");
        self.ledger.assert_none_dropped_twice();
    }

    fn end(self) {
        let Rig {
            cache,
            ledger,
            keys,
            events,
            ..
        } = self;
        drop(cache);
        assert!(events.all().is_empty(), "an event for a cache that ended");
        ledger.assert_all_dropped_once();
        assert_eq!(keys.load(Ordering::SeqCst), 0, "keys are left");
    }
}

proptest! {
    // (Nothing is written down for the next run: what fails is printed, made small.)
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_operations_agree_with_the_model(
        case in case(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut rig = Rig::new(case);
        for step in steps {
            rig.step(step);
        }
        rig.end();
    }
}
