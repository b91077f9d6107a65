//! The values of the replay, and a ledger that they keep of themselves.
//!
//! How many bytes do dead entries hold? The cache could only guess: it stops counting an entry when
//! it unlinks it, a little before the memory is free. So every value writes itself into the
//! [`Ledger`] when it is made, under the moment when its lifetime ends, and out of it in its `Drop`.
//! What stands under a moment that has passed is dead and still held, wherever the cache has it:
//! linked, unlinked and waiting for its readers, or queued for its drop.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Ends of lifetimes are kept in steps of 10 ms: a value counts as dead from the end of its step on.
const STEP_NANOS: u64 = 10_000_000;
const STEPS_PER_PAGE: usize = 4_096;
/// Pages of 41 s each, made when first used. Ends more than 93 hours ahead stand in the last step.
const PAGES: usize = 8_192;
/// The time that means never, in nanoseconds of a ledger.
const NEVER: u64 = u64::MAX;

/// A value: real memory of the logged size, the moment when its lifetime ends, and its ledger.
#[derive(Debug)]
pub(crate) struct Value {
    bytes: Box<[u8]>,
    /// When the lifetime ends, in nanoseconds of the ledger.
    end: u64,
    ledger: Arc<Ledger>,
}

/// What a read saw of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Whether the bytes were those that were put under this key.
    pub(crate) intact: bool,
    end: u64,
}

impl Seen {
    /// Whether the lifetime had ended by `now`, in nanoseconds of the ledger.
    pub(crate) fn ended_by(self, now: u64) -> bool {
        self.end <= now
    }
}

impl Value {
    /// A value of `size` bytes for `key` with a lifetime up to `end` (none: never ends).
    pub(crate) fn new(key: u64, size: u32, end: Option<Instant>, ledger: &Arc<Ledger>) -> Self {
        let end = end.map_or(NEVER, |end| ledger.nanos(end));
        ledger.add(end, size as usize);
        Self {
            bytes: vec![Self::mark(key); size as usize].into_boxed_slice(),
            end,
            ledger: Arc::clone(ledger),
        }
    }

    /// Looks at the first and the last byte: memory given back too early or mixed up would show.
    pub(crate) fn look(&self, key: u64) -> Seen {
        let mark = Self::mark(key);
        let ends = [self.bytes.first(), self.bytes.last()];
        Seen {
            intact: ends.into_iter().flatten().all(|byte| *byte == mark),
            end: self.end,
        }
    }

    /// The byte that fills a key's values. Never 0, so that the memory is really written.
    fn mark(key: u64) -> u8 {
        (key % 255) as u8 + 1
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.ledger.remove(self.end, self.bytes.len());
    }
}

/// A number of values and the bytes they hold (the values' own: keys and the cache's overhead are
/// not in it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct Cell {
    count: AtomicI64,
    bytes: AtomicI64,
}

impl Cell {
    fn change(&self, count: i64, bytes: i64) {
        self.count.fetch_add(count, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn tally(&self) -> Tally {
        let read = |n: &AtomicI64| n.load(Relaxed).max(0) as u64;
        Tally {
            count: read(&self.count),
            bytes: read(&self.bytes),
        }
    }
}

/// All values in memory, by the end of their lifetimes.
#[derive(Debug)]
pub(crate) struct Ledger {
    origin: Instant,
    held: Cell,
    made: AtomicI64,
    pages: Vec<OnceLock<Box<[Cell]>>>,
    /// How long after the end of its lifetime a value was dropped, in microseconds.
    lag: Mutex<Histogram<u64>>,
}

impl Ledger {
    pub(crate) fn new(origin: Instant) -> Arc<Self> {
        let lag = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are valid");
        Arc::new(Self {
            origin,
            held: Cell::default(),
            made: AtomicI64::new(0),
            pages: (0..PAGES).map(|_| OnceLock::new()).collect(),
            lag: Mutex::new(lag),
        })
    }

    /// Nanoseconds from the ledger's beginning to `moment`.
    pub(crate) fn nanos(&self, moment: Instant) -> u64 {
        let nanos = moment.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(NEVER - 1).min(NEVER - 1)
    }

    /// What is in memory now, dead or alive.
    pub(crate) fn held(&self) -> Tally {
        self.held.tally()
    }

    /// How many values were ever made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Relaxed).max(0) as u64
    }

    /// What is in memory although its lifetime ended before `now` (by up to 10 ms: not yet counted).
    pub(crate) fn dead(&self, now: Instant) -> Tally {
        let mut passed = (self.nanos(now) / STEP_NANOS) as usize;
        let mut sum = Tally::default();
        for page in &self.pages {
            for cell in page.get().into_iter().flatten().take(passed) {
                let Tally { count, bytes } = cell.tally();
                sum.count += count;
                sum.bytes += bytes;
            }
            passed = passed.saturating_sub(STEPS_PER_PAGE);
            if passed == 0 {
                break;
            }
        }
        sum
    }

    /// How long after the end of their lifetimes the values that had outlived it were dropped, in
    /// microseconds.
    pub(crate) fn lag(&self) -> Histogram<u64> {
        self.lag.lock().expect("no holder panics").clone()
    }

    fn cell(&self, end: u64) -> Option<&Cell> {
        if end == NEVER {
            return None;
        }
        let step = (end / STEP_NANOS) as usize;
        let (page, place) = (step / STEPS_PER_PAGE, step % STEPS_PER_PAGE);
        let (page, place) = match page {
            PAGES.. => (PAGES - 1, STEPS_PER_PAGE - 1),
            _ => (page, place),
        };
        let empty = || (0..STEPS_PER_PAGE).map(|_| Cell::default()).collect();
        Some(&self.pages[page].get_or_init(empty)[place])
    }

    fn add(&self, end: u64, bytes: usize) {
        self.made.fetch_add(1, Relaxed);
        self.held.change(1, bytes as i64);
        if let Some(cell) = self.cell(end) {
            cell.change(1, bytes as i64);
        }
    }

    fn remove(&self, end: u64, bytes: usize) {
        self.held.change(-1, -(bytes as i64));
        let Some(cell) = self.cell(end) else { return };
        cell.change(-1, -(bytes as i64));
        if let Some(late) = self.nanos(Instant::now()).checked_sub(end) {
            let micros = Duration::from_nanos(late).as_micros() as u64;
            let mut lag = self.lag.lock().expect("no holder panics");
            lag.saturating_record(micros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(origin: Instant, millis: u64) -> Instant {
        origin + Duration::from_millis(millis)
    }

    #[test]
    fn a_value_is_dead_from_its_end_until_its_drop() {
        let origin = Instant::now();
        let ledger = Ledger::new(origin);
        let hour = after(origin, 3_600_000);
        let short = Value::new(1, 100, Some(hour), &ledger);
        let long = Value::new(2, 7, Some(after(hour, 20)), &ledger);
        let forever = Value::new(3, 1_000, None, &ledger);
        let both = |count, bytes| Tally { count, bytes };

        assert_eq!(ledger.held(), both(3, 1_107));
        assert_eq!(ledger.dead(after(hour, 0)), both(0, 0));
        assert_eq!(ledger.dead(after(hour, 10)), both(1, 100));
        assert_eq!(ledger.dead(after(hour, 3_600_000)), both(2, 107));

        drop(short);
        assert_eq!(ledger.held(), both(2, 1_007));
        assert_eq!(ledger.dead(after(hour, 3_600_000)), both(1, 7));
        drop((long, forever));
        assert_eq!(ledger.held(), both(0, 0));
        assert_eq!(ledger.dead(after(hour, 3_600_000)), both(0, 0));
        assert_eq!(ledger.made(), 3);
        assert_eq!(ledger.lag().len(), 0, "all were dropped before their ends");
    }

    #[test]
    fn the_lag_runs_from_the_end_to_the_drop() {
        let origin = Instant::now();
        let ledger = Ledger::new(origin);
        let value = Value::new(1, 1, Some(origin), &ledger);
        std::thread::sleep(Duration::from_millis(20));
        drop(value);
        assert_eq!(ledger.lag().len(), 1);
        assert!(ledger.lag().max() >= 20_000, "{} µs", ledger.lag().max());
    }

    #[test]
    fn ends_beyond_the_last_page_are_kept_and_not_dead() {
        let origin = Instant::now();
        let ledger = Ledger::new(origin);
        let month = origin + Duration::from_secs(30 * 86_400);
        let value = Value::new(1, 5, Some(month), &ledger);
        assert_eq!(ledger.dead(after(origin, 300_000_000)).count, 0);
        assert_eq!(ledger.held().count, 1);
        drop(value);
        assert_eq!(ledger.held(), Tally::default());
    }

    #[test]
    fn a_look_knows_its_own_bytes_and_its_end() {
        let origin = Instant::now();
        let ledger = Ledger::new(origin);
        let value = Value::new(254, 3, Some(after(origin, 1)), &ledger);
        assert!(value.look(254).intact);
        assert!(!value.look(255).intact);
        assert!(value.look(254).ended_by(1_000_000));
        assert!(!value.look(254).ended_by(999_999));
        assert!(!Value::new(1, 0, None, &ledger).look(1).ended_by(NEVER - 1));
        assert!(Value::new(1, 0, None, &ledger).look(9).intact, "no bytes");
    }
}
