//! The contenders, each behind the same small traits. Every call is
//! monomorphised: no trait object stands inside a timed loop.

mod caches;
mod counters;
#[cfg(feature = "ebbtide")]
mod ebbtide;
mod maps;
mod timed;

use std::hash::BuildHasher;
use std::time::Duration;

use clap::ValueEnum;

use crate::report::EBBTIDE;

pub(crate) use counters::{Counters, CountersVisitor, visit_counters};
pub(crate) use timed::{Timed, TimedVisitor, visit_timed};

/// The lifetime of entries that must outlive every benchmark.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What a store is to be built for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How many entries it will hold.
    pub(crate) entries: usize,
    /// The bound for contenders that cannot do without one; more than `entries`,
    /// so that nothing is evicted. The others are left unbounded.
    pub(crate) bound: usize,
    /// The lifetime of every entry, in contenders that know lifetimes.
    pub(crate) lifetime: Option<Duration>,
}

/// A contender: a shared store from u64 to u64.
pub(crate) trait Store: Sized + Send + Sync + 'static {
    /// Which contender this one's figures are compared with.
    const BASE: &'static str = EBBTIDE;
    /// The same structure as another contender, only read in another way.
    const READS_ONLY: bool = false;
    /// How many times as many keys as entries it gets where its memory is measured:
    /// what evicts must have evicted.
    const FILLS: u64 = 1;

    /// What a thread reads through: the store itself, or a pin it holds.
    type View<'a>: View
    where
        Self: 'a;

    fn name() -> String;
    fn build(plan: &Plan) -> Self;
    fn view(&self) -> Self::View<'_>;
    /// Inserts or replaces.
    fn insert(&self, key: u64, value: u64);
    /// Does what the contender has put off (called between timed parts only).
    fn settle(&self) {}
}

/// How one thread reads.
pub(crate) trait View {
    /// The value under `key`, copied.
    fn get(&self, key: u64) -> Option<u64>;
    /// Called every thousand reads or so: a held pin is renewed here.
    fn renew(&mut self) {}
}

/// Gets to see contenders as types.
pub(crate) trait Visitor {
    fn visit<S: Store>(&mut self);
}

/// Which hashers the contenders use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hashers {
    /// Each its own default (SipHash for moka, mini-moka and all maps).
    Own,
    /// ahash, which ebbtide uses, for every contender with SipHash as default.
    Ahash,
    /// Both, as separate contenders.
    Both,
}

impl Hashers {
    fn own(self) -> bool {
        self != Self::Ahash
    }

    fn ahash(self) -> bool {
        self != Self::Own
    }
}

/// A hasher and how a contender's name tells of it.
pub(crate) trait Hasher: BuildHasher + Default + Clone + Send + Sync + 'static {
    const SUFFIX: &'static str;
}

/// The standard library's SipHash, the default of most contenders.
pub(crate) type Sip = std::hash::RandomState;
/// The fast keyed hasher.
pub(crate) type Fast = ahash::RandomState;

impl Hasher for Sip {
    const SUFFIX: &'static str = "";
}

impl Hasher for Fast {
    const SUFFIX: &'static str = ", ahash";
}

/// Caches, as used for entries that have lifetimes. (quick_cache and TinyUFO
/// have none: they take part without.)
pub(crate) fn visit_caches<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    ebbtide::visit(visitor);
    caches::visit(hashers, visitor);
}

/// Maps, as used for entries without lifetimes.
pub(crate) fn visit_maps<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    ebbtide::visit(visitor);
    maps::visit(hashers, visitor);
}

/// Contenders that have lifetimes, with each way of giving them.
pub(crate) fn visit_lifetimes<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    ebbtide::visit_lifetimes(visitor);
    caches::visit_lifetimes(hashers, visitor);
}

/// The library once more, bounded, beside itself without a bound.
#[cfg_attr(not(feature = "ebbtide"), expect(unused_variables))]
pub(crate) fn visit_bounded<V: Visitor>(visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    ebbtide::visit_bounded(visitor);
}

/// Everybody, but for who is bounded only to show what that costs.
pub(crate) fn visit_all<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    #[cfg(feature = "ebbtide")]
    ebbtide::visit_lifetimes(visitor);
    caches::visit(hashers, visitor);
    maps::visit(hashers, visitor);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every contender must really store what the benches believe it does.
    struct Contract {
        lifetime: Option<Duration>,
        seen: Vec<String>,
    }

    impl Visitor for Contract {
        fn visit<S: Store>(&mut self) {
            let name = S::name();
            let store = S::build(&Plan {
                entries: 1_000,
                bound: 2_000,
                lifetime: self.lifetime,
            });
            for key in 0..1_000 {
                store.insert(key, key + 1);
            }
            store.insert(7, 70);
            store.settle();
            let mut view = store.view();
            assert_eq!(view.get(7), Some(70), "{name}: insert replaces");
            view.renew();
            for key in (0..1_000).filter(|key| *key != 7) {
                assert_eq!(view.get(key), Some(key + 1), "{name}: key {key}");
            }
            assert_eq!(view.get(1_000), None, "{name}: a key never inserted");
            self.seen.push(name);
        }
    }

    #[test]
    fn every_contender_stores_and_returns() {
        for lifetime in [None, Some(HOUR)] {
            let mut contract = Contract {
                lifetime,
                seen: Vec::new(),
            };
            visit_all(Hashers::Both, &mut contract);
            visit_bounded(&mut contract);
            let seen = contract.seen.join("; ");
            for peer in ["moka", "mini-moka", "quick_cache", "TinyUFO"] {
                assert!(contract.seen.iter().any(|name| name == peer), "{seen}");
            }
            for peer in ["dashmap, ahash", "papaya, pin held", "scc, ahash"] {
                assert!(contract.seen.iter().any(|name| name == peer), "{seen}");
            }
            let mut unique = contract.seen.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), contract.seen.len(), "names are unique");
        }
    }

    /// A lifetime that is over hides the entry, in every contender with lifetimes.
    struct Expiring(usize);

    impl Visitor for Expiring {
        fn visit<S: Store>(&mut self) {
            let store = S::build(&Plan {
                entries: 10,
                bound: 20,
                lifetime: Some(Duration::from_millis(30)),
            });
            store.insert(1, 1);
            std::thread::sleep(Duration::from_millis(60));
            // The contender with a lifetime of an hour per entry ignores the plan's.
            if !S::name().contains("insert_with_ttl") {
                assert_eq!(store.view().get(1), None, "{}", S::name());
                self.0 += 1;
            }
        }
    }

    #[test]
    fn contenders_with_lifetimes_hide_what_has_expired() {
        let mut expiring = Expiring(0);
        visit_lifetimes(Hashers::Own, &mut expiring);
        assert!(expiring.0 >= 2);
    }
}
