//! scratch
mod common;
use common::pause::*;
use common::*;
use ebbtide::*;
use std::sync::Arc;
use std::sync::atomic::*;
use std::time::Duration;

struct Angry(Arc<AtomicBool>);
impl Clone for Angry {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Ordering::SeqCst), "angry");
        Angry(self.0.clone())
    }
}

#[test]
fn b1_clone_panics_in_remove() {
    let angry = Arc::new(AtomicBool::new(true));
    let count = Arc::new(AtomicU64::new(0));
    let c2 = count.clone();
    let cache: Cache<u32, Angry> = Cache::builder()
        .clock(ManualClock::new())
        .max_entries(2)
        .on_removal(move |_: &u32, _: &Angry, _| {
            c2.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    cache.insert(1, Angry(angry.clone()));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.remove(&1))).is_err());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    cache.insert(2, Angry(angry.clone()));
    cache.insert(3, Angry(angry.clone()));
    assert_eq!(cache.entry_count(), 2);
}

#[test]
fn b2_ttl_not_final() {
    let clock = PausingClock::new();
    let cache: Cache<u32, u32> = Cache::builder().clock(clock.clone()).build().unwrap();
    cache.insert_with_ttl(1, 1, 10 * S);
    clock.set(9 * S);
    let gate = Gate::new();
    // ttl: reading 1 decides live; then the clock moves past and reading 2 says over.
    let c = cache.clone();
    let g = gate.clone();
    let t = std::thread::spawn(move || {
        pause_at(1, &g);
        c.ttl(&1)
    });
    gate.wait_reached();
    clock.set(10 * S);
    gate.open();
    let ttl = t.join().unwrap();
    println!("{ttl:?}");
    clock.set(9 * S);
    if ttl.is_none() {
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn b3_bound() {
    for round in 0..300 {
        let cache: Cache<u64, u64> = Cache::builder()
            .clock(ManualClock::new())
            .shards(4096)
            .max_entries(1)
            .build()
            .unwrap();
        std::thread::scope(|s| {
            for t in 0..3 {
                let cache = &cache;
                s.spawn(move || {
                    for i in 0..30 {
                        cache.insert(t * 100 + i, 0);
                    }
                });
            }
        });
        assert!(
            cache.entry_count() <= 1,
            "round {round}: {}",
            cache.entry_count()
        );
    }
}

#[test]
fn b4_cap0_depth() {
    thread_local!(static D: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let max = Arc::new(AtomicU32::new(0));
    let m = max.clone();
    let slot: Arc<std::sync::OnceLock<Cache<u32, u32>>> = Arc::default();
    let s2 = slot.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .clock(ManualClock::new())
        .max_entries(0)
        .on_removal(move |k: &u32, _: &u32, _| {
            D.set(D.get() + 1);
            m.fetch_max(D.get(), Ordering::SeqCst);
            if *k < 100 {
                s2.get().unwrap().insert(k + 1, 0);
            }
            D.set(D.get() - 1);
        })
        .build()
        .unwrap();
    let _ = slot.set(cache.clone());
    cache.insert(0, 0);
    assert!(
        max.load(Ordering::SeqCst) <= 16,
        "{}",
        max.load(Ordering::SeqCst)
    );
}

#[test]
fn b5_persist_touch() {
    let clock = ManualClock::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .clock(clock.clone())
        .time_to_idle(10 * S)
        .build()
        .unwrap();
    cache.insert(1, 1);
    assert!(cache.persist(&1));
    assert!(cache.touch(&1));
    clock.advance(20 * S);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn b17_thread_exit() {
    struct AtExit(Cache<u32, u32>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            self.0.insert(1, 2);
        }
    }
    thread_local!(static E: std::cell::RefCell<Option<AtExit>> = const { std::cell::RefCell::new(None) });
    let count = Arc::new(AtomicU64::new(0));
    let c2 = count.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .clock(ManualClock::new())
        .on_removal(move |_: &u32, _: &u32, _| {
            c2.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    let c = cache.clone();
    std::thread::spawn(move || {
        E.with_borrow_mut(|e| *e = Some(AtExit(c.clone())));
        c.insert(1, 0);
        c.insert(1, 1);
    })
    .join()
    .unwrap();
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let _ = Duration::ZERO;
}
