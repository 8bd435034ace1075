//! What `vacancy replay` takes, and what of it cannot be.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Arguments of `vacancy replay`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Trace to replay (JSON Lines: timestamp, input_length, output_length, hash_ids); without
    /// it, the built-in workload.
    #[arg(long, value_name = "FILE.jsonl")]
    pub trace: Option<PathBuf>,
    /// Tokens per block of the trace's hash_ids, and the engine's block size.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub trace_block: u32,
    /// Requests to replay [default: the whole trace; 60000 of the built-in workload].
    #[arg(long, value_name = "N", value_parser = request_count)]
    pub requests: Option<usize>,
    /// Simulated workers, of both pools together [default: 16 for a trace, else 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub workers: Option<u32>,
    /// Data-parallel ranks of each worker.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(vacancy::MAX_DP_SIZE)))]
    pub dp_size: u32,
    /// Workers of the prefill pool, with two pools [default: half of them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_workers: Option<u32>,
    /// Lets requests arrive X times as fast.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub speedup: f64,
    /// One pool, or a prefill and a decode pool.
    #[arg(long, value_enum, default_value_t = DEFAULT_MODE)]
    pub mode: Mode,
    /// Policy file of the classes that wait.
    #[arg(long, value_name = "FILE.yaml")]
    pub policy: Option<PathBuf>,
    /// Who places requests.
    #[arg(long, value_enum, default_value_t = Strategy::Vacancy)]
    pub strategy: Strategy,
    /// Runs every strategy on the same arrivals, side by side.
    #[arg(long)]
    pub compare: bool,
    /// Whether a prefill sets its room at the decode pool aside [default: on].
    #[arg(long, value_enum)]
    pub holds: Option<Switch>,
    /// Fixes the built-in workload and every drawing.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Count malformed lines of the trace instead of refusing it.
    #[arg(long)]
    pub skip_bad: bool,
    /// Print one JSON object, and nothing else, on stdout.
    #[arg(long)]
    pub json: bool,
    /// Write a report with plots: one file that needs no network.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write one JSON line per request, enough to recompute every figure.
    #[arg(long, value_name = "FILE.jsonl")]
    pub decisions: Option<PathBuf>,
    /// Simulated rank: prompt tokens computed per second.
    #[arg(long, value_name = "X", default_value_t = 3000.0, value_parser = rate)]
    pub prefill_tps: f64,
    /// Simulated rank: time per output token, in ms.
    #[arg(long, value_name = "X", default_value_t = 30.0, value_parser = token_time)]
    pub token_ms: f64,
    /// Simulated rank: KV blocks [default: as many as hold 1048576 tokens].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kv_blocks: Option<u32>,
    /// What a rank batches at most, in tokens, as declared to the engine.
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub batch_tokens: u64,
    /// Built-in workload: prefill work over what the ranks can do, if every block were computed
    /// once in the whole fleet; what repeats it adds (about 0.1 with the engine's placement).
    #[arg(long, value_name = "X", default_value_t = 0.7, value_parser = positive)]
    pub load: f64,
}

/// Requests are numbered by 32 bits, and kept with their records until the run is reported.
const MOST_REQUESTS: usize = 100_000_000;

/// The mode without `--mode`.
const DEFAULT_MODE: Mode = Mode::Aggregated;

/// One pool or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Every rank prefills and decodes.
    Aggregated,
    /// Some workers prefill, the others decode.
    Disaggregated,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// Who places requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// The engine.
    Vacancy,
    /// The ranks in turn.
    RoundRobin,
    /// A rank at random.
    Random,
    /// The one of two random ranks with fewer active requests.
    P2c,
    /// The rank with the fewest active requests.
    LeastLoaded,
}

impl Args {
    /// Why these arguments ask for something that this version does not do, in one sentence.
    pub fn not_available(&self) -> Option<&'static str> {
        if self.mode == Mode::Disaggregated {
            Some("--mode disaggregated is not available yet: this version routes over one pool")
        } else if self.policy.is_some() {
            Some("--policy is not available yet: this version places or refuses, and never waits")
        } else if self.holds.is_some() {
            Some("--holds is not available yet: only two pools have anything to set aside")
        } else {
            None
        }
    }
}

/// The arguments of a call without any.
impl Default for Args {
    fn default() -> Args {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            args: Args,
        }
        Alone::parse_from(["vacancy"]).args
    }
}

impl Mode {
    /// Its name in arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Aggregated => "aggregated",
            Mode::Disaggregated => "disaggregated",
        }
    }
}

impl Strategy {
    /// All of them, in the order of a comparison.
    pub const ALL: [Strategy; 5] = [
        Strategy::Vacancy,
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::P2c,
        Strategy::LeastLoaded,
    ];

    /// Its name in arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Vacancy => "vacancy",
            Strategy::RoundRobin => "round-robin",
            Strategy::Random => "random",
            Strategy::P2c => "p2c",
            Strategy::LeastLoaded => "least-loaded",
        }
    }
}

fn request_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MOST_REQUESTS).contains(&n) => Ok(n),
        Ok(_) => Err(format!("must be in 1 ..= {MOST_REQUESTS}")),
        Err(e) => Err(format!("{e}")),
    }
}

/// A number in a range.
fn within(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let x: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if range.contains(&x) {
        Ok(x)
    } else {
        Err(format!("must be in {:e} ..= {:e}", range.start(), range.end()))
    }
}

fn positive(text: &str) -> Result<f64, String> {
    within(text, 1e-6..=1e6)
}

// Bounds within which one service time fits the clock; the clock itself saturates.
fn rate(text: &str) -> Result<f64, String> {
    within(text, 1.0..=1e9)
}

fn token_time(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_arguments_take() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_possible_value().unwrap().get_name(), strategy.name());
        }
        for mode in [Mode::Aggregated, Mode::Disaggregated] {
            assert_eq!(mode.to_possible_value().unwrap().get_name(), mode.name());
        }
    }

    #[test]
    fn no_arguments_give_the_defaults() {
        let args = Args::default();
        assert_eq!((args.trace_block, args.mode, args.seed), (512, DEFAULT_MODE, 1));
        assert!(args.trace.is_none() && args.not_available().is_none());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (parse, bad) in [
            (positive as fn(&str) -> _, ["0", "-1", "NaN", "inf", "x"]),
            (rate, ["0", "-1", "NaN", "inf", "1e99"]),
            (token_time, ["-1", "NaN", "inf", "1e99", ""]),
        ] {
            for text in bad {
                assert!(parse(text).is_err(), "{text}");
            }
        }
        assert_eq!(token_time("0"), Ok(0.0));
    }
}
