//! The library hour, compressed, in Redis and in ebbtide: what share of the entries held is dead.

use std::collections::VecDeque;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use super::server::{Server, failed, size};
use crate::Options;
use crate::report::{EBBTIDE, Figure, Report};

use super::seeds::library_hour::{
    Access, Amount, BODY, LibraryHour, LibraryStore, PlacedKey, SECONDS,
};

/// What the hour is played into.
trait Store {
    const NAME: &'static str;

    fn insert(&mut self, name: &str, lifetime: Duration) -> Result<(), String>;
    fn get(&mut self, name: &str) -> Result<bool, String>;
    /// Entries held, the dead included.
    fn held(&mut self) -> Result<u64, String>;
}

struct Redis {
    connection: Connection,
    _server: Server,
}

impl Redis {
    fn start() -> Result<Self, String> {
        let server = Server::start()?;
        Ok(Redis {
            connection: server.connect()?,
            _server: server,
        })
    }
}

impl Store for Redis {
    const NAME: &'static str = "Redis";

    fn insert(&mut self, name: &str, lifetime: Duration) -> Result<(), String> {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&[0u8; BODY]);
        set.arg("PX").arg(lifetime.as_millis().max(1) as u64);
        set.exec(&mut self.connection)
            .map_err(|error| failed(&error))
    }

    fn get(&mut self, name: &str) -> Result<bool, String> {
        let found = redis::cmd("GET")
            .arg(name)
            .query::<Option<Vec<u8>>>(&mut self.connection);
        Ok(found.map_err(|error| failed(&error))?.is_some())
    }

    fn held(&mut self) -> Result<u64, String> {
        size(&mut self.connection)
    }
}

#[cfg(feature = "ebbtide")]
mod ours {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{BODY, EBBTIDE, Store};

    /// A value that counts as held until it is dropped.
    pub(super) struct Body {
        _bytes: [u8; BODY],
        held: Arc<AtomicU64>,
    }

    impl Drop for Body {
        fn drop(&mut self) {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) struct Ebbtide {
        pub(super) cache: ebbtide::Cache<String, Body>,
        pub(super) held: Arc<AtomicU64>,
    }

    impl Store for Ebbtide {
        const NAME: &'static str = EBBTIDE;

        fn insert(&mut self, name: &str, lifetime: Duration) -> Result<(), String> {
            self.held.fetch_add(1, Ordering::Relaxed);
            let body = Body {
                _bytes: [0; BODY],
                held: Arc::clone(&self.held),
            };
            self.cache.insert_with_ttl(name.to_owned(), body, lifetime);
            Ok(())
        }

        fn get(&mut self, name: &str) -> Result<bool, String> {
            Ok(self.cache.with(name, |_| ()).is_some())
        }

        fn held(&mut self) -> Result<u64, String> {
            Ok(self.held.load(Ordering::Relaxed))
        }
    }
}

/// A store in real time, and what the traffic knows of it.
struct Live<S> {
    store: S,
    speed: u32,
    begin: Instant,
    /// Deadlines of live entries: one queue for each lifetime.
    live: Vec<(u32, VecDeque<Instant>)>,
    /// Sums of dead and of held entries over all looks.
    dead: u64,
    held: u64,
    worst: f64,
    behind: Duration,
    /// The first thing that went wrong; nothing is done after it.
    wrong: Option<String>,
}

impl<S: Store> Live<S> {
    fn new(store: S, speed: u32) -> Self {
        Live {
            store,
            speed,
            begin: Instant::now(),
            live: Vec::new(),
            dead: 0,
            held: 0,
            worst: 0.0,
            behind: Duration::ZERO,
            wrong: None,
        }
    }

    fn attempt<T: Default>(&mut self, what: impl FnOnce(&mut S) -> Result<T, String>) -> T {
        if self.wrong.is_some() {
            return T::default();
        }
        what(&mut self.store).unwrap_or_else(|error| {
            self.wrong = Some(error);
            T::default()
        })
    }

    /// Held and dead. Held is asked for first: what is deleted meanwhile must not make the dead
    /// fewer than they are.
    fn look(&mut self) -> (u64, u64) {
        let held = self.attempt(S::held);
        let now = Instant::now();
        let mut live = 0;
        for (_, queue) in &mut self.live {
            while queue.front().is_some_and(|deadline| *deadline <= now) {
                queue.pop_front();
            }
            live += queue.len() as u64;
        }
        (held, held.saturating_sub(live))
    }
}

impl<S: Store> LibraryStore for Live<S> {
    fn start_second(&mut self, second: u32) {
        let due = self.begin + Duration::from_secs(u64::from(second)) / self.speed;
        let now = Instant::now();
        thread::sleep(due.saturating_duration_since(now));
        self.behind = self.behind.max(now.saturating_duration_since(due));
        let (held, dead) = self.look();
        self.held += held;
        self.dead += dead;
        if held > 0 {
            self.worst = self.worst.max(dead as f64 / held as f64);
        }
    }

    fn place(&mut self, key: &PlacedKey) {
        let lifetime = Duration::from_secs(u64::from(key.lifetime)) / self.speed;
        let name = key.name();
        self.attempt(|store| store.insert(&name, lifetime));
        let deadline = Instant::now() + lifetime;
        let at = self.live.iter().position(|(of, _)| *of == key.lifetime);
        let at = at.unwrap_or_else(|| {
            self.live.push((key.lifetime, VecDeque::new()));
            self.live.len() - 1
        });
        self.live[at].1.push_back(deadline);
    }

    fn access(&mut self, key: &PlacedKey) -> Access {
        let name = key.name();
        match self.attempt(|store| store.get(&name)) {
            true => Access::Hit,
            false => Access::Missing,
        }
    }

    fn clean(&mut self) {
        // Nobody is asked to: that is the store's own work.
    }

    fn held(&mut self) -> Amount {
        let (entries, _) = self.look();
        Amount { entries, bytes: 0 }
    }

    fn dead(&mut self) -> Amount {
        let (_, entries) = self.look();
        Amount { entries, bytes: 0 }
    }
}

const METRICS: [&str; 4] = [
    "dead, mean %",
    "dead, most %",
    "hits",
    "behind at worst, ms",
];

pub(super) fn compare(
    options: &Options,
    speed: u32,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let hour = LibraryHour::new();
    println!(
        "The library hour, {speed} times as fast: {} keys with lifetimes of a minute, five and thirty minutes of that hour,",
        hour.keys.len()
    );
    println!(
        "and three reads for each. Dead: of the entries held, looked at {} times.\n",
        SECONDS
    );
    let case = format!("library hour, {speed} times as fast");
    #[cfg(feature = "ebbtide")]
    if options.wants(EBBTIDE) {
        let ours = ours::Ebbtide {
            cache: ebbtide::Cache::unbounded(),
            held: std::sync::Arc::default(),
        };
        play(&hour, ours, speed, &case, report)?;
    }
    play(&hour, Redis::start()?, speed, &case, report)?;
    report.print_case(&case, &METRICS, METRICS[0]);
    Ok(())
}

fn play<S: Store>(
    hour: &LibraryHour,
    store: S,
    speed: u32,
    case: &str,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut live = Live::new(store, speed);
    let outcome = hour.play(&mut live);
    if let Some(error) = live.wrong {
        return Err(error.into());
    }
    let values = [
        100.0 * live.dead as f64 / live.held.max(1) as f64,
        100.0 * live.worst,
        outcome.hits as f64,
        live.behind.as_secs_f64() * 1e3,
    ];
    for (metric, value) in METRICS.into_iter().zip(values) {
        report.add(Figure {
            case: case.to_owned(),
            contender: S::NAME.to_owned(),
            base: EBBTIDE,
            metric,
            rounds: vec![value],
        });
    }
    Ok(())
}
