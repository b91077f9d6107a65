//! Export of a cache's numbers through the [`metrics`](https://docs.rs/metrics) facade (feature `metrics`).
//!
//! Nothing is exported by itself: call [`Cache::export_metrics`] when metrics are scraped, or every few
//! seconds. Every metric has a label `cache` with the cache's [name](crate::Builder::name), so caches that
//! are exported need different names. `examples/metrics.rs` shows it with Prometheus.
//!
//! Times are in seconds (counters, which are whole numbers, in nanoseconds), memory in bytes, shares between
//! 0 and 1. Distributions are exported the way Prometheus counts them, as counters `…_bucket` with a label
//! `le` and `…_count`: the facade's own histograms take one call for each value, and an export must not cost
//! more after a wave. `histogram_quantile(0.99, rate(ebbtide_reclaim_lag_seconds_bucket[5m]))` reads them.
//!
//! | counter | label | |
//! |---|---|---|
//! | `ebbtide_hits_total` | | with [`record_stats`](crate::Builder::record_stats) |
//! | `ebbtide_misses_total` | `reason` = `absent`, `expired` | the same |
//! | `ebbtide_inserted_total` | | |
//! | `ebbtide_expired_total` | `path` = `read`, `write`, `sweep` | who unlinked it |
//! | `ebbtide_removed_total` | `cause` = `explicit`, `replaced`, `evicted` | left alive |
//! | `ebbtide_live_evicted_while_dead_total` | | should stay 0 |
//! | `ebbtide_refused_total`, `ebbtide_dropped_total`, `ebbtide_slow_drops_total`, `ebbtide_panics_total` | | |
//! | `ebbtide_reap_cycles_total`, `ebbtide_reap_exhausted_total`, `ebbtide_reap_overruns_total` | | |
//! | `ebbtide_slots_scanned_total`, `ebbtide_entries_inspected_total`, `ebbtide_refiled_total`, `ebbtide_sample_rounds_total`, `ebbtide_contended_total` | | |
//! | `ebbtide_reaper_nanoseconds_total`, `ebbtide_drop_nanoseconds_total` | | |
//! | `ebbtide_reclaim_lag_seconds_bucket`, `ebbtide_reap_cycle_seconds_bucket` | `le` | and `…_count` |
//!
//! | gauge | label | |
//! |---|---|---|
//! | `ebbtide_entries`, `ebbtide_limbo_entries`, `ebbtide_backlog_entries`, `ebbtide_weight` | | |
//! | `ebbtide_oldest_due_age_seconds`, `ebbtide_last_look_age_seconds` | | |
//! | `ebbtide_reaper_alive` | | 1 or 0; absent if reaped by hand |
//! | `ebbtide_reap_budget_seconds`, `ebbtide_longest_hold_seconds`, `ebbtide_longest_drop_seconds` | | |
//! | `ebbtide_reclaim_lag_seconds_sum`, `ebbtide_reap_cycle_seconds_sum` | | belong to the buckets |
//! | `ebbtide_dead_ratio`, `ebbtide_dead_ratio_low`, `ebbtide_dead_ratio_high` | | [`audit`](Cache::audit) of 1,000 entries |
//! | `ebbtide_due_ratio` | `within` = `1s`, `10s`, `1min`, `10min` | the same |
//! | `ebbtide_memory_bytes` | `part` | [`MemoryUsage::parts`](crate::MemoryUsage::parts) |
//! | `ebbtide_slab_in_limbo_bytes` | | |
//!
//! Except for the buckets, each has the meaning of the field of [`Stats`] with its name.

use std::hash::{BuildHasher, Hash};
use std::ops::RangeInclusive;
use std::time::Duration;

use ::metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};

use crate::stats::{Audit, LagHistogram, MemoryUsage, Stats};
use crate::{Cache, Share};

/// Entries looked at for the shares of the dead and the soon due: ± 3 % at worst.
const SAMPLES: u64 = 1_000;

/// Ends of the exported buckets as powers of two nanoseconds: from 1 ms to 18 minutes, and from 16 µs to 134
/// ms. The histogram's own buckets end there too, so the counts are exact.
const LAG_ENDS: RangeInclusive<u32> = 20..=40;
const CYCLE_ENDS: RangeInclusive<u32> = 14..=27;

/// Name, unit and meaning of the counters.
const COUNTERS: &[(&str, Unit, &str)] = &[
    (
        "ebbtide_hits_total",
        Unit::Count,
        "Reads that found a live entry",
    ),
    (
        "ebbtide_misses_total",
        Unit::Count,
        "Reads that found none, by whether an expired one was there",
    ),
    (
        "ebbtide_inserted_total",
        Unit::Count,
        "Entries that were linked, replacements included",
    ),
    (
        "ebbtide_expired_total",
        Unit::Count,
        "Expired entries that were unlinked, by who did it",
    ),
    (
        "ebbtide_removed_total",
        Unit::Count,
        "Living entries that left, by cause",
    ),
    (
        "ebbtide_live_evicted_while_dead_total",
        Unit::Count,
        "Living entries evicted while a dead one was known",
    ),
    (
        "ebbtide_refused_total",
        Unit::Count,
        "Entries that the cache could not take",
    ),
    (
        "ebbtide_dropped_total",
        Unit::Count,
        "Values dropped after their grace period",
    ),
    (
        "ebbtide_slow_drops_total",
        Unit::Count,
        "Batches of at most 128 values whose drops exceeded a cycle's budget",
    ),
    (
        "ebbtide_panics_total",
        Unit::Count,
        "Panics of user code that were contained",
    ),
    (
        "ebbtide_reap_cycles_total",
        Unit::Count,
        "Cycles of the reaper over this cache",
    ),
    (
        "ebbtide_reap_exhausted_total",
        Unit::Count,
        "Cycles that ended for their budget with work left",
    ),
    (
        "ebbtide_reap_overruns_total",
        Unit::Count,
        "Cycles that exceeded their budget by over 10 %",
    ),
    (
        "ebbtide_slots_scanned_total",
        Unit::Count,
        "Lane slots that the reaper looked at",
    ),
    (
        "ebbtide_entries_inspected_total",
        Unit::Count,
        "Entries that the reaper looked at",
    ),
    (
        "ebbtide_refiled_total",
        Unit::Count,
        "Entries that were due in the lane but had been renewed",
    ),
    (
        "ebbtide_sample_rounds_total",
        Unit::Count,
        "Rounds of the sampling strategy",
    ),
    (
        "ebbtide_contended_total",
        Unit::Count,
        "Times that the reaper found a shard locked",
    ),
    (
        "ebbtide_reaper_nanoseconds_total",
        Unit::Nanoseconds,
        "Time that the reaper spent on this cache",
    ),
    (
        "ebbtide_drop_nanoseconds_total",
        Unit::Nanoseconds,
        "Time that drops of values took",
    ),
    (
        "ebbtide_reclaim_lag_seconds_bucket",
        Unit::Count,
        "Expired entries unlinked at most so long after their deadline",
    ),
    (
        "ebbtide_reclaim_lag_seconds_count",
        Unit::Count,
        "Expired entries unlinked",
    ),
    (
        "ebbtide_reap_cycle_seconds_bucket",
        Unit::Count,
        "Cycles that took at most so long",
    ),
    ("ebbtide_reap_cycle_seconds_count", Unit::Count, "Cycles"),
];

/// The same of the gauges.
const GAUGES: &[(&str, Unit, &str)] = &[
    (
        "ebbtide_entries",
        Unit::Count,
        "Linked entries, the dead among them included",
    ),
    (
        "ebbtide_limbo_entries",
        Unit::Count,
        "Unlinked entries whose values wait for readers to let go",
    ),
    (
        "ebbtide_backlog_entries",
        Unit::Count,
        "About how many linked entries are over",
    ),
    ("ebbtide_weight", Unit::Count, "The sum of all weights"),
    (
        "ebbtide_oldest_due_age_seconds",
        Unit::Seconds,
        "For how long an entry has been over and linked, at most",
    ),
    (
        "ebbtide_last_look_age_seconds",
        Unit::Seconds,
        "Time since whoever reaps last looked at this cache",
    ),
    (
        "ebbtide_reaper_alive",
        Unit::Count,
        "Whether the reaper's threads run, 1 or 0",
    ),
    (
        "ebbtide_reap_budget_seconds",
        Unit::Seconds,
        "What a cycle may take",
    ),
    (
        "ebbtide_longest_hold_seconds",
        Unit::Seconds,
        "Longest time for which the reaper held a lock",
    ),
    (
        "ebbtide_longest_drop_seconds",
        Unit::Seconds,
        "Longest time that the drops of a batch took",
    ),
    (
        "ebbtide_reclaim_lag_seconds_sum",
        Unit::Seconds,
        "Sum over the expired entries",
    ),
    (
        "ebbtide_reap_cycle_seconds_sum",
        Unit::Seconds,
        "Sum over the cycles",
    ),
    (
        "ebbtide_dead_ratio",
        Unit::Count,
        "Share of entries that are dead, in a random sample",
    ),
    (
        "ebbtide_dead_ratio_low",
        Unit::Count,
        "Lower end of its 95 % confidence interval",
    ),
    (
        "ebbtide_dead_ratio_high",
        Unit::Count,
        "Upper end of its 95 % confidence interval",
    ),
    (
        "ebbtide_due_ratio",
        Unit::Count,
        "Share of entries that will be due within a time, in the sample",
    ),
    (
        "ebbtide_memory_bytes",
        Unit::Bytes,
        "Memory of the cache's own structures, by part",
    ),
    (
        "ebbtide_slab_in_limbo_bytes",
        Unit::Bytes,
        "Of the slab, entries that wait for readers to let go",
    ),
];

/// Tells the installed recorder what each metric means, and its unit. Once, after it was installed.
pub fn describe() {
    with_recorder(|recorder| {
        for &(name, unit, help) in COUNTERS {
            recorder.describe_counter(name.into(), Some(unit), help.into());
        }
        for &(name, unit, help) in GAUGES {
            recorder.describe_gauge(name.into(), Some(unit), help.into());
        }
    });
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Hands all numbers of this cache to the installed [`metrics`](crate::metrics) recorder: counters
    /// since the cache was made, gauges as they are now. With the feature `metrics`.
    ///
    /// # Cost
    /// That of [`stats`](Self::stats), [`memory_usage`](Self::memory_usage) and an
    /// [`audit`](Self::audit) of 1,000 entries, then some 100 registrations with the recorder, each with
    /// allocations for its labels; nothing between two calls. The recorder is called without any lock.
    pub fn export_metrics(&self) {
        let (stats, memory) = (self.stats(), self.memory_usage());
        let (audit, weight) = (self.audit(SAMPLES), self.weight());
        with_recorder(|recorder| {
            let sink = Sink {
                recorder,
                cache: Label::new("cache", self.name().to_owned()),
            };
            if self.core.reads.is_some() {
                sink.reads(&stats);
            }
            sink.counts(&stats);
            sink.state(&stats, weight);
            sink.histogram(
                "ebbtide_reclaim_lag_seconds_bucket",
                "ebbtide_reclaim_lag_seconds_count",
                "ebbtide_reclaim_lag_seconds_sum",
                &stats.reclaim_lag,
                LAG_ENDS,
            );
            sink.histogram(
                "ebbtide_reap_cycle_seconds_bucket",
                "ebbtide_reap_cycle_seconds_count",
                "ebbtide_reap_cycle_seconds_sum",
                &stats.cycle_time,
                CYCLE_ENDS,
            );
            sink.audit(&audit);
            sink.memory(&memory);
        });
    }
}

/// A recorder, for one cache.
struct Sink<'r> {
    recorder: &'r dyn Recorder,
    cache: Label,
}

impl Sink<'_> {
    const METADATA: Metadata<'static> = Metadata::new("ebbtide", Level::INFO, Some("ebbtide"));

    fn key(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Key {
        let mut all = vec![self.cache.clone()];
        all.extend(
            labels
                .iter()
                .map(|&(key, value)| Label::new(key, value.to_owned())),
        );
        Key::from_parts(name, all)
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        let key = self.key(name, labels);
        let counter = self.recorder.register_counter(&key, &Self::METADATA);
        counter.absolute(value);
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let key = self.key(name, labels);
        self.recorder
            .register_gauge(&key, &Self::METADATA)
            .set(value);
    }

    fn reads(&self, stats: &Stats) {
        self.counter("ebbtide_hits_total", &[], stats.hits);
        for (reason, count) in [
            ("absent", stats.absent_misses()),
            ("expired", stats.expired_misses),
        ] {
            self.counter("ebbtide_misses_total", &[("reason", reason)], count);
        }
    }

    fn counts(&self, stats: &Stats) {
        for (path, count) in [
            ("read", stats.expired_by_read),
            ("write", stats.expired_by_write),
            ("sweep", stats.expired_by_sweep),
        ] {
            self.counter("ebbtide_expired_total", &[("path", path)], count);
        }
        for (cause, count) in [
            ("explicit", stats.explicit),
            ("replaced", stats.replaced),
            ("evicted", stats.evicted),
        ] {
            self.counter("ebbtide_removed_total", &[("cause", cause)], count);
        }
        for (name, count) in [
            ("ebbtide_inserted_total", stats.inserted),
            (
                "ebbtide_live_evicted_while_dead_total",
                stats.live_evicted_while_dead,
            ),
            ("ebbtide_refused_total", stats.refused),
            ("ebbtide_dropped_total", stats.dropped),
            ("ebbtide_slow_drops_total", stats.slow_drops),
            ("ebbtide_panics_total", stats.panics),
            ("ebbtide_reap_cycles_total", stats.reap_cycles),
            ("ebbtide_reap_exhausted_total", stats.budget_exhausted),
            ("ebbtide_reap_overruns_total", stats.budget_overruns),
            ("ebbtide_slots_scanned_total", stats.slots_scanned),
            ("ebbtide_entries_inspected_total", stats.entries_inspected),
            ("ebbtide_refiled_total", stats.refiled),
            ("ebbtide_sample_rounds_total", stats.sample_rounds),
            ("ebbtide_contended_total", stats.contended),
            (
                "ebbtide_reaper_nanoseconds_total",
                crate::clock::nanos(stats.reaper_time),
            ),
            (
                "ebbtide_drop_nanoseconds_total",
                crate::clock::nanos(stats.drop_time),
            ),
        ] {
            self.counter(name, &[], count);
        }
    }

    fn state(&self, stats: &Stats, weight: u64) {
        for (name, count) in [
            ("ebbtide_entries", stats.entries),
            ("ebbtide_limbo_entries", stats.limbo),
            ("ebbtide_backlog_entries", stats.backlog),
            ("ebbtide_weight", weight),
        ] {
            self.gauge(name, &[], count as f64);
        }
        for (name, length) in [
            ("ebbtide_oldest_due_age_seconds", Some(stats.oldest_due_age)),
            ("ebbtide_last_look_age_seconds", stats.last_look_age),
            ("ebbtide_reap_budget_seconds", Some(stats.budget)),
            ("ebbtide_longest_hold_seconds", Some(stats.longest_hold)),
            ("ebbtide_longest_drop_seconds", Some(stats.longest_drop)),
        ] {
            if let Some(length) = length {
                self.gauge(name, &[], length.as_secs_f64());
            }
        }
        if let Some(alive) = stats.reaper_alive {
            self.gauge("ebbtide_reaper_alive", &[], f64::from(u8::from(alive)));
        }
    }

    fn histogram(
        &self,
        bucket: &'static str,
        count: &'static str,
        sum: &'static str,
        histogram: &LagHistogram,
        ends: RangeInclusive<u32>,
    ) {
        let mut lengths = histogram.cumulative().peekable();
        let mut seen = 0;
        for shift in ends {
            let end = Duration::from_nanos(1 << shift);
            while let Some((_, up_to)) = lengths.next_if(|&(length, _)| length < end) {
                seen = up_to;
            }
            self.counter(bucket, &[("le", &end.as_secs_f64().to_string())], seen);
        }
        let all = histogram.count();
        self.counter(bucket, &[("le", "+Inf")], all);
        self.counter(count, &[], all);
        self.gauge(sum, &[], histogram.sum().as_secs_f64());
    }

    fn audit(&self, audit: &Audit) {
        let Share {
            estimate,
            low,
            high,
        } = audit.dead_share();
        self.gauge("ebbtide_dead_ratio", &[], estimate);
        self.gauge("ebbtide_dead_ratio_low", &[], low);
        self.gauge("ebbtide_dead_ratio_high", &[], high);
        for (within, count) in [
            ("1s", audit.due_in_1s),
            ("10s", audit.due_in_10s),
            ("1min", audit.due_in_1min),
            ("10min", audit.due_in_10min),
        ] {
            let share = audit.share_of(count).estimate;
            self.gauge("ebbtide_due_ratio", &[("within", within)], share);
        }
    }

    fn memory(&self, memory: &MemoryUsage) {
        for (part, bytes) in memory.parts() {
            self.gauge("ebbtide_memory_bytes", &[("part", part)], bytes as f64);
        }
        self.gauge(
            "ebbtide_slab_in_limbo_bytes",
            &[],
            memory.slab_in_limbo as f64,
        );
    }
}
