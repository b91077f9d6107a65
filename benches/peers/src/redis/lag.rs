//! How long after its deadline a key is deleted, beside many live ones; the same for ebbtide.
//!
//! Redis says when: it notifies of every key that it deletes because it has expired.

use std::error::Error;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline};

use super::server::{Server, failed};
use super::unix_millis;
use crate::Options;
use crate::child::{Answer, ask, figures};
use crate::keys::{count_name, shuffled};
use crate::lag::METRICS;
use crate::report::{EBBTIDE, Figure, Report};

/// From one key's deadline to the next one's.
const STEP: u64 = 10;
/// How long after the last deadline a key that is still there counts as never deleted.
const PATIENCE: Duration = Duration::from_secs(20);
const HOUR: u64 = 3_600_000;
const NAME: &str = "Redis";

pub(super) fn compare(
    options: &Options,
    live: Option<&[u64]>,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let usual: &[u64] = match options.quick {
        true => &[0, 10_000, 100_000],
        false => &[0, 10_000, 100_000, 1_000_000, 10_000_000],
    };
    let probes: u64 = if options.quick { 200 } else { 1_000 };
    let rounds = options.rounds_or(if options.quick { 1 } else { 3 });
    println!(
        "From the deadline of a key to its deletion, as Redis notifies of it: {probes} keys with deadlines {STEP} ms apart,"
    );
    println!(
        "beside live one-hour keys; nobody calls. {rounds} round(s) in turn, a fresh server or process each. inf: not within\n{} s of the last deadline.\n",
        PATIENCE.as_secs()
    );
    for &live in live.unwrap_or(usual) {
        let mut redis = Vec::new();
        let mut ours = Vec::new();
        for _ in 0..rounds {
            redis.push(probe(live, probes)?);
            if cfg!(feature = "ebbtide") && options.wants(EBBTIDE) {
                let arguments = [
                    ("contender", EBBTIDE.to_owned()),
                    ("live", live.to_string()),
                    ("probes", probes.to_string()),
                    ("step", STEP.to_string()),
                ];
                ours.push(ask("lag", &arguments)?);
            }
        }
        let case = format!("reclaim lag beside {} live entries", count_name(live));
        for (name, answers) in [(EBBTIDE, &ours), (NAME, &redis)] {
            if answers.is_empty() {
                continue;
            }
            for (metric, field) in METRICS {
                report.add(Figure {
                    case: case.clone(),
                    contender: name.to_owned(),
                    base: EBBTIDE,
                    metric,
                    rounds: answers.iter().map(|answer| answer[field]).collect(),
                });
            }
        }
        report.print_case(&case, &METRICS.map(|(metric, _)| metric), "p99, ms");
    }
    Ok(())
}

/// Sets keys, many at a time.
fn fill(
    connection: &mut Connection,
    keys: impl Iterator<Item = (String, u64)>,
) -> Result<(), String> {
    let mut together = Pipeline::new();
    let mut waiting = 0;
    for (key, deadline) in keys {
        let set = together.cmd("SET").arg(key).arg(&[1u8; 24]);
        set.arg("PXAT").arg(deadline).ignore();
        waiting += 1;
        if waiting == 1_000 {
            together.exec(connection).map_err(|error| failed(&error))?;
            together.clear();
            waiting = 0;
        }
    }
    if waiting > 0 {
        together.exec(connection).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn probe(live: u64, probes: u64) -> Result<Answer, String> {
    let server = Server::start()?;
    let mut connection = server.connect()?;
    let hours = unix_millis() + HOUR;
    fill(
        &mut connection,
        (0..live).map(|i| (format!("live:{i}"), hours)),
    )?;

    let mut listening = server.connect()?;
    let mut deletions = listening.as_pubsub();
    let failed = |error: redis::RedisError| failed(&error);
    deletions
        .subscribe("__keyevent@0__:expired")
        .map_err(failed)?;
    let first = unix_millis() + 500;
    let deadline = |place: u64| first + STEP * place;
    let order = shuffled(probes as usize, 51).into_iter().map(u64::from);
    fill(
        &mut connection,
        order.map(|place| (format!("probe:{place}"), deadline(place))),
    )?;

    let (began, cpu) = (Instant::now(), server.cpu_time());
    let end =
        began + Duration::from_millis(deadline(probes).saturating_sub(unix_millis())) + PATIENCE;
    let mut lags = Vec::new();
    while lags.len() < probes as usize {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        deletions.set_read_timeout(Some(left)).map_err(failed)?;
        let message = match deletions.get_message() {
            Ok(message) => message,
            Err(error) if error.is_timeout() => break,
            Err(error) => return Err(failed(error)),
        };
        let now = unix_millis();
        let key: String = message.get_payload().map_err(failed)?;
        let place = key
            .strip_prefix("probe:")
            .and_then(|place| place.parse().ok());
        if let Some(place) = place {
            lags.push(now as i64 - deadline(place) as i64);
        }
    }
    let share = (server.cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    lags.sort_unstable();
    // Those that were never deleted are the slowest of all.
    let millis = |quantile: f64| {
        let index = (quantile * probes as f64).ceil() as usize;
        lags.get(index.saturating_sub(1))
            .map_or(f64::INFINITY, |&lag| lag as f64)
    };
    Ok(figures([
        ("p50", millis(0.5)),
        ("p99", millis(0.99)),
        ("max", millis(1.0)),
        ("early", lags.iter().filter(|&&lag| lag < 0).count() as f64),
        ("missing", (probes as usize - lags.len()) as f64),
        ("cpu", 100.0 * share),
        ("own-p50", f64::NAN),
        ("own-p99", f64::NAN),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_tells_of_every_probe_where_it_is_installed() {
        if let Err(missing) = super::super::server::find() {
            println!("skipped: {missing}");
            return;
        }
        let answer = probe(100, 20).unwrap();
        assert_eq!(
            (answer["missing"], answer["early"]),
            (0.0, 0.0),
            "{answer:?}"
        );
        assert!(answer["p50"] <= answer["p99"], "{answer:?}");
    }
}
