//! The contenders as they are counted: every hasher that can be given one has the same fixed
//! keys, so that a count is the same each time, and ebbtide's reaper is nobody's thread.

use std::time::Duration;

use crate::adapters::{HOUR, Plan, Store, View};

/// A hasher whose keys are always the same. (Only for counting.)
pub(super) fn seeded() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

type Seeded = ahash::RandomState;

/// A store that can also forget.
pub(super) trait Removes: Store {
    /// Whether there was an entry.
    fn remove(&self, key: u64) -> bool;
}

/// Gets to see contenders as types.
pub(super) trait CostsVisitor {
    fn visit<S: Removes>(&mut self);
}

pub(super) fn visit<V: CostsVisitor>(visitor: &mut V) {
    visitor.visit::<Nothing>();
    #[cfg(feature = "ebbtide")]
    {
        use ours::{BOUNDED, EACH, LEASED, LIVING, Ours, PLAIN, Pinned};
        visitor.visit::<Ours<PLAIN>>();
        visitor.visit::<Ours<LIVING>>();
        visitor.visit::<Ours<EACH>>();
        visitor.visit::<Ours<LEASED>>();
        visitor.visit::<Ours<BOUNDED>>();
        visitor.visit::<Pinned<PLAIN>>();
        visitor.visit::<Pinned<LIVING>>();
        visitor.visit::<Pinned<LEASED>>();
    }
    visitor.visit::<Dashmap>();
    visitor.visit::<Papaya>();
    visitor.visit::<PapayaPinned>();
    visitor.visit::<Scc>();
    visitor.visit::<SccIndex>();
    visitor.visit::<QuickCache>();
    visitor.visit::<TinyUfo>();
    visitor.visit::<Moka<false>>();
    visitor.visit::<Moka<true>>();
    visitor.visit::<MiniMoka<false>>();
    visitor.visit::<MiniMoka<true>>();
}

/// The loop around the calls, and no call: what all other rows have in them too.
pub(super) struct Nothing;

pub(super) const LOOP_ALONE: &str = "(the loop alone)";

impl Store for Nothing {
    type View<'a> = &'a Self;

    fn name() -> String {
        LOOP_ALONE.to_owned()
    }

    fn build(_plan: &Plan) -> Self {
        Self
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, _key: u64, _value: u64) {}
}

impl View for &Nothing {
    #[inline]
    fn get(&self, _key: u64) -> Option<u64> {
        None
    }
}

impl Removes for Nothing {
    #[inline]
    fn remove(&self, _key: u64) -> bool {
        false
    }
}

#[cfg(feature = "ebbtide")]
mod ours {
    use std::time::Duration;

    use ebbtide::{Cache, Reaper};

    use super::{HOUR, Plan, Removes, Seeded, Store, View, seeded};

    pub(super) const PLAIN: u8 = 0;
    pub(super) const LIVING: u8 = 1;
    pub(super) const EACH: u8 = 2;
    pub(super) const LEASED: u8 = 3;
    pub(super) const BOUNDED: u8 = 4;

    pub(super) struct Ours<const SETTINGS: u8>(Cache<u64, u64, Seeded>);

    fn cache(settings: u8, plan: &Plan) -> Cache<u64, u64, Seeded> {
        let builder = Cache::builder().reaper(Reaper::manual());
        let builder = match settings {
            LIVING => builder.time_to_live(HOUR),
            LEASED => builder
                .time_to_live(HOUR)
                .clock_lease(Duration::from_secs(1)),
            BOUNDED => builder.max_entries(plan.bound as u64),
            _ => builder,
        };
        builder
            .hasher(seeded())
            .build()
            .expect("nothing contradictory was asked for")
    }

    fn suffix(settings: u8) -> &'static str {
        match settings {
            LIVING => ", time_to_live",
            EACH => ", insert_with_ttl",
            LEASED => ", time_to_live, clock_lease",
            BOUNDED => ", max_entries",
            _ => "",
        }
    }

    impl<const SETTINGS: u8> Store for Ours<SETTINGS> {
        type View<'a> = &'a Self;

        fn name() -> String {
            format!("ebbtide{}", suffix(SETTINGS))
        }

        fn build(plan: &Plan) -> Self {
            Self(cache(SETTINGS, plan))
        }

        fn view(&self) -> &Self {
            self
        }

        #[inline]
        fn insert(&self, key: u64, value: u64) {
            if SETTINGS == EACH {
                self.0.insert_with_ttl(key, value, HOUR);
            } else {
                self.0.insert(key, value);
            }
        }
    }

    impl<const SETTINGS: u8> View for &Ours<SETTINGS> {
        #[inline]
        fn get(&self, key: u64) -> Option<u64> {
            self.0.get(&key)
        }
    }

    impl<const SETTINGS: u8> Removes for Ours<SETTINGS> {
        #[inline]
        fn remove(&self, key: u64) -> bool {
            self.0.remove(&key).is_some()
        }
    }

    /// Read with a pin held.
    pub(super) struct Pinned<const SETTINGS: u8>(Cache<u64, u64, Seeded>);

    impl<const SETTINGS: u8> Store for Pinned<SETTINGS> {
        const READS_ONLY: bool = true;
        type View<'a> = PinnedView<'a>;

        fn name() -> String {
            format!("ebbtide{}, pin held", suffix(SETTINGS))
        }

        fn build(plan: &Plan) -> Self {
            Self(cache(SETTINGS, plan))
        }

        fn view(&self) -> PinnedView<'_> {
            PinnedView(self.0.pin())
        }

        fn insert(&self, key: u64, value: u64) {
            self.0.insert(key, value);
        }
    }

    pub(super) struct PinnedView<'a>(ebbtide::Pinned<'a, u64, u64, Seeded>);

    impl View for PinnedView<'_> {
        #[inline]
        fn get(&self, key: u64) -> Option<u64> {
            self.0.get(&key).copied()
        }
    }

    impl<const SETTINGS: u8> Removes for Pinned<SETTINGS> {
        fn remove(&self, key: u64) -> bool {
            self.0.remove(&key).is_some()
        }
    }
}

/// Implements the traits for a contender that needs no state besides itself.
macro_rules! contender {
    (
        $type:ident $(<const $flag:ident>)?, $inner:ty, $name:expr,
        build: $build:expr,
        get: $get:expr,
        insert: $insert:expr,
        remove: $remove:expr
        $(, settle: $settle:expr)?
    ) => {
        pub(super) struct $type $(<const $flag: bool>)? ($inner);

        impl $(<const $flag: bool>)? Store for $type $(<$flag>)? {
            type View<'a> = &'a Self;

            fn name() -> String {
                $name.to_owned()
            }

            fn build(plan: &Plan) -> Self {
                Self($build(plan))
            }

            fn view(&self) -> &Self {
                self
            }

            #[inline]
            fn insert(&self, key: u64, value: u64) {
                $insert(&self.0, key, value);
            }

            $(fn settle(&self) {
                $settle(&self.0);
            })?
        }

        impl $(<const $flag: bool>)? View for &$type $(<$flag>)? {
            #[inline]
            fn get(&self, key: u64) -> Option<u64> {
                $get(&self.0, key)
            }
        }

        impl $(<const $flag: bool>)? Removes for $type $(<$flag>)? {
            #[inline]
            fn remove(&self, key: u64) -> bool {
                $remove(&self.0, key)
            }
        }
    };
}

type DashmapOf = dashmap::DashMap<u64, u64, Seeded>;

contender!(
    Dashmap, DashmapOf, "dashmap",
    build: |_: &Plan| dashmap::DashMap::with_hasher(seeded()),
    get: |map: &DashmapOf, key| map.get(&key).map(|value| *value),
    insert: |map: &DashmapOf, key, value| map.insert(key, value),
    remove: |map: &DashmapOf, key| map.remove(&key).is_some()
);

type PapayaOf = papaya::HashMap<u64, u64, Seeded>;

fn papaya_map(_plan: &Plan) -> PapayaOf {
    papaya::HashMap::with_hasher(seeded())
}

contender!(
    Papaya, PapayaOf, "papaya",
    build: papaya_map,
    get: |map: &PapayaOf, key| map.pin().get(&key).copied(),
    insert: |map: &PapayaOf, key, value| map.pin().insert(key, value).is_some(),
    remove: |map: &PapayaOf, key| map.pin().remove(&key).is_some()
);

/// papaya, read with a pin held.
pub(super) struct PapayaPinned(PapayaOf);

pub(super) struct PapayaPin<'a>(papaya::HashMapRef<'a, u64, u64, Seeded, papaya::LocalGuard<'a>>);

impl Store for PapayaPinned {
    const READS_ONLY: bool = true;
    type View<'a> = PapayaPin<'a>;

    fn name() -> String {
        "papaya, pin held".to_owned()
    }

    fn build(plan: &Plan) -> Self {
        Self(papaya_map(plan))
    }

    fn view(&self) -> PapayaPin<'_> {
        PapayaPin(self.0.pin())
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }
}

impl View for PapayaPin<'_> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }
}

impl Removes for PapayaPinned {
    fn remove(&self, key: u64) -> bool {
        self.0.pin().remove(&key).is_some()
    }
}

type SccOf = scc::HashMap<u64, u64, Seeded>;

contender!(
    Scc, SccOf, "scc",
    build: |_: &Plan| scc::HashMap::with_hasher(seeded()),
    get: |map: &SccOf, key| map.read_sync(&key, |_, value| *value),
    insert: |map: &SccOf, key, value| map.upsert_sync(key, value),
    remove: |map: &SccOf, key| map.remove_sync(&key).is_some()
);

type SccIndexOf = scc::HashIndex<u64, u64, Seeded>;

fn scc_index_insert(index: &SccIndexOf, key: u64, value: u64) {
    match index.entry_sync(key) {
        scc::hash_index::Entry::Occupied(mut entry) => entry.update(value),
        scc::hash_index::Entry::Vacant(entry) => drop(entry.insert_entry(value)),
    }
}

contender!(
    SccIndex, SccIndexOf, "scc HashIndex",
    build: |_: &Plan| scc::HashIndex::with_hasher(seeded()),
    get: |index: &SccIndexOf, key| index.peek_with(&key, |_, value| *value),
    insert: scc_index_insert,
    remove: |index: &SccIndexOf, key| index.remove_sync(&key)
);

type QuickCacheOf = quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, Seeded>;

contender!(
    QuickCache, QuickCacheOf, "quick_cache",
    build: |plan: &Plan| quick_cache::sync::Cache::with(
        plan.entries,
        plan.bound as u64,
        quick_cache::UnitWeighter,
        seeded(),
        quick_cache::sync::DefaultLifecycle::default(),
    ),
    get: |cache: &QuickCacheOf, key| cache.get(&key),
    insert: |cache: &QuickCacheOf, key, value| cache.insert(key, value),
    remove: |cache: &QuickCacheOf, key| cache.remove(&key).is_some()
);

type TinyUfoOf = tinyufo::TinyUfo<u64, u64>;

contender!(
    TinyUfo, TinyUfoOf, "TinyUFO",
    build: |plan: &Plan| tinyufo::TinyUfo::new(plan.bound, plan.entries),
    get: |cache: &TinyUfoOf, key| cache.get(&key),
    insert: |cache: &TinyUfoOf, key, value| drop(cache.put(key, value, 1)),
    remove: |cache: &TinyUfoOf, key| cache.remove(&key).is_some()
);

/// The lifetime of a contender that comes with and without.
fn lifetime(living: bool) -> Option<Duration> {
    living.then_some(HOUR)
}

type MokaOf = moka::sync::Cache<u64, u64, Seeded>;

contender!(
    Moka<const LIVING>, MokaOf, if LIVING { "moka, time_to_live" } else { "moka" },
    build: |_: &Plan| {
        let builder = moka::sync::Cache::builder();
        match lifetime(LIVING) {
            Some(lifetime) => builder.time_to_live(lifetime),
            None => builder,
        }
        .build_with_hasher(seeded())
    },
    get: |cache: &MokaOf, key| cache.get(&key),
    insert: |cache: &MokaOf, key, value| cache.insert(key, value),
    remove: |cache: &MokaOf, key| cache.remove(&key).is_some(),
    settle: |cache: &MokaOf| cache.run_pending_tasks()
);

type MiniMokaOf = mini_moka::sync::Cache<u64, u64, Seeded>;

contender!(
    MiniMoka<const LIVING>, MiniMokaOf,
    if LIVING { "mini-moka, time_to_live" } else { "mini-moka" },
    build: |_: &Plan| {
        let builder = mini_moka::sync::Cache::builder();
        match lifetime(LIVING) {
            Some(lifetime) => builder.time_to_live(lifetime),
            None => builder,
        }
        .build_with_hasher(seeded())
    },
    get: |cache: &MiniMokaOf, key| cache.get(&key),
    insert: |cache: &MiniMokaOf, key, value| cache.insert(key, value),
    // It returns nothing: that all are gone is checked afterwards.
    remove: |cache: &MiniMokaOf, key| { cache.invalidate(&key); true },
    settle: |cache: &MiniMokaOf| mini_moka::sync::ConcurrentCacheExt::sync(cache)
);
