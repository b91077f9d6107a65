//! The sequential specification of one key: what each call may answer, and what it leaves.
//!
//! Time is in units. An entry whose deadline the clock has reached is absent. Two things that calls
//! do are not one instant, and the design says so:
//!
//! - **A lifetime begins at some reading of the clock during the call**, not at the instant at which
//!   the call takes effect; likewise what `ttl` says is left is counted from such a reading. A call
//!   that overlaps a step of the clock may have read either side of it. Whether an entry is alive, on
//!   the other hand, is decided by the clock at the instant of taking effect.
//! - **A write that replaces a live value and changes its deadline** (`Op::PutWithTtl`; with a time
//!   to idle `Op::Put` and compare_and_swap too) sets the deadline first and the value then (rule
//!   P5): calls that change nothing may come in between, and see the old value with the new deadline.
//!
//! With a time to idle, a read's renewal may be lost if something else on the key, or a step of the
//! clock, overlaps the read. Otherwise it is exact here: units are a quarter of the idle time or
//! more, and only what gains less than a sixteenth is left out.

use ebbtide::Computed;

use crate::history::{Answer, COUNTER_BOUND, Call, Decision, Event, Left, Life, NEVER};

/// The settings that decide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) live: Option<u32>,
    pub(crate) idle: Option<u32>,
    /// Whether an entry may leave at any instant: the cache has a bound.
    pub(crate) lossy: bool,
}

/// What `touch` repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Own {
    /// The cache's time to live.
    Default,
    Length(u32),
    /// A moment: nothing to repeat.
    Moment,
}

/// A live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) value: i64,
    /// When it ends.
    pub(crate) deadline: u32,
    /// When it would end without idleness.
    cap: u32,
    own: Own,
}

/// What a call leaves if it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// All of it.
    Whole(Option<Entry>),
    /// Its first half: `meanwhile` until the second half, which leaves `then`.
    Half { meanwhile: Entry, then: Entry },
}

impl Rules {
    fn capped(&self, value: i64, cap: u32, own: Own, reading: u32) -> Entry {
        let idle = self.idle.map_or(NEVER, |idle| reading + idle);
        Entry {
            value,
            deadline: cap.min(idle),
            cap,
            own,
        }
    }

    /// A new entry, or one that begins a new lifetime; `None` if that is over at once.
    fn fresh(&self, value: i64, life: Option<Life>, reading: u32) -> Option<Entry> {
        let (cap, own) = match life {
            None => (self.live.map_or(NEVER, |live| reading + live), Own::Default),
            Some(Life::Never) => (NEVER, Own::Length(NEVER)),
            Some(Life::For(0)) => return None,
            Some(Life::For(length)) => (reading + length, Own::Length(length)),
            Some(Life::Until(moment)) if moment <= reading => return None,
            Some(Life::Until(moment)) => (moment, Own::Moment),
        };
        Some(self.capped(value, cap, own, reading))
    }

    /// A live entry with a new value that keeps its deadline; with a time to idle it is a use.
    fn kept(&self, entry: Entry, value: i64, reading: u32) -> Effect {
        if self.idle.is_none() || entry.deadline == NEVER {
            return Effect::Whole(Some(Entry { value, ..entry }));
        }
        let then = self.capped(value, entry.cap, entry.own, reading);
        let value = entry.value;
        Effect::Half {
            meanwhile: Entry { value, ..then },
            then,
        }
    }

    fn touched(&self, entry: Entry, reading: u32) -> Entry {
        let cap = match entry.own {
            _ if entry.deadline == NEVER => return entry,
            Own::Default => self.live.map_or(NEVER, |live| reading + live),
            Own::Length(NEVER) => NEVER,
            Own::Length(length) => reading + length,
            Own::Moment => entry.cap,
        };
        self.capped(entry.value, cap, entry.own, reading)
    }

    /// A read hit's renewal.
    fn renewed(&self, entry: Entry, reading: u32) -> Entry {
        match self.idle {
            Some(idle) if entry.deadline != NEVER => Entry {
                deadline: entry.deadline.max(entry.cap.min(reading + idle)),
                ..entry
            },
            _ => entry,
        }
    }

    /// What `event` may leave when it finds `before` alive (or nothing) and reads the clock at
    /// `reading`. Nothing is emitted if its answer is wrong. `alone`: nothing overlaps it.
    pub(crate) fn effects(
        &self,
        before: Option<Entry>,
        event: &Event,
        reading: u32,
        alone: bool,
        emit: &mut impl FnMut(Effect),
    ) {
        let same = Effect::Whole(before);
        match (event.call, event.answer, before) {
            (Call::Read(_), Answer::Value(Some(value)), Some(entry)) if entry.value == value => {
                let renewed = self.renewed(entry, reading);
                if renewed == entry || !alone {
                    emit(same);
                }
                if renewed != entry {
                    emit(Effect::Whole(Some(renewed)));
                }
            }
            (Call::Peek, Answer::Value(Some(value)), Some(entry)) if entry.value == value => {
                emit(same);
            }
            (Call::Read(_) | Call::Peek | Call::Remove, Answer::Value(None), None)
            | (Call::Ttl, Answer::Left(None), None) => emit(same),
            (Call::ContainsKey, Answer::Whether(found), _) if found == before.is_some() => {
                emit(same);
            }
            (Call::Ttl, Answer::Left(Some(Left::Never)), Some(entry))
                if entry.deadline == NEVER =>
            {
                emit(same);
            }
            (Call::Ttl, Answer::Left(Some(Left::Units(left))), Some(entry))
                if left > 0 && reading + left == entry.deadline =>
            {
                emit(same);
            }
            (Call::Insert(value, life), Answer::Done, _) => {
                emit(Effect::Whole(self.fresh(value, life, reading)));
            }
            (Call::InsertIfAbsent(value), Answer::Whether(true), None) => {
                emit(Effect::Whole(self.fresh(value, None, reading)));
            }
            (Call::InsertIfAbsent(_), Answer::Whether(false), Some(_)) => emit(same),
            (Call::Remove, Answer::Value(Some(value)), Some(entry)) if entry.value == value => {
                emit(Effect::Whole(None));
            }
            (Call::CompareAndSwap { expected, new }, Answer::Whether(swapped), _) => {
                match before.filter(|entry| entry.value == expected) {
                    Some(entry) if swapped => emit(self.kept(entry, new, reading)),
                    None if !swapped => emit(same),
                    _ => {}
                }
            }
            (Call::Compute(decision), Answer::Computed(seen, done), _)
                if seen == before.map(|entry| entry.value) =>
            {
                let (expected, effect) = self.computed(before, decision, reading);
                if done == expected {
                    emit(effect);
                }
            }
            (Call::RemoveIf, Answer::Computed(seen, done), _)
                if seen == before.map(|entry| entry.value) =>
            {
                let (expected, effect) = self.computed(before, Decision::Remove, reading);
                if done == expected {
                    emit(effect);
                }
            }
            (Call::Entry(new), Answer::Value(Some(value)), _)
                if value == new.value(before.map(|entry| entry.value)) =>
            {
                emit(self.computed(before, Decision::Put(new), reading).1);
            }
            (Call::Increment(delta, life), Answer::Sum(sum), _) => {
                let expected = before
                    .map_or(0, |entry| entry.value)
                    .checked_add(delta)
                    .filter(|sum| (-COUNTER_BOUND..COUNTER_BOUND).contains(sum));
                if sum == expected {
                    emit(Effect::Whole(match (sum, before) {
                        (None, _) => before,
                        (Some(value), Some(entry)) => Some(Entry { value, ..entry }),
                        (Some(value), None) => self.fresh(value, life, reading),
                    }));
                }
            }
            (Call::Expire(_) | Call::Touch | Call::Persist, Answer::Whether(false), None) => {
                emit(same);
            }
            (Call::Expire(life), Answer::Whether(true), Some(entry)) => {
                emit(Effect::Whole(self.fresh(entry.value, Some(life), reading)));
            }
            (Call::Touch, Answer::Whether(true), Some(entry)) => {
                emit(Effect::Whole(Some(self.touched(entry, reading))));
            }
            (Call::Persist, Answer::Whether(true), Some(entry)) => {
                emit(Effect::Whole(Some(Entry {
                    value: entry.value,
                    deadline: NEVER,
                    cap: NEVER,
                    own: Own::Length(NEVER),
                })));
            }
            _ => {}
        }
    }

    fn computed(
        &self,
        before: Option<Entry>,
        decision: Decision,
        reading: u32,
    ) -> (Computed, Effect) {
        let seen = before.map(|entry| entry.value);
        match (decision, before) {
            (Decision::Keep, _) | (Decision::Remove, None) => {
                (Computed::Unchanged, Effect::Whole(before))
            }
            (Decision::Remove, Some(_)) => (Computed::Removed, Effect::Whole(None)),
            (Decision::Put(new), Some(entry)) => (
                Computed::Replaced,
                self.kept(entry, new.value(seen), reading),
            ),
            (Decision::Put(new), None) => (
                Computed::Inserted,
                Effect::Whole(self.fresh(new.value(seen), None, reading)),
            ),
            (Decision::PutWithTtl(new, life), _) => {
                let then = self.fresh(new.value(seen), Some(life), reading);
                match (before, then) {
                    (None, None) => (Computed::Unchanged, Effect::Whole(None)),
                    (None, Some(_)) => (Computed::Inserted, Effect::Whole(then)),
                    (Some(_), None) => (Computed::Removed, Effect::Whole(None)),
                    (Some(entry), Some(then)) => {
                        let value = entry.value;
                        let meanwhile = Entry { value, ..then };
                        (Computed::Replaced, Effect::Half { meanwhile, then })
                    }
                }
            }
        }
    }
}
