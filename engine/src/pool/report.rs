//! What a pool tells of itself: rows, capacities, counters.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::fleet::block::lanes;
use crate::fleet::view::BlockView;
use crate::names::{Name, Rank, WorkerId};
use crate::pins::pin;
use crate::pool::{Inner, Pool, Stripe};
use crate::room::signal::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one rank carries, as this router knows it, and what it can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankLoad {
    /// Active prefill tokens.
    pub prefill_tokens: u32,
    /// KV blocks, booked and mirrored.
    pub kv_blocks: u32,
    /// KV blocks set aside by holds; judged like the others.
    pub held_blocks: u32,
    /// Active requests.
    pub requests: u32,
    /// Past the reject thresholds.
    pub full: bool,
    /// Its worker is available.
    pub available: bool,
    /// Its worker carries a host overload mark or a monitor mark.
    pub marked: bool,
    /// Tokens it batches at most, if known.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks it has, if known.
    pub total_kv_blocks: Option<u64>,
}

/// What happened in a pool since it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Answers given by select, book and admit.
    pub selected: u64,
    /// Errors other than expired, cancelled and closed.
    pub rejected: u64,
    /// The same, by the name of the error; those that occurred.
    pub rejected_by: Vec<(&'static str, u64)>,
    /// Admissions that had to wait.
    pub queued: u64,
    /// Admissions that went in, waited or not.
    pub admitted: u64,
    /// Waiting requests whose due time came.
    pub expired: u64,
    /// Waiting requests that were withdrawn.
    pub cancelled: u64,
    /// Waiters that were woken to go in.
    pub wakeups: u64,
    /// Rounds that were run again because a proposal no longer stood.
    pub reselections: u64,
    /// Passes over the fleet.
    pub passes: u64,
}

/// What waits in one policy class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassLoad {
    /// The class.
    pub class: Name,
    /// Requests that wait.
    pub waiting: u64,
    /// Their prompt tokens.
    pub tokens: u64,
}

/// One look at a pool. Each row is one instant of its rank; the rows are not of one instant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Every declared rank, in the order of their names.
    pub ranks: Vec<(Rank, RankLoad)>,
    /// Workers known.
    pub workers: usize,
    /// Ranks past the reject thresholds.
    pub full: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// What waits, class by class, in the order of the policy.
    pub classes: Vec<ClassLoad>,
    /// Bookings by id that are live.
    pub ids: usize,
    /// The epoch before the rows were read.
    pub epoch: Epoch,
    /// What happened so far.
    pub counters: Counters,
}

const NAMES: [&str; 12] = [
    "NoEndpoints",
    "AllEligibleWorkersOverloaded",
    "PinnedWorkerOverloaded",
    "PinnedWorkerNotAllowed",
    "AllEligibleWorkersFiltered",
    "PolicyFailed",
    "QueueRejected",
    "WouldQueue",
    "DuplicateRequest",
    "UnknownClass",
    "InvalidRequest",
    "RowOverflow",
];

/// Refusals by reason. Off the path of a request that is placed.
#[derive(Default)]
pub(crate) struct Rejected([AtomicU64; NAMES.len()]);

impl Rejected {
    #[cold]
    pub(crate) fn count(&self, error: &Error) {
        if let Some(at) = NAMES.iter().position(|&name| name == error.name()) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Vec<(&'static str, u64)> {
        let read = self.0.iter().map(|n| n.load(Ordering::Relaxed));
        NAMES.into_iter().zip(read).filter(|&(_, n)| n > 0).collect()
    }
}

fn load_of(block: &BlockView, lane: usize, now: crate::time::Time) -> RankLoad {
    let row = block.live.row(lane);
    let held = block.live.held[lane].load(Ordering::Relaxed).min(row.blocks());
    let spec = block.owners[lane].as_ref().map(|w| &w.spec);
    RankLoad {
        prefill_tokens: row.tokens(),
        kv_blocks: row.blocks() - held,
        held_blocks: held,
        requests: block.live.requests[lane].load(Ordering::Relaxed),
        full: row.exceeds(block.reject.at(lane)),
        available: block.available >> lane & 1 == 1,
        marked: block.marked(now) >> lane & 1 == 1,
        max_num_batched_tokens: spec.and_then(|s| s.max_num_batched_tokens),
        total_kv_blocks: spec.and_then(|s| s.total_kv_blocks).filter(|&b| b > 0),
    }
}

impl Pool {
    /// What one rank carries now; `None`: it is not declared. One load of its row.
    pub fn load(&self, rank: Rank) -> Option<RankLoad> {
        let guard = pin();
        let view = self.inner().view.load(&guard);
        let slot = view.slot(rank)?;
        Some(load_of(view.block(slot), slot.lane(), self.inner().time()))
    }

    /// Looks at every rank and reads the counters. `O(ranks)`, takes no lock that a request takes
    /// except, shard by shard, those of the table of ids.
    pub fn snapshot(&self) -> Snapshot {
        let inner = self.inner();
        let epoch = inner.signal.epoch();
        let guard = pin();
        let view = inner.view.load(&guard);
        let now = inner.time();
        let mut ranks = Vec::with_capacity(view.ranks as usize);
        for block in &view.blocks {
            for lane in lanes(block.declared) {
                ranks.push((block.ranks[lane], load_of(block, lane, now)));
            }
        }
        ranks.sort_unstable_by_key(|&(rank, _)| rank);
        Snapshot {
            full: ranks.iter().filter(|(_, load)| load.full).count(),
            workers: view.workers.len(),
            ranks,
            waiting: inner.bench.count(),
            classes: inner.bench.with(|bench| bench.report()),
            ids: inner.ids.len(),
            epoch,
            counters: self.counters(),
        }
    }

    /// Reads the counters.
    pub fn counters(&self) -> Counters {
        let inner = self.inner();
        let sum = |of: fn(&Stripe) -> &AtomicU64| {
            inner.stripes.iter().map(|s| of(s).load(Ordering::Relaxed)).sum()
        };
        let rejected_by = inner.rejected.read();
        Counters {
            selected: sum(|s| &s.selected),
            rejected: rejected_by.iter().map(|&(_, n)| n).sum(),
            rejected_by,
            queued: sum(|s| &s.queued),
            admitted: sum(|s| &s.admitted),
            expired: sum(|s| &s.expired),
            cancelled: sum(|s| &s.cancelled),
            wakeups: sum(|s| &s.wakeups),
            reselections: sum(|s| &s.reselections),
            passes: sum(|s| &s.passes),
        }
    }
}

impl Inner {
    /// Workers and ranks known.
    pub(crate) fn totals(&self) -> (usize, u32) {
        let guard = pin();
        let view = self.view.load(&guard);
        (view.workers.len(), view.ranks)
    }

    /// Requests on all ranks of a worker; 0 if it is not declared.
    pub(crate) fn requests_on(&self, worker: WorkerId) -> u64 {
        let guard = pin();
        let view = self.view.load(&guard);
        let Some(worker) = view.workers.get(worker) else { return 0 };
        let on = |slot: &crate::fleet::block::SlotId| {
            // Acquire would add nothing: the count is all that is looked at.
            let requests = &view.block(*slot).live.requests[slot.lane()];
            u64::from(requests.load(Ordering::Relaxed))
        };
        worker.slots.iter().map(on).sum()
    }
}
