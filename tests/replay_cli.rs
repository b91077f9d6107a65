//! The `replay` example as its user meets it: run as a program on small traces, good and bad.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// The example's binary, built if it is missing or older than its sources. (`cargo test` builds the
/// examples before it runs any test; `cargo test --test replay_cli` does not.)
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // This test is <target>/[<triple>/]<profile>/deps/replay_cli-<hash>.
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let name = format!("replay{}", std::env::consts::EXE_SUFFIX);
        let program = profile.join("examples").join(name);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let newest = ["src", "examples/replay"]
            .map(|folder| newest(&sources.join(folder)))
            .into_iter()
            .max()
            .unwrap();
        let built = fs::metadata(&program).and_then(|meta| meta.modified());
        if built.is_err() || built.unwrap() < newest {
            build(profile);
        }
        assert!(program.is_file(), "{} is missing", program.display());
        program
    })
}

fn newest(folder: &Path) -> SystemTime {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let times = entries.map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            newest(&entry.path())
        } else {
            entry.metadata().unwrap().modified().unwrap()
        }
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn build(profile: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", "replay"]);
    cargo.arg("--manifest-path");
    cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let name = profile.file_name().and_then(OsStr::to_str).unwrap();
    if name != "debug" {
        cargo.args(["--profile", name]);
    }
    // Under --target this is the triple's folder, and what is built there runs on this machine.
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "{cargo:?} failed");
}

/// What the program did.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let ran = Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran
    }

    /// The words of the table's row with this label, without the label.
    fn row(&self, label: &str) -> Vec<&str> {
        let mut rows = self.out.lines().filter_map(|line| {
            let rest = line.strip_prefix("  ")?.strip_prefix(label)?;
            rest.starts_with(' ').then_some(rest)
        });
        let row = rows
            .next()
            .unwrap_or_else(|| panic!("no {label} in\n{}", self.out));
        assert_eq!(rows.next(), None, "two rows {label}");
        row.split_whitespace().collect()
    }

    /// The number in that row.
    fn number(&self, label: &str) -> u64 {
        let row = self.row(label);
        row[0]
            .replace(',', "")
            .parse()
            .unwrap_or_else(|_| panic!("{label}: {row:?}"))
    }
}

fn replay<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Ran {
    let mut command = Command::new(program());
    command.args(arguments.into_iter().map(|a| a.as_ref().to_owned()));
    // Found from any working directory, and told nothing by this one.
    command.current_dir(folder());
    Ran::of(command.output().unwrap())
}

fn succeeded(arguments: &[&str]) -> Ran {
    let ran = replay(arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.err, "", "quiet where standard error is no terminal");
    ran
}

fn refused(arguments: &[&str]) -> String {
    let ran = replay(arguments);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.out, "");
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    ran.err
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay_cli");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a file and gives its path.
fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder().join(name);
    fs::write(&path, content).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// 200 requests of 50 keys over 2 s: 50 misses, then 150 hits as long as nothing expires.
fn small_trace() -> String {
    (0..200)
        .map(|i| format!("{} 100 86400 {}\n", i % 50, i / 100))
        .collect()
}

#[test]
fn a_small_trace_gives_exact_counts() {
    let trace = file("small.txt", small_trace());
    let ran = succeeded(&[&trace, "--workers", "1", "--speed", "20"]);
    assert_eq!(
        ran.row("hit ratio"),
        ["75.00", "%", "150", "hits,", "50", "misses"]
    );
    assert_eq!(ran.number("entries at the end"), 50);
    assert_eq!(ran.row("bytes at the end")[..2], ["5.00", "kB"]);
    assert_eq!(ran.number("expired values read"), 0);
    assert_eq!(ran.number("wrong values read"), 0);
    assert_eq!(ran.number("lifetimes ended"), 0);
    // 2 s of trace 20 times as fast.
    let rate = ran.number("requests/s");
    assert!((50..=2_200).contains(&rate), "{rate} requests/s");
    for row in ["read", "insert", "no call at all", "behind schedule"] {
        assert!(!ran.row(row).is_empty());
    }
    assert!(!ran.out.contains("ASSIGNED"), "only of the committed trace");
}

#[test]
fn the_same_trace_compressed_gives_the_same() {
    let trace = compress_to_vec(small_trace().as_bytes(), CompressionLevel::Fastest);
    let trace = file("small.zst", trace);
    let ran = succeeded(&[&trace, "--workers", "1", "--speed", "20"]);
    assert_eq!(
        ran.row("hit ratio"),
        ["75.00", "%", "150", "hits,", "50", "misses"]
    );
}

/// 2,000 keys, each asked for once in the first second of 4, all lifetimes ended after the second;
/// in the last second one request.
fn wave() -> String {
    let keys = (0..2_000).map(|key| format!("{key} 100 1 0\n"));
    keys.chain(["9999 100 1 3\n".to_owned()]).collect()
}

#[test]
fn without_a_reaper_the_dead_stay_and_with_one_they_go() {
    // 4 s of trace in 2 s; lifetimes of 100 ms.
    let trace = file("wave.txt", wave());
    let options = [&*trace, "--speed", "2", "--lifetime-factor", "5"];

    let off = succeeded(&[&options[..], &["--strategy", "off"]].concat());
    assert_eq!(off.number("by the reaper"), 0);
    assert_eq!(off.number("entries at the end"), 2_001);
    assert!(off.number("lifetimes ended") >= 2_000);
    assert_eq!(off.row("dead bytes at peak")[..2], ["200", "kB"]);

    for strategy in ["sweep", "sample"] {
        let on = succeeded(&[&options[..], &["--strategy", strategy]].concat());
        assert!(on.number("by the reaper") > 1_000, "{strategy}: {}", on.out);
        assert!(
            on.number("entries at the end") < 1_000,
            "{strategy}: {}",
            on.out
        );
        assert!(on.number("reaper cycles") > 0, "{strategy}");
    }
}

#[test]
fn the_committed_trace_is_found_from_anywhere_and_says_where_its_lifetimes_come_from() {
    let ran = succeeded(&["--requests", "3000", "--speed", "50"]);
    assert!(
        ran.out.contains("3,000 requests over 3.00 s of trace time"),
        "{}",
        ran.out
    );
    for words in ["Twitter", "CC BY 4.0", "lifetimes ASSIGNED", "not logged"] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert_eq!(ran.number("wrong values read"), 0);
}

#[test]
fn several_workers_share_one_cache() {
    let trace = file("shared.txt", small_trace());
    let ran = succeeded(&[&trace, "--workers", "4", "--speed", "20"]);
    assert_eq!(ran.number("entries at the end"), 50);
}

#[test]
fn a_bound_on_entries_holds() {
    let trace = file("bounded.txt", small_trace());
    let ran = succeeded(&[
        &trace,
        "--workers",
        "1",
        "--speed",
        "20",
        "--max-entries",
        "10",
    ]);
    let held = ran.number("entries at the end");
    assert!((1..=10).contains(&held), "{held}");
    assert!(ran.number("evicted alive") >= 40, "{}", ran.out);
}

#[test]
fn an_unpaced_run_makes_several_passes() {
    let trace = file("unpaced.txt", small_trace());
    let ran = succeeded(&[&trace, "--workers", "1", "--unpaced", "--passes", "5"]);
    assert_eq!(ran.row("hit ratio")[2..], ["950", "hits,", "50", "misses"]);
    assert!(ran.out.contains("median of 5 passes"), "{}", ran.out);
}

#[test]
fn a_trace_of_keys_alone_says_what_stands_in_for_the_rest() {
    let keys: String = (0..100).map(|i| format!("{}\n", i % 10)).collect();
    let trace = file("keys.txt", keys);
    let ran = succeeded(&[&trace, "--workers", "1", "--rate", "100", "--speed", "20"]);
    assert_eq!(ran.row("hit ratio")[2..], ["90", "hits,", "10", "misses"]);
    for words in [
        "every value has 64 B (--default-size)",
        "every entry gets 86,400 s",
        "100 requests/s",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
}

#[test]
fn the_plot_is_an_svg_with_text() {
    let trace = file("plotted.txt", small_trace());
    let plot = folder().join("plot.svg");
    let plot = plot.to_str().unwrap();
    let ran = succeeded(&[&trace, "--speed", "20", "--plot", plot]);
    assert!(ran.out.contains(plot));
    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for words in [
        "Values in memory",
        "Latency by percentile",
        "seconds into the run",
        "99 %",
    ] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_said_before_the_run() {
    let trace = file("unplotted.txt", small_trace());
    let plot = folder().join("no such folder").join("plot.svg");
    let error = refused(&[&trace, "--plot", plot.to_str().unwrap()]);
    assert!(error.contains("no such folder"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = refused(&["no_such_trace.zst"]);
    assert!(
        error.contains("no_such_trace.zst: cannot be read:"),
        "{error}"
    );
}

#[test]
fn a_folder_is_no_trace() {
    let folder = folder();
    let error = refused(&[folder.to_str().unwrap()]);
    assert!(error.contains("cannot be read:"), "{error}");
}

#[test]
fn an_empty_file_holds_no_requests() {
    let error = refused(&[&file("empty.txt", "")]);
    assert!(error.contains("holds no requests"), "{error}");
}

#[test]
fn text_named_zst_and_other_formats_are_told_apart() {
    let error = refused(&[&file("text.zst", "1 2 3 4\n")]);
    assert!(error.contains("not zstd data"), "{error}");
    let error = refused(&[&file("trace.gz", [0x1f, 0x8b, 8, 0])]);
    assert!(error.contains("is gzip data"), "{error}");
}

#[test]
fn a_cut_or_changed_zstd_file_is_damaged() {
    let whole = compress_to_vec(small_trace().as_bytes(), CompressionLevel::Fastest);
    let error = refused(&[&file("cut.zst", &whole[..whole.len() / 2])]);
    assert!(error.contains("damaged or cut short"), "{error}");
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 0x55;
    let error = refused(&[&file("changed.zst", changed)]);
    assert!(error.contains("checksum"), "{error}");
}

/// Whatever one wrong byte does to a compressed trace, it is an error with a message (or, in a field
/// that does not matter, none): never a panic.
#[test]
fn no_damage_panics() {
    let whole = compress_to_vec(small_trace().as_bytes(), CompressionLevel::Fastest);
    let step = whole.len() / 40 + 1;
    for place in (4..whole.len()).step_by(step) {
        let mut changed = whole.clone();
        changed[place] ^= 0xff;
        let trace = file("flipped.zst", changed);
        let ran = replay([&*trace, "--speed", "1e6"]);
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "byte {place}: {:?} {}",
            ran.code,
            ran.err
        );
    }
}

#[test]
fn a_malformed_line_is_named_with_what_was_expected() {
    for (content, expected) in [
        (
            "1 2 3 4\n1 2 3\n",
            "line 2: expected four columns \"key size ttl time\" as on line 1",
        ),
        (
            "1 2 3 4\n1 2 3 4\nx 2 3 4\n",
            "line 3: expected a key (a whole number",
        ),
        ("1 2 3 4\n1 2 3 3\n", "line 2: expected a time not before"),
        ("1,2,3,4\n", "line 1: expected a key (a whole number"),
        ("time key size\n", "line 1: expected \"key\", \"key size\","),
    ] {
        let trace = file("malformed.txt", content);
        let error = refused(&[&trace]);
        assert!(error.contains(expected), "{error}");
        let trace = file(
            "malformed.zst",
            compress_to_vec(content.as_bytes(), CompressionLevel::Fastest),
        );
        let error = refused(&[&trace]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn wrong_options_are_usage_errors() {
    for options in [
        &["--no-such-option"][..],
        &["--workers", "0"],
        &["--strategy", "magic"],
        &["--threshold", "0.5"],
        &["--strategy", "off", "--budget", "1ms"],
        &["--budget", "fast"],
        &["--speed", "-1"],
        &["--passes", "3"],
        &["one", "two"],
    ] {
        let ran = replay(options);
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.err);
        assert!(
            ran.err.contains("Usage:") || ran.err.contains("--help"),
            "{}",
            ran.err
        );
        assert_eq!(ran.out, "");
    }
}

#[test]
fn help_tells_all_options() {
    let ran = replay(["--help"]);
    assert_eq!(ran.code, Some(0));
    for option in [
        "--workers",
        "--strategy",
        "--budget",
        "--interval",
        "--sample-size",
        "--threshold",
        "--max-entries",
        "--speed",
        "--lifetime-factor",
        "--unpaced",
        "--requests",
        "--plot",
        "--quick",
    ] {
        assert!(ran.out.contains(option), "{option}");
    }
}

#[test]
fn a_reader_who_goes_away_is_no_crash() {
    let trace = file("unread.txt", small_trace());
    let mut child = Command::new(program())
        .args([&*trace, "--speed", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
}

/// A production sample with an op column and real lifetimes; not in the repository.
#[test]
fn a_trace_with_ops_is_replayed_op_by_op() {
    let Some(folder) = std::env::var_os("EBBTIDE_TRACES") else {
        println!("skipped: EBBTIDE_TRACES names no folder with traces");
        return;
    };
    let trace = Path::new(&folder).join("cachelib_kv_ttl_sample.zst");
    if !trace.is_file() {
        println!("skipped: no {}", trace.display());
        return;
    }
    let trace = trace.to_str().unwrap();
    let ran = succeeded(&[trace, "--requests", "99", "--speed", "100"]);
    assert_eq!(
        ran.row("inserts"),
        ["9", "by", "the", "trace", "itself,", "and", "2", "removals"]
    );
    let row = ran.row("hit ratio");
    let count = |i: usize| row[i].parse::<u64>().unwrap();
    assert_eq!(count(2) + count(4), 88, "51 GET and 37 GET_LEASE");
    // The file is two samples, one after the other: the second one's times begin anew.
    let error = refused(&[trace]);
    assert!(
        error.contains("line 100: expected a time not before"),
        "{error}"
    );
}
