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
