//! The books' loan counters: what they cost, the questions asked of them, and the
//! seeded schedule in which branches count loans.

use super::random::CourseLcg;
use super::session_day::SEED;

/// Books in the catalog, numbered from one.
pub(crate) const BOOKS: u32 = 200_000;
/// Books that the partial counter covers.
pub(crate) const HOT_BOOKS: u32 = 1_000;
/// Records in the loan ledger: what a question costs that no counter answers.
pub(crate) const LEDGER: u64 = 119_993;
/// Questions asked.
pub(crate) const QUERIES: usize = 10_000;
/// Loans that each branch records.
pub(crate) const LOANS_EACH: u32 = 500;
/// The book whose loans the branches record.
pub(crate) const POPULAR_BOOK: u32 = 427;

/// Key of a book's loan counter.
pub(crate) fn loan_key(book: u32) -> String {
    format!("book:{}:loan", 100_000 + book)
}

/// Loans of a book, 1 to 4,096.
pub(crate) fn loan_count(book: u32) -> u64 {
    1 + u64::from(book) * 7_919 % 4_096
}

/// The books asked for, in order; skewed to the low numbers.
pub(crate) fn queries() -> Vec<u32> {
    let mut random = CourseLcg::new(SEED);
    (0..QUERIES)
        .map(|_| 1 + (f64::from(BOOKS) * random.next_unit().powi(6)) as u32)
        .collect()
}

/// A branch that records loans in steps; between two steps others may run.
pub(crate) trait Branch {
    /// Takes the next step; false when there was none left to take.
    fn step(&mut self) -> bool;
}

/// Runs the branches to their end, one step at a time, in the seeded order.
pub(crate) fn run_schedule(mut branches: Vec<impl Branch>) {
    let mut random = CourseLcg::new(SEED);
    while !branches.is_empty() {
        let chosen = random.next_below(branches.len());
        if !branches[chosen].step() {
            branches.remove(chosen);
        }
    }
}

/// The two ways to count a loan, each call one round trip to the store.
pub(crate) trait LoanStore {
    /// Reads the count; zero if there is none.
    fn read(&self) -> i64;
    fn write(&self, count: i64);
    /// Counts one loan in a single step.
    fn increment(&self);
}

/// Counts by reading, adding one and writing back, with others between.
#[derive(Debug)]
pub(crate) struct ReadModifyWrite<'a, S> {
    store: &'a S,
    left: u32,
    seen: Option<i64>,
    /// Round trips made by all branches.
    trips: &'a std::cell::Cell<u64>,
}

impl<'a, S> ReadModifyWrite<'a, S> {
    pub(crate) fn new(store: &'a S, trips: &'a std::cell::Cell<u64>) -> Self {
        Self {
            store,
            left: LOANS_EACH,
            seen: None,
            trips,
        }
    }
}

impl<S: LoanStore> Branch for ReadModifyWrite<'_, S> {
    fn step(&mut self) -> bool {
        match self.seen.take() {
            Some(count) => {
                self.store.write(count + 1);
                self.left -= 1;
            }
            None if self.left == 0 => return false,
            None => self.seen = Some(self.store.read()),
        }
        self.trips.set(self.trips.get() + 1);
        true
    }
}

/// Counts with the store's own increment.
#[derive(Debug)]
pub(crate) struct Increment<'a, S> {
    store: &'a S,
    left: u32,
    /// Round trips made by all branches.
    trips: &'a std::cell::Cell<u64>,
}

impl<'a, S> Increment<'a, S> {
    pub(crate) fn new(store: &'a S, trips: &'a std::cell::Cell<u64>) -> Self {
        Self {
            store,
            left: LOANS_EACH,
            trips,
        }
    }
}

impl<S: LoanStore> Branch for Increment<'_, S> {
    fn step(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.store.increment();
        self.left -= 1;
        self.trips.set(self.trips.get() + 1);
        true
    }
}
