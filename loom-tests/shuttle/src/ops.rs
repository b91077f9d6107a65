//! The operations, each with what it lets the books conclude.

use std::sync::LazyLock;
use std::time::Instant;

use ebbtide::{Cache, Clock, Computed, Lifetime, ManualClock, Op};
use shuttle::thread;

use crate::UNIT;
use crate::books::{Books, Span, Value};
use crate::mix::{FIRST_ANCHOR, Fixed, Kind, moment};

/// A replay says what it does.
static IS_REPLAY: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("EBBTIDE_SHUTTLE_REPLAY").is_some());

/// One cache with its clock and its books; clones share all three.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cache: Cache<u8, Value, Fixed>,
    pub(crate) clock: ManualClock,
    pub(crate) begin: Instant,
    pub(crate) books: Books,
    pub(crate) keys: u8,
    pub(crate) anchors: u8,
    /// Time to live in nanoseconds, or 0.
    pub(crate) live: u64,
    /// What the clock shows at the end, at most.
    pub(crate) last: u64,
}

/// The details of an operation, chosen before the threads begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) key: u8,
    /// Lane units from the current one to the deadline.
    pub(crate) units: u64,
    pub(crate) variant: usize,
}

impl Act {
    pub(crate) fn on(key: u8) -> Self {
        Act {
            key,
            units: 1,
            variant: 0,
        }
    }
}

impl World {
    pub(crate) fn anchors(&self) -> std::ops::Range<u8> {
        FIRST_ANCHOR..FIRST_ANCHOR + self.anchors
    }

    pub(crate) fn act(&self, kind: Kind, act: Act) {
        let key = act.key;
        if *IS_REPLAY {
            eprintln!("{:?}: {kind:?} {act:?}", thread::current().id());
        }
        match kind {
            Kind::Get => self.read(key, |cache| cache.get(&key)),
            Kind::With => self.read(key, |cache| cache.with(&key, Value::clone)),
            Kind::Peek => self.read(key, |cache| cache.peek(&key)),
            Kind::Contains => self.contains(key, |cache| cache.contains_key(&key)),
            Kind::Ttl => self.contains(key, |cache| cache.ttl(&key).is_some()),
            Kind::GetMany => self.get_many(),
            Kind::Pin => self.pin(key),
            Kind::Iter => self.walk(|cache| cache.iter().map(|(k, v)| (k, v.id())).collect()),
            Kind::PinnedIter => self.walk(|cache| {
                let pinned = cache.pin();
                let found = pinned.iter().map(|(k, v)| (*k, v.clone().id()));
                found.collect()
            }),
            Kind::Insert => self.insert(key),
            Kind::InsertWithTtl => self.insert_until(act),
            Kind::InsertIfAbsent => self.insert_if_absent(key),
            Kind::Remove => self.remove(key),
            Kind::Invalidate => {
                let span = self.span();
                self.cache.invalidate(&key);
                self.books.ended(key, span, None);
            }
            Kind::RemoveIf => self.remove_if(act),
            Kind::Expire => self.expire(act),
            Kind::Persist => {
                self.change(key, u64::MAX, |cache| cache.persist(&key));
            }
            Kind::Touch => {
                // An entry that ends at a moment keeps it; one by the cache's time to live does not.
                let to = if self.live > 0 {
                    self.last + self.live
                } else {
                    0
                };
                self.change(key, to, |cache| cache.touch(&key));
            }
            Kind::Compute => self.compute(act),
            Kind::CompareAndSwap => self.compare_and_swap(key),
            Kind::Reap => drop(self.cache.reap_at_most(u64::MAX)),
            Kind::ReapOne => {
                let reaped = self.cache.reap_at_most(1);
                if reaped.expired > 1 {
                    self.books.violation(format!("reaped {}", reaped.expired));
                }
            }
            Kind::Retain => self.retain(act.variant),
            Kind::Drain => {
                let span = self.span();
                for (key, value) in self.cache.drain() {
                    self.books.removed(key, span, value.id());
                }
                self.all_ended(span);
            }
            Kind::InvalidateAll => {
                let span = self.span();
                self.cache.invalidate_all();
                self.all_ended(span);
            }
        }
        self.books.judge();
    }

    fn span(&self) -> Span {
        let now = self.clock.now();
        self.books.begin(now)
    }

    /// A value that lives as long as the cache's time to live lets it.
    fn value(&self, key: u8) -> Value {
        self.books.value(key, u64::MAX)
    }

    /// Its storing operation has returned, so its time to live had begun.
    fn stored(&self, id: usize) {
        if self.live > 0 {
            self.books.ends_by(id, self.clock.now() + self.live);
        }
        self.books.was_linked(id);
    }

    /// A key was found absent.
    fn absent(&self, key: u8, span: Span) {
        if key >= FIRST_ANCHOR {
            let what = format!("key {key} is always there, and was not found");
            self.books.violation(what);
        }
        self.books.ended(key, span, None);
    }

    fn read(&self, key: u8, read: impl FnOnce(&Cache<u8, Value, Fixed>) -> Option<Value>) {
        let span = self.span();
        match read(&self.cache) {
            Some(value) => self.books.met(key, span, value.id()),
            None => self.absent(key, span),
        }
    }

    fn contains(&self, key: u8, contains: impl FnOnce(&Cache<u8, Value, Fixed>) -> bool) {
        let span = self.span();
        if !contains(&self.cache) {
            self.absent(key, span);
        }
    }

    fn get_many(&self) {
        let keys: Vec<u8> = (0..self.keys).chain(self.anchors()).collect();
        let span = self.span();
        for (key, value) in keys.iter().zip(self.cache.get_many(&keys)) {
            match value {
                Some(value) => self.books.met(*key, span, value.id()),
                None => self.absent(*key, span),
            }
        }
    }

    fn pin(&self, key: u8) {
        let span = self.span();
        let pinned = self.cache.pin();
        let Some(value) = pinned.get(&key) else {
            drop(pinned);
            self.absent(key, span);
            return;
        };
        self.books.watch(value.id());
        for _ in 0..3 {
            thread::yield_now();
        }
        self.books.unwatch(value.id());
        self.books.met(key, span, value.id());
    }

    /// A walk meets each key that is always there exactly once.
    fn walk(&self, walk: impl FnOnce(&Cache<u8, Value, Fixed>) -> Vec<(u8, usize)>) {
        let span = self.span();
        let found = walk(&self.cache);
        for &(key, id) in &found {
            self.books.met(key, span, id);
        }
        for anchor in self.anchors() {
            let times = found.iter().filter(|(key, _)| *key == anchor).count();
            if times != 1 {
                let what = format!("a walk met key {anchor} {times} times");
                self.books.violation(what);
            }
        }
    }

    fn insert(&self, key: u8) {
        let span = self.span();
        let value = self.value(key);
        let id = value.id();
        self.cache.insert(key, value);
        self.stored(id);
        self.books.ended(key, span, Some(id));
    }

    fn insert_until(&self, act: Act) {
        let (key, span) = (act.key, self.span());
        let deadline = (span.now / UNIT + act.units) * UNIT;
        let value = self.books.value(key, deadline);
        let id = value.id();
        let until = Lifetime::Until(moment(self.begin, deadline));
        self.cache.insert_with_ttl(key, value, until);
        if self.clock.now() < deadline {
            self.books.was_linked(id);
        }
        self.books.ended(key, span, Some(id));
    }

    fn insert_if_absent(&self, key: u8) {
        let span = self.span();
        let value = self.value(key);
        let id = value.id();
        if self.cache.insert_if_absent(key, value) {
            self.stored(id);
            self.absent(key, span);
            self.books.ended(key, span, Some(id));
        }
    }

    fn remove(&self, key: u8) {
        let span = self.span();
        match self.cache.remove(&key) {
            Some(value) => {
                self.books.removed(key, span, value.id());
                self.books.ended(key, span, None);
            }
            None => self.absent(key, span),
        }
    }

    fn remove_if(&self, act: Act) {
        let (key, span) = (act.key, self.span());
        let mut judged = None;
        let unwanted = |value: &Value| {
            judged = Some(value.clone().id());
            value.id() % 2 == act.variant % 2
        };
        if self.cache.remove_if(&key, unwanted) {
            let id = judged.expect("a removal was judged");
            self.books.removed(key, span, id);
            self.books.ended(key, span, None);
        } else if let Some(id) = judged {
            self.books.met(key, span, id);
        }
    }

    fn expire(&self, act: Act) {
        let (key, now) = (act.key, self.clock.now());
        let deadline = (now / UNIT + act.units) * UNIT;
        let until = Lifetime::Until(moment(self.begin, deadline));
        let span = self.change(key, deadline, |cache| cache.expire(&key, until));
        if act.units == 0 {
            // Over at once: whatever was there is gone.
            self.books.ended(key, span, None);
        }
    }

    /// Gives whatever is there the deadline `to`, at the latest.
    fn change(
        &self,
        key: u8,
        to: u64,
        change: impl FnOnce(&Cache<u8, Value, Fixed>) -> bool,
    ) -> Span {
        let span = self.span();
        self.books.change_begins(key, to);
        let found = change(&self.cache);
        self.books.change_ends(key, to);
        if !found {
            self.absent(key, span);
        }
        span
    }

    fn compute(&self, act: Act) {
        let (key, span) = (act.key, self.span());
        let deadline = (span.now / UNIT + act.units) * UNIT;
        let until = Lifetime::Until(moment(self.begin, deadline));
        let (mut before, mut after, mut decided) = (None, None, act.variant);
        let computed = self.cache.compute(key, |old| {
            before = old.map(|old| old.clone().id());
            decided = match (act.variant, before) {
                // Only removes or keeps what is there, and stores only where nothing is.
                (0, Some(_)) => return Op::Remove,
                (1, _) => return Op::Keep,
                (variant, _) => variant,
            };
            let bound = match (decided, before) {
                (3, _) => deadline,
                (_, Some(old)) => self.books.bound(old),
                (_, None) => u64::MAX,
            };
            let value = self.books.value(key, bound);
            after = Some(value.id());
            if decided == 3 {
                Op::PutWithTtl(value, until)
            } else {
                Op::Put(value)
            }
        });
        match before {
            Some(id) => self.books.met(key, span, id),
            // (One with a deadline that is over at once is not stored, wherever.)
            None => self.absent(key, span),
        }
        match computed {
            Computed::Unchanged => {}
            Computed::Removed => {
                self.books.removed(key, span, before.expect("removed"));
                self.books.ended(key, span, None);
            }
            Computed::Inserted | Computed::Replaced => {
                let id = after.expect("stored");
                if computed == Computed::Inserted && decided != 3 {
                    self.stored(id);
                } else {
                    self.books.was_linked(id);
                }
                if let Some(old) = before {
                    self.books.gone(old);
                }
                self.books.ended(key, span, Some(id));
            }
        }
    }

    fn compare_and_swap(&self, key: u8) {
        let Some(expected) = self.cache.peek(&key) else {
            return;
        };
        let span = self.span();
        let value = self.books.value(key, self.books.bound(expected.id()));
        let id = value.id();
        if self.cache.compare_and_swap(key, &expected, value).is_ok() {
            self.books.met(key, span, expected.id());
            self.books.gone(expected.id());
            self.books.was_linked(id);
            self.books.ended(key, span, Some(id));
        }
    }

    fn retain(&self, variant: usize) {
        let span = self.span();
        let mut unwanted = Vec::new();
        self.cache.retain(|&key, value| {
            let keeps = key >= FIRST_ANCHOR || value.id() % 2 == variant % 2;
            if !keeps {
                unwanted.push((key, value.clone().id()));
            }
            keeps
        });
        for (key, id) in unwanted {
            self.books.met(key, span, id);
            self.books.gone(id);
        }
    }

    fn all_ended(&self, span: Span) {
        for key in 0..self.keys {
            self.books.ended(key, span, None);
        }
    }
}
