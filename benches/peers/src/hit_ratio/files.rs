//! What `--out` gets: all cells and the means as CSV, and a plot for each trace as SVG, with text
//! as text, so that no font library is needed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use super::contenders::is_ours;
use super::replay::Tally;
use super::tables::{group_means, metrics, names, whole_mean};
use super::{GROUPS, Measured, Replay};
use crate::lab::Outcome;
use crate::lab::plots::{Area, INK, SIZE, headed, text};
use crate::lab::task::grouped;

const CELLS: &str = "cells.csv";
const MEANS: &str = "means.csv";

/// Where the files go.
pub(super) struct Folder {
    path: PathBuf,
    /// Opened first: a long run must not end in a folder that cannot be written.
    cells: csv::Writer<File>,
}

impl Folder {
    /// Makes the folder if need be, and begins its first file.
    pub(super) fn open(path: &Path) -> Outcome<Self> {
        fs::create_dir_all(path)
            .map_err(|error| format!("cannot make the folder {}: {error}", path.display()))?;
        Ok(Self {
            cells: writer(&path.join(CELLS))?,
            path: path.to_owned(),
        })
    }

    /// One plot: hit ratio against capacity, a line a contender.
    pub(super) fn plot(&self, trace: &str, replay: Replay, measured: &[Measured]) -> Outcome<()> {
        let path = self.path.join(format!("{}-{trace}.svg", replay.name()));
        let svg = draw(trace, replay, measured)?;
        fs::write(&path, svg).map_err(|error| unwritable(&path, &error))?;
        Ok(())
    }

    /// Writes the CSV files and says where all files are.
    pub(super) fn finish(mut self, all: &[Measured]) -> Outcome<()> {
        self.cells.write_record([
            "replay",
            "trace",
            "capacity",
            "groups",
            "contender",
            "round",
            "requests",
            "hits",
            "hit_ratio_percent",
            "bytes",
            "hit_bytes",
            "byte_hit_ratio_percent",
        ])?;
        for one in all {
            let groups = one.cell.groups(&one.trace).map(|group| GROUPS[group].name);
            let groups = groups.collect::<Vec<_>>().join("; ");
            for (round, tally) in one.rounds.iter().enumerate() {
                // Bytes that nobody looked at are not told.
                let bytes = |value: String| match one.replay.weighted() {
                    true => value,
                    false => String::new(),
                };
                self.cells.write_record([
                    one.replay.name(),
                    &one.trace,
                    &one.cell.capacity.to_string(),
                    &groups,
                    one.contender,
                    &round.to_string(),
                    &tally.requests.to_string(),
                    &tally.hits.to_string(),
                    &format!("{:.4}", tally.hit_ratio()),
                    &bytes(tally.bytes.to_string()),
                    &bytes(tally.hit_bytes.to_string()),
                    &bytes(format!("{:.4}", tally.byte_hit_ratio())),
                ])?;
            }
        }
        self.cells.flush()?;
        let mut means = writer(&self.path.join(MEANS))?;
        means.write_record([
            "group",
            "contender",
            "cells",
            "of",
            "hit_ratio_percent",
            "byte_hit_ratio_percent",
        ])?;
        for name in names(all.iter()) {
            for (group, mean) in GROUPS.iter().zip(group_means(all, name)) {
                if let Some((mean, count)) = mean {
                    means.write_record([
                        group.name,
                        name,
                        &count.to_string(),
                        &group.cells.to_string(),
                        &format!("{mean:.4}"),
                        "",
                    ])?;
                }
            }
            for replay in [Replay::Weights, Replay::Lifetimes] {
                let whole = |of| whole_mean(all, replay, name, of);
                if let Some((mean, count)) = whole(Tally::hit_ratio) {
                    let bytes = whole(Tally::byte_hit_ratio).filter(|_| replay.weighted());
                    means.write_record([
                        format!("all of {}", replay.name()).as_str(),
                        name,
                        &count.to_string(),
                        &count.to_string(),
                        &format!("{mean:.4}"),
                        &bytes.map_or_else(String::new, |(bytes, _)| format!("{bytes:.4}")),
                    ])?;
                }
            }
        }
        means.flush()?;
        println!(
            "{CELLS}, {MEANS} and a plot for each trace are in {}.\n",
            self.path.display()
        );
        Ok(())
    }
}

fn writer(path: &Path) -> Outcome<csv::Writer<File>> {
    let file = File::create(path).map_err(|error| unwritable(path, &error))?;
    Ok(csv::Writer::from_writer(file))
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

const HEIGHT: u32 = 460;
/// Where plots and their heads begin.
const LEFT: i32 = 71;
/// In the order of the contenders.
const COLOURS: [RGBColor; 14] = [
    RGBColor(0x3d, 0x3d, 0x3d),
    RGBColor(0x1f, 0x8a, 0x8c),
    RGBColor(0xe0, 0x7a, 0x2f),
    RGBColor(0xd6, 0x9c, 0x9c),
    RGBColor(0xb0, 0x8d, 0x1a),
    RGBColor(0x5b, 0x5f, 0xc7),
    RGBColor(0xc2, 0x3b, 0x6b),
    RGBColor(0x7a, 0x9a, 0x2b),
    RGBColor(0x2f, 0x6f, 0xb5),
    RGBColor(0x9a, 0xa0, 0xa6),
    RGBColor(0x8e, 0x4f, 0x9e),
    RGBColor(0x6c, 0xc4, 0xa1),
    RGBColor(0x8c, 0x5a, 0x3c),
    RGBColor(0xe0, 0xc0, 0x50),
];

/// One contender's points, by capacity.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

fn draw(trace: &str, replay: Replay, measured: &[Measured]) -> Outcome<String> {
    let metrics = metrics(replay);
    let names = names(measured.iter());
    let mut svg = String::new();
    {
        let height = HEIGHT * metrics.len() as u32;
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, (metric, of)) in root.split_evenly((metrics.len(), 1)).iter().zip(metrics) {
            let lines: Vec<Line> = names
                .iter()
                .zip(COLOURS.iter().cycle())
                .map(|(&name, &colour)| Line {
                    name,
                    colour,
                    points: measured
                        .iter()
                        .filter(|one| one.contender == name)
                        .map(|one| (one.cell.capacity as f64, one.mean(*of)))
                        .collect(),
                })
                .collect();
            panel(
                area,
                &format!("{trace}, {}", replay.name()),
                replay,
                metric,
                &lines,
            )?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn panel(
    area: &Area<'_>,
    title: &str,
    replay: Replay,
    metric: &str,
    lines: &[Line],
) -> Outcome<()> {
    let names: Vec<_> = lines.iter().map(|line| (line.name, line.colour)).collect();
    let area = headed(area, LEFT, title, &names)?;
    let points = || lines.iter().flat_map(|line| &line.points);
    let (mut low, mut high) = (f64::INFINITY, 1.0_f64);
    for &(capacity, _) in points() {
        (low, high) = (low.min(capacity), high.max(capacity));
    }
    let (mut bottom, mut top) = (100.0_f64, 1.0_f64);
    for &(_, percent) in points() {
        (bottom, top) = (bottom.min(percent), top.max(percent));
    }
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .margin_right(34)
        .x_label_area_size(40)
        .y_label_area_size(60)
        // A hair more than the capacities, so that both ends are shown.
        .build_cartesian_2d(
            (low * 0.95..high * 1.05).log_scale(),
            (bottom - 5.0).max(0.0)..(top + 3.0).min(100.0),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.6))
        .label_style(text(13))
        .x_desc(match replay.weighted() {
            true => "capacity in bytes",
            false => "capacity in entries",
        })
        .x_label_formatter(&|capacity| grouped(capacity.round() as u64))
        .y_desc(metric)
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .draw()?;
    for line in lines {
        chart.draw_series(LineSeries::new(
            line.points.iter().copied(),
            line.colour
                .stroke_width(if is_ours(line.name) { 4 } else { 2 }),
        ))?;
        let marks = line.points.iter();
        chart.draw_series(marks.map(|&at| Circle::new(at, 3, line.colour.filled())))?;
    }
    Ok(())
}
