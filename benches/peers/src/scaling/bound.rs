//! What a contended cache line allows at most, however many cores there are.

/// The lines that threads which do the same operation on the same key must have for themselves,
/// one after another.
#[derive(Debug)]
pub(super) struct Hot {
    pub(super) operation: &'static str,
    pub(super) contender: &'static str,
    /// Fewest exclusive transfers of such a line per operation; those that must follow one another
    /// add up. (A thread that gets the same line twice in one operation may be lucky: once.)
    pub(super) transfers: u32,
    /// Which lines.
    pub(super) lines: &'static str,
    /// Contended for whatever the keys, too.
    pub(super) any_key: bool,
}

const fn hot(
    operation: &'static str,
    contender: &'static str,
    transfers: u32,
    lines: &'static str,
    any_key: bool,
) -> Hot {
    Hot {
        operation,
        contender,
        transfers,
        lines,
        any_key,
    }
}

const READ: &str = "read hits of one key";
const ADD: &str = "increments of one key";

/// By reading, as `costs` has it with files and functions.
pub(super) const HOT: [Hot; 14] = [
    hot(
        READ,
        "ebbtide",
        0,
        "none: a read writes its thread's epoch record",
        false,
    ),
    hot(READ, "papaya", 0, "none: its thread's reservation", false),
    hot(READ, "scc HashIndex", 0, "none: its thread's record", false),
    hot(
        READ,
        "TinyUFO",
        0,
        "none once the entry's use count is full",
        false,
    ),
    hot(READ, "dashmap", 1, "the shard's lock", false),
    hot(READ, "scc", 1, "the bucket's lock", false),
    hot(READ, "quick_cache", 1, "the shard's lock", false),
    hot(
        READ,
        "moka",
        1,
        "the read log's tail (the entry's count overlaps)",
        true,
    ),
    hot(
        READ,
        "mini-moka",
        1,
        "the read log's tail (lock and count overlap)",
        true,
    ),
    hot(ADD, "ebbtide", 1, "the counter", false),
    hot(ADD, "papaya atomic", 1, "the counter", false),
    hot(ADD, "papaya update", 1, "the table's slot", false),
    hot(
        ADD,
        "dashmap entry",
        2,
        "the shard's lock, then the value",
        false,
    ),
    hot(
        ADD,
        "scc entry",
        2,
        "the bucket's lock, then the value",
        false,
    ),
];

impl Hot {
    /// Most operations per second of all threads together, in millions, if handing a line from one
    /// core to another takes `transfer` ns; `None`: these lines set no limit.
    pub(super) fn most(&self, transfer: f64) -> Option<f64> {
        (self.transfers > 0).then(|| 1e3 / (f64::from(self.transfers) * transfer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_takes_fifty_nanoseconds_allows_twenty_million() {
        assert_eq!(hot(READ, "one", 1, "", false).most(50.0), Some(20.0));
        assert_eq!(hot(READ, "two", 2, "", false).most(100.0), Some(5.0));
        assert_eq!(hot(READ, "none", 0, "", false).most(50.0), None);
    }
}
