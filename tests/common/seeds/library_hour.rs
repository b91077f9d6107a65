//! One hour of a library's traffic: keys placed and keys accessed each second,
//! a driver that plays it into any store, and the reference store.

use std::collections::HashMap;
use std::ops::Range;

use super::random::Mulberry32;

/// Length of the hour, in seconds.
pub(crate) const SECONDS: u32 = 3_600;
/// Keys placed each second.
pub(crate) const PLACED_EACH_SECOND: usize = 20;
/// Accesses made each second.
pub(crate) const ACCESSES_EACH_SECOND: usize = 60;
/// All accesses of the hour.
pub(crate) const ACCESSES: u64 = SECONDS as u64 * ACCESSES_EACH_SECOND as u64;
/// Seed of the traffic; the reference store samples with this plus seven.
pub(crate) const SEED: u32 = 20_260_731;
/// Seconds between two looks at the dead bytes.
pub(crate) const PEAK_EVERY: u32 = 60;
/// Bytes of a value.
pub(crate) const BODY: usize = 24;
/// Bytes that an entry costs beside its key and value.
const ENTRY_OVERHEAD: u64 = 48;
/// Bytes of a deadline.
const DEADLINE_STAMP: u64 = 16;
/// Digits of a key's number; an hour's keys need fewer.
const NUMBER_DIGITS: usize = 6;
/// Most accesses go to this many of the newest keys.
const RECENT: usize = 2_000;

/// A kind of key; it decides the lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Catalog,
    Session,
}

impl Kind {
    fn drawn(unit: f64) -> Self {
        if unit < 0.30 {
            Self::Lock
        } else if unit < 0.80 {
            Self::Catalog
        } else {
            Self::Session
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Catalog => "catalog",
            Self::Session => "session",
        }
    }

    /// Lifetime in seconds.
    fn lifetime(self) -> u32 {
        match self {
            Self::Lock => 60,
            Self::Catalog => 300,
            Self::Session => 1_800,
        }
    }
}

/// One key of the hour; each is placed exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedKey {
    /// Its place in the order of placing, from zero.
    pub(crate) number: usize,
    /// Lifetime in seconds.
    pub(crate) lifetime: u32,
    /// Second at which it is expired.
    pub(crate) deadline: u32,
    kind: Kind,
}

impl PlacedKey {
    /// The key as text.
    pub(crate) fn name(&self) -> String {
        format!("{}:{:0NUMBER_DIGITS$}", self.kind.label(), self.number)
    }

    /// What holding the entry costs, in bytes of the seed's model.
    pub(crate) fn cost(&self) -> u64 {
        cost_of_length(self.kind.label().len() + 1 + NUMBER_DIGITS)
    }

    /// Whether the key's lifetime is over at `second`.
    pub(crate) fn expired_at(&self, second: u32) -> bool {
        second >= self.deadline
    }
}

/// What holding an entry of this name costs, in bytes of the seed's model.
pub(crate) fn cost_of_name(name: &str) -> u64 {
    cost_of_length(name.len())
}

fn cost_of_length(name: usize) -> u64 {
    name as u64 + BODY as u64 + ENTRY_OVERHEAD + DEADLINE_STAMP
}

/// The traffic of one hour, drawn once.
#[derive(Clone, Debug)]
pub(crate) struct LibraryHour {
    /// Every key, in the order of placing.
    pub(crate) keys: Vec<PlacedKey>,
    /// Numbers of the keys accessed, in order.
    accessed: Vec<usize>,
}

impl LibraryHour {
    pub(crate) fn new() -> Self {
        let mut random = Mulberry32::new(SEED);
        let mut keys = Vec::with_capacity(SECONDS as usize * PLACED_EACH_SECOND);
        let mut accessed = Vec::with_capacity(ACCESSES as usize);
        for second in 1..=SECONDS {
            for _ in 0..PLACED_EACH_SECOND {
                let kind = Kind::drawn(random.next_unit());
                keys.push(PlacedKey {
                    number: keys.len(),
                    lifetime: kind.lifetime(),
                    deadline: second + kind.lifetime(),
                    kind,
                });
            }
            let placed = keys.len();
            for _ in 0..ACCESSES_EACH_SECOND {
                let recent = random.next_unit() < 0.70;
                accessed.push(if recent {
                    placed - 1 - random.next_below(placed.min(RECENT))
                } else {
                    random.next_below(placed)
                });
            }
        }
        Self { keys, accessed }
    }

    /// Plays the hour into a store.
    pub(crate) fn play(&self, store: &mut impl LibraryStore) -> HourOutcome {
        let mut outcome = HourOutcome::default();
        for second in 1..=SECONDS {
            let step = second as usize - 1;
            store.start_second(second);
            for key in &self.keys[window(step, PLACED_EACH_SECOND)] {
                store.place(key);
            }
            for &number in &self.accessed[window(step, ACCESSES_EACH_SECOND)] {
                match store.access(&self.keys[number]) {
                    Access::Hit => outcome.hits += 1,
                    Access::Missing => outcome.missing += 1,
                    Access::DroppedExpired { delay } => {
                        outcome.dropped_by_access += 1;
                        outcome.delay_total += u64::from(delay);
                        outcome.delay_worst = outcome.delay_worst.max(delay);
                    }
                }
            }
            store.clean();
            if second % PEAK_EVERY == 0 {
                outcome.peak_dead_bytes = outcome.peak_dead_bytes.max(store.dead().bytes);
            }
        }
        outcome.held = store.held();
        outcome.dead = store.dead();
        outcome
    }
}

fn window(step: usize, width: usize) -> Range<usize> {
    step * width..(step + 1) * width
}

/// What an access met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Hit,
    /// The key had been dropped before.
    Missing,
    /// The key was held, expired for `delay` seconds, and the access dropped it.
    DroppedExpired {
        delay: u32,
    },
}

/// A number of entries and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
    }

    pub(crate) fn sub(&mut self, bytes: u64) {
        self.entries -= 1;
        self.bytes -= bytes;
    }
}

/// What the hour is played into.
pub(crate) trait LibraryStore {
    fn start_second(&mut self, second: u32);
    fn place(&mut self, key: &PlacedKey);
    fn access(&mut self, key: &PlacedKey) -> Access;
    /// The background cleaning of one second, if the store has any.
    fn clean(&mut self);
    /// All that is held, the dead included.
    fn held(&mut self) -> Amount;
    /// What is held though expired.
    fn dead(&mut self) -> Amount;
}

/// What an hour came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HourOutcome {
    pub(crate) hits: u64,
    pub(crate) missing: u64,
    pub(crate) dropped_by_access: u64,
    /// Seconds between deadline and drop, summed over the drops by access.
    pub(crate) delay_total: u64,
    /// The longest of them, in seconds.
    pub(crate) delay_worst: u32,
    /// Held at the end.
    pub(crate) held: Amount,
    /// Held though expired at the end.
    pub(crate) dead: Amount,
    /// The most dead bytes seen, looked at once a minute.
    pub(crate) peak_dead_bytes: u64,
}

impl HourOutcome {
    /// Dead bytes of all bytes held at the end, in percent.
    pub(crate) fn dead_share(&self) -> f64 {
        self.dead.bytes as f64 / self.held.bytes as f64 * 100.0
    }

    /// Seconds from deadline to drop, averaged over the drops by access.
    pub(crate) fn average_delay(&self) -> f64 {
        if self.dropped_by_access == 0 {
            0.0
        } else {
            self.delay_total as f64 / self.dropped_by_access as f64
        }
    }
}

/// How a store samples for expired entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// Entries looked at in a round.
    pub(crate) size: usize,
    /// A round is repeated while at least this share of it was expired.
    pub(crate) threshold: f64,
    /// Most rounds in one second.
    pub(crate) max_rounds: u32,
}

impl Sampling {
    pub(crate) fn of_size(size: usize) -> Self {
        Self {
            size,
            threshold: 0.25,
            max_rounds: 16,
        }
    }
}

/// The plain store: a map, and a list of the held keys to sample from.
#[derive(Debug)]
pub(crate) struct ReferenceLibrary {
    now: u32,
    /// Place in `listed` by key number.
    places: HashMap<usize, usize>,
    listed: Vec<PlacedKey>,
    sampling: Option<Sampling>,
    random: Mulberry32,
    held: Amount,
    /// Entries that sampling looked at.
    pub(crate) sampled: u64,
    /// Entries that sampling dropped.
    pub(crate) dropped_by_sampling: u64,
    /// Rounds of sampling.
    pub(crate) rounds: u64,
}

impl ReferenceLibrary {
    /// A store that samples as told with the seed's own sampler seed.
    pub(crate) fn new(sampling: Option<Sampling>) -> Self {
        Self::with_sampler_seed(sampling, SEED + 7)
    }

    pub(crate) fn with_sampler_seed(sampling: Option<Sampling>, seed: u32) -> Self {
        Self {
            now: 0,
            places: HashMap::new(),
            listed: Vec::new(),
            sampling,
            random: Mulberry32::new(seed),
            held: Amount::default(),
            sampled: 0,
            dropped_by_sampling: 0,
            rounds: 0,
        }
    }

    fn drop_at(&mut self, place: usize) {
        let gone = self.listed.swap_remove(place);
        self.places.remove(&gone.number);
        if let Some(moved) = self.listed.get(place) {
            self.places.insert(moved.number, place);
        }
        self.held.sub(gone.cost());
    }

    /// One round; answers whether it found enough to be repeated.
    fn sample_once(&mut self, sampling: Sampling) -> bool {
        let (mut looked, mut dropped) = (0u32, 0u32);
        for _ in 0..sampling.size {
            if self.listed.is_empty() {
                break;
            }
            let place = self.random.next_below(self.listed.len());
            looked += 1;
            if self.listed[place].expired_at(self.now) {
                self.drop_at(place);
                dropped += 1;
            }
        }
        self.rounds += 1;
        self.sampled += u64::from(looked);
        self.dropped_by_sampling += u64::from(dropped);
        looked > 0 && f64::from(dropped) / f64::from(looked) >= sampling.threshold
    }
}

impl LibraryStore for ReferenceLibrary {
    fn start_second(&mut self, second: u32) {
        self.now = second;
    }

    fn place(&mut self, key: &PlacedKey) {
        let previous = self.places.insert(key.number, self.listed.len());
        assert!(previous.is_none(), "a key is placed once");
        self.listed.push(*key);
        self.held.add(key.cost());
    }

    fn access(&mut self, key: &PlacedKey) -> Access {
        match self.places.get(&key.number) {
            None => Access::Missing,
            Some(_) if !key.expired_at(self.now) => Access::Hit,
            Some(&place) => {
                self.drop_at(place);
                Access::DroppedExpired {
                    delay: self.now - key.deadline,
                }
            }
        }
    }

    fn clean(&mut self) {
        let Some(sampling) = self.sampling else {
            return;
        };
        for _ in 0..sampling.max_rounds {
            if !self.sample_once(sampling) {
                break;
            }
        }
    }

    fn held(&mut self) -> Amount {
        self.held
    }

    fn dead(&mut self) -> Amount {
        let mut dead = Amount::default();
        for key in &self.listed {
            if key.expired_at(self.now) {
                dead.add(key.cost());
            }
        }
        dead
    }
}
