//! A warm hit writes no memory that another thread reads: checked by taking the right to write away.
//!
//! The allocator of this test places whatever a thread allocates while it is *collecting* into an
//! arena: that is the cache with everything in it. Once the cache is filled and its marks are as
//! high as they go, the arena is made read-only and several threads read from it. A write is the
//! end of the process: `each_kind_of_write_is_noticed` does one of each kind in a process of its
//! own, and wants it to die of just that.
//!
//! Large blocks always go to a second arena, which is made read-only with the first: the library
//! cuts the memory of entries and index segments out of such blocks, which all caches share.
//!
//! What lies elsewhere: the threads' epoch records (each thread pins once before), and what reads
//! allocate for their answers.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ebbtide::{Builder, Cache, Counter, ManualClock, Reaper};

/// Address space of the arenas; pages that nobody touched cost nothing. Each test has a part of the
/// first half, and nothing of an older part is ever used again; large blocks have the other half.
const REGION: usize = 8 << 30;
const HALF: usize = REGION / 2;
const PAGE: usize = 4096;
/// From this size on a block is large.
const LARGE: usize = 1 << 20;

/// Where the region begins, or 0 before there is one.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes in use of each half.
static USED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// One test at a time has an arena.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// While it is set, what this thread allocates goes to the arena.
    static COLLECTING: Cell<bool> = const { Cell::new(false) };
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The beginning of the region, which is made when it is first asked for.
fn region() -> usize {
    let base = BASE.load(SeqCst);
    if base != 0 {
        return base;
    }
    // SAFETY: a new mapping that nothing else knows.
    let new = unsafe {
        libc::mmap(
            ptr::null_mut(),
            REGION,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if new == libc::MAP_FAILED {
        std::process::abort();
    }
    // Of two threads' regions one is left unused.
    match BASE.compare_exchange(0, new.expose_provenance(), SeqCst, SeqCst) {
        Ok(_) => new.addr(),
        Err(first) => first,
    }
}

/// A new block in one half of the region; null if there is no more.
fn take(half: usize, layout: Layout) -> *mut u8 {
    let base = region() + half * HALF;
    let begin = |used: usize| (base + used).next_multiple_of(layout.align()) - base;
    let grown = |used| Some(begin(used) + layout.size()).filter(|end| *end <= HALF);
    match USED[half].fetch_update(SeqCst, SeqCst, grown) {
        Ok(before) => ptr::with_exposed_provenance_mut(base + begin(before)),
        Err(_) => ptr::null_mut(),
    }
}

/// Whether an address is one of the region's.
fn is_ours(address: usize) -> bool {
    let base = BASE.load(SeqCst);
    base != 0 && (base..base + REGION).contains(&address)
}

// SAFETY: every block is either the system allocator's, and goes back to it with its own layout,
// or an aligned piece of the region that no other block overlaps (`USED` only grows).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            return take(1, layout);
        }
        if COLLECTING.get() {
            return take(0, layout);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_ours(block.addr()) {
            // SAFETY: outside of the region a block is the system's, with this layout.
            unsafe { System.dealloc(block, layout) };
        }
    }
}

/// A part of the region, from a page boundary on, and the right to be the only one that uses it.
struct Arena {
    begin: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Arena {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = USED[0].load(SeqCst).next_multiple_of(PAGE);
        USED[0].store(begin, SeqCst);
        Arena { begin, _turn: turn }
    }

    /// Runs `f` with everything that it allocates placed in the arena.
    fn collect<R>(&self, f: impl FnOnce() -> R) -> R {
        COLLECTING.set(true);
        let result = f();
        COLLECTING.set(false);
        result
    }

    fn protect(&self, protection: libc::c_int) {
        for (half, begin) in [self.begin, 0].into_iter().enumerate() {
            let length = USED[half].load(SeqCst).next_multiple_of(PAGE) - begin;
            let begin = ptr::with_exposed_provenance_mut(region() + half * HALF + begin);
            // SAFETY: the pages are the arena's and keep what they hold. A write to them while
            // they are read-only ends the process, which is the question here.
            let done = unsafe { libc::mprotect(begin, length, protection) };
            assert_eq!(done, 0, "mprotect: {}", std::io::Error::last_os_error());
        }
    }

    /// Runs `f` while nothing in the arena can be written.
    fn read_only<R>(&self, f: impl FnOnce() -> R) -> R {
        self.protect(libc::PROT_READ);
        let result = f();
        self.protect(libc::PROT_READ | libc::PROT_WRITE);
        result
    }
}

const KEYS: u64 = 2_000;
const THREADS: usize = 4;

/// Reads of an entry after which a bounded cache has stopped writing its mark; each round of
/// reading has at least three.
const ROUNDS_TO_WARM: usize = 2;

type Texts = Cache<u64, String>;

/// Text long enough to own memory of its own.
fn text(key: u64) -> String {
    format!("the value of the key with the number {key}")
}

/// Moves the collector's own queue out of the arena: what was deferred while the cache was filled
/// is run, and what was queued last comes from elsewhere.
fn settle(cache: &Texts) {
    let elsewhere: Cache<u64, u64> = Cache::builder().reaper(Reaper::manual()).build().unwrap();
    for round in 0..64 {
        cache.reap(Duration::from_secs(1));
        elsewhere.insert(0, round);
        elsewhere.reap(Duration::from_secs(1));
    }
}

/// A cache filled in the arena. With `lifetimes`, odd keys have one of their own.
fn fill(
    arena: &Arena,
    lifetimes: bool,
    settings: impl FnOnce(Builder<u64, String>) -> Builder<u64, String>,
) -> Texts {
    // The thread's own epoch record comes first, and with it the collector.
    let first: Texts = Cache::builder().reaper(Reaper::manual()).build().unwrap();
    assert_eq!(first.get(&0), None);
    let cache = arena.collect(|| {
        let builder = settings(Cache::builder().reaper(Reaper::manual()));
        let cache = builder.build().unwrap();
        for key in 0..KEYS {
            if lifetimes && key % 2 == 1 {
                cache.insert_with_ttl(key, text(key), Duration::from_secs(3_600));
            } else {
                cache.insert(key, text(key));
            }
        }
        cache
    });
    assert_eq!(cache.entry_count(), KEYS);
    settle(&cache);
    let pinned = cache.pin();
    for (_, text) in pinned.iter() {
        assert!(is_ours(ptr::from_ref(text).addr()), "an entry elsewhere");
        assert!(is_ours(text.as_ptr().addr()), "a value's text elsewhere");
    }
    drop(pinned);
    cache
}

/// Reads of each kind, all of them hits.
fn read(cache: &Texts, key: u64) {
    let expected = text(key);
    assert_eq!(cache.get(&key).as_ref(), Some(&expected));
    assert_eq!(cache.with(&key, |text| *text == expected), Some(true));
    assert_eq!(cache.peek(&key).as_ref(), Some(&expected));
    assert!(cache.contains_key(&key));
    assert!(cache.ttl(&key).is_some());
    assert_eq!(cache.pin().get(&key), Some(&expected));
    let both = cache.get_many(&[key, (key + 1) % KEYS]);
    assert!(both.iter().all(Option::is_some));
}

/// Counts a thread in, also when it panics, so that nobody waits for it in vain.
struct Arrival<'a>(&'a AtomicUsize);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn wait_for(count: &AtomicUsize, number: usize) {
    while count.load(SeqCst) < number {
        thread::yield_now();
    }
}

/// Runs `read` on several threads, first to warm the cache, then while it is read-only.
fn read_warm(arena: &Arena, read: impl Fn(u64) + Sync) {
    let [warm, go, done] = [const { AtomicUsize::new(0) }; 3];
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (warm, go, done, read) = (&warm, &go, &done, &read);
            scope.spawn(move || {
                let done = Arrival(done);
                let warmed = Arrival(warm);
                for _ in 0..ROUNDS_TO_WARM {
                    (0..KEYS).for_each(read);
                }
                drop(warmed);
                wait_for(go, 1);
                // Not all in the same order.
                (0..KEYS).for_each(|key| read((key + thread * 701) % KEYS));
                drop(done);
                wait_for(go, 2);
            });
        }
        wait_for(&warm, THREADS);
        arena.read_only(|| {
            go.store(1, SeqCst);
            wait_for(&done, THREADS);
        });
        // Only now may they end, which their epoch records hear of.
        go.store(2, SeqCst);
    });
}

/// Warm hits in a cache with these settings, with the system's clock.
fn check(lifetimes: bool, settings: impl FnOnce(Builder<u64, String>) -> Builder<u64, String>) {
    let arena = Arena::new();
    let cache = fill(&arena, lifetimes, settings);
    read_warm(&arena, |key| read(&cache, key));
}

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn unbounded() {
    check(false, |builder| builder);
}

#[test]
fn unbounded_with_lifetimes() {
    check(true, |builder| builder.time_to_live(HOUR));
}

#[test]
fn unbounded_with_some_lifetimes_and_one_shard() {
    check(true, |builder| builder.shards(1));
}

#[test]
fn bounded() {
    check(false, |builder| builder.max_entries(KEYS));
}

#[test]
fn bounded_with_lifetimes_and_a_listener() {
    check(true, |builder| {
        builder
            .max_entries(KEYS)
            .time_to_live(HOUR)
            .on_removal(|_: &u64, _: &String, _| ())
    });
}

#[test]
fn time_to_idle_while_a_renewal_would_gain_little() {
    check(true, |builder| {
        builder.max_entries(KEYS).time_to_idle(100 * HOUR)
    });
}

#[test]
fn a_manual_clock() {
    check(true, |builder| {
        builder.clock(ManualClock::new()).time_to_idle(HOUR)
    });
}

#[test]
fn counters() {
    let arena = Arena::new();
    let mut cache = None;
    // (The same steps as for texts, so that the arena is as full.)
    let texts = fill(&arena, false, |builder| builder);
    arena.collect(|| {
        let counters: Cache<u64, Counter> =
            Cache::builder().reaper(Reaper::manual()).build().unwrap();
        for key in 0..KEYS {
            counters.increment(&key, key as i64).unwrap();
        }
        cache = Some(counters);
    });
    settle(&texts);
    let cache = cache.expect("just made");
    read_warm(&arena, |key| {
        let counter = cache.get(&key).expect("it is there");
        assert_eq!(counter.get(), key as i64);
        assert_eq!(cache.with(&key, Counter::get), Some(key as i64));
    });
}

// --- the other way round -------------------------------------------------------------------

/// The variable that tells the other process which kind of write it is for.
const KIND: &str = "EBBTIDE_FORCED_WRITE";
/// What it says when all reads went well and the write comes next.
const NOW: &str = "all reads are done, now the write";

/// Reads that do write, and writes: each must be noticed.
const KINDS: [&str; 10] = [
    "insert", "touch", "persist", "expire", "remove", "reap", "clone", "cold", "counted", "renewal",
];

fn write(kind: &str) {
    let arena = Arena::new();
    let clock = ManualClock::new();
    let cache = fill(&arena, true, |builder| match kind {
        // A bounded cache whose entries nobody has read: the first hits raise their marks.
        "cold" => builder.max_entries(KEYS),
        // Reads are counted in memory of the cache.
        "counted" => builder.record_stats(true),
        // A read that is worth a renewal writes the entry's deadline.
        "renewal" => builder.time_to_idle(HOUR).clock(clock.clone()),
        _ => builder,
    });
    if kind != "cold" && kind != "counted" {
        read_warm(&arena, |key| read(&cache, key));
    }
    clock.advance(HOUR / 2);
    println!("{NOW}");
    arena.read_only(|| match kind {
        "nothing" => read(&cache, 7),
        "insert" => cache.insert(7, String::new()),
        "touch" => drop(cache.touch(&7).then_some(())),
        "persist" => drop(cache.persist(&7).then_some(())),
        "expire" => drop(cache.expire(&7, HOUR).then_some(())),
        "remove" => drop(cache.remove(&7)),
        "reap" => drop(cache.reap(HOUR)),
        "clone" => std::mem::forget(cache.clone()),
        "cold" | "counted" => drop(cache.get(&7)),
        // (Even keys have no other lifetime that would leave nothing to gain.)
        "renewal" => drop(cache.get(&8)),
        other => panic!("no such write: {other}"),
    });
}

#[test]
#[ignore = "ends the process: each_kind_of_write_is_noticed runs it in one of its own"]
fn forced_write() {
    let Ok(kind) = env::var(KIND) else {
        println!("nothing to do without {KIND}");
        return;
    };
    // SAFETY: only this process's limit for core files, which nobody wants of a planned death.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
    write(&kind);
}

/// How a process that does this write ends.
fn end_of(kind: &str) -> ExitStatus {
    let output = Command::new(env::current_exe().unwrap())
        .args(["forced_write", "--exact", "--ignored", "--nocapture"])
        .env(KIND, kind)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(NOW), "{kind}: {said}\n{complained}");
    output.status
}

#[test]
fn each_kind_of_write_is_noticed() {
    for kind in KINDS {
        let status = end_of(kind);
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{kind}: {status}");
    }
    let status = end_of("nothing");
    assert!(status.success(), "no write at all: {status}");
}
