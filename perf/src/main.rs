//! Gates and evidence. `cargo perf help` tells what there is; `perf/METHOD.md` tells how it is
//! measured and why, `perf/BIAS.md` what to hold against it.
#![forbid(unsafe_code)]

mod baseline;
mod callgrind;
mod gate;
mod limits;
mod peers;
mod place;
mod ratios;
mod record;
mod report;
mod table;
mod tail;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
cargo perf gate [--json] [--record] [--control] [--bless --reason TEXT]
    Counts instructions and atomic read-modify-writes per operation under callgrind and compares
    them with perf/baseline.toml, and ratios of them with perf/limits.toml. Exit 1 names what
    broke. Brings valgrind (apt-get) and the runner (cargo install) if they are missing.
    --control  adds one read-modify-write per booking: the gate must turn red
    --bless    writes a new baseline, with the reason; refused in CI
cargo perf ratios [--json] [--record] [--rounds N] [--only TEXT]
    Wall-time ratios within one run, against perf/limits.toml. Exit 1 names what broke.
cargo perf tail [--json] [--record] [--seconds N]
    Latency of select + book while two threads churn: p50, p99, p99.9, maximum.
cargo perf peers [--json] [--record] [--ranks LIST] [--rounds N] [--only PAIR]
    Builds and runs bench/peers: the same work on other engines, ratios pair by pair.
cargo perf report
    Writes perf/REPORT.md and its plots from perf/records, and README's figures between markers.

Exit: 0 all holds, 1 something broke, 2 it could not be told.";

/// What a command ends with.
pub enum Verdict {
    /// Everything that is judged holds.
    Holds,
    /// Something does not; it was named.
    Broken,
}

fn run(args: &[String]) -> Result<Verdict, String> {
    let Some((command, rest)) = args.split_first() else {
        println!("{HELP}");
        return Ok(Verdict::Holds);
    };
    let asked = |arg: &String| arg == "--help" || arg == "-h";
    if command == "help" || args.iter().any(asked) {
        println!("{HELP}");
        return Ok(Verdict::Holds);
    }
    match command.as_str() {
        "gate" => gate::run(rest),
        "ratios" => ratios::run(rest),
        "tail" => tail::run(rest),
        "peers" => peers::run(rest),
        "report" => report::run(rest),
        other => Err(format!("no command {other}; try `cargo perf help`")),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Broken) => ExitCode::from(1),
        Err(error) => {
            eprintln!("perf: {error}");
            ExitCode::from(2)
        }
    }
}
