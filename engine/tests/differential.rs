//! The engine against the naive reference, step by step.
#![forbid(unsafe_code)]

mod model;
