//! The seed experiments: their random generators, their workloads, plain
//! reference stores and the figures that they must come to.
//!
//! Every workload here is independent of what it is played into. The reference
//! stores are the simplest thing that can hold it, so that a wrong generator
//! shows itself without the cache; the cache's own tests and the
//! `library_hour` example play the same workloads into [`ebbtide::Cache`].

// Each test binary includes the whole folder and uses its own part of it.
#![allow(dead_code)]

pub(crate) mod books;
pub(crate) mod figures;
pub(crate) mod library_cache;
pub(crate) mod library_hour;
pub(crate) mod random;
pub(crate) mod session_day;
