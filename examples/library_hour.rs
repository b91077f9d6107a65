//! One hour of a library's traffic through the cache, beside the figures of the
//! seed experiment that it repeats: 72,000 keys placed with lifetimes of 60, 300
//! and 1,800 seconds, 216,000 accesses, and what is held though expired.
//!
//! The hour runs under a clock stepped by hand and takes a few seconds:
//!
//! ```text
//! cargo run --release --example library_hour
//! ```

#[path = "../tests/common/seeds/mod.rs"]
mod seeds;

use ebbtide::BuildError;

use seeds::figures::{self, LibraryRow};
use seeds::library_cache::{Cleaning, CleaningReport, Watch, play};
use seeds::library_hour::{ACCESSES, HourOutcome, LibraryHour, SEED, Sampling};
use seeds::random::to_fixed;

/// One way of cleaning: what the seed printed for it, if it had it, and our run.
struct Row {
    name: &'static str,
    seed: Option<LibraryRow>,
    outcome: HourOutcome,
    report: CleaningReport,
}

impl Row {
    fn played(
        hour: &LibraryHour,
        name: &'static str,
        seed: Option<LibraryRow>,
        cleaning: Cleaning,
    ) -> Result<Self, BuildError> {
        let (outcome, report) = play(hour, cleaning, Watch::Events)?;
        Ok(Self {
            name,
            seed,
            outcome,
            report,
        })
    }

    /// Seconds from deadline to drop, averaged over every drop, whoever made it.
    fn average_delay_of_all(&self) -> f64 {
        let drops = self.outcome.dropped_by_access + self.report.dropped;
        (self.outcome.delay_total + self.report.delay_total) as f64 / drops as f64
    }

    fn touches(&self) -> u64 {
        self.report.stats.entries_inspected
    }
}

fn main() -> Result<(), BuildError> {
    let hour = LibraryHour::new();
    let mut rows = vec![Row::played(
        &hour,
        figures::LAZY_ONLY.name,
        Some(figures::LAZY_ONLY),
        Cleaning::OnAccessAlone,
    )?];
    for row in figures::SAMPLED {
        let sampling = Sampling::of_size(row.sample_size);
        let cleaning = Cleaning::Sample(sampling);
        rows.push(Row::played(&hour, row.name, Some(row), cleaning)?);
    }
    rows.push(Row::played(&hour, "sweep", None, Cleaning::Sweep)?);

    println!(
        "one hour of traffic: {} keys placed, {ACCESSES} accesses made, seed {SEED}",
        hour.keys.len()
    );
    println!("each cell: the seed's figure | ebbtide's; sampling draws anew in every run\n");
    print_memory(&rows);
    print_cost_and_delay(&rows);
    print_reaper(&rows);
    print_sums(&rows);
    Ok(())
}

/// A cell with the seed's figure and ours.
fn pair(seed: Option<String>, ours: String) -> String {
    format!("{:>9} | {ours:>9}", seed.unwrap_or_else(|| "-".into()))
}

fn print_line(cells: impl IntoIterator<Item = String>) {
    let line: String = cells
        .into_iter()
        .enumerate()
        .map(|(column, cell)| match column {
            0 => format!("{cell:<12}"),
            _ => format!("{cell:>23}"),
        })
        .collect();
    println!("{line}");
}

/// What a column shows of a seed's row and of ours.
type Column = (&'static str, fn(&LibraryRow) -> String, fn(&Row) -> String);

fn print_table(title: &str, rows: &[Row], columns: &[Column]) {
    println!("{title}");
    print_line(
        std::iter::once("cleaning".to_string())
            .chain(columns.iter().map(|(name, ..)| (*name).to_string())),
    );
    for row in rows {
        let cells = columns
            .iter()
            .map(|(_, seed, ours)| pair(row.seed.as_ref().map(seed), ours(row)));
        print_line(std::iter::once(row.name.to_string()).chain(cells));
    }
    println!();
}

fn print_memory(rows: &[Row]) {
    print_table(
        "what is held at the end",
        rows,
        &[
            (
                "entries held",
                |seed| seed.held.to_string(),
                |row| row.outcome.held.entries.to_string(),
            ),
            (
                "dead entries",
                |seed| seed.dead.to_string(),
                |row| row.outcome.dead.entries.to_string(),
            ),
            (
                "dead bytes",
                |seed| seed.dead_bytes.to_string(),
                |row| row.outcome.dead.bytes.to_string(),
            ),
            (
                "dead share",
                |seed| format!("{} %", seed.dead_share),
                |row| format!("{} %", to_fixed(row.outcome.dead_share(), 1)),
            ),
            (
                "peak dead bytes",
                |seed| seed.peak_dead_bytes.to_string(),
                |row| row.outcome.peak_dead_bytes.to_string(),
            ),
        ],
    );
}

fn print_cost_and_delay(rows: &[Row]) {
    print_table(
        "what cleaning cost, and how late accesses cleaned",
        rows,
        &[
            (
                "dropped by access",
                |seed| seed.dropped_by_access.to_string(),
                |row| row.outcome.dropped_by_access.to_string(),
            ),
            (
                "average delay",
                |seed| format!("{} s", seed.average_delay),
                |row| format!("{} s", to_fixed(row.outcome.average_delay(), 1)),
            ),
            (
                "worst delay",
                |seed| format!("{} s", seed.worst_delay),
                |row| format!("{} s", row.outcome.delay_worst),
            ),
            (
                "dropped by reaper",
                |seed| seed.dropped_by_sampling.to_string(),
                |row| row.report.dropped.to_string(),
            ),
            (
                "entries inspected",
                |seed| seed.sampled.to_string(),
                |row| row.touches().to_string(),
            ),
        ],
    );
}

fn print_reaper(rows: &[Row]) {
    print_table(
        "the reaper's work",
        rows,
        &[
            (
                "rounds",
                |seed| match seed.sample_size as u64 {
                    0 => "-".into(),
                    // A round looked at exactly as many as it was told.
                    size => (seed.sampled / size).to_string(),
                },
                |row| row.report.stats.sample_rounds.to_string(),
            ),
            (
                "touches per access",
                |seed| to_fixed(seed.sampled as f64 / ACCESSES as f64, 3),
                |row| to_fixed(row.touches() as f64 / ACCESSES as f64, 3),
            ),
            (
                "lane slots scanned",
                |_| "-".into(),
                |row| row.report.stats.slots_scanned.to_string(),
            ),
            (
                "reaper time",
                |_| "-".into(),
                |row| format!("{:.1} ms", row.report.time.as_secs_f64() * 1e3),
            ),
            (
                "delay of all drops",
                |_| "-".into(),
                |row| format!("{} s", to_fixed(row.average_delay_of_all(), 1)),
            ),
        ],
    );
}

fn print_sums(rows: &[Row]) {
    let [lazy, five, twenty, hundred, sweep] = rows else {
        unreachable!("five ways of cleaning are played");
    };
    let gained = |from: &Row, to: &Row| {
        let bytes = from.outcome.dead.bytes as f64 - to.outcome.dead.bytes as f64;
        let samples = to.touches() as f64 - from.touches() as f64;
        to_fixed(bytes / samples, 1)
    };
    let [to_twenty, to_hundred] = figures::BYTES_GAINED_PER_SAMPLE;
    println!("dead bytes gained per further sample");
    println!(
        "  from  5 to  20: {}",
        pair(Some(to_twenty.into()), gained(five, twenty))
    );
    println!(
        "  from 20 to 100: {}",
        pair(Some(to_hundred.into()), gained(twenty, hundred))
    );
    println!("bytes held at the end");
    for (row, seed) in [
        (lazy, Some(figures::LAZY_ONLY_BYTES)),
        (twenty, Some(figures::SAMPLE_20_BYTES)),
        (sweep, None),
    ] {
        let ours = row.outcome.held.bytes.to_string();
        let cell = pair(seed.map(|bytes| bytes.to_string()), ours);
        println!("  {:<14}{cell}", row.name);
    }
}
