//! Other routers' load: of every booking that was ever heard of, what was said of it, in any order.
//!
//! A booking's state is what its events amount to, whichever order they came in. An event that
//! would put it on a rank that is not known here, or does not fit there, is dropped; what was said of
//! it stays known, in case it moves to one that is.

use super::Model;
use super::rows::{Kind, Load};
use std::collections::{BTreeMap, BTreeSet};
use vacancy::{Applied, LoadChange, LoadEvent, Rank, Request, RouterId, Time};

/// What was said of one booking.
#[derive(Clone, Debug, Default)]
struct Said {
    /// Rank, prefill tokens, KV blocks.
    add: Option<(Rank, u32, u32)>,
    completed: bool,
    output: u64,
    /// The last move, by the router's own count.
    moved: Option<(u64, Rank)>,
    freed: bool,
    /// Its number among the pool's bookings, if it is on a rank.
    on: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Router {
    heard: Time,
    said: BTreeMap<u128, Said>,
    output: BTreeSet<u64>,
}

/// Everything heard.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    routers: BTreeMap<RouterId, Router>,
    dropped: u64,
}

impl Model {
    /// How many events were dropped.
    pub fn peer_events_dropped(&self) -> u64 {
        self.peers.dropped
    }

    /// How many bookings of other routers are live, also those that have lost their rank.
    pub fn mirrored(&self) -> usize {
        let on = |r: &Router| r.said.values().filter(|s| s.on.is_some()).count();
        self.peers.routers.values().map(on).sum()
    }

    /// The routers that something is known of.
    pub fn routers(&self) -> Vec<RouterId> {
        self.peers.routers.keys().copied().collect()
    }

    /// What a booking of another router puts on any rank.
    pub(super) fn mirror_load(&self, tokens: u64, blocks: u64) -> Load {
        Load {
            prefill: if self.config.track_prefill { tokens } else { 0 },
            own_blocks: if self.config.track_blocks { blocks } else { 0 },
            ..Load::default()
        }
    }

    pub(super) fn apply_peer(&mut self, event: &LoadEvent, now: Time) -> Applied {
        self.clock = self.clock.max(now);
        if event.router == self.config.router {
            return Applied::Echo;
        }
        let router = self.peers.routers.entry(event.router).or_default();
        router.heard = router.heard.max(self.clock);
        if matches!(event.change, LoadChange::Output { .. }) && !router.output.insert(event.seq) {
            return Applied::Taken;
        }
        let mut said = router.said.remove(&event.booking).unwrap_or_default();
        let applied = self.take_in(event, &mut said);
        let router = self.peers.routers.get_mut(&event.router).expect("it was heard of");
        router.said.insert(event.booking, said);
        self.peers.dropped += u64::from(applied == Applied::Dropped);
        applied
    }

    fn take_in(&mut self, event: &LoadEvent, said: &mut Said) -> Applied {
        match event.change {
            LoadChange::Add { rank, prefill_tokens, kv_blocks } => {
                if said.on.is_some() {
                    return Applied::Taken;
                }
                said.add.get_or_insert((rank, prefill_tokens, kv_blocks));
                self.mirror(event.router, said)
            }
            LoadChange::PrefillCompleted => {
                said.completed = true;
                if let Some(key) = said.on {
                    self.complete(key).expect("it is live");
                }
                Applied::Taken
            }
            LoadChange::Output { blocks } => match said.on {
                Some(key) if self.output(key, blocks).is_err() => Applied::Dropped,
                _ => {
                    said.output = (said.output + u64::from(blocks)).min(u64::from(u32::MAX));
                    Applied::Taken
                }
            },
            LoadChange::Move { rank } => {
                if said.moved.is_some_and(|(seq, _)| event.seq <= seq) {
                    return Applied::Taken;
                }
                said.moved = Some((event.seq, rank));
                let Some(key) = said.on else { return self.mirror(event.router, said) };
                let moved = self.fleet.life(rank).map(|life| self.move_on(key, rank, life));
                if matches!(moved, Some(Ok(()))) {
                    return Applied::Taken;
                }
                // It is on none of our ranks any more.
                self.bookings.remove(&key);
                said.on = None;
                Applied::Dropped
            }
            LoadChange::Free => {
                said.freed = true;
                if let Some(key) = said.on.take() {
                    self.bookings.remove(&key);
                }
                Applied::Taken
            }
            _ => unreachable!("every change is one of these"),
        }
    }

    /// Puts a booking that is on no rank where it belongs by all that was said of it.
    fn mirror(&mut self, router: RouterId, said: &mut Said) -> Applied {
        let Some((rank, tokens, blocks)) = said.add.filter(|_| !said.freed) else {
            return Applied::Taken;
        };
        let rank = said.moved.map_or(rank, |(_, rank)| rank);
        let tokens = if said.completed { 0 } else { u64::from(tokens) };
        let blocks = u64::from(blocks);
        let load = self.mirror_load(tokens, blocks);
        if self.fleet.life(rank).is_none() || !self.view().fits(rank, &load) {
            return Applied::Dropped;
        }
        let kind = Kind::Mirror { router, tokens, blocks };
        let key = self.put(kind, rank, load, Request::new(0));
        said.on = Some(key);
        // What does not fit the row is not shown.
        let _ = self.output(key, said.output as u32);
        Applied::Taken
    }

    /// Takes off all that a router has told of; how many bookings that were.
    pub(super) fn peer_gone(&mut self, router: RouterId) -> usize {
        let Some(gone) = self.peers.routers.remove(&router) else { return 0 };
        let on: Vec<u64> = gone.said.values().filter_map(|s| s.on).collect();
        on.iter().for_each(|key| {
            self.bookings.remove(key);
        });
        on.len()
    }

    /// Takes off what routers have told of that were silent for the whole lease.
    pub(super) fn expire_peers(&mut self) -> Vec<RouterId> {
        let Some(lease) = self.config.lease else { return Vec::new() };
        let clock = self.clock;
        let silent = |r: &Router| r.heard.after(lease) <= clock;
        let routers = self.peers.routers.iter();
        let over: Vec<RouterId> = routers.filter(|(_, r)| silent(r)).map(|(id, _)| *id).collect();
        over.iter().for_each(|id| {
            self.peer_gone(*id);
        });
        over
    }
}
