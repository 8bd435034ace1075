//! The KV memory of one simulated rank: blocks that running requests use, and an LRU of blocks
//! that none uses any more but that the next request with the same prefix can.
//!
//! What always holds: named and private blocks together never exceed the capacity; a block that
//! is used by somebody is never evicted; if a block is there, so are all blocks before it in its
//! chain (a chain is let go of from its end, so its end is the older part and goes first).
#![forbid(unsafe_code)]

use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

struct Entry {
    hash: u64,
    users: u32,
    older: u32,
    newer: u32,
}

/// The KV memory of one rank.
pub struct KvMemory {
    capacity: u64,
    private: u64,
    used: u64,
    named: FxHashMap<u64, u32>,
    entries: Vec<Entry>,
    spare: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl KvMemory {
    /// An empty memory of `capacity` blocks.
    pub fn new(capacity: u64) -> KvMemory {
        KvMemory {
            capacity,
            private: 0,
            used: 0,
            named: FxHashMap::default(),
            entries: Vec::new(),
            spare: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Blocks that running requests use; a shared one counts once.
    pub fn in_use(&self) -> u64 {
        self.used + self.private
    }

    /// How many blocks of `chain`, from its start, are there.
    pub fn cached(&self, chain: &[u64]) -> usize {
        chain.iter().take_while(|h| self.named.contains_key(h)).count()
    }

    /// Takes the blocks of `chain` and `private` further ones for a request. Returns how many of
    /// the chain were there already, and puts the hashes of blocks that had to go into `evicted`;
    /// `None`, and nothing changed, if the blocks in use leave no room. `O(chain)`, amortised.
    pub fn take(&mut self, chain: &[u64], private: u64, evicted: &mut Vec<u64>) -> Option<usize> {
        let idle_or_absent = |h: &&u64| self.named.get(h).is_none_or(|&e| !self.is_used(e));
        let fresh = chain.iter().filter(idle_or_absent).count() as u64;
        if self.in_use() + fresh + private > self.capacity {
            return None;
        }
        let cached = self.cached(chain);
        // First what is there, so that making room cannot evict it.
        for hash in &chain[..cached] {
            let e = self.named[hash];
            if !self.is_used(e) {
                self.unlink(e);
                self.used += 1;
            }
            self.entries[e as usize].users += 1;
        }
        self.private += private;
        let missing = (chain.len() - cached) as u64;
        while self.named.len() as u64 + missing + self.private > self.capacity {
            evicted.push(self.evict());
        }
        for &hash in &chain[cached..] {
            let entry = Entry { hash, users: 1, older: NONE, newer: NONE };
            let e = match self.spare.pop() {
                Some(e) => {
                    self.entries[e as usize] = entry;
                    e
                }
                None => {
                    self.entries.push(entry);
                    self.entries.len() as u32 - 1
                }
            };
            self.named.insert(hash, e);
            self.used += 1;
        }
        Some(cached)
    }

    /// Gives back what `take` took. `O(chain)`.
    pub fn give_back(&mut self, chain: &[u64], private: u64) {
        self.private -= private;
        for hash in chain.iter().rev() {
            let e = self.named[hash];
            self.entries[e as usize].users -= 1;
            if !self.is_used(e) {
                self.used -= 1;
                self.link_newest(e);
            }
        }
    }

    fn is_used(&self, e: u32) -> bool {
        self.entries[e as usize].users > 0
    }

    fn evict(&mut self) -> u64 {
        let e = self.oldest;
        self.unlink(e);
        let hash = self.entries[e as usize].hash;
        self.named.remove(&hash);
        self.spare.push(e);
        hash
    }

    fn unlink(&mut self, e: u32) {
        let Entry { older, newer, .. } = self.entries[e as usize];
        match older {
            NONE => self.oldest = newer,
            o => self.entries[o as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            n => self.entries[n as usize].older = older,
        }
    }

    fn link_newest(&mut self, e: u32) {
        let last = self.newest;
        let entry = &mut self.entries[e as usize];
        (entry.older, entry.newer) = (last, NONE);
        match last {
            NONE => self.oldest = e,
            l => self.entries[l as usize].newer = e,
        }
        self.newest = e;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(kv: &mut KvMemory, chain: &[u64], private: u64) -> (Option<usize>, Vec<u64>) {
        let mut evicted = Vec::new();
        let cached = kv.take(chain, private, &mut evicted);
        (cached, evicted)
    }

    #[test]
    fn a_prefix_is_found_again_until_it_is_the_least_recently_used() {
        let mut kv = KvMemory::new(6);
        assert_eq!(take(&mut kv, &[1, 2, 3], 1), (Some(0), vec![]));
        kv.give_back(&[1, 2, 3], 1);
        assert_eq!(take(&mut kv, &[1, 2, 4], 0), (Some(2), vec![]));
        kv.give_back(&[1, 2, 4], 0);
        assert_eq!(kv.in_use(), 0);
        // 3 was used longest ago, then 4; 2 and 1 go last.
        assert_eq!(take(&mut kv, &[9], 3), (Some(0), vec![3, 4]));
        assert_eq!(kv.cached(&[1, 2, 3]), 2);
    }

    #[test]
    fn shared_blocks_count_once_and_used_ones_stay() {
        let mut kv = KvMemory::new(4);
        assert_eq!(take(&mut kv, &[1, 2], 0).0, Some(0));
        assert_eq!(take(&mut kv, &[1, 2], 1).0, Some(2));
        assert_eq!(kv.in_use(), 3);
        assert_eq!(take(&mut kv, &[7, 8], 0), (None, vec![]));
        assert_eq!(kv.cached(&[7]), 0, "a request that does not fit changes nothing");
        kv.give_back(&[1, 2], 0);
        assert_eq!(kv.in_use(), 3, "the other request still uses them");
        assert_eq!(take(&mut kv, &[7], 0), (Some(0), vec![]));
    }

    #[test]
    fn whatever_happens_a_block_is_there_only_with_the_blocks_before_it() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut kv = KvMemory::new(40);
        let mut running: Vec<(Vec<u64>, u64)> = Vec::new();
        let mut there = std::collections::HashSet::new();
        for _ in 0..20_000 {
            if rng.u32(..5) < 3 {
                // A tree of chains: block i of a chain is named by the digits that lead to it.
                let mut name = 0;
                let chain: Vec<u64> = (0..rng.u64(1..8))
                    .map(|_| {
                        name = name * 4 + 1 + rng.u64(..3);
                        name
                    })
                    .collect();
                let private = rng.u64(..4);
                let (cached, evicted) = take(&mut kv, &chain, private);
                for h in evicted {
                    assert!(there.remove(&h));
                }
                if let Some(cached) = cached {
                    assert!(chain[..cached].iter().all(|h| there.contains(h)));
                    assert!(chain[cached..].iter().all(|h| there.insert(*h)));
                    running.push((chain, private));
                }
            } else if !running.is_empty() {
                let (chain, private) = running.swap_remove(rng.usize(..running.len()));
                kv.give_back(&chain, private);
            }
            let used: std::collections::HashSet<u64> =
                running.iter().flat_map(|(c, _)| c.iter().copied()).collect();
            let private: u64 = running.iter().map(|(_, p)| p).sum();
            assert_eq!(kv.in_use(), used.len() as u64 + private);
            assert!(used.is_subset(&there));
            assert!(there.len() as u64 + private <= 40);
            assert!(there.iter().all(|h| (h - 1) / 4 == 0 || there.contains(&((h - 1) / 4))));
        }
        for (chain, private) in running {
            kv.give_back(&chain, private);
        }
        assert_eq!(kv.in_use(), 0);
    }
}
