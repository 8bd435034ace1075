//! `vacancy scenario`: scripted cases, run through the engine's public interface on a virtual
//! clock, held against what they expect.
//!
//! `file` and `check` are the format, `expect` and `outcome` what a step should and did come to,
//! `run` drives the pools, `names` remembers the requests.
//!
//! What the format leaves open, and what is done here:
//! - A step's number is its place in `steps`, from 0, in messages as in JSON. A scenario goes on
//!   after a step that failed.
//! - `ok` in a JSON line says whether the expectation holds, not whether the operation was refused.
//! - An unknown worker is `NoEndpoints` for `available`, `overloaded` and `load`, as it is for a
//!   pin and a `move`; removing one, and freeing a name that nobody knows, is no error.
//! - `upsert`, `remove` and `reconcile` return `lost`, the names of the bookings that lost their
//!   rank, if there are any. Such a name stays `admitted` until it is freed or moved.
//! - Booking a live name in another pool makes its next leg, as `decode` does, without a hold.
//! - `spread` is over the workers that are structurally eligible; `shared` ranges are half-open.
//! - A waiting request is looked at when it is woken and at no other time.
#![forbid(unsafe_code)]

mod check;
mod expect;
mod file;
mod names;
mod outcome;
mod report;
mod request;
mod run;
mod yaml;

use file::Scenario;
use run::Runner;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use yaml::Wrong;

/// What `vacancy scenario` takes.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario files, run one after the other.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON line per step, and nothing else, on stdout.
    #[arg(long)]
    json: bool,
    /// Fixes the breaking of ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How a file ended; the worst of all files is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Passed = 0,
    Failed = 1,
    Wrong = 2,
}

/// Runs the files: 0, all expectations held; 1, one did not; 2, a file cannot be run.
pub fn run(args: Args) -> ExitCode {
    let stdout = io::stdout().lock();
    let mut out = BufWriter::new(stdout);
    let mut worst = Verdict::Passed;
    for file in &args.files {
        let verdict = match run_file(&args, file, &mut out) {
            Ok(verdict) => verdict,
            // Whoever read our output has gone; there is nobody left to tell.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return ExitCode::from(2),
            Err(e) => {
                eprintln!("vacancy: cannot write: {e}");
                return ExitCode::from(2);
            }
        };
        worst = worst.max(verdict);
    }
    ExitCode::from(worst as u8)
}

fn run_file(args: &Args, file: &Path, out: &mut impl Write) -> io::Result<Verdict> {
    let name = file.display();
    let prepared = read(file).and_then(|text| {
        let scenario = Scenario::read(&text)?;
        let runner = Runner::new(&scenario, args.seed)?;
        Ok((scenario, runner))
    });
    let (scenario, mut runner) = match prepared {
        Ok(prepared) => prepared,
        Err(Wrong { at, message }) => {
            out.flush()?;
            match at {
                Some((line, column)) => eprintln!("{name}:{line}:{column}: {message}"),
                None => eprintln!("{name}: {message}"),
            }
            return Ok(Verdict::Wrong);
        }
    };
    let mut failed = 0;
    for (number, step) in scenario.steps.iter().enumerate() {
        let (mut outcome, got) = runner.step(number, step);
        let failures = expect::judge(step.expect.as_ref(), &mut outcome, &got);
        if args.json {
            report::json_line(out, &outcome)?;
        }
        if !failures.is_empty() {
            failed += 1;
            let line = step.at.line;
            let op = step.op.key();
            let whom = step.op.name().map(|n| format!(" {n}")).unwrap_or_default();
            let what = failures.join("; ");
            tell(args, out, format_args!("{name}:{line}: step {number}, {op}{whom}: {what}"))?;
        }
    }
    let steps = scenario.steps.len();
    if failed == 0 {
        tell(args, out, format_args!("{name}: ok, {steps} steps"))?;
        return Ok(Verdict::Passed);
    }
    tell(args, out, format_args!("{name}: {failed} of {steps} steps failed"))?;
    Ok(Verdict::Failed)
}

/// Tells a person: on stdout, unless that is for JSON lines only.
fn tell(args: &Args, out: &mut impl Write, line: std::fmt::Arguments<'_>) -> io::Result<()> {
    if args.json {
        out.flush()?;
        eprintln!("{line}");
        return Ok(());
    }
    writeln!(out, "{line}")
}

fn read(file: &Path) -> Result<String, Wrong> {
    let cannot = |e: io::Error| Wrong::file(format!("cannot be read: {e}"));
    let opened = File::open(file).map_err(cannot)?;
    let length = opened.metadata().map_err(cannot)?.len();
    let mut text = String::new();
    // What is no plain file has no length to go by, and maybe no end.
    let read = opened.take(yaml::MAX_FILE_BYTES + 1).read_to_string(&mut text);
    if length.max(text.len() as u64) > yaml::MAX_FILE_BYTES {
        return Err(Wrong::file(yaml::too_long(length.max(text.len() as u64))));
    }
    read.map(|_| text).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => Wrong::file("is not text: a scenario is YAML in UTF-8"),
        _ => cannot(e),
    })
}
