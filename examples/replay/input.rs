//! Opening a trace: plain text as it is, zstd decoded on the fly (pure Rust, nothing to install).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::trace::TraceError;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first bytes of other compressed formats that a user may well have at hand.
const OTHERS: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip"),
    (b"BZh", "bzip2"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (b"PK\x03\x04", "zip"),
];
const BUFFER: usize = 128 * 1024;

/// Opens the file at `path` for reading line by line, whatever its name ends with: the first bytes
/// tell zstd from text. A name that ends in `.zst` before other content is an error, and so is a
/// file in another compressed format.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, TraceError> {
    let file = File::open(path).map_err(TraceError::Open)?;
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let start = reader.fill_buf().map_err(TraceError::Open)?;
    if start.starts_with(&ZSTD_MAGIC) {
        let frames = Frames::new(reader);
        return Ok(Box::new(BufReader::with_capacity(BUFFER, frames)));
    }
    if let Some((_, format)) = OTHERS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(TraceError::Compressed { format });
    }
    if path.extension().is_some_and(|end| end == "zst") {
        let found = start.iter().take(4).map(|b| format!("{b:02x}")).collect();
        return Err(TraceError::NotZstd { found });
    }
    Ok(Box::new(reader))
}

/// The content of all zstd frames of a stream one after the other, each frame's checksum verified.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            inside: false,
        }
    }

    /// Begins the next frame; false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let mut skipped = self.source.by_ref().take(length);
                    if io::copy(&mut skipped, &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    fn verify(&self) -> io::Result<()> {
        let (stored, computed) = (
            self.decoder.get_checksum_from_data(),
            self.decoder.get_calculated_checksum(),
        );
        if stored.is_some() && stored != computed {
            return Err(damaged("its checksum does not match its content"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if !self.begin()? {
                    return Ok(0);
                }
                self.inside = true;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.verify()?;
                self.inside = false;
            } else {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(damaged)?;
            }
        }
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn decode(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Frames::new(bytes).read_to_end(&mut out).map(|_| out)
    }

    fn frame(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    #[test]
    fn several_frames_read_as_one_stream_and_skippable_ones_are_skipped() {
        let mut file = frame(b"1\n2\n");
        file.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
        file.extend(frame(b"3\n"));
        assert_eq!(decode(&file).unwrap(), b"1\n2\n3\n");
    }

    #[test]
    fn a_cut_file_is_an_error_and_not_a_shorter_trace() {
        let whole = frame(&b"17 4 3 2\n".repeat(1_000));
        for keep in [5, whole.len() / 2, whole.len() - 1] {
            assert!(decode(&whole[..keep]).is_err(), "kept {keep} bytes");
        }
        let mut skippable = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9];
        assert!(decode(&skippable).is_err());
        skippable.extend([9, 9]);
        assert_eq!(decode(&skippable).unwrap(), b"");
    }

    #[test]
    fn a_wrong_checksum_is_found() {
        let mut file = frame(b"1\n2\n3\n");
        assert_ne!(file[4] & 0b100, 0, "the encoder writes a checksum");
        *file.last_mut().unwrap() ^= 1;
        let error = decode(&file).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}
