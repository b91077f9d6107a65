//! Saves a cache with its lifetimes, and loads it as another process would after a restart:
//! `cargo run --release --features serde --example snapshot`.

use std::error::Error;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use ebbtide::Cache;
use ebbtide::snapshot::{RestoreOptions, verify};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    user: u64,
    roles: Vec<String>,
}

/// To be changed together with [`Session`].
const SCHEMA: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let sessions: Cache<String, Session> = Cache::unbounded();
    for user in 0..100_000 {
        let session = Session {
            user,
            roles: vec!["reader".into()],
        };
        // Every fourth is over before it can be saved, or else before it can be loaded.
        let length = if user % 4 == 0 { 1 } else { 1_800_000 };
        sessions.insert_with_ttl(
            format!("session:{user}"),
            session,
            Duration::from_millis(length),
        );
    }

    // Beside the old one, then in its place: whoever reads it finds one or the other, whole.
    let path = std::env::temp_dir().join(format!("sessions-{}.snapshot", std::process::id()));
    let unfinished = path.with_extension("unfinished");
    let begin = Instant::now();
    let file = File::create(&unfinished)?;
    let saved = sessions.snapshot().schema(SCHEMA).write_to(&file)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    let (entries, bytes) = (saved.entries, saved.bytes);
    println!(
        "saved    {entries} entries, {bytes} bytes in {:.0?}",
        begin.elapsed()
    );

    // After the restart.
    let begin = Instant::now();
    verify(File::open(&path)?)?;
    println!("verified in {:.0?}", begin.elapsed());

    let begin = Instant::now();
    let sessions: Cache<String, Session> = Cache::unbounded();
    let options = RestoreOptions::new()
        .schema(SCHEMA)
        .spread(Duration::from_secs(60));
    let restored = sessions.load(File::open(&path)?, &options)?;
    println!("loaded   {restored:?} in {:.0?}", begin.elapsed());
    println!("         {:?}", sessions.get("session:4711"));
    println!("         lives for {:?}", sessions.ttl("session:4711"));

    // An old program's file is an error, and not a cache of nonsense.
    let error = sessions.load(File::open(&path)?, &options.schema(SCHEMA + 1));
    println!("refused  {}", error.unwrap_err());

    fs::remove_file(&path)?;
    Ok(())
}
