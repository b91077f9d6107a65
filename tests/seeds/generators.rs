//! The seed experiments' generators and workloads, checked against the seeds' own
//! figures with plain stores: what fails here is a generator, not the cache.

use std::cell::Cell;

use crate::seeds::books::{self, Branch, LoanStore};
use crate::seeds::figures::{self, DayRow, LibraryRow};
use crate::seeds::library_hour::{ACCESSES, LibraryHour, ReferenceLibrary, Sampling, cost_of_name};
use crate::seeds::random::{CourseLcg, Mulberry32, to_fixed};
use crate::seeds::session_day::{Policy, ReferenceSessions, SessionDay};

#[test]
fn mulberry32_draws_the_seed_sequence() {
    let mut random = Mulberry32::new(20_260_731);
    let first: Vec<u32> = (0..4).map(|_| random.next_u32()).collect();
    assert_eq!(
        first,
        [48_104_559, 1_714_995_426, 1_766_132_378, 1_383_644_106]
    );

    let mut random = Mulberry32::new(20_260_731);
    let sum: u64 = (0..1_000_000).map(|_| u64::from(random.next_u32())).sum();
    assert_eq!(sum, 2_146_586_100_391_361);
}

#[test]
fn course_generator_multiplies_in_floating_point() {
    let mut random = CourseLcg::new(20_240_115);
    let first: Vec<u32> = (0..4).map(|_| random.next_state()).collect();
    assert_eq!(
        first,
        [267_370_416, 1_201_434_176, 749_904_128, 2_065_480_960]
    );

    let mut random = CourseLcg::new(20_240_115);
    let sum: u64 = (0..1_000_000).map(|_| u64::from(random.next_state())).sum();
    assert_eq!(sum, 1_063_623_501_499_454);

    // The integer version leaves the sequence where the file's notes say.
    let integer = |state: u64| (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    let drawn = integer(20_240_115);
    assert_eq!(u64::from(first[0]), drawn, "the first draw is the same");
    assert_ne!(u64::from(first[1]), integer(drawn), "the second is not");
}

#[test]
fn tables_round_ties_away_from_zero() {
    for (value, digits, printed) in [
        (1.625, 2, "1.63"),
        (-1.625, 2, "-1.63"),
        (0.25, 1, "0.3"),
        (0.35, 1, "0.3"),
        (10.25, 1, "10.3"),
        (2.5, 0, "3"),
        (0.5, 0, "1"),
        (1.005, 2, "1.00"),
        (8.345, 2, "8.35"),
        (1e-10, 2, "0.00"),
        (421.35, 1, "421.4"),
        (73.0, 1, "73.0"),
    ] {
        assert_eq!(to_fixed(value, digits), printed, "{value} to {digits}");
    }
}

#[test]
fn keys_cost_what_their_names_say() {
    let hour = LibraryHour::new();
    assert_eq!(hour.keys.len(), 72_000);
    for key in &hour.keys {
        assert_eq!(key.cost(), cost_of_name(&key.name()), "{}", key.name());
    }
    let named: Vec<String> = hour.keys[..3].iter().map(|key| key.name()).collect();
    assert_eq!(named, ["lock:000000", "catalog:000001", "catalog:000002"]);
}

fn assert_library_row(row: &LibraryRow) -> (ReferenceLibrary, u64) {
    let sampling = (row.sample_size > 0).then(|| Sampling::of_size(row.sample_size));
    let mut store = ReferenceLibrary::new(sampling);
    let outcome = LibraryHour::new().play(&mut store);
    let name = row.name;
    assert_eq!(outcome.held.entries, row.held, "{name}: held");
    assert_eq!(outcome.dead.entries, row.dead, "{name}: dead");
    assert_eq!(outcome.dead.bytes, row.dead_bytes, "{name}: dead bytes");
    assert_eq!(
        to_fixed(outcome.dead_share(), 1),
        row.dead_share,
        "{name}: dead share"
    );
    assert_eq!(
        outcome.peak_dead_bytes, row.peak_dead_bytes,
        "{name}: peak dead bytes"
    );
    assert_eq!(
        outcome.dropped_by_access, row.dropped_by_access,
        "{name}: dropped by access"
    );
    assert_eq!(
        to_fixed(outcome.average_delay(), 1),
        row.average_delay,
        "{name}: average delay"
    );
    assert_eq!(outcome.delay_worst, row.worst_delay, "{name}: worst delay");
    assert_eq!(
        store.dropped_by_sampling, row.dropped_by_sampling,
        "{name}: dropped by sampling"
    );
    assert_eq!(store.sampled, row.sampled, "{name}: sampled");
    assert_eq!(
        outcome.hits + outcome.missing + outcome.dropped_by_access,
        ACCESSES,
        "{name}: accesses"
    );
    (store, outcome.held.bytes)
}

#[test]
fn library_hour_cleaned_on_access_alone() {
    let (store, bytes) = assert_library_row(&figures::LAZY_ONLY);
    assert_eq!(bytes, figures::LAZY_ONLY_BYTES);
    assert_eq!(store.rounds, 0);
}

#[test]
fn library_hour_with_sampling() {
    for row in &figures::SAMPLED {
        let (store, bytes) = assert_library_row(row);
        if row.sample_size == 20 {
            assert_eq!(bytes, figures::SAMPLE_20_BYTES);
            assert_eq!(store.rounds, figures::SAMPLE_20_ROUNDS);
            assert_eq!(
                to_fixed(store.sampled as f64 / ACCESSES as f64, 3),
                figures::SAMPLE_20_TOUCHES_PER_ACCESS
            );
        }
    }
    let gained: Vec<String> = figures::SAMPLED
        .windows(2)
        .map(|pair| {
            let bytes = pair[0].dead_bytes - pair[1].dead_bytes;
            let samples = pair[1].sampled - pair[0].sampled;
            to_fixed(bytes as f64 / samples as f64, 1)
        })
        .collect();
    assert_eq!(gained, figures::BYTES_GAINED_PER_SAMPLE);
}

#[test]
fn session_day_in_all_seven_columns() {
    let day = SessionDay::new();
    assert_eq!(day.touches.len(), figures::DAY_TOUCHES);
    for (policy, row) in [
        (Policy::NoExpiration, figures::DAY_NO_EXPIRATION),
        (Policy::Fixed, figures::DAY_FIXED),
        (Policy::Sliding, figures::DAY_SLIDING),
    ] {
        let DayRow { name, .. } = row;
        let outcome = day.play(&mut ReferenceSessions::new(policy));
        assert_eq!(outcome.peak.entries, row.peak_entries, "{name}");
        assert_eq!(outcome.peak.bytes, row.peak_bytes, "{name}");
        assert_eq!(outcome.end.entries, row.end_entries, "{name}");
        assert_eq!(outcome.end.bytes, row.end_bytes, "{name}");
        assert_eq!(outcome.misses, row.misses, "{name}");
        assert_eq!(outcome.extra_entries(), row.extra_entries, "{name}");
    }
}

#[test]
fn questions_about_books_are_the_seed_s() {
    let queries = books::queries();
    assert_eq!(
        queries[..8],
        [1, 6_133, 363, 158_336, 25_524, 2, 17, 1],
        "the first questions"
    );
    let sum: u64 = queries.iter().map(|&book| u64::from(book)).sum();
    assert_eq!(sum, 292_387_518);
    // The order too: a rolling sum over all of them.
    let rolling = queries
        .iter()
        .fold(7u64, |sum, &book| (sum * 31 + u64::from(book)) % 1_000_003);
    assert_eq!(rolling, 846_576);
    assert_eq!(books::loan_key(427), "book:100427:loan");
    assert_eq!(books::loan_count(427), 2_214);
}

#[derive(Debug, Default)]
struct PlainCount(Cell<i64>);

impl LoanStore for PlainCount {
    fn read(&self) -> i64 {
        self.0.get()
    }

    fn write(&self, count: i64) {
        self.0.set(count);
    }

    fn increment(&self) {
        self.0.set(self.0.get() + 1);
    }
}

fn counted<B: Branch>(
    branches: usize,
    branch: impl Fn() -> B,
    store: &PlainCount,
    trips: &Cell<u64>,
) -> (i64, u64) {
    books::run_schedule((0..branches).map(|_| branch()).collect());
    (store.read(), trips.get())
}

#[test]
fn counter_schedule_loses_what_the_seed_lost() {
    for row in &figures::COUNTER {
        let (store, trips) = (PlainCount::default(), Cell::new(0));
        let (count, round_trips) = counted(
            row.branches,
            || books::ReadModifyWrite::new(&store, &trips),
            &store,
            &trips,
        );
        assert_eq!(count, row.read_modify_write, "{} branches", row.branches);
        assert_eq!(row.expected - count, row.lost, "{} branches", row.branches);
        assert_eq!(round_trips, row.round_trips, "{} branches", row.branches);

        let (store, trips) = (PlainCount::default(), Cell::new(0));
        let (count, round_trips) = counted(
            row.branches,
            || books::Increment::new(&store, &trips),
            &store,
            &trips,
        );
        assert_eq!(count, row.expected, "{} branches", row.branches);
        assert_eq!(
            round_trips,
            row.round_trips / 2,
            "{} branches",
            row.branches
        );
    }
}
