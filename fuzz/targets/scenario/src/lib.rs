//! Scenario files: no text panics; what is accepted runs to its end, whatever it expects.
//!
//! By itself, for its parsers are as much to compile as all other targets, and the only ones that
//! lose nothing if they are not optimised.
#![forbid(unsafe_code)]

use scenario::expect::judge;
use scenario::file::{Op, Scenario, WorkerKeys};
use scenario::report::json_line;
use scenario::run::Runner;

#[path = "../../../../engine/cli/src/scenario"]
mod scenario {
    mod check;
    pub(super) mod expect;
    pub(super) mod file;
    mod names;
    mod outcome;
    pub(super) mod report;
    mod request;
    pub(super) mod run;
    mod yaml;
}

/// As many steps, requests and ranks as one run does; a file may ask for more than a fuzzer has
/// time for.
const MOST_STEPS: usize = 200;
const MOST_REQUESTS: u64 = 500;
const MOST_RANKS: u64 = 2_000;

/// Reads `data` as a scenario and runs it.
///
/// # Panics
/// If a step does not come to an end in order.
pub fn scenario(data: &[u8]) -> u64 {
    let Ok(text) = std::str::from_utf8(data) else { return 0 };
    let scenario = match Scenario::read(text) {
        Ok(scenario) => scenario,
        Err(wrong) => {
            assert!(wrong.message.len() < 4096, "a refusal of {} bytes", wrong.message.len());
            return 1;
        }
    };
    let requests: u64 =
        scenario.steps.iter().filter_map(|s| s.op.times()).fold(0, u64::saturating_add);
    let ranks: u64 = scenario.steps.iter().map(|step| step.op.ranks()).fold(0, u64::saturating_add);
    if scenario.steps.len() > MOST_STEPS || requests > MOST_REQUESTS || ranks > MOST_RANKS {
        return 1;
    }
    let Ok(mut runner) = Runner::new(&scenario, 1) else { return 1 };
    for (number, step) in scenario.steps.iter().enumerate() {
        let (mut outcome, got) = runner.step(number, step);
        let _ = judge(step.expect.as_ref(), &mut outcome, &got);
        let mut line = Vec::new();
        json_line(&mut line, &outcome).expect("memory can be written");
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1, "one line a step");
        let read: serde_json::Value = serde_json::from_slice(&line).expect("a JSON line");
        assert_eq!(read["step"], number);
    }
    scenario.steps.len() as u64
}

impl Op {
    /// How many ranks a step declares.
    fn ranks(&self) -> u64 {
        let of = |keys: &WorkerKeys| keys.ranks.map_or(1, |n| n.0);
        match self {
            Op::Upsert(keys) => of(keys),
            Op::Reconcile(keys) => keys.workers.iter().map(of).fold(0, u64::saturating_add),
            _ => 0,
        }
    }
}
