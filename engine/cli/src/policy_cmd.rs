//! `vacancy policy`: checks a policy file and prints the resolved classes.
#![forbid(unsafe_code)]

use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use vacancy::{ClassSpec, Error, MAX_POLICY_BYTES, Policy, Profile};

/// What `vacancy policy` takes.
#[derive(clap::Args)]
pub struct Args {
    /// The policy file.
    file: PathBuf,
}

/// Checks the file: 0, it can be put in force; 2, it cannot, and why.
pub fn run(args: Args) -> ExitCode {
    let name = args.file.display();
    match read(&args.file).and_then(|text| resolve(&text)) {
        Ok(text) => match io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        },
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::from(2)
        }
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    // One byte more than the engine takes is enough for it to refuse what is longer.
    File::open(file)
        .and_then(|f| f.take(MAX_POLICY_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() > MAX_POLICY_BYTES {
        return Err(format!("is longer than the {MAX_POLICY_BYTES} bytes a policy may have"));
    }
    String::from_utf8(bytes).map_err(|_| "is not text: a policy is YAML in UTF-8".into())
}

/// What the policy in `text` comes to, for a person.
fn resolve(text: &str) -> Result<String, String> {
    let policy = Policy::from_yaml(text).map_err(|error| match error {
        Error::InvalidConfig { field, value } => format!("{field}: {value}"),
        error => error.to_string(),
    })?;
    let mut out = describe("all models", policy.profile(None));
    for model in policy.models() {
        out += "\n";
        out += &describe(&format!("model {model}"), policy.profile(Some(model)));
    }
    let unused = policy.unused_sections();
    if !unused.is_empty() {
        out += &format!("\nnot used here: {}\n", unused.join(", "));
    }
    Ok(out)
}

fn describe(whom: &str, profile: &Profile) -> String {
    let buckets: Vec<_> =
        profile.buckets().map(|(floor, name)| format!("{name} from {floor}")).collect();
    let mut table = Table::new();
    table.load_style(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header([
        "class",
        "family",
        "bucket",
        "quantum",
        "order",
        "prefill >",
        "prefill frac >",
        "decode frac >",
        "busy ratio",
        "waiting/worker",
        "tokens/worker",
        "cached/worker",
        "max wait",
        "waits",
    ]);
    for class in profile.classes() {
        table.add_row(row(class));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{whom}: default family {}, uncached tokens: {}\n{table}\n",
        profile.default_family(),
        buckets.join(", "),
    )
}

fn row(class: &ClassSpec) -> [String; 14] {
    let waits = match class.never_queues() {
        Some(limit) => format!("never ({} 0)", limit.key()),
        None if class.waits() => "yes".into(),
        None => "no threshold".into(),
    };
    [
        class.name.to_string(),
        set(&class.policy_family),
        set(&class.cache_bucket),
        class.quantum.to_string(),
        class.queue_policy.key().into(),
        set(&class.thresholds.prefill_tokens),
        set(&class.thresholds.prefill_frac),
        set(&class.thresholds.decode_frac),
        set(&class.busy_worker_ratio),
        set(&class.limits.requests),
        set(&class.limits.raw_isl_tokens),
        set(&class.limits.cached_tokens),
        class.max_wait.map_or("-".into(), |wait: Duration| format!("{} ms", wait.as_millis())),
        waits,
    ]
}

/// A value, or a dash where none is set: 0 is a value.
fn set(value: &Option<impl Display>) -> String {
    value.as_ref().map_or("-".into(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: small}, {min_tokens: 8192, bucket: large}]
policy_classes:
  - {name: s, policy_family: standard, cache_bucket: small, quantum: 8192, decode_busy_threshold_frac: 0.9}
  - {name: l, policy_family: standard, cache_bucket: large, quantum: 4096, queue_policy: wspt}
  - {name: probe, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 0}
models:
  big:
    default_policy_family: f
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: only, policy_family: f, cache_bucket: all, quantum: 7}]
router: {mode: kv}
";

    #[test]
    fn every_class_is_a_row_with_what_is_set_in_it() {
        let out = resolve(TEXT).expect("a valid policy");
        let row = |name: &str| -> Vec<&str> {
            let line = out.lines().find(|l| l.split_whitespace().nth(1) == Some(name));
            line.expect("a row").split_whitespace().skip(1).collect()
        };
        assert_eq!(row("s")[..8], ["s", "standard", "small", "8192", "fcfs", "-", "-", "0.9"]);
        assert_eq!(row("l")[..5], ["l", "standard", "large", "4096", "wspt"]);
        assert_eq!(row("probe")[..6], ["probe", "-", "-", "1", "fcfs", "0"]);
        assert!(row("probe").contains(&"never"));
        assert_eq!(row("only")[..4], ["only", "f", "all", "7"]);
        assert!(out.starts_with(
            "all models: default family standard, uncached tokens: small from 0, large from 8192\n"
        ));
        assert!(out.contains("\nmodel big: default family f"));
        assert!(out.ends_with("\nnot used here: router\n"));
    }

    #[test]
    fn a_refusal_says_where() {
        let text = TEXT.replace("quantum: 4096", "quantum: 0");
        let message = resolve(&text).expect_err("a quantum of 0");
        assert_eq!(message, "policy_classes[1].quantum: 0");
        let message = resolve("policy_classes: [").expect_err("not YAML");
        assert!(message.contains("line 1"), "{message}");
    }
}
