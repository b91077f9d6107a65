//! The last handle of a cache inside a value of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::{Cache, Reaper};

use crate::common::eventually;

const MS: Duration = Duration::from_millis(1);

/// Owns a handle of the other cache, and takes its time to drop it.
struct Owner {
    other: Option<Cache<u8, Owner>>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Both reapers are inside such a drop before either goes on.
        std::thread::sleep(30 * MS);
        self.other = None;
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two caches with reapers of their own, each with a value that owned the last handle of the other.
/// Each dropping thread dropped a handle, which dismissed the other cache and waited for its threads:
/// for each other, for ever.
#[test]
fn two_caches_that_own_each_other_end() {
    let kinds: [(Reaper, Reaper); 2] = [
        (Reaper::dedicated(1), Reaper::dedicated(2)),
        (Reaper::dedicated(1), Reaper::shared()),
    ];
    for (first, second) in kinds {
        let dropped = Arc::new(AtomicUsize::new(0));
        let build = |reaper: Reaper| -> Cache<u8, Owner> {
            let reaper = reaper.interval(5 * MS);
            Cache::builder().reaper(reaper).build().unwrap()
        };
        let (a, b) = (build(first), build(second));
        for (cache, other) in [(&a, &b), (&b, &a)] {
            let value = Owner {
                other: Some(other.clone()),
                dropped: Arc::clone(&dropped),
            };
            cache.insert_with_ttl(1, value, 150 * MS);
        }
        drop((a, b));
        eventually("both values are dropped", || {
            dropped.load(Ordering::SeqCst) == 2
        });
    }
}
