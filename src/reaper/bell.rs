//! How a writer wakes a sleeping worker, and how little that costs it.
//!
//! A worker that is going to sleep for longer than its interval says until when (in lane units of
//! the cache's clock), then looks at its shards once more. A writer that lowers a shard's minimum,
//! or adds to an empty limbo, publishes that and then looks at what the worker said. With a SeqCst
//! fence between store and load on both sides, at least one of them sees the other (store
//! buffering); a worker that polls at its interval is never rung.

use std::time::Instant;

use crate::sync::{Arc, AtomicU32, Ordering, Signal, fence, forks};

/// Awake, or back within its interval.
const AWAKE: u32 = 0;

/// One worker's sleep, as the writers of one cache see it.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The lane unit until which the worker sleeps, or [`AWAKE`].
    planned: AtomicU32,
    signal: Option<Arc<Signal>>,
    /// In which process of a forking family the worker lives.
    process: std::sync::atomic::AtomicU64,
}

impl Bell {
    /// The bell of a worker.
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Bell {
            planned: AtomicU32::new(AWAKE),
            signal: Some(signal),
            process: forks().into(),
        }
    }

    /// A bell that nobody hears: the cache is reaped by hand.
    pub(crate) fn silent() -> Self {
        Bell {
            planned: AtomicU32::new(AWAKE),
            signal: None,
            process: forks().into(),
        }
    }

    /// A shard's minimum has been lowered to `due`, and published.
    #[inline]
    pub(crate) fn ring_for_lane(&self, due: u32) {
        // SeqCst: pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it.
        if due < self.planned.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Something is in limbo, published. `first` if limbo was empty before: then nobody may know.
    #[inline]
    pub(crate) fn ring_for_limbo(&self, first: bool) {
        if !first {
            return;
        }
        // SeqCst: pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it.
        if self.planned.load(Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    /// Whether the worker's process is another one: it did not survive a fork.
    #[inline]
    pub(crate) fn is_orphaned(&self) -> bool {
        self.signal.is_some() && self.process.load(Ordering::Relaxed) != forks()
    }

    /// Notes that the worker lives in this process now; before it begins to work.
    pub(crate) fn adopt(&self) {
        self.process.store(forks(), Ordering::Relaxed);
        self.rise();
    }

    #[cold]
    fn wake(&self) {
        // Swap: of several writers one wakes.
        if self.planned.swap(AWAKE, Ordering::Relaxed) != AWAKE
            && let Some(signal) = &self.signal
        {
            signal.raise();
        }
    }

    /// The worker is going to sleep until the lane unit `until` unless rung, if after having said so
    /// it sees no news: something due sooner, or something in limbo. Whether it may sleep.
    pub(crate) fn doze(&self, until: u32, has_news: impl FnOnce() -> bool) -> bool {
        self.planned.store(until, Ordering::Relaxed);
        // SeqCst: pairs with the fences of the two rings.
        fence(Ordering::SeqCst);
        if has_news() {
            self.rise();
            return false;
        }
        true
    }

    /// The worker is awake, or polls.
    pub(crate) fn rise(&self) {
        self.planned.store(AWAKE, Ordering::Relaxed);
    }
}

/// Sleeps until the signal is raised or the moment has come.
pub(crate) fn sleep(signal: &Signal, until: Option<Instant>) {
    signal.wait(until.map(|moment| moment.saturating_duration_since(Instant::now())));
}
