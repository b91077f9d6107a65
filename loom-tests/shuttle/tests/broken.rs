//! Scenarios that break a rule themselves: the checks must see it.

use std::time::Duration;

use ebbtide::{Cache, Clock, ManualClock};
use ebbtide_shuttle_tests::{Books, Fixed, UNIT, Value, must_fail, settle};
use shuttle::thread;

type Values = Cache<u8, Value, Fixed>;

type Work = Box<dyn FnOnce(&Values) + Send>;

fn build(clock: &ManualClock) -> Values {
    let builder = Cache::<u8, Value>::builder().shards(1).clock(clock.clone());
    builder
        .hasher(Fixed::default())
        .build()
        .expect("valid settings")
}

/// Runs these at the same time on handles of their own, then judges.
fn race(
    cache: Values,
    books: &Books,
    first: impl FnOnce(&Values) + Send + 'static,
    second: impl FnOnce(&Values) + Send + 'static,
    third: impl FnOnce(&Values) + Send + 'static,
) {
    let works: [Work; 3] = [Box::new(first), Box::new(second), Box::new(third)];
    let threads: Vec<_> = works
        .into_iter()
        .map(|work| {
            let cache = cache.clone();
            thread::spawn(move || work(&cache))
        })
        .collect();
    for thread in threads {
        thread.join().expect("its panic has failed the schedule");
    }
    books.judge();
}

#[test]
fn a_value_that_is_looked_at_after_its_pin() {
    must_fail(
        "a_value_that_is_looked_at_after_its_pin",
        500,
        "dropped under a pin",
        || {
            let (books, clock) = (Books::default(), ManualClock::new());
            let cache = build(&clock);
            cache.insert(1, books.value(1, u64::MAX));
            let watch = books.clone();
            race(
                cache,
                &books,
                move |cache| {
                    let pinned = cache.pin();
                    let Some(id) = pinned.get(&1).map(Value::id) else {
                        return;
                    };
                    watch.watch(id);
                    drop(pinned);
                    thread::yield_now();
                    watch.unwatch(id);
                },
                |cache| drop(cache.remove(&1)),
                |cache| {
                    cache.reap_at_most(8);
                },
            );
        },
    );
}

#[test]
fn a_lifetime_that_is_longer_than_claimed() {
    must_fail(
        "a_lifetime_that_is_longer_than_claimed",
        500,
        "past its deadline",
        || {
            let (books, clock) = (Books::default(), ManualClock::new());
            let cache = build(&clock);
            // The cache is told one unit more than the books.
            let value = books.value(1, UNIT);
            cache.insert_with_ttl(1, value, Duration::from_nanos(2 * UNIT));
            let (now, read) = (clock.clone(), books.clone());
            race(
                cache,
                &books,
                move |cache| {
                    let span = read.begin(now.now());
                    if let Some(value) = cache.get(&1) {
                        read.met(1, span, value.id());
                    }
                },
                move |_| {
                    clock.advance(Duration::from_nanos(UNIT));
                    clock.advance(Duration::from_nanos(UNIT));
                },
                |cache| {
                    cache.reap_at_most(8);
                },
            );
        },
    );
}

/// Answers from a copy of its own, as a cache in front of the cache would.
#[test]
fn a_reader_that_remembers() {
    must_fail("a_reader_that_remembers", 500, "came back", || {
        let (books, clock) = (Books::default(), ManualClock::new());
        let cache = build(&clock);
        let span = books.begin(0);
        let value = books.value(1, u64::MAX);
        let id = value.id();
        cache.insert(1, value);
        books.ended(1, span, Some(id));
        let (reader, remover) = (books.clone(), books.clone());
        race(
            cache,
            &books,
            move |cache| {
                let remembered = cache.get(&1);
                thread::yield_now();
                let span = reader.begin(0);
                if let Some(value) = remembered {
                    reader.met(1, span, value.id());
                }
            },
            move |cache| {
                let span = remover.begin(0);
                if let Some(value) = cache.remove(&1) {
                    remover.removed(1, span, value.id());
                }
            },
            |_| (),
        );
    });
}

/// Keeps a handle for ever, so that the cache never ends.
#[test]
fn a_cache_that_is_leaked() {
    must_fail("a_cache_that_is_leaked", 20, "was dropped 0 times", || {
        let (books, clock) = (Books::default(), ManualClock::new());
        let cache = build(&clock);
        cache.insert(1, books.value(1, u64::MAX));
        settle(&cache);
        let kept = cache.clone();
        race(cache, &books, |_| (), |_| (), |_| ());
        std::mem::forget(kept);
        books.all_dropped_but(&[]);
    });
}
