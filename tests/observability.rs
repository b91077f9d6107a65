//! What a cache tells about itself is so.

mod common;

use std::hash::{BuildHasher, Hash};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, MemoryUsage, Reaper, Strategy, Tags};

use common::matrix::{Config, with_cache};
use common::{NS, S, ZERO, eventually};

/// What the lane knows deadlines to.
const UNIT: Duration = Duration::from_nanos(1 << 26);

fn manual(shards: usize) -> (Cache<u64, u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Cache::builder().shards(shards).clock(clock.clone());
    (builder.build().unwrap(), clock)
}

fn dead<K, V, H>(cache: &Cache<K, V, H>) -> u64
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    H: BuildHasher + Send + Sync + 'static,
{
    cache.entry_count() - cache.live_count()
}

#[test]
fn the_oldest_due_age_is_that_of_the_first_deadline_that_has_passed() {
    with_cache(
        Config::all(),
        |b| b,
        |rig| {
            let age = || rig.cache.stats().oldest_due_age;
            assert_eq!(age(), ZERO);
            rig.cache.insert(0, rig.value(0));
            assert_eq!(age(), ZERO, "nothing has a deadline");
            for key in 1..=100 {
                let lifetime = key as u32 * S;
                rig.cache.insert_with_ttl(key, rig.value(key), lifetime);
            }
            assert_eq!(age(), ZERO, "nothing is near its deadline");
            rig.clock.advance(31 * S);
            assert!(age() >= 30 * S && age() <= 30 * S + UNIT, "{:?}", age());
            rig.reap_until("all that are due", |rig| dead(&rig.cache) == 0);
            assert!(age() <= UNIT, "{:?}", age());
            rig.clock.advance(500 * S);
            assert!(age() >= 499 * S, "{:?}", age());
            rig.reap_until("all", |rig| rig.cache.entry_count() == 1);
            // The sampler leaves a minimum behind until it has looked at the whole block.
            if !rig.config.sample {
                assert_eq!(age(), ZERO);
            }
        },
    );
}

#[test]
fn the_backlog_is_what_has_been_over_for_a_while() {
    for shards in [1, 16] {
        let (cache, clock) = manual(shards);
        for key in 0..3_000 {
            let seconds = if key % 3 == 0 { 1 } else { 100 };
            cache.insert_with_ttl(key, key, seconds * S);
        }
        assert_eq!(cache.stats().backlog, 0);
        clock.advance(S - NS);
        assert_eq!(cache.stats().backlog, 0, "nothing is over");
        clock.advance(UNIT + NS);
        assert_eq!(cache.stats().backlog, 1_000);
        let reaped = cache.reap_at_most(400).expired;
        assert_eq!(reaped, 400);
        assert_eq!(cache.stats().backlog, 600);
        assert_eq!(dead(&cache), 600);
        cache.reap(S);
        assert_eq!(cache.stats().backlog, 0);
    }
}

#[test]
fn the_backlog_of_a_large_shard_is_estimated() {
    let (cache, clock) = manual(1);
    for key in 0..200_000 {
        let seconds = if key % 5 == 0 { 1 } else { 100 };
        cache.insert_with_ttl(key, key, seconds * S);
    }
    clock.advance(2 * S);
    let backlog = cache.stats().backlog as f64;
    assert!((backlog - 40_000.0).abs() < 4_000.0, "{backlog}");
}

#[test]
fn renewed_entries_are_in_the_backlog_until_the_reaper_meets_them() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .time_to_idle(10 * S)
        .clock(clock.clone())
        .build()
        .unwrap();
    cache.insert(1, 1);
    clock.advance(9 * S);
    assert_eq!(cache.get(&1), Some(1));
    clock.advance(9 * S);
    let stats = cache.stats();
    assert_eq!((stats.backlog, dead(&cache)), (1, 0));
    assert!(stats.oldest_due_age >= 8 * S);
    assert_eq!(cache.reap(S).refiled, 1);
    let stats = cache.stats();
    assert_eq!((stats.backlog, stats.oldest_due_age), (0, ZERO));
}

#[test]
fn whether_anybody_reaps() {
    let (cache, _) = manual(2);
    cache.insert(1, 1);
    let stats = cache.stats();
    assert_eq!((stats.reaper_alive, stats.last_look_age), (None, None));
    cache.reap(S);
    let before = cache.stats().last_look_age.expect("it has looked");
    thread::sleep(Duration::from_millis(20));
    let after = cache.stats().last_look_age.unwrap();
    assert!(after >= before + Duration::from_millis(20));
    for reaper in [Reaper::shared(), Reaper::dedicated(2)] {
        let cache: Cache<u64, u64> = Cache::builder().reaper(reaper).build().unwrap();
        assert_eq!(cache.stats().reaper_alive, Some(true));
        eventually("it has looked", || cache.stats().last_look_age.is_some());
        assert_eq!(cache.stats().reaper_alive, Some(true));
    }
}

#[test]
fn every_cycle_is_in_the_histogram() {
    for strategy in [Strategy::sweep(), Strategy::sample()] {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .clock(clock.clone())
            .reaper(
                Reaper::manual()
                    .strategy(strategy)
                    .budget(Duration::from_micros(700)),
            )
            .build()
            .unwrap();
        for round in 1..=5 {
            cache.insert_with_ttl(round, round, S);
            clock.advance(2 * S);
            let spent = cache.reap(S).spent;
            let stats = cache.stats();
            assert_eq!(
                (stats.reap_cycles, stats.cycle_time.count()),
                (round, round)
            );
            assert!(stats.cycle_time.max() >= spent);
            assert!(stats.cycle_time.sum() <= stats.reaper_time);
            assert_eq!(stats.budget, Duration::from_micros(700));
        }
    }
}

struct Slow;

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slow_drops_are_counted() {
    for reaper in [Reaper::manual(), Reaper::dedicated(1)] {
        let is_manual = reaper == Reaper::manual();
        let cache: Cache<u64, Slow> = Cache::builder().reaper(reaper).build().unwrap();
        cache.insert(1, Slow);
        cache.invalidate(&1);
        eventually("it is dropped", || {
            if is_manual {
                cache.reap(S);
            }
            cache.stats().dropped == 1
        });
        let stats = cache.stats();
        assert_eq!(stats.slow_drops, 1);
        assert!(stats.longest_drop >= Duration::from_millis(20));
        assert!(stats.drop_time >= stats.longest_drop);
    }
    // Within the budget they are not slow.
    let reaper = Reaper::manual().budget(3_600 * S);
    let cache: Cache<u64, Slow> = Cache::builder().reaper(reaper).build().unwrap();
    cache.insert(1, Slow);
    cache.invalidate(&1);
    eventually("it is dropped", || {
        cache.reap(S);
        cache.stats().dropped == 1
    });
    let stats = cache.stats();
    assert_eq!(stats.slow_drops, 0);
    assert!(stats.longest_drop >= Duration::from_millis(20));
}

#[test]
fn misses_are_told_apart() {
    for record in [false, true] {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .clock(clock.clone())
            .record_stats(record)
            .build()
            .unwrap();
        assert_eq!(cache.stats().hit_ratio(), None);
        cache.insert_with_ttl(1, 1, S);
        cache.insert_with_ttl(2, 2, S);
        for _ in 0..5 {
            assert_eq!(cache.get(&1), Some(1));
        }
        assert_eq!(cache.get(&9), None);
        clock.advance(S);
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&1), None, "unlinked by the first");
        assert_eq!(cache.peek(&2), None);
        let stats = cache.stats();
        assert_eq!(stats.expired(), 2);
        let counted = (stats.hits, stats.expired_misses, stats.absent_misses());
        if record {
            assert_eq!(counted, (5, 2, 2));
            assert_eq!(stats.hit_ratio(), Some(5.0 / 9.0));
        } else {
            assert_eq!(counted, (0, 0, 0));
            assert_eq!(stats.hit_ratio(), None);
        }
    }
}

/// A name for each field, so that none is forgotten here.
fn moved(before: MemoryUsage, after: MemoryUsage) -> Vec<&'static str> {
    let parts = before.parts().into_iter().zip(after.parts());
    parts
        .filter(|(before, after)| before != after)
        .map(|((name, _), _)| name)
        .collect()
}

#[test]
fn each_part_of_the_memory_moves_when_it_should() {
    let clock = ManualClock::new();
    let cache: Cache<u64, [u64; 4]> = Cache::builder()
        .shards(1)
        .max_weight(1 << 20, |_, value: &[u64; 4]| 1 + value[0] % 2)
        .clock(clock.clone())
        .build()
        .unwrap();
    let sum = |usage: MemoryUsage| usage.parts().iter().map(|(_, bytes)| bytes).sum::<usize>();
    let mut last = cache.memory_usage();
    let mut step = |what: &dyn Fn()| {
        what();
        let now = cache.memory_usage();
        assert_eq!(now.total(), sum(now));
        let moved = moved(last, now);
        last = now;
        (moved, now)
    };
    let (parts, empty) = step(&|| ());
    assert!(parts.is_empty());
    assert_eq!((empty.slab_in_limbo, empty.lane, empty.weights), (0, 0, 0));

    let insert = |key: u64| cache.insert(key, [0; 4]);
    let (parts, _) = step(&|| (0..100).for_each(insert));
    assert_eq!(
        parts,
        ["slab", "hashes", "index", "order"],
        "no lifetime, one weight"
    );
    let (parts, _) = step(&|| cache.insert(0, [1; 4]));
    assert!(parts.contains(&"weights"), "{parts:?}");
    let (parts, _) = step(&|| assert!(cache.expire(&1, 50 * S)));
    assert!(parts.contains(&"lane"), "{parts:?}");
    let (parts, _) = step(&|| assert!(cache.expire(&2, 51 * S)));
    assert!(!parts.contains(&"lane"), "{parts:?}");
    let (parts, full) = step(&|| (100..20_000).for_each(insert));
    for part in ["slab", "hashes", "index", "order"] {
        assert!(parts.contains(&part), "{part} is not among {parts:?}");
    }
    assert!(full.slab >= 20_000 * 48, "{full:?}");
    assert_eq!(full.shards, empty.shards);

    // What leaves waits in the same memory, and says so.
    let pinned = cache.pin();
    let (parts, waiting) = step(&|| {
        (0..20_000)
            .step_by(2)
            .for_each(|k| assert!(cache.invalidate(&k)))
    });
    assert!(parts.contains(&"limbo"), "{parts:?}");
    assert!(
        !parts.contains(&"slab") && !parts.contains(&"hashes"),
        "{parts:?}"
    );
    let entry = full.slab as f64 / 20_000.0;
    let each = (waiting.slab_in_limbo as f64 - full.slab_in_limbo as f64) / 10_000.0;
    assert!(each > 47.0 && each <= entry, "{each} of {entry}");
    assert!(waiting.slab_in_limbo < waiting.slab);
    drop(pinned);
    cache.invalidate_all();
    eventually("it is gone", || {
        cache.reap(S);
        cache.stats().limbo == 0
    });
    let (_, after) = step(&|| assert!(cache.reap(S).finished));
    assert_eq!(after.slab_in_limbo, 0);
    for (what, before, after) in [
        ("slab", full.slab, after.slab),
        ("hashes", full.hashes, after.hashes),
        ("index", full.index, after.index),
    ] {
        assert!(after < before / 4, "{what}: {before} then {after}");
    }
}

#[test]
fn own_lifetimes_are_counted() {
    let clock = ManualClock::new();
    let builder = Cache::builder().time_to_live(100 * S).shards(1);
    let cache: Cache<u64, u64> = builder.clock(clock).build().unwrap();
    (0..100).for_each(|key| cache.insert(key, key));
    assert_eq!(cache.memory_usage().lifetimes, 0, "all have the cache's");
    cache.insert_with_ttl(7, 7, 3 * S);
    assert!(cache.memory_usage().lifetimes > 0);
}

#[test]
fn tags_are_counted() {
    let builder = Cache::builder().tags(|key: &u64, _: &u64, tags: &mut Tags| tags.add(key));
    let cache: Cache<u64, u64> = builder.reaper(Reaper::manual()).build().unwrap();
    let before = cache.memory_usage();
    (0..1_000).for_each(|key| cache.insert(key, key));
    let after = cache.memory_usage();
    assert!(after.tags >= before.tags + 24 * 1_000, "{after:?}");
    let parts = after.parts();
    let sum: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(after.total(), sum);
}

/// Readers must not learn of an expiry from it, so that it may be asked at any time.
#[test]
fn an_audit_changes_nothing() {
    let (cache, clock) = manual(4);
    for key in 0..1_000 {
        cache.insert_with_ttl(key, key, S);
    }
    clock.advance(2 * S);
    let before = format!("{:?}", cache.stats());
    let audit = cache.audit(5_000);
    assert_eq!(
        (audit.entries, audit.sampled, audit.dead),
        (1_000, 5_000, 5_000)
    );
    let share = audit.dead_share();
    assert_eq!((share.estimate, share.high), (1.0, 1.0));
    assert!(share.low > 0.99);
    assert_eq!(format!("{:?}", cache.stats()), before);
    // Had it ended anything, that would stay ended (P1).
    clock.step_back(2 * S);
    assert_eq!(cache.audit(5_000).dead, 0);
    assert!((0..1_000).all(|key| cache.get(&key) == Some(key)));
}

#[test]
fn an_audit_beside_writers_and_the_reaper() {
    let cache: Cache<u64, u64> = Cache::new(5_000);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for key in 0..200_000 {
                cache.insert_with_ttl(key, key, Duration::from_millis(key % 20));
            }
        });
        while !writer.is_finished() {
            let audit = cache.audit(500);
            assert!(audit.sampled <= 500 && audit.dead <= audit.sampled);
            let stats = cache.stats();
            assert_eq!(stats.live_evicted_while_dead, 0);
        }
    });
}

/// A writer's look for a dead entry spent itself on the first ones whose deadlines come within the same 67 ms,
/// although the lane knew another one to be over.
#[test]
fn no_living_entry_goes_while_a_later_slot_is_known_to_be_over() {
    const MS: Duration = Duration::from_millis(1);
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .shards(1)
        .max_entries(101)
        .clock(clock.clone())
        .build()
        .unwrap();
    clock.advance(2 * UNIT - MS);
    for key in 0..100 {
        cache.insert_with_ttl(key, key, 30 * MS);
    }
    cache.insert_with_ttl(100, 100, MS / 2);
    clock.advance(2 * MS);
    assert_eq!(cache.stats().backlog, 1);
    cache.insert(200, 200);
    let stats = cache.stats();
    let left = (stats.expired_by_write, stats.evicted);
    assert_eq!((left, stats.live_evicted_while_dead), ((1, 0), 0));
    assert!((0..100).all(|key| cache.get(&key) == Some(key)));
}
