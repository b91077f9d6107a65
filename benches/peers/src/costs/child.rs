//! In the child, under callgrind: one contender, one operation, again and again.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use clap::{Args, ValueEnum};

use super::contenders::{self, CostsVisitor, LOOP_ALONE, Removes};
use crate::adapters::{Counters, CountersVisitor, Hashers, Plan, View, visit_counters};
use crate::child::{Answer, figures};
use crate::keys::{Draw, sequence, shuffled};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// A read of a key that is there
    Hit,
    /// A read of a key that is not
    Miss,
    /// An insert of a key that was not there, while the store doubles
    Insert,
    /// An insert of a key that was there
    Replace,
    /// A removal of a key that was there
    Remove,
    /// Adding one to one counter
    Increment,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hit => "get hit",
            Self::Miss => "get miss",
            Self::Insert => "insert of a fresh key",
            Self::Replace => "replacing insert",
            Self::Remove => "remove",
            Self::Increment => "increment of one key",
        }
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Hit | Self::Miss)
    }
}

#[derive(Args, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    contender: String,
    #[arg(long, value_enum)]
    operation: Operation,
    /// Entries in the store.
    #[arg(long)]
    keys: usize,
    /// How often the operation is counted.
    #[arg(long)]
    times: usize,
}

/// The one function in which callgrind collects (see `super::COLLECTED`): on this thread, and on
/// no other, whatever they do meanwhile.
#[inline(never)]
fn counted_part(work: impl FnOnce() -> u64) -> u64 {
    black_box(work())
}

/// Does the task; `None` if there is no such contender. The answer is how many operations were
/// counted.
pub(crate) fn measure(task: &Task) -> Option<Answer> {
    // The C library takes shortcuts in a process that has one thread only; no user of a concurrent
    // map has that.
    let (end, ended) = mpsc::channel::<()>();
    let second = thread::spawn(move || ended.recv().is_err());
    let done = if task.operation == Operation::Increment {
        let mut count = CountAdds { task, done: None };
        visit_counters(Hashers::Ahash, &mut count);
        count.done
    } else {
        let mut count = CountStore { task, done: None };
        contenders::visit(&mut count);
        count.done
    };
    drop(end);
    assert!(second.join().is_ok_and(|waited| waited));
    Some(figures([("operations", done? as f64)]))
}

/// Names of those who have `operation`, in order.
pub(super) fn names(operation: Operation) -> Vec<String> {
    struct Names(Vec<String>, bool);
    impl CostsVisitor for Names {
        fn visit<S: Removes>(&mut self) {
            if self.1 || !S::READS_ONLY {
                self.0.push(S::name());
            }
        }
    }
    impl CountersVisitor for Names {
        fn visit<C: Counters>(&mut self) {
            self.0.push(C::name());
        }
    }
    let mut names = Names(Vec::new(), operation.reads());
    if operation == Operation::Increment {
        visit_counters(Hashers::Ahash, &mut names);
    } else {
        contenders::visit(&mut names);
    }
    names.0
}

struct CountAdds<'a> {
    task: &'a Task,
    done: Option<usize>,
}

impl CountersVisitor for CountAdds<'_> {
    fn visit<C: Counters>(&mut self) {
        if C::name() != self.task.contender {
            return;
        }
        let counters = C::build();
        let warm = 1_000;
        for _ in 0..warm {
            counters.add_one(black_box(7));
        }
        let times = self.task.times;
        counted_part(|| {
            for _ in 0..times {
                counters.add_one(black_box(7));
            }
            0
        });
        let sum = usize::try_from(counters.value(7)).ok();
        assert_eq!(sum, Some(warm + times), "{} lost increments", C::name());
        self.done = Some(times);
    }
}

struct CountStore<'a> {
    task: &'a Task,
    done: Option<usize>,
}

impl CostsVisitor for CountStore<'_> {
    fn visit<S: Removes>(&mut self) {
        if S::name() == self.task.contender {
            self.done = Some(count::<S>(self.task));
        }
    }
}

/// Fills, warms up, counts, and checks that the operation did what it is said to do. Answers how
/// often it was done.
fn count<S: Removes>(task: &Task) -> usize {
    let Task {
        operation,
        keys,
        times,
        ..
    } = *task;
    let checked = S::name() != LOOP_ALONE;
    let fresh = operation == Operation::Insert;
    let entries = if fresh { 2 * keys } else { keys };
    let store = S::build(&Plan {
        // A store that grows is not told how far.
        entries: keys,
        bound: 2 * entries,
        lifetime: None,
    });
    let order = shuffled(entries, 11);
    for &key in &order[..keys] {
        store.insert(u64::from(key), 1);
    }
    store.settle();
    let drawn = sequence(Draw::Uniform, keys, 12);
    let (warm, drawn) = drawn.split_at(drawn.len() / 4);
    let expected = match operation {
        Operation::Hit => times,
        Operation::Miss => 0,
        Operation::Insert | Operation::Replace | Operation::Remove => entries,
        Operation::Increment => unreachable!("counters have a task of their own"),
    };
    let mut done = times;
    match operation {
        Operation::Hit | Operation::Miss => {
            // Keys are below `keys`; these never are.
            let beyond = if operation == Operation::Miss {
                1 << 32
            } else {
                0
            };
            let view = store.view();
            let read = |keys: &[u32], times| {
                let mut hits = 0;
                for &key in keys.iter().cycle().take(times) {
                    hits += u64::from(view.get(black_box(u64::from(key) | beyond)).is_some());
                }
                hits
            };
            read(warm, times.min(20_000));
            let hits = counted_part(|| read(drawn, times)) as usize;
            assert!(!checked || hits == expected, "{}: {hits} hits", S::name());
            return done;
        }
        Operation::Replace => {
            let replace = |keys: &[u32], times| {
                for &key in keys.iter().cycle().take(times) {
                    store.insert(black_box(u64::from(key)), 2);
                }
                0
            };
            replace(warm, times.min(20_000));
            counted_part(|| replace(drawn, times));
        }
        Operation::Insert => {
            done = keys;
            counted_part(|| {
                for &key in &order[keys..] {
                    store.insert(black_box(u64::from(key)), 2);
                }
                0
            });
        }
        Operation::Remove => {
            done = keys;
            let gone = counted_part(|| {
                let mut gone = 0;
                for &key in &order {
                    gone += u64::from(store.remove(black_box(u64::from(key))));
                }
                gone
            }) as usize;
            assert!(!checked || gone == keys, "{}: {gone} removed", S::name());
        }
        Operation::Increment => unreachable!("counters have a task of their own"),
    }
    store.settle();
    let view = store.view();
    let held = order
        .iter()
        .filter(|&&key| view.get(u64::from(key)).is_some())
        .count();
    let expected = if operation == Operation::Remove {
        0
    } else {
        expected
    };
    assert!(!checked || held == expected, "{} holds {held}", S::name());
    done
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Without valgrind: each contender does each operation, and passes its checks.
    #[test]
    fn every_contender_has_every_operation() {
        let mut seen = BTreeMap::new();
        for &operation in Operation::value_variants() {
            for contender in names(operation) {
                let answer = measure(&Task {
                    contender: contender.clone(),
                    operation,
                    keys: 500,
                    times: 700,
                });
                let done = answer.expect("a name from the list")["operations"];
                let doubling = matches!(operation, Operation::Insert | Operation::Remove);
                assert_eq!(done, if doubling { 500.0 } else { 700.0 }, "{contender}");
                *seen.entry(contender).or_insert(0) += 1;
            }
        }
        assert_eq!(seen["dashmap"], 5);
        assert_eq!(seen["papaya, pin held"], 2);
        assert_eq!(seen["dashmap entry, ahash"], 1);
        let none = measure(&Task {
            contender: "nobody".to_owned(),
            operation: Operation::Hit,
            keys: 1,
            times: 1,
        });
        assert!(none.is_none());
    }
}
