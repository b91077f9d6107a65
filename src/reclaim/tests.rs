use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::epoch::Domain;
use super::{advance, begin, pin};

/// A domain of a test's own, as lasting as the process's. (Leak checkers find it here.)
fn for_ever() -> &'static Domain {
    static ALL: Mutex<Vec<&'static Domain>> = Mutex::new(Vec::new());
    let domain = Box::leak(Box::new(Domain::new()));
    ALL.lock().unwrap().push(domain);
    domain
}

/// Other tests pin the same domain for moments: asks until the answer is yes, or hopeless.
fn comes_to_be(mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        advance();
        if is_so() || begin.elapsed() > Duration::from_secs(30) {
            return is_so();
        }
        thread::yield_now();
    }
}

#[test]
fn a_grace_period_lasts_as_long_as_the_pins_from_before() {
    let outer = pin();
    let inner = pin();
    let began = begin();
    advance();
    assert!(!began.is_over());
    // Pins nest: the outermost counts, in whatever order they end.
    drop(outer);
    advance();
    assert!(!began.is_over());
    drop(inner);
    let _later = pin();
    assert!(comes_to_be(|| began.is_over()));
}

#[test]
fn a_pin_is_let_go_by_repin_unless_it_is_nested() {
    let mut first = pin();
    let mut second = pin();
    let began = begin();
    second.repin();
    advance();
    assert!(!began.is_over());
    drop(second);
    first.repin();
    assert!(comes_to_be(|| began.is_over()));
}

#[test]
fn threads_that_end_leave_their_records_to_others() {
    let domain = for_ever();
    let barrier = Barrier::new(4);
    for _ in 0..100 {
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let record = domain.acquire();
                    record.enter(domain);
                    barrier.wait();
                    record.leave();
                    record.give_back();
                });
            }
        });
    }
    assert_eq!(domain.records(), 4);
}

#[test]
fn a_record_is_not_given_to_another_while_a_pin_is_held() {
    let domain = for_ever();
    let record = domain.acquire();
    record.enter(domain);
    record.give_back();
    assert!(!std::ptr::eq(record, domain.acquire()));
    let began = domain.begin();
    domain.advance();
    assert!(!domain.is_over(began));
    record.leave();
    domain.advance();
    assert!(domain.is_over(began));
    assert!(std::ptr::eq(record, domain.acquire()));
}

#[test]
fn a_thread_can_pin_until_its_very_end() {
    struct PinsWhenDropped(std::sync::mpsc::Sender<bool>);
    impl Drop for PinsWhenDropped {
        fn drop(&mut self) {
            let guard = pin();
            let began = begin();
            advance();
            let held = !began.is_over();
            drop(guard);
            let _ = self.0.send(held && comes_to_be(|| began.is_over()));
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Vec<PinsWhenDropped>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let (sender, receiver) = channel();
    for pins_first in [false, true] {
        let sender = sender.clone();
        thread::spawn(move || {
            // Destructors of thread-locals run in the order of their registration, or its reverse.
            if pins_first {
                drop(pin());
            }
            LATE.with(|late| late.borrow_mut().push(PinsWhenDropped(sender)));
            drop(pin());
        })
        .join()
        .unwrap();
        assert!(receiver.recv().unwrap());
    }
}

#[test]
fn a_child_of_a_fork_does_not_wait_for_threads_that_it_lacks() {
    // (What the handler does; a real fork is in tests/cases_fork.rs.)
    let domain = for_ever();
    let (own, other) = (domain.acquire(), domain.acquire());
    own.enter(domain);
    other.enter(domain);
    other.enter(domain);
    let began = domain.begin();
    domain.forget_others(Some(own));
    domain.advance();
    assert!(!domain.is_over(began));
    own.leave();
    domain.advance();
    assert!(domain.is_over(began));
    // The record of the thread that is gone is free, and clean.
    assert!(std::ptr::eq(other, domain.acquire()));
    other.enter(domain);
    let began = domain.begin();
    domain.advance();
    assert!(!domain.is_over(began));
    other.leave();
    domain.advance();
    assert!(domain.is_over(began));
}
