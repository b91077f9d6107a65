//! Everything against everything: three and more threads on a few keys of one cache.

use ebbtide_shuttle_tests::{Kind, Mix, check, check_replayable};

use Kind::*;

/// All that changes one entry, and reading and reaping.
const ALL: &[Kind] = &[
    Get,
    Peek,
    Pin,
    GetMany,
    Ttl,
    Insert,
    InsertWithTtl,
    InsertWithTtl,
    InsertIfAbsent,
    Remove,
    Invalidate,
    RemoveIf,
    Expire,
    Persist,
    Touch,
    Compute,
    CompareAndSwap,
    Reap,
    ReapOne,
    Retain,
    Iter,
];

#[test]
fn everything_unbounded() {
    const MIX: Mix = Mix {
        kinds: ALL,
        anchors: 1,
        ..Mix::BASE
    };
    check("everything_unbounded", 600, || MIX.run());
}

#[test]
fn everything_on_one_key() {
    const MIX: Mix = Mix {
        kinds: ALL,
        keys: 1,
        threads: 4,
        ..Mix::BASE
    };
    check("everything_on_one_key", 600, || MIX.run());
}

#[test]
fn everything_long() {
    const MIX: Mix = Mix {
        kinds: ALL,
        keys: 3,
        anchors: 2,
        threads: 5,
        operations: 20,
        steps: 12,
        ..Mix::BASE
    };
    check("everything_long", 80, || MIX.run());
}

#[test]
fn everything_with_a_listener() {
    const MIX: Mix = Mix {
        kinds: ALL,
        anchors: 1,
        listens: true,
        ..Mix::BASE
    };
    check("everything_with_a_listener", 600, || MIX.run());
}

#[test]
fn everything_that_idles_and_ages() {
    const MIX: Mix = Mix {
        kinds: ALL,
        live: 5,
        idle: 2,
        steps: 6,
        ..Mix::BASE
    };
    check("everything_that_idles_and_ages", 800, || MIX.run());
}

#[test]
fn everything_that_ages() {
    const MIX: Mix = Mix {
        kinds: ALL,
        live: 2,
        steps: 5,
        shards: 2,
        ..Mix::BASE
    };
    check("everything_that_ages", 600, || MIX.run());
}

#[test]
fn everything_bounded() {
    const MIX: Mix = Mix {
        kinds: ALL,
        keys: 5,
        max_entries: Some(2),
        operations: 6,
        ..Mix::BASE
    };
    check("everything_bounded", 800, || MIX.run());
}

#[test]
fn everything_bounded_to_one_in_shards_with_a_listener() {
    const MIX: Mix = Mix {
        kinds: ALL,
        keys: 4,
        max_entries: Some(1),
        shards: 2,
        listens: true,
        ..Mix::BASE
    };
    check(
        "everything_bounded_to_one_in_shards_with_a_listener",
        600,
        || MIX.run(),
    );
}

/// Nothing but the schedule decides: not the time, the machine or a random hash.
#[test]
fn schedules_go_the_same_way_twice() {
    const LONG: Mix = Mix {
        kinds: ALL,
        keys: 3,
        anchors: 2,
        operations: 12,
        ..Mix::BASE
    };
    const BOUNDED: Mix = Mix {
        kinds: ALL,
        keys: 5,
        max_entries: Some(2),
        shards: 2,
        listens: true,
        ..Mix::BASE
    };
    check_replayable("everything_long", 50, || LONG.run());
    const IDLE: Mix = Mix {
        kinds: ALL,
        idle: 2,
        live: 4,
        operations: 8,
        ..Mix::BASE
    };
    check_replayable("everything_that_idles_and_ages", 100, || IDLE.run());
    check_replayable("everything_bounded_in_shards", 100, || BOUNDED.run());
}
