//! What the threads of a round are to do: random, from a seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt};

use crate::history::{COUNTER_BOUND, Call, Decision, How, Life, New};

/// Which calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Everything but increments, with values that are all different.
    Values,
    /// Everything, on counters.
    Counters,
    /// Reads and these, without lifetimes: where nothing but atomicity can be seen.
    Only(&'static [Call]),
}

/// A call to be made; the expected value of a compare_and_swap is chosen when it is made.
pub(crate) type Planned = (usize, Call);

/// Draws a call. `now`: the clock when the round begins; `fresh`: a value that nobody else stores.
pub(crate) fn draw(mix: Mix, random: &mut Xoshiro256PlusPlus, now: u32, fresh: i64) -> Call {
    if let Mix::Only(calls) = mix {
        return match random.random_range(0..=calls.len()) {
            0 => Call::Read(How::Get),
            n => with_value(calls[n - 1], fresh),
        };
    }
    let counters = mix == Mix::Counters;
    let new = match counters {
        true if random.random_bool(0.7) => New::Plus(random.random_range(-2..=3)),
        _ => New::Fixed(fresh),
    };
    let value = if counters { fresh % 5 } else { fresh };
    if counters && random.random_bool(0.35) {
        let delta = match random.random_range(0..40) {
            0 => COUNTER_BOUND - 3,
            1 => -COUNTER_BOUND,
            _ => random.random_range(-1..=3),
        };
        let life = random.random_bool(0.3).then(|| life(random, now));
        return Call::Increment(delta, life);
    }
    match random.random_range(0..100) {
        0..20 => Call::Read(match random.random_range(0..8) {
            0 => How::With,
            1 => How::Pinned,
            2 => How::GetMany,
            _ => How::Get,
        }),
        20..22 => Call::Peek,
        22..28 => Call::ContainsKey,
        28..34 => Call::Ttl,
        34..42 => Call::Insert(value, None),
        42..50 => Call::Insert(value, Some(life(random, now))),
        50..57 => Call::InsertIfAbsent(value),
        57..65 => Call::Remove,
        65..73 => Call::CompareAndSwap {
            expected: 0,
            new: value,
        },
        73..76 => Call::Entry(new),
        76..77 => Call::RemoveIf,
        77..85 => Call::Compute(match random.random_range(0..8) {
            0 => Decision::Keep,
            1 => Decision::Remove,
            2..5 => Decision::Put(new),
            _ => Decision::PutWithTtl(new, life(random, now)),
        }),
        85..91 => Call::Expire(life(random, now)),
        91..96 => Call::Touch,
        _ => Call::Persist,
    }
}

fn with_value(call: Call, value: i64) -> Call {
    match call {
        Call::Insert(_, life) => Call::Insert(value, life),
        Call::InsertIfAbsent(_) => Call::InsertIfAbsent(value),
        Call::CompareAndSwap { expected, .. } => Call::CompareAndSwap {
            expected,
            new: value,
        },
        Call::Entry(New::Fixed(_)) => Call::Entry(New::Fixed(value)),
        Call::Compute(Decision::Put(New::Fixed(_))) => {
            Call::Compute(Decision::Put(New::Fixed(value)))
        }
        other => other,
    }
}

/// A lifetime, mostly one that ends within the round.
fn life(random: &mut impl Rng, now: u32) -> Life {
    match random.random_range(0..16) {
        0 => Life::For(0),
        1 => Life::Never,
        2 => Life::Until(now.saturating_sub(1)),
        3..7 => Life::Until(now + random.random_range(0..6)),
        _ => Life::For(random.random_range(1..5)),
    }
}
