//! The configurations in which a case has to hold, and the checks that hold after all of them.

use std::time::Instant;

use ebbtide::{Builder, Cache, ManualClock, Reaper, RemovalCause, Strategy};

use super::{Events, Ledger, PATIENCE, S, Tracked, assert_counts_agree};

/// The bound of the bounded configurations.
pub(crate) const BOUND: u64 = 1_000;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) shards: usize,
    pub(crate) sample: bool,
    pub(crate) bound: Option<u64>,
    pub(crate) listener: bool,
}

impl Config {
    /// All of them: 1 and 16 shards, both strategies, bounded and not, with a listener and without.
    pub(crate) fn all() -> impl Iterator<Item = Config> {
        (0..16u32).map(|i| Config {
            shards: if i & 1 == 0 { 1 } else { 16 },
            sample: i & 2 != 0,
            bound: (i & 4 != 0).then_some(BOUND),
            listener: i & 8 != 0,
        })
    }

    /// Those without a bound.
    pub(crate) fn unbounded() -> impl Iterator<Item = Config> {
        Self::all().filter(|config| config.bound.is_none())
    }

    /// Those that sweep.
    pub(crate) fn sweeping() -> impl Iterator<Item = Config> {
        Self::all().filter(|config| !config.sample)
    }

    pub(crate) fn strategy(self) -> Strategy {
        if self.sample {
            Strategy::sample()
        } else {
            Strategy::sweep()
        }
    }

    /// A builder with these settings, reaped by hand and without a listener.
    pub(crate) fn builder<K, V>(self) -> Builder<K, V>
    where
        K: std::hash::Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let builder = Cache::builder()
            .shards(self.shards)
            .reaper(Reaper::manual().strategy(self.strategy()));
        match self.bound {
            Some(bound) => builder.max_entries(bound),
            None => builder,
        }
    }
}

/// A cache with everything that watches it.
pub(crate) struct Rig {
    pub(crate) cache: Cache<u64, Tracked>,
    pub(crate) clock: ManualClock,
    pub(crate) events: Events<u64>,
    pub(crate) ledger: Ledger,
    pub(crate) config: Config,
}

impl Rig {
    pub(crate) fn new(
        config: Config,
        settings: impl FnOnce(Builder<u64, Tracked>) -> Builder<u64, Tracked>,
    ) -> Self {
        let (clock, events) = (ManualClock::new(), Events::new());
        let mut builder = settings(config.builder().clock(clock.clone()));
        if config.listener {
            builder = builder.on_removal(events.listener());
        }
        Rig {
            cache: builder.build().unwrap(),
            clock,
            events,
            ledger: Ledger::new(),
            config,
        }
    }

    pub(crate) fn value(&self, tag: u64) -> Tracked {
        self.ledger.value(tag)
    }

    /// Reaps by hand until `condition` holds: a sampler finds the last ones only in the end.
    #[track_caller]
    pub(crate) fn reap_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            self.cache.reap(S);
            assert!(
                begin.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}"
            );
        }
    }

    /// Checks the books, then ends the cache and checks them again.
    #[track_caller]
    pub(crate) fn finish(self) {
        let Rig {
            cache,
            events,
            ledger,
            config,
            ..
        } = self;
        assert_counts_agree(&cache);
        let stats = cache.stats();
        let told = events.all().len() as u64;
        if config.listener {
            assert_eq!(told, stats.inserted - stats.entries, "events: {stats:?}");
            assert_eq!(events.count(RemovalCause::Evicted) as u64, stats.evicted);
            assert_eq!(events.count(RemovalCause::Explicit) as u64, stats.explicit);
            assert_eq!(events.count(RemovalCause::Replaced) as u64, stats.replaced);
        }
        assert!(stats.entries <= config.bound.unwrap_or(u64::MAX));
        assert_eq!(stats.panics, 0);
        drop(cache);
        assert_eq!(
            events.all().len() as u64,
            told,
            "an event for a cache that ended"
        );
        events.assert_each_once();
        ledger.assert_all_dropped_once();
    }
}

/// Says which configuration it was when a test fails.
struct Witness<C: std::fmt::Debug>(C);

impl<C: std::fmt::Debug> Drop for Witness<C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {:?}", self.0);
        }
    }
}

/// Runs `test` in each of the configurations, with the builder's further `settings`, and checks
/// the books after each.
pub(crate) fn with_cache(
    configs: impl IntoIterator<Item = Config>,
    settings: impl Fn(Builder<u64, Tracked>) -> Builder<u64, Tracked>,
    test: impl Fn(&Rig),
) {
    for config in configs {
        let _witness = Witness(config);
        let rig = Rig::new(config, &settings);
        test(&rig);
        rig.finish();
    }
}

/// Runs `test` for each of the cases, and says which one it was when it fails.
pub(crate) fn for_each<C: std::fmt::Debug + Clone>(
    cases: impl IntoIterator<Item = C>,
    mut test: impl FnMut(C),
) {
    for case in cases {
        let _witness = Witness(case.clone());
        test(case);
    }
}
