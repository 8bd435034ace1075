//! Counting under callgrind: the tools, the run, the figures.

use crate::baseline::Counts;
use crate::place;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use vacancy_bench::scenes::{OPERATIONS, counted};

/// The version of the runner; that of `iai-callgrind` in `bench/Cargo.toml`.
const RUNNER: &str = "0.16.1";

/// Runs a command with its output on stderr (stdout is for the answer).
fn run(command: &mut Command) -> Result<(), String> {
    let name = format!("{command:?}");
    let status = command.stdout(std::io::stderr()).status().map_err(|e| format!("{name}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// What a command prints, if it can be run.
pub fn ask(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Installs valgrind if it is not there.
fn valgrind() -> Result<String, String> {
    if let Some(version) = ask("valgrind", &["--version"]) {
        return Ok(version);
    }
    eprintln!("perf: installing valgrind");
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get").args(["install", "-y", "-qq", "valgrind"]))?;
    ask("valgrind", &["--version"]).ok_or("valgrind was installed and cannot be run".into())
}

/// Installs the runner, next to what cargo builds, if it is not there.
fn runner() -> Result<PathBuf, String> {
    let root = place::target().join("perf-tools");
    let path = root.join("bin/iai-callgrind-runner");
    // Its own version is the one thing that must fit; cargo keeps it beside what it installed.
    let installed = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    if path.exists() && installed.contains(&format!("iai-callgrind-runner {RUNNER} ")) {
        return Ok(path);
    }
    eprintln!("perf: installing iai-callgrind-runner {RUNNER}");
    let mut install = Command::new(place::cargo());
    // It only drives valgrind: not worth optimising.
    install.args(["install", "--quiet", "--locked", "--force", "--debug", "iai-callgrind-runner"]);
    install.arg("--version").arg(format!("={RUNNER}")).arg("--root").arg(&root);
    // Nothing of this workspace is for it: neither its directory's settings nor its target.
    install.current_dir(std::env::temp_dir()).env_remove("CARGO_TARGET_DIR");
    run(&mut install)?;
    Ok(path)
}

/// Counts every operation of [`counted`].
///
/// # Errors
/// A tool is missing and cannot be had, a bench fails, or a figure is missing.
pub fn count(control: bool) -> Result<BTreeMap<String, Counts>, String> {
    eprintln!("perf: {}", valgrind()?);
    let runner = runner()?;
    // Fresh figures or none.
    let home = place::target().join(if control { "perf-counts-control" } else { "perf-counts" });
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    }
    let features = if control { "callgrind,control" } else { "callgrind" };
    let mut bench = Command::new(place::cargo());
    bench.args(["bench", "-q", "-p", "vacancy-bench", "--bench", "callgrind"]);
    bench.args(["--features", features]).current_dir(place::root());
    bench.env("IAI_CALLGRIND_RUNNER", runner).env("IAI_CALLGRIND_HOME", &home);
    bench.env("IAI_CALLGRIND_COLOR", "never");
    run(&mut bench)?;

    let mut files = Vec::new();
    find(&home, &mut files);
    let mut counts = BTreeMap::new();
    for name in counted() {
        let id = format!("operations.{}.out", name.replace('/', "_"));
        let file = files
            .iter()
            .find(|path| path.to_string_lossy().ends_with(&id))
            .ok_or_else(|| format!("{name}: callgrind left no figures"))?;
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let figures = parse(&text).ok_or_else(|| format!("{}: no totals in it", file.display()))?;
        counts.insert(name.to_owned(), figures);
    }
    Ok(counts)
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Reads the events and their totals out of callgrind's own format.
fn parse(text: &str) -> Option<Counts> {
    let after = |key: &str| text.lines().rev().find_map(|line| line.strip_prefix(key));
    let events: Vec<&str> = after("events: ")?.split_whitespace().collect();
    let totals: Vec<f64> = after("totals: ")
        .or_else(|| after("summary: "))?
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    let total = |event: &str| {
        let at = events.iter().position(|e| *e == event)?;
        // Trailing zeros are left out of the line.
        Some(totals.get(at).copied().unwrap_or_default() / OPERATIONS as f64)
    };
    Some(Counts { instructions: total("Ir")?, atomics: total("Ge")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_by_the_name_of_the_event() {
        let text = "version: 1\nevents: Ir Ge\nfn=main\n1 64\n\ntotals: 3200 64\n";
        let counts = parse(text).unwrap();
        assert_eq!((counts.instructions, counts.atomics), (100.0, 2.0));
        assert!(parse("events: Ir\ntotals: 1\n").is_none(), "no atomics were counted");
        assert_eq!(parse("events: Ir Ge\ntotals: 3200\n").unwrap().atomics, 0.0);
    }

    #[test]
    fn the_runner_has_the_version_of_the_library() {
        let manifest = std::fs::read_to_string(place::root().join("bench/Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("iai-callgrind = \"={RUNNER}\"")));
    }
}
