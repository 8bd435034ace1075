//! What decode ranks carry, counted a second time: by the contract's rules, from what landed and
//! left, and without asking the strategy. Whether a landing was past a limit is judged by this
//! count.
//!
//! What always holds: a rank's blocks are the prompt blocks of those on it, a block that several
//! share counted once, and the blocks that their answers have grown into.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use rustc_hash::FxHashMap;

/// The decode ranks' rows.
pub struct Ledger {
    block: u32,
    rows: Vec<Row>,
    /// Who is where, and how many blocks it does not share.
    live: FxHashMap<u32, (u32, u64)>,
}

#[derive(Default)]
struct Row {
    blocks: u64,
    /// How many of those on the rank have a block.
    users: FxHashMap<u64, u32>,
}

/// What a landing did to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Blocks on the rank just before.
    pub before: u64,
    /// Blocks it added.
    pub added: u64,
}

impl Ledger {
    /// Empty rows of `ranks` ranks with blocks of `block` tokens.
    pub fn new(ranks: usize, block: u32) -> Ledger {
        let rows = (0..ranks).map(|_| Row::default()).collect();
        Ledger { block, rows, live: FxHashMap::default() }
    }

    /// Blocks on a rank.
    pub fn blocks(&self, rank: u32) -> u64 {
        self.rows[rank as usize].blocks
    }

    /// Where a request is.
    pub fn rank_of(&self, request: u32) -> Option<u32> {
        self.live.get(&request).map(|&(rank, _)| rank)
    }

    /// A hold or a leg of a request lands. `O(prompt blocks)`. The request must not be anywhere.
    pub fn enter(&mut self, request: u32, rank: u32, arrival: &Arrival) -> Entered {
        let row = &mut self.rows[rank as usize];
        let before = row.blocks;
        let unshared = match &arrival.prompt {
            None => u64::from(arrival.prompt_blocks(self.block)),
            Some(prompt) => {
                for &hash in prompt.hashes() {
                    let users = row.users.entry(hash).or_insert(0);
                    row.blocks += u64::from(*users == 0);
                    *users += 1;
                }
                0
            }
        };
        row.blocks += unshared;
        let there = self.live.insert(request, (rank, unshared));
        debug_assert!(there.is_none(), "request {request} is on two decode ranks");
        Entered { before, added: row.blocks - before }
    }

    /// An answer has grown into further blocks.
    pub fn grow(&mut self, request: u32, blocks: u64) {
        if let Some((rank, unshared)) = self.live.get_mut(&request) {
            *unshared += blocks;
            self.rows[*rank as usize].blocks += blocks;
        }
    }

    /// A hold or leg is given back. Again is a no-op. `O(prompt blocks)`.
    pub fn leave(&mut self, request: u32, arrival: &Arrival) {
        let Some((rank, unshared)) = self.live.remove(&request) else { return };
        let row = &mut self.rows[rank as usize];
        row.blocks -= unshared;
        for &hash in arrival.prompt.iter().flat_map(|prompt| prompt.hashes()) {
            let users = row.users.get_mut(&hash).expect("it entered with this block");
            *users -= 1;
            if *users == 0 {
                row.users.remove(&hash);
                row.blocks -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::chain;
    use super::*;
    use vacancy::Prompt;

    fn arrival(isl: u32, ids: &[u64]) -> Arrival {
        let prompt = (!ids.is_empty()).then(|| Prompt::new(chain(ids)).unwrap());
        Arrival { at: 0, isl, osl: 1, prompt, class: None }
    }

    #[test]
    fn a_shared_block_counts_once_until_the_last_of_its_users_leaves() {
        let mut ledger = Ledger::new(2, 16);
        let (a, b, c) = (arrival(48, &[1, 2, 3]), arrival(48, &[1, 2, 9]), arrival(33, &[]));
        assert_eq!(ledger.enter(0, 1, &a), Entered { before: 0, added: 3 });
        assert_eq!(ledger.enter(1, 1, &b), Entered { before: 3, added: 1 });
        assert_eq!(ledger.enter(2, 1, &c), Entered { before: 4, added: 3 });
        ledger.grow(0, 2);
        assert_eq!((ledger.blocks(0), ledger.blocks(1)), (0, 9));
        ledger.leave(0, &a);
        assert_eq!(ledger.blocks(1), 6, "its own block and its answer are gone, the others stay");
        ledger.leave(0, &a);
        ledger.leave(1, &b);
        ledger.leave(2, &c);
        assert_eq!((ledger.blocks(1), ledger.rank_of(2)), (0, None));
    }
}
