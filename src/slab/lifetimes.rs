//! The lifetime each entry was given, for `touch`.

use crate::entry::word::NEVER;
use crate::limits::SIDE_CHUNK;

/// The entry has the cache's own lifetime.
pub(crate) const DEFAULT: u64 = 0;
/// The entry was given a moment, not a length: touching it changes nothing.
pub(crate) const FIXED: u64 = NEVER - 1;

/// Lifetimes of its own that a chunk can name with one byte each.
const NAMED: usize = 32;

/// Explicit lifetimes in nanoseconds ([`NEVER`] for none), by slot. Nothing is allocated until an
/// entry has one; a chunk of 1,024 slots takes one byte a slot while it has at most 32 different
/// ones, else eight.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
enum Chunk {
    #[default]
    Defaults,
    Named {
        codes: Vec<u8>,
        names: Vec<u64>,
    },
    Wide(Vec<u64>),
}

impl Lifetimes {
    pub(crate) fn get(&self, slot: u32) -> u64 {
        let offset = slot as usize % SIDE_CHUNK;
        match self.chunks.get(slot as usize / SIDE_CHUNK) {
            None | Some(Chunk::Defaults) => DEFAULT,
            Some(Chunk::Named { codes, names }) => match codes.get(offset) {
                None | Some(0) => DEFAULT,
                Some(&code) => names[usize::from(code) - 1],
            },
            Some(Chunk::Wide(values)) => values[offset],
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: u32, lifetime: u64) {
        if lifetime == DEFAULT && self.chunks.is_empty() {
            return;
        }
        let (chunk, offset) = (slot as usize / SIDE_CHUNK, slot as usize % SIDE_CHUNK);
        if chunk >= self.chunks.len() {
            if lifetime == DEFAULT {
                return;
            }
            self.chunks.resize_with(chunk + 1, Chunk::default);
        }
        self.chunks[chunk].set(offset, lifetime);
    }

    /// Chunks of lifetimes.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Gives back the memory of the chunks from `unused` on.
    pub(crate) fn shrink(&mut self, unused: usize) {
        self.chunks.truncate(unused);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let within = self.chunks.iter().map(|chunk| match chunk {
            Chunk::Defaults => 0,
            Chunk::Named { codes, names } => codes.capacity() + names.capacity() * 8,
            Chunk::Wide(values) => values.capacity() * 8,
        });
        self.chunks.capacity() * size_of::<Chunk>() + within.sum::<usize>()
    }
}

impl Chunk {
    fn set(&mut self, offset: usize, lifetime: u64) {
        match self {
            Chunk::Defaults if lifetime == DEFAULT => {}
            Chunk::Defaults => {
                *self = Chunk::Named {
                    codes: Vec::new(),
                    names: Vec::new(),
                };
                self.set(offset, lifetime);
            }
            Chunk::Named { codes, names } => {
                let code = if lifetime == DEFAULT {
                    0
                } else if let Some(known) = names.iter().position(|&name| name == lifetime) {
                    known as u8 + 1
                } else if names.len() < NAMED {
                    names.push(lifetime);
                    names.len() as u8
                } else {
                    let mut values = vec![DEFAULT; SIDE_CHUNK];
                    for (value, &code) in values.iter_mut().zip(codes.iter()) {
                        *value = if code == 0 {
                            DEFAULT
                        } else {
                            names[usize::from(code) - 1]
                        };
                    }
                    values[offset] = lifetime;
                    *self = Chunk::Wide(values);
                    return;
                };
                if offset >= codes.len() {
                    if code == 0 {
                        return;
                    }
                    let length = (offset + 1).next_power_of_two().clamp(64, SIDE_CHUNK);
                    codes.reserve_exact(length - codes.len());
                    codes.resize(length, 0);
                }
                codes[offset] = code;
            }
            Chunk::Wide(values) => values[offset] = lifetime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_an_array(steps in prop::collection::vec((0u32..2100, 0u64..50), 1..600)) {
            let (mut lifetimes, mut array) = (Lifetimes::default(), vec![DEFAULT; 2100]);
            for (slot, lifetime) in steps {
                lifetimes.set(slot, lifetime);
                array[slot as usize] = lifetime;
            }
            for (slot, &lifetime) in array.iter().enumerate() {
                prop_assert_eq!(lifetimes.get(slot as u32), lifetime);
            }
        }
    }

    #[test]
    fn one_lifetime_costs_a_byte_and_the_default_nothing() {
        let mut lifetimes = Lifetimes::default();
        for slot in 0..10_240 {
            lifetimes.set(slot, DEFAULT);
        }
        assert_eq!(lifetimes.bytes(), 0);
        for slot in 0..10_240 {
            lifetimes.set(slot, 60_000_000_000);
        }
        assert!(lifetimes.bytes() < 10_240 * 5 / 4);
    }
}
