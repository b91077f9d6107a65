//! The library among the contenders.

use std::time::Duration;

use ebbtide::{Builder, Cache, Reaper, Strategy};

use crate::lab::{Contender, Lifetimes, OURS, Search, Setup, Subject, Value};

pub(crate) fn contender() -> Contender {
    Contender::new(
        OURS,
        Lifetimes::PerEntry,
        "unbounded, default settings",
        build,
    )
}

struct Ours {
    cache: Cache<u64, Value>,
    sliding: bool,
}

fn build(setup: &Setup) -> Result<Box<dyn Subject>, String> {
    let settings = &setup.settings;
    let mut reaper = settings
        .workers
        .map_or_else(Reaper::shared, Reaper::dedicated);
    if let Some(budget) = settings.budget {
        reaper = reaper.budget(budget);
    }
    if let Some(interval) = settings.interval {
        reaper = reaper.interval(interval);
    }
    if let Some(search) = settings.search {
        reaper = reaper.strategy(match search {
            Search::Sweep => Strategy::sweep(),
            Search::Sample(size) => Strategy::sample().sample_size(size),
        });
    }
    let mut builder: Builder<u64, Value> = Cache::builder().reaper(reaper);
    if let Some(shards) = settings.shards {
        builder = builder.shards(shards);
    }
    if setup.sliding {
        builder = builder.time_to_idle(setup.lifetime);
    }
    let cache = builder.build().map_err(|error| error.to_string())?;
    Ok(Box::new(Ours {
        cache,
        sliding: setup.sliding,
    }))
}

impl Subject for Ours {
    fn get(&self, key: u64) -> bool {
        self.cache.with(&key, Value::read).is_some()
    }

    fn insert(&self, key: u64, value: Value, lifetime: Duration) {
        if self.sliding {
            self.cache.insert(key, value);
        } else {
            self.cache.insert_with_ttl(key, value, lifetime);
        }
    }

    fn extras(&self) -> Vec<(&'static str, f64)> {
        let stats = self.cache.stats();
        vec![
            ("longest-hold,us", stats.longest_hold.as_secs_f64() * 1e6),
            ("reaper,ms", stats.reaper_time.as_secs_f64() * 1e3),
            ("reap-cycles", stats.reap_cycles as f64),
            ("budget-exhausted", stats.budget_exhausted as f64),
            ("budget-overruns", stats.budget_overruns as f64),
            (
                "lag-p99,ms",
                stats.reclaim_lag.quantile(0.99).as_secs_f64() * 1e3,
            ),
        ]
    }
}
