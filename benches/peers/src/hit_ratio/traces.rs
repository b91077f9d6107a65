//! Traces: which there are, where they lie, and one in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::lab::Outcome;
use crate::trace::{Defaults, Request, read};

/// The variable that names the folder of traces where no option does.
pub(super) const FOLDER_VARIABLE: &str = "EBBTIDE_TRACES";
/// The trace that the repository carries, from this package.
const COMMITTED: &str = "../../examples/data/twitter_c52_1m.zst";
/// What trace files end with.
const EXTENSION: &str = "zst";

/// A trace that the tables of means know.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Made by a program (loops, scans): in no mean of the shares of distinct keys.
    pub(super) synthetic: bool,
    /// Fewer than 150,000 requests: part of a quick run.
    pub(super) small: bool,
    /// Capacities in entries that publications used, ascending.
    pub(super) published: &'static [u64],
}

const fn known(
    name: &'static str,
    synthetic: bool,
    small: bool,
    published: &'static [u64],
) -> Known {
    Known {
        name,
        synthetic,
        small,
        published,
    }
}

const LIRS: &[u64] = &[500, 1_000, 1_500, 2_000];

/// Every trace with a part in the means. 61 cells at 0.1, 1 and 10 % of the distinct keys without
/// the synthetic ones, and 30 cells at published capacities.
pub(super) const KNOWN: [Known; 26] = [
    known("adaptsize_request", false, true, &[]),
    known(
        "arc_oltp",
        false,
        false,
        &[250, 500, 1_000, 2_000, 5_000, 10_000, 15_000],
    ),
    known("arc_p3", false, false, &[]),
    known("cache2k_orm_busy", false, false, &[]),
    known("cache2k_orm_night", false, false, &[]),
    known("cache2k_web07", false, true, &[]),
    known("cache2k_web12", false, true, &[]),
    known("cloudphysics_io", false, true, &[]),
    known("cloudphysics_w106", false, false, &[]),
    known("corda_vault", false, true, &[512]),
    known("lirs_2_pools", false, true, &[]),
    known("lirs_backf", true, true, &[]),
    known("lirs_cpp", false, true, &[]),
    known("lirs_cs", false, true, &[]),
    known("lirs_gli", false, true, LIRS),
    known("lirs_loop", true, false, &[512]),
    known("lirs_multi1", false, true, LIRS),
    known("lirs_multi2", false, true, LIRS),
    known("lirs_multi3", false, true, LIRS),
    known("lirs_ps", false, true, LIRS),
    known("lirs_scan", true, true, &[]),
    known("lirs_sprite", false, true, &[]),
    known("lirs_zigzag", true, true, &[]),
    known("scarab_recs", false, false, &[100_000]),
    known("twitter_c52_10m_s5", false, false, &[]),
    known("twitter_c52_1m", false, false, &[]),
];

/// Traces that are replayed only when named: 198 requests say nothing about a hit ratio.
const TOO_SHORT: [&str; 1] = ["cachelib_kv_ttl_sample"];

pub(super) fn known_trace(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// A trace's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The file's name without `.zst`.
    pub(super) name: String,
    path: PathBuf,
}

/// The files to replay, by name: those of `folder`, or the committed trace alone, of these the
/// named ones (in the order of the folder), or all that are long enough. `quick` leaves out the
/// long and the unknown ones, unless that leaves none or they are named.
///
/// # Errors
///
/// A folder that is none or has no traces, and a name that is not there.
pub(super) fn choose(
    folder: Option<&Path>,
    named: &[String],
    quick: bool,
) -> Outcome<(Vec<Source>, Vec<String>)> {
    let (there, place) = match folder {
        Some(folder) => (list(folder)?, format!("in {} there are", folder.display())),
        None => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
            let name = stem(&path).unwrap_or_default();
            let place = format!(
                "without a folder of traces (--traces DIR or {FOLDER_VARIABLE}) there is only the \
                 committed one"
            );
            (vec![Source { name, path }], place)
        }
    };
    let mut notes = Vec::new();
    if !named.is_empty() {
        for name in named {
            if !there.iter().any(|source| source.name == *name) {
                let names: Vec<&str> = there.iter().map(|source| source.name.as_str()).collect();
                let names = names.join(", ");
                return Err(format!("no trace is called \"{name}\"; {place}: {names}").into());
            }
        }
        let chosen = there.into_iter();
        let chosen = chosen.filter(|source| named.contains(&source.name));
        return Ok((chosen.collect(), notes));
    }
    if folder.is_none() {
        notes.push(format!(
            "No folder of traces is named (--traces DIR or the variable {FOLDER_VARIABLE}): only \
             the committed trace is replayed."
        ));
    }
    let (short, mut chosen): (Vec<Source>, Vec<Source>) = there
        .into_iter()
        .partition(|source| TOO_SHORT.contains(&source.name.as_str()));
    for source in short {
        notes.push(format!(
            "{} is skipped: too short for a hit ratio (name it with --traces-named to replay it).",
            source.name
        ));
    }
    let small = |source: &Source| known_trace(&source.name).is_some_and(|known| known.small);
    if quick && chosen.iter().any(small) {
        chosen.retain(small);
    }
    if chosen.is_empty() {
        return Err("nothing to replay is left: name a trace with --traces-named".into());
    }
    Ok((chosen, notes))
}

fn list(folder: &Path) -> Outcome<Vec<Source>> {
    let unreadable = |error| format!("cannot read the folder {}: {error}", folder.display());
    let mut there = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|end| end == EXTENSION)
            && let Some(name) = stem(&path)
        {
            there.push(Source { name, path });
        }
    }
    if there.is_empty() {
        return Err(format!("no trace (*.{EXTENSION}) lies in {}", folder.display()).into());
    }
    there.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(there)
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

impl Source {
    /// Reads the whole trace. At its peak that takes some 60 bytes a request, afterwards 4, and 4
    /// more with sizes, 12 more with lifetimes.
    pub(super) fn load(&self) -> Outcome<Trace> {
        let named = |error| format!("{}: {error}", self.path.display());
        let input = crate::input::open(&self.path).map_err(named)?;
        let trace = read(input, DEFAULTS, None).map_err(named)?;
        if trace.requests.len() > Trace::MOST_REQUESTS {
            let most = Trace::MOST_REQUESTS;
            return Err(format!("{}: more than {most} requests", self.path.display()).into());
        }
        let (sizes, times) = (trace.has_sizes(), trace.has_times());
        Ok(Trace::new(&self.name, &trace.requests, sizes, times))
    }
}

/// What stands in for missing columns; nothing that is missing is ever looked at.
const DEFAULTS: Defaults = Defaults {
    size: 1,
    ttl: 0,
    rate: 1.0,
};

/// A trace in memory, its keys renamed 0, 1, … in the order of their first appearance. An op
/// column is not looked at: every request is a get, followed by an insert when it misses.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) keys: Vec<u32>,
    /// Bytes, at least 1, or nothing when the trace has no sizes.
    pub(super) sizes: Vec<u32>,
    /// When, and for how long, when the trace has lifetimes.
    pub(super) times: Option<Times>,
    pub(super) distinct: u32,
    /// The sizes of all keys together, each as first seen; 0 without sizes.
    pub(super) distinct_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Times {
    /// Nanoseconds since the trace began, ascending.
    pub(super) at: Vec<u64>,
    /// Lifetimes in seconds; 0 never expires.
    pub(super) ttls: Vec<u32>,
}

impl Trace {
    /// A place in a trace is a u32, and its greatest value means "never again".
    pub(super) const MOST_REQUESTS: usize = u32::MAX as usize - 1;

    pub(super) fn new(name: &str, requests: &[Request], sizes: bool, times: bool) -> Self {
        let mut ids: HashMap<u64, u32, ahash::RandomState> = HashMap::default();
        let mut distinct_bytes = 0;
        let size = |request: &Request| request.size.max(1);
        let keys: Vec<u32> = requests
            .iter()
            .map(|request| {
                let next = ids.len() as u32;
                *ids.entry(request.key).or_insert_with(|| {
                    distinct_bytes += u64::from(size(request));
                    next
                })
            })
            .collect();
        Self {
            name: name.to_owned(),
            keys,
            sizes: match sizes {
                true => requests.iter().map(size).collect(),
                false => Vec::new(),
            },
            times: times.then(|| Times {
                at: requests.iter().map(|request| request.at).collect(),
                ttls: requests.iter().map(|request| request.ttl).collect(),
            }),
            distinct: ids.len() as u32,
            distinct_bytes: if sizes { distinct_bytes } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn text(folder: &Path, name: &str, lines: &str) -> Source {
        // Plain text is read as it is, whatever the name, unless that ends in .zst.
        let path = folder.join(name);
        fs::write(&path, lines).unwrap();
        Source {
            name: name.to_owned(),
            path,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ebbtide-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_trace_is_renamed_and_counted() {
        let folder = folder("traces-load");
        let trace = text(&folder, "a", "90 10 60 5\n7 0 0 5\n90 30 60 6\n").load();
        let trace = trace.unwrap();
        assert_eq!(trace.keys, [0, 1, 0]);
        assert_eq!(trace.sizes, [10, 1, 30], "a size of 0 counts as 1");
        assert_eq!((trace.distinct, trace.distinct_bytes), (2, 11));
        let times = trace.times.unwrap();
        assert_eq!(times.ttls, [60, 0, 60]);
        assert_eq!(times.at, [0, 500_000_000, 1_000_000_000]);

        let keys = text(&folder, "b", "3\n3\n4\n").load().unwrap();
        assert!(keys.sizes.is_empty() && keys.times.is_none());
        assert_eq!(keys.distinct_bytes, 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_line_an_empty_file_and_a_false_name_are_told() {
        let folder = folder("traces-damaged");
        for (name, lines, told) in [
            ("line", "1\n2\nthree\n", "line 3: expected a key"),
            ("columns", "1 2\n1\n", "line 2: expected two columns"),
            ("empty", "", "holds no requests"),
            ("text.zst", "1\n2\n", "not zstd data"),
        ] {
            let error = text(&folder, name, lines).load().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(error.contains(name), "the file is named: {error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_committed_trace_stands_in_for_a_folder() {
        let (chosen, notes) = choose(None, &[], true).unwrap();
        assert_eq!(chosen.len(), 1);
        assert!(notes[0].contains("only the committed trace"), "{notes:?}");
        assert!(chosen[0].path.is_file(), "{:?}", chosen[0].path);
        let trace = chosen[0].load().unwrap();
        assert_eq!((trace.keys.len(), trace.distinct), (1_000_000, 143_542));
        assert_eq!(trace.sizes.len(), 1_000_000);
        assert!(trace.times.is_some());
    }

    #[test]
    fn a_folder_is_chosen_from_by_name_and_by_length() {
        let folder = folder("traces-choose");
        let names = ["twitter_c52_1m", "lirs_cs", "cachelib_kv_ttl_sample", "own"];
        for name in names {
            fs::write(folder.join(format!("{name}.zst")), "").unwrap();
        }
        fs::write(folder.join("README.md"), "").unwrap();
        let chosen = |named: &[&str], quick| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            let (chosen, notes) = choose(Some(&folder), &named, quick)?;
            let names: Vec<String> = chosen.into_iter().map(|source| source.name).collect();
            Outcome::Ok((names, notes))
        };
        let (all, notes) = chosen(&[], false).unwrap();
        assert_eq!(all, ["lirs_cs", "own", "twitter_c52_1m"]);
        assert!(notes[0].starts_with("cachelib_kv_ttl_sample is skipped"));
        assert_eq!(chosen(&[], true).unwrap().0, ["lirs_cs"]);
        let named = chosen(&["own", "cachelib_kv_ttl_sample"], true).unwrap().0;
        assert_eq!(named, ["cachelib_kv_ttl_sample", "own"]);
        let error = chosen(&["lirs_cs", "nobody"], false).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("no trace is called \"nobody\""), "{error}");
        assert!(error.ends_with("lirs_cs, own, twitter_c52_1m"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
        let error = choose(Some(&folder), &[], false).unwrap_err().to_string();
        assert!(error.contains("cannot read the folder"), "{error}");
        fs::create_dir(&folder).unwrap();
        let error = choose(Some(&folder), &[], false).unwrap_err().to_string();
        assert!(error.contains("no trace (*.zst) lies in"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_known_traces_have_the_published_cells() {
        let published: usize = KNOWN.iter().map(|known| known.published.len()).sum();
        assert_eq!(published, 30);
        assert!(KNOWN.is_sorted_by_key(|known| known.name));
    }
}
