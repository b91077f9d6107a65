//! What models of the whole cache share: a cache that behaves the same in every run, and values
//! that count their drops.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbtide::{Builder, Cache, ManualClock};
use loom::thread;

/// A hasher whose hash of a small key is the key itself, in every run: a model has to be
/// deterministic, and says itself which keys share a bucket.
#[derive(Clone, Debug, Default)]
pub struct Fixed(u64);

impl Hasher for Fixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
}

impl BuildHasher for Fixed {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Fixed(0)
    }
}

/// A hasher to which all keys are the same: they share a bucket and a tag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _bytes: &[u8]) {}
}

impl BuildHasher for Same {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Same
    }
}

/// One lane unit, in nanoseconds.
pub const UNIT: u64 = 1 << 26;

/// How many of a model's values have been dropped.
///
/// Not one of loom's atomics: counting is no step of the model.
#[derive(Clone, Debug, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    /// Values dropped so far; clones that readers were given do not count.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that counts its drop.
#[derive(Debug)]
pub struct Tracked {
    number: u32,
    drops: Drops,
}

impl Tracked {
    /// A value that is told apart by `number`.
    pub fn new(number: u32, drops: &Drops) -> Self {
        Tracked {
            number,
            drops: drops.clone(),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        Tracked::new(self.number, &Drops::default())
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.drops.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache of one shard on `clock`, reaped by hand, with the given settings.
///
/// # Panics
/// When the settings contradict each other.
pub fn build<V: Send + Sync + 'static>(
    clock: &ManualClock,
    settings: impl FnOnce(Builder<u8, V>) -> Builder<u8, V>,
) -> Cache<u8, V, Fixed> {
    build_with(clock, Fixed(0), settings)
}

/// As [`build`], with another hasher.
///
/// # Panics
/// When the settings contradict each other.
pub fn build_with<V: Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static>(
    clock: &ManualClock,
    hasher: S,
    settings: impl FnOnce(Builder<u8, V>) -> Builder<u8, V>,
) -> Cache<u8, V, S> {
    let builder = Cache::<u8, V>::builder().shards(1).clock(clock.clone());
    settings(builder)
        .hasher(hasher)
        .build()
        .expect("the settings are valid")
}

/// Runs `other` on a second thread while `main` runs here; their answers.
pub fn race<V, S, A, B>(
    cache: &Cache<u8, V, S>,
    main: impl FnOnce(&Cache<u8, V, S>) -> A,
    other: impl FnOnce(&Cache<u8, V, S>) -> B + 'static,
) -> (A, B)
where
    V: Send + Sync + 'static,
    S: Send + Sync + 'static,
    B: 'static,
{
    let theirs = cache.clone();
    let thread = thread::spawn(move || other(&theirs));
    let mine = main(cache);
    (mine, thread.join().unwrap())
}
