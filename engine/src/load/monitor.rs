//! What workers say themselves: used KV blocks and active decode blocks per rank, each signal's
//! last value and when it was heard.
//!
//! A rank is latched while any of its signals that still counts is above the line, which is the
//! limit of the live reject thresholds' `decode_frac`: so a latch clears only when every signal is
//! at or under it, each judged by its last value. A signal that has been silent for longer than the
//! time to live counts as unknown from then on, and no latch outlives its evidence: a latch is the
//! instant until which the evidence counts. This router's own bookings are judged elsewhere; the
//! two never overwrite each other.
#![forbid(unsafe_code)]

use crate::fleet::view::Worker;
use crate::limits::thresholds::Thresholds;
use crate::names::{Rank, WorkerId};
use crate::time::Time;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::time::Duration;

/// What a worker publishes of one of its ranks; what is left out keeps its last value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// KV blocks in use.
    pub kv_used_blocks: Option<u64>,
    /// Blocks of requests that are decoding.
    pub active_decode_blocks: Option<u64>,
}

/// The last values of one rank's signals, and when each was heard.
#[derive(Clone, Copy, Default)]
struct Heard([Option<(u64, Time)>; 2]);

/// Everything heard.
pub(crate) struct Monitor {
    heard: FxHashMap<WorkerId, FxHashMap<u32, Heard>>,
    ttl: Duration,
}

impl Monitor {
    pub(crate) fn new(ttl: Duration) -> Monitor {
        Monitor { heard: FxHashMap::default(), ttl }
    }

    /// Takes in what was said of a rank.
    pub(crate) fn hear(&mut self, rank: Rank, said: Signals, now: Time) {
        let heard = self.heard.entry(rank.worker).or_default().entry(rank.dp_rank).or_default();
        for (slot, value) in
            heard.0.iter_mut().zip([said.kv_used_blocks, said.active_decode_blocks])
        {
            if let Some(value) = value {
                *slot = Some((value, now));
            }
        }
    }

    /// Forgets a rank that has gone: its signals never touch a later life.
    pub(crate) fn forget(&mut self, rank: Rank) {
        if let Some(ranks) = self.heard.get_mut(&rank.worker) {
            ranks.remove(&rank.dp_rank);
            if ranks.is_empty() {
                self.heard.remove(&rank.worker);
            }
        }
    }

    /// Workers that have said something.
    pub(crate) fn workers(&self) -> Vec<WorkerId> {
        self.heard.keys().copied().collect()
    }

    /// Until when the evidence latches each rank of a worker; empty if it latches none.
    pub(crate) fn latches(&self, worker: &Worker, decode_frac: Option<f64>) -> SmallVec<[Time; 2]> {
        let mut latches = SmallVec::new();
        let Some(ranks) = self.heard.get(&worker.spec.id) else { return latches };
        if decode_frac.is_none() {
            return latches;
        }
        let line = Thresholds { decode_frac, ..Thresholds::NONE };
        let limit = line.block_limit(worker.spec.total_kv_blocks);
        let until = |heard: &Heard| {
            let over = heard.0.iter().flatten().filter(|&&(value, _)| value > limit);
            // Silent for *longer* than the time to live: the last instant still counts.
            let ends = over
                .map(|&(_, at)| Time::from_nanos(at.after(self.ttl).as_nanos().saturating_add(1)));
            ends.max().unwrap_or(Time::ZERO)
        };
        latches.extend(
            worker.ranks().map(|(rank, _)| ranks.get(&rank.dp_rank).map_or(Time::ZERO, until)),
        );
        if latches.iter().all(|&until| until == Time::ZERO) {
            latches.clear();
        }
        latches
    }
}
