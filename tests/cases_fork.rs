//! A process with worker threads that forks. The only test of its binary: a child has only the
//! thread that forked.
#![cfg(unix)]

mod common;

use std::process::exit;
use std::time::{Duration, Instant};

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use ebbtide::{Cache, Counter, ManualClock, Reaper, RemovalCause};

use common::{S, eventually};

/// Counts drops without a lock, which a thread that is not there might hold.
struct Ledger {
    made: AtomicUsize,
    drops: [AtomicU8; 100_000],
}

impl Ledger {
    fn new() -> Arc<Self> {
        Arc::new(Ledger {
            made: AtomicUsize::new(0),
            drops: [const { AtomicU8::new(0) }; 100_000],
        })
    }

    fn value(self: &Arc<Self>, tag: u64) -> Tracked {
        Tracked(Arc::new(Original {
            serial: self.made.fetch_add(1, Ordering::Relaxed),
            tag,
            ledger: Arc::clone(self),
        }))
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn is_dropped(&self, serial: usize) -> bool {
        self.drops[serial].load(Ordering::Acquire) > 0
    }

    fn is_dropped_twice(&self) -> bool {
        let drops = self.drops.iter();
        drops.into_iter().any(|n| n.load(Ordering::Acquire) > 1)
    }
}

struct Original {
    serial: usize,
    tag: u64,
    ledger: Arc<Ledger>,
}

impl Drop for Original {
    fn drop(&mut self) {
        self.ledger.drops[self.serial].fetch_add(1, Ordering::Release);
    }
}

#[derive(Clone)]
struct Tracked(Arc<Original>);

impl Tracked {
    fn tag(&self) -> u64 {
        self.0.tag
    }
}

const MS: Duration = Duration::from_millis(1);

/// What the child found wrong, as its exit code.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None = 0,
    Read = 10,
    Write = 11,
    Expiry = 12,
    Reclaim = 13,
    NewCache = 14,
    Counter = 15,
    DroppedTwice = 16,
    Lease = 17,
    Load = 18,
}

struct Caches {
    shared: Cache<u64, Tracked>,
    dedicated: Cache<u64, Tracked>,
    bounded: Cache<u64, Counter>,
    manual: Cache<u64, u64>,
    /// Nothing reclaims in it: what it reads is up to its clock alone.
    leased: Cache<u64, u64>,
}

/// The key that is being loaded at the fork.
const LOADING: u64 = 4_444;

/// Longer than the lease of [`with_lease`], so that the published time decides at first.
const LIFETIME: Duration = Duration::from_millis(100);

fn with_lease(lease: Duration) -> Cache<u64, u64> {
    Cache::builder()
        .clock_lease(lease)
        .reaper(Reaper::manual())
        .build()
        .unwrap()
}

/// Whether nothing is read past its deadline by a cache whose publisher is in the parent: what was
/// published last before the fork would let its entries live for ever.
fn is_exact(leased: &Cache<u64, u64>) -> bool {
    std::thread::sleep(LIFETIME);
    (0..10).all(|key| leased.get(&key).is_none())
}

/// The child's checks; must not unwind or print, and knows time limits.
fn in_child(caches: Caches, ledger: &Arc<Ledger>) -> Fault {
    let Caches {
        shared,
        dedicated,
        bounded,
        manual,
        leased,
    } = caches;
    for cache in [&shared, &dedicated] {
        for key in 0..1_000 {
            if cache.get(&key).map(|value| value.tag()) != Some(key) {
                return Fault::Read;
            }
        }
        if cache.live_count() != 1_000 || cache.iter().count() != 1_000 {
            return Fault::Read;
        }
    }
    if manual.get(&1) != Some(1) {
        return Fault::Read;
    }
    let first = ledger.made();
    for cache in [&shared, &dedicated] {
        for key in 0..1_000 {
            cache.insert_with_ttl(1_000 + key, ledger.value(key), MS);
        }
        if cache.remove(&0).is_none() || cache.get(&0).is_some() {
            return Fault::Write;
        }
        cache.insert(0, ledger.value(0));
        if !cache.contains_key(&0) {
            return Fault::Write;
        }
    }
    // A thread that is not here was loading this key at the fork; nobody waits for it.
    if manual.get_or_insert_with(LOADING, || 4) != 4 || manual.get(&LOADING) != Some(4) {
        return Fault::Load;
    }
    for key in 0..50 {
        if bounded.increment(&key, 2) != Ok(2) || bounded.entry_count() > 10 {
            return Fault::Counter;
        }
    }
    // The workers did not survive the fork: writes have brought them back.
    let begin = Instant::now();
    let mine = || (first..first + 1_000).chain(first + 1_001..first + 2_001);
    while !mine().all(|serial| ledger.is_dropped(serial)) {
        if begin.elapsed() > 15 * S {
            return Fault::Reclaim;
        }
        std::thread::sleep(MS);
    }
    if shared.contains_key(&1_500) || dedicated.entry_count() != 1_000 {
        return Fault::Expiry;
    }
    let fresh: Cache<u64, Tracked> = Cache::unbounded();
    let serial = ledger.made();
    fresh.insert_with_ttl(1, ledger.value(1), MS);
    let begin = Instant::now();
    while !ledger.is_dropped(serial) {
        if begin.elapsed() > 15 * S {
            return Fault::NewCache;
        }
        std::thread::sleep(MS);
    }
    if !is_exact(&leased) {
        return Fault::Lease;
    }
    // Its publisher serves the short lease from before the fork too, and not only its own.
    let long_lease = with_lease(3_600 * S);
    for key in 0..10 {
        leased.insert_with_ttl(key, key, LIFETIME);
    }
    let begin = Instant::now();
    while !is_exact(&leased) {
        if begin.elapsed() > 15 * S {
            return Fault::Lease;
        }
    }
    let fresh_lease = with_lease(10 * MS);
    fresh_lease.insert_with_ttl(1, 1, LIFETIME);
    let begin = Instant::now();
    while fresh_lease.contains_key(&1) {
        if begin.elapsed() > 15 * S {
            return Fault::Lease;
        }
        std::thread::sleep(MS);
    }
    // Prompt, also where a thread that is not here held the cache at the fork. (What such a thread
    // held stays with this process, so that how many are dropped is not certain.)
    drop((fresh, shared, dedicated, bounded, manual));
    drop((leased, long_lease, fresh_lease));
    if ledger.is_dropped_twice() {
        return Fault::DroppedTwice;
    }
    Fault::None
}

#[test]
fn a_forked_child_reads_writes_and_reclaims() {
    let ledger = Ledger::new();
    let interval = |reaper: Reaper| reaper.interval(5 * MS);
    // With a listener the reaper's threads tell of what they unlink, and bury it after that.
    let told = |_: &u64, _: &Tracked, _: RemovalCause| ();
    let build = |reaper: Reaper| -> Cache<u64, Tracked> {
        let builder = Cache::builder().reaper(interval(reaper));
        builder.on_removal(told).build().unwrap()
    };
    let mut all = Some(Caches {
        shared: build(Reaper::shared()),
        dedicated: build(Reaper::dedicated(2)),
        bounded: Cache::new(10),
        manual: Cache::builder().clock(ManualClock::new()).build().unwrap(),
        leased: with_lease(10 * MS),
    });
    let caches = all.as_ref().unwrap();
    for cache in [&caches.shared, &caches.dedicated] {
        for key in 0..1_000 {
            cache.insert(key, ledger.value(key));
        }
    }
    caches.manual.insert(1, 1);
    // Several times, so that the workers are met in the middle of whatever they do.
    for round in 0..10 {
        let caches = all.as_ref().unwrap();
        for cache in [&caches.shared, &caches.dedicated] {
            for key in 0..2_000 {
                cache.insert_with_ttl(5_000 + key, ledger.value(key), MS);
            }
        }
        caches.leased.insert_with_ttl(round, round, LIFETIME);
        let (loaded, load) = std::sync::mpsc::channel();
        let (began, has_begun) = std::sync::mpsc::channel();
        let loads = caches.manual.clone();
        let loader = std::thread::spawn(move || {
            loads.get_or_insert_with_ttl(LOADING, || {
                began.send(()).unwrap();
                (load.recv().unwrap(), Duration::ZERO)
            })
        });
        has_begun.recv().unwrap();
        // A pin that the child has no thread to end must not hold it up.
        let (let_go, until_then) = std::sync::mpsc::channel::<()>();
        let (pinned, is_pinned) = std::sync::mpsc::channel();
        let pins = caches.shared.clone();
        let reader = std::thread::spawn(move || {
            let pin = pins.pin();
            pinned.send(pin.get(&7).map(Tracked::tag)).unwrap();
            let _ = until_then.recv();
        });
        assert_eq!(is_pinned.recv(), Ok(Some(7)));
        std::thread::sleep(Duration::from_micros(700 * round));
        // What is still being reclaimed does not belong to the child's sums.
        let held = |cache: &Cache<u64, Tracked>| cache.entry_count() == 1_000;
        if round % 2 == 0 {
            eventually("the wave is unlinked", || {
                held(&caches.shared) && held(&caches.dedicated)
            });
        }
        // SAFETY: the child uses this library, the allocator and std's clocks and threads, then
        // ends by `_exit`. No other thread of this process is inside a write, and glibc's and
        // musl's allocators are usable after a fork of a process with threads.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                in_child(all.take().unwrap(), &ledger)
            }));
            let code = fault.map_or(99, |fault| fault as i32);
            // SAFETY: ends the child at once, without running what belongs to the parent.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        let begin = Instant::now();
        loop {
            // SAFETY: `status` is a live integer for the whole call.
            let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
            if ended == child {
                break;
            }
            if begin.elapsed() > 40 * S {
                // SAFETY: the child is ours and has not been waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
                exit_with("the child hangs");
            }
            std::thread::sleep(MS);
        }
        assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
        assert_eq!(
            libc::WEXITSTATUS(status),
            Fault::None as i32,
            "round {round}"
        );
        loaded.send(round).unwrap();
        assert_eq!(loader.join().unwrap(), round);
        drop(let_go);
        reader.join().unwrap();
        // The parent goes on as before.
        assert_eq!(caches.shared.get(&7).map(|value| value.tag()), Some(7));
        eventually("the parent's worker still reclaims", || {
            held(&caches.shared) && held(&caches.dedicated)
        });
    }
    drop(all);
    let drops = ledger.drops[..ledger.made()].iter();
    assert!(drops.into_iter().all(|n| n.load(Ordering::Acquire) == 1));
}

fn exit_with(reason: &str) -> ! {
    eprintln!("{reason}");
    exit(1)
}
