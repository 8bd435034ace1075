//! Files that somebody made to hurt, given to the command line: a refusal that says where, exit
//! code 2, in bounded time and (on Linux, where the shell can bound it) memory.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const MB: usize = 1 << 20;

/// A file of one test's own, removed at its end.
struct Hostile(PathBuf);

impl Hostile {
    /// A file of `head`, as many `piece`s as make `bytes`, and `tail`.
    fn new(name: &str, head: &str, piece: &str, bytes: usize, tail: &str) -> Hostile {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut file = BufWriter::new(File::create(&path).expect("the directory can be written"));
        file.write_all(head.as_bytes()).expect("there is room on the disk");
        for _ in 0..bytes / piece.len() + 1 {
            file.write_all(piece.as_bytes()).expect("there is room on the disk");
        }
        file.write_all(tail.as_bytes()).expect("there is room on the disk");
        file.flush().expect("there is room on the disk");
        Hostile(path)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the command line on `file`.
fn vacancy(args: &[&str], file: &Path) -> Output {
    let start = Instant::now();
    let bin = env!("CARGO_BIN_EXE_vacancy");
    let output = if cfg!(target_os = "linux") {
        // 2 GB of addresses, of which the allocator sets most aside without touching them.
        let script = "ulimit -v 2097152; exec \"$@\"";
        Command::new("sh").args(["-c", script, "sh", bin]).args(args).arg(file).output()
    } else {
        Command::new(bin).args(args).arg(file).output()
    };
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "{args:?} {}: {took:?}", file.display());
    output.expect("it can be run")
}

/// Refuses the file in few words, among them these.
fn refused(args: &[&str], file: &Path, says: &str) {
    let output = vacancy(args, file);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?} {}: {said}", file.display());
    assert!(said.contains(says), "{said}");
    assert!(said.len() < 1000 && output.stdout.is_empty(), "{said}");
}

#[test]
fn a_policy_or_scenario_file_of_50_mb_is_refused_by_its_length() {
    let file = Hostile::new("policy-50mb.yaml", "", "policy_classes: []\n", 50 * MB, "");
    refused(&["policy"], &file.0, "longer than the 1048576 bytes");
    refused(&["scenario"], &file.0, "8388608 are read at most");
    refused(&["replay", "--requests", "1", "--policy"], &file.0, "1048576");
}

#[test]
fn deep_nesting_is_refused_where_it_gets_too_deep() {
    let file = Hostile::new("deep.yaml", "router: ", "[", MB - 64, "");
    refused(&["policy"], &file.0, "line 1");
    let file = Hostile::new("deeper.yaml", "pools: {p: {policy: ", "[", MB - 64, "");
    refused(&["scenario"], &file.0, "recursion limit exceeded");
}

#[test]
fn a_trace_line_of_10_mb_is_refused_by_its_number_and_counted_if_bad_lines_may_be_skipped() {
    let good = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1}\n";
    let head = format!("{good}{{\"timestamp\": 1, \"input_length\": 4, \"hash_ids\": [");
    let tail = format!("1], \"output_length\": 1}}\n{good}");
    let file = Hostile::new("long-line.jsonl", &head, "1, ", 10 * MB, &tail);
    refused(&["replay", "--trace"], &file.0, "line 2: longer than 4194304 bytes");
    let replay = ["replay", "--workers", "2", "--mode", "aggregated", "--json", "--skip-bad"];
    let output = vacancy(&[&replay[..], &["--trace"]].concat(), &file.0);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(result["requests"], 2, "{result}");
}

#[test]
fn a_prompt_of_a_million_hashes_stands_in_a_line_and_is_replayed() {
    // Seven digits and a comma each: it does not fit, and is told so. Short ones do.
    let line = |ids: String| {
        format!(
            "{{\"timestamp\": 0, \"input_length\": 1000000000, \"output_length\": 1, \
             \"hash_ids\": [{ids}]}}\n"
        )
    };
    let many = |n: u64| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let file = Hostile::new("million.jsonl", "", &line(many(1_000_000)), 1, "");
    refused(&["replay", "--trace"], &file.0, "line 1: longer than");
    let file = Hostile::new("half-million.jsonl", "", &line(many(500_000)), 1, "");
    let args = ["replay", "--workers", "2", "--mode", "aggregated", "--json", "--trace"];
    let output = vacancy(&args, &file.0);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_without_end_is_read_no_further_than_files_may_be_long() {
    let endless = Path::new("/dev/zero");
    refused(&["policy"], endless, "longer than");
    refused(&["scenario"], endless, "are read at most");
    refused(&["replay", "--requests", "1", "--policy"], endless, "");
}
