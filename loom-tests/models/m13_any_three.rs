//! As any two, any three ranks, on one chain.

use super::at_once::{Change, Part, change};
use vacancy_loom_tests::explore::world;

pub(crate) const BRANCHES: &[&str] = &["changed at once"];

/// A fourth one holds one to three blocks.
const STAYS: usize = 3;

/// Three of the changes, in whichever order.
const THREES: usize = Change::COUNT * (Change::COUNT + 1) * (Change::COUNT + 2) / 6;

pub(crate) const WORLDS: usize = STAYS * THREES;

pub(crate) fn run() {
    let (stays, three) = (1 + world() % STAYS, world() / STAYS);
    let mut threes =
        (0..Change::COUNT).flat_map(|a| (0..=a).flat_map(move |b| (0..=b).map(move |c| [a, b, c])));
    let three = threes.nth(three).expect("there are as many");
    change(Part { chain: 0, blocks: stays as u32 }, three.map(|number| Change::new(0, number)));
}
