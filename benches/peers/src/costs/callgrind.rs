//! What callgrind wrote: how often each instruction was executed, and what that cost.

use std::collections::HashMap;

/// The events that are summed, as callgrind names them.
const EVENTS: [&str; 5] = ["Ir", "D1mr", "D1mw", "DLmr", "DLmw"];

/// A profile with `--dump-instr=yes`, without compression.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Profile {
    /// Sums over everything that was collected, in the order of [`EVENTS`].
    sums: [u64; 5],
    /// Executions by object and address within it.
    pub(super) executed: HashMap<String, HashMap<u64, u64>>,
    /// Lowest address of each function, and its executions: how often it was called, as functions
    /// of the C library begin at their lowest address and do not jump there.
    entries: HashMap<String, (u64, u64)>,
    /// The simulated caches, as callgrind describes them.
    pub(super) caches: Vec<String>,
}

impl Profile {
    pub(super) fn instructions(&self) -> u64 {
        self.sums[0]
    }

    /// Data reads and writes that missed the first level.
    pub(super) fn first_level_misses(&self) -> u64 {
        self.sums[1] + self.sums[2]
    }

    /// Data reads and writes that missed the last level.
    pub(super) fn last_level_misses(&self) -> u64 {
        self.sums[3] + self.sums[4]
    }

    /// Calls of the functions called `names`, whatever symbol version or copy.
    pub(super) fn calls(&self, names: &[&str]) -> u64 {
        self.entries
            .iter()
            .filter(|(name, _)| {
                let plain = name.split(['@', '\'']).next().unwrap_or_default();
                names.contains(&plain)
            })
            .map(|(_, (_, executed))| executed)
            .sum()
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut profile = Self::default();
        let mut columns: Option<Vec<Option<usize>>> = None;
        let mut positions = 0;
        let (mut object, mut function) = (String::new(), String::new());
        let mut inclusive = false;
        for line in text.lines() {
            if line.starts_with("0x") {
                // The line after `calls=` has the callee's cost, which its own lines have too.
                if std::mem::take(&mut inclusive) {
                    continue;
                }
                let columns = columns.as_ref().ok_or("costs before `events:`")?;
                let faulty = || format!("not a line of costs: {line:?}");
                let mut words = line.split(' ');
                let address = words.next().and_then(|word| word.strip_prefix("0x"));
                let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let address = address.ok_or_else(faulty)?;
                let mut once = 0;
                for (column, word) in words.skip(positions - 1).enumerate() {
                    let cost: u64 = word.parse().map_err(|_| faulty())?;
                    if let Some(&Some(event)) = columns.get(column) {
                        profile.sums[event] += cost;
                        if event == 0 {
                            once = cost;
                        }
                    }
                }
                if once > 0 {
                    let of_object = profile.executed.entry(object.clone()).or_default();
                    *of_object.entry(address).or_default() += once;
                    let entry = profile
                        .entries
                        .entry(function.clone())
                        .or_insert((address, 0));
                    if address < entry.0 {
                        *entry = (address, 0);
                    }
                    if address == entry.0 {
                        entry.1 += once;
                    }
                }
            } else if let Some(path) = line.strip_prefix("ob=") {
                path.clone_into(&mut object);
            } else if let Some(name) = line.strip_prefix("fn=") {
                name.clone_into(&mut function);
            } else if line.starts_with("calls=") {
                inclusive = true;
            } else if let Some(names) = line.strip_prefix("positions:") {
                positions = names.split_whitespace().count();
            } else if let Some(names) = line.strip_prefix("events:") {
                let place = |name| EVENTS.iter().position(|event| *event == name);
                let found: Vec<_> = names.split_whitespace().map(place).collect();
                if found.iter().flatten().count() != EVENTS.len() || positions == 0 {
                    return Err(format!("callgrind counted only{names}"));
                }
                columns = Some(found);
            } else if let Some(description) = line.strip_prefix("desc: ")
                && (description.starts_with("D1 cache") || description.starts_with("LL cache"))
            {
                profile.caches.push(description.to_owned());
            }
        }
        if profile.sums[0] == 0 {
            return Err("callgrind collected nothing".to_owned());
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
desc: I1 cache: 32768 B, 64 B, 8-way associative
desc: D1 cache: 32768 B, 64 B, 8-way associative
desc: LL cache: 8388608 B, 64 B, 16-way associative
positions: instr line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw

ob=/bin/program
fl=main.rs
fn=work
0x10 3 5 5 0 0 2 0 0 1
0x14 4 5
cob=/lib/libc.so
cfn=malloc
calls=5 0x900 0
0x18 4 500 1 1 1 7 7 7 7 7
0x18 4 5 0 5 0 0 3 0 0 2

ob=/lib/libc.so
fn=malloc@@GLIBC_2.2.5
0x904 0 15
0x900 0 5
totals: 535
";

    #[test]
    fn costs_are_summed_without_those_of_callees() {
        let profile = Profile::parse(TEXT).unwrap();
        assert_eq!(profile.instructions(), 35);
        assert_eq!(profile.first_level_misses(), 5);
        assert_eq!(profile.last_level_misses(), 3);
        assert_eq!(profile.executed["/bin/program"][&0x18], 5);
        assert_eq!(profile.executed["/lib/libc.so"][&0x904], 15);
        assert_eq!(profile.calls(&["malloc", "calloc"]), 5);
        assert_eq!(profile.calls(&["free"]), 0);
        assert_eq!(profile.caches.len(), 2);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        assert!(Profile::parse("").is_err());
        assert!(Profile::parse("positions: instr\nevents: Ir\n0x1 5\n").is_err());
        assert!(Profile::parse("0x1 5\n").is_err());
        assert!(Profile::parse(&TEXT.replace("0x904 0 15", "0x904 0 many")).is_err());
    }
}
