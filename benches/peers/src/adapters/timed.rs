//! Contenders that can give one entry one deadline: ebbtide and moka. (mini-moka
//! has one lifetime per cache only: it cannot hold a wave beside other entries.)

use std::time::{Duration, Instant};

/// A store whose entries each have a deadline of their own.
pub(crate) trait Timed<V>: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// Expired entries go away only when somebody calls.
    const NEEDS_CALLS: bool;

    fn build() -> Self;
    fn insert_until(&self, key: u64, value: V, until: Instant);
    fn get(&self, key: u64) -> Option<V>;
    /// Does what filling has put off, so that no reader pays for that.
    fn settle(&self) {}
    /// Entries held, those that have expired included.
    fn held(&self) -> u64;
    /// Entries taken out but not yet dropped.
    fn waiting(&self) -> u64 {
        0
    }
    /// Its own account of how late values were dropped: p50 and p99.
    fn own_lag(&self) -> Option<[Duration; 2]> {
        None
    }
}

/// Gets to see contenders as types.
pub(crate) trait TimedVisitor<V: Clone + Send + Sync + 'static> {
    fn visit<T: Timed<V>>(&mut self);
}

pub(crate) fn visit_timed<V: Clone + Send + Sync + 'static>(visitor: &mut impl TimedVisitor<V>) {
    #[cfg(feature = "ebbtide")]
    visitor.visit::<Ebbtide<V>>();
    visitor.visit::<Moka<V>>();
}

#[cfg(feature = "ebbtide")]
struct Ebbtide<V>(ebbtide::Cache<u64, V>)
where
    V: Send + Sync + 'static;

#[cfg(feature = "ebbtide")]
impl<V: Clone + Send + Sync + 'static> Timed<V> for Ebbtide<V> {
    const NAME: &'static str = "ebbtide";
    const NEEDS_CALLS: bool = false;

    fn build() -> Self {
        Self(ebbtide::Cache::unbounded())
    }

    fn insert_until(&self, key: u64, value: V, until: Instant) {
        self.0.insert_with_ttl(key, value, until);
    }

    #[inline]
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key)
    }

    fn held(&self) -> u64 {
        self.0.entry_count()
    }

    fn waiting(&self) -> u64 {
        self.0.stats().limbo
    }

    fn own_lag(&self) -> Option<[Duration; 2]> {
        let lag = self.0.stats().reclaim_lag;
        Some([lag.quantile(0.5), lag.quantile(0.99)])
    }
}

/// moka with an `Expiry` that reads the deadline from beside the value: its only
/// way to give two entries different lifetimes.
struct Moka<V: Clone + Send + Sync + 'static>(moka::sync::Cache<u64, (Instant, V)>);

struct ByDeadline;

impl<V> moka::Expiry<u64, (Instant, V)> for ByDeadline {
    fn expire_after_create(
        &self,
        _key: &u64,
        value: &(Instant, V),
        created_at: Instant,
    ) -> Option<Duration> {
        Some(value.0.saturating_duration_since(created_at))
    }
}

impl<V: Clone + Send + Sync + 'static> Timed<V> for Moka<V> {
    const NAME: &'static str = "moka";
    const NEEDS_CALLS: bool = true;

    fn build() -> Self {
        Self(
            moka::sync::Cache::builder()
                .expire_after(ByDeadline)
                .build(),
        )
    }

    fn insert_until(&self, key: u64, value: V, until: Instant) {
        self.0.insert(key, (until, value));
    }

    #[inline]
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key).map(|(_, value)| value)
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }

    fn held(&self) -> u64 {
        self.0.entry_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deadlines(usize);

    impl TimedVisitor<u64> for Deadlines {
        fn visit<T: Timed<u64>>(&mut self) {
            let store = T::build();
            let now = Instant::now();
            store.insert_until(1, 10, now + Duration::from_millis(50));
            store.insert_until(2, 20, now + Duration::from_secs(3600));
            store.settle();
            assert_eq!(store.held(), 2, "{}", T::NAME);
            assert_eq!(store.get(2), Some(20), "{}", T::NAME);
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(store.get(1), None, "{}", T::NAME);
            assert_eq!(store.get(2), Some(20), "{}", T::NAME);
            self.0 += 1;
        }
    }

    #[test]
    fn each_entry_has_its_own_deadline() {
        let mut deadlines = Deadlines(0);
        visit_timed(&mut deadlines);
        assert!(deadlines.0 >= 1);
    }
}
