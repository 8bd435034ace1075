//! What the fuzz targets do with their bytes, without a fuzzer: so that the same bodies run under
//! `cargo test` on what was found, and no fuzzer is a dependency of the workspace.
//!
//! Each body panics on a defect and on nothing else, does a bounded amount of work, and answers how
//! many operations that was. Private parts of the engine and of the command line are compiled from
//! their own files; the names at the crate's root are the ones that those files know.

mod backends;
mod bytes;
mod ops;
mod policy;
mod rows;
mod trace;

pub use backends::backends;
pub use ops::ops;
pub use policy::policy;
pub use rows::{rows, rows_alone, rows_among_threads};
pub use trace::trace;
pub use vacancy_fuzz_scenario::scenario;

/// A target: takes bytes, answers how many operations it did.
pub type Target = fn(&[u8]) -> u64;

/// Every target, by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("ops", ops),
    ("policy", policy),
    ("scenario", scenario),
    ("trace", trace),
    ("backends", backends),
    ("rows", rows),
];

// The reference and its driver.
#[path = "../../../engine/tests/driver/mod.rs"]
mod driver;
#[path = "../../../engine/tests/model/mod.rs"]
mod model;

// The engine's packed rows and the back-ends of its pass.
#[path = "../../../engine/src/choice.rs"]
mod choice;
#[path = "../../../engine/src/error.rs"]
mod error;
#[path = "../../../engine/src/names.rs"]
mod names;
#[path = "../../../engine/src/request.rs"]
mod request;
#[path = "../../../engine/src/time.rs"]
mod time;
#[path = "../../../engine/src/load"]
mod load {
    pub(crate) mod row;
    pub(crate) mod slot;
}
#[path = "../../../engine/src/pass"]
mod pass {
    pub(crate) mod backend;
    pub(crate) mod lanes;
    // For the back-ends' own tests, which a check of all targets compiles.
    pub(crate) mod pick;
}
/// What the pass knows of blocks.
#[path = "../../../engine/src/fleet"]
mod fleet {
    pub(crate) mod seal;
    pub(crate) mod block {
        pub(crate) fn lanes(set: u64) -> impl Iterator<Item = usize> {
            (0..64).filter(move |lane| set >> lane & 1 == 1)
        }

        /// Where a rank lives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct SlotId(usize, usize);

        impl SlotId {
            pub(crate) const fn new(block: usize, lane: usize) -> SlotId {
                SlotId(block, lane)
            }
        }
    }
}
/// What those files take their atomics from.
mod sync {
    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    }
    pub(crate) use std::sync::Arc;
    pub(crate) const MODELLED: bool = false;
}
