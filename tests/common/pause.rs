//! Points at which a thread can be made to wait, so that an interleaving is forced instead of
//! hoped for: inside a clock's reading, a key's comparison, a value's clone.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ebbtide::Clock;

use super::PATIENCE;

/// A place where one thread waits until another lets it go on.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    reached: bool,
    open: bool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Says that this thread has come here, and waits until the gate is opened.
    pub(crate) fn pass(&self) {
        let (state, change) = &*self.0;
        let mut state = state.lock().unwrap();
        state.reached = true;
        change.notify_all();
        let (_state, late) = change
            .wait_timeout_while(state, PATIENCE, |state| !state.open)
            .unwrap();
        assert!(!late.timed_out(), "nobody opened the gate");
    }

    /// Waits until some thread has come to the gate.
    #[track_caller]
    pub(crate) fn wait_reached(&self) {
        assert!(self.is_reached_within(PATIENCE), "nobody came to the gate");
    }

    /// Whether some thread comes to the gate within `limit`.
    pub(crate) fn is_reached_within(&self, limit: Duration) -> bool {
        let (state, change) = &*self.0;
        let state = state.lock().unwrap();
        let (state, _) = change
            .wait_timeout_while(state, limit, |state| !state.reached)
            .unwrap();
        state.reached
    }

    /// Lets the thread go on, now or when it comes.
    pub(crate) fn open(&self) {
        let (state, change) = &*self.0;
        state.lock().unwrap().open = true;
        change.notify_all();
    }
}

thread_local! {
    /// After how many more readings this thread waits, and where.
    static PAUSE: RefCell<Option<(u32, Gate)>> = const { RefCell::new(None) };
}

/// Makes the calling thread wait at `gate` in its reading number `reading` (from 1) of any
/// [`PausingClock`], after it has read the time.
pub(crate) fn pause_at(reading: u32, gate: &Gate) {
    PAUSE.with_borrow_mut(|pause| *pause = Some((reading, gate.clone())));
}

/// A clock moved by hand, in whose readings chosen threads wait.
#[derive(Clone)]
pub(crate) struct PausingClock {
    time: Arc<AtomicU64>,
    begin: Instant,
}

impl PausingClock {
    pub(crate) fn new() -> Self {
        PausingClock {
            time: Arc::default(),
            begin: Instant::now(),
        }
    }

    pub(crate) fn set(&self, time: Duration) {
        self.time.store(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for PausingClock {
    fn now(&self) -> u64 {
        let time = self.time.load(Ordering::SeqCst);
        let gate = PAUSE.with_borrow_mut(|pause| {
            let (left, _) = pause.as_mut()?;
            *left -= 1;
            (*left == 0).then(|| pause.take().expect("just seen").1)
        });
        if let Some(gate) = gate {
            gate.pass();
        }
        time
    }

    fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.begin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// A key in whose comparison a thread waits. Equal to all keys with its number.
#[derive(Clone)]
pub(crate) struct GatedKey {
    pub(crate) number: u64,
    gate: Option<Gate>,
}

impl GatedKey {
    pub(crate) fn new(number: u64) -> Self {
        GatedKey { number, gate: None }
    }

    /// A key whose first comparison waits at `gate`: under the shard's lock if a write makes it.
    pub(crate) fn waiting(number: u64, gate: &Gate) -> Self {
        GatedKey {
            number,
            gate: Some(gate.clone()),
        }
    }
}

impl PartialEq for GatedKey {
    fn eq(&self, other: &Self) -> bool {
        for gate in [&self.gate, &other.gate].into_iter().flatten() {
            gate.pass();
        }
        self.number == other.number
    }
}

impl Eq for GatedKey {}

impl Hash for GatedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
