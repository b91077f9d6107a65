//! What the seeds' own programs print, digit for digit.

/// A row of the library hour's two tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LibraryRow {
    pub(crate) name: &'static str,
    /// Entries sampled in a round; zero: no background cleaning.
    pub(crate) sample_size: usize,
    pub(crate) held: u64,
    pub(crate) dead: u64,
    pub(crate) dead_bytes: u64,
    /// Percent of the bytes held, one decimal.
    pub(crate) dead_share: &'static str,
    pub(crate) peak_dead_bytes: u64,
    pub(crate) dropped_by_access: u64,
    /// Seconds, one decimal.
    pub(crate) average_delay: &'static str,
    /// Seconds.
    pub(crate) worst_delay: u32,
    pub(crate) dropped_by_sampling: u64,
    pub(crate) sampled: u64,
}

impl LibraryRow {
    /// The dead share as a number, in percent.
    pub(crate) fn dead_share_percent(&self) -> f64 {
        self.dead_share
            .parse()
            .expect("the printed share is a number")
    }
}

/// The library hour, cleaned on access alone.
pub(crate) const LAZY_ONLY: LibraryRow = LibraryRow {
    name: "lazy only",
    sample_size: 0,
    held: 39_714,
    dead: 29_205,
    dead_bytes: 2_964_300,
    dead_share: "73.5",
    peak_dead_bytes: 2_964_300,
    dropped_by_access: 32_286,
    average_delay: "421.4",
    worst_delay: 3_500,
    dropped_by_sampling: 0,
    sampled: 0,
};

/// The library hour with rounds of sampling.
pub(crate) const SAMPLED: [LibraryRow; 3] = [
    LibraryRow {
        name: "sample 5",
        sample_size: 5,
        held: 20_891,
        dead: 10_382,
        dead_bytes: 1_053_954,
        dead_share: "49.6",
        peak_dead_bytes: 1_113_648,
        dropped_by_access: 23_572,
        average_delay: "206.5",
        worst_delay: 3_009,
        dropped_by_sampling: 27_537,
        sampled: 62_375,
    },
    LibraryRow {
        name: "sample 20",
        sample_size: 20,
        held: 14_460,
        dead: 3_951,
        dead_bytes: 401_040,
        dead_share: "27.2",
        peak_dead_bytes: 414_303,
        dropped_by_access: 16_649,
        average_delay: "68.1",
        worst_delay: 1_563,
        dropped_by_sampling: 40_891,
        sampled: 167_200,
    },
    LibraryRow {
        name: "sample 100",
        sample_size: 100,
        held: 12_539,
        dead: 2_030,
        dead_bytes: 205_941,
        dead_share: "16.1",
        peak_dead_bytes: 212_913,
        dropped_by_access: 12_772,
        average_delay: "30.7",
        worst_delay: 781,
        dropped_by_sampling: 46_689,
        sampled: 362_500,
    },
];

/// Bytes held at the end with cleaning on access alone.
pub(crate) const LAZY_ONLY_BYTES: u64 = 4_035_180;
/// Bytes held at the end with 20 samples a round.
pub(crate) const SAMPLE_20_BYTES: u64 = 1_471_920;
/// Rounds with 20 samples each.
pub(crate) const SAMPLE_20_ROUNDS: u64 = 8_360;
/// Entries sampled for each access, with 20 samples a round.
pub(crate) const SAMPLE_20_TOUCHES_PER_ACCESS: &str = "0.774";
/// Dead bytes gained for each further sample: from 5 to 20, from 20 to 100.
pub(crate) const BYTES_GAINED_PER_SAMPLE: [&str; 2] = ["6.2", "1.0"];

/// A row of the session day's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DayRow {
    pub(crate) name: &'static str,
    pub(crate) peak_entries: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) end_entries: u64,
    pub(crate) end_bytes: u64,
    pub(crate) misses: u64,
    pub(crate) extra_entries: u64,
}

/// Touches of the session day.
pub(crate) const DAY_TOUCHES: usize = 59_337;

pub(crate) const DAY_NO_EXPIRATION: DayRow = DayRow {
    name: "no expiration",
    peak_entries: 20_000,
    peak_bytes: 2_600_406,
    end_entries: 20_000,
    end_bytes: 2_600_406,
    misses: 20_000,
    extra_entries: 0,
};

pub(crate) const DAY_FIXED: DayRow = DayRow {
    name: "fixed expiration",
    peak_entries: 2_193,
    peak_bytes: 285_185,
    end_entries: 28,
    end_bytes: 3_644,
    misses: 36_951,
    extra_entries: 16_951,
};

pub(crate) const DAY_SLIDING: DayRow = DayRow {
    name: "sliding expiration",
    peak_entries: 2_658,
    peak_bytes: 345_617,
    end_entries: 29,
    end_bytes: 3_769,
    misses: 31_182,
    extra_entries: 11_182,
};

/// A shape in which a session is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapeRow {
    pub(crate) key_format: &'static str,
    pub(crate) key_bytes: u64,
    pub(crate) value_format: &'static str,
    pub(crate) value_bytes: u64,
    pub(crate) entry_bytes: u64,
    pub(crate) at_20_000: u64,
}

const fn shape(
    key_format: &'static str,
    value_format: &'static str,
    [key_bytes, value_bytes, entry_bytes, at_20_000]: [u64; 4],
) -> ShapeRow {
    ShapeRow {
        key_format,
        key_bytes,
        value_format,
        value_bytes,
        entry_bytes,
        at_20_000,
    }
}

/// The six shapes.
pub(crate) const SHAPES: [ShapeRow; 6] = [
    shape("long", "self-describing", [29, 53, 138, 2_760_000]),
    shape("long", "positional", [29, 22, 107, 2_140_000]),
    shape("plain", "self-describing", [23, 53, 132, 2_640_000]),
    shape("plain", "positional", [23, 22, 101, 2_020_000]),
    shape("short", "self-describing", [12, 53, 121, 2_420_000]),
    shape("short", "positional", [12, 22, 90, 1_800_000]),
];

/// All 20,000 sessions, each with its own key and value.
pub(crate) const ALL_SESSIONS_BYTES: u64 = 2_600_406;

/// A way to answer how often a book was lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetRow {
    pub(crate) name: &'static str,
    /// Counters held, for the books from one on.
    pub(crate) entries: u32,
    pub(crate) bytes: u64,
    /// One decimal.
    pub(crate) steps_per_query: &'static str,
    /// One decimal; none where nothing is held.
    pub(crate) steps_prevented_per_byte: Option<&'static str>,
}

pub(crate) const BUDGET: [BudgetRow; 3] = [
    BudgetRow {
        name: "no counter",
        entries: 0,
        bytes: 0,
        steps_per_query: "119993.0",
        steps_prevented_per_byte: None,
    },
    BudgetRow {
        name: "partial counter",
        entries: 1_000,
        bytes: 75_662,
        steps_per_query: "70208.3",
        steps_prevented_per_byte: Some("6579.9"),
    },
    BudgetRow {
        name: "full counter",
        entries: 200_000,
        bytes: 15_145_901,
        steps_per_query: "1.0",
        steps_prevented_per_byte: Some("79.2"),
    },
];

/// The full counter's bytes: keys, values, overhead.
pub(crate) const FULL_COUNTER_PARTS: [u64; 3] = [3_200_000, 745_901, 11_200_000];
/// Bytes of an entry of the full counter, one decimal.
pub(crate) const FULL_COUNTER_PER_ENTRY: &str = "75.7";
/// The values' part of the full counter, in percent, one decimal.
pub(crate) const FULL_COUNTER_VALUE_SHARE: &str = "4.9";
/// Questions that the partial counter answers.
pub(crate) const HOT_QUERIES: u64 = 4_149;
/// Those as a part of all questions, in percent, one decimal.
pub(crate) const HOT_QUERIES_SHARE: &str = "41.5";

/// A row of the counter's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRow {
    pub(crate) branches: usize,
    pub(crate) expected: i64,
    /// Counted by reading and writing back.
    pub(crate) read_modify_write: i64,
    pub(crate) lost: i64,
    /// Round trips of reading and writing back; incrementing takes half.
    pub(crate) round_trips: u64,
}

const fn counter(
    branches: usize,
    read_modify_write: i64,
    lost: i64,
    round_trips: u64,
) -> CounterRow {
    CounterRow {
        branches,
        expected: branches as i64 * 500,
        read_modify_write,
        lost,
        round_trips,
    }
}

pub(crate) const COUNTER: [CounterRow; 5] = [
    counter(1, 500, 0, 1_000),
    counter(2, 620, 380, 2_000),
    counter(4, 747, 1_253, 4_000),
    counter(8, 871, 3_129, 8_000),
    counter(16, 938, 7_062, 16_000),
];
