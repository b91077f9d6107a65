//! Saving and restoring: `cargo test --features serde --test snapshot`.
#![cfg(feature = "serde")]

mod common;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use common::{NS, PATIENCE, S, promptly};
use ebbtide::snapshot::{RestoreOptions, Restored, SnapshotError};
use ebbtide::{Cache, Counter, Lifetime, ManualClock, Policy, RemovalCause};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

/// A day in 2025.
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + 1_750_000_000 * S
}

/// The two ways to carry entries over.
#[derive(Clone, Copy, Debug)]
enum Form {
    Json,
    Binary,
}

const FORMS: [Form; 2] = [Form::Json, Form::Binary];

impl Form {
    fn save<K, V>(self, cache: &Cache<K, V>, at: SystemTime) -> Vec<u8>
    where
        K: std::hash::Hash + Eq + Serialize + Send + Sync + 'static,
        V: Serialize + Send + Sync + 'static,
    {
        let mut bytes = Vec::new();
        let snapshot = cache.snapshot().at(at);
        match self {
            Form::Json => serde_json::to_writer(&mut bytes, &snapshot).unwrap(),
            Form::Binary => {
                let saved = snapshot.write_to(&mut bytes).unwrap();
                assert_eq!(saved.bytes, bytes.len() as u64);
            }
        }
        bytes
    }

    fn restore<K, V>(self, bytes: &[u8], cache: &Cache<K, V>, options: &RestoreOptions) -> Restored
    where
        K: std::hash::Hash + Eq + DeserializeOwned + Send + Sync + 'static,
        V: DeserializeOwned + Send + Sync + 'static,
    {
        match self {
            Form::Json => {
                let mut format = serde_json::Deserializer::from_reader(bytes);
                let restored = cache.restore(&mut format, options).unwrap();
                format.end().unwrap();
                restored
            }
            Form::Binary => cache.load(bytes, options).unwrap(),
        }
    }
}

fn at(wall: SystemTime) -> RestoreOptions {
    RestoreOptions::new().at(wall)
}

fn counts(inserted: u64, expired: u64, kept: u64, refused: u64) -> impl Fn(Restored) {
    move |restored| {
        let Restored {
            inserted: i,
            expired: e,
            kept: k,
            refused: r,
            ..
        } = restored;
        assert_eq!([i, e, k, r], [inserted, expired, kept, refused]);
    }
}

/// What is left of a key's entry, to the nanosecond.
fn left<V: Send + Sync + 'static>(cache: &Cache<String, V>, key: &str) -> Option<Lifetime> {
    cache.ttl(key)
}

const fn span(length: Duration) -> Option<Lifetime> {
    Some(Lifetime::For(length))
}

type Texts = Cache<String, String>;

/// A cache with a clock of its own, which begins somewhere else than all others.
fn texts(
    build: impl FnOnce(ebbtide::Builder<String, String>) -> ebbtide::Builder<String, String>,
) -> (Texts, ManualClock) {
    static BEGIN: AtomicU64 = AtomicU64::new(1);
    let clock = ManualClock::new();
    clock.set_ns(BEGIN.fetch_add(77_777_777_777_777, Ordering::Relaxed));
    let cache = build(Cache::builder().clock(clock.clone()))
        .build()
        .unwrap();
    (cache, clock)
}

#[test]
fn every_kind_of_lifetime_survives_to_the_nanosecond() {
    for form in FORMS {
        let (from, clock) = texts(|b| b);
        from.insert("never".into(), "a".into());
        from.insert_with_ttl("short".into(), "b".into(), 10 * S);
        from.insert_with_ttl("long".into(), "c".into(), 1_000_000 * S + NS);
        from.insert_with_ttl("persisted".into(), "d".into(), 10 * S);
        assert!(from.persist("persisted"));
        from.insert("changed".into(), "e".into());
        assert!(from.expire("changed", 20 * S));
        from.insert_with_ttl(
            "until".into(),
            "f".into(),
            Instant::now() + 1_000_000_000 * S,
        );
        let until = left(&from, "until").unwrap();
        clock.advance(3 * S + NS);
        let bytes = form.save(&from, noon());

        let (to, _) = texts(|b| b);
        let passed = 2 * S + 5 * NS;
        counts(6, 0, 0, 0)(form.restore(&bytes, &to, &at(noon() + passed)));
        to.validate();
        assert_eq!(to.get("never").as_deref(), Some("a"));
        assert_eq!(left(&to, "never"), Some(Lifetime::Never));
        assert_eq!(left(&to, "persisted"), Some(Lifetime::Never));
        let gone = 3 * S + NS + passed;
        assert_eq!(left(&to, "short"), span(10 * S - gone));
        assert_eq!(left(&to, "long"), span(1_000_000 * S + NS - gone));
        assert_eq!(left(&to, "changed"), span(20 * S - gone));
        let Lifetime::For(until) = until else {
            panic!("a deadline")
        };
        assert_eq!(left(&to, "until"), span(until - gone));

        // And `touch` begins again what it would have.
        for key in ["never", "short", "long", "persisted", "changed", "until"] {
            assert!(to.touch(key));
        }
        assert_eq!(left(&to, "never"), Some(Lifetime::Never));
        assert_eq!(left(&to, "persisted"), Some(Lifetime::Never));
        assert_eq!(left(&to, "short"), span(10 * S));
        assert_eq!(left(&to, "long"), span(1_000_000 * S + NS));
        assert_eq!(left(&to, "changed"), span(20 * S));
        assert_eq!(left(&to, "until"), span(until - gone));
    }
}

#[test]
fn a_restored_entry_ends_at_its_deadline() {
    for form in FORMS {
        let (from, _) = texts(|b| b);
        from.insert_with_ttl("a".into(), "1".into(), 10 * S);
        let bytes = form.save(&from, noon());
        let (to, clock) = texts(|b| b);
        form.restore(&bytes, &to, &at(noon() + 4 * S));
        clock.advance(6 * S - NS);
        assert!(to.contains_key("a"));
        clock.advance(NS);
        assert!(!to.contains_key("a"));
    }
}

#[test]
fn entries_of_the_cache_s_own_lifetime_have_the_new_cache_s() {
    for form in FORMS {
        let (from, clock) = texts(|b| b.time_to_live(100 * S));
        from.insert("a".into(), "1".into());
        from.insert_with_ttl("own".into(), "2".into(), 100 * S);
        clock.advance(40 * S);
        let bytes = form.save(&from, noon());

        let (longer, _) = texts(|b| b.time_to_live(500 * S));
        form.restore(&bytes, &longer, &at(noon()));
        assert_eq!(left(&longer, "a"), span(60 * S));
        assert!(longer.touch("a") && longer.touch("own"));
        assert_eq!(left(&longer, "a"), span(500 * S));
        assert_eq!(left(&longer, "own"), span(100 * S));

        // No longer than it would give them now; a lifetime of their own is their own.
        let (shorter, _) = texts(|b| b.time_to_live(5 * S));
        form.restore(&bytes, &shorter, &at(noon()));
        assert_eq!(left(&shorter, "a"), span(5 * S));
        assert_eq!(left(&shorter, "own"), span(60 * S));

        let (mortal, _) = texts(|b| b.time_to_live(5 * S));
        let (immortal, _) = texts(|b| b);
        immortal.insert("a".into(), "1".into());
        immortal.insert_with_ttl("own".into(), "2".into(), Lifetime::Never);
        let bytes = form.save(&immortal, noon());
        form.restore(&bytes, &mortal, &at(noon()));
        assert_eq!(left(&mortal, "a"), span(5 * S));
        assert_eq!(left(&mortal, "own"), Some(Lifetime::Never));
    }
}

#[test]
fn a_policy_s_lifetime_is_the_entry_s_own_and_not_asked_for_again() {
    for form in FORMS {
        let (from, clock) =
            texts(|b| b.expiry(|_: &String, value: &String| Lifetime::For(value.len() as u32 * S)));
        from.insert("a".into(), "1234567".into());
        clock.advance(3 * S);
        let bytes = form.save(&from, noon());
        let (to, _) = texts(|b| b.expiry(|_: &String, _: &String| -> Lifetime { panic!("asked") }));
        form.restore(&bytes, &to, &at(noon()));
        assert_eq!(left(&to, "a"), span(4 * S));
        assert!(to.touch("a"));
        assert_eq!(left(&to, "a"), span(7 * S));
    }
}

#[test]
fn idleness_goes_on_and_is_capped_as_before() {
    /// What a changed deadline may be early by where idle extensions are about.
    const EARLY: Duration = Duration::from_nanos(64);
    for form in FORMS {
        let (from, clock) = texts(|b| b.time_to_idle(8 * S).time_to_live(20 * S));
        from.insert("idle".into(), "1".into());
        from.insert_with_ttl("own".into(), "2".into(), 12 * S);
        from.insert_with_ttl("always".into(), "3".into(), Lifetime::Never);
        from.insert("persisted".into(), "4".into());
        assert!(from.persist("persisted"));
        clock.advance(3 * S);
        let bytes = form.save(&from, noon());

        let (to, clock) = texts(|b| b.time_to_idle(8 * S).time_to_live(20 * S));
        counts(4, 0, 0, 0)(form.restore(&bytes, &to, &at(noon())));
        to.validate();
        // Coming back was no use, nor was it idleness.
        for key in ["idle", "own", "always"] {
            assert_eq!(left(&to, key), span(5 * S), "{key}");
        }
        assert_eq!(left(&to, "persisted"), Some(Lifetime::Never));
        let begin = clock.elapsed();
        let step_to = |moment: Duration| clock.advance(begin + moment - clock.elapsed());
        for second in 1..9 {
            step_to(second * S);
            assert!(
                to.get("idle").is_some() && to.get("own").is_some() && to.get("always").is_some()
            );
        }
        // 12 s of its own, 3 of which had passed.
        step_to(9 * S - EARLY);
        assert!(to.get("own").is_some());
        step_to(9 * S);
        assert!(to.get("own").is_none());
        for second in 10..17 {
            step_to(second * S);
            assert!(to.get("idle").is_some() && to.get("always").is_some());
        }
        // 20 s of the cache's.
        step_to(17 * S - EARLY);
        assert!(to.get("idle").is_some());
        step_to(17 * S);
        assert!(to.get("idle").is_none());
        assert!(to.get("always").is_some());
        step_to(26 * S);
        assert!(to.get("always").is_none());
        assert!(to.get("persisted").is_some());
    }
}

#[test]
fn a_cache_with_a_time_to_idle_of_its_own_applies_it() {
    for form in FORMS {
        let (from, _) = texts(|b| b);
        from.insert("a".into(), "1".into());
        from.insert_with_ttl("b".into(), "2".into(), 100 * S);
        from.insert_with_ttl("c".into(), "3".into(), 3 * S);
        let bytes = form.save(&from, noon());
        let (to, clock) = texts(|b| b.time_to_idle(5 * S));
        form.restore(&bytes, &to, &at(noon()));
        assert_eq!(left(&to, "a"), span(5 * S));
        assert_eq!(left(&to, "b"), span(5 * S));
        assert_eq!(left(&to, "c"), span(3 * S));
        clock.advance(2 * S);
        // (Capped by its deadline: a use gains nothing.)
        assert!(to.get("c").is_some());
        assert_eq!(left(&to, "c"), span(S));

        // The other way round idleness ends, and nothing lives longer for it.
        let bytes = form.save(&to, noon());
        let (back, _) = texts(|b| b);
        form.restore(&bytes, &back, &at(noon()));
        assert_eq!(left(&back, "b"), span(3 * S));
    }
}

#[test]
fn the_dead_are_left_out_at_both_ends() {
    for form in FORMS {
        let (from, clock) = texts(|b| b);
        for n in 0..100_u32 {
            from.insert_with_ttl(format!("key {n}"), "x".into(), (n + 1) * S);
        }
        // The first 50 are over, and nobody has swept them.
        clock.advance(50 * S);
        assert_eq!(from.entry_count(), 100);
        let bytes = form.save(&from, noon());
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("key 50") && !text.contains("key 49"));

        let (to, _) = texts(|b| b);
        counts(29, 21, 0, 0)(form.restore(&bytes, &to, &at(noon() + 21 * S)));
        assert_eq!(to.live_count(), 29);
        // At its deadline exactly it is over.
        assert!(!to.contains_key("key 70") && to.contains_key("key 71"));
    }
}

#[test]
fn a_wall_clock_that_was_stepped() {
    for form in FORMS {
        let (from, _) = texts(|b| b);
        from.insert_with_ttl("a".into(), "1".into(), 100 * S);
        let bytes = form.save(&from, noon());
        for (wall, expected) in [
            (noon() + 30 * S, span(70 * S)),
            // Set forward: sooner.
            (noon() + 99 * S, span(S)),
            (noon() + 100 * S, None),
            (noon() + 1_000_000_000 * S, None),
            (noon() + Duration::from_secs(20_000_000_000), None),
            // Set back: never more left than there was.
            (noon() - S, span(100 * S)),
            (SystemTime::UNIX_EPOCH, span(100 * S)),
            (SystemTime::UNIX_EPOCH - 1_000_000 * S, span(100 * S)),
        ] {
            let (to, _) = texts(|b| b);
            form.restore(&bytes, &to, &at(wall));
            assert_eq!(left(&to, "a"), expected, "{wall:?}");
        }
    }
}

#[test]
fn times_at_the_ends_of_their_range() {
    for form in FORMS {
        for saved in [
            SystemTime::UNIX_EPOCH - S,
            SystemTime::UNIX_EPOCH,
            noon() + Duration::from_secs(20_000_000_000),
        ] {
            let (from, clock) = texts(|b| b.time_to_idle(Duration::from_nanos(u64::MAX - 1)));
            clock.set_ns(0);
            from.insert_with_ttl("a".into(), "1".into(), Duration::from_nanos(u64::MAX - 2));
            from.insert_with_ttl("b".into(), "1".into(), NS);
            let bytes = form.save(&from, saved);
            let (to, clock) = texts(|b| b.time_to_live(Duration::from_nanos(u64::MAX - 1)));
            clock.set_ns(u64::MAX - 5);
            counts(2, 0, 0, 0)(form.restore(&bytes, &to, &at(saved)));
            assert!(to.contains_key("a"));
            assert_eq!(left(&to, "b"), span(NS));
        }
    }
}

#[test]
fn the_system_s_clocks_by_default() {
    for form in FORMS {
        let from: Texts = Cache::unbounded();
        from.insert_with_ttl("a".into(), "1".into(), 3_600 * S);
        from.insert_with_ttl("b".into(), "2".into(), Duration::from_millis(1));
        let bytes = match form {
            Form::Json => serde_json::to_vec(&from.snapshot()).unwrap(),
            Form::Binary => {
                let mut bytes = Vec::new();
                from.save(&mut bytes).unwrap();
                bytes
            }
        };
        let before = left(&from, "a").unwrap();
        let to: Texts = Cache::unbounded();
        std::thread::sleep(Duration::from_millis(2));
        let restored = form.restore(&bytes, &to, &RestoreOptions::new());
        assert_eq!(restored.inserted, 1);
        let (Lifetime::For(before), Some(Lifetime::For(after))) = (before, left(&to, "a")) else {
            panic!("deadlines");
        };
        // (Unless somebody sets the clock of this machine.)
        assert!(after < before && after > before - 60 * S, "{after:?}");
    }
}

#[test]
fn equal_deadlines_stay_equal_or_are_spread_and_never_to_later() {
    for form in FORMS {
        let (from, _) = texts(|b| b);
        for n in 0..1_000 {
            from.insert_with_ttl(n.to_string(), "x".into(), 60 * S);
        }
        from.insert("never".into(), "x".into());
        let bytes = form.save(&from, noon());
        let lefts = |to: &Texts| -> Vec<Duration> {
            (0..1_000)
                .filter_map(|n| match to.ttl(&n.to_string()) {
                    Some(Lifetime::For(left)) => Some(left),
                    None => None,
                    other => panic!("{other:?}"),
                })
                .collect()
        };

        let (to, _) = texts(|b| b);
        form.restore(&bytes, &to, &at(noon()));
        assert!(lefts(&to).iter().all(|&left| left == 60 * S));

        for (passed, spread, least, most) in [
            (Duration::ZERO, 30 * S, 30 * S, 60 * S),
            // More than is left: over all of it, and none at once.
            (50 * S, 30 * S, NS, 10 * S),
            (50 * S, Duration::MAX, NS, 10 * S),
        ] {
            let (to, _) = texts(|b| b);
            let options = at(noon() + passed).spread(spread);
            counts(1_001, 0, 0, 0)(form.restore(&bytes, &to, &options));
            let lefts = lefts(&to);
            assert_eq!(lefts.len(), 1_000);
            assert!(lefts.iter().all(|&left| (least..=most).contains(&left)));
            // (Each of a thousand misses a sixth of the range with a chance of 1 in 10^79.)
            let sixth = (most - least) / 6;
            assert!(lefts.iter().any(|&left| left < least + sixth));
            assert!(lefts.iter().any(|&left| left > most - sixth));
            assert_eq!(left(&to, "never"), Some(Lifetime::Never));
            // The lifetime is what it was.
            assert!(to.touch("17"));
            assert_eq!(left(&to, "17"), span(60 * S));
        }

        // With idleness the deadline behind it is spread as well: 40 s are left, 60 with uses.
        let (from, _) = texts(|b| b.time_to_idle(40 * S));
        for n in 0..1_000 {
            from.insert_with_ttl(n.to_string(), "x".into(), 60 * S);
        }
        let bytes = form.save(&from, noon());
        let (to, clock) = texts(|b| b.time_to_idle(40 * S));
        form.restore(&bytes, &to, &at(noon()).spread(30 * S));
        clock.advance(9 * S);
        assert!((0..1_000).all(|n| to.get(&n.to_string()).is_some()));
        // (Each ends by its deadline with a chance of 60 in 100, else by its idle time.)
        let early = lefts(&to).into_iter().filter(|&left| left < 39 * S).count();
        assert!((300..900).contains(&early), "{early}");
    }
}

#[test]
fn what_the_cache_has_stays_unless_it_is_to_be_replaced() {
    for form in FORMS {
        let (from, _) = texts(|b| b);
        for key in ["a", "b", "c"] {
            from.insert_with_ttl(key.into(), "old".into(), 10 * S);
        }
        let bytes = form.save(&from, noon());

        let (to, clock) = texts(|b| b);
        to.insert("a".into(), "new".into());
        to.insert_with_ttl("b".into(), "over".into(), S);
        clock.advance(S);
        counts(2, 0, 1, 0)(form.restore(&bytes, &to, &at(noon())));
        assert_eq!(to.get("a").as_deref(), Some("new"));
        assert_eq!(to.get("b").as_deref(), Some("old"));
        assert_eq!(left(&to, "a"), Some(Lifetime::Never));

        counts(3, 0, 0, 0)(form.restore(&bytes, &to, &at(noon()).replace(true)));
        assert_eq!(to.get("a").as_deref(), Some("old"));
        assert_eq!(left(&to, "a"), span(10 * S));

        // What is over replaces nothing.
        to.insert("a".into(), "newest".into());
        counts(0, 3, 0, 0)(form.restore(&bytes, &to, &at(noon() + 10 * S).replace(true)));
        assert_eq!(to.get("a").as_deref(), Some("newest"));
    }
}

#[test]
fn a_smaller_cache_keeps_its_bound() {
    for form in FORMS {
        let from: Cache<u64, u64> = Cache::unbounded();
        for n in 0..1_000 {
            from.insert(n, n);
        }
        let bytes = form.save(&from, noon());

        let to: Cache<u64, u64> = Cache::new(100);
        counts(1_000, 0, 0, 0)(form.restore(&bytes, &to, &at(noon())));
        assert_eq!((to.entry_count(), to.stats().evicted), (100, 900));
        to.validate();

        let full: Cache<u64, u64> = Cache::builder()
            .max_entries(100)
            .policy(Policy::no_eviction())
            .build()
            .unwrap();
        counts(100, 0, 0, 900)(form.restore(&bytes, &full, &at(noon())));
        assert_eq!(full.entry_count(), 100);
        full.validate();

        let events = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&events);
        let light: Cache<u64, u64> = Cache::builder()
            .max_weight(
                1_000_000,
                |&key: &u64, _: &u64| {
                    if key < 10 { 2_000_000 } else { 1 }
                },
            )
            .on_removal(move |_: &u64, _: &u64, _: RemovalCause| {
                heard.fetch_add(1, Ordering::Relaxed);
            })
            .build()
            .unwrap();
        counts(990, 0, 0, 10)(form.restore(&bytes, &light, &at(noon())));
        assert_eq!(light.weight(), 990);
        assert_eq!(events.load(Ordering::Relaxed), 0);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Key {
    Id(u64),
    Pair { left: i8, right: Option<Box<Key>> },
    Nothing,
}

type Deep = (Option<Option<u8>>, HashMap<u8, Vec<f64>>);

#[test]
fn keys_and_values_of_any_shape() {
    for form in FORMS {
        let from: Cache<Key, Deep> = Cache::unbounded();
        let value = |n: u8| (Some(Some(n)), HashMap::from([(n, vec![f64::from(n); 3])]));
        from.insert(Key::Id(u64::MAX), value(1));
        from.insert(Key::Nothing, value(2));
        let pair = Key::Pair {
            left: -7,
            right: Some(Box::new(Key::Nothing)),
        };
        from.insert(pair.clone(), value(3));
        let bytes = form.save(&from, noon());
        let to: Cache<Key, Deep> = Cache::unbounded();
        counts(3, 0, 0, 0)(form.restore(&bytes, &to, &at(noon())));
        assert_eq!(to.get(&Key::Id(u64::MAX)), Some(value(1)));
        assert_eq!(to.get(&Key::Nothing), Some(value(2)));
        assert_eq!(to.get(&pair), Some(value(3)));
    }
    // The binary form is exact where JSON is not.
    let from: Cache<u8, Option<Option<u8>>> = Cache::unbounded();
    from.insert(1, Some(None));
    let to: Cache<u8, Option<Option<u8>>> = Cache::unbounded();
    Form::Binary.restore(&Form::Binary.save(&from, noon()), &to, &at(noon()));
    assert_eq!(to.get(&1), Some(Some(None)));
}

#[test]
fn no_entries_and_many() {
    for form in FORMS {
        let nothing: Cache<u64, u64> = Cache::unbounded();
        let bytes = form.save(&nothing, noon());
        counts(0, 0, 0, 0)(form.restore(&bytes, &nothing, &at(noon())));

        let from: Cache<u64, u64> = Cache::unbounded();
        (0..50_000).for_each(|n| from.insert(n, n * n));
        let bytes = form.save(&from, noon());
        let to: Cache<u64, u64> = Cache::unbounded();
        counts(50_000, 0, 0, 0)(form.restore(&bytes, &to, &at(noon())));
        assert!((0..50_000).all(|n| to.get(&n) == Some(n * n)));
    }
}

#[test]
fn an_entry_of_many_frames_among_small_ones() {
    let from: Cache<u64, Vec<u8>> = Cache::unbounded();
    let value = |n: u64| vec![n as u8; if n == 50 { 5_000_000 } else { 100 }];
    (0..100).for_each(|n| from.insert(n, value(n)));
    let bytes = Form::Binary.save(&from, noon());
    let to: Cache<u64, Vec<u8>> = Cache::unbounded();
    counts(100, 0, 0, 0)(Form::Binary.restore(&bytes, &to, &at(noon())));
    assert!((0..100).all(|n| to.get(&n) == Some(value(n))));
}

#[test]
fn counters_are_numbers() {
    for form in FORMS {
        let from: Cache<String, Counter> = Cache::unbounded();
        from.increment("a", 41).unwrap();
        from.increment_with_ttl("b", -5, 10 * S).unwrap();
        from.insert("least".into(), Counter::new(i64::MIN));
        let bytes = form.save(&from, noon());
        let to: Cache<String, Counter> = Cache::unbounded();
        form.restore(&bytes, &to, &at(noon()));
        assert_eq!(to.increment("a", 1), Ok(42));
        assert_eq!(to.get("b"), Some(Counter::new(-5)));
        assert_eq!(to.get("least"), Some(Counter::new(-(1 << 62))));
        assert!(to.ttl("b").is_some_and(|left| left != Lifetime::Never));
    }
    assert_eq!(serde_json::to_string(&Counter::new(7)).unwrap(), "7");
    let too_large = serde_json::from_str::<Counter>("4611686018427387904");
    assert!(too_large.unwrap_err().to_string().contains("2^62"));
}

#[test]
fn what_is_written_to_json() {
    let (from, _) = texts(|b| b.time_to_idle(4 * S));
    from.insert_with_ttl("a".into(), "1".into(), 10 * S);
    let json = serde_json::to_string(&from.snapshot().at(noon()).schema(3)).unwrap();
    assert_eq!(
        json,
        "{\"ebbtide\":{\"version\":1,\"schema\":3,\"saved_at\":1750000000000000000},\"entries\":[\
         {\"key\":\"a\",\"value\":\"1\",\"left\":4000000000,\"cap\":{\"in\":10000000000},\
         \"own\":{\"for\":10000000000}}]}"
    );
    // By way of a value, which sorts its fields.
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (to, _) = texts(|b| b);
    let restored = to.restore(&value, &at(noon()).schema(3)).unwrap();
    assert_eq!(restored.inserted, 1);
}

#[test]
fn what_is_no_snapshot_in_json() {
    let restore = |json: &str| {
        let cache: Cache<u8, u8> = Cache::unbounded();
        let mut format = serde_json::Deserializer::from_str(json);
        let error = cache.restore(&mut format, &RestoreOptions::new());
        (error.unwrap_err().to_string(), cache.entry_count())
    };
    let header = r#""ebbtide":{"version":1,"schema":0,"saved_at":0}"#;
    let entry = r#"{"key":1,"value":2,"left":null,"cap":"same","own":"default"}"#;
    for (json, expected, stored) in [
        (format!("[{entry}]"), "missing field `version`", 0),
        ("7".into(), "a snapshot of a cache", 0),
        ("{}".into(), "missing field `entries`", 0),
        (
            // No deadline is said to be none.
            format!(
                r#"{{{header},"entries":[{{"key":1,"value":2,"cap":"same","own":"default"}}]}}"#
            ),
            "missing field `left`",
            0,
        ),
        (format!("{{{header}}}"), "missing field `entries`", 0),
        (
            format!(r#"{{"entries":[{entry}],{header}}}"#),
            "must come before",
            0,
        ),
        (
            format!(r#"{{{header},{header},"entries":[]}}"#),
            "duplicate field",
            0,
        ),
        (
            format!(
                r#"{{"ebbtide":{{"version":2,"schema":0,"saved_at":0,"more":1}},"entries":[{entry}]}}"#
            ),
            "of version 2, the newest known here is 1",
            0,
        ),
        (
            format!(r#"{{"ebbtide":{{"version":1,"schema":9,"saved_at":0}},"entries":[{entry}]}}"#),
            "of schema 9, expected are those of 0",
            0,
        ),
        (
            format!(r#"{{{header},"entries":[{entry},{{"key":300}}]}}"#),
            "300",
            1,
        ),
        (format!(r#"{{{header},"entries":[{entry}"#), "EOF", 1),
    ] {
        let (error, entries) = restore(&json);
        assert!(error.contains(expected), "{json}: {error}");
        assert_eq!(entries, stored, "{json}");
    }
    // Fields that are not known here are passed over.
    let cache: Cache<u8, u8> = Cache::unbounded();
    let json = format!(r#"{{"more":[1],{header},"entries":[{entry}],"most":2}}"#);
    let mut format = serde_json::Deserializer::from_str(&json);
    cache.restore(&mut format, &RestoreOptions::new()).unwrap();
    assert_eq!(cache.get(&1), Some(2));
}

/// A value that calls its cache while it is written, and while it is read.
#[derive(Clone)]
struct Nosy(u64);

static NOSY: OnceLock<Cache<u64, Nosy>> = OnceLock::new();

impl Nosy {
    fn look(&self) {
        let cache = NOSY.get().unwrap();
        let _ = cache.get(&self.0);
        cache.insert(self.0, self.clone());
        cache.insert(self.0 + 1_000_000, self.clone());
        cache.expire(&self.0, 100 * S);
        cache.invalidate(&(self.0 + 1_000_000));
        // All shards, with their locks.
        let _ = (cache.live_count(), cache.stats());
    }
}

impl Serialize for Nosy {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.look();
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Nosy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nosy = Nosy(u64::deserialize(deserializer)?);
        nosy.look();
        Ok(nosy)
    }
}

#[test]
fn values_may_call_the_cache_from_both_ways() {
    let cache = NOSY.get_or_init(Cache::unbounded);
    for form in FORMS {
        (0..300).for_each(|n| cache.insert(n, Nosy(n)));
        promptly("a value that calls its cache", move || {
            let bytes = form.save(cache, noon());
            cache.invalidate_all();
            form.restore(&bytes, cache, &at(noon()));
        });
        assert!((0..300).all(|n| cache.contains_key(&n)));
        cache.validate();
    }
}

/// A value that waits in the middle of being written.
struct Slow {
    begun: mpsc::SyncSender<()>,
    go_on: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Serialize for Slow {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.begun.send(()).unwrap();
        let go_on = self.go_on.lock().unwrap();
        go_on.recv_timeout(PATIENCE).unwrap();
        serializer.serialize_unit()
    }
}

#[test]
fn nobody_waits_for_a_value_that_is_being_written() {
    for form in FORMS {
        let (begun, wait) = mpsc::sync_channel(0);
        let (release, go_on) = mpsc::sync_channel(0);
        let cache: Cache<u64, Option<Slow>> = Cache::builder().shards(4).build().unwrap();
        cache.insert(
            0,
            Some(Slow {
                begun,
                go_on: go_on.into(),
            }),
        );
        let saver = cache.clone();
        let thread = std::thread::spawn(move || form.save(&saver, noon()));
        wait.recv_timeout(PATIENCE).unwrap();
        let writer = cache.clone();
        promptly("a write during a snapshot", move || {
            (1..10_000).for_each(|n| writer.insert(n, None));
            (1..10_000).for_each(|n| assert!(writer.expire(&n, 10 * S)));
            (1..10_000).for_each(|n| assert!(writer.invalidate(&n)));
        });
        release.send(()).unwrap();
        thread.join().unwrap();
    }
}

/// Counts its drops.
#[derive(Clone)]
struct Dropped(Arc<AtomicU64>, usize);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Serialize for Dropped {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.serialize_bytes(&vec![0; self.1])
    }
}

#[test]
fn nothing_is_held_up_while_a_frame_is_being_written() {
    /// A writer that wants what leaves the cache meanwhile to be dropped meanwhile.
    struct Strict {
        cache: Cache<u64, Dropped>,
        drops: Arc<AtomicU64>,
        frames: u64,
    }

    impl Write for Strict {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > 60_000 {
                self.frames += 1;
                let before = self.drops.load(Ordering::SeqCst);
                assert!(self.cache.invalidate(&self.frames));
                let begin = Instant::now();
                while self.drops.load(Ordering::SeqCst) == before {
                    // (The pins of other tests last a moment.)
                    self.cache.reap(Duration::from_millis(1));
                    assert!(begin.elapsed() < PATIENCE, "a pin while writing");
                }
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let cache: Cache<u64, Dropped> = Cache::builder()
        .shards(1)
        .reaper(ebbtide::Reaper::manual())
        .build()
        .unwrap();
    let drops = Arc::new(AtomicU64::new(0));
    (0..200).for_each(|n| cache.insert(n, Dropped(Arc::clone(&drops), 10_000)));
    let mut writer = Strict {
        cache: cache.clone(),
        drops,
        frames: 0,
    };
    cache.save(&mut writer).unwrap();
    assert!(writer.frames > 20, "{}", writer.frames);
}

#[test]
fn the_pin_is_renewed_while_slow_values_are_serialized() {
    /// In the cache of one test.
    struct Sleepy(Arc<dyn Fn() + Send + Sync>);

    impl Serialize for Sleepy {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            self.0();
            serializer.serialize_unit()
        }
    }

    impl Drop for Sleepy {
        fn drop(&mut self) {
            self.0();
        }
    }

    let victim: Cache<u64, Dropped> = Cache::builder()
        .reaper(ebbtide::Reaper::manual())
        .build()
        .unwrap();
    let drops = Arc::new(AtomicU64::new(0));
    victim.insert(0, Dropped(Arc::clone(&drops), 0));
    let (others, counted) = (victim.clone(), Arc::clone(&drops));
    let serialized = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&serialized);
    let look = Arc::new(move || {
        if counted.load(Ordering::SeqCst) == 0 {
            count.fetch_add(1, Ordering::SeqCst);
            others.invalidate(&0);
            others.reap(Duration::from_millis(1));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    // One shard: all of them in one stretch.
    let cache: Cache<u64, Sleepy> = Cache::builder().shards(1).build().unwrap();
    (0..400).for_each(|n| cache.insert(n, Sleepy(look.clone())));
    serde_json::to_writer(io::sink(), &cache.snapshot()).unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(serialized.load(Ordering::SeqCst) < 400);
}

#[test]
fn what_is_there_throughout_is_saved_exactly_once() {
    const STABLE: u64 = 20_000;
    for form in FORMS {
        let cache: Cache<u64, u64> = Cache::builder().shards(2).build().unwrap();
        (0..STABLE).for_each(|n| cache.insert(n, n));
        let end = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2_u64)
            .map(|me| {
                let (cache, end) = (cache.clone(), Arc::clone(&end));
                std::thread::spawn(move || {
                    let mut n = me;
                    while !end.load(Ordering::Relaxed) {
                        n = n
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695);
                        let key = (n >> 33) % STABLE;
                        match n >> 60 {
                            // In its place, or by a new entry, with many kinds of lifetimes.
                            0..4 => cache.insert(key, key),
                            4..8 => cache.insert_with_ttl(key, key, 1_000 * S),
                            8..10 => assert!(cache.expire(&key, 2_000 * S)),
                            10 => assert!(cache.persist(&key)),
                            // So that the index grows and shrinks.
                            11..14 => cache.insert(STABLE + (n >> 20) % 100_000, key),
                            _ => {
                                cache.invalidate(&(STABLE + (n >> 20) % 100_000));
                            }
                        }
                    }
                })
            })
            .collect();
        for _ in 0..4 {
            let bytes = form.save(&cache, noon());
            let to: Cache<u64, u64> = Cache::unbounded();
            let restored = form.restore(&bytes, &to, &at(noon()));
            assert_eq!((restored.kept, restored.expired), (0, 0));
            let missing: Vec<u64> = (0..STABLE).filter(|n| !to.contains_key(n)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
        end.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    }
}

#[test]
fn keys_of_one_hash_are_saved_once_each_wherever_a_frame_ends() {
    /// Knows eleven hashes.
    #[derive(Clone, Default)]
    struct Few(u64);

    impl Hasher for Few {
        fn write(&mut self, _: &[u8]) {
            unreachable!("keys are numbers");
        }

        fn write_u64(&mut self, key: u64) {
            self.0 = key % 11;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let cache: Cache<u64, Vec<u8>, _> = Cache::builder()
        .hasher(BuildHasherDefault::<Few>::default())
        .build()
        .unwrap();
    // Two to a frame.
    (0..200).for_each(|n| cache.insert(n, vec![n as u8; 30_000]));
    let bytes = promptly("a snapshot of few hashes", move || {
        let mut bytes = Vec::new();
        cache.save(&mut bytes).unwrap();
        bytes
    });
    let to: Cache<u64, Vec<u8>> = Cache::unbounded();
    counts(200, 0, 0, 0)(Form::Binary.restore(&bytes, &to, &RestoreOptions::new()));
}

#[test]
fn lifetime_and_value_are_those_of_one_moment() {
    // Each write has a value, a deadline and a lifetime of its own that belong together.
    for form in FORMS {
        let (cache, _) = {
            let clock = ManualClock::new();
            let cache: Cache<u64, u64> = Cache::builder()
                .clock(clock.clone())
                .shards(1)
                .build()
                .unwrap();
            (cache, clock)
        };
        let write = |cache: &Cache<u64, u64>, key: u64, n: u64| {
            cache.insert_with_ttl(key, n, (n as u32) * S);
        };
        (0..500).for_each(|key| write(&cache, key, 1));
        let end = Arc::new(AtomicBool::new(false));
        let writer = {
            let (cache, end) = (cache.clone(), Arc::clone(&end));
            std::thread::spawn(move || {
                for n in (1..1_000).cycle() {
                    (0..500).for_each(|key| write(&cache, key, n));
                    if end.load(Ordering::Relaxed) {
                        break;
                    }
                }
            })
        };
        let mut seen = HashSet::new();
        let (begin, mut rounds) = (Instant::now(), 0);
        while rounds < 50 || seen.len() < 10 {
            rounds += 1;
            assert!(begin.elapsed() < PATIENCE, "the writer never writes");
            let bytes = form.save(&cache, noon());
            let to: Cache<u64, u64> = Cache::builder().clock(ManualClock::new()).build().unwrap();
            form.restore(&bytes, &to, &at(noon()));
            for key in 0..500 {
                let n = to.get(&key).unwrap();
                assert_eq!(to.ttl(&key), span(n as u32 * S));
                assert!(to.touch(&key));
                assert_eq!(to.ttl(&key), span(n as u32 * S));
                seen.insert(n);
            }
        }
        end.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}

#[test]
fn an_error_of_the_writer_or_of_a_value_ends_the_saving() {
    /// Takes some bytes, then no more.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let some = bytes.len().min(self.0);
            self.0 -= some;
            if some == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<Z: Serializer>(&self, _: Z) -> Result<Z::Ok, Z::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }

    let cache: Cache<u64, Vec<u8>> = Cache::unbounded();
    (0..1_000).for_each(|n| cache.insert(n, vec![0; 1_000]));
    for room in [0, 5, 12, 40, 70_000, 900_000] {
        let error = cache.save(Full(room)).unwrap_err();
        let SnapshotError::Io(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    cache.save(Full(2_000_000)).unwrap();

    let cache: Cache<u64, Unwritable> = Cache::unbounded();
    cache.insert(1, Unwritable);
    let error = cache.save(io::sink()).unwrap_err();
    assert!(
        matches!(error, SnapshotError::Format { entry: 0, .. }),
        "{error:?}"
    );
    // And the cache goes on.
    cache.insert(2, Unwritable);
    cache.validate();
}
