//! Where "now" comes from.
//!
//! A clock counts nanoseconds from a beginning of its own, and every deadline is one of its
//! readings. The default clock is strict (an expired entry is never read), yet most reads ask only
//! the kernel's coarse clock; `src/docs/clock.md` has the argument and its measurements.

use std::fmt;
use std::time::{Duration, Instant};

use crate::entry::contained;
use crate::entry::word::{DEAD, NEVER};
use crate::lease::Lease;
use crate::lifetime::Lifetime;
use crate::sync::{self, Arc, AtomicU64, Ordering};

/// A source of time for a cache.
///
/// Most users need none: the default reads the operating system's monotonic clock, and
/// [`ManualClock`] stands still for tests. A clock may step backwards; an entry that was once
/// reported absent stays absent all the same.
///
/// It is asked once or more in each call that depends on time, also on the reaper's threads; if it
/// panics, that call does, and nothing else is affected. A write asks before it takes its shard's lock,
/// and again under the lock about an entry that was alive by the first reading; should that panic, the
/// first reading stands, and the panic is [counted](crate::Stats::panics). So a clock must not call the
/// cache, and should not take long. It must not fork.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since the clock's beginning.
    fn now(&self) -> u64;

    /// The reading that belongs to `moment`; 0 for moments before the beginning.
    fn at(&self, moment: Instant) -> u64;

    /// Whether a cache with this clock should leave reclaiming to
    /// [`Cache::reap`](crate::Cache::reap) unless its builder was told otherwise: true for clocks
    /// that only move when somebody moves them.
    fn is_manual(&self) -> bool {
        false
    }
}

/// A clock that moves only when told to, for tests. Clones share one time.
///
/// A cache that is given one reclaims nothing by itself (its reaper is
/// [`Reaper::manual`](crate::Reaper::manual) unless another one is set).
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Cache, ManualClock};
///
/// let clock = ManualClock::new();
/// let cache = Cache::builder().clock(clock.clone()).build()?;
/// cache.insert_with_ttl("session", 7, Duration::from_secs(60));
/// clock.advance(Duration::from_secs(60) - Duration::from_nanos(1));
/// assert_eq!(cache.get("session"), Some(7));
/// clock.advance(Duration::from_nanos(1));
/// assert_eq!(cache.get("session"), None);
/// # Ok::<(), ebbtide::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: Arc<AtomicU64>,
    begin: Instant,
}

impl ManualClock {
    /// A clock that stands at 0.
    pub fn new() -> Self {
        ManualClock {
            time: Arc::new(AtomicU64::new(0)),
            begin: Instant::now(),
        }
    }

    /// Moves time forward by `step`, at most to the last nanosecond that can be counted.
    pub fn advance(&self, step: Duration) {
        let step = nanos(step);
        self.change(|time| time.saturating_add(step));
    }

    /// Moves time back by `step`, at most to 0.
    pub fn step_back(&self, step: Duration) {
        let step = nanos(step);
        self.change(|time| time.saturating_sub(step));
    }

    /// Sets the time, in nanoseconds since the clock's beginning.
    pub fn set_ns(&self, time: u64) {
        self.change(|_| time);
    }

    /// The time since the clock's beginning.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    fn change(&self, step: impl Fn(u64) -> u64) {
        let mut time = self.time.load(Ordering::Relaxed);
        // Release: what a test did before it moved the clock happens before whoever reads the new
        // time (the Acquire load in `now`).
        while let Err(seen) =
            self.time
                .compare_exchange_weak(time, step(time), Ordering::Release, Ordering::Relaxed)
        {
            time = seen;
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        // Acquire: pairs with the Release in `change`.
        self.time.load(Ordering::Acquire)
    }

    /// Real moments count from the clock's making, whatever its hand says.
    fn at(&self, moment: Instant) -> u64 {
        nanos(moment.saturating_duration_since(self.begin))
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// `length` in nanoseconds, or [`NEVER`] when it does not fit.
pub(crate) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(NEVER)
}

/// Farther than this from a deadline the coarse clock decides alone. The kernel promises a lag of
/// one tick (1 to 10 ms); a virtual machine's ticks can be late by scheduling delays of its host,
/// so the margin is a hundred ticks.
const COARSE_MARGIN: u64 = 1_000_000_000;

/// The operating system's monotonic clock, counted from the making of the cache.
#[derive(Debug)]
struct SystemClock {
    begin: Instant,
    /// CLOCK_MONOTONIC just before `begin`, where it can be read as a number, together with a coarse
    /// clock: that takes less than the difference of two `Instant`s.
    begin_ns: Option<u64>,
}

impl SystemClock {
    fn new() -> Self {
        // The number before the `Instant`: what is to end at another `Instant` never ends after it. It
        // ends earlier by what lies between the two, so the nearest of a few pairs.
        let numbers = || sync::coarse_monotonic().and_then(|_| sync::fine_monotonic());
        let pair = || (numbers(), Instant::now(), numbers());
        let (begin_ns, begin, _) = [pair(), pair(), pair()]
            .into_iter()
            .min_by_key(|(before, _, after)| {
                after.zip(*before).map(|(after, before)| after - before)
            })
            .expect("there are three");
        SystemClock { begin, begin_ns }
    }

    #[inline]
    fn now(&self) -> u64 {
        if let Some(begin) = self.begin_ns
            && let Some(now) = sync::fine_monotonic()
        {
            return now.saturating_sub(begin);
        }
        nanos(self.begin.elapsed())
    }

    /// The time of the coarse clock, which is never ahead of the exact one.
    #[inline]
    fn recent(&self) -> Option<u64> {
        let begin = self.begin_ns?;
        Some(sync::coarse_monotonic()?.saturating_sub(begin))
    }
}

/// The clock of one cache: the system's without indirection, or the user's.
pub(crate) struct Time {
    source: Source,
    lease: Option<Lease>,
    /// The clock hides what is over and ends nothing: somebody else's does.
    follows: bool,
    /// Panics of a user's clock under a lock.
    panics: AtomicU64,
}

enum Source {
    System(SystemClock),
    Custom(Box<dyn Clock>),
}

impl Time {
    pub(crate) fn system() -> Self {
        Time {
            source: Source::System(SystemClock::new()),
            lease: None,
            follows: false,
            panics: AtomicU64::new(0),
        }
    }

    /// The system's clock, which need not be asked about an entry whose deadline is farther than
    /// `lease` beyond the last published time. An error if there is no thread to publish it.
    pub(crate) fn leased(lease: Duration) -> Result<Self, String> {
        let clock = SystemClock::new();
        let lease = Lease::new(clock.begin, lease)?;
        Ok(Time {
            source: Source::System(clock),
            lease: Some(lease),
            follows: false,
            panics: AtomicU64::new(0),
        })
    }

    pub(crate) fn custom(clock: Box<dyn Clock>) -> Self {
        Time {
            source: Source::Custom(clock),
            lease: None,
            follows: false,
            panics: AtomicU64::new(0),
        }
    }

    /// Leaves it to somebody else to end entries.
    pub(crate) fn follow(&mut self) {
        self.follows = true;
    }

    /// Whether somebody else ends entries.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// The exact time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.source {
            Source::System(clock) => clock.now(),
            Source::Custom(clock) => clock.now(),
        }
    }

    /// The time for one hold of a lock, to be made before the lock is taken.
    #[inline]
    pub(crate) fn reading(&self) -> Reading<'_> {
        let asked = match &self.source {
            Source::System(_) => None,
            Source::Custom(clock) => Some(clock.now()),
        };
        self.reading_at(asked)
    }

    /// The time of a hold after another one in the same call: [`Reading::asked`] of that.
    #[inline]
    pub(crate) fn reading_at(&self, asked: Option<u64>) -> Reading<'_> {
        Reading {
            time: self,
            asked,
            before: None,
        }
    }

    /// A time that may be a little behind, never ahead: enough to choose a deadline that is
    /// allowed to come early.
    #[inline]
    pub(crate) fn recent(&self) -> u64 {
        match &self.source {
            Source::System(clock) => clock.recent().unwrap_or_else(|| clock.now()),
            Source::Custom(clock) => clock.now(),
        }
    }

    /// The one predicate: whether an entry with this word is over. [`NEVER`] is not, [`DEAD`] is;
    /// neither reads a clock.
    #[inline]
    pub(crate) fn is_due(&self, word: u64) -> bool {
        word != NEVER && !self.is_leased(word) && self.is_over(word)
    }

    /// Whether the published time alone says that the deadline is still to come.
    #[inline]
    fn is_leased(&self, word: u64) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.covers(word))
    }

    /// Not inlined: a clock is read by a call anyway, and a lookup without one stays short.
    #[inline(never)]
    fn is_over(&self, word: u64) -> bool {
        if word == DEAD {
            return true;
        }
        match &self.source {
            Source::System(clock) => {
                if let Some(recent) = clock.recent()
                    && recent.saturating_add(COARSE_MARGIN) < word
                {
                    return false;
                }
                clock.now() >= word
            }
            Source::Custom(clock) => clock.now() >= word,
        }
    }

    /// The deadline of a lifetime that begins at `now`: [`NEVER`], a finite deadline, or `None`
    /// when it is over already.
    pub(crate) fn deadline(&self, lifetime: Lifetime, now: u64) -> Option<u64> {
        match lifetime {
            Lifetime::Never => Some(NEVER),
            Lifetime::For(Duration::ZERO) if !self.follows => None,
            Lifetime::For(length) => Some(now.saturating_add(nanos(length)).max(1)),
            Lifetime::Until(moment) => {
                let at = match &self.source {
                    Source::System(clock) => nanos(moment.saturating_duration_since(clock.begin)),
                    Source::Custom(clock) => clock.at(moment),
                };
                match at > now {
                    true => Some(at),
                    // Over, and there: see `Follower`. (Not what says DEAD.)
                    false => self.follows.then_some(at.max(1)),
                }
            }
        }
    }

    /// Whether a deadline that was ahead at an earlier reading has come by now, under the lock.
    #[inline]
    fn has_come(&self, deadline: u64) -> bool {
        match &self.source {
            // The earlier reading was made under the lock too, or is all that is asked for.
            Source::System(_) => false,
            Source::Custom(clock) => self.says(&**clock, deadline),
        }
    }

    #[cold]
    fn says(&self, clock: &dyn Clock, deadline: u64) -> bool {
        let mut now = 0;
        let panics = contained(|| now = clock.now());
        self.panics.fetch_add(panics, Ordering::Relaxed);
        now >= deadline
    }

    /// How often a user's clock panicked under a lock.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Whether a worker can tell from the real time when the next deadline comes.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.source, Source::System(_))
    }
}

/// The time as one call sees it, and its hold of a lock.
///
/// A lifetime may begin at any instant of the call, but whether an entry is alive is decided under the
/// lock and by the time then: what was read before the lock was taken may be older than the entry that is
/// found, and a deadline between the two would be renewed, or its entry removed as a living one, after
/// it had passed. A clock of the user's is asked before the lock too, where it may panic; under the lock
/// its panics are contained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'t> {
    time: &'t Time,
    asked: Option<u64>,
    /// For a hold: what the system's clock said before it.
    before: Option<u64>,
}

impl Reading<'_> {
    /// The time, which is the time of this reading from now on.
    #[inline]
    pub(crate) fn ask(&mut self) -> u64 {
        *self.asked.get_or_insert_with(|| self.time.now())
    }

    /// The time for the hold of a lock, which comes now.
    #[inline]
    pub(crate) fn under_lock(self) -> Self {
        match self.time.source {
            Source::System(_) => Reading {
                asked: None,
                before: self.asked,
                ..self
            },
            Source::Custom(_) => self,
        }
    }

    /// The reading that the call began with, for naming the end of what ends either way: what was alive then,
    /// or came later, lived or was stored at some moment of the call.
    #[inline]
    pub(crate) fn of_call(self) -> Self {
        Reading {
            asked: self.asked.or(self.before),
            ..self
        }
    }

    /// The time of the call's beginning, if the clock was asked then; else as [`ask`](Self::ask).
    #[inline]
    pub(crate) fn began(&mut self) -> u64 {
        match self.before {
            Some(before) => before,
            None => self.ask(),
        }
    }

    /// What the clock last said to this call.
    pub(crate) fn last(&self) -> Option<u64> {
        self.asked.or(self.before)
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.asked.unwrap_or_else(|| self.time.now())
    }

    /// As [`Time::is_due`]; for a hold.
    #[inline]
    pub(crate) fn is_due(&self, word: u64) -> bool {
        if self.time.follows {
            return false;
        }
        match self.asked {
            None => self.time.is_due(word),
            Some(now) => word != NEVER && (now >= word || self.time.has_come(word)),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::System(_) => "SystemClock",
            Source::Custom(_) => "custom clock",
        })
    }
}
