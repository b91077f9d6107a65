//! What anybody would try first.

use std::collections::HashSet;
use std::time::Duration;

use ebbtide::{Cache, Computed, Counter, Lifetime, ManualClock, Op, Reaper, RemovalCause};

const S: Duration = Duration::from_secs(1);

#[test]
fn insert_get_remove() {
    let cache: Cache<String, u32> = Cache::unbounded();
    assert_eq!(cache.get("a"), None);
    cache.insert("a".into(), 1);
    assert_eq!(cache.get("a"), Some(1));
    cache.insert("a".into(), 2);
    assert_eq!(cache.get("a"), Some(2));
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(cache.remove("a"), Some(2));
    assert_eq!(cache.remove("a"), None);
    assert_eq!(cache.entry_count(), 0);
    cache.validate();
}

#[test]
fn many_keys_in_and_out() {
    let cache: Cache<u64, u64> = Cache::unbounded();
    for key in 0..100_000 {
        cache.insert(key, key * 3);
    }
    cache.validate();
    assert_eq!(cache.entry_count(), 100_000);
    for key in 0..100_000 {
        assert_eq!(cache.get(&key), Some(key * 3));
    }
    assert_eq!(cache.get(&100_000), None);
    let seen: HashSet<u64> = cache
        .iter()
        .map(|(key, value)| {
            assert_eq!(value, key * 3);
            key
        })
        .collect();
    assert_eq!(seen.len(), 100_000);
    assert_eq!(cache.iter().count(), 100_000);
    let keys = [5u64, 99_999, 123_456];
    assert_eq!(cache.get_many(&keys), [Some(15), Some(299_997), None]);
    cache.retain(|key, _| key % 10 == 0);
    assert_eq!(cache.live_count(), 10_000);
    cache.validate();
    assert_eq!(cache.drain().count(), 10_000);
    assert_eq!(cache.entry_count(), 0);
    cache.validate();
}

#[test]
fn lifetimes_under_a_manual_clock() {
    let clock = ManualClock::new();
    let cache: Cache<&str, u32> = Cache::builder()
        .clock(clock.clone())
        .time_to_live(10 * S)
        .build()
        .unwrap();
    cache.insert("a", 1);
    cache.insert_with_ttl("b", 2, 5 * S);
    cache.insert_with_ttl("c", 3, Lifetime::Never);
    assert_eq!(cache.ttl("a"), Some(Lifetime::For(10 * S)));
    assert_eq!(cache.ttl("c"), Some(Lifetime::Never));
    clock.advance(5 * S);
    assert_eq!(cache.get("b"), None);
    assert_eq!(cache.ttl("a"), Some(Lifetime::For(5 * S)));
    assert!(cache.touch("a"));
    assert_eq!(cache.ttl("a"), Some(Lifetime::For(10 * S)));
    assert!(cache.expire("a", 2 * S));
    clock.advance(2 * S);
    assert_eq!(cache.get("a"), None);
    assert!(!cache.persist("a"));
    assert_eq!(cache.get("c"), Some(3));
    let reaped = cache.reap(S);
    assert!(reaped.finished);
    assert_eq!(cache.entry_count(), 1);
    cache.validate();
}

#[test]
fn reaping_in_small_steps() {
    let clock = ManualClock::new();
    let cache = Cache::builder().clock(clock.clone()).build().unwrap();
    for key in 0..5 {
        cache.insert_with_ttl(key, (), S);
    }
    clock.advance(S);
    let steps: Vec<u64> = (0..4).map(|_| cache.reap_at_most(2).expired).collect();
    assert_eq!(steps, [2, 2, 1, 0]);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn compute_and_counters() {
    let cache: Cache<String, Counter> = Cache::unbounded();
    assert_eq!(cache.increment("n", 5), Ok(5));
    assert_eq!(cache.increment("n", -2), Ok(3));
    assert_eq!(
        cache.compute("n".into(), |n| Op::Put(Counter::new(n.unwrap().get() * 2))),
        Computed::Replaced
    );
    assert_eq!(cache.get("n").unwrap().get(), 6);
    assert_eq!(
        cache.compare_and_swap("n".into(), &6.into(), 7.into()),
        Ok(())
    );
    assert_eq!(
        cache.compare_and_swap("n".into(), &6.into(), 8.into()),
        Err(8.into())
    );
    assert_eq!(cache.compute("n".into(), |_| Op::Remove), Computed::Removed);
    assert_eq!(cache.get("n"), None);
    cache.validate();
}

#[test]
fn a_bound_is_kept() {
    for shards in [1, 4, 64] {
        let cache = Cache::builder()
            .max_entries(100)
            .shards(shards)
            .build()
            .unwrap();
        for key in 0..1000u32 {
            cache.insert(key, key);
            assert!(cache.entry_count() <= 100);
            if key < 100 {
                assert_eq!(cache.entry_count(), u64::from(key) + 1);
            }
            assert_eq!(cache.get(&key), Some(key));
        }
        assert_eq!(cache.entry_count(), 100);
        cache.validate();
    }
}

#[test]
fn a_listener_hears_everything_once() {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let clock = ManualClock::new();
    let cache: Cache<u32, u32> = {
        let heard = heard.clone();
        Cache::builder()
            .clock(clock.clone())
            .reaper(Reaper::manual())
            .max_entries(3)
            .on_removal(move |key: &u32, value: &u32, cause| {
                heard.lock().unwrap().push((*key, *value, cause));
            })
            .build()
            .unwrap()
    };
    cache.insert(1, 10);
    cache.insert(1, 11);
    cache.remove(&1);
    cache.insert_with_ttl(2, 20, S);
    clock.advance(S);
    assert_eq!(cache.get(&2), None);
    cache.reap(S);
    for key in 3..7 {
        cache.insert(key, 0);
    }
    use RemovalCause::*;
    let heard = heard.lock().unwrap();
    assert_eq!(
        heard[..3],
        [(1, 10, Replaced), (1, 11, Explicit), (2, 20, Expired)]
    );
    assert_eq!(heard.len(), 4);
    assert_eq!(heard[3].2, Evicted);
}

#[test]
fn the_reaper_frees_without_being_asked() {
    let cache: Cache<u64, std::sync::Arc<()>> = Cache::unbounded();
    let value = std::sync::Arc::new(());
    for key in 0..10_000 {
        cache.insert_with_ttl(key, value.clone(), Duration::from_millis(50));
    }
    let begin = std::time::Instant::now();
    while std::sync::Arc::strong_count(&value) > 1 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            cache.stats()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(cache.entry_count(), 0);
    cache.validate();
}
