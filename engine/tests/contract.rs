//! Sentences of the contract that need threads or values, which scenario files cannot show.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use vacancy::*;

#[test]
fn a_booking_gives_back_exactly_what_it_put_on() {
    let pool = Pool::builder().block_size(128).build().unwrap();
    pool.upsert(WorkerSpec::new(1).max_num_batched_tokens(8192).total_kv_blocks(100)).unwrap();
    let rank = Rank::new(1, 0);
    let first = pool.book(&Request::new(512)).unwrap();
    let second = pool.book(&Request::new(100)).unwrap();
    let load = pool.load(rank).unwrap();
    assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (612, 5, 2));
    first.prefill_completed();
    first.prefill_completed();
    first.add_output_blocks(2).unwrap();
    let load = pool.load(rank).unwrap();
    assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (100, 7, 2));
    drop(first);
    second.free();
    let load = pool.load(rank).unwrap();
    assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0));
}

/// 64 threads, one rank with room for five bookings (limit 4 of 8, one block each; the one that
/// crosses the line is accepted): exactly five land, whatever the interleaving.
#[test]
fn of_64_threads_at_one_rank_exactly_as_many_land_as_there_is_room() {
    const THREADS: usize = 64;
    let rounds = if cfg!(debug_assertions) { 300 } else { 10_000 };
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let pool = Pool::builder().block_size(16).reject_thresholds(rejects).build().unwrap();
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(8)).unwrap();
    let (landed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, barrier) = (pool.clone(), &barrier);
            let (landed, refused) = (&landed, &refused);
            scope.spawn(move || {
                for _ in 0..rounds {
                    barrier.wait();
                    let booking = pool.book(&Request::new(16));
                    match &booking {
                        Ok(_) => landed.fetch_add(1, Ordering::Relaxed),
                        Err(Error::AllEligibleWorkersOverloaded) => {
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(other) => panic!("{other}"),
                    };
                    barrier.wait();
                    if thread == 0 {
                        assert_eq!(landed.swap(0, Ordering::Relaxed), 5);
                        assert_eq!(refused.swap(0, Ordering::Relaxed), THREADS - 5);
                        assert_eq!(pool.load(Rank::new(1, 0)).unwrap().kv_blocks, 5);
                    }
                    barrier.wait();
                    drop(booking);
                    barrier.wait();
                    if thread == 0 {
                        let load = pool.load(Rank::new(1, 0)).unwrap();
                        assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0));
                    }
                }
            });
        }
    });
}

/// Host code runs between the look at a rank and the landing on it, so it can be filled in between
/// with no second thread: the booking is judged by the row that it is added to, and not by the one
/// that was looked at.
#[test]
fn a_booking_is_judged_by_the_row_that_it_lands_on() {
    use std::sync::{Arc, Mutex, OnceLock};

    #[derive(Default)]
    struct Intruder {
        pool: OnceLock<Pool>,
        booked: Mutex<Vec<Booking>>,
    }

    impl Scorer for Intruder {
        fn name(&self) -> &str {
            "intruder"
        }

        fn score(&self, columns: &Columns<'_>, _cost: &mut [f64]) -> Result<(), PolicyError> {
            if columns.request.isl == 17 {
                let pool = self.pool.get().expect("the pool is built");
                let booking = pool.book(&Request::new(16)).expect("it has room still");
                self.booked.lock().unwrap().push(booking);
            }
            Ok(())
        }
    }

    let intruder = Arc::new(Intruder::default());
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let pool = Pool::builder()
        .block_size(16)
        .reject_thresholds(rejects)
        .scorer(Arc::clone(&intruder) as Arc<dyn Scorer>)
        .build()
        .unwrap();
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(8)).unwrap();
    assert!(intruder.pool.set(pool.clone()).is_ok());
    let at_the_limit = pool.book(&Request::new(64)).unwrap();
    let refused = pool.book(&Request::new(17)).unwrap_err();
    assert_eq!(refused, Error::AllEligibleWorkersOverloaded);
    assert_eq!(pool.load(Rank::new(1, 0)).unwrap().kv_blocks, 5, "the intruder's, and no more");
    drop(at_the_limit);
    intruder.booked.lock().unwrap().clear();
    assert_eq!(pool.load(Rank::new(1, 0)).unwrap().kv_blocks, 0);
}

/// A leg that chooses afresh is judged as if its own hold were not there, and lands so: on the hold's
/// rank, which is past the limit with the hold, and on a full sibling whose worker has room for no
/// other reason.
#[test]
fn a_fresh_decode_leg_lands_as_it_was_judged() {
    let classes = Profile::single(Thresholds::NONE.decode_frac(1.0)).unwrap();
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let prefill = Pool::builder().policy(&std::sync::Arc::new(classes)).build().unwrap();
    let decode = Pool::builder().track_prefill(false).reject_thresholds(rejects).build().unwrap();
    prefill.upsert(WorkerSpec::new(7)).unwrap();
    prefill.pair_with(&decode);
    let admitted = || prefill.admit(Request::new(80)).try_take().unwrap().unwrap();

    decode.upsert(WorkerSpec::new(1).total_kv_blocks(8)).unwrap();
    let hold = admitted().hold.unwrap();
    let leg = decode.book_leg_afresh(hold, &Request::new(80).upstream()).unwrap();
    let load = decode.load(leg.rank()).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (5, 0, 1));

    // The leg fills rank 0, its second rank has room without the hold alone.
    decode.upsert(WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(8)).unwrap();
    let hold = admitted().hold.unwrap();
    assert_eq!(hold.rank(), Some(Rank::new(1, 1)));
    let overlap = [Overlap::device(Rank::new(1, 0), 20.0)];
    let second = Request::new(80).overlaps(overlap).upstream();
    let second = decode.book_leg_afresh(hold, &second).unwrap();
    assert_eq!(second.rank(), Rank::new(1, 0));
    drop((leg, second));
    for (rank, load) in decode.snapshot().ranks {
        let on = [load.kv_blocks, load.held_blocks, load.requests];
        assert_eq!(on, [0; 3], "{rank}");
    }
}

/// Closing a pair is an event like any other: what waits for it goes in, without a hold, and so does
/// who comes later; an adapter makes no difference.
#[test]
fn what_waits_for_a_decode_pool_goes_in_when_that_pool_is_shut_down() {
    let classes = Profile::single(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let prefill = Pool::builder().policy(&std::sync::Arc::new(classes)).build().unwrap();
    let decode = Pool::builder().track_prefill(false).build().unwrap();
    prefill.upsert(WorkerSpec::new(7)).unwrap();
    prefill.pair_with(&decode);
    let mut waiting = [Request::new(64), Request::new(64).lora("a")].map(|r| prefill.admit(r));
    assert!(waiting.iter().all(Admit::is_waiting));
    decode.close();
    for admit in &mut waiting {
        assert!(admit.try_take().expect("it was told").unwrap().hold.is_none());
    }
    assert!(prefill.admit(Request::new(64)).try_take().expect("it goes in").is_ok());
}
