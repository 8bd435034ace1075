//! What `vacancy replay` takes, and what of it cannot be.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Arguments of `vacancy replay`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Trace to replay (JSON Lines: timestamp, input_length, output_length and, if there are any,
    /// hash_ids and the policy class or family); without it, the built-in workload.
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
    /// Workers of the prefill pool, with two pools; the others decode [default: half of them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_workers: Option<u32>,
    /// Lets requests arrive X times as fast.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub speedup: f64,
    /// One pool, or a prefill and a decode pool.
    #[arg(long, value_enum, default_value_t = DEFAULT_MODE)]
    pub mode: Mode,
    /// Policy file of the classes that wait [default, with two pools: one class, which waits while
    /// every decode rank is past 0.9 of its KV blocks; with one pool nobody waits].
    #[arg(long, value_name = "FILE.yaml")]
    pub policy: Option<PathBuf>,
    /// Without a policy file: the share of a rank's KV blocks past which it is full for the only
    /// class [default, with two pools: 0.9].
    #[arg(long, value_name = "X", conflicts_with = "policy", value_parser = share)]
    pub decode_busy_frac: Option<f64>,
    /// Without a policy file: the share of a rank's token batch past which its prompt tokens make
    /// it full for the only class.
    #[arg(long, value_name = "X", conflicts_with = "policy", value_parser = multiple)]
    pub prefill_busy_frac: Option<f64>,
    /// Without a policy file: the order in which the only class waits.
    #[arg(long, value_enum, conflicts_with = "policy", default_value_t = Order::Fcfs)]
    pub queue_policy: Order,
    /// Refuse what no rank has room for: the share of a rank's KV blocks past which it is full for
    /// everybody.
    #[arg(long, value_name = "X", value_parser = share)]
    pub reject_decode_frac: Option<f64>,
    /// The same, for its prompt tokens, as a share of its token batch.
    #[arg(long, value_name = "X", value_parser = multiple)]
    pub reject_prefill_frac: Option<f64>,
    /// Who places requests.
    #[arg(long, value_enum, default_value_t = Strategy::Vacancy)]
    pub strategy: Strategy,
    /// Runs every strategy on the same arrivals, side by side.
    #[arg(long)]
    pub compare: bool,
    /// Whether a request sets room aside at the decode pool when its prefill is admitted
    /// [default: on].
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
    /// Simulated prefill rank: prompt tokens whose KV blocks move to a decode rank per second.
    #[arg(long, value_name = "X", default_value_t = 150_000.0, value_parser = rate)]
    pub transfer_tps: f64,
    /// What a rank batches at most, in tokens, as declared to the engine.
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub batch_tokens: u64,
    /// Built-in workload: prefill work over what the ranks can do, if every block were computed
    /// once in the whole fleet; what repeats it comes on top [default: 0.5 with two pools, 0.7
    /// with one; with the engine's placement both make about 0.8].
    #[arg(long, value_name = "X", value_parser = positive)]
    pub load: Option<f64>,
}

/// Requests are numbered by 32 bits, and kept with their records until the run is reported.
const MOST_REQUESTS: usize = 100_000_000;

/// The mode without `--mode`.
const DEFAULT_MODE: Mode = Mode::Disaggregated;

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

/// How the requests of one class are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// First come, first served.
    Fcfs,
    /// The shortest prompts first, as far as they are not cached.
    Wspt,
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
    /// The load of the built-in workload without `--load`. Two pools have half of the ranks to
    /// prefill on, so that the same requests last twice as long: sessions come back more often
    /// within the window, and more of them to a rank that is busy.
    pub fn load(self) -> f64 {
        match self {
            Mode::Aggregated => 0.7,
            Mode::Disaggregated => 0.5,
        }
    }

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

fn share(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1.0)
}

fn multiple(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1e6)
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
        assert!(args.trace.is_none() && args.policy.is_none() && args.holds.is_none());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (parse, bad) in [
            (positive as fn(&str) -> _, ["0", "-1", "NaN", "inf", "x"]),
            (rate, ["0", "-1", "NaN", "inf", "1e99"]),
            (token_time, ["-1", "NaN", "inf", "1e99", ""]),
            (share, ["-0.1", "1.01", "NaN", "inf", ""]),
            (multiple, ["-0.1", "1e99", "NaN", "inf", ""]),
        ] {
            for text in bad {
                assert!(parse(text).is_err(), "{text}");
            }
        }
        assert_eq!((token_time("0"), share("0"), multiple("0")), (Ok(0.0), Ok(0.0), Ok(0.0)));
    }
}
