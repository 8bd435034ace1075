//! Instruction counts of the operations in `vacancy_bench::scenes`, under callgrind.
//!
//! Run by `cargo perf gate`, which brings the runner; by hand: `cargo bench -p vacancy-bench
//! --features callgrind --bench callgrind`, with `iai-callgrind-runner` of the same version on the
//! path. Building the fleet, checking it and a first round of operations happen outside of what is
//! counted. The back-end is AVX2 where the machine has it, because the emulator knows no AVX-512.
//!
//! Read-modify-writes are counted too (`--collect-bus`, event `Ge`): one more of them per booking
//! is a few instructions in thousands, and costs more than all of those when two threads share the
//! line.

#![expect(missing_docs, reason = "what the macros make is for their runner")]

use iai_callgrind::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use vacancy::Backend;
use vacancy_bench::scenes::{self, OPERATIONS, Op};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes the operation, and runs it often enough that everything lazy has happened.
fn prepare(name: &str) -> Op {
    #[cfg(target_arch = "x86_64")]
    let backend = is_x86_feature_detected!("avx2").then_some(Backend::Avx2);
    #[cfg(not(target_arch = "x86_64"))]
    let backend: Option<Backend> = None;
    let mut op = scenes::make(name, backend);
    for _ in 0..OPERATIONS {
        op();
    }
    op
}

/// What the gate must notice: one read-modify-write for every booking.
#[cfg(feature = "control")]
fn control() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static EXTRA: AtomicU64 = AtomicU64::new(0);
    EXTRA.fetch_add(1, Ordering::Relaxed);
}

#[library_benchmark(setup = prepare)]
#[bench::select_book_free_64_off("select_book_free/64/off")]
#[bench::select_book_free_64_reject("select_book_free/64/reject")]
#[bench::select_book_free_512_off("select_book_free/512/off")]
#[bench::select_book_free_512_reject("select_book_free/512/reject")]
#[bench::select_book_free_512_gate("select_book_free/512/gate")]
#[bench::select_book_free_512_pair("select_book_free/512/pair")]
#[bench::select_book_free_4096_off("select_book_free/4096/off")]
#[bench::select_book_free_4096_reject("select_book_free/4096/reject")]
#[bench::select_book_free_4096_admit("select_book_free/4096/admit")]
#[bench::select_book_free_4096_gate("select_book_free/4096/gate")]
#[bench::select_book_free_4096_pair("select_book_free/4096/pair")]
#[bench::select_book_free_65536_reject("select_book_free/65536/reject")]
#[bench::select_4096_off("select/4096/off")]
#[bench::pass_4096_off("pass/4096/off")]
#[bench::pass_4096_reject("pass/4096/reject")]
#[bench::overlap_4096_eight("overlap/4096/eight")]
#[bench::long_prefix_4096_none("long_prefix/4096/none")]
#[bench::long_prefix_4096_tenth("long_prefix/4096/tenth")]
#[bench::long_prefix_4096_half("long_prefix/4096/half")]
#[bench::long_prefix_4096_all("long_prefix/4096/all")]
#[bench::long_prompt_4096_6250("long_prompt/4096/6250")]
#[bench::constrained_4096_taint("constrained/4096/taint")]
#[bench::constrained_4096_allow("constrained/4096/allow")]
#[bench::constrained_4096_pin("constrained/4096/pin")]
#[bench::temperature_4096_warm("temperature/4096/warm")]
#[bench::refuse_64_reject("refuse/64/reject")]
#[bench::refuse_4096_reject("refuse/4096/reject")]
#[bench::release_to_admitted_64_gate("release_to_admitted/64/gate")]
#[bench::release_to_admitted_4096_gate("release_to_admitted/4096/gate")]
fn operations(mut op: Op) -> Op {
    for _ in 0..OPERATIONS {
        op();
        #[cfg(feature = "control")]
        control();
    }
    op
}

library_benchmark_group!(name = engine; benchmarks = operations);

main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::with_args(["--collect-bus=yes", "--cache-sim=no"]));
    library_benchmark_groups = engine
);
