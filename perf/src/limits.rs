//! `perf/limits.toml`: what must hold.

use crate::place;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub counts: Counts,
    #[serde(default)]
    pub ratio: Vec<Ratio>,
    #[serde(default)]
    pub threads: Vec<Threads>,
    #[serde(default)]
    pub peer: Vec<Peer>,
}

/// How far counts may lie over the baseline, as shares of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub instructions_over: f64,
    pub atomics_over: f64,
}

/// One operation over another, within one run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    pub name: String,
    pub of: String,
    pub over: String,
    pub at_most: f64,
    /// Judged on instruction counts.
    #[serde(default)]
    pub counts: bool,
    /// Judged on wall times.
    #[serde(default)]
    pub wall: bool,
}

/// Throughput of two threads over that of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    pub name: String,
    pub operation: String,
    pub at_least: f64,
}

/// How many times as long a peer takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    pub pair: String,
    pub ranks: usize,
    pub at_least: f64,
}

impl Limits {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not there, or not what it should be.
    pub fn read() -> Result<Limits, String> {
        let path = place::perf("limits.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_operations_that_are_measured() {
        let limits = Limits::read().unwrap();
        let known = |name: &str| vacancy_bench::scenes::NAMES.contains(&name);
        let counted = |name: &str| vacancy_bench::scenes::counted().any(|n| n == name);
        for ratio in &limits.ratio {
            assert!(known(&ratio.of) && known(&ratio.over), "{}", ratio.name);
            assert!(!ratio.counts || (counted(&ratio.of) && counted(&ratio.over)));
            assert!(ratio.counts || ratio.wall, "{} is never judged", ratio.name);
        }
        for threads in &limits.threads {
            assert!(known(&threads.operation), "{}", threads.name);
        }
    }
}
