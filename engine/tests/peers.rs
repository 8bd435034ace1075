//! Sentences of the contract about other routers' load.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;
use vacancy::*;

const OWN: u64 = 7;
const UNKNOWN: Rank = Rank::new(9, 0);

fn rank(n: u32) -> Rank {
    Rank::new(1, n)
}

/// Ranks 0, 1 and 2 of worker 1.
fn pool() -> Pool {
    let pool = Pool::builder().router_id(OWN).build().unwrap();
    pool.upsert(WorkerSpec::new(1).ranks(0, 3).total_kv_blocks(1000)).unwrap();
    pool
}

fn event(router: u64, seq: u64, booking: u128, change: LoadChange) -> LoadEvent {
    LoadEvent::new(RouterId(router), seq, booking, change)
}

fn add(router: u64, seq: u64, booking: u128, rank: Rank) -> LoadEvent {
    event(router, seq, booking, LoadChange::Add { rank, prefill_tokens: 32, kv_blocks: 2 })
}

fn done(router: u64, seq: u64, booking: u128) -> LoadEvent {
    event(router, seq, booking, LoadChange::PrefillCompleted)
}

fn output(router: u64, seq: u64, booking: u128, blocks: u32) -> LoadEvent {
    event(router, seq, booking, LoadChange::Output { blocks })
}

fn moved(router: u64, seq: u64, booking: u128, rank: Rank) -> LoadEvent {
    event(router, seq, booking, LoadChange::Move { rank })
}

fn freed(router: u64, seq: u64, booking: u128) -> LoadEvent {
    event(router, seq, booking, LoadChange::Free)
}

/// Prefill tokens, KV blocks, requests.
type Row = (u32, u32, u32);

fn row(pool: &Pool, rank: Rank) -> Row {
    let load = pool.load(rank).unwrap();
    assert_eq!(load.held_blocks, 0);
    (load.prefill_tokens, load.kv_blocks, load.requests)
}

fn rows(pool: &Pool) -> [Row; 3] {
    [0, 1, 2].map(|n| row(pool, rank(n)))
}

fn apply(pool: &Pool, event: &LoadEvent) -> Applied {
    pool.apply_peer(event, Time::ZERO)
}

const NONE: Row = (0, 0, 0);

#[test]
fn the_replica_table() {
    let (r0, r1) = (rank(0), rank(1));
    let one: Row = (32, 2, 1);
    // What came, what the three rows show after it, how many bookings are mirrored, and how many
    // events were dropped.
    type Case<'a> = (&'a str, Vec<LoadEvent>, [Row; 3], usize, u64);
    let cases: Vec<Case<'_>> = vec![
        ("nothing", vec![], [NONE; 3], 0, 0),
        ("add", vec![add(1, 1, 5, r0)], [one, NONE, NONE], 1, 0),
        ("add twice", vec![add(1, 1, 5, r0), add(1, 1, 5, r0)], [one, NONE, NONE], 1, 0),
        (
            "add twice, the second to another rank",
            vec![add(1, 1, 5, r0), add(1, 2, 5, r1)],
            [one, NONE, NONE],
            1,
            0,
        ),
        ("free", vec![add(1, 1, 5, r0), freed(1, 2, 5)], [NONE; 3], 0, 0),
        ("free twice", vec![add(1, 1, 5, r0), freed(1, 2, 5), freed(1, 2, 5)], [NONE; 3], 0, 0),
        ("free before add", vec![freed(1, 2, 5), add(1, 1, 5, r0)], [NONE; 3], 0, 0),
        (
            "free before add, and both again",
            vec![freed(1, 2, 5), add(1, 1, 5, r0), freed(1, 2, 5), add(1, 1, 5, r0)],
            [NONE; 3],
            0,
            0,
        ),
        (
            "add again after it was freed",
            vec![add(1, 1, 5, r0), freed(1, 2, 5), add(1, 1, 5, r0)],
            [NONE; 3],
            0,
            0,
        ),
        (
            "the free of one leaves another alone",
            vec![freed(1, 3, 6), add(1, 1, 5, r0), add(1, 2, 6, r0)],
            [one, NONE, NONE],
            1,
            0,
        ),
        ("own echo", vec![add(OWN, 1, 5, r0), moved(OWN, 2, 5, r1)], [NONE; 3], 0, 0),
        ("unknown worker", vec![add(1, 1, 5, UNKNOWN)], [NONE; 3], 0, 1),
        ("unknown rank", vec![add(1, 1, 5, Rank::new(1, 3))], [NONE; 3], 0, 1),
        (
            "what follows on an unknown worker",
            vec![
                add(1, 1, 5, UNKNOWN),
                done(1, 2, 5),
                output(1, 3, 5, 4),
                freed(1, 4, 5),
                add(1, 1, 5, UNKNOWN),
            ],
            [NONE; 3],
            0,
            1,
        ),
        (
            "same id from two routers",
            vec![add(1, 1, 5, r0), add(2, 1, 5, r0), freed(2, 2, 5), add(3, 1, 5, r1)],
            [one, one, NONE],
            2,
            0,
        ),
        (
            "prefill completed, twice",
            vec![add(1, 1, 5, r0), done(1, 2, 5), done(1, 2, 5)],
            [(0, 2, 1), NONE, NONE],
            1,
            0,
        ),
        (
            "prefill completed before add",
            vec![done(1, 2, 5), add(1, 1, 5, r0)],
            [(0, 2, 1), NONE, NONE],
            1,
            0,
        ),
        (
            "output twice, and more of it",
            vec![add(1, 1, 5, r0), output(1, 2, 5, 3), output(1, 2, 5, 3), output(1, 3, 5, 3)],
            [(32, 8, 1), NONE, NONE],
            1,
            0,
        ),
        (
            "output before add, twice",
            vec![output(1, 2, 5, 3), output(1, 2, 5, 3), add(1, 1, 5, r0)],
            [(32, 5, 1), NONE, NONE],
            1,
            0,
        ),
        (
            "move",
            vec![add(1, 1, 5, r0), output(1, 2, 5, 3), moved(1, 3, 5, r1)],
            [NONE, (32, 5, 1), NONE],
            1,
            0,
        ),
        ("move before add", vec![moved(1, 2, 5, r1), add(1, 1, 5, r0)], [NONE, one, NONE], 1, 0),
        (
            "an older move after a newer one",
            vec![add(1, 1, 5, r0), moved(1, 3, 5, rank(2)), moved(1, 2, 5, r1)],
            [NONE, NONE, one],
            1,
            0,
        ),
        (
            "move to an unknown rank",
            vec![add(1, 1, 5, r0), moved(1, 2, 5, UNKNOWN), add(1, 1, 5, r0)],
            [NONE; 3],
            0,
            2,
        ),
        (
            "move to an unknown rank and back",
            vec![
                add(1, 1, 5, r0),
                output(1, 2, 5, 3),
                moved(1, 3, 5, UNKNOWN),
                done(1, 4, 5),
                moved(1, 5, 5, r1),
            ],
            [NONE, (0, 5, 1), NONE],
            1,
            1,
        ),
        (
            "add on an unknown rank, then a move to one that is known",
            vec![add(1, 1, 5, UNKNOWN), moved(1, 2, 5, r1)],
            [NONE, one, NONE],
            1,
            1,
        ),
        (
            "everything before add",
            vec![
                freed(1, 5, 5),
                done(1, 4, 5),
                moved(1, 3, 5, r1),
                output(1, 2, 5, 9),
                add(1, 1, 5, r0),
            ],
            [NONE; 3],
            0,
            0,
        ),
    ];
    let count = cases.len();
    for (name, events, rows_after, mirrored, dropped) in cases {
        let pool = pool();
        for event in &events {
            let applied = apply(&pool, event);
            assert_eq!(applied == Applied::Echo, event.router == RouterId(OWN), "{name}");
        }
        assert_eq!(rows(&pool), rows_after, "{name}");
        assert_eq!((pool.mirrored(), pool.peer_events_dropped()), (mirrored, dropped), "{name}");
        let snapshot = pool.snapshot();
        assert_eq!((snapshot.workers, snapshot.ranks.len()), (1, 3), "{name}: nobody is created");
        // And all of it goes with its routers.
        let gone: usize = (1..4).map(|router| pool.peer_gone(RouterId(router))).sum();
        assert_eq!(gone, mirrored, "{name}");
        assert_eq!(rows(&pool), [NONE; 3], "{name}");
    }
    println!("{count} cases");
}

#[test]
fn a_router_that_is_gone_takes_its_load_as_one_and_may_come_back_under_a_new_identity() {
    let pool = pool();
    for booking in 0..10 {
        apply(&pool, &add(1, u64::from(booking) + 1, booking.into(), rank(booking % 3)));
        apply(&pool, &add(2, u64::from(booking) + 1, booking.into(), rank(booking % 3)));
    }
    assert_eq!(rows(&pool), [(256, 16, 8), (192, 12, 6), (192, 12, 6)]);
    let before = pool.epoch();
    assert_eq!(pool.peer_gone(RouterId(1)), 10);
    assert_ne!(pool.epoch(), before);
    assert_eq!(rows(&pool), [(128, 8, 4), (96, 6, 3), (96, 6, 3)]);
    // Gone twice: nothing happens, nothing moves.
    let before = pool.epoch();
    assert_eq!(pool.peer_gone(RouterId(1)), 0);
    assert_eq!(pool.epoch(), before);
    // The same process, restarted: its bookings are counted from 1 again, and its old frees, late,
    // are of the one that has gone.
    apply(&pool, &add(3, 1, 0, rank(0)));
    apply(&pool, &freed(1, 99, 0));
    apply(&pool, &freed(1, 100, 1));
    assert_eq!(row(&pool, rank(0)), (160, 10, 5));
    apply(&pool, &freed(3, 2, 0));
    assert_eq!(pool.peer_gone(RouterId(2)), 10);
    assert_eq!(rows(&pool), [NONE; 3]);
}

#[test]
fn frees_that_come_before_their_adds_are_remembered_4096_deep_for_each_router() {
    let pool = pool();
    let n = 4096;
    for booking in 0..n {
        apply(&pool, &freed(1, 1, booking));
    }
    for booking in 0..n {
        apply(&pool, &add(1, 2, booking, rank(0)));
    }
    assert_eq!(rows(&pool), [NONE; 3]);
    // Another router has its own; one more, and the oldest mark is gone.
    for booking in 0..=n {
        apply(&pool, &freed(2, 1, booking));
    }
    for booking in 0..=n {
        apply(&pool, &add(2, 2, booking, rank(1)));
    }
    assert_eq!(rows(&pool), [NONE, (32, 2, 1), NONE]);
    for booking in 0..n {
        apply(&pool, &add(1, 3, booking, rank(0)));
    }
    assert_eq!(row(&pool, rank(0)), NONE);
    assert_eq!(pool.mirrored(), 1);
    assert_eq!(pool.peer_gone(RouterId(2)), 1);
    assert_eq!(rows(&pool), [NONE; 3]);
}

#[test]
fn what_was_early_once_does_not_shorten_the_memory_of_its_free() {
    let pool = pool();
    // Known early, then live, then freed: its mark is as young as the last of these.
    apply(&pool, &done(1, 2, 0));
    apply(&pool, &add(1, 1, 0, rank(0)));
    apply(&pool, &freed(1, 3, 0));
    for booking in 1..4096 {
        apply(&pool, &freed(1, 9, booking));
    }
    apply(&pool, &add(1, 1, 0, rank(0)));
    assert_eq!(rows(&pool), [NONE; 3]);
    // However often that happens, what is kept stays bounded and right.
    for round in 0..20_000_u64 {
        let booking = 10_000 + u128::from(round);
        apply(&pool, &done(1, 2, booking));
        apply(&pool, &add(1, 1, booking, rank(1)));
        apply(&pool, &freed(1, 3, booking));
        apply(&pool, &add(1, 1, booking, rank(1)));
    }
    assert_eq!(rows(&pool), [NONE; 3]);
    assert_eq!(pool.mirrored(), 0);
}

#[test]
fn mirrors_carry_a_lease_that_any_event_of_their_router_renews() {
    let lease = Duration::from_secs(1);
    let pool = Pool::builder().router_id(OWN).lease(Some(lease)).build().unwrap();
    pool.upsert(WorkerSpec::new(1).ranks(0, 3)).unwrap();
    let at = Time::from_millis;
    for router in [1, 2] {
        assert_eq!(pool.apply_peer(&add(router, 1, 1, rank(0)), at(0)), Applied::Taken);
    }
    assert_eq!(pool.next_due(), Some(at(1000)));
    // Any event does: a duplicate, and one that is dropped.
    pool.apply_peer(&add(1, 1, 1, rank(0)), at(600));
    assert_eq!(pool.expire(at(999)).peers, []);
    assert_eq!(row(&pool, rank(0)), (64, 4, 2));
    let before = pool.epoch();
    assert_eq!(pool.expire(at(1000)).peers, [RouterId(2)]);
    assert_ne!(pool.epoch(), before);
    assert_eq!(row(&pool, rank(0)), (32, 2, 1));
    assert_eq!(pool.next_due(), Some(at(1600)));
    assert_eq!(pool.apply_peer(&add(1, 2, 2, UNKNOWN), at(1500)), Applied::Dropped);
    assert_eq!(pool.expire(at(2499)).peers, []);
    assert_eq!(pool.expire(at(2500)).peers, [RouterId(1)]);
    assert_eq!(rows(&pool), [NONE; 3]);
    assert_eq!(pool.next_due(), None);
}

#[test]
fn mirrors_never_touch_a_later_life_of_their_rank_and_follow_a_move() {
    let pool = pool();
    apply(&pool, &add(1, 1, 5, rank(0)));
    apply(&pool, &add(1, 2, 6, rank(0)));
    apply(&pool, &output(1, 3, 6, 1));
    pool.remove(WorkerId(1));
    pool.upsert(WorkerSpec::new(1).ranks(0, 3)).unwrap();
    assert_eq!(rows(&pool), [NONE; 3]);
    apply(&pool, &output(1, 4, 5, 9));
    apply(&pool, &done(1, 5, 5));
    apply(&pool, &freed(1, 6, 5));
    assert_eq!(rows(&pool), [NONE; 3]);
    // Its router says that it is on a rank that is here: there it is, with all that it has.
    apply(&pool, &output(1, 7, 6, 2));
    apply(&pool, &moved(1, 8, 6, rank(2)));
    assert_eq!(rows(&pool), [NONE, NONE, (32, 5, 1)]);
    apply(&pool, &freed(1, 9, 6));
    assert_eq!(rows(&pool), [NONE; 3]);
}

#[test]
fn a_peers_release_lets_in_what_waits_and_its_load_closes_the_gate() {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.decode_frac(0.5));
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap());
    type Release = fn(&Pool) -> Applied;
    let releases: [(&str, Release); 4] = [
        ("free", |pool| apply(pool, &freed(1, 2, 1))),
        ("move", |pool| apply(pool, &moved(1, 2, 1, rank(1)))),
        ("move away", |pool| apply(pool, &moved(1, 2, 1, UNKNOWN))),
        ("gone", |pool| {
            assert_eq!(pool.peer_gone(RouterId(1)), 1);
            Applied::Taken
        }),
    ];
    for (name, release) in releases {
        let pool = Pool::builder().router_id(OWN).policy(&profile).build().unwrap();
        pool.upsert(WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(10)).unwrap();
        let full = LoadChange::Add { rank: rank(0), prefill_tokens: 0, kv_blocks: 6 };
        apply(&pool, &event(1, 1, 1, full));
        let target = Constraints::new().pin(Target::rank(1, 0));
        let mut waits = pool.admit(Request::new(16).constraints(target));
        assert!(waits.is_waiting(), "{name}");
        release(&pool);
        let admitted = waits.try_take().expect(name).unwrap();
        assert!(admitted.waited);
        assert_eq!(row(&pool, rank(0)), (16, 1, 1), "{name}");
    }
}

/// Hands every event to all other pools at once.
struct Bus {
    own: usize,
    pools: Arc<OnceLock<Vec<Pool>>>,
}

impl EventSink for Bus {
    fn event(&self, event: &LoadEvent) {
        for (i, pool) in self.pools.get().unwrap().iter().enumerate() {
            let applied = pool.apply_peer(event, Time::ZERO);
            assert_eq!(applied, if i == self.own { Applied::Echo } else { Applied::Taken });
        }
    }

    fn wants_output(&self) -> bool {
        true
    }
}

fn routers(n: usize) -> Vec<Pool> {
    let pools = Arc::new(OnceLock::new());
    let built: Vec<Pool> = (0..n)
        .map(|own| {
            let sink = Arc::new(Bus { own, pools: Arc::clone(&pools) });
            let pool = Pool::builder()
                .router_id(own as u64)
                .events(sink)
                .seed(own as u64)
                .build()
                .unwrap();
            pool.upsert(WorkerSpec::new(1).ranks(0, 3).total_kv_blocks(1000)).unwrap();
            pool
        })
        .collect();
    pools.set(built.clone()).unwrap();
    built
}

#[test]
fn four_routers_with_two_blocks_each_all_see_eight() {
    let pools = routers(4);
    let on = Request::new(32).constraints(Constraints::new().pin(Target::rank(1, 0)));
    // One id in all four of them, and one of them by value.
    let id = RequestId(1);
    let value = pools[0].book(&on).unwrap();
    for pool in &pools[1..] {
        pool.book_as(id, &on).unwrap();
    }
    for pool in &pools {
        assert_eq!(rows(pool), [(128, 8, 4), NONE, NONE]);
        assert_eq!(pool.mirrored(), 3);
    }
    value.prefill_completed();
    value.add_output_blocks(3).unwrap();
    pools[1].prefill_completed(id).unwrap();
    pools[2].move_to(id, rank(2)).unwrap();
    pools[3].free(id);
    for pool in &pools {
        assert_eq!(rows(pool), [(0, 7, 2), NONE, (32, 2, 1)]);
    }
    pools[1].free(id);
    pools[2].free(id);
    drop(value);
    for pool in &pools {
        assert_eq!((rows(pool), pool.mirrored()), ([NONE; 3], 0));
        assert_eq!(pool.peer_events_dropped(), 0);
    }
}

#[test]
fn four_routers_on_threads_end_with_what_is_booked_and_then_with_nothing() {
    let pools = routers(4);
    std::thread::scope(|scope| {
        for (i, pool) in pools.iter().enumerate() {
            scope.spawn(move || {
                let mut draw = Draw(i as u64);
                for n in 0..2_000_u128 {
                    let id = RequestId(n);
                    pool.book_as(id, &Request::new(16 * draw.below(5))).unwrap();
                    if draw.below(2) == 0 {
                        pool.move_to(id, rank(draw.below(3) as u32)).unwrap();
                    }
                    if draw.below(2) == 0 {
                        pool.prefill_completed(id).unwrap();
                    }
                    pool.add_output_blocks(id, draw.below(3) as u32).unwrap();
                    if draw.below(4) > 0 {
                        pool.free(id);
                    }
                }
            });
        }
    });
    let first = rows(&pools[0]);
    assert!(first.iter().all(|row| row.2 > 0), "{first:?}");
    for pool in &pools {
        assert_eq!(rows(pool), first, "all routers see the same");
    }
    for pool in &pools {
        for live in pool.export() {
            pool.free(live.id);
        }
    }
    for pool in &pools {
        assert_eq!((rows(pool), pool.mirrored()), ([NONE; 3], 0));
    }
}

#[test]
fn a_peer_that_comes_late_is_seeded_with_every_live_booking_by_value_and_by_id() {
    let pools = routers(3);
    let mut values = Vec::new();
    let mut draw = Draw(5);
    for n in 0..300 {
        let pool = &pools[n as usize % 3];
        let request = Request::new(16 * draw.below(5));
        let (by_id, id) = (draw.below(2) == 0, RequestId(n));
        match by_id {
            true => drop(pool.book_as(id, &request).unwrap()),
            false => values.push(pool.book(&request).unwrap()),
        }
        let value = values.last().filter(|_| !by_id);
        for _ in 0..draw.below(4) {
            let to = rank(draw.below(3) as u32);
            let (what, blocks) = (draw.below(3), draw.below(3) as u32);
            match (what, value) {
                (0, Some(value)) => value.move_to(to).unwrap(),
                (1, Some(value)) => value.prefill_completed(),
                (_, Some(value)) => value.add_output_blocks(blocks).unwrap(),
                (0, None) => pool.move_to(id, to).unwrap(),
                (1, None) => pool.prefill_completed(id).unwrap(),
                (_, None) => pool.add_output_blocks(id, blocks).unwrap(),
            }
        }
        if draw.below(3) == 0 {
            if by_id {
                assert!(pool.free(id));
            } else {
                drop(values.pop());
            }
        }
    }
    let seed: Vec<LoadEvent> = pools.iter().flat_map(Pool::export_events).collect();
    let late = pool();
    for _ in 0..2 {
        for event in &seed {
            assert_eq!(apply(&late, event), Applied::Taken);
        }
        assert_eq!(rows(&late), rows(&pools[0]), "seeded twice does no harm");
    }
    let live: usize = values.len() + pools.iter().map(|pool| pool.export().len()).sum::<usize>();
    assert!(live > 100 && !values.is_empty(), "{live}");
    assert_eq!(late.mirrored(), live);
    // From here on it hears what the others hear: each booking is the one that it was seeded with.
    let at = pools.iter().map(|pool| pool.export_events().len()).sum::<usize>();
    assert_eq!(at, seed.len());
    for (pool, live) in
        pools.iter().flat_map(|pool| pool.export().into_iter().map(move |l| (pool, l)))
    {
        let event = seed.iter().find(|e| e.request == Some(live.id)).unwrap();
        assert!(pool.free(live.id));
        apply(&late, &LoadEvent::new(event.router, 1 << 40, event.booking, LoadChange::Free));
    }
    assert_eq!(late.mirrored(), values.len());
    assert_eq!(rows(&late), rows(&pools[0]));
    drop(values);
    assert_eq!(rows(&pools[0]), [NONE; 3]);
    assert!(pools.iter().all(|pool| pool.export_events().is_empty()));
    // Nothing is kept by a pool that tells nobody.
    let _booking = late.book(&Request::new(16)).unwrap();
    assert_eq!(late.export_events(), []);
}

/// Keeps what it is told, in the order of the telling.
#[derive(Default)]
struct Kept(Mutex<Vec<LoadEvent>>);

impl EventSink for Kept {
    fn event(&self, event: &LoadEvent) {
        self.0.lock().unwrap().push(*event);
    }
}

#[test]
fn of_two_moves_at_once_others_take_the_one_that_stands() {
    const ROUNDS: usize = 20_000;
    let sink = Arc::new(Kept::default());
    let source = Pool::builder().router_id(1).events(sink.clone()).build().unwrap();
    source.upsert(WorkerSpec::new(1).ranks(0, 3)).unwrap();
    let (id, value) = (RequestId(1), source.book(&Request::new(32)).unwrap());
    source.book_as(id, &Request::new(32)).unwrap();
    let steps = Barrier::new(2);
    let mut wrong = 0;
    std::thread::scope(|scope| {
        let (source, steps, value) = (&source, &steps, &value);
        let go = move |round: usize, thread: usize| {
            let to = rank(((round + thread) % 3) as u32);
            steps.wait();
            source.move_to(id, to).unwrap();
            value.move_to(to).unwrap();
            steps.wait();
        };
        scope.spawn(move || (0..ROUNDS).for_each(|round| go(round, 0)));
        for round in 0..ROUNDS {
            go(round, 1);
            let told = std::mem::take(&mut *sink.0.lock().unwrap());
            for (by_id, at) in [(true, source.rank_of(id).unwrap()), (false, value.rank())] {
                let last =
                    told.iter().filter(|e| e.request.is_some() == by_id).max_by_key(|e| e.seq);
                let moved = last.map(|event| event.change);
                let adds = matches!(moved, Some(LoadChange::Add { .. }));
                wrong += usize::from(!adds && moved != Some(LoadChange::Move { rank: at }));
            }
        }
    });
    assert_eq!(wrong, 0, "others see them elsewhere, of {ROUNDS} rounds");
}

#[test]
fn holds_are_not_told_and_output_only_if_it_is_wanted() {
    let sink = Arc::new(Kept::default());
    let decode = Pool::builder().track_prefill(false).events(sink.clone()).build().unwrap();
    decode.upsert(WorkerSpec::new(1).ranks(0, 3).total_kv_blocks(1000)).unwrap();
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.decode_frac(0.5));
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap());
    let prefill = Pool::builder().policy(&profile).build().unwrap();
    prefill.upsert(WorkerSpec::new(2)).unwrap();
    prefill.pair_with(&decode);
    let admitted = prefill.admit(Request::new(64)).wait().unwrap();
    assert_eq!(sink.0.lock().unwrap()[..], []);
    let leg = decode.book_leg(admitted.hold.unwrap(), &Request::new(64)).unwrap();
    leg.add_output_blocks(3).unwrap();
    let to = rank((leg.rank().dp_rank + 1) % 3);
    let from = leg.rank();
    leg.move_to(to).unwrap();
    drop(leg);
    let told: Vec<_> = sink.0.lock().unwrap().iter().map(|e| (e.seq, e.change)).collect();
    assert_eq!(
        told,
        [
            (1, LoadChange::Add { rank: from, prefill_tokens: 0, kv_blocks: 4 }),
            (2, LoadChange::Move { rank: to }),
            (3, LoadChange::Free),
        ]
    );
}

/// Small pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// What happened to one booking, as a set: what the rows must show of it, in whatever order and
/// however often it was told.
#[derive(Default)]
struct Story {
    added: Option<(Rank, u32, u32)>,
    completed: bool,
    output: u32,
    moved: Option<(u64, Rank)>,
    freed: bool,
}

impl Story {
    fn row(&self) -> Option<(Rank, Row)> {
        let (first, tokens, blocks) = self.added.filter(|_| !self.freed)?;
        let rank = self.moved.map_or(first, |(_, rank)| rank);
        let tokens = if self.completed { 0 } else { tokens };
        (rank != UNKNOWN).then_some((rank, (tokens, blocks + self.output, 1)))
    }
}

/// The events of one router, in the order in which they happened.
fn history(
    router: u64,
    draw: &mut Draw,
    stories: &mut BTreeMap<(u64, u128), Story>,
) -> Vec<LoadEvent> {
    let mut events = Vec::new();
    let mut live: Vec<u128> = Vec::new();
    let some_rank = |draw: &mut Draw| match draw.below(5) {
        n @ 0..3 => rank(n as u32),
        3 => UNKNOWN,
        _ => rank(0),
    };
    for seq in 1..=10 + draw.below(50) {
        if live.is_empty() || draw.below(3) == 0 {
            let booking = u128::from(seq) % 13 + u128::from(seq) / 13 * 100;
            let rank = some_rank(draw);
            let (prefill_tokens, kv_blocks) = (draw.below(100) as u32, draw.below(10) as u32);
            let story =
                Story { added: Some((rank, prefill_tokens, kv_blocks)), ..Story::default() };
            stories.insert((router, booking), story);
            live.push(booking);
            let change = LoadChange::Add { rank, prefill_tokens, kv_blocks };
            events.push(event(router, seq, booking, change));
            continue;
        }
        let at = draw.below(live.len() as u64) as usize;
        let booking = live[at];
        let story = stories.get_mut(&(router, booking)).unwrap();
        let change = match draw.below(4) {
            0 => {
                story.completed = true;
                LoadChange::PrefillCompleted
            }
            1 => {
                let blocks = draw.below(5) as u32;
                story.output += blocks;
                LoadChange::Output { blocks }
            }
            2 => {
                let rank = some_rank(draw);
                story.moved = Some((seq, rank));
                LoadChange::Move { rank }
            }
            _ => {
                story.freed = true;
                live.swap_remove(at);
                LoadChange::Free
            }
        };
        events.push(event(router, seq, booking, change));
    }
    events
}

#[test]
fn every_order_and_any_duplication_of_the_events_ends_in_the_same_rows() {
    const SEEDS: u64 = 1_000;
    let mut told = 0;
    for seed in 0..SEEDS {
        let mut draw = Draw(seed);
        let routers = 1 + draw.below(4);
        let mut stories = BTreeMap::new();
        let mut events: Vec<LoadEvent> =
            (1..=routers).flat_map(|router| history(router, &mut draw, &mut stories)).collect();
        let mut expected = [NONE; 3];
        let live: Vec<(Rank, Row)> = stories.values().filter_map(Story::row).collect();
        for &(rank, (tokens, blocks, requests)) in &live {
            let row = &mut expected[rank.dp_rank as usize];
            *row = (row.0 + tokens, row.1 + blocks, row.2 + requests);
        }
        for again in 0..3 {
            if again > 0 {
                for _ in 0..draw.below(events.len() as u64) {
                    events.push(events[draw.below(events.len() as u64) as usize]);
                }
                draw.shuffle(&mut events);
            }
            let pool = pool();
            for event in &events {
                assert_ne!(apply(&pool, event), Applied::Echo);
            }
            told += events.len();
            assert_eq!(rows(&pool), expected, "seed {seed}, order {again}");
            assert_eq!(pool.mirrored(), live.len(), "seed {seed}, order {again}");
            // And once more, all of it: a peer that sends everything again does no harm.
            events.iter().for_each(|event| {
                apply(&pool, event);
            });
            assert_eq!(rows(&pool), expected, "seed {seed}, order {again}, told again");
            let gone: usize = (1..=routers).map(|r| pool.peer_gone(RouterId(r))).sum();
            assert_eq!((gone, rows(&pool)), (live.len(), [NONE; 3]), "seed {seed}");
        }
    }
    println!("{SEEDS} seeds, {told} events in 3 orders");
}
