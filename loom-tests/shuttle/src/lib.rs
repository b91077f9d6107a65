//! Schedules of whole caches: many steps, three and more threads, chosen at random and by PCT.
//!
//! [`check`] runs a scenario under a seeded portfolio of schedulers and says how to run a failure
//! again; [`Books`] judges what the threads saw; [`Mix`] is the scenario that most tests are cases
//! of.

#[cfg(not(ebbtide_shuttle))]
compile_error!("the schedules only mean something with `--cfg ebbtide_shuttle`: use ./run");

mod books;
mod mix;
mod ops;
mod random;
mod runner;

pub use books::{Books, Value};
pub use mix::{Fixed, Kind, Mix, moment, settle};
pub use random::Random;
pub use runner::{check, check_replayable, must_fail};

/// One lane unit, in nanoseconds: deadlines and clock steps are whole ones, so that the sweep's
/// slices of real time decide nothing and every schedule can be replayed.
pub const UNIT: u64 = 1 << 26;
