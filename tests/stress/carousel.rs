//! Caches that are replaced, and end, while threads are busy with them and others.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::books::Random;
use crate::round::{Plan, Rig, join};
use crate::worker::Worker;

/// Caches at a time.
const PLACES: u64 = 3;
const THREADS: u64 = 4;

/// Operations of one thread on one cache before it looks for another.
const BURST: u64 = 150;

type Place = Mutex<Arc<Rig>>;

/// Lets go of a cache; whoever is the last ends it and looks into its books.
fn let_go(rig: Arc<Rig>, ended: &AtomicU64) {
    if let Some(rig) = Arc::into_inner(rig) {
        rig.end();
        ended.fetch_add(1, SeqCst);
    }
}

fn new_rig(random: &mut Random) -> Arc<Rig> {
    let mut plan = Plan::new(random.next() >> 8);
    // As many as may be busy with it.
    plan.threads = THREADS;
    Arc::new(Rig::new(plan))
}

pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let places: Arc<Vec<Place>> = Arc::new(
        (0..PLACES)
            .map(|_| Mutex::new(new_rig(&mut random)))
            .collect(),
    );
    let (made, ended) = (
        Arc::new(AtomicU64::new(PLACES)),
        Arc::new(AtomicU64::new(0)),
    );
    let bursts = (crate::operations() / BURST / THREADS).max(4);
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let places = Arc::clone(&places);
            let (made, ended) = (Arc::clone(&made), Arc::clone(&ended));
            let mut random = Random::new(seed ^ (i + 1) << 56);
            thread::spawn(move || {
                for _ in 0..bursts {
                    let place = &places[random.below(PLACES) as usize];
                    if random.one_in(6) {
                        let new = new_rig(&mut random);
                        made.fetch_add(1, SeqCst);
                        let old = std::mem::replace(&mut *place.lock().unwrap(), new);
                        let_go(old, &ended);
                    }
                    let rig = Arc::clone(&place.lock().unwrap());
                    let mut worker = Worker::new(&rig, Random::new(random.next()));
                    for _ in 0..BURST {
                        worker.step();
                    }
                    drop(worker);
                    let_go(rig, &ended);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(join);
    let places = Arc::into_inner(places).expect("the threads are gone");
    for place in places {
        let_go(place.into_inner().unwrap(), &ended);
    }
    assert_eq!(ended.load(SeqCst), made.load(SeqCst), "a cache is left");
}
