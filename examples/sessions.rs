//! A session store: a session ends half an hour after it was last used, and after twelve hours in any case; what
//! ends is told, with its cause.
//!
//! ```text
//! cargo run --example sessions
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{Cache, Lifetime, ManualClock, RemovalCause};

#[derive(Clone, Debug)]
struct Session {
    user: &'static str,
}

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<(), ebbtide::BuildError> {
    // A clock that is moved by hand, so that this runs in no time; leave it out for the real one, and
    // the call of `reap` with it.
    let clock = ManualClock::new();
    let ended = Arc::new(Mutex::new(Vec::new()));
    let journal = Arc::clone(&ended);
    let sessions: Cache<u64, Session> = Cache::builder()
        .time_to_idle(30 * MINUTE)
        .time_to_live(12 * 60 * MINUTE)
        .on_removal(move |_id, session: &Session, cause: RemovalCause| {
            journal.lock().unwrap().push((session.user, cause));
        })
        .clock(clock.clone())
        .build()?;

    sessions.insert(1, Session { user: "ada" });
    sessions.insert(2, Session { user: "grace" });
    sessions.insert(3, Session { user: "linus" });
    for minute in (0..).step_by(20) {
        // Ada keeps clicking; Grace went to lunch; Linus logs out.
        if sessions.get(&1).is_none() {
            println!("after {minute} minutes ada has to log in again");
            assert_eq!(minute, 12 * 60);
            break;
        }
        if minute == 20 {
            sessions.invalidate(&3);
        }
        clock.advance(20 * MINUTE);
        sessions.reap(Duration::from_millis(10));
    }
    sessions.reap(Duration::from_millis(10));
    let ended = ended.lock().unwrap();
    println!("ended: {ended:?}");
    use RemovalCause::{Expired, Explicit};
    assert_eq!(
        *ended,
        [("linus", Explicit), ("grace", Expired), ("ada", Expired)]
    );

    // "Stay logged in": this one has no deadline any more.
    sessions.insert(4, Session { user: "barbara" });
    assert!(sessions.persist(&4));
    assert_eq!(sessions.ttl(&4), Some(Lifetime::Never));
    Ok(())
}
