//! Loads under the whole cache: what is stored must not be older than a write or a removal of its key,
//! and whoever waits for a load is told of its end.
//!
//! The thing that is cached is a number that changes once, from 1 to 2, before the entry of its key is
//! written or removed. Relaxed, so that a loader reads the new one only where the cache's own
//! synchronisation makes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ebbtide::{Cache, ManualClock};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Fixed, build, race};
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed, Ordering::SeqCst};

type Numbers = Cache<u8, u8, Fixed>;

/// A load of key 1 against a change of the number that `tell` then tells the cache of; what is cached in
/// the end.
fn load_against(cache: &Numbers, tell: impl FnOnce(&Numbers) + 'static) -> Option<u8> {
    let number = Arc::new(AtomicU8::new(1));
    let theirs = Arc::clone(&number);
    let (loaded, ()) = race(
        cache,
        |cache| cache.get_or_insert_with(1, || number.load(Relaxed)),
        move |cache| {
            theirs.store(2, Relaxed);
            tell(cache);
        },
    );
    assert!(matches!(loaded, 1 | 2), "{loaded}");
    cache.validate();
    cache.peek(&1)
}

fn plain() -> Numbers {
    build(&ManualClock::new(), |b| b)
}

#[test]
fn load_against_invalidate() {
    check("load_against_invalidate", Some(3), || {
        let left = load_against(&plain(), |cache| {
            cache.invalidate(&1);
        });
        assert_ne!(left, Some(1), "older than the removal of its key");
    });
}

#[test]
fn load_against_insert() {
    check("load_against_insert", Some(3), || {
        let left = load_against(&plain(), |cache| cache.insert(1, 2));
        assert_eq!(left, Some(2), "older than the write of its key");
    });
}

#[test]
fn load_against_insert_over_at_once() {
    check("load_against_insert_over_at_once", Some(3), || {
        // Stores nothing and removes what is there.
        let left = load_against(&plain(), |cache| {
            cache.insert_with_ttl(1, 2, Duration::ZERO);
        });
        assert_ne!(left, Some(1), "older than the write of its key");
    });
}

#[test]
fn load_against_removals_of_many() {
    check("load_against_invalidate_all", Some(2), || {
        let left = load_against(&plain(), |cache| cache.invalidate_all());
        assert_ne!(left, Some(1), "older than the removal of everything");
    });
    check("load_against_invalidate_tag", Some(2), || {
        let cache = build(&ManualClock::new(), |b| {
            b.tags(|_, _, tags| tags.add(&7_u8))
        });
        let left = load_against(&cache, |cache| {
            cache.invalidate_tag(&7_u8);
        });
        assert_ne!(left, Some(1), "older than the removal of its tag");
    });
}

/// A refresh serves what is there and loads anew: the removal of the old value wins over both.
#[test]
fn refresh_against_invalidate() {
    check("refresh_against_invalidate", Some(2), || {
        let clock = ManualClock::new();
        let cache = build(&clock, |b| b.refresh_after(Duration::from_nanos(10)));
        cache.insert(1, 1);
        clock.set_ns(20);
        let number = Arc::new(AtomicU8::new(1));
        let theirs = Arc::clone(&number);
        let (served, ()) = race(
            &cache,
            |cache| cache.get_or_refresh_with(1, || number.load(Relaxed)),
            move |cache| {
                theirs.store(2, Relaxed);
                cache.invalidate(&1);
            },
        );
        assert!(matches!(served, 1 | 2), "{served}");
        assert_ne!(cache.peek(&1), Some(1), "older than the removal of its key");
        cache.validate();
    });
}

/// Says that it was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Pending once, then the value.
fn in_two_steps(value: u8) -> impl Future<Output = u8> {
    let mut asked = false;
    std::future::poll_fn(move |_| {
        if std::mem::replace(&mut asked, true) {
            Poll::Ready(value)
        } else {
            Poll::Pending
        }
    })
}

/// A task that asks for key 1.
fn task(
    cache: &Numbers,
    load: impl Future<Output = u8> + 'static,
) -> Pin<Box<dyn Future<Output = u8>>> {
    let cache = cache.clone();
    Box::pin(async move { cache.get_or_insert_async(1, load).await })
}

/// A task that comes to wait while a load ends, with a value or without: it is done at its first look, or
/// it is woken and done at its second. (Tasks on both sides: what a thread is inside of is no business of
/// the model checker's threads, which are one.)
fn wait_against_end(name: &str, publish: bool) {
    check(name, Some(3), move || {
        let cache = plain();
        let mut leader = task(&cache, in_two_steps(2));
        let first = leader
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(first, Poll::Pending);
        let (value, ()) = race(
            &cache,
            |cache| {
                let woken = Arc::new(Woken(AtomicBool::new(false)));
                let waker = Waker::from(Arc::clone(&woken));
                let mut waiting = task(cache, std::future::ready(3));
                let first = waiting.as_mut().poll(&mut Context::from_waker(&waker));
                (first, waiting, woken)
            },
            move |_| {
                if publish {
                    let last = leader
                        .as_mut()
                        .poll(&mut Context::from_waker(Waker::noop()));
                    assert_eq!(last, Poll::Ready(2));
                }
            },
        );
        let (mut value, mut waiting, woken) = value;
        if value.is_pending() {
            assert!(woken.0.load(SeqCst), "nobody woke it");
            value = waiting
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(value, Poll::Ready(if publish { 2 } else { 3 }));
        assert_eq!(cache.peek(&1), Some(if publish { 2 } else { 3 }));
        cache.validate();
    });
}

#[test]
fn waiting_against_the_end_of_the_load() {
    wait_against_end("wait_against_publish", true);
    wait_against_end("wait_against_giving_up", false);
}
