//! What a figure depends on: the machine, the build, and who else was running.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The lines above the tables: name and value.
pub(crate) fn description(versions: &str) -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let model =
        field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let kernel = first_line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = if cfg!(debug_assertions) {
        "WITH DEBUG ASSERTIONS: no figure means anything"
    } else {
        "optimized"
    };
    let load = first_line("/proc/loadavg").unwrap_or_else(|| "unknown".to_owned());
    let load: Vec<&str> = load.split(' ').take(3).collect();
    vec![
        (
            "machine",
            format!("{model}, {cpus} cores, {} {kernel}", std::env::consts::OS),
        ),
        (
            "build",
            format!("{build}, {}, the system's allocator", compiler()),
        ),
        ("versions", versions.to_owned()),
        (
            "load",
            format!("{} (1, 5, 15 min) at the start", load.join(" ")),
        ),
    ]
}

/// The compiler that cargo would use now.
fn compiler() -> String {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(program).arg("--version").output();
    let said = said
        .ok()
        .and_then(|said| String::from_utf8(said.stdout).ok());
    said.map_or_else(
        || "compiler unknown".to_owned(),
        |said| said.trim().to_owned(),
    )
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches(['\t', ' ', ':']).trim().to_owned())
}

/// Resident bytes of this process; none where the system does not say it in `/proc`.
///
/// From counters that the kernel keeps: looking at every page, which is exact to the page, would
/// hold up the page faults of those who are measured.
pub(crate) fn resident_bytes() -> Option<u64> {
    resident_bytes_of("self")
}

/// The same of another process.
pub(crate) fn resident_bytes_of(process: &str) -> Option<u64> {
    let value = field(&format!("/proc/{process}/status"), "VmRSS:")?;
    Some(value.strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Watches how much of the machine others use.
#[derive(Debug)]
pub(crate) struct Neighbours {
    began: Instant,
    busy: Duration,
    own: Duration,
}

impl Neighbours {
    pub(crate) fn watch() -> Option<Self> {
        Some(Neighbours {
            began: Instant::now(),
            busy: machine_busy()?,
            own: own_busy()?,
        })
    }

    /// The mean number of cores that other processes (and the host, as stolen time) kept busy.
    pub(crate) fn cores_used(&self) -> Option<f64> {
        let busy = machine_busy()?.saturating_sub(self.busy);
        let own = own_busy()?.saturating_sub(self.own);
        Some(busy.saturating_sub(own).as_secs_f64() / self.began.elapsed().as_secs_f64())
    }
}

/// Ticks of 1/100 s, the unit of `/proc` towards programs whatever the kernel counts in.
fn ticks<'a>(words: impl Iterator<Item = &'a str>) -> Duration {
    let sum: u64 = words.filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(sum * 10)
}

/// Busy time of all cores: everything but idle and waiting for devices.
fn machine_busy() -> Option<Duration> {
    let line = first_line("/proc/stat")?;
    // user nice system idle iowait irq softirq steal (guests are within user)
    let columns = line.split_whitespace().skip(1).take(8).enumerate();
    Some(ticks(
        columns
            .filter(|(column, _)| ![3, 4].contains(column))
            .map(|(_, word)| word),
    ))
}

/// Of this process and the children that it has waited for.
fn own_busy() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    // utime stime cutime cstime are the 14th to 17th field, of which two stand before.
    Some(ticks(after_name.split_whitespace().skip(11).take(4)))
}
