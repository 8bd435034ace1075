//! `vacancy replay` from outside: exit codes, what goes where, and figures that anybody can
//! compute again from `--decisions`.
#![forbid(unsafe_code)]

use serde_json::Value;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of one test's own, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("vacancy-replay-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Arguments, of text and paths alike.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { [$(OsString::from(&$arg)),*] };
}

fn vacancy(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vacancy")).args(args).output().unwrap()
}

/// A replay of a trace by four workers in one pool that it loads well.
fn replay(trace: &Path, args: impl IntoIterator<Item = OsString>) -> Output {
    let busy = args!["--mode", "aggregated", "--trace", trace, "--trace-block", "64"];
    let ranks = args!["--workers", "4", "--prefill-tps", "9000", "--token-ms", "20"];
    vacancy(args!["replay"].into_iter().chain(busy).chain(ranks).chain(args))
}

/// A replay of a trace by two prefill and two decode workers; decode is the bottleneck.
fn two_hops(trace: &Path, args: impl IntoIterator<Item = OsString>) -> Output {
    let busy = args!["--trace", trace, "--trace-block", "64", "--workers", "4"];
    let ranks = args!["--prefill-tps", "20000", "--token-ms", "20", "--kv-blocks", "250"];
    let limit = args!["--decode-busy-frac", "0.8"];
    vacancy(args!["replay"].into_iter().chain(busy).chain(ranks).chain(limit).chain(args))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sessions of four turns in blocks of 64 tokens over two system prompts of eight blocks, some of
/// the lines without hashes, and not in order.
fn trace() -> String {
    let mut text = String::new();
    for i in 0..400u64 {
        let (session, turn) = (i % 100, i / 100);
        let blocks = 9 + turn * 5 + session % 4;
        let isl = blocks * 64 - session % 64;
        let at = turn * 4000 + session * (7919 + 211 * turn) % 3500;
        let osl = 1 + i * 31 % 200;
        let _ = write!(text, "{{\"timestamp\": {at}, \"input_length\": {isl}, ");
        let _ = write!(text, "\"output_length\": {osl}");
        if session % 10 != 0 {
            let id = |b| if b < 8 { (session % 2) * 100 + b } else { session * 1000 + b };
            let ids: Vec<u64> = (0..blocks).map(id).collect();
            let _ = write!(text, ", \"hash_ids\": {ids:?}");
        }
        text.push_str("}\n");
    }
    text
}

#[test]
fn json_is_one_object_with_the_keys_of_the_contract_and_nothing_else() {
    let dir = Dir::new("keys");
    let trace = dir.file("t.jsonl", &trace());
    let output = replay(&trace, args!["--json", "--seed", "9"]);
    let result = json(&output);
    assert!(output.stderr.is_empty(), "no terminal, no progress bar: {}", stderr(&output));
    let keys = "requests admitted rejected expired workers ranks mode strategy seed decision_ns \
                ttft_ms queue_wait_ms cached_token_share prefill_imbalance landings_past_limit \
                decode_overshoot_blocks bookings_left wall_s";
    for key in keys.split_whitespace() {
        assert!(result.get(key).is_some(), "{key}");
    }
    let keys =
        |key: &str| -> Vec<String> { result[key].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys("decision_ns"), ["p50", "p99", "p999", "max"]);
    assert_eq!(keys("ttft_ms"), ["p50", "p90", "p99"]);
    assert_eq!(keys("queue_wait_ms"), ["p50", "p99"]);
    for (key, value) in [("requests", 400), ("admitted", 400), ("workers", 4), ("ranks", 4)] {
        assert_eq!(result[key], value, "{key}");
    }
    assert_eq!(result["mode"], "aggregated");
    assert_eq!(result["strategy"], "vacancy");
    assert_eq!(result["seed"], 9);
    assert_eq!(result["bookings_left"], 0);
}

#[test]
fn a_comparison_runs_every_strategy_on_the_same_arrivals() {
    let dir = Dir::new("compare");
    let (trace, decisions) = (dir.file("t.jsonl", &trace()), dir.path("d.jsonl"));
    let output = replay(&trace, args!["--compare", "--json", "--decisions", decisions]);
    let result = json(&output);
    let compared = result["compare"].as_object().unwrap();
    let names: Vec<&str> = compared.keys().map(String::as_str).collect();
    assert_eq!(names, ["vacancy", "round-robin", "random", "p2c", "least-loaded"]);
    let mut arrivals: HashMap<String, Vec<[u64; 3]>> = HashMap::new();
    for line in lines(&decisions) {
        let strategy = line["strategy"].as_str().unwrap().to_string();
        let arrival = ["arrival_ns", "isl", "osl"].map(|key| line[key].as_u64().unwrap());
        arrivals.entry(strategy).or_default().push(arrival);
    }
    assert_eq!(arrivals.len(), 5);
    let of_vacancy = &arrivals["vacancy"];
    assert!(of_vacancy.len() == 400 && of_vacancy.is_sorted_by_key(|a| a[0]));
    assert!(arrivals.values().all(|a| a == of_vacancy));
    let share = |name: &str| compared[name]["cached_token_share"].as_f64().unwrap();
    let late = |name: &str| compared[name]["ttft_ms"]["p99"].as_f64().unwrap();
    for other in &names[1..] {
        assert!(share("vacancy") > share(other), "cached share: {other}");
    }
    for other in ["round-robin", "random", "p2c"] {
        assert!(late("vacancy") < late(other), "time to first token: {other}");
    }
}

/// The nearest-rank percentile of `samples`, in `unit`s.
fn percentile(mut samples: Vec<u64>, share: f64, unit: f64) -> f64 {
    samples.sort_unstable();
    let rank = (samples.len() as f64 * share).ceil().max(1.0) as usize;
    samples[rank - 1] as f64 / unit
}

#[test]
fn every_figure_can_be_computed_again_from_the_decisions() {
    let dir = Dir::new("recompute");
    let (trace, decisions) = (dir.file("t.jsonl", &trace()), dir.path("d.jsonl"));
    for strategy in ["vacancy", "p2c"] {
        // Too little KV memory for the longest prompts: some are refused.
        let small = args!["--kv-blocks", "27", "--dp-size", "2", "--speedup", "1.5"];
        let asked = args!["--json", "--strategy", strategy, "--decisions", decisions];
        let result = json(&replay(&trace, small.into_iter().chain(asked)));
        let lines = lines(&decisions);
        let all =
            |key: &str| -> Vec<Option<u64>> { lines.iter().map(|l| l[key].as_u64()).collect() };
        let span = |from: &str, to: &str| -> Vec<u64> {
            let pairs = all(from).into_iter().zip(all(to));
            pairs.filter_map(|(from, to)| Some(to? - from?)).collect()
        };
        let is = |path: &str, computed: f64| {
            let printed = result.pointer(path).unwrap().as_f64().unwrap();
            let near = (printed - computed).abs() <= 1e-9 * computed.max(1.0);
            assert!(near, "{strategy} {path}: {printed} printed, {computed} computed");
        };
        let outcome = |o: &str| lines.iter().filter(|l| l["outcome"] == o).count() as f64;
        is("/requests", lines.len() as f64);
        is("/admitted", all("admitted_ns").iter().flatten().count() as f64);
        is("/rejected", outcome("rejected"));
        assert!(outcome("rejected") > 0.0 && outcome("done") > 300.0);
        is("/expired", outcome("expired"));
        is("/bookings_left", outcome("open"));
        is("/ranks", 8.0);
        let decided: Vec<u64> = all("decision_ns").into_iter().flatten().collect();
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            is(&format!("/decision_ns/{name}"), percentile(decided.clone(), share, 1.0));
        }
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let waits = span("arrival_ns", "first_token_ns");
            is(&format!("/ttft_ms/{name}"), percentile(waits, share, 1e6));
        }
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let waits = span("arrival_ns", "admitted_ns");
            is(&format!("/queue_wait_ms/{name}"), percentile(waits, share, 1e6));
        }
        let (mut cached, mut tokens, mut busy) = (0, 0, [0; 8]);
        for line in &lines {
            let key = |key: &str| line[key].as_u64();
            if let (Some(hit), Some(isl)) = (key("cached_tokens"), key("isl")) {
                cached += hit;
                tokens += isl;
            }
            if let (Some(start), Some(end)) = (key("prefill_start_ns"), key("prefill_end_ns")) {
                let worker = key("prefill_worker").unwrap();
                busy[(worker * 2 + key("prefill_dp_rank").unwrap()) as usize] += end - start;
            }
        }
        is("/cached_token_share", cached as f64 / tokens as f64);
        let mean = busy.iter().sum::<u64>() as f64 / 8.0;
        is("/prefill_imbalance", *busy.iter().max().unwrap() as f64 / mean);
        is("/landings_past_limit", 0.0);
        is("/decode_overshoot_blocks", 0.0);
    }
}

#[test]
fn holds_keep_every_landing_within_the_class_limit_and_without_them_bursts_overshoot() {
    let dir = Dir::new("holds");
    let (trace, decisions) = (dir.file("t.jsonl", &trace()), dir.path("d.jsonl"));
    let run = |holds: &str| -> (Value, Vec<Value>) {
        let asked = args!["--json", "--holds", holds, "--decisions", decisions];
        let result = json(&two_hops(&trace, asked));
        assert_eq!(result["mode"], "disaggregated");
        assert_eq!((&result["admitted"], &result["bookings_left"]), (&400.into(), &0.into()));
        (result, lines(&decisions))
    };
    for (holds, past) in [("on", 0..=0), ("off", 20..=400)] {
        let (result, lines) = run(holds);
        let landings: Vec<(u64, u64, u64)> = ["hold", "leg"]
            .iter()
            .flat_map(|kind| {
                let key = move |line: &Value, what| line[format!("{kind}_{what}")].as_u64();
                lines.iter().filter_map(move |line| {
                    Some((key(line, "blocks")?, key(line, "added")?, key(line, "limit")?))
                })
            })
            .collect();
        // Each request lands once: with holds, the hold does, and becomes the leg in its place.
        assert_eq!(landings.len(), 400, "{holds}");
        assert!(landings.iter().all(|&(_, added, limit)| added <= 30 && limit == 200));
        let over: Vec<u64> =
            landings.iter().filter_map(|&(blocks, _, limit)| blocks.checked_sub(limit)).collect();
        let computed = over.iter().filter(|&&over| over > 0).count() as u64;
        assert_eq!(result["landings_past_limit"], computed, "{holds}");
        assert!(past.contains(&computed), "{holds}: {computed}");
        let most = over.iter().max().copied().unwrap_or(0);
        assert_eq!(result["decode_overshoot_blocks"], most, "{holds}");
        assert_eq!(result["landings_judged"], 400, "{holds}");
        let held = lines.iter().filter(|line| !line["hold_worker"].is_null()).count();
        assert_eq!(held, if holds == "on" { 400 } else { 0 });
        for line in &lines {
            let at = |key: &str| line[key].as_u64().unwrap();
            if holds == "on" {
                assert_eq!(line["hold_worker"], line["decode_worker"]);
            }
            // The blocks take their time from one rank to the other.
            assert!(at("first_token_ns") >= at("prefill_end_ns"));
            assert!(at("admitted_ns") >= at("arrival_ns"));
        }
        // Where decode is the bottleneck, somebody waits for it in either case.
        assert!(result["classes"][0]["waited"].as_u64().unwrap() > 0, "{holds}");
    }
}

#[test]
fn baselines_run_on_two_pools_and_are_judged_by_the_same_limit() {
    let dir = Dir::new("compare-two");
    let trace = dir.file("t.jsonl", &trace());
    let result = json(&two_hops(&trace, args!["--compare", "--json"]));
    let compared = result["compare"].as_object().unwrap();
    assert_eq!(compared.len(), 5);
    for (name, told) in compared {
        assert_eq!((&told["admitted"], &told["bookings_left"]), (&400.into(), &0.into()), "{name}");
        assert_eq!(told["landings_judged"], 400, "{name}");
        let past = told["landings_past_limit"].as_u64().unwrap();
        assert_eq!(past == 0, name == "vacancy", "{name}: {past}");
    }
}

#[test]
fn what_the_decode_pool_refuses_gives_everything_back() {
    let dir = Dir::new("refusals");
    let trace = dir.file("t.jsonl", &trace());
    for holds in ["on", "off"] {
        // The class limit lies above that of everybody: legs are refused that were let in.
        let low = args!["--reject-decode-frac", "0.3", "--holds", holds, "--json"];
        let result = json(&two_hops(&trace, low));
        assert_eq!(result["bookings_left"], 0, "{holds}");
        let rejected = result["rejected"].as_u64().unwrap();
        assert!((1..400).contains(&rejected), "{holds}: {rejected}");
    }
}

const POLICY: &str = "
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 700, bucket: long}]
policy_classes:
  - {name: short, policy_family: standard, cache_bucket: short, quantum: 4000,
     prefill_busy_threshold_frac: 0.2}
  - {name: long, policy_family: standard, cache_bucket: long, quantum: 1000, queue_policy: wspt,
     prefill_busy_threshold_frac: 0.1, max_wait_ms: 1500}
  - {name: probe, quantum: 1, prefill_busy_threshold_frac: 0, request_queue_limit_per_worker: 0}
";

#[test]
fn classes_wait_are_refused_and_expire_as_their_policy_says() {
    let dir = Dir::new("policy");
    let probe =
        "{\"timestamp\": 3, \"input_length\": 70, \"output_length\": 3, \"class\": \"probe\"}\n";
    let trace = dir.file("t.jsonl", &(trace() + &probe.repeat(9)));
    let (policy, decisions) = (dir.file("p.yaml", POLICY), dir.path("d.jsonl"));
    for mode in ["aggregated", "disaggregated"] {
        let asked = args!["--policy", policy, "--speedup", "2", "--prefill-tps", "6000", "--json"];
        let fleet = args!["--mode", mode, "--workers", "4", "--decisions", decisions];
        let trace = args!["replay", "--trace", trace, "--trace-block", "64"];
        let result = json(&vacancy(trace.iter().chain(&asked).chain(&fleet)));
        let lines = lines(&decisions);
        let classes = result["classes"].as_array().unwrap();
        let names: Vec<&str> = classes.iter().map(|c| c["class"].as_str().unwrap()).collect();
        assert_eq!(names, ["short", "long", "probe"]);
        for class in classes {
            let of: Vec<&Value> = lines.iter().filter(|l| l["class"] == class["class"]).collect();
            let count = |what: &dyn Fn(&Value) -> bool| of.iter().filter(|l| what(l)).count();
            assert_eq!(class["requests"], of.len());
            assert_eq!(class["rejected"], count(&|l| l["outcome"] == "rejected"));
            assert_eq!(class["expired"], count(&|l| l["outcome"] == "expired"));
            let waited = |l: &Value| {
                let until = l["admitted_ns"].as_u64().or(l["end_ns"].as_u64());
                until > l["arrival_ns"].as_u64()
            };
            assert_eq!(class["waited"], count(&waited));
            assert!(class["most_waiting"].as_u64() <= class["waited"].as_u64());
        }
        let [short, long, probe] = &classes[..] else { unreachable!() };
        assert!(short["waited"].as_u64() > Some(0) && long["waited"].as_u64() > Some(0), "{mode}");
        assert_eq!((&short["expired"], &short["rejected"]), (&0.into(), &0.into()), "{mode}");
        assert!(long["expired"].as_u64() > Some(0), "{mode}");
        // Those who may wait for 1.5 s go at that time, not at the next event.
        for line in lines.iter().filter(|l| l["outcome"] == "expired") {
            let key = |key: &str| line[key].as_u64().unwrap();
            assert_eq!(key("end_ns") - key("arrival_ns"), 1_500_000_000, "{mode}");
        }
        // Nine at once on a fleet that is not idle: a class that never queues lets few in.
        assert!(probe["rejected"].as_u64() > Some(0), "{mode}");
        assert_eq!((&probe["waited"], &result["bookings_left"]), (&0.into(), &0.into()), "{mode}");
        let refused = lines.iter().find(|l| l["class"] == "probe" && l["outcome"] == "rejected");
        assert_eq!(refused.unwrap()["error"], "QueueRejected");
    }
}

#[test]
fn what_a_run_decides_follows_from_its_seed() {
    let dir = Dir::new("seed");
    let (trace, decisions) = (dir.file("t.jsonl", &trace()), dir.path("d.jsonl"));
    let ranks = |seed: &str, strategy: &str| -> Vec<Value> {
        let asked = args!["--seed", seed, "--strategy", strategy, "--decisions", decisions];
        assert_eq!(code(&replay(&trace, asked)), 0);
        lines(&decisions).into_iter().map(|l| l["prefill_worker"].clone()).collect()
    };
    for strategy in ["vacancy", "random", "p2c"] {
        let first = ranks("1", strategy);
        assert_eq!(first, ranks("1", strategy), "{strategy}");
        assert_ne!(first, ranks("2", strategy), "{strategy}");
    }
}

#[test]
fn a_malformed_line_is_refused_by_its_number_or_counted() {
    let dir = Dir::new("bad");
    let good = "{\"timestamp\": 1, \"input_length\": 70, \"output_length\": 3}\n";
    let endless = "[".repeat(10 << 20);
    for bad in [
        "{\"timestamp\": 1}",
        "not json",
        "{\"timestamp\": -1, \"input_length\": 70, \"output_length\": 3}",
        "{\"timestamp\": 1, \"input_length\": 70, \"output_length\": 3, \"hash_ids\": [1, 2, 3]}",
        "{\"timestamp\": 1, \"input_length\": 5000000000, \"output_length\": 3}",
        "{\"timestamp\": 1e999, \"input_length\": 70, \"output_length\": 3}",
        &endless,
    ] {
        let trace = dir.file("t.jsonl", &format!("{good}{good}{bad}\n{good}"));
        let output = replay(&trace, args!["--json"]);
        let shown = &bad[..bad.len().min(80)];
        assert_eq!((code(&output), output.stdout.len()), (2, 0), "{shown}");
        assert!(stderr(&output).contains("line 3: "), "{shown}: {}", stderr(&output));
        let result = json(&replay(&trace, args!["--json", "--skip-bad"]));
        assert_eq!(result["requests"], 3);
        assert_eq!(result["setting"]["bad_lines"], 1);
    }
}

#[test]
fn what_cannot_be_taken_exits_with_2_and_prints_nothing() {
    let dir = Dir::new("refused");
    let trace = dir.file("t.jsonl", &trace());
    let empty = dir.file("empty.jsonl", "");
    let missing = dir.path("missing.jsonl");
    let nowhere = dir.path("no/such/directory");
    for (args, says) in [
        (&args!["--trace", missing] as &[_], "missing.jsonl"),
        (&args!["--trace", empty], "holds no request"),
        (&args!["--trace", dir.0], "cannot be read"),
        (
            &args!["--trace", trace, "--trace-block", "64", "--decisions", nowhere],
            "cannot be written",
        ),
        (&args!["--trace", trace, "--trace-block", "64", "--report", nowhere], "cannot be written"),
        (&args!["--trace", trace, "--trace-block", "0"], "--trace-block"),
        (&args!["--workers", "0"], "--workers"),
        (&args!["--requests", "0"], "--requests"),
        (&args!["--speedup", "NaN"], "--speedup"),
        (&args!["--speedup=-1"], "--speedup"),
        (&args!["--prefill-tps", "0"], "--prefill-tps"),
        (&args!["--strategy", "best"], "--strategy"),
        (&args!["--workers", "1000000", "--dp-size", "4096"], "ranks"),
        (&args!["--mode", "aggregated", "--prefill-workers", "2"], "two pools"),
        (&args!["--mode", "aggregated", "--holds", "on"], "two pools"),
        (&args!["--workers", "1"], "none decodes"),
        (&args!["--policy", missing], "missing.jsonl"),
        (&args!["--policy", trace], "t.jsonl: "),
        (&args!["--policy", trace, "--decode-busy-frac", "0.5"], "--decode-busy-frac"),
        (&args!["--decode-busy-frac", "1.5"], "--decode-busy-frac"),
        (&args!["--transfer-tps", "0"], "--transfer-tps"),
        (&args!["--nonsense"], "--nonsense"),
    ] {
        let output = vacancy(args!["replay"].iter().chain(args));
        assert_eq!((code(&output), output.stdout.len()), (2, 0), "{says}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{says}: {}", stderr(&output));
    }
}

#[test]
fn a_report_is_one_file_that_needs_no_network() {
    let dir = Dir::new("report");
    let (trace, report) = (dir.file("t<b>.jsonl", &trace()), dir.path("r.html"));
    let output = replay(&trace, args!["--compare", "--report", &report]);
    assert_eq!(code(&output), 0);
    let table = String::from_utf8(output.stdout).unwrap();
    for name in ["vacancy", "least-loaded", "time to first token p99", "9000 prompt tokens/s"] {
        assert!(table.contains(name), "{table}");
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert_eq!(page.matches("<svg").count(), 5);
    for title in ["Waiting", "Load per rank", "Decision time", "Time to first token"] {
        assert!(page.contains(title), "{title}");
    }
    assert!(!page.contains("by class"), "no policy, no classes");
    // Namespaces are names, not addresses; nothing else may point outside.
    let outside = page.replace("http://www.w3.org/", "");
    for fetch in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
        assert!(!outside.contains(fetch), "{fetch}");
    }
    assert!(page.contains("t&lt;b&gt;.jsonl") && !page.contains("<b>"), "paths are text");

    let output = two_hops(&trace, args!["--report", &report]);
    let table = String::from_utf8(output.stdout).unwrap();
    for told in ["2 prefill and 2 decode ranks", "holds on", "vacancy, by class", "most waiting"] {
        assert!(table.contains(told), "{told}: {table}");
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert_eq!(page.matches("<svg").count(), 7);
    assert!(page.contains("Waiting by class") && page.contains("Decode load per rank"));
}

#[test]
fn without_a_trace_the_built_in_workload_runs() {
    for mode in ["aggregated", "disaggregated"] {
        let few = ["replay", "--requests", "3000", "--workers", "64", "--json", "--mode", mode];
        let result = json(&vacancy(few));
        assert_eq!((&result["requests"], &result["workers"]), (&3000.into(), &64.into()));
        assert_eq!(result["mode"], mode);
        assert!(result["cached_token_share"].as_f64().unwrap() > 0.2);
    }
    let result = json(&vacancy(["replay", "--requests", "1000", "--workers", "64", "--json"]));
    assert_eq!(result["mode"], "disaggregated", "two pools are the default");
}
