//! That neither saving nor loading holds more than an entry and some frames, whatever there is.
//! (A file of its own, because it counts what its process allocates.)
#![cfg(feature = "serde")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbtide::Cache;
use ebbtide::snapshot::{RestoreOptions, SnapshotError, verify};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: the system's allocator does it all; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that `f` holds beyond what was held before it.
fn peak<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = f();
    (MOST.load(Ordering::Relaxed) - before, result)
}

/// The longest single write.
#[derive(Default)]
struct Longest(usize, u64);

impl Write for Longest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.max(bytes.len());
        self.1 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const FRAME: usize = 64 << 10;

#[test]
fn memory_is_an_entry_and_some_frames() {
    // 30 MB in small entries.
    const ENTRIES: u64 = 50_000;
    let cache: Cache<u64, Vec<u8>> = Cache::builder()
        .shards(1)
        .reaper(ebbtide::Reaper::manual())
        .build()
        .unwrap();
    (0..ENTRIES).for_each(|n| cache.insert(n, vec![n as u8; 600]));
    let mut writer = Longest::default();
    let (most, saved) = peak(|| cache.save(&mut writer).unwrap());
    assert_eq!((saved.entries, saved.bytes), (ENTRIES, writer.1));
    assert!(saved.bytes > 30_000_000);
    assert!(most < 6 * FRAME, "saving held {most} bytes");
    assert!(writer.0 <= FRAME + 100, "a write of {} bytes", writer.0);

    let (most, ()) = peak(|| serde_json::to_writer(io::sink(), &cache.snapshot()).unwrap());
    assert!(most < 2 * FRAME, "as JSON {most} bytes");

    let mut file = Vec::with_capacity(40_000_000);
    cache.save(&mut file).unwrap();
    let (most, verified) = peak(|| verify(&file[..]).unwrap());
    assert_eq!(verified, saved);
    assert!(most < 3 * FRAME, "verifying held {most} bytes");

    // Into a cache that keeps nothing of it.
    let sieve: Cache<u64, Vec<u8>> = Cache::builder()
        .max_entries(0)
        .reaper(ebbtide::Reaper::manual())
        .build()
        .unwrap();
    let (most, restored) = peak(|| sieve.load(&file[..], &RestoreOptions::new()).unwrap());
    assert_eq!(restored.refused, ENTRIES);
    assert!(most < 3 * FRAME, "loading held {most} bytes");

    // Larger ones, hundreds of which lie in one stretch of the walk.
    const LARGE: usize = 100_000;
    cache.invalidate_all();
    (0..300).for_each(|n| cache.insert(n, vec![n as u8; LARGE]));
    let (most, _) = peak(|| cache.save(io::sink()).unwrap());
    assert!(most < 4 * (LARGE + FRAME), "saving held {most} bytes");

    // One entry of 30 MB: itself, as written and as a value, and what a growing vector has besides.
    const HUGE: usize = 30_000_000;
    cache.invalidate_all();
    cache.insert(1, vec![1; HUGE]);
    let mut writer = Longest::default();
    let (most, _) = peak(|| cache.save(&mut writer).unwrap());
    assert!(writer.0 <= FRAME + 100, "a write of {} bytes", writer.0);
    assert!(most < 4 * HUGE, "saving held {most} bytes");
    file.clear();
    cache.save(&mut file).unwrap();
    let (most, restored) = peak(|| sieve.load(&file[..], &RestoreOptions::new()).unwrap());
    assert_eq!(restored.refused, 1);
    assert!(most < 5 * HUGE, "loading held {most} bytes");

    // What says that it is long, and is not, takes no room: a record, then a value in it.
    for record in [
        &[0xff, 0xff, 0xff, 0xff, 1, 2, 3][..],
        &[9, 0, 0, 0, 7, 255, 255, 255, 255, 255, 255, 127, 0],
    ] {
        let file = forged(record);
        let (most, error) = peak(|| sieve.load(&file[..], &RestoreOptions::new()).unwrap_err());
        assert!(matches!(
            error.error,
            SnapshotError::Damaged { .. } | SnapshotError::Format { .. }
        ));
        assert!(most < 2 * FRAME, "{most} bytes for {error}");
    }
    // A file that never ends is read no further than to what is wrong.
    struct Endless(u64);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += buffer.len() as u64;
            buffer.fill(0x89);
            Ok(buffer.len())
        }
    }
    let mut endless = Endless(0);
    let (most, _) = peak(|| {
        sieve
            .load(&mut endless, &RestoreOptions::new())
            .unwrap_err()
    });
    assert!(most < FRAME && endless.0 < 100);
}

/// A file with right checksums around one frame.
fn forged(frame: &[u8]) -> Vec<u8> {
    let (mut parts, mut file) = (Vec::new(), Vec::new());
    let mut part = |part: &[u8]| {
        parts.extend_from_slice(part);
        file.extend_from_slice(part);
        let sum = !parts.iter().fold(!0_u32, |sum: u32, &byte: &u8| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| {
                (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
            })
        });
        file.extend_from_slice(&sum.to_le_bytes());
    };
    part(b"\x89EBT\r\n\x1a\n\x01\0\0\0");
    part(&[0; 16]);
    part(&(frame.len() as u32).to_le_bytes());
    part(frame);
    part(&[0; 4]);
    part(&1_u64.to_le_bytes());
    file
}
