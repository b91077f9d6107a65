//! A thread that ends and uses a cache once more on its way out, from the destructor of a
//! thread-local value. In a binary of its own: a panic there aborts the process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::{Cache, Op};

/// What a thread leaves to be done when it ends.
struct AtExit(Option<Cache<u32, u32>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let Some(cache) = self.0.take() else { return };
        cache.insert(1, 10);
        assert_eq!(cache.get(&1), Some(10));
        assert_eq!(cache.remove(&1), Some(10));
        cache.insert_with_ttl(2, 20, Duration::ZERO);
        cache.compute(3, |_| Op::Put(30));
        assert_eq!(cache.pin().get(&3), Some(&30));
        assert_eq!(cache.iter().count(), 1);
        cache.retain(|_, _| false);
        cache.reap(Duration::from_secs(1));
        cache.insert(4, 40);
        assert_eq!(cache.get_or_insert_with(5, || 50), 50);
        // With this handle its own cache may end too.
    }
}

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

#[test]
fn a_thread_may_use_and_end_a_cache_while_it_ends() {
    for listener in [false, true] {
        for used_first in [false, true] {
            for last_handle in [false, true] {
                let told = Arc::new(AtomicU64::new(0));
                let mut builder = Cache::builder().record_stats(true);
                if listener {
                    let told = Arc::clone(&told);
                    builder = builder.on_removal(move |_: &u32, _: &u32, _| {
                        told.fetch_add(1, Ordering::SeqCst);
                    });
                }
                let cache: Cache<u32, u32> = builder.build().unwrap();
                let kept = (!last_handle).then(|| cache.clone());
                let thread = std::thread::spawn(move || {
                    // What the library keeps for a thread is destroyed before the value that was
                    // set up first, and after the one that was set up last.
                    let before = !used_first;
                    if before {
                        AT_EXIT.with_borrow_mut(|at_exit| at_exit.0 = Some(cache.clone()));
                    }
                    cache.insert(1, 1);
                    cache.insert(1, 2);
                    assert_eq!(cache.get_or_insert_with(6, || 60), 60);
                    assert_eq!(cache.remove(&6), Some(60));
                    assert_eq!(cache.remove(&1), Some(2));
                    if !before {
                        AT_EXIT.with_borrow_mut(|at_exit| at_exit.0 = Some(cache.clone()));
                    }
                });
                thread.join().unwrap();
                if let Some(cache) = kept {
                    assert_eq!(cache.get(&4), Some(40));
                    assert_eq!(cache.get(&5), Some(50));
                    assert_eq!(cache.entry_count(), 2);
                    cache.validate();
                }
                // 1 replaced, 6 and 1 removed; then 1 removed and 3 not retained.
                assert_eq!(told.load(Ordering::SeqCst), if listener { 5 } else { 0 });
            }
        }
    }
}
