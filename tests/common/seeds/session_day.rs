//! A twelve-hour day of members' sessions: touches, lifetimes, and the reference
//! store; and the shapes in which a session can be written down.

use std::collections::HashMap;

use super::random::CourseLcg;

/// Members of the library, numbered from one.
pub(crate) const MEMBERS: u32 = 20_000;
/// Length of the day, in seconds.
pub(crate) const DAY: u32 = 43_200;
/// Lifetime of a session, in seconds.
pub(crate) const LIFETIME: u32 = 1_800;
/// Shortest pause between two touches by one member, in seconds.
pub(crate) const SHORTEST_PAUSE: u32 = 60;
/// Seconds between two counts of what is live.
const SAMPLE_EVERY: u32 = 300;
/// Bytes that an entry costs beside its key and value.
pub(crate) const OVERHEAD: u64 = 56;
/// Seed of the whole course.
pub(crate) const SEED: u32 = 20_240_115;

const BRANCHES: [&str; 5] = ["central", "shore", "university", "children", "archive"];

/// What a text entry costs, in bytes of the seed's model.
pub(crate) fn cost(key: &str, value: &str) -> u64 {
    key.len() as u64 + value.len() as u64 + OVERHEAD
}

/// A member's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) member: u32,
}

impl Session {
    pub(crate) fn branch(self) -> &'static str {
        BRANCHES[self.member as usize % BRANCHES.len()]
    }

    pub(crate) fn role(self) -> &'static str {
        if self.member.is_multiple_of(97) {
            "clerk"
        } else {
            "reader"
        }
    }

    fn token(self) -> u64 {
        u64::from(self.member) * 2_654_435_761 % 4_294_967_296
    }

    /// The key with its namespace: 23 bytes for member 4242.
    pub(crate) fn key(self) -> String {
        format!("session:{}:{}", self.member, self.token())
    }

    /// The key with two namespaces.
    pub(crate) fn long_key(self) -> String {
        format!("session:token:{}:{}", self.member, self.token())
    }

    /// The key with the token alone.
    pub(crate) fn short_key(self) -> String {
        format!("s:{}", self.token())
    }

    /// The value with its field names.
    pub(crate) fn self_describing(self) -> String {
        format!(
            r#"{{"member":{},"branch":"{}","role":"{}"}}"#,
            self.member,
            self.branch(),
            self.role()
        )
    }

    /// The value as fields in a fixed order.
    pub(crate) fn positional(self) -> String {
        format!("{}|{}|{}", self.member, self.branch(), self.role())
    }
}

/// One touch of the system by a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Touch {
    /// Second of the day.
    pub(crate) at: u32,
    pub(crate) member: u32,
}

/// The touches of the day, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct SessionDay {
    pub(crate) touches: Vec<Touch>,
}

impl SessionDay {
    pub(crate) fn new() -> Self {
        let mut random = CourseLcg::new(SEED);
        let mut touches = Vec::new();
        for member in 1..=MEMBERS {
            let mut at = random.next_below(DAY as usize - 7_200) as u32;
            let wanted = 1 + random.next_below(5);
            for _ in 0..wanted {
                if at >= DAY {
                    break;
                }
                touches.push(Touch { at, member });
                at += SHORTEST_PAUSE + random.next_below(2_400) as u32;
            }
        }
        touches.sort_unstable();
        Self { touches }
    }

    /// Plays the day into a store.
    pub(crate) fn play(&self, store: &mut impl SessionStore) -> DayOutcome {
        let mut outcome = DayOutcome::default();
        let mut next_sample = SAMPLE_EVERY;
        for touch in &self.touches {
            while touch.at >= next_sample {
                store.set_time(next_sample);
                outcome.note_peak(store.live());
                next_sample += SAMPLE_EVERY;
            }
            store.set_time(touch.at);
            if store.visit(Session {
                member: touch.member,
            }) == Visit::Entered
            {
                outcome.misses += 1;
            }
        }
        store.set_time(DAY);
        outcome.end = store.live();
        outcome.note_peak(outcome.end);
        outcome
    }
}

/// What a touch met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// A live session.
    Known,
    /// None: the member entered again and a session was stored.
    Entered,
}

/// Live entries and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// What the day is played into.
pub(crate) trait SessionStore {
    /// Moves the time to this second of the day; it never goes back.
    fn set_time(&mut self, second: u32);
    fn visit(&mut self, session: Session) -> Visit;
    fn live(&mut self) -> Live;
}

/// What a day came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DayOutcome {
    /// The count with the most entries.
    pub(crate) peak: Live,
    /// The count at the end of the day.
    pub(crate) end: Live,
    /// Touches that found no session.
    pub(crate) misses: u64,
}

impl DayOutcome {
    /// Entries into the system beyond each member's first.
    pub(crate) fn extra_entries(&self) -> u64 {
        self.misses - u64::from(MEMBERS)
    }

    fn note_peak(&mut self, live: Live) {
        if live.entries > self.peak.entries {
            self.peak = live;
        }
    }
}

/// How a session's lifetime goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    NoExpiration,
    Fixed,
    Sliding,
}

/// The plain store: a map of deadlines; nothing is ever dropped.
#[derive(Debug)]
pub(crate) struct ReferenceSessions {
    policy: Policy,
    now: u32,
    entries: HashMap<String, (String, Option<u32>)>,
}

impl ReferenceSessions {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: 0,
            entries: HashMap::new(),
        }
    }

    fn is_live(&self, deadline: Option<u32>) -> bool {
        deadline.is_none_or(|deadline| self.now < deadline)
    }
}

impl SessionStore for ReferenceSessions {
    fn set_time(&mut self, second: u32) {
        assert!(second >= self.now, "the day goes forward");
        self.now = second;
    }

    fn visit(&mut self, session: Session) -> Visit {
        let key = session.key();
        let fresh = (self.policy != Policy::NoExpiration).then_some(self.now + LIFETIME);
        let known = self
            .entries
            .get(&key)
            .is_some_and(|&(_, deadline)| self.is_live(deadline));
        if !known {
            self.entries.insert(key, (session.self_describing(), fresh));
            return Visit::Entered;
        }
        if self.policy == Policy::Sliding
            && let Some((_, deadline)) = self.entries.get_mut(&key)
        {
            *deadline = fresh;
        }
        Visit::Known
    }

    fn live(&mut self) -> Live {
        let mut live = Live::default();
        for (key, (value, deadline)) in &self.entries {
            if self.is_live(*deadline) {
                live.entries += 1;
                live.bytes += cost(key, value);
            }
        }
        live
    }
}
