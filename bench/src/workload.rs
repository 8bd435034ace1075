//! The fleet and the prompts: seeded, so that every run and every engine sees the same.
//!
//! - *N* workers of one rank each;
//! - 1,000 chains of 16 block hashes (256 tokens in blocks of 16); chain *i* starts with the 8
//!   blocks of shared prefix *i mod 20* and goes on with 8 of its own;
//! - 8 live bookings on every rank, chains drawn at random, prefill completed for half of them
//!   (drawn too), so that loads differ from rank to rank;
//! - one rank in ten, drawn at random, is past the reject thresholds. These ranks carry what all the
//!   others carry but can carry less: **their costs are as low as anybody's**, so an engine that
//!   forgot to judge them would choose them;
//! - requests are drawn at random from the 1,000 chains. At 4,096 ranks a chain is held by some 32
//!   ranks and its prefix by every third: sharing is the normal case.

/// Tokens in a KV block.
pub const BLOCK_SIZE: u32 = 16;
/// Blocks, and hashes, in a prompt.
pub const PROMPT_BLOCKS: usize = 16;
/// Tokens in a prompt.
pub const PROMPT_TOKENS: u32 = BLOCK_SIZE * PROMPT_BLOCKS as u32;
/// Chains that prompts are drawn from.
pub const CHAINS: usize = 1_000;
/// Prefixes that the chains share.
pub const PREFIXES: usize = 20;
/// Blocks in a shared prefix.
pub const PREFIX_BLOCKS: usize = 8;
/// Live bookings on every rank.
pub const LIVE_PER_RANK: usize = 8;
/// The `decode_frac` that a tenth of the ranks is past.
pub const DECODE_FRAC: f64 = 0.5;
/// The `prefill_frac` in force beside it; nobody is past it.
pub const PREFILL_FRAC: f64 = 2.0;
/// Tokens that any rank batches at most.
pub const MAX_NUM_BATCHED_TOKENS: u64 = 8_192;
/// KV blocks of a rank with room.
pub const KV_BLOCKS: u64 = 4_096;
/// KV blocks of a rank that is full: half of it is less than eight prompts.
pub const KV_BLOCKS_OF_FULL: u64 = 32;
/// Requests in one round of the stream; the stream repeats after that.
pub const DRAWS: usize = 8_192;
const SEED: u64 = 0x5EED_0F7E_CAFE_0001;

/// A small generator that will give the same numbers for ever (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is small: the bias of the multiplication is below 2^-40.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

/// One booking that is live for as long as a bench runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The rank that carries it.
    pub rank: usize,
    /// Its prompt, as an index into [`Workload::chains`].
    pub chain: usize,
    /// Whether its prefill has completed, so that it carries no prefill tokens.
    pub prefill_completed: bool,
}

/// The fleet and the stream of requests.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Ranks; rank *i* is rank 0 of worker *i*.
    pub ranks: usize,
    /// The prompts' block hashes.
    pub chains: Vec<[u64; PROMPT_BLOCKS]>,
    /// What the ranks carry.
    pub live: Vec<Live>,
    /// Which ranks are past the thresholds.
    pub full: Vec<bool>,
    /// The stream: indices into `chains`.
    pub draws: Vec<u32>,
}

impl Workload {
    /// The fleet of `ranks` ranks.
    pub fn new(ranks: usize) -> Workload {
        let mut random = Random::new(SEED);
        let prefixes: Vec<[u64; PREFIX_BLOCKS]> =
            (0..PREFIXES).map(|_| std::array::from_fn(|_| random.bits())).collect();
        let chains = (0..CHAINS)
            .map(|i| {
                let mut chain = std::array::from_fn(|_| random.bits());
                chain[..PREFIX_BLOCKS].copy_from_slice(&prefixes[i % PREFIXES]);
                chain
            })
            .collect();
        let draws = (0..DRAWS).map(|_| random.below(CHAINS) as u32).collect();
        let mut live = Vec::with_capacity(ranks * LIVE_PER_RANK);
        for rank in 0..ranks {
            for _ in 0..LIVE_PER_RANK {
                let chain = random.below(CHAINS);
                let prefill_completed = random.bits() & 1 == 0;
                live.push(Live { rank, chain, prefill_completed });
            }
        }
        let mut full = vec![false; ranks];
        let mut left = ranks / 10;
        while left > 0 {
            let rank = random.below(ranks);
            left -= usize::from(!std::mem::replace(&mut full[rank], true));
        }
        Workload { ranks, chains, live, full, draws }
    }

    /// KV blocks that a rank has.
    pub fn kv_blocks(&self, rank: usize) -> u64 {
        if self.full[rank] { KV_BLOCKS_OF_FULL } else { KV_BLOCKS }
    }

    /// How many ranks are past the thresholds.
    pub fn full_ranks(&self) -> usize {
        self.full.iter().filter(|&&full| full).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_give_equal_fleets() {
        let (a, b) = (Workload::new(64), Workload::new(64));
        assert_eq!((a.chains, a.live, a.full, a.draws), (b.chains, b.live, b.full, b.draws));
    }

    #[test]
    fn a_tenth_is_full_and_chains_share_their_prefix() {
        let w = Workload::new(512);
        assert_eq!(w.full_ranks(), 51);
        assert_eq!(w.live.len(), 512 * LIVE_PER_RANK);
        assert_eq!(w.chains[3][..PREFIX_BLOCKS], w.chains[23][..PREFIX_BLOCKS]);
        assert_ne!(w.chains[3][PREFIX_BLOCKS..], w.chains[23][PREFIX_BLOCKS..]);
        let mut firsts: Vec<u64> = w.chains.iter().map(|c| c[0]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), PREFIXES);
    }
}
