//! The binary form: save, load, verify.

use std::hash::{BuildHasher, Hash};
use std::io::{Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{LoadError, SnapshotError};
use super::frame::{FrameReader, FrameWriter};
use super::record::{Incoming, Moment, Outgoing};
use super::stream::Sink;
use super::{RestoreOptions, Restored, Saved, Snapshot};
use crate::Cache;
use crate::cache::transfer::Visitor;
use crate::rules::Span;

/// Writes what a walk shows it.
struct Saver<W> {
    frames: FrameWriter<W>,
    begun: Moment,
}

impl<K: Serialize, V: Serialize, W: Write> Visitor<K, V> for Saver<W> {
    type Error = SnapshotError;

    fn entry(&mut self, key: &K, value: &V, span: Span) -> Result<bool, SnapshotError> {
        let entry = Outgoing::new(key, value, span, self.begun);
        self.frames.record(|bytes| {
            postcard::to_extend(&entry, bytes).map_err(|error| error.to_string())
        })?;
        Ok(self.frames.is_full())
    }

    fn pause(&mut self) -> Result<(), SnapshotError> {
        self.frames.write_full()
    }
}

impl<K, V, S> Snapshot<'_, K, V, S>
where
    K: Hash + Eq + Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Writes the snapshot in its binary form: see [`Cache::save`].
    ///
    /// # Errors
    /// [`SnapshotError::Io`] if the writer fails, [`SnapshotError::Format`] if a key or a value does.
    pub fn write_to<W: Write>(&self, writer: W) -> Result<Saved, SnapshotError> {
        let (begun, header) = self.begin();
        let mut saver = Saver {
            frames: FrameWriter::begin(writer, header)?,
            begun,
        };
        self.cache.visit(&mut saver)?;
        let (entries, bytes) = saver.frames.end()?;
        Ok(Saved { entries, bytes })
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Writes a snapshot in its binary form, which [`load`](Self::load) reads.
    ///
    /// It writes some 64 KiB at a time, without lock or pin, so that the writer need not be buffered and
    /// may be slow. Keys and values go through [postcard](https://docs.rs/postcard): compact and
    /// exact, but not self-describing. What asks its format for the type while it is read (such as
    /// `serde_json::Value`, or serde's `untagged`, `flatten`, `skip_serializing_if`) can be written but
    /// not read again; take [`snapshot`](Self::snapshot) with another format for those.
    ///
    /// A file that is to replace another one should be written beside it, synchronized
    /// (`File::sync_all`) and renamed.
    ///
    /// # Cost
    /// See the [module](crate::snapshot). Memory: one entry, as it is written, and twice 64 KiB.
    ///
    /// # Errors
    /// [`SnapshotError::Io`] if the writer fails, [`SnapshotError::Format`] if a key or a value does, or
    /// if an entry takes 4 GiB.
    ///
    /// ```
    /// use ebbtide::{Cache, snapshot::RestoreOptions};
    ///
    /// let cache: Cache<String, u32> = Cache::unbounded();
    /// cache.insert("answer".into(), 42);
    /// let mut file = Vec::new();
    /// cache.save(&mut file)?;
    ///
    /// let other: Cache<String, u32> = Cache::unbounded();
    /// other.load(&file[..], &RestoreOptions::new())?;
    /// assert_eq!(other.get("answer"), Some(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save<W: Write>(&self, writer: W) -> Result<Saved, SnapshotError>
    where
        K: Serialize,
        V: Serialize,
    {
        self.snapshot().write_to(writer)
    }

    /// Reads a snapshot that [`save`](Self::save) has written, to the end of the reader, and stores each
    /// entry as it comes, as [`restore`](Self::restore) does.
    ///
    /// No byte is used before its checksum was found right. [`verify`] looks at a whole
    /// file before anything of it is stored.
    ///
    /// # Cost
    /// Memory: one entry as it was written, and 64 KiB, whatever the file says.
    ///
    /// # Errors
    /// [`LoadError`]: the [reason](SnapshotError), and what was restored before. That stays.
    pub fn load<R: Read>(&self, reader: R, options: &RestoreOptions) -> Result<Restored, LoadError>
    where
        K: DeserializeOwned,
        V: DeserializeOwned,
    {
        let failed = |restored| move |error| LoadError { error, restored };
        let nothing = Restored::default();
        let mut frames = FrameReader::begin(reader).map_err(failed(nothing))?;
        let mut sink = Sink::new(self, options, frames.header()).map_err(failed(nothing))?;
        let mut record = Vec::new();
        while frames.record(&mut record).map_err(failed(sink.restored))? {
            let entry = decode(&record).map_err(|reason| LoadError {
                error: SnapshotError::Format {
                    entry: frames.records() - 1,
                    reason,
                },
                restored: sink.restored,
            })?;
            sink.store(entry);
        }
        Ok(sink.restored)
    }
}

fn decode<K: DeserializeOwned, V: DeserializeOwned>(
    record: &[u8],
) -> Result<Incoming<K, V>, String> {
    match postcard::take_from_bytes(record) {
        Ok((entry, [])) => Ok(entry),
        Ok((_, rest)) => Err(format!("{} bytes more than its types have", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a whole snapshot that [`Cache::save`] has written, and stores nothing: how much it holds.
///
/// Says that nothing is damaged or missing, not that the entries are of any type.
///
/// # Errors
/// As for [`Cache::load`], but for [`SnapshotError::OtherSchema`] and [`SnapshotError::Format`].
///
/// ```
/// use std::io::{Cursor, Seek};
/// use ebbtide::{Cache, snapshot::{RestoreOptions, verify}};
///
/// let cache: Cache<u32, u32> = Cache::unbounded();
/// cache.insert(1, 2);
/// let mut file = Cursor::new(Vec::new());
/// cache.save(&mut file)?;
///
/// file.rewind()?;
/// assert_eq!(verify(&mut file)?.entries, 1);
/// file.rewind()?;
/// cache.load(&mut file, &RestoreOptions::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify<R: Read>(reader: R) -> Result<Saved, SnapshotError> {
    let mut frames = FrameReader::begin(reader)?;
    let mut record = Vec::new();
    while frames.record(&mut record)? {}
    Ok(Saved {
        entries: frames.records(),
        bytes: frames.bytes(),
    })
}
