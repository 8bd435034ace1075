//! The immutable picture that a selection works on: who is there, what each rank can carry, which
//! limits are in force. One pointer, swapped as one; all of its writers go through one lock.
#![forbid(unsafe_code)]

use crate::fleet::block::{Block, LANES, SlotId, lanes};
use crate::fleet::board::Boards;
use crate::fleet::seal::SPAN;
use crate::fleet::spec::WorkerSpec;
use crate::fleet::tags::Tags;
use crate::limits::rules::{RejectScope, Rules};
use crate::load::row::Limit;
use crate::names::{Rank, WorkerId};
use crate::prefetch::for_reading;
use crate::sync::Arc;
use crate::time::Time;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A worker as the view knows it. Immutable: a change makes a new one.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) spec: Arc<WorkerSpec>,
    /// Where its ranks live, in the order of their numbers.
    pub(crate) slots: SmallVec<[SlotId; 4]>,
    /// Set by the host; an unavailable worker is not structurally eligible.
    pub(crate) available: bool,
    /// Until when the host's overload mark stands; `None`: no mark.
    pub(crate) overloaded: Option<Time>,
    /// Until when the monitor's evidence latches each rank, by position; past: not latched.
    pub(crate) latched: SmallVec<[Time; 2]>,
}

impl Worker {
    /// Where the rank `dp_rank` lives.
    pub(crate) fn slot(&self, dp_rank: u32) -> Option<SlotId> {
        let at = dp_rank.checked_sub(self.spec.data_parallel_start_rank)?;
        self.slots.get(at as usize).copied()
    }

    /// Its ranks and where they live.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = (Rank, SlotId)> + '_ {
        self.slots.iter().enumerate().map(|(i, &slot)| {
            let dp_rank = self.spec.data_parallel_start_rank + i as u32;
            (Rank { worker: self.spec.id, dp_rank }, slot)
        })
    }

    /// Whether it has ranks in more than one block.
    pub(crate) fn straddles(&self) -> bool {
        self.slots.windows(2).any(|w| w[0].block() != w[1].block())
    }

    /// Until when the monitor marks the rank at `position`: by itself, or (worker-wide) as long as
    /// every declared rank is latched. [`Time::ZERO`]: not marked.
    pub(crate) fn monitored_until(&self, position: usize, scope: RejectScope) -> Time {
        match scope {
            RejectScope::Rank => self.latched_until(position),
            RejectScope::Worker => {
                let all = (0..self.slots.len()).map(|at| self.latched_until(at));
                all.min().unwrap_or(Time::ZERO)
            }
        }
    }

    /// Until when what it said latches the rank at `position`. [`Time::ZERO`]: not latched.
    pub(crate) fn latched_until(&self, position: usize) -> Time {
        self.latched.get(position).copied().unwrap_or(Time::ZERO)
    }
}

/// Limits of 64 ranks, as a column that a walk can load.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Limits(pub(crate) [u64; LANES]);

impl Limits {
    pub(crate) const NONE: Limits = Limits([Limit::NONE.bits(); LANES]);

    #[inline(always)]
    pub(crate) fn at(&self, lane: usize) -> Limit {
        Limit::from_bits(self.0[lane])
    }

    pub(crate) fn set(&mut self, lane: usize, limit: Limit) {
        self.0[lane] = limit.bits();
    }
}

/// What is known of 64 ranks besides their live columns.
#[derive(Clone)]
pub(crate) struct BlockView {
    pub(crate) live: Arc<Block>,
    /// Lanes that a rank lives in.
    pub(crate) declared: u64,
    /// Declared lanes whose worker is available.
    pub(crate) available: u64,
    /// Lanes under a soft mark, a host's or the monitor's, as if none ran out.
    pub(crate) marks: u64,
    /// Until when each of those lanes is marked.
    pub(crate) marked_until: [Time; LANES],
    /// Lanes that what the worker said latches, as if no signal fell silent; marked by it or not.
    pub(crate) latched: u64,
    /// The first instant at which one of those marks runs out, or one of those latches.
    pub(crate) next_lapse: Time,
    /// Lanes whose worker has more than one rank.
    pub(crate) multi: u64,
    /// Lanes whose worker has ranks in other blocks as well.
    pub(crate) straddling: u64,
    /// For each lane: the lanes of the same worker in this block.
    pub(crate) siblings: [u64; LANES],
    pub(crate) ranks: [Rank; LANES],
    pub(crate) owners: [Option<Arc<Worker>>; LANES],
    /// The life that the view means by each lane.
    pub(crate) lives: [u64; LANES],
    /// The reject thresholds, compiled.
    pub(crate) reject: Limits,
    /// The thresholds of each policy class, compiled.
    pub(crate) classes: Vec<Limits>,
    /// Per tag number, the lanes whose worker carries it; sorted by number.
    pub(crate) tags: SmallVec<[(u32, u64); 4]>,
}

impl BlockView {
    pub(crate) fn new(live: Arc<Block>, classes: usize) -> BlockView {
        BlockView {
            live,
            declared: 0,
            available: 0,
            marks: 0,
            marked_until: [Time::ZERO; LANES],
            latched: 0,
            next_lapse: Time::NEVER,
            multi: 0,
            straddling: 0,
            siblings: [0; LANES],
            ranks: [Rank::new(0, 0); LANES],
            owners: [const { None }; LANES],
            lives: [0; LANES],
            reject: Limits::NONE,
            classes: vec![Limits::NONE; classes],
            tags: SmallVec::new(),
        }
    }

    /// Lanes that are softly marked at `now`: by the host, or by the monitor.
    #[inline]
    pub(crate) fn marked(&self, now: Time) -> u64 {
        if now < self.next_lapse {
            return self.marks;
        }
        // Some mark has run out: only those that still stand count.
        lanes(self.marks)
            .filter(|&lane| now < self.marked_until[lane])
            .fold(0, |set, lane| set | 1 << lane)
    }

    /// Lanes whose worker carries the tag `number`.
    pub(crate) fn tagged(&self, number: u32) -> u64 {
        match self.tags.binary_search_by_key(&number, |&(n, _)| n) {
            Ok(at) => self.tags[at].1,
            Err(_) => 0,
        }
    }
}

/// Shards of the worker table: an upsert copies one of them, not the whole table.
const SHARDS: usize = 256;

type Shard = FxHashMap<WorkerId, Arc<Worker>>;

/// Workers by id: a table of copy-on-write shards.
#[derive(Clone)]
pub(crate) struct Workers {
    shards: Arc<[Arc<Shard>]>,
    len: usize,
}

impl Default for Workers {
    fn default() -> Workers {
        let empty = Arc::new(FxHashMap::default());
        Workers { shards: (0..SHARDS).map(|_| Arc::clone(&empty)).collect(), len: 0 }
    }
}

impl Workers {
    fn shard(id: WorkerId) -> usize {
        // Fibonacci hashing: consecutive ids spread over the shards.
        (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SHARDS
    }

    pub(crate) fn get(&self, id: WorkerId) -> Option<&Arc<Worker>> {
        self.shards[Self::shard(id)].get(&id)
    }

    pub(crate) fn insert(&mut self, id: WorkerId, worker: Arc<Worker>) {
        let shard = &mut Arc::make_mut(&mut self.shards)[Self::shard(id)];
        if Arc::make_mut(shard).insert(id, worker).is_none() {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: WorkerId) -> Option<Arc<Worker>> {
        let shard = &mut Arc::make_mut(&mut self.shards)[Self::shard(id)];
        if !shard.contains_key(&id) {
            return None;
        }
        self.len -= 1;
        Arc::make_mut(shard).remove(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }
}

/// The whole picture.
#[derive(Clone)]
pub(crate) struct View {
    /// Moves with every change of the view.
    pub(crate) generation: u64,
    /// Moves when ranks go or names on workers change: what waits may have become impossible.
    pub(crate) shape: u64,
    pub(crate) blocks: Vec<Arc<BlockView>>,
    /// One per span of blocks.
    pub(crate) boards: Vec<Arc<Boards>>,
    /// Available ranks.
    pub(crate) available: u32,
    /// Of them, those under no soft mark, as if none ran out.
    pub(crate) unmarked: u32,
    /// The first instant at which a soft mark runs out.
    pub(crate) next_lapse: Time,
    pub(crate) workers: Workers,
    pub(crate) tags: Arc<Tags>,
    /// Thresholds in force, and how they are judged.
    pub(crate) rules: Arc<Rules>,
    /// Declared ranks.
    pub(crate) ranks: u32,
}

/// Spans whose versions are asked for, at most.
const SPANS_ASKED: usize = 8;
const VERSIONS_PER_LINE: usize = 8;

impl View {
    /// Asks for the versions of all blocks, which a pick reads a few hundred instructions later and
    /// other threads have moved meanwhile. Of a very large fleet for a part: asking costs as well.
    #[inline(always)]
    pub(crate) fn ask_for_versions(&self) {
        for boards in self.boards.iter().take(SPANS_ASKED) {
            let versions = &boards.any().versions;
            (0..SPAN).step_by(VERSIONS_PER_LINE).for_each(|at| for_reading(versions.place(at)));
        }
    }

    pub(crate) fn new(rules: Arc<Rules>) -> View {
        View {
            generation: 0,
            shape: 0,
            blocks: Vec::new(),
            boards: Vec::new(),
            available: 0,
            unmarked: 0,
            next_lapse: Time::NEVER,
            workers: Workers::default(),
            tags: Arc::default(),
            rules,
            ranks: 0,
        }
    }

    /// Where `rank` lives, if it is declared.
    pub(crate) fn slot(&self, rank: Rank) -> Option<SlotId> {
        self.workers.get(rank.worker)?.slot(rank.dp_rank)
    }

    pub(crate) fn block(&self, slot: SlotId) -> &BlockView {
        &self.blocks[slot.block()]
    }

    /// The life that this view means by `slot`.
    pub(crate) fn life(&self, slot: SlotId) -> u64 {
        self.block(slot).lives[slot.lane()]
    }
}
