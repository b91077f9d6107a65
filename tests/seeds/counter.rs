//! Loans counted by several branches: what reading and writing back loses, and
//! that the cache's own increment loses nothing, in the seed's schedule and under
//! real threads.

use std::cell::Cell;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Counter, ManualClock};

use crate::seeds::books::{self, LOANS_EACH, LoanStore, POPULAR_BOOK};
use crate::seeds::figures;

/// A number in the cache that is replaced by each write.
struct Replaced {
    cache: Cache<String, i64>,
    key: String,
}

impl LoanStore for Replaced {
    fn read(&self) -> i64 {
        self.cache.get(&self.key).unwrap_or(0)
    }

    fn write(&self, count: i64) {
        self.cache.insert(self.key.clone(), count);
    }

    fn increment(&self) {
        unreachable!("this store is read and written back");
    }
}

/// A counter in the cache.
struct Counted {
    cache: Cache<String, Counter>,
    key: String,
}

impl Counted {
    fn total(&self) -> i64 {
        self.cache.get(&self.key).map_or(0, |counter| counter.get())
    }
}

impl LoanStore for Counted {
    fn read(&self) -> i64 {
        self.total()
    }

    fn write(&self, _: i64) {
        unreachable!("this store is incremented");
    }

    fn increment(&self) {
        self.cache
            .increment(self.key.as_str(), 1)
            .expect("far from the end of the range");
    }
}

fn key() -> String {
    books::loan_key(POPULAR_BOOK)
}

#[test]
fn get_then_insert_loses_exactly_what_the_seed_lost() {
    for row in &figures::COUNTER {
        let store = Replaced {
            cache: Cache::builder()
                .clock(ManualClock::new())
                .build()
                .expect("valid settings"),
            key: key(),
        };
        let trips = Cell::new(0);
        books::run_schedule(
            (0..row.branches)
                .map(|_| books::ReadModifyWrite::new(&store, &trips))
                .collect(),
        );
        let count = store.read();
        assert_eq!(count, row.read_modify_write, "{} branches", row.branches);
        assert_eq!(row.expected - count, row.lost, "{} branches", row.branches);
        assert_eq!(trips.get(), row.round_trips, "{} branches", row.branches);
        assert_eq!(store.cache.entry_count(), 1);
    }
}

#[test]
fn increment_loses_nothing_in_the_seed_schedule() {
    for row in &figures::COUNTER {
        let store = Counted {
            cache: Cache::builder()
                .clock(ManualClock::new())
                .build()
                .expect("valid settings"),
            key: key(),
        };
        let trips = Cell::new(0);
        books::run_schedule(
            (0..row.branches)
                .map(|_| books::Increment::new(&store, &trips))
                .collect(),
        );
        assert_eq!(store.total(), row.expected, "{} branches", row.branches);
        let halved = row.round_trips / 2;
        assert_eq!(trips.get(), halved, "{} branches", row.branches);
        assert_eq!(store.cache.entry_count(), 1);
    }
}

/// Every increment must return a number that no other returned, and together they
/// must be all numbers from one to the total.
fn assert_counts_without_a_gap(mut returned: Vec<i64>) {
    returned.sort_unstable();
    let expected: Vec<i64> = (1..=returned.len() as i64).collect();
    assert_eq!(returned, expected);
}

fn count_with_threads(cache: &Cache<String, Counter>, threads: usize) {
    let start = Barrier::new(threads);
    let returned: Vec<i64> = thread::scope(|scope| {
        let branches: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    (0..LOANS_EACH)
                        .map(|_| {
                            cache
                                .increment(key().as_str(), 1)
                                .expect("far from the end of the range")
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        branches
            .into_iter()
            .flat_map(|branch| branch.join().expect("a branch panicked"))
            .collect()
    });
    assert_eq!(returned.len(), threads * LOANS_EACH as usize);
    assert_counts_without_a_gap(returned);
    let total = cache.get(&key()).map(|counter| counter.get());
    assert_eq!(total, Some((threads * LOANS_EACH as usize) as i64));
}

#[test]
fn increment_by_1_to_16_threads_loses_nothing() {
    for threads in 1..=16 {
        count_with_threads(&Cache::unbounded(), threads);
    }
}

#[test]
fn increment_by_16_threads_loses_nothing_with_a_lifetime() {
    let cache = Cache::builder()
        .time_to_live(Duration::from_secs(3_600))
        .build()
        .expect("valid settings");
    count_with_threads(&cache, 16);
}
