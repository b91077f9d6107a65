//! The two ways of making requests, and what a latency is in each.
//!
//! **Open loop**: requests are due at a fixed rate, whatever became of those before; a latency
//! counts from the moment at which its request was *due*. If the cache stalls, every request that
//! was due meanwhile has waited, and says so. This is what the users of a service see.
//!
//! **Closed loop**: the next request begins when the one before has ended; a latency counts from
//! there. A stall, however long, is one sample: it says what a call costs, not what users wait.
//!
//! **The control** is made of nothing: in the open loop, requests to no cache at all, due halfway
//! between the others, that are counted if the thread was idle when they were due; in the closed
//! loop, looks at the clock, one after the other, in turn with the requests and for as long as they
//! took. It has the machine's own pauses (another process, an interrupt, the hypervisor) and
//! nothing else, at the same time and on the same thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds from an agreed moment on.
pub(crate) trait Clock {
    fn now(&mut self) -> u64;
}

/// The real one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Real(pub(crate) Instant);

impl Clock for Real {
    #[inline]
    fn now(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Requests and what becomes of their latencies.
pub(crate) trait Requests<C> {
    /// Which kind of request was made.
    type Kind: Copy;

    /// Makes the next request. `now` is the last known time.
    fn make(&mut self, clock: &mut C, now: u64) -> Self::Kind;
    /// The kind of the next request, without making it: it is too late for it.
    fn give_up(&mut self) -> Self::Kind;
    /// One request was due (open) or begun (closed) at `from` and done at `done`.
    fn note(&mut self, kind: Self::Kind, from: u64, done: u64);
    /// One request to nothing.
    fn note_control(&mut self, from: u64, done: u64);
}

/// Makes requests `interval` apart from `first` on, until `stop` (which may be set meanwhile).
/// Those that were due before, but whose turn did not come, are noted with what they have waited
/// so far; gives their number.
pub(crate) fn open<C: Clock, R: Requests<C>>(
    clock: &mut C,
    requests: &mut R,
    first: u64,
    interval: u64,
    stop: &AtomicU64,
) -> u64 {
    assert!(interval > 0, "a rate is finite");
    let mut due = first;
    let mut control = first + interval / 2;
    let mut now = clock.now();
    loop {
        while now < due {
            let next = clock.now();
            if control <= now {
                // It fell into a request: not the machine's doing.
                control += (now - control + interval) / interval * interval;
            }
            while control <= next {
                requests.note_control(control, next);
                control += interval;
            }
            now = next;
        }
        let end = stop.load(Ordering::Relaxed);
        if now >= end || due >= end {
            let mut waiting = 0;
            while due < end {
                let kind = requests.give_up();
                requests.note(kind, due, now);
                due += interval;
                waiting += 1;
            }
            return waiting;
        }
        let kind = requests.make(clock, now);
        now = clock.now();
        requests.note(kind, due, now);
        due += interval;
    }
}

/// Requests between two controls.
const CHUNK: usize = 64;
/// Longest control at a time, in nanoseconds: a long stall of the cache is not paid back in full.
const CONTROL_MOST: u64 = 1_000_000;

/// Makes one request after the other until `stop`.
///
/// A sample goes from the end of the one before to the end of this one, so that no pause falls
/// between two.
pub(crate) fn closed<C: Clock, R: Requests<C>>(clock: &mut C, requests: &mut R, stop: &AtomicU64) {
    loop {
        let began = clock.now();
        let mut last = began;
        for _ in 0..CHUNK {
            let kind = requests.make(clock, last);
            let now = clock.now();
            requests.note(kind, last, now);
            last = now;
        }
        let until = last + (last - began).min(CONTROL_MOST);
        while last < until {
            let now = clock.now();
            requests.note_control(last, now);
            last = now;
        }
        if last >= stop.load(Ordering::Relaxed) {
            return;
        }
    }
}
