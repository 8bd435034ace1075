//! Behind a prefix index: what workers have cached is known elsewhere (an index fed by the engines'
//! KV events), and every request brings it along as overlaps.
//!
//! The pool knows by itself which blocks *active* requests share on a rank. What is cached and idle
//! it is told: per request, the leading blocks that a rank has, by tier.
//!
//! ```sh
//! cargo run --release -p vacancy --example prefix_index
//! ```

use std::collections::{HashMap, HashSet};
use std::error::Error;
use vacancy::{Overlap, Pool, Prompt, Rank, Request, WorkerSpec};

const BLOCK_SIZE: u32 = 16;

/// The smallest index there is: which ranks have stored which block. A block's hash stands for the
/// whole prefix up to it.
#[derive(Default)]
struct PrefixIndex {
    stored: HashMap<u64, HashSet<Rank>>,
}

impl PrefixIndex {
    /// An engine says that it has stored a chain of blocks.
    fn store(&mut self, rank: Rank, chain: &[u64]) {
        for &hash in chain {
            self.stored.entry(hash).or_default().insert(rank);
        }
    }

    /// An engine says that it has evicted a block.
    fn evict(&mut self, rank: Rank, hash: u64) {
        if let Some(ranks) = self.stored.get_mut(&hash) {
            ranks.remove(&rank);
        }
    }

    /// How many leading blocks of `chain` each rank has.
    fn overlaps(&self, chain: &[u64]) -> Vec<Overlap> {
        let mut blocks: HashMap<Rank, f64> = HashMap::new();
        for (depth, hash) in chain.iter().enumerate() {
            for &rank in self.stored.get(hash).into_iter().flatten() {
                let have = blocks.entry(rank).or_default();
                // Only what begins at the beginning counts.
                if *have == depth as f64 {
                    *have += 1.0;
                }
            }
        }
        blocks.retain(|_, have| *have > 0.0);
        blocks.into_iter().map(|(rank, have)| Overlap::device(rank, have)).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().block_size(BLOCK_SIZE).build()?;
    for worker in 0..4 {
        let spec = WorkerSpec::new(worker).max_num_batched_tokens(8_192);
        pool.upsert(spec.total_kv_blocks(40_000))?;
    }

    let chain: Vec<u64> = (1..=8).map(|block| block * 0x9E37_79B9_7F4A_7C15).collect();
    let request = |index: &PrefixIndex| -> Result<Request, vacancy::Error> {
        let tokens = u64::from(BLOCK_SIZE) * chain.len() as u64;
        Ok(Request::new(tokens).prompt(Prompt::new(&chain[..])?).overlaps(index.overlaps(&chain)))
    };

    let (warm, colder) = (Rank::new(2, 0), Rank::new(3, 0));
    let mut index = PrefixIndex::default();
    index.store(warm, &chain[..6]);
    index.store(colder, &chain[..2]);

    // The rank with most of the prompt takes it, and is charged for the rest of it only.
    let first = pool.book(&request(&index)?)?;
    println!("first:  {first:?}");
    assert_eq!((first.rank(), first.choice().cached_tokens), (warm, 6 * BLOCK_SIZE));
    assert_eq!(pool.load(warm).map(|load| load.prefill_tokens), Some(2 * u64::from(BLOCK_SIZE)));

    // Once its first block is evicted, nothing behind it counts.
    index.evict(warm, chain[0]);
    drop(first);
    let second = pool.book(&request(&index)?)?;
    println!("second: {second:?}");
    assert_eq!((second.rank(), second.choice().cached_tokens), (colder, 2 * BLOCK_SIZE));
    Ok(())
}
