//! The command line of `vacancy`.
//!
//! Exit codes: 0, all went well; 1, what ran did not hold what it must (an expectation of a
//! scenario failed, a replay left bookings behind); 2, something that was given cannot be taken
//! (arguments, a trace, a scenario or policy file, a path that cannot be written).
#![forbid(unsafe_code)]

mod policy_cmd;
mod replay;
mod scenario;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Admission and placement for LLM inference routers: which rank, now, later or never.
///
/// Without a command: `vacancy replay` on the built-in workload.
#[derive(Parser)]
#[command(name = "vacancy", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Replays a trace, or the built-in workload, through the engine on a virtual clock.
    Replay(Box<replay::Args>),
    /// Runs scripted cases; exits 1 if an expectation fails, 2 if a file is wrong.
    Scenario(scenario::Args),
    /// Checks a policy file and prints the resolved classes.
    Policy(policy_cmd::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        None => replay::run(replay::Args::default()),
        Some(Command::Replay(args)) => replay::run(*args),
        Some(Command::Scenario(args)) => scenario::run(args),
        Some(Command::Policy(args)) => policy_cmd::run(args),
    }
}
