//! The audit against the exact count. Seeds are fixed, of the draws and of the hasher: what is found here
//! is found in every run.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::{Audit, Cache, ManualClock, RandomState};

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3_600);

/// A cache of which a part is over.
struct Mix {
    name: &'static str,
    cache: Cache<u64, u64>,
}

impl Mix {
    /// Entries `0..entries`, those that `is_short` names with the short lifetime, of which a second and
    /// more is over; then what `change` does.
    fn new(
        name: &'static str,
        shards: usize,
        entries: u64,
        is_short: impl Fn(u64) -> bool,
        change: impl Fn(&Cache<u64, u64>),
    ) -> Self {
        let clock = ManualClock::new();
        let cache = Cache::builder()
            .shards(shards)
            .hasher(RandomState::with_seeds(1, 2, 3, 4))
            .clock(clock.clone())
            .build()
            .expect("nothing is wrong");
        for key in 0..entries {
            match key % 5 {
                _ if is_short(key) => cache.insert_with_ttl(key, key, SHORT),
                0 => cache.insert(key, key),
                _ => cache.insert_with_ttl(key, key, LONG),
            }
        }
        clock.advance(2 * SHORT);
        change(&cache);
        Mix { name, cache }
    }

    fn dead_share(&self) -> f64 {
        let (linked, live) = (self.cache.entry_count(), self.cache.live_count());
        (linked - live) as f64 / linked as f64
    }

    fn all() -> Vec<Mix> {
        let nothing = |_: &Cache<u64, u64>| {};
        vec![
            Mix::new("scattered", 16, 20_000, |key| key % 4 == 0, nothing),
            Mix::new("few", 1, 4_000, |key| key % 50 == 0, nothing),
            Mix::new("nearly all", 16, 20_000, |key| key % 20 != 0, nothing),
            Mix::new("the lowest slots", 4, 10_000, |key| key < 3_000, nothing),
            Mix::new("the highest slots", 4, 10_000, |key| key >= 9_000, nothing),
            Mix::new(
                "holes below",
                2,
                6_000,
                |key| key % 3 == 0,
                |cache| {
                    let holes = (0..3_000).filter(|key| key % 3 != 0 && key % 8 != 0);
                    holes.for_each(|key| assert!(cache.invalidate(&key)));
                },
            ),
            // What a sample by the sweep's cursor would see is all dead, or all alive.
            Mix::new(
                "half swept",
                1,
                4_000,
                |key| key % 2 == 0,
                |cache| assert_eq!(cache.reap_at_most(1_000).expired, 1_000),
            ),
            Mix::new(
                "some shards swept",
                16,
                20_000,
                |key| key % 2 == 0,
                // (By reads: how far a sweep over several shards comes is a matter of time.)
                |cache| {
                    let swept = |key: &u64| cache.core.address(key).shard % 3 == 0;
                    let all = (0..20_000).filter(swept);
                    all.for_each(|key| assert_eq!(cache.get(&key).is_some(), key % 2 != 0));
                },
            ),
        ]
    }
}

#[test]
fn the_estimate_has_no_bias_and_the_spread_of_independent_draws() {
    const AUDITS: usize = 50;
    const SAMPLES: u64 = 400;
    let (mut biases, mut mixes) = (0.0, 0.0);
    for mix in Mix::all() {
        let mut random = SmallRng::seed_from_u64(7);
        let share = mix.dead_share();
        assert!(share > 0.0 && share < 1.0, "{}", mix.name);
        let mean = share * SAMPLES as f64;
        let variance = mean * (1.0 - share);
        let (mut off, mut spread) = (0.0, 0.0);
        for _ in 0..AUDITS {
            let audit = mix.cache.audit_by(SAMPLES, &mut random);
            assert_eq!(audit.sampled, SAMPLES, "{}", mix.name);
            assert_eq!(audit.entries, mix.cache.entry_count(), "{}", mix.name);
            let difference = audit.dead as f64 - mean;
            off += difference;
            spread += difference * difference / variance;
        }
        // Chi-square with 50 degrees of freedom: outside with a probability of 10^-4 on each side.
        assert!((20.0..100.0).contains(&spread), "{}: {spread}", mix.name);
        let bias = off * off / (variance * AUDITS as f64);
        // With one: 4 standard errors.
        assert!(bias < 16.0, "{}: {bias}", mix.name);
        (biases, mixes) = (biases + bias, mixes + 1.0);
    }
    // With 8: 10^-4.
    assert_eq!(mixes, 8.0);
    assert!(biases < 31.8, "{biases}");
}

#[test]
fn the_interval_holds_the_share_as_often_as_it_says() {
    const AUDITS: usize = 400;
    for mix in Mix::all() {
        let mut random = SmallRng::seed_from_u64(11);
        let exact = mix.dead_share();
        let mut held = 0;
        for _ in 0..AUDITS {
            let share = mix.cache.audit_by(100, &mut random).dead_share();
            held += usize::from((share.low..=share.high).contains(&exact));
        }
        // 95 %, and Wilson's interval is off by some points at any one share.
        let held = held as f64 / AUDITS as f64;
        assert!((0.91..0.99).contains(&held), "{}: {held}", mix.name);
    }
}

#[test]
fn the_forecast_goes_by_the_time_left() {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .hasher(RandomState::with_seeds(1, 2, 3, 4))
        .clock(clock.clone())
        .build()
        .expect("nothing is wrong");
    // One in six each: over, due within 1 s, 10 s, a minute, ten minutes, later or never.
    let lifetimes = [10, 11, 20, 70, 610, 611].map(Duration::from_secs);
    for key in 0..6_000u64 {
        match key % 12 {
            11 => cache.insert(key, ()),
            _ => cache.insert_with_ttl(key, (), lifetimes[key as usize % 6]),
        }
    }
    clock.advance(Duration::from_secs(10));
    let samples = 60_000;
    let audit = cache.audit_by(samples, &mut SmallRng::seed_from_u64(3));
    let Audit {
        dead,
        due_in_1s,
        due_in_10s,
        due_in_1min,
        due_in_10min,
        never,
        ..
    } = audit;
    let sixths = [
        (dead, 1.0),
        (due_in_1s, 1.0),
        (due_in_10s, 2.0),
        (due_in_1min, 3.0),
        (due_in_10min, 4.0),
        (never, 0.5),
    ];
    for (i, (count, sixths)) in sixths.into_iter().enumerate() {
        let share: f64 = sixths / 6.0;
        let error = (share * (1.0 - share) / samples as f64).sqrt();
        let off = (count as f64 / samples as f64 - share) / error;
        assert!(off.abs() < 4.0, "{i}: {count} of {samples}");
    }
}

#[test]
fn where_hardly_any_slot_is_taken_it_finds_less_and_ends() {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .shards(1)
        .hasher(RandomState::with_seeds(1, 2, 3, 4))
        .clock(clock.clone())
        .build()
        .expect("nothing is wrong");
    for key in 0..4_000u64 {
        cache.insert(key, ());
    }
    // The last slot stays, and with it the ones below.
    (0..3_999).for_each(|key| assert!(cache.invalidate(&key)));
    let mut random = SmallRng::seed_from_u64(5);
    let found: u64 = (0..1_000)
        .map(|_| cache.audit_by(1, &mut random).sampled)
        .sum();
    // 64 draws of about 4,032: one in 63.5 is found.
    assert!((5..40).contains(&found), "{found}");
    assert!(cache.invalidate(&3_999));
    assert_eq!(cache.audit_by(1_000, &mut random).sampled, 0);
    assert_eq!(cache.audit(0), Audit::default());
}
