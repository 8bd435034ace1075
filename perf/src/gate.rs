//! The gate: counts against the baseline, and ratios of counts against their bars.

use crate::Verdict;
use crate::baseline::{Baseline, Counts};
use crate::callgrind;
use crate::limits::Limits;
use crate::place::Args;
use crate::record;
use crate::table::Table;
use serde_json::json;
use std::collections::BTreeMap;

pub fn run(words: &[String]) -> Result<Verdict, String> {
    let flags = ["--json", "--record", "--control", "--bless"];
    let args = Args::parse(words, &flags, &["--reason"])?;
    let reason = bless_reason(
        args.has("--bless"),
        args.value("--reason"),
        args.has("--control"),
        std::env::var("CI").ok().as_deref(),
    )?;
    let limits = Limits::read()?;
    let mut baseline = Baseline::read()?;
    let counts = callgrind::count(args.has("--control"))?;
    let rustc = callgrind::ask("rustc", &["--version"]).unwrap_or_default();

    if let Some(reason) = reason {
        baseline.reasons.push(reason);
        baseline.rustc = rustc;
        baseline.counts = counts.clone();
        baseline.write()?;
        eprintln!("perf: a new baseline is in force; commit perf/baseline.toml");
    } else if rustc != baseline.rustc {
        eprintln!("perf: the baseline is of {}, this is {rustc}", baseline.rustc);
    }

    let judged = judge(&counts, &baseline, &limits);
    if args.has("--json") {
        println!("{:#}", judged.to_json());
    } else {
        judged.print();
    }
    if args.has("--record") {
        record::write("counts", judged.to_json())?;
    }
    Ok(if judged.broken.is_empty() { Verdict::Holds } else { Verdict::Broken })
}

/// The reason to bless with, if that is what was asked for and may be done.
fn bless_reason(
    bless: bool,
    reason: Option<&str>,
    control: bool,
    ci: Option<&str>,
) -> Result<Option<String>, String> {
    if !bless {
        return match reason {
            Some(_) => Err("--reason goes with --bless".into()),
            None => Ok(None),
        };
    }
    if ci.is_some_and(|ci| !ci.is_empty() && ci != "false" && ci != "0") {
        return Err(
            "--bless is refused in CI: a baseline is changed by a person, in writing".into()
        );
    }
    if control {
        return Err("--bless is refused for the slower build that --control makes".into());
    }
    match reason.map(str::trim) {
        Some(reason) if !reason.is_empty() => Ok(Some(reason.to_owned())),
        _ => Err("--bless needs --reason TEXT: why the new counts are accepted".into()),
    }
}

struct Line {
    name: String,
    now: Counts,
    then: Option<Counts>,
}

struct RatioLine {
    name: String,
    ratio: f64,
    at_most: f64,
}

struct Judged {
    lines: Vec<Line>,
    ratios: Vec<RatioLine>,
    broken: Vec<String>,
}

/// How much more, as a share; of nothing to something is infinitely more.
fn over(now: f64, then: f64) -> f64 {
    if now == then { 0.0 } else { now / then - 1.0 }
}

/// Equal is not over, also where a quotient of floats falls just above what was written.
const ROUNDING: f64 = 1e-9;

fn judge(counts: &BTreeMap<String, Counts>, baseline: &Baseline, limits: &Limits) -> Judged {
    let mut judged = Judged { lines: Vec::new(), ratios: Vec::new(), broken: Vec::new() };
    for name in vacancy_bench::scenes::counted() {
        let now = counts[name];
        let then = baseline.counts.get(name).copied();
        match then {
            None => judged.broken.push(format!("{name}: not in the baseline; bless it")),
            Some(then) => {
                let instructions = over(now.instructions, then.instructions);
                if instructions > limits.counts.instructions_over + ROUNDING {
                    judged.broken.push(format!(
                        "{name}: {:.1} instructions per operation, {:+.2} % over the baseline's \
                         {:.1} (limit {:+.1} %)",
                        now.instructions,
                        100.0 * instructions,
                        then.instructions,
                        100.0 * limits.counts.instructions_over,
                    ));
                }
                if over(now.atomics, then.atomics) > limits.counts.atomics_over + ROUNDING {
                    judged.broken.push(format!(
                        "{name}: {:.2} atomic read-modify-writes per operation, {:.2} in the \
                         baseline",
                        now.atomics, then.atomics,
                    ));
                }
            }
        }
        judged.lines.push(Line { name: name.to_owned(), now, then });
    }
    for name in baseline.counts.keys().filter(|name| !counts.contains_key(*name)) {
        judged.broken.push(format!("{name}: in the baseline and no longer counted; bless that"));
    }
    for rule in limits.ratio.iter().filter(|rule| rule.counts) {
        let ratio = counts[&rule.of].instructions / counts[&rule.over].instructions;
        if ratio > rule.at_most {
            judged.broken.push(format!(
                "{}: {ratio:.3} times the instructions ({} over {}), limit {}",
                rule.name, rule.of, rule.over, rule.at_most
            ));
        }
        let (name, at_most) = (rule.name.clone(), rule.at_most);
        judged.ratios.push(RatioLine { name, ratio, at_most });
    }
    judged
}

impl Judged {
    fn print(&self) {
        let mut table =
            Table::new(&["operation", "instr/op", "baseline", "", "rmw/op", "baseline"]);
        for Line { name, now, then } in &self.lines {
            let of = |f: fn(&Counts) -> f64, digits: usize| {
                then.as_ref().map_or("-".into(), |then| format!("{:.digits$}", f(then)))
            };
            table.row(vec![
                name.clone(),
                format!("{:.1}", now.instructions),
                of(|c| c.instructions, 1),
                then.map_or(String::new(), |then| {
                    format!("{:+.2} %", 100.0 * over(now.instructions, then.instructions))
                }),
                format!("{:.2}", now.atomics),
                of(|c| c.atomics, 2),
            ]);
        }
        println!("{}\n", table.text());
        let mut table = Table::new(&["ratio of instructions", "measured", "limit"]);
        for RatioLine { name, ratio, at_most } in &self.ratios {
            table.row(vec![name.clone(), format!("{ratio:.3}"), format!("{at_most}")]);
        }
        println!("{}\n", table.text());
        for broken in &self.broken {
            println!("BROKEN  {broken}");
        }
        println!(
            "{} operations, {} ratios, {} broken",
            self.lines.len(),
            self.ratios.len(),
            self.broken.len()
        );
    }

    fn to_json(&self) -> serde_json::Value {
        let lines = self
            .lines
            .iter()
            .map(|Line { name, now, then }| json!({"name": name, "now": now, "baseline": then}));
        let ratios = self.ratios.iter().map(|RatioLine { name, ratio, at_most }| {
            json!({"name": name, "ratio": ratio, "at_most": at_most})
        });
        json!({
            "operations": lines.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>(),
            "broken": self.broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(instructions: f64, atomics: f64) -> BTreeMap<String, Counts> {
        let one = Counts { instructions, atomics };
        vacancy_bench::scenes::counted().map(|name| (name.to_owned(), one)).collect()
    }

    fn baseline(instructions: f64, atomics: f64) -> Baseline {
        Baseline { counts: counts(instructions, atomics), ..Baseline::default() }
    }

    #[test]
    fn two_percent_more_is_let_pass_and_more_than_that_is_named() {
        let limits = Limits::read().unwrap();
        let broken = |now: f64| judge(&counts(now, 9.0), &baseline(1000.0, 9.0), &limits).broken;
        assert_eq!(broken(1020.0), Vec::<String>::new());
        assert_eq!(broken(500.0), Vec::<String>::new());
        let named = broken(1020.1);
        assert_eq!(named.len(), counts(0.0, 0.0).len());
        assert!(named[0].starts_with("select_book_free/64/off: 1020.1 instructions"));
    }

    #[test]
    fn one_more_read_modify_write_breaks_the_gate() {
        let limits = Limits::read().unwrap();
        let judged = judge(&counts(1001.0, 10.0), &baseline(1000.0, 9.0), &limits);
        assert!(judged.broken.iter().all(|b| b.contains("atomic read-modify-writes")));
        assert!(!judged.broken.is_empty());
        assert!(!judge(&counts(1.0, 1.0), &baseline(1.0, 0.0), &limits).broken.is_empty());
    }

    #[test]
    fn what_is_not_in_the_baseline_or_no_longer_counted_breaks_the_gate() {
        let limits = Limits::read().unwrap();
        let mut base = baseline(1000.0, 9.0);
        base.counts.remove("select/4096/off");
        base.counts.insert("gone/1/off".into(), Counts { instructions: 1.0, atomics: 0.0 });
        let broken = judge(&counts(1000.0, 9.0), &base, &limits).broken;
        assert_eq!(broken.len(), 2);
        assert!(broken[0].starts_with("select/4096/off: not in the baseline"));
        assert!(broken[1].starts_with("gone/1/off: in the baseline"));
    }

    #[test]
    fn a_ratio_of_counts_over_its_bar_breaks_the_gate() {
        let limits = Limits::read().unwrap();
        let mut now = counts(1000.0, 9.0);
        now.get_mut("select_book_free/4096/reject").unwrap().instructions = 1031.0;
        let mut base = baseline(1000.0, 9.0);
        base.counts.get_mut("select_book_free/4096/reject").unwrap().instructions = 1031.0;
        let broken = judge(&now, &base, &limits).broken;
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("reject thresholds on against off"));
    }

    #[test]
    fn a_blessing_needs_a_reason_and_is_refused_in_ci() {
        let bless = |reason, ci| bless_reason(true, reason, false, ci);
        assert_eq!(bless(Some("new walk"), None), Ok(Some("new walk".into())));
        assert!(bless(Some("new walk"), Some("true")).is_err());
        assert!(bless(Some("  "), None).is_err());
        assert!(bless(None, None).is_err());
        assert!(bless_reason(true, Some("x"), true, None).is_err());
        assert_eq!(bless_reason(false, None, true, Some("true")), Ok(None));
    }
}
