//! What all handles of a cache share, and the steps that every operation is made of.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Instant;

use equivalent::Equivalent;

use super::room::Written;
use crate::RemovalCause;
use crate::clock::Reading;
use crate::counter::{Counter, as_counter};
use crate::entry::word::Found;
use crate::index::Glance;
use crate::limits::{LISTENER_DEPTH, MANUAL_HELP};
use crate::order::touch_mark;
use crate::pages::TrimAtEnd;
use crate::reaper::crew::Enrolment;
use crate::reaper::{Bell, Settings, Target};
use crate::reclaim::{Guard, pin};
use crate::rules::{Listener, Rules};
use crate::shard::{Goal, Hold, Look, Released, SampleReport, Shard, Slice, SweepReport, report};
use crate::slab::{Departed, SlotRef};
use crate::stats::{Path, ReadCounts, ReapCounts, add};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, OnceLock, Ordering, without_fork};

/// What all handles of one cache share.
pub(crate) struct Core<K, V, S> {
    pub(crate) shards: Box<[Shard<K, V>]>,
    /// The hash's top 16 bits choose the shard: their number minus one.
    mask: usize,
    pub(crate) hasher: S,
    pub(crate) rules: Rules<K, V>,
    pub(crate) reads: Option<ReadCounts>,
    pub(crate) settings: Settings,
    pub(crate) enrolment: OnceLock<Enrolment>,
    silent: Bell,
    pub(crate) counts: ReapCounts,
    pub(crate) handles: AtomicUsize,
    pub(crate) closing: AtomicBool,
    /// Entries whose listener would have run too deep inside other listeners of this cache.
    unreported: Mutex<Vec<Unreported<K, V>>>,
    /// The shard where the next `reap` begins.
    pub(crate) next_shard: AtomicUsize,
    pub(crate) name: String,
    /// Last, so that it comes after the shards' memory.
    _trim: TrimAtEnd,
}

/// What a listener has still to hear of.
enum Unreported<K, V> {
    /// An entry that left this shard.
    Departed(usize, Departed),
    /// An entry that the cache could not take.
    Refused(K, V),
}

/// A key's shard, and the hash that its shard uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) shard: usize,
    pub(crate) hash: u32,
}

thread_local! {
    /// The caches whose listeners this thread is inside of, innermost last.
    static REPORTING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn new(
        shards: Box<[Shard<K, V>]>,
        hasher: S,
        rules: Rules<K, V>,
        settings: Settings,
        record_stats: bool,
        name: String,
    ) -> Self {
        Core {
            mask: shards.len() - 1,
            shards,
            hasher,
            rules,
            reads: record_stats.then(ReadCounts::new),
            settings,
            enrolment: OnceLock::new(),
            silent: Bell::silent(),
            counts: ReapCounts::new(),
            handles: AtomicUsize::new(1),
            closing: AtomicBool::new(false),
            unreported: Mutex::new(Vec::new()),
            next_shard: AtomicUsize::new(0),
            name,
            _trim: TrimAtEnd,
        }
    }

    /// Where a key belongs. Runs the key's `Hash`: call without locks.
    #[inline]
    #[allow(clippy::manual_hash_one)]
    pub(crate) fn address<Q: Hash + ?Sized>(&self, key: &Q) -> Address {
        // Not `hash_one`: with a nightly compiler ahash's is another function for primitives, and a
        // key has to be found by every form that is equivalent to it.
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        let mut hash = hasher.finish();
        if TypeId::of::<S>() != TypeId::of::<ahash::RandomState>() {
            // Hashers for integers may leave whole bytes constant; every bit is used here. One
            // folded multiplication (as in wyhash) spreads what there is.
            let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
            hash = (product >> 64) as u64 ^ product as u64;
        }
        let shard = (hash >> 48) as usize & self.mask;
        Address {
            shard,
            hash: hash as u32,
        }
    }

    #[inline]
    pub(crate) fn shard(&self, address: Address) -> &Shard<K, V> {
        &self.shards[address.shard]
    }

    /// The bell of whoever reaps a shard.
    #[inline]
    pub(crate) fn bell(&self, shard: usize) -> &Bell {
        match self.enrolment.get() {
            // (Nearly always one, and a division takes as long as a lock.)
            Some(enrolment) => match &*enrolment.bells {
                [only] => only,
                bells => &bells[shard % bells.len()],
            },
            None => &self.silent,
        }
    }

    /// Takes a shard's lock. Asks a clock of the user's before that.
    #[inline]
    pub(crate) fn hold<'s>(&'s self, shard: usize, guard: &'s Guard) -> Hold<'s, K, V> {
        self.hold_at(shard, self.rules.time.reading(), guard)
    }

    #[inline]
    pub(crate) fn hold_at<'s>(
        &'s self,
        shard: usize,
        time: Reading<'s>,
        guard: &'s Guard,
    ) -> Hold<'s, K, V> {
        self.shards[shard].hold(&self.rules, time.under_lock(), self.bell(shard), guard)
    }

    /// As [`hold`](Self::hold), if nobody has the lock.
    fn try_hold<'s>(&'s self, shard: usize, guard: &'s Guard) -> Option<Hold<'s, K, V>> {
        let time = self.rules.time.reading();
        self.shards[shard].try_hold(&self.rules, time, self.bell(shard), guard)
    }

    /// The value of a key's live entry, which counts as a use.
    #[inline]
    pub(crate) fn read<'g, Q>(&self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let address = self.address(key);
        if self.reads.is_none() {
            let shard = self.shard(address);
            match shard.glance(&self.rules, address.hash, guard, |k| key.equivalent(k)) {
                Glance::Found((slot, entry)) => {
                    self.used(shard, slot);
                    return Some(entry.value());
                }
                Glance::Absent => return None,
                Glance::Elsewhere => {}
            }
        }
        self.read_carefully(address, key, guard)
    }

    /// A read for which a glance is not enough.
    #[inline(never)]
    fn read_carefully<'g, Q>(&self, address: Address, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let shard = self.shard(address);
        let look = shard.lookup(&self.rules, address.hash, guard, |k| key.equivalent(k));
        self.answered(address.shard, look, guard);
        let slot = look.live()?;
        self.used(shard, slot);
        Some(shard.entry(slot).value())
    }

    /// What a read hit leaves behind: a mark for eviction, a renewal for time to idle. Neither is
    /// written once it would change nothing.
    #[inline]
    pub(crate) fn used(&self, shard: &Shard<K, V>, slot: SlotRef<'_>) {
        if let Some(mark) = shard.slab().mark(slot) {
            touch_mark(mark);
        }
        if self.rules.idle != 0 {
            self.renew(shard, slot);
        }
    }

    #[inline(never)]
    fn renew(&self, shard: &Shard<K, V>, slot: SlotRef<'_>) {
        let (time, idle) = (&self.rules.time, self.rules.idle);
        let cap = shard
            .slab()
            .cap(slot)
            .expect("a cache with a time to idle keeps caps");
        shard.entry(slot).word.extend_idle(
            |word| time.is_due(word),
            (idle / crate::limits::IDLE_GRAIN).max(1),
            || {
                // Acquire: no earlier than the word's load before it (P5); then the clock.
                let cap = cap.load(Ordering::Acquire);
                cap.min(time.recent().saturating_add(idle))
            },
        );
    }

    /// A read met an expired entry: unlink it if that costs no wait and nobody has to be told.
    #[cold]
    pub(crate) fn clear_corpse(
        &self,
        shard: usize,
        slot: SlotRef<'_>,
        deadline: Option<u64>,
        guard: &Guard,
    ) {
        if self.rules.listener.is_some() {
            return;
        }
        let Some(mut hold) = self.try_hold(shard, guard) else {
            return;
        };
        if let Some(place) = hold.find_slot(slot.id()) {
            // The lookup made it DEAD, or found it so.
            let found = deadline.map_or(Found::Dead, Found::Expired);
            hold.unlink_expired(place, found, Path::Read);
        }
        self.finish(shard, hold.release());
    }

    /// Counts a read, and cleans up behind one that met an expired entry.
    #[inline]
    pub(crate) fn answered(&self, shard: usize, look: Look<'_>, guard: &Guard) {
        if let Some(reads) = &self.reads {
            match look {
                Look::Live(..) => reads.hit(),
                Look::Expired(..) => reads.miss(true),
                Look::Absent => reads.miss(false),
            }
        }
        if let Look::Expired(slot, deadline) = look {
            self.clear_corpse(shard, slot, deadline, guard);
        }
    }

    /// Waits for whoever holds a shard's lock, once.
    #[cold]
    pub(crate) fn pass_lock(&self, shard: usize) {
        let guard = pin();
        let released = self.hold(shard, &guard).release();
        drop(guard);
        self.finish(shard, released);
    }

    /// After a hold in which nothing was linked: reports.
    pub(crate) fn finish(&self, shard: usize, released: Released) {
        self.report(shard, released.departed);
    }

    /// After a write's hold: as [`finish`](Self::finish), then makes room if the bound is exceeded
    /// and the write owes some (sparing the slot just written), and in a cache that is reaped by hand
    /// helps a little.
    #[inline]
    pub(crate) fn finish_write(&self, shard: usize, released: Released, written: Written) {
        self.report(shard, released.departed);
        if written.slot.is_some() && self.rules.bound.excess().is_some() {
            self.pay_the_rest(shard, released.asked, written);
        }
        if self.rules.manual && self.shards[shard].waiting() >= MANUAL_HELP {
            self.help(shard);
        }
        if self.bell(shard).is_orphaned()
            && let Some(enrolment) = self.enrolment.get()
        {
            enrolment.revive();
        }
    }

    /// What a write owes after its own hold.
    #[cold]
    fn pay_the_rest(&self, shard: usize, asked: Option<u64>, written: Written) {
        let Written { slot, mut debt } = written;
        self.make_room(shard, slot, &mut debt, self.rules.time.reading_at(asked));
    }

    /// In a cache that is reaped by hand: begins the grace period of what waits, and drops a few
    /// values whose grace period is over.
    fn help(&self, shard: usize) {
        thread_local! {
            /// Whether this thread is helping: a value's `Drop` that writes does not help again.
            static HELPING: Cell<bool> = const { Cell::new(false) };
        }
        // (In a thread that is ending, somebody else will have to.)
        if HELPING
            .try_with(|helping| helping.replace(true))
            .unwrap_or(true)
        {
            return;
        }
        // (Not for every write while somebody is pinned and nothing can be dropped.)
        if self.shards[shard].has_unsealed(MANUAL_HELP) {
            self.seal(shard);
        }
        self.flush();
        self.drop_some(shard, 2 * MANUAL_HELP);
        let _ = HELPING.try_with(|helping| helping.set(false));
    }

    /// Tells the listener of departed entries, without any lock, then puts them into limbo.
    ///
    /// Runs inline on this thread, also when a listener of this cache caused it, up to
    /// [`LISTENER_DEPTH`] deep; what lies deeper is told when the outermost is done.
    #[inline]
    pub(crate) fn report(&self, shard: usize, departed: Vec<Departed>) {
        if departed.is_empty() {
            return;
        }
        if let Some(listener) = &self.rules.listener {
            self.report_to(listener, shard, departed);
        }
    }

    fn report_to(&self, listener: &Listener<K, V>, shard: usize, departed: Vec<Departed>) {
        let mut departed = Some(departed);
        self.nest(listener, || {
            let departed = departed.take().expect("run once");
            self.report_all(listener, shard, departed);
        });
        if let Some(departed) = departed {
            let unreported = departed
                .into_iter()
                .map(|slot| Unreported::Departed(shard, slot));
            without_fork(|| self.unreported.lock().extend(unreported));
        }
    }

    /// Counts an entry that the cache could not take, and tells the listener.
    pub(crate) fn report_refused(&self, key: K, value: V) {
        add(&self.counts.refused, 1);
        let Some(listener) = &self.rules.listener else {
            return;
        };
        let mut refused = Some((key, value));
        self.nest(listener, || {
            let (key, value) = refused.take().expect("run once");
            self.report_one_refused(listener, &key, &value);
        });
        if let Some((key, value)) = refused {
            without_fork(|| self.unreported.lock().push(Unreported::Refused(key, value)));
        }
    }

    fn report_one_refused(&self, listener: &Listener<K, V>, key: &K, value: &V) {
        let told = || listener(key, value, RemovalCause::Evicted);
        add(&self.counts.panics, crate::entry::contained(told));
    }

    /// Runs `tell` unless this thread is too deep inside listeners of this cache. The outermost
    /// then tells what had to wait.
    fn nest(&self, listener: &Listener<K, V>, tell: impl FnOnce()) {
        let me = std::ptr::from_ref(self).addr();
        // (A thread that is ending has no stack any more; its reports count as outermost.)
        let depth = REPORTING
            .try_with(|stack| stack.borrow().iter().filter(|&&c| c == me).count())
            .unwrap_or(0);
        if depth >= LISTENER_DEPTH as usize {
            return;
        }
        struct Pop;
        impl Drop for Pop {
            fn drop(&mut self) {
                let _ = REPORTING.try_with(|stack| stack.borrow_mut().pop());
            }
        }
        let _ = REPORTING.try_with(|stack| stack.borrow_mut().push(me));
        // Also if a refused value's `Drop` panics.
        let _pop = Pop;
        tell();
        let outermost = depth == 0;
        let next = || without_fork(|| self.unreported.lock().pop());
        while let Some(unreported) = outermost.then(next).flatten() {
            match unreported {
                Unreported::Departed(shard, slot) => {
                    self.report_all(listener, shard, vec![slot]);
                }
                Unreported::Refused(key, value) => {
                    self.report_one_refused(listener, &key, &value);
                }
            }
        }
    }

    fn report_all(&self, listener: &Listener<K, V>, shard: usize, departed: Vec<Departed>) {
        let slab = self.shards[shard].slab();
        for slot in &departed {
            let entry = without_fork(|| slab.departed(slot, &pin()));
            add(&self.counts.panics, report(entry, slot.cause, listener));
        }
        // A reaper's thread does this too: no lock may be held at the moment of a fork.
        without_fork(|| self.shards[shard].bury(self.bell(shard), departed));
    }
}

/// Lets `judge` look at a value. A counter is judged by a private copy, whose number comes back
/// with the judgement: whoever acts on it has to close or change the counter at that number.
pub(crate) fn judge<V: 'static, R>(value: &V, judge: impl FnOnce(&V) -> R) -> (R, Option<i64>) {
    let Some(counter) = as_counter(value) else {
        return (judge(value), None);
    };
    let copy: Counter = counter.clone();
    let number = copy.get();
    let copy = (&copy as &dyn std::any::Any)
        .downcast_ref()
        .expect("V is Counter");
    (judge(copy), Some(number))
}

impl<K, V, S> Target for Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn counts(&self) -> &ReapCounts {
        &self.counts
    }

    fn now(&self) -> u64 {
        self.rules.time.now()
    }

    fn keeps_real_time(&self) -> bool {
        self.rules.time.is_real()
    }

    fn due(&self, shard: usize) -> u32 {
        self.shards[shard].due()
    }

    fn waiting(&self, shard: usize) -> usize {
        self.shards[shard].waiting()
    }

    fn sweep(&self, shard: usize, goal: Goal, wait: bool, slice: Slice<'_>) -> Option<SweepReport> {
        let (report, released) = without_fork(|| {
            let guard = pin();
            let mut hold = if wait {
                self.hold(shard, &guard)
            } else {
                self.try_hold(shard, &guard)?
            };
            let report = hold.sweep(goal, slice);
            Some((report, hold.release()))
        })?;
        self.finish(shard, released);
        Some(report)
    }

    fn reach(&self, shard: usize) -> u32 {
        without_fork(|| {
            let guard = pin();
            let hold = self.hold(shard, &guard);
            hold.timed_reach()
        })
    }

    fn sample(&self, shard: usize, slots: &[u32], most: u64) -> SampleReport {
        let mut report = SampleReport::default();
        let released = without_fork(|| {
            let guard = pin();
            let mut hold = self.hold(shard, &guard);
            let begin = Instant::now();
            hold.sample(slots, most, &mut report);
            let held = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.counts.longest_hold.fetch_max(held, Ordering::Relaxed);
            hold.release()
        });
        self.finish(shard, released);
        report
    }

    fn seal(&self, shard: usize) {
        without_fork(|| self.shards[shard].seal());
    }

    fn flush(&self) {
        without_fork(crate::reclaim::advance);
    }

    fn drop_some(&self, shard: usize, most: usize) -> Option<u64> {
        let shard = &self.shards[shard];
        let ripe = without_fork(|| shard.take_ripe(most))?;
        let count = ripe.len() as u64;
        // User code: outside the fork gate as outside every lock.
        let begin = Instant::now();
        let (dropped, panics) = shard.drop_ripe(ripe);
        let spent = begin.elapsed();
        without_fork(|| shard.release(dropped));
        self.counts.note_drops(count, spent, self.settings.budget);
        add(&self.counts.panics, panics);
        Some(count)
    }

    fn trim(&self, shard: usize) {
        without_fork(|| self.shards[shard].trim());
    }
}

impl<K, V, S> Drop for Core<K, V, S> {
    fn drop(&mut self) {
        for shard in &mut self.shards {
            shard.dismantle();
        }
    }
}

impl<K, V, S> fmt::Debug for Core<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
