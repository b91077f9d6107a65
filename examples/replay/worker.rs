//! The workers: each replays its share of the requests against the shared cache.
//!
//! Request i is worker i mod n's, so every worker has its share in time order and keys are shared by
//! all. Two workers may miss the same key at the same time and both insert it, as in a real service.
//!
//! A paced worker sleeps until its next request is due. When it comes late (it slept too long, or the
//! request before took long) it does not wait for the next slot but catches up. So one number alone
//! would hide something: the latency of the call says nothing of requests that had to wait for a slow
//! one before them ("coordinated omission"). Both are recorded: the call itself, and how far behind
//! its schedule each request began.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ebbtide::{Cache, Lifetime};
use hdrhistogram::Histogram;

use crate::timeline::Compression;
use crate::trace::{Op, Request};
use crate::value::{Ledger, Value};

/// In an unpaced run one request in so many is timed: reading the clock costs about as much as a hit.
pub(crate) const TIMED_ONE_IN: u64 = 64;

/// The cache of the replay.
pub(crate) type Store = Cache<u64, Value>;

/// What all workers share.
pub(crate) struct Job<'a> {
    pub(crate) requests: &'a [Request],
    pub(crate) store: &'a Store,
    pub(crate) ledger: &'a Arc<Ledger>,
    pub(crate) compression: Compression,
    pub(crate) workers: usize,
    /// Passes of an unpaced run; none: paced.
    pub(crate) passes: Option<u32>,
    /// When the first request is due.
    pub(crate) start: Instant,
    /// Where the workers of an unpaced run meet before each pass.
    pub(crate) barrier: &'a Barrier,
}

/// How far a worker is, for whoever watches. A cache line pair of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    pub(crate) done: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) hits: AtomicU64,
}

/// What a worker did and how long it took.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Inserts by a `SET` of the trace (those after a miss are not among them).
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
    /// Hits on bytes that were not those of the key.
    pub(crate) damaged: u64,
    /// Hits that began after the end of the value's lifetime.
    pub(crate) expired_reads: u64,
    /// Hits of which it was checked.
    pub(crate) checked: u64,
    /// Latencies in nanoseconds.
    pub(crate) reads: Histogram<u64>,
    pub(crate) inserts: Histogram<u64>,
    /// Two readings of the clock with nothing between: what the clock costs and how long the machine
    /// itself pauses a thread.
    pub(crate) control: Histogram<u64>,
    /// How long after its scheduled time a request began (paced runs).
    pub(crate) behind: Histogram<u64>,
    /// Beginning and end of each pass.
    pub(crate) passes: Vec<(Instant, Instant)>,
}

impl Outcome {
    pub(crate) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid");
        Self {
            hits: 0,
            misses: 0,
            sets: 0,
            deletes: 0,
            damaged: 0,
            expired_reads: 0,
            checked: 0,
            reads: histogram(),
            inserts: histogram(),
            control: histogram(),
            behind: histogram(),
            passes: Vec::new(),
        }
    }

    /// Takes in what another worker did.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.damaged += other.damaged;
        self.expired_reads += other.expired_reads;
        self.checked += other.checked;
        let pairs = [
            (&mut self.reads, &other.reads),
            (&mut self.inserts, &other.inserts),
            (&mut self.control, &other.control),
            (&mut self.behind, &other.behind),
        ];
        for (sum, part) in pairs {
            sum.add(part).expect("all have the same bounds");
        }
        if self.passes.is_empty() {
            self.passes.clone_from(&other.passes);
        } else {
            for (all, one) in self.passes.iter_mut().zip(&other.passes) {
                *all = (all.0.min(one.0), all.1.max(one.1));
            }
        }
    }
}

/// Replays the share of worker `index` and gives what came of it.
pub(crate) fn work(job: &Job<'_>, index: usize, progress: &Progress) -> Outcome {
    let mut worker = Worker {
        job,
        progress,
        outcome: Outcome::new(),
    };
    match job.passes {
        None => {
            for request in job.requests.iter().skip(index).step_by(job.workers) {
                worker.wait_for(request);
                worker.timed(request);
                worker.publish();
            }
            worker.outcome.passes.push((job.start, Instant::now()));
        }
        Some(passes) => {
            let mut until_timed = TIMED_ONE_IN;
            for _ in 0..passes {
                job.barrier.wait();
                let begun = Instant::now();
                for request in job.requests.iter().skip(index).step_by(job.workers) {
                    until_timed -= 1;
                    if until_timed == 0 {
                        until_timed = TIMED_ONE_IN;
                        worker.timed(request);
                        worker.publish();
                    } else {
                        worker.untimed(request);
                    }
                }
                worker.publish();
                worker.outcome.passes.push((begun, Instant::now()));
            }
        }
    }
    worker.outcome
}

struct Worker<'a> {
    job: &'a Job<'a>,
    progress: &'a Progress,
    outcome: Outcome,
}

impl Worker<'_> {
    fn wait_for(&mut self, request: &Request) {
        let due = self.job.start + self.job.compression.time(request.at);
        let mut now = Instant::now();
        while now < due {
            std::thread::sleep(due - now);
            now = Instant::now();
        }
        record(&mut self.outcome.behind, now - due);
    }

    fn timed(&mut self, request: &Request) {
        let key = request.key;
        if matches!(request.op, Op::Fetch | Op::Get) {
            let begun = Instant::now();
            let seen = self.job.store.with(&key, |value| value.look(key));
            let ended = Instant::now();
            let nothing = Instant::now();
            record(&mut self.outcome.reads, ended - begun);
            record(&mut self.outcome.control, nothing - ended);
            if let Some(seen) = seen {
                self.outcome.checked += 1;
                let expired = seen.ended_by(self.job.ledger.nanos(begun));
                self.outcome.expired_reads += u64::from(expired);
            }
            if self.count_read(seen.map(|seen| seen.intact)) || request.op == Op::Get {
                return;
            }
        }
        if request.op == Op::Delete {
            return self.delete(key);
        }
        let (value, lifetime) = self.make(request);
        let begun = Instant::now();
        self.job.store.insert_with_ttl(key, value, lifetime);
        record(&mut self.outcome.inserts, begun.elapsed());
    }

    fn untimed(&mut self, request: &Request) {
        let key = request.key;
        if matches!(request.op, Op::Fetch | Op::Get) {
            let seen = self.job.store.with(&key, |value| value.look(key));
            if self.count_read(seen.map(|seen| seen.intact)) || request.op == Op::Get {
                return;
            }
        }
        if request.op == Op::Delete {
            return self.delete(key);
        }
        let (value, lifetime) = self.make(request);
        self.job.store.insert_with_ttl(key, value, lifetime);
    }

    /// Counts a read (whether its bytes were right; none: a miss); true for a hit.
    fn count_read(&mut self, intact: Option<bool>) -> bool {
        match intact {
            Some(intact) => {
                self.outcome.hits += 1;
                self.outcome.damaged += u64::from(!intact);
            }
            None => self.outcome.misses += 1,
        }
        intact.is_some()
    }

    fn delete(&mut self, key: u64) {
        self.job.store.invalidate(&key);
        self.outcome.deletes += 1;
    }

    /// The value that a request inserts. Its lifetime is given as the moment when it ends, so that
    /// the value knows it as exactly as the cache does.
    fn make(&mut self, request: &Request) -> (Value, Lifetime) {
        self.outcome.sets += u64::from(request.op == Op::Set);
        let lifetime = self.job.compression.lifetime(request.ttl);
        let end = lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime));
        let value = Value::new(request.key, request.size, end, self.job.ledger);
        (value, end.map_or(Lifetime::Never, Lifetime::Until))
    }

    fn publish(&self) {
        let Outcome {
            hits,
            misses,
            sets,
            deletes,
            ..
        } = self.outcome;
        let sets_and_deletes = sets + deletes;
        let reads = hits + misses;
        self.progress.hits.store(hits, Relaxed);
        self.progress.reads.store(reads, Relaxed);
        self.progress.done.store(reads + sets_and_deletes, Relaxed);
    }
}

fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::Reaper;

    fn request(key: u64, at: u64, size: u32, ttl: u32, op: Op) -> Request {
        Request {
            key,
            at,
            size,
            ttl,
            op,
        }
    }

    fn run(requests: &[Request], passes: Option<u32>, speed: f64) -> (Outcome, Arc<Ledger>) {
        let store = Store::builder().reaper(Reaper::manual()).build().unwrap();
        let ledger = Ledger::new(Instant::now());
        let job = Job {
            requests,
            store: &store,
            ledger: &ledger,
            compression: Compression {
                speed,
                lifetime_factor: 1.0,
            },
            workers: 1,
            passes,
            start: Instant::now(),
            barrier: &Barrier::new(1),
        };
        let progress = Progress::default();
        let outcome = work(&job, 0, &progress);
        let every = requests.len() as u64 * u64::from(passes.unwrap_or(1));
        assert_eq!(progress.done.load(Relaxed), every);
        (outcome, ledger)
    }

    #[test]
    fn a_miss_is_filled_and_then_hit() {
        let fetch = |key| request(key, 0, 10, 0, Op::Fetch);
        let requests = [fetch(1), fetch(2), fetch(1), fetch(1)];
        let (outcome, ledger) = run(&requests, None, 1.0);
        assert_eq!((outcome.hits, outcome.misses), (2, 2));
        assert_eq!(
            (outcome.damaged, outcome.expired_reads, outcome.checked),
            (0, 0, 2)
        );
        assert_eq!((outcome.reads.len(), outcome.inserts.len()), (4, 2));
        assert_eq!((outcome.control.len(), outcome.behind.len()), (4, 4));
        assert_eq!(ledger.made(), 2);
    }

    #[test]
    fn a_trace_with_ops_fills_by_its_own_sets_alone() {
        let requests = [
            request(1, 0, 10, 0, Op::Get),
            request(1, 0, 10, 0, Op::Set),
            request(1, 0, 10, 0, Op::Get),
            request(1, 0, 0, 0, Op::Delete),
            request(1, 0, 10, 0, Op::Get),
        ];
        for passes in [None, Some(1)] {
            let (outcome, ledger) = run(&requests, passes, 1.0);
            assert_eq!((outcome.hits, outcome.misses), (1, 2));
            assert_eq!((outcome.sets, outcome.deletes), (1, 1));
            assert_eq!(ledger.made(), 1);
        }
    }

    #[test]
    fn requests_wait_for_their_time_and_lifetimes_end() {
        let fetch = |at_millis: u64| request(1, at_millis * 1_000_000, 10, 1, Op::Fetch);
        // 100 times faster: the lifetime of 1 s is 10 ms, the requests are due at 0, 1 and 30 ms.
        let requests = [fetch(0), fetch(100), fetch(3_000)];
        let begun = Instant::now();
        let (outcome, _) = run(&requests, None, 100.0);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(outcome.hits + outcome.misses, 3);
        assert!(outcome.misses >= 2, "the first and the last");
        assert_eq!(outcome.expired_reads, 0);
    }

    #[test]
    fn an_unpaced_run_times_one_request_in_64() {
        let requests = vec![request(1, u64::MAX / 2, 1, 0, Op::Fetch); 200];
        let (outcome, _) = run(&requests, Some(2), 1.0);
        assert_eq!((outcome.hits, outcome.misses), (399, 1));
        assert_eq!(outcome.reads.len(), 400 / TIMED_ONE_IN);
        assert_eq!(outcome.passes.len(), 2);
        assert_eq!(outcome.behind.len(), 0);
    }
}
