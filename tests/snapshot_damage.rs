//! Damaged files and files that are something else: each is an error that says which, nothing panics,
//! and what was restored before is what was saved. `cargo test --features serde --test snapshot_damage`.
#![cfg(feature = "serde")]

use std::io::{self, Read};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use ebbtide::snapshot::{LoadError, RestoreOptions, Restored, Saved, SnapshotError, verify};
use ebbtide::{Cache, Lifetime, ManualClock};
use proptest::prelude::*;
use proptest::sample::Index;

/// Bytes of the two parts before the first frame, and of a frame's length, each with its checksum.
const BEGIN: usize = 12 + 4 + 16 + 4;
const LENGTH: usize = 4 + 4;
/// Most bytes in a frame.
const FRAME: usize = 64 << 10;

fn crc(bytes: &[u8]) -> u32 {
    // Bit by bit: another implementation than the library's.
    !bytes.iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

/// Writes parts with right checksums, whatever is in them.
#[derive(Default)]
struct Forger {
    parts: Vec<u8>,
    file: Vec<u8>,
}

impl Forger {
    fn begin(version: u32, schema: u64) -> Self {
        let mut forger = Forger::default();
        let mut first = b"\x89EBT\r\n\x1a\n".to_vec();
        first.extend(version.to_le_bytes());
        forger.part(&first);
        let mut header = schema.to_le_bytes().to_vec();
        header.extend(0_u64.to_le_bytes());
        forger.part(&header);
        forger
    }

    fn part(&mut self, part: &[u8]) {
        self.parts.extend(part);
        self.file.extend(part);
        self.file.extend(crc(&self.parts).to_le_bytes());
    }

    fn frame(&mut self, frame: &[u8]) {
        self.part(&(frame.len() as u32).to_le_bytes());
        self.part(frame);
    }

    fn record(&mut self, record: &[u8]) {
        let mut frame = (record.len() as u32).to_le_bytes().to_vec();
        frame.extend(record);
        self.frame(&frame);
    }

    fn end(mut self, records: u64) -> Vec<u8> {
        self.part(&0_u32.to_le_bytes());
        self.part(&records.to_le_bytes());
        self.file
    }
}

type Values = Cache<u64, Vec<u8>>;

fn value(key: u64) -> Vec<u8> {
    let length = (key * 37 % 601) as usize;
    (0..length).map(|i| (key as usize * 31 + i) as u8).collect()
}

fn lifetime(key: u64) -> Lifetime {
    match key % 3 {
        0 => Lifetime::Never,
        _ => Lifetime::For(Duration::from_secs(key + 1)),
    }
}

fn cache() -> Values {
    Cache::builder().clock(ManualClock::new()).build().unwrap()
}

fn options() -> RestoreOptions {
    RestoreOptions::new().at(SystemTime::UNIX_EPOCH)
}

/// A file of this many entries.
fn file(entries: u64) -> Vec<u8> {
    let cache = cache();
    for key in 0..entries {
        cache.insert_with_ttl(key, value(key), lifetime(key));
    }
    let mut file = Vec::new();
    let snapshot = cache.snapshot().at(SystemTime::UNIX_EPOCH);
    let saved = snapshot.write_to(&mut file).unwrap();
    assert_eq!(saved.entries, entries);
    file
}

/// One of 5 entries, in one frame, and one of 1,500, in several.
fn files() -> &'static [Vec<u8>; 2] {
    static FILES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    FILES.get_or_init(|| [file(5), file(1_500)])
}

/// Loads a file that may be damaged, and checks what there is afterwards.
fn load(bytes: &[u8]) -> Result<Restored, LoadError> {
    let cache = cache();
    let result = cache.load(bytes, &options());
    let restored = match &result {
        Ok(restored) => *restored,
        Err(error) => error.restored,
    };
    assert_eq!(restored.inserted, cache.entry_count());
    assert_eq!(restored.kept + restored.refused + restored.expired, 0);
    for (key, found) in &cache {
        assert_eq!(found, value(key));
        assert_eq!(cache.ttl(&key), Some(lifetime(key)));
    }
    // Whole files only are found good, by both.
    match (verify(bytes), &result) {
        (Ok(saved), Ok(restored)) => {
            assert_eq!(saved.entries, restored.inserted);
            assert_eq!(saved.bytes, bytes.len() as u64);
        }
        (Err(verified), Err(loaded)) => {
            assert_eq!(format!("{verified:?}"), format!("{:?}", loaded.error));
        }
        (verified, _) => panic!("{verified:?} but {result:?}"),
    }
    result
}

#[test]
fn the_binary_form_is_this() {
    let cache: Cache<u8, String> = Cache::builder().clock(ManualClock::new()).build().unwrap();
    cache.insert_with_ttl(7, "xyz".into(), Duration::from_nanos(5));
    let mut bytes = Vec::new();
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(0x1122_3344);
    let Saved { entries, .. } = cache
        .snapshot()
        .at(at)
        .schema(9)
        .write_to(&mut bytes)
        .unwrap();
    assert_eq!(entries, 1);
    // Key, value with its length, "some" 5 ns left, the cap is the same, a lifetime of its own of 5 ns.
    let record = [7, 3, b'x', b'y', b'z', 1, 5, 0, 2, 5];
    let mut expected = Forger::default();
    expected.part(b"\x89EBT\r\n\x1a\n\x01\0\0\0");
    expected.part(b"\x09\0\0\0\0\0\0\0\x44\x33\x22\x11\0\0\0\0");
    expected.record(&record);
    assert_eq!(bytes, expected.end(1));
}

#[test]
fn every_byte_that_is_another_is_noticed() {
    let good = &files()[0];
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let LoadError { error, restored } = load(&bad).unwrap_err();
            match error {
                SnapshotError::NotASnapshot => assert!(at < 8),
                SnapshotError::Damaged { at: part } => {
                    assert!(at >= 8 && part <= at as u64, "{at} {part}");
                }
                other => panic!("byte {at}: {other:?}"),
            }
            let in_the_end = at >= good.len() - LENGTH - 12;
            assert_eq!(restored.inserted, if in_the_end { 5 } else { 0 },);
        }
    }
}

#[test]
fn every_file_that_ends_early_is_truncated() {
    for (good, step) in files().iter().zip([1, 997]) {
        for length in (0..good.len()).step_by(step) {
            let LoadError { error, restored } = load(&good[..length]).unwrap_err();
            let SnapshotError::Truncated { at } = error else {
                panic!("{length}: {error:?}");
            };
            assert_eq!(at, length as u64);
            let frames = length.saturating_sub(BEGIN) / (LENGTH + FRAME + 4);
            assert_eq!(
                restored.inserted > 0,
                frames > 0 || length >= good.len() - LENGTH - 12
            );
        }
    }
}

#[test]
fn what_follows_is_said() {
    for good in files() {
        let mut long = good.clone();
        long.push(0);
        let LoadError { error, restored } = load(&long).unwrap_err();
        let at = good.len() as u64;
        assert!(matches!(error, SnapshotError::TrailingData { at: a } if a == at));
        assert_eq!(restored.inserted, load(good).unwrap().inserted);
        // Two files are none.
        let twice = [good.as_slice(), good].concat();
        let error = load(&twice).unwrap_err().error;
        assert!(matches!(error, SnapshotError::TrailingData { .. }));
    }
}

#[test]
fn other_files() {
    for other in [
        b"{\"ebbtide\":{\"version\":1}}".as_slice(),
        b"\x89PNG\r\n\x1a\n",
        b"\x89EBT\n\x1a\n",
        &[0; 100],
        b"x",
    ] {
        let error = load(other).unwrap_err().error;
        assert!(matches!(error, SnapshotError::NotASnapshot), "{error:?}");
    }
    let error = load(b"").unwrap_err().error;
    assert!(matches!(error, SnapshotError::Truncated { at: 0 }));
}

#[test]
fn newer_versions_and_other_schemas() {
    // Of what a newer version may look like after its version nothing is assumed.
    let mut newer = Forger::default();
    newer.part(b"\x89EBT\r\n\x1a\n\x02\x01\0\0");
    newer.file.extend(b"anything");
    let error = load(&newer.file).unwrap_err().error;
    assert!(matches!(
        error,
        SnapshotError::NewerVersion {
            found: 258,
            known: 1
        }
    ));

    let other = Forger::begin(1, 7).end(0);
    let error = cache().load(&other[..], &options()).unwrap_err().error;
    assert!(matches!(
        error,
        SnapshotError::OtherSchema {
            found: 7,
            expected: 0
        }
    ));
    assert!(cache().load(&other[..], &options().schema(7)).is_ok());
    assert!(verify(&other[..]).is_ok());
}

#[test]
fn frames_that_are_lost_doubled_or_exchanged() {
    let good = &files()[1];
    let size = LENGTH + FRAME + 4;
    let frame = |n: usize| &good[BEGIN + n * size..BEGIN + (n + 1) * size];
    assert!(good.len() > BEGIN + 5 * size);
    let (begin, rest) = (&good[..BEGIN], &good[BEGIN + 3 * size..]);
    let load = |frames: &[usize]| {
        let frames: Vec<u8> = frames.iter().flat_map(|&n| frame(n)).copied().collect();
        load(&[begin, &frames, rest].concat())
    };
    assert_eq!(load(&[0, 1, 2]).unwrap().inserted, 1_500);
    for frames in [
        &[0, 2][..],
        &[0, 2, 1],
        &[0, 0, 1, 2],
        &[0, 1, 1, 2],
        &[1, 2],
        &[],
    ] {
        let error = load(frames).unwrap_err().error;
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{error:?}");
    }
}

#[test]
fn checksums_that_are_right_and_lengths_that_are_not() {
    let damaged = |file: Vec<u8>| {
        let error = load(&file).unwrap_err().error;
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{error:?}");
    };
    // A frame that is too long.
    let mut forger = Forger::begin(1, 0);
    forger.part(&(FRAME as u32 + 1).to_le_bytes());
    damaged(forger.file);
    let mut forger = Forger::begin(1, 0);
    forger.part(&u32::MAX.to_le_bytes());
    damaged(forger.file);
    // A record that goes on after the end, by its length or in its length.
    let mut forger = Forger::begin(1, 0);
    forger.frame(&u32::MAX.to_le_bytes());
    damaged(forger.end(1));
    let mut forger = Forger::begin(1, 0);
    forger.frame(&[1, 0, 0]);
    damaged(forger.end(1));
    // Another number of records.
    damaged(Forger::begin(1, 0).end(1));
}

#[test]
fn entries_that_are_none() {
    let good = [7, 1, 9, 0, 0, 0];
    let load = |records: &[&[u8]]| {
        let mut forger = Forger::begin(1, 0);
        records.iter().for_each(|record| forger.record(record));
        let file = forger.end(records.len() as u64);
        assert_eq!(verify(&file[..]).unwrap().entries, records.len() as u64);
        let cache = cache();
        (cache.load(&file[..], &options()), cache.entry_count())
    };
    assert_eq!(load(&[&good]).0.unwrap().inserted, 1);
    for bad in [
        // Nothing, too little, too much, a value longer than its record, an option and a choice
        // that there are not.
        [].as_slice(),
        &good[..5],
        &[7, 1, 9, 0, 0, 0, 0],
        &[7, 255, 255, 255, 255, 255, 255, 255, 255, 127, 0, 0, 0],
        &[7, 1, 9, 2, 0, 0],
        &[7, 1, 9, 0, 3, 0],
    ] {
        let (result, entries) = load(&[&good, bad, &good]);
        let LoadError { error, restored } = result.unwrap_err();
        assert!(
            matches!(error, SnapshotError::Format { entry: 1, .. }),
            "{error:?}"
        );
        assert_eq!((restored.inserted, entries), (1, 1));
    }
    // Other types.
    let cache: Cache<String, u8> = Cache::unbounded();
    let error = cache.load(&files()[0][..], &options()).unwrap_err();
    // (Some of them may read as a string and a byte by chance.)
    assert!(error.to_string().starts_with("entry "), "{error}");
}

#[test]
fn an_error_of_the_reader_is_its_error() {
    struct Failing<'f>(&'f [u8], bool);

    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            if self.0.is_empty() {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset));
            }
            // A few bytes at a time.
            let some = buffer.len().min(1_000);
            self.0.read(&mut buffer[..some])
        }
    }

    let good = &files()[1];
    for length in [0, 3, 20, 200_000, good.len()] {
        let error = cache()
            .load(Failing(&good[..length], false), &options())
            .unwrap_err();
        let SnapshotError::Io(io) = error.error else {
            panic!("{error:?}");
        };
        assert_eq!(io.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(error.restored.inserted > 0, length >= 200_000);
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Truncate(Index),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index),
    Move(Index, Index, Index),
}

impl Damage {
    fn any() -> impl Strategy<Value = Damage> {
        let index = any::<Index>;
        prop_oneof![
            (index(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
            (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
            index().prop_map(Damage::Truncate),
            (index(), prop::collection::vec(any::<u8>(), 1..40))
                .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
            (index(), index()).prop_map(|(from, to)| Damage::Remove(from, to)),
            (index(), index()).prop_map(|(from, to)| Damage::Repeat(from, to)),
            (index(), index(), index()).prop_map(|(from, to, at)| Damage::Move(from, to, at)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = |index: &Index| index.index(bytes.len());
        let range = |from: &Index, to: &Index| at(from).min(at(to))..at(from).max(at(to));
        match self {
            Damage::Flip(index, bit) => {
                let at = at(index);
                bytes[at] ^= 1 << bit;
            }
            Damage::Set(index, byte) => {
                let at = at(index);
                bytes[at] = *byte;
            }
            Damage::Truncate(index) => bytes.truncate(at(index)),
            Damage::Insert(index, new) => {
                let at = at(index);
                drop(bytes.splice(at..at, new.iter().copied()));
            }
            Damage::Remove(from, to) => drop(bytes.drain(range(from, to))),
            Damage::Repeat(from, to) => {
                let range = range(from, to);
                let copy = bytes[range.clone()].to_vec();
                drop(bytes.splice(range.end..range.end, copy));
            }
            Damage::Move(from, to, index) => {
                let moved: Vec<u8> = bytes.drain(range(from, to)).collect();
                let at = index.index(bytes.len() + 1);
                drop(bytes.splice(at..at, moved));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damage_is_an_error_or_does_nothing(
        small in prop::bool::weighted(0.8),
        damage in prop::collection::vec(Damage::any(), 1..4),
    ) {
        let good = &files()[usize::from(!small)];
        let mut bytes = good.clone();
        damage.iter().for_each(|damage| damage.apply(&mut bytes));
        // (`load` checks what was restored.)
        match load(&bytes) {
            Ok(_) => prop_assert_eq!(&bytes, good),
            Err(_) => prop_assert_ne!(&bytes, good),
        }
    }

    #[test]
    fn bytes_of_any_kind_are_no_panic(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        raw in prop::collection::vec(any::<u8>(), 0..200),
        begin in prop::bool::ANY,
    ) {
        let mut forger = Forger::begin(1, 0);
        for record in &records {
            forger.record(record);
        }
        let forged = forger.end(records.len() as u64);
        verify(&forged[..]).unwrap();
        let cache: Cache<String, Vec<(u64, Option<String>)>> =
            Cache::builder().max_entries(3).time_to_idle(Duration::from_secs(1)).build().unwrap();
        for at in [SystemTime::UNIX_EPOCH, SystemTime::now()] {
            let options = RestoreOptions::new().at(at).spread(Duration::from_secs(5)).replace(true);
            let _ = cache.load(&forged[..], &options);
        }
        cache.validate();

        let mut raw = raw;
        if begin {
            raw.splice(..0, files()[0][..BEGIN].iter().copied());
        }
        prop_assert!(load(&raw).is_err());
    }
}
