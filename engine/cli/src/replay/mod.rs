//! `vacancy replay`: a trace, or the built-in workload, through the engine and through simpler
//! strategies, on a virtual clock.
#![forbid(unsafe_code)]

mod args;
mod arrivals;
mod baselines;
mod classes;
mod decisions;
mod engine;
mod figures;
mod holders;
mod kv;
mod ledger;
mod plots;
mod record;
mod report;
mod router;
mod sim;
mod table;
mod trace;
mod waiting;
mod workload;

pub use args::Args;

use args::{Mode, Strategy, Switch};
use arrivals::Arrival;
use baselines::{Baseline, Pick};
use classes::Classes;
use figures::{About, Figures, figures};
use indicatif::{ProgressBar, ProgressStyle};
use router::Router;
use serde::Serialize;
use sim::{Layout, Model, Run, simulate};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Most ranks that are simulated: each costs memory, used or not.
const MOST_RANKS: usize = 1 << 22;
/// KV memory of a rank, in tokens, if nothing else is said.
const KV_TOKENS: u32 = 1 << 20;
/// Requests of the built-in workload, if nothing else is said.
const BUILT_IN_REQUESTS: usize = 60_000;

/// One strategy's run, with what is told of it.
struct Told {
    strategy: Strategy,
    run: Run,
    figures: Figures,
    prefill_utilisation: f64,
}

/// What a run was made with, beside what each strategy's figures say.
#[derive(Clone, Debug, Serialize)]
struct Setting {
    workload: String,
    bad_lines: u64,
    trace_block: u32,
    speedup: f64,
    policy: String,
    /// `null` with one pool.
    holds: Option<bool>,
    reject_prefill_frac: Option<f64>,
    reject_decode_frac: Option<f64>,
    dp_size: u32,
    prefill_ranks: u64,
    decode_ranks: u64,
    prefill_tokens_per_s: f64,
    ms_per_output_token: f64,
    kv_blocks_per_rank: u64,
    transfer_tokens_per_s: f64,
    max_num_batched_tokens: u64,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match replay(&args) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("vacancy: {fault}");
            }
            ExitCode::from(1)
        }
        Err(refusal) => {
            eprintln!("vacancy: {refusal}");
            ExitCode::from(2)
        }
    }
}

/// Runs all strategies that were asked for and tells of them. What a run must hold and did not is
/// returned; what cannot be taken or written is the error.
fn replay(args: &Args) -> Result<Vec<String>, String> {
    let layout = layout(args)?;
    let classes = Classes::new(args)?;
    let model = Model {
        block: args.trace_block,
        prefill_tps: args.prefill_tps,
        token_ns: (args.token_ms * 1e6).round() as u64,
        kv_blocks: u64::from(args.kv_blocks.unwrap_or(KV_TOKENS.div_ceil(args.trace_block))),
        transfer_tps: args.transfer_tps,
    };
    let (arrivals, workload, bad_lines) = arrivals(args, &model, layout)?;
    let setting = Setting {
        workload,
        bad_lines,
        trace_block: args.trace_block,
        speedup: args.speedup,
        policy: classes.told().into(),
        holds: (layout.decode > 0).then_some(args.holds != Some(Switch::Off)),
        reject_prefill_frac: args.reject_prefill_frac,
        reject_decode_frac: args.reject_decode_frac,
        dp_size: args.dp_size,
        prefill_ranks: layout.prefill as u64,
        decode_ranks: layout.decode as u64,
        prefill_tokens_per_s: args.prefill_tps,
        ms_per_output_token: args.token_ms,
        kv_blocks_per_rank: model.kv_blocks,
        transfer_tokens_per_s: args.transfer_tps,
        max_num_batched_tokens: args.batch_tokens,
    };
    // Paths that cannot be written are refused before the work, not after it.
    let mut decisions = args.decisions.as_deref().map(create).transpose()?;
    let mut report = args.report.as_deref().map(create).transpose()?;

    let strategies = if args.compare {
        // The one asked for comes first.
        let others = Strategy::ALL.into_iter().filter(|s| *s != args.strategy);
        [args.strategy].into_iter().chain(others).collect()
    } else {
        vec![args.strategy]
    };
    let mut told: Vec<Told> = Vec::new();
    for strategy in strategies {
        told.push(run_one(args, strategy, &arrivals, model, layout, &classes)?);
    }
    if let (Some(to), Some(path)) = (&mut decisions, &args.decisions) {
        for t in &told {
            let name = t.strategy.name();
            decisions::write(to, name, &arrivals, &t.run.records, args.dp_size)
                .map_err(|e| cannot_write(path, &e))?;
        }
    }
    if let (Some(to), Some(path)) = (&mut report, &args.report) {
        let page = report::page(&setting, &arrivals, &told, layout);
        to.write_all(page.as_bytes())
            .and_then(|()| to.flush())
            .map_err(|e| cannot_write(path, &e))?;
    }
    let text = if args.json { json(&setting, &told) } else { table::text(&setting, &told) };
    match writeln!(io::stdout().lock(), "{text}") {
        // Who reads may stop reading.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            return Err(format!("standard output: {e}"));
        }
        _ => {}
    }
    Ok(told.iter().flat_map(faults).collect())
}

/// What a run must hold, whatever the workload.
fn faults(told: &Told) -> Vec<String> {
    let Run { bookings_left: left, stuck, miscounted, .. } = told.run;
    let name = told.strategy.name();
    let mut faults = Vec::new();
    if left != 0 {
        faults.push(format!("{name}: {left} booking(s) left when every request was over"));
    }
    if stuck != 0 {
        faults.push(format!("{name}: {stuck} request(s) still wait though nothing else runs"));
    }
    if miscounted != 0 {
        faults
            .push(format!("{name}: {miscounted} time(s) a decode rank's row was not what it bore"));
    }
    faults
}

fn layout(args: &Args) -> Result<Layout, String> {
    let workers = args.workers.unwrap_or(if args.trace.is_some() { 16 } else { 4096 }) as usize;
    let dp = args.dp_size as usize;
    if workers * dp > MOST_RANKS {
        return Err(format!("{workers} workers with {dp} ranks each: above {MOST_RANKS} ranks"));
    }
    if args.mode == Mode::Aggregated && args.holds.is_some() {
        return Err("--holds speaks of two pools: give --mode disaggregated".into());
    }
    let prefill = match (args.mode, args.prefill_workers) {
        (Mode::Aggregated, None) => workers,
        (Mode::Aggregated, Some(_)) => {
            return Err("--prefill-workers speaks of two pools: give --mode disaggregated".into());
        }
        (Mode::Disaggregated, given) => given.map_or(workers.div_ceil(2), |n| n as usize),
    };
    if args.mode == Mode::Disaggregated && prefill >= workers {
        return Err(format!("{workers} worker(s), {prefill} of them prefill: none decodes"));
    }
    Ok(Layout { prefill: prefill * dp, decode: (workers - prefill) * dp })
}

/// The arrivals, what they are called, and how many malformed lines were skipped.
fn arrivals(
    args: &Args,
    model: &Model,
    layout: Layout,
) -> Result<(Vec<Arrival>, String, u64), String> {
    let Some(path) = &args.trace else {
        let load = args.load.unwrap_or(args.mode.load());
        let wanted = workload::Wanted {
            requests: args.requests.unwrap_or(BUILT_IN_REQUESTS),
            ranks: layout.prefill,
            load,
            seed: args.seed,
        };
        let mut arrivals = workload::generate(wanted, model);
        for arrival in &mut arrivals {
            arrival.at = (arrival.at as f64 / args.speedup).round() as u64;
        }
        return Ok((arrivals, format!("built-in, load {load}"), 0));
    };
    let name = path.display();
    let file = File::open(path).map_err(|e| format!("{name}: {e}"))?;
    let how = trace::Reading {
        block: args.trace_block,
        speedup: args.speedup,
        most: args.requests,
        skip_bad: args.skip_bad,
    };
    let trace = trace::read(BufReader::with_capacity(1 << 16, file), how)
        .map_err(|e| format!("{name}: {e}"))?;
    Ok((trace.arrivals, name.to_string(), trace.bad_lines))
}

fn run_one(
    args: &Args,
    strategy: Strategy,
    arrivals: &[Arrival],
    model: Model,
    layout: Layout,
    classes: &Classes,
) -> Result<Told, String> {
    let baseline = |pick| -> Box<dyn Router> {
        Box::new(Baseline::new(pick, [layout.prefill, layout.decode], args.seed))
    };
    let mut router = match strategy {
        Strategy::Vacancy => Box::new(engine::Engine::new(args, &model, layout, classes)?),
        Strategy::RoundRobin => baseline(Pick::RoundRobin),
        Strategy::Random => baseline(Pick::Random),
        Strategy::P2c => baseline(Pick::TwoChoices),
        Strategy::LeastLoaded => baseline(Pick::LeastLoaded),
    };
    let bar = progress_bar(arrivals.len() as u64, strategy.name());
    let progress = &mut |over| bar.set_position(over);
    let run = simulate(arrivals, model, layout, classes, &mut *router, progress);
    bar.finish_and_clear();
    let about = About {
        workers: ((layout.prefill + layout.decode) / args.dp_size as usize) as u64,
        layout,
        classes,
        mode: args.mode.name(),
        strategy: strategy.name(),
        seed: args.seed,
    };
    let figures = figures(arrivals, &run, about);
    let prefill_utilisation = figures::prefill_utilisation(arrivals, &run.records, layout.prefill);
    Ok(Told { strategy, run, figures, prefill_utilisation })
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(requests: u64, strategy: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>12} [{bar:40}] {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(requests).with_message(strategy);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// One object: the figures of the strategy asked for, how the run was set up, and, if others ran
/// too, the figures of all by name.
fn json(setting: &Setting, told: &[Told]) -> String {
    #[derive(Serialize)]
    struct Printed<'a> {
        #[serde(flatten)]
        figures: &'a Figures,
        setting: &'a Setting,
        #[serde(skip_serializing_if = "Option::is_none")]
        compare: Option<serde_json::Map<String, serde_json::Value>>,
    }
    let value = |f: &Figures| serde_json::to_value(f).expect("figures have string keys only");
    let compare = (told.len() > 1)
        .then(|| told.iter().map(|t| (t.strategy.name().into(), value(&t.figures))).collect());
    let printed = Printed { figures: &told[0].figures, setting, compare };
    serde_json::to_string_pretty(&printed).expect("figures have string keys only")
}

fn create(path: &Path) -> Result<BufWriter<File>, String> {
    File::create(path).map(BufWriter::new).map_err(|e| cannot_write(path, &e))
}

fn cannot_write(path: &Path, e: &io::Error) -> String {
    format!("{}: cannot be written: {e}", path.display())
}
