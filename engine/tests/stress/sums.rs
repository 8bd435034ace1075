//! What threads put on ranks, and the plain sum of it.

use crate::rng::Rng;
use std::collections::{BTreeMap, HashSet};
use vacancy::{Prompt, Rank, Request, Time};

/// Tokens in a block, in all pools.
pub const BLOCK: u32 = 16;

/// A prompt, decided by a number: the id of a request that has one.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Prompt tokens.
    pub isl: u32,
    /// Root and length of a chain that others have as well.
    pub chain: Option<(u64, u32)>,
}

impl Shape {
    pub fn of(number: u64) -> Shape {
        let mut rng = Rng::new(number);
        let isl = rng.below(200) as u32;
        let blocks = isl.div_ceil(BLOCK);
        let chain = (rng.chance(50) && blocks > 0).then(|| (rng.below(4) + 1, blocks));
        Shape { isl, chain }
    }

    pub fn hashes(self) -> Vec<u64> {
        let (root, len) = self.chain.unwrap_or_default();
        (0..u64::from(len)).map(|block| root * 10_000 + block).collect()
    }

    pub fn request(self, now: Time) -> Request {
        let request = Request::new(self.isl.into()).at(now);
        match self.chain {
            Some(_) => request.prompt(Prompt::new(self.hashes()).expect("they are distinct")),
            None => request,
        }
    }

    pub fn unshared(self) -> u32 {
        if self.chain.is_some() { 0 } else { self.isl.div_ceil(BLOCK) }
    }
}

/// What lies on a rank, as its owner says.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub tokens: u64,
    pub unshared: u64,
    pub hashes: HashSet<u64>,
    pub requests: u64,
}

impl Sum {
    pub fn blocks(&self) -> u64 {
        self.unshared + self.hashes.len() as u64
    }
}

/// What lies on the ranks of the prefill pool and of the decode pool.
#[derive(Default)]
pub struct Sums(pub [BTreeMap<Rank, Sum>; 2]);

impl Sums {
    pub fn add(&mut self, decode: bool, rank: Rank, shape: Shape) -> &mut Sum {
        let sum = self.0[usize::from(decode)].entry(rank).or_default();
        sum.unshared += u64::from(shape.unshared());
        sum.hashes.extend(shape.hashes());
        sum
    }
}
