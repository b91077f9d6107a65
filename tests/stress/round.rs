//! One cache under several threads, then its books.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Builder, Cache, Lifetime, Policy, Reaper, Stats, Strategy};

use crate::books::{Books, Item, KEYS, Key, Random, Time, UNKNOWN};
use crate::common::{PATIENCE, assert_counts_agree};
use crate::worker::Worker;

/// Finite lifetimes of a round end within this after they began, or never during it.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Weights are the numbers up to this.
pub(crate) const HEAVIEST: u64 = 3;

/// The settings of one cache and of what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) reaper: Reaper,
    pub(crate) manual_clock: bool,
    pub(crate) bound: Option<u64>,
    /// The bound on the weight of items, where they are weighed.
    pub(crate) room: Option<u64>,
    pub(crate) eviction: Policy,
    pub(crate) listener: bool,
    pub(crate) live: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    /// Whether a policy gives each value the deadline that it knows of.
    pub(crate) policy: bool,
    pub(crate) shards: usize,
    pub(crate) record: bool,
    /// Keys are the numbers below this.
    pub(crate) keys: u64,
    pub(crate) threads: u64,
    /// Whether the cache ends with the last of its threads instead of at rest.
    pub(crate) ends_busy: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let strategy = if (seed / 3).is_multiple_of(2) {
            Strategy::sweep()
        } else {
            Strategy::sample()
        };
        let by_hand = seed % 3 == 2;
        let reaper = match seed % 3 {
            0 => Reaper::shared(),
            1 => Reaper::dedicated(1 + random.below(2) as usize),
            _ => Reaper::manual(),
        };
        let bounded = seed / 6 % 2 == 1;
        let length = |random: &mut Random| {
            random.one_in(3).then(|| {
                Duration::from_micros(1_000 + random.below(SHORT.as_micros() as u64 - 1_000))
            })
        };
        let bound = bounded.then(|| [1, 7, 100, 1_000][random.below(4) as usize]);
        Plan {
            reaper: reaper
                .strategy(strategy)
                .interval(Duration::from_millis(1 + random.below(8)))
                .budget(Duration::from_micros(50 + random.below(1_000))),
            manual_clock: by_hand && random.one_in(2),
            bound,
            // Less than all weigh together, and no less than the heaviest.
            room: bound
                .filter(|_| random.one_in(2))
                .map(|bound| bound.max(HEAVIEST)),
            eviction: match random.below(5) {
                0 => Policy::clock(),
                1 => Policy::fifo(),
                2 => Policy::nearest_deadline(),
                3 => Policy::random(),
                _ => Policy::segmented_clock(),
            },
            listener: seed / 12 % 2 == 1,
            live: length(&mut random),
            idle: length(&mut random),
            policy: random.one_in(2),
            shards: [1, 2, 16, 64][random.below(4) as usize],
            record: random.one_in(2),
            keys: [2, 10, 200, KEYS][random.below(4) as usize],
            threads: 2 + random.below(4),
            ends_busy: random.one_in(4),
        }
    }

    /// Whether a lifetime may end before the deadline that its value knows of.
    pub(crate) fn ends_early(&self) -> bool {
        self.idle.is_some() || (self.policy && self.live.is_some())
    }

    pub(crate) fn builder<K, V>(&self, time: &Time) -> Builder<K, V>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut builder = Cache::builder()
            .shards(self.shards)
            .reaper(self.reaper.clone())
            .record_stats(self.record);
        if let Some(clock) = time.clock() {
            builder = builder.clock(clock.clone());
        }
        if let Some(bound) = self.bound {
            builder = builder.max_entries(bound).policy(self.eviction.clone());
        }
        if let Some(live) = self.live {
            builder = builder.time_to_live(live);
        }
        if let Some(idle) = self.idle {
            builder = builder.time_to_idle(idle);
        }
        builder
    }
}

/// One cache with its books.
pub(crate) struct Rig {
    pub(crate) plan: Plan,
    pub(crate) cache: Cache<Key, Item>,
    pub(crate) books: Arc<Books>,
    /// Handles that threads leave for others to take, clone and drop.
    pub(crate) basket: Mutex<Vec<Cache<Key, Item>>>,
}

impl Rig {
    pub(crate) fn new(plan: Plan) -> Self {
        let books = Books::new(Time::new(plan.manual_clock));
        let mut builder = plan.builder(&books.time);
        if plan.policy {
            let time = books.time.clone();
            builder = builder.expiry(move |_: &Key, item: &Item| lifetime(&time, item));
        }
        if let Some(room) = plan.room {
            builder = builder.max_weight(room, |_, item| item.serial % (HEAVIEST + 1));
        }
        if plan.listener {
            let books = Arc::clone(&books);
            let (early, bounded) = (plan.ends_early(), plan.bound.is_some());
            builder = builder.on_removal(move |key: &Key, item: &Item, cause| {
                books.hear(key, item, cause, early, bounded);
            });
        }
        let rig = Rig {
            cache: builder.build().expect("the settings agree"),
            plan,
            books,
            basket: Mutex::new(Vec::new()),
        };
        rig.assert_finds();
        rig
    }

    /// Checks that a lookup by the borrowed form finds what is there: everything else would agree
    /// with a cache whose reads all miss.
    fn assert_finds(&self) {
        // Longer than anybody who is not running stays away; a time to idle is not.
        if self.plan.idle.is_some() && self.books.time.clock().is_none() {
            return;
        }
        let (cache, books) = (&self.cache, &self.books);
        cache.insert_with_ttl(books.key(1), books.item(1, UNKNOWN), Lifetime::Never);
        assert!(cache.get(&1).is_some(), "what was stored is not found");
        assert!(cache.invalidate(&1), "what was stored is not found");
        books.hits.fetch_add(1, SeqCst);
        books.explicit.fetch_add(1, SeqCst);
    }

    /// Ends the cache if this is its last handle, and checks that nothing is left of it.
    pub(crate) fn end(self) {
        let Rig {
            cache,
            books,
            basket,
            ..
        } = self;
        drop(basket);
        let panics = cache.stats().panics;
        drop(cache);
        assert_eq!(panics, 0, "a listener or a drop found something");
        books.end();
    }
}

/// What the policy says: the deadline that a value knows of, else one that depends on it alone.
fn lifetime(time: &Time, item: &Item) -> Lifetime {
    match item.deadline {
        UNKNOWN if item.serial.is_multiple_of(3) => Lifetime::Never,
        UNKNOWN => Lifetime::For(SHORT / 4),
        deadline => time.until(deadline),
    }
}

/// A round.
pub(crate) fn run(seed: u64) {
    let plan = Plan::new(seed);
    let rig = Arc::new(Rig::new(plan.clone()));
    let start = Arc::new(Barrier::new(plan.threads as usize));
    let steps = crate::operations() / plan.threads;
    let threads: Vec<_> = (0..plan.threads)
        .map(|i| {
            let (rig, start) = (Arc::clone(&rig), Arc::clone(&start));
            thread::spawn(move || {
                let mut worker = Worker::new(&rig, Random::new(seed ^ (i + 1) << 56));
                start.wait();
                for _ in 0..steps {
                    worker.step();
                }
                drop(worker);
                // Whoever is the last ends it.
                Arc::into_inner(rig).map(Rig::end)
            })
        })
        .collect();
    if plan.ends_busy {
        let by_me = Arc::into_inner(rig).map(Rig::end).is_some();
        let ended = threads.into_iter().filter_map(join).count();
        assert_eq!(ended + usize::from(by_me), 1, "who ended it?");
    } else {
        let ended = threads.into_iter().filter_map(join).count();
        assert_eq!(ended, 0, "somebody else ended it");
        finish(Arc::into_inner(rig).expect("the threads are gone"));
    }
}

/// A thread's result, or its panic.
pub(crate) fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits until nothing is due any more and nothing waits to be dropped.
pub(crate) fn come_to_rest<K, V>(cache: &Cache<K, V>, time: &Time) -> Stats
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    match time.clock() {
        Some(clock) => clock.advance(2 * SHORT),
        None => thread::sleep(2 * SHORT),
    }
    let begin = Instant::now();
    loop {
        // A sampler finds the last ones only in the end.
        cache.reap(Duration::from_millis(20));
        let stats = cache.stats();
        let left = left_in_all(&stats);
        if stats.limbo == 0 && stats.dropped == left && cache.live_count() == stats.entries {
            return stats;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "does not come to rest: {stats:?}"
        );
    }
}

fn left_in_all(stats: &Stats) -> u64 {
    let expired = stats.expired_by_read + stats.expired_by_write + stats.expired_by_sweep;
    expired + stats.explicit + stats.replaced + stats.evicted
}

fn finish(rig: Rig) {
    let (plan, books) = (&rig.plan, &rig.books);
    drop(std::mem::take(&mut *rig.basket.lock().unwrap()));
    let stats = come_to_rest(&rig.cache, &books.time);
    assert_counts_agree(&rig.cache);
    assert!(stats.entries <= plan.bound.unwrap_or(u64::MAX), "{stats:?}");
    assert!(
        rig.cache.weight() <= plan.room.unwrap_or(u64::MAX),
        "{stats:?}"
    );
    assert_eq!(stats.panics, 0, "a listener or a drop found something");
    let (least, maybe) = (
        books.explicit.load(SeqCst),
        books.explicit_maybe.load(SeqCst),
    );
    assert!(
        (least..=least.saturating_add(maybe)).contains(&stats.explicit),
        "{least} to {maybe} more removals by calls: {stats:?}"
    );
    if plan.record {
        let counted = (books.hits.load(SeqCst), books.misses.load(SeqCst));
        assert_eq!((stats.hits, stats.misses), counted, "reads");
    }
    assert!(plan.bound.is_some() || stats.evicted == 0, "{stats:?}");
    if plan.listener {
        let told = [0, 1, 2, 3].map(|cause| books.events[cause].load(SeqCst));
        let expired = stats.expired_by_read + stats.expired_by_write + stats.expired_by_sweep;
        let counted = [expired, stats.explicit, stats.replaced, stats.evicted];
        assert_eq!(told, counted, "events by cause: {stats:?}");
        assert_eq!(books.events_in_all(), stats.inserted - stats.entries);
        let present: HashSet<u64> = {
            let pinned = rig.cache.pin();
            pinned.iter().map(|(_, item)| item.serial).collect()
        };
        assert_eq!(present.len() as u64, stats.entries);
        books.assert_present_or_told(&present);
    }
    rig.end();
}
