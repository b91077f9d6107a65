//! The export through the metrics facade: `cargo test --features metrics --test observability_metrics`.
#![cfg(feature = "metrics")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{Builder, Cache, ManualClock, Reaper};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

const S: Duration = Duration::from_secs(1);

/// Keeps the last value of each.
#[derive(Default)]
struct Book {
    counters: Mutex<HashMap<Key, Arc<AtomicU64>>>,
    gauges: Mutex<HashMap<Key, Arc<AtomicU64>>>,
    described: Mutex<BTreeMap<String, Unit>>,
}

impl Book {
    fn describe(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        assert!(!help.is_empty());
        let unit = unit.expect("each has a unit");
        let name = key.as_str().to_owned();
        let before = self.described.lock().unwrap().insert(name, unit);
        assert_eq!(before, None, "described twice");
    }

    /// What was exported of the cache with this name, as `name{label="value"}`.
    fn read(&self, cache: &str) -> BTreeMap<String, f64> {
        let mut all = BTreeMap::new();
        let mut note = |key: &Key, value: f64| {
            let mut labels = key.labels();
            let first = labels.next().expect("each has the cache's label");
            assert_eq!(first.key(), "cache");
            if first.value() == cache {
                let labels: Vec<_> = labels
                    .map(|l| format!("{}={}", l.key(), l.value()))
                    .collect();
                let name = format!("{}{{{}}}", key.name(), labels.join(","));
                all.insert(name.replace("{}", ""), value);
            }
        };
        for (key, value) in &*self.counters.lock().unwrap() {
            note(key, value.load(Ordering::SeqCst) as f64);
        }
        for (key, value) in &*self.gauges.lock().unwrap() {
            note(key, f64::from_bits(value.load(Ordering::SeqCst)));
        }
        all
    }

    fn names(&self) -> BTreeSet<String> {
        let (counters, gauges) = (self.counters.lock().unwrap(), self.gauges.lock().unwrap());
        let keys = counters.keys().chain(gauges.keys());
        keys.map(|key| key.name().to_owned()).collect()
    }
}

impl Recorder for Book {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        assert!(!key.as_str().ends_with("_sum"));
        self.describe(key, unit, help);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        assert!(!key.as_str().ends_with("_total"));
        self.describe(key, unit, help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("one call for each value would be too many");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(Arc::clone(counters.entry(key.clone()).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap();
        Gauge::from_arc(Arc::clone(gauges.entry(key.clone()).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("one call for each value would be too many");
    }
}

fn cache(
    name: &str,
    settings: impl FnOnce(Builder<u64, u64>) -> Builder<u64, u64>,
) -> (Cache<u64, u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Cache::builder().name(name).clock(clock.clone());
    (settings(builder).build().unwrap(), clock)
}

#[test]
fn what_is_described_is_exported_and_the_other_way_round() {
    let book = Book::default();
    let (cache, _) = cache("all", |b| b.record_stats(true).reaper(Reaper::dedicated(1)));
    while cache.stats().last_look_age.is_none() {
        std::thread::yield_now();
    }
    with_local_recorder(&book, || {
        ebbtide::metrics::describe();
        cache.export_metrics();
    });
    let described = book.described.lock().unwrap();
    assert!(described.keys().eq(&book.names()));
    for (name, unit) in &*described {
        let wanted = match name.as_str() {
            name if name.ends_with("_seconds") || name.ends_with("_seconds_sum") => Unit::Seconds,
            name if name.ends_with("_nanoseconds_total") => Unit::Nanoseconds,
            name if name.ends_with("_bytes") => Unit::Bytes,
            _ => Unit::Count,
        };
        assert_eq!(*unit, wanted, "{name}");
        let docs = include_str!("../src/metrics.rs");
        let table = docs.split_once("\nuse ").unwrap().0;
        let stem = name.replace("_count", "_bucket");
        assert!(
            table.contains(&format!("`{stem}`")),
            "{name} is not in the table"
        );
    }
    assert_eq!(book.read("all")["ebbtide_reaper_alive"], 1.0);
}

#[test]
fn the_numbers_are_those_of_the_stats() {
    let book = Book::default();
    let (cache, clock) = cache("books", |b| b.record_stats(true).max_entries(100));
    for key in 0..150 {
        cache.insert_with_ttl(key, key, (1 + key as u32 % 3) * S);
    }
    cache.insert(149, 1);
    cache.invalidate(&149);
    clock.advance(S);
    for key in 0..150 {
        let _ = cache.get(&key);
    }
    cache.reap(S);
    clock.advance(S + S / 2);
    for _ in 0..2 {
        with_local_recorder(&book, || cache.export_metrics());
        let (seen, stats) = (book.read("books"), cache.stats());
        let memory = cache.memory_usage();
        for (name, value) in [
            ("ebbtide_hits_total", stats.hits),
            ("ebbtide_misses_total{reason=absent}", stats.absent_misses()),
            ("ebbtide_misses_total{reason=expired}", stats.expired_misses),
            ("ebbtide_inserted_total", stats.inserted),
            ("ebbtide_expired_total{path=read}", stats.expired_by_read),
            ("ebbtide_expired_total{path=write}", stats.expired_by_write),
            ("ebbtide_expired_total{path=sweep}", stats.expired_by_sweep),
            ("ebbtide_removed_total{cause=explicit}", stats.explicit),
            ("ebbtide_removed_total{cause=replaced}", stats.replaced),
            ("ebbtide_removed_total{cause=evicted}", stats.evicted),
            ("ebbtide_live_evicted_while_dead_total", 0),
            ("ebbtide_dropped_total", stats.dropped),
            ("ebbtide_reap_cycles_total", stats.reap_cycles),
            ("ebbtide_slots_scanned_total", stats.slots_scanned),
            (
                "ebbtide_reaper_nanoseconds_total",
                stats.reaper_time.as_nanos() as u64,
            ),
            ("ebbtide_entries", stats.entries),
            ("ebbtide_limbo_entries", stats.limbo),
            ("ebbtide_backlog_entries", stats.backlog),
            ("ebbtide_weight", stats.entries),
            ("ebbtide_reclaim_lag_seconds_count", stats.expired()),
            (
                "ebbtide_reclaim_lag_seconds_bucket{le=+Inf}",
                stats.expired(),
            ),
            ("ebbtide_memory_bytes{part=slab}", memory.slab as u64),
            ("ebbtide_memory_bytes{part=order}", memory.order as u64),
            ("ebbtide_slab_in_limbo_bytes", memory.slab_in_limbo as u64),
        ] {
            assert_eq!(seen[name], value as f64, "{name}");
        }
        for count in [
            stats.hits,
            stats.expired_misses,
            stats.evicted,
            stats.backlog,
        ] {
            assert!(count > 0, "{stats:?}");
        }
        let age = seen["ebbtide_oldest_due_age_seconds"];
        assert_eq!(age, stats.oldest_due_age.as_secs_f64());
        let dead = stats.backlog as f64 / stats.entries as f64;
        let (low, high) = (
            seen["ebbtide_dead_ratio_low"],
            seen["ebbtide_dead_ratio_high"],
        );
        let estimate = seen["ebbtide_dead_ratio"];
        // (Draws are not seeded here: ± 8 standard errors.)
        assert!((estimate - dead).abs() < 0.13 && low <= estimate && estimate <= high);
        assert!(seen["ebbtide_due_ratio{within=10s}"] > 0.0 || dead == 1.0);
        // And once more, after everything went on.
        cache.invalidate_all();
        clock.advance(S);
        for key in 0..50 {
            cache.insert_with_ttl(key, key, S * (1 + key as u32 % 2));
        }
        clock.advance(S + S / 2);
        assert_eq!(cache.get(&0), None);
        assert_eq!(cache.get(&1), Some(1));
    }
}

#[test]
fn buckets_count_exactly() {
    let book = Book::default();
    let (cache, clock) = cache("lag", |b| b);
    let mut lags = Vec::new();
    for shift in 10..44 {
        for lag in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
            cache.insert_with_ttl(0, 0, S);
            clock.advance(S + Duration::from_nanos(lag));
            assert_eq!(cache.get(&0), None);
            lags.push(lag);
        }
    }
    with_local_recorder(&book, || cache.export_metrics());
    let seen = book.read("lag");
    let mut buckets = 0;
    for (name, &count) in &seen {
        let Some(end) = name.strip_prefix("ebbtide_reclaim_lag_seconds_bucket{le=") else {
            continue;
        };
        buckets += 1;
        let end = end.trim_end_matches('}').replace("+Inf", "inf");
        let end: f64 = end.parse().unwrap();
        let within = lags.iter().filter(|&&lag| (lag as f64) < end * 1e9 - 0.25);
        assert_eq!(count, within.count() as f64, "up to {end}");
    }
    assert_eq!(buckets, 22);
    let sum = lags.iter().sum::<u64>() as f64 / 1e9;
    assert!((seen["ebbtide_reclaim_lag_seconds_sum"] - sum).abs() < 1e-6);
}

#[test]
fn what_is_not_known_is_not_exported() {
    let book = Book::default();
    let (one, _) = cache("one", |b| b);
    let (two, _) = cache("two", |b| b.record_stats(true));
    with_local_recorder(&book, || {
        one.export_metrics();
        two.export_metrics();
    });
    let (one, two) = (book.read("one"), book.read("two"));
    for (name, expected) in [
        ("ebbtide_hits_total", [false, true]),
        ("ebbtide_misses_total{reason=absent}", [false, true]),
        ("ebbtide_reaper_alive", [false, false]),
        ("ebbtide_last_look_age_seconds", [false, false]),
        ("ebbtide_entries", [true, true]),
    ] {
        let found = [one.contains_key(name), two.contains_key(name)];
        assert_eq!(found, expected, "{name}");
    }
}
