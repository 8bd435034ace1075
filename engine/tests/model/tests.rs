//! The model itself, against values worked out by hand from the contract.

use super::op::Nth;
use super::*;
use std::sync::Arc;
use vacancy::{Constraints, Overlap, Overrides, Prompt, Target};

const MS: fn(u64) -> Time = Time::from_millis;

fn pool(config: Config, workers: impl IntoIterator<Item = WorkerSpec>) -> Model {
    let mut m = Model::new(config);
    for spec in workers {
        m.step(&Op::Upsert(spec));
    }
    m
}

fn pick(m: &mut Model, op: &Op) -> Result<Pick, Refusal> {
    match m.step(op).outcome {
        Outcome::Pick(p) => p,
        other => panic!("not a choice: {other:?}"),
    }
}

/// Every rank that `select` may answer, with its cost.
fn select(m: &mut Model, r: &Request) -> Result<Vec<(Rank, f64)>, Refusal> {
    let p = pick(m, &Op::Select(r.clone()))?;
    m.settle(p.candidates[0].rank).expect("nothing lands");
    Ok(p.candidates.iter().map(|c| (c.rank, c.cost)).collect())
}

/// Books under `id`; the lowest of the ranks that may be chosen takes it.
fn book(m: &mut Model, id: u128, r: &Request) -> Result<Rank, Refusal> {
    let p = pick(m, &Op::BookAs(RequestId(id), r.clone()))?;
    let rank = p.candidates[0].rank;
    m.settle(rank)?;
    Ok(rank)
}

fn row(m: &Model, worker: u64) -> (u64, u64, u64) {
    let r = m.row(Rank::new(worker, 0)).expect("declared");
    (r.prefill_tokens, r.kv_blocks, r.requests)
}

fn done(m: &mut Model, op: Op) -> Result<(), Refusal> {
    match m.step(&op).outcome {
        Outcome::Done(r) => r,
        other => panic!("no plain answer: {other:?}"),
    }
}

fn frac(decode: f64) -> Op {
    Op::SetThresholds(Thresholds::NONE.decode_frac(decode))
}

fn pinned(isl: u64, target: Target) -> Request {
    Request::new(isl).constraints(Constraints::new().pin(target))
}

fn overloaded() -> Refusal {
    Error::AllEligibleWorkersOverloaded.into()
}

const A: u128 = 1;
const B: u128 = 2;

#[test]
fn rows_return_exactly_to_what_they_were_in_any_order_of_calls() {
    // The numbers of lifecycle.yaml.
    let spec = WorkerSpec::new(1).max_num_batched_tokens(8192).total_kv_blocks(100);
    let mut m = pool(Config { block_size: 128, ..Config::default() }, [spec]);
    book(&mut m, A, &Request::new(512)).unwrap();
    book(&mut m, B, &Request::new(100)).unwrap();
    assert_eq!(row(&m, 1), (612, 5, 2));
    let (a, b) = (RequestId(A), RequestId(B));
    done(&mut m, Op::CompleteId(a)).unwrap();
    done(&mut m, Op::CompleteId(a)).unwrap();
    done(&mut m, Op::OutputId(a, 2)).unwrap();
    assert_eq!(row(&m, 1), (100, 7, 2));
    assert!(matches!(m.step(&Op::FreeId(a)).outcome, Outcome::Flag(true)));
    assert!(matches!(m.step(&Op::FreeId(a)).outcome, Outcome::Flag(false)));
    assert_eq!(done(&mut m, Op::CompleteId(a)), Err(Error::UnknownRequest { id: a }.into()));
    m.step(&Op::FreeId(b));
    assert_eq!(row(&m, 1), (0, 0, 0));
}

#[test]
fn full_workers_are_skipped_until_everything_is_refused() {
    // The numbers of shed.yaml.
    let blocks = |id| WorkerSpec::new(id).total_kv_blocks(8);
    let mut m = pool(Config::default(), [blocks(1), blocks(2)]);
    book(&mut m, 1, &pinned(96, Target::worker(1))).unwrap();
    done(&mut m, frac(0.5)).unwrap();
    assert_eq!(book(&mut m, 2, &Request::new(64)), Ok(Rank::new(2, 0)));
    assert_eq!(book(&mut m, 3, &Request::new(16)), Ok(Rank::new(2, 0)));
    assert_eq!(book(&mut m, 4, &Request::new(16)), Err(overloaded()));
    let worker = WorkerId(1);
    let refused = Err(Error::PinnedWorkerOverloaded { worker }.into());
    assert_eq!(book(&mut m, 5, &pinned(16, Target::worker(1))), refused);
    m.step(&Op::FreeId(RequestId(3)));
    assert_eq!(book(&mut m, 6, &Request::new(16)), Ok(Rank::new(2, 0)));
    assert_eq!(row(&m, 2), (80, 5, 2));
}

#[test]
fn the_decode_pool_of_two_hops_sheds_after_six_blocks_of_eight() {
    let config = Config { track_prefill: false, ..Config::default() };
    let mut m = pool(config, [WorkerSpec::new(1).total_kv_blocks(8)]);
    done(&mut m, frac(0.5)).unwrap();
    book(&mut m, 1, &Request::new(96)).unwrap();
    assert_eq!(book(&mut m, 2, &Request::new(16)), Err(overloaded()));
    m.step(&Op::FreeId(RequestId(1)));
    assert_eq!(row(&m, 1), (0, 0, 0));
}

#[test]
fn the_cost_is_the_prefill_part_plus_blocks_plus_requests() {
    let mut weights = Weights::default();
    weights.request = 0.5;
    weights.prefill_scale = 2.0;
    weights.shared = 0.5;
    let config = Config { weights, ..Config::default() };
    let mut m = pool(config, [WorkerSpec::new(1), WorkerSpec::new(2)]);
    let chain = |h: &[u64]| Prompt::new(h).unwrap();
    let first = pinned(64, Target::worker(1)).prompt(chain(&[1, 2, 3, 4]));
    book(&mut m, A, &first).unwrap();
    // Worker 1: 2 * ((64 + 80) / 16 - (1 * 2 + 0.75 * 1 + 0.25 * 2 + 0.5 * 3)) = 2 * (9 - 4.75),
    // its 4 blocks, the 3 it does not hold, half a block for its request: 16.
    // Worker 2: 2 * (5 - 0.5 * 5), 5 blocks, no request: 10.
    let overlap = Overlap { rank: Rank::new(1, 0), device: 2.0, host: 1.0, disk: 2.0 };
    let r =
        Request::new(80).prompt(chain(&[1, 2, 9, 10, 11])).overlaps([overlap]).shared([0..3, 5..7]);
    let only = |w| r.clone().constraints(Constraints::new().allow([w]));
    assert_eq!(select(&mut m, &only(1)), Ok(vec![(Rank::new(1, 0), 16.0)]));
    assert_eq!(select(&mut m, &only(2)), Ok(vec![(Rank::new(2, 0), 10.0)]));
    assert_eq!(select(&mut m, &r), Ok(vec![(Rank::new(2, 0), 10.0)]));
    // Booked on 1: 80 - 16 * (2 + 0.75 + 0.5) = 28 tokens, 3 new blocks.
    book(&mut m, B, &only(1)).unwrap();
    assert_eq!(row(&m, 1), (92, 7, 2));
}

#[test]
fn cached_tokens_are_floored_capped_and_blind_to_the_device_weight() {
    let mut weights = Weights::default();
    weights.device = 3.0;
    let mut m = pool(Config { weights, ..Config::default() }, [WorkerSpec::new(1)]);
    let mut cached = |device, host, disk, isl| {
        let overlap = Overlap { rank: Rank::new(1, 0), device, host, disk };
        let p = pick(&mut m, &Op::Select(Request::new(isl).overlaps([overlap]))).unwrap();
        m.settle(Rank::new(1, 0)).unwrap();
        p.candidates[0].cached_tokens
    };
    assert_eq!(cached(1.0, 0.0, 0.0, 100), 16);
    assert_eq!(cached(1.4, 0.0, 0.0, 100), 22); // 22.4
    assert_eq!(cached(1.0, 1.0, 1.0, 100), 32); // 16 * 2
    assert_eq!(cached(9.0, 0.0, 0.0, 100), 100);
}

#[test]
fn a_pool_that_does_not_track_prefill_credits_overlaps_against_blocks() {
    let mut weights = Weights::default();
    weights.request = 1.0;
    let config = Config { track_prefill: false, weights, ..Config::default() };
    let mut m = pool(config, [WorkerSpec::new(1)]);
    book(&mut m, A, &Request::new(64)).unwrap();
    assert_eq!(row(&m, 1), (0, 4, 1));
    let rank = Rank::new(1, 0);
    let r = |blocks| Request::new(32).overlaps([Overlap::device(rank, blocks)]);
    assert_eq!(select(&mut m, &r(1.5)), Ok(vec![(rank, 5.5)])); // 6 - 1.5 + 1
    assert_eq!(select(&mut m, &r(9.0)), Ok(vec![(rank, 1.0)]));
    let mut none = Overrides::default();
    none.device = Some(0.0);
    assert_eq!(select(&mut m, &r(1.5).overrides(none)), Ok(vec![(rank, 7.0)]));
}

#[test]
fn the_device_credit_decays_with_the_backlog_over_the_least_loaded_eligible_rank() {
    let mut weights = Weights::default();
    weights.decay = 0.5;
    let mut m = pool(Config { weights, ..Config::default() }, [1, 2, 3].map(WorkerSpec::new));
    book(&mut m, 1, &pinned(32, Target::worker(1))).unwrap();
    book(&mut m, 2, &pinned(96, Target::worker(2))).unwrap();
    // Among 1 and 2 the excess of 2 is 4 blocks, of the request's 2: the weight is 1 / (1 + 0.5 * 2).
    // Cost of 2: (96 + 32) / 16 - 2 / 2, 6 blocks held, 2 new: 15. Of 1: 4 + 2 + 2 = 8.
    let r = Request::new(32).overlaps([Overlap::device(Rank::new(2, 0), 2.0)]);
    let mut among = |allow: &[u64], temperature| {
        let mut o = Overrides::default();
        o.temperature = Some(temperature);
        let c = Constraints::new().allow(allow.iter().copied());
        select(&mut m, &r.clone().overrides(o).constraints(c)).unwrap()
    };
    assert_eq!(among(&[1, 2], 0.0), [(Rank::new(1, 0), 8.0)]);
    assert_eq!(among(&[1, 2], 1.0), [(Rank::new(1, 0), 8.0), (Rank::new(2, 0), 15.0)]);
    // Alone it is itself the least loaded: no decay.
    assert_eq!(among(&[2], 0.0), [(Rank::new(2, 0), 14.0)]);
    // Over the idle 3 the excess is 6 blocks: 1 / (1 + 0.5 * 3) = 0.4.
    let with_idle = among(&[2, 3], 1.0);
    assert!(choose::same_cost(with_idle[0].1, 16.0 - 0.8));
}

#[test]
fn preferred_taints_multiply_the_cost() {
    let mut m = pool(
        Config::default(),
        [
            WorkerSpec::new(1),
            WorkerSpec::new(2).taint("x"),
            WorkerSpec::new(3).taint("x").taint("y"),
        ],
    );
    let c = Constraints::new().prefer("x", 0.5).prefer("y", 0.25).prefer("z", 0.1);
    let only = |c: &Constraints, w| Request::new(32).constraints(c.clone().allow([w]));
    assert_eq!(select(&mut m, &only(&c, 1)), Ok(vec![(Rank::new(1, 0), 4.0)]));
    assert_eq!(select(&mut m, &only(&c, 2)), Ok(vec![(Rank::new(2, 0), 2.0)]));
    assert_eq!(select(&mut m, &only(&c, 3)), Ok(vec![(Rank::new(3, 0), 0.5)]));
}

#[test]
fn a_worker_is_skipped_when_all_its_ranks_are_full_or_each_rank_by_itself() {
    for (scope, want) in [(Scope::Worker, 0), (Scope::Rank, 1)] {
        let config = Config { scope, ..Config::default() };
        let spec = WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(8);
        let mut m = pool(config, [spec]);
        done(&mut m, frac(0.5)).unwrap();
        let rank = |d| Rank::new(1, d);
        // Rank 0 carries 5 of 8 blocks; rank 1 four, so that rank 0 would need a credit to win.
        book(&mut m, 1, &pinned(80, Target::rank(1, 0))).unwrap();
        book(&mut m, 2, &pinned(64, Target::rank(1, 1))).unwrap();
        let strong = Request::new(48).overlaps([Overlap::device(rank(0), 3.0)]);
        let p = pick(&mut m, &Op::Select(strong.clone())).unwrap();
        m.settle(p.candidates[0].rank).unwrap();
        assert_eq!((p.eligible, p.full), (2, 1));
        assert_eq!(p.candidates[0].rank.dp_rank, want, "{scope:?}");
        // A pin to the full rank excludes its sibling, so both rules refuse.
        let refused = Err(Error::PinnedWorkerOverloaded { worker: WorkerId(1) }.into());
        assert_eq!(select(&mut m, &pinned(16, Target::rank(1, 0))), refused);
        // The sibling full as well: nobody.
        book(&mut m, 3, &pinned(16, Target::rank(1, 1))).unwrap();
        assert_eq!(select(&mut m, &strong), Err(overloaded()));
    }
}

#[test]
fn affinity_is_exclusive_if_it_passes_and_ignored_if_not() {
    let mut m = pool(Config::default(), [1, 2].map(WorkerSpec::new));
    book(&mut m, 1, &pinned(160, Target::worker(1))).unwrap();
    let r = Request::new(16).constraints(Constraints::new().affinity(Target::worker(1)));
    let chosen = |m: &mut Model| {
        let p = pick(m, &Op::Select(r.clone())).unwrap();
        m.settle(p.candidates[0].rank).unwrap();
        assert_eq!((p.candidates.len(), p.eligible), (1, 2));
        p.candidates[0].rank.worker.0
    };
    assert_eq!(chosen(&mut m), 1);
    m.step(&Op::Overloaded(WorkerId(1), true, None));
    assert_eq!(chosen(&mut m), 2);
    m.step(&Op::Overloaded(WorkerId(1), false, None));
    assert_eq!(chosen(&mut m), 1);
    let mut tokens = Thresholds::NONE;
    tokens.prefill_tokens = Some(159);
    done(&mut m, Op::SetThresholds(tokens)).unwrap();
    assert_eq!(chosen(&mut m), 2);
}

#[test]
fn refusals_come_in_the_order_of_the_contract() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1)]);
    book(&mut m, A, &Request::new(16)).unwrap();
    m.step(&Op::Expire(MS(10)));
    let constraints = |c: Constraints| Arc::new(c);
    let nowhere = constraints(Constraints::new().allow([]));
    let denied = constraints(Constraints::new().allow([2]).pin(Target::worker(1)));
    let mut r = Request::new(1 << 32).due(MS(10)).constraints(Arc::clone(&denied));
    let closed = {
        let mut m = m.clone();
        m.step(&Op::Close);
        book(&mut m, A, &r)
    };
    assert_eq!(closed, Err(Error::Closed.into()));
    assert_eq!(book(&mut m, A, &r), Err(Refusal::Request(vec!["isl"])));
    r.isl = 16;
    assert_eq!(book(&mut m, A, &r), Err(Error::DuplicateRequest { id: RequestId(A) }.into()));
    assert_eq!(book(&mut m, B, &r), Err(Error::DeadlineExceeded.into()));
    r.due = Some(MS(11));
    let worker = WorkerId(1);
    assert_eq!(book(&mut m, B, &r), Err(Error::PinnedWorkerNotAllowed { worker }.into()));
    r.constraints = Some(nowhere);
    assert_eq!(book(&mut m, B, &r), Err(Error::NoEndpoints.into()));
    r.constraints = None;
    assert_eq!(book(&mut m, B, &r), Ok(Rank::new(1, 0)));
}

#[test]
fn a_second_life_of_a_rank_starts_at_zero_and_old_bookings_never_touch_it() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1).total_kv_blocks(100)]);
    book(&mut m, A, &Request::new(64)).unwrap();
    let lost = m.step(&Op::Remove(WorkerId(1)));
    assert!(lost.epoch_moves);
    let Outcome::Lost(Ok(lost)) = lost.outcome else { panic!("{lost:?}") };
    let carried = LostLoad { requests: 1, ids: BTreeMap::from([(RequestId(A), 1)]) };
    assert_eq!(lost, BTreeMap::from([(Rank::new(1, 0), carried)]));
    m.step(&Op::Upsert(WorkerSpec::new(1).total_kv_blocks(100)));
    assert_eq!(row(&m, 1), (0, 0, 0));
    book(&mut m, B, &Request::new(16)).unwrap();
    done(&mut m, Op::OutputId(RequestId(A), 3)).unwrap();
    m.step(&Op::FreeId(RequestId(A)));
    assert_eq!(row(&m, 1), (16, 1, 1));
}

#[test]
fn an_old_attempt_never_frees_a_newer_one() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1)]);
    let id = RequestId(A);
    book(&mut m, A, &Request::new(16)).unwrap();
    assert_eq!(book(&mut m, A, &Request::new(64)), Err(Error::DuplicateRequest { id }.into()));
    m.step(&Op::FreeId(id));
    book(&mut m, A, &Request::new(32)).unwrap();
    assert!(matches!(m.step(&Op::FreeAttempt(id, 1)).outcome, Outcome::Flag(false)));
    assert_eq!(row(&m, 1), (32, 2, 1));
    assert!(matches!(m.step(&Op::FreeAttempt(id, 0)).outcome, Outcome::Flag(true)));
    assert_eq!(row(&m, 1), (0, 0, 0));
    assert!(matches!(m.step(&Op::FreeAttempt(id, 2)).outcome, Outcome::Nothing));
}

#[test]
fn silent_ids_are_reclaimed_and_any_call_on_one_renews_it() {
    let lease = Some(Duration::from_millis(100));
    let mut m = pool(Config { lease, ..Config::default() }, [WorkerSpec::new(1)]);
    book(&mut m, A, &Request::new(16)).unwrap();
    book(&mut m, B, &Request::new(16).at(MS(50))).unwrap();
    done(&mut m, Op::CompleteId(RequestId(A))).unwrap();
    let mut expired = |ms| {
        let step = m.step(&Op::Expire(MS(ms)));
        let Outcome::Expired(ended) = step.outcome else { panic!() };
        let ids = ended.leases;
        assert_eq!(step.epoch_moves, !ids.is_empty());
        ids.into_keys().map(|i| i.0).collect::<Vec<_>>()
    };
    assert_eq!(expired(149), [0u128; 0]);
    assert_eq!(expired(150), [A, B]);
    assert_eq!(expired(900), [0u128; 0]);
}

#[test]
fn a_move_lands_on_the_new_rank_and_leaves_the_old_one() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1), WorkerSpec::new(2)]);
    let chain = Prompt::new([1, 2, 3]).unwrap();
    let on = |w| pinned(48, Target::worker(w)).prompt(chain.clone());
    book(&mut m, A, &on(1)).unwrap();
    book(&mut m, B, &on(2)).unwrap();
    let step = m.step(&Op::MoveId(RequestId(A), Rank::new(2, 0)));
    assert!(step.epoch_moves);
    assert_eq!((row(&m, 1), row(&m, 2)), ((0, 0, 0), (96, 3, 2)));
    let gone = Op::MoveId(RequestId(A), Rank::new(2, 1));
    assert_eq!(done(&mut m, gone), Err(Error::NoEndpoints.into()));
    m.step(&Op::Available(WorkerId(1), false));
    let unavailable = Op::MoveId(RequestId(A), Rank::new(1, 0));
    assert_eq!(done(&mut m, unavailable), Err(Error::NoEndpoints.into()));
    assert_eq!(row(&m, 2), (96, 3, 2));
}

#[test]
fn imports_are_not_judged_and_export_lists_what_stands() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1).total_kv_blocks(8)]);
    done(&mut m, frac(0.0)).unwrap();
    let rank = Rank::new(1, 0);
    for id in [A, B] {
        m.step(&Op::ImportAs(RequestId(id), rank, Request::new(64)));
    }
    assert_eq!(row(&m, 1), (128, 8, 2));
    let Outcome::Live(live) = m.step(&Op::Export).outcome else { panic!() };
    assert_eq!(live.len(), 2);
    assert_eq!(live[&RequestId(B)].prefill_tokens, 64);
}

#[test]
fn a_landing_that_would_overflow_the_row_changes_nothing() {
    let mut m = pool(Config::default(), [WorkerSpec::new(1)]);
    let rank = Rank::new(1, 0);
    book(&mut m, A, &Request::new(u64::from(u32::MAX))).unwrap();
    let before = row(&m, 1);
    assert_eq!(before, (u64::from(u32::MAX), 1 << 28, 1));
    assert_eq!(book(&mut m, B, &Request::new(1)), Err(Error::RowOverflow { rank }.into()));
    let much = Op::OutputId(RequestId(A), u32::MAX);
    assert_eq!(done(&mut m, much), Err(Error::RowOverflow { rank }.into()));
    assert_eq!(row(&m, 1), before);
}

#[test]
fn every_event_that_may_give_room_moves_the_epoch_and_others_need_not() {
    let spec = || WorkerSpec::new(1).total_kv_blocks(8).max_num_batched_tokens(64);
    let mut m = pool(Config::default(), [spec()]);
    let mut moves = |op: Op, want: bool| {
        let step = m.step(&op);
        if let Outcome::Pick(Ok(p)) = &step.outcome {
            m.settle(p.candidates[0].rank).unwrap();
        }
        assert_eq!(step.epoch_moves, want, "{op:?}");
    };
    moves(Op::Book(Request::new(16)), false);
    moves(Op::Complete(Nth(0)), true);
    moves(Op::Complete(Nth(0)), false);
    moves(Op::Output(Nth(0), 1), false);
    moves(Op::Free(Nth(0)), true);
    moves(Op::Upsert(spec()), false);
    moves(Op::Upsert(spec().total_kv_blocks(9)), true);
    moves(Op::Upsert(spec()), false);
    moves(Op::Upsert(spec().total_kv_blocks(0)), true);
    moves(Op::Upsert(spec().taint("x")), true);
    moves(Op::Upsert(spec().taint("x").lora("l")), true);
    moves(Op::Upsert(spec().ranks(0, 2)), true);
    moves(Op::Upsert(spec()), true);
    moves(Op::Available(WorkerId(1), false), false);
    moves(Op::Available(WorkerId(1), true), true);
    moves(Op::Available(WorkerId(1), true), false);
    moves(Op::Overloaded(WorkerId(1), true, Some(MS(5))), false);
    moves(Op::Expire(MS(5)), true);
    moves(Op::Overloaded(WorkerId(1), true, None), false);
    moves(Op::Overloaded(WorkerId(1), false, None), true);
    moves(frac(0.5), false);
    moves(frac(0.6), true);
    moves(frac(0.4), false);
    moves(Op::ClearThresholds, true);
}
