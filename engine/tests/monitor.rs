//! Sentences of the contract about what workers say of themselves.

use std::sync::Arc;
use std::time::Duration;
use vacancy::*;

const RANK: Rank = Rank::new(1, 0);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn used(kv_used_blocks: u64) -> Signals {
    Signals { kv_used_blocks: Some(kv_used_blocks), active_decode_blocks: None }
}

fn active(active_decode_blocks: u64) -> Signals {
    Signals { kv_used_blocks: None, active_decode_blocks: Some(active_decode_blocks) }
}

/// One worker of 100 blocks, signals that count for a second, everything above 50 blocks shed.
fn pool() -> Pool {
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let ttl = Duration::from_secs(1);
    let pool = Pool::builder().signal_ttl(ttl).reject_thresholds(rejects).build().unwrap();
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(100)).unwrap();
    pool
}

fn marked(pool: &Pool) -> bool {
    let load = pool.load(RANK).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (0, 0, 0), "a mark is no load");
    load.marked
}

/// A pool of one rank that is refused past half of its blocks, by signals that count for a second.
fn judged_at_half(profile: &Arc<Profile>) -> Pool {
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let pool = Pool::builder()
        .signal_ttl(Duration::from_secs(1))
        .reject_thresholds(rejects)
        .policy(profile)
        .build()
        .unwrap();
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(100)).unwrap();
    pool
}

#[test]
fn a_signal_that_tripped_and_fell_silent_lets_its_worker_back_without_any_event() {
    let pool = pool();
    assert!(pool.observe(RANK, used(51), at(100)));
    assert!(marked(&pool));
    let ask = |ms| pool.select(&Request::new(16).at(at(ms)));
    assert_eq!(ask(100).unwrap_err(), Error::AllEligibleWorkersOverloaded);
    // Silent for exactly the time to live: it counts still. For longer: it does not, and nothing
    // but the clock of the request itself has said so.
    assert_eq!(ask(1_100).unwrap_err(), Error::AllEligibleWorkersOverloaded);
    let just_after = Time::from_nanos(at(1_100).as_nanos() + 1);
    assert_eq!(pool.select(&Request::new(16).at(just_after)).unwrap().rank, RANK);
    assert!(!marked(&pool));
    // It may trip again, and be silent again, as often as it likes.
    for round in 1..100 {
        let start = 10_000 * round;
        pool.observe(RANK, active(51), at(start));
        assert!(ask(start + 1_000).is_err());
        assert!(ask(start + 1_001).is_ok());
    }
}

#[test]
fn every_way_of_placing_a_request_sees_a_signal_fall_silent() {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.prefill_frac(0.5));
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap());
    type Place = fn(&Pool, Request) -> Result<(), Error>;
    let ways: [(&str, Place); 5] = [
        ("select", |pool, request| pool.select(&request).map(drop)),
        ("book", |pool, request| pool.book(&request).map(drop)),
        ("book by id", |pool, request| {
            pool.book_as(RequestId(1), &request).map(|_| assert!(pool.free(RequestId(1))))
        }),
        ("admit", |pool, request| pool.admit(request.do_not_queue()).wait().map(drop)),
        ("admit upstream", |pool, request| pool.admit(request.upstream()).wait().map(drop)),
    ];
    for (name, place) in ways {
        let pool = judged_at_half(&profile);
        pool.observe(RANK, used(51), at(0));
        assert!(place(&pool, Request::new(16).at(at(1_000))).is_err(), "{name}");
        assert_eq!(place(&pool, Request::new(16).at(at(1_001))), Ok(()), "{name}");
    }
}

#[test]
fn what_waits_for_a_mark_goes_in_when_the_signal_has_been_silent_for_too_long() {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.prefill_frac(0.5));
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap());
    let pool = judged_at_half(&profile);
    pool.observe(RANK, used(51), at(500));
    let mut waits = pool.admit(Request::new(16).at(at(600)));
    assert_eq!(waits.standing().unwrap().why, Why::Mark);
    // The host's timer is told when: the first instant at which the signal counts no more.
    let due = pool.next_due().unwrap();
    assert_eq!(due, Time::from_nanos(at(1_500).as_nanos() + 1));
    let before = pool.epoch();
    pool.expire(at(1_500));
    assert!(waits.is_waiting());
    assert_eq!(pool.epoch(), before);
    pool.expire(due);
    assert!(waits.try_take().unwrap().unwrap().waited);
    assert_ne!(pool.epoch(), before, "a latch that is silent moves the epoch");
    // And without a timer: the next request that comes lets both in.
    pool.observe(RANK, used(51), at(2_000));
    let mut waits = pool.admit(Request::new(16).at(at(2_000)));
    assert!(waits.is_waiting());
    let mut next = pool.admit(Request::new(16).at(at(3_001)));
    for admit in [&mut waits, &mut next] {
        admit.try_take().expect("nobody sleeps beside room").unwrap();
    }
}

#[test]
fn two_sources_of_one_number_never_overwrite_each_other() {
    let pool = pool();
    let rank = |pool: &Pool| {
        let load = pool.load(RANK).unwrap();
        (load.kv_blocks, load.full, load.marked)
    };
    let ask = |ms| pool.select(&Request::new(16).at(at(ms)));
    // This router books 60 blocks; the worker says that it uses 0. The row stands, and sheds.
    let booking = pool.book(&Request::new(960)).unwrap();
    pool.observe(RANK, Signals { kv_used_blocks: Some(0), active_decode_blocks: Some(0) }, at(0));
    assert_eq!(rank(&pool), (60, true, false));
    assert!(ask(0).is_err());
    // The worker says 90, and this router gives back all of its own: the mark stands.
    pool.observe(RANK, used(90), at(1));
    assert_eq!(rank(&pool), (60, true, true));
    booking.free();
    assert_eq!(rank(&pool), (0, false, true));
    assert!(ask(1).is_err());
    // Another router's load is on the row as well, and says nothing of what the worker says.
    let add = LoadChange::Add { rank: RANK, prefill_tokens: 0, kv_blocks: 7 };
    pool.apply_peer(&LoadEvent::new(RouterId(5), 1, 1, add), at(1));
    pool.observe(RANK, used(50), at(2));
    assert_eq!(rank(&pool), (7, false, false));
    assert!(ask(2).is_ok());
    pool.apply_peer(&LoadEvent::new(RouterId(5), 2, 1, LoadChange::Free), at(2));
    assert_eq!(rank(&pool), (0, false, false));
    // The worker's two signals are two numbers: a low one does not clear what a high one latched.
    pool.observe(RANK, active(51), at(3));
    pool.observe(RANK, used(10), at(3));
    assert_eq!(rank(&pool), (0, false, true));
    pool.observe(RANK, active(50), at(3));
    assert_eq!(rank(&pool), (0, false, false));
    // A host's mark is a third source.
    pool.set_overloaded(WorkerId(1), true, None);
    pool.observe(RANK, Signals { kv_used_blocks: Some(0), active_decode_blocks: Some(0) }, at(4));
    assert_eq!(rank(&pool), (0, false, true));
    pool.observe(RANK, used(90), at(5));
    pool.set_overloaded(WorkerId(1), false, None);
    assert_eq!(rank(&pool), (0, false, true), "the monitor's is still there");
    pool.observe(RANK, used(0), at(6));
    assert_eq!(rank(&pool), (0, false, false));
}

#[test]
fn each_signal_falls_silent_by_itself() {
    let pool = pool();
    pool.observe(RANK, used(51), at(0));
    pool.observe(RANK, active(51), at(600));
    // The second one keeps the latch after the first has gone silent; a low value of the first,
    // later, does not clear it.
    pool.expire(at(1_100));
    assert!(marked(&pool));
    pool.observe(RANK, used(0), at(1_200));
    assert!(marked(&pool));
    pool.expire(at(1_601));
    assert!(!marked(&pool));
    // One that is repeated never falls silent.
    for ms in (2_000..12_000).step_by(900) {
        pool.observe(RANK, used(51), at(ms));
        pool.expire(at(ms + 899));
        assert!(marked(&pool), "{ms}");
    }
}

#[test]
fn limits_capacity_and_ranks_judge_what_was_said_again_at_once() {
    let pool = pool();
    let rejects = pool.reject_thresholds().clone();
    let epoch_moves = |what: &str, moves: bool, change: &dyn Fn()| {
        let before = pool.epoch();
        change();
        assert_eq!(pool.epoch() != before, moves, "{what}");
    };
    pool.observe(RANK, used(60), at(0));
    assert!(marked(&pool));
    epoch_moves("raised", true, &|| rejects.set(Thresholds::NONE.decode_frac(0.6)).unwrap());
    assert!(!marked(&pool), "60 is at the line of 60");
    rejects.set(Thresholds::NONE.decode_frac(0.59)).unwrap();
    assert!(marked(&pool));
    epoch_moves("capacity raised", true, &|| {
        drop(pool.upsert(WorkerSpec::new(1).total_kv_blocks(200)).unwrap());
    });
    assert!(!marked(&pool));
    drop(pool.upsert(WorkerSpec::new(1).total_kv_blocks(100)).unwrap());
    assert!(marked(&pool));
    // A rank that has said nothing is free, and with it its worker.
    epoch_moves("a rank added", true, &|| {
        drop(pool.upsert(WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(100)).unwrap());
    });
    assert!(!marked(&pool));
    drop(pool.upsert(WorkerSpec::new(1).total_kv_blocks(100)).unwrap());
    assert!(marked(&pool));
    epoch_moves("unset", true, &|| rejects.clear());
    assert!(!marked(&pool), "nothing latches without a line");
    rejects.set(Thresholds::NONE.decode_frac(0.0)).unwrap();
    assert!(marked(&pool));
    epoch_moves("cleared", true, &|| {
        pool.observe(RANK, used(0), at(1));
    });
    assert!(!marked(&pool), "equal is not over");
    // What a former life said never touches the next one.
    pool.observe(RANK, used(60), at(2));
    assert!(marked(&pool));
    pool.remove(WorkerId(1));
    assert!(!pool.observe(RANK, used(60), at(2)), "undeclared: ignored");
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(100)).unwrap();
    assert!(!marked(&pool));
}
