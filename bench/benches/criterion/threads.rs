//! One thread against two, each with a handle of its own on one pool of 4,096 ranks.
//!
//! Every thread does the whole number of operations that criterion asks for, and the time that is
//! reported is the time until the last one is done over the number of threads: the wall time *per
//! operation*. Throughput of two over that of one is `one / two`.

use criterion::{BenchmarkId, Criterion};
use std::cell::LazyCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use vacancy_bench::engine::{Bench, Mode};

/// The time per operation, times `iters`.
pub fn run(bench: &Bench, threads: usize, iters: u64) -> Duration {
    let barrier = Barrier::new(threads + 1);
    let start = std::thread::scope(|scope| {
        for thread in 0..threads {
            let (pool, barrier) = (bench.pool.clone(), &barrier);
            scope.spawn(move || {
                // Each thread is elsewhere in the stream.
                let mut at = thread * bench.requests.len() / threads;
                barrier.wait();
                for _ in 0..iters {
                    at += 1;
                    drop(black_box(bench.book(&pool, at)));
                }
            });
        }
        barrier.wait();
        Instant::now()
    });
    start.elapsed() / threads as u32
}

pub fn bench(c: &mut Criterion) {
    let bench = LazyCell::new(|| Bench::new(4096, Mode::Reject));
    let mut group = c.benchmark_group("threads");
    for (threads, name) in [(1, "one"), (2, "two")] {
        group.bench_function(BenchmarkId::new("4096", name), |b| {
            b.iter_custom(|iters| run(&bench, threads, iters));
            bench.check_rows();
        });
    }
    group.finish();
}
