//! A plain model of a cache: what each key may and must answer after any sequence of operations
//! by one thread, with a clock that also steps back.
//!
//! Deadlines are intervals, because a renewal by a read (time to idle) may be left out when it
//! gains less than a sixteenth; an answer narrows them. An entry whose deadline has passed is over
//! for good only once somebody has looked at it; until then a clock that steps back revives it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebbtide::{Clock, Lifetime, ManualClock, RemovalCause};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The settings that decide lifetimes and bounds.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) live: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    /// Whether lifetimes come from [`policy`].
    pub(crate) policy: bool,
    pub(crate) bound: Option<u64>,
    pub(crate) listener: bool,
}

/// The lifetime of a value, by its tag, in caches with an expiry policy.
pub(crate) fn policy(tag: u64) -> Lifetime {
    match tag % 5 {
        0 => Lifetime::Never,
        1 => Lifetime::For(Duration::ZERO),
        2 => Lifetime::For(Duration::MAX),
        n => Lifetime::For(Duration::from_secs(4 * n)),
    }
}

/// What `touch` repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// The cache's time to live.
    Default,
    /// A moment: nothing to repeat.
    Moment,
    /// A length, or [`NEVER`].
    Length(u64),
    /// Nothing at all, time to idle included.
    Persisted,
}

/// Nanoseconds that a deadline may be early where changes are counted in it.
const COUNTED: u64 = 63;

#[derive(Clone, Copy, Debug)]
struct Span {
    /// The deadline lies between these two, inclusive.
    low: u64,
    high: u64,
    /// The deadline without idleness.
    cap: u64,
    own: Own,
}

/// What is known about an entry that was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody has seen it expired.
    Alive,
    /// Somebody may have.
    Unknown,
    /// Over, and still linked as far as is known.
    Dead,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Tells values apart in events.
    serial: usize,
    /// What reads answer.
    tag: u64,
    span: Span,
    fate: Fate,
}

/// What a look at a key may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Present,
    Absent,
    Either,
}

/// An end that has to be reported before the step is over.
#[derive(Debug)]
struct Due {
    key: u8,
    serial: usize,
    causes: Vec<RemovalCause>,
}

pub(crate) struct Model {
    settings: Settings,
    clock: ManualClock,
    entries: BTreeMap<u8, Entry>,
    due: Vec<Due>,
    /// Entries that had to leave for the bound in this step, at most.
    pub(crate) evictions: usize,
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(NEVER)
}

impl Model {
    pub(crate) fn new(settings: Settings, clock: ManualClock) -> Self {
        Model {
            settings,
            clock,
            entries: BTreeMap::new(),
            due: Vec::new(),
            evictions: 0,
        }
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Whether the cache takes nothing.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.settings.bound == Some(0)
    }

    // --- lifetimes -------------------------------------------------------------------------

    fn idle(&self) -> Option<u64> {
        self.settings.idle.map(nanos)
    }

    fn capped(&self, cap: u64, own: Own) -> Span {
        let word = match self.idle() {
            None => cap,
            Some(idle) => cap.min(self.now().saturating_add(idle)),
        };
        Span {
            low: word,
            high: word,
            cap,
            own,
        }
    }

    /// The span of a new value; `None` if it is over at once.
    fn span(&self, tag: u64, explicit: Option<Lifetime>) -> Option<Span> {
        let now = self.now();
        let live = self.settings.live.map_or(NEVER, nanos);
        let default = now.saturating_add(live);
        let lifetime = match explicit {
            None if !self.settings.policy => return Some(self.capped(default, Own::Default)),
            None => policy(tag),
            Some(lifetime) => lifetime,
        };
        let (mut cap, mut own) = match lifetime {
            Lifetime::Never => (NEVER, Own::Length(NEVER)),
            Lifetime::For(Duration::ZERO) => return None,
            Lifetime::For(length) => {
                let length = nanos(length);
                (now.saturating_add(length), Own::Length(length))
            }
            Lifetime::Until(moment) => {
                let at = self.clock.at(moment);
                if at <= now {
                    return None;
                }
                (at, Own::Moment)
            }
        };
        if explicit.is_none() {
            cap = cap.min(default);
            if let Own::Length(length) = &mut own {
                *length = (*length).min(live);
            }
        }
        Some(self.capped(cap, own))
    }

    /// With a time to idle, the lowest bits of a changed deadline count changes (rule P5).
    fn changed(&self, mut span: Span) -> Span {
        if self.settings.idle.is_some() && span.low != NEVER {
            span.low = span.low.saturating_sub(COUNTED);
        }
        span
    }

    /// A read hit's renewal.
    fn renew(&mut self, key: u8) {
        let (Some(idle), now) = (self.idle(), self.now()) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let span = &mut entry.span;
        if span.low == NEVER {
            return;
        }
        let target = span.cap.min(now.saturating_add(idle));
        span.low = span
            .low
            .max(target.saturating_sub((idle / 16).max(1) + COUNTED));
        span.high = span.high.max(target);
    }

    // --- looking ---------------------------------------------------------------------------

    fn look(&self, key: u8) -> Look {
        let now = self.now();
        match self.entries.get(&key) {
            None => Look::Absent,
            Some(entry) => match entry.fate {
                Fate::Dead => Look::Absent,
                _ if entry.span.high != NEVER && entry.span.high <= now => Look::Absent,
                Fate::Alive if entry.span.low > now => Look::Present,
                _ => Look::Either,
            },
        }
    }

    /// The tag of the key's entry, dead or alive.
    pub(crate) fn number(&self, key: u8) -> Option<u64> {
        self.entries.get(&key).map(|entry| entry.tag)
    }

    /// Whether the key may have a live entry.
    pub(crate) fn may_live(&self, key: u8) -> bool {
        self.look(key) != Look::Absent
    }

    /// A look at `key` found a live value with this tag, or none: checks that, and learns from it.
    pub(crate) fn observe(&mut self, key: u8, found: Option<u64>) -> bool {
        let (look, now) = (self.look(key), self.now());
        match found {
            Some(tag) => {
                assert_ne!(look, Look::Absent, "key {key} answered {tag} at {now}");
                let entry = self.entries.get_mut(&key).expect("it is not absent");
                assert_eq!(entry.tag, tag, "key {key}");
                entry.fate = Fate::Alive;
                entry.span.low = entry.span.low.max(now.saturating_add(1));
            }
            None => {
                assert_ne!(look, Look::Present, "key {key} is lost at {now}");
                self.bury(key);
            }
        }
        found.is_some()
    }

    fn bury(&mut self, key: u8) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.fate = Fate::Dead;
        }
    }

    /// As [`observe`](Self::observe), for an operation that only says whether there was one.
    pub(crate) fn observe_whether(&mut self, key: u8, found: bool) -> bool {
        let tag = self.entries.get(&key).map_or(u64::MAX, |entry| entry.tag);
        self.observe(key, found.then_some(tag))
    }

    /// As [`observe`](Self::observe), for a read that counts as a use.
    pub(crate) fn used(&mut self, key: u8, found: Option<u64>) {
        if self.observe(key, found) {
            self.renew(key);
        }
    }

    /// A walk over everything found exactly these.
    pub(crate) fn observe_all(&mut self, mut found: BTreeMap<u8, u64>) {
        for key in self.keys() {
            let tag = found.remove(&key);
            self.observe(key, tag);
        }
        assert!(found.is_empty(), "keys that nobody stored: {found:?}");
    }

    /// What `ttl` answered.
    pub(crate) fn observe_ttl(&mut self, key: u8, ttl: Option<Lifetime>) {
        let now = self.now();
        if !self.observe_whether(key, ttl.is_some()) {
            return;
        }
        let span = &mut self.entries.get_mut(&key).expect("observed").span;
        match ttl {
            Some(Lifetime::Never) => assert_eq!(span.high, NEVER, "key {key} has a deadline"),
            Some(Lifetime::For(left)) => {
                let deadline = now + nanos(left);
                assert!(deadline > now, "nothing is left, yet it lives");
                assert!(
                    span.low <= deadline && deadline <= span.high,
                    "key {key}: {deadline} is not within {span:?}"
                );
                (span.low, span.high) = (deadline, deadline);
            }
            other => panic!("ttl answered {other:?}"),
        }
    }

    /// `insert_if_absent` stored nothing: there is a live entry, or the value would be over at once.
    pub(crate) fn refused(&mut self, key: u8, tag: u64) {
        if self.span(tag, None).is_some() && !self.holds_nothing() {
            self.observe_whether(key, true);
        } else {
            self.looked_at(key);
        }
    }

    /// `compare_and_swap` found nothing equal to a value with this tag.
    pub(crate) fn not_equal(&mut self, key: u8, tag: u64) {
        if self.entries.get(&key).is_some_and(|entry| entry.tag == tag) {
            self.observe(key, None);
        } else {
            self.looked_at(key);
        }
    }

    /// How many entries are alive: at least, at most.
    pub(crate) fn live_counts(&self) -> (usize, usize) {
        let looks: Vec<Look> = self.keys().into_iter().map(|key| self.look(key)).collect();
        let certain = looks.iter().filter(|&&look| look == Look::Present).count();
        let possible = looks.iter().filter(|&&look| look != Look::Absent).count();
        (certain, possible)
    }

    /// After a count of the living, which looks at each: what is due is over for good.
    pub(crate) fn all_looked_at(&mut self) {
        for key in self.keys() {
            self.looked_at(key);
        }
    }

    /// Somebody looked at an entry and did not say what there was.
    fn looked_at(&mut self, key: u8) {
        match self.look(key) {
            Look::Present => {}
            Look::Absent => self.bury(key),
            Look::Either => self.doubt(key),
        }
    }

    /// Somebody may have looked at any entry.
    fn some_looked_at(&mut self) {
        for key in self.keys() {
            if self.look(key) != Look::Present {
                self.doubt(key);
            }
        }
    }

    fn doubt(&mut self, key: u8) {
        if let Some(entry) = self.entries.get_mut(&key)
            && entry.fate == Fate::Alive
        {
            entry.fate = Fate::Unknown;
        }
    }

    pub(crate) fn keys(&self) -> Vec<u8> {
        self.entries.keys().copied().collect()
    }

    // --- changing --------------------------------------------------------------------------

    /// Takes the entry out and expects its event: `cause` if it was alive, else Expired.
    fn leave(&mut self, key: u8, cause: RemovalCause) {
        let causes = match self.look(key) {
            Look::Present => vec![cause],
            Look::Absent => vec![RemovalCause::Expired],
            Look::Either => vec![cause, RemovalCause::Expired],
        };
        if let Some(entry) = self.entries.remove(&key) {
            self.due.push(Due {
                key,
                serial: entry.serial,
                causes,
            });
        }
    }

    fn arrive(&mut self, key: u8, serial: usize, tag: u64, span: Span) {
        let grows = !self.entries.contains_key(&key);
        self.leave(key, RemovalCause::Replaced);
        self.entries.insert(
            key,
            Entry {
                serial,
                tag,
                span,
                fate: Fate::Alive,
            },
        );
        // Without a listener an expired entry may have been unlinked long ago.
        let may_grow = grows || !self.settings.listener;
        if let Some(bound) = self.settings.bound
            && may_grow
            && self.entries.len() as u64 > bound
        {
            self.evictions += 1;
        }
    }

    /// An unconditional write.
    pub(crate) fn insert(&mut self, key: u8, serial: usize, tag: u64, life: Option<Lifetime>) {
        if self.holds_nothing() {
            self.due.push(Due {
                key,
                serial,
                causes: vec![RemovalCause::Evicted],
            });
            return;
        }
        match self.span(tag, life) {
            Some(span) => self.arrive(key, serial, tag, span),
            None => self.leave(key, RemovalCause::Explicit),
        }
    }

    /// A write to a key that was observed to be absent; whether it is stored.
    pub(crate) fn insert_absent(
        &mut self,
        key: u8,
        serial: usize,
        tag: u64,
        life: Option<Lifetime>,
    ) -> bool {
        let span = self.span(tag, life).filter(|_| !self.holds_nothing());
        if let Some(span) = span {
            self.arrive(key, serial, tag, span);
        }
        span.is_some()
    }

    /// A write to a key that was observed to be present, which keeps its deadline.
    pub(crate) fn replace_keeping(&mut self, key: u8, serial: usize, tag: u64) {
        let span = self.entries[&key].span;
        let span = if self.idle().is_none() || span.low == NEVER {
            span
        } else {
            self.changed(self.capped(span.cap, span.own))
        };
        self.arrive(key, serial, tag, span);
    }

    /// A change of the value in place (a counter's), which is a use.
    pub(crate) fn change_in_place(&mut self, key: u8, serial: usize, tag: u64) {
        let entry = self.entries.get_mut(&key).expect("observed");
        (entry.serial, entry.tag) = (serial, tag);
        self.renew(key);
    }

    /// A write to a key that was observed to be present, with a lifetime; whether it is stored
    /// (otherwise the entry is removed).
    pub(crate) fn replace_with(
        &mut self,
        key: u8,
        serial: usize,
        tag: u64,
        lifetime: Lifetime,
    ) -> bool {
        match self.span(tag, Some(lifetime)) {
            Some(span) => {
                let span = self.changed(span);
                self.arrive(key, serial, tag, span);
                true
            }
            None => {
                self.leave(key, RemovalCause::Explicit);
                false
            }
        }
    }

    /// A removal of an entry that was observed to be present.
    pub(crate) fn remove(&mut self, key: u8) {
        self.leave(key, RemovalCause::Explicit);
    }

    /// Everything leaves, what is over included.
    pub(crate) fn clear(&mut self) {
        for key in self.keys() {
            self.leave(key, RemovalCause::Explicit);
        }
    }

    /// `expire` of an entry that was observed to be present.
    pub(crate) fn expire(&mut self, key: u8, lifetime: Lifetime) {
        match self.span(0, Some(lifetime)) {
            None => self.leave(key, RemovalCause::Explicit),
            Some(span) => self.set_span(key, span),
        }
    }

    pub(crate) fn persist(&mut self, key: u8) {
        self.set_span(
            key,
            Span {
                low: NEVER,
                high: NEVER,
                cap: NEVER,
                own: Own::Persisted,
            },
        );
    }

    pub(crate) fn touch(&mut self, key: u8) {
        let now = self.now();
        let Span { cap, own, .. } = self.entries[&key].span;
        let cap = match own {
            Own::Persisted => return,
            Own::Default => now.saturating_add(self.settings.live.map_or(NEVER, nanos)),
            Own::Moment => cap,
            Own::Length(NEVER) => NEVER,
            Own::Length(length) => now.saturating_add(length),
        };
        let span = self.capped(cap, own);
        self.set_span(key, span);
    }

    fn set_span(&mut self, key: u8, span: Span) {
        let span = self.changed(span);
        self.entries.get_mut(&key).expect("observed").span = span;
    }

    /// A sweep that says that it left nothing behind (`all`), or one that may have.
    pub(crate) fn reaped(&mut self, all: bool) {
        let now = self.now();
        for key in self.keys() {
            let over = self.entries[&key].span.high <= now && self.look(key) == Look::Absent;
            if all && over {
                self.leave(key, RemovalCause::Expired);
            }
        }
        self.some_looked_at();
    }

    // --- events ----------------------------------------------------------------------------

    /// Compares the events of a step. What is over may be reported at any time, what is alive
    /// only as far as the bound demands.
    pub(crate) fn hear(&mut self, events: &[(u8, usize, RemovalCause)]) {
        let dead_first = self.must_sacrifice_the_dead();
        for &(key, serial, cause) in events {
            let expected = self
                .due
                .iter()
                .position(|due| (due.key, due.serial) == (key, serial));
            if let Some(at) = expected {
                let due = self.due.swap_remove(at);
                assert!(due.causes.contains(&cause), "{due:?} was told as {cause:?}");
                continue;
            }
            let entry = self.entries.get(&key).filter(|e| e.serial == serial);
            assert!(
                entry.is_some(),
                "{cause:?} of an unknown value of key {key}"
            );
            match cause {
                RemovalCause::Expired => {
                    assert_ne!(self.look(key), Look::Present, "key {key} expired early");
                }
                RemovalCause::Evicted => {
                    assert!(self.evictions > 0, "key {key} was evicted without need");
                    assert_ne!(self.look(key), Look::Absent, "key {key} was over");
                    assert!(!dead_first, "key {key} was evicted before the dead");
                }
                other => panic!("{other:?} of key {key}, which nobody asked for"),
            }
            self.entries.remove(&key);
        }
        assert!(self.due.is_empty(), "never told: {:?}", self.due);
        self.end_step();
    }

    /// Whether one eviction was due in this step and an entry was known to be over.
    fn must_sacrifice_the_dead(&self) -> bool {
        let now = self.now();
        let over = |entry: &Entry| entry.span.high != NEVER && entry.span.high <= now;
        self.evictions == 1 && self.entries.values().any(over)
    }

    /// Without a listener: forgets the events, and finds out by looking who had to go.
    /// `present` tells whether a key is there, `evicted` how many left for the bound.
    pub(crate) fn guess(&mut self, present: impl Fn(u8) -> bool, evicted: usize) {
        self.due.clear();
        let mut missing = 0;
        if self.settings.bound.is_some() {
            for key in self.keys() {
                let there = present(key);
                if self.look(key) == Look::Present && !there {
                    missing += 1;
                    self.entries.remove(&key);
                } else {
                    self.observe_whether(key, there);
                }
            }
            // One that may have been due is not missed.
            assert!(
                missing <= evicted,
                "{missing} are gone, {evicted} were evicted"
            );
        }
        assert!(evicted <= self.evictions, "evicted without need");
        self.end_step();
    }

    fn end_step(&mut self) {
        if self.evictions > 0 {
            self.some_looked_at();
        }
        self.evictions = 0;
    }

    /// How many entries may be linked: at least, at most.
    pub(crate) fn linked_counts(&self) -> (usize, usize) {
        let most = self.entries.len();
        if self.settings.listener {
            return (most, most);
        }
        (self.live_counts().0, most)
    }
}

/// A moment `offset` after `begin`, or the one that far before it.
pub(crate) fn moment(begin: Instant, offset: i64) -> Instant {
    let step = Duration::from_millis(offset.unsigned_abs());
    if offset >= 0 {
        begin + step
    } else {
        begin.checked_sub(step).unwrap_or(begin)
    }
}
