//! Which slots are taken, with the lowest free one found quickly.

/// A growing set of slot ids. A second level has one bit for each full word below it.
#[derive(Debug, Default)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    /// Bit w of word i: `words[64 i + w]` is full.
    full: Vec<u64>,
    count: usize,
    /// No word of `full` below this one has a gap.
    first: usize,
}

impl Bitmap {
    /// Elements.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.words
            .get(slot as usize / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// The smallest id that is not in the set. Looks at one bit for 64 slots.
    #[inline]
    pub(crate) fn lowest_absent(&mut self) -> u32 {
        while self.full.get(self.first) == Some(&u64::MAX) {
            self.first += 1;
        }
        let Some(full) = self.full.get(self.first) else {
            return (self.words.len() * 64) as u32;
        };
        let word = self.first * 64 + full.trailing_ones() as usize;
        let bits = self.words.get(word).copied().unwrap_or(0);
        (word * 64) as u32 + bits.trailing_ones()
    }

    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot));
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.grow(word);
        }
        let bits = &mut self.words[word];
        *bits |= 1 << (slot % 64);
        if *bits == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.count += 1;
    }

    #[cold]
    fn grow(&mut self, word: usize) {
        self.words.resize(word + 1, 0);
        self.full.resize(word / 64 + 1, 0);
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        debug_assert!(self.contains(slot));
        let word = slot as usize / 64;
        self.words[word] &= !(1 << (slot % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.first = self.first.min(word / 64);
        self.count -= 1;
    }

    /// Whether none of the ids of these words (64 each) is an element.
    pub(crate) fn is_empty_at(&self, words: std::ops::Range<usize>) -> bool {
        let end = words.end.min(self.words.len());
        let begin = words.start.min(end);
        self.words[begin..end].iter().all(|&word| word == 0)
    }

    /// Number of words that can hold elements.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// The elements, smallest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i as u32 * 64 + bit)
            })
        })
    }

    /// Forgets the words above the last element.
    pub(crate) fn shrink(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        self.full.truncate(self.words.len().div_ceil(64));
        self.first = self.first.min(self.full.len());
        if self.words.len() * 2 < self.words.capacity() {
            self.words.shrink_to(self.words.len());
            self.full.shrink_to(self.full.len());
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        (self.words.capacity() + self.full.capacity()) * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..9000), 1..400)) {
            let (mut map, mut set) = (Bitmap::default(), BTreeSet::new());
            for (dense, slot) in steps {
                // Fills from below, as a slab does, half of the time.
                let slot = if dense { map.lowest_absent() } else { slot };
                if set.remove(&slot) {
                    map.remove(slot);
                } else {
                    set.insert(slot);
                    map.insert(slot);
                }
                if slot % 7 == 0 {
                    map.shrink();
                }
                prop_assert_eq!(map.lowest_absent(), (0..).find(|id| !set.contains(id)).unwrap());
                prop_assert_eq!(map.count(), set.len());
            }
            prop_assert!(map.iter().eq(set.iter().copied()));
        }
    }
}
