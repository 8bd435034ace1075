//! The engine against the naive reference: the same operations to both, every answer and every row
//! compared after each.
#![forbid(unsafe_code)]

mod driver;
mod model;

use driver::{Driver, Seen};
use model::op::{self, Dice, Mixture, Nth, Op, Seeded, Tape};
use model::queue::{Class, Policy};
use model::{Config, Model, Outcome};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::BTreeMap;
use vacancy::{
    Constraints, Overlap, Rank, RejectThresholds, Request, RequestId, Target, WorkerSpec,
};

/// Numbers that one operation is drawn from. What it does not use does not matter; what it lacks
/// is 0, the plainest choice.
const TAPE: usize = 100;

/// A pool's settings, and what is done with it.
fn case(mixture: Mixture, steps: usize) -> impl Strategy<Value = (Config, Vec<Op>)> {
    let config = prop::collection::vec(any::<u16>(), 200);
    let tapes = prop::collection::vec(prop::collection::vec(any::<u16>(), TAPE), 1..steps);
    (config, tapes).prop_map(move |(config, tapes)| {
        let config = op::config(&mut Tape(config.into_iter()), mixture);
        let draw = |t: Vec<u16>| Op::draw(&mut Tape(t.into_iter()), &config);
        let ops = tapes.into_iter().map(draw).collect();
        (config, ops)
    })
}

/// A case that fails is written down, and run first ever after. PROPTEST_RNG_SEED and PROPTEST_CASES
/// look elsewhere and further.
fn thorough() -> ProptestConfig {
    let kept = FileFailurePersistence::Direct(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/differential.proptest-regressions"
    ));
    ProptestConfig {
        failure_persistence: Some(Box::new(kept)),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(thorough())]

    #[test]
    fn every_answer_and_every_row_is_what_the_reference_has(
        (config, ops) in case(Mixture::Plain, 120)
    ) {
        Driver::new(config).run(ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn everybody_waits_and_goes_in_when_the_reference_says(
        (config, ops) in case(Mixture::Crowd, 160)
    ) {
        Driver::new(config).run(ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn two_pools_answer_as_their_reference_does((config, ops) in case(Mixture::Pair, 160)) {
        Driver::new(config).run(ops).map_err(TestCaseError::fail)?;
    }
}

/// A case from a seed.
fn seeded(mixture: Mixture, seed: u64, steps: usize) -> (Config, Vec<Op>) {
    let mut dice = Seeded(seed);
    let config = op::config(&mut dice, mixture);
    let ops = (0..steps).map(|_| Op::draw(&mut dice, &config)).collect();
    (config, ops)
}

/// A case that fails, without the operations that it fails without.
fn shortest(config: &Config, mut ops: Vec<Op>) -> String {
    let fails = |ops: &[Op]| Driver::new(config.clone()).run(ops.to_vec()).err();
    let mut before = 0;
    while before != ops.len() {
        before = ops.len();
        for i in (0..ops.len()).rev() {
            let mut fewer = ops.clone();
            fewer.remove(i);
            if fails(&fewer).is_some() {
                ops = fewer;
            }
        }
    }
    let why = fails(&ops).unwrap_or_default();
    let ops: Vec<String> = ops.iter().map(driver::brief).collect();
    format!("{}\n{why}\n{config:?}", ops.join("\n"))
}

/// Runs many cases; whatever of `events` they met fewer than 10 times is a gap in the mixture.
fn meets(mixture: Mixture, cases: u64, steps: usize, events: &[&str]) {
    let mut seen = Seen::new();
    let long = std::env::var("VACANCY_LONG").is_ok_and(|long| long == "1");
    for seed in 0..if long { cases * 50 } else { cases } {
        let (config, ops) = seeded(mixture, seed, steps);
        let met = Driver::new(config.clone())
            .run(ops.clone())
            .unwrap_or_else(|why| panic!("seed {seed}: {why}\n{}", shortest(&config, ops)));
        met.into_iter().for_each(|(what, n)| *seen.entry(what).or_default() += n);
    }
    for what in events {
        assert!(seen.get(what).is_some_and(|n| *n >= 10), "{what} was met too rarely: {seen:?}");
    }
}

#[test]
fn the_mixture_meets_every_refusal_and_every_event_that_matters() {
    meets(
        Mixture::Plain,
        800,
        100,
        &[
            "choice",
            "one of several",
            "some eligible rank full",
            "overlap forgone",
            "uneven draw",
            "load lost its rank",
            "lease ran out",
            "mark ended",
            "NoEndpoints",
            "AllEligibleWorkersOverloaded",
            "PinnedWorkerOverloaded",
            "PinnedWorkerNotAllowed",
            "AllEligibleWorkersFiltered",
            "PolicyFailed",
            "DeadlineExceeded",
            "DuplicateRequest",
            "UnknownRequest",
            "InvalidRequest",
            "InvalidConfig",
            "RowOverflow",
            "Closed",
            "let in",
            "WouldQueue",
            "QueueRejected",
            "UnknownClass",
            "classified",
        ],
    );
}

#[test]
fn the_crowd_waits_in_several_classes_and_lanes_and_is_let_in_or_refused() {
    let events =
        ["let in", "let in after a wait", "refused while waiting", "WouldQueue", "ten wait"];
    meets(Mixture::Crowd, 300, 160, &events);
}

#[test]
fn two_pools_hold_convert_and_give_back_as_the_reference_does() {
    let events = [
        "let in with a hold",
        "hold replaced",
        "classified",
        "let in after a wait",
        "refused while waiting",
        "leg in its hold's place",
        "leg elsewhere",
        "leg weighed afresh",
        "leg refused",
        "hold ran out",
        "router fell silent",
        "peer taken",
        "peer echo",
        "peer dropped",
        "lease ran out",
        "NoEndpoints",
        "WouldQueue",
        "DuplicateRequest",
        "Closed",
    ];
    meets(Mixture::Pair, 400, 160, &events);
}

/// Two workers, and a class that waits while anything is active on every rank that it may use.
fn two_workers() -> Config {
    let mut class = Class::new("e", 1_000);
    class.thresholds.prefill_tokens = Some(0);
    let mut policy = Policy::none();
    policy.classes.push(class);
    Config {
        track_blocks: false,
        lease: None,
        policy: Some(policy),
        fleet: vec![WorkerSpec::new(1), WorkerSpec::new(2)],
        ..Config::default()
    }
}

/// A small request of that class.
fn small(constraints: Constraints) -> Request {
    Request::new(3).class("e").constraints(constraints)
}

fn only(worker: u64) -> Request {
    small(Constraints::new().allow([worker]))
}

/// Runs cases of a kind, and counts what they met.
fn runs(cases: u64, mut ops: impl FnMut(&mut Seeded) -> Vec<Op>) -> Seen {
    let mut seen = Seen::new();
    for seed in 0..cases {
        let ops = ops(&mut Seeded(seed));
        let met = Driver::new(two_workers()).run(ops.clone()).unwrap_or_else(|why| {
            panic!("seed {seed}: {why}\n{}", shortest(&two_workers(), ops));
        });
        met.into_iter().for_each(|(what, n)| *seen.entry(what).or_default() += n);
    }
    seen
}

#[test]
fn a_head_that_was_passed_often_enough_is_left_alone_by_both() {
    let seen = runs(100, |dice| {
        // Worker 1 is held up, and somebody waits for it. Whoever has its prompt cached there is
        // drawn to it, whenever worker 2 has room.
        let mut ops = vec![Op::BookAs(RequestId(0), only(1)), Op::Admit(only(1))];
        let overlap = Overlap::device(Rank::new(1, 0), 1000.0);
        let drawn = Request::new(16).class("e").overlaps([overlap]);
        for _ in 0..120 {
            ops.push(match dice.roll(16) {
                0 => Op::Admit(only(2)),
                1 => {
                    let pin = Target::worker(1 + u64::from(dice.roll(2)));
                    Op::Admit(small(Constraints::new().pin(pin)))
                }
                2 => Op::Cancel(Nth(1 + dice.roll(4))),
                3 | 4 => Op::Free(Nth(dice.roll(64))),
                5 => Op::Free(Nth(0)),
                6 => Op::Admit(small(Constraints::new())),
                _ => Op::Admit(drawn.clone()),
            });
        }
        ops.push(Op::FreeId(RequestId(0)));
        ops
    });
    assert!(seen["a head is guarded"] >= 100 && seen["let in after a wait"] >= 100, "{seen:?}");
}

#[test]
fn a_long_line_is_looked_at_as_far_by_both() {
    let seen = runs(100, |dice| {
        let mut ops = vec![Op::Book(only(1)), Op::Book(only(2))];
        for _ in 0..60 {
            ops.push(Op::Admit(match dice.roll(12) {
                0 => small(Constraints::new()),
                1 | 2 => only(2),
                _ => only(1),
            }));
        }
        for _ in 0..60 {
            ops.push(match dice.roll(8) {
                0 => Op::Cancel(Nth(dice.roll(60))),
                1 => Op::Admit(only(1 + u64::from(dice.roll(2)))),
                _ => Op::Free(Nth(dice.roll(2))),
            });
        }
        ops
    });
    assert!(seen["more than L wait"] >= 100 && seen["let in after a wait"] >= 1000, "{seen:?}");
}

/// Another rule for the reference.
type Change = fn(&mut Config);

#[test]
fn a_reference_that_goes_by_another_rule_is_told_apart() {
    let (plain, crowd, pair) = (Mixture::Plain, Mixture::Crowd, Mixture::Pair);
    let rules: [(&str, Mixture, Change); 20] = [
        ("block size", plain, |c| c.block_size += 1),
        ("prefill", plain, |c| c.track_prefill = !c.track_prefill),
        ("blocks", plain, |c| c.track_blocks = !c.track_blocks),
        ("host weight", plain, |c| c.weights.host += 0.5),
        ("request weight", plain, |c| c.weights.request += 0.5),
        ("decay", plain, |c| c.weights.decay += 1.0),
        ("quanta", crowd, |c| {
            if let Some(policy) = &mut c.policy {
                policy.classes.iter_mut().for_each(|class| class.quantum = 7);
            }
        }),
        ("order", crowd, |c| {
            if let Some(policy) = &mut c.policy {
                for class in &mut policy.classes {
                    class.order = model::queue::Order::Edf;
                }
            }
        }),
        ("thresholds", crowd, |c| {
            if let Some(policy) = &mut c.policy {
                for class in &mut policy.classes {
                    class.thresholds.prefill_tokens = Some(17);
                }
            }
        }),
        ("scope", plain, |c| {
            c.scope = match c.scope {
                model::Scope::Worker => model::Scope::Rank,
                model::Scope::Rank => model::Scope::Worker,
            };
        }),
        ("classifier", crowd, |c| c.custom.classifier = None),
        ("refresh", crowd, |c| c.custom.refresh = None),
        ("own name", plain, |c| c.router = vacancy::RouterId(1)),
        ("time to live", plain, |c| c.signal_ttl = std::time::Duration::from_millis(1)),
        ("holds", pair, |c| c.holds = !c.holds),
        ("one handle", pair, |c| c.shared_rejects = !c.shared_rejects),
        ("the pair's block size", pair, |c| {
            c.pair.as_mut().expect("a pair").block_size += 1;
        }),
        ("the pair's blocks", pair, |c| {
            let pair = c.pair.as_mut().expect("a pair");
            pair.track_blocks = !pair.track_blocks;
        }),
        ("decode fraction", pair, |c| {
            let classes = c.policy.iter_mut().flat_map(|policy| &mut policy.classes);
            classes.for_each(|class| class.thresholds.decode_frac = Some(0.6));
        }),
        ("a hold's lease", pair, |c| c.lease = Some(std::time::Duration::from_millis(30))),
    ];
    for (rule, mixture, change) in rules {
        let told = (0..400).any(|seed| {
            let (config, ops) = seeded(mixture, seed, 100);
            let mut other = config.clone();
            change(&mut other);
            Driver::against(config, other).run(ops).is_err()
        });
        assert!(told, "{rule}");
    }
}

/// A fleet of six ranks of four workers, with unequal load on them, in both.
fn loaded(config: &Config) -> (vacancy::Pool, Model) {
    let pool = driver::build(config, &RejectThresholds::default());
    let mut model = Model::new(config.clone());
    let workers = [
        WorkerSpec::new(1).ranks(0, 2),
        WorkerSpec::new(2),
        WorkerSpec::new(3).ranks(0, 2).taint("x"),
        WorkerSpec::new(4),
    ];
    for spec in workers {
        pool.upsert(spec.clone()).expect("a valid spec");
        model.step(&Op::Upsert(spec));
    }
    for (id, (rank, isl)) in
        [((1, 0), 160), ((1, 1), 40), ((2, 0), 96), ((3, 0), 320)].into_iter().enumerate()
    {
        let rank = Rank::new(rank.0, rank.1);
        let id = RequestId(id as u128);
        let request = Request::new(isl);
        pool.import_as(id, rank, &request).expect("a valid import");
        model.step(&Op::ImportAs(id, rank, request));
    }
    (pool, model)
}

/// Whether counts are what these probabilities would give, but once in a million (Wilson and
/// Hilferty's approximation of chi-square).
fn plausible(counts: &BTreeMap<Rank, u64>, probabilities: &BTreeMap<Rank, f64>) -> bool {
    let n = counts.values().sum::<u64>() as f64;
    if counts.keys().any(|r| !probabilities.contains_key(r)) {
        return false;
    }
    let off = |(rank, p): (&Rank, &f64)| {
        let got = counts.get(rank).copied().unwrap_or(0) as f64;
        (got - n * p).powi(2) / (n * p)
    };
    let statistic: f64 = probabilities.iter().map(off).sum();
    let df = probabilities.len() as f64 - 1.0;
    if df == 0.0 {
        return statistic == 0.0;
    }
    let spread = 2.0 / (9.0 * df);
    statistic < df * (1.0 - spread + 4.75 * spread.sqrt()).powi(3)
}

#[test]
fn draws_follow_the_probabilities_of_the_reference() {
    let requests = [
        ("plain", Request::new(64)),
        ("overlap", Request::new(64).overlaps([Overlap::device(Rank::new(3, 0), 3.0)])),
        ("affinity", {
            Request::new(64).constraints(Constraints::new().affinity(Target::worker(1)))
        }),
        ("preferred", Request::new(64).constraints(Constraints::new().prefer("x", 0.3))),
        (
            "idle ones",
            Request::new(64).constraints(Constraints::new().prefer("x", 1.0).deny([1, 2])),
        ),
    ];
    for temperature in [0.0, 0.1, 0.5, 4.0] {
        for scorer in [None, Some(model::custom::Scorer::AddPerWorker(1.5))] {
            let mut config = Config::default();
            config.weights.temperature = temperature;
            config.custom.scorer = scorer;
            let (pool, mut model) = loaded(&config);
            for (what, request) in &requests {
                let Outcome::Pick(Ok(pick)) = model.step(&Op::Select(request.clone())).outcome
                else {
                    panic!("{what} is refused");
                };
                model.settle(pick.candidates[0].rank).expect("nothing lands");
                // Those that would hardly ever come are left to the others' test.
                let likely: BTreeMap<Rank, f64> = pick
                    .candidates
                    .iter()
                    .filter(|c| c.probability > 1e-3)
                    .map(|c| (c.rank, c.probability))
                    .collect();
                let mut counts = BTreeMap::<Rank, u64>::new();
                for _ in 0..20_000 {
                    let choice = pool.select(request).expect("an answer");
                    if likely.contains_key(&choice.rank) {
                        *counts.entry(choice.rank).or_default() += 1;
                    }
                }
                let total: f64 = likely.values().sum();
                let likely = likely.into_iter().map(|(r, p)| (r, p / total)).collect();
                assert!(
                    plausible(&counts, &likely),
                    "{what} at temperature {temperature}: {counts:?}, expected {likely:?}"
                );
            }
        }
    }
}
