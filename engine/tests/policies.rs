//! The host's own filters, scorers, pickers and observers, through the public interface.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;
use vacancy::{
    Candidates, Columns, Constraints, Error, Filter, Observed, Observer, Overlap, Picker,
    PolicyError, Pool, PoolBuilder, Prompt, Rank, RejectThresholds, Request, RequestId, Scorer,
    Target, Thresholds, WorkerId, WorkerSpec,
};

/// Host code made of a closure.
struct Host<F>(F);

impl<F> Filter for Host<F>
where
    F: Fn(&Columns<'_>, &mut [bool]) -> Result<(), PolicyError> + Send + Sync,
{
    fn name(&self) -> &str {
        "sieve"
    }
    fn filter(&self, columns: &Columns<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        (self.0)(columns, keep)
    }
}

impl<F> Scorer for Host<F>
where
    F: Fn(&Columns<'_>, &mut [f64]) -> Result<(), PolicyError> + Send + Sync,
{
    fn name(&self) -> &str {
        "judge"
    }
    fn score(&self, columns: &Columns<'_>, cost: &mut [f64]) -> Result<(), PolicyError> {
        (self.0)(columns, cost)
    }
}

impl<F: Fn(&Candidates<'_>) -> Result<usize, PolicyError> + Send + Sync> Picker for Host<F> {
    fn name(&self) -> &str {
        "hand"
    }
    fn pick(&self, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        (self.0)(candidates)
    }
}

impl<F: Fn(&Observed<'_>) + Send + Sync> Observer for Host<F> {
    fn name(&self) -> &str {
        "eye"
    }
    fn observe(&self, observed: &Observed<'_>) {
        (self.0)(observed);
    }
}

fn filter<F>(f: F) -> Arc<Host<F>>
where
    F: Fn(&Columns<'_>, &mut [bool]) -> Result<(), PolicyError> + Send + Sync,
{
    Arc::new(Host(f))
}

fn scorer<F>(f: F) -> Arc<Host<F>>
where
    F: Fn(&Columns<'_>, &mut [f64]) -> Result<(), PolicyError> + Send + Sync,
{
    Arc::new(Host(f))
}

fn picker<F: Fn(&Candidates<'_>) -> Result<usize, PolicyError> + Send + Sync>(
    f: F,
) -> Arc<Host<F>> {
    Arc::new(Host(f))
}

fn observer<F: Fn(&Observed<'_>) + Send + Sync>(f: F) -> Arc<Host<F>> {
    Arc::new(Host(f))
}

/// A pool of workers `0..n`, one rank of 100 blocks each.
fn fleet(builder: PoolBuilder, n: u64) -> Pool {
    let pool = builder.block_size(16).seed(1).build().unwrap();
    for id in 0..n {
        let spec = WorkerSpec::new(id).total_kv_blocks(100).max_num_batched_tokens(8192 + id);
        pool.upsert(spec).unwrap();
    }
    pool
}

fn pinned(worker: u64, isl: u64) -> Request {
    Request::new(isl).constraints(Constraints::new().pin(Target::worker(worker)))
}

#[test]
fn columns_show_rows_capacity_projection_and_overlap() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let pool = fleet(
        Pool::builder().scorer(scorer(move |c: &Columns<'_>, cost: &mut [f64]| {
            assert_eq!(c.cost, cost);
            for i in 0..c.len() {
                log.lock().unwrap().push((
                    c.ranks[i].worker.0,
                    [c.prefill_tokens[i], c.kv_blocks[i], c.requests[i]],
                    [c.added_tokens[i], c.added_blocks[i], c.cached_tokens[i]],
                    [c.cost[i], c.device[i], c.host[i], c.disk[i]],
                    (c.max_num_batched_tokens[i], c.total_kv_blocks[i]),
                ));
            }
            Ok(())
        })),
        3,
    );
    let chain = Prompt::new([1, 2, 3, 4]).unwrap();
    let first = pool.book(&pinned(1, 64).prompt(chain)).unwrap();
    assert_eq!(first.rank(), Rank::new(1, 0));
    seen.lock().unwrap().clear();
    let request = Request::new(64).prompt(Prompt::new([1, 2, 9, 8]).unwrap()).overlaps([Overlap {
        rank: Rank::new(1, 0),
        device: 1.0,
        host: 2.0,
        disk: 0.0,
    }]);
    let choice = pool.select(&request).unwrap();
    let mut seen = seen.lock().unwrap();
    seen.sort_by_key(|s| s.0);
    let idle = [0, 0, 0];
    let room = |id: u64| (Some(8192 + id), Some(100));
    assert_eq!(seen[0], (0, idle, [64, 4, 0], [8.0, 0.0, 0.0, 0.0], room(0)));
    // 64 + 64 tokens are 8 blocks less 2.5 of credit; 4 blocks there and 2 not shared.
    assert_eq!(seen[1], (1, [64, 4, 1], [24, 2, 40], [11.5, 1.0, 2.0, 0.0], room(1)));
    assert_eq!(seen[2], (2, idle, [64, 4, 0], [8.0, 0.0, 0.0, 0.0], room(2)));
    assert_eq!(choice.forgone.map(|f| (f.rank, f.blocks)), Some((Rank::new(1, 0), 3.0)));
}

#[test]
fn a_scorer_decides_but_sees_only_ranks_that_may_be_chosen() {
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&shown);
    let pool = fleet(
        Pool::builder().reject_thresholds(rejects).scorer(scorer(
            move |c: &Columns<'_>, cost: &mut [f64]| {
                log.lock().unwrap().extend(c.ranks.iter().map(|r| r.worker.0));
                for (cost, rank) in cost.iter_mut().zip(c.ranks) {
                    *cost = -(rank.worker.0 as f64);
                }
                Ok(())
            },
        )),
        200,
    );
    let _full = pool.book(&pinned(199, 51 * 16)).unwrap();
    assert!(pool.set_available(WorkerId(198), false));
    assert!(pool.set_overloaded(WorkerId(197), true, None));
    shown.lock().unwrap().clear();
    let deny = Request::new(16).constraints(Constraints::new().deny([196]));
    let choice = pool.select(&deny).unwrap();
    assert_eq!((choice.rank, choice.cost), (Rank::new(195, 0), -195.0));
    assert_eq!((choice.eligible, choice.full), (198, 1));
    let mut shown = shown.lock().unwrap();
    shown.sort();
    assert_eq!(*shown, (0..196).collect::<Vec<_>>());
}

#[test]
fn a_filter_that_refuses_everybody_is_an_error_of_its_own() {
    let refuse = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&refuse);
    let pool = fleet(
        Pool::builder().filter(filter(move |_: &Columns<'_>, keep: &mut [bool]| {
            keep.fill(!refusing.load(SeqCst));
            Ok(())
        })),
        3,
    );
    assert_eq!(pool.select(&Request::new(1)).unwrap_err(), Error::AllEligibleWorkersFiltered);
    assert_eq!(pool.book(&Request::new(1)).unwrap_err(), Error::AllEligibleWorkersFiltered);
    // Eligibility and marks come first.
    for id in 0..3 {
        pool.set_overloaded(WorkerId(id), true, None);
    }
    assert_eq!(pool.select(&Request::new(1)).unwrap_err(), Error::AllEligibleWorkersOverloaded);
    let overloaded = Error::PinnedWorkerOverloaded { worker: WorkerId(1) };
    assert_eq!(pool.select(&pinned(1, 1)).unwrap_err(), overloaded);
    assert_eq!(pool.select(&pinned(7, 1)).unwrap_err(), Error::NoEndpoints);
    for id in 0..3 {
        pool.set_overloaded(WorkerId(id), false, None);
    }
    refuse.store(false, SeqCst);
    assert!(pool.book(&Request::new(1)).is_ok());
}

#[test]
fn an_affinity_target_stands_unless_the_filter_refuses_it() {
    let refused = Arc::new(AtomicU64::new(u64::MAX));
    let refusing = Arc::clone(&refused);
    let pool = fleet(
        Pool::builder().filter(filter(move |c: &Columns<'_>, keep: &mut [bool]| {
            for (keep, rank) in keep.iter_mut().zip(c.ranks) {
                *keep = rank.worker.0 != refusing.load(SeqCst);
            }
            Ok(())
        })),
        4,
    );
    let _busy = pool.book(&pinned(2, 160)).unwrap();
    let sticky = Request::new(16).constraints(Constraints::new().affinity(Target::worker(2)));
    assert_eq!(pool.select(&sticky).unwrap().rank.worker, WorkerId(2));
    refused.store(2, SeqCst);
    assert_ne!(pool.select(&sticky).unwrap().rank.worker, WorkerId(2));
}

#[test]
fn what_fails_or_panics_fails_its_own_request_and_leaves_nothing_behind() {
    let pool = fleet(
        Pool::builder().scorer(scorer(|c: &Columns<'_>, cost: &mut [f64]| match c.request.isl {
            1 => Err("no model".into()),
            2 => panic!("no luck"),
            3 => {
                cost[1] = f64::NAN;
                Ok(())
            }
            _ => Ok(()),
        })),
        3,
    );
    let what = |isl| match pool.book(&Request::new(isl)).unwrap_err() {
        Error::PolicyFailed { what } => what,
        other => panic!("{other}"),
    };
    assert_eq!(what(1), "scorer judge: no model");
    assert_eq!(what(2), "scorer judge: panicked: no luck");
    let not_a_number = what(3);
    assert!(not_a_number.starts_with("scorer judge: gave the cost NaN to rank "), "{not_a_number}");
    for (_, load) in pool.snapshot().ranks {
        assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0));
    }
    assert!(pool.book(&Request::new(4)).is_ok());
}

#[test]
fn a_picker_replaces_the_choice_and_its_seed_makes_it_reproducible() {
    let pool = fleet(
        Pool::builder()
            .picker(picker(|c: &Candidates<'_>| Ok((c.random % c.ranks.len() as u64) as usize))),
        100,
    );
    let draw = |seed| pool.select(&Request::new(16).seed(seed)).unwrap().rank;
    assert!((0..20).all(|seed| draw(seed) == draw(seed)));
    assert!((0..20).any(|seed| draw(seed) != draw(0)));
    let pool = fleet(Pool::builder().picker(picker(|c: &Candidates<'_>| Ok(c.ranks.len()))), 2);
    let error = pool.select(&Request::new(16)).unwrap_err();
    assert_eq!(
        error,
        Error::PolicyFailed { what: "picker hand: picked 2 of 2 candidates".to_owned() }
    );
}

#[test]
fn an_observer_sees_every_declared_rank_and_its_panic_is_nobodys() {
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let pool = fleet(
        Pool::builder().reject_thresholds(rejects).observer(observer(move |o: &Observed<'_>| {
            for (i, rank) in o.columns.ranks.iter().enumerate() {
                let judged = (o.eligible[i], o.full[i], o.marked[i]);
                log.lock().unwrap().push((rank.worker.0, judged, o.columns.cost[i]));
            }
            if o.first + o.columns.len() == o.of {
                panic!("seen it all");
            }
        })),
        130,
    );
    let _full = pool.book(&pinned(129, 51 * 16)).unwrap();
    pool.set_available(WorkerId(7), false);
    pool.set_overloaded(WorkerId(8), true, None);
    seen.lock().unwrap().clear();
    let choice = pool.select(&pinned(3, 16)).unwrap();
    assert_eq!(choice.rank, Rank::new(3, 0));
    let mut seen = seen.lock().unwrap();
    seen.sort_by_key(|s| s.0);
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), (0..130).collect::<Vec<_>>());
    assert_eq!(seen[3], (3, (true, false, false), 2.0));
    assert_eq!(seen[7], (7, (false, false, false), 2.0));
    assert_eq!(seen[8], (8, (false, false, true), 2.0));
    // 51 blocks of prefill before its own one, 51 blocks held and its own.
    assert_eq!(seen[129], (129, (false, true, false), 104.0));
}

#[test]
fn host_code_may_call_its_own_pool() {
    let own: Arc<OnceLock<Pool>> = Arc::default();
    let inside = Arc::clone(&own);
    let pool = fleet(
        Pool::builder().scorer(scorer(move |c: &Columns<'_>, _: &mut [f64]| {
            if c.request.isl > 16 {
                let pool = inside.get().expect("set below");
                let booked = pool.book(&Request::new(16)).map_err(|e| e.to_string())?;
                pool.select(&Request::new(1)).map_err(|e| e.to_string())?;
                booked.free();
            }
            Ok(())
        })),
        70,
    );
    assert!(own.set(pool.clone()).is_ok());
    for _ in 0..100 {
        pool.book(&Request::new(32)).unwrap().free();
    }
    assert!(pool.snapshot().ranks.iter().all(|(_, load)| load.requests == 0));
}

#[test]
fn others_go_on_while_host_code_is_parked() {
    // Two meet inside, one in the scorer and one in the observer, and stay until told.
    let inside = Arc::new(Barrier::new(3));
    let leave = Arc::new(Barrier::new(3));
    let park = |isl: u64| {
        let (inside, leave) = (Arc::clone(&inside), Arc::clone(&leave));
        move |request: &Request| {
            if request.isl == isl {
                inside.wait();
                leave.wait();
            }
        }
    };
    let (in_scorer, in_observer) = (park(1), park(2));
    let pool = fleet(
        Pool::builder()
            .scorer(scorer(move |c: &Columns<'_>, _: &mut [f64]| {
                in_scorer(c.request);
                Ok(())
            }))
            .observer(observer(move |o: &Observed<'_>| in_observer(o.columns.request))),
        8,
    );
    std::thread::scope(|scope| {
        for isl in [1, 2] {
            let pool = pool.clone();
            scope.spawn(move || pool.book(&Request::new(isl)).unwrap().free());
        }
        inside.wait();
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                scope.spawn(move || {
                    for i in 0..2000u64 {
                        pool.book(&Request::new(100 + i % 7)).unwrap().free();
                        // Views come and go beneath the parked ones, slots are reused.
                        if i % 100 == 0 {
                            pool.remove(WorkerId(7));
                            pool.upsert(WorkerSpec::new(7)).unwrap();
                        }
                    }
                })
            })
            .collect();
        for thread in busy {
            thread.join().unwrap();
        }
        leave.wait();
    });
    assert!(pool.snapshot().ranks.iter().all(|(_, load)| load.requests == 0));
}

#[test]
fn a_rank_that_goes_while_host_code_thinks_is_not_chosen() {
    type Change = fn(&Pool);
    let changes: [Change; 4] = [
        |pool| drop(pool.remove(WorkerId(0))),
        |pool| assert!(pool.set_available(WorkerId(0), false)),
        |pool| assert!(pool.set_overloaded(WorkerId(0), true, None)),
        |pool| {
            // It is back at once, busy with a new life's load.
            pool.remove(WorkerId(0));
            pool.upsert(WorkerSpec::new(0)).unwrap();
            pool.import_as(RequestId(1), Rank::new(0, 0), &Request::new(1600)).unwrap();
        },
    ];
    for change in changes {
        let own: Arc<OnceLock<Pool>> = Arc::default();
        let (inside, times) = (Arc::clone(&own), AtomicU64::new(0));
        let pool = fleet(
            Pool::builder().picker(picker(move |c: &Candidates<'_>| {
                let cheapest = (0..c.ranks.len()).min_by(|&a, &b| {
                    c.costs[a].total_cmp(&c.costs[b]).then(c.ranks[a].cmp(&c.ranks[b]))
                });
                if times.fetch_add(1, SeqCst) == 0 {
                    change(inside.get().expect("set below"));
                }
                cheapest.ok_or_else(|| "nobody".into())
            })),
            2,
        );
        assert!(own.set(pool.clone()).is_ok());
        let booked = pool.book(&Request::new(16)).unwrap();
        assert_eq!(booked.rank(), Rank::new(1, 0));
    }
}

#[test]
fn a_slow_scorer_never_lands_on_a_rank_that_filled_up_meanwhile() {
    let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.04)).unwrap();
    // One rank, limit 4 of 100 blocks, one block each: five land however many are inside at once.
    let pool = fleet(
        Pool::builder().reject_thresholds(rejects).scorer(scorer(
            |_: &Columns<'_>, _: &mut [f64]| {
                std::thread::sleep(Duration::from_micros(200));
                Ok(())
            },
        )),
        1,
    );
    for _ in 0..20 {
        let start = Barrier::new(16);
        let landed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    match pool.book(&Request::new(16)) {
                        Ok(booking) => landed.lock().unwrap().push(booking),
                        Err(error) => assert_eq!(error, Error::AllEligibleWorkersOverloaded),
                    }
                });
            }
        });
        assert_eq!(landed.into_inner().unwrap().len(), 5);
    }
}
