//! Keys that are looked up by another type.

use std::borrow::Borrow;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

use ebbtide::{Cache, RandomState};

#[derive(Clone, PartialEq, Eq, Hash)]
struct Number(u64);

impl Borrow<u64> for Number {
    fn borrow(&self) -> &u64 {
        &self.0
    }
}

/// Its `hash_one` is another function for each type, as ahash's is for primitives where the compiler
/// lets it specialise (nightly).
#[derive(Clone, Default)]
struct ByType;

impl BuildHasher for ByType {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }

    fn hash_one<T: Hash>(&self, value: T) -> u64 {
        let mut hasher = self.build_hasher();
        std::any::type_name::<T>().hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

/// With a nightly compiler a key that wraps a number was not found by that number.
#[test]
fn a_key_is_found_by_what_it_borrows_as() {
    check(ByType);
    check(RandomState::new());
}

fn check<S: BuildHasher + Send + Sync + 'static>(hasher: S) {
    let cache = Cache::builder().hasher(hasher).build().unwrap();
    for number in 0..100 {
        cache.insert(Number(number), number);
    }
    for number in 0..100 {
        assert_eq!(cache.get(&number), Some(number));
        assert_eq!(cache.get(&Number(number)), Some(number));
    }
    for number in 0..100 {
        assert_eq!(cache.remove(&number), Some(number));
    }
    assert_eq!(cache.entry_count(), 0);
}
