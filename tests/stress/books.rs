//! Keys and values that are accounted for one by one.

use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ebbtide::{Clock, Lifetime, ManualClock, RemovalCause};

/// Keys are the numbers below this.
pub(crate) const KEYS: u64 = 5_000;

/// No deadline that is known exactly.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Records of one chunk, and chunks.
const CHUNK: usize = 4096;
const CHUNKS: usize = 4096;

/// The states of a value, as bits.
const DROPPED: u8 = 1;
const REPORTED: u8 = 2;
const STORED: u8 = 4;
const DROPPED_TWICE: u8 = 8;
const CAUSE_SHIFT: u32 = 4;

thread_local! {
    /// When this thread's present call of a cache began, on that cache's clock.
    static BEGAN: Cell<u64> = const { Cell::new(0) };
}

/// A small generator (SplitMix64): fast, and the same everywhere.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The time of a round, in nanoseconds since it began: real, or moved by the round's threads.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    origin: Instant,
    manual: Option<ManualClock>,
}

impl Time {
    pub(crate) fn new(manual: bool) -> Self {
        let moment = Instant::now();
        let manual = manual.then(ManualClock::new);
        // The moment that a manual clock calls zero is a little later, exactly this much.
        let later = moment + Duration::from_secs(1);
        let origin = manual.as_ref().map_or(moment, |clock| {
            later - Duration::from_nanos(clock.at(later))
        });
        Time { origin, manual }
    }

    pub(crate) fn clock(&self) -> Option<&ManualClock> {
        self.manual.as_ref()
    }

    pub(crate) fn now(&self) -> u64 {
        match &self.manual {
            Some(clock) => clock.now(),
            None => u64::try_from(self.origin.elapsed().as_nanos()).expect("no test runs so long"),
        }
    }

    pub(crate) fn until(&self, at: u64) -> Lifetime {
        Lifetime::Until(self.origin + Duration::from_nanos(at))
    }
}

struct Record {
    state: AtomicU8,
    /// When its removal was told, on the books' own sequence; 0 is never.
    told: AtomicU64,
}

/// What became of every key and value of one cache.
pub(crate) struct Books {
    pub(crate) time: Time,
    chunks: Box<[OnceLock<Box<[Record]>>]>,
    made: AtomicU64,
    /// Keys and clones of values that exist.
    keys: AtomicI64,
    clones: AtomicI64,
    sequence: AtomicU64,
    /// Events, by cause.
    pub(crate) events: [AtomicU64; 4],
    /// The cache is gone: nothing may be told any more.
    ended: AtomicBool,
    /// Ends by a call that answered that it ended something, and calls that may have.
    pub(crate) explicit: AtomicU64,
    pub(crate) explicit_maybe: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    prolonged: Box<[Prolonged]>,
}

/// Calls that give a key's entry a new value with another deadline. The deadline changes first, and a
/// read in between may find the old value with the new deadline (rule P5).
#[derive(Default)]
struct Prolonged {
    under_way: AtomicU64,
    /// When the last of them ended.
    ended: AtomicU64,
}

/// What was known before a read began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    now: u64,
    sequence: u64,
}

pub(crate) fn code(cause: RemovalCause) -> usize {
    match cause {
        RemovalCause::Expired => 0,
        RemovalCause::Explicit => 1,
        RemovalCause::Replaced => 2,
        RemovalCause::Evicted => 3,
    }
}

impl Books {
    pub(crate) fn new(time: Time) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Books {
            time,
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            made: zero(),
            keys: AtomicI64::new(0),
            clones: AtomicI64::new(0),
            sequence: zero(),
            events: std::array::from_fn(|_| zero()),
            ended: AtomicBool::new(false),
            explicit: zero(),
            explicit_maybe: zero(),
            hits: zero(),
            misses: zero(),
            prolonged: (0..KEYS).map(|_| Prolonged::default()).collect(),
        })
    }

    fn record(&self, serial: u64) -> &Record {
        let (chunk, index) = (serial as usize / CHUNK, serial as usize % CHUNK);
        let chunk = self.chunks[chunk].get_or_init(|| {
            let record = |_| Record {
                state: AtomicU8::new(0),
                told: AtomicU64::new(0),
            };
            (0..CHUNK).map(record).collect()
        });
        &chunk[index]
    }

    pub(crate) fn key(self: &Arc<Self>, number: u64) -> Key {
        self.keys.fetch_add(1, SeqCst);
        Key {
            number: Box::new(number),
            books: Arc::clone(self),
        }
    }

    /// A new value for a key, with the deadline that it will have, or [`UNKNOWN`].
    pub(crate) fn item(self: &Arc<Self>, key: u64, deadline: u64) -> Item {
        let serial = self.made.fetch_add(1, SeqCst);
        Item {
            key,
            serial,
            deadline,
            original: true,
            payload: payload(serial),
            books: Arc::clone(self),
        }
    }

    /// Notes that this thread is about to call the cache: what was over by now ends as expired.
    pub(crate) fn begin_call(&self) {
        BEGAN.set(self.time.now());
    }

    /// To be asked before a read begins.
    pub(crate) fn before(&self) -> Before {
        Before {
            now: self.time.now(),
            sequence: self.sequence.load(SeqCst),
        }
    }

    /// Runs a call that may give the key's entry a new value with another deadline.
    pub(crate) fn while_prolonging<R>(&self, key: u64, call: impl FnOnce() -> R) -> R {
        let prolonged = &self.prolonged[key as usize];
        prolonged.under_way.fetch_add(1, SeqCst);
        let answer = call();
        prolonged.ended.fetch_max(self.time.now(), SeqCst);
        prolonged.under_way.fetch_sub(1, SeqCst);
        answer
    }

    /// Whether such a call may have been under way since `before`.
    fn was_prolonged(&self, key: u64, before: Before) -> bool {
        let prolonged = &self.prolonged[key as usize];
        prolonged.under_way.load(SeqCst) > 0 || prolonged.ended.load(SeqCst) >= before.now
    }

    /// The cache answered that it stored this value.
    pub(crate) fn stored(&self, serial: u64) {
        self.record(serial).state.fetch_or(STORED, SeqCst);
    }

    /// What to call from `on_removal`; `early` says that lifetimes may end before the deadlines
    /// that values know of, `bounded` that there may be evictions.
    pub(crate) fn hear(
        &self,
        key: &Key,
        item: &Item,
        cause: RemovalCause,
        early: bool,
        bounded: bool,
    ) {
        assert!(!self.ended.load(SeqCst), "an event of a cache that ended");
        assert_eq!(*key.number, item.key, "an event with another's value");
        item.assert_intact();
        let record = self.record(item.serial);
        let told = self.sequence.fetch_add(1, SeqCst) + 1;
        assert_eq!(record.told.swap(told, SeqCst), 0, "told twice: {item:?}");
        let bits = REPORTED | (code(cause) as u8) << CAUSE_SHIFT;
        let was = record.state.fetch_or(bits, SeqCst);
        assert_eq!(was & (REPORTED | DROPPED), 0, "{item:?} told as {cause:?}");
        self.events[code(cause)].fetch_add(1, SeqCst);
        match cause {
            RemovalCause::Expired if !early && item.deadline != UNKNOWN => {
                let now = self.time.now();
                assert!(now >= item.deadline, "{item:?} expired early, at {now}");
            }
            RemovalCause::Evicted => {
                assert!(bounded, "{item:?} evicted from a cache without bound")
            }
            _ => {}
        }
        if cause != RemovalCause::Expired {
            let began = BEGAN.get();
            assert!(
                item.deadline > began,
                "{item:?} was over at {began}, yet told as {cause:?}"
            );
        }
    }

    /// Checks that the removal of this value was told, as this.
    pub(crate) fn assert_told(&self, serial: u64, cause: RemovalCause) {
        let state = self.record(serial).state.load(SeqCst);
        assert_ne!(state & REPORTED, 0, "value {serial}: {cause:?}, not told");
        let told = usize::from(state >> CAUSE_SHIFT);
        assert_eq!(told, code(cause), "value {serial} told as another cause");
    }

    pub(crate) fn events_in_all(&self) -> u64 {
        self.events.iter().map(|count| count.load(SeqCst)).sum()
    }

    /// Every value that the cache said it stored is still there or its removal was told; `present`
    /// are the serial numbers of those that are there.
    pub(crate) fn assert_present_or_told(&self, present: &std::collections::HashSet<u64>) {
        for serial in 0..self.made.load(SeqCst) {
            let state = self.record(serial).state.load(SeqCst);
            let (told, there) = (state & REPORTED != 0, present.contains(&serial));
            assert!(!(told && there), "value {serial} is there and told as gone");
            assert!(!(there && state & DROPPED != 0), "value {serial}: dropped");
            if state & STORED != 0 {
                assert!(told || there, "value {serial} is lost");
            }
        }
    }

    /// The cache has ended: everything was dropped exactly once.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        for serial in 0..self.made.load(SeqCst) {
            let state = self.record(serial).state.load(SeqCst);
            assert_ne!(state & DROPPED, 0, "value {serial} was never dropped");
            assert_eq!(state & DROPPED_TWICE, 0, "value {serial} dropped twice");
        }
        assert_eq!(self.clones.load(SeqCst), 0, "clones are left");
        assert_eq!(self.keys.load(SeqCst), 0, "keys are left");
    }
}

/// A key with heap memory of its own, looked up by its number.
pub(crate) struct Key {
    number: Box<u64>,
    books: Arc<Books>,
}

impl Key {
    pub(crate) fn number(&self) -> u64 {
        *self.number
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.books.key(*self.number)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.books.keys.fetch_sub(1, SeqCst);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}

/// A value with heap memory of its own, equal only to its clones.
pub(crate) struct Item {
    pub(crate) key: u64,
    pub(crate) serial: u64,
    /// When it must not be read any more, or [`UNKNOWN`].
    pub(crate) deadline: u64,
    original: bool,
    payload: Box<[u64]>,
    books: Arc<Books>,
}

fn payload(serial: u64) -> Box<[u64]> {
    (0..serial % 13 + 1)
        .map(|i| mix(serial ^ i << 48))
        .collect()
}

impl Item {
    /// Whether it is what it was made as, and not dropped yet.
    pub(crate) fn assert_intact(&self) {
        assert_eq!(self.payload, payload(self.serial), "value {}", self.serial);
        if self.original {
            let state = self.books.record(self.serial).state.load(SeqCst);
            assert_eq!(state & DROPPED, 0, "value {} was dropped", self.serial);
        }
    }

    /// Whether a read of `key` that began then may have found this.
    pub(crate) fn assert_readable(&self, key: u64, before: Before) {
        self.assert_intact();
        assert_eq!(self.key, key, "another key's value: {self:?}");
        assert!(
            before.now < self.deadline || self.books.was_prolonged(key, before),
            "{self:?} was read at {} or later",
            before.now
        );
        let told = self.books.record(self.serial).told.load(SeqCst);
        assert!(
            told == 0 || told > before.sequence,
            "{self:?} was read after its removal was told"
        );
    }
}

impl Clone for Item {
    fn clone(&self) -> Self {
        self.assert_intact();
        self.books.clones.fetch_add(1, SeqCst);
        Item {
            original: false,
            payload: self.payload.clone(),
            books: Arc::clone(&self.books),
            ..*self
        }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if !self.original {
            self.books.clones.fetch_sub(1, SeqCst);
            return;
        }
        let state = &self.books.record(self.serial).state;
        // (A panic here would be contained by the cache.)
        if state.fetch_or(DROPPED, SeqCst) & DROPPED != 0 {
            state.fetch_or(DROPPED_TWICE, SeqCst);
        }
        // Whoever still looks at it shall see that it is gone.
        self.payload.fill(0);
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Item {
            key,
            serial,
            deadline,
            ..
        } = self;
        write!(f, "value {serial} of key {key}, due at {deadline}")
    }
}
