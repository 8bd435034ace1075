//! One thread against two, each with a handle of its own on one pool of 4,096 ranks.
//!
//! Every thread does the whole number of operations that criterion asks for, and the time that is
//! reported is the time until the last one is done over the number of threads: the wall time *per
//! operation*. Throughput of two over that of one is `one / two`.

use criterion::{BenchmarkId, Criterion};
use std::cell::LazyCell;
use vacancy_bench::engine::{Bench, Mode};
use vacancy_bench::threads::{Work, batch};

pub fn bench(c: &mut Criterion) {
    let bench = LazyCell::new(|| Bench::new(4096, Mode::Reject));
    let mut group = c.benchmark_group("threads");
    for (threads, name) in [(1, "one"), (2, "two")] {
        group.bench_function(BenchmarkId::new("4096", name), |b| {
            let work: Vec<Work<'_>> = (0..threads).map(|_| Work::on(&bench)).collect();
            let work: Vec<&Work<'_>> = work.iter().collect();
            b.iter_custom(|iters| batch(&work, iters as usize).wall / threads as u32);
            bench.check_rows();
        });
    }
    group.finish();
}
