//! Faults that real caches had, a module for each kind. Those that need a process of their own are
//! beside this directory.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod counters;
mod extensions;
mod handles;
mod keys;
mod lease;
mod lifetimes;
mod listeners;
mod memory;
mod panics;
mod pins;
mod races;
mod threads;
mod waves;
mod weights;
