//! `perf/baseline.toml`: the counts that were accepted, and why.

use crate::place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts per operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions.
    pub instructions: f64,
    /// Atomic read-modify-writes.
    pub atomics: f64,
}

/// What was accepted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// The compiler that the counts are of.
    pub rustc: String,
    /// Why each baseline replaced the one before; the last one is in force.
    pub reasons: Vec<String>,
    /// By name of the operation.
    pub counts: BTreeMap<String, Counts>,
}

const HEAD: &str = "\
# Counts per operation under callgrind. Written by `cargo perf gate --bless --reason TEXT`, never by
# hand; `reasons` is the log of what was accepted.

";

impl Baseline {
    /// Reads the file; none yet is an empty baseline.
    ///
    /// # Errors
    /// It is there and not what it should be.
    pub fn read() -> Result<Baseline, String> {
        let path = place::perf("baseline.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Baseline::default()),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> Result<(), String> {
        let path = place::perf("baseline.toml");
        let text = toml::to_string(self).map_err(|e| e.to_string())?;
        std::fs::write(&path, format!("{HEAD}{text}"))
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}
