//! The right answer, found the slow way: every rank looked at, in plain maps. Uses nothing of any
//! engine.

use crate::workload::{BLOCK_SIZE, DECODE_FRAC, PROMPT_BLOCKS, PROMPT_TOKENS, Workload};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes of prompt blocks are random bits already.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole words are hashed");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// A set of prompt blocks.
pub type Blocks = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// What every rank of a workload carries.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Per rank: active prefill tokens.
    pub tokens: Vec<u32>,
    /// Per rank: the distinct KV blocks it holds.
    pub held: Vec<Blocks>,
    full: Vec<bool>,
}

impl Oracle {
    /// Adds the workload up.
    ///
    /// # Panics
    /// If the ranks past the thresholds are not those that the workload says.
    pub fn new(workload: &Workload) -> Oracle {
        let mut tokens = vec![0; workload.ranks];
        let mut held = vec![Blocks::default(); workload.ranks];
        for live in &workload.live {
            if !live.prefill_completed {
                tokens[live.rank] += PROMPT_TOKENS;
            }
            held[live.rank].extend(workload.chains[live.chain]);
        }
        for (rank, held) in held.iter().enumerate() {
            let past = held.len() as f64 > DECODE_FRAC * workload.kv_blocks(rank) as f64;
            assert_eq!(past, workload.full[rank], "rank {rank} with {} blocks", held.len());
        }
        Oracle { tokens, held, full: workload.full.clone() }
    }

    /// The cost of a prompt on a rank, in blocks, with the default weights and no overlaps.
    pub fn cost(&self, rank: usize, chain: &[u64; PROMPT_BLOCKS]) -> f64 {
        let held = &self.held[rank];
        let missing = chain.iter().filter(|hash| !held.contains(hash)).count();
        let prefill = f64::from(self.tokens[rank] + PROMPT_TOKENS) / f64::from(BLOCK_SIZE);
        prefill + (held.len() + missing) as f64
    }

    /// The lowest cost over all ranks, or over those with room.
    pub fn cheapest(&self, chain: &[u64; PROMPT_BLOCKS], judge_room: bool) -> f64 {
        (0..self.tokens.len())
            .filter(|&rank| !(judge_room && self.full[rank]))
            .map(|rank| self.cost(rank, chain))
            .fold(f64::INFINITY, f64::min)
    }
}
