//! Values that are loaded again while the old ones are still good.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};

use super::Cache;
use super::load::{Lead, Loading};
use crate::reclaim::pin;
use crate::shard::Look;
use crate::sync::Ordering;

/// A live value, and its soft deadline if it is stale.
struct Aged<V> {
    value: V,
    stale: Option<u64>,
}

/// What a caller who can load gets to do.
enum Served<K, V, S> {
    /// Nothing: the value is fresh, or somebody else is loading it again.
    Value(V),
    /// Load it again: this is the stale one.
    Reload(V, Lead<K, V, S>),
    /// There is no value: load it, or wait for who does.
    Absent,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key; a [stale](crate::Builder::refresh_after) one is loaded again by one of those
    /// who ask for it, on its own thread, while the others get the stale value at once.
    ///
    /// A key without a live entry is loaded as by [`get_or_insert_with`](Self::get_or_insert_with). The
    /// new value gets a new lifetime. A value that is written or removed while it is being loaded again stays
    /// as it was left. A panic of `load` is this caller's; the stale value stays, and the next one who
    /// asks loads.
    ///
    /// # Blocking
    /// Only the caller that loads again waits for that; use
    /// [`get_or_refresh_on`](Self::get_or_refresh_on) if none is to. On a miss as
    /// [`get_or_insert_with`](Self::get_or_insert_with). A hit costs a [`get`](Self::get), a look at the
    /// coarse clock and one more line of memory.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Cache, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let cache: Cache<&str, u32> = Cache::builder()
    ///     .time_to_live(Duration::from_secs(60))
    ///     .refresh_after(Duration::from_secs(50))
    ///     .clock(clock.clone())
    ///     .build()?;
    /// assert_eq!(cache.get_or_refresh_with("rate", || 1), 1);
    /// clock.advance(Duration::from_secs(49));
    /// assert_eq!(cache.get_or_refresh_with("rate", || 2), 1);
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(cache.get_or_refresh_with("rate", || 3), 3);
    /// # Ok::<(), ebbtide::BuildError>(())
    /// ```
    pub fn get_or_refresh_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        let loaded = self.try_get_or_refresh_with(key, || Ok::<V, Infallible>(load()));
        match loaded {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`get_or_refresh_with`](Self::get_or_refresh_with) for a load that may fail. While there is a
    /// stale value, a failure is answered with that.
    ///
    /// # Errors
    /// What `load` failed with, if there was no live entry at all; as with
    /// [`try_get_or_insert_with`](Self::try_get_or_insert_with).
    pub fn try_get_or_refresh_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        match self.serve(&key) {
            Served::Value(value) => Ok(value),
            Served::Absent => self.try_get_or_insert_with(key, load),
            Served::Reload(stale, lead) => {
                let loading = Loading::from(lead);
                Ok(match load() {
                    Ok(value) => loading.insert(value),
                    Err(_) => stale,
                })
            }
        }
    }

    /// As [`get_or_refresh_with`](Self::get_or_refresh_with), but a stale value is returned to every
    /// caller at once, and one of them gives the load of the new one to `spawn`: a thread pool's way
    /// to run a closure.
    ///
    /// A key without a live entry is loaded on this thread. `spawn` may drop what it is given without
    /// running it; then the next caller's turn has come. While it waits to be run, nobody else loads that
    /// key. It keeps the cache alive.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ebbtide::Cache;
    /// # let cache: Cache<u32, String> = Cache::builder().refresh_after(Duration::from_secs(9)).build()?;
    /// let value = cache.get_or_refresh_on(
    ///     7,
    ///     |job| drop(std::thread::spawn(job)),
    ///     || "seven".to_string(),
    /// );
    /// # assert_eq!(value, "seven");
    /// # Ok::<(), ebbtide::BuildError>(())
    /// ```
    pub fn get_or_refresh_on(
        &self,
        key: K,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>),
        load: impl FnOnce() -> V + Send + 'static,
    ) -> V {
        match self.serve(&key) {
            Served::Value(value) => value,
            Served::Absent => self.get_or_insert_with(key, load),
            Served::Reload(stale, lead) => {
                spawn(Box::new(move || {
                    let loading = Loading::from(lead);
                    let value = load();
                    loading.insert(value);
                }));
                stale
            }
        }
    }

    /// Looks for a value, and for the right to load it again if it is stale.
    fn serve(&self, key: &K) -> Served<K, V, S> {
        let Some(aged) = self.aged(key) else {
            return Served::Absent;
        };
        let Some(soft) = aged.stale else {
            return Served::Value(aged.value);
        };
        let Ok(lead) = self.lead(key) else {
            return Served::Value(aged.value);
        };
        // Another load may have ended since the look.
        if self.soft(key) == Some(soft) {
            return Served::Reload(aged.value, lead);
        }
        drop(lead);
        match self.peek(key) {
            Some(value) => Served::Value(value),
            None => Served::Absent,
        }
    }

    /// A live value, as [`get`](Self::get) has it.
    fn aged(&self, key: &K) -> Option<Aged<V>> {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let shard = core.shard(address);
        let look = shard.lookup(&core.rules, address.hash, &guard, |k| k == key);
        core.answered(address.shard, look, &guard);
        let slot = look.live()?;
        core.used(shard, slot);
        let soft = shard.slab().soft(slot);
        let stale = core
            .rules
            .refresh
            .as_ref()
            .zip(soft)
            .and_then(|(refresh, soft)| {
                // Relaxed: written before the slot was linked.
                let soft = soft.load(Ordering::Relaxed);
                let now = core.rules.time.recent();
                refresh.is_stale(soft, now).then_some(soft)
            });
        Some(Aged {
            value: shard.entry(slot).value().clone(),
            stale,
        })
    }

    /// The soft deadline of a live entry. Not a use.
    fn soft(&self, key: &K) -> Option<u64> {
        let core = &*self.core;
        let address = core.address(key);
        let guard = pin();
        let shard = core.shard(address);
        let look = shard.lookup(&core.rules, address.hash, &guard, |k| k == key);
        let Look::Live(slot, _) = look else {
            return None;
        };
        let soft = shard.slab().soft(slot)?;
        Some(soft.load(Ordering::Relaxed))
    }
}

#[cfg(feature = "async")]
impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`get_or_refresh_on`](Self::get_or_refresh_on) for tasks: one of those who find the value
    /// stale gives a future that loads the new one to `spawn`, a runtime's way to run one.
    ///
    /// A key without a live entry is loaded in this task, as by
    /// [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn get_or_refresh_async(
        &self,
        key: K,
        spawn: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
        load: impl Future<Output = V> + Send + 'static,
    ) -> V {
        match self.serve(&key) {
            Served::Value(value) => value,
            Served::Absent => self.get_or_insert_async(key, load).await,
            Served::Reload(stale, lead) => {
                spawn(Box::pin(async move {
                    let load = async { Ok::<_, Infallible>((load.await, None)) };
                    let _ = lead.load(load).await;
                }));
                stale
            }
        }
    }
}
