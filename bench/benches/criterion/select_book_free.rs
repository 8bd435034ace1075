//! One request's way through a pool: chosen, booked, given back. The live load stays as it is.

use criterion::{BenchmarkId, Criterion};
use std::cell::LazyCell;
use std::hint::black_box;
use vacancy_bench::engine::{Bench, Mode};

pub fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("select_book_free");
    for ranks in [64, 512, 4096] {
        for mode in [Mode::Off, Mode::Reject, Mode::Gate] {
            // Built only if the bench was asked for.
            let bench = LazyCell::new(|| Bench::new(ranks, mode));
            let mut at = 0;
            group.bench_function(BenchmarkId::new(ranks.to_string(), mode.name()), |b| {
                b.iter(|| {
                    at += 1;
                    drop(black_box(bench.book(&bench.pool, at)));
                });
                bench.check_rows();
            });
        }
    }
    group.finish();
}
