//! Tables and plots from the records: `perf/REPORT.md`, `perf/plots/*.svg`, and the figures in the
//! README, which stand between markers and are never written by hand.

use crate::Verdict;
use crate::peers;
use crate::place::{self, Args};
use crate::record;
use crate::table::{Table, time};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- figures: written by `cargo perf report`, from perf/records -->";
const END: &str = "<!-- end of figures -->";

pub fn run(words: &[String]) -> Result<Verdict, String> {
    Args::parse(words, &[], &[])?;
    let mut report = String::from(
        "# What was measured\n\nWritten by `cargo perf report` from `perf/records`. How it is \
         measured: [METHOD.md](METHOD.md); what to hold against it: [BIAS.md](BIAS.md).\n",
    );
    let mut readme = String::new();
    if let Some(record) = record::read("ratios")? {
        section(&mut report, "Ratios within one run", &record, &ratios(&record["figures"]));
        let _ = writeln!(readme, "{}\n", ratios(&record["figures"]).markdown());
        let _ = writeln!(readme, "{}\n", on(&record));
    }
    if let Some(record) = record::read("peers")? {
        let table = peers::table(&record["figures"]);
        section(&mut report, "Other engines, side by side", &record, &table);
        let plot = bars(&record["figures"]);
        save(&place::perf("plots/peers.svg"), &plot)?;
        report.push_str("\n![Time per request at 4,096 ranks](plots/peers.svg)\n");
        let _ = writeln!(readme, "{}\n", peers::largest(&record["figures"]).markdown());
        let _ = writeln!(readme, "{}\n", on(&record));
    }
    if let Some(record) = record::read("tail")? {
        let table = tail(&record["figures"]);
        section(&mut report, "Select + book while two threads churn", &record, &table);
    }
    if let Some(record) = record::read("counts")? {
        let table = counts(&record["figures"]);
        section(&mut report, "Instructions and read-modify-writes per operation", &record, &table);
    }
    save(&place::perf("REPORT.md"), &report)?;
    println!("perf/REPORT.md");
    let path = place::root().join("README.md");
    if let Ok(text) = std::fs::read_to_string(&path) {
        match between(&text, readme.trim_end()) {
            Some(new) => {
                save(&path, &new)?;
                println!("README.md");
            }
            None => println!("README.md has no markers, left as it is:\n{BEGIN}\n{END}"),
        }
    }
    Ok(Verdict::Holds)
}

/// The text with what stands between the markers replaced.
fn between(text: &str, figures: &str) -> Option<String> {
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text[begin..].find(END)?;
    Some(format!("{}\n\n{figures}\n\n{}", &text[..begin], &text[end..]))
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text)).map_err(|e| format!("{}: {e}", path.display()))
}

fn section(report: &mut String, title: &str, record: &Value, table: &Table) {
    let _ = write!(report, "\n## {title}\n\n{}\n\n{}\n", table.markdown(), on(record));
}

/// Where and of what a record is.
fn on(record: &Value) -> String {
    let machine = &record["machine"];
    let text = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    format!(
        "{}, {} cores, load average {}, {}, commit {}.",
        text("cpu"),
        machine["cores"],
        machine["load_average"],
        text("rustc"),
        text("commit"),
    )
}

fn rows<'a>(figures: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    figures[key].as_array().into_iter().flatten()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_default()
}

fn name(row: &Value) -> String {
    row["name"].as_str().unwrap_or_default().to_owned()
}

fn ratios(figures: &Value) -> Table {
    let mut table = Table::new(&["what", "time", "against", "ratio", "bar", ""]);
    for row in rows(figures, "ratios") {
        table.row(vec![
            name(row),
            time(number(row, "of_ns")),
            time(number(row, "over_ns")),
            format!("{:.2}", number(row, "ratio")),
            row["bar"].as_str().unwrap_or_default().to_owned(),
            if row["holds"] == true { "holds" } else { "falls short" }.into(),
        ]);
    }
    table
}

fn tail(figures: &Value) -> Table {
    let mut table = Table::new(&["ranks", "calls", "p50", "p99", "p99.9", "max"]);
    for row in rows(figures, "tail") {
        let of = |key: &str| time(number(row, key));
        table.row(vec![
            row["ranks"].to_string(),
            row["calls"].to_string(),
            of("p50_ns"),
            of("p99_ns"),
            of("p99.9_ns"),
            of("max_ns"),
        ]);
    }
    table
}

fn counts(figures: &Value) -> Table {
    let mut table = Table::new(&["operation", "instructions", "read-modify-writes"]);
    for row in rows(figures, "operations") {
        table.row(vec![
            name(row),
            format!("{:.0}", number(&row["now"], "instructions")),
            format!("{:.1}", number(&row["now"], "atomics")),
        ]);
    }
    table
}

/// Bars on a logarithmic scale: both sides of every pair at the largest fleet.
fn bars(figures: &Value) -> String {
    const LEFT: f64 = 230.0;
    const WIDTH: f64 = 520.0;
    const STEP: f64 = 44.0;
    let most = rows(figures, "pairs").filter_map(|row| row["ranks"].as_u64()).max();
    let at: Vec<&Value> =
        rows(figures, "pairs").filter(|row| row["ranks"].as_u64() == most).collect();
    let all = || at.iter().flat_map(|r| [number(r, "ours_ns"), number(r, "peer_ns")]);
    let low = all().fold(f64::INFINITY, f64::min).max(1.0).log10().floor();
    let high = all().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |ns: f64| LEFT + WIDTH * (ns.max(1.0).log10() - low) / (high - low);
    let height = 50.0 + STEP * at.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n",
        LEFT + WIDTH + 90.0
    );
    for decade in low as i32..=high as i32 {
        let ns = 10f64.powi(decade);
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"24\" y2=\"{1}\" stroke=\"#ddd\"/>\
             <text x=\"{0:.1}\" y=\"16\" text-anchor=\"middle\">{2}</text>",
            x(ns),
            height - 10.0,
            time(ns)
        );
    }
    for (i, row) in at.iter().enumerate() {
        let y = 34.0 + STEP * i as f64;
        let pair = row["pair"].as_str().unwrap_or_default();
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{pair}</text>",
            LEFT - 8.0,
            y + 18.0
        );
        for (n, (key, fill)) in [("ours_ns", "#2b6cb0"), ("peer_ns", "#a0aec0")].iter().enumerate()
        {
            let (ns, y) = (number(row, key), y + 15.0 * n as f64);
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"13\" fill=\"{fill}\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{}</text>",
                (x(ns) - LEFT).max(1.0),
                x(ns) + 6.0,
                y + 11.0,
                time(ns)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = between(&text, "new").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(between(&new, "new").unwrap(), new);
        assert!(between("no markers", "new").is_none());
    }

    #[test]
    fn a_plot_shows_both_sides_of_every_pair_at_the_largest_fleet() {
        let pair = |name: &str, ranks: u64| json!({"pair": name, "ranks": ranks, "ours_ns": 170.0, "peer_ns": 2e5});
        let svg = bars(&json!({"pairs": [pair("small", 64), pair("large", 4096)]}));
        assert!(!svg.contains("small") && svg.contains("large"));
        assert!(svg.contains("170 ns") && svg.contains("200.00 us"));
    }
}
