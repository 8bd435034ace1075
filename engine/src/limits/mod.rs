//! When ranks are full: thresholds, the limits compiled from them, the live handle.

pub(crate) mod handle;
pub(crate) mod rules;
pub mod thresholds;
