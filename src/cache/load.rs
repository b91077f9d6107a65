//! Values that are loaded when they are missing: once for each key, whoever asks meanwhile.

#[cfg(feature = "async")]
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc as StdArc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Cache;
use super::write::IfLive;
use crate::RandomState;
use crate::lifetime::Lifetime;
use crate::load::{Flight, Inside, Joined, Nested, Wait};
use crate::sync::Arc;

/// What a caller of [`Cache::get_or_load`] gets.
pub enum Turn<K, V, S = RandomState> {
    /// The value: it was there, or somebody else has loaded it meanwhile.
    Value(V),
    /// Nobody has the value or is loading it: it is the caller's turn.
    Load(Loading<K, V, S>),
    /// Somebody was loading it for as long as the caller was willing to wait.
    TimedOut,
    /// Waiting would never end: this thread is loading this very key, or a load that it is running
    /// is, perhaps through others, what the one of this key waits for.
    Recursive,
}

/// The right and the duty to load a key's value: [`insert`](Loading::insert) it, or drop this and
/// somebody who waits takes over.
///
/// Stays on its thread, which is what finds recursive loads out. Keeps the cache alive.
#[must_use = "others wait for what is being loaded"]
pub struct Loading<K, V, S = RandomState> {
    // In this order: the load ends before this thread has left it.
    lead: Lead<K, V, S>,
    _inside: Inside,
}

impl<K, V, S> Loading<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The key to be loaded.
    pub fn key(&self) -> &K {
        self.lead.flight.key()
    }

    /// Stores the loaded value with the cache's own lifetime, gives it to all who wait, and returns
    /// it. It is not stored if the key was written or removed since the load began, or if the cache
    /// cannot take it. Cost as [`Cache::insert`], and a clone or two.
    pub fn insert(self, value: V) -> V {
        self.lead.publish(value, None)
    }

    /// As [`insert`](Self::insert), with a lifetime of its own. One that is over at once stores
    /// nothing.
    pub fn insert_with_ttl(self, value: V, lifetime: impl Into<Lifetime>) -> V {
        self.lead.publish(value, Some(lifetime.into()))
    }
}

/// A load that this caller has to carry out. Dropped without a value, it is given up: one of those
/// who wait takes over.
pub(super) struct Lead<K, V, S> {
    cache: Cache<K, V, S>,
    flight: Arc<Flight<K, V>>,
    /// On the cache's clock, where anybody wants to know how long loads take.
    began: Option<u64>,
    /// Its end has been told.
    over: bool,
}

/// What a look for a value, or for a load of it, came to.
enum Found<K, V, S> {
    Value(V),
    Lead(Lead<K, V, S>),
    Wait(Arc<Flight<K, V>>),
}

const RECURSIVE: &str = "recursive load: the loader of a key waits for that key";

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key, loaded by `load` and stored if there is none. Of all who ask meanwhile,
    /// threads and tasks, one loads; the others wait for its value.
    ///
    /// `load` runs on this thread, without any lock or pin. If it panics, the panic is this
    /// caller's, and one of those who wait loads instead. A value whose key was written or removed
    /// after its load began is returned, also to those who had waited, but not stored; who asks
    /// after that loads anew. A lifetime of the value's own is the [`Expiry`](crate::Expiry)
    /// policy's to give, or see [`get_or_insert_with_ttl`](Self::get_or_insert_with_ttl).
    ///
    /// # Blocking
    /// On a hit as [`get`](Self::get). On a miss it takes the lock of the table of loads, then runs
    /// `load` or blocks the thread until another's is over; [`get_or_load`](Self::get_or_load)
    /// waits no longer than it is told.
    ///
    /// # Panics
    /// If `load` asks for the same key, or for one whose load waits for this one, on the same thread
    /// or by way of other threads' loads: that would wait for ever.
    ///
    /// ```
    /// let cache: ebbtide::Cache<u32, String> = ebbtide::Cache::new(100);
    /// assert_eq!(cache.get_or_insert_with(7, || "seven".to_string()), "seven");
    /// assert_eq!(cache.get_or_insert_with(7, || unreachable!()), "seven");
    /// ```
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        match self.value_or_turn(key) {
            Ok(value) => value,
            Err(loading) => {
                let value = load();
                loading.insert(value)
            }
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a lifetime for each result: a short
    /// one for what was not found, say.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::Cache;
    ///
    /// # fn look_up(name: &str) -> Option<u32> { None }
    /// let cache: Cache<String, Option<u32>> = Cache::new(1_000);
    /// let found = cache.get_or_insert_with_ttl("nobody".to_string(), || {
    ///     let found = look_up("nobody");
    ///     let seconds = if found.is_some() { 600 } else { 5 };
    ///     (found, Duration::from_secs(seconds))
    /// });
    /// assert_eq!(found, None);
    /// ```
    pub fn get_or_insert_with_ttl<L: Into<Lifetime>>(
        &self,
        key: K,
        load: impl FnOnce() -> (V, L),
    ) -> V {
        match self.value_or_turn(key) {
            Ok(value) => value,
            Err(loading) => {
                let (value, lifetime) = load();
                loading.insert_with_ttl(value, lifetime)
            }
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with) for a load that may fail.
    ///
    /// # Errors
    /// What `load` failed with, to this caller alone; nothing is stored, and one of those who wait
    /// loads instead.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with); [`get_or_load`](Self::get_or_load)
    /// answers [`Turn::Recursive`] instead.
    pub fn try_get_or_insert_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        match self.value_or_turn(key) {
            Ok(value) => Ok(value),
            Err(loading) => {
                let value = load()?;
                Ok(loading.insert(value))
            }
        }
    }

    /// Waits as long as it takes: the value, or the turn to load it.
    fn value_or_turn(&self, key: K) -> Result<V, Loading<K, V, S>> {
        match self.get_or_load(key, None) {
            Turn::Value(value) => Ok(value),
            Turn::Load(loading) => Err(loading),
            Turn::TimedOut => unreachable!("it waits for ever"),
            Turn::Recursive => panic!("{RECURSIVE}"),
        }
    }

    /// The value of a key, or the turn to load it: what the other loading calls are made of, for
    /// loads that do not fit into a closure, and for those who do not want to wait for ever.
    ///
    /// Waits for another's load no longer than `patience`, if there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Cache, Turn};
    ///
    /// let cache: Cache<&str, u32> = Cache::new(10);
    /// match cache.get_or_load("a", Some(Duration::from_millis(50))) {
    ///     Turn::Value(value) => println!("it is {value}"),
    ///     Turn::Load(loading) => {
    ///         loading.insert_with_ttl(1, Duration::from_secs(60));
    ///     }
    ///     Turn::TimedOut | Turn::Recursive => println!("no value for now"),
    /// }
    /// assert_eq!(cache.get("a"), Some(1));
    /// ```
    pub fn get_or_load(&self, key: K, patience: Option<Duration>) -> Turn<K, V, S> {
        // (More patience than the clock can count is endless.)
        let until = patience.map(|patience| Instant::now().checked_add(patience));
        loop {
            let flight = match self.find_or_lead(&key) {
                Found::Value(value) => return Turn::Value(value),
                Found::Lead(lead) => return Turn::Load(lead.into()),
                Found::Wait(flight) => flight,
            };
            let Some(_nested) = Nested::wait(&flight) else {
                return Turn::Recursive;
            };
            match block_on(Wait::new(flight), until.flatten()) {
                Some(Some(value)) => return Turn::Value(value),
                Some(None) => {}
                None => return Turn::TimedOut,
            }
        }
    }

    /// The value, or else the load of it: begun by this call, or in progress.
    fn find_or_lead(&self, key: &K) -> Found<K, V, S> {
        if let Some(value) = self.get(key) {
            return Found::Value(value);
        }
        let lead = match self.lead(key) {
            Ok(lead) => lead,
            Err(flight) => return Found::Wait(flight),
        };
        // Another load may have ended between the miss and the join.
        match self.peek(key) {
            Some(value) => {
                lead.end(&value);
                Found::Value(value)
            }
            None => Found::Lead(lead),
        }
    }

    /// Begins a load of a key, unless one is in progress.
    pub(super) fn lead(&self, key: &K) -> Result<Lead<K, V, S>, Arc<Flight<K, V>>> {
        let core = &*self.core;
        let address = core.address(key);
        let flight = match core.rules.flights.join(address.hash, key) {
            Joined::Wait(flight) => return Err(flight),
            Joined::Lead(flight) => flight,
        };
        let mut lead = Lead {
            cache: self.clone(),
            flight,
            began: None,
            over: false,
        };
        // From here on, whoever writes the key either overtakes this load or has let go of the lock
        // before the loader begins.
        core.pass_lock(address.shard);
        lead.began = core.rules.refresh.as_ref().map(|_| core.rules.time.now());
        Ok(lead)
    }
}

#[cfg(feature = "async")]
impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`get_or_insert_with`](Self::get_or_insert_with) for a task: awaits `load` if it is this
    /// caller's turn, else the load in progress, a thread's or a task's. Works in any runtime.
    ///
    /// If this future is dropped while it loads, one of those who wait takes over with its own.
    /// `load` is not polled unless it is needed. Never blocks the thread, beyond the locks of a miss.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with). A loader that awaits another *task* that
    /// asks for the same key is not found out: that waits for ever.
    pub async fn get_or_insert_async(&self, key: K, load: impl Future<Output = V>) -> V {
        let load = async { Ok::<_, Infallible>((load.await, None)) };
        match self.load_async(key, load).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`get_or_insert_async`](Self::get_or_insert_async), with a lifetime for each result, as
    /// [`get_or_insert_with_ttl`](Self::get_or_insert_with_ttl) has it.
    pub async fn get_or_insert_async_with_ttl<L: Into<Lifetime>>(
        &self,
        key: K,
        load: impl Future<Output = (V, L)>,
    ) -> V {
        let load = async {
            let (value, lifetime) = load.await;
            Ok::<_, Infallible>((value, Some(lifetime.into())))
        };
        match self.load_async(key, load).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`get_or_insert_async`](Self::get_or_insert_async) for a load that may fail.
    ///
    /// # Errors
    /// What `load` failed with, to this caller alone; one of those who wait loads instead.
    pub async fn try_get_or_insert_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let load = async { load.await.map(|value| (value, None)) };
        self.load_async(key, load).await
    }

    async fn load_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<(V, Option<Lifetime>), E>>,
    ) -> Result<V, E> {
        let mut load = std::pin::pin!(load);
        loop {
            let flight = match self.find_or_lead(&key) {
                Found::Value(value) => return Ok(value),
                Found::Lead(lead) => return lead.load(load.as_mut()).await,
                Found::Wait(flight) => flight,
            };
            let Some(_nested) = Nested::wait(&flight) else {
                panic!("{RECURSIVE}");
            };
            let mut wait = Wait::new(flight);
            let loaded = std::future::poll_fn(|context| {
                wait.poll(context.waker()).map(|value| value.cloned())
            });
            if let Some(value) = loaded.await {
                return Ok(value);
            }
        }
    }
}

impl<K, V, S> Lead<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Awaits `load` and publishes what it comes to.
    #[cfg(feature = "async")]
    pub(super) async fn load<E>(
        self,
        load: impl Future<Output = Result<(V, Option<Lifetime>), E>>,
    ) -> Result<V, E>
    where
        K: Clone,
    {
        let mut load = std::pin::pin!(load);
        let (value, lifetime) = std::future::poll_fn(|context| {
            let _inside = Inside::enter(&self.flight);
            load.as_mut().poll(context)
        })
        .await?;
        let _inside = Inside::enter(&self.flight);
        Ok(self.publish(value, lifetime))
    }

    fn publish(self, value: V, lifetime: Option<Lifetime>) -> V
    where
        K: Clone,
    {
        let rules = &self.cache.core.rules;
        if let (Some(refresh), Some(began)) = (&rules.refresh, self.began) {
            refresh.took(rules.time.now().saturating_sub(began));
        }
        let (key, stored) = (self.flight.key().clone(), value.clone());
        let mut time = rules.time.reading();
        if let Some(span) = rules.span(&key, &stored, lifetime, &mut time) {
            let flight = Some(&*self.flight);
            // What is not stored, for whatever reason, is dropped.
            let _ = self
                .cache
                .link(key, stored, span, time, IfLive::Replace, flight);
        }
        self.end(&value);
        value
    }

    pub(super) fn end(mut self, value: &V) {
        let flights = &self.cache.core.rules.flights;
        flights.end(&self.flight, || Some(value.clone()));
        self.over = true;
    }
}

impl<K, V, S> From<Lead<K, V, S>> for Loading<K, V, S> {
    fn from(lead: Lead<K, V, S>) -> Self {
        let _inside = Inside::enter(&lead.flight);
        Loading { lead, _inside }
    }
}

impl<K, V, S> Drop for Lead<K, V, S> {
    fn drop(&mut self) {
        if !self.over {
            self.cache.core.rules.flights.end(&self.flight, || None);
        }
    }
}

/// Blocks this thread until the load is over: its value, if there is one. `None` if it is not by
/// then.
fn block_on<K, V: Clone>(mut wait: Wait<K, V>, until: Option<Instant>) -> Option<Option<V>> {
    let waker = Waker::from(StdArc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = wait.poll(&waker) {
            return Some(value.cloned());
        }
        match until {
            None => thread::park(),
            Some(until) => match until.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return None,
            },
        }
    }
}

/// Wakes a thread that waits like a task.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}

impl<K, V, S> fmt::Debug for Loading<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loading").finish_non_exhaustive()
    }
}

impl<K, V, S> fmt::Debug for Turn<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Turn::Value(_) => "Value(..)",
            Turn::Load(_) => "Load(..)",
            Turn::TimedOut => "TimedOut",
            Turn::Recursive => "Recursive",
        })
    }
}
