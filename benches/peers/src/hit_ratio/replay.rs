//! One pass of a trace through one contender: a get, and an insert when it misses.

use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use super::traces::{Times, Trace};
use crate::timeline::Compression;

/// What all contenders store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Which request inserted it.
    pub(super) stamp: u32,
    /// Bytes in a replay with weights, else 1.
    pub(super) weight: u32,
    /// Nanoseconds of the contender's own time; [`FOREVER`] never expires.
    pub(super) lifetime: u64,
}

pub(super) const FOREVER: u64 = u64::MAX;

/// A contender, filled by one replay. Its calls come from one thread.
pub(super) trait Subject {
    fn get(&mut self, key: u64) -> Option<Value>;
    fn insert(&mut self, key: u64, value: Value);

    /// Moves its clock to `at` nanoseconds, if it has one that can be moved.
    fn advance(&mut self, _at: u64) {}

    /// What it holds, in the unit of its bound: of those that promise never to exceed that.
    fn held(&self) -> Option<u64> {
        None
    }
}

/// Who makes lifetimes hold, and in which time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Life {
    /// Nothing expires.
    Endless,
    /// The contender, on a clock that is moved to each request's time.
    #[cfg_attr(
        not(feature = "ebbtide"),
        allow(dead_code, reason = "no peer has such a clock")
    )]
    Stepped(Compression),
    /// The contender, in real time: requests wait until they are due.
    Real(Compression),
    /// The reader, from a deadline in the value. The contender knows nothing of it.
    Reader(Compression),
}

impl Life {
    fn compression(self) -> Option<Compression> {
        match self {
            Life::Endless => None,
            Life::Stepped(time) | Life::Real(time) | Life::Reader(time) => Some(time),
        }
    }
}

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) hits: u64,
    /// Of all requests.
    pub(super) bytes: u64,
    pub(super) hit_bytes: u64,
    /// The most that a request in real time came after its time.
    pub(super) behind: Duration,
}

impl Tally {
    pub(super) fn count(&mut self, bytes: u32, hit: bool) {
        let bytes = u64::from(bytes);
        self.requests += 1;
        self.bytes += bytes;
        if hit {
            self.hits += 1;
            self.hit_bytes += bytes;
        }
    }

    /// Percent.
    pub(super) fn hit_ratio(&self) -> f64 {
        self.hits as f64 * 100.0 / self.requests as f64
    }

    /// Percent.
    pub(super) fn byte_hit_ratio(&self) -> f64 {
        self.hit_bytes as f64 * 100.0 / self.bytes as f64
    }
}

/// The weight of each request: its size when `weighted`, else 1.
pub(super) fn sizes_of(trace: &Trace, weighted: bool) -> impl Iterator<Item = u32> + '_ {
    let sizes: &[u32] = if weighted { &trace.sizes } else { &[] };
    sizes.iter().copied().chain(iter::repeat(1))
}

/// Requests in real time.
struct Pace {
    began: Instant,
    compression: Compression,
    behind: Duration,
}

impl Pace {
    /// Sleeps are no more exact than this.
    const EARLY: Duration = Duration::from_micros(100);

    /// Waits until the request at `at` nanoseconds of the trace is due.
    fn wait(&mut self, at: u64) {
        let due = self.compression.time(at);
        let now = self.began.elapsed();
        if due > now + Self::EARLY {
            thread::sleep(due - now);
        }
        self.behind = self.behind.max(now.saturating_sub(due));
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOREVER)
}

/// What the contender must answer for a key, if anything.
#[derive(Clone, Copy)]
struct Stored {
    stamp: u32,
    due: u64,
}

/// Replays the whole trace. 16 bytes for each distinct key beside the contender's own.
///
/// # Errors
///
/// An answer that is not what was inserted last under that key, one that had expired (where the
/// contender is to see to that), and a trace without what the replay needs.
pub(super) fn replay(
    trace: &Trace,
    subject: &mut dyn Subject,
    weighted: bool,
    life: Life,
) -> Result<Tally, String> {
    let compression = life.compression();
    let times = match (compression, &trace.times) {
        (None, _) => None,
        (Some(_), Some(times)) => Some(times),
        (Some(_), None) => return Err("the trace has no lifetimes".to_owned()),
    };
    let mut pace = match life {
        Life::Real(compression) => Some(Pace {
            began: Instant::now(),
            compression,
            behind: Duration::ZERO,
        }),
        _ => None,
    };
    let lifetime = |times: &Times, place: usize| {
        let length = compression.and_then(|time| time.lifetime(times.ttls[place]));
        length.map_or(FOREVER, nanos)
    };
    let nothing = Stored {
        stamp: u32::MAX,
        due: 0,
    };
    let mut stored = vec![nothing; trace.distinct as usize];
    let mut tally = Tally::default();
    let requests = trace.keys.iter().zip(sizes_of(trace, weighted));
    for (place, (&key, weight)) in requests.enumerate() {
        let mut now = 0;
        if let Some(times) = times {
            now = times.at[place];
            if let Some(pace) = &mut pace {
                pace.wait(now);
                now = pace.now();
            }
            if matches!(life, Life::Stepped(_)) {
                subject.advance(now);
            }
        }
        let expected = stored[key as usize];
        let hit = match subject.get(u64::from(key)) {
            None => false,
            Some(found) if found.stamp != expected.stamp => {
                return Err(format!(
                    "request {place} for key {key} was answered with what request {} inserted, \
                     and not request {}",
                    found.stamp, expected.stamp
                ));
            }
            Some(_) if times.is_none() || now < expected.due => true,
            Some(_) if matches!(life, Life::Reader(_)) => false,
            Some(_) => {
                return Err(format!(
                    "request {place} for key {key} was answered {} ns after the entry's deadline",
                    now - expected.due
                ));
            }
        };
        tally.count(weight, hit);
        if !hit {
            let value = Value {
                stamp: place as u32,
                weight,
                lifetime: times.map_or(FOREVER, |times| lifetime(times, place)),
            };
            subject.insert(u64::from(key), value);
            // In real time the contender took the time within the call.
            let from = pace.as_ref().map_or(now, Pace::now);
            stored[key as usize] = Stored {
                stamp: value.stamp,
                due: from.saturating_add(value.lifetime),
            };
        }
    }
    tally.behind = pace.map_or(Duration::ZERO, |pace| pace.behind);
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Op, Request};
    use std::collections::HashMap;

    const SECOND: u64 = 1_000_000_000;
    /// As logged: trace time is the contender's time.
    const LOGGED: Compression = Compression {
        speed: 1.0,
        lifetime_factor: 1.0,
    };

    /// Key, size, lifetime, time, both in seconds.
    fn trace(requests: &[(u64, u32, u32, u64)]) -> Trace {
        let requests: Vec<Request> = requests
            .iter()
            .map(|&(key, size, ttl, at)| Request {
                key,
                at: at * SECOND,
                size,
                ttl,
                op: Op::Fetch,
            })
            .collect();
        Trace::new("test", &requests, true, true)
    }

    /// Holds everything; has a clock that it looks at or not.
    #[derive(Default)]
    struct Everything {
        entries: HashMap<u64, (Value, u64)>,
        now: u64,
        expires: bool,
        inserted: Vec<Value>,
        answers: Option<Value>,
    }

    impl Subject for Everything {
        fn get(&mut self, key: u64) -> Option<Value> {
            let (value, due) = *self.entries.get(&key)?;
            let living = !self.expires || self.now < due;
            living.then_some(self.answers.unwrap_or(value))
        }

        fn insert(&mut self, key: u64, value: Value) {
            let due = self.now.saturating_add(value.lifetime);
            self.entries.insert(key, (value, due));
            self.inserted.push(value);
        }

        fn advance(&mut self, at: u64) {
            self.now = at;
        }
    }

    const REQUESTS: [(u64, u32, u32, u64); 6] = [
        (1, 10, 5, 0),
        (2, 20, 0, 1),
        (1, 10, 5, 4),
        (1, 10, 5, 5),
        (2, 20, 0, 100),
        (1, 10, 5, 100),
    ];

    #[test]
    fn hits_and_their_bytes_are_counted() {
        let mut everything = Everything::default();
        let tally = replay(&trace(&REQUESTS), &mut everything, true, Life::Endless).unwrap();
        assert_eq!((tally.requests, tally.hits), (6, 4));
        assert_eq!((tally.bytes, tally.hit_bytes), (80, 50));
        assert!((tally.hit_ratio() - 66.667).abs() < 0.001);
        assert_eq!(tally.byte_hit_ratio(), 62.5);
        let weights: Vec<u32> = everything.inserted.iter().map(|v| v.weight).collect();
        assert_eq!(weights, [10, 20]);
        assert!(everything.inserted.iter().all(|v| v.lifetime == FOREVER));

        let mut everything = Everything::default();
        let tally = replay(&trace(&REQUESTS), &mut everything, false, Life::Endless).unwrap();
        assert_eq!(tally.bytes, 6, "unit weights");
        assert!(everything.inserted.iter().all(|v| v.weight == 1));
    }

    #[test]
    fn lifetimes_hold_in_the_contender_or_in_the_reader() {
        let mut stepped = Everything {
            expires: true,
            ..Everything::default()
        };
        let one = replay(
            &trace(&REQUESTS),
            &mut stepped,
            false,
            Life::Stepped(LOGGED),
        );
        let mut reader = Everything::default();
        let other = replay(&trace(&REQUESTS), &mut reader, false, Life::Reader(LOGGED));
        for tally in [one, other] {
            // 1 at 4 s and 2 at 100 s; 1 is inserted anew at 5 s and at 100 s.
            assert_eq!(tally.unwrap().hits, 2);
        }
        for subject in [stepped, reader] {
            let lifetimes: Vec<u64> = subject.inserted.iter().map(|v| v.lifetime).collect();
            assert_eq!(lifetimes, [5 * SECOND, FOREVER, 5 * SECOND, 5 * SECOND]);
        }
    }

    #[test]
    fn in_real_time_requests_wait_and_lifetimes_are_as_short() {
        let compression = Compression {
            speed: 1_000.0,
            lifetime_factor: 5.0,
        };
        let began = Instant::now();
        let mut everything = Everything::default();
        let tally = replay(
            &trace(&[(1, 1, 0, 0), (2, 1, 600, 50)]),
            &mut everything,
            false,
            Life::Real(compression),
        );
        assert!(began.elapsed() >= Duration::from_millis(49));
        assert_eq!(tally.unwrap().hits, 0);
        assert_eq!(everything.inserted[1].lifetime, 120 * SECOND / 1_000);
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        let mut wrong = Everything {
            answers: Some(Value {
                stamp: 1,
                weight: 1,
                lifetime: FOREVER,
            }),
            ..Everything::default()
        };
        let error = replay(&trace(&REQUESTS), &mut wrong, false, Life::Endless).unwrap_err();
        assert!(error.starts_with("request 2 for key 0"), "{error}");
    }

    #[test]
    fn an_expired_answer_is_an_error_of_who_keeps_lifetimes() {
        let mut late = Everything::default();
        let error = replay(&trace(&REQUESTS), &mut late, false, Life::Stepped(LOGGED));
        let error = error.unwrap_err();
        assert!(error.contains("0 ns after the entry's deadline"), "{error}");

        let fast = Compression {
            speed: 1_000.0,
            lifetime_factor: 1.0,
        };
        let mut late = Everything::default();
        let error = replay(&trace(&REQUESTS), &mut late, false, Life::Real(fast)).unwrap_err();
        assert!(error.contains("after the entry's deadline"), "{error}");
    }

    #[test]
    fn lifetimes_need_a_trace_that_has_them() {
        let mut trace = trace(&REQUESTS);
        trace.times = None;
        let mut everything = Everything::default();
        let error = replay(&trace, &mut everything, false, Life::Reader(LOGGED)).unwrap_err();
        assert_eq!(error, "the trace has no lifetimes");
    }
}
