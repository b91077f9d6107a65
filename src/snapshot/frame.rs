//! The binary form, but for what an entry is.
//!
//! | part | bytes |
//! |---|---|
//! | magic, version | 8, 4 |
//! | schema, wall clock at saving | 8, 8 |
//! | a frame's length, not 0 | 4 |
//! | the frame | as many |
//! | … further frames … | |
//! | 0: no further frame | 4 |
//! | number of records | 8 |
//!
//! Each part is followed by the CRC-32 of all parts so far (without the checksums in between), so
//! that parts cannot be lost or change places either, a length is checked before it is believed, and the
//! last checksum is that of everything. Numbers have their lowest byte first. The frames in a row are a
//! stream of records: a length of 4 bytes, and as many bytes. The first part is the same for all versions.

use std::io::{self, ErrorKind, Read, Write};

use crc32fast::Hasher;

use super::error::SnapshotError;
use super::record::{Header, VERSION};

/// Like PNG's: no text, and conversions of line ends or of the eighth bit do not leave it as it is.
const MAGIC: [u8; 8] = *b"\x89EBT\r\n\x1a\n";

/// Most bytes in a frame. What is read is checked before it is used: a reader keeps one in memory.
pub(super) const FRAME: usize = 64 << 10;

/// Bytes of a checksum.
const SUM: usize = 4;

/// Writes records into frames.
pub(super) struct FrameWriter<W> {
    writer: W,
    sum: Hasher,
    /// Parts that are to be written together.
    out: Vec<u8>,
    /// Records that have not been written yet.
    pending: Vec<u8>,
    records: u64,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn begin(writer: W, header: Header) -> Result<Self, SnapshotError> {
        let mut frames = FrameWriter {
            writer,
            sum: Hasher::new(),
            out: Vec::new(),
            pending: Vec::new(),
            records: 0,
            bytes: 0,
        };
        frames.part(&[&MAGIC, &header.version.to_le_bytes()]);
        frames.part(&[&header.schema.to_le_bytes(), &header.saved_at.to_le_bytes()]);
        frames.write_out()?;
        Ok(frames)
    }

    /// Adds a record, which `write` appends to what it is given. Does not touch the writer.
    pub(super) fn record(
        &mut self,
        write: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, String>,
    ) -> Result<(), SnapshotError> {
        let entry = self.records;
        let failed = |reason| SnapshotError::Format { entry, reason };
        let mut pending = std::mem::take(&mut self.pending);
        let begin = pending.len();
        pending.extend([0; 4]);
        let mut pending = write(pending).map_err(failed)?;
        let length = pending.len() - begin - 4;
        let length = u32::try_from(length)
            .map_err(|_| failed(format!("{length} bytes are too many for one entry")))?;
        pending[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        self.pending = pending;
        self.records += 1;
        Ok(())
    }

    /// Whether there is enough for a frame.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= FRAME
    }

    /// Writes the frames that are full.
    pub(super) fn write_full(&mut self) -> Result<(), SnapshotError> {
        if !self.is_full() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let full = pending.len() / FRAME * FRAME;
        for frame in pending[..full].chunks(FRAME) {
            self.frame(frame)?;
        }
        pending.drain(..full);
        // After an entry of many frames.
        pending.shrink_to(2 * FRAME);
        self.pending = pending;
        Ok(())
    }

    /// Writes what is left, and the end; how many records and bytes there are.
    pub(super) fn end(mut self) -> Result<(u64, u64), SnapshotError> {
        self.write_full()?;
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.frame(&pending)?;
        }
        self.part(&[&0_u32.to_le_bytes()]);
        let records = self.records.to_le_bytes();
        self.part(&[&records]);
        self.write_out()?;
        self.writer.flush()?;
        Ok((self.records, self.bytes))
    }

    fn frame(&mut self, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).expect("frames are shorter");
        self.part(&[&length.to_le_bytes()]);
        self.part(&[frame]);
        self.write_out()
    }

    fn part(&mut self, part: &[&[u8]]) {
        for bytes in part {
            self.sum.update(bytes);
            self.out.extend_from_slice(bytes);
        }
        let sum = self.sum.clone().finalize();
        self.out.extend_from_slice(&sum.to_le_bytes());
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.out)?;
        self.bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

/// Reads records out of frames, none before its checksum was found right.
pub(super) struct FrameReader<R> {
    reader: R,
    sum: Hasher,
    header: Header,
    frame: Vec<u8>,
    /// How much of the frame has been used.
    used: usize,
    records: u64,
    bytes: u64,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn begin(reader: R) -> Result<Self, SnapshotError> {
        let mut frames = FrameReader {
            reader,
            sum: Hasher::new(),
            header: Header {
                version: 0,
                schema: 0,
                saved_at: 0,
            },
            frame: Vec::new(),
            used: 0,
            records: 0,
            bytes: 0,
        };
        let mut first = [0; MAGIC.len() + 4];
        let magic = frames.read(&mut first[..MAGIC.len()])?;
        if first[..magic] != MAGIC[..magic] {
            return Err(SnapshotError::NotASnapshot);
        }
        frames.read_all(&mut first[magic..])?;
        frames.check(&first, 0)?;
        let version = u32::from_le_bytes(array(&first[MAGIC.len()..]));
        if version > VERSION {
            return Err(SnapshotError::NewerVersion {
                found: version,
                known: VERSION,
            });
        }
        let mut header = [0; 16];
        frames.part(&mut header)?;
        frames.header = Header {
            version,
            schema: u64::from_le_bytes(array(&header[..8])),
            saved_at: u64::from_le_bytes(array(&header[8..])),
        };
        Ok(frames)
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    /// The number of records that have been read.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// The number of bytes that have been read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the next record; false if there is none, and nothing else either.
    pub(super) fn record(&mut self, record: &mut Vec<u8>) -> Result<bool, SnapshotError> {
        record.clear();
        // After a record of many frames.
        record.shrink_to(2 * FRAME);
        if self.used == self.frame.len() && !self.next_frame()? {
            return Ok(false);
        }
        self.take(4, record)?;
        let length = u32::from_le_bytes(array(record));
        record.clear();
        self.take(length as usize, record)?;
        self.records += 1;
        Ok(true)
    }

    /// Appends as many bytes of the frames. (No more room is taken than there are bytes.)
    fn take(&mut self, count: usize, bytes: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let mut count = count;
        while count > 0 {
            if self.used == self.frame.len() {
                let at = self.bytes;
                if !self.next_frame()? {
                    return Err(SnapshotError::Damaged { at });
                }
            }
            let some = count.min(self.frame.len() - self.used);
            bytes.extend_from_slice(&self.frame[self.used..self.used + some]);
            self.used += some;
            count -= some;
        }
        Ok(())
    }

    /// Reads a frame, or the end.
    fn next_frame(&mut self) -> Result<bool, SnapshotError> {
        let at = self.bytes;
        let mut length = [0; 4];
        self.part(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            self.end(at)?;
            return Ok(false);
        }
        if length > FRAME {
            return Err(SnapshotError::Damaged { at });
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(length, 0);
        self.part(&mut frame)?;
        (self.frame, self.used) = (frame, 0);
        Ok(true)
    }

    fn end(&mut self, at: u64) -> Result<(), SnapshotError> {
        let mut records = [0; 8];
        self.part(&mut records)?;
        if u64::from_le_bytes(records) != self.records {
            return Err(SnapshotError::Damaged { at });
        }
        let at = self.bytes;
        match self.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(SnapshotError::TrailingData { at }),
        }
    }

    /// Reads a part and its checksum.
    fn part(&mut self, part: &mut [u8]) -> Result<(), SnapshotError> {
        let at = self.bytes;
        self.read_all(part)?;
        self.check(part, at)
    }

    /// Reads the checksum after a part that begins at this byte.
    fn check(&mut self, part: &[u8], at: u64) -> Result<(), SnapshotError> {
        self.sum.update(part);
        let mut sum = [0; SUM];
        self.read_all(&mut sum)?;
        if u32::from_le_bytes(sum) != self.sum.clone().finalize() {
            return Err(SnapshotError::Damaged { at });
        }
        Ok(())
    }

    fn read_all(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        if self.read(buffer)? < buffer.len() {
            return Err(SnapshotError::Truncated { at: self.bytes });
        }
        Ok(())
    }

    /// Fills the buffer as far as there is anything.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(some) => filled += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes += filled as u64;
        Ok(filled)
    }
}

/// The bytes of a number.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes")
}
