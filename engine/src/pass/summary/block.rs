//! Summing up one block: all of its ranks, or the holders of one run of prompt blocks.
//!
//! What was found before is brought up to date where only a few lanes have changed since and it is
//! still clear who is the cheapest; else the rows are walked.
#![forbid(unsafe_code)]

use super::Pick;
use super::contest::Counts;
use crate::fleet::block::lanes;
use crate::fleet::board::Board;
use crate::fleet::seal::{SPAN, Sealed, changed, is_as_late};
use crate::fleet::view::{BlockView, Limits};
use crate::limits::rules::RejectScope;
use crate::pass::full::stand_by_sibling;
use crate::pass::lanes::{Column, Inputs};
use crate::sync::atomic::Ordering;

/// Lanes up to which they are looked at one by one rather than walked.
const FEW: u32 = 28;

/// One block, summed up; the words of [`Board::each`].
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) min: f64,
    /// Who has it.
    pub(super) ties: u64,
    /// Who may be chosen.
    pub(super) may: u64,
    /// Who is past the reject thresholds, or dead; all lanes.
    full: u64,
    pub(super) counts: Counts,
    /// The few cheapest of those who may be chosen: all whose plain cost is at or below `edge`.
    pub(super) near: u64,
    pub(super) edge: f64,
}

/// Where the lowest cost, who has it, and those two are among the words.
pub(super) const NEAR: [usize; 4] = [0, 1, 5, 6];

impl Block {
    /// A block that is not there.
    pub(super) const NONE: Block = Block {
        min: f64::INFINITY,
        ties: 0,
        may: 0,
        full: 0,
        counts: Counts(0),
        near: 0,
        edge: f64::NEG_INFINITY,
    };

    pub(super) fn words(&self) -> [u64; 7] {
        let (min, edge) = (self.min.to_bits(), self.edge.to_bits());
        [min, self.ties, self.may, self.full, self.counts.0, self.near, edge]
    }

    pub(super) fn of([min, ties, may, full, counts, near, edge]: [u64; 7]) -> Block {
        let (min, edge) = (f64::from_bits(min), f64::from_bits(edge));
        Block { min, ties, may, full, counts: Counts(counts), near, edge }
    }
}

/// The holders of a run in one block, summed up; the words of a shelf.
#[derive(Clone, Copy)]
pub(super) struct Holders {
    pub(super) min: f64,
    /// Who has it.
    pub(super) ties: u64,
    /// Who was looked at: the holders that may be chosen.
    looked: u64,
}

impl Holders {
    pub(super) fn words(&self) -> [u64; 3] {
        [self.min.to_bits(), self.ties, self.looked]
    }

    pub(super) fn of([min, ties, looked]: [u64; 3]) -> Holders {
        Holders { min: f64::from_bits(min), ties, looked }
    }
}

/// The lowest cost and who has it, once some lanes have been looked at again: of `old` only `stay`
/// have not, and `new` is what was found in the others. `None`: it may be somebody else by now.
fn merged(old: f64, stay: u64, new: (f64, u64)) -> Option<(f64, u64)> {
    if new.0 < old {
        Some(new)
    } else if new.0 == old {
        Some((old, stay | new.1))
    } else {
        // Who did not have the lowest cost, and was not looked at, is dearer than `old`; by how
        // much is not known.
        (stay != 0).then_some((old, stay))
    }
}

impl Pick<'_> {
    /// Sums up one block for `version`, which was read before.
    pub(super) fn sum_up_block(&self, board: &Board, b: usize, version: u64) -> Block {
        let each = &board.each[b % SPAN];
        if let Some((known, words)) = each.latest() {
            // A later one than was asked for will do: it is as true.
            if is_as_late(known, version) {
                return Block::of(words);
            }
            if let Some(changed) = changed(known, version)
                && let Some(block) = self.amended(board, b, Block::of(words), changed)
            {
                return block;
            }
        }
        self.walked(board, b)
    }

    /// A block of which only some lanes have changed; `None`: that is not enough to know.
    fn amended(&self, board: &Board, b: usize, old: Block, changed: u64) -> Option<Block> {
        let block = &*self.view.blocks[b];
        let open = board.open[b % SPAN];
        let kept = Block {
            ties: old.ties & !changed,
            may: old.may & !changed,
            full: old.full & !changed,
            near: old.near & !changed,
            ..old
        };
        let (mut full, mut may, mut near) = (kept.full, kept.may, kept.near);
        let mut new = (f64::INFINITY, 0);
        for lane in lanes(changed) {
            let (bit, row) = (1 << lane, block.live.row(lane));
            let past = row.exceeds(self.limit(block, lane));
            // What it is to others of its worker is looked at in a walk.
            if (past || old.full & bit != 0) && block.multi & bit != 0 && self.by_worker() {
                return None;
            }
            if past {
                full |= bit;
            } else if open & bit != 0 {
                may |= bit;
                let cost = self.plain_cost(b, lane);
                near |= if cost <= old.edge { bit } else { 0 };
                if cost <= new.0 {
                    new = (cost, if cost < new.0 { bit } else { new.1 | bit });
                }
            }
        }
        if near == 0 && may != 0 {
            return None;
        }
        let (min, ties) = match merged(old.min, kept.ties, new) {
            Some(cheapest) => cheapest,
            // Many are near where many cost the same.
            None if near.count_ones() > FEW => return None,
            // Whoever is not near is dearer than all who are.
            None => self.one_by_one(b, near),
        };
        let counts =
            Counts::new(full & block.available, may, ties).0 | old.counts.0 & Counts::STRADDLES;
        Some(Block { min, ties, may, full, counts: Counts(counts), near, edge: old.edge })
    }

    fn by_worker(&self) -> bool {
        self.view.rules.scope == RejectScope::Worker
    }

    /// Sums up one block from all of its rows.
    fn walked(&self, board: &Board, b: usize) -> Block {
        let block = &*self.view.blocks[b];
        let open = board.open[b % SPAN];
        let limits = if self.rejects { &block.reject } else { &Limits::NONE };
        let mut costs = Column::default();
        let (found, mut min, mut ties) = self.walk(block, limits, open, &mut costs);
        let mut may = open & !found;
        let mut straddles = 0;
        let doubtful = found & open & block.multi;
        if doubtful != 0 && self.by_worker() {
            if doubtful & block.straddling != 0 {
                straddles = Counts::STRADDLES;
            }
            let available = block.available;
            let saved = stand_by_sibling(block, available, found, doubtful, |_| false);
            if saved != 0 {
                may |= saved;
                (min, ties) = self.tools.kernel.cheapest(&costs, may);
            }
        }
        let (edge, near) = self.tools.kernel.nearest(&costs, may);
        let counts = Counts(Counts::new(found & block.available, may, ties).0 | straddles);
        Block { min, ties, may, full: found, counts, near, edge }
    }

    /// Who is past the limits, and of the candidates the lowest plain cost and who has it.
    fn walk(
        &self,
        block: &BlockView,
        limits: &Limits,
        candidates: u64,
        costs: &mut Column<f64>,
    ) -> (u64, f64, u64) {
        let mut rows = Column::default();
        block.live.copy_rows(&mut rows);
        let plain = &self.tools.plain;
        let never = f64::INFINITY;
        let kernel = &self.tools.kernel;
        let found = if plain.prices_requests() {
            let mut requests = Column::default();
            block.live.copy_requests(&mut requests);
            let inputs = Inputs { requests: Some(&requests), ..Inputs::new(&rows, &limits.0) };
            kernel.walk(plain, &inputs, candidates, never, costs)
        } else {
            kernel.walk(plain, &Inputs::new(&rows, &limits.0), candidates, never, costs)
        };
        (found.full, found.min, found.ties)
    }

    /// Sums up the holders (`lanes`) of a run in one block for `version`, which was read before
    /// them; `known` is where it stood.
    pub(super) fn sum_up_holders(
        &self,
        board: &Board,
        b: usize,
        version: u64,
        holders: u64,
        known: Option<&Sealed<3>>,
    ) -> Holders {
        let at = b % SPAN;
        let block = match board.each[at].read(version) {
            Some(words) => Block::of(words),
            None => self.sum_up_block(board, b, version),
        };
        let looked = holders & block.may;
        if let Some((known, words)) = known.and_then(Sealed::latest)
            && let Some(changed) = changed(known, version)
        {
            let old = Holders::of(words);
            // Others may have come to be candidates, or not to be, by a change elsewhere.
            if (old.looked ^ looked) & !changed == 0 {
                let new = self.one_by_one(b, looked & changed);
                if let Some((min, ties)) = merged(old.min, old.ties & !changed, new) {
                    return Holders { min, ties, looked };
                }
            }
        }
        let near = looked & block.near;
        let (min, ties) = if near != 0 {
            // Whoever is not near is dearer than all who are.
            self.one_by_one(b, near)
        } else if looked.count_ones() <= FEW {
            self.one_by_one(b, looked)
        } else {
            let mut costs = Column::default();
            let (_, min, ties) = self.walk(&self.view.blocks[b], &Limits::NONE, looked, &mut costs);
            (min, ties)
        };
        Holders { min, ties, looked }
    }

    #[inline(always)]
    fn plain_cost(&self, b: usize, lane: usize) -> f64 {
        let row = self.view.blocks[b].live.row(lane);
        self.tools.plain.plain_cost(row.bits(), self.requests(b, lane))
    }

    /// The lowest plain cost among some lanes, and who has it.
    pub(super) fn one_by_one(&self, b: usize, candidates: u64) -> (f64, u64) {
        let live = &*self.view.blocks[b].live;
        let plain = self.tools.plain;
        let (mut min, mut ties) = (f64::INFINITY, 0);
        for lane in lanes(candidates) {
            let row = live.row(lane);
            let requests = if plain.prices_requests() {
                live.requests[lane].load(Ordering::Relaxed)
            } else {
                0
            };
            let cost = plain.plain_cost(row.bits(), requests);
            if cost > min || row.is_dead() {
                continue;
            }
            ties = if cost < min { 0 } else { ties } | 1 << lane;
            min = cost;
        }
        (min, ties)
    }
}
