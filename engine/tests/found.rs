//! What the reference and the fuzzer found in the engine, each case by itself and as short as it
//! gets.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;
use vacancy::{
    Admit, Admitted, Applied, ClassSpec, Constraints, Error, Hold, LoadChange, LoadEvent, Overlap,
    Pool, PoolBuilder, Profile, Prompt, Rank, RejectThresholds, Request, RequestId, RouterId,
    Signals, Target, Thresholds, Time, WorkerId, WorkerSpec,
};

const MS: fn(u64) -> Time = Time::from_millis;

fn with_decode_frac(frac: f64) -> Arc<Profile> {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.decode_frac(frac));
    Arc::new(Profile::new("f", vec![(0, "all".into())], [class]).expect("a valid policy"))
}

/// A prefill pool of two workers whose one class waits for the room of its pair.
fn prefill(decode: &Pool, frac: f64, with: impl Fn(PoolBuilder) -> PoolBuilder) -> Pool {
    let builder = Pool::builder().track_blocks(false).policy(&with_decode_frac(frac));
    let pool = with(builder).build().expect("valid settings");
    pool.reconcile(&[WorkerSpec::new(7), WorkerSpec::new(8)]).expect("valid workers");
    pool.pair_with(decode);
    pool
}

fn decode(workers: &[WorkerSpec], rejects: Thresholds) -> Pool {
    let rejects = RejectThresholds::new(rejects).expect("valid thresholds");
    let pool = Pool::builder().track_prefill(false).reject_thresholds(rejects);
    let pool = pool.build().expect("valid settings");
    pool.reconcile(workers).expect("valid workers");
    pool
}

fn worker(id: u64) -> WorkerSpec {
    WorkerSpec::new(id).total_kv_blocks(8)
}

fn now(mut admit: Admit) -> Admitted {
    admit.try_take().expect("it does not wait").expect("it is let in")
}

fn held(pool: &Pool, request: Request) -> Hold {
    now(pool.admit(request)).hold.expect("room is set aside")
}

fn row(pool: &Pool, rank: Rank) -> (u32, u32) {
    let load = pool.load(rank).expect("declared");
    (load.kv_blocks, load.held_blocks)
}

#[test]
fn a_leg_chosen_afresh_takes_the_place_of_a_hold_that_filled_its_rank() {
    // Six blocks of eight: past the line, but for the hold itself.
    let decode = decode(&[worker(1)], Thresholds::NONE.decode_frac(0.5));
    let prefill = prefill(&decode, 0.5, |b| b);
    let hold = held(&prefill, Request::new(96));
    let leg = decode.book_leg_afresh(hold, &Request::new(96)).expect("it has room");
    assert_eq!((leg.rank(), row(&decode, leg.rank())), (Rank::new(1, 0), (6, 0)));
}

#[test]
fn a_leg_lands_beside_its_hold_if_only_the_hold_fills_the_sibling() {
    let decode = decode(&[worker(1).ranks(0, 2)], Thresholds::NONE.decode_frac(0.5));
    let prefill = prefill(&decode, 0.5, |b| b);
    let (hold, full) = {
        let hold = held(&prefill, Request::new(96));
        let rank = hold.rank().expect("of this library");
        let other = Rank::new(1, 1 - rank.dp_rank);
        let full = decode.import(other, &Request::new(96)).expect("it fits");
        (hold, full)
    };
    // Drawn to the full rank, which stands by the room that the hold's own rank has without it.
    let leg = Request::new(96).overlaps([Overlap::device(full.rank(), 1000.0)]);
    let drawn = Constraints::new().affinity(Target::rank(1, full.rank().dp_rank));
    let leg = decode.book_leg_afresh(hold, &leg.constraints(drawn)).expect("its worker has room");
    assert_eq!((leg.rank(), row(&decode, leg.rank())), (full.rank(), (12, 0)));
}

#[test]
fn what_only_the_hold_has_counts_as_new_in_the_cost_of_its_leg() {
    let decode = decode(&[worker(1), worker(2)], Thresholds::NONE);
    let prefill = prefill(&decode, 1.0, |b| b);
    let prompt = Prompt::new([1, 2, 3, 4]).expect("distinct");
    let request = Request::new(64).prompt(prompt);
    let hold = held(&prefill, request.clone());
    // Three more of its blocks' prefix are somebody else's as well.
    let rank = hold.rank().expect("of this library");
    let short = Request::new(48).prompt(Prompt::new([1, 2, 3]).expect("distinct"));
    let other = decode.import(rank, &short).expect("it fits");
    assert_eq!(row(&decode, rank), (0, 4));
    let leg = decode.book_leg(hold, &request).expect("there is room");
    // Three that are there without the hold, and one that is new.
    assert_eq!((leg.rank(), leg.choice().cost), (rank, 4.0));
    drop(other);
    assert_eq!(row(&decode, rank), (4, 0));
}

#[test]
fn nobody_sleeps_for_a_pair_that_was_shut_down() {
    let decode = decode(&[worker(1)], Thresholds::NONE);
    let prefill = prefill(&decode, 0.5, |b| b);
    let full = decode.book(&Request::new(96)).expect("there is room");
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.try_take().is_none());
    decode.close();
    assert!(waits.try_take().expect("it is let in").expect("it is let in").hold.is_none());
    assert!(now(prefill.admit(Request::new(16))).hold.is_none());
    drop(full);
}

#[test]
fn a_hold_that_no_row_can_show_is_refused_and_holds_nobody_up() {
    let decode = Pool::builder().block_size(1).build().expect("valid settings");
    decode.upsert(WorkerSpec::new(1)).expect("a valid worker");
    let prefill = prefill(&decode, 0.5, |b| b);
    let refused = prefill.admit(Request::new(1 << 31)).try_take().expect("it does not wait");
    assert_eq!(refused.unwrap_err(), Error::RowOverflow { rank: Rank::new(1, 0) });
    let rows = prefill.snapshot().ranks;
    assert!(rows.iter().all(|(_, load)| load.requests == 0 && load.prefill_tokens == 0));
    now(prefill.admit(Request::new(16)));
}

#[test]
fn an_adapter_or_a_preference_waits_for_a_pair_without_workers() {
    let decode = decode(&[], Thresholds::NONE);
    let prefill = prefill(&decode, 0.5, |b| b);
    let soft = Constraints::new().prefer("x", 0.5).affinity(Target::worker(1));
    let mut adapter = prefill.admit(Request::new(16).lora("a"));
    let mut soft = prefill.admit(Request::new(16).decode(soft));
    assert!(adapter.try_take().is_none() && soft.try_take().is_none());
    let hard = prefill.admit(Request::new(16).decode(Constraints::new().taint("x"))).try_take();
    assert_eq!(hard.expect("at once").unwrap_err(), Error::NoEndpoints);
    decode.upsert(worker(1)).expect("a valid worker");
    assert!(adapter.try_take().is_some() && soft.try_take().is_some());
}

#[test]
fn a_class_without_a_decode_fraction_is_not_refused_for_the_pair() {
    let decode = decode(&[worker(1)], Thresholds::NONE);
    let prefill = prefill(&decode, 0.5, |b| b);
    let mut busy = Thresholds::NONE;
    busy.prefill_tokens = Some(0);
    let class = ClassSpec::new("c", 100).family("f", "all").thresholds(busy);
    let profile = Profile::new("f", vec![(0, "all".into())], [class]).expect("a valid policy");
    prefill.set_policy(&Arc::new(profile));
    let busy = [7, 8].map(|id| prefill.import(Rank::new(id, 0), &Request::new(16)).unwrap());
    let never = Constraints::new().taint("nobody has it");
    let mut waits = prefill.admit(Request::new(16).decode(never));
    // Who waits is looked at again, as one who may have become impossible.
    decode.upsert(worker(2).taint("x")).expect("a valid worker");
    assert!(waits.try_take().is_none(), "it waits for its own pool");
    drop(busy);
    assert!(waits.try_take().expect("let in").is_ok());
}

#[test]
fn all_holds_that_end_at_one_instant_have_ended_before_the_room_is_used() {
    // Two decode ranks, each filled by a hold under an id; a waiter that both would do for.
    for round in 0..8 {
        let decode = decode(&[worker(1), worker(2)], Thresholds::NONE);
        let lease = Some(Duration::from_millis(100));
        let prefill = prefill(&decode, 0.5, |b| b.lease(lease));
        let (mut first, mut second) = (
            prefill.admit_as(RequestId(round * 2), Request::new(80 + 16)),
            prefill.admit_as(RequestId(round * 2 + 1), Request::new(80)),
        );
        let small = second.try_take().expect("let in").expect("let in").hold.expect("held");
        first.try_take().expect("let in").expect("let in").hold.expect("held");
        // One rank stays dearer than the other once both holds are gone.
        let dear = decode.import(small, &Request::new(16)).expect("it fits");
        let mut waits = prefill.admit(Request::new(16));
        assert!(waits.try_take().is_none());
        assert_eq!(prefill.expire(MS(100)).holds.len(), 2);
        let hold = waits.try_take().expect("let in").expect("let in").hold.expect("held");
        assert_ne!(hold.rank(), Some(small), "chosen while the other hold was still there");
        drop(dear);
    }
}

#[test]
fn a_hosts_mark_that_the_monitors_outlasts_is_told_when_it_ends() {
    let pool = decode(&[worker(1)], Thresholds::NONE.decode_frac(0.5));
    let said = Signals { kv_used_blocks: Some(8), active_decode_blocks: None };
    pool.observe(Rank::new(1, 0), said, MS(0));
    pool.set_overloaded(WorkerId(1), true, Some(MS(50)));
    assert_eq!(pool.next_due(), Some(MS(50)));
    let epoch = pool.epoch();
    assert_eq!(pool.expire(MS(50)).marks, [WorkerId(1)]);
    assert!(pool.epoch() != epoch);
    assert!(pool.load(Rank::new(1, 0)).expect("declared").marked, "by the monitor");
}

#[test]
fn a_peers_booking_that_moved_out_of_sight_is_not_brought_back_by_an_old_event() {
    let pool = decode(&[worker(1)], Thresholds::NONE);
    let (here, elsewhere) = (Rank::new(1, 0), Rank::new(9, 0));
    let add = LoadChange::Add { rank: here, prefill_tokens: 0, kv_blocks: 3 };
    let event = |seq, change| LoadEvent::new(RouterId(5), seq, 1, change);
    assert_eq!(pool.apply_peer(&event(1, add), MS(0)), Applied::Taken);
    pool.apply_peer(&event(2, LoadChange::Output { blocks: 2 }), MS(0));
    let moved = event(3, LoadChange::Move { rank: elsewhere });
    assert_eq!(pool.apply_peer(&moved, MS(0)), Applied::Dropped);
    assert_eq!(pool.apply_peer(&event(1, add), MS(0)), Applied::Dropped);
    assert_eq!(row(&pool, here), (0, 0));
    // Once its rank is known, that is where it is.
    pool.upsert(worker(9)).expect("a valid worker");
    assert_eq!(pool.apply_peer(&event(1, add), MS(0)), Applied::Taken);
    assert_eq!((row(&pool, here), row(&pool, elsewhere)), ((0, 0), (5, 0)));
}

#[test]
fn a_latch_that_is_silent_moves_the_epoch_although_the_host_marks_its_worker_too() {
    let pool = decode(&[worker(1)], Thresholds::NONE.decode_frac(0.5));
    let said = Signals { kv_used_blocks: Some(8), active_decode_blocks: None };
    pool.observe(Rank::new(1, 0), said, MS(0));
    pool.set_overloaded(WorkerId(1), true, None);
    // The last instant of its time to live still counts.
    let silent = Time::from_nanos(MS(5_000).as_nanos() + 1);
    assert_eq!(pool.next_due(), Some(silent));
    let epoch = pool.epoch();
    assert!(pool.expire(silent).marks.is_empty(), "the host's stands");
    assert!(pool.epoch() != epoch);
    assert!(pool.load(Rank::new(1, 0)).expect("declared").marked);
    assert_eq!(pool.next_due(), None);
}

#[test]
fn a_latch_that_marks_nobody_moves_the_epoch_when_it_is_silent_and_when_it_clears() {
    let both = WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(8);
    let pool = decode(&[both], Thresholds::NONE.decode_frac(0.5));
    let said = |n| Signals { kv_used_blocks: Some(n), active_decode_blocks: None };
    let rank = Rank::new(1, 0);
    pool.observe(rank, said(8), MS(0));
    assert!(!pool.load(rank).expect("declared").marked, "the other rank said nothing");
    let silent = pool.next_due().expect("it will be silent");
    let epoch = pool.epoch();
    pool.expire(silent);
    assert!(pool.epoch() != epoch);
    pool.observe(rank, said(8), silent);
    let epoch = pool.epoch();
    pool.observe(rank, said(4), silent);
    assert!(pool.epoch() != epoch);
    assert_eq!(pool.next_due(), None);
}

#[test]
fn at_one_instant_the_paired_pools_drain_comes_before_those_that_wait_on_it() {
    // The one decode rank has the blocks of a hold, whose lease ends together with a mark of the
    // prefill pool. One waits at either pool for what comes free.
    let decode = decode(&[worker(1)], Thresholds::NONE);
    decode.set_policy(&with_decode_frac(0.5));
    let prefill = prefill(&decode, 0.5, |b| b.lease(Some(Duration::from_millis(100))));
    let mut first = prefill.admit_as(RequestId(1), Request::new(96));
    first.try_take().expect("let in").expect("let in").hold.expect("held");
    prefill.set_overloaded(WorkerId(7), true, Some(MS(100)));
    // With an adapter the pair is asked for this very request, whatever it answered before.
    let mut theirs = prefill.admit(Request::new(96).lora("a"));
    let mut its_own = decode.admit(Request::new(96));
    assert!(theirs.try_take().is_none() && its_own.try_take().is_none());
    let expired = prefill.expire(MS(100));
    assert_eq!((expired.holds.len(), expired.marks.len()), (1, 1));
    let admitted = its_own.try_take().expect("the decode pool's own waiter was passed");
    assert!(theirs.try_take().is_none());
    drop(admitted);
    assert!(theirs.try_take().is_some());
}

#[test]
fn at_one_instant_due_refusals_and_ends_of_leases_come_before_the_drain() {
    // The first in line and the 32 behind it wait for a worker that is busy; the one after those is
    // not looked at, although it could go. The first is due when the load on the better of its two
    // workers ends.
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.prefill_frac(1.0));
    let profile = Profile::new("f", vec![(0, "all".into())], [class]).expect("a valid policy");
    let pool = Pool::builder()
        .lease(Some(Duration::from_millis(100)))
        .policy(&Arc::new(profile))
        .build()
        .expect("valid settings");
    let workers = [1, 2, 3].map(|id| WorkerSpec::new(id).max_num_batched_tokens(100));
    pool.reconcile(&workers).expect("valid workers");
    let only = |workers: &[u64]| {
        Request::new(16).constraints(Constraints::new().allow(workers.iter().copied()))
    };
    let _busy = pool.import(Rank::new(1, 0), &Request::new(160)).expect("it fits");
    let _less = pool.import(Rank::new(2, 0), &Request::new(48)).expect("it fits");
    pool.import_as(RequestId(3), Rank::new(3, 0), &Request::new(96)).expect("it fits");
    let mut line = vec![pool.admit(only(&[1]).due(MS(100)))];
    line.extend((0..32).map(|_| pool.admit(only(&[1]))));
    let mut last = pool.admit(only(&[2, 3]));
    assert!(last.try_take().is_none());
    let expired = pool.expire(MS(100));
    assert_eq!((expired.overdue, expired.leases.len()), (1, 1));
    let admitted = last.try_take().expect("let in").expect("let in");
    assert_eq!(admitted.booking.rank().worker, WorkerId(3), "chosen before the lease had ended");
}

#[test]
fn who_is_within_l_of_the_head_of_a_pins_lane_does_not_sleep_while_its_gate_is_open() {
    // The head of the lane wants the one decode rank that is full; those behind it any.
    let decode = decode(&[worker(1).taint("x"), worker(2)], Thresholds::NONE);
    let prefill = prefill(&decode, 0.5, |b| b.holds(false));
    let full = decode.import(Rank::new(1, 0), &Request::new(96)).expect("it fits");
    let pinned = || Request::new(16).constraints(Constraints::new().pin(Target::rank(7, 0)));
    let mut head = prefill.admit(pinned().decode(Constraints::new().taint("x")));
    assert!(head.try_take().is_none());
    // "After K = 16 landings on ranks it may use, nobody of the class lands on those before the
    // head."
    let passed: Vec<_> = (0..16).map(|_| now(prefill.admit(pinned()))).collect();
    let mut next = prefill.admit(pinned());
    assert!(next.try_take().is_none() && head.try_take().is_none());
    drop(full);
    assert!(head.try_take().is_some() && next.try_take().is_some());
    drop(passed);
}
