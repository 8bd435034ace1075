//! The full pass against a plain sum of the bytes it cannot do without: one row and one limit of 8
//! bytes each for every rank.
//!
//! The pass is `select` of a request without hashes and overlaps, under reject thresholds, over
//! ranks whose loads are all different; so this includes everything that a call does besides the
//! walk (checks, pin, view, the answer). The request carries a weight of its own, because no
//! summary can answer for a weight that it does not know: every rank is looked at.
//!
//! `sum` is `iter().sum()` over two arrays, compiled as the rest is; `sum_avx2` is the same loop
//! compiled for AVX2, where the machine has it.

use criterion::{BenchmarkId, Criterion};
use std::cell::LazyCell;
use std::hint::black_box;
use vacancy::{Overrides, Pool, Rank, RejectThresholds, Request, RequestId, WorkerSpec};
use vacancy_bench::engine::thresholds;
use vacancy_bench::workload::Random;

const RANKS: [usize; 2] = [512, 4096];

/// Ranks with loads that are all different, none past the thresholds. The cheapest is returned
/// with them.
fn distinct(ranks: usize) -> (Pool, Rank) {
    let rejects = RejectThresholds::new(thresholds()).expect("valid thresholds");
    let pool = Pool::builder().block_size(16).reject_thresholds(rejects).lease(None).build();
    let pool = pool.expect("a valid pool");
    let specs: Vec<WorkerSpec> = (0..ranks as u64)
        .map(|id| WorkerSpec::new(id).max_num_batched_tokens(1 << 20).total_kv_blocks(1 << 20))
        .collect();
    pool.reconcile(&specs).expect("a valid fleet");
    let mut loads: Vec<u64> = (1..=ranks as u64).collect();
    let mut random = Random::new(7);
    for i in (1..ranks).rev() {
        loads.swap(i, random.below(i + 1));
    }
    for (rank, &tokens) in loads.iter().enumerate() {
        let id = RequestId(rank as u128);
        pool.import_as(id, Rank::new(rank as u64, 0), &Request::new(tokens)).expect("it fits");
    }
    let cheapest = loads.iter().position(|&tokens| tokens == 1).expect("somebody has 1");
    (pool, Rank::new(cheapest as u64, 0))
}

fn sum(rows: &[u64], limits: &[u64]) -> u64 {
    let add = |sum: u64, &x: &u64| sum.wrapping_add(x);
    rows.iter().fold(0, add).wrapping_add(limits.iter().fold(0, add))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(rows: &[u64], limits: &[u64]) -> u64 {
    let add = |sum: u64, &x: &u64| sum.wrapping_add(x);
    rows.iter().fold(0, add).wrapping_add(limits.iter().fold(0, add))
}

pub fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("pass");
    let mut weights = Overrides::default();
    weights.prefill_scale = Some(0.5);
    let request = Request::new(256).overrides(weights);
    for ranks in RANKS {
        let pool = LazyCell::new(|| distinct(ranks));
        group.bench_function(BenchmarkId::new(ranks.to_string(), "select"), |b| {
            let (pool, cheapest) = &*pool;
            b.iter(|| {
                let choice = pool.select(black_box(&request)).expect("everybody has room");
                assert_eq!(choice.rank, *cheapest);
            });
        });
        let rows: Vec<u64> = (1..=ranks as u64).collect();
        let limits = vec![u64::MAX >> 1; ranks];
        let expected = sum(&rows, &limits);
        group.bench_function(BenchmarkId::new(ranks.to_string(), "sum"), |b| {
            b.iter(|| assert_eq!(sum(black_box(&rows), black_box(&limits)), expected));
        });
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            group.bench_function(BenchmarkId::new(ranks.to_string(), "sum_avx2"), |b| {
                b.iter(|| {
                    // SAFETY: the machine was just asked whether it has AVX2.
                    let sum = unsafe { sum_avx2(black_box(&rows), black_box(&limits)) };
                    assert_eq!(sum, expected);
                });
            });
        }
    }
    group.finish();
}
