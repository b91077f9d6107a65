//! The library hour's generator, as the library's own tests and examples have it.
#![allow(
    dead_code,
    reason = "the files are shared, and this uses a part of them"
)]

#[path = "../../../../tests/common/seeds/library_hour.rs"]
pub(super) mod library_hour;
#[path = "../../../../tests/common/seeds/random.rs"]
mod random;
