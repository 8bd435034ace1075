//! Live columns: what changes with every booking, 64 ranks to a block.
//!
//! Blocks are never freed while their pool lives, and slots keep their address, so a booking can
//! name its slot by number. Who may write: `rows` and `lives` only through `load::slot`; `requests`
//! and `held` by whoever's swap of the row succeeded, after it; the version by whoever changed
//! anything in the block, after the last column.

use crate::fleet::seal::Versions;
use crate::load::prompts::RankPrompts;
use crate::load::row::Row;
use crate::prefetch::{all_for_writing, for_writing};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use crossbeam_utils::CachePadded;

/// Ranks in a block: a set of them is one `u64`.
pub(crate) const LANES: usize = 64;

/// A place that a rank can live in: block and lane in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(u32);

impl SlotId {
    pub(crate) const fn new(block: usize, lane: usize) -> SlotId {
        SlotId((block * LANES + lane) as u32)
    }

    pub(crate) const fn from_index(index: u32) -> SlotId {
        SlotId(index)
    }

    #[inline(always)]
    pub(crate) const fn block(self) -> usize {
        self.0 as usize / LANES
    }

    #[inline(always)]
    pub(crate) const fn lane(self) -> usize {
        self.0 as usize % LANES
    }

    /// The lane as a set.
    #[inline(always)]
    pub(crate) const fn bit(self) -> u64 {
        1 << self.lane()
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        self.0
    }
}

/// The lanes of a set, lowest first.
#[inline]
pub(crate) fn lanes(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let lane = set.trailing_zeros() as usize;
            set &= set - 1;
            lane
        })
    })
}

/// The live columns of 64 ranks.
#[repr(align(128))]
pub(crate) struct Block {
    /// What limits are judged by; see `load::row`.
    pub(crate) rows: [AtomicU64; LANES],
    /// Active requests. No limit is judged by them.
    pub(crate) requests: [AtomicU32; LANES],
    /// How many of the row's KV blocks are set aside by holds. For reports.
    pub(crate) held: [AtomicU32; LANES],
    /// Which life goes on in each slot; see `load::slot`.
    pub(crate) lives: [AtomicU64; LANES],
    /// Moves after every change of anything here: summaries are valid for one version. Shared with
    /// the neighbouring blocks; this is number `at` there.
    versions: Arc<Versions>,
    at: usize,
    /// Which prompt blocks each rank holds, each under a short lock of its own.
    pub(crate) prompts: [CachePadded<Mutex<RankPrompts>>; LANES],
}

// Each is on two lines of its own.
const _: () = assert!(size_of::<Mutex<RankPrompts>>() <= 128);

impl Block {
    /// The block with number `at` of those that share `versions`.
    pub(crate) fn new(versions: Arc<Versions>, at: usize) -> Block {
        Block {
            rows: [const { AtomicU64::new(Row::VACANT.bits()) }; LANES],
            requests: [const { AtomicU32::new(0) }; LANES],
            held: [const { AtomicU32::new(0) }; LANES],
            lives: [const { AtomicU64::new(0) }; LANES],
            versions,
            at,
            prompts: std::array::from_fn(|_| CachePadded::new(Mutex::new(RankPrompts::default()))),
        }
    }

    /// Copies the rows into a plain buffer: arithmetic never runs on a live table.
    #[inline(always)]
    pub(crate) fn copy_rows(&self, into: &mut [u64; LANES]) {
        for (to, from) in into.iter_mut().zip(&self.rows) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Copies the request counts into a plain buffer.
    #[inline(always)]
    pub(crate) fn copy_requests(&self, into: &mut [u32; LANES]) {
        for (to, from) in into.iter_mut().zip(&self.requests) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Asks for the lines that a booking or a free on this lane writes.
    #[inline(always)]
    pub(crate) fn prefetch(&self, lane: usize) {
        for_writing(&self.rows[lane]);
        all_for_writing(&self.prompts[lane]);
        for_writing(&self.requests[lane]);
        for_writing(self.versions.place(self.at));
    }

    /// Says that something of one lane has changed. Comes after the change itself.
    #[inline(always)]
    pub(crate) fn bump(&self, lane: usize) {
        self.versions.bump(self.at, lane);
    }

    /// The versions of this block and its neighbours.
    pub(crate) fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    /// The row of one lane as it stands.
    #[inline(always)]
    pub(crate) fn row(&self, lane: usize) -> Row {
        // Acquire: comes with the columns of the life that the row belongs to.
        Row::from_bits(self.rows[lane].load(Ordering::Acquire))
    }
}
