//! The library hour played into [`ebbtide::Cache`] under a clock stepped by hand.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide::{BuildError, Cache, ManualClock, Reaper, RemovalCause, Stats, Strategy};

use super::library_hour::{
    Access, Amount, BODY, LibraryHour, LibraryStore, PlacedKey, Sampling, cost_of_name,
};

/// Real time that one second's cleaning may take: far more than it needs.
const CLEANING_BUDGET: Duration = Duration::from_secs(30);

/// What cleans the cache beside the accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cleaning {
    /// Nothing: `reap` is never called.
    OnAccessAlone,
    /// One cycle of random sampling a second.
    Sample(Sampling),
    /// One cycle of sweeping a second.
    Sweep,
}

/// How the store learns what the cache dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// By the cache's own count of entries before and after an access. Without a
    /// listener a read unlinks at once what it finds expired.
    Counts,
    /// By a removal listener. With one, a read leaves what it finds expired to the
    /// next writer or cleaner; here an `invalidate` of the same key follows it.
    Events,
}

/// Keys dropped since the log was last read, by number.
type Log = Arc<Mutex<Vec<(usize, RemovalCause)>>>;

/// The cache as a store of the library hour.
///
/// It checks every answer of the cache against the traffic: a hit is never
/// expired, a miss never live, nothing is dropped twice.
pub(crate) struct CacheLibrary {
    clock: ManualClock,
    cache: Cache<String, [u8; BODY]>,
    cleaning: Cleaning,
    watch: Watch,
    log: Log,
    now: u32,
    /// Keys placed and not dropped so far, by number.
    held_keys: Vec<Option<PlacedKey>>,
    held: Amount,
    /// Seconds from deadline to drop, over everything that cleaning dropped.
    delay_by_cleaning: u64,
    /// Entries that cleaning dropped.
    dropped_by_cleaning: u64,
    /// Real time that the calls for cleaning took.
    cleaning_time: Duration,
}

/// What cleaning did in a run, beside the outcome of the hour.
#[derive(Clone, Debug)]
pub(crate) struct CleaningReport {
    pub(crate) stats: Stats,
    /// Entries that cleaning dropped.
    pub(crate) dropped: u64,
    /// Seconds from deadline to drop, over those.
    pub(crate) delay_total: u64,
    /// Real time that the calls for cleaning took.
    pub(crate) time: Duration,
}

impl CacheLibrary {
    /// A cache with the default settings otherwise.
    pub(crate) fn new(cleaning: Cleaning, watch: Watch) -> Result<Self, BuildError> {
        let clock = ManualClock::new();
        let log = Log::default();
        let reaper = match cleaning {
            Cleaning::OnAccessAlone => Reaper::manual(),
            Cleaning::Sweep => Reaper::manual().strategy(Strategy::sweep()),
            Cleaning::Sample(sampling) => Reaper::manual().strategy(
                Strategy::sample()
                    .sample_size(sampling.size)
                    .threshold(sampling.threshold)
                    .max_rounds(sampling.max_rounds as usize),
            ),
        };
        let mut builder = Cache::builder().clock(clock.clone()).reaper(reaper);
        if watch == Watch::Events {
            let log = Arc::clone(&log);
            builder = builder.on_removal(move |name: &String, _: &[u8; BODY], cause| {
                let number = name
                    .rsplit(':')
                    .next()
                    .and_then(|digits| digits.parse().ok())
                    .expect("a key ends with its number");
                log.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((number, cause));
            });
        }
        Ok(Self {
            cache: builder.build()?,
            clock,
            cleaning,
            watch,
            log,
            now: 0,
            held_keys: Vec::new(),
            held: Amount::default(),
            delay_by_cleaning: 0,
            dropped_by_cleaning: 0,
            cleaning_time: Duration::ZERO,
        })
    }

    pub(crate) fn report(&self) -> CleaningReport {
        CleaningReport {
            stats: self.cache.stats(),
            dropped: self.dropped_by_cleaning,
            delay_total: self.delay_by_cleaning,
            time: self.cleaning_time,
        }
    }

    /// Takes note that the cache dropped a key; answers how many seconds after its
    /// deadline.
    fn note_dropped(&mut self, number: usize) -> u32 {
        let key = self.held_keys[number]
            .take()
            .expect("a key is dropped once");
        assert!(
            key.expired_at(self.now),
            "{} dropped before its deadline",
            key.name()
        );
        self.held.sub(key.cost());
        self.now - key.deadline
    }

    /// Takes note of everything in the log; answers the delays by key number.
    fn note_log(&mut self) -> Vec<(usize, u32)> {
        let logged = mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        logged
            .into_iter()
            .map(|(number, cause)| {
                assert_eq!(cause, RemovalCause::Expired, "key {number}");
                (number, self.note_dropped(number))
            })
            .collect()
    }

    fn access_by_counts(&mut self, key: &PlacedKey, name: &str) -> Access {
        let before = self.cache.entry_count();
        let found = self.cache.get(name).is_some();
        let dropped = before - self.cache.entry_count();
        let held = self.held_keys[key.number].is_some();
        match (found, dropped) {
            (true, 0) => {
                assert!(!key.expired_at(self.now), "{name} read after its deadline");
                Access::Hit
            }
            (false, 0) => {
                assert!(
                    !held,
                    "{name} is held, but a read neither found nor dropped it"
                );
                Access::Missing
            }
            (false, 1) => Access::DroppedExpired {
                delay: self.note_dropped(key.number),
            },
            _ => panic!("one access to {name} dropped {dropped} entries (found: {found})"),
        }
    }

    fn access_by_events(&mut self, key: &PlacedKey, name: &str) -> Access {
        if self.cache.get(name).is_some() {
            assert!(!key.expired_at(self.now), "{name} read after its deadline");
            return Access::Hit;
        }
        assert!(
            !self.cache.invalidate(name),
            "{name} was absent, then present without a write"
        );
        match self.note_log()[..] {
            [] => {
                let held = self.held_keys[key.number].is_some();
                assert!(!held, "{name} is held, but no access dropped it");
                Access::Missing
            }
            [(number, delay)] if number == key.number => Access::DroppedExpired { delay },
            ref others => panic!("one access to {name} dropped {others:?}"),
        }
    }
}

impl LibraryStore for CacheLibrary {
    fn start_second(&mut self, second: u32) {
        self.clock
            .advance(Duration::from_secs(u64::from(second - self.now)));
        self.now = second;
    }

    fn place(&mut self, key: &PlacedKey) {
        self.cache.insert_with_ttl(
            key.name(),
            [0; BODY],
            Duration::from_secs(u64::from(key.lifetime)),
        );
        assert_eq!(key.number, self.held_keys.len(), "keys come in order");
        self.held_keys.push(Some(*key));
        self.held.add(key.cost());
    }

    fn access(&mut self, key: &PlacedKey) -> Access {
        let name = key.name();
        match self.watch {
            Watch::Counts => self.access_by_counts(key, &name),
            Watch::Events => self.access_by_events(key, &name),
        }
    }

    fn clean(&mut self) {
        if matches!(self.cleaning, Cleaning::OnAccessAlone) {
            return;
        }
        assert_eq!(
            self.watch,
            Watch::Events,
            "only events tell which keys a cleaning dropped"
        );
        let reaped = self.cache.reap(CLEANING_BUDGET);
        self.cleaning_time += reaped.spent;
        let dropped = self.note_log();
        assert_eq!(reaped.expired, dropped.len() as u64, "second {}", self.now);
        self.dropped_by_cleaning += reaped.expired;
        self.delay_by_cleaning += dropped
            .iter()
            .map(|&(_, delay)| u64::from(delay))
            .sum::<u64>();
    }

    fn held(&mut self) -> Amount {
        assert_eq!(
            self.held.entries,
            self.cache.entry_count(),
            "the cache's own count of entries"
        );
        self.held
    }

    fn dead(&mut self) -> Amount {
        let mut live = Amount::default();
        for (name, _) in self.cache.pin().iter() {
            live.add(cost_of_name(name));
        }
        assert_eq!(
            live.entries,
            self.cache.live_count(),
            "iterated and counted"
        );
        let held = self.held();
        Amount {
            entries: held.entries - live.entries,
            bytes: held.bytes - live.bytes,
        }
    }
}

/// Plays the hour into a fresh cache.
pub(crate) fn play(
    hour: &LibraryHour,
    cleaning: Cleaning,
    watch: Watch,
) -> Result<(super::library_hour::HourOutcome, CleaningReport), BuildError> {
    let mut store = CacheLibrary::new(cleaning, watch)?;
    let outcome = hour.play(&mut store);
    Ok((outcome, store.report()))
}
