//! Fewer kinds of operations, chosen for one race each, in many more schedules.

use ebbtide_shuttle_tests::{Kind, Mix, check};

use Kind::*;

/// P1, P2: what was reported absent does not come back, though hits prolong what they find.
#[test]
fn idle_extension_against_expiry() {
    const MIX: Mix = Mix {
        kinds: &[Get, Get, Peek, Contains, InsertIfAbsent, Touch],
        keys: 1,
        idle: 2,
        steps: 6,
        threads: 4,
        ..Mix::BASE
    };
    check("idle_extension_against_expiry", 800, || MIX.run());
}

/// P2, P4: a key that is always there is found whatever happens to its entry and beside it.
#[test]
fn replacement_against_reads() {
    const MIX: Mix = Mix {
        kinds: &[Insert, Remove, Reap, InsertWithTtl],
        keys: 2,
        anchors: 2,
        threads: 4,
        ..Mix::BASE
    };
    check("replacement_against_reads", 800, || MIX.run());
}

/// P4: the new entry is in its place before the old one ends.
#[test]
fn replacement_of_what_is_always_there() {
    const MIX: Mix = Mix {
        keys: 0,
        anchors: 1,
        on_anchors: &[
            Insert,
            CompareAndSwap,
            Get,
            Get,
            Peek,
            Contains,
            GetMany,
            Iter,
        ],
        operations: 3,
        steps: 0,
        ..Mix::BASE
    };
    check("replacement_of_what_is_always_there", 2_500, || MIX.run());
}

/// P8: slots are used again while readers are pinned.
#[test]
fn reuse_against_pins() {
    const MIX: Mix = Mix {
        kinds: &[Pin, Pin, PinnedIter, Insert, Remove, Reap, Reap],
        keys: 2,
        threads: 4,
        operations: 6,
        ..Mix::BASE
    };
    check("reuse_against_pins", 800, || MIX.run());
}

/// P3, P5 and the lane: deadlines change while the reaper is about.
#[test]
fn deadlines_against_reaping() {
    const MIX: Mix = Mix {
        kinds: &[
            InsertWithTtl,
            Expire,
            Expire,
            Persist,
            Touch,
            Reap,
            ReapOne,
            Compute,
        ],
        keys: 2,
        steps: 6,
        threads: 4,
        ..Mix::BASE
    };
    check("deadlines_against_reaping", 800, || MIX.run());
}

/// Each end is told once, by whoever wins.
#[test]
fn ends_against_ends() {
    const MIX: Mix = Mix {
        kinds: &[
            Remove,
            Invalidate,
            RemoveIf,
            Reap,
            Insert,
            InsertWithTtl,
            Compute,
            Retain,
            Drain,
            InvalidateAll,
        ],
        keys: 2,
        listens: true,
        threads: 4,
        ..Mix::BASE
    };
    check("ends_against_ends", 600, || MIX.run());
}

/// The bound holds at rest, whoever evicts.
#[test]
fn eviction_against_everything_that_inserts() {
    const MIX: Mix = Mix {
        kinds: &[
            Insert,
            InsertWithTtl,
            InsertIfAbsent,
            Compute,
            Get,
            Remove,
            Reap,
        ],
        keys: 6,
        max_entries: Some(3),
        shards: 2,
        threads: 4,
        ..Mix::BASE
    };
    check("eviction_against_everything_that_inserts", 600, || {
        MIX.run();
    });
}

/// The index splits, doubles and shrinks under reads and walks.
#[test]
fn growth_against_reads_and_walks() {
    const MIX: Mix = Mix {
        kinds: &[
            Insert,
            Insert,
            InsertWithTtl,
            Insert,
            Remove,
            Iter,
            PinnedIter,
            GetMany,
            Reap,
        ],
        keys: 40,
        anchors: 3,
        threads: 4,
        operations: 25,
        ..Mix::BASE
    };
    check("growth_against_reads_and_walks", 50, || MIX.run());
}

/// Walks that remove, against walks that look.
#[test]
fn walks_against_walks() {
    const MIX: Mix = Mix {
        kinds: &[
            Iter,
            PinnedIter,
            Retain,
            Drain,
            InvalidateAll,
            Insert,
            InsertWithTtl,
        ],
        keys: 4,
        threads: 4,
        ..Mix::BASE
    };
    check("walks_against_walks", 600, || MIX.run());
}

/// As it can be removed at any time: a value of an entry with neither deadline nor remover stays.
#[test]
fn walks_that_spare_what_is_always_there() {
    const MIX: Mix = Mix {
        kinds: &[Iter, PinnedIter, Retain, Insert, Remove, Iter],
        keys: 3,
        anchors: 3,
        threads: 4,
        ..Mix::BASE
    };
    check("walks_that_spare_what_is_always_there", 600, || MIX.run());
}
