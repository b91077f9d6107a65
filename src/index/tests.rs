use super::*;
use crate::reclaim::pin;
use proptest::prelude::*;
use std::collections::HashMap;

/// Links ids 0.. with the given hashes, removes some, and compares with a map all the way.
fn exercise(hashes: &[u32], steps: &[(bool, usize)], initial: usize) {
    let (mut index, mut owner) = Index::new(initial);
    let mut limbo = Limbo::default();
    let mut linked: HashMap<u32, u32> = HashMap::new();
    let hash_of = |id: u32| {
        hashes[id as usize % hashes.len()].wrapping_add((id / 7).wrapping_mul(0x9e37_79b9))
    };
    for (round, &(insert, pick)) in steps.iter().enumerate() {
        let id = pick as u32;
        let guard = pin();
        let hash = hash_of(id);
        let found = index.find(hash, &guard, |slot| slot.id() == id);
        assert_eq!(found.is_some(), linked.contains_key(&id));
        match found {
            None if insert => {
                index.link(&mut owner, &mut limbo, hash, id, hash_of);
                linked.insert(id, hash);
            }
            Some(place) if !insert => {
                index.unlink(&mut owner, &mut limbo, place, hash_of);
                linked.remove(&id);
            }
            _ => {}
        }
        if round % 64 == 0 {
            let mut all = index.validate(&owner, hash_of);
            all.sort_unstable();
            let mut expected: Vec<u32> = linked.keys().copied().collect();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
    }
    let guard = pin();
    for (&id, &hash) in &linked {
        assert!(index.find(hash, &guard, |slot| slot.id() == id).is_some());
    }
    // Walking by hash meets each linked id once, in whatever order.
    let (mut seen, mut next) = (Vec::new(), Some(0));
    while let Some(hash) = next {
        next = index.note(&owner, hash, &guard, hash_of, &mut seen);
    }
    let mut seen: Vec<u32> = seen.into_iter().map(SlotRef::id).collect();
    seen.sort_unstable();
    let mut expected: Vec<u32> = linked.keys().copied().collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    index.validate(&owner, hash_of);
    index.dismantle();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn agrees_with_a_map(
        hashes in prop::collection::vec(any::<u32>(), 1..40),
        steps in prop::collection::vec((prop::bool::weighted(0.6), 0usize..3000), 1..6000),
        initial in 0usize..5000,
    ) {
        exercise(&hashes, &steps, initial);
    }
}

#[test]
fn grows_and_shrinks_back() {
    let hashes = [7];
    let mut steps: Vec<(bool, usize)> = (0..20_000).map(|i| (true, i)).collect();
    steps.extend((0..20_000).map(|i| (false, i)));
    exercise(&hashes, &steps, 0);

    let (mut index, mut owner) = Index::new(0);
    let mut limbo = Limbo::default();
    let hash_of = |id: u32| id.wrapping_mul(0x9e37_79b9);
    let small = index.bytes(&owner);
    for id in 0..50_000 {
        index.link(&mut owner, &mut limbo, hash_of(id), id, hash_of);
    }
    let guard = pin();
    for id in 0..50_000 {
        let place = index
            .find(hash_of(id), &guard, |slot| slot.id() == id)
            .unwrap();
        index.unlink(&mut owner, &mut limbo, place, hash_of);
    }
    assert_eq!(index.bytes(&owner), small);
    index.dismantle();
}

#[test]
fn equal_hashes_make_a_long_segment_not_a_vast_directory() {
    let (mut index, mut owner) = Index::new(0);
    let mut limbo = Limbo::default();
    for id in 0..3000 {
        index.link(&mut owner, &mut limbo, 0xdead_beef, id, |_| 0xdead_beef);
    }
    index.validate(&owner, |_| 0xdead_beef);
    assert!(index.bytes(&owner) < 3000 * 64);
    index.dismantle();
}
