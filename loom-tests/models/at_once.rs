//! Ranks that change what they hold of two chains at once, beside one that holds some of one of
//! them all the while: afterwards the index says of each what it holds, and nothing is left when
//! all have gone.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

/// Two chains that part before their last block.
const CHAINS: [[u64; 3]; 2] = [[1, 2, 3], [1, 2, 4]];
/// The slot of the rank that holds what it holds all the while.
const STAYS: usize = 3;

/// So many blocks of one of the chains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) chain: usize,
    pub(crate) blocks: u32,
}

/// What a rank holds of one of the chains, and what it holds then; never the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    chain: usize,
    from: u32,
    to: u32,
}

impl Change {
    /// How many there are on one chain.
    pub(crate) const COUNT: usize = 12;

    /// One of them.
    pub(crate) fn new(chain: usize, number: usize) -> Change {
        let (from, by) = (number as u32 / 3, 1 + number as u32 % 3);
        Change { chain, from, to: (from + by) % 4 }
    }

    fn make(self, prompts: &Prompts, slot: usize) {
        // Threads have the numbers of their ranks; the one that stays is the first thread's.
        prompts.change(slot % STAYS, slot as u32, &CHAINS[self.chain], self.from, self.to);
    }

    fn back(self) -> Change {
        Change { from: self.to, to: 0, ..self }
    }
}

/// Makes the changes at once.
pub(crate) fn change<const N: usize>(stays: Part, changes: [Change; N]) {
    let prompts = Arc::new(Prompts::new());
    let whole = Change { chain: stays.chain, from: 0, to: stays.blocks };
    let mut all = vec![(STAYS, whole)];
    whole.make(&prompts, STAYS);
    for (slot, change) in changes.into_iter().enumerate() {
        Change { from: 0, to: change.from, ..change }.make(&prompts, slot);
        all.push((slot, change));
    }
    let others: Vec<_> = (1..N)
        .map(|slot| {
            let prompts = prompts.clone();
            spawn(move || changes[slot].make(&prompts, slot))
        })
        .collect();
    changes[0].make(&prompts, 0);
    for other in others {
        other.join().expect("it ends");
    }
    reached("changed at once");
    for &(slot, change) in &all {
        let found = prompts.at_rest(slot as u32, &CHAINS[change.chain]);
        let told = format!("{slot} of {stays:?} and {changes:?}");
        assert!(found >= change.to, "at rest the index knows less than a rank holds: {told}");
        assert!(found <= change.to, "at rest the index says more than a rank holds: {told}");
    }
    for &(slot, change) in &all {
        change.back().make(&prompts, slot);
    }
    prompts.assert_nothing_left(&CHAINS.each_ref().map(|chain| &chain[..]), STAYS as u32 + 1);
}
