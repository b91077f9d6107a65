//! Any operations and clock steps agree with the plain model, every structure recounted after each:
//! the property test's cases, found by coverage instead of by chance.

#![no_main]
// The property test's generators are not used here.
#![allow(dead_code)]

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

use arbitrary::{Result, Unstructured};

/// Operations of one input, at most.
const STEPS: usize = 300;

fn length(u: &mut Unstructured<'_>) -> Result<Option<Duration>> {
    let milliseconds = u.int_in_range(0..=15_000u64)?;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

fn arbitrary_case(u: &mut Unstructured<'_>) -> Result<Case> {
    let bounds = [None, None, Some(0), Some(1), Some(2), Some(4)];
    Ok(Case {
        settings: Settings {
            bound: *u.choose(&bounds)?,
            live: length(u)?,
            idle: length(u)?,
            policy: u.ratio(1, 4)?,
            listener: u.arbitrary()?,
        },
        shards: *u.choose(&[1, 4])?,
        sample: u.arbitrary()?,
        record: u.arbitrary()?,
    })
}

fn key(u: &mut Unstructured<'_>) -> Result<u8> {
    u.int_in_range(0..=KEYS - 1)
}

fn tag(u: &mut Unstructured<'_>) -> Result<u64> {
    u.int_in_range(0..=9)
}

fn arbitrary_life(u: &mut Unstructured<'_>) -> Result<Life> {
    Ok(match u.int_in_range(0..=9u8)? {
        0 => Life::Never,
        1 => Life::Max,
        2 => Life::For(0),
        3..8 => Life::For(u.int_in_range(1..=20_000)?),
        _ => Life::Until(u.int_in_range(-5_000..=30_000)?),
    })
}

fn arbitrary_step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=47u8)? {
        0 | 1 => Step::Get(key(u)?),
        2 => Step::With(key(u)?),
        3 => Step::Peek(key(u)?),
        4 => Step::Contains(key(u)?),
        5 => {
            let number = u.int_in_range(0..=20u8)?;
            Step::GetMany((0..number).map(|_| key(u)).collect::<Result<_>>()?)
        }
        6 => Step::Pinned(key(u)?),
        7 => Step::Iter,
        8 => Step::PinnedIter,
        9 => Step::LiveCount,
        10 => Step::Ttl(key(u)?),
        11..14 => Step::Insert(key(u)?, tag(u)?),
        14..18 => Step::InsertWith(key(u)?, tag(u)?, arbitrary_life(u)?),
        18 => Step::TryInsert(key(u)?, tag(u)?),
        19 => Step::InsertIfAbsent(key(u)?, tag(u)?),
        20 => Step::Remove(key(u)?),
        21 => Step::RemoveWith(key(u)?),
        22 => Step::Invalidate(key(u)?),
        23 => Step::RemoveIf(key(u)?, u.arbitrary()?),
        24 => Step::InvalidateAll,
        25 => Step::RetainOdd,
        26 => Step::Drain(u.int_in_range(0..=3usize)?.checked_sub(1)),
        27..30 => Step::Expire(key(u)?, arbitrary_life(u)?),
        30 => Step::Persist(key(u)?),
        31 | 32 => Step::Touch(key(u)?),
        33 => Step::Keep(key(u)?),
        34 | 35 => Step::Put(key(u)?, tag(u)?),
        36 | 37 => Step::PutWith(key(u)?, tag(u)?, arbitrary_life(u)?),
        38 => Step::ComputeRemove(key(u)?),
        39 => Step::Swap(key(u)?, tag(u)?, tag(u)?),
        40..44 => Step::Advance(u.int_in_range(0..=12_000)?),
        44 => Step::TurnBack(u.int_in_range(0..=6_000)?),
        45 | 46 => Step::Reap,
        _ => Step::ReapAtMost(u.int_in_range(0..=2)?),
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(case) = arbitrary_case(&mut u) else {
        return;
    };
    let mut rig = Rig::new(case);
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = arbitrary_step(&mut u) else {
            break;
        };
        if std::env::var_os("EBBTIDE_FUZZ_SHOW").is_some() {
            eprintln!("{step:?}");
        }
        rig.step(step);
    }
    rig.end();
});
