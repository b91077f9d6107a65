//! Every increment that returned is in exactly one final value.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Computed, Counter, Op, RemovalCause};

use crate::books::{Random, Time, code};
use crate::common::assert_counts_agree;
use crate::round::{Plan, SHORT, come_to_rest, join};

/// What went into the counters of each key, and what removals said came out.
struct Sums {
    added: Box<[AtomicI64]>,
    told: Box<[AtomicI64]>,
    events: [AtomicU64; 4],
}

impl Sums {
    fn new(keys: u64) -> Self {
        let zeros = || (0..keys).map(|_| AtomicI64::new(0)).collect();
        Sums {
            added: zeros(),
            told: zeros(),
            events: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn add(&self, key: u64, delta: i64) {
        self.added[key as usize].fetch_add(delta, SeqCst);
    }
}

struct Thread {
    cache: Cache<u64, Counter>,
    sums: Arc<Sums>,
    time: Time,
    random: Random,
    keys: u64,
}

impl Thread {
    fn step(&mut self) {
        let key = self.random.below(self.keys);
        let delta = self.random.below(19) as i64 - 6;
        let length = Duration::from_nanos(self.random.below(SHORT.as_nanos() as u64) + 1);
        let (cache, sums) = (&self.cache, &self.sums);
        match self.random.below(40) {
            0..14 => {
                cache.increment(&key, delta).expect("far from the ends");
                sums.add(key, delta);
            }
            14..20 => {
                let added = cache.increment_with_ttl(&key, delta, length);
                added.expect("far from the ends");
                sums.add(key, delta);
            }
            20 | 21 => {
                cache.insert_with_ttl(key, delta.into(), length);
                sums.add(key, delta);
            }
            22 => {
                if cache.insert_if_absent(key, delta.into()) {
                    sums.add(key, delta);
                }
            }
            23..26 => self.compute(key, delta, length),
            26 => {
                let seen = cache.get(&key).map(|counter| counter.get());
                if let Some(seen) = seen
                    && cache
                        .compare_and_swap(key, &seen.into(), (seen + delta).into())
                        .is_ok()
                {
                    sums.add(key, delta);
                }
            }
            27 | 28 => {
                // (What a removal returns its event says too.)
                cache.remove(&key);
            }
            29 => {
                cache.remove_if(&key, |counter| counter.get() % 2 == 0);
            }
            30 => {
                cache.expire(&key, length);
            }
            31 => {
                cache.expire(&key, Duration::ZERO);
            }
            32 => {
                cache.touch(&key);
            }
            33 if self.random.one_in(10) => cache.retain(|_, counter| counter.get() % 3 != 0),
            34 if self.random.one_in(20) => cache.invalidate_all(),
            35 if self.random.one_in(20) => drop(cache.drain()),
            36 => {
                cache.reap_at_most(self.random.below(10));
            }
            37 => match self.time.clock() {
                Some(clock) => clock.advance(length / 4),
                None => thread::yield_now(),
            },
            38 => {
                // An increment beyond the end leaves it as it is.
                let beyond = cache.increment(&key, i64::MAX);
                assert!(beyond.is_err());
            }
            _ => {
                cache.contains_key(&key);
            }
        }
    }

    fn compute(&mut self, key: u64, delta: i64, length: Duration) {
        let wish = self.random.below(3);
        let mut seen = None;
        let done = self.cache.compute(key, |counter| {
            seen = counter.map(Counter::get);
            let next = seen.unwrap_or(0) + delta;
            match wish {
                0 => Op::Remove,
                1 => Op::Put(next.into()),
                _ => Op::PutWithTtl(next.into(), length.into()),
            }
        });
        let next = seen.unwrap_or(0) + delta;
        match (done, wish) {
            (Computed::Unchanged | Computed::Removed, _) => assert_eq!(wish, 0),
            // In place: no event.
            (Computed::Replaced, 1) => self.sums.add(key, delta),
            // The old one is told with what it had, all of which the new one repeats.
            (Computed::Replaced | Computed::Inserted, _) => self.sums.add(key, next),
        }
    }
}

pub(crate) fn run(seed: u64) {
    let mut plan = Plan::new(seed);
    plan.keys = plan.keys.min(200);
    let time = Time::new(plan.manual_clock);
    let sums = Arc::new(Sums::new(plan.keys));
    let listener = {
        let sums = Arc::clone(&sums);
        move |key: &u64, counter: &Counter, cause: RemovalCause| {
            sums.told[*key as usize].fetch_add(counter.get(), SeqCst);
            sums.events[code(cause)].fetch_add(1, SeqCst);
        }
    };
    let builder = plan.builder(&time).on_removal(listener);
    let cache: Cache<u64, Counter> = builder.build().expect("the settings agree");
    let start = Arc::new(Barrier::new(plan.threads as usize));
    let steps = crate::operations() / plan.threads;
    let threads: Vec<_> = (0..plan.threads)
        .map(|i| {
            let mut thread = Thread {
                cache: cache.clone(),
                sums: Arc::clone(&sums),
                time: time.clone(),
                random: Random::new(seed ^ (i + 1) << 56),
                keys: plan.keys,
            };
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                for _ in 0..steps {
                    thread.step();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(join);
    let stats = come_to_rest(&cache, &time);
    assert_counts_agree(&cache);
    assert_eq!(stats.panics, 0);
    assert!(stats.entries <= plan.bound.unwrap_or(u64::MAX));
    let expired = stats.expired_by_read + stats.expired_by_write + stats.expired_by_sweep;
    assert_eq!(
        sums.events.each_ref().map(|count| count.load(SeqCst)),
        [expired, stats.explicit, stats.replaced, stats.evicted],
        "events by cause: {stats:?}"
    );
    let mut kept = 0;
    for (key, counter) in cache.iter() {
        sums.told[key as usize].fetch_add(counter.get(), SeqCst);
        kept += 1;
    }
    assert_eq!(kept, stats.entries);
    for (key, (added, told)) in sums.added.iter().zip(&sums.told).enumerate() {
        assert_eq!(
            added.load(SeqCst),
            told.load(SeqCst),
            "the sum of key {key}"
        );
    }
}
