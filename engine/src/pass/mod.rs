//! The pass over the blocks: one walk that judges every rank, projects the request onto it, and
//! finds the cheapest.

pub(crate) mod backend;
pub(crate) mod custom;
pub(crate) mod full;
mod glance;
pub(crate) mod lanes;
pub(crate) mod pick;
pub(crate) mod summary;
