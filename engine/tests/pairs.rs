//! Sentences of the contract about two paired pools.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use vacancy::*;

fn profile(frac: f64) -> Arc<Profile> {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.decode_frac(frac));
    Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap())
}

fn two_pools(frac: f64, blocks: u64) -> (Pool, Pool, RejectThresholds) {
    let rejects = RejectThresholds::default();
    let decode =
        Pool::builder().track_prefill(false).reject_thresholds(rejects.clone()).build().unwrap();
    decode.upsert(WorkerSpec::new(1).total_kv_blocks(blocks)).unwrap();
    let prefill = Pool::builder().track_blocks(false).policy(&profile(frac)).build().unwrap();
    prefill.upsert(WorkerSpec::new(2).max_num_batched_tokens(8192)).unwrap();
    prefill.pair_with(&decode);
    (prefill, decode, rejects)
}

#[test]
fn a_burst_overshoots_by_at_most_the_request_that_crossed_and_all_legs_convert() {
    let (prefill, decode, rejects) = two_pools(0.5, 100);
    let rank = Rank::new(1, 0);
    let mut admits: Vec<Admit> = (0..10).map(|_| prefill.admit(Request::new(160))).collect();
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (0, 60, 0));
    assert_eq!(admits.iter().filter(|a| a.is_waiting()).count(), 4);
    assert_eq!(admits[9].standing().unwrap().why, Why::Pair);

    // Six holds on a full rank, the reject threshold at the class limit: all six legs convert.
    rejects.set(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let mut legs = Vec::new();
    for admit in &mut admits[..6] {
        let admitted = admit.try_take().unwrap().unwrap();
        let leg = decode.book_leg(admitted.hold.unwrap(), &Request::new(160)).unwrap();
        assert_eq!(leg.rank(), rank);
        legs.push((leg, admitted.booking));
    }
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (60, 0, 6));

    // A decode release wakes the prefill queue.
    legs.pop();
    assert_eq!(admits[6..].iter().filter(|a| a.is_waiting()).count(), 3);
    drop(legs);
    drop(admits);
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (0, 0, 0));
    assert_eq!(prefill.load(Rank::new(2, 0)).unwrap().prefill_tokens, 0);
}

#[test]
fn a_pair_without_a_reachable_rank_has_no_room_and_one_that_is_dropped_has() {
    let (prefill, decode, _) = two_pools(0.5, 8);
    decode.set_available(WorkerId(1), false);
    let mut admit = prefill.admit(Request::new(16));
    assert_eq!(admit.standing().unwrap().why, Why::Pair);
    decode.set_available(WorkerId(1), true);
    assert!(admit.try_take().unwrap().unwrap().hold.is_some());
    decode.remove(WorkerId(1));
    let mut admit = prefill.admit(Request::new(16));
    assert!(admit.is_waiting());
    drop(decode);
    assert!(admit.try_take().unwrap().unwrap().hold.is_none());
}

/// A foreign pair that has room when it is asked, and none to set aside; while it says so, somebody
/// who needs no pair arrives.
struct Withdraws {
    pool: std::sync::OnceLock<Pool>,
    arrived: std::sync::Mutex<Option<Admit>>,
}

impl PairedPool for Withdraws {
    fn room(&self, _: &PairAsk<'_>) -> PairRoom {
        PairRoom::Room
    }

    fn subscribe(&self, _: PairWaker) {}

    fn hold(&self, _: &PairAsk<'_>) -> HoldOffer {
        let admit = self.pool.get().unwrap().admit(Request::new(16).class("own"));
        assert!(admit.is_waiting(), "the only place is taken for as long as this takes");
        *self.arrived.lock().unwrap() = Some(admit);
        HoldOffer::NoRoom
    }
}

#[test]
fn what_a_newcomer_takes_and_gives_back_lets_a_waiter_in() {
    let full = Thresholds::NONE.prefill_frac(0.0);
    let classes = [
        ClassSpec::new("own", 1).family("f", "all").thresholds(full),
        // Never queues: once it is refused, nothing of it looks at the queue again.
        ClassSpec::new("both", 1)
            .thresholds(full.decode_frac(0.5))
            .request_queue_limit_per_worker(0),
    ];
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], classes).unwrap());
    let prefill = Pool::builder().policy(&profile).build().unwrap();
    prefill.upsert(WorkerSpec::new(1).max_num_batched_tokens(8192)).unwrap();
    let pair = Arc::new(Withdraws {
        pool: std::sync::OnceLock::new(),
        arrived: std::sync::Mutex::new(None),
    });
    assert!(pair.pool.set(prefill.clone()).is_ok());
    prefill.pair_with_hook(pair.clone());
    let refused = prefill.admit(Request::new(16).class("both")).wait().unwrap_err();
    assert!(matches!(refused, Error::QueueRejected { .. }), "{refused:?}");
    let mut arrived = pair.arrived.lock().unwrap().take().unwrap();
    let admitted = arrived.try_take().expect("nobody sleeps beside room").unwrap();
    assert!(admitted.waited);
}

#[test]
fn a_pair_is_the_pool_and_not_the_handle_that_was_shown() {
    let (prefill, decode, _) = two_pools(0.5, 10);
    let other = decode.clone();
    prefill.pair_with(&decode.clone());
    drop(decode);
    let full = other.book(&Request::new(96)).unwrap();
    let mut waits = prefill.admit(Request::new(16));
    assert_eq!(waits.standing().unwrap().why, Why::Pair);
    drop(full);
    let admitted = waits.try_take().unwrap().unwrap();
    assert_eq!(admitted.hold.unwrap().rank(), Some(Rank::new(1, 0)));
    // Now the last handle goes, and a hold that was taken back has none of its own.
    let full = other.book(&Request::new(96)).unwrap();
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.is_waiting());
    full.free();
    assert!(waits.try_take().unwrap().unwrap().hold.is_some());
    other.set_available(WorkerId(1), false);
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.is_waiting());
    drop(other);
    assert!(waits.try_take().unwrap().unwrap().hold.is_none());
}

#[test]
fn a_resolver_is_asked_until_it_gives_a_pool_and_again_when_that_has_gone() {
    let (prefill, first, _) = two_pools(0.5, 10);
    let there: Arc<Mutex<Option<Pool>>> = Arc::default();
    let asked = Arc::new(AtomicUsize::new(0));
    prefill.pair_resolved_by({
        let (there, asked) = (there.clone(), asked.clone());
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            there.lock().unwrap().clone()
        }
    });
    // Not there yet: room, and nothing set aside. Asked to check, and asked to set aside.
    assert!(prefill.admit(Request::new(16)).try_take().unwrap().unwrap().hold.is_none());
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    *there.lock().unwrap() = Some(first.clone());
    let holds: Vec<Hold> = (0..6)
        .map(|_| prefill.admit(Request::new(16)).try_take().unwrap().unwrap().hold.unwrap())
        .collect();
    assert_eq!(asked.load(Ordering::Relaxed), 3, "what was found is kept");
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.is_waiting());
    // Its signal wakes, as if it had been there from the start.
    drop(holds);
    assert!(waits.try_take().unwrap().unwrap().hold.is_some());
    assert_eq!(asked.load(Ordering::Relaxed), 3);

    // Gone, and another in its place, which is full.
    let (_, second, _) = two_pools(0.5, 10);
    let full = second.book(&Request::new(96)).unwrap();
    *there.lock().unwrap() = Some(second.clone());
    drop(waits);
    drop(first);
    let mut waits = prefill.admit(Request::new(16));
    assert_eq!(waits.standing().unwrap().why, Why::Pair);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    drop(full);
    assert!(waits.try_take().unwrap().unwrap().hold.is_some());
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn a_pair_installed_late_is_asked_about_what_waits_already() {
    let (prefill, full, _) = two_pools(0.5, 10);
    let _load = full.book(&Request::new(96)).unwrap();
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.is_waiting());
    let (_, other, _) = two_pools(0.5, 10);
    prefill.pair_with(&other);
    assert!(waits.try_take().unwrap().unwrap().hold.is_some());
    assert_eq!(other.load(Rank::new(1, 0)).unwrap().held_blocks, 0, "given back when dropped");
    // The one it replaced is not listened to any more.
    let before = prefill.epoch();
    let _full = other.book(&Request::new(96)).unwrap();
    let mut waits = prefill.admit(Request::new(16));
    drop(_load);
    assert!(waits.is_waiting());
    assert_eq!(prefill.epoch(), before);
    drop(_full);
    assert!(!waits.is_waiting());
    waits.try_take().unwrap().unwrap();
}

#[test]
fn an_adapter_waits_for_a_decode_pool_without_a_rank_and_constraints_do_not() {
    let (prefill, decode, _) = two_pools(0.5, 10);
    decode.remove(WorkerId(1));
    let mut adapter = prefill.admit(Request::new(16).lora("a"));
    let mut soft = prefill.admit(Request::new(16).decode(Constraints::new().prefer("x", 0.5)));
    assert_eq!(adapter.standing().unwrap().why, Why::Pair);
    assert_eq!(soft.standing().unwrap().why, Why::Pair);
    let hard = prefill.admit(Request::new(16).decode(Constraints::new().allow([1]))).wait();
    assert_eq!(hard.unwrap_err(), Error::NoEndpoints);
    decode.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
    for admit in [&mut adapter, &mut soft] {
        assert!(admit.try_take().unwrap().unwrap().hold.is_some());
    }
}

#[test]
fn a_hold_counts_the_decode_pools_blocks_whatever_the_hashes_are_of() {
    let prompt = Prompt::new([1, 2, 3, 4]).unwrap();
    for (decode_block, held) in [(32, 2), (16, 4), (8, 8)] {
        let decode = Pool::builder().block_size(decode_block).track_prefill(false).build().unwrap();
        decode.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
        let prefill = Pool::builder().track_blocks(false).policy(&profile(0.5)).build().unwrap();
        prefill.upsert(WorkerSpec::new(2)).unwrap();
        prefill.pair_with(&decode);
        let request = Request::new(64).prompt(prompt.clone());
        let mut admit = prefill.admit(request);
        let admitted = admit.try_take().expect("it does not wait for ever").unwrap();
        let load = decode.load(Rank::new(1, 0)).unwrap();
        assert_eq!((load.held_blocks, load.kv_blocks), (held, 0), "blocks of {decode_block}");
        // The leg brings hashes of its own blocks, and is charged for those.
        let own = Prompt::new((10..10 + u64::from(held)).collect::<Vec<_>>()).unwrap();
        let leg = decode.book_leg(admitted.hold.unwrap(), &Request::new(64).prompt(own)).unwrap();
        let load = decode.load(Rank::new(1, 0)).unwrap();
        assert_eq!((load.held_blocks, load.kv_blocks, load.requests), (0, held, 1));
        leg.free();
        let load = decode.load(Rank::new(1, 0)).unwrap();
        assert_eq!((load.held_blocks, load.kv_blocks, load.requests), (0, 0, 0));
    }
}

#[test]
fn another_policy_at_the_decode_pool_does_not_change_what_it_is_asked() {
    const ROUNDS: usize = 20_000;
    let (prefill, decode, _) = two_pools(0.5, 10);
    // 6 blocks: past the class's line at the prefill hop, under those of the decode pool's own.
    let _load = decode.book(&Request::new(96)).unwrap();
    let own = |n: usize| {
        let classes = (0..n).map(|i| {
            ClassSpec::new(format!("d{i}").as_str(), 1)
                .thresholds(Thresholds::NONE.decode_frac(0.9))
        });
        let default = ClassSpec::new("d", 1).family("f", "all");
        Arc::new(Profile::new("f", [(0, Name::new("all"))], classes.chain([default])).unwrap())
    };
    let policies = [own(1), own(40)];
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let admitted = |round: usize| {
                // With and without an adapter: computed for it, and answered from what is cached.
                let request = Request::new(16).do_not_queue();
                let request = if round.is_multiple_of(2) { request.lora("a") } else { request };
                prefill.admit(request).wait().is_ok()
            };
            (0..ROUNDS).filter(|&round| admitted(round)).count()
        });
        for round in 0.. {
            if asker.is_finished() {
                break;
            }
            decode.set_policy(&policies[round % 2]);
        }
        let admitted = asker.join().expect("no answer panics");
        assert_eq!(admitted, 0, "6 of 10 blocks is past one half in every view");
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_direct_read_of_booked_decode_blocks_honours_reachability_and_the_adapter() {
    let decode = Pool::builder().track_prefill(false).build().unwrap();
    let half = Thresholds::NONE.decode_frac(0.5);
    let room = |filter: RoomFilter<'_>| decode.any_rank_has_room(&half, filter);
    assert!(!room(RoomFilter::ALL), "no rank, no room");
    decode.upsert(WorkerSpec::new(1).total_kv_blocks(10).lora("a").taint("gold")).unwrap();
    decode.upsert(WorkerSpec::new(2).total_kv_blocks(10)).unwrap();
    let (a, b) = (Name::new("a"), Name::new("b"));
    let gold = Constraints::new().taint("gold");
    let pinned = |worker, blocks: u64| {
        let pin = Constraints::new().pin(Target::worker(worker));
        decode.book(&Request::new(16 * blocks).constraints(pin)).unwrap()
    };
    // 5 of 10 is at the line, 6 is past it.
    let one = pinned(1, 6);
    let two = pinned(2, 5);
    assert!(room(RoomFilter::ALL));
    assert!(!room(RoomFilter::ALL.lora(&a)), "narrowed to worker 1");
    assert!(room(RoomFilter::ALL.lora(&b)), "nobody serves it: all do");
    assert!(!room(RoomFilter::ALL.constraints(&gold)));
    // Prefill thresholds play no part at decode; others are judged as they are given.
    assert!(decode.any_rank_has_room(&Thresholds::NONE.decode_frac(0.6), RoomFilter::ALL.lora(&a)));
    assert!(decode.any_rank_has_room(&Thresholds::NONE, RoomFilter::ALL.lora(&a)));
    // Unreachable: what it has room for is no room.
    decode.set_available(WorkerId(2), false);
    assert!(!room(RoomFilter::ALL));
    assert!(!room(RoomFilter::ALL.lora(&b)));
    // A mark is for selection: it takes no room away.
    one.free();
    decode.set_overloaded(WorkerId(1), true, None);
    assert!(room(RoomFilter::ALL) && room(RoomFilter::ALL.lora(&a)));
    decode.set_available(WorkerId(1), false);
    assert!(!room(RoomFilter::ALL));
    drop(two);
    assert!(!room(RoomFilter::ALL));
    decode.set_available(WorkerId(2), true);
    assert!(room(RoomFilter::ALL) && room(RoomFilter::ALL.constraints(&Constraints::new())));
}

#[test]
fn the_signal_fires_with_queueing_off_on_everything_that_may_make_room() {
    type Event = fn(&Pool, &mut Vec<Booking>);
    // Each on a decode pool without any queue, whose one rank is full: 7 of 10 blocks, 6 booked by
    // value and 1 by id.
    let events: [(&str, Event); 20] = [
        ("free", |_, bookings| drop(bookings.pop())),
        ("free by id", |pool, _| assert!(pool.free(RequestId(1)))),
        ("prefill completed", |pool, _| pool.prefill_completed(RequestId(1)).unwrap()),
        ("move", |pool, bookings| {
            pool.upsert(WorkerSpec::new(2).total_kv_blocks(10)).unwrap();
            bookings[0].move_to(Rank::new(2, 0)).unwrap();
        }),
        ("lease run out", |pool, _| {
            assert_eq!(pool.expire(Time::from_millis(300_000)).leases.len(), 1);
        }),
        ("a peer's free", |pool, _| {
            let add = LoadChange::Add { rank: Rank::new(1, 0), prefill_tokens: 0, kv_blocks: 1 };
            pool.apply_peer(&LoadEvent::new(RouterId(5), 1, 1, add), Time::ZERO);
            let free = LoadEvent::new(RouterId(5), 2, 1, LoadChange::Free);
            pool.apply_peer(&free, Time::ZERO);
        }),
        ("a peer's departure", |pool, _| {
            let add = LoadChange::Add { rank: Rank::new(1, 0), prefill_tokens: 0, kv_blocks: 1 };
            pool.apply_peer(&LoadEvent::new(RouterId(5), 1, 1, add), Time::ZERO);
            assert_eq!(pool.peer_gone(RouterId(5)), 1);
        }),
        ("a rank added", |pool, _| {
            pool.upsert(WorkerSpec::new(3)).unwrap();
        }),
        ("a rank removed", |pool, _| {
            pool.remove(WorkerId(1));
        }),
        ("capacity raised", |pool, _| {
            pool.upsert(WorkerSpec::new(1).total_kv_blocks(20)).unwrap();
        }),
        ("capacity unknown", |pool, _| {
            pool.upsert(WorkerSpec::new(1)).unwrap();
        }),
        ("a taint changed", |pool, _| {
            pool.upsert(WorkerSpec::new(1).total_kv_blocks(10).taint("x")).unwrap();
        }),
        ("an adapter changed", |pool, _| {
            pool.upsert(WorkerSpec::new(1).total_kv_blocks(10).lora("x")).unwrap();
        }),
        ("availability regained", |pool, _| {
            pool.set_available(WorkerId(1), false);
            pool.set_available(WorkerId(1), true);
        }),
        ("an overload mark ended", |pool, _| {
            pool.set_overloaded(WorkerId(1), true, None);
            pool.set_overloaded(WorkerId(1), false, None);
        }),
        ("a reject threshold raised", |pool, _| {
            pool.reject_thresholds().set(Thresholds::NONE.decode_frac(0.1)).unwrap();
            pool.reject_thresholds().clear();
        }),
        ("a policy reloaded", |pool, _| pool.set_policy(&profile(0.5))),
        ("a hold given back", |pool, _| {
            let prefill = Pool::builder().policy(&profile(0.9)).build().unwrap();
            prefill.upsert(WorkerSpec::new(2)).unwrap();
            prefill.pair_with(pool);
            let admitted = prefill.admit(Request::new(16)).wait().unwrap();
            let before = pool.epoch();
            admitted.hold.unwrap().release();
            assert_ne!(pool.epoch(), before);
        }),
        ("a monitor latch cleared", |pool, _| {
            pool.reject_thresholds().set(Thresholds::NONE.decode_frac(0.5)).unwrap();
            let used = |blocks| Signals { kv_used_blocks: Some(blocks), ..Signals::default() };
            pool.observe(Rank::new(1, 0), used(9), Time::ZERO);
            let before = pool.epoch();
            pool.observe(Rank::new(1, 0), used(5), Time::ZERO);
            assert_ne!(pool.epoch(), before);
        }),
        ("a monitor latch silent", |pool, _| {
            pool.reject_thresholds().set(Thresholds::NONE.decode_frac(0.5)).unwrap();
            let used = Signals { kv_used_blocks: Some(9), ..Signals::default() };
            pool.observe(Rank::new(1, 0), used, Time::ZERO);
            let before = pool.epoch();
            pool.expire(Time::from_millis(5_001));
            assert_ne!(pool.epoch(), before);
        }),
    ];
    for (name, event) in events {
        let decode = Pool::builder().build().unwrap();
        decode.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
        let mut bookings = vec![decode.book(&Request::new(96)).unwrap()];
        decode.book_as(RequestId(1), &Request::new(16)).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = std::task::Waker::from(woken.clone());
        let mut cx = std::task::Context::from_waker(&waker);
        let since = decode.epoch();
        let mut changed = Box::pin(decode.room_changed(since));
        assert!(changed.as_mut().poll(&mut cx).is_pending(), "{name}");
        event(&decode, &mut bookings);
        assert!(woken.0.load(Ordering::Relaxed) > 0, "{name}: the subscriber sleeps");
        assert!(changed.as_mut().poll(&mut cx).is_ready(), "{name}");
        assert_ne!(decode.epoch(), since, "{name}");
    }
    // And what only adds load wakes nobody.
    let decode = Pool::builder().build().unwrap();
    decode.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
    let since = decode.epoch();
    let booking = decode.book(&Request::new(96)).unwrap();
    booking.add_output_blocks(1).unwrap();
    drop(decode.select(&Request::new(16)));
    assert_eq!(decode.epoch(), since);
}

#[test]
fn a_decode_pool_without_a_queue_wakes_the_prefill_queue_and_its_own_subscribers_both() {
    let (prefill, decode, _) = two_pools(0.5, 10);
    let full = decode.book(&Request::new(96)).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = std::task::Waker::from(woken.clone());
    let mut cx = std::task::Context::from_waker(&waker);
    let mut changed = Box::pin(decode.room_changed(decode.epoch()));
    assert!(changed.as_mut().poll(&mut cx).is_pending());
    let mut waits = prefill.admit(Request::new(16));
    assert!(waits.is_waiting());
    drop(full);
    assert!(waits.try_take().unwrap().unwrap().waited);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(changed.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_pair_dropped_while_it_is_asked_leaves_nobody_asleep_and_nobody_stuck() {
    const ROUNDS: usize = 5_000;
    let policy = profile(0.5);
    let long = Arc::new(Constraints::new().allow(1..4_000));
    let (mut asleep, mut behind) = (0, 0);
    let steps = std::sync::Barrier::new(2);
    let slot: Mutex<Option<Pool>> = Mutex::new(None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                steps.wait();
                let decode = slot.lock().unwrap().take();
                (0..round % 64 * 100).for_each(|_| std::hint::spin_loop());
                drop(decode);
                steps.wait();
            }
        });
        for round in 0..ROUNDS {
            let decode = Pool::builder().track_prefill(false).build().unwrap();
            decode.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
            // Full, by one who is not there to give it back: only its end lets anybody in.
            let full = LoadChange::Add { rank: Rank::new(1, 0), prefill_tokens: 0, kv_blocks: 9 };
            decode.apply_peer(&LoadEvent::new(RouterId(5), 1, 1, full), Time::ZERO);
            let prefill = Pool::builder().policy(&policy).build().unwrap();
            prefill.upsert(WorkerSpec::new(2)).unwrap();
            prefill.pair_with(&decode);
            let first = prefill.admit(Request::new(16));
            assert!(first.is_waiting());
            *slot.lock().unwrap() = Some(decode);
            steps.wait();
            // Asks for its constraints, in no drain, for as long as that takes; then, in one, for
            // room.
            let constrained = Request::new(16).decode(long.clone());
            let request = if round.is_multiple_of(8) { Request::new(16) } else { constrained };
            let second = prefill.admit(request);
            behind += usize::from(second.is_waiting());
            steps.wait();
            asleep += usize::from(first.is_waiting()) + usize::from(second.is_waiting());
        }
    });
    assert_eq!(asleep, 0, "waiters that sleep for a pair that is gone, of {ROUNDS} rounds");
    println!("{ROUNDS} rounds, {behind} asked before it was gone");
}
