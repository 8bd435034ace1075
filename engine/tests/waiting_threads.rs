//! Waiting on real threads, at random instants: what the models show in small, in large.
//!
//! Rounds are short by default; with `VACANCY_LONG` set they are as many as the contract's checks
//! ask for. `VACANCY_SEED` picks the instants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vacancy::*;

fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("VACANCY_LONG").is_some() { long } else { short }
}

fn seed() -> u64 {
    std::env::var("VACANCY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Small pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn delay(&mut self) {
        for _ in 0..self.below(200) {
            std::hint::spin_loop();
        }
    }
}

/// Threads that take every step of a round together, without sleeping.
struct Steps {
    threads: usize,
    arrived: AtomicUsize,
}

impl Steps {
    fn new(threads: usize) -> Steps {
        Steps { threads, arrived: AtomicUsize::new(0) }
    }

    fn step(&self) {
        let at = self.arrived.fetch_add(1, Ordering::AcqRel);
        let end = (at / self.threads + 1) * self.threads;
        let mut spins = 0u32;
        while self.arrived.load(Ordering::Acquire) < end {
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

fn profile(thresholds: Thresholds) -> Arc<Profile> {
    let class = ClassSpec::new("c", 100).family("f", "all").thresholds(thresholds);
    Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap())
}

/// One rank; a class that waits as soon as anything is booked.
fn one_seat() -> Pool {
    let mut thresholds = Thresholds::NONE;
    thresholds.prefill_tokens = Some(0);
    let pool = Pool::builder().policy(&profile(thresholds)).build().unwrap();
    pool.upsert(WorkerSpec::new(1)).unwrap();
    pool
}

fn assert_empty(pool: &Pool) {
    let load = pool.load(Rank::new(1, 0)).unwrap();
    assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0));
    assert_eq!(pool.snapshot().waiting, 0);
}

#[test]
fn enqueue_against_release_leaves_no_waiter_beside_a_free_seat() {
    let pool = one_seat();
    let steps = Steps::new(2);
    let seat = std::sync::Mutex::new(None);
    let rounds = rounds(100_000, 1_000_000);
    // Counted, and asserted once both threads have ended: a panic would leave the other spinning.
    let mut asleep = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut draw = Draw(seed());
            for _ in 0..rounds {
                steps.step();
                let held: Option<Admitted> = seat.lock().unwrap().take();
                draw.delay();
                drop(held);
                steps.step();
            }
        });
        let mut draw = Draw(seed() ^ 0x5555);
        for _ in 0..rounds {
            let first = pool.admit(Request::new(10)).try_take().unwrap().unwrap();
            *seat.lock().unwrap() = Some(first);
            steps.step();
            draw.delay();
            let second = pool.admit(Request::new(10));
            steps.step();
            // Both calls have returned: whoever came second has seen the other.
            asleep += usize::from(second.is_waiting());
            drop(second);
        }
    });
    assert_eq!(asleep, 0, "waiters that sleep beside a free seat, of {rounds}");
    assert_empty(&pool);
}

#[test]
fn when_a_chosen_waiter_vanishes_the_next_one_goes_in_without_a_further_event() {
    let pool = one_seat();
    let steps = Steps::new(3);
    let (seat, doomed) = (std::sync::Mutex::new(None), std::sync::Mutex::new(None));
    let rounds = rounds(10_000, 10_000);
    let vanished_chosen = AtomicUsize::new(0);
    let mut asleep = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut draw = Draw(seed());
            for _ in 0..rounds {
                steps.step();
                let held: Option<Admitted> = seat.lock().unwrap().take();
                draw.delay();
                drop(held);
                steps.step();
            }
        });
        scope.spawn(|| {
            let mut draw = Draw(seed() ^ 0x3333);
            for _ in 0..rounds {
                steps.step();
                let admit: Option<Admit> = doomed.lock().unwrap().take();
                draw.delay();
                let admit = admit.unwrap();
                if !admit.is_waiting() {
                    vanished_chosen.fetch_add(1, Ordering::Relaxed);
                }
                drop(admit);
                steps.step();
            }
        });
        for _ in 0..rounds {
            let first = pool.admit(Request::new(10)).try_take().unwrap().unwrap();
            let second = pool.admit(Request::new(10));
            let third = pool.admit(Request::new(10));
            *seat.lock().unwrap() = Some(first);
            *doomed.lock().unwrap() = Some(second);
            steps.step();
            steps.step();
            asleep += usize::from(third.is_waiting());
            drop(third);
        }
    });
    assert_eq!(asleep, 0, "waiters that sleep beside a free seat, of {rounds}");
    assert_empty(&pool);
    let chosen = vanished_chosen.load(Ordering::Relaxed);
    assert!(chosen > 0, "the branch that matters was never reached");
}

#[test]
fn a_hundred_thousand_that_wait_are_dropped_in_random_order_and_the_next_goes_in() {
    const N: usize = 100_000;
    let pool = one_seat();
    let first = pool.admit(Request::new(10)).try_take().unwrap().unwrap();
    let mut waiting: Vec<Admit> = (0..N).map(|_| pool.admit(Request::new(10))).collect();
    assert!(waiting.iter().all(Admit::is_waiting));
    let mut draw = Draw(seed());
    for i in (1..N).rev() {
        waiting.swap(i, draw.below(i as u64 + 1) as usize);
    }
    let mut last = waiting.pop().unwrap();
    let started = Instant::now();
    drop(waiting);
    let took = started.elapsed();
    // A build without optimisation on a machine that is shared is another measure.
    let bound = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });
    assert!(took < bound, "{took:?}");
    assert!(last.is_waiting());
    drop(first);
    drop(last.try_take().unwrap().unwrap());
    assert_empty(&pool);
}

#[test]
fn what_is_due_is_refused_at_its_time_with_no_other_event() {
    let pool = one_seat();
    let first = pool.admit(Request::new(10)).try_take().unwrap().unwrap();
    let mut far = pool.admit(Request::new(10).due(Time::from_millis(1_000)));
    let mut near = pool.admit(Request::new(10).due(Time::from_millis(500)));
    assert_eq!(pool.next_due(), Some(Time::from_millis(500)));
    assert_eq!(pool.expire(Time::from_millis(499)).overdue, 0);
    assert_eq!(pool.expire(Time::from_millis(500)).overdue, 1);
    assert_eq!(near.try_take().unwrap().unwrap_err(), Error::DeadlineExceeded);
    assert!(far.is_waiting());
    // Passed before anybody looked: never admitted late, though the seat is free.
    drop(pool.admit(Request::new(10).at(Time::from_millis(1_000)).due(Time::from_millis(2_000))));
    drop(first);
    assert_eq!(far.try_take().unwrap().unwrap_err(), Error::DeadlineExceeded);
    let late = pool.admit(Request::new(10).due(Time::from_millis(7))).try_take().unwrap();
    assert_eq!(late.unwrap_err(), Error::DeadlineExceeded);
    assert_empty(&pool);
}

/// "What moves the epoch", event by event: each alone lets the waiter in.
mod events {
    use super::*;

    /// A pool whose only seat is closed by `close`; `open` is the event.
    fn lets_in(
        thresholds: Thresholds,
        spec: WorkerSpec,
        request: Request,
        close: impl FnOnce(&Pool) -> Vec<Booking>,
        open: impl FnOnce(&Pool, &mut Vec<Booking>),
    ) {
        let pool = Pool::builder().policy(&profile(thresholds)).build().unwrap();
        pool.upsert(spec).unwrap();
        let mut held = close(&pool);
        let mut admit = pool.admit(request);
        assert!(admit.is_waiting(), "the gate is closed");
        let epoch = pool.epoch();
        open(&pool, &mut held);
        assert_ne!(pool.epoch(), epoch, "the epoch moves");
        admit.try_take().expect("the event alone lets it in").unwrap();
    }

    fn tokens(limit: u64) -> Thresholds {
        let mut thresholds = Thresholds::NONE;
        thresholds.prefill_tokens = Some(limit);
        thresholds
    }

    fn book(pool: &Pool) -> Vec<Booking> {
        vec![pool.book(&Request::new(160)).unwrap()]
    }

    fn spec() -> WorkerSpec {
        WorkerSpec::new(1).max_num_batched_tokens(100).total_kv_blocks(10)
    }

    #[test]
    fn a_free() {
        lets_in(tokens(0), spec(), Request::new(1), book, |_, held| held.clear());
    }

    #[test]
    fn a_completed_prefill() {
        let open = |_: &Pool, held: &mut Vec<Booking>| held[0].prefill_completed();
        lets_in(tokens(0), spec(), Request::new(1), book, open);
    }

    #[test]
    fn a_move() {
        let close = |pool: &Pool| {
            let held = book(pool);
            pool.upsert(WorkerSpec::new(2)).unwrap();
            pool.set_overloaded(WorkerId(2), true, None);
            held
        };
        let open = |_: &Pool, held: &mut Vec<Booking>| held[0].move_to(Rank::new(2, 0)).unwrap();
        lets_in(tokens(0), spec(), Request::new(1), close, open);
    }

    #[test]
    fn a_lease_that_ran_out() {
        let close = |pool: &Pool| {
            pool.book_as(RequestId(1), &Request::new(160)).unwrap();
            Vec::new()
        };
        lets_in(tokens(0), spec(), Request::new(1), close, |pool, _| {
            assert_eq!(pool.next_due(), Some(Time::from_millis(300_000)));
            assert_eq!(pool.expire(Time::from_millis(300_000)).leases.len(), 1);
        });
    }

    #[test]
    fn a_peers_free_and_a_peers_departure() {
        for gone in [false, true] {
            let event = |seq, change| LoadEvent::new(RouterId(9), seq, 1, change);
            let rank = Rank::new(1, 0);
            let close = |pool: &Pool| {
                let add = LoadChange::Add { rank, prefill_tokens: 7, kv_blocks: 2 };
                assert_eq!(pool.apply_peer(&event(1, add), Time::ZERO), Applied::Taken);
                Vec::new()
            };
            lets_in(tokens(0), spec(), Request::new(1), close, |pool, _| {
                if gone {
                    assert_eq!(pool.peer_gone(RouterId(9)), 1);
                } else {
                    pool.apply_peer(&event(2, LoadChange::Free), Time::ZERO);
                }
            });
        }
    }

    #[test]
    fn a_rank_added() {
        lets_in(tokens(0), spec(), Request::new(1), book, |pool, _| {
            pool.upsert(WorkerSpec::new(2)).unwrap();
        });
    }

    #[test]
    fn a_capacity_raised_or_made_unknown() {
        let frac = Thresholds::NONE.prefill_frac(1.0);
        lets_in(frac, spec(), Request::new(1), book, |pool, _| {
            pool.upsert(spec().max_num_batched_tokens(200)).unwrap();
        });
        lets_in(frac, spec(), Request::new(1), book, |pool, _| {
            pool.upsert(WorkerSpec::new(1).total_kv_blocks(10)).unwrap();
        });
        let frac = Thresholds::NONE.decode_frac(0.5);
        lets_in(frac, spec(), Request::new(1), book, |pool, _| {
            pool.upsert(spec().total_kv_blocks(20)).unwrap();
        });
        lets_in(frac, spec(), Request::new(1), book, |pool, _| {
            pool.upsert(spec().total_kv_blocks(0)).unwrap();
        });
    }

    #[test]
    fn a_changed_taint_domain_or_adapter() {
        // One that could go elsewhere waits: a second worker that it may not use yet is idle.
        let second = || WorkerSpec::new(2);
        let close = |pool: &Pool| {
            let held = book(pool);
            pool.upsert(second()).unwrap();
            held
        };
        let asks = Constraints::new();
        for (spec, request, changed) in [
            (
                spec().taint("x"),
                Request::new(1).constraints(asks.clone().taint("x")),
                second().taint("x"),
            ),
            (
                spec().domain("zone", "a"),
                Request::new(1).constraints(asks.clone().domain("zone", "a")),
                second().domain("zone", "a"),
            ),
            (spec().lora("l"), Request::new(1).lora("l"), second().lora("l")),
        ] {
            lets_in(tokens(0), spec, request, close, |pool, _| {
                pool.upsert(changed).unwrap();
            });
        }
    }

    #[test]
    fn availability_regained() {
        let close = |pool: &Pool| {
            let held = book(pool);
            pool.upsert(WorkerSpec::new(2)).unwrap();
            pool.set_available(WorkerId(2), false);
            held
        };
        lets_in(tokens(0), spec(), Request::new(1), close, |pool, _| {
            pool.set_available(WorkerId(2), true);
        });
    }

    #[test]
    fn an_overload_mark_taken_off_or_run_out() {
        let mark = |until| {
            move |pool: &Pool| {
                pool.set_overloaded(WorkerId(1), true, until);
                Vec::new()
            }
        };
        lets_in(tokens(0), spec(), Request::new(1), mark(None), |pool, _| {
            pool.set_overloaded(WorkerId(1), false, None);
        });
        // A mark whose lease is over already takes the earlier one off.
        lets_in(
            tokens(0),
            spec(),
            Request::new(1).at(Time::from_millis(9)),
            mark(None),
            |pool, _| {
                pool.set_overloaded(WorkerId(1), true, Some(Time::from_millis(9)));
            },
        );
        let until = Time::from_millis(50);
        lets_in(tokens(0), spec(), Request::new(1), mark(Some(until)), |pool, _| {
            assert_eq!(pool.next_due(), Some(until));
            pool.expire(until);
        });
    }

    #[test]
    fn a_monitor_latch_cleared_or_silent() {
        let said = |blocks| Signals { kv_used_blocks: Some(blocks), ..Signals::default() };
        let rank = Rank::new(1, 0);
        let close = |pool: &Pool| {
            pool.reject_thresholds().set(Thresholds::NONE.decode_frac(0.5)).unwrap();
            assert!(pool.observe(rank, said(6), Time::ZERO));
            Vec::new()
        };
        lets_in(tokens(0), spec(), Request::new(1), close, |pool, _| {
            pool.observe(rank, said(5), Time::ZERO);
        });
        lets_in(tokens(0), spec(), Request::new(1), close, |pool, _| {
            let due = pool.next_due().unwrap();
            assert!(due > Time::from_millis(5_000), "silent for longer than the time to live");
            pool.expire(due);
        });
    }

    #[test]
    fn a_class_threshold_raised_or_cleared_by_reload() {
        for raised in [tokens(1_000), Thresholds::NONE] {
            lets_in(tokens(0), spec(), Request::new(1), book, |pool, _| {
                pool.set_policy(&profile(raised));
            });
        }
    }

    #[test]
    fn a_reject_threshold_raised_moves_the_epoch() {
        let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.1)).unwrap();
        let pool = Pool::builder().reject_thresholds(rejects.clone()).build().unwrap();
        let epoch = pool.epoch();
        rejects.set(Thresholds::NONE.decode_frac(0.05)).unwrap();
        assert_eq!(pool.epoch(), epoch, "lowered: no room has appeared");
        rejects.set(Thresholds::NONE.decode_frac(0.2)).unwrap();
        assert_ne!(pool.epoch(), epoch);
        let epoch = pool.epoch();
        rejects.clear();
        assert_ne!(pool.epoch(), epoch);
    }

    #[test]
    fn a_head_withdrawn_or_expired() {
        // The head of the class may not use the idle worker; who is beyond reach behind it may.
        let pool = Pool::builder().policy(&profile(tokens(0))).build().unwrap();
        pool.upsert(spec().taint("x")).unwrap();
        pool.upsert(WorkerSpec::new(2)).unwrap();
        let _held = pool.book(&Request::new(9).constraints(Constraints::new().taint("x"))).unwrap();
        let picky = |due| {
            let request = Request::new(1).constraints(Constraints::new().taint("x"));
            pool.admit(if due { request.due(Time::from_millis(5)) } else { request })
        };
        let mut heads: Vec<Admit> = (0..33).map(|i| picky(i == 0)).collect();
        let mut behind = pool.admit(Request::new(1));
        assert!(behind.is_waiting(), "more than 32 are ahead");
        let epoch = pool.epoch();
        drop(heads.pop());
        assert_ne!(pool.epoch(), epoch);
        drop(behind.try_take().expect("within reach now").unwrap());
        heads.push(picky(false));
        let mut behind = pool.admit(Request::new(1));
        assert!(behind.is_waiting());
        pool.expire(Time::from_millis(5));
        drop(behind.try_take().expect("within reach now").unwrap());
    }

    #[test]
    fn what_has_become_impossible_is_refused() {
        let pool = Pool::builder().policy(&profile(tokens(0))).build().unwrap();
        pool.upsert(spec().taint("x")).unwrap();
        let _held = book(&pool);
        let mut picky = pool.admit(Request::new(1).constraints(Constraints::new().taint("x")));
        let mut plain = pool.admit(Request::new(1));
        pool.set_available(WorkerId(1), false);
        assert!(picky.is_waiting() && plain.is_waiting(), "losing availability refuses nobody");
        pool.upsert(spec()).unwrap();
        assert_eq!(picky.try_take().unwrap().unwrap_err(), Error::NoEndpoints);
        assert!(plain.is_waiting());
        pool.remove(WorkerId(1));
        assert_eq!(plain.try_take().unwrap().unwrap_err(), Error::NoEndpoints);
    }
}
