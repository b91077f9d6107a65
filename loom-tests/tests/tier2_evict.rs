//! Eviction under the whole cache: a write that needs room against everything else that can happen to
//! the entry that has to go. (Increments against eviction are in `tier2_counters`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::{Cache, ManualClock, Op, Policy, RemovalCause};
use ebbtide_loom_tests::check;
use ebbtide_loom_tests::whole::{Drops, Fixed, Tracked, UNIT, build, race};

type Tracking = Cache<u8, Tracked, Fixed>;

/// The events of key 1, by cause. Not the model checker's atomics: telling is no step of the model.
#[derive(Clone, Default)]
struct Told(Arc<[AtomicUsize; 4]>);

impl Told {
    fn of(&self, cause: RemovalCause) -> usize {
        self.0[cause as usize].load(Ordering::Relaxed)
    }

    fn all(&self) -> usize {
        self.0.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

/// Room for one entry, which is key 1's.
fn full(clock: &ManualClock, drops: &Drops) -> (Tracking, Told) {
    let told = Told::default();
    let counts = told.clone();
    let cache = build(clock, |b| {
        b.max_entries(1)
            .policy(Policy::clock())
            .time_to_idle(Duration::from_nanos(16 * UNIT))
            .on_removal(move |&key: &u8, _: &Tracked, cause| {
                if key == 1 {
                    counts.0[cause as usize].fetch_add(1, Ordering::Relaxed);
                }
            })
    });
    cache.insert(1, Tracked::new(10, drops));
    (cache, told)
}

/// One entry at most, each event once, nothing leaked and nothing dropped twice.
fn settle(cache: Tracking, drops: &Drops, made: usize) {
    cache.validate();
    assert!(cache.entry_count() <= 1, "the bound is exceeded");
    drop(cache);
    assert_eq!(drops.count(), made, "drops");
}

#[test]
fn evict_against_remove() {
    check("evict_against_remove", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, told) = full(&clock, &drops);
        let (removed, ()) = race(&cache, |cache| cache.invalidate(&1), {
            let drops = drops.clone();
            move |cache| cache.insert(2, Tracked::new(20, &drops))
        });
        assert_eq!(told.of(RemovalCause::Explicit), usize::from(removed));
        assert_eq!(told.of(RemovalCause::Evicted), usize::from(!removed));
        assert_eq!(
            cache.peek(&2).map(|v| v.number()),
            Some(20),
            "what was written"
        );
        settle(cache, &drops, 2);
    });
}

#[test]
fn evict_against_idle_extension() {
    check("evict_against_idle_extension", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, told) = full(&clock, &drops);
        clock.set_ns(2 * UNIT);
        let (seen, ()) = race(&cache, |cache| cache.get(&1).map(|value| value.number()), {
            let drops = drops.clone();
            move |cache| cache.insert(2, Tracked::new(20, &drops))
        });
        assert!(matches!(seen, None | Some(10)));
        assert_eq!(told.of(RemovalCause::Evicted), 1);
        assert!(cache.peek(&1).is_none(), "evicted, and there");
        assert!(cache.peek(&2).is_some(), "what was written");
        settle(cache, &drops, 2);
    });
}

#[test]
fn evict_against_expiry_and_reap() {
    check("evict_against_reap", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, told) = full(&clock, &drops);
        let now = clock.clone();
        let more = drops.clone();
        let ((), ()) = race(
            &cache,
            |cache| cache.insert(2, Tracked::new(20, &more)),
            move |cache| {
                now.set_ns(16 * UNIT);
                cache.reap_at_most(8);
            },
        );
        assert_eq!(told.all(), 1, "events");
        assert_eq!(told.of(RemovalCause::Explicit), 0);
        assert!(cache.peek(&1).is_none());
        settle(cache, &drops, 2);
    });
}

#[test]
fn evict_against_replace() {
    check("evict_against_replace", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, told) = full(&clock, &drops);
        let more = drops.clone();
        let (done, ()) = race(
            &cache,
            |cache| {
                cache.compute(1, |_| Op::Put(Tracked::new(11, &drops)));
            },
            move |cache| cache.insert(2, Tracked::new(20, &more)),
        );
        let () = done;
        let held = [1, 2].map(|key| cache.peek(&key).map(|value| value.number()));
        assert!(
            matches!(held, [Some(11), None] | [None, Some(20)]),
            "one of what was written: {held:?}"
        );
        // (A decision may have been made, and its value dropped, for nothing.)
        assert!(told.all() >= 1, "events");
        cache.validate();
    });
}

#[test]
fn two_writers_that_both_need_room() {
    check("evict_against_evict", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, told) = full(&clock, &drops);
        let more = drops.clone();
        race(
            &cache,
            |cache| cache.insert(2, Tracked::new(20, &drops)),
            move |cache| cache.insert(3, Tracked::new(30, &more)),
        );
        assert_eq!(told.of(RemovalCause::Evicted), 1);
        let held = [2, 3].map(|key| cache.peek(&key).is_some());
        assert_eq!(held.iter().filter(|held| **held).count(), 1, "{held:?}");
        settle(cache, &drops, 3);
    });
}

#[test]
fn set_max_entries_against_insert() {
    check("evict_bound_lowered_against_insert", Some(2), || {
        let (clock, drops) = (ManualClock::new(), Drops::default());
        let (cache, _) = full(&clock, &drops);
        let more = drops.clone();
        let (lowered, ()) = race(
            &cache,
            |cache| cache.set_max_entries(0),
            move |cache| cache.insert(2, Tracked::new(20, &more)),
        );
        assert_eq!(lowered, Ok(()));
        assert_eq!(cache.entry_count(), 0, "nothing may be held");
        settle(cache, &drops, 2);
    });
}
