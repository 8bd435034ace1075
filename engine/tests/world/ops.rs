//! What is done to a world from outside its clients: workers, thresholds, policies, peers, time,
//! and whatever befalls a client that it does not do itself.

use crate::client::{Client, End, Held, Kept, Stage};
use crate::host;
use crate::ledger::Record;
use crate::plan::{Fault, Hop, Line, PeerSays, PolicyPlan, WorkerPlan};
use crate::sim::{Breach, MS, World};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vacancy::{
    Applied, Error, LoadChange, LoadEvent, Lost, Rank, Request, RequestId, RouterId, Signals, Time,
    WorkerId, WorkerSpec,
};

/// The engine's form of a worker.
pub fn spec(plan: &WorkerPlan) -> WorkerSpec {
    let mut spec = WorkerSpec::new(plan.id).ranks(plan.start, plan.ranks);
    spec.max_num_batched_tokens = plan.tokens;
    spec.total_kv_blocks = plan.blocks;
    if plan.taint {
        spec = spec.taint("x");
    }
    if plan.lora {
        spec = spec.lora("a");
    }
    spec
}

/// Requests on a rank, and the ids among them.
type Load = (u64, Vec<u128>);

/// The record of a client at a hop.
fn record_at(client: &Client, hop: Hop) -> Option<&Record> {
    match &client.stage {
        Stage::In { record, .. } if client.hop == hop => Some(record),
        Stage::Leg { record, .. } if hop == Hop::Decode => Some(record),
        _ => None,
    }
}

impl World<'_> {
    /// Everything on the ranks of a pool, before some of them go.
    fn load_by_rank(&self, hop: Hop) -> BTreeMap<Rank, Load> {
        let side = self.side(hop);
        let mut load: BTreeMap<Rank, Load> = BTreeMap::new();
        for (&rank, row) in &side.ledger.rows {
            load.entry(rank).or_default().0 = side.routers.on(rank, row.life);
        }
        for client in self.clients.values() {
            let Some(record) = record_at(client, hop) else { continue };
            if side.ledger.is_alive(record) {
                let (requests, ids) = load.entry(record.rank).or_default();
                *requests += 1;
                ids.extend(record.id);
            }
        }
        load
    }

    /// What a pool says that it lost must be what was there.
    fn lost_is(
        &mut self,
        lost: &[Lost],
        gone: &[Rank],
        before: &BTreeMap<Rank, Load>,
    ) -> Result<(), Breach> {
        for rank in gone {
            let (requests, ids) = before.get(rank).cloned().unwrap_or_default();
            let entry = lost.iter().find(|l| l.rank == *rank);
            let told = entry.map_or(0, |l| u64::from(l.requests));
            let mut told_ids: Vec<u128> =
                entry.map_or(Vec::new(), |l| l.ids.iter().map(|(id, _)| id.0).collect());
            told_ids.sort_unstable();
            // Somebody may have been let in there who has not seen it yet.
            let same = if self.fresh { told == requests } else { told >= requests };
            if !same || told_ids != ids {
                let what = format!(
                    "{rank} went with {requests} requests and ids {ids:?}, told: {told}, {told_ids:?}"
                );
                return Err(Breach::of("each_row_is_the_sum_of_what_is_live", what));
            }
        }
        Ok(())
    }

    /// A worker is declared, or declared otherwise.
    pub fn upsert(&mut self, hop: Hop, plan: &WorkerPlan) -> Result<(), Breach> {
        let before = self.load_by_rank(hop);
        let returns = self.left.contains(&(hop, plan.id));
        let side = self.side_mut(hop);
        let old = side.fleet.workers.get(&plan.id).map(|w| (w.plan.tokens, w.plan.blocks));
        let gone = side.fleet.upsert(plan, &mut side.ledger);
        let lost = side.pool.upsert(spec(plan)).expect("plans are valid");
        match old {
            Some(old) if old != (plan.tokens, plan.blocks) => self.suffered(Fault::Capacity),
            None if returns => self.suffered(Fault::WorkerReturns),
            _ => {}
        }
        self.trace.upsert(hop, plan);
        self.lost_is(&lost, &gone, &before)
    }

    /// A worker leaves.
    pub fn remove(&mut self, hop: Hop, id: u64) -> Result<(), Breach> {
        let before = self.load_by_rank(hop);
        let side = self.side_mut(hop);
        let known = side.fleet.workers.contains_key(&id);
        let gone = side.fleet.remove(id, &mut side.ledger);
        let lost = side.pool.remove(WorkerId(id));
        if known {
            self.left.insert((hop, id));
            self.suffered(Fault::WorkerLeaves);
        }
        self.trace.step("remove", format!("pool: {}, worker: {id}", hop.key()));
        self.lost_is(&lost, &gone, &before)
    }

    /// The whole set at once.
    pub fn reconcile(&mut self, hop: Hop, plans: &[WorkerPlan]) -> Result<(), Breach> {
        let before = self.load_by_rank(hop);
        let side = self.side_mut(hop);
        let keeps: Vec<u64> = plans.iter().map(|p| p.id).collect();
        let leaving: Vec<u64> =
            side.fleet.workers.keys().copied().filter(|id| !keeps.contains(id)).collect();
        let mut gone = Vec::new();
        for id in &leaving {
            gone.extend(side.fleet.remove(*id, &mut side.ledger));
        }
        for plan in plans {
            gone.extend(side.fleet.upsert(plan, &mut side.ledger));
        }
        let specs: Vec<WorkerSpec> = plans.iter().map(spec).collect();
        let lost = side.pool.reconcile(&specs).expect("plans are valid");
        for id in leaving {
            self.left.insert((hop, id));
            self.suffered(Fault::WorkerLeaves);
        }
        self.trace.reconcile(hop, plans);
        self.lost_is(&lost, &gone, &before)
    }

    /// A worker becomes available or not.
    pub fn available(&mut self, hop: Hop, id: u64, is: bool) -> Result<(), Breach> {
        let side = self.side_mut(hop);
        let known = side.pool.set_available(WorkerId(id), is);
        if let Some(worker) = side.fleet.workers.get_mut(&id) {
            worker.available = is;
            self.suffered(Fault::Unavailable);
        }
        self.trace.mark("available", hop, id, is, None, known);
        self.is_known(hop, id, known)
    }

    /// A host marks a worker, or takes the mark off.
    pub fn overloaded(
        &mut self,
        hop: Hop,
        id: u64,
        is: bool,
        lease_ms: Option<u64>,
    ) -> Result<(), Breach> {
        let until = lease_ms.map(|ms| self.now + ms * MS);
        let side = self.side_mut(hop);
        let known = side.pool.set_overloaded(WorkerId(id), is, until.map(Time::from_nanos));
        if let Some(worker) = side.fleet.workers.get_mut(&id) {
            worker.marked_until = is.then_some(until.unwrap_or(u64::MAX));
            if is {
                self.suffered(Fault::SlowWorker);
            }
        }
        self.trace.mark("overloaded", hop, id, is, lease_ms.filter(|_| is), known);
        self.is_known(hop, id, known)
    }

    fn is_known(&self, hop: Hop, id: u64, known: bool) -> Result<(), Breach> {
        if known == self.side(hop).fleet.workers.contains_key(&id) {
            return Ok(());
        }
        let what = format!("worker {id} known: {known}");
        Err(Breach::of("each_row_is_the_sum_of_what_is_live", what))
    }

    /// Other reject thresholds.
    pub fn thresholds(&mut self, hop: Hop, line: &Line) -> Result<(), Breach> {
        let side = self.side_mut(hop);
        side.fleet.reject = *line;
        side.rejects.set(line.thresholds()).expect("plans are valid");
        self.suffered(Fault::ThresholdChange);
        self.trace.thresholds(hop, line);
        Ok(())
    }

    /// Another policy.
    pub fn policy(&mut self, hop: Hop, policy: &PolicyPlan) -> Result<(), Breach> {
        let side = self.side_mut(hop);
        side.policy = policy.clone();
        side.pool.set_policy(&Arc::new(policy.profile()));
        self.suffered(Fault::PolicyReload);
        self.trace.policy(hop, policy);
        Ok(())
    }

    /// A worker says what it uses.
    pub fn observe(
        &mut self,
        hop: Hop,
        (id, dp_rank): (u64, u32),
        [used, active]: [Option<u64>; 2],
    ) -> Result<(), Breach> {
        let (rank, now) = (Rank::new(id, dp_rank), self.now);
        let side = self.side_mut(hop);
        let expected = side.fleet.hear(rank, [used, active], now);
        let signals = Signals { kv_used_blocks: used, active_decode_blocks: active };
        let heard = side.pool.observe(rank, signals, Time::from_nanos(now));
        self.trace.observe(hop, rank, used, active);
        if heard == expected {
            return Ok(());
        }
        let what = format!("a signal of {rank} was taken in: {heard}");
        Err(Breach::of("each_row_is_the_sum_of_what_is_live", what))
    }

    /// Another router tells.
    pub fn peer(
        &mut self,
        hop: Hop,
        (router, seq, booking): (u64, u64, u64),
        says: PeerSays,
    ) -> Result<(), Breach> {
        let now = self.now;
        match self.heard.insert((hop, router, seq)) {
            false => self.suffered(Fault::PeerDuplicate),
            true if self.heard.range((hop, router, seq + 1)..(hop, router + 1, 0)).count() > 0 => {
                self.suffered(Fault::PeerReorder);
            }
            true => {}
        }
        let side = self.side_mut(hop);
        let expected = side.routers.take_in((router, seq, booking), says, now, &mut side.ledger);
        let change = match says {
            PeerSays::Add { rank, tokens, blocks } => LoadChange::Add {
                rank: Rank::new(rank.0, rank.1),
                prefill_tokens: tokens,
                kv_blocks: blocks,
            },
            PeerSays::Done => LoadChange::PrefillCompleted,
            PeerSays::Output(blocks) => LoadChange::Output { blocks },
            PeerSays::Move(rank) => LoadChange::Move { rank: Rank::new(rank.0, rank.1) },
            PeerSays::Free => LoadChange::Free,
        };
        let event = LoadEvent::new(RouterId(router), seq, booking.into(), change);
        let applied = side.pool.apply_peer(&event, Time::from_nanos(now));
        let own = LoadEvent::new(RouterId(hop as u64), seq, booking.into(), change);
        let echo = side.pool.apply_peer(&own, Time::from_nanos(now));
        self.trace.peer(hop, (router, seq, booking), says);
        if applied == expected && echo == Applied::Echo {
            return Ok(());
        }
        let what = format!("{event:?}: {applied:?} and not {expected:?}, its echo {echo:?}");
        Err(Breach::of("each_row_is_the_sum_of_what_is_live", what))
    }

    /// Another router is known to be gone.
    pub fn peer_gone(&mut self, hop: Hop, router: u64) -> Result<(), Breach> {
        let side = self.side_mut(hop);
        let expected = side.routers.gone(router, &mut side.ledger);
        let gone = side.pool.peer_gone(RouterId(router));
        if expected > 0 {
            self.suffered(Fault::PeerVanish);
        }
        self.trace.peer_gone(hop, router);
        if gone == expected {
            return Ok(());
        }
        let what = format!("router {router} went with {gone} bookings and not {expected}");
        Err(Breach::of("each_row_is_the_sum_of_what_is_live", what))
    }

    /// Time passes; every timer that is due on the way runs at its instant.
    pub fn advance(&mut self, ms: u64) -> Result<(), Breach> {
        let target = self.now + ms * MS;
        for _ in 0..10_000 {
            let due = Hop::BOTH.iter().filter_map(|&hop| self.side(hop).pool.next_due()).min();
            let due = due.map(Time::as_nanos).filter(|&due| due < target);
            self.timers(due.unwrap_or(target).max(self.now))?;
            if due.is_none() {
                return Ok(());
            }
            self.settle(true)?;
            self.fresh = true;
        }
        let what = format!("timers are due at {} for ever", self.time());
        Err(Breach::of("every_request_ends_exactly_once", what))
    }

    /// Every timer that is due at an instant runs.
    pub fn timers(&mut self, at: u64) -> Result<(), Breach> {
        let latched: Vec<Rank> =
            Hop::BOTH.iter().flat_map(|&hop| self.side(hop).fleet.latched(self.now)).collect();
        self.earlier = self.now;
        self.now = at;
        let still = Hop::BOTH.iter().map(|&hop| self.side(hop).fleet.latched(at).len()).sum();
        if latched.len() > still {
            self.suffered(Fault::SilentWorker);
        }
        for hop in Hop::BOTH {
            let side = self.side(hop);
            let over = |since: u64| side.lease.is_some_and(|l| since.saturating_add(l) <= at);
            let lapsed = |table: &BTreeMap<u128, u64>| -> Vec<u128> {
                table.iter().filter(|&(_, &since)| over(since)).map(|(&id, _)| id).collect()
            };
            let expected =
                (lapsed(&side.ids), lapsed(&side.holds), side.routers.silent(side.lease, at));
            let expired = side.pool.expire(Time::from_nanos(at));
            let told = (
                expired.leases.iter().map(|(id, ..)| id.0).collect::<Vec<_>>(),
                expired.holds.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
                expired.peers.iter().map(|router| router.0).collect::<Vec<_>>(),
            );
            if told != expected {
                let what = format!(
                    "ended at {} (ids, holds, routers): {told:?} and not {expected:?}",
                    self.time()
                );
                return Err(Breach::of("every_request_ends_exactly_once", what));
            }
            let (ids, holds, routers) = expected;
            for router in routers {
                let side = self.side_mut(hop);
                side.routers.gone(router, &mut side.ledger);
                self.suffered(Fault::PeerVanish);
            }
            for id in holds {
                self.hold_lapsed(hop, id);
            }
            for id in ids {
                self.id_lapsed(hop, id)?;
            }
        }
        self.trace.advance_to(at);
        Ok(())
    }

    fn hold_lapsed(&mut self, hop: Hop, id: u128) {
        self.side_mut(hop).holds.remove(&id);
        let client = self.clients.get_mut(&(id as u32)).expect("ids are those of clients");
        if let Stage::In { hold, .. } = &mut client.stage
            && let Some((Kept::Id, record)) = hold.take()
        {
            self.side_mut(Hop::Decode).ledger.take_off(&record);
        }
    }

    fn id_lapsed(&mut self, hop: Hop, id: u128) -> Result<(), Breach> {
        self.suffered(Fault::SilentClient);
        self.side_mut(hop).ids.remove(&id);
        let client = id as u32;
        let of = self.clients.get_mut(&client).expect("ids are those of clients");
        let (record, hold) = match std::mem::replace(&mut of.stage, Stage::Over) {
            Stage::In { record, hold, .. } => (record, hold),
            Stage::Leg { record, .. } => (record, None),
            Stage::Waiting(_) | Stage::Over => {
                let what = format!("the lease of {client} ran out, which is not in");
                return Err(Breach::of("every_request_ends_exactly_once", what));
            }
        };
        self.side_mut(hop).ledger.take_off(&record);
        if let Some((kept, record)) = hold {
            self.side_mut(Hop::Decode).ledger.take_off(&record);
            self.side_mut(Hop::Prefill).holds.remove(&id);
            match kept {
                Kept::Value(hold) => drop(hold),
                Kept::Id => drop(self.side(Hop::Prefill).pool.take_hold(RequestId(id))),
            }
        }
        self.ended(client, End::Reclaimed)
    }

    /// The load that a client has now, if it is in.
    fn held_now(&mut self, client: u32) -> Option<(Hop, Stage)> {
        let of = self.clients.get_mut(&client).filter(|of| !of.silent)?;
        let hop = match of.stage {
            Stage::In { .. } => of.hop,
            Stage::Leg { .. } => Hop::Decode,
            Stage::Waiting(_) | Stage::Over => return None,
        };
        Some((hop, std::mem::replace(&mut of.stage, Stage::Over)))
    }

    /// A client's request grows.
    pub fn output(&mut self, client: u32, blocks: u32) -> Result<(), Breach> {
        let Some((hop, mut stage)) = self.held_now(client) else { return Ok(()) };
        let now = self.now;
        let side = self.side_mut(hop);
        let mut grown = Ok(());
        if let Stage::In { booked, record, .. } | Stage::Leg { booked, record } = &mut stage {
            grown = match booked {
                Held::Value(booking) => booking.add_output_blocks(blocks),
                Held::Id(_) => {
                    side.renew(client.into(), now);
                    side.pool.add_output_blocks(RequestId(client.into()), blocks)
                }
            };
            side.ledger.grow(record, blocks);
        }
        self.clients.get_mut(&client).expect("it came").stage = stage;
        self.trace.step("output", format!("as: r{client}, blocks: {blocks}"));
        grown.map_err(|error| {
            let what = format!("request {client} is live, and does not grow: {error}");
            Breach::of("every_request_ends_exactly_once", what)
        })
    }

    /// A client's request is moved.
    pub fn move_to(&mut self, client: u32, worker: u64, dp_rank: u32) -> Result<(), Breach> {
        let Some((hop, mut stage)) = self.held_now(client) else { return Ok(()) };
        let (now, to) = (self.now, Rank::new(worker, dp_rank));
        let side = self.side_mut(hop);
        let may = side.ledger.rows.contains_key(&to) && side.fleet.workers[&worker].available;
        let mut moved = Ok(());
        if let Stage::In { booked, record, .. } | Stage::Leg { booked, record } = &mut stage {
            moved = match booked {
                Held::Value(booking) => booking.move_to(to),
                Held::Id(_) => {
                    side.renew(client.into(), now);
                    side.pool.move_to(RequestId(client.into()), to)
                }
            };
            if may {
                side.ledger.move_to(record, to);
            }
        }
        self.clients.get_mut(&client).expect("it came").stage = stage;
        self.trace.moves(client, to, moved.as_ref().err());
        match (may, moved) {
            (true, Ok(())) | (false, Err(Error::NoEndpoints)) => Ok(()),
            (_, moved) => {
                let what = format!("the move of {client} to {to}: {moved:?}");
                Err(Breach::of("no_booking_lands_past_a_limit_judged", what))
            }
        }
    }

    /// A client is dropped with everything it has.
    pub fn cancel(&mut self, client: u32) -> Result<(), Breach> {
        let Some(of) = self.clients.get(&client).filter(|of| !of.silent) else { return Ok(()) };
        match &of.stage {
            Stage::Over => return Ok(()),
            Stage::Waiting(future) if future.is_waiting() => self.suffered(Fault::CancelWaiting),
            Stage::Waiting(_) => self.suffered(Fault::CancelChosen),
            Stage::In { .. } | Stage::Leg { .. } => self.suffered(Fault::CancelHolding),
        }
        self.leave(client, End::Cancelled);
        Ok(())
    }

    /// A client unwinds, and what it has is dropped on the way.
    pub fn panic(&mut self, client: u32) -> Result<(), Breach> {
        let Some(of) = self.clients.get(&client).filter(|of| !of.silent) else { return Ok(()) };
        if matches!(of.stage, Stage::Over) {
            return Ok(());
        }
        struct Unwinds<'a, 'p>(&'a mut World<'p>, u32);
        impl Drop for Unwinds<'_, '_> {
            fn drop(&mut self) {
                assert!(std::thread::panicking(), "what it has is dropped while it unwinds");
                self.0.leave(self.1, End::Panicked);
            }
        }
        self.suffered(Fault::ClientPanic);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _unwinds = Unwinds(self, client);
            host::unwind()
        }));
        assert!(unwound.is_err());
        Ok(())
    }

    /// A client that uses its id is never heard of again.
    pub fn silence(&mut self, client: u32) -> Result<(), Breach> {
        if let Some(of) = self.clients.get_mut(&client)
            && of.by_id
            && matches!(of.stage, Stage::In { .. } | Stage::Leg { .. })
        {
            of.silent = true;
            self.trace.note(&format!("r{client} falls silent"));
        }
        Ok(())
    }

    fn live_id(&self, client: u32) -> Option<Hop> {
        let of = self.clients.get(&client).filter(|of| of.by_id && !of.silent)?;
        match of.stage {
            Stage::In { .. } | Stage::Waiting(_) => Some(of.hop),
            Stage::Leg { .. } => Some(Hop::Decode),
            Stage::Over => None,
        }
    }

    /// A live id is used a second time.
    pub fn duplicate(&mut self, client: u32) -> Result<(), Breach> {
        let Some(hop) = self.live_id(client) else { return Ok(()) };
        let side = self.side(hop);
        let request = Request::new(16).at(self.time());
        let refused = side.pool.book_as(RequestId(client.into()), &request);
        match refused {
            Err(Error::DuplicateRequest { .. }) => Ok(()),
            Err(Error::Closed) if side.closed => Ok(()),
            other => {
                let what = format!("a second request under the live id {client}: {other:?}");
                Err(Breach::of("every_request_ends_exactly_once", what))
            }
        }
    }

    /// A live id is freed under an attempt that is not its own.
    pub fn stale_free(&mut self, client: u32) -> Result<(), Breach> {
        let Some(hop) = self.live_id(client) else { return Ok(()) };
        let stale = vacancy::Attempt(u64::MAX);
        if !self.side(hop).pool.free_attempt(RequestId(client.into()), stale) {
            return Ok(());
        }
        let what = format!("another attempt has freed {client}");
        Err(Breach::of("every_request_ends_exactly_once", what))
    }

    /// A pool shuts down.
    pub fn close(&mut self, hop: Hop) -> Result<(), Breach> {
        let side = self.side_mut(hop);
        side.closed = true;
        side.pool.close();
        self.suffered(Fault::Shutdown);
        self.trace.step("close", format!("pool: {}", hop.key()));
        Ok(())
    }
}
