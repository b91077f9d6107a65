//! What one call costs, ebbtide alone: `cargo bench --bench operations`. The comparison with other
//! caches and maps is in `benches/peers`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ebbtide::{Cache, Counter, ManualClock, Op, Tags};

const HOUR: Duration = Duration::from_secs(3600);

/// Keys in an order that no prefetcher foresees (xorshift64).
struct Keys {
    state: u64,
    below: u64,
}

impl Keys {
    fn below(below: u64) -> Self {
        Keys {
            state: 88_172_645_463_325_252,
            below,
        }
    }

    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % self.below
    }
}

fn filled(entries: u64, lifetime: Option<Duration>, lease: Option<Duration>) -> Cache<u64, u64> {
    let mut builder = Cache::builder();
    if let Some(lifetime) = lifetime {
        builder = builder.time_to_live(lifetime);
    }
    if let Some(lease) = lease {
        builder = builder.clock_lease(lease);
    }
    let cache = builder.build().expect("valid settings");
    for key in 0..entries {
        cache.insert(key, key);
    }
    cache
}

fn reads(criterion: &mut Criterion) {
    for entries in [1_000, 100_000, 1_000_000] {
        let mut group = criterion.benchmark_group(format!("read/{entries}"));
        group.throughput(Throughput::Elements(1));
        let second = Some(Duration::from_secs(1));
        for (name, lifetime, lease) in [
            ("forever", None, None),
            ("an hour", Some(HOUR), None),
            ("an hour, clock leased", Some(HOUR), second),
        ] {
            let cache = filled(entries, lifetime, lease);
            let mut keys = Keys::below(entries);
            group.bench_function(BenchmarkId::new("get", name), |b| {
                b.iter(|| cache.get(black_box(&keys.draw())));
            });
            group.bench_function(BenchmarkId::new("get absent", name), |b| {
                b.iter(|| cache.get(black_box(&(entries + keys.draw()))));
            });
            let pinned = cache.pin();
            group.bench_function(BenchmarkId::new("pinned get", name), |b| {
                b.iter(|| pinned.get(black_box(&keys.draw())).copied());
            });
            drop(pinned);
            group.throughput(Throughput::Elements(64));
            group.bench_function(BenchmarkId::new("get_many of 64", name), |b| {
                b.iter(|| {
                    let wanted: [u64; 64] = std::array::from_fn(|_| keys.draw());
                    cache.get_many(&wanted)
                });
            });
            group.throughput(Throughput::Elements(1));
        }
        group.finish();
    }
}

fn writes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(1));
    for (name, lifetime) in [("forever", None), ("an hour", Some(HOUR))] {
        group.bench_function(BenchmarkId::new("fresh, growing to 1,000,000", name), |b| {
            b.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                let mut left = iterations;
                while left > 0 {
                    let cache = filled(0, lifetime, None);
                    let some = left.min(1_000_000);
                    let begin = Instant::now();
                    for key in 0..some {
                        cache.insert(key, key);
                    }
                    spent += begin.elapsed();
                    left -= some;
                }
                spent
            });
        });
        let cache = filled(100_000, lifetime, None);
        let mut keys = Keys::below(100_000);
        group.bench_function(BenchmarkId::new("replace", name), |b| {
            b.iter(|| cache.insert(keys.draw(), 1));
        });
        group.bench_function(BenchmarkId::new("remove and insert", name), |b| {
            b.iter(|| {
                let key = keys.draw();
                cache.remove(&key);
                cache.insert(key, 1);
            });
        });
        group.bench_function(BenchmarkId::new("compute", name), |b| {
            b.iter(|| {
                cache.compute(keys.draw(), |value| {
                    Op::Put(value.copied().unwrap_or(0) + 1)
                })
            });
        });
    }
    let cache = filled(1_000_000, None, None);
    let mut keys = Keys::below(1_000_000);
    group.throughput(Throughput::Elements(64));
    for (name, together) in [("one by one", false), ("insert_many", true)] {
        group.bench_function(BenchmarkId::new("replace 64 of 1,000,000", name), |b| {
            b.iter(|| {
                let pairs: [(u64, u64); 64] = std::array::from_fn(|_| (keys.draw(), 1));
                if together {
                    cache.insert_many(pairs);
                } else {
                    for (key, value) in pairs {
                        cache.insert(key, value);
                    }
                }
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    let counters: Cache<u64, Counter> = Cache::unbounded();
    group.bench_function("increment one counter", |b| {
        b.iter(|| counters.increment(&1, 1));
    });
    group.finish();
}

/// Hits of the calls that would load.
fn loads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("load");
    let cache: Cache<u64, u64> = Cache::builder()
        .refresh_after(HOUR)
        .build()
        .expect("valid settings");
    cache.insert_many((0..1_000).map(|key| (key, key)));
    let mut keys = Keys::below(1_000);
    group.bench_function("get", |b| b.iter(|| cache.get(&keys.draw())));
    group.bench_function("get_or_insert_with, a hit", |b| {
        b.iter(|| cache.get_or_insert_with(keys.draw(), || unreachable!()));
    });
    group.bench_function("get_or_refresh_with, a fresh hit", |b| {
        b.iter(|| cache.get_or_refresh_with(keys.draw(), || unreachable!()));
    });
    group.bench_function("get_or_insert_with, a miss that is not kept", |b| {
        b.iter(|| cache.get_or_insert_with_ttl(1_000, || (1, Duration::ZERO)));
    });
    group.bench_function("entry, and_modify", |b| {
        b.iter(|| {
            let entry = cache.entry(keys.draw());
            entry.and_modify(|value| value + 1).or_insert(1)
        });
    });
    group.finish();
}

fn groups(criterion: &mut Criterion) {
    const ENTRIES: u64 = 100_000;
    let mut group = criterion.benchmark_group("tags");
    group.sample_size(20);
    for tags_each in [0, 1, 3] {
        let cache: Cache<u64, u64> = Cache::builder()
            .tags(move |key: &u64, _: &u64, tags: &mut Tags| {
                (0..tags_each).for_each(|n| tags.add(&(n, key % 1_000)));
            })
            .build()
            .expect("valid settings");
        let mut keys = Keys::below(ENTRIES);
        group.bench_function(BenchmarkId::new("insert, tags each", tags_each), |b| {
            b.iter(|| cache.insert(keys.draw(), 1));
        });
    }
    let cache: Cache<u64, u64> = Cache::builder()
        .tags(|_: &u64, _: &u64, tags: &mut Tags| tags.add("all"))
        .build()
        .expect("valid settings");
    group.throughput(Throughput::Elements(ENTRIES));
    group.bench_function("invalidate_tag, an entry", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                cache.insert_many((0..ENTRIES).map(|key| (key, key)));
                let begin = Instant::now();
                assert_eq!(cache.invalidate_tag("all"), ENTRIES);
                spent += begin.elapsed();
            }
            spent
        });
    });
    group.finish();
}

fn reclaiming(criterion: &mut Criterion) {
    const ENTRIES: u64 = 100_000;
    let mut group = criterion.benchmark_group("reap");
    group.throughput(Throughput::Elements(ENTRIES));
    group.sample_size(20);
    group.bench_function("sweep and drop, an entry", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let clock = ManualClock::new();
                let cache: Cache<u64, u64> = Cache::builder()
                    .time_to_live(Duration::from_secs(1))
                    .clock(clock.clone())
                    .build()
                    .expect("valid settings");
                for key in 0..ENTRIES {
                    cache.insert(key, key);
                }
                clock.advance(Duration::from_secs(2));
                let begin = Instant::now();
                while !cache.reap(Duration::from_secs(1)).finished {}
                spent += begin.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, reads, writes, loads, groups, reclaiming);
criterion_main!(benches);
