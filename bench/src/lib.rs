//! What every bench of this project measures on: one fleet, one stream of prompts, one way to tell
//! that an answer is right. The engine's own benches, its instruction counts and the benches of
//! other engines (`bench/peers`) all take it from here.
//!
//! - [`workload`]: the fleet and the prompts, in plain numbers that belong to no engine;
//! - [`oracle`]: the cheapest rank for a prompt, by looking at all of them in plain maps;
//! - [`engine`]: a [`vacancy::Pool`] with that fleet in it, and its checks;
//! - [`scenes`]: the operations that are measured, by name;
//! - [`measure`]: ratios of two things, measured in turn.
#![forbid(unsafe_code)]

pub mod engine;
pub mod measure;
pub mod oracle;
pub mod scenes;
pub mod threads;
pub mod workload;
