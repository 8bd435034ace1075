//! The engine against the naive reference: the same operations to both, every answer and every row
//! compared after each.
#![forbid(unsafe_code)]

mod driver;
mod model;

use driver::{Driver, Seen};
use model::op::{self, Op, Seeded, Tape};
use model::{Config, Model, Outcome};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vacancy::{Constraints, Overlap, Rank, RejectThresholds, Request, Target, WorkerSpec};

/// Numbers that one operation is drawn from. What it does not use does not matter; what it lacks
/// is 0, the plainest choice.
const TAPE: usize = 100;

fn config() -> impl Strategy<Value = Config> {
    prop::collection::vec(any::<u16>(), 200).prop_map(|t| op::config(&mut Tape(t.into_iter())))
}

/// A pool's settings, and what is done with it.
fn case(steps: usize) -> impl Strategy<Value = (Config, Vec<Op>)> {
    let tapes = prop::collection::vec(prop::collection::vec(any::<u16>(), TAPE), 1..steps);
    (config(), tapes).prop_map(|(config, tapes)| {
        let draw = |t: Vec<u16>| Op::draw(&mut Tape(t.into_iter()), &config);
        let ops = tapes.into_iter().map(draw).collect();
        (config, ops)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_and_every_row_is_what_the_reference_has((config, ops) in case(120)) {
        Driver::new(config).run(ops).map_err(TestCaseError::fail)?;
    }
}

/// A case from a seed.
fn seeded(seed: u64, steps: usize) -> (Config, Vec<Op>) {
    let mut dice = Seeded(seed);
    let config = op::config(&mut dice);
    let ops = (0..steps).map(|_| Op::draw(&mut dice, &config)).collect();
    (config, ops)
}

#[test]
fn the_mixture_meets_every_refusal_and_every_event_that_matters() {
    let mut seen = Seen::new();
    for seed in 0..400 {
        let (config, ops) = seeded(seed, 100);
        let met = Driver::new(config).run(ops).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        met.into_iter().for_each(|(what, n)| *seen.entry(what).or_default() += n);
    }
    for what in [
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
    ] {
        assert!(seen.get(what).is_some_and(|n| *n >= 10), "{what} was met too rarely: {seen:?}");
    }
}

#[test]
fn a_reference_that_goes_by_another_rule_is_told_apart() {
    let rules: [(&str, fn(&mut Config)); 7] = [
        ("block size", |c| c.block_size += 1),
        ("prefill", |c| c.track_prefill = !c.track_prefill),
        ("blocks", |c| c.track_blocks = !c.track_blocks),
        ("host weight", |c| c.weights.host += 0.5),
        ("request weight", |c| c.weights.request += 0.5),
        ("decay", |c| c.weights.decay += 1.0),
        ("scope", |c| {
            c.scope = match c.scope {
                model::Scope::Worker => model::Scope::Rank,
                model::Scope::Rank => model::Scope::Worker,
            };
        }),
    ];
    for (rule, change) in rules {
        let told = (0..400).any(|seed| {
            let (config, ops) = seeded(seed, 100);
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
        let id = vacancy::RequestId(id as u128);
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
