//! The two generators of the seeds and the rounding of their tables.

/// The 32-bit mixing generator of the library hour ("mulberry32"): every
/// operation wraps at 32 bits.
#[derive(Clone, Debug)]
pub(crate) struct Mulberry32 {
    state: u32,
}

impl Mulberry32 {
    pub(crate) fn new(seed: u32) -> Self {
        Self { state: seed }
    }

    /// The next 32 random bits.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x6d2b_79f5);
        let a = self.state;
        let b = (a ^ (a >> 15)).wrapping_mul(a | 1);
        let c = b ^ b.wrapping_add((b ^ (b >> 7)).wrapping_mul(b | 61));
        c ^ (c >> 14)
    }

    /// The next number in `0.0..1.0`.
    pub(crate) fn next_unit(&mut self) -> f64 {
        f64::from(self.next_u32()) / 4_294_967_296.0
    }

    /// The next whole number in `0..bound`, by scaling a unit draw.
    pub(crate) fn next_below(&mut self, bound: usize) -> usize {
        (self.next_unit() * bound as f64) as usize
    }
}

/// The linear congruential generator of the course.
///
/// It multiplies in `f64`, whose 53 bits cannot hold the product: an integer
/// version leaves the sequence at its second draw.
#[derive(Clone, Debug)]
pub(crate) struct CourseLcg {
    state: f64,
}

impl CourseLcg {
    const MODULUS: f64 = 2_147_483_648.0;

    pub(crate) fn new(seed: u32) -> Self {
        Self {
            state: f64::from(seed),
        }
    }

    /// The next state, a whole number in `0..2^31`.
    pub(crate) fn next_state(&mut self) -> u32 {
        // Two roundings, as in the seed: no fused multiply-add.
        let product = self.state * 1_103_515_245.0;
        self.state = (product + 12_345.0) % Self::MODULUS;
        self.state as u32
    }

    /// The next number in `0.0..1.0`.
    pub(crate) fn next_unit(&mut self) -> f64 {
        f64::from(self.next_state()) / Self::MODULUS
    }

    /// The next whole number in `0..bound`, by scaling a unit draw.
    pub(crate) fn next_below(&mut self, bound: usize) -> usize {
        (self.next_unit() * bound as f64) as usize
    }
}

/// `value` with `digits` decimals, ties rounded away from zero as the seeds'
/// tables do (the standard formatter rounds them to even).
pub(crate) fn to_fixed(value: f64, digits: usize) -> String {
    // A binary fraction lies half-way between two decimals of `digits` places
    // exactly when it is an odd multiple of 2^-(digits + 1): the powers of five
    // in the decimal scale are odd and change nothing.
    let halves = value.abs() * f64::from(2u32.pow(digits as u32 + 1));
    let tie = halves.fract() == 0.0 && halves % 2.0 == 1.0;
    let away = match (tie, value < 0.0) {
        (false, _) => value,
        (true, false) => value.next_up(),
        (true, true) => value.next_down(),
    };
    format!("{away:.digits$}")
}
