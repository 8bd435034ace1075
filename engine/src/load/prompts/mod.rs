//! Prompt blocks held: per rank, exact, and for the whole pool at once, for selections.
//!
//! [`RankPrompts`] is what one rank holds, under that rank's own lock: rows are charged by it.
//! [`PromptIndex`] tells a selection, which takes no lock, how many blocks of a prompt each rank
//! holds. A booking asks the first what is missing, changes the row, and enters its chain in both,
//! all under the rank's lock; leaving is the same backwards. See the modules for what always holds.

mod chain;
mod edges;
mod index;
mod rank;
mod run;
mod set;
mod table;

pub(crate) use index::{PromptIndex, RunView};
pub(crate) use rank::{At, Held, RankPrompts};

#[cfg(test)]
mod tests;
