//! The lane under the shard lock, as the library compiles it: `src/lane/mod.rs`.
//!
//! The two holds of each model take the steps that the shard's holds take (`src/shard/hold.rs`,
//! `src/shard/sweep.rs`), on the real lane and the real words. At rest nothing may be filed later
//! than its deadline, and the minimum that is published for the scheduler must not be above any of
//! it: else the sweep never comes by, and the entry leaks.

// The library's own files, compiled against the model checker. Not everything in them is used.
#[allow(dead_code)]
#[path = "../../src/lane/mod.rs"]
mod lane;
#[allow(dead_code)]
#[path = "../../src/limits.rs"]
mod limits;
#[allow(dead_code, unsafe_code)]
#[path = "../../src/pages/mod.rs"]
mod pages;
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
#[path = "."]
mod slab {
    #[allow(dead_code)]
    #[path = "../../src/slab/side.rs"]
    pub(crate) mod side;
}

use std::sync::Arc;

use ebbtide_loom_tests::{UNBOUNDED, check, must_fail};
use lane::{Lane, NONE, begin_of, unit_of};
use loom::thread;
use sync::{AtomicU32, Mutex, Ordering::Acquire, Ordering::Release};
use word::{DEAD, Found, NEVER, Word};

/// The lane unit in which everything here happens.
const NOW: u32 = 5;

struct Shard {
    lane: Mutex<Lane>,
    /// The lane's minimum, for the scheduler.
    due: AtomicU32,
    words: [Word; 2],
}

/// A slot's deadline, and the unit under which it is filed, both in lane units.
type Filed = (u32, u32);

impl Shard {
    fn new(slots: &[Filed]) -> Arc<Self> {
        let mut lane = Lane::new();
        for (slot, &(_, filed)) in slots.iter().enumerate() {
            lane.file(slot as u32, filed);
        }
        let word = |slot: usize| Word::new(slots.get(slot).map_or(DEAD, |&(due, _)| begin_of(due)));
        Arc::new(Shard {
            due: AtomicU32::new(lane.min()),
            lane: Mutex::new(lane),
            words: [word(0), word(1)],
        })
    }

    fn is_due(word: u64) -> bool {
        word != NEVER && begin_of(NOW) >= word
    }

    /// One hold of the sweep.
    fn sweep(&self) {
        let mut lane = self.lane.lock();
        let due = lane.due_in_block(0, NOW);
        let found = self.look();
        Self::file(&mut lane, due, found);
        // Release: pairs with the scheduler's Acquire.
        self.due.store(lane.min(), Release);
    }

    /// The rule broken: looks at the words in one hold, files them in another.
    fn sweep_in_two_holds(&self) {
        let due = self.lane.lock().due_in_block(0, NOW);
        let found = self.look();
        let mut lane = self.lane.lock();
        Self::file(&mut lane, due, found);
        self.due.store(lane.min(), Release);
    }

    /// The rule broken: the minimum is published when the hold is over.
    fn sweep_and_publish_late(&self) {
        let mut lane = self.lane.lock();
        let due = lane.due_in_block(0, NOW);
        let found = self.look();
        Self::file(&mut lane, due, found);
        let min = lane.min();
        drop(lane);
        self.due.store(min, Release);
    }

    fn look(&self) -> [Found; 2] {
        [0, 1].map(|slot: usize| self.words[slot].settle(Self::is_due))
    }

    /// Files what is due in the lane anew, or takes it out, and raises the minima.
    fn file(lane: &mut Lane, due: u64, found: [Found; 2]) {
        for slot in (0..2).filter(|slot| due >> slot & 1 == 1) {
            match found[slot] {
                Found::Live(word) => lane.file(slot as u32, filed_under(word)),
                _ => lane.clear(slot as u32),
            }
        }
        lane.raise_block(0);
        lane.raise_min();
    }

    /// One hold of a writer: gives a live entry the deadline `word`.
    fn change(&self, slot: usize, word: u64) {
        let mut lane = self.lane.lock();
        let changed = self.words[slot].change(Self::is_due, None, |_| word);
        assert_eq!(changed, Found::Live(word));
        lane.file(slot as u32, filed_under(word));
        self.due.store(lane.min(), Release);
    }

    /// One hold of a writer: links a new entry that ends in lane unit `due`.
    fn insert(&self, slot: usize, due: u32) {
        let mut lane = self.lane.lock();
        self.words[slot].set(begin_of(due));
        lane.file(slot as u32, due);
        self.due.store(lane.min(), Release);
    }

    fn check(&self) {
        let lane = self.lane.lock();
        lane.validate();
        for (slot, word) in self.words.iter().enumerate() {
            let (word, filed) = (word.load(), lane.get(slot as u32));
            if word != DEAD && word != NEVER {
                assert!(filed <= unit_of(word), "filed too late");
                assert!(self.due.load(Acquire) <= filed, "published too late");
            }
        }
    }
}

fn filed_under(word: u64) -> u32 {
    if word == NEVER { NONE } else { unit_of(word) }
}

/// `sweep` on one thread, `write` on another, then a look at everything at rest.
fn against_sweep(
    slots: &'static [Filed],
    sweep: fn(&Shard),
    write: fn(&Shard),
) -> impl Fn() + Send + Sync {
    move || {
        let shard = Shard::new(slots);
        let writer = shard.clone();
        let writer = thread::spawn(move || write(&writer));
        sweep(&shard);
        writer.join().unwrap();
        shard.check();
    }
}

/// An entry that idle extensions have carried on: it ends in unit 9, but is filed under 4.
const EXTENDED: &[Filed] = &[(9, 4)];

#[test]
fn refile_against_a_shortened_deadline_and_persist() {
    let sooner: fn(&Shard) = |shard| shard.change(0, begin_of(7));
    let never: fn(&Shard) = |shard| shard.change(0, NEVER);
    check(
        "lane_refile_against_shortened_deadline",
        UNBOUNDED,
        against_sweep(EXTENDED, Shard::sweep, sooner),
    );
    check(
        "lane_refile_against_persist",
        UNBOUNDED,
        against_sweep(EXTENDED, Shard::sweep, never),
    );
    must_fail(
        "lane_refile_against_shortened_deadline: two holds",
        UNBOUNDED,
        "filed too late",
        against_sweep(EXTENDED, Shard::sweep_in_two_holds, sooner),
    );
    must_fail(
        "lane_refile_against_shortened_deadline: late",
        UNBOUNDED,
        "published too late",
        against_sweep(EXTENDED, Shard::sweep_and_publish_late, sooner),
    );
}

#[test]
fn minimum_recomputed_against_a_new_sooner_deadline() {
    // Slot 0 ends now, and the sweep raises the minimum behind it to nothing.
    const ENDING: &[Filed] = &[(4, 4)];
    let insert: fn(&Shard) = |shard| shard.insert(1, 7);
    check(
        "lane_minimum_against_new_deadline",
        UNBOUNDED,
        against_sweep(ENDING, Shard::sweep, insert),
    );
    must_fail(
        "lane_minimum_against_new_deadline: late",
        UNBOUNDED,
        "published too late",
        against_sweep(ENDING, Shard::sweep_and_publish_late, insert),
    );
}
