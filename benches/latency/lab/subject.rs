//! What is measured, and how it can be set.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::ledger::Value;

/// A cache, or what stands in for one. Keys are 64 bits.
pub(crate) trait Subject: Send + Sync {
    /// Reads the value under `key` ([`Value::read`]); whether there is one.
    fn get(&self, key: u64) -> bool;

    /// Inserts or replaces. The lifetime counts from now; under a sliding lifetime, which belongs
    /// to the whole cache, it is that.
    fn insert(&self, key: u64, value: Value, lifetime: Duration);

    /// The same before anything is measured, where that can be done faster in bulk.
    fn fill(&self, key: u64, value: Value, lifetime: Duration) -> Result<(), String> {
        self.insert(key, value, lifetime);
        Ok(())
    }

    /// Does what filling put off, so that no measured call pays for it.
    fn settle(&self) {}

    /// Entries held, the expired included, of a subject that does not keep the lab's values.
    fn held(&self) -> Option<u64> {
        None
    }

    /// Resident bytes of a subject that lives in another process.
    fn resident(&self) -> Option<u64> {
        None
    }

    /// What it says of itself, by name and unit.
    fn extras(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// Which lifetimes a contender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetimes {
    /// Each entry its own, and a sliding one.
    PerEntry,
    /// One for the whole cache: no wave beside entries that stay.
    #[allow(dead_code, reason = "nobody in the library's own bench has only that")]
    PerCache,
    /// None: its entries stay, so only its reads and writes compare.
    None,
}

/// One who takes part.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) lifetimes: Lifetimes,
    /// What a reader of the tables must know.
    pub(crate) note: &'static str,
    /// It lives in another process, and cannot take more requests a second than this.
    pub(crate) most_rate: Option<f64>,
    pub(crate) build: fn(&Setup) -> Result<Box<dyn Subject>, String>,
}

impl Contender {
    /// One in this process, which takes whatever rate is asked of it.
    pub(crate) fn new(
        name: &'static str,
        lifetimes: Lifetimes,
        note: &'static str,
        build: fn(&Setup) -> Result<Box<dyn Subject>, String>,
    ) -> Self {
        Contender {
            name,
            lifetimes,
            note,
            most_rate: None,
            build,
        }
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("name", &self.name)
            .field("lifetimes", &self.lifetimes)
            .finish_non_exhaustive()
    }
}

/// What a contender is made for.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    /// The lifetime of all entries, where one has to be given to the whole cache.
    pub(crate) lifetime: Duration,
    /// It slides: reads renew it.
    pub(crate) sliding: bool,
    /// Room that those who must be bounded are given, in entries.
    #[allow(
        dead_code,
        reason = "nobody in the library's own bench must be bounded"
    )]
    pub(crate) room: u64,
}

/// Settings that differ from the contender's defaults. As text: `budget=0.5ms,shards=4`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) budget: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) search: Option<Search>,
    pub(crate) workers: Option<usize>,
    pub(crate) shards: Option<usize>,
}

/// How the expired are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Sweep,
    /// This many random entries a round.
    Sample(usize),
}

const DEFAULTS: &str = "defaults";

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |length: Duration| format!("{}ms", length.as_secs_f64() * 1e3);
        let parts = [
            self.budget
                .map(|length| format!("budget={}", millis(length))),
            self.interval
                .map(|length| format!("interval={}", millis(length))),
            self.search.map(|search| match search {
                Search::Sweep => "strategy=sweep".to_owned(),
                Search::Sample(size) => format!("strategy=sample:{size}"),
            }),
            self.workers.map(|count| format!("workers={count}")),
            self.shards.map(|count| format!("shards={count}")),
        ];
        let said: Vec<String> = parts.into_iter().flatten().collect();
        if said.is_empty() {
            return f.write_str(DEFAULTS);
        }
        f.write_str(&said.join(","))
    }
}

impl FromStr for Settings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Settings::default();
        if text == DEFAULTS {
            return Ok(settings);
        }
        for part in text.split(',') {
            let wrong = || format!("'{part}' is not a setting");
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let count = || value.parse::<usize>().map_err(|_| wrong());
            match name {
                "budget" => settings.budget = Some(millis(value)?),
                "interval" => settings.interval = Some(millis(value)?),
                "strategy" => settings.search = Some(value.parse()?),
                "workers" => settings.workers = Some(count()?),
                "shards" => settings.shards = Some(count()?),
                _ => return Err(wrong()),
            }
        }
        Ok(settings)
    }
}

impl FromStr for Search {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "sweep" => Ok(Search::Sweep),
            Some(("sample", size)) => match size.parse() {
                Ok(size) if size > 0 => Ok(Search::Sample(size)),
                _ => Err(format!("'{size}' is not a number of entries to look at")),
            },
            _ => Err(format!("'{text}' is not a strategy: sweep or sample:N")),
        }
    }
}

/// A length of time above zero, in milliseconds, with or without the unit behind it.
pub(crate) fn millis(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("ms").unwrap_or(text);
    let length = number
        .parse::<f64>()
        .ok()
        .and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok())
        .ok_or_else(|| format!("'{text}' is not a number of milliseconds"))?;
    if length.is_zero() {
        return Err("must be above zero".to_owned());
    }
    Ok(length)
}
