//! Four ranks that have come to hold what they do by several changes each make some more, on two
//! threads at once. A world for each of so many seeds.
//!
//! What a chain of bookings leaves behind, runs that are held by the same ranks and are not one, is
//! not among the worlds of `m13_any_two`.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn, world};

pub(crate) const BRANCHES: &[&str] = &["changed at once"];

pub(crate) const WORLDS: usize = 700;

/// Chains that part at the end, and at the beginning.
const CHAINS: [[u64; 4]; 3] = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 6, 7, 8]];

/// A rank's change from so many blocks of its chain to so many others.
#[derive(Clone, Copy, Debug)]
struct Change {
    slot: usize,
    chain: usize,
    from: u32,
    to: u32,
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % n
    }
}

/// What the ranks hold.
struct Ranks {
    rng: Rng,
    /// The longest part of a chain that anybody holds.
    most: u64,
    chains: [usize; 4],
    held: [u32; 4],
}

impl Ranks {
    /// The next change, of any of the ranks.
    fn next(&mut self) -> Change {
        let slot = self.rng.below(4) as usize;
        let from = self.held[slot];
        let other = self.rng.below(self.most) as u32;
        let to = if other >= from { other + 1 } else { other };
        self.held[slot] = to;
        Change { slot, chain: self.chains[slot], from, to }
    }
}

fn make(prompts: &Prompts, thread: usize, Change { slot, chain, from, to }: Change) {
    prompts.change(thread, slot as u32, &CHAINS[chain], from, to);
}

pub(crate) fn run() {
    let mut rng = Rng(world() as u64);
    rng.below(1);
    let most = 3 + rng.below(2);
    let one_chain = rng.below(2) == 0;
    let chains = [(); 4].map(|()| if one_chain { 0 } else { rng.below(3) as usize });
    let mut ranks = Ranks { rng, most, chains, held: [0; 4] };
    let prompts = Arc::new(Prompts::new());
    let mut told = Vec::new();
    for _ in 0..3 + ranks.rng.below(5) {
        let change = ranks.next();
        told.push(change);
        make(&prompts, 0, change);
    }
    // Each rank is one thread's.
    let mut changes = [Vec::new(), Vec::new()];
    for _ in 0..3 + ranks.rng.below(2) {
        let change = ranks.next();
        changes[change.slot % 2].push(change);
    }
    let told = format!("after {told:?}: {changes:?}");
    let [own, others] = changes;
    let other = spawn({
        let prompts = prompts.clone();
        move || others.into_iter().for_each(|change| make(&prompts, 1, change))
    });
    own.into_iter().for_each(|change| make(&prompts, 0, change));
    other.join().expect("it ends");
    reached("changed at once");
    for (slot, held) in ranks.held.into_iter().enumerate() {
        let found = prompts.at_rest(slot as u32, &CHAINS[chains[slot]]);
        assert!(found >= held, "at rest the index knows less than a rank holds: {slot} {told}");
        assert!(found <= held, "at rest the index says more than a rank holds: {slot} {told}");
    }
    for (slot, held) in ranks.held.into_iter().enumerate().filter(|&(_, held)| held > 0) {
        make(&prompts, 0, Change { slot, chain: chains[slot], from: held, to: 0 });
    }
    prompts.assert_nothing_left(&CHAINS.each_ref().map(|chain| &chain[..]), 4);
}
