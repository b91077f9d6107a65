//! Redis as a reference: the server whose expiry everybody knows. It lives in another process and
//! answers over a socket, so that a call to it costs what a round trip costs, and its latencies are
//! compared with its own calm, not with those of a cache in the same process.

mod lag;
mod minute;
mod seeds;
mod server;
mod subject;

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::Options;
use crate::report::Report;

pub(crate) use subject::contender;

#[derive(Args, Debug)]
pub(crate) struct RedisArgs {
    /// Numbers of live one-hour entries beside which the reclaim lag is measured, separated by
    /// commas (default 0,10000,100000,1000000,10000000; with --quick 0,10000,100000)
    #[arg(long, value_delimiter = ',')]
    live: Option<Vec<u64>>,
    /// How much faster than the hour the library's traffic is (default 60; with --quick 180)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    speed: Option<u32>,
}

/// Both comparisons; nothing, with a line that says why, where there is no Redis.
pub(crate) fn run(options: &Options, args: &RedisArgs) -> Result<Option<Report>, Box<dyn Error>> {
    let found = match server::find() {
        Ok(found) => found,
        Err(missing) => {
            println!("Redis is skipped: {missing}.");
            return Ok(None);
        }
    };
    let mut report = Report::new("redis");
    println!(
        "{}, without persistence, over a socket of this machine\n",
        server::version(&found)?
    );
    lag::compare(options, args.live.as_deref(), &mut report)?;
    let speed = args.speed.unwrap_or(if options.quick { 180 } else { 60 });
    minute::compare(options, speed, &mut report)?;
    Ok(Some(report))
}

/// Milliseconds of the wall clock, in which Redis keeps deadlines.
fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
