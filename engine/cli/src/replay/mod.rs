//! `vacancy replay`: a trace, or the built-in workload, through the engine and through simpler
//! strategies, on a virtual clock.
#![forbid(unsafe_code)]

mod arrivals;
mod baselines;
mod holders;
mod kv;
mod record;
mod router;
mod sim;
mod trace;
mod workload;
