//! MiniRedis's contract of expiration, held by the cache: absolute deadlines, a
//! logical absence that can precede the physical removal, bounded passes of active
//! expiry. Everything runs under a clock moved by hand; nothing sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebbtide::{
    Builder, Cache, Counter, CounterError, Lifetime, ManualClock, Op, Reaper, RemovalCause,
};

const NANOSECOND: Duration = Duration::from_nanos(1);

/// The largest number that a counter holds.
const COUNTER_END: i64 = (1 << 62) - 1;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn left(seconds: u64) -> Option<Lifetime> {
    Some(Lifetime::For(secs(seconds)))
}

type Key = &'static str;

/// A cache under a clock that stands at 1,000 s when the test begins.
struct Store<V> {
    clock: ManualClock,
    cache: Cache<Key, V>,
}

impl<V: Clone + Send + Sync + 'static> Store<V> {
    fn new() -> Self {
        Self::configured(|builder| builder)
    }

    fn configured(configure: impl FnOnce(Builder<Key, V>) -> Builder<Key, V>) -> Self {
        let clock = ManualClock::new();
        clock.advance(secs(1_000));
        let builder = Cache::builder()
            .clock(clock.clone())
            .reaper(Reaper::manual());
        Self {
            cache: configure(builder).build().expect("valid settings"),
            clock,
        }
    }

    /// Physical and live entries.
    fn counts(&self) -> (u64, u64) {
        (self.cache.entry_count(), self.cache.live_count())
    }
}

/// What a removal listener was told, in order.
#[derive(Clone, Default)]
struct Removals(Arc<Mutex<Vec<(Key, RemovalCause)>>>);

impl Removals {
    fn listener<V>(&self) -> impl Fn(&Key, &V, RemovalCause) + Send + Sync + use<V> {
        let log = self.clone();
        move |key: &Key, _: &V, cause| log.lock().push((*key, cause))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Key, RemovalCause)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything told so far, by key.
    fn sorted(&self) -> Vec<(Key, RemovalCause)> {
        let mut told = self.lock().clone();
        told.sort_by_key(|&(key, _)| key);
        told
    }
}

/// A store whose removals are listened to.
fn observed<V: Clone + Send + Sync + 'static>() -> (Store<V>, Removals) {
    let removals = Removals::default();
    let store = Store::configured(|builder| builder.on_removal(removals.listener()));
    (store, removals)
}

// Absolute deadlines

#[test]
fn a_deadline_is_absolute_and_reads_do_not_move_it() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 7, secs(10));
    for passed in 0..10 {
        assert_eq!(cache.ttl("loan"), left(10 - passed), "after {passed} s");
        assert_eq!(cache.get("loan"), Some(7));
        assert_eq!(cache.peek("loan"), Some(7));
        assert!(cache.contains_key("loan"));
        clock.advance(secs(1) - NANOSECOND);
        assert_eq!(cache.get("loan"), Some(7));
        clock.advance(NANOSECOND);
    }
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_deadline_can_be_given_as_a_moment() {
    let before = Instant::now();
    let clock = ManualClock::new();
    let after = Instant::now();
    let cache = Cache::<Key, u32>::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    cache.insert_with_ttl("loan", 7, after + secs(100));
    let Some(Lifetime::For(remaining)) = cache.ttl("loan") else {
        panic!("a live entry with a deadline: {:?}", cache.ttl("loan"));
    };
    assert!(remaining >= secs(100), "{remaining:?}");
    assert!(remaining <= secs(100) + (after - before), "{remaining:?}");

    clock.advance(remaining - NANOSECOND);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::For(NANOSECOND)));
    assert_eq!(cache.get("loan"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);

    // A moment that has passed is over at once.
    cache.insert_with_ttl("loan", 8, after + secs(50));
    assert_eq!(cache.get("loan"), None);
    cache.insert("loan", 9);
    assert!(cache.expire("loan", after + secs(50)), "it deletes");
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn an_entry_is_expired_at_its_deadline_and_not_before() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 7, secs(5));
    clock.advance(secs(5) - NANOSECOND);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::For(NANOSECOND)));
    assert_eq!(cache.get("loan"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn ttl_tells_absent_persistent_and_remaining_apart() {
    let Store { clock, cache } = Store::new();
    cache.insert("persistent", 1);
    cache.insert_with_ttl("timed", 2, secs(30));
    clock.advance(secs(10));
    assert_eq!(cache.ttl("missing"), None);
    assert_eq!(cache.ttl("persistent"), Some(Lifetime::Never));
    assert_eq!(cache.ttl("timed"), left(20));
    clock.advance(secs(20));
    assert_eq!(cache.ttl("timed"), None);
}

#[test]
fn decades_pass_without_waiting() {
    let Store { clock, cache } = Store::new();
    let years = secs(20 * 365 * 86_400);
    cache.insert_with_ttl("archive", 7, years);
    clock.advance(years - NANOSECOND);
    assert_eq!(cache.get("archive"), Some(7));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("archive"), None);
}

// Logical absence before physical removal

#[test]
fn a_read_answers_absent_before_the_removal_and_then_removes() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 7, secs(5));
    assert_eq!(store.counts(), (1, 1));
    clock.advance(secs(5));
    assert_eq!(store.counts(), (1, 0), "present, and dead");

    assert_eq!(cache.get("loan"), None);
    assert_eq!(store.counts(), (0, 0), "the read removed it");
    let stats = cache.stats();
    assert_eq!(stats.expired_by_read, 1);
    assert_eq!((stats.expired_by_write, stats.expired_by_sweep), (0, 0));

    assert_eq!(cache.get("loan"), None);
    assert_eq!(cache.stats().expired_by_read, 1, "once");
}

#[test]
fn an_entry_that_a_read_found_expired_is_reported_once() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 7, secs(5));
    clock.advance(secs(5));
    for _ in 0..3 {
        assert_eq!(cache.get("loan"), None);
    }
    cache.reap(secs(1));
    cache.reap(secs(1));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Expired)]);
}

#[test]
fn every_read_path_hides_what_is_expired() {
    let Store { clock, cache } = Store::new();
    cache.insert("live", 1);
    // One key for each path, so that no path meets what another cleaned up.
    let keys = ["get", "with", "peek", "contains", "ttl", "pin", "compute"];
    for key in keys {
        cache.insert_with_ttl(key, 2, secs(5));
    }
    clock.advance(secs(5));
    let iterated: Vec<_> = cache.iter().collect();
    assert_eq!(iterated, [("live", 1)]);
    let pinned = cache.pin();
    let pinned_keys: Vec<_> = pinned.iter().map(|(key, _)| *key).collect();
    assert_eq!(pinned_keys, ["live"]);
    assert_eq!(pinned.get("pin"), None);
    drop(pinned);
    assert_eq!(cache.get("get"), None);
    assert_eq!(cache.with("with", |value| *value), None);
    assert_eq!(cache.peek("peek"), None);
    assert!(!cache.contains_key("contains"));
    assert_eq!(cache.ttl("ttl"), None);
    let mut seen = Some(0);
    cache.compute("compute", |value| {
        seen = value.copied();
        Op::Keep
    });
    assert_eq!(seen, None);
    assert_eq!(cache.live_count(), 1);
}

#[test]
fn get_many_hides_what_is_expired_and_keeps_the_order() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("short", 1, secs(5));
    cache.insert_with_ttl("long", 2, secs(50));
    cache.insert("persistent", 3);
    let keys = ["long", "short", "missing", "persistent", "short", "long"];
    assert_eq!(
        cache.get_many(keys),
        [Some(2), Some(1), None, Some(3), Some(1), Some(2)]
    );
    clock.advance(secs(5));
    assert_eq!(
        cache.get_many(keys),
        [Some(2), None, None, Some(3), None, Some(2)]
    );
    assert_eq!(cache.live_count(), 2);
}

#[test]
fn removing_what_is_expired_answers_absent_and_reports_expired() {
    let (Store { clock, cache }, removals) = observed();
    for key in ["a", "b"] {
        cache.insert_with_ttl(key, 1, secs(5));
    }
    clock.advance(secs(5));
    assert_eq!(cache.remove("a"), None);
    assert!(!cache.invalidate("b"));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(
        removals.sorted(),
        [("a", RemovalCause::Expired), ("b", RemovalCause::Expired)]
    );
}

// What keeps a deadline, and what changes it

#[test]
fn replacement_clears_the_deadline_unless_it_brings_one() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    cache.insert("loan", 2);
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
    clock.advance(secs(10));
    assert_eq!(cache.get("loan"), Some(2));

    cache.insert_with_ttl("loan", 3, secs(10));
    clock.advance(secs(9));
    cache.insert_with_ttl("loan", 4, secs(20));
    assert_eq!(cache.ttl("loan"), left(20));
    clock.advance(secs(19));
    assert_eq!(cache.get("loan"), Some(4));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn replacement_renews_the_caches_own_lifetime() {
    let Store { clock, cache } = Store::configured(|builder| builder.time_to_live(secs(10)));
    cache.insert("loan", 1);
    clock.advance(secs(9));
    assert_eq!(cache.ttl("loan"), left(1));
    cache.insert("loan", 2);
    assert_eq!(cache.ttl("loan"), left(10));
    clock.advance(secs(9));
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn replacing_what_is_expired_reports_expired() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(5));
    clock.advance(secs(5));
    cache.insert("loan", 2);
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Expired)]);
    cache.insert("loan", 3);
    assert_eq!(
        removals.sorted(),
        [
            ("loan", RemovalCause::Expired),
            ("loan", RemovalCause::Replaced)
        ]
    );
    assert_eq!(cache.get("loan"), Some(3));
}

#[test]
fn a_value_computed_in_place_keeps_the_deadline() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |value| match value {
        Some(count) => Op::Put(count + 1),
        None => panic!("the entry is live"),
    });
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_value_computed_with_a_lifetime_takes_it() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |value| {
        Op::PutWithTtl(value.map_or(0, |count| count + 1), secs(60).into())
    });
    assert_eq!(cache.ttl("loan"), left(60));
    clock.advance(secs(59));
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(secs(1));
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn compare_and_swap_keeps_the_deadline() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert_eq!(cache.compare_and_swap("loan", &1, 2), Ok(()));
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(2));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn increment_keeps_the_deadline() {
    let clock = ManualClock::new();
    let cache: Cache<String, Counter> = Cache::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    assert_eq!(cache.increment_with_ttl("loan", 1, secs(10)), Ok(1));
    clock.advance(secs(4));
    assert_eq!(cache.increment("loan", 1), Ok(2));
    assert_eq!(cache.ttl("loan"), left(6));
    // A lifetime given to an increment counts only when it creates.
    assert_eq!(cache.increment_with_ttl("loan", 1, secs(99)), Ok(3));
    assert_eq!(cache.ttl("loan"), left(6));
    clock.advance(secs(6) - NANOSECOND);
    assert_eq!(cache.increment("loan", 1), Ok(4));
    clock.advance(NANOSECOND);
    // Expired: the count begins again, and persistent without a lifetime.
    assert_eq!(cache.increment("loan", 1), Ok(1));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
}

#[test]
fn expire_sets_a_deadline_from_now() {
    let Store { clock, cache } = Store::new();
    cache.insert("loan", 1);
    clock.advance(secs(100));
    assert!(cache.expire("loan", secs(10)));
    assert_eq!(cache.ttl("loan"), left(10));
    clock.advance(secs(5));
    assert!(cache.expire("loan", secs(10)), "later");
    assert_eq!(cache.ttl("loan"), left(10));
    assert!(cache.expire("loan", secs(2)), "sooner");
    assert_eq!(cache.ttl("loan"), left(2));
    clock.advance(secs(2) - NANOSECOND);
    assert_eq!(cache.get("loan"), Some(1));
    clock.advance(NANOSECOND);
    assert_eq!(cache.get("loan"), None);
}

#[test]
fn a_sooner_deadline_is_swept_on_time() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(3_600));
    assert!(cache.expire("loan", secs(2)));
    clock.advance(secs(2));
    assert_eq!(cache.reap(secs(1)).expired, 1);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn persist_takes_the_deadline_away() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(9));
    assert!(cache.persist("loan"));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
    assert!(cache.persist("loan"), "again");
    clock.advance(secs(1_000_000));
    assert_eq!(cache.reap(secs(1)).expired, 0);
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(store.counts(), (1, 1));
}

#[test]
fn expire_to_zero_deletes() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(5));
    assert!(cache.expire("loan", Duration::ZERO));
    assert_eq!(cache.entry_count(), 0, "at once");
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.get("loan"), None);
    assert!(!cache.expire("loan", Duration::ZERO), "nothing left");
    assert_eq!(removals.sorted(), [("loan", RemovalCause::Explicit)]);
}

#[test]
fn storing_for_no_time_at_all_stores_nothing() {
    let Store { cache, .. } = Store::new();
    cache.insert_with_ttl("new", 1, Duration::ZERO);
    assert_eq!(cache.entry_count(), 0);
    cache.insert("old", 1);
    cache.insert_with_ttl("old", 2, Duration::ZERO);
    assert_eq!(cache.get("old"), None);
    assert_eq!(cache.entry_count(), 0);
}

// Bounded passes

#[test]
fn bounded_passes_remove_two_two_and_one() {
    let (Store { clock, cache }, removals) = observed();
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        cache.insert_with_ttl(key, 1, secs(1));
    }
    clock.advance(secs(1));
    let passes: Vec<u64> = (0..3).map(|_| cache.reap_at_most(2).expired).collect();
    assert_eq!(passes, [2, 2, 1]);
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(cache.reap_at_most(2).expired, 0, "nothing left");
    assert_eq!(
        removals.sorted(),
        keys.map(|key| (key, RemovalCause::Expired))
    );
    assert_eq!(cache.stats().expired_by_sweep, 5);
}

#[test]
fn a_read_and_bounded_passes_share_the_work() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("lazy", 1, Duration::from_millis(100));
    clock.advance(Duration::from_millis(100));
    assert_eq!(cache.get("lazy"), None);
    assert_eq!(cache.entry_count(), 0);
    for key in ["a", "b"] {
        cache.insert(key, 1);
        assert!(cache.expire(key, secs(1)));
    }
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(1).expired, 1);
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(cache.reap_at_most(1).expired, 1);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn what_a_bounded_pass_left_behind_stays_hidden() {
    let store = Store::new();
    let Store { clock, cache } = &store;
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        cache.insert_with_ttl(key, 1, secs(1));
    }
    clock.advance(secs(1));
    assert_eq!(cache.reap_at_most(2).expired, 2);
    assert_eq!(store.counts(), (3, 0));
    assert_eq!(cache.get_many(keys), [None; 5]);
}

#[test]
fn a_pass_can_inspect_entries_and_remove_none() {
    let store = Store::configured(|builder| builder.time_to_idle(secs(160)));
    let Store { clock, cache } = &store;
    let keys = ["a", "b", "c"];
    for key in keys {
        cache.insert(key, 1);
    }
    // Renewed by reads: the sweep finds them where their old deadlines were.
    clock.advance(secs(100));
    assert_eq!(cache.get_many(keys), [Some(1); 3]);
    clock.advance(secs(100));
    let (mut passes, mut inspected) = (0, cache.stats().entries_inspected);
    while !cache.reap_at_most(1).finished {
        passes += 1;
        assert!(passes < 100, "a pass must come to its end");
    }
    inspected = cache.stats().entries_inspected - inspected;
    assert_eq!(inspected, 3);
    assert_eq!(store.counts(), (3, 3), "and removed none");

    clock.advance(secs(60));
    assert_eq!(cache.reap(secs(1)).expired, 3, "later passes go on");
    assert_eq!(store.counts(), (0, 0));
}

#[test]
fn passes_over_live_entries_remove_none_and_reach_the_dead_ones() {
    let clock = ManualClock::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    for key in 0..1_000 {
        cache.insert_with_ttl(key, key, secs(3_600));
    }
    for _ in 0..10 {
        assert_eq!(cache.reap_at_most(2).expired, 0);
    }
    assert_eq!(cache.live_count(), 1_000);

    // Every 200th is due now: passes of two must reach all five.
    for key in (0..1_000).step_by(200) {
        assert!(cache.expire(&key, secs(1)));
    }
    clock.advance(secs(1));
    let mut expired = 0;
    for _ in 0..1_000 {
        let pass = cache.reap_at_most(2).expired;
        assert!(pass <= 2);
        expired += pass;
    }
    assert_eq!(expired, 5);
    assert_eq!((cache.entry_count(), cache.live_count()), (995, 995));
}

// Failed operations leave nothing behind

#[test]
fn a_failed_swap_changes_neither_value_nor_deadline() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert_eq!(cache.compare_and_swap("loan", &5, 6), Err(6));
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert_eq!(cache.compare_and_swap("missing", &5, 6), Err(6));
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(removals.sorted(), []);
}

#[test]
fn a_swap_on_what_is_expired_fails_and_brings_nothing_back() {
    let Store { clock, cache } = Store::new();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(10));
    assert_eq!(cache.compare_and_swap("loan", &1, 2), Err(2));
    assert_eq!(cache.get("loan"), None);
    assert_eq!(cache.ttl("loan"), None);
    assert_eq!(cache.live_count(), 0);
}

#[test]
fn an_increment_out_of_range_changes_neither_count_nor_deadline() {
    let clock = ManualClock::new();
    let cache: Cache<String, Counter> = Cache::builder()
        .clock(clock.clone())
        .build()
        .expect("valid settings");
    assert_eq!(
        cache.increment_with_ttl("full", COUNTER_END, secs(10)),
        Ok(COUNTER_END)
    );
    clock.advance(secs(4));
    assert_eq!(cache.increment("full", 1), Err(CounterError::Overflow));
    assert_eq!(
        cache.increment_with_ttl("full", 1, secs(99)),
        Err(CounterError::Overflow)
    );
    let count = cache.get("full").map(|counter| counter.get());
    assert_eq!(count, Some(COUNTER_END));
    assert_eq!(cache.ttl("full"), left(6));

    assert_eq!(
        cache.increment("new", i64::MAX),
        Err(CounterError::Overflow)
    );
    assert!(!cache.contains_key("new"));
    assert_eq!(cache.entry_count(), 1);
}

#[test]
fn an_insert_that_finds_a_live_entry_changes_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    assert!(!cache.insert_if_absent("loan", 2));
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert_eq!(removals.sorted(), []);
    clock.advance(secs(6));
    assert!(cache.insert_if_absent("loan", 3), "expired is absent");
    assert_eq!(cache.get("loan"), Some(3));
    assert_eq!(cache.ttl("loan"), Some(Lifetime::Never));
}

#[test]
fn changing_the_deadline_of_what_is_absent_creates_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("expired", 1, secs(10));
    clock.advance(secs(10));
    for key in ["expired", "missing"] {
        assert!(!cache.expire(key, secs(60)), "{key}");
        assert!(!cache.persist(key), "{key}");
        assert!(!cache.touch(key), "{key}");
        assert!(!cache.expire(key, Duration::ZERO), "{key}");
        assert_eq!(cache.ttl(key), None, "{key}");
        assert_eq!(cache.get(key), None, "{key}");
    }
    cache.reap(secs(1));
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(removals.sorted(), [("expired", RemovalCause::Expired)]);
}

#[test]
fn a_computation_that_keeps_or_panics_changes_nothing() {
    let (Store { clock, cache }, removals) = observed();
    cache.insert_with_ttl("loan", 1, secs(10));
    clock.advance(secs(4));
    cache.compute("loan", |_| Op::Keep);
    cache.compute("missing", |_| Op::Keep);
    for key in ["loan", "missing"] {
        let failed = catch_unwind(AssertUnwindSafe(|| {
            cache.compute(key, |_| panic!("the computation fails"));
        }));
        assert!(failed.is_err(), "{key}: the caller sees the panic");
    }
    assert_eq!(cache.get("loan"), Some(1));
    assert_eq!(cache.ttl("loan"), left(6));
    assert!(!cache.contains_key("missing"));
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(removals.sorted(), []);
    cache.insert("loan", 2);
    assert_eq!(cache.get("loan"), Some(2), "still usable");
}

#[test]
fn a_failed_operation_cleans_up_nothing_on_the_side() {
    let store = Store::configured(|builder| builder.shards(1));
    let Store { clock, cache } = &store;
    cache.insert("live", 1);
    for key in ["a", "b", "c"] {
        cache.insert_with_ttl(key, 1, secs(5));
    }
    clock.advance(secs(5));
    assert_eq!(store.counts(), (4, 1));
    let before = cache.stats();

    assert_eq!(cache.compare_and_swap("live", &5, 6), Err(6));
    assert!(!cache.insert_if_absent("live", 2));
    assert!(!cache.expire("missing", secs(60)));
    assert_eq!(cache.remove("missing"), None);
    let failed = catch_unwind(AssertUnwindSafe(|| {
        cache.compute("live", |_| panic!("the computation fails"));
    }));
    assert!(failed.is_err());

    assert_eq!(store.counts(), (4, 1), "the expired ones wait as they did");
    let after = cache.stats();
    let expired = |stats: &ebbtide::Stats| {
        [
            stats.expired_by_read,
            stats.expired_by_write,
            stats.expired_by_sweep,
        ]
    };
    assert_eq!(expired(&before), expired(&after));
    assert_eq!(cache.reap(secs(1)).expired, 3);
}

// Expiration and the bound

#[test]
fn dead_entries_are_given_up_before_live_ones() {
    let removals = Removals::default();
    let Store { clock, cache } = Store::configured(|builder| {
        builder
            .max_entries(3)
            .shards(1)
            .on_removal(removals.listener())
    });
    cache.insert("live", 1);
    cache.insert_with_ttl("a", 1, secs(5));
    cache.insert_with_ttl("b", 1, secs(5));
    clock.advance(secs(5));
    cache.insert("c", 1);
    cache.insert("d", 1);
    assert_eq!(cache.get_many(["live", "c", "d"]), [Some(1); 3]);
    assert_eq!(
        removals.sorted(),
        [("a", RemovalCause::Expired), ("b", RemovalCause::Expired)]
    );
    let stats = cache.stats();
    assert_eq!((stats.evicted, stats.live_evicted_while_dead), (0, 0));
}
