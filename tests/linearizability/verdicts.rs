//! The checker's own tests: histories that it has to accept, and ones that it has to reject.

use ebbtide::Computed::{Inserted, Replaced, Unchanged};

use crate::checker::Checker;
use crate::history::Decision::{Keep, Put, PutWithTtl};
use crate::history::Life::{For, Never, Until};
use crate::history::New::Fixed;
use crate::history::{Answer, COUNTER_BOUND, Call, Event, How, Left, timeline};
use crate::spec::Rules;

const GET: Call = Call::Read(How::Get);
const DONE: Answer = Answer::Done;
const ABSENT: Answer = Answer::Value(None);
const YES: Answer = Answer::Whether(true);
const NO: Answer = Answer::Whether(false);

const PLAIN: Rules = Rules {
    live: None,
    idle: None,
    lossy: false,
};
const LIVE_3: Rules = Rules {
    live: Some(3),
    ..PLAIN
};
const IDLE_4: Rules = Rules {
    idle: Some(4),
    ..PLAIN
};
const LOSSY: Rules = Rules {
    lossy: true,
    ..PLAIN
};

const fn insert(value: i64) -> Call {
    Call::Insert(value, None)
}

const fn step(units: u32) -> (Call, Answer) {
    (Call::Step(units), DONE)
}

const fn is(value: i64) -> Answer {
    Answer::Value(Some(value))
}

const fn sum(sum: i64) -> Answer {
    Answer::Sum(Some(sum))
}

const fn left(units: u32) -> Answer {
    Answer::Left(Some(Left::Units(units)))
}

const fn swap(expected: i64, new: i64) -> Call {
    Call::CompareAndSwap { expected, new }
}

/// Key, invocation, return, call, answer. All threads are different: only the times count.
type Line = (usize, u64, u64, Call, Answer);

fn history(rules: Rules, lines: &[Line]) -> (Checker, Vec<Event>) {
    let events: Vec<Event> = lines
        .iter()
        .enumerate()
        .map(|(thread, &(key, invoked, returned, call, answer))| Event {
            thread,
            key,
            call,
            answer,
            invoked,
            returned,
        })
        .collect();
    let mut moments: Vec<u64> = lines.iter().flat_map(|line| [line.1, line.2]).collect();
    moments.sort_unstable();
    assert!(
        moments.windows(2).all(|pair| pair[0] < pair[1]),
        "{lines:?}"
    );
    (Checker::new(rules, 0, &events), events)
}

#[track_caller]
fn accept(rules: Rules, lines: &[Line]) {
    let (checker, events) = history(rules, lines);
    if let Err(violation) = checker.check() {
        let minimal = timeline(&violation.minimal);
        panic!("rejected:\n{}because of\n{minimal}", timeline(&events));
    }
}

/// Rejects the lines, and returns which of them are in the minimal history.
#[track_caller]
fn reject(rules: Rules, lines: &[Line]) -> Vec<usize> {
    let (checker, events) = history(rules, lines);
    let violation = checker.check().expect_err(&timeline(&events));
    let mut threads: Vec<usize> = violation.minimal.iter().map(|e| e.thread).collect();
    threads.sort_unstable();
    threads
}

/// One call after the other on one key.
fn in_turn(calls: &[(Call, Answer)]) -> Vec<Line> {
    let numbered = (0..).step_by(2).zip(calls);
    numbered
        .map(|(at, &(call, answer))| (0, at, at + 1, call, answer))
        .collect()
}

#[test]
fn accepts_what_one_thread_does() {
    accept(
        PLAIN,
        &in_turn(&[
            (GET, ABSENT),
            (Call::InsertIfAbsent(1), YES),
            (Call::InsertIfAbsent(2), NO),
            (swap(1, 3), YES),
            (swap(1, 4), NO),
            (
                Call::Compute(Put(Fixed(5))),
                Answer::Computed(Some(3), Replaced),
            ),
            (Call::Ttl, Answer::Left(Some(Left::Never))),
            (Call::Expire(For(3)), YES),
            step(1),
            (Call::Ttl, left(2)),
            (Call::Touch, YES),
            (Call::Ttl, left(3)),
            (swap(5, 6), YES),
            step(2),
            (Call::Peek, is(6)),
            step(1),
            (Call::Peek, ABSENT),
            (Call::Touch, NO),
            (
                Call::Compute(Put(Fixed(7))),
                Answer::Computed(None, Inserted),
            ),
            (Call::Ttl, Answer::Left(Some(Left::Never))),
            (Call::Expire(Until(4)), YES),
            (GET, ABSENT),
            (Call::Insert(8, Some(Until(6))), DONE),
            step(1),
            (Call::Touch, YES),
            (Call::Ttl, left(1)),
            (Call::Persist, YES),
            step(9),
            (Call::Touch, YES),
            (Call::Remove, is(8)),
            (Call::Persist, NO),
            (Call::ContainsKey, NO),
        ]),
    );
    accept(
        LIVE_3,
        &in_turn(&[
            (insert(1), DONE),
            step(2),
            (Call::Compute(Keep), Answer::Computed(Some(1), Unchanged)),
            (Call::Ttl, left(1)),
            (Call::Touch, YES),
            step(2),
            (GET, is(1)),
            (Call::Insert(2, Some(Never)), DONE),
            step(5),
            (GET, is(2)),
        ]),
    );
    accept(
        IDLE_4,
        &in_turn(&[
            (insert(1), DONE),
            step(3),
            (GET, is(1)),
            step(3),
            (Call::Peek, is(1)),
            step(1),
            (Call::Peek, ABSENT),
        ]),
    );
    accept(
        PLAIN,
        &in_turn(&[
            (Call::Increment(2, Some(For(2))), sum(2)),
            step(1),
            (Call::Increment(3, Some(For(9))), sum(5)),
            step(1),
            (Call::Increment(4, None), sum(4)),
            (Call::Increment(COUNTER_BOUND - 1, None), Answer::Sum(None)),
            (GET, is(4)),
        ]),
    );
}

/// Calls of which the last has a wrong answer, and the right one.
type Wrong = (Rules, &'static [(Call, Answer)], Answer);

const WRONG: &[Wrong] = &[
    // A stale read after a remove, and after a replacement.
    (
        PLAIN,
        &[(insert(1), DONE), (Call::Remove, is(1)), (GET, is(1))],
        ABSENT,
    ),
    (
        PLAIN,
        &[(insert(1), DONE), (insert(2), DONE), (GET, is(1))],
        is(2),
    ),
    // A value back after absence.
    (
        LIVE_3,
        &[(insert(1), DONE), step(3), (GET, ABSENT), (GET, is(1))],
        ABSENT,
    ),
    (
        LIVE_3,
        &[
            (insert(1), DONE),
            step(3),
            (GET, ABSENT),
            (Call::Touch, YES),
        ],
        NO,
    ),
    // A read at the deadline, and an absence before it.
    (LIVE_3, &[(insert(1), DONE), step(3), (GET, is(1))], ABSENT),
    (LIVE_3, &[(insert(1), DONE), step(2), (GET, ABSENT)], is(1)),
    (
        PLAIN,
        &[
            (Call::Insert(1, Some(Until(2))), DONE),
            step(2),
            (Call::ContainsKey, YES),
        ],
        NO,
    ),
    // A lost increment, and one that went on from an expired count.
    (
        PLAIN,
        &[
            (Call::Increment(1, None), sum(1)),
            (Call::Increment(1, None), sum(1)),
        ],
        sum(2),
    ),
    (
        LIVE_3,
        &[
            (Call::Increment(1, None), sum(1)),
            step(3),
            (Call::Increment(1, None), sum(2)),
        ],
        sum(1),
    ),
    // A swap that succeeds twice, and one that failed with the right expectation.
    (
        PLAIN,
        &[(insert(1), DONE), (swap(1, 2), YES), (swap(1, 3), YES)],
        NO,
    ),
    (PLAIN, &[(insert(1), DONE), (swap(1, 2), NO)], YES),
    (
        PLAIN,
        &[
            (Call::InsertIfAbsent(1), YES),
            (Call::InsertIfAbsent(2), YES),
        ],
        NO,
    ),
    // Deadlines: kept by a swap, begun anew by an insert, ended by an expire to the past.
    (
        LIVE_3,
        &[
            (insert(1), DONE),
            step(2),
            (swap(1, 2), YES),
            (Call::Ttl, left(3)),
        ],
        left(1),
    ),
    (
        LIVE_3,
        &[
            (insert(1), DONE),
            step(2),
            (insert(2), DONE),
            (Call::Ttl, left(1)),
        ],
        left(3),
    ),
    (
        PLAIN,
        &[(insert(1), DONE), (Call::Expire(For(0)), YES), (GET, is(1))],
        ABSENT,
    ),
    // A renewal that nothing disturbed is not lost, and a peek is none.
    (
        IDLE_4,
        &[
            (insert(1), DONE),
            step(3),
            (GET, is(1)),
            step(3),
            (Call::Peek, ABSENT),
        ],
        is(1),
    ),
    (
        IDLE_4,
        &[
            (insert(1), DONE),
            step(3),
            (Call::Peek, is(1)),
            step(3),
            (GET, is(1)),
        ],
        ABSENT,
    ),
];

#[test]
fn rejects_what_no_thread_could_be_told() {
    for &(rules, calls, right) in WRONG {
        let mut calls = calls.to_vec();
        let all = reject(rules, &in_turn(&calls));
        assert!(all.contains(&(calls.len() - 1)), "{calls:?}");
        calls.last_mut().unwrap().1 = right;
        accept(rules, &in_turn(&calls));
    }
}

#[test]
fn overlapping_calls_may_take_effect_in_either_order() {
    for value in [is(1), is(2)] {
        accept(
            PLAIN,
            &[
                (0, 0, 3, insert(1), DONE),
                (0, 1, 2, insert(2), DONE),
                (0, 4, 5, GET, value),
            ],
        );
    }
    // Two reads during a write, new before old: only if they overlap each other.
    let reads = |first: (u64, u64), second: (u64, u64)| {
        [
            (0, 0, 1, insert(1), DONE),
            (0, 2, 9, insert(2), DONE),
            (0, first.0, first.1, GET, is(2)),
            (0, second.0, second.1, GET, is(1)),
        ]
    };
    accept(PLAIN, &reads((3, 6), (4, 5)));
    assert_eq!(reject(PLAIN, &reads((3, 4), (5, 6))), [0, 1, 2, 3]);
}

#[test]
fn of_overlapping_calls_only_one_succeeds() {
    let pairs = [
        (
            Call::InsertIfAbsent(1),
            YES,
            Call::InsertIfAbsent(2),
            YES,
            NO,
        ),
        (
            Call::Increment(1, None),
            sum(1),
            Call::Increment(1, None),
            sum(1),
            sum(2),
        ),
        (
            Call::Compute(Put(Fixed(1))),
            Answer::Computed(None, Inserted),
            Call::Compute(Put(Fixed(2))),
            Answer::Computed(None, Inserted),
            Answer::Computed(Some(1), Replaced),
        ),
    ];
    for (one, told, other, wrong, right) in pairs {
        let lines = |answer| [(0, 0, 3, one, told), (0, 1, 2, other, answer)];
        assert_eq!(reject(PLAIN, &lines(wrong)), [0, 1]);
        accept(PLAIN, &lines(right));
    }
    let ends = |call, answer| {
        [
            (0, 0, 1, insert(1), DONE),
            (0, 2, 5, Call::Remove, is(1)),
            (0, 3, 4, call, answer),
        ]
    };
    reject(PLAIN, &ends(Call::Remove, is(1)));
    accept(PLAIN, &ends(Call::Remove, ABSENT));
    // Swap and remove of the same value: the swap first would have been removed as 2.
    reject(PLAIN, &ends(swap(1, 2), YES));
    accept(PLAIN, &ends(swap(1, 2), NO));
}

#[test]
fn a_call_may_see_either_side_of_a_step_that_it_overlaps() {
    let during = |first, second| {
        [
            (0, 0, 1, insert(1), DONE),
            (0, 2, 9, Call::Step(3), DONE),
            (0, 3, 4, GET, first),
            (0, 5, 6, GET, second),
        ]
    };
    accept(LIVE_3, &during(is(1), is(1)));
    accept(LIVE_3, &during(is(1), ABSENT));
    accept(LIVE_3, &during(ABSENT, ABSENT));
    reject(LIVE_3, &during(ABSENT, is(1)));
    // A lifetime may begin on either side, and nowhere else.
    for (units, fits) in [(1, true), (2, false), (3, true), (4, false)] {
        let lines = [
            (0, 0, 3, insert(1), DONE),
            (0, 1, 2, Call::Step(2), DONE),
            (0, 4, 5, Call::Ttl, left(units)),
        ];
        match fits {
            true => accept(LIVE_3, &lines),
            false => drop(reject(LIVE_3, &lines)),
        }
    }
    // It may begin before a write that took effect before this one.
    let overtaken = |units| {
        [
            (0, 0, 5, insert(1), DONE),
            (0, 1, 2, Call::Step(2), DONE),
            (0, 3, 4, insert(2), DONE),
            (0, 6, 7, GET, is(1)),
            (0, 8, 9, Call::Ttl, left(units)),
        ]
    };
    accept(LIVE_3, &overtaken(1));
    accept(LIVE_3, &overtaken(3));
    reject(LIVE_3, &overtaken(2));
}

#[test]
fn all_keys_share_one_clock() {
    // Each key alone can choose its side of the step; both together cannot: the first says that
    // the step came before the second's read, which says that it did not.
    let lines = |other| {
        [
            (0, 0, 1, insert(1), DONE),
            (1, 2, 3, insert(2), DONE),
            (0, 4, 9, Call::Step(3), DONE),
            (0, 5, 6, GET, ABSENT),
            (1, 7, 8, GET, other),
        ]
    };
    accept(LIVE_3, &lines(ABSENT));
    let (checker, _) = history(LIVE_3, &lines(is(2)));
    let violation = checker.check().unwrap_err();
    assert_eq!(violation.key, None);
    assert_eq!(violation.minimal.len(), 5);
}

#[test]
fn a_replacement_with_a_new_deadline_shows_the_deadline_first() {
    let replacement = Call::Compute(PutWithTtl(Fixed(2), For(5)));
    let lines = |read: Call, answer| {
        [
            (0, 0, 1, Call::Insert(1, Some(For(2))), DONE),
            (0, 2, 9, replacement, Answer::Computed(Some(1), Replaced)),
            (0, 3, 4, Call::Step(2), DONE),
            (0, 5, 6, read, answer),
            (0, 10, 11, GET, is(2)),
        ]
    };
    // The old value past its own deadline.
    accept(PLAIN, &lines(GET, is(1)));
    accept(PLAIN, &lines(Call::Ttl, left(3)));
    accept(PLAIN, &lines(GET, is(2)));
    // Nothing that changes something comes in between, and the old value is not back later.
    reject(PLAIN, &lines(Call::Remove, is(1)));
    let mut back = lines(GET, is(2)).to_vec();
    back.insert(4, (0, 7, 8, GET, is(1)));
    reject(PLAIN, &back);
}

#[test]
fn at_a_bound_an_entry_may_leave_but_not_come_back() {
    let lines = |last| {
        in_turn(&[
            (insert(1), DONE),
            (insert(2), DONE),
            (GET, ABSENT),
            (GET, last),
        ])
    };
    reject(PLAIN, &lines(ABSENT));
    accept(LOSSY, &lines(ABSENT));
    reject(LOSSY, &lines(is(2)));
    reject(
        LOSSY,
        &in_turn(&[(insert(1), DONE), (insert(2), DONE), (GET, is(1))]),
    );
}

#[test]
fn the_minimal_history_has_what_matters_and_no_more() {
    let lines = [
        (0, 0, 1, GET, ABSENT),
        (1, 2, 3, insert(9), DONE),
        (0, 4, 5, insert(1), DONE),
        (0, 6, 7, GET, is(1)),
        (0, 8, 9, Call::Remove, is(1)),
        (
            0,
            10,
            11,
            Call::Compute(Keep),
            Answer::Computed(None, Unchanged),
        ),
        (0, 12, 13, GET, is(1)),
        (0, 14, 15, insert(3), DONE),
        (0, 16, 17, GET, is(3)),
    ];
    assert_eq!(reject(PLAIN, &lines), [2, 4, 6]);
}

#[test]
fn a_call_that_had_not_returned_may_or_may_not_have_happened() {
    // The beginning of this history is explained only if the insert, which returns after the
    // violation, had taken effect before the first read; the minimal history must keep it.
    let lines = [
        (0, 0, 9, insert(1), DONE),
        (0, 1, 2, GET, is(1)),
        (0, 3, 4, GET, ABSENT),
    ];
    assert_eq!(reject(PLAIN, &lines), [0, 1, 2]);
}

#[test]
fn a_timeline_shows_what_overlapped() {
    let (_, events) = history(PLAIN, &[(0, 3, 9, GET, is(1)), (0, 1, 5, insert(1), DONE)]);
    let text = timeline(&events);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "  ├─┤   thread 1  key 0  insert(1)",
            "   ├─┤  thread 0  key 0  get = 1",
        ]
    );
}
