//! The operations of `vacancy_bench::scenes`, each in the group of its name.

use criterion::{BenchmarkId, Criterion};
use std::cell::RefCell;
use vacancy_bench::scenes;

pub fn bench(c: &mut Criterion) {
    for name in scenes::NAMES {
        let (operation, rest) = name.split_once('/').expect("operation/ranks/variant");
        let mut group = c.benchmark_group(operation);
        // Built only if the bench was asked for; dropped, and with that checked, after it.
        let op = RefCell::new(None);
        let (ranks, variant) = rest.split_once('/').expect("ranks/variant");
        group.bench_function(BenchmarkId::new(ranks, variant), |b| {
            let mut op = op.borrow_mut();
            b.iter(op.get_or_insert_with(|| scenes::make(name, None)));
        });
        group.finish();
    }
}
