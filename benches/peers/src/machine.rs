//! What a figure depends on: the machine, the build, and who else was running.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The lines above every table: name and value.
pub(crate) fn description() -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        (
            "cpu",
            format!("{}, {cpus} cores", cpuinfo("model name").trim()),
        ),
        (
            "kernel",
            format!(
                "Linux {}, transparent huge pages {}",
                first_line("/proc/sys/kernel/osrelease"),
                chosen(&first_line("/sys/kernel/mm/transparent_hugepage/enabled")),
            ),
        ),
        (
            "build",
            format!(
                "{}, {}, profile {}, opt-level {}, no LTO, RUSTFLAGS {:?}, system allocator",
                env!("PEERS_RUSTC"),
                env!("PEERS_TARGET"),
                env!("PEERS_PROFILE"),
                env!("PEERS_OPT_LEVEL"),
                env!("PEERS_RUSTFLAGS"),
            ),
        ),
        ("crates", env!("PEERS_VERSIONS").to_owned()),
        (
            "load",
            format!("{} (1, 5, 15 min) at the start", load_average()),
        ),
    ]
}

fn cpuinfo(field: &str) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.to_owned())
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The word in brackets: `always [madvise] never`.
fn chosen(options: &str) -> &str {
    options
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(options, |(word, _)| word)
}

fn load_average() -> String {
    let line = first_line("/proc/loadavg");
    let words: Vec<&str> = line.split(' ').take(3).collect();
    words.join(" ")
}

/// Resident memory of this process in bytes.
///
/// From `smaps_rollup`, which walks the page tables: `statm` and `status` read
/// counters that the kernel batches per core and may be hundreds of pages off.
pub(crate) fn resident_bytes() -> u64 {
    field_kib("/proc/self/smaps_rollup", "Rss:")
        .or_else(|| field_kib("/proc/self/status", "VmRSS:"))
        .expect("/proc names this process's resident memory")
        * 1024
}

/// The most resident memory this process ever had, in bytes.
pub(crate) fn peak_resident_bytes() -> u64 {
    field_kib("/proc/self/status", "VmHWM:")
        .expect("/proc names this process's peak of resident memory")
        * 1024
}

fn field_kib(path: &str, field: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(field))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

/// Processor time that this process (all its threads) has used.
pub(crate) fn own_cpu_time() -> Duration {
    cpu_time(UsageWho::RUSAGE_SELF)
}

fn cpu_time(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("getrusage takes both kinds");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Watches how much of the machine others use while a benchmark runs.
pub(crate) struct Neighbours {
    began: Instant,
    busy: Duration,
    own: Duration,
}

impl Neighbours {
    pub(crate) fn watch() -> Self {
        Self {
            began: Instant::now(),
            busy: machine_busy(),
            own: own_and_children(),
        }
    }

    /// The mean number of cores that other processes (and the host, as stolen
    /// time) kept busy since `watch`.
    pub(crate) fn cores_used(&self) -> f64 {
        let busy = machine_busy().saturating_sub(self.busy);
        let own = own_and_children().saturating_sub(self.own);
        busy.saturating_sub(own).as_secs_f64() / self.began.elapsed().as_secs_f64()
    }
}

/// Children count once they have ended and been waited for.
fn own_and_children() -> Duration {
    own_cpu_time() + cpu_time(UsageWho::RUSAGE_CHILDREN)
}

/// Busy time of all cores since boot: everything in `/proc/stat` but idle and
/// waiting for devices. Its unit is always 1/100 s.
fn machine_busy() -> Duration {
    let line = first_line("/proc/stat");
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal (guests are within user)
    let busy: u64 = ticks
        .iter()
        .take(8)
        .enumerate()
        .filter(|(column, _)| ![3, 4].contains(column))
        .map(|(_, ticks)| ticks)
        .sum();
    Duration::from_millis(busy * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_option_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("unknown"), "unknown");
    }

    #[test]
    fn resident_memory_grows_by_what_is_touched() {
        let before = resident_bytes();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let grown = resident_bytes() - before;
        assert!((64 << 20..72 << 20).contains(&grown), "{grown}");
        assert!(peak_resident_bytes() >= grown);
        drop(block);
    }

    #[test]
    fn spinning_is_seen_as_own_time() {
        let before = own_cpu_time();
        let busy_before = machine_busy();
        let began = Instant::now();
        while own_cpu_time() - before < Duration::from_millis(200) {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert!(machine_busy() - busy_before >= Duration::from_millis(150));
    }
}
