//! `costs`: what one operation costs, counted instead of timed. Each contender and operation runs
//! in a child under callgrind; what is counted does not depend on the machine's load.

mod callgrind;
mod child;
mod contenders;
mod disassembly;
mod reading;

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use comfy_table::CellAlignment;

use crate::Options;
use crate::keys::count_name;
use crate::report::{EBBTIDE, Figure, Report, align, number, table};
use callgrind::Profile;
use disassembly::{Kind, Marked, disassemble};

pub(crate) use child::{Operation, Task, measure};

#[derive(Args, Debug)]
pub(crate) struct CostsArgs {
    /// What to count, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::value_variants().to_vec())]
    operations: Vec<Operation>,
    /// Numbers of keys that read hits are counted with, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1000,1000000", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Vec<u32>,
    /// Keep callgrind's files here, for callgrind_annotate
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The function in which callgrind collects.
const COLLECTED: &str = "*counted_part*";

/// The caches that are simulated: size in bytes, ways, bytes of a line. Always the same, so that
/// counts of two machines can be compared (and what valgrind takes a virtual machine's last level
/// for may be far off): the first level of most processors of the last ten years, and what one core
/// may hope for of a shared last level.
const FIRST_LEVEL: &str = "32768,8,64";
const LAST_LEVEL: &str = "8388608,16,64";

/// Entries in the stores of all operations but read hits.
const ENTRIES: usize = 1 << 15;

const ALLOCATING: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

/// What is counted, per operation. (`D1` and `LL` are valgrind's names of the first and the last
/// level of cache.)
const COLUMNS: [&str; 7] = [
    "instructions",
    "locked",
    "allocations",
    "frees",
    "D1 misses",
    "LL misses",
    "clock reads",
];

/// Counts everything that was asked for; `None` if a tool is missing.
pub(crate) fn run(options: &Options, args: &CostsArgs) -> Result<Option<Report>, Box<dyn Error>> {
    for tool in ["valgrind", "objdump"] {
        let found = Command::new(tool)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            println!("costs: skipped, there is no {tool} here");
            return Ok(None);
        }
    }
    let kept = args.keep.is_some();
    let folder = match &args.keep {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("ebbtide-costs-{}", std::process::id())),
    };
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot write into {}: {error}", folder.display()))?;
    let mut counter = Counter {
        times: if options.quick { 5_000 } else { 50_000 },
        folder,
        kept,
        objects: HashMap::new(),
        caches: Vec::new(),
    };
    let mut report = Report::new("costs");
    println!(
        "What one operation costs, u64 -> u64, ahash for all: counted under callgrind, so that\n\
         other processes and other threads do not matter. Means over {} operations; inserts\n\
         of fresh keys double a store of {ENTRIES} entries, and removals empty one of so many.",
        counter.times
    );
    println!(
        "locked: executed instructions that lock a line (atomic read-modify-writes, and fences\n\
         made of one). Allocations and frees: calls of the C library's. Misses are those of the\n\
         simulated caches below. Clock reads: calls of clock_gettime and rdtsc; the vDSO, which\n\
         valgrind replaces by a system call, would add some 30 instructions to each. Other threads\n\
         are not counted; ebbtide's reaper is manual, so nobody frees what waits for a grace\n\
         period but the caller.\n"
    );
    let answer = count_all(options, args, &mut counter, &mut report);
    if !kept {
        // What cannot be removed from a temporary folder is nobody's loss.
        let _ = fs::remove_dir_all(&counter.folder);
    }
    answer?;
    println!("Simulated caches: {}", counter.caches.join("; "));
    print_readings();
    Ok(Some(report))
}

fn count_all(
    options: &Options,
    args: &CostsArgs,
    counter: &mut Counter,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    for &operation in &args.operations {
        let sizes: Vec<usize> = match operation {
            Operation::Hit => args.keys.iter().map(|&keys| keys as usize).collect(),
            _ => vec![ENTRIES],
        };
        for keys in sizes {
            let case = match operation {
                Operation::Increment => operation.name().to_owned(),
                _ => format!("{}, {} keys", operation.name(), count_name(keys as u64)),
            };
            for contender in child::names(operation) {
                if !options.wants(&contender) {
                    continue;
                }
                let counts = counter.count(&contender, operation, keys)?;
                for (metric, count) in COLUMNS.into_iter().zip(counts) {
                    report.add(Figure {
                        case: case.clone(),
                        contender: contender.clone(),
                        base: EBBTIDE,
                        metric,
                        rounds: vec![count],
                    });
                }
            }
            print_case(report, &case, operation);
        }
    }
    Ok(())
}

struct Counter {
    times: usize,
    folder: PathBuf,
    kept: bool,
    objects: HashMap<String, Marked>,
    caches: Vec<String>,
}

impl Counter {
    /// The counts of one operation, in the order of [`COLUMNS`].
    fn count(
        &mut self,
        contender: &str,
        operation: Operation,
        keys: usize,
    ) -> Result<[f64; COLUMNS.len()], Box<dyn Error>> {
        let value = operation.to_possible_value();
        let value = value.as_ref().map_or("", |value| value.get_name());
        let plain: String = contender
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let file = self
            .folder
            .join(format!("{value}-{keys}-{plain}.callgrind"));
        let output = Command::new("valgrind")
            .args(["-q", "--tool=callgrind", "--cache-sim=yes"])
            .args([format!("--D1={FIRST_LEVEL}"), format!("--LL={LAST_LEVEL}")])
            .args([
                "--dump-instr=yes",
                "--compress-strings=no",
                "--compress-pos=no",
            ])
            .args([
                "--collect-atstart=no",
                &format!("--toggle-collect={COLLECTED}"),
            ])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(std::env::current_exe()?)
            .args([
                "child",
                "costs",
                "--contender",
                contender,
                "--operation",
                value,
            ])
            .args([
                "--keys",
                &keys.to_string(),
                "--times",
                &self.times.to_string(),
            ])
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{contender}, {}: {}", operation.name(), said.trim()).into());
        }
        let operations = crate::child::parse(&String::from_utf8(output.stdout)?)?["operations"];
        let profile = Profile::parse(&fs::read_to_string(&file)?)?;
        if !self.kept {
            fs::remove_file(&file)?;
        }
        let of_kind = self.executed_by_kind(&profile)?;
        self.caches.clone_from(&profile.caches);
        let counts = [
            profile.instructions(),
            of_kind(Kind::Locked) + of_kind(Kind::Fence),
            profile.calls(&ALLOCATING),
            profile.calls(&["free", "cfree"]),
            profile.first_level_misses(),
            profile.last_level_misses(),
            profile.calls(&["clock_gettime"]) + of_kind(Kind::Timestamp),
        ];
        Ok(counts.map(|count| count as f64 / operations))
    }

    /// How many instructions of each kind were executed.
    fn executed_by_kind(
        &mut self,
        profile: &Profile,
    ) -> Result<impl Fn(Kind) -> u64 + use<>, String> {
        let mut counts = Vec::new();
        for (object, executed) in &profile.executed {
            // Instructions that belong to no file (valgrind's own replacements) lock nothing.
            if !Path::new(object).is_file() {
                continue;
            }
            if !self.objects.contains_key(object) {
                self.objects.insert(object.clone(), disassemble(object)?);
            }
            let marked = &self.objects[object];
            counts.extend(
                executed
                    .iter()
                    .filter_map(|(address, times)| Some((*marked.get(address)?, *times))),
            );
        }
        Ok(move |kind| {
            counts
                .iter()
                .filter(|(of, _)| *of == kind)
                .map(|(_, times)| times)
                .sum()
        })
    }
}

/// The counts of one case, with what was read beside them.
fn print_case(report: &Report, case: &str, operation: Operation) {
    let mut table = table();
    let mut head = vec!["contender"];
    head.extend(COLUMNS);
    head.push("locks taken");
    if operation == Operation::Hit {
        head.push("shared lines written");
    }
    table.set_header(head);
    let figures: Vec<&Figure> = report
        .figures()
        .iter()
        .filter(|figure| figure.case == case)
        .collect();
    for row in figures.chunks(COLUMNS.len()) {
        let contender = &row[0].contender;
        let mut cells = vec![contender.clone()];
        cells.extend(row.iter().map(|figure| number(figure.rounds[0])));
        let read = reading::about(contender);
        cells.push(read.map_or(String::new(), |read| {
            match operation.reads() {
                true => read.read_locks,
                false => read.write_locks,
            }
            .to_owned()
        }));
        if operation == Operation::Hit {
            cells.push(read.map_or(String::new(), |read| read.shared_lines.to_owned()));
        }
        table.add_row(cells);
    }
    align(&mut table);
    for words in table.column_iter_mut().skip(1 + COLUMNS.len()) {
        words.set_cell_alignment(CellAlignment::Left);
    }
    println!("{case}\n{table}\n");
}

fn print_readings() {
    let mut table = table();
    table.set_header(["contender", "where its locks and shared writes stand"]);
    for read in &reading::READ {
        table.add_row([read.contender, read.source]);
    }
    println!("\nRead, not counted\n{table}\n");
}
