//! Other routers' load: what each has told, kept so that it can be taken off again.
//!
//! Events may come twice, late, or in another order than they happened. A booking here is a small
//! state that every kind of event can be put into in any order: what arrives before its `Add` is
//! kept (in bounded memory) until that comes, a `Free` before it leaves a mark that eats it. Only
//! output counts anything, so only output is told apart by sequence number. A router's mirrors live
//! as long as it is heard of, and go as one.
#![forbid(unsafe_code)]

use crate::booking::Landed;
use crate::load::events::{LoadChange, LoadEvent, RouterId};
use crate::names::Rank;
use crate::time::Time;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::time::Duration;

/// How many bookings of one router may be known by something else than their `Add`, and how many
/// sequence numbers of output are told apart.
const WINDOW: usize = 4096;

/// What came before its `Add`, or makes it void.
#[derive(Clone, Copy, Default)]
struct Early {
    prefill_completed: bool,
    output: u32,
    moved: Option<(u64, Rank)>,
    freed: bool,
}

#[derive(Default)]
struct Router {
    heard: Time,
    live: FxHashMap<u128, Mirrored>,
    early: FxHashMap<u128, Early>,
    /// The order in which `early` came to be; bounds it.
    order: VecDeque<u128>,
    /// Sequence numbers of output that were taken in.
    output: FxHashSet<u64>,
    output_order: VecDeque<u64>,
}

/// A booking of another router that is on our rows.
pub(crate) struct Mirrored {
    pub(crate) landed: Landed,
    /// The last move that was taken in.
    moved: u64,
}

/// What an event asks for, beyond keeping it.
pub(crate) enum Act<'a> {
    /// Nothing: a duplicate, or it waits for its `Add`.
    Nothing,
    /// Put it on a rank; then [`Mirrors::added`].
    Add { rank: Rank, prefill_tokens: u32, kv_blocks: u32, output: u32 },
    /// Take the prefill tokens off.
    PrefillCompleted(&'a mut Mirrored),
    /// Add output.
    Output(&'a mut Mirrored, u32),
    /// Move it.
    Move(&'a mut Mirrored, Rank),
    /// Take it off.
    Free(Mirrored),
}

/// All routers' mirrors.
#[derive(Default)]
pub(crate) struct Mirrors {
    routers: FxHashMap<RouterId, Router>,
}

impl Router {
    fn early(&mut self, booking: u128) -> &mut Early {
        if !self.early.contains_key(&booking) {
            if self.order.len() >= WINDOW
                && let Some(oldest) = self.order.pop_front()
            {
                self.early.remove(&oldest);
            }
            self.order.push_back(booking);
        }
        self.early.entry(booking).or_default()
    }

    /// Whether an output event is new.
    fn is_new(&mut self, seq: u64) -> bool {
        if !self.output.insert(seq) {
            return false;
        }
        self.output_order.push_back(seq);
        if self.output_order.len() > WINDOW
            && let Some(oldest) = self.output_order.pop_front()
        {
            self.output.remove(&oldest);
        }
        true
    }
}

impl Mirrors {
    /// Takes in an event; the router has been heard of at `now`.
    pub(crate) fn take_in(&mut self, event: &LoadEvent, now: Time) -> Act<'_> {
        let router = self.routers.entry(event.router).or_default();
        router.heard = router.heard.max(now);
        let id = event.booking;
        match event.change {
            LoadChange::Add { rank, prefill_tokens, kv_blocks } => {
                if router.live.contains_key(&id) {
                    return Act::Nothing;
                }
                let early = router.early.get(&id).copied().unwrap_or_default();
                if early.freed {
                    return Act::Nothing;
                }
                let rank = early.moved.map_or(rank, |(_, rank)| rank);
                let prefill_tokens = if early.prefill_completed { 0 } else { prefill_tokens };
                Act::Add { rank, prefill_tokens, kv_blocks, output: early.output }
            }
            LoadChange::PrefillCompleted => {
                if router.live.contains_key(&id) {
                    let mirrored = router.live.get_mut(&id).expect("it is there");
                    return Act::PrefillCompleted(mirrored);
                }
                router.early(id).prefill_completed = true;
                Act::Nothing
            }
            LoadChange::Output { blocks } => {
                if !router.is_new(event.seq) {
                    return Act::Nothing;
                }
                if router.live.contains_key(&id) {
                    let mirrored = router.live.get_mut(&id).expect("it is there");
                    return Act::Output(mirrored, blocks);
                }
                let early = router.early(id);
                early.output = early.output.saturating_add(blocks);
                Act::Nothing
            }
            LoadChange::Move { rank } => {
                if let Some(mirrored) = router.live.get_mut(&id) {
                    // The move that the router made last stands.
                    if event.seq <= mirrored.moved {
                        return Act::Nothing;
                    }
                    mirrored.moved = event.seq;
                } else {
                    let early = router.early(id);
                    if early.moved.is_none_or(|(seq, _)| event.seq > seq) {
                        early.moved = Some((event.seq, rank));
                    }
                    return Act::Nothing;
                }
                Act::Move(router.live.get_mut(&id).expect("it is there"), rank)
            }
            LoadChange::Free => {
                // Also after it was there: a late duplicate of its `Add` must not bring it back.
                router.early(id).freed = true;
                router.live.remove(&id).map_or(Act::Nothing, Act::Free)
            }
        }
    }

    /// Keeps what was put on a row for an `Add`.
    pub(crate) fn added(&mut self, event: &LoadEvent, mut landed: Landed) {
        let router = self.routers.entry(event.router).or_default();
        let early = router.early.remove(&event.booking).unwrap_or_default();
        landed.prefill_done |= early.prefill_completed;
        let moved = early.moved.map_or(0, |(seq, _)| seq);
        router.live.insert(event.booking, Mirrored { landed, moved });
    }

    /// Takes out one booking, which has moved to a rank that is not known here. What was said of it
    /// stays known: its `Add`, should it come again, must not bring it back where it was.
    pub(crate) fn lose(&mut self, event: &LoadEvent) -> Option<Mirrored> {
        let router = self.routers.get_mut(&event.router)?;
        let lost = router.live.remove(&event.booking)?;
        let early = router.early(event.booking);
        if let LoadChange::Move { rank } = event.change {
            early.moved = Some((event.seq, rank));
        }
        early.prefill_completed = lost.landed.prefill_done;
        early.output = lost.landed.output();
        Some(lost)
    }

    /// Takes out everything of a router.
    pub(crate) fn gone(&mut self, router: RouterId) -> Vec<Mirrored> {
        self.routers.remove(&router).map_or_else(Vec::new, |r| r.live.into_values().collect())
    }

    /// Routers that have been silent for the whole lease at `now`.
    pub(crate) fn silent(&self, lease: Duration, now: Time) -> Vec<RouterId> {
        let over = |r: &Router| r.heard.after(lease) <= now;
        self.routers.iter().filter(|(_, r)| over(r)).map(|(&id, _)| id).collect()
    }

    /// When the first router's lease ends.
    pub(crate) fn next_due(&self, lease: Duration) -> Option<Time> {
        self.routers.values().map(|r| r.heard.after(lease)).min()
    }

    /// Bookings mirrored.
    pub(crate) fn len(&self) -> usize {
        self.routers.values().map(|r| r.live.len()).sum()
    }
}
