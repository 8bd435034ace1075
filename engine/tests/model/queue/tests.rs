//! The queue of the model, against orders and refusals worked out by hand from the contract.

use super::*;
use crate::model::op::{Nth, Op};
use crate::model::{Config, Event, Model, Outcome, Refusal};
use std::sync::Arc;
use vacancy::{Error, Overlap, WorkerId, WorkerSpec};

const MS: fn(u64) -> Time = Time::from_millis;

/// A class that waits while anything at all is active on every rank it may use.
fn strict(name: &str, quantum: u64) -> Class {
    let mut class = Class::new(name, quantum);
    class.thresholds.prefill_tokens = Some(0);
    class
}

/// These classes by name; whoever names none of them never waits.
fn policy(classes: impl IntoIterator<Item = Class>) -> Policy {
    let mut policy = Policy::none();
    policy.classes.extend(classes);
    policy
}

fn pool(classes: impl IntoIterator<Item = Class>, workers: &[WorkerSpec]) -> Model {
    Model::new(Config {
        track_blocks: false,
        policy: Some(policy(classes)),
        fleet: workers.to_vec(),
        ..Config::default()
    })
}

/// Somebody let in, and where, or refused.
type Told = (u64, Result<u64, Refusal>);

/// Lets in whoever can go, each on the first of the ranks that may be chosen.
fn drain(m: &mut Model) -> Vec<Told> {
    let mut told = Vec::new();
    while let Some(event) = m.next_event() {
        told.push(match event {
            Event::Admitted(ticket, pick) => {
                let rank = pick.candidates[0].rank;
                (ticket, m.settle(rank).map(|()| rank.worker.0).map_err(Refusal::from))
            }
            Event::Refused(ticket, why) => (ticket, Err(why)),
        });
    }
    told
}

/// Asks under id `id`; what happens to whom at once.
fn ask(m: &mut Model, id: u128, r: Request) -> Result<Vec<Told>, Refusal> {
    match m.step(&Op::AdmitAs(RequestId(id), r)).outcome {
        Outcome::Ticket(ticket) => ticket.map(|_| drain(m)),
        other => panic!("{other:?}"),
    }
}

fn waits(m: &mut Model, id: u128, r: Request) {
    assert_eq!(ask(m, id, r), Ok(Vec::new()));
}

fn free(m: &mut Model, id: u128) -> Vec<Told> {
    m.step(&Op::FreeId(RequestId(id)));
    drain(m)
}

fn cancel(m: &mut Model, nth: u32) -> Vec<Told> {
    m.step(&Op::Cancel(Nth(nth)));
    drain(m)
}

fn of(class: &str, isl: u64) -> Request {
    Request::new(isl).class(class)
}

fn on(c: Constraints) -> Arc<Constraints> {
    Arc::new(c)
}

/// Holds up the only rank with `isl` tokens under id 0.
fn hold_up(m: &mut Model, isl: u64) {
    assert!(ask(m, 0, Request::new(isl)).is_ok());
}

/// Lets in one after another, each in the place of the one before, and says which.
fn one_by_one(m: &mut Model, first: u128) -> Vec<u128> {
    let (mut order, mut active) = (Vec::new(), first);
    loop {
        match free(m, active)[..] {
            [] => return order,
            // Tickets and ids count alike here: id 0 had ticket 0.
            [(ticket, Ok(_))] => active = u128::from(ticket),
            ref other => panic!("{other:?}"),
        }
        order.push(active);
    }
}

#[test]
fn equal_quanta_take_equal_turns_and_carried_credit_is_kept() {
    // drr_equal.yaml: quanta of 10, four requests of 3 tokens each, one at a time.
    let mut m = pool([strict("a", 10), strict("b", 10)], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 3);
    (1..=4).for_each(|id| waits(&mut m, id, of("a", 3)));
    (5..=8).for_each(|id| waits(&mut m, id, of("b", 3)));
    assert_eq!(one_by_one(&mut m, 0), [1, 2, 3, 5, 6, 7, 4, 8]);
}

#[test]
fn service_in_tokens_follows_the_quanta_whatever_the_order_of_declaration() {
    for swapped in [false, true] {
        let mut classes = [strict("big", 400), strict("small", 100)];
        if swapped {
            classes.reverse();
        }
        let mut m = pool(classes, &[WorkerSpec::new(1)]);
        hold_up(&mut m, 1);
        (1..=60).for_each(|id| waits(&mut m, id, of("big", 400)));
        (61..=120).for_each(|id| waits(&mut m, id, of("small", 400)));
        let order = one_by_one(&mut m, 0);
        let small: Vec<bool> = order[..50].iter().map(|id| *id > 60).collect();
        assert_eq!(small.iter().filter(|s| **s).count(), 10);
        if !swapped {
            let four_to_one = [false, false, false, false, true];
            assert!(small.chunks(5).all(|c| c == four_to_one), "{order:?}");
        }
    }
}

#[test]
fn a_head_far_beyond_its_quantum_is_served_at_once_where_nobody_else_can_go() {
    let mut m = pool([strict("a", 1)], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 1);
    waits(&mut m, 1, of("a", u64::from(u32::MAX)));
    assert_eq!(free(&mut m, 0), [(1, Ok(1))]);
}

#[test]
fn a_blocked_class_loses_its_turn_and_neither_earns_nor_loses_credit() {
    // `b` goes by worker 2, which `a` may not use.
    let mut m = pool([strict("a", 10), strict("b", 10)], &[1, 2].map(WorkerSpec::new));
    let a = |isl| of("a", isl).constraints(on(Constraints::new().allow([1])));
    let b = |isl| of("b", isl).constraints(on(Constraints::new().allow([2])));
    let on_worker = |id| Request::new(1).constraints(on(Constraints::new().allow([id])));
    ask(&mut m, 0, on_worker(1)).unwrap();
    ask(&mut m, 1, on_worker(2)).unwrap();
    (2..=7).for_each(|id| waits(&mut m, id, a(3)));
    (8..=15).for_each(|id| waits(&mut m, id, b(3)));
    // a: granted 10, one of 3 goes, 7 are left; worker 1 stays full.
    assert_eq!(free(&mut m, 0), [(2, Ok(1))]);
    // b has the turn as long as a is blocked, and is granted rounds that a is not.
    let mut last = 1;
    for ticket in 8..=12 {
        assert_eq!(free(&mut m, last), [(ticket, Ok(2))]);
        last = u128::from(ticket);
    }
    assert_eq!(m.queue.turns.credit, [0, 7, 5]);
}

#[test]
fn a_class_whose_queue_empties_starts_at_nothing() {
    let mut m = pool([strict("a", 100), strict("b", 10)], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 1);
    waits(&mut m, 1, of("a", 3));
    waits(&mut m, 2, of("b", 3));
    assert_eq!(free(&mut m, 0), [(1, Ok(1))]);
    assert_eq!(m.queue.turns.credit, [0, 0, 0]);
    assert_eq!(free(&mut m, 1), [(2, Ok(1))]);
}

#[test]
fn within_a_class_priority_then_due_time_then_score_then_arrival() {
    let mut wspt = strict("w", 1_000_000);
    wspt.order = Order::Wspt;
    let mut edf = strict("d", 1_000_000);
    edf.order = Order::Edf;
    for (class, want) in [
        ("f", [4, 3, 2, 6, 1, 5]),
        // 1 / 100; 1 / 50; (1 + 9) / 200; 1 / 50.
        ("w", [4, 3, 2, 6, 1, 5]),
        ("d", [3, 2, 1, 4, 5, 6]),
    ] {
        let classes = [strict("f", 1_000_000), wspt.clone(), edf.clone()];
        let mut m = pool(classes, &[WorkerSpec::new(1)]);
        hold_up(&mut m, 1);
        let at = |id, isl| of(class, isl).at(MS(id));
        waits(&mut m, 1, at(1, 100).priority_jump(f64::NAN));
        waits(&mut m, 2, at(2, 500).due(MS(9000)));
        waits(&mut m, 3, at(3, 500).due(MS(8000)));
        waits(&mut m, 4, at(4, 900).strict_priority(1));
        waits(&mut m, 5, at(5, 100).priority_jump(-2.0));
        waits(&mut m, 6, at(6, 200).priority_jump(9.0));
        assert_eq!(one_by_one(&mut m, 0), want, "{class}");
    }
}

#[test]
fn a_class_is_found_by_name_or_by_family_and_bucket_of_uncached_tokens() {
    let cell = |name: &str, family: &str, bucket: &str| {
        let mut class = Class::new(name, 1);
        class.cell = Some((family.into(), bucket.into()));
        class
    };
    let policy = Policy {
        default_family: "f".into(),
        buckets: vec![(0, "small".into()), (100, "large".into())],
        classes: vec![
            Class::new("probe", 1),
            cell("f_small", "f", "small"),
            cell("f_large", "f", "large"),
            cell("g_large", "g", "large"),
            cell("g_small", "g", "small"),
        ],
    };
    let class = |name: Option<&str>, uncached| {
        policy.classes[policy.class(name.map(Name::from).as_ref(), uncached)].name.to_string()
    };
    assert_eq!(class(Some("probe"), 500), "probe");
    assert_eq!(class(None, 99), "f_small");
    assert_eq!(class(None, 100), "f_large");
    assert_eq!(class(Some("g"), 100), "g_large");
    assert_eq!(class(Some("g"), 0), "g_small");
    assert_eq!(class(Some("unknown"), 0), "f_small");
    // The name of a cell is no name that a request may ask for.
    assert_eq!(class(Some("g_large"), 0), "f_small");
    assert!(!policy.knows(&"g_large".into()) && policy.knows(&"g".into()));
}

#[test]
fn uncached_tokens_are_counted_against_the_best_overlap_of_an_eligible_rank() {
    let m = pool([], &[1, 2].map(WorkerSpec::new));
    let view = m.view();
    let r = Request::new(100).overlaps([
        Overlap::device(Rank::new(1, 0), 2.0),
        Overlap::device(Rank::new(2, 0), 4.0),
        Overlap::device(Rank::new(3, 0), 6.0),
    ]);
    assert_eq!(uncached(&view, &r, &[Rank::new(1, 0), Rank::new(2, 0)]), 36);
    assert_eq!(uncached(&view, &r, &[Rank::new(1, 0)]), 68);
}

#[test]
fn the_ratio_of_full_ranks_is_reached_by_equality() {
    let class = |r| Class { busy_worker_ratio: r, ..Class::new("c", 1) };
    assert_eq!(class(None).full_to_wait(5), 5);
    assert_eq!(class(Some(0.5)).full_to_wait(5), 3);
    assert_eq!(class(Some(0.5)).full_to_wait(4), 2);
    assert_eq!(class(Some(0.01)).full_to_wait(4), 1);
    assert_eq!(class(Some(1.0)).full_to_wait(4), 4);
    // 0.29 * 100 is 28.999999999999996 in binary.
    assert_eq!(class(Some(0.29)).full_to_wait(100), 29);
    // 0.07 * 100 is 7.000000000000001, but 7 / 100 is 0.07.
    assert_eq!(class(Some(0.07)).full_to_wait(100), 7);
}

#[test]
fn a_marked_worker_counts_as_full_at_the_gate_and_reject_thresholds_do_not() {
    let mut m = pool([strict("a", 10)], &[WorkerSpec::new(1)]);
    m.step(&Op::Overloaded(WorkerId(1), true, Some(MS(50))));
    waits(&mut m, 1, of("a", 3));
    // Without thresholds nobody waits: the mark sheds.
    let shed = Error::AllEligibleWorkersOverloaded;
    assert_eq!(ask(&mut m, 2, Request::new(3)), Err(shed.clone().into()));
    let mut t = Thresholds::NONE;
    t.prefill_tokens = Some(0);
    m.step(&Op::SetThresholds(t));
    m.step(&Op::Expire(MS(50)));
    // In it goes (the first ticket that was given), and the next one waits rather than be shed.
    assert_eq!(drain(&mut m), [(0, Ok(1))]);
    waits(&mut m, 3, of("a", 3));
    assert_eq!(ask(&mut m, 4, Request::new(3)), Err(shed.into()));
}

#[test]
fn limits_are_per_worker_and_compare_what_waits_already() {
    let mut class = strict("a", 10);
    class.limits = [Some(1), Some(50), None];
    let mut m = pool([class], &[1, 2].map(WorkerSpec::new));
    hold_up(&mut m, 1);
    ask(&mut m, 1, Request::new(1)).unwrap();
    let rejected = |kind, current, limit| {
        Err(Error::QueueRejected { class: "a".into(), kind, current, limit }.into())
    };
    waits(&mut m, 2, of("a", 1000));
    // 1,000 tokens of 2 * 50; one request of 2.
    assert_eq!(ask(&mut m, 3, of("a", 1)), rejected(LimitKind::RawIslTokens, 1000, 100));
    cancel(&mut m, 0);
    waits(&mut m, 4, of("a", 99));
    waits(&mut m, 5, of("a", 1));
    assert_eq!(ask(&mut m, 6, of("a", 1)), rejected(LimitKind::Requests, 2, 2));
    let would = Error::WouldQueue { class: "a".into(), waiting: 2 };
    assert_eq!(ask(&mut m, 6, of("a", 1).do_not_queue()), Err(would.into()));
}

#[test]
fn a_limit_of_0_never_queues() {
    let mut class = strict("a", 10);
    class.limits = [None, Some(0), Some(3)];
    let mut m = pool([class, strict("b", 10)], &[1, 2].map(WorkerSpec::new));
    let only = |id| on(Constraints::new().allow([id]));
    assert_eq!(ask(&mut m, 0, of("a", 3).constraints(only(1))), Ok(vec![(0, Ok(1))]));
    let refused = Error::QueueRejected {
        class: "a".into(),
        kind: LimitKind::RawIslTokens,
        current: 0,
        limit: 0,
    };
    assert_eq!(ask(&mut m, 1, of("a", 3).constraints(only(1))), Err(refused.into()));
    // Somebody of another class waits; its own gate is open.
    waits(&mut m, 1, of("b", 3).constraints(only(1)));
    assert_eq!(ask(&mut m, 2, of("a", 3)), Ok(vec![(2, Ok(2))]));
}

#[test]
fn due_times_refuse_on_arrival_and_while_waiting_and_may_come_from_the_class() {
    let mut class = strict("a", 10);
    class.max_wait = Some(Duration::from_millis(30));
    let mut m = pool([class], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 1);
    let late = || Refusal::from(Error::DeadlineExceeded);
    waits(&mut m, 1, of("a", 1).at(MS(5)));
    waits(&mut m, 2, of("a", 1).due(MS(50)));
    assert_eq!(ask(&mut m, 3, of("a", 1).due(MS(5))), Err(late()));
    m.step(&Op::Expire(MS(34)));
    assert_eq!(drain(&mut m), []);
    m.step(&Op::Expire(MS(35)));
    assert_eq!(drain(&mut m), [(1, Err(late()))]);
    // At one instant the refusal comes before the room.
    m.step(&Op::Expire(MS(50)));
    assert_eq!(free(&mut m, 0), [(2, Err(late()))]);
}

#[test]
fn a_pin_waits_in_its_own_lane_and_blocks_nobody_else() {
    let mut m = pool([strict("a", 10)], &[1, 2].map(WorkerSpec::new));
    let pinned = |id| of("a", 3).constraints(on(Constraints::new().pin(Target::rank(id, 0))));
    ask(&mut m, 0, pinned(1)).unwrap();
    waits(&mut m, 1, pinned(1));
    waits(&mut m, 2, pinned(1));
    assert_eq!(ask(&mut m, 3, of("a", 3)), Ok(vec![(3, Ok(2))]));
    waits(&mut m, 4, of("a", 3));
    assert_eq!(free(&mut m, 3), [(4, Ok(2))]);
    assert_eq!(free(&mut m, 0), [(1, Ok(1))]);
}

#[test]
fn thirty_two_are_looked_at_behind_a_blocked_head_and_no_more() {
    let mut m = pool([strict("a", 1_000_000)], &[1, 2].map(WorkerSpec::new));
    let only = |id: u64| of("a", 3).constraints(on(Constraints::new().allow([id])));
    ask(&mut m, 0, only(1)).unwrap();
    ask(&mut m, 1, only(2)).unwrap();
    // A head and 31 more for worker 1, then two for worker 2.
    (2..34).for_each(|id| waits(&mut m, id, only(1)));
    waits(&mut m, 34, only(2));
    waits(&mut m, 35, only(2));
    assert_eq!(free(&mut m, 1), [(34, Ok(2))]);
    // The next one has come within 32 of the head by that.
    assert_eq!(free(&mut m, 34), [(35, Ok(2))]);
    // With 33 for worker 1, one for worker 2 behind them is out of reach,
    waits(&mut m, 36, only(1));
    waits(&mut m, 37, only(2));
    assert_eq!(free(&mut m, 35), []);
    // until one of those before it leaves.
    assert_eq!(cancel(&mut m, 5), [(37, Ok(2))]);
}

#[test]
fn after_sixteen_landings_on_its_ranks_a_head_is_left_alone() {
    let mut m = pool([strict("a", 1_000_000)], &[1, 2].map(WorkerSpec::new));
    let only = |id: u64| of("a", 3).constraints(on(Constraints::new().allow([id])));
    ask(&mut m, 0, only(1)).unwrap();
    waits(&mut m, 1, only(1));
    // Worker 2 has room, so the gate is open, but worker 1 has the whole prompt cached.
    let drawn = || of("a", 16).overlaps([Overlap::device(Rank::new(1, 0), 1000.0)]);
    for id in 2..18 {
        assert_eq!(ask(&mut m, id, drawn()), Ok(vec![(id as u64, Ok(1))]));
    }
    assert!(m.guarded());
    assert_eq!(ask(&mut m, 18, drawn()), Ok(vec![(18, Ok(2))]));
    waits(&mut m, 19, drawn());
    // Passing on a rank that the head may not use stays free.
    assert_eq!(free(&mut m, 18), [(19, Ok(2))]);
}

#[test]
fn what_can_no_longer_come_is_refused_and_what_is_unavailable_keeps_waiting() {
    let mut m = pool([strict("a", 10)], &[1, 2].map(|w| WorkerSpec::new(w).taint("x").lora("l")));
    ask(&mut m, 0, of("a", 3).constraints(on(Constraints::new().allow([1])))).unwrap();
    ask(&mut m, 1, of("a", 3).constraints(on(Constraints::new().allow([2])))).unwrap();
    let tainted = of("a", 3).constraints(on(Constraints::new().taint("x").allow([1])));
    waits(&mut m, 2, tainted.lora("l"));
    m.step(&Op::Available(WorkerId(1), false));
    assert_eq!(drain(&mut m), []);
    m.step(&Op::Upsert(WorkerSpec::new(1).taint("x")));
    assert_eq!(drain(&mut m), []);
    m.step(&Op::Upsert(WorkerSpec::new(1)));
    assert_eq!(drain(&mut m), [(2, Err(Error::NoEndpoints.into()))]);
}

#[test]
fn withdrawing_a_head_lets_the_next_one_be_looked_at_and_close_tells_everybody() {
    let mut m = pool([strict("a", 10)], &[1, 2].map(WorkerSpec::new));
    let mut ratio = strict("r", 10);
    ratio.busy_worker_ratio = Some(0.5);
    m.step(&Op::Reload(policy([strict("a", 10), ratio])));
    hold_up(&mut m, 1);
    // One of two ranks is full: r waits, unless it may use the other one only.
    waits(&mut m, 1, of("r", 3));
    let idle = if m.row(Rank::new(1, 0)).unwrap().requests == 0 { 1 } else { 2 };
    let there = of("r", 3).constraints(on(Constraints::new().allow([idle])));
    assert_eq!(ask(&mut m, 2, there), Ok(vec![(2, Ok(idle))]));
    waits(&mut m, 3, of("a", 3));
    let step = m.step(&Op::Cancel(Nth(0)));
    assert!(step.epoch_moves);
    assert_eq!(drain(&mut m), []);
    m.step(&Op::Close);
    assert_eq!(drain(&mut m), [(3, Err(Error::Closed.into()))]);
    assert_eq!(ask(&mut m, 9, of("a", 3)), Err(Error::Closed.into()));
}

#[test]
fn a_reload_resolves_waiters_again_and_evicts_nobody() {
    let mut m = pool([strict("a", 10), strict("b", 10)], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 1);
    (1..=3).for_each(|id| waits(&mut m, id, of("a", 3)));
    waits(&mut m, 4, of("b", 3));
    let mut a = strict("a", 10);
    a.limits = [Some(1), None, None];
    let step = m.step(&Op::Reload(policy([strict("b", 10), a])));
    assert!(step.epoch_moves);
    assert_eq!(drain(&mut m), []);
    assert_eq!(m.depth("a"), Depth { requests: 3, tokens: 9, cached: 0 });
    assert_eq!(one_by_one(&mut m, 0), [4, 1, 2, 3]);
}

#[test]
fn an_upstream_request_goes_ahead_of_the_backlog_whatever_its_class_and_due_time() {
    let mut m = pool([strict("a", 10)], &[WorkerSpec::new(1)]);
    hold_up(&mut m, 1);
    waits(&mut m, 1, of("a", 3).at(MS(10)));
    assert_eq!(ask(&mut m, 2, of("a", 3).upstream().due(MS(1))), Ok(vec![(2, Ok(1))]));
}
