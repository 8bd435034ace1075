//! Other routers' load: what each has told, kept so that it can be taken off again.
//!
//! Events may come twice, late, or in another order than they happened. A booking here is a small
//! state that every kind of event can be put into in any order, and what the rows show of it follows
//! from the state alone. What arrives before its `Add` is kept (in bounded memory) until that comes;
//! a `Free` before it leaves a mark that eats it; what is on a rank that is not known here is on none
//! of ours until a `Move` brings it back. Only output counts anything, so only output is told apart
//! by sequence number. A router's mirrors live as long as it is heard of, and go as one.
#![forbid(unsafe_code)]

use crate::booking::Landed;
use crate::load::events::{LoadChange, LoadEvent, RouterId};
use crate::names::Rank;
use crate::time::Time;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::time::Duration;

/// How many bookings of one router that are on none of our rows are remembered, and how many
/// sequence numbers of output are told apart: the last ones.
const WINDOW: usize = 4096;

/// A booking that is on none of our rows: its `Add` has not come, its rank is not known here, or it
/// was freed.
#[derive(Clone, Copy, Default)]
struct Apart {
    /// Its `Add`: rank, prefill tokens, KV blocks.
    add: Option<(Rank, u32, u32)>,
    prefill_completed: bool,
    output: u32,
    /// The last move, by sequence number.
    moved: Option<(u64, Rank)>,
    freed: bool,
    /// When it came to be; tells it from an earlier one of the same booking.
    since: u64,
}

impl Apart {
    /// Whether a rank is to be tried for it.
    fn act(&self) -> Act<'static> {
        match self.add {
            Some((rank, prefill_tokens, kv_blocks)) if !self.freed => Act::Add {
                rank: self.moved.map_or(rank, |(_, rank)| rank),
                prefill_tokens: if self.prefill_completed { 0 } else { prefill_tokens },
                kv_blocks,
                output: self.output,
            },
            _ => Act::Nothing,
        }
    }
}

#[derive(Default)]
struct Router {
    heard: Time,
    live: FxHashMap<u128, Mirrored>,
    apart: FxHashMap<u128, Apart>,
    /// The order in which those came to be; bounds them. Some have become live since.
    order: VecDeque<(u128, u64)>,
    last: u64,
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
    /// A booking that is not live, known already or from now on.
    fn apart(&mut self, booking: u128) -> &mut Apart {
        if !self.apart.contains_key(&booking) {
            while self.apart.len() >= WINDOW
                && let Some(oldest) = self.order.pop_front()
            {
                if self.apart.get(&oldest.0).is_some_and(|apart| apart.since == oldest.1) {
                    self.apart.remove(&oldest.0);
                }
            }
            if self.order.len() >= 2 * WINDOW {
                let apart = &self.apart;
                self.order.retain(|&(id, since)| apart.get(&id).is_some_and(|a| a.since == since));
            }
            self.last += 1;
            self.order.push_back((booking, self.last));
        }
        let since = self.last;
        self.apart.entry(booking).or_insert(Apart { since, ..Apart::default() })
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
        if let LoadChange::Output { .. } = event.change
            && !router.is_new(event.seq)
        {
            return Act::Nothing;
        }
        if router.live.contains_key(&id) {
            if event.change == LoadChange::Free {
                // A late duplicate of its `Add` must not bring it back.
                router.apart(id).freed = true;
                return router.live.remove(&id).map_or(Act::Nothing, Act::Free);
            }
            let mirrored = router.live.get_mut(&id).expect("it is there");
            return match event.change {
                LoadChange::PrefillCompleted => Act::PrefillCompleted(mirrored),
                LoadChange::Output { blocks } => Act::Output(mirrored, blocks),
                // The move that the router made last stands.
                LoadChange::Move { rank } if event.seq > mirrored.moved => {
                    mirrored.moved = event.seq;
                    Act::Move(mirrored, rank)
                }
                LoadChange::Move { .. } | LoadChange::Add { .. } | LoadChange::Free => Act::Nothing,
            };
        }
        if let LoadChange::Add { rank, prefill_tokens, kv_blocks } = event.change {
            let add = (rank, prefill_tokens, kv_blocks);
            // One that nothing is known of makes nothing be forgotten.
            let mut fresh = Apart::default();
            let apart = router.apart.get_mut(&id).unwrap_or(&mut fresh);
            apart.add.get_or_insert(add);
            return apart.act();
        }
        let apart = router.apart(id);
        match event.change {
            LoadChange::PrefillCompleted => {
                apart.prefill_completed = true;
                Act::Nothing
            }
            LoadChange::Output { blocks } => {
                apart.output = apart.output.saturating_add(blocks);
                Act::Nothing
            }
            LoadChange::Move { rank } => {
                if apart.moved.is_some_and(|(seq, _)| event.seq <= seq) {
                    return Act::Nothing;
                }
                apart.moved = Some((event.seq, rank));
                apart.act()
            }
            LoadChange::Free => {
                apart.freed = true;
                Act::Nothing
            }
            LoadChange::Add { .. } => unreachable!("taken in above"),
        }
    }

    /// Remembers an `Add` whose rank is not known here, should its booking move to one that is.
    pub(crate) fn keep_apart(&mut self, event: &LoadEvent) {
        if let LoadChange::Add { rank, prefill_tokens, kv_blocks } = event.change {
            let router = self.routers.entry(event.router).or_default();
            router.apart(event.booking).add.get_or_insert((rank, prefill_tokens, kv_blocks));
        }
    }

    /// Keeps what was put on a row for [`Act::Add`].
    pub(crate) fn added(&mut self, event: &LoadEvent, landed: Landed) {
        let router = self.routers.entry(event.router).or_default();
        let apart = router.apart.remove(&event.booking).unwrap_or_default();
        let moved = apart.moved.map_or(0, |(seq, _)| seq);
        router.live.insert(event.booking, Mirrored { landed, moved });
    }

    /// Takes out one booking that has moved to a rank which is not known here; what is known of it
    /// stays, should it move back.
    pub(crate) fn lose(&mut self, event: &LoadEvent, to: Rank) -> Option<Mirrored> {
        let router = self.routers.get_mut(&event.router)?;
        let mirrored = router.live.remove(&event.booking)?;
        let landed = &mirrored.landed;
        let apart = router.apart(event.booking);
        apart.add = Some((landed.rank, landed.origin.isl, landed.origin.prompt_blocks));
        apart.prefill_completed = landed.prefill_done;
        apart.output = landed.output();
        apart.moved = Some((event.seq, to));
        Some(mirrored)
    }

    /// Takes out everything of a router.
    pub(crate) fn gone(&mut self, router: RouterId) -> Vec<Mirrored> {
        self.routers.remove(&router).map_or_else(Vec::new, |r| r.live.into_values().collect())
    }

    /// Takes out the routers that have been silent for the whole lease at `now`, and their mirrors.
    pub(crate) fn silent(&mut self, lease: Duration, now: Time) -> Vec<(RouterId, Vec<Mirrored>)> {
        let silent = self.routers.extract_if(|_, router| router.heard.after(lease) <= now);
        silent.map(|(id, router)| (id, router.live.into_values().collect())).collect()
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
