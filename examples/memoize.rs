//! A memoised function: each argument is computed once, whichever thread asks first.
//!
//! ```text
//! cargo run --example memoize
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ebbtide::Cache;

struct Collatz {
    steps: Cache<u64, u32>,
    computed: AtomicU64,
}

impl Collatz {
    /// Steps from `n` to 1, halving the even and taking the odd to 3n + 1. What it needs of other numbers
    /// it asks for in the same way.
    fn steps(&self, n: u64) -> u32 {
        if n == 1 {
            return 0;
        }
        self.steps.get_or_insert_with(n, || {
            self.computed.fetch_add(1, Ordering::Relaxed);
            1 + self.steps(if n.is_multiple_of(2) {
                n / 2
            } else {
                3 * n + 1
            })
        })
    }
}

fn main() {
    let collatz = Collatz {
        steps: Cache::unbounded(),
        computed: AtomicU64::new(0),
    };
    let longest = thread::scope(|scope| {
        let workers = [0, 1].map(|part| {
            let collatz = &collatz;
            scope.spawn(move || {
                let numbers = (1..10_000u64).filter(move |n| n % 2 == part);
                numbers.map(|n| (collatz.steps(n), n)).max()
            })
        });
        workers
            .into_iter()
            .filter_map(|worker| worker.join().unwrap())
            .max()
    });
    let (steps, n) = longest.expect("there are numbers");
    let computed = collatz.computed.load(Ordering::Relaxed);
    println!("of the numbers below 10,000 it is {n} that takes most steps: {steps}");
    println!("{computed} numbers were computed, each once");
    assert_eq!(
        (n, steps, computed),
        (6171, 261, collatz.steps.entry_count())
    );
}
