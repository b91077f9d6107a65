//! Whether a history is linearizable: a search for an order of its calls that respects real time
//! and in which the [specification](crate::spec) explains every answer.
//!
//! The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", Journal of Parallel
//! and Distributed Computing 17, 1993): of the calls that no other unexplained call precedes, try
//! each as the next. As Lowe does ("Testing for linearizability", Concurrency and Computation:
//! Practice and Experience 29, 2017), it remembers which pairs of explained calls and state it has
//! been at, and does not go on from one twice.
//!
//! # One key at a time, and the clock that all share
//! Linearizability is local (Herlihy and Wing, 1990): a history of independent objects is
//! linearizable if and only if its part for each object is. Keys are such objects but for the clock,
//! which every call may read. So the steps of the clock are calls of the history, and the part for a
//! key is its own calls *and all steps*. Leaving out the other keys' calls from an order that
//! explains everything leaves an order that explains the part: a part that is rejected is a
//! violation. The other direction does not hold for the parts alone, because each may choose another
//! instant for one step; hence [`Checker::check`] then searches for one order of all keys'
//! calls together.

use std::collections::HashSet;

use ebbtide::RandomState;

use crate::history::{Call, Event, PENDING};
use crate::spec::{Effect, Entry, Rules};

/// Most keys of a history.
pub(crate) const KEYS: usize = 3;

/// A history with what the search has to know of each call.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    rules: Rules,
    /// The clock at the beginning.
    begin: u32,
    /// By their return.
    calls: Vec<Timed>,
}

#[derive(Clone, Debug)]
struct Timed {
    event: Event,
    /// What the clock may have said while it ran.
    readings: Vec<u32>,
    /// No step, and no other call on its key, overlaps it.
    alone: bool,
}

/// A state of the search.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    /// The calls that have taken effect, one bit each.
    done: u128,
    now: u32,
    keys: [Key; KEYS],
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Key {
    entry: Option<Entry>,
    /// A call whose first half has taken effect, and what its second half leaves.
    half: Option<(u8, Entry)>,
}

/// A history that no order explains.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The key whose part was rejected; `None` if only all of them together were.
    pub(crate) key: Option<usize>,
    /// The shortest beginning that is rejected, without calls that can be spared.
    pub(crate) minimal: Vec<Event>,
}

impl Checker {
    /// `events` on at most [`KEYS`] keys that were all absent when the clock stood at `begin`; the
    /// steps must not overlap one another.
    pub(crate) fn new(rules: Rules, begin: u32, events: &[Event]) -> Self {
        let mut events: Vec<Event> = events.to_vec();
        events.retain(|event| !event.call.is_aside());
        assert!(
            events.len() <= 128,
            "too long for the bits that stand for calls"
        );
        events.sort_by_key(|event| event.returned);
        let calls = events
            .iter()
            .map(|event| {
                let overlaps = |other: &Event| {
                    other.invoked < event.returned && event.invoked < other.returned
                };
                let (mut now, mut readings) = (begin, vec![begin]);
                for step in &events {
                    let Call::Step(units) = step.call else {
                        continue;
                    };
                    now += units;
                    if step.returned < event.invoked {
                        readings.clear();
                    }
                    if step.invoked < event.returned {
                        readings.push(now);
                    }
                }
                let others = events
                    .iter()
                    .filter(|other| other.invoked != event.invoked)
                    .filter(|other| !other.call.has_key() || other.key == event.key);
                Timed {
                    event: *event,
                    readings,
                    alone: !others.into_iter().any(overlaps),
                }
            })
            .collect();
        Checker {
            rules,
            begin,
            calls,
        }
    }

    /// How many calls do not have their key to themselves while they run.
    pub(crate) fn overlapping(&self) -> usize {
        self.calls.iter().filter(|call| !call.alone).count()
    }

    /// Checks each key's part, then the whole.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        for key in 0..KEYS {
            let part = self.part(key);
            if !part.is_linearizable() {
                return Err(Violation {
                    key: Some(key),
                    minimal: part.minimal(),
                });
            }
        }
        let keys: HashSet<usize> = self.calls.iter().map(|call| call.event.key).collect();
        if keys.len() > 1 && !self.is_linearizable() {
            return Err(Violation {
                key: None,
                minimal: self.minimal(),
            });
        }
        Ok(())
    }

    /// The calls on one key, and the steps of the clock.
    fn part(&self, key: usize) -> Checker {
        self.with(|call| !call.event.call.has_key() || call.event.key == key)
    }

    fn with(&self, keep: impl Fn(&Timed) -> bool) -> Checker {
        Checker {
            rules: self.rules,
            begin: self.begin,
            calls: self.calls.iter().filter(|c| keep(c)).cloned().collect(),
        }
    }

    /// The history as it was when all calls that had returned had done so by `moment`.
    fn until(&self, moment: u64) -> Checker {
        let mut cut = self.with(|call| call.event.invoked < moment);
        for call in &mut cut.calls {
            if call.event.returned > moment {
                call.event.returned = PENDING;
            }
        }
        cut
    }

    /// Of a history that is rejected: the shortest beginning that is, without the calls that changed
    /// nothing and can be spared. (Leaving out a call that changed something would accuse the others.)
    fn minimal(&self) -> Vec<Event> {
        let ends = self.calls.iter().map(|call| call.event.returned);
        let mut least = ends
            .map(|moment| self.until(moment))
            .find(|cut| !cut.is_linearizable())
            .unwrap_or_else(|| self.clone());
        // Calls that have not returned may also not have happened.
        loop {
            let spare = (0..least.calls.len()).find(|&at| {
                let call = &least.calls[at];
                let renews = self.rules.idle.is_some() && matches!(call.event.call, Call::Read(_));
                call.event.call.has_key()
                    && (call.event.changed_nothing() && !renews)
                    && !least.without(at).is_linearizable()
            });
            match spare {
                Some(at) => least = least.without(at),
                None => return least.calls.into_iter().map(|call| call.event).collect(),
            }
        }
    }

    fn without(&self, at: usize) -> Checker {
        let mut rest = self.clone();
        rest.calls.remove(at);
        rest
    }

    fn is_linearizable(&self) -> bool {
        let required = self.calls.iter().enumerate();
        let required = required
            .filter(|(_, call)| call.event.returned != PENDING)
            .fold(0, |bits, (at, _)| bits | 1 << at);
        let mut search = Search {
            checker: self,
            required,
            been: HashSet::default(),
        };
        search.succeeds(State {
            done: 0,
            now: self.begin,
            keys: [Key::default(); KEYS],
        })
    }
}

struct Search<'c> {
    checker: &'c Checker,
    required: u128,
    been: HashSet<State, RandomState>,
}

impl Search<'_> {
    /// Whether the rest of the history can be explained from here.
    fn succeeds(&mut self, state: State) -> bool {
        if state.done & self.required == self.required {
            return true;
        }
        if !self.been.insert(state) {
            return false;
        }
        let calls = &self.checker.calls;
        let open = (0..calls.len()).filter(|at| state.done & 1 << at == 0);
        // Only what was invoked before the first return among them can be next.
        let first = open.clone().map(|at| calls[at].event.returned).min();
        let first = first.expect("not all are done");
        let mut next = Vec::new();
        for at in open.filter(|&at| calls[at].event.invoked < first) {
            next.clear();
            self.checker.follow(&state, at, &mut next);
            for state in &next {
                if self.succeeds(*state) {
                    return true;
                }
            }
        }
        false
    }
}

impl Checker {
    /// The states in which call number `at` can leave the cache.
    fn follow(&self, state: &State, at: usize, next: &mut Vec<State>) {
        let call = &self.calls[at];
        let event = &call.event;
        let done = state.done | 1 << at;
        if let Call::Step(units) = event.call {
            let now = state.now + units;
            let mut keys = state.keys;
            for key in &mut keys {
                key.entry = key.entry.filter(|entry| entry.deadline > now);
            }
            next.push(State { done, now, keys });
            return;
        }
        let alive = |entry: &Entry| entry.deadline > state.now;
        let key = state.keys[event.key];
        let mut leave = |done, key| {
            let mut keys = state.keys;
            keys[event.key] = key;
            let state = State {
                done,
                now: state.now,
                keys,
            };
            if !next.contains(&state) {
                next.push(state);
            }
        };
        if let Some((half, then)) = key.half {
            if usize::from(half) == at {
                let entry = Some(then).filter(alive);
                leave(done, Key { entry, half: None });
                return;
            }
            // Whoever is half-way holds the lock: nobody else changes anything.
            if !event.changed_nothing() {
                return;
            }
        }
        // At a bound an entry may have been evicted at any instant; only a call that finds it gone
        // can tell, so the instant before each call will do.
        let gone = (self.rules.lossy && key.half.is_none()).then_some(None);
        for before in std::iter::once(key.entry).chain(gone) {
            for &reading in &call.readings {
                let alone = call.alone;
                self.rules
                    .effects(before, event, reading, alone, &mut |effect| match effect {
                        Effect::Whole(entry) => {
                            let entry = entry.filter(alive);
                            let half = key.half;
                            leave(done, Key { entry, half });
                        }
                        Effect::Half { meanwhile, then } => {
                            let half = u8::try_from(at).expect("at most 128 calls");
                            let key = Key {
                                entry: Some(meanwhile).filter(alive),
                                half: Some((half, then)),
                            };
                            leave(state.done, key);
                        }
                    });
            }
        }
    }
}
