//! A primary and a follower whose clocks differ, fed by one log, end up with the same entries.
//!
//! ```text
//! cargo run --example follower
//! ```

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ebbtide::{Cache, Follower, Removal};

/// What goes over the wire: what the primary stored, and what has left it.
enum Message {
    Stored(u64, String, Duration),
    Left(Removal<u64>),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let primary: Cache<u64, String> = Cache::builder()
        .max_entries(100)
        .removal_feed(10_000)
        .build()?;
    let mut removals = primary.removals().expect("nobody else follows");
    let (wire, messages) = mpsc::channel();

    let follower: Follower<u64, String> = Cache::builder().build_follower()?;
    let following = thread::spawn(move || {
        for message in messages {
            match message {
                Message::Stored(key, value, lifetime) => {
                    // Its lifetime begins when the message comes in, so it would end later here.
                    follower.store_with_ttl(key, value, lifetime);
                }
                Message::Left(removal) => drop(follower.apply(&removal)),
            }
        }
        follower
    });
    let removed = {
        let wire = wire.clone();
        thread::spawn(move || {
            while let Some(removal) = removals.next_within(Duration::from_secs(60))? {
                // (The follower may have ended.)
                let _ = wire.send(Message::Left(removal));
            }
            Ok::<_, ebbtide::Lagged>(())
        })
    };

    for key in 0..1_000u64 {
        let (value, lifetime) = (format!("value {key}"), Duration::from_millis(key % 7 * 100));
        primary.insert_with_ttl(key, value.clone(), lifetime);
        wire.send(Message::Stored(key, value, lifetime))?;
    }
    // More than the primary may hold were evicted, and the others expire in their time.
    while primary.entry_count() > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    drop((primary, wire));
    removed.join().expect("it does not panic")?;
    let follower = following.join().expect("it does not panic");
    println!(
        "left here: {}, unmatched: {}",
        follower.entry_count(),
        follower.unmatched()
    );
    assert_eq!((follower.entry_count(), follower.unmatched()), (0, 0));
    Ok(())
}
