//! Many entries at once: inserts, collecting, iterating by handle.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ebbtide::{Cache, Lifetime, ManualClock};

const S: Duration = Duration::from_secs(1);

#[test]
fn insert_many_is_one_insert_after_another() {
    for count in [0, 1, 15, 16, 17, 1_000] {
        let cache: Cache<u64, u64> = Cache::unbounded();
        // Each key twice; the later one stays.
        cache.insert_many((0..2 * count).map(|n| (n % count.max(1), n)));
        assert_eq!(cache.entry_count(), count);
        assert!((0..count).all(|key| cache.get(&key) == Some(count + key)));
        let stats = cache.stats();
        assert_eq!((stats.inserted, stats.replaced), (2 * count, count));
        cache.validate();
    }
}

#[test]
fn an_iterator_that_said_it_is_done_is_not_asked_again() {
    let mut asked = 0;
    let pairs = std::iter::from_fn(|| {
        asked += 1;
        // Done after three, and again after six.
        (asked % 4 != 0).then_some((asked, asked))
    });
    let cache: Cache<u64, u64> = Cache::unbounded();
    cache.insert_many(pairs);
    assert_eq!((cache.entry_count(), asked), (3, 4));
}

#[test]
fn lifetimes_are_the_caches_or_the_calls() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .clock(clock.clone())
        .time_to_live(10 * S)
        .build()
        .unwrap();
    // Each insert is on its own: what the iterator does in between counts.
    cache.insert_many((0..40).map(|n| (n, n)));
    cache.insert_many_with_ttl((100..140).map(|n| (n, n)), 3 * S);
    assert_eq!(cache.ttl(&39), Some(Lifetime::For(10 * S)));
    assert_eq!(cache.ttl(&139), Some(Lifetime::For(3 * S)));
    cache.insert_many_with_ttl((0..40).map(|n| (n, n)), Duration::ZERO);
    clock.advance(3 * S);
    assert_eq!(cache.live_count(), 0);
}

#[test]
fn the_iterator_may_use_the_cache_and_may_panic() {
    let cache: Cache<u64, u64> = Cache::new(1_000);
    cache.insert_many((0..100).map(|n| {
        cache.insert(1_000 + n, n);
        assert_eq!(cache.get(&(1_000 + n)), Some(n));
        (n, n)
    }));
    assert_eq!(cache.entry_count(), 200);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        cache.insert_many((0..100).map(|n| match n {
            50 => std::panic::resume_unwind(Box::new(())),
            n => (n, n + 1),
        }));
    }));
    assert!(panic.is_err());
    // Whole groups of sixteen were stored.
    assert!((0..48).all(|n| cache.get(&n) == Some(n + 1)));
    assert!((48..100).all(|n| cache.get(&n) == Some(n)));
    cache.validate();
}

#[test]
fn the_bound_holds_throughout() {
    let cache: Cache<u64, u64> = Cache::new(50);
    cache.insert_many((0..1_000).map(|n| {
        assert!(cache.entry_count() <= 50);
        (n, n)
    }));
    assert_eq!(cache.entry_count(), 50);
}

#[test]
fn collected_and_iterated_by_every_name() {
    let expected: BTreeMap<u64, u64> = (0..5_000).map(|n| (n, n * n)).collect();
    let cache: Cache<u64, u64> = expected.clone().into_iter().collect();
    let mut borrowed = BTreeMap::new();
    for (key, value) in &cache {
        assert_eq!(borrowed.insert(key, value), None, "met once");
    }
    assert_eq!(borrowed, expected);
    assert!(cache.iter().collect::<BTreeMap<_, _>>() == expected);
    let other = cache.clone();
    let mut owned = cache.into_iter();
    let first = owned.next().unwrap();
    // It is a view of the cache, not a copy of it.
    other.retain(|key, _| *key == first.0);
    let rest: Vec<_> = owned.collect();
    assert!(rest.len() < 2_000, "{}", rest.len());
    assert_eq!(other.entry_count(), 1);
    let mut more: Cache<u64, u64> = Cache::unbounded();
    more.extend(&other);
    (&more).extend([(9, 9)]);
    assert!(more.get(&9) == Some(9) && more.get(&first.0) == Some(first.1));
}
