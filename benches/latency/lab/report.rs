//! Tables and CSV files.

use std::fs::File;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};

use super::args::RESULTS;
use super::compare::{Measured, median};
use super::record::{Op, QUANTILES, phase};
use super::task::{Loop, grouped};
use super::{Host, Outcome, Search};

/// Prints one group: what the contenders' callers wait, then what they hold; then the same where
/// a setting is varied.
pub(crate) fn print(host: &Host, group: &[Measured]) {
    let Some(first) = group.first() else {
        return;
    };
    println!(
        "### {}, {} loop\n",
        first.task.case(),
        first.task.kind.name()
    );
    let ours = group.iter().find(|one| is_ours(host, one));
    let mut latencies = table(&["contender", "phase", "request", "count"], true);
    for one in group.iter().filter(|one| one.point.sweep.is_none()) {
        add_latencies(&mut latencies, one, ours);
    }
    println!("{latencies}\n");
    let mut memory = memory_table();
    for one in group.iter().filter(|one| one.point.sweep.is_none()) {
        memory.add_row(memory_row(one, one.point.contender.to_owned()));
    }
    align(&mut memory);
    println!("{memory}\n");

    let mut varied = table(&["setting", "request", "count"], false);
    let mut held = memory_table();
    let phase = first.task.compared();
    for one in group.iter().filter(|one| one.point.sweep.is_some()) {
        for op in Op::ALL.map(Op::name) {
            let mut row = vec![
                one.point.settings.to_string(),
                op.to_owned(),
                count(one, phase, op),
            ];
            row.extend(latency_cells(one, phase, op));
            varied.add_row(row);
        }
        held.add_row(memory_row(one, one.point.settings.to_string()));
    }
    if varied.row_count() > 0 {
        align(&mut varied);
        align(&mut held);
        println!(
            "{} with one setting varied, phase `{phase}`\n{varied}\n\n{held}\n",
            super::OURS
        );
    }
}

fn is_ours(host: &Host, one: &Measured) -> bool {
    let first = host.contenders.first().map(|one| one.name);
    first == Some(one.point.contender) && one.point.sweep.is_none()
}

fn table(first: &[&str], compared: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let mut head: Vec<String> = first.iter().map(|&name| name.to_owned()).collect();
    head.extend(QUANTILES.iter().map(|(name, _)| (*name).to_owned()));
    head.push("max".to_owned());
    if compared {
        head.push(format!("{}/this, p99.9", super::OURS));
    }
    table.set_header(head);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn add_latencies(table: &mut Table, one: &Measured, ours: Option<&Measured>) {
    for phase in phase::ALL {
        for op in Op::ALL.map(Op::name) {
            if one
                .answers
                .iter()
                .all(|answer| answer.row(phase, op).is_none())
            {
                continue;
            }
            let mut row = vec![
                one.point.contender.to_owned(),
                phase.to_owned(),
                op.to_owned(),
                count(one, phase, op),
            ];
            row.extend(latency_cells(one, phase, op));
            let ratio = ours
                .filter(|ours| op != "control" && ours.point != one.point)
                .map(|ours| {
                    let ours = ours.quantiles(phase, op, "p99.9");
                    let this = one.quantiles(phase, op, "p99.9");
                    let ratios: Vec<f64> = ours
                        .iter()
                        .zip(this)
                        .map(|(ours, this)| ours / this)
                        .collect();
                    spread(&ratios, |ratio| format!("{ratio:.2}"))
                });
            row.push(ratio.unwrap_or_default());
            table.add_row(row);
        }
    }
    align(table);
}

fn count(one: &Measured, phase: &str, op: &str) -> String {
    let counts = one.values(|answer| answer.row(phase, op).map_or(0.0, |row| row.count as f64));
    grouped(median(&counts) as u64)
}

fn latency_cells(one: &Measured, phase: &str, op: &str) -> Vec<String> {
    let names = QUANTILES.iter().map(|(name, _)| *name).chain(["max"]);
    names
        .map(|name| {
            let values = one.quantiles(phase, op, name);
            // The spread of all would make the table unreadable; it is in the file.
            match name {
                "p99.9" | "max" => spread(&values, time),
                _ => shown(median(&values), time),
            }
        })
        .collect()
}

fn shown(value: f64, show: impl Fn(f64) -> String) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        show(value)
    }
}

/// The median, and the least and the greatest if there are several.
fn spread(values: &[f64], show: impl Fn(f64) -> String) -> String {
    let middle = shown(median(values), &show);
    if values.len() < 2 || values.iter().any(|value| value.is_nan()) {
        return middle;
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{middle} ({}–{})", show(least), show(most))
}

/// Nanoseconds with a unit, to three digits.
pub(crate) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        _ if nanos < 999.5 => return format!("{nanos:.0} ns"),
        _ if nanos < 999.5e3 => (nanos / 1e3, "µs"),
        _ if nanos < 999.5e6 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.digits$} {unit}")
}

/// What is printed of an answer's figures: their names, the heads, and digits after the point.
const MEMORY: [(&str, &str, usize); 13] = [
    ("requests/s", "requests/s", 0),
    ("hits,%", "hits, %", 1),
    ("unserved", "not served", 0),
    ("held,mean", "held", 0),
    ("held,max", "held, most", 0),
    ("dead,mean,%", "dead, %", 2),
    ("dead,max,%", "dead, most, %", 2),
    ("dead,max,MB", "dead, most, MB", 2),
    ("rss-before,MB", "RSS before, MB", 1),
    ("rss-max,MB", "RSS most, MB", 1),
    ("rss-after,MB", "RSS after, MB", 1),
    ("gone,ms", "wave gone, ms", 0),
    ("longest-hold,us", "longest-hold, µs", 0),
];

fn memory_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let head = MEMORY.iter().map(|(_, head, _)| (*head).to_owned());
    table.set_header(std::iter::once(String::new()).chain(head));
    table
}

fn memory_row(one: &Measured, name: String) -> Vec<String> {
    let figures = MEMORY.iter().map(|&(figure, _, digits)| {
        let value = median(&one.values(|answer| answer.figure(figure)));
        shown(value, |value| match digits {
            0 if value.is_infinite() => "never".to_owned(),
            0 => grouped(value.max(0.0) as u64),
            _ => format!("{value:.digits$}"),
        })
    });
    std::iter::once(name).chain(figures).collect()
}

/// Writes every latency, every figure and every look of every round.
pub(crate) fn write(
    out: &Path,
    machine: &[(&str, String)],
    groups: &[Vec<Measured>],
) -> Outcome<()> {
    let open = |name: &str| -> Outcome<csv::Writer<File>> {
        let path = out.join(name);
        let file = File::create(&path);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(csv::Writer::from_writer(file))
    };
    let mut results = open(RESULTS)?;
    let mut head = CASE.to_vec();
    head.extend(["round", "phase", "request", "figure", "value"]);
    results.write_record(&head)?;
    let mut lines = open("timeline.csv")?;
    let mut head = CASE.to_vec();
    head.extend([
        "round",
        "seconds",
        "rss_bytes",
        "held",
        "dead",
        "requests",
        "p50_ns",
        "p99_ns",
        "max_ns",
    ]);
    lines.write_record(&head)?;
    for one in groups.iter().flatten() {
        for (round, answer) in one.answers.iter().enumerate() {
            let mut start = case(one);
            start.push(round.to_string());
            let mut put = |end: [&str; 4]| -> csv::Result<()> {
                results.write_record(start.iter().map(String::as_str).chain(end))
            };
            for row in &answer.rows {
                put([&row.phase, &row.op, "count", &row.count.to_string()])?;
                for ((name, _), value) in QUANTILES.iter().zip(row.quantiles) {
                    put([
                        &row.phase,
                        &row.op,
                        &format!("{name},ns"),
                        &value.to_string(),
                    ])?;
                }
                put([&row.phase, &row.op, "max,ns", &row.max.to_string()])?;
            }
            for (name, value) in &answer.figures {
                put(["", "", name, &value.to_string()])?;
            }
            for tick in &answer.ticks {
                let end = [
                    format!("{:.4}", tick.at),
                    tick.resident.to_string(),
                    tick.held.to_string(),
                    tick.dead.to_string(),
                    tick.requests.to_string(),
                    tick.p50.to_string(),
                    tick.p99.to_string(),
                    tick.max.to_string(),
                ];
                lines.write_record(start.iter().chain(&end))?;
            }
        }
    }
    results.flush()?;
    lines.flush()?;
    let mut about = open("machine.csv")?;
    for (name, value) in machine {
        about.write_record([*name, value.as_str()])?;
    }
    about.flush()?;
    Ok(())
}

const CASE: [&str; 7] = [
    "scenario",
    "loop",
    "contender",
    "setting",
    "varied",
    "rate",
    "threads",
];

fn case(one: &Measured) -> Vec<String> {
    let task = &one.task;
    let rate = match task.kind {
        Loop::Open => task.rate.to_string(),
        Loop::Closed => String::new(),
    };
    vec![
        task.case(),
        task.kind.name().to_owned(),
        task.contender.clone(),
        task.settings.to_string(),
        one.point
            .sweep
            .map_or_else(String::new, |sweep| format!("{sweep:?}").to_lowercase()),
        rate,
        task.threads.to_string(),
    ]
}

/// How a point is called in a plot.
pub(crate) fn label(one: &Measured) -> String {
    match (one.point.sweep, one.point.settings.search) {
        (None, _) => one.point.contender.to_owned(),
        (_, Some(Search::Sample(size))) => format!("{}, sample {size}", one.point.contender),
        _ => format!("{}, {}", one.point.contender, one.point.settings),
    }
}
