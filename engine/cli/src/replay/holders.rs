//! Which ranks have a block cached: the inverted index from which a request's overlaps come.
//!
//! What always holds: the ranks of a block are a subset of the ranks of the block before it in
//! its chain, because no rank keeps a block longer than the one before it.
#![forbid(unsafe_code)]

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Ranks by block.
pub struct Holders {
    ranks: FxHashMap<u64, SmallVec<[u32; 4]>>,
    /// Per rank the turn in which it was last counted, so that no set has to be cleared.
    seen: Vec<u64>,
    turn: u64,
}

impl Holders {
    /// An empty index over ranks `0..ranks`.
    pub fn new(ranks: usize) -> Holders {
        Holders { ranks: FxHashMap::default(), seen: vec![0; ranks], turn: 0 }
    }

    /// `rank` has computed the block.
    pub fn stored(&mut self, hash: u64, rank: u32) {
        self.ranks.entry(hash).or_default().push(rank);
    }

    /// `rank` has evicted the block. Linear in the ranks that hold it.
    pub fn evicted(&mut self, hash: u64, rank: u32) {
        if let Some(holders) = self.ranks.get_mut(&hash) {
            if let Some(at) = holders.iter().position(|&r| r == rank) {
                holders.swap_remove(at);
            }
            if holders.is_empty() {
                self.ranks.remove(&hash);
            }
        }
    }

    /// Appends each rank that has some of `chain` with how many blocks of it, from its start, it
    /// has. Linear in the chain and in the ranks found, for each length at which some drop out.
    pub fn overlaps(&mut self, chain: &[u64], found: &mut Vec<(u32, u32)>) {
        let levels: SmallVec<[&SmallVec<[u32; 4]>; 64]> =
            chain.iter().map_while(|hash| self.ranks.get(hash)).collect();
        self.turn += 1;
        let mut below = 0;
        for (depth, holders) in levels.iter().enumerate().rev() {
            // Nested sets of one size are one set: it was counted one level deeper.
            if holders.len() == below {
                continue;
            }
            below = holders.len();
            for &rank in holders.iter() {
                let seen = &mut self.seen[rank as usize];
                if *seen != self.turn {
                    *seen = self.turn;
                    found.push((rank, depth as u32 + 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_is_found_once_with_its_longest_prefix() {
        let mut holders = Holders::new(8);
        for (rank, len) in [(0, 3), (1, 1), (2, 3), (5, 2)] {
            for hash in &[10, 11, 12][..len] {
                holders.stored(*hash, rank);
            }
        }
        let find = |holders: &mut Holders, chain: &[u64]| {
            let mut found = Vec::new();
            holders.overlaps(chain, &mut found);
            found.sort_unstable();
            found
        };
        assert_eq!(find(&mut holders, &[10, 11, 12, 13]), [(0, 3), (1, 1), (2, 3), (5, 2)]);
        assert_eq!(find(&mut holders, &[10, 99]), [(0, 1), (1, 1), (2, 1), (5, 1)]);
        assert_eq!(find(&mut holders, &[99, 10]), []);
        holders.evicted(12, 0);
        assert_eq!(find(&mut holders, &[10, 11, 12]), [(0, 2), (1, 1), (2, 3), (5, 2)]);
        for hash in [12, 11, 10] {
            holders.evicted(hash, 2);
        }
        assert_eq!(find(&mut holders, &[10, 11, 12]), [(0, 2), (1, 1), (5, 2)]);
    }
}
