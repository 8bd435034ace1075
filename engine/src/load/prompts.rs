//! Prompt blocks held per rank, and the index over them. (Plain form.)

use crate::fleet::block::SlotId;
use crate::sync::{Arc, Mutex};
use rustc_hash::FxHashMap;

pub(crate) use crossbeam_epoch::Guard;

/// What one rank holds: references per block hash.
#[derive(Default)]
pub(crate) struct RankPrompts(FxHashMap<u64, u32>);

impl RankPrompts {
    pub(crate) fn missing(&self, chain: &[u64]) -> u32 {
        chain.iter().filter(|h| !self.0.contains_key(h)).count() as u32
    }
}

/// What a booking holds.
pub(crate) struct Held(Arc<[u64]>);

#[derive(Default)]
pub(crate) struct PromptIndex(Mutex<FxHashMap<u64, Vec<u64>>>);

pub(crate) struct RunView<'g>(Vec<u64>, std::marker::PhantomData<&'g ()>);

impl RunView<'_> {
    pub(crate) fn mask(&self, block: usize) -> u64 {
        self.0.get(block).copied().unwrap_or(0)
    }
}

impl PromptIndex {
    pub(crate) fn descend<'g>(
        &self,
        _guard: &'g Guard,
        chain: &[u64],
        mut f: impl FnMut(RunView<'g>, usize, usize),
    ) {
        let map = self.0.lock();
        for (i, h) in chain.iter().enumerate() {
            match map.get(h) {
                Some(bits) => f(RunView(bits.clone(), std::marker::PhantomData), i, i + 1),
                None => break,
            }
        }
    }

    pub(crate) fn enter(
        &self,
        _: &Guard,
        rank: &mut RankPrompts,
        slot: SlotId,
        chain: &Arc<[u64]>,
    ) -> Held {
        let mut map = self.0.lock();
        for &h in chain.iter() {
            *rank.0.entry(h).or_insert(0) += 1;
            let bits = map.entry(h).or_default();
            if bits.len() <= slot.block() {
                bits.resize(slot.block() + 1, 0);
            }
            bits[slot.block()] |= slot.bit();
        }
        Held(Arc::clone(chain))
    }

    pub(crate) fn leave(&self, _: &Guard, rank: &mut RankPrompts, slot: SlotId, held: Held) -> u32 {
        let mut map = self.0.lock();
        let mut gone = 0;
        for h in held.0.iter() {
            let n = rank.0.get_mut(h).expect("held");
            *n -= 1;
            if *n == 0 {
                rank.0.remove(h);
                gone += 1;
                let bits = map.get_mut(h).expect("indexed");
                bits[slot.block()] &= !slot.bit();
                if bits.iter().all(|&w| w == 0) {
                    map.remove(h);
                }
            }
        }
        gone
    }

    pub(crate) fn scrub(&self, rank: &mut RankPrompts, slot: SlotId) {
        let mut map = self.0.lock();
        for (h, _) in rank.0.drain() {
            if let Some(bits) = map.get_mut(&h) {
                bits[slot.block()] &= !slot.bit();
            }
        }
    }
}
