//! Runs the binary over the project's scenario files, and over files that are wrong or do not hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn vacancy(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vacancy"))
        .arg("scenario")
        .args(args)
        .output()
        .expect("the binary runs")
}

/// Exit code, stdout, stderr.
fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

fn run(args: &[&str]) -> (i32, String, String) {
    outcome(&vacancy(args))
}

/// A scenario of one pool `p`, written to a file of its own.
fn file(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.yaml"));
    fs::write(&path, text).expect("the directory can be written");
    path.to_str().expect("a plain path").to_owned()
}

fn steps(name: &str, steps: &str) -> String {
    file(name, &format!("pools: {{p: {{}}}}\nsteps:\n{steps}"))
}

fn yaml_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("a readable entry").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

#[test]
fn the_contract_holds_in_every_scenario_at_every_seed() {
    let files = yaml_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios"));
    assert!(files.len() > 40, "only {} scenarios found", files.len());
    let files: Vec<&str> = files.iter().map(|f| f.to_str().expect("a plain path")).collect();
    for seed in ["0", "1", "2", "77", "18446744073709551615"] {
        let mut args = vec!["--seed", seed];
        args.extend(&files);
        let (code, out, err) = run(&args);
        let bad: String =
            out.lines().filter(|l| !l.contains(": ok, ")).collect::<Vec<_>>().join("\n");
        assert_eq!(code, 0, "seed {seed}:\n{bad}\n{err}");
        assert_eq!(out.lines().count(), files.len(), "one line per file");
    }
}

#[test]
fn the_shared_scenarios_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/scenarios");
    if !directory.is_dir() {
        println!("SKIPPED: there are no shared scenarios at {}", directory.display());
        return;
    }
    for path in yaml_in(&directory) {
        let (code, out, err) = run(&[path.to_str().expect("a plain path")]);
        assert_eq!(code, 0, "{out}{err}");
    }
}

/// What moves the epoch. An epoch can only be compared, which an expectation cannot do: so this
/// looks at the lines of `stats` between the steps.
#[test]
fn the_epoch_moves_whenever_room_may_have_appeared_and_not_when_load_is_added() {
    let worker = |more: &str| {
        format!("upsert: {{pool: p, worker: 1, max_num_batched_tokens: 1000, {more}}}")
    };
    let steps: [(&str, bool); 34] = [
        (&worker("total_kv_blocks: 100, ranks: 2"), true),
        ("book: {pool: p, as: a, isl: 64, hashes: [1, 2], pin: {worker: 1, rank: 0}}", false),
        ("output: {as: a, blocks: 1}", false),
        ("select: {pool: p, isl: 64}", false),
        ("prefill_completed: {as: a}", true),
        ("move: {as: a, worker: 1, rank: 1}", true),
        ("free: {as: a}", true),
        (&worker("total_kv_blocks: 200, ranks: 2"), true),
        (&worker("ranks: 2"), true),
        (&worker("ranks: 2, taints: [x]"), true),
        (&worker("ranks: 2, taints: [x], domains: {zone: a}"), true),
        (&worker("ranks: 2, taints: [x], domains: {zone: a}, loras: [l]"), true),
        (&worker("ranks: 1, taints: [x], domains: {zone: a}, loras: [l]"), true),
        // With a `busy_worker_ratio`, fewer ranks may be fewer full ones.
        ("available: {pool: p, worker: 1, is: false}", true),
        ("available: {pool: p, worker: 1, is: true}", true),
        ("overloaded: {pool: p, worker: 1, is: true, lease_ms: 10}", false),
        ("advance: {ms: 10}", true),
        ("overloaded: {pool: p, worker: 1, is: true}", false),
        ("overloaded: {pool: p, worker: 1, is: false}", true),
        ("thresholds: {pool: p, prefill_tokens: 100, decode_frac: 0.5}", false),
        ("thresholds: {pool: p, prefill_tokens: 200}", true),
        ("thresholds: {pool: p, clear: true}", true),
        (&worker("total_kv_blocks: 100"), true),
        ("thresholds: {pool: p, decode_frac: 0.5}", false),
        ("observe: {pool: p, worker: 1, kv_used_blocks: 90}", false),
        ("observe: {pool: p, worker: 1, kv_used_blocks: 10}", true),
        ("observe: {pool: p, worker: 1, kv_used_blocks: 90}", false),
        ("advance: {ms: 5001}", true),
        ("book: {pool: p, as: b, isl: 64}", false),
        ("advance: {ms: 59999}", false),
        ("advance: {ms: 1}", true),
        (
            "policy: {pool: p, policy: {default_policy_family: f, uncached_isl_buckets: \
             [{min_tokens: 0, bucket: all}], policy_classes: [{name: c, policy_family: f, \
             cache_bucket: all, quantum: 1}]}}",
            true,
        ),
        ("advance: {ms: 1000}", false),
        ("remove: {pool: p, worker: 1}", true),
    ];
    let text: String =
        steps.iter().map(|(step, _)| format!("  - {step}\n  - stats: {{pool: p}}\n")).collect();
    let f = file("epoch", &format!("pools: {{p: {{lease_s: 60}}}}\nsteps:\n{text}"));
    let (code, out, err) = run(&["--json", &f]);
    assert_eq!(code, 0, "{err}");
    let epochs: Vec<u64> = out
        .lines()
        .filter_map(|line| line.split("\"epoch\": ").nth(1)?.split(',').next()?.parse().ok())
        .collect();
    assert_eq!(epochs.len(), steps.len(), "{out}");
    let mut last = 0;
    for (epoch, (step, moves)) in epochs.into_iter().zip(steps) {
        assert_eq!(epoch != last, moves, "{step}: {last} to {epoch}");
        last = epoch;
    }
}

#[test]
fn a_failed_expectation_exits_1_and_says_where_what_and_what_instead() {
    let f = steps(
        "failed",
        "  - upsert: {pool: p, worker: 1}\n  \
         - book: {pool: p, as: a, isl: 64}\n    expect: {worker: 2, cost: 9}\n  \
         - load: {pool: p, worker: 1}\n    expect: {kv_blocks: 5}\n",
    );
    let (code, out, err) = run(&[&f]);
    assert_eq!((code, err.as_str()), (1, ""));
    let lines: Vec<&str> = out.lines().collect();
    let got = "a, admitted, worker 1 rank 0, cached_tokens 0, cost 8";
    assert_eq!(
        lines,
        [
            format!(
                "{f}:4: step 1, book a: expected worker 2, got {got}; expected cost 9, got {got}"
            ),
            format!("{f}:6: step 2, load: expected kv_blocks 5, got 4"),
            format!("{f}: 2 of 3 steps failed"),
        ]
    );
}

#[test]
fn a_step_that_fails_without_an_expectation_is_a_failure() {
    let f = steps("unexpected", "  - book: {pool: p, as: a, isl: 64}\n");
    let (code, out, _) = run(&[&f]);
    assert_eq!(code, 1);
    assert!(out.contains("step 0, book a: a: expected no error, got NoEndpoints"), "{out}");
    // A refusal that `state` reports is no failure of `state`.
    let f = steps(
        "reported",
        "  - book: {pool: p, as: a, isl: 64}\n    expect: {error: true}\n  - state: {as: a}\n",
    );
    assert_eq!(run(&[&f]).0, 0);
}

#[test]
fn a_scenario_goes_on_after_a_failed_step() {
    let f = steps(
        "goes_on",
        "  - stats: {pool: p}\n    expect: {ranks: 1}\n  - stats: {pool: p}\n    expect: {ranks: 2}\n",
    );
    let (code, out, _) = run(&[&f]);
    assert_eq!(code, 1);
    assert!(out.contains("step 0, stats") && out.contains("step 1, stats"), "{out}");
}

#[test]
fn json_is_one_line_per_step_and_nothing_else_on_stdout() {
    let f = steps(
        "json",
        "  - upsert: {pool: p, worker: 1, dp_start: 3, total_kv_blocks: 4}\n  \
         - thresholds: {pool: p, decode_frac: 0.5}\n  \
         - book: {pool: p, as: r1, isl: 100, overlaps: [{worker: 1, device: 2}]}\n  \
         - book: {pool: p, as: r2, isl: 1}\n    expect: {error: AllEligibleWorkersOverloaded}\n  \
         - state: {as: r1}\n  \
         - load: {pool: p, worker: 1}\n  \
         - stats: {pool: p}\n  \
         - free: {as: r1}\n  \
         - select: {pool: p, as: s, isl: 0, times: 2}\n  \
         - remove: {pool: p, worker: 9}\n    expect: {error: NoEndpoints}\n",
    );
    let (code, out, err) = run(&["--json", &f]);
    assert_eq!(code, 1);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"step": 0, "op": "upsert", "ok": true, "error": null, "events": []}"#,
            r#"{"step": 1, "op": "thresholds", "ok": true, "error": null, "events": []}"#,
            r#"{"step": 2, "op": "book", "as": "r1", "ok": true, "error": null, "state": "admitted", "worker": 1, "rank": 3, "cached_tokens": 32, "cost": 11.25, "events": []}"#,
            r#"{"step": 3, "op": "book", "as": "r2", "ok": true, "error": "AllEligibleWorkersOverloaded", "state": "refused", "events": []}"#,
            r#"{"step": 4, "op": "state", "as": "r1", "ok": true, "error": null, "state": "admitted", "worker": 1, "rank": 3, "cached_tokens": 32, "cost": 11.25, "events": []}"#,
            r#"{"step": 5, "op": "load", "ok": true, "error": null, "prefill_tokens": 68, "kv_blocks": 7, "requests": 1, "held_blocks": 0, "full": true, "events": []}"#,
            r#"{"step": 6, "op": "stats", "ok": true, "error": null, "ranks": 1, "full": 1, "waiting": 0, "epoch": 1, "selected": 1, "rejected": 1, "admitted": 0, "expired": 0, "cancelled": 0, "class": {"default": {"waiting": 0, "tokens": 0}}, "events": []}"#,
            r#"{"step": 7, "op": "free", "as": "r1", "ok": true, "error": null, "state": "freed", "events": []}"#,
            r#"{"step": 8, "op": "select", "as": "s", "ok": true, "error": null, "each": [{"as": "s-1", "ok": true, "error": null, "worker": 1, "rank": 3, "cached_tokens": 0, "cost": 0.0}, {"as": "s-2", "ok": true, "error": null, "worker": 1, "rank": 3, "cached_tokens": 0, "cost": 0.0}], "events": []}"#,
            r#"{"step": 9, "op": "remove", "ok": false, "error": null, "events": []}"#,
        ]
    );
    // People are told elsewhere.
    assert!(err.contains("step 9, remove: expected error NoEndpoints"), "{err}");
    assert!(err.ends_with("1 of 10 steps failed\n"), "{err}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let f = steps(
        "seeds",
        "  - reconcile: {pool: p, workers: [{worker: 1}, {worker: 2}, {worker: 3}, {worker: 4}]}\n  \
         - select: {pool: p, as: s, isl: 64, times: 100}\n",
    );
    let one = run(&["--json", "--seed", "5", &f]).1;
    assert_eq!(one, run(&["--json", "--seed", "5", &f]).1);
    assert_ne!(one, run(&["--json", "--seed", "6", &f]).1);
    assert_eq!(run(&["--json", &f]).1, run(&["--json", &f]).1, "also without a seed");
}

#[test]
fn a_wrong_file_exits_2_with_its_place_and_what_to_do() {
    for (name, text, line, says) in [
        ("no_such_step", "  - bok: {pool: p}\n", 3, "there is no step `bok`: use one of upsert"),
        ("two_operations", "  - free: {as: a}\n    cancel: {as: a}\n", 3, "`cancel` beside `free`"),
        ("no_operation", "  - {}\n", 3, "a step without an operation"),
        ("unknown_key", "  - load: {pool: p, worker: 1, rnk: 2}\n", 3, "unknown field `rnk`"),
        ("missing_key", "  - load: {pool: p}\n", 3, "missing field `worker`"),
        ("wrong_type", "  - load: {pool: p, worker: one}\n", 3, "\"one\""),
        ("quoted_number", "  - load: {pool: p, worker: \"1\"}\n", 3, "a whole number"),
        ("negative", "  - load: {pool: p, worker: -1}\n", 3, "a whole number"),
        ("no_such_pool", "  - stats: {pool: q}\n", 3, "there is no pool `q`: `pools` declares p"),
        ("not_a_map", "  - 5\n", 3, "a map is expected here"),
        ("twice", "  - stats: {pool: p, pool: p}\n", 3, "`pool` is given twice"),
        (
            "no_such_error",
            "  - stats: {pool: p}\n    expect: {error: Full}\n",
            4,
            "no error `Full`",
        ),
        (
            "not_returned",
            "  - stats: {pool: p}\n    expect: {worker: 1}\n",
            3,
            "returns no `worker`",
        ),
        ("unknown_expectation", "  - stats: {pool: p}\n    expect: {rank_s: 1}\n", 4, "`rank_s`"),
        ("broken", "  - stats: {pool: p\n", 0, ""),
        ("second_document", "  - stats: {pool: p}\n---\nsteps: []\n", 4, "one YAML document"),
    ] {
        let f = steps(name, text);
        let (code, out, err) = run(&[&f]);
        assert_eq!(code, 2, "{name}: {out}{err}");
        assert_eq!(out, "", "{name}");
        let start = if line == 0 { format!("{f}:") } else { format!("{f}:{line}:") };
        assert!(err.starts_with(&start) && err.contains(says), "{name}: {err}");
        assert_eq!(err.lines().count(), 1, "{name}: {err}");
    }
}

#[test]
fn a_pool_that_the_engine_refuses_makes_the_file_wrong() {
    for (name, keys, says) in [
        ("block_size_0", "{block_size: 0}", "block_size is 0"),
        ("lease_0", "{lease_s: 0}", "lease is 0"),
        ("weight_nan", "{weights: {host: .nan}}", "weights.host is NaN"),
        ("weight_negative", "{weights: {decay: -1}}", "weights.decay is -1"),
        ("pool_key", "{blocksize: 16}", "unknown field `blocksize`"),
        ("weight_key", "{weights: {gpu: 1}}", "unknown field `gpu`"),
        ("scope", "{reject_scope: pool}", "unknown variant `pool`"),
        ("no_such_pair", "{pair: q}", "there is no pool `q`"),
        ("own_pair", "{pair: p}", "paired with itself"),
    ] {
        let f = file(name, &format!("pools:\n  p: {keys}\nsteps: []\n"));
        let (code, _, err) = run(&[&f]);
        assert_eq!(code, 2, "{name}: {err}");
        assert!(err.starts_with(&format!("{f}:2:")) && err.contains(says), "{name}: {err}");
    }
}

#[test]
fn hostile_nesting_and_size_are_refused_quickly() {
    let deep = "[".repeat(100_000);
    let pools: String = (0..100_000).map(|i| format!("p{i}: {{}}, ")).collect();
    let anchors: String = (1..12)
        .map(|i| {
            format!(
                "  - upsert: &a{i} {{pool: p, worker: 1, taints: [*a{}, *a{}]}}\n",
                i - 1,
                i - 1
            )
        })
        .collect();
    for (name, text) in [
        ("deep_flow", format!("  - policy: {{pool: p, policy: {deep}\n")),
        ("deep_block", format!("  - policy: {{pool: p, policy: {}\n", "{a: ".repeat(100_000))),
        ("anchors", format!("  - upsert: &a0 {{pool: p, worker: 1}}\n{anchors}")),
        ("itself", "  - policy: {pool: p, policy: &x {a: [*x]}}\n".to_owned()),
        (
            "many",
            format!("  - book: {{pool: p, as: a, isl: 1, hashes: [{}]}}\n", "1, ".repeat(600_000)),
        ),
        ("times", "  - book: {pool: p, as: a, isl: 1, times: 18446744073709551615}\n".to_owned()),
        ("long", format!("  - stats: {{pool: p}} # {}\n", "x".repeat(9 << 20))),
    ] {
        let f = steps(name, &text);
        let (code, _, err) = run(&[&f]);
        assert_eq!(code, 2, "{name}: {err}");
        assert!(err.len() < 1000, "{name}: {err}");
        fs::remove_file(f).expect("it was written");
    }
    let f = file("pools", &format!("pools: {{{pools}}}\nsteps: []\n"));
    let (code, _, err) = run(&[&f]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("100000 pools"), "{err}");
}

#[test]
fn what_is_no_scenario_at_all_is_refused() {
    for (name, text) in [
        ("empty", ""),
        ("comment", "# nothing\n"),
        ("list", "[]\n"),
        ("word", "scenario\n"),
        ("no_pools", "steps: []\n"),
        ("empty_pools", "pools: {}\nsteps: []\n"),
        ("no_steps", "pools: {p: {}}\n"),
        ("more", "pools: {p: {}}\nsteps: []\nname: x\n"),
        ("nul", "pools: {p: {}}\nsteps: \0\n"),
    ] {
        let f = file(name, text);
        let (code, out, err) = run(&[&f]);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {err}");
        assert!(err.starts_with(&f), "{name}: {err}");
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bytes.yaml");
    fs::write(&path, [0xff, 0xfe, 0x00]).expect("the directory can be written");
    let (code, _, err) = run(&[path.to_str().expect("a plain path")]);
    assert_eq!(code, 2);
    assert!(err.contains("UTF-8"), "{err}");
    let (code, _, err) = run(&["/there/is/no/such.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("cannot be read"), "{err}");
    assert_eq!(run(&[]).0, 2, "no file at all");
}

#[test]
fn the_worst_of_all_files_is_the_exit_code_and_all_are_run() {
    let good = steps("good", "  - stats: {pool: p}\n");
    let bad = steps("bad", "  - stats: {pool: p}\n    expect: {ranks: 1}\n");
    let wrong = steps("wrong", "  - stat: {pool: p}\n");
    assert_eq!(run(&[&good]).0, 0);
    assert_eq!(run(&[&bad, &good]).0, 1);
    let (code, out, err) = run(&[&wrong, &bad, &good]);
    assert_eq!(code, 2);
    assert!(out.contains("good.yaml: ok, 1 steps") && out.contains("bad.yaml: 1 of 1"), "{out}");
    assert!(err.contains("no step `stat`"), "{err}");
}

#[test]
fn a_policy_file_is_resolved_or_refused_with_its_place() {
    let policy = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_vacancy")).arg("policy").args(args).output();
        outcome(&output.expect("the binary runs"))
    };
    let good = "default_policy_family: f\nuncached_isl_buckets: [{min_tokens: 0, bucket: all}]\n\
                policy_classes: [{name: only, policy_family: f, cache_bucket: all, quantum: 7}]\n";
    let (code, out, err) = policy(&[&file("policy_good", good)]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.starts_with("all models: default family f, uncached tokens: all from 0\n"),
        "{out}"
    );
    assert!(out.contains("only"), "{out}");
    let f = file("policy_bad", &good.replace("quantum: 7", "quantum: -7"));
    let (code, out, err) = policy(&[&f]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(err, format!("{f}: policy_classes[0].quantum: -7\n"));
    let (code, _, err) = policy(&["/there/is/no/such.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("cannot be read"), "{err}");
}
