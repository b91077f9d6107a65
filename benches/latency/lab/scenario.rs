//! What the requests are: which keys, which lifetimes, how many of each kind.

use std::time::Duration;

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Which traffic expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// New keys with a lifetime at a steady rate: as many expire as are inserted. Reads go to the
    /// keys written last
    Steady,
    /// Very many entries with one deadline; reads and writes go to 10,000 others that stay
    Wave,
    /// Writes and reads over 100,000 keys by zipf's law (0.99): the popular are replaced all the
    /// time, the others expire
    Skewed,
    /// A lifetime that slides with every read, over 500,000 keys by zipf's law: the popular stay,
    /// the others expire
    Sliding,
}

impl Scenario {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Steady => "steady",
            Scenario::Wave => "wave",
            Scenario::Skewed => "skewed",
            Scenario::Sliding => "sliding",
        }
    }
}

/// Keys that are read and written while a wave breaks; they do not expire.
pub(crate) const OTHERS: u64 = 10_000;
/// The lifetime of what must outlive the run.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

const SKEWED_KEYS: u32 = 100_000;
const SLIDING_KEYS: u32 = 500_000;
const THETA: f64 = 0.99;
/// Accesses drawn before a clock starts; then from the beginning again.
const DRAWN: usize = 1 << 20;
/// Steady writes begin again with their first key after so many: it has long expired. (Those who
/// have no lifetimes replace.)
const FRESH: u64 = 1 << 22;

/// The `i`-th of a sequence of distinct keys in random order (SplitMix64's finalizer is a
/// bijection).
pub(crate) fn scattered(i: u64) -> u64 {
    let mut z = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One thread's requests.
#[derive(Debug)]
pub(crate) struct Traffic {
    random: SmallRng,
    keys: Keys,
    /// Writes among 2^32 requests.
    writes: u64,
}

/// Where keys come from.
#[derive(Debug)]
enum Keys {
    Fresh {
        thread: u64,
        threads: u64,
        written: u64,
        /// Reads go to this many of the newest.
        window: u64,
    },
    Drawn {
        accesses: Vec<u32>,
        next: usize,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read(u64),
    Write(u64),
}

/// How much of it there is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// The share of writes.
    pub(crate) writes: f64,
    /// Writes a second and thread, in the open loop.
    pub(crate) write_rate: f64,
    pub(crate) lifetime: Duration,
}

impl Traffic {
    pub(crate) fn new(scenario: Scenario, amount: Amount, thread: u64, threads: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(71 + thread);
        let zipf = |random: &mut SmallRng, keys: u32| {
            let zipf = Zipf::new(f64::from(keys), THETA).expect("there are keys, and theta > 0");
            (0..DRAWN).map(|_| zipf.sample(random) as u32 - 1).collect()
        };
        let keys = match scenario {
            Scenario::Steady => {
                let alive = amount.write_rate * amount.lifetime.as_secs_f64();
                Keys::Fresh {
                    thread,
                    threads,
                    written: 0,
                    window: ((alive * 0.8) as u64).clamp(1, FRESH / 2),
                }
            }
            Scenario::Wave => Keys::Drawn {
                accesses: (0..DRAWN)
                    .map(|_| random.random_range(0..OTHERS as u32))
                    .collect(),
                next: 0,
            },
            Scenario::Skewed => Keys::Drawn {
                accesses: zipf(&mut random, SKEWED_KEYS),
                next: 0,
            },
            Scenario::Sliding => Keys::Drawn {
                accesses: zipf(&mut random, SLIDING_KEYS),
                next: 0,
            },
        };
        Traffic {
            random,
            keys,
            writes: (amount.writes * 2f64.powi(32)) as u64,
        }
    }

    /// The next request.
    #[inline]
    pub(crate) fn next(&mut self) -> Request {
        let drawn: u64 = self.random.random();
        let write = drawn >> 32 < self.writes;
        match &mut self.keys {
            Keys::Fresh {
                thread,
                threads,
                written,
                window,
            } => {
                let key = |n: u64| scattered((n * *threads + *thread) % FRESH);
                // Nothing to read before the first write.
                if write || *written == 0 {
                    *written += 1;
                    Request::Write(key(*written - 1))
                } else {
                    let back = ((drawn & 0xffff_ffff) * (*window).min(*written)) >> 32;
                    Request::Read(key(*written - 1 - back))
                }
            }
            Keys::Drawn { accesses, next } => {
                let key = scattered(u64::from(accesses[*next]));
                *next = (*next + 1) % accesses.len();
                if write {
                    Request::Write(key)
                } else {
                    Request::Read(key)
                }
            }
        }
    }
}
