//! What the models run on: a stand-in for the engine's `sync`, and the explorer.
//!
//! The models themselves are in `models/`, the table of models and controls in `matrix.rs`; see
//! `README.md`. `build.rs` makes the modules that they are compiled in.

pub mod explore;
pub mod prefetch;
pub mod sync;
