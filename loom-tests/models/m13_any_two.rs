//! Any two ranks change what they hold at once, beside a third one: a world for each of what that
//! one holds, and of what the two held and then hold.
//!
//! Most models of the index ask what somebody saw coming; this one asks whatever is of a size.

use super::at_once::{Change, Part, change};
use vacancy_loom_tests::explore::world;

pub(crate) const BRANCHES: &[&str] = &["changed at once"];

/// Blocks that the third one holds: none to three, and so on the other chain from where it parts.
const STAYS: [Part; 5] = [
    Part { chain: 0, blocks: 0 },
    Part { chain: 0, blocks: 1 },
    Part { chain: 0, blocks: 2 },
    Part { chain: 0, blocks: 3 },
    Part { chain: 1, blocks: 3 },
];

/// The second of the two changes may be on the other chain.
pub(crate) const WORLDS: usize = STAYS.len() * Change::COUNT * 2 * Change::COUNT;

pub(crate) fn run() {
    let (stays, pair) = (world() % STAYS.len(), world() / STAYS.len());
    let (one, other) = (pair % Change::COUNT, pair / Change::COUNT);
    let (chain, other) = (other / Change::COUNT, other % Change::COUNT);
    change(STAYS[stays], [Change::new(0, one), Change::new(chain, other)]);
}
