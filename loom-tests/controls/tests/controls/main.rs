//! The models' controls: what `build.rs` made of `matrix.rs`.

#![expect(
    clippy::all,
    reason = "controls are wrong on purpose, and the engine's files are linted where they are"
)]

pub(crate) use vacancy_loom_tests::{prefetch, sync};

include!(concat!(env!("OUT_DIR"), "/variants.rs"));
