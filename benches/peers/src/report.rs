//! Medians with their spread, tables, and the CSV file behind them.

use std::io;

use comfy_table::{CellAlignment, Table, presets};

use crate::machine;

/// The contender that others are compared with, unless they name another.
pub(crate) const EBBTIDE: &str = "ebbtide";

/// Median, least and greatest of a contender's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` when there is no value, or one of them is no number.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        })
    }

    pub(crate) fn show(&self) -> String {
        format!(
            "{} ({}–{})",
            number(self.median),
            number(self.min),
            number(self.max)
        )
    }
}

/// One figure of one contender in one setting, with every round's value.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The setting: rows with the same setting are compared with each other.
    pub(crate) case: String,
    pub(crate) contender: String,
    /// Which contender of the same setting this one is compared with.
    pub(crate) base: &'static str,
    /// What was measured, with its unit: `M op/s`, `bytes/entry`.
    pub(crate) metric: &'static str,
    pub(crate) rounds: Vec<f64>,
}

impl Figure {
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.rounds)
    }
}

/// base / figure, round by round, where both have a value.
pub(crate) fn ratios(base: &Figure, figure: &Figure) -> Vec<f64> {
    base.rounds
        .iter()
        .zip(&figure.rounds)
        .map(|(base, other)| base / other)
        .collect()
}

/// Collects figures; the CSV file has all of them, one a row.
#[derive(Debug, Default)]
pub(crate) struct Report {
    bench: &'static str,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(bench: &'static str) -> Self {
        println!("## {bench}\n");
        for (name, value) in machine::description() {
            println!("{name:>7}: {value}");
        }
        println!();
        Self {
            bench,
            figures: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The figure that `figure` is compared with: same setting, same metric.
    pub(crate) fn base_of(&self, figure: &Figure) -> Option<&Figure> {
        self.figures.iter().find(|base| {
            base.contender == figure.base
                && base.case == figure.case
                && base.metric == figure.metric
        })
    }

    /// The spread of base / figure; none for the base itself or without a base.
    pub(crate) fn ratio(&self, figure: &Figure) -> Option<Spread> {
        if figure.contender == figure.base {
            return None;
        }
        Spread::of(&ratios(self.base_of(figure)?, figure))
    }

    /// One setting as a table: a row a contender, a column a metric, and the
    /// ratio ebbtide/peer of `compared`.
    pub(crate) fn print_case(&self, case: &str, metrics: &[&str], compared: &str) {
        let mut table = table();
        let mut head = vec!["contender".to_owned()];
        head.extend(metrics.iter().map(|metric| (*metric).to_owned()));
        head.push(format!("ebbtide/peer in {compared}"));
        table.set_header(head);
        let rows = || self.figures.iter().filter(|figure| figure.case == case);
        let mut seen: Vec<&str> = Vec::new();
        for figure in rows() {
            if seen.contains(&figure.contender.as_str()) {
                continue;
            }
            seen.push(&figure.contender);
            let find = |metric: &str| {
                rows().find(|other| other.contender == figure.contender && other.metric == metric)
            };
            let mut row = vec![figure.contender.clone()];
            row.extend(metrics.iter().map(|metric| {
                find(metric)
                    .and_then(Figure::spread)
                    .map_or_else(|| "–".to_owned(), |spread| spread.show())
            }));
            row.push(
                find(compared)
                    .and_then(|figure| self.ratio(figure))
                    .map_or_else(String::new, |ratio| ratio.show()),
            );
            table.add_row(row);
        }
        align(&mut table);
        println!("{case}\n{table}\n");
    }

    /// Writes every figure with every round.
    pub(crate) fn write_csv(&self, out: impl io::Write) -> io::Result<()> {
        let mut out = csv::Writer::from_writer(out);
        let machine: Vec<String> = machine::description()
            .into_iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        out.write_record([
            "bench",
            "setting",
            "contender",
            "metric",
            "median",
            "min",
            "max",
            "compared_with",
            "ratio_median",
            "ratio_min",
            "ratio_max",
            "rounds",
            "machine",
        ])?;
        for figure in &self.figures {
            let rounds: Vec<String> = figure.rounds.iter().map(f64::to_string).collect();
            let mut row = vec![
                self.bench.to_owned(),
                figure.case.clone(),
                figure.contender.clone(),
                figure.metric.to_owned(),
            ];
            row.extend(columns(figure.spread()));
            row.push(figure.base.to_owned());
            row.extend(columns(self.ratio(figure)));
            row.push(rounds.join(" "));
            row.push(machine.join("; "));
            out.write_record(row)?;
        }
        out.flush()
    }
}

fn columns(spread: Option<Spread>) -> [String; 3] {
    spread.map_or_else(Default::default, |spread| {
        [spread.median, spread.min, spread.max].map(|value| value.to_string())
    })
}

/// An empty table in the style of all of them.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table
}

/// Figures to the right, the first column to the left.
pub(crate) fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Three significant digits, without an exponent.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size >= 100.0 {
        grouped(value.round())
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else if size >= 0.0001 {
        format!("{value:.4}")
    } else {
        format!("{value:.1e}")
    }
}

/// A whole number with a comma every three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 {
        out.insert(0, '-');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(contender: &str, rounds: &[f64]) -> Figure {
        Figure {
            case: "one".to_owned(),
            contender: contender.to_owned(),
            base: EBBTIDE,
            metric: "M op/s",
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn a_spread_is_median_least_and_greatest() {
        let spread = Spread::of(&[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 2.5,
                min: 1.0,
                max: 10.0
            }
        );
        assert_eq!(Spread::of(&[5.0, 4.0, 9.0]).unwrap().median, 5.0);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let mut report = Report::new("test");
        report.add(figure(EBBTIDE, &[10.0, 20.0, 30.0]));
        report.add(figure("peer", &[10.0, 10.0, 10.0]));
        let ratio = report.ratio(&report.figures()[1]).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 1.0, 3.0));
        assert_eq!(report.ratio(&report.figures()[0]), None);
    }

    #[test]
    fn numbers_have_about_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0421, "0.0421"),
            (1.239, "1.24"),
            (48.26, "48.3"),
            (1_234_567.0, "1,234,567"),
            (100.0, "100"),
            (-2_500.0, "-2,500"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn the_csv_file_has_every_figure() {
        let mut report = Report::new("test");
        report.add(figure(EBBTIDE, &[10.0, 20.0]));
        report.add(figure("peer", &[5.0, 5.0]));
        let mut file = Vec::new();
        report.write_csv(&mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[2].starts_with("test,one,peer,M op/s,5,5,5,ebbtide,3,2,4,5 5,"));
    }
}
