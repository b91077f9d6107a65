//! The threads, and the caches that they work for.
//!
//! A [`Crew`] is one or more sweeping threads and one dropping thread. The shared crew serves any
//! number of caches; it comes with the first and goes with the last. A dedicated crew serves one.
//! A thread holds a cache only while it works on it, and never upgrades its weak reference once
//! the cache has been dismissed, so the last handle's drop ends the work and frees the values on
//! its own thread.

use std::cell::Cell;
use std::sync::{LazyLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::Target;
use super::bell::{self, Bell};
use super::pace::LONGEST;
use super::visits::Visits;
use super::worker::{Plan, Worker, drop_ripe_values};
use crate::entry::contained;
use crate::stats::add;
use crate::sync::{
    Arc, AtomicBool, Mutex, Ordering, Signal, Weak, forks, watch_forks, without_fork,
};

thread_local! {
    /// Whether this thread is a crew's.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current thread is a crew's, of whichever: two crews' threads that waited for each
/// other (each drops a value that owns the last handle of the other's cache) would do so for ever.
pub(crate) fn is_crew_thread() -> bool {
    // (A thread whose thread-locals are gone is none of a crew's any more.)
    IS_WORKER.try_with(Cell::get).unwrap_or(false)
}

/// A cache on a crew's list.
struct Job {
    target: Weak<dyn Target>,
    /// One bell for each sweeping thread.
    bells: Arc<[Bell]>,
    visits: Arc<Visits>,
}

struct Roster {
    jobs: Vec<Job>,
    threads: Vec<JoinHandle<()>>,
    /// In which process of a forking family the threads live.
    process: u64,
}

/// Threads that reclaim, and the caches that they reclaim for.
pub(crate) struct Crew {
    name: String,
    roster: Mutex<Roster>,
    sweepers: Vec<Arc<Signal>>,
    dropper: Arc<Signal>,
    stop: AtomicBool,
    /// The shared crew's threads end with the last cache and come back with the next.
    lasting: bool,
}

static SHARED: LazyLock<Mutex<Option<Arc<Crew>>>> = LazyLock::new(|| Mutex::new(None));

/// A cache's place on a crew's list.
pub(crate) struct Enrolment {
    crew: Arc<Crew>,
    target: Weak<dyn Target>,
    /// One bell for each sweeping thread: shard s is served by thread s modulo their number.
    pub(crate) bells: Arc<[Bell]>,
    visits: Arc<Visits>,
}

impl Enrolment {
    /// Puts a cache on the shared crew's list.
    pub(crate) fn shared(target: Weak<dyn Target>) -> Result<Self, String> {
        watch_forks();
        let mut shared = SHARED.lock();
        let crew = match &*shared {
            Some(crew) if crew.is_here() => Arc::clone(crew),
            _ => {
                let crew = Arc::new(Crew::new("ebbtide".into(), 1, true));
                *shared = Some(Arc::clone(&crew));
                crew
            }
        };
        let enrolled = crew.enrol(target);
        if enrolled.is_err() {
            *shared = None;
        }
        enrolled
    }

    /// Makes a crew of `threads` sweeping threads for one cache.
    pub(crate) fn dedicated(
        target: Weak<dyn Target>,
        threads: usize,
        name: &str,
    ) -> Result<Self, String> {
        watch_forks();
        Arc::new(Crew::new(
            format!("ebbtide {name}").trim_end().into(),
            threads,
            false,
        ))
        .enrol(target)
    }

    /// Takes the cache off the list. No thread of the crew will look at it again, but one may be
    /// doing so. Ends the threads if it was the last, and waits for them, unless called on a
    /// crew's thread.
    pub(crate) fn dismiss(&self) {
        let threads = {
            let _shared = self.crew.lasting.then(|| SHARED.lock());
            let mut roster = self.crew.roster.lock();
            roster.jobs.retain(|job| !job.target.ptr_eq(&self.target));
            if roster.jobs.is_empty() {
                self.crew.stop.store(true, Ordering::Release);
            }
            let over = roster.jobs.is_empty() && roster.process == forks();
            if over {
                std::mem::take(&mut roster.threads)
            } else {
                Vec::new()
            }
        };
        // Also when others are left: positions on the list have shifted under a pass that may be
        // going on, so that there has to be another.
        self.crew.wake_all();
        if !is_crew_thread() {
            for thread in threads {
                // A worker's panic has been contained and counted; there is nothing to add.
                let _ = thread.join();
            }
        }
    }

    /// Whether no thread of the crew holds the cache any more. Once dismissed it stays so. A thread
    /// that held it in the process that this one was forked from does not count.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.visits.is_over()
    }

    /// Whether the threads run, in this process.
    pub(crate) fn is_staffed(&self) -> bool {
        without_fork(|| {
            let roster = self.crew.roster.lock();
            let running = |thread: &JoinHandle<()>| !thread.is_finished();
            roster.process == forks()
                && !roster.threads.is_empty()
                && roster.threads.iter().all(running)
        })
    }

    /// Starts the threads anew after a fork, in which they did not survive.
    #[cold]
    pub(crate) fn revive(&self) {
        // If no thread can be had, the next write tries again.
        let _ = self.crew.start_missing();
    }
}

impl Crew {
    fn new(name: String, sweepers: usize, lasting: bool) -> Self {
        Crew {
            name,
            roster: Mutex::new(Roster {
                jobs: Vec::new(),
                threads: Vec::new(),
                process: forks(),
            }),
            sweepers: (0..sweepers).map(|_| Arc::default()).collect(),
            dropper: Arc::default(),
            stop: AtomicBool::new(false),
            lasting,
        }
    }

    fn is_here(&self) -> bool {
        self.roster.lock().process == forks() && !self.stop.load(Ordering::Acquire)
    }

    fn wake_all(&self) {
        for signal in self.sweepers.iter().chain([&self.dropper]) {
            signal.raise();
        }
    }

    fn enrol(self: Arc<Self>, target: Weak<dyn Target>) -> Result<Enrolment, String> {
        let bells: Arc<[Bell]> = self
            .sweepers
            .iter()
            .map(|signal| Bell::new(Arc::clone(signal)))
            .collect();
        let visits = Arc::<Visits>::default();
        self.roster.lock().jobs.push(Job {
            target: target.clone(),
            bells: Arc::clone(&bells),
            visits: Arc::clone(&visits),
        });
        if let Err(reason) = self.start_missing() {
            let mut roster = self.roster.lock();
            roster.jobs.retain(|job| !job.target.ptr_eq(&target));
            return Err(reason);
        }
        self.wake_all();
        Ok(Enrolment {
            crew: self,
            target,
            bells,
            visits,
        })
    }

    /// Starts the threads that are not running in this process: all of them or none.
    fn start_missing(self: &Arc<Self>) -> Result<(), String> {
        let mut roster = self.roster.lock();
        if roster.process != forks() {
            roster.process = forks();
            // Handles of another process's threads: neither to be joined nor detached.
            roster.threads.drain(..).for_each(std::mem::forget);
        }
        if !roster.threads.is_empty() {
            return Ok(());
        }
        // Dropped unused, it sends those home that did start when another could not.
        let mut latches = Vec::new();
        for number in 0..=self.sweepers.len() {
            let crew = Arc::clone(self);
            let is_dropper = number == self.sweepers.len();
            let what = if is_dropper {
                "drop".into()
            } else {
                format!("reap {number}")
            };
            let (latch, opened) = mpsc::channel();
            let started = thread::Builder::new()
                .name(format!("{} {what}", self.name))
                .spawn(move || {
                    if opened.recv().is_err() {
                        return;
                    }
                    IS_WORKER.set(true);
                    if is_dropper {
                        crew.drop_values()
                    } else {
                        crew.sweep(number)
                    }
                });
            match started {
                Ok(thread) => roster.threads.push(thread),
                Err(reason) => {
                    roster.threads.clear();
                    return Err(reason.to_string());
                }
            }
            latches.push(latch);
        }
        // Before any of them can doze.
        for bell in roster.jobs.iter().flat_map(|job| &*job.bells) {
            bell.adopt();
        }
        for latch in latches {
            // A thread that waits for its latch is there to hear it.
            let _ = latch.send(());
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The cache at a position of the list, with its bells. Positions shift when one leaves.
    fn pick(&self, position: usize) -> Option<Pick> {
        without_fork(|| {
            let roster = self.roster.lock();
            let job = roster.jobs.get(position)?;
            // Under the roster's lock: after `dismiss` no thread picks the cache up.
            Some(Pick {
                visit: job.target.upgrade().map(|target| Visit {
                    first: job.visits.enter(),
                    visits: Arc::clone(&job.visits),
                    target: Some(target),
                }),
                bells: Arc::clone(&job.bells),
            })
        })
    }

    /// A sweeping thread.
    fn sweep(&self, number: usize) {
        let mut plans: Vec<Plan> = Vec::new();
        while !self.is_over() {
            let mut wake_at: Option<Instant> = None;
            plans.iter_mut().for_each(|plan| plan.seen = false);
            let mut position = 0;
            while let Some(Pick { visit, bells }) = self.pick(position) {
                position += 1;
                let Some(visit) = visit else { continue };
                let target = visit.target();
                let plan = match plans.iter().position(|plan| plan.is_for(target)) {
                    Some(at) => &mut plans[at],
                    None => {
                        plans.push(Plan::new(target));
                        plans.last_mut().expect("just pushed")
                    }
                };
                plan.seen = true;
                let worker = Worker {
                    number,
                    of: self.sweepers.len(),
                    bell: &bells[number],
                };
                // What panics here is a user's clock (listeners and drops are contained on their
                // own): the other caches must not pay for it.
                let mut next = Some(Instant::now() + target.settings().interval.min(LONGEST));
                let panics = contained(|| {
                    next = plan.come_by(&**target, &worker, &self.dropper);
                });
                add(&target.counts().panics, panics);
                if let Some(next) = next {
                    wake_at = Some(wake_at.map_or(next, |wake_at| wake_at.min(next)));
                }
            }
            plans.retain(|plan| plan.seen);
            if !self.is_over() && wake_at.is_none_or(|moment| moment > Instant::now()) {
                bell::sleep(&self.sweepers[number], wake_at);
            }
        }
    }

    /// The dropping thread: whatever user code a value's `Drop` runs, no sweep waits for it.
    fn drop_values(&self) {
        while !self.is_over() {
            let (mut position, mut dropped) = (0, false);
            while let Some(Pick { visit, .. }) = self.pick(position) {
                position += 1;
                if let Some(visit) = visit {
                    dropped |= drop_ripe_values(&**visit.target());
                }
            }
            if !dropped && !self.is_over() {
                self.dropper.wait(None);
            }
        }
    }
}

/// A place of the list, with the cache if it is still there.
struct Pick {
    visit: Option<Visit>,
    bells: Arc<[Bell]>,
}

/// A thread's hold of a cache.
struct Visit {
    /// `None` only while this is dropped.
    target: Option<Arc<dyn Target>>,
    visits: Arc<Visits>,
    first: u64,
}

impl Visit {
    fn target(&self) -> &Arc<dyn Target> {
        self.target.as_ref().expect("held until the end")
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let target = self.target.take();
        // If this was the last reference, dropping values can panic.
        contained(|| drop(target));
        self.visits.leave(self.first);
    }
}
