//! Two caches fed by one log that never diverge: a primary, which alone decides when an entry ends, and
//! followers, which hide what is over by their own clocks and remove it when the primary's
//! [feed](Removals) says so.

mod feed;
mod follower;

pub(crate) use feed::{Feed, Source};
pub use feed::{Lagged, Removal, Removals};
pub use follower::Follower;
