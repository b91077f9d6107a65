//! The deadline word, as the library compiles it: `src/entry/word.rs`.
//!
//! What surrounds the word is here as small as can be: an entry with its cap, a clock that another
//! thread moves, and where an index is needed one cell that names an entry. The steps come in the
//! order in which the shard takes them.

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(
    dead_code,
    unused_imports,
    unsafe_code,
    clippy::unsafe_removed_from_name
)]
#[path = "../../src/sync/mod.rs"]
mod sync;
#[allow(dead_code)]
#[path = "../../src/entry/word.rs"]
mod word;

use std::sync::Arc;

use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use loom::thread;
use sync::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use word::{DEAD, Found, NEVER, Word};

/// More than what the count of changes takes of a deadline.
const TICK: u64 = 64;
/// Time to idle.
const IDLE: u64 = 50 * TICK;
/// When the model begins.
const START: u64 = 60 * TICK;
/// The entry's first deadline.
const DEADLINE: u64 = 100 * TICK;
/// A deadline before that one.
const SOONER: u64 = 80 * TICK;
/// The end that a time to live has set.
const CAP: u64 = 1_000 * TICK;

struct Entry {
    word: Word,
    cap: AtomicU64,
    clock: AtomicU64,
    /// The shard's; only one thread changes deadlines, as under the lock.
    changes: std::sync::atomic::AtomicU64,
}

impl Entry {
    fn new(word: u64, cap: u64, now: u64) -> Arc<Self> {
        Arc::new(Entry {
            word: Word::new(word),
            cap: AtomicU64::new(cap),
            clock: AtomicU64::new(now),
            changes: std::sync::atomic::AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        self.clock.load(Acquire)
    }

    fn is_due(&self, word: u64) -> bool {
        word == DEAD || word != NEVER && self.now() >= word
    }

    /// A lookup's answer: alive?
    fn get(&self) -> bool {
        matches!(self.word.settle(|word| self.is_due(word)), Found::Live(_))
    }

    /// What a read hit does to the word of an entry with a time to idle: word, cap, clock (P5).
    fn renew(&self) {
        self.word.extend_idle(
            |word| self.is_due(word),
            1,
            || {
                let cap = self.cap.load(Acquire);
                cap.min(self.now() + IDLE)
            },
        );
    }

    /// Gives the entry another span, as the shard does under its lock: the cap before the word.
    fn change_span(&self, word: u64, cap: u64) -> bool {
        self.change_span_counted(Some(self.count()), word, cap)
    }

    fn count(&self) -> u64 {
        self.changes.fetch_sub(1, Relaxed).wrapping_sub(1)
    }

    fn change_span_counted(&self, count: Option<u64>, word: u64, cap: u64) -> bool {
        let found = self.word.change(
            |word| self.is_due(word),
            count,
            |_| {
                // Relaxed: the word's CAS releases it.
                self.cap.store(cap, Relaxed);
                word
            },
        );
        matches!(found, Found::Live(_))
    }
}

/// Runs `other` on a second thread while `main` runs here; their answers.
fn race<A, B: 'static>(
    entry: &Arc<Entry>,
    main: impl FnOnce(&Entry) -> A,
    other: impl FnOnce(&Entry) -> B + 'static,
) -> (A, B) {
    let theirs = entry.clone();
    let thread = thread::spawn(move || other(&theirs));
    let mine = main(entry);
    (mine, thread.join().unwrap())
}

// P1: expiry is final. A reader's idle extension began before the deadline and stalls.

/// The deadline passes; two lookups here, one more when the extension has come to its end.
fn slow_extension_against_get(get: fn(&Entry) -> bool, renew: fn(&Entry)) {
    let entry = Entry::new(DEADLINE, NEVER, START);
    let (answers, ()) = race(
        &entry,
        |entry| {
            entry.clock.swap(DEADLINE, AcqRel);
            [get(entry), get(entry)]
        },
        renew,
    );
    let [first, second] = answers;
    let third = get(&entry);
    assert!(first || !second && !third, "what was absent came back");
    let word = entry.word.load();
    assert_ne!(word, DEADLINE + IDLE, "an entry was extended after its end");
    assert_eq!(third, word == START + IDLE);
}

/// The rule broken: "expired" is answered without making it final.
fn get_without_settling(entry: &Entry) -> bool {
    !entry.is_due(entry.word.load())
}

/// The rule broken: the extension is a plain store.
fn renew_by_store(entry: &Entry) {
    let seen = entry.word.load();
    let until = entry.now() + IDLE;
    if !entry.is_due(seen) {
        entry.word.set(until);
    }
}

/// The rule broken: the extension does not ask whether the entry is over.
fn renew_unasked(entry: &Entry) {
    entry.word.extend_idle(|_| false, 1, || entry.now() + IDLE);
}

#[test]
fn slow_idle_extension_against_get_past_the_deadline() {
    check("word_slow_extension_against_get", UNBOUNDED, || {
        slow_extension_against_get(Entry::get, Entry::renew);
    });
    must_fail(
        "word_slow_extension_against_get: not made final",
        UNBOUNDED,
        "what was absent came back",
        || slow_extension_against_get(get_without_settling, Entry::renew),
    );
    must_fail(
        "word_slow_extension_against_get: plain store",
        UNBOUNDED,
        "what was absent came back",
        || slow_extension_against_get(Entry::get, renew_by_store),
    );
    must_fail(
        "word_slow_extension_against_get: due not asked",
        UNBOUNDED,
        "an entry was extended after its end",
        || slow_extension_against_get(Entry::get, renew_unasked),
    );
}

/// Two entries of one key, and the index cell that names one of them.
struct Cell {
    entries: [Arc<Entry>; 2],
    id: AtomicUsize,
}

impl Cell {
    /// The lookup of P2: which entry lives.
    fn lookup(&self) -> Option<usize> {
        let mut id = self.id.load(Acquire);
        while !self.entries[id].get() {
            let again = self.id.load(Acquire);
            if again == id {
                return None;
            }
            id = again;
        }
        Some(id)
    }

    /// Links entry 1 unless entry 0 lives, as insert_if_absent does under the lock.
    fn insert_if_absent(&self, get: fn(&Entry) -> bool) -> bool {
        if get(&self.entries[0]) {
            return false;
        }
        self.id.store(1, sync::Ordering::Release);
        self.entries[0].word.retire();
        true
    }
}

fn slow_extension_against_insert(get: fn(&Entry) -> bool, renew: fn(&Entry)) {
    let cell = Arc::new(Cell {
        entries: [
            Entry::new(DEADLINE, NEVER, START),
            Entry::new(NEVER, NEVER, START),
        ],
        id: AtomicUsize::new(0),
    });
    let theirs = cell.clone();
    let reader = thread::spawn(move || {
        // It found entry 0 alive, and now leaves its mark.
        renew(&theirs.entries[0]);
        theirs.lookup()
    });
    cell.entries[0].clock.swap(DEADLINE, AcqRel);
    let old = cell.entries[0].clone();
    let inserted = cell.insert_if_absent(get);
    let seen = reader.join().unwrap();
    assert_eq!(cell.lookup(), Some(usize::from(inserted)));
    assert!(
        !(inserted && old.word.load() != DEAD),
        "two entries of one key live"
    );
    if !inserted {
        assert_eq!(seen, Some(0), "a live entry was not found");
    }
}

#[test]
fn slow_idle_extension_against_insert_if_absent_past_the_deadline() {
    check(
        "word_slow_extension_against_insert_if_absent",
        UNBOUNDED,
        || {
            slow_extension_against_insert(Entry::get, Entry::renew);
        },
    );
    must_fail(
        "word_slow_extension_against_insert_if_absent: store",
        UNBOUNDED,
        "two entries of one key live",
        || slow_extension_against_insert(Entry::get, renew_by_store),
    );
}

// P3: of all who find an entry over, one owns its end.

/// Whether a transition says that it ended the entry.
fn ended(found: Found) -> bool {
    found != Found::Dead
}

/// A due entry; three threads end it each in their way. One of them must have.
fn one_winner(settle: fn(&Entry) -> Found) {
    let entry = Entry::new(DEADLINE, NEVER, DEADLINE);
    let other = |end: fn(&Entry) -> Found| {
        let entry = entry.clone();
        thread::spawn(move || end(&entry))
    };
    let reader = other(settle);
    let remover = other(|entry| entry.word.kill(|word| entry.is_due(word)));
    let reaper = settle(&entry);
    let answers = [reader.join().unwrap(), remover.join().unwrap(), reaper];
    let winners = answers.iter().filter(|&&found| ended(found)).count();
    assert_eq!(winners, 1, "winners");
    assert!(answers.contains(&Found::Expired(DEADLINE)));
}

#[test]
fn lazy_reader_against_reaper_against_remove() {
    check("word_lazy_reader_against_reaper", UNBOUNDED, || {
        one_winner(|entry| entry.word.settle(|word| entry.is_due(word)));
    });
    must_fail(
        "word_lazy_reader_against_reaper: plain store",
        UNBOUNDED,
        "winners",
        || {
            one_winner(|entry| {
                let seen = entry.word.load();
                entry.word.set(DEAD);
                if seen == DEAD {
                    Found::Dead
                } else {
                    Found::Expired(seen)
                }
            });
        },
    );
}

#[test]
fn remove_replace_and_persist_against_reap() {
    // The deadline passes while somebody else has the entry in hand. Each time exactly one of the
    // two has ended it, or nobody.
    fn against_reap<A: 'static>(write: fn(&Entry) -> A) -> (A, Found, u64) {
        let entry = Entry::new(DEADLINE, DEADLINE, START);
        let (reaped, wrote) = race(
            &entry,
            |entry| {
                entry.clock.swap(DEADLINE, AcqRel);
                entry.word.settle(|word| entry.is_due(word))
            },
            write,
        );
        (wrote, reaped, entry.word.load())
    }
    check("word_remove_against_reap", UNBOUNDED, || {
        let (removed, reaped, word) =
            against_reap(|entry| entry.word.kill(|word| entry.is_due(word)));
        assert_ne!(ended(removed), ended(reaped), "one ends it");
        assert_eq!(word, DEAD);
    });
    check("word_replace_against_reap", UNBOUNDED, || {
        let (was, reaped, word) = against_reap(|entry| entry.word.retire());
        assert_ne!(was != DEAD, ended(reaped), "one ends it");
        assert_eq!(word, DEAD);
    });
    check("word_persist_against_reap", UNBOUNDED, || {
        let (persisted, reaped, word) = against_reap(|entry| {
            entry
                .word
                .change(|word| entry.is_due(word), None, |_| NEVER)
        });
        match persisted {
            Found::Live(NEVER) => assert_eq!((reaped, word), (Found::Live(NEVER), NEVER)),
            Found::Live(other) => panic!("persisted with a deadline of {other}"),
            over => {
                assert_ne!(ended(over), ended(reaped), "one ends it");
                assert_eq!(word, DEAD);
            }
        }
    });
}

// P5: changing a deadline against an idle extension, with a cap.

/// A write gives the entry a span while a reader renews it. At rest the word must not be later
/// than the cap.
fn change_against_extension(write: impl FnOnce(&Entry) -> bool, renew: fn(&Entry)) -> Arc<Entry> {
    let entry = Entry::new(DEADLINE, CAP, START);
    let (changed, ()) = race(&entry, write, renew);
    assert!(changed, "nothing was due");
    let (word, cap) = (entry.word.load(), entry.cap.load(Acquire));
    assert!(word <= cap, "the word outlives its cap");
    assert!(word != DEAD);
    entry
}

/// The rule broken: the word first, the cap after it.
fn change_cap_last(entry: &Entry, word: u64, cap: u64) -> bool {
    let count = Some(entry.count());
    let found = entry
        .word
        .change(|word| entry.is_due(word), count, |_| word);
    entry.cap.swap(cap, AcqRel);
    matches!(found, Found::Live(_))
}

/// The rule broken: changes are not counted.
fn change_uncounted(entry: &Entry, word: u64, cap: u64) -> bool {
    entry.change_span_counted(None, word, cap)
}

/// Changes of which the last brings the word back to what it was, with another cap.
fn sooner_and_back(change: fn(&Entry, u64, u64) -> bool, entry: &Entry) -> bool {
    change(entry, SOONER, SOONER) && change(entry, DEADLINE, DEADLINE)
}

/// The same by way of no deadline.
fn never_and_back(change: fn(&Entry, u64, u64) -> bool, entry: &Entry) -> bool {
    change(entry, NEVER, NEVER) && change(entry, DEADLINE, DEADLINE)
}

/// The rule broken: the cap is read once, before the word.
fn renew_with_old_cap(entry: &Entry) {
    let cap = entry.cap.load(Acquire);
    entry
        .word
        .extend_idle(|word| entry.is_due(word), 1, || cap.min(entry.now() + IDLE));
}

#[test]
fn expire_touch_and_persist_against_idle_extension() {
    check("word_expire_sooner_against_extension", UNBOUNDED, || {
        change_against_extension(|entry| entry.change_span(SOONER, SOONER), Entry::renew);
    });
    check(
        "word_expire_to_the_same_against_extension",
        UNBOUNDED,
        || {
            // As it happens the word stays what it is; the cap does not.
            change_against_extension(|entry| entry.change_span(DEADLINE, DEADLINE), Entry::renew);
        },
    );
    let ways: [(_, fn(&Entry) -> bool, fn(&Entry) -> bool); 2] = [
        (
            "word_sooner_and_back_against_extension",
            |entry| sooner_and_back(Entry::change_span, entry),
            |entry| sooner_and_back(change_uncounted, entry),
        ),
        (
            "word_never_and_back_against_extension",
            |entry| never_and_back(Entry::change_span, entry),
            |entry| never_and_back(change_uncounted, entry),
        ),
    ];
    for (name, counted, uncounted) in ways {
        check(name, UNBOUNDED, move || {
            change_against_extension(counted, Entry::renew);
        });
        must_fail(
            &format!("{name}: not counted"),
            UNBOUNDED,
            "the word outlives its cap",
            move || {
                change_against_extension(uncounted, Entry::renew);
            },
        );
    }
    check("word_touch_against_extension", UNBOUNDED, || {
        let word = START + IDLE;
        let entry =
            change_against_extension(move |entry| entry.change_span(word, 2 * CAP), Entry::renew);
        assert!(entry.word.load() > word - TICK, "a touch is lost");
    });
    check("word_persist_against_extension", UNBOUNDED, || {
        let entry = change_against_extension(|entry| entry.change_span(NEVER, NEVER), Entry::renew);
        assert_eq!(entry.word.load(), NEVER, "a persist is lost");
    });
    must_fail(
        "word_expire_sooner_against_extension: cap last",
        UNBOUNDED,
        "the word outlives its cap",
        || {
            change_against_extension(|entry| change_cap_last(entry, SOONER, SOONER), Entry::renew);
        },
    );
    must_fail(
        "word_expire_sooner_against_extension: cap read first",
        UNBOUNDED,
        "the word outlives its cap",
        || {
            change_against_extension(
                |entry| entry.change_span(SOONER, SOONER),
                renew_with_old_cap,
            );
        },
    );
    must_fail(
        "word_expire_to_the_same_against_extension: equal",
        UNBOUNDED,
        "the word outlives its cap",
        || {
            change_against_extension(
                |entry| change_uncounted(entry, DEADLINE, DEADLINE),
                Entry::renew,
            );
        },
    );
}

#[test]
fn expire_sooner_against_get_and_idle_extension_past_it() {
    // Shortened, and the new deadline passes: an extension that began before must not undo it.
    fn model(renew: fn(&Entry)) {
        let entry = Entry::new(DEADLINE, CAP, START);
        let (alive, ()) = race(
            &entry,
            |entry| {
                assert!(entry.change_span(SOONER, SOONER), "nothing was due");
                entry.clock.swap(SOONER, AcqRel);
                entry.get()
            },
            renew,
        );
        assert!(!alive, "read past its deadline");
        assert!(!entry.get(), "what was absent came back");
    }
    check("word_expire_sooner_against_get", UNBOUNDED, || {
        model(Entry::renew);
    });
    must_fail(
        "word_expire_sooner_against_get: cap read first",
        UNBOUNDED,
        "read past its deadline",
        || model(renew_with_old_cap),
    );
}
