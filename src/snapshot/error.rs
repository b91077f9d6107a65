//! What can go wrong with a snapshot.

use std::error::Error;
use std::fmt;
use std::io;

use super::Restored;

/// Why a snapshot could not be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The writer's or the reader's error.
    Io(io::Error),
    /// It does not begin as a snapshot does.
    NotASnapshot,
    /// It was written by a newer version of this library.
    NewerVersion {
        /// Its version of the format.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// Its keys and values are of other types than are expected: see
    /// [`RestoreOptions::schema`](super::RestoreOptions::schema).
    OtherSchema {
        /// The number it was written with.
        found: u64,
        /// The number that was asked for.
        expected: u64,
    },
    /// Some of it is not what was written.
    Damaged {
        /// The byte at which the part begins whose checksum is wrong.
        at: u64,
    },
    /// It ends before its end.
    Truncated {
        /// How many bytes there are.
        at: u64,
    },
    /// Something follows after its end.
    TrailingData {
        /// The first byte that is not the snapshot's.
        at: u64,
    },
    /// Undamaged, but an entry cannot be written, or is none of these types.
    Format {
        /// The number of the entry, from 0.
        entry: u64,
        /// What the format says of it.
        reason: String,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Io(error) => error.fmt(f),
            SnapshotError::NotASnapshot => f.write_str("this is no snapshot"),
            SnapshotError::NewerVersion { found, known } => write!(
                f,
                "the snapshot is of version {found}, the newest known here is {known}"
            ),
            SnapshotError::OtherSchema { found, expected } => write!(
                f,
                "the snapshot's entries are of schema {found}, expected are those of {expected}"
            ),
            SnapshotError::Damaged { at } => {
                write!(f, "the snapshot is damaged, in the part at byte {at}")
            }
            SnapshotError::Truncated { at } => {
                write!(f, "the snapshot is truncated, after {at} bytes")
            }
            SnapshotError::TrailingData { at } => {
                write!(f, "the snapshot is followed by other data, at byte {at}")
            }
            SnapshotError::Format { entry, reason } => write!(f, "entry {entry}: {reason}"),
        }
    }
}

impl Error for SnapshotError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SnapshotError::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        SnapshotError::Io(error)
    }
}

/// Why [`Cache::load`](crate::Cache::load) did not come to the end, and how far it came.
#[derive(Debug)]
pub struct LoadError {
    /// Why.
    pub error: SnapshotError,
    /// What had been restored before, all of it undamaged. It stays in the cache.
    pub restored: Restored,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadError { error, restored } = self;
        write!(f, "{error} ({} entries were restored)", restored.inserted)
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // (The error itself is in what this displays.)
        self.error.source()
    }
}
