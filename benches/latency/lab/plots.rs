//! Plots. SVG with text as text, so that no font library is needed.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Outcome;
use super::args::Sweep;
use super::compare::{Measured, median};
use super::record::QUANTILES;
use super::report::{label, time};
use super::scenario::Scenario;
use super::task::{Loop, Tick, grouped};

pub(crate) const SIZE: (u32, u32) = (960, 420);
const FONT: &str = "sans-serif";
/// Where plots and their heads begin.
const LEFT: i32 = 91;
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x3a, 0x40);
/// In the order of the contenders: the first is the library.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x1f, 0x8a, 0x8c),
    RGBColor(0xe0, 0x7a, 0x2f),
    RGBColor(0x5b, 0x5f, 0xc7),
    RGBColor(0x9a, 0xa0, 0xa6),
    RGBColor(0xc2, 0x3b, 0x6b),
    RGBColor(0x7a, 0x9a, 0x2b),
    RGBColor(0x2f, 0x6f, 0xb5),
    RGBColor(0xb0, 0x8d, 0x1a),
    RGBColor(0x8e, 0x4f, 0x9e),
    RGBColor(0x3d, 0x3d, 0x3d),
    RGBColor(0x6c, 0xc4, 0xa1),
    RGBColor(0xd6, 0x9c, 0x9c),
];

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line with its name.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// How an axis is laid out and labelled.
#[derive(Clone, Copy)]
struct Axis<'a> {
    title: &'a str,
    log: bool,
    show: fn(f64) -> String,
}

/// Draws what there are figures for; gives the names of the files.
pub(crate) fn draw(out: &Path, groups: &[Vec<Measured>]) -> Outcome<Vec<String>> {
    let mut drawn = Vec::new();
    let mut save = |name: String, height: u32, panels: &[Panel<'_>]| -> Outcome<()> {
        if panels
            .iter()
            .all(|panel| panel.series.iter().all(|line| line.points.is_empty()))
        {
            return Ok(());
        }
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
            root.fill(&WHITE)?;
            for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
                panel.draw(area)?;
            }
            root.present()?;
        }
        let path = out.join(&name);
        std::fs::write(&path, svg)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        drawn.push(name);
        Ok(())
    };
    save(
        "p99-budget.svg".to_owned(),
        SIZE.1,
        &[p99_against_budget(groups)],
    )?;
    save(
        "dead-budget.svg".to_owned(),
        SIZE.1,
        &[dead_against_budget(groups)],
    )?;
    for group in groups {
        let Some(first) = group.first() else {
            continue;
        };
        let case = first.task.case().replace(' ', "-").replace(',', "");
        let kind = first.task.kind.name();
        save(
            format!("percentiles-{case}-{kind}.svg"),
            SIZE.1,
            &[percentiles(group)],
        )?;
        save(
            format!("time-{case}-{kind}.svg"),
            SIZE.1 * 2,
            &over_time(group),
        )?;
    }
    Ok(drawn)
}

struct Panel<'a> {
    title: String,
    x: Axis<'a>,
    y: Axis<'a>,
    series: Vec<Series>,
}

const BUDGET: Axis<'static> = Axis {
    title: "the reaper's budget for a cycle",
    log: true,
    show: |millis| time(millis * 1e6),
};
const LATENCY: Axis<'static> = Axis {
    title: "latency",
    log: true,
    show: time,
};

fn over_budget(
    groups: &[Vec<Measured>],
    of: impl Fn(&Measured) -> f64,
) -> Vec<(String, Vec<(f64, f64)>)> {
    groups
        .iter()
        .filter_map(|group| {
            let first = group.first().filter(|one| one.task.kind == Loop::Open)?;
            let points: Vec<_> = group
                .iter()
                .filter(|one| one.point.sweep == Some(Sweep::Budget))
                .filter_map(|one| Some((one.point.settings.budget?.as_secs_f64() * 1e3, of(one))))
                .filter(|(_, value)| value.is_finite())
                .collect();
            (!points.is_empty()).then(|| (first.task.case(), points))
        })
        .collect()
}

fn p99_against_budget(groups: &[Vec<Measured>]) -> Panel<'static> {
    let mut series = Vec::new();
    for quantile in ["p99", "p99.9"] {
        let lines = over_budget(groups, |one| {
            median(&one.quantiles(one.task.compared(), "read", quantile))
        });
        series.extend(lines.into_iter().map(|(case, points)| Series {
            name: format!("{case}, {quantile}"),
            points,
        }));
    }
    Panel {
        title: "Reads while entries expire, open loop".to_owned(),
        x: BUDGET,
        y: LATENCY,
        series,
    }
}

fn dead_against_budget(groups: &[Vec<Measured>]) -> Panel<'static> {
    let dead = |one: &Measured| median(&one.values(|answer| answer.figure("dead,mean,%")));
    let lines = over_budget(groups, dead);
    Panel {
        title: "Dead share of what is held, mean".to_owned(),
        x: BUDGET,
        y: Axis {
            title: "dead, %",
            log: false,
            show: |share| format!("{share:.1}"),
        },
        series: lines
            .into_iter()
            .map(|(name, points)| Series { name, points })
            .collect(),
    }
}

/// The contenders side by side; for a wave, while it breaks.
fn percentiles(group: &[Measured]) -> Panel<'static> {
    let mut series: Vec<Series> = Vec::new();
    let mut add = |name: String, one: &Measured, op: &str| {
        let values = QUANTILES.iter().map(|(name, _)| *name).chain(["max"]);
        let values =
            values.map(|quantile| median(&one.quantiles(one.task.compared(), op, quantile)));
        let points = (0..).map(f64::from).zip(values);
        let points = points
            .filter(|(_, value)| value.is_finite())
            .map(|(x, y)| (x, y.max(1.0)));
        series.push(Series {
            name,
            points: points.collect(),
        });
    };
    for one in group.iter().filter(|one| one.point.sweep.is_none()) {
        add(label(one), one, "read");
    }
    if let Some(one) = group.first() {
        add("control".to_owned(), one, "control");
    }
    let (case, kind) = group.first().map_or_else(Default::default, |one| {
        (one.task.case(), one.task.kind.name())
    });
    Panel {
        title: format!("Reads, {case}, {kind} loop"),
        x: Axis {
            title: "",
            log: false,
            show: |place| {
                let at = place.round();
                let names = QUANTILES.iter().map(|(name, _)| *name).chain(["max"]);
                let name = names.zip(0..).find(|(_, i)| f64::from(*i) == at);
                match name {
                    Some((name, _)) if (place - at).abs() < 1e-6 => name.to_owned(),
                    _ => String::new(),
                }
            },
        },
        y: LATENCY,
        series,
    }
}

/// Latency, held entries and resident memory over time, in the first round.
fn over_time(group: &[Measured]) -> [Panel<'static>; 3] {
    let lines = |value: fn(&Tick) -> f64| -> Vec<Series> {
        group
            .iter()
            .filter(|one| one.point.sweep.is_none())
            .map(|one| Series {
                name: label(one),
                points: one
                    .answers
                    .first()
                    .map_or(&[][..], |answer| &answer.ticks)
                    .iter()
                    .map(|tick| (tick.at, value(tick)))
                    .filter(|(_, value)| value.is_finite())
                    .collect(),
            })
            .collect()
    };
    let wave = group
        .first()
        .is_some_and(|one| one.task.scenario == Scenario::Wave);
    let x = Axis {
        title: if wave {
            "seconds from the deadline"
        } else {
            "seconds"
        },
        log: false,
        show: |seconds| format!("{}", (seconds * 100.0).round() / 100.0),
    };
    let panel = |title: &str, y, series| Panel {
        title: title.to_owned(),
        x,
        y,
        series,
    };
    let waited = |tick: &Tick| {
        if tick.requests == 0 {
            f64::NAN
        } else {
            (tick.max as f64).max(1.0)
        }
    };
    [
        panel("Longest latency of every moment", LATENCY, lines(waited)),
        panel(
            "Values in memory",
            Axis {
                title: "values",
                log: false,
                show: |count| grouped(count.max(0.0) as u64),
            },
            lines(|tick| tick.held as f64),
        ),
        panel(
            "Resident memory above that of the empty process",
            Axis {
                title: "MB",
                log: false,
                show: |megabytes| format!("{}", (megabytes * 10.0).round() / 10.0),
            },
            lines(|tick| tick.resident / 1e6),
        ),
    ]
}

impl Panel<'_> {
    fn draw(&self, area: &Area<'_>) -> Outcome<()> {
        let shown: Vec<(&Series, RGBColor)> = self
            .series
            .iter()
            .enumerate()
            .map(|(place, line)| (line, COLOURS[place % COLOURS.len()]))
            .filter(|(line, _)| !line.points.is_empty())
            .collect();
        let names: Vec<_> = shown
            .iter()
            .map(|(line, colour)| (line.name.as_str(), *colour))
            .collect();
        let area = headed(area, LEFT, &self.title, &names)?;
        let points = || shown.iter().flat_map(|(line, _)| &line.points);
        let (left, right) = self.x.range(points().map(|point| point.0), false);
        let (low, high) = self.y.range(points().map(|point| point.1), true);
        let mut builder = ChartBuilder::on(&area);
        builder
            .margin(10)
            .margin_right(34)
            .x_label_area_size(40)
            .y_label_area_size(80);
        // Four kinds of chart, as an axis is another type when its scale is.
        macro_rules! chart {
            ($x:expr, $y:expr) => {{
                let mut chart = builder.build_cartesian_2d($x, $y)?;
                chart
                    .configure_mesh()
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(INK.mix(0.12))
                    .axis_style(INK.mix(0.6))
                    .label_style(text(13))
                    .x_labels(12)
                    .x_label_formatter(&|x| (self.x.show)(*x))
                    .x_desc(self.x.title)
                    .y_desc(self.y.title)
                    .y_label_formatter(&|y| (self.y.show)(*y))
                    .draw()?;
                for (line, colour) in &shown {
                    let points = line.points.iter().copied();
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                    // A line of many points needs no marks.
                    if line.points.len() <= 12 {
                        let marks = line.points.iter();
                        chart.draw_series(marks.map(|&at| Circle::new(at, 3, colour.filled())))?;
                    }
                }
            }};
        }
        match (self.x.log, self.y.log) {
            (false, false) => chart!(left..right, low..high),
            (false, true) => chart!(left..right, (low..high).log_scale()),
            (true, false) => chart!((left..right).log_scale(), low..high),
            (true, true) => chart!((left..right).log_scale(), (low..high).log_scale()),
        }
        Ok(())
    }
}

impl Axis<'_> {
    /// From where to where it goes: a range that is neither empty nor upside down.
    fn range(&self, values: impl Iterator<Item = f64>, from_zero: bool) -> (f64, f64) {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        match (self.log, from_zero) {
            (true, true) => {
                let low = 10f64.powf(low.max(1.0).log10().floor());
                (low, 10f64.powf(high.max(low).log10().floor() + 1.0))
            }
            // A hair below the least, so that its label is shown.
            (true, false) => (low * 0.99, high.max(low * 1.01)),
            (false, true) => (low.min(0.0), high.max(1e-6) * 1.08),
            (false, false) => (low, high.max(low + 1e-3)),
        }
    }
}

/// Writes a title and the lines' names in their colours, from `left` on; gives the area below them.
pub(crate) fn headed<'a>(
    area: &Area<'a>,
    left: i32,
    title: &str,
    names: &[(&str, RGBColor)],
) -> Outcome<Area<'a>> {
    /// No font library is at hand to measure a text: about right for most.
    const PIXELS_PER_LETTER: usize = 7;
    const ROW: i32 = 16;
    let (mut x, mut y) = (left, 28);
    let mut places = Vec::new();
    for (name, colour) in names {
        let width = 40 + (name.chars().count() * PIXELS_PER_LETTER) as i32;
        if x + width > SIZE.0 as i32 && x > left {
            (x, y) = (left, y + ROW);
        }
        places.push(((x, y), *name, *colour));
        x += width;
    }
    let (head, rest) = area.split_vertically(y + ROW);
    head.draw(&Text::new(title.to_owned(), (left, 6), text(16)))?;
    for ((x, y), name, colour) in places {
        head.draw(&Rectangle::new(
            [(x, y + 2), (x + 14, y + 10)],
            colour.filled(),
        ))?;
        head.draw(&Text::new(name.to_owned(), (x + 20, y), text(12)))?;
    }
    Ok(rest)
}

pub(crate) fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}
