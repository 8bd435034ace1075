//! Who can be chosen: worker specs, the slots and blocks that ranks live in, the snapshot that
//! selections work on, and the sets of eligible lanes.

pub(crate) mod block;
pub(crate) mod board;
pub(crate) mod cell;
pub(crate) mod eligible;
pub(crate) mod seal;
pub mod spec;
pub(crate) mod tags;
pub(crate) mod view;
pub(crate) mod writer;
