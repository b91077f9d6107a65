//! Which keys were evicted of late.

use std::ops::RangeInclusive;

use super::blocks::{Blocks, Mixed};

/// Fingerprints of a set: one cache line.
const WAYS: usize = 32;

/// Keys remembered for each entry linked.
const PER_ENTRY: usize = 2;

/// The most recent evictions, as 16-bit fingerprints (4 bytes for each entry linked). It forgets
/// the oldest of a set of 32, which comes close to first in, first out of the whole. It is wrong
/// about a key that was not evicted once in some 2,000 questions.
#[derive(Debug)]
pub(super) struct Ghost {
    sets: Blocks<[u16; WAYS]>,
}

impl Ghost {
    pub(super) fn new() -> Self {
        Ghost {
            sets: Blocks::new([0; WAYS]),
        }
    }

    /// The set of a key and its fingerprint there; 0 is no fingerprint.
    #[inline]
    fn locate(&self, key: Mixed) -> (usize, u16) {
        (self.sets.number(key), ((key.0 >> 48) as u16).max(1))
    }

    /// Remembers a key as the most recent of its set. (That it is in the set already takes another key
    /// with its fingerprint: whoever comes back is [taken](Self::take) out.)
    #[inline]
    pub(super) fn add(&mut self, key: impl Into<Mixed>) {
        let (number, fingerprint) = self.locate(key.into());
        let set = self.sets.get_mut(number);
        set.copy_within(..WAYS - 1, 1);
        set[0] = fingerprint;
    }

    /// Whether a key is remembered; forgets it.
    #[inline]
    pub(super) fn take(&mut self, key: impl Into<Mixed>) -> bool {
        let (number, fingerprint) = self.locate(key.into());
        let set = self.sets.get_mut(number);
        let Some(position) = position(set, fingerprint) else {
            return false;
        };
        set.copy_within(position + 1.., position);
        set[WAYS - 1] = 0;
        true
    }

    /// Asks for the line of a key's set.
    #[inline]
    pub(super) fn prefetch(&self, key: Mixed) {
        self.sets.prefetch(self.sets.number(key));
    }

    /// Numbers of entries for which it has the right size.
    pub(super) fn fits(&self) -> RangeInclusive<usize> {
        self.sets.fits(WAYS / PER_ENTRY)
    }

    /// Comes up to two sets nearer to the size for this many entries. Sets are given up only when
    /// there are four times too many.
    pub(super) fn fit(&mut self, entries: usize) {
        self.sets.fit(entries, WAYS / PER_ENTRY, interleave);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.sets.bytes()
    }
}

#[inline]
fn position(set: &[u16; WAYS], fingerprint: u16) -> Option<usize> {
    // Without a way out, so that the compiler vectorises it.
    let known = set
        .iter()
        .fold(false, |known, &way| known | (way == fingerprint));
    if !known {
        return None;
    }
    set.iter().position(|&way| way == fingerprint)
}

/// The more recent halves of two sets, in turns.
fn interleave(into: &mut [u16; WAYS], from: &[u16; WAYS]) {
    let mut merged = [0; WAYS];
    let mut length = 0;
    for (&a, &b) in into.iter().zip(from) {
        for fingerprint in [a, b] {
            if fingerprint != 0 && length < WAYS && !merged[..length].contains(&fingerprint) {
                merged[length] = fingerprint;
                length += 1;
            }
        }
    }
    *into = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(entries: usize) -> Ghost {
        let mut ghost = Ghost::new();
        for entries in 0..=entries {
            ghost.fit(entries);
        }
        ghost
    }

    #[test]
    fn a_key_is_known_until_it_is_taken() {
        let mut ghost = sized(1_000);
        assert!(!ghost.take(7));
        for _ in 0..2 {
            ghost.add(7);
            assert!(ghost.take(7));
            assert!(!ghost.take(7));
        }
    }

    /// Of the last `n` evictions nearly all are known, of those before the last `4 n` nearly none.
    #[test]
    fn it_remembers_about_twice_the_entries() {
        for n in [64_u32, 1_000, 1_024, 20_000] {
            let mut ghost = sized(n as usize);
            for hash in 0..n * 10 {
                ghost.add(hash);
            }
            let mut known = |range: std::ops::Range<u32>| {
                let length = range.len();
                range.filter(|&hash| ghost.take(hash)).count() as f64 / length as f64
            };
            // (The oldest first: taking one makes others last longer.)
            let (old, last) = (known(0..n * 6), known(n * 9..n * 10));
            assert!(old < 0.01, "{n}: {old} of the old");
            assert!(last > 0.95, "{n}: {last} of the last");
        }
    }

    #[test]
    fn strangers_are_seldom_known() {
        let mut ghost = sized(10_000);
        for hash in 0..100_000 {
            ghost.add(hash);
        }
        let wrong = (1_000_000..1_200_000)
            .filter(|&hash| ghost.take(hash))
            .count();
        // 32 in 65,535 of 200,000 are 98.
        assert!((40..180).contains(&wrong), "{wrong}");
    }

    /// Growing keeps all that is known, shrinking the most recent; both in steps.
    #[test]
    fn resizing_keeps_the_most_recent() {
        let filled = || {
            let mut ghost = sized(64);
            (0..60).for_each(|hash| ghost.add(hash));
            ghost
        };
        let mut copy = filled();
        let known: Vec<u32> = (0..60).filter(|&hash| copy.take(hash)).collect();
        assert!(known.len() > 55, "{known:?}");
        let mut ghost = filled();
        for entries in 64..20_000 {
            ghost.fit(entries);
        }
        let bytes = ghost.bytes();
        assert!((80_000..100_000).contains(&bytes), "{bytes}");
        for entries in (0..20_000).rev() {
            ghost.fit(entries);
        }
        assert!(ghost.sets.length() <= 8, "{}", ghost.sets.length());
        for hash in known.into_iter().filter(|&hash| hash > 40) {
            assert!(ghost.take(hash), "{hash}");
        }
        assert!(ghost.bytes() < bytes / 4);
    }
}
