//! Wall-time ratios within one run: two operations in one process, measured in turn.

use crate::Verdict;
use crate::limits::{Limits, Ratio, Threads};
use crate::place::Args;
use crate::record;
use crate::table::{Table, time};
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use vacancy_bench::engine::{Bench, Mode};
use vacancy_bench::measure::{Pair, median, per_op};
use vacancy_bench::scenes;

/// How long one batch takes: short against a time slice, so that most are not interrupted.
const BATCH: Duration = Duration::from_millis(1);
/// How long one batch of threads takes: long against starting them.
const THREADS_BATCH: Duration = Duration::from_millis(20);

struct Line {
    name: String,
    first: f64,
    second: f64,
    ratio: f64,
    spread: (f64, f64),
    bar: String,
    holds: bool,
}

pub fn run(words: &[String]) -> Result<Verdict, String> {
    let args = Args::parse(words, &["--json", "--record"], &["--rounds", "--only"])?;
    let rounds = args.number("--rounds", 400)?;
    let only = args.value("--only").unwrap_or_default();
    let limits = Limits::read()?;
    let mut lines = Vec::new();
    for rule in limits.ratio.iter().filter(|rule| rule.wall && rule.name.contains(only)) {
        eprintln!("perf: {}", rule.name);
        lines.push(ratio(rule, rounds));
    }
    for rule in limits.threads.iter().filter(|rule| rule.name.contains(only)) {
        eprintln!("perf: {}", rule.name);
        lines.push(threads(rule, (rounds / 8).max(1))?);
    }
    if lines.is_empty() {
        return Err(format!("no rule is named {only:?}"));
    }
    let figures = to_json(&lines);
    if args.has("--json") {
        println!("{figures:#}");
    } else {
        print(&lines);
    }
    if args.has("--record") {
        record::write("ratios", figures)?;
    }
    let holds = lines.iter().all(|line| line.holds);
    Ok(if holds { Verdict::Holds } else { Verdict::Broken })
}

/// How many operations make a batch.
fn batch(op: &mut scenes::Op) -> usize {
    let once = median(&[0; 9].map(|_| per_op(8, &mut *op)));
    ((BATCH.as_nanos() as f64 / once) as usize).clamp(1, 1 << 16)
}

fn ratio(rule: &Ratio, rounds: usize) -> Line {
    // `over` first: the ratio is that of the second to the first.
    let (mut over, mut of) = (scenes::make(&rule.over, None), scenes::make(&rule.of, None));
    let (over_ops, of_ops) = (batch(&mut over), batch(&mut of));
    let pair = Pair::measure(rounds, || per_op(over_ops, &mut over), || per_op(of_ops, &mut of));
    Line {
        name: rule.name.clone(),
        first: median(&pair.b),
        second: median(&pair.a),
        ratio: pair.ratio(),
        spread: pair.spread(),
        bar: format!("<= {}", rule.at_most),
        holds: pair.ratio() <= rule.at_most,
    }
}

/// Wall time per operation with `threads` threads, each with a handle of its own.
fn per_op_of(bench: &Bench, threads: usize, each: usize) -> f64 {
    let barrier = Barrier::new(threads + 1);
    let elapsed = std::thread::scope(|scope| {
        let work: Vec<_> = (0..threads)
            .map(|thread| {
                let (pool, barrier) = (bench.pool.clone(), &barrier);
                scope.spawn(move || {
                    let from = thread * bench.requests.len() / threads;
                    barrier.wait();
                    for at in from..from + each {
                        drop(bench.book(&pool, at));
                    }
                    Instant::now()
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let ends = work.into_iter().map(|thread| thread.join().expect("no check failed"));
        ends.max().map_or(Duration::ZERO, |end| end - start)
    });
    elapsed.as_nanos() as f64 / (threads * each) as f64
}

fn threads(rule: &Threads, rounds: usize) -> Result<Line, String> {
    let bench = match rule.operation.as_str() {
        "select_book_free/4096/reject" => Bench::new(4096, Mode::Reject),
        "long_prefix/4096/all" => scenes::long_prefix_bench(4096, 4096, None),
        other => return Err(format!("{}: {other} is not for threads", rule.name)),
    };
    let once = median(&[0; 5].map(|_| per_op_of(&bench, 1, 256)));
    let each = ((THREADS_BATCH.as_nanos() as f64 / once) as usize).clamp(16, 1 << 20);
    let pair = Pair::measure(rounds, || per_op_of(&bench, 2, each), || per_op_of(&bench, 1, each));
    Ok(Line {
        name: rule.name.clone(),
        first: median(&pair.a),
        second: median(&pair.b),
        ratio: pair.ratio(),
        spread: pair.spread(),
        bar: format!(">= {}", rule.at_least),
        holds: pair.ratio() >= rule.at_least,
    })
}

fn print(lines: &[Line]) {
    let mut table = Table::new(&["ratio", "of", "over", "ratio", "quartiles", "bar", ""]);
    for line in lines {
        table.row(vec![
            line.name.clone(),
            time(line.first),
            time(line.second),
            format!("{:.3}", line.ratio),
            format!("{:.3} .. {:.3}", line.spread.0, line.spread.1),
            line.bar.clone(),
            if line.holds { "holds" } else { "BROKEN" }.into(),
        ]);
    }
    println!("{}", table.text());
}

fn to_json(lines: &[Line]) -> serde_json::Value {
    let lines = lines.iter().map(|line| {
        json!({
            "name": line.name,
            "of_ns": line.first,
            "over_ns": line.second,
            "ratio": line.ratio,
            "ratio_q1": line.spread.0,
            "ratio_q3": line.spread.1,
            "bar": line.bar,
            "holds": line.holds,
        })
    });
    json!({"ratios": lines.collect::<Vec<_>>()})
}
