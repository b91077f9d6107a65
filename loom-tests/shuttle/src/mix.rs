//! The scenario that most tests are cases of: threads that do chosen kinds of operations on a few
//! keys of one cache, a clock that one of them steps, a close look at rest, and a contended end.

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use ebbtide::{Builder, Cache, Clock, ManualClock};
use shuttle::thread;

use crate::books::{Books, Value};
use crate::ops::{Act, World};
use crate::{Random, UNIT};

/// A hasher whose hash of a small key is the key itself: a replay has to hash alike.
#[derive(Clone, Debug, Default)]
pub struct Fixed(u64);

impl Hasher for Fixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
}

impl BuildHasher for Fixed {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Fixed(0)
    }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Get,
    With,
    Peek,
    Contains,
    Ttl,
    GetMany,
    Pin,
    Iter,
    PinnedIter,
    Insert,
    InsertWithTtl,
    InsertIfAbsent,
    Remove,
    Invalidate,
    RemoveIf,
    Expire,
    Persist,
    Touch,
    Compute,
    CompareAndSwap,
    Reap,
    ReapOne,
    Retain,
    Drain,
    InvalidateAll,
}

/// What the threads do on keys that nobody removes and that have no deadline: such a key must
/// always be found.
const ON_ANCHORS: &[Kind] = &[
    Kind::Get,
    Kind::With,
    Kind::Peek,
    Kind::Contains,
    Kind::Ttl,
    Kind::GetMany,
    Kind::Pin,
    Kind::Insert,
    Kind::InsertIfAbsent,
    Kind::Persist,
    Kind::Touch,
    Kind::CompareAndSwap,
];

/// The first of the keys that are always there.
pub(crate) const FIRST_ANCHOR: u8 = 200;

/// A scenario.
#[derive(Debug)]
pub struct Mix {
    /// Threads beside the one that steps the clock.
    pub threads: usize,
    /// Operations of each.
    pub operations: usize,
    /// What they are chosen from.
    pub kinds: &'static [Kind],
    /// Keys that come and go.
    pub keys: u8,
    /// Keys that are always there.
    pub anchors: u8,
    /// What is done on those: nothing that ends an entry without a successor.
    pub on_anchors: &'static [Kind],
    /// The bound, if there is one.
    pub max_entries: Option<u64>,
    /// Shards.
    pub shards: usize,
    /// Time to live in lane units, or 0.
    pub live: u64,
    /// Time to idle in lane units, or 0.
    pub idle: u64,
    /// Whether a listener is told.
    pub listens: bool,
    /// By how many lane units the clock is stepped in all, one at a time.
    pub steps: u64,
}

impl Mix {
    /// What the others are variations of.
    pub const BASE: Mix = Mix {
        threads: 3,
        operations: 4,
        kinds: &[],
        keys: 2,
        anchors: 0,
        on_anchors: ON_ANCHORS,
        max_entries: None,
        shards: 1,
        live: 0,
        idle: 0,
        listens: false,
        steps: 4,
    };

    /// Runs it once, under the current schedule.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn run(&self) {
        let mut random = Random::of_schedule();
        let world = self.build();
        for anchor in world.anchors() {
            world.act(Kind::Insert, Act::on(anchor));
        }
        for key in 0..self.keys {
            if random.below(2) == 0 {
                world.act(Kind::InsertWithTtl, self.choose(&mut random, key));
            }
        }
        let threads: Vec<_> = (0..self.threads)
            .map(|_| {
                let (world, program) = (world.clone(), self.program(&mut random));
                thread::spawn(move || {
                    for (kind, act) in program {
                        world.act(kind, act);
                    }
                })
            })
            .collect();
        let (clock, steps) = (world.clock.clone(), self.steps);
        let stepper = thread::spawn(move || {
            for _ in 0..steps {
                clock.advance(Duration::from_nanos(UNIT));
                thread::yield_now();
            }
        });
        for thread in threads {
            thread.join().expect("its panic has failed the schedule");
        }
        stepper.join().expect("its panic has failed the schedule");
        self.rest(&world);
        end(world, &mut random);
    }

    fn build(&self) -> World {
        let ends = self.live > 0 || self.idle > 0 || self.max_entries.is_some();
        assert!(!ends || self.anchors == 0, "nothing is always there here");
        let (clock, books) = (ManualClock::new(), Books::default());
        let heard = books.clone();
        let mut builder: Builder<u8, Value> =
            Cache::builder().shards(self.shards).clock(clock.clone());
        if let Some(most) = self.max_entries {
            builder = builder.max_entries(most);
        }
        if self.live > 0 {
            builder = builder.time_to_live(Duration::from_nanos(self.live * UNIT));
        }
        if self.idle > 0 {
            builder = builder.time_to_idle(Duration::from_nanos(self.idle * UNIT));
        }
        if self.listens {
            builder =
                builder.on_removal(move |key, value: &Value, _| heard.event(*key, value.id()));
        }
        let cache = builder.hasher(Fixed(0)).build().expect("valid settings");
        World {
            cache,
            begin: beginning(&clock),
            clock,
            books,
            keys: self.keys,
            anchors: self.anchors,
            live: self.live * UNIT,
            last: self.steps * UNIT,
        }
    }

    fn program(&self, random: &mut Random) -> Vec<(Kind, Act)> {
        (0..self.operations)
            .map(|_| {
                let key = random.below(usize::from(self.keys + self.anchors)) as u8;
                if key < self.keys {
                    (random.one_of(self.kinds), self.choose(random, key))
                } else {
                    let key = FIRST_ANCHOR + key - self.keys;
                    (random.one_of(self.on_anchors), self.choose(random, key))
                }
            })
            .collect()
    }

    fn choose(&self, random: &mut Random, key: u8) -> Act {
        Act {
            key,
            units: random.below(5) as u64,
            variant: random.below(4),
        }
    }

    /// With all threads gone: what must hold of the books and of the cache.
    fn rest(&self, world: &World) {
        let World { cache, books, .. } = world;
        books.judge();
        cache.validate();
        if let Some(most) = self.max_entries {
            let count = cache.entry_count();
            assert!(count <= most, "{count} entries, and the bound is {most}");
        }
        for key in (0..self.keys).chain(world.anchors()) {
            world.act(Kind::Peek, Act::on(key));
        }
        // Everything that can end has ended; nothing may stay but what lives.
        world.clock.advance(Duration::from_nanos(1_000 * UNIT));
        settle(cache);
        cache.validate();
        let living: Vec<usize> = cache.iter().map(|(_, value)| value.id()).collect();
        assert_eq!(
            cache.entry_count(),
            living.len() as u64,
            "a leak: linked entries are not alive"
        );
        books.all_dropped_but(&living);
        if self.listens {
            books.all_reported_but(&living);
        }
    }
}

/// Reaps until nothing is left to do.
///
/// # Panics
/// When something stays in limbo although nobody is pinned.
pub fn settle<V: Send + Sync + 'static>(cache: &Cache<u8, V, Fixed>) {
    while !cache.reap_at_most(u64::MAX).finished {}
    // What reaping itself has unlinked was dropped by it.
    assert_eq!(cache.stats().limbo, 0, "a leak: values stay in limbo");
}

/// Handles end on several threads, some of which still use theirs; the last ends the cache.
fn end(world: World, random: &mut Random) {
    let books = world.books.clone();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let world = world.clone();
            let key = random.below(usize::from(world.keys.max(1))) as u8;
            let kind = random.one_of(&[Kind::Get, Kind::Insert, Kind::Pin, Kind::Reap]);
            thread::spawn(move || {
                world.act(kind, Act::on(key));
                drop(world);
            })
        })
        .collect();
    drop(world);
    for thread in threads {
        thread.join().expect("its panic has failed the schedule");
    }
    books.judge();
    books.all_dropped_but(&[]);
}

/// The moment that a manual clock counts real moments from.
fn beginning(clock: &ManualClock) -> Instant {
    let now = Instant::now();
    now - Duration::from_nanos(clock.at(now))
}

/// The moment at which a clock that began at `begin` shows `time`.
pub fn moment(begin: Instant, time: u64) -> Instant {
    begin + Duration::from_nanos(time)
}
