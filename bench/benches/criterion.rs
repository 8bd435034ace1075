//! Wall times. Names are paths and stay what they are: `select_book_free/4096/reject`.
//!
//! Ratios within one run are what counts; the absolute times depend on the machine and on who else
//! is on it.

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

#[path = "criterion/pass.rs"]
mod pass;
#[path = "criterion/scenes.rs"]
mod scenes;
#[path = "criterion/threads.rs"]
mod threads;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50)
}

criterion_group! {
    name = benches;
    config = settings();
    targets = scenes::bench, pass::bench, threads::bench
}
criterion_main!(benches);
