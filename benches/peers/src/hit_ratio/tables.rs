//! The tables: a trace's cells, and the means of the groups.

use super::replay::Tally;
use super::traces::Trace;
use super::{GROUPS, Group, Measured, Replay};
use crate::lab::task::grouped;
use crate::report::{EBBTIDE, align, table};

/// Cells within so many points of the best of a capacity are marked.
const NEAR: f64 = 0.1;
/// From this capacity on the farthest cell behind the best peer is shown.
const LARGE: u64 = 1_000;

/// What is shown of a cell: its name, and percent.
type Metric = (&'static str, fn(&Tally) -> f64);
const HITS: Metric = ("hit ratio, %", Tally::hit_ratio);
const BYTES: Metric = ("byte hit ratio, %", Tally::byte_hit_ratio);

pub(super) fn metrics(replay: Replay) -> &'static [Metric] {
    match replay {
        Replay::Weights => &[HITS, BYTES],
        Replay::Unit | Replay::Lifetimes => &[HITS],
    }
}

/// The contenders in the order of their first cell.
pub(super) fn names<'a>(measured: impl Iterator<Item = &'a Measured>) -> Vec<&'static str> {
    let mut names = Vec::new();
    for one in measured {
        if !names.contains(&one.contender) {
            names.push(one.contender);
        }
    }
    names
}

/// One trace: a row a contender, a column a capacity.
pub(super) fn print_trace(trace: &Trace, replay: Replay, measured: &[Measured]) {
    let mut capacities: Vec<u64> = measured.iter().map(|one| one.cell.capacity).collect();
    capacities.dedup();
    let unit = if replay.weighted() {
        "bytes"
    } else {
        "entries"
    };
    for (metric, of) in metrics(replay) {
        let mut table = table();
        let mut head = vec!["contender".to_owned()];
        head.extend(capacities.iter().map(|&n| format!("{} {unit}", grouped(n))));
        table.set_header(head);
        let best: Vec<f64> = capacities
            .iter()
            .map(|&capacity| {
                let peers = measured
                    .iter()
                    .filter(|one| one.cell.capacity == capacity && !one.reference);
                peers.map(|one| one.mean(*of)).fold(0.0, f64::max)
            })
            .collect();
        for name in names(measured.iter()) {
            let mut row = vec![name.to_owned()];
            for (&capacity, best) in capacities.iter().zip(&best) {
                let cell = measured
                    .iter()
                    .find(|one| one.contender == name && one.cell.capacity == capacity);
                row.push(cell.map_or_else(
                    || "–".to_owned(),
                    |one| {
                        let value = one.mean(*of);
                        let near = !one.reference && value > best - NEAR;
                        format!("{value:.2}{}", if near { "*" } else { " " })
                    },
                ));
            }
            table.add_row(row);
        }
        align(&mut table);
        println!(
            "{}: {}, {} requests for {} keys, {metric} (* the best or within {NEAR} of it)\n{table}\n",
            replay.name(),
            trace.name,
            grouped(trace.keys.len() as u64),
            grouped(u64::from(trace.distinct)),
        );
    }
    let behind = measured.iter().flat_map(|one| &one.rounds);
    let behind = behind.map(|tally| tally.behind).max().unwrap_or_default();
    if !behind.is_zero() {
        println!("Requests in real time came up to {behind:.1?} late.\n");
    }
}

/// The mean of a contender over the cells that `within` picks, and their number.
fn mean<'a>(
    cells: impl Iterator<Item = &'a Measured>,
    contender: &str,
    of: fn(&Tally) -> f64,
) -> Option<(f64, usize)> {
    let values: Vec<f64> = cells
        .filter(|one| one.contender == contender)
        .map(|one| one.mean(of))
        .collect();
    let count = values.len();
    (count > 0).then(|| (values.iter().sum::<f64>() / count as f64, count))
}

/// Means of a contender over all its cells in a replay, and their number.
pub(super) fn whole_mean(
    all: &[Measured],
    replay: Replay,
    contender: &str,
    of: fn(&Tally) -> f64,
) -> Option<(f64, usize)> {
    mean(all.iter().filter(|one| one.replay == replay), contender, of)
}

fn in_group(group: usize) -> impl Fn(&&Measured) -> bool {
    move |one| one.replay == Replay::Unit && one.cell.groups(&one.trace).any(|other| other == group)
}

/// Means of a contender in the unit replay, one for each group that it has cells in.
pub(super) fn group_means(all: &[Measured], contender: &str) -> [Option<(f64, usize)>; 4] {
    std::array::from_fn(|group| {
        let cells = all.iter().filter(in_group(group));
        mean(cells, contender, Tally::hit_ratio)
    })
}

pub(super) fn print_means(all: &[Measured]) {
    let of = |replay| {
        all.iter()
            .filter(move |one: &&Measured| one.replay == replay)
    };
    let unit: Vec<&'static str> = names(of(Replay::Unit));
    if !unit.is_empty() {
        print_group_means(all, &unit);
    }
    for replay in [Replay::Weights, Replay::Lifetimes] {
        let names = names(of(replay));
        if names.is_empty() {
            continue;
        }
        let mut table = table();
        let mut head = vec!["contender".to_owned(), "cells".to_owned()];
        head.extend(metrics(replay).iter().map(|(name, _)| (*name).to_owned()));
        table.set_header(head);
        for name in names {
            let mut row = vec![name.to_owned()];
            for (place, (_, metric)) in metrics(replay).iter().enumerate() {
                let Some((value, count)) = whole_mean(all, replay, name, *metric) else {
                    continue;
                };
                if place == 0 {
                    row.push(count.to_string());
                }
                row.push(format!("{value:.2}"));
            }
            table.add_row(row);
        }
        align(&mut table);
        println!("{}: means of all cells\n{table}\n", replay.name());
    }
}

/// How the head of the means names a group of which `count` cells were measured.
fn head(group: &Group, count: usize) -> String {
    match count == group.cells {
        true => format!("{} ({count})", group.name),
        false => format!("{} ({count} of {})", group.name, group.cells),
    }
}

fn print_group_means(all: &[Measured], names: &[&'static str]) {
    let counts: [usize; 4] = std::array::from_fn(|group| {
        let counts = names.iter().map(|name| group_means(all, name)[group]);
        counts.flatten().map(|(_, count)| count).max().unwrap_or(0)
    });
    if counts == [0; 4] {
        println!("No cell of these is in the means of the known traces.\n");
        return;
    }
    let mut rows = table();
    let heads = GROUPS.iter().zip(counts);
    let heads = heads.map(|(group, count)| head(group, count));
    rows.set_header(std::iter::once("contender".to_owned()).chain(heads));
    for name in names {
        let mut row = vec![(*name).to_owned()];
        row.extend(group_means(all, name).map(|mean| show(mean.map(|(mean, _)| mean))));
        rows.add_row(row);
    }
    align(&mut rows);
    println!(
        "unit: means of the hit ratio, %, each cell alike (in brackets how many). Shares: 0.1, 1 and\n\
         10 % of the keys, at least 50, without synthetic traces; of these, capacities of 250 and of\n\
         1,000 entries and more; published: capacities used in publications.\n{rows}\n"
    );

    let mut rows = table();
    rows.set_header([
        "group",
        "ebbtide",
        "best peer",
        "its mean",
        "ebbtide leads by",
    ]);
    for group in 0..GROUPS.len() {
        let Some(lead) = lead(all, group) else {
            continue;
        };
        rows.add_row([
            head(&GROUPS[group], counts[group]),
            show(Some(lead.ours)),
            lead.peer.to_owned(),
            show(Some(lead.theirs)),
            format!("{:+.2}", lead.ours - lead.theirs),
        ]);
    }
    if !rows.is_empty() {
        align(&mut rows);
        println!("{rows}\n");
    }
    if let Some((behind, ours, peer)) = farthest_behind(all) {
        println!(
            "ebbtide's worst cell at {} entries and more, against the best peer of that cell: \
             {} @ {}, {:+.2} points ({:.2}, {} {:.2}).\n",
            grouped(LARGE),
            ours.trace,
            grouped(ours.cell.capacity),
            -behind,
            ours.hit_ratio(),
            peer.contender,
            peer.hit_ratio(),
        );
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

/// ebbtide beside the best peer of a group.
struct Lead {
    ours: f64,
    peer: &'static str,
    theirs: f64,
}

fn lead(all: &[Measured], group: usize) -> Option<Lead> {
    let of = |name: &str| Some(group_means(all, name)[group]?.0);
    let ours = of(EBBTIDE)?;
    let peers = names(all.iter().filter(|one| !one.ours && !one.reference));
    let best = peers
        .into_iter()
        .filter_map(|name| Some((name, of(name)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let (peer, theirs) = best?;
    Some(Lead { ours, peer, theirs })
}

/// The cell at [`LARGE`] or more in which the library is farthest behind the best peer (or least
/// ahead of it): by how many points, its own and the peer's figures.
fn farthest_behind(all: &[Measured]) -> Option<(f64, &Measured, &Measured)> {
    let unit = || all.iter().filter(|one| one.replay == Replay::Unit);
    unit()
        .filter(|one| one.contender == EBBTIDE && one.cell.capacity >= LARGE)
        .filter_map(|ours| {
            let peer = unit()
                .filter(|one| one.trace == ours.trace && one.cell == ours.cell)
                .filter(|one| !one.ours && !one.reference)
                .max_by(|a, b| a.hit_ratio().total_cmp(&b.hit_ratio()))?;
            Some((peer.hit_ratio() - ours.hit_ratio(), ours, peer))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hit_ratio::capacities::{DEFAULT, cells};
    use crate::hit_ratio::traces::Trace;

    /// Cells of a trace of 100 k keys, with these hit ratios for the library and two peers.
    fn cells_of(name: &str, ours: f64, peers: [f64; 2]) -> Vec<Measured> {
        let trace = Trace {
            name: name.to_owned(),
            keys: Vec::new(),
            sizes: Vec::new(),
            times: None,
            distinct: 10_000,
            distinct_bytes: 0,
        };
        let mut all = Vec::new();
        for cell in cells(&trace, Replay::Unit, &DEFAULT) {
            let each = [
                ("OPT", 99.0),
                (EBBTIDE, ours),
                ("one", peers[0]),
                ("two", peers[1]),
            ];
            for (contender, percent) in each {
                all.push(Measured {
                    replay: Replay::Unit,
                    trace: name.to_owned(),
                    cell,
                    contender,
                    reference: contender == "OPT",
                    ours: contender == EBBTIDE,
                    rounds: vec![Tally {
                        requests: 100,
                        hits: percent as u64,
                        ..Tally::default()
                    }],
                });
            }
        }
        all
    }

    #[test]
    fn means_weigh_each_cell_alike_and_leave_others_out() {
        // Capacities 50, 100, 1,000; of gli four published ones as well.
        let mut all = cells_of("lirs_cs", 40.0, [50.0, 10.0]);
        all.extend(cells_of("lirs_gli", 70.0, [60.0, 10.0]));
        all.extend(cells_of("lirs_loop", 7.0, [80.0, 10.0]));
        all.extend(cells_of("somebody's own", 1.0, [90.0, 10.0]));
        let means = group_means(&all, EBBTIDE);
        assert_eq!(means[0], Some((55.0, 6)));
        assert_eq!(means[1], Some((55.0, 2)));
        assert_eq!(means[2], Some((55.0, 2)));
        let published = means[3].unwrap();
        assert_eq!(published.1, 5, "four of gli, and 512 of the loop");
        assert!((published.0 - (4.0 * 70.0 + 7.0) / 5.0).abs() < 1e-9);
        assert_eq!(group_means(&all, "nobody"), [None; 4]);
    }

    #[test]
    fn the_best_peer_is_no_reference() {
        let mut all = cells_of("lirs_cs", 40.0, [50.0, 10.0]);
        all.extend(cells_of("lirs_gli", 70.0, [10.0, 65.0]));
        let found = lead(&all, 0).unwrap();
        assert_eq!((found.ours, found.peer, found.theirs), (55.0, "two", 37.5));
        let (behind, ours, peer) = farthest_behind(&all).unwrap();
        assert_eq!((behind, ours.cell.capacity), (10.0, 1_000));
        assert_eq!((ours.trace.as_str(), peer.contender), ("lirs_cs", "one"));
    }

    #[test]
    fn a_group_tells_when_cells_are_missing() {
        assert_eq!(head(&GROUPS[0], 61), "shares (61)");
        assert_eq!(head(&GROUPS[3], 5), "published (5 of 30)");
    }
}
