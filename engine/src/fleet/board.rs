//! What a pick needs to know of a span of neighbouring blocks without looking at their ranks.
//!
//! A board belongs to the views that know its blocks exactly as they are: whoever edits one of the
//! blocks replaces the board. So what is kept here is about one set of limits, marks and available
//! ranks by construction, and valid for as long as the blocks' versions stand (see [`super::seal`]).
//! A caller that still works on an old view finds, and publishes, on the old view's board.
//!
//! What the words mean is known to `pass::summary`, which computes them; here is where they lie.
#![forbid(unsafe_code)]

use crate::fleet::seal::{SPAN, Sealed, Shelf, Turn, Turns, Versions};
use crate::fleet::view::BlockView;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::time::Time;
use std::sync::OnceLock;

/// Shelves of a board. A few places are looked at for a subject, so that those that share one do not
/// drive each other out.
const SHELVES: usize = 64;
const PLACES: usize = 4;

/// Counts of one class; see [`Board::classes`].
#[derive(Default)]
pub(crate) struct ClassCounts {
    pub(crate) whole: Sealed<1>,
    pub(crate) each: [Sealed<1>; SPAN],
}

/// How many copies there are of what is known.
pub(crate) const COPIES: usize = 4;

/// What is known of a span of blocks, several times over: threads that find things out at the same
/// time write them on boards of their own.
///
/// With one board for all, every booking moved the lines of its block's results from one core to
/// the other and back; a change that somebody else made is cheaper found again (one row) than
/// fetched. More copies than a few gain nothing: then each thread would find out again what all the
/// others changed.
pub(crate) struct Boards([Board; COPIES]);

impl Boards {
    /// Empty boards for up to a span of blocks, at least one.
    pub(crate) fn new(blocks: &[Arc<BlockView>]) -> Boards {
        Boards(std::array::from_fn(|_| Board::new(blocks)))
    }

    /// The board for threads with that seat.
    #[inline(always)]
    pub(crate) fn of(&self, seat: usize) -> &Board {
        &self.0[seat % COPIES]
    }

    /// One of them, for what all say alike.
    pub(crate) fn any(&self) -> &Board {
        &self.0[0]
    }
}

/// What is known of a span of blocks.
#[repr(align(128))]
pub(crate) struct Board {
    /// Of the blocks' live columns.
    pub(crate) versions: Arc<Versions>,
    /// Blocks there are; the last board of a view may have less than a span.
    pub(crate) blocks: usize,
    /// Available ranks.
    pub(crate) available: u32,
    /// Of them, those without a soft mark.
    pub(crate) unmarked: u32,
    /// The first instant at which a mark runs out.
    pub(crate) next_lapse: Time,
    /// Per block, the available ranks without a soft mark.
    pub(crate) open: [u64; SPAN],
    pub(crate) turns: Turns,
    /// Lowest cost, and counts.
    pub(crate) whole: Sealed<2>,
    /// Per block: lowest cost, who has it, who may be chosen, who is full, counts; and the few
    /// cheapest: who they are, and what they cost at most.
    pub(crate) each: [Sealed<7>; SPAN],
    /// Per block the lowest cost and the counts once more, side by side: what a pick looks at in
    /// every block, and mostly nothing else. Written by [`Board::note`].
    pub(crate) leasts: [AtomicU64; SPAN],
    pub(crate) counts: [AtomicU64; SPAN],
    /// Whether `whole` is known to be what those two come to. Written by who has the turn.
    whole_is_theirs: AtomicBool,
    /// Per class, how many available ranks have no room for it.
    pub(crate) classes: Box<[ClassCounts]>,
    /// Per run of prompt blocks that many ranks hold: lowest cost among those, and counts; per block
    /// also who has it and who was looked at; for the span also the lowest cost that blocks which
    /// were not looked at may have. Made when first needed.
    shelves: OnceLock<Box<[Shelf]>>,
}

impl Board {
    /// An empty board for up to a span of blocks, at least one.
    fn new(blocks: &[Arc<BlockView>]) -> Board {
        let ranks = |set: &dyn Fn(&BlockView) -> u64| {
            blocks.iter().map(|block| set(block).count_ones()).sum()
        };
        let mut open = [0; SPAN];
        for (open, block) in open.iter_mut().zip(blocks) {
            *open = block.available & !block.marks;
        }
        Board {
            versions: Arc::clone(blocks[0].live.versions()),
            blocks: blocks.len(),
            available: ranks(&|block| block.available),
            unmarked: ranks(&|block| block.available & !block.marks),
            next_lapse: blocks.iter().map(|b| b.next_lapse).min().unwrap_or(Time::NEVER),
            open,
            turns: Turns::new(),
            whole: Sealed::default(),
            each: Default::default(),
            leasts: std::array::from_fn(|_| AtomicU64::new(f64::INFINITY.to_bits())),
            counts: Default::default(),
            whole_is_theirs: AtomicBool::new(false),
            classes: blocks[0].classes.iter().map(|_| ClassCounts::default()).collect(),
            shelves: OnceLock::new(),
        }
    }

    /// The numbers of the blocks there are, as a set.
    #[inline(always)]
    pub(crate) fn places(&self) -> u64 {
        (1 << self.blocks) - 1
    }

    /// Publishes what was found in block number `at` at `version`, unless what stands there is as
    /// new; `least` and `counts` are two of the words.
    #[inline]
    pub(crate) fn note(
        &self,
        turn: &Turn<'_>,
        at: usize,
        version: u64,
        words: [u64; 7],
        (least, counts): (u64, u64),
    ) {
        if self.each[at].put(turn, version, words) {
            // Relaxed: read by who has found `whole` valid, which is put after this, or by who has
            // the turn. What stands there by then is of that result or of a later one.
            self.leasts[at].store(least, Ordering::Relaxed);
            self.counts[at].store(counts, Ordering::Relaxed);
        }
    }

    /// The lowest cost and the counts of a block, as they were last noted.
    #[inline(always)]
    pub(crate) fn told(&self, at: usize) -> (u64, u64) {
        (self.leasts[at].load(Ordering::Relaxed), self.counts[at].load(Ordering::Relaxed))
    }

    /// Publishes what all blocks come to, at the sum of their versions.
    #[inline]
    pub(crate) fn put_whole(&self, turn: &Turn<'_>, sum: u64, words: [u64; 2]) {
        let put = self.whole.put(turn, sum, words);
        // Refused: what stands there is as new and of versions read by another call, which may have
        // missed a change of a block that this one has noted.
        self.whole_is_theirs.store(put, Ordering::Relaxed);
    }

    /// What all blocks came to, if no block has been noted with anything else since: most changes
    /// of a row neither move the lowest cost of its block nor anybody across a limit.
    #[inline]
    pub(crate) fn still(&self, _turn: &Turn<'_>) -> Option<[u64; 2]> {
        let theirs = self.whole_is_theirs.load(Ordering::Relaxed);
        if theirs { self.whole.latest().map(|(_, words)| words) } else { None }
    }

    /// The shelf about `subject`, if there is one, and its edition.
    #[inline]
    pub(crate) fn shelf(&self, subject: u64) -> Option<(&Shelf, u64)> {
        let shelves = self.shelves.get()?;
        let first = place(subject);
        (0..PLACES).find_map(|n| {
            let shelf = &shelves[first ^ n];
            Some((shelf, shelf.about(subject)?))
        })
    }

    /// A shelf about `subject`: one that is, or one that is made so, at the cost of what stood on
    /// it (`any` says on which).
    #[cold]
    pub(crate) fn claim(&self, turn: &Turn<'_>, subject: u64, any: u64) -> (&Shelf, u64) {
        if let Some(found) = self.shelf(subject) {
            return found;
        }
        let shelves = self.shelves.get_or_init(|| (0..SHELVES).map(|_| Shelf::default()).collect());
        let first = place(subject);
        let mut places = (0..PLACES).map(|n| &shelves[first ^ n]);
        let unused = places.find(|shelf| shelf.is_unused());
        let shelf = unused.unwrap_or(&shelves[first ^ (place(any) % PLACES)]);
        (shelf, shelf.give(turn, subject))
    }
}

fn place(subject: u64) -> usize {
    // Fibonacci hashing: hosts may hash badly.
    (subject.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SHELVES
}

const _: () = assert!(SHELVES.is_multiple_of(PLACES) && PLACES.is_power_of_two());
