//! Queue: who waits, and how they are let in.

pub(crate) mod baton;
pub(crate) mod waiter;
pub(crate) mod waiting;
