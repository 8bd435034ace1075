//! What arrives: the input that every strategy of a run gets unchanged.
#![forbid(unsafe_code)]

use vacancy::{Name, Prompt};

/// One request of a trace or of the built-in workload.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When it arrives, in ns on the virtual clock.
    pub at: u64,
    /// Prompt length in tokens.
    pub isl: u32,
    /// Answer length in tokens.
    pub osl: u32,
    /// The prompt's block hashes, if they are known.
    pub prompt: Option<Prompt>,
    /// The policy class or family that it names.
    pub class: Option<Name>,
}

impl Arrival {
    /// The hashes of the prompt's full blocks: what a prefix cache can hold of it. A block that
    /// the prompt fills only in part is private to the request, as it is in real engines.
    pub fn cacheable(&self, block: u32) -> &[u64] {
        let hashes = self.prompt.as_ref().map_or(&[][..], |p| p.hashes());
        &hashes[..hashes.len().min((self.isl / block) as usize)]
    }

    /// Blocks that the prompt fills, in full or in part.
    pub fn prompt_blocks(&self, block: u32) -> u32 {
        self.isl.div_ceil(block)
    }

    /// Blocks that prompt and answer fill in the end.
    pub fn final_blocks(&self, block: u32) -> u64 {
        (u64::from(self.isl) + u64::from(self.osl)).div_ceil(u64::from(block))
    }
}

/// Chains a trace's block ids, so that each hash stands for the whole prefix up to it: equal
/// hashes mean equal prefixes even in a trace whose ids stand for the content of one block only.
pub fn chain(ids: &[u64]) -> Vec<u64> {
    let mut hash = 0x9e37_79b9_7f4a_7c15;
    ids.iter()
        .map(|&id| {
            hash = mix(hash ^ mix(id));
            hash
        })
        .collect()
}

/// The finaliser of SplitMix64: a bijection of 64 bits in which every input bit moves about half
/// of the output bits.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_prefixes_have_equal_hashes_and_nothing_else_has() {
        let a = chain(&[1, 2, 3, 4]);
        let b = chain(&[1, 2, 9, 4]);
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
        assert_ne!(a[3], b[3], "the same id behind another prefix is another block");
        let same = chain(&[5, 5, 5]);
        assert!(same[0] != same[1] && same[1] != same[2]);
    }

    #[test]
    fn only_full_blocks_can_be_cached() {
        let prompt = Prompt::new(chain(&[1, 2, 3])).unwrap();
        let mut a = Arrival { at: 0, isl: 40, osl: 8, prompt: Some(prompt), class: None };
        assert_eq!(a.cacheable(16).len(), 2);
        assert_eq!((a.prompt_blocks(16), a.final_blocks(16)), (3, 3));
        a.isl = 48;
        assert_eq!(a.cacheable(16).len(), 3);
        assert_eq!((a.prompt_blocks(16), a.final_blocks(16)), (3, 4));
    }
}
