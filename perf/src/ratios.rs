//! Wall-time ratios within one run: two operations in one process, measured in turn.

use crate::Verdict;
use crate::limits::{Limits, Ratio, Threads};
use crate::place::Args;
use crate::record;
use crate::table::{Table, time};
use serde_json::json;
use std::time::Duration;
use vacancy_bench::engine::{Bench, Mode};
use vacancy_bench::measure::{Pair, median, per_op};
use vacancy_bench::scenes;
use vacancy_bench::threads::{Work, batch as batch_of, two_against_one};

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
        lines.extend(threads(rule, (rounds / 4).max(1))?);
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

/// What a word may take from one thread to the other for the two cores to count as neighbours, in
/// nanoseconds, and how many rounds are worth a line of their own.
const NEAR: f64 = 100.0;
const ENOUGH: usize = 8;

/// Two threads over one on one pool. To read it by: the same in the rounds in which the two were on
/// neighbouring cores; on a pool each, which is what this machine gives to threads that share
/// nothing; and what it takes to hand one cache line over.
fn threads(rule: &Threads, rounds: usize) -> Result<Vec<Line>, String> {
    let make = || match rule.operation.as_str() {
        "select_book_free/4096/reject" => Ok(Bench::new(4096, Mode::Reject)),
        "long_prefix/4096/all" => Ok(scenes::long_prefix_bench(4096, 4096, None)),
        other => Err(format!("{}: {other} is not for threads", rule.name)),
    };
    let (bench, other) = (make()?, make()?);
    let work = Work::on(&bench);
    let once = median(&[0; 5].map(|_| batch_of(&[&work], 256).per_op(1, 256)));
    let each = ((THREADS_BATCH.as_nanos() as f64 / once) as usize).clamp(16, 1 << 20);
    let apart = two_against_one(&bench, &other, each, rounds).pair;
    let together = two_against_one(&bench, &bench, each, rounds);
    let pair = &together.pair;
    for pair in [&apart, pair] {
        if pair.a.len() < rounds.min(ENOUGH) {
            let took = pair.a.len();
            return Err(format!("{}: only {took} batches were undisturbed", rule.name));
        }
    }
    let line = |name: String, pair: &Pair, bar: Option<f64>| Line {
        name,
        first: median(&pair.a),
        second: median(&pair.b),
        ratio: pair.ratio(),
        spread: pair.spread(),
        bar: bar.map_or("none".into(), |bar| format!(">= {bar}")),
        holds: bar.is_none_or(|bar| pair.ratio() >= bar),
    };
    let near = together.within(NEAR);
    let hand_over = Pair { a: pair.b.clone(), b: together.hand_over.clone() };
    let mut lines = vec![line(rule.name.clone(), pair, Some(rule.at_least))];
    if near.a.len() >= ENOUGH {
        let name = format!(
            "{}, the {} of {} rounds with a line handed over within {NEAR} ns",
            rule.name,
            near.a.len(),
            pair.a.len()
        );
        lines.push(line(name, &near, None));
    }
    lines.push(line(format!("{}, a pool each", rule.name), &apart, None));
    lines.push(Line {
        name: format!("{}: a line handed over, against one booking of one thread", rule.name),
        first: median(&hand_over.b),
        second: median(&hand_over.a),
        ratio: hand_over.ratio(),
        spread: hand_over.spread(),
        bar: "none".into(),
        holds: true,
    });
    Ok(lines)
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
