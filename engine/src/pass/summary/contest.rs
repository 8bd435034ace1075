//! Who is the cheapest so far, and how many they are.
#![forbid(unsafe_code)]

use crate::fleet::block::{LANES, SlotId};
use crate::fleet::seal::SPAN;
use crate::pass::pick::Rng;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;

/// Counts that go with a lowest cost, in one word:
///
/// | bits | what |
/// |---|---|
/// | 0..16 | ranks past the reject thresholds |
/// | 16..32 | ranks that may be chosen |
/// | 32..47 | of them, those that have the lowest cost |
/// | 47 | a full pass is needed |
/// | 48..64 | of a span, the blocks in which they are |
#[derive(Clone, Copy, Default)]
pub(super) struct Counts(pub(super) u64);

const _: () = assert!(SPAN == 16 && LANES * SPAN < 1 << 15);

impl Counts {
    pub(super) const STRADDLES: u64 = 1 << 47;

    pub(super) fn new(full: u64, may: u64, ties: u64) -> Counts {
        let count = |set: u64| u64::from(set.count_ones());
        Counts(count(full) | count(may) << 16 | count(ties) << 32)
    }

    pub(super) fn full(self) -> u32 {
        u32::from(self.0 as u16)
    }

    pub(super) fn may(self) -> u32 {
        u32::from((self.0 >> 16) as u16)
    }

    pub(super) fn ties(self) -> u32 {
        (self.0 >> 32) as u32 & 0x7fff
    }

    pub(super) fn straddles(self) -> bool {
        self.0 & Counts::STRADDLES != 0
    }

    /// The blocks of a span that the ties are in.
    pub(super) fn blocks(self) -> u64 {
        self.0 >> 48
    }

    /// Counts in a block, but not its ties.
    #[inline(always)]
    pub(super) fn add(&mut self, block: Counts) {
        // No sum leaves its bits: a span has 1,024 ranks.
        self.0 = (self.0 + (block.0 & 0xffff_ffff)) | block.0 & Counts::STRADDLES;
    }

    /// The counts of a span's blocks together, but not their ties.
    #[inline(always)]
    pub(super) fn of_all(blocks: &[Counts; SPAN]) -> Counts {
        let sum = blocks.iter().fold(0, |sum, one| sum + (one.0 & 0xffff_ffff));
        Counts(sum | blocks.iter().fold(0, |all, one| all | one.0) & Counts::STRADDLES)
    }

    /// Counts in the ties of other blocks of the span.
    pub(super) fn join(&mut self, others: Counts) {
        self.0 = (self.0 + (others.0 & 0x7fff << 32)) | others.0 & 0xffff << 48;
    }

    /// Counts the ties of block number `at` in.
    #[inline(always)]
    pub(super) fn tie(&mut self, at: usize, ties: u32) {
        if ties != 0 {
            self.0 += u64::from(ties) << 32;
            self.0 |= 1 << (48 + at);
        }
    }
}

/// Ranks of one span that share a cost, not named one by one.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Which level's holders; `None`: anybody.
    pub(super) level: Option<usize>,
    pub(super) span: usize,
    /// Their plain cost.
    pub(super) plain: f64,
    /// How many they are, and in which blocks.
    pub(super) counts: Counts,
}

/// One of the cheapest, as it was drawn.
pub(super) enum Drawn<'a> {
    Slot(SlotId),
    /// The `n`-th of a group.
    Of(&'a Group, u32),
}

/// The cheapest ranks so far: some named, some in groups. No rank is in it twice.
pub(super) struct Contest<'a> {
    cost: f64,
    groups: ArenaVec<'a, Group>,
    grouped: u64,
    named: u64,
    slot: SlotId,
}

impl<'a> Contest<'a> {
    pub(super) fn new(groups: usize, arena: &'a Bump) -> Contest<'a> {
        Contest {
            cost: f64::INFINITY,
            groups: ArenaVec::with_capacity_in(groups, arena),
            grouped: 0,
            named: 0,
            slot: SlotId::new(0, 0),
        }
    }

    /// The cost to be at or below.
    #[inline(always)]
    pub(super) fn bar(&self) -> f64 {
        self.cost
    }

    #[inline(always)]
    pub(super) fn group(&mut self, cost: f64, group: Group) {
        let count = u64::from(group.counts.ties());
        if cost <= self.cost && count != 0 {
            if cost < self.cost {
                self.begin(cost);
            }
            self.grouped += count;
            // Two looks at one span are one group, as if there had been one look.
            match self.groups.last_mut() {
                Some(last) if (last.level, last.span) == (group.level, group.span) => {
                    last.counts.join(group.counts);
                }
                _ => self.groups.push(group),
            }
        }
    }

    #[inline(always)]
    pub(super) fn slot(&mut self, cost: f64, slot: SlotId, rng: &mut Rng) {
        if cost <= self.cost {
            if cost < self.cost {
                self.begin(cost);
            }
            self.named += 1;
            // Of `n` named ones each is kept with the same likelihood.
            if self.named == 1 || rng.below(self.named) == 0 {
                self.slot = slot;
            }
        }
    }

    fn begin(&mut self, cost: f64) {
        self.cost = cost;
        self.groups.clear();
        self.grouped = 0;
        self.named = 0;
    }

    /// One of the cheapest, each with the same likelihood; `None`: there is nobody.
    pub(super) fn draw(&self, rng: &mut Rng) -> Option<Drawn<'_>> {
        let total = self.named + self.grouped;
        let mut drawn = if total > 1 { rng.below(total) } else { 0 };
        if drawn < self.named {
            return Some(Drawn::Slot(self.slot));
        }
        drawn -= self.named;
        for group in &self.groups {
            let count = u64::from(group.counts.ties());
            if drawn < count {
                return Some(Drawn::Of(group, drawn as u32));
            }
            drawn -= count;
        }
        None
    }
}
