//! Who waits: the policy, the classes, their order, whose turn it is, and how a wait ends.
//!
//! Plain data, without atomics, clock or rank (a lane is known by an opaque key):
//! - [`policy`] (and `yaml`): what the host configures, valid once it exists.
//! - `order`: the place of a request within its class, as one integer key.
//! - `lanes`: the entries of one class, with a lane for each pin and a bounded look ahead.
//! - `drr`: deficit round robin between the classes.
//! - `due`: when what waits is due.
//! - `backlog`: all of them together, as one value to be kept under a lock.
//!
//! Protocols, which the model checker runs as they stand:
//! - `waiter`: one who waits, and the one way each wait ends.
//! - `waiting`: the lock around the backlog, its count, and its registration at room signals.
//! - `baton`: who drains, and how a mark is never lost.

mod backlog;
pub(crate) mod baton;
mod drr;
mod due;
mod lanes;
mod order;
pub mod policy;
pub(crate) mod waiter;
pub(crate) mod waiting;
#[cfg(feature = "yaml")]
pub mod yaml;

pub(crate) use backlog::{Arrival, Blocked, Candidate, EntryId, Purpose, Queue, Round};
pub(crate) use order::Rating;
