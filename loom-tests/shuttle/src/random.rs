//! The scenarios' own choices: what each thread does.

use shuttle::rand::{RngCore, thread_rng};

/// A small generator (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// One whose choices belong to the schedule: a replay makes the same.
    pub fn of_schedule() -> Self {
        Random(thread_rng().next_u64())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("smaller than a usize")
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
