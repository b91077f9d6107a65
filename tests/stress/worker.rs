//! What one thread does to a cache.
//!
//! Even keys only ever get deadlines that are known exactly (a moment, which their values carry);
//! odd keys get everything else. Reads of both are checked as far as that goes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use ebbtide::{Cache, Computed, Lifetime, Op, RemovalCause};

use crate::books::{Before, Books, Item, Key, Random, UNKNOWN};
use crate::round::{HEAVIEST, Plan, Rig, SHORT};

/// Handles that one thread has at most.
const HANDLES: usize = 4;

pub(crate) struct Worker<'r> {
    rig: &'r Rig,
    books: Arc<Books>,
    random: Random,
    handles: Vec<Cache<Key, Item>>,
    /// Pins inside one another.
    depth: u32,
}

/// What was told of a value that a call returned or that its closure saw last.
type Serial = Option<u64>;

impl<'r> Worker<'r> {
    pub(crate) fn new(rig: &'r Rig, random: Random) -> Self {
        Worker {
            rig,
            books: Arc::clone(&rig.books),
            random,
            handles: vec![rig.cache.clone()],
            depth: 0,
        }
    }

    fn plan(&self) -> &'r Plan {
        &self.rig.plan
    }

    fn pick(&mut self) -> u64 {
        let keys = self.plan().keys;
        // Half of the steps go to a tenth of the keys.
        let some = if self.random.one_in(2) {
            keys.div_ceil(10)
        } else {
            keys
        };
        self.random.below(some)
    }

    /// A new value for a key, with a lifetime that fits it.
    fn item(&mut self, key: u64) -> (Item, Lifetime) {
        let now = self.books.time.now();
        let short = self.random.below(SHORT.as_nanos() as u64) + 1;
        if key.is_multiple_of(2) {
            // Some are over as soon as they are there.
            let length = if self.random.one_in(8) {
                short / 1_000
            } else {
                short
            };
            let deadline = now + length;
            (
                self.books.item(key, deadline),
                self.books.time.until(deadline),
            )
        } else {
            (self.books.item(key, UNKNOWN), self.any_lifetime())
        }
    }

    fn any_lifetime(&mut self) -> Lifetime {
        let short = self.random.below(SHORT.as_nanos() as u64) + 1;
        match self.random.below(12) {
            0 => Lifetime::Never,
            1 => Lifetime::For(Duration::MAX),
            2 => Lifetime::For(Duration::ZERO),
            3 => Lifetime::For(Duration::from_nanos(short / 10_000)),
            4 => Lifetime::For(Duration::from_secs(3_600)),
            5 => self
                .books
                .time
                .until(self.books.time.now().saturating_sub(short)),
            6 | 7 => self.books.time.until(self.books.time.now() + short),
            _ => Lifetime::For(Duration::from_nanos(short)),
        }
    }

    /// Whether a plain write would give this key's value the deadline that it knows of.
    fn plain_fits(&self, key: u64) -> bool {
        self.plan().policy || !key.is_multiple_of(2)
    }

    pub(crate) fn step(&mut self) {
        let key = self.pick();
        self.books.begin_call();
        match self.random.below(100) {
            0..34 => self.read(key),
            34..52 => self.insert(key),
            52..60 => self.remove(key),
            60..74 => self.change(key),
            74..84 => self.relive(key),
            84..96 => self.look_around(),
            96 | 97 => self.bulk(),
            _ if self.depth < 2 => self.pinned_stretch(),
            _ => std::thread::yield_now(),
        }
    }

    // --- reading ---------------------------------------------------------------------------

    /// A counted read of `key` that began at `before` found this.
    fn found(&self, key: u64, before: Before, item: Option<&Item>) {
        match item {
            Some(item) => {
                self.books.hits.fetch_add(1, Relaxed);
                item.assert_readable(key, before);
            }
            None => {
                self.books.misses.fetch_add(1, Relaxed);
            }
        }
    }

    fn read(&mut self, key: u64) {
        let cache = &self.handles[0];
        let before = self.books.before();
        match self.random.below(8) {
            0 | 1 => self.found(key, before, cache.get(&key).as_ref()),
            2 => {
                let hit = cache.with(&key, |item| item.assert_readable(key, before));
                self.count(hit.is_some());
            }
            3 => self.found(key, before, cache.peek(&key).as_ref()),
            4 => self.count(cache.contains_key(&key)),
            5 => self.found(key, before, cache.pin().get(&key)),
            6 => self.read_many(),
            _ => {
                let ttl = cache.ttl(&key);
                self.count(ttl.is_some());
                if let Some(Lifetime::For(left)) = ttl {
                    assert!(!left.is_zero(), "nothing is left, yet it lives");
                    if key.is_multiple_of(2) {
                        assert!(left <= SHORT, "{left:?} are left");
                    }
                }
                assert!(!matches!(ttl, Some(Lifetime::Until(_))));
            }
        }
    }

    fn count(&self, hit: bool) {
        let count = if hit {
            &self.books.hits
        } else {
            &self.books.misses
        };
        count.fetch_add(1, Relaxed);
    }

    fn read_many(&mut self) {
        let number = self.random.below(40);
        let keys: Vec<u64> = (0..number).map(|_| self.pick()).collect();
        let before = self.books.before();
        let found = self.handles[0].get_many(&keys);
        assert_eq!(found.len(), keys.len());
        for (key, item) in keys.into_iter().zip(&found) {
            self.found(key, before, item.as_ref());
        }
    }

    // --- writing ---------------------------------------------------------------------------

    fn insert(&mut self, key: u64) {
        let (item, lifetime) = self.item(key);
        let serial = item.serial;
        let number = self.books.key(key);
        let plain = self.plain_fits(key);
        let kind = self.random.below(4);
        let cache = &self.handles[0];
        match kind {
            0 if plain => cache.insert(number, item),
            1 if plain => {
                let refused = cache.try_insert(number, item);
                assert!(refused.is_ok(), "there is room for one");
            }
            2 if plain => {
                if cache.insert_if_absent(number, item) {
                    self.books.stored(serial);
                }
            }
            _ => cache.insert_with_ttl(number, item, lifetime),
        }
        // A lifetime that is over at once removes what was there.
        self.maybe_explicit(1);
    }

    fn maybe_explicit(&self, most: u64) {
        self.books.explicit_maybe.fetch_add(most, SeqCst);
    }

    /// A call answered that it removed an entry, and which.
    fn removed(&self, serial: Serial) {
        self.books.explicit.fetch_add(1, SeqCst);
        self.told(serial, RemovalCause::Explicit);
    }

    fn told(&self, serial: Serial, cause: RemovalCause) {
        if let Some(serial) = serial
            && self.plan().listener
        {
            self.books.assert_told(serial, cause);
        }
    }

    fn remove(&mut self, key: u64) {
        let cache = &self.handles[0];
        let before = self.books.before();
        match self.random.below(4) {
            0 => {
                if let Some(item) = cache.remove(&key) {
                    item.assert_readable(key, before);
                    self.removed(Some(item.serial));
                }
            }
            1 => {
                let serial = cache.remove_with(&key, |item| {
                    item.assert_readable(key, before);
                    item.serial
                });
                if serial.is_some() {
                    self.removed(serial);
                }
            }
            2 => {
                if cache.invalidate(&key) {
                    self.removed(None);
                }
            }
            _ => {
                let doomed = self.random.one_in(2);
                let mut judged = None;
                let gone = cache.remove_if(&key, |item| {
                    item.assert_readable(key, before);
                    judged = Some(item.serial);
                    doomed
                });
                assert!(!gone || doomed);
                if gone {
                    self.removed(judged);
                }
            }
        }
    }

    fn change(&mut self, key: u64) {
        if self.random.one_in(3) {
            self.swap(key);
            return;
        }
        let (item, lifetime) = self.item(key);
        let deadline = item.deadline;
        let serial = item.serial;
        let wish = self.random.below(5);
        let plain = self.plain_fits(key);
        let before = self.books.before();
        let books = &self.books;
        let mut spare = Some(item);
        let mut seen = None;
        let mut put = serial;
        let cache = &self.handles[0];
        let compute = |decide: &mut dyn FnMut(Option<&Item>) -> Op<Item>| {
            if wish == 4 {
                books.while_prolonging(key, || cache.compute(books.key(key), decide))
            } else {
                cache.compute(books.key(key), decide)
            }
        };
        let done = compute(&mut |found| {
            if let Some(found) = found {
                found.assert_readable(key, before);
            }
            seen = found.map(|found| found.serial);
            // A value that was offered and not taken is dropped; the next try offers another.
            match (wish, found) {
                (0, _) => Op::Keep,
                (1, _) => Op::Remove,
                (2 | 3, Some(found)) => {
                    // The deadline stays, and so the new value knows of the old one's.
                    let new = books.item(key, found.deadline);
                    put = new.serial;
                    Op::Put(new)
                }
                (2, None) if plain => {
                    let new = spare.take().unwrap_or_else(|| books.item(key, deadline));
                    put = new.serial;
                    Op::Put(new)
                }
                _ => {
                    let new = spare.take().unwrap_or_else(|| books.item(key, deadline));
                    put = new.serial;
                    Op::PutWithTtl(new, lifetime)
                }
            }
        });
        match done {
            Computed::Unchanged => {}
            Computed::Inserted => {
                assert_eq!(seen, None);
                self.books.stored(put);
            }
            Computed::Replaced => {
                assert!(seen.is_some());
                self.books.stored(put);
                self.told(seen, RemovalCause::Replaced);
            }
            Computed::Removed => {
                assert!(seen.is_some());
                self.removed(seen);
            }
        }
    }

    fn swap(&mut self, key: u64) {
        let cache = &self.handles[0];
        let before = self.books.before();
        let Some(seen) = cache.peek(&key) else {
            self.books.misses.fetch_add(1, Relaxed);
            return;
        };
        self.found(key, before, Some(&seen));
        let new = self.books.item(key, seen.deadline);
        let serial = new.serial;
        match cache.compare_and_swap(self.books.key(key), &seen, new) {
            Ok(()) => {
                self.books.stored(serial);
                self.told(Some(seen.serial), RemovalCause::Replaced);
            }
            Err(back) => assert_eq!(back.serial, serial),
        }
    }

    /// Changes lifetimes. The deadlines of even keys are known and stay.
    fn relive(&mut self, key: u64) {
        let lifetime = if key.is_multiple_of(2) {
            self.books.time.until(0)
        } else {
            self.any_lifetime()
        };
        let cache = &self.handles[0];
        match self.random.below(4) {
            0 => {
                cache.touch(&key);
            }
            1 if !key.is_multiple_of(2) => {
                cache.persist(&key);
            }
            _ => {
                // Most lifetimes of odd keys are not over at once; one that is removes.
                if cache.expire(&key, lifetime) && key.is_multiple_of(2) {
                    self.removed(None);
                } else {
                    self.maybe_explicit(1);
                }
            }
        }
    }

    // --- the cache as a whole --------------------------------------------------------------

    fn look_around(&mut self) {
        let plan = self.plan();
        match self.random.below(13) {
            0 | 1 => {
                if self.handles.len() < HANDLES {
                    self.handles.push(self.handles[0].clone());
                }
            }
            2 => {
                if self.handles.len() > 1 {
                    let one = self.random.below(self.handles.len() as u64) as usize;
                    self.handles.swap_remove(one);
                }
            }
            3 => {
                let handle = self.handles[0].clone();
                let mut basket = self.rig.basket.lock().unwrap();
                basket.push(handle);
            }
            4 => {
                let taken = self.rig.basket.lock().unwrap().pop();
                drop(taken);
            }
            5 => {
                // Each writer may exceed the bound by the one entry that it is adding.
                let most = plan.bound.map_or(u64::MAX, |bound| bound + plan.threads);
                let count = self.handles[0].entry_count();
                assert!(count <= most, "{count} entries, bound {:?}", plan.bound);
            }
            6 => {
                let stats = self.handles[0].stats();
                assert_eq!(stats.panics, 0, "a listener or a drop found something");
                assert_eq!(self.handles[0].name(), "");
                assert!(self.handles[0].memory_usage().total() > 0);
            }
            7 if plan.keys <= 200 => {
                // (It is exact, and walks over everything.)
                assert!(self.handles[0].live_count() <= plan.keys);
            }
            11 => self.change_bound(),
            8 => self.iterate(),
            9 | 10 => self.reap(),
            _ => match self.books.time.clock() {
                Some(clock) => {
                    let step = self.random.below(SHORT.as_nanos() as u64 / 8);
                    clock.advance(Duration::from_nanos(step));
                }
                None if self.random.one_in(4) => std::thread::sleep(SHORT / 200),
                None => std::thread::yield_now(),
            },
        }
    }

    /// Lowers the bound for a moment, never so far that an entry would be refused.
    fn change_bound(&mut self) {
        let cache = &self.handles[0];
        let plan = &self.rig.plan;
        if let Some(bound) = plan.bound {
            let less = 1 + self.random.below(bound);
            cache.set_max_entries(less).expect("it has this bound");
            cache.set_max_entries(bound).expect("it has this bound");
        }
        if let Some(room) = plan.room {
            let less = HEAVIEST + self.random.below(room);
            cache
                .set_max_weight(less.min(room))
                .expect("it has this bound");
            cache.set_max_weight(room).expect("it has this bound");
            let most = room + plan.threads * HEAVIEST;
            assert!(cache.weight() <= most, "{} of {room}", cache.weight());
        }
    }

    fn iterate(&mut self) {
        let most = if self.plan().keys <= 200 {
            u64::MAX
        } else {
            50
        };
        let before = self.books.before();
        let cache = &self.handles[0];
        let mut seen = std::collections::HashSet::new();
        let mut check = |key: u64, item: &Item| {
            item.assert_readable(key, before);
            assert!(seen.insert(item.serial), "{item:?} was met twice");
        };
        if self.random.one_in(2) {
            for (key, item) in cache.iter().take(most as usize) {
                check(key.number(), &item);
            }
        } else {
            for (key, item) in cache.pin().iter().take(most as usize) {
                check(key.number(), item);
            }
        }
    }

    fn reap(&mut self) {
        let most = self.random.below(30);
        let cache = &self.handles[0];
        if self.random.one_in(2) {
            cache.reap(Duration::from_micros(most * 10));
        } else {
            cache.reap_at_most(most);
        }
    }

    fn bulk(&mut self) {
        let kind = self.random.below(8);
        let cache = &self.handles[0];
        let before = self.books.before();
        match kind {
            0 => {
                // What is over is not counted as removed by it.
                self.maybe_explicit(u64::from(u32::MAX));
                cache.invalidate_all();
            }
            1..5 => {
                let (modulus, mut doomed) = (self.random.below(7) + 2, 0);
                cache.retain(|key, item| {
                    item.assert_readable(key.number(), before);
                    let keep = !item.serial.is_multiple_of(modulus);
                    doomed += u64::from(!keep);
                    keep
                });
                self.maybe_explicit(doomed);
            }
            5 => {
                for (key, item) in cache.drain() {
                    item.assert_readable(key.number(), before);
                    self.removed(Some(item.serial));
                }
            }
            6 => {
                // The rest is removed when the iterator is dropped.
                self.maybe_explicit(u64::from(u32::MAX));
                assert!(cache.drain().take(5).count() <= 5);
            }
            _ => self.iterate(),
        }
    }

    /// Keeps references for some steps, which must stay what they were.
    fn pinned_stretch(&mut self) {
        self.depth += 1;
        let cache = self.handles[0].clone();
        let mut pinned = cache.pin();
        for _ in 0..1 + self.random.below(2) {
            let mut held = Vec::new();
            for _ in 0..self.random.below(12) {
                let key = self.pick();
                let before = self.books.before();
                let item = pinned.get(&key);
                self.found(key, before, item);
                held.extend(item);
            }
            for _ in 0..self.random.below(60) {
                self.step();
            }
            if self.random.one_in(4) {
                std::thread::sleep(Duration::from_micros(self.random.below(300)));
            }
            for item in held {
                item.assert_intact();
            }
            pinned.repin();
        }
        self.depth -= 1;
    }
}
