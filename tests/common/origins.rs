//! Every way in which an entry gets a deadline.

use std::time::Instant;

use ebbtide::{Builder, Clock, Lifetime, Op};

use super::matrix::{Config, Rig};
use super::{S, Tracked};

/// The key of tests with one.
pub(crate) const KEY: u64 = 7;

/// A way to give an entry a deadline; returns it.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    pub(crate) settings: fn(Builder<u64, Tracked>) -> Builder<u64, Tracked>,
    /// Stores the entry; the deadline is 10 s after the clock's zero unless this says otherwise.
    pub(crate) store: fn(&Rig) -> u64,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Ten seconds in nanoseconds.
pub(crate) const TEN: u64 = 10_000_000_000;

/// All of them.
pub(crate) fn origins() -> Vec<Origin> {
    fn plain(rig: &Rig) -> u64 {
        rig.cache.insert(KEY, rig.value(KEY));
        TEN
    }
    let origin = |name, settings, store| Origin {
        name,
        settings,
        store,
    };
    vec![
        origin(
            "insert_with_ttl",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                TEN
            },
        ),
        origin(
            "insert_with_ttl: until",
            |b| b,
            |rig| {
                let moment = Instant::now() + 10 * S;
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), moment);
                rig.clock.at(moment)
            },
        ),
        origin("time_to_live", |b| b.time_to_live(10 * S), plain),
        origin("time_to_idle", |b| b.time_to_idle(10 * S), plain),
        origin(
            "time_to_live before time_to_idle",
            |b| b.time_to_idle(100 * S).time_to_live(10 * S),
            plain,
        ),
        origin(
            "expiry policy",
            |b| b.expiry(|_: &u64, _: &Tracked| Lifetime::For(10 * S)),
            plain,
        ),
        origin(
            "try_insert",
            |b| b.time_to_live(10 * S),
            |rig| {
                rig.cache.try_insert(KEY, rig.value(KEY)).unwrap();
                TEN
            },
        ),
        origin(
            "insert_if_absent",
            |b| b.time_to_live(10 * S),
            |rig| {
                assert!(rig.cache.insert_if_absent(KEY, rig.value(KEY)));
                TEN
            },
        ),
        origin(
            "expire",
            |b| b,
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "expire sooner",
            |b| b.time_to_live(99 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "expire later",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
        origin(
            "touch",
            |b| b.time_to_live(6 * S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                rig.clock.set_ns(4_000_000_000);
                assert!(rig.cache.touch(&KEY));
                TEN
            },
        ),
        origin(
            "touch of its own lifetime",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 6 * S);
                rig.clock.set_ns(4_000_000_000);
                assert!(rig.cache.touch(&KEY));
                TEN
            },
        ),
        origin(
            "compute: put with ttl",
            |b| b,
            |rig| {
                let put = || Op::PutWithTtl(rig.value(KEY), Lifetime::For(10 * S));
                rig.cache.compute(KEY, |_| put());
                TEN
            },
        ),
        origin(
            "compute: put keeps it",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                rig.clock.set_ns(5_000_000_000);
                rig.cache.compute(KEY, |_| Op::Put(rig.value(KEY)));
                TEN
            },
        ),
        origin(
            "compare_and_swap keeps it",
            |b| b,
            |rig| {
                rig.cache.insert_with_ttl(KEY, rig.value(KEY), 10 * S);
                rig.clock.set_ns(5_000_000_000);
                let expected = rig.value(KEY);
                let swapped = rig.cache.compare_and_swap(KEY, &expected, rig.value(KEY));
                swapped.unwrap();
                TEN
            },
        ),
        origin(
            "persist, then expire",
            |b| b.time_to_live(S),
            |rig| {
                rig.cache.insert(KEY, rig.value(KEY));
                assert!(rig.cache.persist(&KEY));
                assert!(rig.cache.expire(&KEY, 10 * S));
                TEN
            },
        ),
    ]
}

/// Two small configurations that differ in everything that matters to one key.
pub(crate) fn two_configs() -> [Config; 2] {
    [true, false].map(|listener| Config {
        shards: 1,
        sample: false,
        bound: listener.then_some(8),
        listener,
    })
}
