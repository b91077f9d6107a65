//! Pins that last: what they hold up, and what not. In a binary of their own, because a pin holds up
//! the whole process.

use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, Reaper};

use crate::common::{Ledger, S, Tracked, eventually, tag};

#[test]
fn a_long_pin_holds_up_drops_and_nothing_else_and_what_waits_is_shown() {
    const WAVE: u64 = 20_000;
    for manual in [true, false] {
        let (ledger, clock) = (Ledger::new(), ManualClock::new());
        let reaper = match manual {
            true => Reaper::manual(),
            false => Reaper::dedicated(1).interval(Duration::from_millis(1)),
        };
        let cache: Cache<u64, Tracked> = Cache::builder()
            .clock(clock.clone())
            .reaper(reaper)
            .max_entries(2 * WAVE)
            .build()
            .unwrap();
        let reap = || {
            if manual {
                cache.reap(S);
            }
        };
        let mut pinned = cache.pin();
        for key in 0..WAVE {
            cache.insert_with_ttl(key, ledger.value(key), S);
        }
        let kept = pinned.get(&0).unwrap();
        clock.advance(2 * S);
        eventually("all are unlinked", || {
            reap();
            cache.stats().entries == 0
        });
        for _ in 0..50 {
            reap();
            thread::sleep(Duration::from_millis(1));
        }
        let stats = cache.stats();
        assert_eq!(
            (stats.limbo, stats.dropped),
            (WAVE, 0),
            "it waits, and that is shown"
        );
        assert_eq!(ledger.dropped(), 0);
        assert_eq!(
            kept.tag(),
            0,
            "what was read before is there to be looked at"
        );
        assert!(pinned.get(&0).is_none());
        // Everything else goes on, within the bound.
        for key in WAVE..4 * WAVE {
            cache.insert(key, ledger.value(key));
            assert_eq!(tag(cache.get(&key)), Some(key));
        }
        assert_eq!(cache.entry_count(), 2 * WAVE);
        let other = cache.clone();
        thread::spawn(move || assert!(other.remove(&(4 * WAVE - 1)).is_some()))
            .join()
            .unwrap();
        assert_eq!(ledger.dropped(), 0);
        // Letting go for a moment, now and then, is enough for what has left before.
        eventually("what waited is dropped between two pins", || {
            pinned.repin();
            reap();
            ledger.dropped() as u64 >= WAVE
        });
        drop(pinned);
        eventually("the rest as well", || {
            reap();
            cache.stats().limbo == 0
        });
        drop(cache);
        ledger.assert_all_dropped_once();
    }
}

#[test]
fn an_iterator_that_is_left_lying_holds_up_nothing() {
    let (ledger, clock) = (Ledger::new(), ManualClock::new());
    let cache: Cache<u64, Tracked> = Cache::builder().clock(clock.clone()).build().unwrap();
    for key in 0..5_000 {
        cache.insert(key, ledger.value(key));
    }
    let mut iter = cache.iter();
    let mut drain = cache.drain();
    assert!(iter.next().is_some() && drain.next().is_some());
    cache.invalidate_all();
    eventually("all are dropped", || {
        cache.reap(S);
        ledger.dropped() == 5_000
    });
    drop((iter, drain));
    drop(cache);
    ledger.assert_all_dropped_once();
}
