//! The packed row: everything of a rank that a limit is judged by, in one word.
//!
//! | bits | what |
//! |---|---|
//! | 0..32 | active prefill tokens |
//! | 32..63 | KV blocks: booked, held and mirrored |
//! | 63 | dead: the rank was removed |
//!
//! One load sees all of it as it was at one instant, and one compare-and-swap books. A sum over two
//! words could not be checked by one compare-and-swap, so whatever a limit is judged by is in here.
//! No shift or mask of this layout stands outside this file and the pass kernels' `lanes`.

/// Load of one booking, hold or mirror on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Prefill tokens.
    pub tokens: u32,
    /// KV blocks.
    pub blocks: u32,
}

impl Load {
    pub(crate) const fn new(tokens: u32, blocks: u32) -> Load {
        Load { tokens, blocks }
    }
}

/// The most a row may show without being full, in the layout of the row, so that one vector
/// comparison judges both halves. `u32::MAX` tokens, or [`MAX_BLOCKS`] blocks, is no limit; a dead
/// row, whose top bit is set, is past every limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(u64);

impl Limit {
    /// Only a dead row is past it.
    pub(crate) const NONE: Limit = Limit::new(u32::MAX, MAX_BLOCKS);

    /// At most `tokens` and `blocks`; more blocks than a row can show are no limit.
    pub(crate) const fn new(tokens: u32, blocks: u32) -> Limit {
        let blocks = if blocks > MAX_BLOCKS { MAX_BLOCKS } else { blocks };
        Limit((blocks as u64) << BLOCKS_SHIFT | tokens as u64)
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Limit {
        Limit(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// This limit without its half for blocks.
    pub(crate) const fn tokens_only(self) -> Limit {
        Limit::new(self.0 as u32, MAX_BLOCKS)
    }
}

impl std::fmt::Debug for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Limit({} tokens, {} blocks)", self.0 as u32, self.0 >> BLOCKS_SHIFT)
    }
}

const BLOCKS_SHIFT: u32 = 32;
const DEAD: u64 = 1 << 63;
/// The most KV blocks a row can show; one more would reach the dead bit.
pub(crate) const MAX_BLOCKS: u32 = (1 << 31) - 1;

/// One value of a rank's row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row(u64);

impl Row {
    /// A living rank that carries nothing.
    pub(crate) const EMPTY: Row = Row(0);
    /// A slot that no rank lives in.
    pub(crate) const VACANT: Row = Row(DEAD);

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Row {
        Row(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The bit that `kill` sets.
    pub(crate) const fn dead_bit() -> u64 {
        DEAD
    }

    #[inline(always)]
    pub(crate) const fn tokens(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) const fn blocks(self) -> u32 {
        (self.0 >> BLOCKS_SHIFT) as u32 & MAX_BLOCKS
    }

    #[inline(always)]
    pub(crate) const fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// Full iff past either half of the limit, or dead; equal is not over.
    #[inline(always)]
    pub(crate) const fn exceeds(self, limit: Limit) -> bool {
        self.0 as u32 > limit.0 as u32 || (self.0 >> BLOCKS_SHIFT) > (limit.0 >> BLOCKS_SHIFT)
    }

    /// This row with `load` added; `None` if either part does not fit.
    #[inline(always)]
    pub(crate) const fn plus(self, load: Load) -> Option<Row> {
        let Some(tokens) = self.tokens().checked_add(load.tokens) else { return None };
        let Some(blocks) = self.blocks().checked_add(load.blocks) else { return None };
        if blocks > MAX_BLOCKS {
            return None;
        }
        Some(Row((self.0 & DEAD) | (blocks as u64) << BLOCKS_SHIFT | tokens as u64))
    }

    /// This row with `load` taken off. What is taken off was put on, so it cannot fall below zero;
    /// should it ever, it stops there and a debug build says so.
    #[inline(always)]
    pub(crate) fn minus(self, load: Load) -> Row {
        debug_assert!(
            self.tokens() >= load.tokens && self.blocks() >= load.blocks,
            "{self:?} - {load:?}"
        );
        let tokens = self.tokens().saturating_sub(load.tokens);
        let blocks = self.blocks().saturating_sub(load.blocks);
        Row((self.0 & DEAD) | (blocks as u64) << BLOCKS_SHIFT | tokens as u64)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dead = if self.is_dead() { ", dead" } else { "" };
        write!(f, "Row({} tokens, {} blocks{dead})", self.tokens(), self.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let full = Row::EMPTY.plus(Load::new(u32::MAX, MAX_BLOCKS)).unwrap();
        assert_eq!((full.tokens(), full.blocks(), full.is_dead()), (u32::MAX, MAX_BLOCKS, false));
        assert_eq!(full.plus(Load::new(1, 0)), None);
        assert_eq!(full.plus(Load::new(0, 1)), None);
        assert_eq!(full.minus(Load::new(u32::MAX, 0)).blocks(), MAX_BLOCKS);
        assert_eq!(full.minus(Load::new(u32::MAX, MAX_BLOCKS)), Row::EMPTY);
        assert_eq!(Row::EMPTY.plus(Load::new(0, u32::MAX)), None);
    }

    #[test]
    fn a_dead_row_stays_dead_whatever_is_added() {
        let dead = Row::VACANT.plus(Load::new(3, 4)).unwrap();
        assert!(dead.is_dead());
        assert_eq!((dead.tokens(), dead.blocks()), (3, 4));
        assert!(dead.minus(Load::new(3, 4)).is_dead());
    }

    #[test]
    fn equal_is_not_over() {
        let row = Row::EMPTY.plus(Load::new(10, 4)).unwrap();
        assert!(!row.exceeds(Limit::new(10, 4)));
        assert!(row.exceeds(Limit::new(9, 4)));
        assert!(row.exceeds(Limit::new(10, 3)));
        assert!(!row.exceeds(Limit::NONE));
        assert!(Row::VACANT.exceeds(Limit::NONE));
        assert_eq!(Limit::new(1, u32::MAX), Limit::new(1, MAX_BLOCKS));
    }
}
