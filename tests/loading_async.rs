//! Loads in tasks, under two executors: `cargo test --features async --test loading_async`.
#![cfg(feature = "async")]

use std::future::{self, Future};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, ManualClock, Turn};
use futures_util::FutureExt;
use futures_util::future::join_all;

/// Gives way so many times.
fn turns(times: usize) -> impl Future<Output = ()> {
    let mut left = times;
    future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

type Task = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Runs tasks side by side to their ends, and returns what they answered.
type RunAll = fn(Vec<Task>) -> Vec<u64>;

fn on_tokio(tasks: Vec<Task>) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let handles = tasks.into_iter().map(tokio::spawn);
        let answers = join_all(handles.collect::<Vec<_>>());
        let answers = tokio::time::timeout(Duration::from_secs(60), answers).await;
        let answers = answers.expect("it hangs");
        answers.into_iter().map(Result::unwrap).collect()
    })
}

fn on_a_thread_pool(tasks: Vec<Task>) -> Vec<u64> {
    let pool = futures_executor::ThreadPool::builder()
        .pool_size(4)
        .create()
        .unwrap();
    let (answer, answers) = std::sync::mpsc::channel();
    let count = tasks.len();
    for task in tasks {
        let answer = answer.clone();
        pool.spawn_ok(async move { answer.send(task.await).unwrap() });
    }
    let next = || {
        answers
            .recv_timeout(Duration::from_secs(60))
            .expect("it hangs")
    };
    (0..count).map(|_| next()).collect()
}

const EXECUTORS: [RunAll; 2] = [on_tokio, on_a_thread_pool];

#[test]
fn of_many_tasks_and_threads_one_loads() {
    for run_all in EXECUTORS {
        let cache: Cache<u64, u64> = Cache::new(1_000);
        let loads = Arc::new(AtomicUsize::new(0));
        for key in 0..20 {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (cache, loads) = (cache.clone(), loads.clone());
                    thread::spawn(move || {
                        cache.get_or_insert_with(key, || {
                            thread::sleep(Duration::from_millis(1));
                            loads.fetch_add(1, Ordering::SeqCst);
                            key + 1
                        })
                    })
                })
                .collect();
            let tasks = (0..50).map(|_| {
                let (cache, loads) = (cache.clone(), loads.clone());
                Box::pin(async move {
                    let load = async {
                        turns(5).await;
                        loads.fetch_add(1, Ordering::SeqCst);
                        key + 1
                    };
                    cache.get_or_insert_async(key, load).await
                }) as Task
            });
            assert_eq!(run_all(tasks.collect()), [key + 1; 50]);
            for thread in threads {
                assert_eq!(thread.join().unwrap(), key + 1);
            }
            assert_eq!(loads.swap(0, Ordering::SeqCst), 1, "key {key}");
        }
    }
}

#[test]
fn errors_and_panics_are_the_leaders_and_somebody_takes_over() {
    for run_all in EXECUTORS {
        let cache: Cache<&str, u64> = Cache::new(10);
        let turn = Arc::new(AtomicUsize::new(0));
        let tasks = (0..8).map(|_| {
            let (cache, turn) = (cache.clone(), turn.clone());
            Box::pin(async move {
                let load = async {
                    let turn = turn.fetch_add(1, Ordering::SeqCst);
                    turns(10).await;
                    match turn {
                        0 | 2 => Err(()),
                        1 | 3 => panic!("turn {turn}"),
                        _ => Ok(7),
                    }
                };
                let load = cache.try_get_or_insert_async("k", load);
                match AssertUnwindSafe(load).catch_unwind().await {
                    Ok(Ok(value)) => value,
                    Ok(Err(())) => 100,
                    Err(_panic) => 200,
                }
            }) as Task
        });
        let mut answers = run_all(tasks.collect());
        answers.sort_unstable();
        assert_eq!(answers, [7, 7, 7, 7, 100, 100, 200, 200]);
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<F: Future + ?Sized>(task: Pin<&mut F>, bell: &Arc<Bell>) -> Poll<F::Output> {
    task.poll(&mut Context::from_waker(&Waker::from(bell.clone())))
}

#[test]
fn a_load_that_is_dropped_in_mid_flight_is_somebody_elses() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let bells: [Arc<Bell>; 3] = Default::default();
    let mut leader = Box::pin(cache.get_or_insert_async(1, future::pending()));
    let mut dropped = Box::pin(cache.get_or_insert_async(1, async { 2 }));
    let mut waiter = Box::pin(cache.get_or_insert_async(1, async { 3 }));
    assert!(poll(leader.as_mut(), &bells[0]).is_pending());
    assert!(poll(dropped.as_mut(), &bells[1]).is_pending());
    assert!(poll(waiter.as_mut(), &bells[2]).is_pending());
    // Whoever stops waiting is not woken, and keeps nobody from taking over.
    drop(dropped);
    drop(leader);
    assert_eq!(bells[1].0.load(Ordering::SeqCst), 0);
    assert_eq!(bells[2].0.load(Ordering::SeqCst), 1);
    assert_eq!(poll(waiter.as_mut(), &bells[2]), Poll::Ready(3));
    assert_eq!(cache.get(&1), Some(3));
    // Who comes later, with nobody in between.
    let mut alone = Box::pin(cache.get_or_insert_async(2, future::pending()));
    assert!(poll(alone.as_mut(), &bells[0]).is_pending());
    drop(alone);
    assert_eq!(
        cache.get_or_insert_async(2, async { 4 }).now_or_never(),
        Some(4)
    );
}

#[test]
fn the_last_waker_is_the_one_that_counts() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let (old, new): (Arc<Bell>, Arc<Bell>) = Default::default();
    let Turn::Load(loading) = cache.get_or_load(1, None) else {
        panic!("nobody has it");
    };
    // (Polled on another thread: on this one the load would be its own.)
    let (polled, load) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let other = scope.spawn({
            let (polled, load, old, new, cache) = (&polled, &load, &old, &new, &cache);
            move || {
                let mut waiter = pin!(cache.get_or_insert_async(1, async { 2 }));
                assert!(poll(waiter.as_mut(), old).is_pending());
                assert!(poll(waiter.as_mut(), new).is_pending());
                polled.wait();
                load.wait();
                poll(waiter.as_mut(), new)
            }
        });
        polled.wait();
        loading.insert(5);
        load.wait();
        assert_eq!(other.join().unwrap(), Poll::Ready(5));
    });
    assert_eq!(old.0.load(Ordering::SeqCst), 0);
    assert_eq!(new.0.load(Ordering::SeqCst), 1);
}

/// Executors poll with another waker each time, and threads load at the same time: nobody sleeps on.
#[test]
fn wakers_that_change_between_check_and_registration_are_woken() {
    let cache: Cache<u64, u64> = Cache::new(100_000);
    for key in 0..3_000 {
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                cache.get_or_insert_with(key, || key + 1)
            });
            begin.wait();
            let value = futures_executor::block_on(cache.get_or_insert_async(key, async {
                turns(1).await;
                key + 1
            }));
            assert_eq!(value, key + 1);
        });
    }
}

#[test]
fn a_recursive_load_panics_at_once() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let inner = cache.clone();
    let load =
        cache.get_or_insert_async(
            1,
            async move { inner.get_or_insert_async(1, async { 2 }).await },
        );
    let panic = AssertUnwindSafe(load).catch_unwind().now_or_never();
    let panic = panic.expect("at once").unwrap_err();
    let said = panic.downcast_ref::<String>().expect("a message");
    assert!(said.contains("recursive load"), "{said}");
    // By way of a thread's call, too.
    let inner = cache.clone();
    let mixed = cache.get_or_insert_async(1, async move {
        match inner.get_or_load(1, None) {
            Turn::Recursive => 3,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(mixed.now_or_never(), Some(3));
}

#[test]
fn an_invalidation_during_a_load_wins() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let bell = Arc::new(Bell::default());
    let mut leader = Box::pin(cache.get_or_insert_async(1, async {
        turns(1).await;
        1
    }));
    assert!(poll(leader.as_mut(), &bell).is_pending());
    assert!(!cache.invalidate(&1));
    assert_eq!(poll(leader.as_mut(), &bell), Poll::Ready(1));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_stale_value_is_served_at_once_and_loaded_again_by_a_task_of_its_own() {
    for run_all in [on_tokio as RunAll, on_a_thread_pool] {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .clock(clock.clone())
            .refresh_after(Duration::from_secs(5))
            .build()
            .unwrap();
        type Job = Pin<Box<dyn Future<Output = ()> + Send>>;
        let jobs: Arc<Mutex<Vec<Job>>> = Arc::default();
        let ask = |loaded: u64| -> Task {
            let (cache, jobs) = (cache.clone(), Arc::clone(&jobs));
            Box::pin(async move {
                let spawn = |job| jobs.lock().unwrap().push(job);
                let load = async move {
                    turns(3).await;
                    loaded
                };
                cache.get_or_refresh_async(1, spawn, load).await
            })
        };
        assert_eq!(run_all(vec![ask(10)]), [10]);
        assert!(jobs.lock().unwrap().is_empty(), "loaded in the task itself");
        clock.advance(Duration::from_secs(5));
        assert_eq!(run_all((0..100).map(|_| ask(11)).collect()), [10; 100]);
        let mut given = std::mem::take(&mut *jobs.lock().unwrap());
        assert_eq!(given.len(), 1);
        let job = given.pop().unwrap();
        run_all(vec![Box::pin(async move {
            job.await;
            0
        })]);
        assert_eq!(cache.get(&1), Some(11));
        assert_eq!(run_all(vec![ask(12)]), [11]);
    }
}

#[test]
fn each_result_can_have_a_lifetime_of_its_own() {
    let clock = ManualClock::new();
    let cache: Cache<u64, Option<u64>> = Cache::builder().clock(clock.clone()).build().unwrap();
    let second = Duration::from_secs(1);
    let ask = |key: u64| {
        let load = async move {
            let found = (key > 0).then_some(key);
            (found, if found.is_some() { 60 * second } else { second })
        };
        let ask = cache.get_or_insert_async_with_ttl(key, load);
        ask.now_or_never().expect("nothing to wait for")
    };
    assert_eq!((ask(0), ask(7)), (None, Some(7)));
    clock.advance(second);
    assert_eq!((cache.get(&0), cache.get(&7)), (None, Some(Some(7))));
}
