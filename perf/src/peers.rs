//! Builds and runs `bench/peers`, and judges what it says.

use crate::Verdict;
use crate::limits::Limits;
use crate::place::{self, Args};
use crate::record;
use crate::table::{Table, time};
use serde_json::Value;
use std::process::{Command, Stdio};

pub fn run(words: &[String]) -> Result<Verdict, String> {
    let valued = ["--ranks", "--rounds", "--only"];
    let args = Args::parse(words, &["--json", "--record"], &valued)?;
    let limits = Limits::read()?;
    let mut command = Command::new(place::cargo());
    command.args(["run", "-q", "--release", "--locked", "--", "--json"]);
    for name in valued {
        if let Some(value) = args.value(name) {
            command.args([name, value]);
        }
    }
    // Its own workspace, and its own directory for what it builds.
    let home = place::root().join("bench/peers");
    command.current_dir(&home).stdout(Stdio::piped());
    command.env("CARGO_TARGET_DIR", place::target().join("peers"));
    let output = command.output().map_err(|e| format!("bench/peers: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "bench/peers: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let figures: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("bench/peers: {e}"))?;
    let mut broken = Vec::new();
    for rule in &limits.peer {
        let row = pairs(&figures).find(|row| {
            row["pair"] == rule.pair.as_str() && row["ranks"].as_u64() == Some(rule.ranks as u64)
        });
        if let Some(ratio) = row.and_then(|row| row["ratio"].as_f64())
            && ratio < rule.at_least
        {
            broken.push(format!("{}: {ratio:.1} times, bar {}", rule.name, rule.at_least));
        }
    }
    if args.has("--json") {
        println!("{figures:#}");
    } else {
        println!("{}", table(&figures).text());
        for broken in &broken {
            println!("BROKEN  {broken}");
        }
    }
    if args.has("--record") {
        record::write("peers", figures)?;
    }
    Ok(if broken.is_empty() { Verdict::Holds } else { Verdict::Broken })
}

fn pairs(figures: &Value) -> impl Iterator<Item = &Value> {
    figures["pairs"].as_array().into_iter().flatten()
}

/// What `bench/peers` said, as a table.
pub fn table(figures: &Value) -> Table {
    table_of(pairs(figures))
}

/// The same, of each pair on the largest fleet it was measured on.
pub fn largest(figures: &Value) -> Table {
    let larger = |row: &Value, other: &Value| {
        row["pair"] == other["pair"] && other["ranks"].as_u64() > row["ranks"].as_u64()
    };
    table_of(pairs(figures).filter(|row| !pairs(figures).any(|other| larger(row, other))))
}

fn table_of<'a>(rows: impl Iterator<Item = &'a Value>) -> Table {
    let mut table =
        Table::new(&["pair", "ranks", "this engine", "the other", "ratio", "quartiles"]);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        table.row(vec![
            row["pair"].as_str().unwrap_or_default().to_owned(),
            row["ranks"].to_string(),
            time(number("ours_ns")),
            time(number("peer_ns")),
            format!("{:.2}", number("ratio")),
            format!("{:.2} .. {:.2}", number("ratio_q1"), number("ratio_q3")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_short_table_has_each_pair_once_on_its_largest_fleet() {
        let row = |pair: &str, ranks: u64| json!({"pair": pair, "ranks": ranks, "ratio": 2.0});
        let figures = json!({"pairs": [row("a", 64), row("b", 512), row("a", 4096), row("b", 64)]});
        let lines: Vec<String> = largest(&figures).markdown().lines().map(str::to_owned).collect();
        let of = |pair: &str, ranks: &str| {
            lines.iter().filter(|l| l.contains(pair) && l.contains(ranks)).count()
        };
        assert_eq!((lines.len(), of("a |", "4096"), of("b |", "512")), (4, 1, 1), "{lines:?}");
        assert_eq!(table(&figures).markdown().lines().count(), 6);
    }
}
