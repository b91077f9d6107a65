//! A rate limiter: so many requests of each client in a window that its first request begins.
//!
//! ```text
//! cargo run --example rate_limiter
//! ```

use std::time::Duration;

use ebbtide::{Cache, Counter, ManualClock};

struct Limiter {
    windows: Cache<String, Counter>,
    most: i64,
    window: Duration,
}

impl Limiter {
    /// Whether a client's request may pass. One compare-and-swap, unless it begins a window.
    fn admits(&self, client: &str) -> bool {
        // The lifetime counts only where this call creates the counter: later requests do not prolong
        // the window.
        let requests = self.windows.increment_with_ttl(client, 1, self.window);
        requests.is_ok_and(|requests| requests <= self.most)
    }
}

fn main() -> Result<(), ebbtide::BuildError> {
    // A clock that is moved by hand, so that this runs in no time; leave it out for the real one.
    let clock = ManualClock::new();
    let limiter = Limiter {
        windows: Cache::builder()
            .max_entries(1_000_000)
            .clock(clock.clone())
            .build()?,
        most: 5,
        window: Duration::from_secs(60),
    };
    let mut admitted = Vec::new();
    for second in 0..180 {
        if limiter.admits("203.0.113.7") {
            admitted.push(second);
        }
        clock.advance(Duration::from_secs(1));
    }
    println!("one request a second for three minutes; admitted at {admitted:?}");
    assert_eq!(
        admitted,
        [0, 1, 2, 3, 4, 60, 61, 62, 63, 64, 120, 121, 122, 123, 124]
    );
    Ok(())
}
