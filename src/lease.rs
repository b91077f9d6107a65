//! A published time, for caches that would rather trust a thread than ask a clock at every hit.
//!
//! One thread of the process, the *publisher*, stores the time every so often. A cache with a lease
//! takes an entry to be alive without asking any clock if its deadline is farther than the lease
//! beyond what was last published. That is exact as long as the publisher is never later than the
//! lease, of which its period is a quarter; see [`Builder::clock_lease`](crate::Builder::clock_lease)
//! for what this asks of the machine.
//!
//! What could make an old time look like the present one, and why it does not:
//!
//! - user code on the publishing thread: there is none, it does nothing else;
//! - the thread's end: it ends when the last lease is given up, which takes the publication back
//!   first ([`REVOKED`]); it cannot panic;
//! - a publisher that was late and wakes after its publication was taken back: it publishes under
//!   the lock, and only if it is still the one;
//! - a fork: the child, which has no publisher, takes the publication back before it runs; one that it
//!   starts later serves the leases from before the fork as well;
//! - clocks of the user's own: they cannot be leased.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::nanos;
use crate::sync::{forks, watch_forks, without_fork};

/// Nothing is published: a time later than any deadline (292 years), so that nothing is taken to
/// be alive because of it.
const REVOKED: u64 = 1 << 63;

/// The time of the last publication, counted from [`BASE`].
static PUBLISHED: AtomicU64 = AtomicU64::new(REVOKED);

/// Where published times are counted from.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

static PUBLISHER: Mutex<Publisher> = Mutex::new(Publisher {
    leases: Vec::new(),
    number: 0,
    thread: None,
    process: 0,
});

struct Publisher {
    /// The lengths of all leases, in no order.
    leases: Vec<Duration>,
    /// Which publisher of the process is the present one.
    number: u64,
    thread: Option<JoinHandle<()>>,
    /// In which process of a forking family it lives.
    process: u64,
}

impl Publisher {
    /// In a forked child: the thread is not here. The leases are, as the caches of before are.
    fn forget_another_process(&mut self) {
        if self.process != forks() {
            self.process = forks();
            // Neither to be joined nor detached.
            std::mem::forget(self.thread.take());
        }
    }
}

/// A cache's lease.
#[derive(Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// What is added to a published time to get the cache's own time at the end of the lease,
    /// modulo 2^64.
    slack: u64,
}

impl Lease {
    /// A lease for a cache whose clock begins at `begin`, which is in the past. Starts the publisher
    /// if there is none; an error if the thread cannot be had.
    pub(crate) fn new(begin: Instant, length: Duration) -> Result<Self, String> {
        watch_forks();
        let begin = match begin.checked_duration_since(*BASE) {
            Some(later) => nanos(later),
            None => nanos(BASE.duration_since(begin)).wrapping_neg(),
        };
        without_fork(|| {
            let mut publisher = lock();
            publisher.forget_another_process();
            publisher.leases.push(length);
            if publisher.thread.is_none() {
                publisher.number += 1;
                let number = publisher.number;
                let started = thread::Builder::new()
                    .name("ebbtide time".into())
                    .spawn(move || publish_while_current(number));
                match started {
                    Ok(thread) => publisher.thread = Some(thread),
                    Err(reason) => {
                        publisher.leases.pop();
                        return Err(reason.to_string());
                    }
                }
            } else if let Some(thread) = &publisher.thread {
                // The new lease may be shorter than the others.
                thread.thread().unpark();
            }
            publish();
            Ok(Lease {
                length,
                slack: nanos(length).wrapping_sub(begin),
            })
        })
    }

    /// Whether the time `word` of the cache's clock is farther than the lease beyond the last
    /// publication.
    #[inline]
    pub(crate) fn covers(&self, word: u64) -> bool {
        // Relaxed: only the number counts, and a thread never sees it go back. It has been
        // published since this cache began, so the sum is at least the lease.
        PUBLISHED.load(Ordering::Relaxed).wrapping_add(self.slack) < word
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let thread = without_fork(|| {
            let mut publisher = lock();
            publisher.forget_another_process();
            let at = publisher.leases.iter().position(|&l| l == self.length);
            publisher.leases.swap_remove(at.expect("added by `new`"));
            if !publisher.leases.is_empty() {
                return None;
            }
            publisher.number += 1;
            revoke();
            publisher.thread.take()
        });
        if let Some(thread) = thread {
            thread.thread().unpark();
            // It cannot have panicked.
            let _ = thread.join();
        }
    }
}

/// Takes the publication back: nobody is going to renew it.
pub(crate) fn revoke() {
    PUBLISHED.store(REVOKED, Ordering::Relaxed);
}

fn publish() {
    PUBLISHED.store(nanos(BASE.elapsed()), Ordering::Relaxed);
}

fn lock() -> MutexGuard<'static, Publisher> {
    PUBLISHER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn publish_while_current(number: u64) {
    while let Some(period) = without_fork(|| publish_if_current(number)) {
        thread::park_timeout(period);
    }
}

/// Publishes, and says when to do so again; `None` if this publisher has been dismissed.
fn publish_if_current(number: u64) -> Option<Duration> {
    let publisher = lock();
    if publisher.number != number {
        return None;
    }
    publish();
    publisher.leases.iter().min().map(|&shortest| shortest / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_beyond_the_lease_is_taken_for_alive() {
        let begin = Instant::now();
        let length = Duration::from_secs(3600);
        let before = nanos(begin.elapsed());
        let lease = Lease::new(begin, length).unwrap();
        let after = nanos(begin.elapsed());
        // Published between `before` and `after`, or since: at the earliest an hour from `before`.
        assert!(!lease.covers(0));
        assert!(!lease.covers(1));
        assert!(!lease.covers(before + nanos(length)));
        assert!(lease.covers(after + 100 * nanos(length)));

        let second = Lease::new(begin, Duration::from_secs(7200)).unwrap();
        assert!(!second.covers(before + 2 * nanos(length)));
        drop(lease);
        assert!(
            second.covers(after + 100 * nanos(length)),
            "still published"
        );

        // A publisher of before, which was late.
        let number = lock().number;
        drop(second);
        assert_eq!(publish_if_current(number), None);
        assert_eq!(PUBLISHED.load(Ordering::Relaxed), REVOKED);

        let third = Lease::new(begin, length).unwrap();
        assert!(third.covers(200 * nanos(length)));
        revoke();
        assert!(!third.covers(200 * nanos(length)));
        assert_eq!(publish_if_current(number), None, "dismissed for good");
        assert!(!third.covers(200 * nanos(length)));
    }
}
