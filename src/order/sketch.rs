//! How often keys were asked for of late, roughly.

use std::ops::RangeInclusive;

use super::blocks::{Blocks, Mixed};

/// A block: 128 counters of 4 bits in one cache line.
type Counters = [u64; 8];

/// Entries that share a block: eight counters for each.
const ENTRIES_PER_BLOCK: usize = 16;

/// Highest value of a counter.
const MAX: u64 = 15;

/// Additions for each entry after which all counters are halved.
const PERIOD: usize = 10;

/// The low three bits of each counter.
const HALVES: u64 = 0x7777_7777_7777_7777;

/// A count-min sketch (Cormode and Muthukrishnan, 2005) of 4-bit counters that are halved from time
/// to time, as TinyLFU has it (Einziger, Friedman and Manes, 2017). The four counters of a key lie
/// in one cache line, as in Caffeine; an addition raises only the smallest of them (the conservative
/// update of Estan and Varghese, 2002), which on the traces is worth as much as twice the counters.
#[derive(Debug)]
pub(super) struct Sketch {
    blocks: Blocks<Counters>,
    /// Additions since the last halving began.
    additions: usize,
    /// Blocks below this one have been halved, if a halving is under way.
    halved: Option<usize>,
}

impl Sketch {
    pub(super) fn new() -> Self {
        Sketch {
            blocks: Blocks::new([0; 8]),
            additions: 0,
            halved: None,
        }
    }

    /// The block of a key, and the word and the shift of its four counters there.
    #[inline]
    fn locate(&self, key: Mixed) -> (usize, [(usize, u32); 4]) {
        let mut bits = (key.0 >> 28) as usize;
        let counters = [0, 2, 4, 6].map(|word| {
            let counter = (word + (bits & 1), (bits >> 1 & 15) as u32 * 4);
            bits >>= 5;
            counter
        });
        (self.blocks.number(key), counters)
    }

    /// Counts a key once more, and halves a block if it is time to.
    pub(super) fn add(&mut self, key: impl Into<Mixed>) {
        let (number, counters) = self.locate(key.into());
        let block = self.blocks.get_mut(number);
        let count = smallest(block, counters);
        if count < MAX {
            for (word, shift) in counters {
                if block[word] >> shift & MAX == count {
                    block[word] += 1 << shift;
                }
            }
        }
        self.additions += 1;
        if self.halved.is_some() {
            self.halve();
        } else if self.additions >= PERIOD * ENTRIES_PER_BLOCK * self.blocks.length() {
            self.additions = 0;
            self.halved = Some(0);
            self.halve();
        }
    }

    /// How often the key was added, at least, give or take the halvings: 0 to 15.
    pub(super) fn count(&self, key: impl Into<Mixed>) -> u64 {
        let (number, counters) = self.locate(key.into());
        smallest(self.blocks.get(number), counters)
    }

    /// Halves one more block.
    fn halve(&mut self) {
        let Some(number) = self.halved.filter(|&next| next < self.blocks.length()) else {
            self.halved = None;
            return;
        };
        for word in self.blocks.get_mut(number) {
            *word = *word >> 1 & HALVES;
        }
        self.halved = Some(number + 1);
    }

    /// Asks for the line of a key's counters.
    #[inline]
    pub(super) fn prefetch(&self, key: Mixed) {
        self.blocks.prefetch(self.blocks.number(key));
    }

    /// Numbers of entries for which it has the right size.
    pub(super) fn fits(&self) -> RangeInclusive<usize> {
        self.blocks.fits(ENTRIES_PER_BLOCK)
    }

    /// Comes up to two blocks nearer to the size for this many entries. Blocks are given up only
    /// when there are four times too many.
    pub(super) fn fit(&mut self, entries: usize) {
        self.blocks.fit(entries, ENTRIES_PER_BLOCK, larger);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes()
    }
}

/// The smallest of a key's counters.
fn smallest(block: &Counters, counters: [(usize, u32); 4]) -> u64 {
    counters.into_iter().fold(MAX, |least, (word, shift)| {
        least.min(block[word] >> shift & MAX)
    })
}

/// The larger of two counters, for each.
fn larger(into: &mut Counters, from: &Counters) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = (0..64)
            .step_by(4)
            .map(|shift| (*into >> shift & MAX).max(from >> shift & MAX) << shift)
            .sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sketch of so many blocks.
    fn sized(blocks: usize) -> Sketch {
        let mut sketch = Sketch::new();
        for entries in 0..=blocks * ENTRIES_PER_BLOCK {
            sketch.fit(entries);
        }
        sketch
    }

    #[test]
    fn counts_are_never_too_low_and_stop_at_fifteen() {
        let mut sketch = sized(125);
        for times in 1..=20 {
            for hash in 0..100_u32 {
                sketch.add(hash);
                assert!(sketch.count(hash) >= times.min(MAX));
            }
        }
        assert!((0..100).all(|hash| sketch.count(hash) == MAX));
        let strangers: u64 = (1_000..2_000).map(|hash| sketch.count(hash)).sum();
        assert!(strangers < 500, "{strangers}");
    }

    /// As many additions as it is made for hide the counts of few keys.
    #[test]
    fn most_counts_are_exact() {
        let mut sketch = sized(250);
        for hash in 0..4_000_u32 {
            for _ in 0..hash % 4 {
                sketch.add(hash);
            }
        }
        let wrong = (0..4_000)
            .filter(|&hash| sketch.count(hash) != u64::from(hash % 4))
            .count();
        assert!(wrong < 200, "{wrong}");
    }

    /// Near the end of a period, when the sketch is as full as it gets: raising only the smallest
    /// counters keeps keys that never came apart from those that came once.
    #[test]
    fn strangers_count_little_in_a_full_sketch() {
        let mut sketch = sized(250);
        for hash in 0..19_000_u32 {
            sketch.add(hash);
        }
        let sum: u64 = (100_000..110_000).map(|hash| sketch.count(hash)).sum();
        assert!((5_000..8_500).contains(&sum), "{sum}");
    }

    /// After a period all counters are halved, a block for each addition.
    #[test]
    fn halving_takes_small_steps_and_reaches_all() {
        let mut sketch = sized(100);
        let blocks = sketch.blocks.length();
        assert_eq!(blocks, 100);
        // (An odd number: the bit that is shifted out must not reach the neighbour.)
        for _ in 0..13 {
            for hash in 0..100_u32 {
                sketch.add(hash);
            }
        }
        let before: Vec<u64> = (0..100).map(|hash| sketch.count(hash)).collect();
        let period = PERIOD * ENTRIES_PER_BLOCK * blocks;
        // One key fills the rest of the period.
        for _ in sketch.additions..period - 1 {
            sketch.add(1_000_000);
        }
        let (last, _) = sketch.locate(1_000_000.into());
        let spared: Vec<u32> = (0..100)
            .filter(|&hash| sketch.locate(hash.into()).0 != last)
            .collect();
        let count =
            |sketch: &Sketch| -> Vec<u64> { spared.iter().map(|&h| sketch.count(h)).collect() };
        let full: Vec<u64> = spared.iter().map(|&hash| before[hash as usize]).collect();
        assert_eq!(count(&sketch), full);
        sketch.add(1_000_000);
        assert_eq!(sketch.halved, Some(1));
        for _ in 0..blocks {
            sketch.add(1_000_000);
        }
        assert_eq!(sketch.halved, None);
        let halved: Vec<u64> = full.iter().map(|count| count / 2).collect();
        assert_eq!(count(&sketch), halved);
    }

    #[test]
    fn halving_keeps_counters_apart() {
        let mut sketch = Sketch::new();
        *sketch.blocks.get_mut(0) = [0xfedc_ba98_7654_3210; 8];
        sketch.halved = Some(0);
        sketch.halve();
        assert_eq!(*sketch.blocks.get(0), [0x7766_5544_3322_1100; 8]);
    }

    #[test]
    fn resizing_never_loses_a_count() {
        let mut sketch = sized(7);
        for hash in 0..20_u32 {
            for _ in 0..5 {
                sketch.add(hash);
            }
        }
        for entries in 50..20_000 {
            sketch.fit(entries);
        }
        assert!((0..20).all(|hash| sketch.count(hash) >= 5));
        let bytes = sketch.bytes();
        for entries in (0..20_000).rev() {
            sketch.fit(entries);
        }
        assert!((0..20).all(|hash| sketch.count(hash) >= 5));
        assert!(sketch.bytes() < bytes / 4);
        assert!(sketch.blocks.length() <= 4);
    }
}
