//! The trace format: one request a line, columns separated by spaces.
//!
//! | columns                | what the replay does with them                                     |
//! |------------------------|--------------------------------------------------------------------|
//! | `key`                  | get; after a miss insert, with the default size and lifetime       |
//! | `key size`             | the same with this value size in bytes                             |
//! | `key size ttl time`    | the same with this lifetime; both in whole seconds, lifetime 0 = never expires |
//! | `key size ttl time op` | `GET`, `GET_LEASE` only read, `SET`, `SET_LEASE` insert, `DELETE` removes |
//!
//! Keys and sizes are whole numbers. Times never step back. The first line decides how many columns
//! all the others must have.

use std::fmt;
use std::io::{self, BufRead, Read};

use crate::timeline;

/// The largest value size that is accepted: more is taken for an error in the file.
const MAX_SIZE: u64 = 1 << 30;
/// The longest lifetime and the longest trace that are accepted, in seconds (some 31 years).
const MAX_SECONDS: u64 = 1_000_000_000;
/// No sensible line is longer; without a limit a binary file could be read whole into one line.
const MAX_LINE: u64 = 4 * 1024;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Get and, after a miss, insert: traces without an op column.
    Fetch,
    /// Get alone.
    Get,
    /// Insert.
    Set,
    /// Remove.
    Delete,
}

/// One request of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: u64,
    /// Nanoseconds of trace time since the trace's first second began.
    pub(crate) at: u64,
    /// Bytes of the value.
    pub(crate) size: u32,
    /// Lifetime in seconds of trace time; 0 never expires.
    pub(crate) ttl: u32,
    pub(crate) op: Op,
}

/// A whole trace in memory.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    /// How many columns the file has: 1, 2, 4 or 5.
    pub(crate) columns: usize,
    /// How much trace time the requests cover, in nanoseconds.
    pub(crate) span: u64,
}

impl Trace {
    pub(crate) fn has_sizes(&self) -> bool {
        self.columns >= 2
    }

    pub(crate) fn has_times(&self) -> bool {
        self.columns >= 4
    }
}

/// What stands in for the columns that a trace lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Bytes of a value.
    pub(crate) size: u32,
    /// Seconds of trace time.
    pub(crate) ttl: u32,
    /// Requests a second of trace time.
    pub(crate) rate: f64,
}

/// Why a trace cannot be used.
#[derive(Debug)]
pub(crate) enum TraceError {
    /// The file cannot be opened or read at all.
    Open(io::Error),
    /// The name says zstd, the content does not.
    NotZstd { found: String },
    /// Compressed with something else.
    Compressed { format: &'static str },
    /// Reading failed after so many good lines: damaged zstd data or a failing disk.
    Read { after: u64, error: io::Error },
    /// A line that is not in the format.
    Malformed {
        line: u64,
        expected: String,
        found: String,
    },
    /// No line at all.
    Empty,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "cannot be read: {error}"),
            Self::NotZstd { found } if found.is_empty() => {
                write!(f, "is named .zst but is an empty file")
            }
            Self::NotZstd { found } => write!(
                f,
                "is named .zst but is not zstd data: it begins with the bytes {found}, not 28b52ffd"
            ),
            Self::Compressed { format } => write!(
                f,
                "is {format} data; decompress it first, or compress it with zstd"
            ),
            Self::Read { after, error } => {
                write!(
                    f,
                    "is damaged or cut short: reading failed after line {after}: {error}"
                )
            }
            Self::Malformed {
                line,
                expected,
                found,
            } => write!(f, "line {line}: expected {expected}, found {found}"),
            Self::Empty => write!(f, "holds no requests"),
        }
    }
}

/// Reads a trace to its end, or its first `limit` requests (nothing behind them is read or checked).
///
/// Whole-second times are spread inside their second; see [`timeline`].
pub(crate) fn read(
    mut input: impl BufRead,
    defaults: Defaults,
    limit: Option<usize>,
) -> Result<Trace, TraceError> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut requests = Vec::new();
    let mut columns = None;
    let mut clock = Seconds::default();
    let mut line = Vec::with_capacity(128);
    let mut number = 0;
    while requests.len() < limit && next_line(&mut input, &mut line, number)? {
        number += 1;
        let request = parse(&line, &mut columns, &mut clock, defaults).map_err(
            |Fault { expected, found }| TraceError::Malformed {
                line: number,
                expected,
                found,
            },
        )?;
        requests.push(request);
    }
    let Some(columns) = columns else {
        return Err(TraceError::Empty);
    };
    let span = if columns >= 4 {
        timeline::spread_within_seconds(&mut requests)
    } else {
        timeline::spread_evenly(&mut requests, defaults.rate)
    };
    Ok(Trace {
        requests,
        columns,
        span,
    })
}

/// Reads the next line into `line`, without its end; false at the end of the input.
fn next_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: u64,
) -> Result<bool, TraceError> {
    line.clear();
    let read = input
        .take(MAX_LINE)
        .read_until(b'\n', line)
        .map_err(|error| TraceError::Read {
            after: number,
            error,
        })?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if read as u64 == MAX_LINE {
        return Err(TraceError::Malformed {
            line: number + 1,
            expected: format!("a line of fewer than {MAX_LINE} bytes"),
            found: format!("a longer one that begins with {}", shown(line)),
        });
    }
    Ok(read > 0)
}

/// What is wrong with a line.
struct Fault {
    expected: String,
    found: String,
}

fn fault<T>(expected: impl Into<String>, found: impl Into<String>) -> Result<T, Fault> {
    Err(Fault {
        expected: expected.into(),
        found: found.into(),
    })
}

/// The times seen so far, in whole seconds.
#[derive(Default)]
struct Seconds {
    first: Option<u64>,
    last: u64,
}

/// Reads one line. `at` of the request is left in whole seconds since the trace's first.
fn parse(
    line: &[u8],
    columns: &mut Option<usize>,
    clock: &mut Seconds,
    defaults: Defaults,
) -> Result<Request, Fault> {
    let mut fields = [&line[..0]; 5];
    let mut count = 0;
    for field in line.split(|b| *b == b' ' || *b == b'\t') {
        if field.is_empty() {
            continue;
        }
        if let Some(place) = fields.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    match *columns {
        Some(columns) if count != columns => {
            let expected = format!("{} as on line 1", columns_named(columns));
            return fault(expected, found_columns(count, line));
        }
        Some(_) => {}
        None if matches!(count, 1 | 2 | 4 | 5) => *columns = Some(count),
        None => {
            return fault(
                "\"key\", \"key size\", \"key size ttl time\" or \"key size ttl time op\"",
                found_columns(count, line),
            );
        }
    }
    let mut request = Request {
        key: number(fields[0], "a key", u64::MAX)?,
        at: 0,
        size: defaults.size,
        ttl: defaults.ttl,
        op: Op::Fetch,
    };
    if count >= 2 {
        request.size = number(fields[1], "a size in bytes", MAX_SIZE)? as u32;
    }
    if count >= 4 {
        request.ttl = number(fields[2], "a lifetime in seconds", MAX_SECONDS)? as u32;
        let time = number(fields[3], "a time in seconds", u64::MAX)?;
        let first = *clock.first.get_or_insert(time);
        if time < clock.last {
            return fault(
                format!("a time not before the previous line's {} s", clock.last),
                format!("{time} s"),
            );
        }
        if time - first > MAX_SECONDS {
            return fault(
                format!("a time at most {MAX_SECONDS} s after the first line's {first} s"),
                format!("{time} s"),
            );
        }
        clock.last = time;
        request.at = time - first;
    }
    if count == 5 {
        request.op = match fields[4] {
            b"GET" | b"GET_LEASE" => Op::Get,
            b"SET" | b"SET_LEASE" => Op::Set,
            b"DELETE" => Op::Delete,
            other => {
                return fault(
                    "an op of GET, GET_LEASE, SET, SET_LEASE, DELETE",
                    shown(other),
                );
            }
        };
    }
    Ok(request)
}

fn columns_named(columns: usize) -> &'static str {
    match columns {
        1 => "one column \"key\"",
        2 => "two columns \"key size\"",
        4 => "four columns \"key size ttl time\"",
        _ => "five columns \"key size ttl time op\"",
    }
}

fn found_columns(count: usize, line: &[u8]) -> String {
    match count {
        0 => "an empty line".to_owned(),
        1 => format!("one column: {}", shown(line)),
        _ => format!("{count} columns: {}", shown(line)),
    }
}

fn number(field: &[u8], what: &str, most: u64) -> Result<u64, Fault> {
    let value = field.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    match value {
        Some(value) if value <= most => Ok(value),
        _ => fault(
            format!("{what} (a whole number of at most {most})"),
            shown(field),
        ),
    }
}

/// The bytes in quotes, escaped and shortened, so that a binary file does no harm to the terminal.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    let more = if bytes.len() > MOST { "…" } else { "" };
    format!("\"{}{more}\"", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults {
        size: 64,
        ttl: 86_400,
        rate: 2.0,
    };
    const SECOND: u64 = 1_000_000_000;

    fn parsed(text: &str) -> Trace {
        read(text.as_bytes(), DEFAULTS, None).unwrap()
    }

    fn refused(text: impl AsRef<[u8]>) -> String {
        read(text.as_ref(), DEFAULTS, None).unwrap_err().to_string()
    }

    fn request(key: u64, at: u64, size: u32, ttl: u32, op: Op) -> Request {
        Request {
            key,
            at,
            size,
            ttl,
            op,
        }
    }

    #[test]
    fn all_four_columns_are_read() {
        let trace = parsed("0 737 86400 10\n18446744073709551615 0 0 12\n");
        assert_eq!(
            trace.requests,
            [
                request(0, 0, 737, 86_400, Op::Fetch),
                request(u64::MAX, 2 * SECOND, 0, 0, Op::Fetch),
            ]
        );
        assert_eq!((trace.columns, trace.span), (4, 3 * SECOND));
    }

    #[test]
    fn missing_columns_take_the_defaults() {
        let keys = parsed("5\n6\n5\n");
        assert_eq!(
            keys.requests,
            [
                request(5, 0, 64, 86_400, Op::Fetch),
                request(6, SECOND / 2, 64, 86_400, Op::Fetch),
                request(5, SECOND, 64, 86_400, Op::Fetch),
            ]
        );
        assert_eq!(keys.span, SECOND * 3 / 2);
        assert!(!keys.has_sizes() && !keys.has_times());

        let sizes = parsed("5 100\n6 200");
        assert_eq!(
            sizes.requests[1],
            request(6, SECOND / 2, 200, 86_400, Op::Fetch)
        );
        assert!(sizes.has_sizes() && !sizes.has_times());
    }

    #[test]
    fn ops_are_read() {
        let trace = parsed(
            "1 9 0 0 GET\n1 9 60 0 SET\n1 9 0 0 GET_LEASE\n2 9 60 0 SET_LEASE\n1 0 0 0 DELETE\n",
        );
        let ops: Vec<Op> = trace.requests.iter().map(|r| r.op).collect();
        assert_eq!(ops, [Op::Get, Op::Set, Op::Get, Op::Set, Op::Delete]);
        assert!(refused("1 9 0 0 GET\n1 9 0 0 get\n").starts_with("line 2: expected an op of GET"));
    }

    #[test]
    fn line_ends_of_other_systems_tabs_and_a_missing_last_one_are_fine() {
        let expected = parsed("1 2 3 4\n5 6 7 8\n").requests;
        assert_eq!(parsed("1 2 3 4\r\n5\t6  7 8").requests, expected);
    }

    #[test]
    fn a_prefix_reads_no_further() {
        let trace = read("1\n2\nnonsense\n".as_bytes(), DEFAULTS, Some(2)).unwrap();
        assert_eq!(trace.requests.len(), 2);
        assert!(read("1\n2\nnonsense\n".as_bytes(), DEFAULTS, Some(3)).is_err());
    }

    #[test]
    fn a_malformed_line_is_named_with_what_was_expected() {
        assert_eq!(
            refused("1 2 3 4\n1 2 3 4\n1 x 3 4\n"),
            "line 3: expected a size in bytes (a whole number of at most 1073741824), found \"x\""
        );
        assert_eq!(
            refused("1 2\n1 2 3 4\n"),
            "line 2: expected two columns \"key size\" as on line 1, found 4 columns: \"1 2 3 4\""
        );
        assert_eq!(
            refused("1 2 3\n"),
            "line 1: expected \"key\", \"key size\", \"key size ttl time\" or \"key size ttl time op\", \
             found 3 columns: \"1 2 3\""
        );
        assert_eq!(
            refused("1 2\n\n"),
            "line 2: expected two columns \"key size\" as on line 1, found an empty line"
        );
        assert_eq!(
            refused("1 2 3 9\n1 2 3 8\n"),
            "line 2: expected a time not before the previous line's 9 s, found 8 s"
        );
        for (text, column) in [
            ("-1", "a key"),
            ("18446744073709551616", "a key"),
            ("1 1073741825", "a size"),
            ("1 1 1000000001 1", "a lifetime"),
            ("1 1 1 1.5", "a time"),
            ("1 1 1 0\n1 1 1 1000000001", "a time at most"),
        ] {
            assert!(
                refused(text).contains(&format!("expected {column}")),
                "{text}: {}",
                refused(text)
            );
        }
    }

    #[test]
    fn foreign_bytes_are_shown_escaped_and_short() {
        let message = refused(b"\x1b[31m\x00\xff".repeat(20));
        assert!(message.starts_with("line 1: expected a key"), "{message}");
        assert!(message.len() < 400 && message.ends_with("…\""), "{message}");
        assert!(!message.contains('\x1b'), "{message:?}");
        let message = refused(vec![b'7'; 10_000]);
        assert!(message.contains("fewer than 4096 bytes"), "{message}");
    }

    #[test]
    fn nothing_to_replay_is_an_error() {
        assert_eq!(refused(""), "holds no requests");
    }

    #[test]
    fn a_read_error_names_the_last_good_line() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::other("the disk is gone"));
                }
                buffer[..4].copy_from_slice(b"1\n2\n");
                Ok(4)
            }
        }
        let error = read(io::BufReader::new(Broken(false)), DEFAULTS, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "is damaged or cut short: reading failed after line 2: the disk is gone"
        );
    }
}
