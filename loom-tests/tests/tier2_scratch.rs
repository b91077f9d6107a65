//! scratch
use ebbtide::{Cache, ManualClock};
use ebbtide_loom_tests::*;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
#[derive(Clone, Default)]
struct Fixed(u64);
impl Hasher for Fixed { fn finish(&self) -> u64 { self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) } fn write(&mut self, b: &[u8]) { for &x in b { self.0 = self.0 << 8 | u64::from(x); } } }
impl BuildHasher for Fixed { type Hasher = Fixed; fn build_hasher(&self) -> Fixed { Fixed(0) } }

#[test]
fn p1_get() {
    for bound in [Some(1), Some(2), Some(3)] {
    check("cache_p1_get", bound, || {
        let clock = ManualClock::new();
        let cache: Cache<u64, u64, Fixed> = Cache::<u64, u64>::builder().shards(1).hasher(Fixed(0)).time_to_idle(Duration::from_nanos(160)).clock(clock.clone()).build().unwrap();
        cache.insert(1, 7);
        clock.set_ns(100);
        let c = cache.clone();
        let t = loom::thread::spawn(move || c.get(&1));
        clock.set_ns(160);
        let gone = cache.get(&1).is_none();
        t.join().unwrap();
        if gone { assert_eq!(cache.get(&1), None, "came back"); }
    });
    }
}
