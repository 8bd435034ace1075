//! The same work on other engines, side by side with this one: same fleet, same prompts, results
//! checked, in one process, in turn. See `perf/METHOD.md` and `perf/BIAS.md`.
//!
//! ```text
//! vacancy-peers [--ranks 64,512,4096] [--rounds N] [--only NAME] [--json]
//! ```
//!
//! Every pair runs in a process of its own (the program starts itself), so that nobody inherits
//! anybody's heap.

mod contest;
mod core;
mod naive;
mod ours;
mod p2c;
mod scheduler;

use contest::{Contestant, Field, Outcome};
use std::process::{Command, ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Who is measured against this engine, and how this engine does the same.
type Make = fn(&Field) -> (Box<dyn Contestant>, Box<dyn Contestant>);

fn pairs() -> Vec<(&'static str, Make)> {
    use ours::Ours;
    use scheduler::{Scheduler, Setup};
    fn boxed<T: Contestant + 'static>(contestant: T) -> Box<dyn Contestant> {
        Box::new(contestant)
    }
    vec![
        ("scheduler", |f| (boxed(Ours::off(f)), boxed(Scheduler::new(f, Setup::default())))),
        ("scheduler_pool_of_threads", |f| {
            let f = &f.by_the_wall();
            let setup = Setup { many_threads: true, ..Setup::default() };
            (boxed(Ours::off(f)), boxed(Scheduler::new(f, setup)))
        }),
        ("scheduler_gate", |f| {
            let setup = Setup { gate: true, ..Setup::default() };
            (boxed(Ours::gate(f)), boxed(Scheduler::new(f, setup)))
        }),
        ("scheduler_overloaded", |f| {
            let setup = Setup { overloaded: true, ..Setup::default() };
            (boxed(Ours::reject(f)), boxed(Scheduler::new(f, setup)))
        }),
        ("scheduler_two_tasks", |f| {
            let f = &f.by_the_wall();
            let setup = Setup { many_threads: true, tasks: 2, ..Setup::default() };
            (boxed(Ours::off(f).threads(2)), boxed(Scheduler::new(f, setup)))
        }),
        ("scheduler_two_tasks_gate", |f| {
            let f = &f.by_the_wall();
            let setup = Setup { many_threads: true, tasks: 2, gate: true, ..Setup::default() };
            (boxed(Ours::gate(f).threads(2)), boxed(Scheduler::new(f, setup)))
        }),
        ("scheduler_two_against_one", |f| {
            let f = &f.by_the_wall();
            let one = Setup { many_threads: true, ..Setup::default() };
            let two = Setup { many_threads: true, tasks: 2, ..Setup::default() };
            (boxed(Scheduler::new(f, two)), boxed(Scheduler::new(f, one)))
        }),
        ("ours_two_against_one", |f| {
            let f = &f.by_the_wall();
            (boxed(Ours::off(f).threads(2)), boxed(Ours::off(f)))
        }),
        ("selection_core", |f| (boxed(Ours::off(f)), boxed(core::Core::new(f)))),
        ("p2c_same_booking", |f| (boxed(Ours::reject(f).by_id()), boxed(p2c::SameBooking::new(f)))),
        ("p2c_atomic", |f| (boxed(Ours::reject(f)), boxed(p2c::Atomic::new(f)))),
        ("naive", |f| (boxed(Ours::reject(f)), boxed(naive::Naive::new(f)))),
    ]
}

struct Args {
    ranks: Vec<usize>,
    rounds: usize,
    only: Option<String>,
    json: bool,
    /// This process measures one pair and prints its line.
    child: bool,
}

fn args() -> Result<Args, String> {
    let mut args =
        Args { ranks: vec![64, 512, 4096], rounds: 15, only: None, json: false, child: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--ranks" => {
                let list = value()?;
                let parse = |n: &str| n.parse().map_err(|_| format!("--ranks: {n}?"));
                args.ranks = list.split(',').map(parse).collect::<Result<_, _>>()?;
            }
            "--rounds" => {
                let n = value()?;
                args.rounds = n.parse().map_err(|_| format!("--rounds: {n}?"))?;
            }
            "--only" => args.only = Some(value()?),
            "--json" => args.json = true,
            "--child" => args.child = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if args.rounds == 0 {
        return Err("--rounds: at least one".into());
    }
    Ok(args)
}

fn main() -> ExitCode {
    let run = args().and_then(|args| if args.child { child(&args) } else { parent(&args) });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vacancy-peers: {error}");
            ExitCode::from(2)
        }
    }
}

fn child(args: &Args) -> Result<(), String> {
    let name = args.only.as_deref().ok_or("--child needs --only")?;
    let (_, make) =
        pairs().into_iter().find(|(n, _)| *n == name).ok_or(format!("no pair {name}"))?;
    for &ranks in &args.ranks {
        let field = Field::new(ranks);
        let (mut ours, mut peer) = make(&field);
        println!("{}", contest::run(name, &field, &mut *ours, &mut *peer, args.rounds).to_line());
    }
    Ok(())
}

fn parent(args: &Args) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut outcomes = Vec::new();
    for (name, _) in pairs() {
        if args.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let most = if name == "selection_core" { core::MOST_RANKS } else { usize::MAX };
        for ranks in args.ranks.iter().filter(|&&ranks| ranks <= most) {
            let (ranks, rounds) = (ranks.to_string(), args.rounds.to_string());
            let output = Command::new(&me)
                .args(["--child", "--only", name, "--ranks", &ranks, "--rounds", &rounds])
                .stderr(std::process::Stdio::inherit())
                .output()
                .map_err(|e| format!("cannot start itself: {e}"))?;
            if !output.status.success() {
                return Err(format!("{name} at {ranks} ranks failed: {}", output.status));
            }
            let line = String::from_utf8_lossy(&output.stdout);
            let outcome = Outcome::from_line(line.trim())
                .ok_or_else(|| format!("{name}: cannot read {line:?}"))?;
            if !args.json {
                outcome.print();
            }
            outcomes.push(outcome);
        }
    }
    if outcomes.is_empty() {
        return Err("no such pair at these sizes".into());
    }
    if args.json {
        let rows: Vec<String> = outcomes.iter().map(Outcome::to_json).collect();
        println!("{{\"pairs\": [\n  {}\n]}}", rows.join(",\n  "));
    }
    Ok(())
}
