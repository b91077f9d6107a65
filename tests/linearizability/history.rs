//! What threads did to a cache, when, and what they were told; and how that is printed.

use std::fmt::{self, Write as _};

use ebbtide::Computed;

/// No deadline, in [units](crate::driver::Times).
pub(crate) const NEVER: u32 = u32::MAX;

/// Exclusive bound of a counter's magnitude.
pub(crate) const COUNTER_BOUND: i64 = 1 << 62;

/// A lifetime in units of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Never,
    For(u32),
    /// Until a reading of the clock.
    Until(u32),
}

/// The value that a `compute` stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum New {
    Fixed(i64),
    /// This much more than what it saw, as far as a counter goes.
    Plus(i64),
}

impl New {
    pub(crate) fn value(self, seen: Option<i64>) -> i64 {
        match self {
            New::Fixed(value) => value,
            New::Plus(more) => (seen.unwrap_or(0) + more).clamp(-COUNTER_BOUND, COUNTER_BOUND - 1),
        }
    }
}

/// What the closure of a `compute` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Keep,
    Put(New),
    PutWithTtl(New, Life),
    Remove,
}

/// Which of the reads that count as a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Get,
    With,
    Pinned,
    GetMany,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read(How),
    Peek,
    ContainsKey,
    Ttl,
    Insert(i64, Option<Life>),
    InsertIfAbsent(i64),
    Remove,
    CompareAndSwap {
        expected: i64,
        new: i64,
    },
    Compute(Decision),
    /// `entry`, which changes or stores a value, as [`Decision::Put`] does.
    Entry(New),
    /// `remove_if` with a condition that always holds, as [`Decision::Remove`].
    RemoveIf,
    Increment(i64, Option<Life>),
    Expire(Life),
    Touch,
    Persist,
    /// The clock is moved forward by so many units. Belongs to no key.
    Step(u32),
    /// `reap_at_most`; must not be noticed by anybody. Belongs to no key.
    Reap(u64),
    /// A crowd of other keys is inserted for one unit, the first of them with this number, so that
    /// the index is rebuilt around the keys that count. Belongs to no key, as the reaps.
    Crowd(u64),
}

impl Call {
    /// Whether the call concerns one key (others have [`Event::key`] 0).
    pub(crate) fn has_key(self) -> bool {
        !matches!(self, Call::Step(_)) && !self.is_aside()
    }

    /// Whether the call must make no difference to any key that counts.
    pub(crate) fn is_aside(self) -> bool {
        matches!(self, Call::Reap(_) | Call::Crowd(_))
    }
}

/// What `ttl` says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Never,
    Units(u32),
    /// Nanoseconds that are no whole number of units: never right.
    Odd(u64),
}

/// What a call was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The value that was there (read, peek, remove), or is there now (entry).
    Value(Option<i64>),
    /// contains_key, insert_if_absent, compare_and_swap, expire, touch, persist.
    Whether(bool),
    Left(Option<Left>),
    /// What the last run of the closure saw, and what came of it.
    Computed(Option<i64>, Computed),
    /// `None` is an overflow.
    Sum(Option<i64>),
}

/// The answer of a call that had not returned where a history was cut.
pub(crate) const PENDING: u64 = u64::MAX;

/// A call and its answer. Moments are numbers drawn from one shared counter, so all are different;
/// an event precedes another if it returned before the other was invoked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) thread: usize,
    pub(crate) key: usize,
    pub(crate) call: Call,
    pub(crate) answer: Answer,
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
}

impl Event {
    /// Whether what it was told says that it changed nothing, so that a history without it is
    /// linearizable if the history with it is. (With a time to idle, reads that hit renew.)
    pub(crate) fn changed_nothing(&self) -> bool {
        match self.answer {
            Answer::Done => false,
            Answer::Value(value) => {
                !matches!(self.call, Call::Remove | Call::Entry(_)) || value.is_none()
            }
            Answer::Whether(yes) => self.call == Call::ContainsKey || !yes,
            Answer::Left(_) => true,
            Answer::Computed(_, done) => done == Computed::Unchanged,
            Answer::Sum(sum) => sum.is_none(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = |life: Option<Life>| match life {
            None => String::new(),
            Some(life) => format!(", {life:?}"),
        };
        match self.call {
            Call::Read(how) => write!(f, "{}", format!("{how:?}").to_lowercase())?,
            Call::Insert(value, l) => write!(f, "insert({value}{})", life(l))?,
            Call::InsertIfAbsent(value) => write!(f, "insert_if_absent({value})")?,
            Call::CompareAndSwap { expected, new } => {
                write!(f, "compare_and_swap({expected}, {new})")?;
            }
            Call::Compute(decision) => write!(f, "compute({decision:?})")?,
            Call::Entry(new) => write!(f, "entry({new:?})")?,
            Call::RemoveIf => f.write_str("remove_if")?,
            Call::Increment(delta, l) => write!(f, "increment({delta}{})", life(l))?,
            Call::Expire(l) => write!(f, "expire({l:?})")?,
            Call::Step(units) => write!(f, "clock + {units}")?,
            Call::Reap(entries) => write!(f, "reap_at_most({entries})")?,
            Call::Crowd(_) => f.write_str("insert others")?,
            Call::Peek => f.write_str("peek")?,
            Call::ContainsKey => f.write_str("contains_key")?,
            Call::Ttl => f.write_str("ttl")?,
            Call::Remove => f.write_str("remove")?,
            Call::Touch => f.write_str("touch")?,
            Call::Persist => f.write_str("persist")?,
        }
        if self.returned == PENDING {
            return f.write_str(" …");
        }
        match self.answer {
            Answer::Done => Ok(()),
            Answer::Value(None) | Answer::Left(None) => f.write_str(" = none"),
            Answer::Value(Some(value)) => write!(f, " = {value}"),
            Answer::Whether(yes) => write!(f, " = {yes}"),
            Answer::Left(Some(left)) => write!(f, " = {left:?}"),
            Answer::Computed(seen, done) => write!(f, " saw {seen:?} = {done:?}"),
            Answer::Sum(Some(sum)) => write!(f, " = {sum}"),
            Answer::Sum(None) => f.write_str(" = overflow"),
        }
    }
}

/// The events one below the other by invocation, each with a bar from its invocation to its return:
/// bars that share a column overlapped.
pub(crate) fn timeline(events: &[Event]) -> String {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.invoked);
    let mut moments: Vec<u64> = events
        .iter()
        .flat_map(|event| [event.invoked, event.returned])
        .collect();
    moments.sort_unstable();
    moments.dedup();
    let column = |moment| moments.partition_point(|&m| m < moment);
    let mut text = String::new();
    for event in &events {
        let (from, to) = (column(event.invoked), column(event.returned));
        let bar = format!(
            "{}├{}{}",
            " ".repeat(from),
            "─".repeat(to - from - 1),
            if event.returned == PENDING {
                "…"
            } else {
                "┤"
            },
        );
        let key = match event.call.has_key() {
            true => format!("key {}", event.key),
            false => String::new(),
        };
        let thread = event.thread;
        writeln!(
            text,
            "  {bar:<width$}  thread {thread}  {key:<5}  {event}",
            width = moments.len()
        )
        .expect("a string takes everything");
    }
    text
}
