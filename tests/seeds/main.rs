//! The experiments of the documents that the project began with, and every figure of their tables.

#[path = "../common/seeds/mod.rs"]
mod seeds;

mod counter;
mod generators;
mod library_hour;
mod session_day;
mod shapes;
