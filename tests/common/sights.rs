//! Every operation that says whether a key has a live entry.

use ebbtide::{Cache, Computed, Lifetime, Op};

use super::{Ledger, S, Tracked, ZERO};

/// An operation, and what it says about a key. The key is the cache's only one.
#[derive(Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) name: &'static str,
    /// Whether the key has a live entry, as the operation says.
    pub(crate) sees: fn(&Cache<u64, Tracked>, u64, &Ledger) -> bool,
    /// What it does besides.
    pub(crate) effect: Effect,
}

/// What an operation does besides answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Read,
    /// Counts as a use: renews a time to idle.
    Use,
    /// Changes or removes a live entry; leaves an absent key absent.
    Change,
    /// Stores a value under a key that is absent.
    Create,
}

impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them.
pub(crate) fn sights() -> Vec<Sight> {
    use Effect::{Change, Create, Read, Use};
    let sight = |name, effect, sees| Sight { name, sees, effect };
    vec![
        sight("get", Use, |c, k, _| c.get(&k).is_some()),
        sight("with", Use, |c, k, _| c.with(&k, |_| ()).is_some()),
        sight("pin().get", Use, |c, k, _| c.pin().get(&k).is_some()),
        sight("get_many", Use, |c, k, _| {
            let found = c.get_many(&[k, k + 1]);
            assert!(found[1].is_none());
            found[0].is_some()
        }),
        sight("peek", Read, |c, k, _| c.peek(&k).is_some()),
        sight("contains_key", Read, |c, k, _| c.contains_key(&k)),
        sight("ttl", Read, |c, k, _| c.ttl(&k).is_some()),
        sight("iter", Read, |c, k, _| c.iter().any(|(key, _)| key == k)),
        sight("into_iter", Read, |c, k, _| {
            c.into_iter().any(|(key, _)| key == k)
        }),
        sight("pin().iter", Read, |c, k, _| {
            c.pin().iter().any(|(key, _)| *key == k)
        }),
        sight("live_count", Read, |c, _, _| c.live_count() > 0),
        sight("compute: keep", Read, |c, k, _| {
            let mut found = false;
            let done = c.compute(k, |value| {
                found = value.is_some();
                Op::Keep
            });
            assert_eq!(done, Computed::Unchanged);
            found
        }),
        sight("remove_if: false", Read, |c, k, _| {
            let mut found = false;
            assert!(!c.remove_if(&k, |_| {
                found = true;
                false
            }));
            found
        }),
        sight("retain: true", Read, |c, k, _| {
            let mut found = false;
            c.retain(|key, _| {
                found |= *key == k;
                true
            });
            found
        }),
        sight("compare_and_swap", Change, |c, k, ledger| {
            let expected = ledger.value(k);
            c.compare_and_swap(k, &expected, ledger.value(k)).is_ok()
        }),
        sight("compute: remove", Change, |c, k, _| {
            c.compute(k, |_| Op::Remove) == Computed::Removed
        }),
        sight("remove", Change, |c, k, _| c.remove(&k).is_some()),
        sight("remove_with", Change, |c, k, _| {
            c.remove_with(&k, |_| ()).is_some()
        }),
        sight("invalidate", Change, |c, k, _| c.invalidate(&k)),
        sight("remove_if: true", Change, |c, k, _| {
            c.remove_if(&k, |_| true)
        }),
        sight("retain: false", Change, |c, k, _| {
            let mut found = false;
            c.retain(|key, _| {
                found |= *key == k;
                false
            });
            found
        }),
        sight("drain", Change, |c, k, _| {
            c.drain().any(|(key, _)| key == k)
        }),
        sight("expire", Change, |c, k, _| c.expire(&k, 1_000 * S)),
        sight("expire: zero", Change, |c, k, _| c.expire(&k, ZERO)),
        sight("persist", Change, |c, k, _| c.persist(&k)),
        sight("touch", Change, |c, k, _| c.touch(&k)),
        sight("insert_if_absent", Create, |c, k, ledger| {
            !c.insert_if_absent(k, ledger.value(k))
        }),
        sight("compute: put", Create, |c, k, ledger| {
            c.compute(k, |_| Op::Put(ledger.value(k))) == Computed::Replaced
        }),
        sight("compute: put with ttl", Create, |c, k, ledger| {
            let lifetime = Lifetime::For(1_000 * S);
            c.compute(k, |_| Op::PutWithTtl(ledger.value(k), lifetime)) == Computed::Replaced
        }),
    ]
}

/// Those that change nothing.
pub(crate) fn reads() -> Vec<Sight> {
    let mut all = sights();
    all.retain(|sight| matches!(sight.effect, Effect::Read | Effect::Use));
    all
}
