//! How long an entry lives, as a user says it.

use std::time::{Duration, Instant};

/// How long an entry lives.
///
/// Wherever a lifetime is asked for, a [`Duration`] or an [`Instant`] will do.
///
/// ```
/// use std::time::{Duration, Instant};
/// use ebbtide::Lifetime;
///
/// assert_eq!(Lifetime::from(Duration::from_secs(5)), Lifetime::For(Duration::from_secs(5)));
/// let noon = Instant::now();
/// assert_eq!(Lifetime::from(noon), Lifetime::Until(noon));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until it is removed, replaced or evicted.
    Never,
    /// For this long from now. Zero is over at once; a length that the clock cannot count to
    /// (such as [`Duration::MAX`]) is [`Lifetime::Never`].
    For(Duration),
    /// Until this moment. A moment that has passed is over at once.
    Until(Instant),
}

impl From<Duration> for Lifetime {
    fn from(length: Duration) -> Self {
        Lifetime::For(length)
    }
}

impl From<Instant> for Lifetime {
    fn from(moment: Instant) -> Self {
        Lifetime::Until(moment)
    }
}

/// Decides the lifetime of each new value from its key and value.
///
/// Any `Fn(&K, &V) -> Lifetime` is one. It is asked on every write that brings a value without an
/// explicit lifetime, on the writing thread, outside every lock. With a
/// [`time_to_live`](crate::Builder::time_to_live) or a
/// [`time_to_idle`](crate::Builder::time_to_idle) besides, the earliest deadline counts.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Cache, Lifetime};
///
/// let cache: Cache<String, Result<u32, String>> = Cache::builder()
///     .expiry(|_key: &String, value: &Result<u32, String>| match value {
///         Ok(_) => Lifetime::For(Duration::from_secs(300)),
///         Err(_) => Lifetime::For(Duration::from_secs(2)),
///     })
///     .build()?;
/// cache.insert("a".into(), Err("no such user".into()));
/// assert!(matches!(cache.ttl("a"), Some(Lifetime::For(left)) if left <= Duration::from_secs(2)));
/// # Ok::<(), ebbtide::BuildError>(())
/// ```
pub trait Expiry<K, V>: Send + Sync + 'static {
    /// The lifetime of `value` under `key`, counted from now.
    fn lifetime(&self, key: &K, value: &V) -> Lifetime;
}

impl<K, V, F> Expiry<K, V> for F
where
    F: Fn(&K, &V) -> Lifetime + Send + Sync + 'static,
{
    fn lifetime(&self, key: &K, value: &V) -> Lifetime {
        self(key, value)
    }
}
