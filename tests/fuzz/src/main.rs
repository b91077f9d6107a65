//! Any operations and clock steps agree with the plain model, every structure recounted after each:
//! the property test's cases, found by coverage instead of by chance, and beyond them counters,
//! pins that are held over other steps, and crowds that make the index grow and shrink.

#![no_main]
// The property test's generators are not used here.
#![allow(dead_code)]

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

mod counters;

use arbitrary::{Result, Unstructured};
use ebbtide::Builder;

/// Operations of one input, at most.
const STEPS: usize = 300;
/// Crowds of one input, at most: each is some hundred operations.
const CROWDS: usize = 3;

fn length(u: &mut Unstructured<'_>) -> Result<Option<Duration>> {
    if u.arbitrary()? {
        return Ok(None);
    }
    let milliseconds = u.int_in_range(1..=15_000u64)?;
    Ok(Some(Duration::from_millis(milliseconds)))
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
        eviction: u.choose(&policies())?.clone(),
    })
}

/// A case's cache, but for what depends on the type of its values.
fn builder<K, V>(case: &Case, clock: &ManualClock) -> Builder<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let strategy = if case.sample {
        ebbtide::Strategy::sample()
    } else {
        ebbtide::Strategy::sweep()
    };
    let mut builder = Cache::builder()
        .clock(clock.clone())
        // The same in every run, so that a failure can be repeated.
        .hasher(RandomState::with_seeds(1, 2, 3, 4))
        .shards(case.shards)
        .record_stats(case.record)
        .reaper(Reaper::manual().strategy(strategy));
    let settings = &case.settings;
    if let Some(bound) = settings.bound {
        builder = builder.max_entries(bound).policy(case.eviction.clone());
    }
    if let Some(live) = settings.live {
        builder = builder.time_to_live(live);
    }
    if let Some(idle) = settings.idle {
        builder = builder.time_to_idle(idle);
    }
    builder
}

fn lifetime(begin: Instant, life: Life) -> Lifetime {
    match life {
        Life::Never => Lifetime::Never,
        Life::For(ms) => Lifetime::For(Duration::from_millis(ms)),
        Life::Max => Lifetime::For(Duration::MAX),
        Life::Until(ms) => Lifetime::Until(moment(begin, ms)),
    }
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
        24 => match u.int_in_range(0..=5u8)? {
            // Seldom: what they end has no history.
            0 => Step::InvalidateAll,
            1 => Step::RetainOdd,
            2 => Step::Drain(u.int_in_range(0..=3usize)?.checked_sub(1)),
            _ => Step::Ttl(key(u)?),
        },
        25 | 26 => Step::Get(key(u)?),
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

/// What an input does with a cache of [`Tracked`] values.
#[derive(Debug)]
enum Act {
    /// An operation of the property test.
    Step(Step),
    /// A reference to a key's value is held, under a pin, over this many acts.
    Hold(u8, u8),
    /// So many other keys come, with one lifetime.
    Crowd(u8, Life),
    /// All but every so manyth of the other keys leave.
    Disperse(u8),
}

fn arbitrary_act(u: &mut Unstructured<'_>) -> Result<Act> {
    Ok(match u.int_in_range(0..=49u8)? {
        0 | 1 => Act::Hold(key(u)?, u.int_in_range(1..=20)?),
        2 => Act::Crowd(u.int_in_range(1..=u8::MAX - KEYS)?, arbitrary_life(u)?),
        3 => Act::Disperse(u.int_in_range(2..=40)?),
        _ => Act::Step(arbitrary_step(u)?),
    })
}

/// Prints a step if somebody wants to see what an input does.
fn show(step: &impl std::fmt::Debug) {
    if std::env::var_os("EBBTIDE_FUZZ_SHOW").is_some() {
        eprintln!("{step:?}");
    }
}

struct Player<'u, 'd> {
    rig: Rig,
    input: &'u mut Unstructured<'d>,
    acts: usize,
    crowds: usize,
}

impl Player<'_, '_> {
    /// The next act; `false` if there is none.
    fn act(&mut self, may_hold: bool) -> bool {
        if self.acts == STEPS || self.input.is_empty() {
            return false;
        }
        self.acts += 1;
        let Ok(act) = arbitrary_act(self.input) else {
            return false;
        };
        show(&act);
        match act {
            // Of a crowd a sampler may well leave some behind, and says so.
            Act::Step(Step::Reap) if self.rig.case.sample && self.crowds > 0 => {
                self.rig.cache.reap(AMPLE);
                self.rig.model.reaped(false);
                self.rig.check();
            }
            Act::Step(step) => self.rig.step(step),
            Act::Hold(k, acts) if may_hold => return self.hold(k, acts),
            Act::Hold(k, _) => self.rig.step(Step::Pinned(k)),
            Act::Crowd(number, life) if self.crowds < CROWDS => {
                self.crowds += 1;
                for k in KEYS..KEYS + number {
                    self.rig.step(Step::InsertWith(k, u64::from(k), life));
                }
            }
            Act::Crowd(..) => {}
            Act::Disperse(each) => {
                // Only those that may be there: removing what never came is not worth the time.
                let others = self.rig.model.keys().into_iter().filter(|k| *k >= KEYS);
                for k in others.filter(|k| k % each != 0) {
                    self.rig.step(Step::Invalidate(k));
                }
            }
        }
        true
    }

    /// Whatever becomes of the entry meanwhile, its value stays readable under the pin.
    fn hold(&mut self, k: u8, acts: u8) -> bool {
        let cache = self.rig.cache.clone();
        let pinned = cache.pin();
        let held = pinned.get(&k);
        self.rig.model.used(k, held.map(Tracked::tag));
        self.rig.check();
        let known = held.map(|value| (value.tag(), value.serial()));
        let goes_on = (0..acts).all(|_| self.act(false));
        if let Some(value) = held {
            assert_eq!(Some((value.tag(), value.serial())), known);
            let dropped = self.rig.ledger.is_dropped(value.serial());
            assert!(!dropped, "dropped while it was held");
        }
        goes_on
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let (Ok(counters), Ok(case)) = (input.ratio(1, 3), arbitrary_case(&mut input)) else {
        return;
    };
    show(&case);
    if counters {
        counters::run(case, &mut input);
        return;
    }
    let mut player = Player {
        rig: Rig::new(case),
        input: &mut input,
        acts: 0,
        crowds: 0,
    };
    while player.act(true) {}
    player.rig.end();
});
