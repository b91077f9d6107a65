//! What a tracing subscriber hears of the reaper: `cargo test --features tracing --test observability_tracing`.
#![cfg(feature = "tracing")]

mod common;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, Reaper, Strategy};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, with_default};
use tracing::{Event, Level, Metadata, Subscriber};

use common::{S, eventually};

/// One event: level, message, the other fields.
#[derive(Clone, Debug)]
struct Told {
    level: Level,
    message: String,
    fields: HashMap<&'static str, String>,
}

impl Told {
    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap()
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(self.fields.insert(name, format!("{value:?}"))),
        }
    }
}

/// Writes the library's events down, and does something more at each.
struct Ear<F> {
    told: Arc<Mutex<Vec<Told>>>,
    more: F,
}

type Notes = Arc<Mutex<Vec<Told>>>;

impl<F: Fn()> Ear<F> {
    fn new(more: F) -> (Self, Notes) {
        let told = Notes::default();
        let ear = Ear {
            told: Arc::clone(&told),
            more,
        };
        (ear, told)
    }
}

impl<F: Fn() + 'static> Subscriber for Ear<F> {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ebbtide"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("there are no spans");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told {
            level: *event.metadata().level(),
            message: String::new(),
            fields: HashMap::new(),
        };
        event.record(&mut told);
        self.told.lock().unwrap().push(told);
        (self.more)();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn manual(name: &str, strategy: Strategy) -> (Cache<u64, u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Cache::builder().name(name).shards(4).clock(clock.clone());
    let reaper = Reaper::manual().strategy(strategy);
    (builder.reaper(reaper).build().unwrap(), clock)
}

#[test]
fn a_cycle_is_told_with_what_it_did() {
    let (cache, clock) = manual("sessions", Strategy::sweep());
    for key in 0..100 {
        cache.insert_with_ttl(key, key, S);
    }
    clock.advance(2 * S);
    let (ear, told) = Ear::new(|| ());
    let reaped = with_default(ear, || cache.reap(3_600 * S));
    let told = told.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].level, told[0].message.as_str()),
        (Level::DEBUG, "reap cycle")
    );
    assert_eq!(told[0].fields["cache"], "\"sessions\"");
    assert_eq!(told[0].number("expired"), 100);
    assert_eq!(told[0].number("dropped"), reaped.dropped);
    assert_eq!(told[0].number("shards"), 4);
    assert_eq!(told[0].fields["exhausted"], "false");
    assert_eq!(told[0].fields["budget"], "3600s");
    assert_eq!(told[0].fields["spent"], format!("{:?}", reaped.spent));
}

#[test]
fn an_overrun_is_a_warning() {
    for strategy in [Strategy::sweep(), Strategy::sample()] {
        let (cache, clock) = manual("", strategy);
        for key in 0..100 {
            cache.insert_with_ttl(key, key, S);
        }
        clock.advance(2 * S);
        let (ear, told) = Ear::new(|| ());
        let reaped = with_default(ear, || cache.reap(Duration::from_nanos(1)));
        assert!(!reaped.finished);
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].level, Level::WARN);
        assert_eq!(told[0].message, "reap cycle over its budget");
        assert_eq!(told[0].fields["exhausted"], "true");
        assert_eq!(cache.stats().budget_overruns, 1);
    }
}

#[test]
fn reads_and_writes_tell_nothing() {
    let (cache, clock) = manual("", Strategy::sweep());
    let (ear, told) = Ear::new(|| ());
    with_default(ear, || {
        for key in 0..1_000 {
            cache.insert_with_ttl(key, key, S);
            cache.insert(key, key);
            assert!(cache.expire(&key, S));
            assert!(cache.get(&key).is_some());
        }
        clock.advance(2 * S);
        assert!((0..500).all(|key| cache.get(&key).is_none()));
        // (Writers of a cache that is reaped by hand help to drop.)
        (400..1_000).for_each(|key| cache.insert(key, key));
        (400..1_000).for_each(|key| assert!(cache.invalidate(&key)));
    });
    assert!(cache.stats().dropped > 0);
    assert!(told.lock().unwrap().is_empty());
}

/// A subscriber is called without a lock, so it may do what it likes with the cache.
#[test]
fn a_subscriber_may_call_the_cache() {
    let (cache, clock) = manual("", Strategy::sweep());
    for key in 0..100 {
        cache.insert_with_ttl(key, key, S);
    }
    clock.advance(2 * S);
    let same = cache.clone();
    let (ear, told) = Ear::new(move || {
        (0..100).for_each(|key| same.insert(key, key));
        same.invalidate_all();
        same.audit(100);
    });
    with_default(ear, || {
        common::promptly("it calls the cache", {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let cache = cache.clone();
            move || tracing::dispatcher::with_default(&dispatch, || cache.reap(S))
        })
    });
    assert_eq!(told.lock().unwrap().len(), 1);
    assert_eq!(cache.stats().explicit, 100);
}

#[test]
fn a_subscriber_that_panics_is_contained() {
    let (cache, clock) = manual("", Strategy::sweep());
    cache.insert_with_ttl(1, 1, S);
    clock.advance(2 * S);
    let (ear, _) = Ear::new(|| panic!("a bug of the subscriber's"));
    let reaped = with_default(ear, || cache.reap(S));
    assert_eq!((reaped.expired, cache.stats().panics), (1, 1));
    cache.reap(S);
    assert_eq!(cache.stats().panics, 1);
}

struct Slow;

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(20));
    }
}

/// The only test with a subscriber for all threads: the others have their own.
#[test]
fn the_reapers_threads_tell_too() {
    let (ear, told) = Ear::new(|| ());
    tracing::subscriber::set_global_default(ear).unwrap();
    let cache: Cache<u64, Slow> = Cache::builder()
        .name("threads")
        .reaper(Reaper::dedicated(1))
        .build()
        .unwrap();
    for key in 0..3 {
        cache.insert_with_ttl(key, Slow, Duration::from_millis(50));
    }
    let about = |messages: &[&str], field: &str| -> u64 {
        let told = told.lock().unwrap();
        let ours = told.iter().filter(|t| t.fields["cache"] == "\"threads\"");
        let ours = ours.filter(|t| messages.contains(&t.message.as_str()));
        ours.map(|t| t.number(field)).sum()
    };
    let cycles = ["reap cycle", "reap cycle over its budget"];
    eventually("the cycles are told", || about(&cycles, "expired") == 3);
    eventually("the drops are told", || {
        about(&["slow drops"], "dropped") == 3
    });
    let told = told.lock().unwrap();
    let slow = told.iter().find(|t| t.message == "slow drops").unwrap();
    assert_eq!(slow.level, Level::WARN);
    assert_eq!(slow.fields["budget"], "1ms");
}
