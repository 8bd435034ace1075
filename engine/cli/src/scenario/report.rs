//! Prints what a scenario came to: JSON lines for programs, sentences for people.
#![forbid(unsafe_code)]

use super::outcome::StepOutcome;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// JSON on one line with a blank after each comma and colon, as the format shows it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

/// Writes one step as a line of JSON.
///
/// # Errors
/// What the writer answers.
pub fn json_line(out: &mut impl Write, step: &StepOutcome) -> io::Result<()> {
    step.serialize(&mut Serializer::with_formatter(&mut *out, Spaced))?;
    out.write_all(b"\n")
}
