//! A cache's numbers in Prometheus's text format, through the `metrics` facade:
//!
//! ```text
//! cargo run --example metrics --features metrics
//! ```
//!
//! A service would render on each scrape, in its own HTTP handler: `export_metrics` first, then `render`.
//! Any other recorder of the facade works the same way.

use std::thread;
use std::time::{Duration, Instant};

use ebbtide::Cache;
use metrics_exporter_prometheus::PrometheusBuilder;

/// How long the traffic goes on.
const TRAFFIC: Duration = Duration::from_millis(600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    ebbtide::metrics::describe();

    let cache: Cache<u64, String> = Cache::builder()
        .max_entries(10_000)
        .record_stats(true)
        .name("sessions")
        .build()?;

    // Sessions of 50 to 850 ms, read while they last and a little longer.
    let begin = Instant::now();
    let mut key = 0;
    while begin.elapsed() < TRAFFIC {
        for _ in 0..20 {
            let lifetime = Duration::from_millis(50 + key % 9 * 100);
            cache.insert_with_ttl(key, format!("session {key}"), lifetime);
            let earlier = key.saturating_sub(key % 4_000);
            let _ = cache.get(&earlier);
            key += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }

    cache.export_metrics();
    print!("{}", prometheus.render());
    Ok(())
}
