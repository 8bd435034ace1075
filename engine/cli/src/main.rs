//! The command line of `vacancy`.
#![forbid(unsafe_code)]

mod replay;

fn main() {}
