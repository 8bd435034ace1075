//! What all targets share: the fuzzer's entry, and a count of operations.
//!
//! The fuzzer counts executions; how many operations those were is written to the file that
//! `VACANCY_FUZZ_COUNT` names, now and then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use libfuzzer_sys::fuzz_target;

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
/// Seconds since the start at which the count was last written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();

/// Counts what one execution did.
pub fn count(operations: u64) {
    let all = OPERATIONS.fetch_add(operations, Ordering::Relaxed) + operations;
    let now = START.get_or_init(Instant::now).elapsed().as_secs();
    if WRITTEN.swap(now, Ordering::Relaxed) != now
        && let Some(file) = std::env::var_os("VACANCY_FUZZ_COUNT")
    {
        let _ = std::fs::write(file, all.to_string());
    }
}

/// The entry of a target with this body.
#[macro_export]
macro_rules! target {
    ($body:path) => {
        $crate::fuzz_target!(|data: &[u8]| {
            $crate::count($body(data));
        });
    };
}
