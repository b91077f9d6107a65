//! The library hour of the `library_hour` example in real time, sixty times as fast: a cache with
//! default settings, its shared reaper, no call but the traffic's own. Says what share of the bytes
//! held was dead, averaged over the minute, and what the reaper took for it:
//!
//! ```text
//! cargo run --release --example library_minute
//! ```
//!
//! A value counts as held until its `Drop` has run, so what waits for its grace period counts as
//! dead.

#[path = "../tests/common/seeds/mod.rs"]
mod seeds;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::Cache;

use seeds::library_hour::{Access, Amount, BODY, LibraryHour, LibraryStore, PlacedKey, SECONDS};

/// How much faster than the hour.
const SPEED: u32 = 60;

/// A value that tells when it is gone.
#[derive(Clone)]
struct Body {
    _bytes: [u8; BODY],
    cost: Option<Arc<Cost>>,
}

struct Cost {
    bytes: u64,
    held: Arc<Held>,
}

/// Entries and bytes whose values have not been dropped.
#[derive(Default)]
struct Held {
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Drop for Cost {
    fn drop(&mut self) {
        self.held.entries.fetch_sub(1, Ordering::Relaxed);
        self.held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The cache in real time, and what the traffic knows of it.
struct LiveLibrary {
    begin: Instant,
    cache: Cache<String, Body>,
    held: Arc<Held>,
    /// Live entries by deadline: one queue for each lifetime.
    live: Vec<(u32, VecDeque<(Instant, u64)>)>,
    live_now: Amount,
    /// Sums of dead and of held bytes over all looks.
    dead_bytes: u64,
    held_bytes: u64,
    worst: f64,
    behind: Duration,
}

impl LiveLibrary {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            cache: Cache::unbounded(),
            held: Arc::default(),
            live: Vec::new(),
            live_now: Amount::default(),
            dead_bytes: 0,
            held_bytes: 0,
            worst: 0.0,
            behind: Duration::ZERO,
        }
    }

    /// Compares what is held with what is alive.
    fn look(&mut self) {
        // Held first: what is dropped between the two looks must not make the dead negative.
        let dead = self.dead().bytes;
        let held = self.held.bytes.load(Ordering::Relaxed).max(dead);
        self.dead_bytes += dead;
        self.held_bytes += held;
        if held > 0 {
            self.worst = self.worst.max(dead as f64 / held as f64);
        }
    }
}

impl LibraryStore for LiveLibrary {
    fn start_second(&mut self, second: u32) {
        let due = self.begin + Duration::from_secs(u64::from(second)) / SPEED;
        let now = Instant::now();
        if due > now {
            thread::sleep(due - now);
        } else {
            self.behind = self.behind.max(now - due);
        }
        self.look();
    }

    fn place(&mut self, key: &PlacedKey) {
        let lifetime = Duration::from_secs(u64::from(key.lifetime)) / SPEED;
        let bytes = key.cost();
        self.held.entries.fetch_add(1, Ordering::Relaxed);
        self.held.bytes.fetch_add(bytes, Ordering::Relaxed);
        let cost = Cost {
            bytes,
            held: Arc::clone(&self.held),
        };
        let body = Body {
            _bytes: [0; BODY],
            cost: Some(Arc::new(cost)),
        };
        let deadline = Instant::now() + lifetime;
        self.cache.insert_with_ttl(key.name(), body, deadline);
        let at = self.live.iter().position(|(of, _)| *of == key.lifetime);
        let at = at.unwrap_or_else(|| {
            self.live.push((key.lifetime, VecDeque::new()));
            self.live.len() - 1
        });
        self.live[at].1.push_back((deadline, bytes));
        self.live_now.add(bytes);
    }

    fn access(&mut self, key: &PlacedKey) -> Access {
        match self.cache.with(&key.name(), |body| body.cost.is_some()) {
            Some(_) => Access::Hit,
            None => Access::Missing,
        }
    }

    fn clean(&mut self) {
        // Nobody is asked to: that is the reaper's work.
    }

    fn held(&mut self) -> Amount {
        Amount {
            entries: self.held.entries.load(Ordering::Relaxed),
            bytes: self.held.bytes.load(Ordering::Relaxed),
        }
    }

    fn dead(&mut self) -> Amount {
        let held = self.held();
        let now = Instant::now();
        for (_, queue) in &mut self.live {
            while let Some(&(deadline, bytes)) = queue.front()
                && deadline <= now
            {
                queue.pop_front();
                self.live_now.sub(bytes);
            }
        }
        Amount {
            entries: held.entries.saturating_sub(self.live_now.entries),
            bytes: held.bytes.saturating_sub(self.live_now.bytes),
        }
    }
}

fn main() {
    let hour = LibraryHour::new();
    println!("playing an hour of {} keys in a minute …", hour.keys.len());
    let mut library = LiveLibrary::new();
    let outcome = hour.play(&mut library);
    let spent = library.begin.elapsed();
    let stats = library.cache.stats();
    let share = |part: u64, of: u64| part as f64 / of as f64 * 100.0;
    println!("{:28}{:>12}", "hits", outcome.hits);
    println!("{:28}{:>12}", "misses", outcome.missing);
    println!(
        "{:28}{:>11.2} %",
        "dead share, mean of bytes",
        share(library.dead_bytes, library.held_bytes)
    );
    println!(
        "{:28}{:>11.2} %",
        "dead share, worst look",
        library.worst * 100.0
    );
    println!(
        "{:28}{:>11.3} %",
        "reaper, of a core",
        stats.reaper_time.as_secs_f64() / spent.as_secs_f64() * 100.0
    );
    println!(
        "{:28}{:>12}",
        "reclaimed by the reaper", stats.expired_by_sweep
    );
    println!("{:28}{:>12}", "… by reads", stats.expired_by_read);
    println!("{:28}{:>12}", "… by writes", stats.expired_by_write);
    println!(
        "{:28}{:>9.0} ms (p50 {:.0})",
        "reclaim lag, p99",
        stats.reclaim_lag.quantile(0.99).as_secs_f64() * 1e3,
        stats.reclaim_lag.quantile(0.5).as_secs_f64() * 1e3,
    );
    println!(
        "{:28}{:>9.1} ms",
        "traffic behind at worst",
        library.behind.as_secs_f64() * 1e3
    );
    println!("(looked at {} times)", SECONDS);
}
