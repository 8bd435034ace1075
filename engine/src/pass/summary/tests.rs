use super::*;
use crate::booking::Booking;
use crate::limits::handle::RejectThresholds;
use crate::limits::thresholds::Thresholds;
use crate::names::WorkerId;
use crate::pins::pin;
use crate::pool::Pool;
use crate::queue::policy::Policy;
use crate::request::{Constraints, Overlap, Overrides, Prompt, Request, Target};
use crate::{RejectScope, Weights, WorkerSpec};
use bumpalo::Bump;

/// Both passes' answers for one request, one after the other, and whether summaries gave the first.
fn both(
    pool: &Pool,
    request: &Request,
    class: Option<usize>,
    seed: u64,
) -> (Verdict, Verdict, bool) {
    let inner = pool.inner();
    let checked = inner.check(request).unwrap();
    let arena = &Bump::new();
    let guard = pin();
    let view = inner.view.load(&guard);
    let mut ask = inner.ask(request, checked, view, arena);
    ask.class = class;
    let tools = inner.tools(arena);
    let by_summary = applies(view, &tools, &ask, &ask.terms());
    let picked = pick_for(view, &tools, &guard, &ask, &mut Rng::new(seed));
    let passed = full::pass(view, &tools, &guard, &ask, &mut Rng::new(seed));
    let walked = full::Pass::new(view, &tools, &guard, &ask).walk(&mut Rng::new(seed));
    // Whether blocks are weighed or glanced at, a full pass finds the same.
    let told = |v: &Verdict| {
        let chosen = v.proposal.map(|p| (p.cost.to_bits(), p.by_sibling, p.class_room));
        (v.eligible, v.full, v.class_full, v.may, chosen)
    };
    assert_eq!(told(&passed), told(&walked), "{request:?}");
    (picked, walked, by_summary)
}

#[track_caller]
fn assert_alike(pool: &Pool, request: &Request, class: Option<usize>, exact: bool, seed: u64) {
    let (picked, walked, _) = both(pool, request, class, seed);
    assert_eq!((picked.eligible, picked.full), (walked.eligible, walked.full));
    assert_eq!(picked.may, walked.may);
    let (Some(p), Some(w)) = (picked.proposal, walked.proposal) else {
        assert!(picked.proposal.is_none() && walked.proposal.is_none(), "{picked:?} {walked:?}");
        return;
    };
    if exact {
        assert_eq!(p.cost.to_bits(), w.cost.to_bits(), "{p:?} {w:?}");
    } else {
        assert!((p.cost - w.cost).abs() <= 1e-9 * w.cost.abs(), "{p:?} {w:?}");
    }
    let best = |p: &Proposal| {
        let own: f64 = p.overlap.iter().sum();
        p.forgone.map_or(own, |(_, blocks)| blocks)
    };
    assert_eq!(best(&p), best(&w), "the largest overlap");
    if let Some(class) = class {
        let inner = pool.inner();
        let guard = pin();
        let rules = &inner.view.load(&guard).rules;
        let spec = &rules.profile.classes()[class];
        let need = spec.full_ranks_to_wait(u64::from(walked.eligible));
        let closed = |v: &Verdict| u64::from(v.class_full) >= need;
        assert_eq!(closed(&picked), closed(&walked), "the gate: {picked:?} {walked:?}");
        if need < u64::from(walked.eligible) {
            assert_eq!(picked.class_full, walked.class_full);
        }
    }
}

/// Books on the first rank of one worker; `None`: it is full.
fn book_on(pool: &Pool, worker: u64, request: Request) -> Option<Booking> {
    let only = Constraints::default().pin(Target::rank(worker, 0));
    pool.book(&request.constraints(only)).ok()
}

/// Prompts that share prefixes: a tree of hashes, each the whole chain above it.
struct Prompts {
    rng: Rng,
    fan: u64,
}

impl Prompts {
    fn next(&mut self) -> Prompt {
        let len = self.rng.below(24) + 1;
        let mut hash = 1;
        let hashes: Vec<u64> = (0..len)
            .map(|at| {
                // Branches where the field's prompts have them: at a few places, not everywhere.
                let branch = if at % 8 == 0 { self.rng.below(self.fan) } else { 0 };
                hash = Rng::new(hash ^ branch << 40 ^ at).bits();
                hash
            })
            .collect();
        Prompt::new(hashes).unwrap()
    }
}

const POLICY: &str = "
default_policy_family: f
uncached_isl_buckets: [{min_tokens: 0, bucket: b}]
policy_classes:
  - {name: all, quantum: 1, prefill_busy_threshold: 300, decode_busy_threshold_frac: 0.3}
  - {name: some, quantum: 1, decode_busy_threshold_frac: 0.2, busy_worker_ratio: 0.4}
  - {name: never, quantum: 1}
  - {name: f, policy_family: f, cache_bucket: b, quantum: 1}
";

fn fleet(rng: &mut Rng, workers: u64) -> (Pool, bool) {
    let mut weights = Weights::default();
    let kind = rng.below(6);
    match kind {
        0 => weights.request = 0.5,
        1 => weights.prefill_scale = 0.3,
        2 => (weights.device, weights.host) = (2.5, 0.0),
        _ => {}
    }
    let mut thresholds = Thresholds::NONE;
    if rng.below(3) > 0 {
        thresholds = thresholds.decode_frac(rng.unit());
        if rng.below(2) == 0 {
            thresholds = thresholds.prefill_frac(rng.unit() * 2.0);
        }
    }
    let scope = if rng.below(2) == 0 { RejectScope::Worker } else { RejectScope::Rank };
    let tracked = rng.below(8);
    let pool = Pool::builder()
        .block_size(if kind == 3 { 48 } else { 16 })
        .weights(weights)
        .track_prefill(tracked != 0)
        .track_blocks(tracked != 1)
        .reject_scope(scope)
        .reject_thresholds(RejectThresholds::new(thresholds).unwrap())
        .policy(Policy::from_yaml(POLICY).unwrap().profile(None))
        .build()
        .unwrap();
    let several = rng.below(2) == 0;
    let specs: Vec<WorkerSpec> = (0..workers)
        .map(|id| {
            let mut spec = WorkerSpec::new(id);
            if several {
                spec = spec.ranks(0, 1 + rng.below(4) as u32);
            }
            if rng.below(10) > 0 {
                spec = spec.total_kv_blocks(64 + rng.below(3) * 64).max_num_batched_tokens(1024);
            }
            spec
        })
        .collect();
    pool.reconcile(&specs).unwrap();
    (pool, kind != 1)
}

fn overlaps(rng: &mut Rng, workers: u64) -> Vec<Overlap> {
    let listed = [1, 3, 40, workers][rng.below(4) as usize];
    (0..listed)
        .map(|_| Overlap {
            rank: Rank::new(rng.below(workers + 2), rng.below(2) as u32),
            device: [0.0, 1.0, 4.0, 7.5][rng.below(4) as usize],
            host: rng.below(3) as f64,
            disk: rng.below(2) as f64,
        })
        .collect()
}

/// Random fleets, loads, prompts, overlaps, marks and thresholds; bookings and frees in between, so
/// that some summaries stand and others do not.
fn picks_are_the_full_pass_s(seed: u64, workers: u64, steps: u32) {
    let mut rng = Rng::new(seed);
    let (pool, exact) = fleet(&mut rng, workers);
    let mut prompts = Prompts { rng: Rng::new(seed), fan: 1 + rng.below(6) };
    let mut live: Vec<Booking> = Vec::new();
    // A system prompt on a share of the ranks.
    let system = prompts.next();
    let share = [0, 1, 10, 50, 100][rng.below(5) as usize];
    for id in 0..workers {
        if rng.below(100) < share {
            let request = Request::new(system.len() as u64 * 16).prompt(system.clone());
            live.extend(book_on(&pool, id, request));
        }
    }
    for step in 0..steps {
        match rng.below(12) {
            0 => _ = pool.set_available(WorkerId(rng.below(workers)), rng.below(3) > 0),
            1 => {
                let id = WorkerId(rng.below(workers));
                let _ = pool.set_overloaded(id, rng.below(3) == 0, None);
            }
            2 if !live.is_empty() => {
                drop(live.swap_remove(rng.below(live.len() as u64) as usize));
            }
            3 if !live.is_empty() => {
                live[rng.below(live.len() as u64) as usize].prefill_completed();
            }
            4 if !live.is_empty() => {
                let booking = &live[rng.below(live.len() as u64) as usize];
                booking.add_output_blocks(rng.below(3) as u32).unwrap();
            }
            5 if step % 7 == 0 => drop(pool.remove(WorkerId(rng.below(workers)))),
            6 if step % 7 == 0 => drop(pool.upsert(WorkerSpec::new(workers + 1)).unwrap()),
            _ => {}
        }
        let isl = rng.below(500);
        let mut request = Request::new(isl);
        if rng.below(4) > 0 {
            let prompt = if rng.below(2) == 0 { system.clone() } else { prompts.next() };
            request = Request::new(prompt.len() as u64 * 48).prompt(prompt);
        }
        if rng.below(3) == 0 {
            request = request.overlaps(overlaps(&mut rng, workers));
        }
        let class = [None, Some(0), Some(1), Some(2)][rng.below(4) as usize];
        assert_alike(&pool, &request, class, exact, u64::from(step));
        if rng.below(3) > 0
            && let Ok(booking) = pool.book(&request)
        {
            live.push(booking);
        }
    }
}

#[test]
fn a_pick_from_summaries_costs_what_the_full_pass_finds() {
    for seed in 0..60 {
        let workers = [1, 3, 60, 130, 700, 2500][seed as usize % 6];
        picks_are_the_full_pass_s(seed, workers, 150);
    }
}

#[test]
fn summaries_answer_requests_of_the_usual_form_and_no_others() {
    let pool = Pool::builder().build().unwrap();
    for id in 0..70 {
        pool.upsert(WorkerSpec::new(id)).unwrap();
    }
    let usual = |request: &Request| both(&pool, request, None, 0).2;
    assert!(usual(&Request::new(64)));
    assert!(usual(&Request::new(64).overlaps(vec![Overlap::device(Rank::new(1, 0), 2.0)])));
    assert!(usual(&Request::new(2000).prompt(Prompts { rng: Rng::new(3), fan: 2 }.next())));
    assert!(usual(&Request::new(64).overrides(Overrides { device: Some(0.5), ..<_>::default() })));
    let over = |overrides: Overrides| Request::new(64).overrides(overrides);
    let under = |constraints: Constraints| Request::new(64).constraints(constraints);
    for unusual in [
        under(Constraints::default().pin(Target::worker(3))),
        under(Constraints { affinity: Some(Target::worker(3)), ..<_>::default() }),
        under(Constraints { deny: vec![WorkerId(3)], ..<_>::default() }),
        Request::new(64).lora("a"),
        over(Overrides { track_prefill: Some(false), ..<_>::default() }),
        over(Overrides { prefill_scale: Some(2.0), ..<_>::default() }),
        over(Overrides { temperature: Some(0.5), ..<_>::default() }),
    ] {
        assert!(!usual(&unusual), "{unusual:?}");
    }
}

/// How often each rank is proposed.
fn draws(pool: &Pool, request: &Request, n: u64) -> Vec<u64> {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..n {
        let (picked, _, by_summary) = both(pool, request, None, seed * 7 + 1);
        assert!(by_summary);
        *counts.entry(picked.proposal.unwrap().rank).or_insert(0) += 1;
    }
    counts.into_values().collect()
}

fn assert_even(counts: &[u64], cells: usize) {
    assert_eq!(counts.len(), cells);
    let each = counts.iter().sum::<u64>() as f64 / cells as f64;
    let chi: f64 = counts.iter().map(|&c| (c as f64 - each).powi(2) / each).sum();
    // Five standard deviations.
    let df = (cells - 1) as f64;
    assert!(chi < df + 5.0 * (2.0 * df).sqrt(), "{chi} {df}");
}

#[test]
fn ties_are_drawn_evenly_whatever_made_them_equal() {
    let pool = Pool::builder().seed(1).build().unwrap();
    // Blocks of 64 and one of 22, in two spans.
    let workers = 64 * 17 + 22;
    for id in 0..workers {
        pool.upsert(WorkerSpec::new(id)).unwrap();
    }
    let request = Request::new(160);
    assert_even(&draws(&pool, &request, 30 * workers), workers as usize);

    // Ranks are equal in three ways: they carry the same, they hold a run of the prompt and save
    // what it adds, or an overlap saves them as much.
    let mut prompts = Prompts { rng: Rng::new(5), fan: 50 };
    let long = std::iter::repeat_with(|| prompts.next()).find(|p| p.len() == 10).unwrap();
    let mut live = Vec::new();
    for id in 0..workers {
        let prompt = if id % 3 == 0 { Some(&long) } else { None };
        let mut request = Request::new(160);
        if let Some(prompt) = prompt {
            request = request.prompt(prompt.clone());
        }
        let booking = book_on(&pool, id, request).unwrap();
        if id % 3 != 1 {
            booking.prefill_completed();
        }
        live.push(booking);
    }
    // Id 0 mod 3 holds the ten blocks that it carries (cost 10 + 0 more); id 2 mod 3 carries ten
    // others and, for a request without hashes, is its equal.
    let holders = (0..workers).filter(|id| id % 3 == 0).count();
    let request = Request::new(160).prompt(long.clone());
    assert_even(&draws(&pool, &request, 30 * holders as u64), holders);
    let others = (0..workers).filter(|id| id % 3 != 1).count();
    assert_even(&draws(&pool, &Request::new(160), 30 * others as u64), others);
    // With overlaps worth exactly what the holders save, ten listed ones join them.
    let listed: Vec<Overlap> = (0..10)
        .map(|i| Overlap::device(Rank::new(2 + 3 * i, 0), 10.0))
        .chain([Overlap::device(Rank::new(0, 0), 0.0)])
        .collect();
    let request = request.overlaps(listed);
    assert_even(&draws(&pool, &request, 30 * (holders as u64 + 10)), holders + 10);
}

#[test]
fn nobody_is_believed_to_have_room_once_all_are_full() {
    let thresholds = Thresholds::NONE.decode_frac(0.5);
    let pool = Pool::builder()
        .reject_thresholds(RejectThresholds::new(thresholds).unwrap())
        .build()
        .unwrap();
    for id in 0..200 {
        pool.upsert(WorkerSpec::new(id).total_kv_blocks(4)).unwrap();
    }
    // Three blocks each: the first booking is over the limit of two.
    let request = Request::new(48);
    let mut live: Vec<Booking> = (0..200).map(|_| pool.book(&request).unwrap()).collect();
    for _ in 0..300 {
        let (picked, _, by_summary) = both(&pool, &request, None, 1);
        assert!(by_summary && picked.proposal.is_none());
        assert_eq!((picked.full, picked.may, picked.eligible), (200, 0, 200));
        assert!(pool.book(&request).is_err());
        let rank = live.pop().unwrap().rank();
        let booking = pool.book(&request).unwrap();
        assert_eq!(booking.rank(), rank, "the only one with room");
        live.insert(0, booking);
    }
}

#[test]
fn what_a_span_came_to_is_used_again_only_while_it_is_what_its_blocks_come_to() {
    let pool = Pool::builder().build().unwrap();
    for id in 0..200 {
        pool.upsert(WorkerSpec::new(id)).unwrap();
    }
    let view = |look: &dyn Fn(&Board)| {
        let guard = pin();
        look(pool.inner().view.load(&guard).boards[0].of(guard.seat()));
    };
    let kept = || {
        let kept = std::cell::Cell::new(None);
        view(&|board| kept.set(board.still(&board.turns.take().unwrap())));
        kept.get()
    };
    let request = Request::new(64);
    assert_eq!(kept(), None, "nothing was summed up yet");
    pool.select(&request).unwrap();
    let (idle, ties) = (kept().unwrap(), |words: [u64; 2]| Counts(words[1]).ties());
    assert_eq!(ties(idle), 200);
    // A change that its block does not show, and one that it does.
    drop(pool.book(&request).unwrap());
    pool.select(&request).unwrap();
    assert_eq!(kept(), Some(idle));
    let booking = pool.book(&request).unwrap();
    pool.select(&request).unwrap();
    assert_eq!(ties(kept().unwrap()), 199);
    // A result that comes late is refused. Whoever brought it may have noted a block all the same.
    view(&|board| {
        let (sum, words) = board.whole.latest().unwrap();
        let turn = board.turns.take().unwrap();
        board.put_whole(&turn, sum.wrapping_sub(1 << 40), [0, 0]);
        assert_eq!(board.whole.latest(), Some((sum, words)));
        assert_eq!(board.still(&turn), None);
    });
    drop(booking);
    pool.select(&request).unwrap();
    assert_eq!(kept(), Some(idle), "found anew");
}

#[test]
fn a_view_s_summaries_are_of_its_own_limits() {
    let rejects = RejectThresholds::new(Thresholds::NONE).unwrap();
    let pool = Pool::builder().reject_thresholds(rejects.clone()).build().unwrap();
    for id in 0..100 {
        pool.upsert(WorkerSpec::new(id).total_kv_blocks(10)).unwrap();
    }
    let request = Request::new(16);
    let _live: Vec<Booking> =
        (0..100).map(|id| book_on(&pool, id, request.clone()).unwrap()).collect();
    let old_guard = pin();
    let inner = pool.inner();
    let old = inner.view.load(&old_guard);
    for round in 0..20 {
        let full = round % 2 == 1;
        rejects
            .set(if full { Thresholds::NONE.decode_frac(0.0) } else { Thresholds::NONE })
            .unwrap();
        let (picked, _, _) = both(&pool, &request, None, round);
        assert_eq!(picked.full, if full { 100 } else { 0 });
        assert_eq!(picked.proposal.is_none(), full);
        // Who still looks at the old view finds, and leaves behind, what holds there.
        let arena = &Bump::new();
        let ask = inner.ask(&request, inner.check(&request).unwrap(), old, arena);
        let verdict = pick_for(old, &inner.tools(arena), &old_guard, &ask, &mut Rng::new(round));
        assert_eq!((verdict.full, verdict.may), (0, 100));
    }
}

#[test]
fn marks_that_have_lapsed_do_not_count_although_no_timer_ran() {
    let pool = Pool::builder().build().unwrap();
    for id in 0..3 {
        pool.upsert(WorkerSpec::new(id)).unwrap();
        let until = crate::Time::from_millis(10 * (id + 1));
        pool.set_overloaded(WorkerId(id), true, Some(until));
    }
    let at = |ms| Request::new(16).at(crate::Time::from_millis(ms));
    assert!(pool.select(&at(9)).is_err());
    assert_eq!(pool.select(&at(10)).unwrap().rank, Rank::new(0, 0));
    assert!(pool.select(&at(30)).is_ok());
}

/// Threads book and free; the limits hold at every landing, and when they have stopped, summaries
/// and rows say the same.
#[test]
fn under_churn_limits_hold_and_at_rest_summaries_are_true() {
    let thresholds = Thresholds::NONE.decode_frac(0.5);
    // Three blocks, and ten: what holders of a run come to is kept in more than one shelf then.
    for (seed, workers, most) in [(0, 150, 120), (1, 600, 600)] {
        let pool = Pool::builder()
            .reject_thresholds(RejectThresholds::new(thresholds).unwrap())
            .seed(seed)
            .build()
            .unwrap();
        for id in 0..workers {
            pool.upsert(WorkerSpec::new(id).total_kv_blocks(64)).unwrap();
        }
        let mut prompts = Prompts { rng: Rng::new(9), fan: 3 };
        let mut alike = |prompts_to_ask: u64, at: u64| {
            for seed in 0..prompts_to_ask {
                let prompt = prompts.next();
                let request = Request::new(prompt.len() as u64 * 16).prompt(prompt);
                assert_alike(&pool, &request, None, true, at * 100 + seed);
            }
        };
        let mut live: [Vec<Booking>; 3] = Default::default();
        for round in 0..100 {
            std::thread::scope(|scope| {
                for (thread, live) in live.iter_mut().enumerate() {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut rng = Rng::new(round * 10 + thread as u64);
                        // All of them the same, so that they meet.
                        let mut prompts = Prompts { rng: Rng::new(seed + round), fan: 3 };
                        for _ in 0..200 {
                            let prompt = prompts.next();
                            let request = Request::new(prompt.len() as u64 * 16).prompt(prompt);
                            if let Ok(booking) = pool.book(&request) {
                                live.push(booking);
                            }
                            while live.len() > most {
                                drop(live.swap_remove(rng.below(live.len() as u64) as usize));
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    for id in workers..workers + 5 {
                        pool.upsert(WorkerSpec::new(id).total_kv_blocks(64)).unwrap();
                        std::thread::yield_now();
                        pool.remove(WorkerId(id));
                    }
                });
            });
            alike(20, round);
        }
        assert!(live.iter().map(Vec::len).sum::<usize>() > workers as usize);
        drop(live);
        alike(20, 100);
        for (rank, load) in pool.snapshot().ranks {
            assert_eq!((load.kv_blocks, load.requests), (0, 0), "{rank}");
        }
    }
}
