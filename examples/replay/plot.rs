//! The plot: held and live entries over time, and the latency distribution. SVG with text as text,
//! so that no font library is needed.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use plotters::prelude::*;

use crate::args::Plan;
use crate::monitor::Sample;
use crate::report::Results;
use crate::units::{bytes, grouped, nanos, time};

const SIZE: (u32, u32) = (960, 860);
/// More points than pixels show nothing more.
const MOST_POINTS: usize = 900;
/// The latency axis begins here: no clock sees less.
const LEAST_NANOS: f64 = 10.0;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x33, 0x3a, 0x40);
const LIVE: RGBColor = RGBColor(0x1f, 0x8a, 0x8c);
const SHADE: RGBColor = RGBColor(0xbf, 0xe0, 0xe0);
const DEAD: RGBColor = RGBColor(0xe0, 0x7a, 0x2f);
const INSERT: RGBColor = RGBColor(0x5b, 0x5f, 0xc7);
const CONTROL: RGBColor = RGBColor(0x9a, 0xa0, 0xa6);

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Whether the file can be written, without changing what is in it.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    let existed = file.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .map(drop)?;
    if !existed {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// Draws both charts into the file.
pub(crate) fn draw(file: &Path, plan: &Plan, results: &Results) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (above, below) = root.split_vertically(430);
        entries(&above, plan, &results.watched.samples, results)?;
        latencies(&below, plan, results)?;
        root.present()?;
    }
    std::fs::write(file, svg)?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn entries(area: &Area<'_>, plan: &Plan, samples: &[Sample], results: &Results) -> Drawn {
    let points = thinned(samples);
    let end = points.last().map_or(1.0, |p| p.at.as_secs_f64()).max(1e-3);
    let most = points
        .iter()
        .map(|p| p.held.count)
        .max()
        .unwrap_or(0)
        .max(1) as f64;
    let dead = results.watched.peak.map_or(String::new(), |peak| {
        format!(
            ", dead at most {} at {}",
            bytes(peak.dead.bytes),
            time(peak.at)
        )
    });
    let title = format!("Values in memory (reaper: {}{dead})", plan.reaper_words);
    let area = headed(
        area,
        &title,
        &[("dead, still held", DEAD), ("alive", SHADE)],
    )?;
    let mut chart = ChartBuilder::on(&area)
        .margin(14)
        .margin_right(34)
        .x_label_area_size(40)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.6))
        .label_style(text(13))
        .x_label_formatter(&|seconds| format!("{}", (seconds * 100.0).round() / 100.0))
        .x_desc("seconds into the run")
        .y_desc("values in memory")
        .y_label_formatter(&|n| grouped(*n as u64))
        .draw()?;
    // The live area covers all but the dead of the held one.
    let held = |p: &Sample| p.held.count;
    let live = |p: &Sample| p.held.count.saturating_sub(p.dead.count);
    let mut draw = |count: fn(&Sample) -> u64, shade: RGBColor, border: RGBColor| {
        let points = points.iter().map(|p| (p.at.as_secs_f64(), count(p) as f64));
        let series = AreaSeries::new(points, 0.0, shade).border_style(border.stroke_width(1));
        chart.draw_series(series).map(drop)
    };
    draw(held, DEAD, DEAD)?;
    draw(live, SHADE, LIVE)?;
    Ok(())
}

/// Writes a title and a row of colours with their names; gives the area below them.
fn headed<'a>(
    area: &Area<'a>,
    title: &str,
    names: &[(&str, RGBColor)],
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    /// No font library is at hand to measure a text: about right for most.
    const PIXELS_PER_LETTER: usize = 7;
    let (head, rest) = area.split_vertically(54);
    let mut x = 91;
    head.draw(&Text::new(title.to_owned(), (x, 10), text(17)))?;
    for (name, colour) in names {
        head.draw(&Rectangle::new([(x, 39), (x + 14, 47)], colour.filled()))?;
        head.draw(&Text::new((*name).to_owned(), (x + 20, 36), text(13)))?;
        x += 44 + (name.len() * PIXELS_PER_LETTER) as i32;
    }
    Ok(rest)
}

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// At most [`MOST_POINTS`] of the samples; of each group the one with the most dead.
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let group = samples.len().div_ceil(MOST_POINTS).max(1);
    let worst = |group: &[Sample]| group.iter().max_by_key(|p| p.dead.count).copied();
    samples.chunks(group).filter_map(worst).collect()
}

fn latencies(area: &Area<'_>, plan: &Plan, results: &Results) -> Drawn {
    let outcome = &results.outcome;
    let mut series = vec![
        ("no call at all", CONTROL, &outcome.control),
        ("read", LIVE, &outcome.reads),
        ("insert", INSERT, &outcome.inserts),
    ];
    if plan.passes.is_none() {
        series.push(("behind schedule", DEAD, &outcome.behind));
    }
    series.retain(|(_, _, histogram)| !histogram.is_empty());
    let curves: Vec<_> = series
        .iter()
        .map(|(_, _, histogram)| curve(histogram))
        .collect();
    let points = || curves.iter().flatten();
    let right = points().map(|p| p.0).fold(1.0, f64::max);
    let most = points().map(|p| p.1).fold(1_000.0, f64::max);
    let names: Vec<_> = series
        .iter()
        .map(|(name, colour, _)| (*name, *colour))
        .collect();
    let area = headed(area, "Latency by percentile", &names)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(14)
        .margin_right(34)
        .x_label_area_size(40)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..right, (LEAST_NANOS..power_above(most)).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.6))
        .label_style(text(13))
        .x_labels(right as usize + 1)
        .x_label_formatter(&|nines| percentile(*nines))
        .x_desc("percentile")
        .y_desc("time")
        .y_label_formatter(&|n| round_time(*n))
        .draw()?;
    for ((_, colour, _), curve) in series.iter().zip(curves) {
        chart.draw_series(LineSeries::new(curve, colour.stroke_width(2)))?;
    }
    Ok(())
}

/// Points (number of nines of the percentile, nanoseconds): 0 is the least, 1 p90, 2 p99. It ends
/// with the slowest call of all.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let end = (histogram.len() as f64).log10();
    let steps = (end * 40.0).ceil() as usize;
    (0..=steps)
        .map(|step| {
            let nines = step as f64 / 40.0;
            let value = match nines < end {
                true => histogram.value_at_quantile(1.0 - 10_f64.powf(-nines)),
                false => histogram.max(),
            };
            (nines.min(end), (value as f64).max(LEAST_NANOS))
        })
        .collect()
}

fn percentile(nines: f64) -> String {
    match nines.round() as usize {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        n => format!("99.{} %", "9".repeat(n - 2)),
    }
}

fn power_above(value: f64) -> f64 {
    10_f64.powf(value.log10().ceil())
}

/// A power of ten of nanoseconds without needless digits: `100 ns`, `1 ms`.
fn round_time(n: f64) -> String {
    let text = nanos(Duration::from_nanos(n.round() as u64).as_nanos() as u64);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Tally;

    #[test]
    fn a_curve_runs_from_the_least_to_the_slowest_call() {
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        for value in 101..=1_100 {
            histogram.record(value).unwrap();
        }
        let points = curve(&histogram);
        assert!(points.is_sorted_by_key(|p| p.0) && points.is_sorted_by_key(|p| p.1));
        assert_eq!(points[0], (0.0, 101.0));
        assert_eq!(*points.last().unwrap(), (3.0, 1_100.0));
        assert!(points.contains(&(1.0, 1_000.0)) && points.contains(&(2.0, 1_090.0)));
    }

    #[test]
    fn axes_are_labelled_for_people() {
        assert_eq!(percentile(4.0), "99.99 %");
        assert_eq!(round_time(100.0), "100 ns");
        assert_eq!(round_time(1e3), "1 µs");
        assert_eq!(round_time(1e7), "10 ms");
        assert_eq!((power_above(999.0), power_above(1_001.0)), (1e3, 1e4));
    }

    #[test]
    fn thinning_keeps_the_worst_of_each_group() {
        let sample = |dead| Sample {
            at: Duration::from_secs(dead),
            held: Tally::default(),
            dead: Tally {
                count: dead,
                bytes: 0,
            },
        };
        let samples: Vec<Sample> = (0..2_000).map(sample).collect();
        let few = thinned(&samples);
        assert!(few.len() <= MOST_POINTS);
        assert_eq!(few.last().unwrap().dead.count, 1_999);
        assert_eq!(thinned(&samples[..3]).len(), 3);
        assert!(thinned(&[]).is_empty());
    }
}
