//! Snapshots in any serde format.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess};
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::SnapshotError;
use super::record::{Header, Incoming, Moment, Outgoing, Spread, Times, VERSION};
use super::{RestoreOptions, Restored, Snapshot};
use crate::cache::transfer::{Stored, Visitor};
use crate::rules::Span;
use crate::{Cache, Counter};

const NAME: &str = "Snapshot";
/// In alphabetical order, too: a format that sorts fields leaves the header first.
const FIELDS: [&str; 2] = ["ebbtide", "entries"];

impl<K, V, S> Serialize for Snapshot<'_, K, V, S>
where
    K: Hash + Eq + Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let (begun, header) = self.begin();
        let entries = Entries {
            cache: self.cache,
            begun,
        };
        let mut snapshot = serializer.serialize_struct(NAME, FIELDS.len())?;
        snapshot.serialize_field(FIELDS[0], &header)?;
        snapshot.serialize_field(FIELDS[1], &entries)?;
        snapshot.end()
    }
}

/// The entries of a cache, as a sequence.
struct Entries<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    begun: Moment,
}

impl<K, V, S> Serialize for Entries<'_, K, V, S>
where
    K: Hash + Eq + Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        struct Elements<Q> {
            sequence: Q,
            begun: Moment,
        }

        impl<K: Serialize, V: Serialize, Q: SerializeSeq> Visitor<K, V> for Elements<Q> {
            type Error = Q::Error;

            fn entry(&mut self, key: &K, value: &V, span: Span) -> Result<bool, Q::Error> {
                let entry = Outgoing::new(key, value, span, self.begun);
                self.sequence.serialize_element(&entry)?;
                Ok(false)
            }
        }

        let mut elements = Elements {
            sequence: serializer.serialize_seq(None)?,
            begun: self.begun,
        };
        self.cache.visit(&mut elements)?;
        elements.sequence.end()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Reads a [`snapshot`](Self::snapshot) from a serde format, and stores each entry as it comes.
    ///
    /// What is over by the wall clock is left out. An entry whose key is in the cache already is left out
    /// too, unless [`replace`](RestoreOptions::replace) is asked for. Each is written as by
    /// [`try_insert`](Self::try_insert), outside every lock: the bound holds, and what the cache cannot
    /// take is dropped and counted. What a time to live, a time to idle and [`touch`](Self::touch)
    /// mean for it is said in the [module](crate::snapshot).
    ///
    /// # Errors
    /// The format's, also for a snapshot of a newer version or another schema. What was stored before
    /// stays.
    ///
    /// ```
    /// use ebbtide::{Cache, snapshot::RestoreOptions};
    ///
    /// let cache: Cache<String, u32> = Cache::unbounded();
    /// cache.insert("answer".into(), 42);
    /// let json = serde_json::to_string(&cache.snapshot())?;
    ///
    /// let other: Cache<String, u32> = Cache::unbounded();
    /// let mut format = serde_json::Deserializer::from_str(&json);
    /// assert_eq!(other.restore(&mut format, &RestoreOptions::new())?.inserted, 1);
    /// assert_eq!(other.get("answer"), Some(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore<'de, D>(
        &self,
        deserializer: D,
        options: &RestoreOptions,
    ) -> Result<Restored, D::Error>
    where
        D: Deserializer<'de>,
        K: Deserialize<'de>,
        V: Deserialize<'de>,
    {
        let visitor = SnapshotVisitor {
            cache: self,
            options,
        };
        deserializer.deserialize_struct(NAME, &FIELDS, visitor)
    }
}

/// Stores the entries of one snapshot.
pub(super) struct Sink<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    times: Times,
    spread: Spread,
    replace: bool,
    pub(super) restored: Restored,
}

impl<'c, K, V, S> Sink<'c, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(
        cache: &'c Cache<K, V, S>,
        options: &RestoreOptions,
        header: Header,
    ) -> Result<Self, SnapshotError> {
        if header.version > VERSION {
            return Err(SnapshotError::NewerVersion {
                found: header.version,
                known: VERSION,
            });
        }
        if header.schema != options.schema {
            return Err(SnapshotError::OtherSchema {
                found: header.schema,
                expected: options.schema,
            });
        }
        let moment = Moment::to_restore(&cache.core.rules, options.at);
        Ok(Sink {
            cache,
            times: Times::new(moment, header.saved_at),
            spread: Spread::new(options),
            replace: options.replace,
            restored: Restored::default(),
        })
    }

    pub(super) fn store(&mut self, entry: Incoming<K, V>) {
        let rules = &self.cache.core.rules;
        let mut time = rules.time.reading();
        let span = self.times.span(rules, &entry, time.ask(), &mut self.spread);
        let Some(span) = span else {
            self.restored.expired += 1;
            return;
        };
        let Incoming { key, value, .. } = entry;
        let count = match self.cache.store_span(key, value, span, time, self.replace) {
            Stored::Inserted => &mut self.restored.inserted,
            Stored::Kept => &mut self.restored.kept,
            Stored::Refused => &mut self.restored.refused,
        };
        *count += 1;
    }
}

struct SnapshotVisitor<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    options: &'c RestoreOptions,
}

/// The fields of a snapshot.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Ebbtide,
    Entries,
    #[serde(other)]
    Other,
}

impl<'de, 'c, K, V, S> SnapshotVisitor<'c, K, V, S>
where
    K: Hash + Eq + Deserialize<'de> + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What stores the entries, once the header is known.
    fn sink<E: de::Error>(&self, header: Option<Header>) -> Result<Seed<'c, K, V, S>, E> {
        let header =
            header.ok_or_else(|| E::custom("`ebbtide`, the header, must come before `entries`"))?;
        Sink::new(self.cache, self.options, header)
            .map(Seed)
            .map_err(E::custom)
    }
}

impl<'de, K, V, S> de::Visitor<'de> for SnapshotVisitor<'_, K, V, S>
where
    K: Hash + Eq + Deserialize<'de> + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Value = Restored;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot of a cache")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Restored, A::Error> {
        let (mut header, mut restored) = (None, None);
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::Ebbtide if header.is_none() => header = Some(map.next_value()?),
                Field::Entries if restored.is_none() => {
                    restored = Some(map.next_value_seed(self.sink(header)?)?);
                }
                Field::Ebbtide => return Err(de::Error::duplicate_field(FIELDS[0])),
                Field::Entries => return Err(de::Error::duplicate_field(FIELDS[1])),
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        restored.ok_or_else(|| de::Error::missing_field(FIELDS[1]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Restored, A::Error> {
        let header = seq.next_element()?;
        let seed = self.sink(header)?;
        seq.next_element_seed(seed)?
            .ok_or_else(|| de::Error::invalid_length(1, &self))
    }
}

/// Stores a sequence of entries.
struct Seed<'c, K, V, S>(Sink<'c, K, V, S>);

impl<'de, K, V, S> DeserializeSeed<'de> for Seed<'_, K, V, S>
where
    K: Hash + Eq + Deserialize<'de> + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Value = Restored;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Restored, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, K, V, S> de::Visitor<'de> for Seed<'_, K, V, S>
where
    K: Hash + Eq + Deserialize<'de> + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Value = Restored;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Restored, A::Error> {
        while let Some(entry) = seq.next_element()? {
            self.0.store(entry);
        }
        Ok(self.0.restored)
    }
}

/// As its number.
impl Serialize for Counter {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.serialize_i64(self.get())
    }
}

/// From a number; one that no counter can have is an error.
impl<'de> Deserialize<'de> for Counter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        crate::counter::fresh(number).map_err(de::Error::custom)
    }
}
