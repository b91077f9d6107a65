//! What is printed before and after a run.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use ebbtide::Stats;
use hdrhistogram::Histogram;

use crate::args::{Plan, Search};
use crate::monitor::{INTERVAL, Watched};
use crate::trace::{Op, Request, Trace};
use crate::units::{bytes, grouped, nanos, percent, time};
use crate::value::Tally;
use crate::worker::{Outcome, TIMED_ONE_IN};

/// The quantiles of the latency table.
pub(crate) const QUANTILES: [(f64, &str); 4] = [
    (0.5, "p50"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
];

/// Everything that a run left behind.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) outcome: Outcome,
    pub(crate) watched: Watched,
    pub(crate) stats: Stats,
    /// Entries that the cache had linked at the end, and those of them that were alive.
    pub(crate) linked: u64,
    pub(crate) live: u64,
    /// What the values' own ledger held at the end.
    pub(crate) held: Tally,
    pub(crate) dead: Tally,
    pub(crate) made: u64,
    /// How long after the ends of their lifetimes values were dropped, in microseconds.
    pub(crate) freed: Histogram<u64>,
    /// When the first request was due.
    pub(crate) start: Instant,
}

/// What will be replayed, and how.
pub(crate) fn heading(plan: &Plan, trace: &Trace) -> String {
    let mut out = String::new();
    let requests = grouped(trace.requests.len() as u64);
    let span = nanos(trace.span);
    line(&mut out, "trace", &format!("{}", plan.trace.display()));
    line(
        &mut out,
        "",
        &format!("{requests} requests over {span} of trace time"),
    );
    if plan.is_committed_trace() {
        for text in [
            "Twitter's cache-trace release, cluster 52, first requests; CC BY 4.0",
            "requests, sizes and times as logged, keys renamed; lifetimes ASSIGNED",
            "by a hash of the key from the cluster's published mix, not logged",
        ] {
            line(&mut out, "", text);
        }
    }
    if !trace.has_sizes() {
        let size = bytes(u64::from(plan.defaults.size));
        line(
            &mut out,
            "",
            &format!("no sizes in it: every value has {size} (--default-size)"),
        );
    }
    if !trace.has_times() {
        let ttl = grouped(u64::from(plan.defaults.ttl));
        let rate = plan.defaults.rate;
        let text = format!("no lifetimes in it: every entry gets {ttl} s (--default-ttl)");
        line(&mut out, "", &text);
        let text = format!("no times in it: {rate} requests/s of trace time (--rate)");
        line(&mut out, "", &text);
    }
    let speed = plan.compression.speed;
    let how = match plan.passes {
        None => format!(
            "paced, {speed} times as fast as logged: {} planned",
            time(plan.compression.time(trace.span))
        ),
        Some(1) => "unpaced, one pass over the trace, as fast as possible".to_owned(),
        Some(n) => format!("unpaced, {n} passes over the trace, as fast as possible"),
    };
    line(&mut out, "run", &how);
    lifetimes(&mut out, plan, &trace.requests);
    let bound = match plan.max_entries {
        Some(n) => format!("at most {} entries", grouped(n)),
        None => "unbounded".to_owned(),
    };
    let workers = match plan.workers {
        1 => "1 worker".to_owned(),
        n => format!("{n} workers"),
    };
    line(
        &mut out,
        "cache",
        &format!("one, {bound}, shared by {workers}"),
    );
    line(&mut out, "reaper", &plan.reaper_words);
    out
}

fn lifetimes(out: &mut String, plan: &Plan, requests: &[Request]) {
    let mut counts = BTreeMap::new();
    let inserting = requests
        .iter()
        .filter(|r| matches!(r.op, Op::Fetch | Op::Set));
    for request in inserting {
        *counts.entry(request.ttl).or_insert(0) += 1;
    }
    let total = counts.values().sum();
    let shown = |seconds: u32| {
        let compressed = plan.compression.lifetime(seconds);
        compressed.map_or("never ends".to_owned(), time)
    };
    let factors = format!(
        "divided by {} and by the speed {}:",
        plan.compression.lifetime_factor, plan.compression.speed
    );
    line(out, "lifetimes", &factors);
    if counts.len() <= 4 {
        for (&seconds, &count) in &counts {
            let logged = time(Duration::from_secs(u64::from(seconds)));
            let share = percent(count, total);
            let text = match seconds {
                0 => format!("none, never ends, {share} of requests"),
                _ => format!("{logged} → {}, {share} of requests", shown(seconds)),
            };
            line(out, "", &text);
        }
    } else if let (Some((&least, _)), Some((&most, _))) =
        (counts.range(1..).next(), counts.last_key_value())
    {
        let distinct = grouped(counts.len() as u64);
        let text = format!(
            "{distinct} different ones, {} to {}",
            shown(least),
            shown(most)
        );
        line(out, "", &text);
    }
}

/// The table at the end of a run.
pub(crate) fn table(plan: &Plan, trace: &Trace, results: &Results) -> String {
    let mut out = String::new();
    throughput(&mut out, plan, trace, results);
    latency(&mut out, plan, &results.outcome);
    memory(&mut out, results);
    reclaiming(&mut out, plan, results);
    out
}

fn throughput(out: &mut String, plan: &Plan, trace: &Trace, results: &Results) {
    let outcome = &results.outcome;
    section(out, "Requests");
    let seconds = |(begun, ended): &(Instant, Instant)| (*ended - *begun).as_secs_f64().max(1e-9);
    let requests = trace.requests.len() as f64;
    match plan.passes {
        None => {
            let took = outcome.passes.first().map_or(1e-9, seconds);
            let planned = plan.compression.time(trace.span).as_secs_f64();
            let note = format!(
                "in {took:.2} s; due by the trace {}/s",
                grouped((requests / planned).round() as u64)
            );
            row(out, "requests/s", &grouped((requests / took) as u64), &note);
        }
        Some(_) => {
            let mut rates: Vec<f64> = outcome
                .passes
                .iter()
                .map(|p| requests / seconds(p))
                .collect();
            let first = rates.first().copied().unwrap_or_default();
            rates.sort_by(f64::total_cmp);
            let of = |i: usize| grouped(rates.get(i).copied().unwrap_or_default() as u64);
            let last = rates.len().saturating_sub(1);
            let note = match rates.len() {
                1 => "in one pass, into an empty cache".to_owned(),
                n => format!("median of {n} passes; {} to {}", of(0), of(last)),
            };
            row(out, "requests/s", &of(rates.len() / 2), &note);
            if rates.len() > 1 {
                let note = "the first pass: the cache was empty";
                row(out, "", &grouped(first as u64), note);
            }
        }
    }
    let reads = outcome.hits + outcome.misses;
    let note = format!(
        "{} hits, {} misses",
        grouped(outcome.hits),
        grouped(outcome.misses)
    );
    row(out, "hit ratio", &percent(outcome.hits, reads), &note);
    if outcome.sets + outcome.deletes > 0 {
        let note = format!(
            "by the trace itself, and {} removals",
            grouped(outcome.deletes)
        );
        row(out, "inserts", &grouped(outcome.sets), &note);
    }
    let note = format!(
        "in {} hits, by their own deadlines",
        grouped(outcome.checked)
    );
    row(
        out,
        "expired values read",
        &grouped(outcome.expired_reads),
        &note,
    );
    let note = "hits whose bytes were another key's";
    row(out, "wrong values read", &grouped(outcome.damaged), note);
}

fn latency(out: &mut String, plan: &Plan, outcome: &Outcome) {
    section(out, "Latency");
    let mut head = format!("  {:<22}", "");
    for (_, name) in QUANTILES {
        let _ = write!(head, "{name:>10}");
    }
    let _ = writeln!(out, "{head}{:>10}", "max");
    let mut quantiles = |label: &str, histogram: &Histogram<u64>| {
        let _ = write!(out, "  {label:<22}");
        for (quantile, _) in QUANTILES {
            let known = histogram.len() as f64 * (1.0 - quantile) >= 1.0;
            let value = match known {
                true => nanos(histogram.value_at_quantile(quantile)),
                false => "–".to_owned(),
            };
            let _ = write!(out, "{value:>10}");
        }
        let most = match histogram.len() {
            0 => "–".to_owned(),
            _ => nanos(histogram.max()),
        };
        let _ = writeln!(out, "{most:>10}");
    };
    quantiles("read", &outcome.reads);
    quantiles("insert", &outcome.inserts);
    quantiles("no call at all", &outcome.control);
    if plan.passes.is_none() {
        quantiles("behind schedule", &outcome.behind);
    }
    let timed = match plan.passes {
        None => "Every call is timed".to_owned(),
        Some(_) => format!("One request in {TIMED_ONE_IN} is timed"),
    };
    let _ = writeln!(
        out,
        "  {timed}; reading the clock once is included. A read is a\n  \
         hit or a miss, and looks at the value's first and last byte. \"no call at all\"\n  \
         is the clock read twice: what it costs, how long the machine stops a thread."
    );
    if plan.passes.is_none() {
        out.push_str(
            "  \"behind schedule\" is how late a request began: its worker woke late from its\n  \
             sleep, or was busy with those before.\n",
        );
    }
}

fn memory(out: &mut String, results: &Results) {
    section(out, "Memory");
    let (linked, live) = (results.linked, results.live);
    let dead = linked.saturating_sub(live);
    let note = format!(
        "live {}, dead {} ({})",
        grouped(live),
        grouped(dead),
        percent(dead, linked)
    );
    row(out, "entries at the end", &grouped(linked), &note);
    let note = format!(
        "of {} values, {} of them dead",
        grouped(results.held.count),
        bytes(results.dead.bytes)
    );
    row(out, "bytes at the end", &bytes(results.held.bytes), &note);
    if let Some(peak) = results.watched.peak {
        let note = format!(
            "{} of all, {} values, at {}",
            percent(peak.dead.bytes, peak.held.bytes),
            grouped(peak.dead.count),
            time(peak.at)
        );
        row(out, "dead bytes at peak", &bytes(peak.dead.bytes), &note);
    }
    if let Some(mean) = results.watched.mean_dead_percent() {
        row(
            out,
            "dead bytes, mean",
            &format!("{mean:.2} %"),
            "of the bytes held",
        );
    }
    let ended = results.freed.len() + results.dead.count;
    let note = format!(
        "{} of {} values inserted",
        percent(ended, results.made),
        grouped(results.made)
    );
    row(out, "lifetimes ended", &grouped(ended), &note);
    let _ = writeln!(
        out,
        "  Bytes are the values' own (no keys, no overhead), counted by the values: dead\n  \
         from the end of its lifetime (to 10 ms) until its Drop has run, linked or not.\n  \
         Looked at every {}: a peak between two looks is missed.",
        time(INTERVAL).replace(".0", "")
    );
}

fn reclaiming(out: &mut String, plan: &Plan, results: &Results) {
    let stats = &results.stats;
    section(out, "Reclaimed");
    let by = [
        ("by reads", stats.expired_by_read),
        ("by writes", stats.expired_by_write),
        ("by the reaper", stats.expired_by_sweep),
    ];
    let expired = by.iter().map(|(_, n)| n).sum();
    for (label, count) in by {
        row(
            out,
            label,
            &grouped(count),
            &match expired {
                0 => "nothing has expired".to_owned(),
                _ => format!("{} of the expired", percent(count, expired)),
            },
        );
    }
    if stats.replaced > 0 {
        let note = "two workers had missed the same key";
        let note = if results.outcome.sets > 0 { "" } else { note };
        row(out, "replaced alive", &grouped(stats.replaced), note);
    }
    if plan.max_entries.is_some() {
        let note = "to keep the bound";
        row(out, "evicted alive", &grouped(stats.evicted), note);
    }
    lags(out, results);
    if plan.search != Search::Off {
        let note = format!(
            "{} entries, {} slots looked at",
            grouped(stats.entries_inspected),
            grouped(stats.slots_scanned)
        );
        row(out, "reaper cycles", &grouped(stats.reap_cycles), &note);
        let overruns = grouped(stats.budget_overruns);
        row(
            out,
            "budget overruns",
            &overruns,
            "cycles over 10 % beyond their budget",
        );
        let took = results
            .outcome
            .passes
            .last()
            .map_or(Duration::ZERO, |p| p.1 - results.start);
        let share = stats.reaper_time.as_secs_f64() * 100.0 / took.as_secs_f64().max(1e-9);
        let note = format!("{share:.2} % of a core");
        row(out, "reaper time", &time(stats.reaper_time), &note);
    }
    row(
        out,
        "longest lock hold",
        &time(stats.longest_hold),
        "of a shard's lock by the reaper",
    );
}

fn lags(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "  {:<22}{:>10}{:>10}{:>10}{:>12}",
        "lag", "p50", "p99", "max", "entries"
    );
    let mut quantiles = |label: &str, [p50, p99, max]: [Duration; 3], count: u64| {
        let _ = write!(out, "  {label:<22}");
        for value in [p50, p99, max] {
            let shown = if count == 0 {
                "–".to_owned()
            } else {
                time(value)
            };
            let _ = write!(out, "{shown:>10}");
        }
        let _ = writeln!(out, "{:>12}", grouped(count));
    };
    let lag = &results.stats.reclaim_lag;
    let values = [lag.quantile(0.5), lag.quantile(0.99), lag.max()];
    quantiles("deadline to unlinked", values, lag.count());
    let freed = &results.freed;
    let values = [
        freed.value_at_quantile(0.5),
        freed.value_at_quantile(0.99),
        freed.max(),
    ];
    quantiles(
        "deadline to freed",
        values.map(Duration::from_micros),
        freed.len(),
    );
    out.push_str(
        "  \"unlinked\" is the cache's own count: never too low, but p50 and p99 up to 19 %\n  \
         too high, and all up to 67 ms where a read had ended the entry beforehand.\n  \
         \"freed\" is measured by the values themselves, in their Drop.\n",
    );
}

fn section(out: &mut String, title: &str) {
    let _ = writeln!(out, "\n{title}");
}

fn row(out: &mut String, label: &str, value: &str, note: &str) {
    let _ = writeln!(out, "  {label:<20}{value:>11}   {note}");
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "{label:<11}{text}");
}

/// Writes all of a text, and takes a reader who has gone for content.
pub(crate) fn print(text: impl fmt::Display) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
