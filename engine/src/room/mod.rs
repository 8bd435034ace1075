//! Room: how a pool says that it has some again, and who is told.

pub(crate) mod pair;
pub(crate) mod park;
pub(crate) mod signal;
pub(crate) mod turn;
