//! Room: how a pool says that it has some again, and how load is set aside on it.

pub(crate) mod hold;
pub(crate) mod pair;
pub(crate) mod park;
pub(crate) mod signal;
pub(crate) mod turn;
