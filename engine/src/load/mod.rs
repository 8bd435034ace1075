//! What ranks carry: packed rows and what may be done to them.

pub(crate) mod events;
pub(crate) mod ids;
pub(crate) mod mirror;
pub(crate) mod monitor;
pub(crate) mod prompts;
pub(crate) mod row;
pub(crate) mod slot;
pub(crate) mod told;
