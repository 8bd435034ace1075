//! The life of a booking: how it lands, what happens to it, and how it ends.

use super::Model;
use super::answer::{Ended, Exported, Outcome, Refusal};
use super::fleet::Worker;
use super::op::Nth;
use super::rows::{Kind, Live, Load, MAX_BLOCKS};
use std::collections::BTreeMap;
use vacancy::{Error, Rank, Request, RequestId, Time};

impl Model {
    /// Puts load on a declared rank, whoever's it is.
    pub(super) fn put(&mut self, kind: Kind, rank: Rank, load: Load, request: Request) -> u64 {
        let key = self.next;
        self.next += 1;
        let life = self.fleet.life(rank).expect("declared");
        let (completed, id, renewed) = (false, None, self.clock);
        let live = Live { kind, rank, life, load, request, completed, id, renewed };
        self.bookings.insert(key, live);
        key
    }

    pub(super) fn land(&mut self, rank: Rank, load: Load, request: Request, id: Option<RequestId>) {
        let key = self.put(Kind::Booking, rank, load, request);
        let attempt = id.map(|id| {
            let attempt = self.attempts.entry(id).or_default();
            *attempt += 1;
            self.ids.insert(id, key);
            (id, *attempt)
        });
        if id.is_none() {
            self.values.push(key);
        }
        self.booking(key).id = attempt;
    }

    pub(super) fn import(
        &mut self,
        id: RequestId,
        rank: Rank,
        request: &Request,
    ) -> Result<(), Refusal> {
        self.acceptable(request)?;
        self.unknown(Some(id))?;
        if self.fleet.life(rank).is_none() {
            return Err(Error::NoEndpoints.into());
        }
        let load = self.view().load(request, rank);
        if !self.view().fits(rank, &load) {
            return Err(Error::RowOverflow { rank }.into());
        }
        self.land(rank, load, request.clone(), Some(id));
        Ok(())
    }

    pub(super) fn on_value(
        &mut self,
        nth: Nth,
        call: impl FnOnce(&mut Model, u64) -> Result<(), Refusal>,
    ) -> Outcome {
        match nth.of(self.values.len()) {
            Some(i) => Outcome::Done(call(self, self.values[i])),
            None => Outcome::Nothing,
        }
    }

    pub(super) fn on_id(
        &mut self,
        id: RequestId,
        call: impl FnOnce(&mut Model, u64) -> Result<(), Refusal>,
    ) -> Outcome {
        let Some(&key) = self.ids.get(&id) else {
            return Outcome::Done(Err(Error::UnknownRequest { id }.into()));
        };
        let clock = self.clock;
        self.booking(key).renewed = clock;
        // Its hold is silent no longer either.
        if let Some((_, since)) = self.held.get_mut(&id) {
            *since = clock;
        }
        Outcome::Done(call(self, key))
    }

    pub(super) fn booking(&mut self, key: u64) -> &mut Live {
        self.bookings.get_mut(&key).expect("live")
    }

    pub(super) fn complete(&mut self, key: u64) -> Result<(), Refusal> {
        let booking = self.booking(key);
        booking.load.prefill = 0;
        booking.completed = true;
        Ok(())
    }

    pub(super) fn output(&mut self, key: u64, blocks: u32) -> Result<(), Refusal> {
        if !self.config.track_blocks {
            return Ok(());
        }
        let booking = &self.bookings[&key];
        let rank = booking.rank;
        if booking.stands(&self.fleet)
            && self.view().row(rank).kv_blocks + u64::from(blocks) > MAX_BLOCKS
        {
            return Err(Error::RowOverflow { rank }.into());
        }
        // What has lost its rank is on no row. Its count of blocks has 32 bits and stops there.
        let load = &mut self.booking(key).load;
        let most = u64::from(u32::MAX) - load.own_blocks;
        load.output = (load.output + u64::from(blocks)).min(most);
        Ok(())
    }

    pub(super) fn move_to(&mut self, key: u64, to: Rank) -> Result<(), Refusal> {
        let life = self.fleet.life(to).filter(|_| self.fleet.workers[&to.worker].available);
        let Some(life) = life else {
            return Err(Error::NoEndpoints.into());
        };
        self.move_on(key, to, life)
    }

    /// As [`Model::move_to`], to the declared rank `to` in its life `life`.
    pub(super) fn move_on(&mut self, key: u64, to: Rank, life: u64) -> Result<(), Refusal> {
        let booking = &self.bookings[&key];
        if booking.rank == to && booking.life == life {
            return Ok(());
        }
        let mut load = match booking.kind {
            Kind::Mirror { tokens, blocks, .. } => self.mirror_load(tokens, blocks),
            _ => self.view().load(&booking.request, to),
        };
        load.output = booking.load.output;
        if booking.completed {
            load.prefill = 0;
        }
        if !self.view().fits(to, &load) {
            return Err(Error::RowOverflow { rank: to }.into());
        }
        let booking = self.booking(key);
        (booking.rank, booking.life, booking.load) = (to, life, load);
        Ok(())
    }

    pub(super) fn free(&mut self, key: u64) {
        let booking = self.bookings.remove(&key).expect("live");
        match booking.id {
            Some((id, _)) => {
                self.ids.remove(&id);
            }
            // The last one takes its place, as `Vec::swap_remove` has it.
            None => {
                let i = self.values.iter().position(|k| *k == key).expect("a value");
                self.values.swap_remove(i);
            }
        }
    }

    pub(super) fn free_id(&mut self, id: RequestId, only: Option<u64>) -> bool {
        let Some(&key) = self.ids.get(&id) else {
            return false;
        };
        if only.is_some() && only != self.bookings[&key].id.map(|(_, attempt)| attempt) {
            return false;
        }
        self.free(key);
        true
    }

    pub(super) fn export(&self) -> BTreeMap<RequestId, Exported> {
        let of = |key: &u64| {
            let b = &self.bookings[key];
            let whole = b.request.isl.div_ceil(u64::from(self.config.block_size));
            let hashes = b.request.prompt.as_ref().map(|p| p.hashes().len() as u64);
            Exported {
                attempt: b.id.expect("booked by id").1,
                rank: b.rank,
                prefill_tokens: b.load.prefill,
                prompt_blocks: hashes.unwrap_or(whole),
                output_blocks: b.load.output,
            }
        };
        self.ids.iter().map(|(id, key)| (*id, of(key))).collect()
    }

    pub(super) fn expire(&mut self, now: Time) -> Outcome {
        self.clock = self.clock.max(now);
        let clock = self.clock;
        let mut marks = Vec::new();
        let ends = |w: &Worker| w.overloaded.flatten().is_some_and(|until| clock >= until);
        if self.fleet.workers.values().any(ends) {
            for (id, w) in self.fleet.workers.iter_mut().filter(|(_, w)| ends(w)) {
                w.overloaded = None;
                marks.push(*id);
            }
        }
        let silent = |b: &Live| self.config.lease.is_some_and(|l| clock >= b.renewed.after(l));
        let leases: BTreeMap<RequestId, (u64, Rank)> = self
            .bookings
            .values()
            .filter(|b| silent(b))
            .filter_map(|b| b.id.map(|(id, attempt)| (id, (attempt, b.rank))))
            .collect();
        leases.keys().for_each(|id| {
            self.free_id(*id, None);
        });
        let past = |due: Time| clock >= due;
        let overdue = self.queue.waiting.values().filter(|w| w.due.is_some_and(past)).count();
        let holds = self.expire_holds();
        let peers = self.expire_peers();
        Outcome::Expired(Ended { leases, holds, peers, marks, overdue })
    }
}
