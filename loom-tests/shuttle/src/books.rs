//! The books: every value ever made, and what the threads' observations say about it.
//!
//! Each value is written once and known by its number, so a stale or returned one can be told
//! without knowing the order in which operations took effect: once an operation has shown that a
//! value is gone (it found the key absent, removed it, or put or met something newer there, and
//! the value had been stored before it began), no operation that begins later may meet that value.
//! None of this is a step of the schedule: the books use std's primitives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The books of one schedule; handles share them.
#[derive(Clone, Debug, Default)]
pub struct Books(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tick: u64,
    values: Vec<Record>,
    /// Changes of a key's deadline that are under way: to when.
    changes: HashMap<u8, Vec<u64>>,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Record {
    key: u8,
    /// When it ends at the latest, on the cache's clock, by its own lifetime …
    own: u64,
    /// … and by what others have given it.
    prolonged: u64,
    begun: u64,
    /// When the operation that stored it had returned.
    stored: Option<u64>,
    /// When an operation that proves it gone had returned.
    gone: Option<u64>,
    /// It was linked without doubt.
    was_linked: bool,
    removed: bool,
    watched: u32,
    events: u32,
    drops: u32,
}

/// A value that the cache stores: knows its number and reports its end.
#[derive(Debug)]
pub struct Value {
    id: usize,
    is_original: bool,
    books: Books,
}

impl Value {
    /// Its number.
    pub fn id(&self) -> usize {
        self.id
    }
}

impl Clone for Value {
    /// A reader's copy; its end is of no interest.
    fn clone(&self) -> Self {
        self.books.touch(self.id);
        Value {
            id: self.id,
            is_original: false,
            books: self.books.clone(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.books.touch(self.id);
        self.id == other.id
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.is_original {
            self.books.dropped(self.id);
        }
    }
}

/// One operation's interval, and the time at which it began.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The books' tick.
    pub begin: u64,
    /// The cache's clock.
    pub now: u64,
}

impl Books {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation begins at `now` (read before this).
    pub fn begin(&self, now: u64) -> Span {
        Span {
            begin: self.state().step(),
            now,
        }
    }

    /// A new value for `key` that ends at `bound` at the latest unless somebody prolongs it.
    pub fn value(&self, key: u8, bound: u64) -> Value {
        let mut state = self.state();
        let begun = state.step();
        let prolonged = state.changes.get(&key).into_iter().flatten().copied();
        let prolonged = prolonged.fold(0, u64::max);
        let id = state.values.len();
        state.values.push(Record {
            key,
            own: bound,
            prolonged,
            begun,
            stored: None,
            gone: None,
            was_linked: false,
            removed: false,
            watched: 0,
            events: 0,
            drops: 0,
        });
        Value {
            id,
            is_original: true,
            books: self.clone(),
        }
    }

    /// When a value ends at the latest.
    pub fn bound(&self, id: usize) -> u64 {
        self.state().values[id].bound()
    }

    /// Its own lifetime turns out to end by `bound`.
    pub fn ends_by(&self, id: usize, bound: u64) {
        self.state().values[id].own = bound;
    }

    /// It was stored, and not over at once.
    pub fn was_linked(&self, id: usize) {
        self.state().values[id].was_linked = true;
    }

    /// Somebody sets out to give whatever `key` holds the deadline `to`.
    pub fn change_begins(&self, key: u8, to: u64) {
        let mut state = self.state();
        state.changes.entry(key).or_default().push(to);
        for record in state.values.iter_mut() {
            if record.key == key && record.drops == 0 {
                record.prolonged = record.prolonged.max(to);
            }
        }
    }

    /// The end of [`change_begins`](Self::change_begins).
    pub fn change_ends(&self, key: u8, to: u64) {
        let mut state = self.state();
        let changes = state.changes.get_mut(&key).expect("begun");
        let place = changes.iter().position(|&change| change == to);
        changes.swap_remove(place.expect("begun"));
    }

    /// An operation on `key` met this value.
    pub fn met(&self, key: u8, span: Span, id: usize) {
        let mut state = self.state();
        let end = state.step();
        let record = &state.values[id];
        let (begun, is_gone) = (record.begun, record.gone.is_some_and(|at| at < span.begin));
        let (of, bound) = (record.key, record.bound());
        state.require(of == key, || format!("key {key} has key {of}'s value"));
        state.require(span.now < bound, || {
            format!(
                "value {id} of key {key} read past its deadline: at {} it was over since {bound}",
                span.now
            )
        });
        state.require(!is_gone, || format!("value {id} of key {key} came back"));
        state.end_older(key, begun, end, Some(id));
    }

    /// An operation found `key` absent, removed it, or stored `new`: what was there before is gone.
    pub fn ended(&self, key: u8, span: Span, new: Option<usize>) {
        let mut state = self.state();
        let end = state.step();
        if let Some(new) = new {
            state.values[new].stored = Some(end);
        }
        state.end_older(key, span.begin, end, new);
    }

    /// This very value is gone: it was judged and removed, or exchanged.
    pub fn gone(&self, id: usize) {
        let mut state = self.state();
        let end = state.step();
        let gone = &mut state.values[id].gone;
        *gone = Some(gone.map_or(end, |at| at.min(end)));
    }

    /// A removal of `key` gave this value out.
    pub fn removed(&self, key: u8, span: Span, id: usize) {
        self.met(key, span, id);
        let mut state = self.state();
        let twice = std::mem::replace(&mut state.values[id].removed, true);
        state.require(!twice, || format!("value {id} was removed twice"));
        drop(state);
        self.gone(id);
    }

    /// From here on somebody looks at the value under a pin.
    pub fn watch(&self, id: usize) {
        self.touch(id);
        self.state().values[id].watched += 1;
    }

    /// The look is over.
    pub fn unwatch(&self, id: usize) {
        self.touch(id);
        self.state().values[id].watched -= 1;
    }

    /// The listener hears of the value's end.
    pub fn event(&self, key: u8, id: usize) {
        self.touch(id);
        let mut state = self.state();
        let record = &mut state.values[id];
        record.events += 1;
        let (events, of) = (record.events, record.key);
        state.require(events == 1, || format!("value {id} ended {events} times"));
        state.require(of == key, || format!("key {key} has key {of}'s event"));
        drop(state);
        self.gone(id);
    }

    /// Writes a violation down; [`judge`](Self::judge) tells.
    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    /// # Panics
    /// With the first violation, if there is one.
    pub fn judge(&self) {
        let violation = self.state().violations.first().cloned();
        if let Some(violation) = violation {
            panic!("{violation}");
        }
    }

    /// At rest, with nothing in limbo: every value but `linked` has been dropped, once.
    pub fn all_dropped_but(&self, linked: &[usize]) {
        let mut state = self.state();
        for id in 0..state.values.len() {
            let drops = state.values[id].drops;
            let expected = u32::from(!linked.contains(&id));
            state.require(drops == expected, || {
                format!("value {id} was dropped {drops} times, not {expected}")
            });
        }
        drop(state);
        self.judge();
    }

    /// At rest, in a cache with a listener: every value that was stored and is not `linked` has
    /// had its event.
    pub fn all_reported_but(&self, linked: &[usize]) {
        let mut state = self.state();
        for id in 0..state.values.len() {
            let record = &state.values[id];
            if record.was_linked {
                let (events, expected) = (record.events, u32::from(!linked.contains(&id)));
                state.require(events == expected, || {
                    format!("value {id} was reported {events} times, not {expected}")
                });
            }
        }
        drop(state);
        self.judge();
    }

    /// The value's memory is read.
    fn touch(&self, id: usize) {
        let mut state = self.state();
        let drops = state.values[id].drops;
        state.require(drops == 0, || format!("value {id} used after its drop"));
    }

    fn dropped(&self, id: usize) {
        let mut state = self.state();
        let record = &mut state.values[id];
        record.drops += 1;
        let (drops, watched) = (record.drops, record.watched);
        state.require(drops == 1, || format!("value {id} dropped {drops} times"));
        state.require(watched == 0, || format!("value {id} dropped under a pin"));
    }
}

impl Record {
    fn bound(&self) -> u64 {
        self.own.max(self.prolonged)
    }
}

impl State {
    fn step(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    /// Values of `key` that had been stored before tick `before` are gone at `end`.
    fn end_older(&mut self, key: u8, before: u64, end: u64, except: Option<usize>) {
        for (id, record) in self.values.iter_mut().enumerate() {
            let is_older = record.stored.is_some_and(|stored| stored < before);
            if record.key == key && is_older && Some(id) != except {
                record.gone = Some(record.gone.map_or(end, |gone| gone.min(end)));
            }
        }
    }
}
