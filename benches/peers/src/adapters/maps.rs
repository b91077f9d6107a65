//! dashmap, papaya, and scc's HashMap and HashIndex.

use super::{Fast, Hasher, Hashers, Plan, Sip, Store, View, Visitor};

pub(super) fn visit<V: Visitor>(hashers: Hashers, visitor: &mut V) {
    if hashers.own() {
        visit_with::<Sip, V>(visitor);
    }
    if hashers.ahash() {
        visit_with::<Fast, V>(visitor);
    }
}

fn visit_with<S: Hasher, V: Visitor>(visitor: &mut V) {
    visitor.visit::<Dashmap<S>>();
    visitor.visit::<Papaya<S>>();
    visitor.visit::<PapayaPinned<S>>();
    visitor.visit::<Scc<S>>();
    visitor.visit::<SccIndex<S>>();
}

struct Dashmap<S>(dashmap::DashMap<u64, u64, S>);

impl<S: Hasher> Store for Dashmap<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("dashmap{}", S::SUFFIX)
    }

    fn build(_plan: &Plan) -> Self {
        Self(dashmap::DashMap::with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

impl<S: Hasher> View for &Dashmap<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }
}

/// papaya, pinned for every call, as most code does.
struct Papaya<S>(papaya::HashMap<u64, u64, S>);

impl<S: Hasher> Store for Papaya<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("papaya{}", S::SUFFIX)
    }

    fn build(_plan: &Plan) -> Self {
        Self(papaya::HashMap::with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }
}

impl<S: Hasher> View for &Papaya<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
}

/// papaya, with a pin held over a thousand reads.
struct PapayaPinned<S>(papaya::HashMap<u64, u64, S>);

struct PapayaPin<'a, S> {
    map: &'a papaya::HashMap<u64, u64, S>,
    pin: papaya::HashMapRef<'a, u64, u64, S, papaya::LocalGuard<'a>>,
}

impl<S: Hasher> Store for PapayaPinned<S> {
    const BASE: &'static str = "ebbtide, pin held";
    const READS_ONLY: bool = true;
    type View<'a> = PapayaPin<'a, S>;

    fn name() -> String {
        format!("papaya, pin held{}", S::SUFFIX)
    }

    fn build(_plan: &Plan) -> Self {
        Self(papaya::HashMap::with_hasher(S::default()))
    }

    fn view(&self) -> PapayaPin<'_, S> {
        PapayaPin {
            map: &self.0,
            pin: self.0.pin(),
        }
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }
}

impl<S: Hasher> View for PapayaPin<'_, S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.pin.get(&key).copied()
    }

    fn renew(&mut self) {
        self.pin = self.map.pin();
    }
}

struct Scc<S: Hasher>(scc::HashMap<u64, u64, S>);

impl<S: Hasher> Store for Scc<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("scc{}", S::SUFFIX)
    }

    fn build(_plan: &Plan) -> Self {
        Self(scc::HashMap::with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.upsert_sync(key, value);
    }
}

impl<S: Hasher> View for &Scc<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read_sync(&key, |_, value| *value)
    }
}

/// scc's map for reading: its reads take no lock.
struct SccIndex<S: Hasher>(scc::HashIndex<u64, u64, S>);

impl<S: Hasher> Store for SccIndex<S> {
    type View<'a> = &'a Self;

    fn name() -> String {
        format!("scc HashIndex{}", S::SUFFIX)
    }

    fn build(_plan: &Plan) -> Self {
        Self(scc::HashIndex::with_hasher(S::default()))
    }

    fn view(&self) -> &Self {
        self
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        match self.0.entry_sync(key) {
            scc::hash_index::Entry::Occupied(mut entry) => entry.update(value),
            scc::hash_index::Entry::Vacant(entry) => drop(entry.insert_entry(value)),
        }
    }
}

impl<S: Hasher> View for &SccIndex<S> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }
}
