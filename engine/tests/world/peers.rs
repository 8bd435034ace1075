//! What the world expects of other routers' events, in whatever order and number they come.

use crate::ledger::{Ledger, Record, What};
use crate::plan::PeerSays;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use vacancy::{Applied, Rank};

/// What was said of a booking that is on none of the pool's ranks.
#[derive(Clone, Copy, Debug, Default)]
struct Early {
    /// Rank, tokens, blocks.
    add: Option<(Rank, u32, u32)>,
    done: bool,
    output: u32,
    moved: Option<(u64, Rank)>,
    freed: bool,
}

#[derive(Debug, Default)]
struct Router {
    heard: u64,
    live: BTreeMap<u64, (Record, u64)>,
    early: BTreeMap<u64, Early>,
    output: BTreeSet<u64>,
}

/// All other routers, at one pool.
#[derive(Debug, Default)]
pub struct Routers(BTreeMap<u64, Router>);

impl Router {
    /// Puts a booking where it belongs by all that was said of it.
    fn place(&mut self, booking: u64, ledger: &mut Ledger) -> Applied {
        let Some(early) = self.early.get(&booking).copied() else { return Applied::Taken };
        let Some((rank, tokens, blocks)) = early.add.filter(|_| !early.freed) else {
            return Applied::Taken;
        };
        let rank = early.moved.map_or(rank, |(_, rank)| rank);
        if !ledger.rows.contains_key(&rank) {
            return Applied::Dropped;
        }
        let mut record = Record {
            what: What::Mirror,
            rank,
            life: 0,
            isl: if early.done { 0 } else { tokens },
            cached: Rc::new([]),
            blocks,
            chain: None,
            output: 0,
            done: early.done,
            id: None,
        };
        ledger.land(&mut record);
        ledger.grow(&mut record, early.output);
        self.early.remove(&booking);
        self.live.insert(booking, (record, early.moved.map_or(0, |(seq, _)| seq)));
        Applied::Taken
    }
}

impl Routers {
    /// Takes an event in, and says what the pool must say of it.
    pub fn take_in(
        &mut self,
        (router, seq, booking): (u64, u64, u64),
        says: PeerSays,
        now: u64,
        ledger: &mut Ledger,
    ) -> Applied {
        let router = self.0.entry(router).or_default();
        router.heard = router.heard.max(now);
        if let Some((record, moved)) = router.live.get_mut(&booking) {
            match says {
                PeerSays::Add { .. } => {}
                PeerSays::Done => ledger.complete(record),
                PeerSays::Output(blocks) => {
                    if router.output.insert(seq) {
                        ledger.grow(record, blocks);
                    }
                }
                PeerSays::Move(to) if seq > *moved => {
                    *moved = seq;
                    let to = Rank::new(to.0, to.1);
                    if !ledger.rows.contains_key(&to) {
                        let (record, _) = router.live.remove(&booking).expect("it is there");
                        ledger.take_off(&record);
                        // It may move to a rank that is known.
                        let early = router.early.entry(booking).or_default();
                        early.add = Some((record.rank, record.isl, record.blocks));
                        early.done = record.done;
                        early.output = record.output;
                        early.moved = Some((seq, to));
                        return Applied::Dropped;
                    }
                    ledger.move_to(record, to);
                }
                PeerSays::Move(_) => {}
                PeerSays::Free => {
                    let (record, _) = router.live.remove(&booking).expect("it is there");
                    ledger.take_off(&record);
                    router.early.entry(booking).or_default().freed = true;
                }
            }
            return Applied::Taken;
        }
        match says {
            PeerSays::Add { rank, tokens, blocks } => {
                let early = router.early.entry(booking).or_default();
                early.add.get_or_insert((Rank::new(rank.0, rank.1), tokens, blocks));
                return router.place(booking, ledger);
            }
            PeerSays::Done => router.early.entry(booking).or_default().done = true,
            PeerSays::Output(blocks) => {
                if router.output.insert(seq) {
                    router.early.entry(booking).or_default().output += blocks;
                }
            }
            PeerSays::Move(to) => {
                let early = router.early.entry(booking).or_default();
                if early.moved.is_none_or(|(at, _)| seq > at) {
                    early.moved = Some((seq, Rank::new(to.0, to.1)));
                    return router.place(booking, ledger);
                }
            }
            PeerSays::Free => router.early.entry(booking).or_default().freed = true,
        }
        Applied::Taken
    }

    /// A router is gone. Returns how many bookings that were.
    pub fn gone(&mut self, router: u64, ledger: &mut Ledger) -> usize {
        let Some(router) = self.0.remove(&router) else { return 0 };
        for (record, _) in router.live.values() {
            ledger.take_off(record);
        }
        router.live.len()
    }

    /// Routers whose lease ends by `now`, in order.
    pub fn silent(&self, lease: Option<u64>, now: u64) -> Vec<u64> {
        let Some(lease) = lease else { return Vec::new() };
        let over = |r: &Router| r.heard.saturating_add(lease) <= now;
        self.0.iter().filter(|(_, r)| over(r)).map(|(&id, _)| id).collect()
    }

    /// Bookings mirrored.
    pub fn mirrored(&self) -> usize {
        self.0.values().map(|r| r.live.len()).sum()
    }

    /// All routers known.
    pub fn names(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// Requests mirrored on a rank in that life.
    pub fn on(&self, rank: Rank, life: u64) -> u64 {
        let all = self.0.values().flat_map(|r| r.live.values());
        all.filter(|(r, _)| r.rank == rank && r.life == life).count() as u64
    }
}
