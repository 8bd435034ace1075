//! Simulated worlds: many clients, two paired pools, one clock, every kind of fault, and the
//! invariants looked at after every step.
//!
//! A seed is a world, bit for bit. `VACANCY_SEED=7 cargo test -p vacancy --test world` repeats one;
//! `VACANCY_WORLDS=10000 cargo test --release -p vacancy --test world` runs so many;
//! `VACANCY_FAULT_REQUESTS=1000000` sends so many requests through worlds about each one fault. A
//! world that fails prints its seed, is shrunk, and leaves a scenario file and its events under
//! `target/tmp`.
//!
//! | file | what |
//! |---|---|
//! | `plan` | a world as data, before it happens |
//! | `generate` | from a seed to a plan |
//! | `executor` | who is polled: the woken, and nobody else |
//! | `client` | a request's life as a state machine |
//! | `ops` | what is done to workers, limits, time, and clients |
//! | `ledger`, `fleet`, `peers` | the world's own books and judgements |
//! | `invariants` | what must hold |
//! | `share` | many worlds, on all cores |
//! | `shrink`, `trace` | a failing world made small, and written down |

#[path = "world/client.rs"]
mod client;
#[path = "world/executor.rs"]
mod executor;
#[path = "world/fleet.rs"]
mod fleet;
#[path = "world/generate.rs"]
mod generate;
#[path = "world/host.rs"]
mod host;
#[path = "world/invariants.rs"]
mod invariants;
#[path = "world/ledger.rs"]
mod ledger;
#[path = "world/ops.rs"]
mod ops;
#[path = "world/peers.rs"]
mod peers;
#[path = "world/plan.rs"]
mod plan;
#[path = "world/rng.rs"]
mod rng;
#[path = "world/share.rs"]
mod share;
#[path = "world/shrink.rs"]
mod shrink;
#[path = "world/sim.rs"]
mod sim;
#[path = "world/trace.rs"]
mod trace;

use ledger::Mistake;
use plan::{Fault, Plan};
use share::Tally;
use sim::{Breach, Options, run};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Worlds run one at a time in one process: which slot a rank gets, and so which of two equals is
/// chosen, may hang on who else is reading just then.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shrinks a world that fails, leaves what is left of it in files, and says so.
fn tell_failure(plan: &Plan, at: usize, breach: &Breach, fault: &str, options: Options) -> String {
    let limit = Duration::from_secs(number("VACANCY_SHRINK_SECONDS").unwrap_or(60));
    let small = shrink::shrink(plan, breach.invariant, options, limit);
    let again = run(&small, Options { trace: true, ..options });
    let seed = plan.setup.seed;
    let stem = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("world-{seed}"));
    let (yaml, list) = (stem.with_extension("yaml"), stem.with_extension("events"));
    let events: Vec<String> = small.events.iter().map(|event| format!("{event:?}")).collect();
    let head = format!("{:#?}\n{breach:?}\n", small.setup);
    let written = std::fs::write(&yaml, again.scenario.unwrap_or_default())
        .and_then(|()| std::fs::write(&list, format!("{head}{}\n", events.join("\n"))));
    written.expect("the target directory can be written to");
    let shrunk = again.breach.map_or(breach.clone(), |(_, breach)| breach);
    format!(
        "{}\n  at event {at} of {}: {}\n  shrunk to {} events: {}\n{}\n  scenario: {}\n  events: \
         {}\n  repeat: {fault}VACANCY_SEED={seed} cargo test -p vacancy --test world every_invariant",
        breach.invariant,
        plan.events.len(),
        breach.what,
        events.len(),
        shrunk.what,
        events.iter().map(|event| format!("    {event}")).collect::<Vec<_>>().join("\n"),
        yaml.display(),
        list.display(),
    )
}

/// Tells of a seed that failed, of a world about a fault or about none.
fn assert_none_failed(tally: &Tally, about: Option<Fault>) {
    let Some(seed) = tally.failed else { return };
    let _alone = alone();
    let plan = generate::plan_about(seed, about);
    let fault = about.map_or(String::new(), |fault| format!("VACANCY_FAULT='{fault}' "));
    match run(&plan, Options::default()).breach {
        Some((at, breach)) => {
            panic!("seed {seed}: {}", tell_failure(&plan, at, &breach, &fault, Options::default()))
        }
        None => panic!("seed {seed} failed in another process, and does not here"),
    }
}

#[test]
fn every_invariant_holds_after_every_step_of_every_world() {
    let one = number("VACANCY_SEED");
    let worlds = if one.is_some() { 1 } else { number("VACANCY_WORLDS").unwrap_or(300) };
    let first = one.unwrap_or(0);
    let named = std::env::var("VACANCY_FAULT").ok();
    let about = named.map(|key| {
        *Fault::ALL.iter().find(|f| f.key() == key).unwrap_or_else(|| panic!("no fault is {key}"))
    });
    let done = |tally: &Tally, shares: u64| tally.worlds >= worlds.div_ceil(shares);
    let name = "every_invariant_holds_after_every_step_of_every_world";
    let shares = if one.is_some() { 1 } else { share::cores() };
    let Some(tallies) = share::run(name, shares, &[about], |_, n| first + n, done) else { return };
    let tally = &tallies[0];
    tally.print("worlds");
    assert_none_failed(tally, about);
    if worlds < 100 {
        return;
    }
    for fault in Fault::ALL {
        let (in_worlds, _) = tally.faults.get(fault).copied().unwrap_or_default();
        assert!(in_worlds * 20 >= tally.worlds, "{fault} in {in_worlds} of {worlds} worlds");
    }
    assert!(tally.requests >= worlds * 100, "worlds are busy");
}

#[test]
fn nothing_is_left_after_many_requests_through_each_kind_of_fault() {
    let wanted = number("VACANCY_FAULT_REQUESTS").unwrap_or(1_000);
    let about: Vec<Option<Fault>> = Fault::ALL.iter().copied().map(Some).collect();
    let seed = |at: usize, n: u64| 1_000_000_000 * (at as u64 + 1) + n;
    let done = |tally: &Tally, shares: u64| tally.requests >= wanted.div_ceil(shares);
    let name = "nothing_is_left_after_many_requests_through_each_kind_of_fault";
    let Some(tallies) = share::run(name, share::cores(), &about, seed, done) else { return };
    for (tally, &fault) in tallies.iter().zip(Fault::ALL) {
        let (worlds, times) = tally.faults.get(&fault).copied().unwrap_or_default();
        println!(
            "{:32} {:>9} requests in {:>6} worlds; suffered {times} times in {worlds} of them",
            fault.key(),
            tally.requests,
            tally.worlds
        );
        assert_none_failed(tally, Some(fault));
        assert!(times > 0, "{fault} never came");
    }
}

#[test]
fn a_seed_is_a_world_bit_for_bit() {
    let _alone = alone();
    for seed in 0..40 {
        let plan = generate::plan(seed);
        assert_eq!(plan, generate::plan(seed));
        assert!(plan.events.len() >= generate::EVENTS && generate::EVENTS >= 500);
        let (one, other) = (run(&plan, Options::default()), run(&plan, Options::default()));
        let differs = one.history.iter().zip(&other.history).position(|(a, b)| a != b);
        assert_eq!(one.digest, other.digest, "seed {seed} differs from step {differs:?} on");
        assert_eq!((one.steps, one.requests), (other.steps, other.requests), "seed {seed}");
    }
    let digest = |seed| run(&generate::plan(seed), Options::default()).digest;
    assert_ne!(digest(1), digest(2));
}

/// Books that are kept wrong on purpose: the mistake is seen, and shrinking finds the few events
/// that show it.
#[test]
fn a_world_that_fails_shrinks_to_the_few_events_that_it_takes() {
    let _alone = alone();
    let options = Options { mistake: Some(Mistake::OutputStays), ..Options::default() };
    let plan = generate::plan(3);
    let (at, breach) = run(&plan, options).breach.expect("the mistake is seen");
    assert_eq!(breach.invariant, "each_row_is_the_sum_of_what_is_live");
    let small = shrink::shrink(&plan, breach.invariant, options, Duration::from_secs(60));
    assert!(small.events.len() <= 6, "{} events: {:#?}", small.events.len(), small.events);
    let again = run(&small, Options { trace: true, ..options });
    assert_eq!(again.breach.expect("it fails still").1.invariant, breach.invariant);
    let scenario = again.scenario.expect("it was asked for");
    for step in ["upsert: ", "output"] {
        assert!(scenario.contains(step), "{scenario}");
    }
    let told = tell_failure(&plan, at, &breach, "", options);
    assert!(told.contains("VACANCY_SEED=3 cargo test -p vacancy --test world"), "{told}");
}

/// Let in in time, and polled for the first time when its due time has long passed.
#[test]
fn who_was_let_in_in_time_is_not_late_because_it_is_polled_late() {
    use plan::{ClassPlan, Demand, Door, Event, Hop, Line, Op, PolicyPlan, Wants, WorkerPlan};
    let _alone = alone();
    let mut plan = generate::plan_about(10_000_003_511, Some(Fault::WorkerReturns));
    let class = |name, bucket, line| ClassPlan {
        name,
        bucket,
        quantum: 256,
        order: vacancy::QueuePolicy::Fcfs,
        line,
        ratio: None,
        limit: None,
        max_wait_ms: None,
    };
    let line = |prefill_tokens, prefill_frac, decode_frac| Line {
        prefill_tokens,
        prefill_frac,
        decode_frac,
    };
    let policy = PolicyPlan {
        classes: vec![
            class("std_small", Some("small"), line(None, Some(1.1), Some(0.3))),
            class("std_large", Some("large"), line(None, Some(0.0), None)),
            class("express", None, line(Some(498), None, Some(0.0))),
        ],
    };
    let worker = |id, start, tokens, blocks, lora| WorkerPlan {
        id,
        start,
        ranks: 2,
        tokens: Some(tokens),
        blocks: Some(blocks),
        taint: false,
        lora,
    };
    let arrive = |client, door, isl, class, due_in_ms, lazy| Op::Arrive {
        client,
        hop: Hop::Prefill,
        door,
        demand: Demand {
            isl,
            chain: None,
            cached: Vec::new(),
            class,
            priority: 0,
            jump: 0.0,
            due_in_ms,
            own: Wants::default(),
            leg: Wants::default(),
            lora: false,
            do_not_queue: false,
            behind_ms: 0,
            poison: false,
            afresh: false,
        },
        lazy,
    };
    plan.events = [
        (Op::Upsert(Hop::Decode, worker(21, 2, 1_108, 76, false)), true),
        (Op::Upsert(Hop::Prefill, worker(11, 0, 961, 44, true)), true),
        (Op::Policy(Hop::Prefill, policy), true),
        (arrive(77, Door::Admit, 53, Some("express"), None, true), true),
        (arrive(79, Door::AdmitAs, 101, Some("express"), None, false), true),
        (arrive(80, Door::AdmitAs, 346, None, None, false), true),
        (arrive(84, Door::AdmitAs, 146, None, Some(39), true), false),
        (Op::Advance(42), false),
        (Op::Advance(48), true),
    ]
    .map(|(op, run)| Event { op, run })
    .into();
    let lived = run(&plan, Options::default());
    assert_eq!(lived.breach, None);
}
