use super::*;
use std::sync::Mutex;

fn entry(i: u64) -> Entry {
    Entry {
        rank: Rank::new(i, 0),
        slot: SlotId::new(i as usize / 64, i as usize % 64),
        life: i + 1000,
        prefill_tokens: i as u32,
        kv_blocks: 2 * i as u32,
        requests: 1,
        added_tokens: 3,
        added_blocks: 4,
        cost: i as f64,
        cached_tokens: 5,
        overlap: [i as f64, 0.5, 0.25],
        max_num_batched_tokens: i.is_multiple_of(2).then_some(i),
        total_kv_blocks: None,
        eligible: true,
        full: i.is_multiple_of(3),
        marked: false,
        class_full: false,
    }
}

fn with_table<R>(n: u64, f: impl FnOnce(Table<'_>) -> R) -> R {
    let (request, arena) = (Request::new(64), Bump::new());
    let mut table = Table::new(&request, 16, n as usize, &arena);
    for i in 0..n {
        table.push(&entry(i));
    }
    f(table)
}

/// Host code made of closures, which also counts what it was shown.
#[derive(Default)]
struct Host<F> {
    f: F,
    chunks: Mutex<Vec<usize>>,
}

fn host<F>(f: F) -> Host<F> {
    Host { f, chunks: Mutex::default() }
}

impl<F: Fn(&Columns<'_>, &mut [bool]) -> Result<(), PolicyError> + Send + Sync> Filter for Host<F> {
    fn name(&self) -> &str {
        "sieve"
    }
    fn filter(&self, columns: &Columns<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        assert!(keep.len() == columns.len() && keep.iter().all(|&k| k));
        self.chunks.lock().unwrap().push(columns.len());
        (self.f)(columns, keep)
    }
}

impl<F: Fn(&Columns<'_>, &mut [f64]) -> Result<(), PolicyError> + Send + Sync> Scorer for Host<F> {
    fn name(&self) -> &str {
        "judge"
    }
    fn score(&self, columns: &Columns<'_>, cost: &mut [f64]) -> Result<(), PolicyError> {
        assert_eq!(columns.cost, cost);
        self.chunks.lock().unwrap().push(columns.len());
        (self.f)(columns, cost)
    }
}

impl<F: Fn(&Candidates<'_>) -> Result<usize, PolicyError> + Send + Sync> Picker for Host<F> {
    fn name(&self) -> &str {
        "hand"
    }
    fn pick(&self, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        (self.f)(candidates)
    }
}

impl<F: Fn(&Observed<'_>) + Send + Sync> Observer for Host<F> {
    fn name(&self) -> &str {
        "eye"
    }
    fn observe(&self, observed: &Observed<'_>) {
        (self.f)(observed);
    }
}

fn failed(result: Result<impl fmt::Debug, Error>) -> String {
    match result.expect_err("fails") {
        Error::PolicyFailed { what } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn columns_come_in_chunks_and_one_index_is_one_rank() {
    for n in [1u64, 63, 64, 65, 127, 128, 129, 200] {
        with_table(n, |mut table| {
            let filter = host(|columns: &Columns<'_>, _: &mut [bool]| {
                for i in 0..columns.len() {
                    let e = entry(columns.ranks[i].worker.0);
                    assert_eq!(columns.prefill_tokens[i], e.prefill_tokens);
                    assert_eq!(columns.kv_blocks[i], e.kv_blocks);
                    assert_eq!(columns.requests[i], e.requests);
                    assert_eq!(columns.added_tokens[i], e.added_tokens);
                    assert_eq!(columns.added_blocks[i], e.added_blocks);
                    assert_eq!(columns.cost[i], e.cost);
                    assert_eq!(columns.cached_tokens[i], e.cached_tokens);
                    assert_eq!([columns.device[i], columns.host[i], columns.disk[i]], e.overlap);
                    assert_eq!(columns.max_num_batched_tokens[i], e.max_num_batched_tokens);
                    assert_eq!(columns.total_kv_blocks[i], e.total_kv_blocks);
                }
                Ok(())
            });
            table.filter(&filter).unwrap();
            assert_eq!(table.len(), n as usize);
            let chunks = filter.chunks.into_inner().unwrap();
            assert_eq!(chunks.iter().sum::<usize>(), n as usize);
            assert!(chunks.iter().all(|&c| c > 0 && c <= CHUNK));
            assert_eq!(chunks.len(), (n as usize).div_ceil(CHUNK));
        });
    }
}

#[test]
fn a_scorer_never_sees_what_the_filter_refused() {
    with_table(200, |mut table| {
        let odd = host(|columns: &Columns<'_>, keep: &mut [bool]| {
            for (keep, rank) in keep.iter_mut().zip(columns.ranks) {
                *keep = rank.worker.0 % 2 == 1;
            }
            Ok(())
        });
        table.filter(&odd).unwrap();
        assert_eq!(table.len(), 100);
        let scorer = host(|columns: &Columns<'_>, cost: &mut [f64]| {
            assert!(columns.ranks.iter().all(|r| r.worker.0 % 2 == 1));
            for (cost, rank) in cost.iter_mut().zip(columns.ranks) {
                assert_eq!(*cost, rank.worker.0 as f64);
                *cost = -*cost;
            }
            Ok(())
        });
        table.score(&scorer).unwrap();
        assert_eq!(*scorer.chunks.lock().unwrap(), [64, 36]);
        let i = table.choose(0.0, &mut Rng::new(0)).unwrap();
        let e = table.entry(i);
        assert_eq!((e.rank, e.slot, e.life), (Rank::new(199, 0), SlotId::new(3, 7), 1199));
        assert_eq!((e.cost, e.kv_blocks, e.overlap[0]), (-199.0, 398, 199.0));
    });
}

#[test]
fn a_filter_may_refuse_everybody() {
    with_table(70, |mut table| {
        let none = host(|_: &Columns<'_>, keep: &mut [bool]| {
            keep.fill(false);
            Ok(())
        });
        table.filter(&none).unwrap();
        assert!(table.is_empty());
        assert_eq!(table.choose(0.0, &mut Rng::new(0)), None);
        assert_eq!(table.choose(1.0, &mut Rng::new(0)), None);
    });
}

#[test]
fn an_error_names_who_failed() {
    with_table(3, |mut table| {
        let filter = host(|_: &Columns<'_>, _: &mut [bool]| Err("no table".into()));
        assert_eq!(failed(table.filter(&filter)), "filter sieve: no table");
        let scorer = host(|_: &Columns<'_>, _: &mut [f64]| Err(PolicyError::new("no model")));
        assert_eq!(failed(table.score(&scorer)), "scorer judge: no model");
        let picker = host(|_: &Candidates<'_>| Err("no hand".into()));
        assert_eq!(failed(table.pick(&picker, &mut Rng::new(0))), "picker hand: no hand");
        // Nothing was filtered or scored by who failed.
        assert_eq!(table.len(), 3);
        assert_eq!(table.entry(2).cost, 2.0);
    });
}

#[test]
fn a_panic_becomes_an_error_with_its_text() {
    with_table(3, |mut table| {
        let filter = host(|_: &Columns<'_>, _: &mut [bool]| panic!("static"));
        assert_eq!(failed(table.filter(&filter)), "filter sieve: panicked: static");
        let scorer = host(|_: &Columns<'_>, _: &mut [f64]| panic!("number {}", 7));
        assert_eq!(failed(table.score(&scorer)), "scorer judge: panicked: number 7");
        let picker = host(|_: &Candidates<'_>| std::panic::panic_any(5u8));
        let what = failed(table.pick(&picker, &mut Rng::new(0)));
        assert_eq!(what, "picker hand: panicked: (no text)");
        table.observe(&host(|_: &Observed<'_>| panic!("blind")));
        assert_eq!(table.len(), 3);
    });
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_is_still_only_an_error() {
    struct Mine;
    impl Drop for Mine {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    with_table(1, |mut table| {
        let scorer = host(|_: &Columns<'_>, _: &mut [f64]| std::panic::panic_any(Mine));
        assert_eq!(failed(table.score(&scorer)), "scorer judge: panicked: (no text)");
    });
}

#[test]
fn a_name_that_panics_is_an_error_as_well() {
    struct Nameless;
    impl Scorer for Nameless {
        fn name(&self) -> &str {
            panic!("who, me?")
        }
        fn score(&self, _: &Columns<'_>, _: &mut [f64]) -> Result<(), PolicyError> {
            Err("failed".into())
        }
    }
    with_table(1, |mut table| {
        assert_eq!(failed(table.score(&Nameless)), "scorer (name panicked: who, me?): failed");
    });
}

#[test]
fn a_cost_that_is_not_finite_names_scorer_and_rank() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        with_table(100, |mut table| {
            let scorer = host(|columns: &Columns<'_>, cost: &mut [f64]| {
                if let Some(i) = columns.ranks.iter().position(|r| r.worker.0 == 70) {
                    cost[i] = bad;
                }
                Ok(())
            });
            let what = failed(table.score(&scorer));
            assert_eq!(what, format!("scorer judge: gave the cost {bad} to rank 70/0"));
            assert_eq!(table.entry(70).cost, 70.0);
        });
    }
}

#[test]
fn a_picker_sees_every_candidate_and_an_index_out_of_range_is_an_error() {
    with_table(130, |table| {
        let last = host(|candidates: &Candidates<'_>| {
            assert_eq!((candidates.ranks.len(), candidates.costs.len()), (130, 130));
            assert_eq!(candidates.request.isl, 64);
            Ok(129)
        });
        assert_eq!(table.pick(&last, &mut Rng::new(0)), Ok(129));
        let beyond = host(|_: &Candidates<'_>| Ok(130));
        let what = failed(table.pick(&beyond, &mut Rng::new(0)));
        assert_eq!(what, "picker hand: picked 130 of 130 candidates");
        // Its random bits follow the seed.
        let random = host(|candidates: &Candidates<'_>| Ok((candidates.random % 130) as usize));
        let draw = |seed| table.pick(&random, &mut Rng::new(seed)).unwrap();
        assert!((0..50).all(|seed| draw(seed) == draw(seed)));
        assert!((0..50).any(|seed| draw(seed) != draw(0)));
    });
}

#[test]
fn an_observer_is_shown_every_rank_once() {
    with_table(150, |table| {
        let seen = Mutex::new(Vec::new());
        table.observe(&host(|observed: &Observed<'_>| {
            let mut seen = seen.lock().unwrap();
            assert_eq!((observed.first, observed.of), (seen.len(), 150));
            for (i, rank) in observed.columns.ranks.iter().enumerate() {
                let e = entry(rank.worker.0);
                assert_eq!((observed.eligible[i], observed.full[i]), (e.eligible, e.full));
                assert!(!observed.marked[i]);
                seen.push(*rank);
            }
        }));
        let want: Vec<Rank> = (0..150).map(|i| Rank::new(i, 0)).collect();
        assert_eq!(seen.into_inner().unwrap(), want);
    });
}

#[test]
fn equal_scores_are_broken_without_bias_and_temperature_follows_them() {
    with_table(8, |mut table| {
        let scorer = host(|columns: &Columns<'_>, cost: &mut [f64]| {
            for (cost, rank) in cost.iter_mut().zip(columns.ranks) {
                *cost = if rank.worker.0 < 4 { -1.0 } else { 9.0 };
            }
            Ok(())
        });
        table.score(&scorer).unwrap();
        let mut rng = Rng::new(3);
        let mut counts = [0i32; 8];
        for _ in 0..8000 {
            counts[table.choose(0.0, &mut rng).unwrap()] += 1;
        }
        // 2,000 each, 39 to a standard deviation.
        assert!(counts[..4].iter().all(|c| (c - 2000).abs() < 190), "{counts:?}");
        assert_eq!(counts[4..], [0; 4]);
        let warm = (0..8000).filter(|_| table.choose(1.0, &mut rng).unwrap() >= 4).count() as f64;
        let share = (-1f64).exp() / (1.0 + (-1f64).exp());
        assert!((warm / 8000.0 - share).abs() < 0.03, "{warm}");
    });
}
