//! Capacities: what can be asked for, and the cells that become of it.

use super::traces::{Trace, known_trace};
use super::{GROUPS, Replay};

/// No cell is smaller than so many entries, or so many of mean size.
const LEAST: u64 = 50;

/// One word of `--capacities`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    /// Of the distinct keys, or of their bytes, in thousandths of a percent.
    Share(u64),
    /// The sizes in entries that publications used for this trace.
    Published,
    /// So many entries, or bytes.
    Exactly(u64),
}

/// The shares that the means are about, in thousandths of a percent.
const SHARES_OF_MEANS: [u64; 3] = [100, 1_000, 10_000];

/// What is replayed unless something is asked for.
pub(super) const DEFAULT: [Capacity; 4] = [
    Capacity::Share(SHARES_OF_MEANS[0]),
    Capacity::Share(SHARES_OF_MEANS[1]),
    Capacity::Share(SHARES_OF_MEANS[2]),
    Capacity::Published,
];
pub(super) const QUICK: [Capacity; 1] = [Capacity::Share(1_000)];

/// Reads `0.1%`, `published` or a number.
pub(super) fn parse(word: &str) -> Result<Capacity, String> {
    if word == "published" {
        return Ok(Capacity::Published);
    }
    let expected = || {
        format!("\"{word}\" is neither a share (0.1%), a number above 0 nor the word \"published\"")
    };
    if let Some(percent) = word.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| expected())?;
        if !(0.001..=100.0).contains(&percent) {
            return Err(format!("\"{word}\" is not within 0.001% and 100%"));
        }
        return Ok(Capacity::Share((percent * 1_000.0).round() as u64));
    }
    match word.parse() {
        Ok(number) if number > 0 => Ok(Capacity::Exactly(number)),
        _ => Err(expected()),
    }
}

/// One capacity of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// Entries, or bytes in a replay with weights.
    pub(super) capacity: u64,
    /// One of the shares that the means are about.
    share: bool,
    published: bool,
}

impl Cell {
    /// The groups whose means this cell of the trace `name` is in, as indexes of [`GROUPS`].
    pub(super) fn groups(&self, name: &str) -> impl Iterator<Item = usize> {
        let (known, cell) = (known_trace(name), *self);
        (0..GROUPS.len()).filter(move |&group| {
            let Some(known) = known else {
                return false;
            };
            match GROUPS[group].least {
                Some(least) => cell.share && !known.synthetic && cell.capacity >= least,
                None => cell.published,
            }
        })
    }
}

/// The cells of a trace, ascending, each capacity once.
pub(super) fn cells(trace: &Trace, replay: Replay, wanted: &[Capacity]) -> Vec<Cell> {
    let (whole, least) = match replay {
        Replay::Weights => {
            let mean = trace.distinct_bytes / u64::from(trace.distinct.max(1));
            (trace.distinct_bytes, LEAST * mean.max(1))
        }
        Replay::Unit | Replay::Lifetimes => (u64::from(trace.distinct), LEAST),
    };
    let mut cells = Vec::new();
    for &capacity in wanted {
        match capacity {
            Capacity::Share(share) => {
                let exact = u128::from(whole) * u128::from(share);
                let rounded = ((exact + 50_000) / 100_000) as u64;
                cells.push(Cell {
                    capacity: rounded.max(least),
                    share: replay == Replay::Unit && SHARES_OF_MEANS.contains(&share),
                    published: false,
                });
            }
            Capacity::Published if replay == Replay::Unit => {
                let sizes = known_trace(&trace.name).map_or(&[][..], |known| known.published);
                cells.extend(sizes.iter().map(|&capacity| Cell {
                    capacity,
                    share: false,
                    published: true,
                }));
            }
            Capacity::Published => {}
            Capacity::Exactly(capacity) => cells.push(Cell {
                capacity,
                share: false,
                published: false,
            }),
        }
    }
    cells.sort_by_key(|cell| cell.capacity);
    cells.dedup_by(|later, kept| {
        let same = later.capacity == kept.capacity;
        if same {
            kept.share |= later.share;
            kept.published |= later.published;
        }
        same
    });
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(name: &str, distinct: u32, distinct_bytes: u64) -> Trace {
        Trace {
            name: name.to_owned(),
            keys: Vec::new(),
            sizes: Vec::new(),
            times: None,
            distinct,
            distinct_bytes,
        }
    }

    fn capacities(cells: &[Cell]) -> Vec<u64> {
        cells.iter().map(|cell| cell.capacity).collect()
    }

    #[test]
    fn capacities_are_read() {
        assert_eq!(parse("0.1%"), Ok(Capacity::Share(100)));
        assert_eq!(parse("10 %"), Ok(Capacity::Share(10_000)));
        assert_eq!(parse("published"), Ok(Capacity::Published));
        assert_eq!(parse("512"), Ok(Capacity::Exactly(512)));
        for word in ["", "0", "-3", "x%", "0%", "101%", "nan%", "1.5", "all"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }

    #[test]
    fn shares_are_rounded_and_at_least_fifty() {
        let cells_of = |distinct| {
            capacities(&cells(
                &trace("lirs_cs", distinct, 0),
                Replay::Unit,
                &DEFAULT,
            ))
        };
        assert_eq!(cells_of(1_409), [50, 141]);
        assert_eq!(cells_of(36_815), [50, 368, 3_682]);
        assert_eq!(cells_of(186_880), [187, 1_869, 18_688]);
        let bytes = trace("own", 1_000, 5_000_000);
        let bytes = cells(&bytes, Replay::Weights, &DEFAULT);
        assert_eq!(
            capacities(&bytes),
            [250_000, 500_000],
            "at least 50 of mean size"
        );
    }

    #[test]
    fn a_cell_knows_its_groups() {
        let all = cells(&trace("corda_vault", 90_468, 0), Replay::Unit, &DEFAULT);
        assert_eq!(capacities(&all), [90, 512, 905, 9_047]);
        let groups = |cell: &Cell, name: &str| cell.groups(name).collect::<Vec<_>>();
        assert_eq!(groups(&all[0], "corda_vault"), [0]);
        assert_eq!(groups(&all[1], "corda_vault"), [3]);
        assert_eq!(groups(&all[2], "corda_vault"), [0, 1]);
        assert_eq!(groups(&all[3], "corda_vault"), [0, 1, 2]);
        assert_eq!(groups(&all[3], "somebody's own"), [0; 0]);

        let synthetic = cells(&trace("lirs_loop", 1_011, 0), Replay::Unit, &DEFAULT);
        assert_eq!(capacities(&synthetic), [50, 101, 512]);
        let of: Vec<_> = synthetic.iter().map(|c| groups(c, "lirs_loop")).collect();
        assert_eq!(of, [vec![], vec![], vec![3]]);

        let own = cells(
            &trace("lirs_loop", 1_011, 0),
            Replay::Unit,
            &[Capacity::Exactly(512)],
        );
        assert_eq!(
            groups(&own[0], "lirs_loop"),
            [0; 0],
            "not asked for as published"
        );
    }
}
