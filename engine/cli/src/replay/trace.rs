//! Reading traces: JSON Lines with `timestamp` (ms), `input_length`, `output_length` and, if the
//! trace has them, `hash_ids` (one per block of the prompt) and `class` (the policy class or family
//! that the request names).
//!
//! What always holds: a line is looked at by itself, is never longer in memory than [`MAX_LINE`],
//! and every refusal names its line. Arrivals come out sorted, the first at 0.
#![forbid(unsafe_code)]

use super::arrivals::{Arrival, chain};
use serde::Deserialize;
use std::fmt;
use std::io::{self, BufRead};
use vacancy::{Name, Prompt};

/// The longest line that is read, in bytes. A prompt of a million tokens in blocks of 16 fits
/// about five times; a file without line ends cannot fill the memory.
pub const MAX_LINE: usize = 4 << 20;

/// The latest instant that a trace may reach, in ns: half of what the clock holds, so that
/// service times can be added without a check each.
pub const LAST_INSTANT: f64 = (u64::MAX / 2) as f64;

/// Why a trace cannot be taken.
#[derive(Debug)]
pub enum TraceError {
    /// It cannot be read.
    Io(io::Error),
    /// A line is longer than [`MAX_LINE`].
    TooLong { line: u64 },
    /// A line is not a JSON object with the keys of a trace.
    Json { line: u64, message: String },
    /// A field of a line holds what no request can have.
    Field { line: u64, field: &'static str, value: String },
    /// No line holds a request.
    Empty,
    /// The trace, at this speed, reaches further than the clock.
    TooFar { ms: f64 },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(e) => write!(f, "cannot be read: {e}"),
            TraceError::TooLong { line } => {
                write!(f, "line {line}: longer than {MAX_LINE} bytes")
            }
            TraceError::Json { line, message } => write!(f, "line {line}: {message}"),
            TraceError::Field { line, field, value } => {
                write!(f, "line {line}: {field} is {value}")
            }
            TraceError::Empty => f.write_str("holds no request"),
            TraceError::TooFar { ms } => {
                write!(f, "reaches to {ms:e} ms at this speed, which is past the clock")
            }
        }
    }
}

impl std::error::Error for TraceError {}

/// How a trace is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Tokens per block.
    pub block: u32,
    /// Timestamps are divided by this.
    pub speedup: f64,
    /// Stop after so many requests.
    pub most: Option<usize>,
    /// Count malformed lines instead of refusing the trace.
    pub skip_bad: bool,
}

/// What a trace holds.
#[derive(Debug)]
pub struct Trace {
    /// The requests, by arrival; those of one instant in the order of the file.
    pub arrivals: Vec<Arrival>,
    /// Malformed lines that were skipped.
    pub bad_lines: u64,
}

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Option<Vec<u64>>,
    #[serde(default)]
    class: Option<String>,
}

/// Reads a trace to its end, or to the first line that cannot be taken. Blank lines are passed
/// over. `O(n log n)` for `n` requests, in memory that the requests kept need.
///
/// # Errors
/// Each [`TraceError`] as it says; with `skip_bad`, those that name a line are counted instead.
pub fn read(mut from: impl BufRead, how: Reading) -> Result<Trace, TraceError> {
    let mut bytes = Vec::new();
    let mut kept: Vec<(f64, Arrival)> = Vec::new();
    let mut bad_lines = 0;
    let mut line = 0;
    while how.most.is_none_or(|most| kept.len() < most) {
        line += 1;
        let taken = match next_line(&mut from, &mut bytes).map_err(TraceError::Io)? {
            Found::End => break,
            Found::TooLong => Err(TraceError::TooLong { line }),
            Found::Line if bytes.trim_ascii().is_empty() => continue,
            Found::Line => parse(&bytes, line, how.block),
        };
        match taken {
            Ok(request) => kept.push(request),
            Err(_) if how.skip_bad => bad_lines += 1,
            Err(e) => return Err(e),
        }
    }
    // A stable sort: requests of one instant keep the order of the file.
    kept.sort_by(|a, b| a.0.total_cmp(&b.0));
    let origin = kept.first().ok_or(TraceError::Empty)?.0;
    let arrivals = kept
        .into_iter()
        .map(|(ms, mut arrival)| {
            let ns = (ms - origin) * 1e6 / how.speedup;
            if ns > LAST_INSTANT {
                return Err(TraceError::TooFar { ms: ns / 1e6 });
            }
            arrival.at = ns.round() as u64;
            Ok(arrival)
        })
        .collect::<Result<_, _>>()?;
    Ok(Trace { arrivals, bad_lines })
}

enum Found {
    Line,
    TooLong,
    End,
}

/// Puts the next line, without its end, into `bytes`. Of a line that is too long nothing is kept,
/// and the reader stands behind it.
fn next_line(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<Found> {
    bytes.clear();
    let (mut any, mut long) = (false, false);
    loop {
        let there = match from.fill_buf() {
            Ok(there) => there,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if there.is_empty() {
            break;
        }
        any = true;
        let end = there.iter().position(|&b| b == b'\n');
        let piece = &there[..end.unwrap_or(there.len())];
        long |= bytes.len() + piece.len() > MAX_LINE;
        if !long {
            bytes.extend_from_slice(piece);
        }
        let used = piece.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(match (any, long) {
        (false, _) => Found::End,
        (true, true) => Found::TooLong,
        (true, false) => Found::Line,
    })
}

/// One request, with its timestamp as the trace has it.
fn parse(bytes: &[u8], line: u64, block: u32) -> Result<(f64, Arrival), TraceError> {
    let field = |field, value: String| TraceError::Field { line, field, value };
    let found: Line = serde_json::from_slice(bytes).map_err(|e| {
        // The position that serde_json adds is one within the line: its line number is always 1.
        let text = e.to_string();
        let said = text.rsplit_once(" at line ").map_or(&*text, |(said, _)| said);
        TraceError::Json { line, message: format!("column {}: {said}", e.column()) }
    })?;
    if !(found.timestamp.is_finite() && found.timestamp >= 0.0) {
        return Err(field("timestamp", found.timestamp.to_string()));
    }
    let isl = u32::try_from(found.input_length)
        .map_err(|_| field("input_length", format!("{}, above 32 bits", found.input_length)))?;
    let osl = u32::try_from(found.output_length)
        .map_err(|_| field("output_length", format!("{}, above 32 bits", found.output_length)))?;
    let prompt = match found.hash_ids {
        None => None,
        Some(ids) => {
            let blocks = isl.div_ceil(block);
            if ids.len() > blocks as usize {
                let value = format!("{} ids for a prompt of {blocks} blocks", ids.len());
                return Err(field("hash_ids", value));
            }
            let hashes = chain(&ids);
            Some(Prompt::new(hashes).map_err(|e| field("hash_ids", e.to_string()))?)
        }
    };
    let class = found.class.map(Name::from);
    Ok((found.timestamp, Arrival { at: 0, isl, osl, prompt, class }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Reading = Reading { block: 512, speedup: 1.0, most: None, skip_bad: false };

    fn error(text: &str) -> String {
        read(text.as_bytes(), HOW).unwrap_err().to_string()
    }

    #[test]
    fn arrivals_are_sorted_shifted_to_zero_and_divided_by_the_speedup() {
        let text = "{\"timestamp\": 3000, \"input_length\": 3, \"output_length\": 1}\n\n\
                    {\"timestamp\": 1000, \"input_length\": 1, \"output_length\": 1, \"class\": \"c\"}\r\n\
                    {\"timestamp\": 1000.5, \"input_length\": 2, \"output_length\": 1}";
        let how = Reading { speedup: 2.0, ..HOW };
        let trace = read(text.as_bytes(), how).unwrap();
        let seen: Vec<_> = trace.arrivals.iter().map(|a| (a.at, a.isl)).collect();
        assert_eq!(seen, [(0, 1), (250_000, 2), (1_000_000_000, 3)]);
        let classes: Vec<_> = trace.arrivals.iter().map(|a| a.class.as_deref()).collect();
        assert_eq!(classes, [Some("c"), None, None]);
    }

    #[test]
    fn a_malformed_line_is_refused_by_its_number() {
        let good = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1}\n";
        for (bad, says) in [
            ("{", "line 2: column 1: EOF"),
            ("7", "line 2: column 1: invalid type"),
            ("{\"timestamp\": 0, \"input_length\": 3}", "missing field `output_length`"),
            ("{\"timestamp\": -1, \"input_length\": 3, \"output_length\": 1}", "timestamp is -1"),
            ("{\"timestamp\": 1, \"input_length\": -3, \"output_length\": 1}", "line 2: column"),
            (
                "{\"timestamp\": 1, \"input_length\": 4294967296, \"output_length\": 1}",
                "input_length is 4294967296",
            ),
            (
                "{\"timestamp\": 1, \"input_length\": 512, \"output_length\": 1, \
                 \"hash_ids\": [1, 2]}",
                "hash_ids is 2 ids for a prompt of 1 blocks",
            ),
            ("\u{0}\u{1}", "line 2"),
        ] {
            let said = error(&format!("{good}{bad}\n{good}"));
            assert!(said.contains(says) && said.contains("line 2"), "{bad}: {said}");
        }
        assert_eq!(error(""), "holds no request");
        assert_eq!(error("\n \n"), "holds no request");
    }

    #[test]
    fn bad_lines_are_counted_if_asked_for() {
        let good = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1}\n";
        let text = format!("x\n{good}{}\n{good}{{\n", "a".repeat(MAX_LINE + 1));
        let how = Reading { skip_bad: true, ..HOW };
        let trace = read(text.as_bytes(), how).unwrap();
        assert_eq!((trace.arrivals.len(), trace.bad_lines), (2, 3));
    }

    #[test]
    fn an_endless_line_is_refused_without_being_kept() {
        struct Endless(u64);
        impl io::Read for Endless {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let n = (to.len() as u64).min(self.0) as usize;
                to[..n].fill(b'[');
                self.0 -= n as u64;
                Ok(n)
            }
        }
        let mut from = io::BufReader::new(Endless(64 << 20));
        let mut bytes = Vec::new();
        assert!(matches!(next_line(&mut from, &mut bytes), Ok(Found::TooLong)));
        assert!(bytes.capacity() <= 2 * MAX_LINE);
        let from = io::BufReader::new(Endless(64 << 20));
        assert!(matches!(read(from, HOW), Err(TraceError::TooLong { line: 1 })));
    }

    #[test]
    fn a_line_of_the_longest_length_is_still_read() {
        let body = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1}";
        let text = format!("{body}{}\n", " ".repeat(MAX_LINE - body.len()));
        assert_eq!(read(text.as_bytes(), HOW).unwrap().arrivals.len(), 1);
    }

    #[test]
    fn a_trace_past_the_clock_is_refused() {
        let text = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1}\n\
                    {\"timestamp\": 1e300, \"input_length\": 3, \"output_length\": 1}\n";
        assert!(matches!(read(text.as_bytes(), HOW), Err(TraceError::TooFar { .. })));
    }
}
