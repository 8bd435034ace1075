//! The naive reference: what a pool must answer, in plain maps.
//!
//! Everything is recomputed from the list of live bookings at every look. There is no atomic, no
//! lock, no cache and no index here, and nothing of the library is used but the types that go in
//! and out, so that a defect of the engine can hardly be repeated. Where several answers are right
//! (equal costs, a temperature) the model gives all of them, and is told which one was taken.
//!
//! Where the contract is silent, the model says what it chose:
//!
//! - The clock is the largest instant that any call brought, unless the pool was closed or the
//!   request was invalid.
//! - Availability and overload marks are the worker's: an upsert keeps them, a removal ends them.
//! - A booking that lost its rank weighs nothing but is still its owner's: by id it stays live
//!   (calls on it succeed and change no row, `move_to` gives it a rank again) until it is freed or
//!   its lease runs out.
//! - A move charges the new rank as a booking there would: by the overlaps that the request came
//!   with and by the prompt blocks that the new rank holds. Completed prefill stays completed, and
//!   output goes along, also what was reported while the booking had lost its rank.
//! - A move to the available rank where the booking is changes nothing.
//! - The backlog that the device weight decays with is the row's, whether or not the request's own
//!   tokens are tracked; the least loaded rank is sought among all structurally eligible ones; the
//!   request's blocks are whole ones.
//! - `export` lists bookings by id, also those that lost their rank; values are their holder's.
//! - An import is refused only where there is no such rank: load on an unavailable worker is as
//!   real as any other.
//! - Output is counted only where blocks are tracked.
//! - A duplicate does not renew the lease of the first request: it is no call on it.
//! - A strict class that is unknown is refused after NoEndpoints, where the class is resolved;
//!   `select` and `book` do not look at it.
//! - `select` and `book` refuse a due time that has passed (`now >= due`) unless the request is
//!   admitted upstream; imports do not look at it.
//!
//! A pool that has a pair owns the reference of it ([`pair`]); what other routers and the workers
//! say is kept by [`peers`] and [`monitor`].
#![forbid(unsafe_code)]

mod admission;
pub mod answer;
mod check;
pub mod choose;
pub mod custom;
pub mod fleet;
mod life;
pub mod limits;
mod monitor;
pub mod op;
pub mod pair;
mod peers;
pub mod queue;
pub mod rows;
mod shared;
#[cfg(test)]
mod tests;

pub use answer::{Counters, Event, LostLoad, Outcome, Refusal, Step};

use choose::{Pick, View};
use custom::Custom;
use fleet::Fleet;
use limits::Row;
use monitor::Monitor;
use op::{Mixture, Op};
use peers::Peers;
use queue::{Policy, Queue, Turns};
use rows::{Kind, Live};
use shared::Shared;
use std::collections::BTreeMap;
use std::time::Duration;
use vacancy::{
    Error, Rank, Request, RequestId, RouterId, Thresholds, Time, Weights, WorkerId, WorkerSpec,
};

/// What the reject check skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A worker, when all its ranks are full.
    Worker,
    /// Each full rank by itself.
    Rank,
}

/// The settings of a pool.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tokens per KV block.
    pub block_size: u32,
    /// Whether prefill tokens are booked.
    pub track_prefill: bool,
    /// Whether KV blocks are booked.
    pub track_blocks: bool,
    /// What costs are made of.
    pub weights: Weights,
    /// What the reject check skips.
    pub scope: Scope,
    /// How long a booking by id may be silent.
    pub lease: Option<Duration>,
    /// What a host installed.
    pub custom: Custom,
    /// The policy at the start; `None`: nobody ever waits.
    pub policy: Option<Policy>,
    /// Whether `admit` chooses only among ranks with room for the class.
    pub class_room_only: bool,
    /// Which operations it is to meet.
    pub mixture: Mixture,
    /// Who is there at the start.
    pub fleet: Vec<WorkerSpec>,
    /// How long a worker's own signal counts.
    pub signal_ttl: Duration,
    /// This router's name among routers.
    pub router: RouterId,
    /// The settings of the pair, if there is one.
    pub pair: Option<Box<Config>>,
    /// Whether room is set aside at the pair.
    pub holds: bool,
    /// Whether one handle of reject thresholds serves this pool and its pair.
    pub shared_rejects: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            block_size: 16,
            track_prefill: true,
            track_blocks: true,
            weights: Weights::default(),
            scope: Scope::Worker,
            lease: Some(Duration::from_secs(300)),
            custom: Custom::default(),
            policy: None,
            class_room_only: false,
            mixture: Mixture::Plain,
            fleet: Vec::new(),
            signal_ttl: Duration::from_secs(5),
            router: RouterId(0),
            pair: None,
            holds: true,
            shared_rejects: false,
        }
    }
}

/// Who a choice is for.
#[derive(Clone, Debug)]
enum For {
    /// Nobody: nothing is booked.
    Nothing,
    /// A booking.
    Booking,
    /// Somebody of this class who never waited.
    Newcomer(usize),
    /// Somebody who waits under this ticket, and whose turn it is if it goes.
    Waiter(u64, Turns),
    /// The decode leg of a request that this hold was set aside for; in its place, or beside it
    /// until it has landed.
    Leg(u64),
}

/// A choice made but for the rank.
#[derive(Clone, Debug)]
struct Pending {
    pick: Pick,
    request: Request,
    id: Option<RequestId>,
    of: For,
    /// The pair's ranks that room may be set aside on, if it must be.
    hold: Option<Pick>,
}

/// A pool, as the contract has it.
#[derive(Clone, Debug)]
pub struct Model {
    config: Shared<Config>,
    fleet: Fleet,
    thresholds: Thresholds,
    /// Every live booking by a number of its own.
    bookings: Shared<BTreeMap<u64, Live>>,
    /// The numbers of those held as values, in the order that [`Nth`] counts in.
    values: Vec<u64>,
    /// The numbers of those held by id.
    ids: BTreeMap<RequestId, u64>,
    /// How many attempts an id has had.
    attempts: BTreeMap<RequestId, u64>,
    next: u64,
    clock: Time,
    closed: bool,
    pending: Option<Pending>,
    counters: Counters,
    queue: Queue,
    tickets: u64,
    /// Who goes in without having waited: told by the next event.
    newcomer: Option<(u64, Pick)>,
    /// The class of whoever was let in last.
    admitted_in: usize,
    /// What the classifier has seen and nobody has asked about.
    seen: Vec<custom::Seen>,
    /// Whether somebody who headed a class or a lane was withdrawn in this step.
    head_withdrawn: bool,
    monitor: Monitor,
    peers: Peers,
    /// The paired pool.
    pair: Option<Box<Model>>,
    /// The numbers, at the pair, of the holds that the host keeps as values.
    holds: Vec<u64>,
    /// Those that are kept under an id, and since when.
    held: BTreeMap<RequestId, (u64, Time)>,
    /// Those that will replace one that is kept, by the ticket of whoever has not been told yet.
    untold: BTreeMap<u64, (RequestId, u64)>,
}

impl Model {
    /// A pool of these settings.
    pub fn new(config: Config) -> Model {
        let mut fleet = Fleet::default();
        config.fleet.iter().for_each(|spec| fleet.upsert(spec.clone()));
        let policy = config.policy.clone().unwrap_or_else(Policy::none);
        let pair = config.pair.as_ref().map(|pair| Box::new(Model::new(Config::clone(pair))));
        Model {
            monitor: Monitor::default(),
            peers: Peers::default(),
            pair,
            holds: Vec::new(),
            held: BTreeMap::new(),
            untold: BTreeMap::new(),
            config: Shared::new(config),
            queue: Queue::new(policy),
            tickets: 0,
            newcomer: None,
            admitted_in: 0,
            seen: Vec::new(),
            head_withdrawn: false,
            fleet,
            thresholds: Thresholds::NONE,
            bookings: Shared::default(),
            values: Vec::new(),
            ids: BTreeMap::new(),
            attempts: BTreeMap::new(),
            next: 0,
            clock: Time::ZERO,
            closed: false,
            pending: None,
            counters: Counters::default(),
        }
    }

    /// The largest instant seen.
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Every rank.
    pub fn ranks(&self) -> Vec<Rank> {
        self.fleet.ranks()
    }

    /// What `rank` carries, if it is declared.
    pub fn row(&self, rank: Rank) -> Option<Row> {
        self.fleet.life(rank)?;
        Some(self.view().row(rank))
    }

    /// Whether `rank` is past the reject thresholds.
    pub fn full(&self, rank: Rank) -> bool {
        self.view().full(rank)
    }

    /// Whether the worker of `rank` is available, and whether `rank` is marked.
    pub fn marks(&self, rank: Rank) -> (bool, bool) {
        (self.fleet.workers[&rank.worker].available, self.view().marked(rank))
    }

    /// How many of the blocks of `rank` are set aside: what each hold added when it landed, and not
    /// more than there is.
    pub fn held_blocks(&self, rank: Rank) -> u64 {
        let on = rows::on(&self.fleet, self.bookings.values(), rank);
        let held = on.map(|b| if let Kind::Hold { charged, .. } = b.kind { charged } else { 0 });
        held.sum::<u64>().min(self.view().row(rank).kv_blocks)
    }

    /// Where the value `nth` is booked.
    pub fn value_rank(&self, nth: usize) -> Rank {
        self.bookings[&self.values[nth]].rank
    }

    /// Which attempt of `id` is `back` before the last one; attempts count from 1.
    pub fn attempt(&self, id: RequestId, back: u32) -> Option<u64> {
        let last = self.attempts.get(&id)?;
        last.checked_sub(u64::from(back)).filter(|&a| a > 0)
    }

    /// How many bookings, holds and mirrors are live.
    pub fn live(&self) -> usize {
        self.bookings.len()
    }

    /// How many bookings by id are live.
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    fn view(&self) -> View<'_> {
        View {
            config: &self.config,
            fleet: &self.fleet,
            thresholds: &self.thresholds,
            bookings: self.bookings.values().collect(),
            monitor: &self.monitor,
            now: self.clock,
            pair: self.pair.as_deref(),
        }
    }

    /// Does `op`, whose times are absolute.
    ///
    /// # Panics
    /// If the last step's choice was not settled.
    pub fn step(&mut self, op: &Op) -> Step {
        assert!(self.pending.is_none(), "the last choice was not settled");
        self.head_withdrawn = false;
        let before = self.clone();
        if let Some(pair) = &mut self.pair {
            assert!(pair.pending.is_none(), "the last choice was not settled");
            pair.head_withdrawn = false;
        }
        let outcome = self.apply(op);
        Step {
            outcome,
            epoch_moves: self.room_may_have_appeared(&before, matches!(op, Op::Expire(_))),
            pair_epoch_moves: match (&self.pair, &before.pair) {
                (Some(pair), Some(before)) => {
                    let timers = matches!(op, Op::Pair(op) if matches!(**op, Op::Expire(_)));
                    pair.room_may_have_appeared(before, timers)
                }
                _ => false,
            },
        }
    }

    /// Says which candidate of the last [`Outcome::Pick`] was taken, and books it there if the
    /// call books: `Err(RowOverflow)` if its row cannot hold that.
    ///
    /// # Panics
    /// If `rank` was no candidate.
    pub fn settle(&mut self, rank: Rank) -> Result<(), Error> {
        self.settle_with(rank, None)
    }

    /// As [`Model::settle`], with the rank of the pair that room was set aside on.
    ///
    /// # Panics
    /// If `rank` was no candidate, or `hold` is not what was asked for.
    pub fn settle_with(&mut self, rank: Rank, hold: Option<Rank>) -> Result<(), Error> {
        let pending = self.pending.take().expect("a choice to settle");
        let chosen = pending.pick.candidates.into_iter().find(|c| c.rank == rank);
        let chosen = chosen.expect("a candidate");
        let books = !matches!(pending.of, For::Nothing);
        let over = match &pending.hold {
            _ if books && !chosen.fits => Some(rank),
            Some(offered) => {
                let there = offered.candidates.iter().find(|c| Some(c.rank) == hold);
                there.filter(|c| !c.fits).map(|c| c.rank)
            }
            None => None,
        };
        if let Some(rank) = over {
            self.counters.rejected += 1;
            if let For::Waiter(ticket, _) = pending.of {
                self.queue.leave(ticket);
            }
            return Err(Error::RowOverflow { rank });
        }
        if let For::Newcomer(class) = pending.of {
            self.admitted_in = class;
        }
        if matches!(pending.of, For::Newcomer(_) | For::Waiter(..)) {
            self.counters.admitted += 1;
        }
        if let For::Leg(hold) = pending.of {
            self.bookings.remove(&hold);
        }
        let ticket = match pending.of {
            For::Waiter(ticket, _) => ticket,
            _ => self.tickets.saturating_sub(1),
        };
        if let For::Waiter(ticket, turns) = pending.of {
            self.admitted_in = self.queue.waiting[&ticket].class;
            self.queue.admitted(ticket, turns, rank, &self.fleet);
        }
        if let Some(offered) = pending.hold {
            let rank = hold.expect("room is set aside");
            self.set_aside(rank, &offered, &pending.request, pending.id.map(|id| (id, ticket)));
        }
        if books {
            self.land(rank, chosen.load, pending.request, pending.id);
        }
        self.counters.selected += 1;
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Upsert(spec) => Outcome::Lost(self.upsert(spec.clone())),
            Op::Remove(worker) => Outcome::Lost(Ok(self.losing(|m| {
                m.fleet.workers.remove(worker);
            }))),
            Op::Reconcile(specs) => Outcome::Lost(self.reconcile(specs)),
            Op::Available(worker, is) => Outcome::Flag(self.mark(*worker, |w| w.available = *is)),
            Op::Overloaded(worker, is, until) => Outcome::Flag(self.mark(*worker, |w| {
                w.overloaded = is.then_some(*until);
            })),
            Op::UpdateThresholds(update) => {
                Outcome::Done(self.set_thresholds(update.merged_into(self.thresholds)))
            }
            Op::SetThresholds(t) => Outcome::Done(self.set_thresholds(*t)),
            Op::ClearThresholds => Outcome::Done(self.set_thresholds(Thresholds::NONE)),
            Op::Select(request) => self.choose(request, None, For::Nothing),
            Op::Book(request) => self.choose(request, None, For::Booking),
            Op::BookAs(id, request) => self.choose(request, Some(*id), For::Booking),
            Op::Admit(request) => Outcome::Ticket(self.admit(request, None)),
            Op::AdmitAs(id, request) => Outcome::Ticket(self.admit(request, Some(*id))),
            Op::Cancel(nth) => match nth.of(self.queue.waiting.len()) {
                Some(i) => self.withdraw(self.waiting()[i]),
                None => Outcome::Nothing,
            },
            Op::Reload(policy) => {
                self.queue.reload(policy.clone());
                Outcome::Done(Ok(()))
            }
            Op::ImportAs(id, rank, request) => Outcome::Done(self.import(*id, *rank, request)),
            Op::Complete(nth) => self.on_value(*nth, |m, key| m.complete(key)),
            Op::Output(nth, blocks) => self.on_value(*nth, |m, key| m.output(key, *blocks)),
            Op::Move(nth, to) => self.on_value(*nth, |m, key| m.move_to(key, *to)),
            Op::Free(nth) | Op::Drop(nth) => self.on_value(*nth, |m, key| {
                m.free(key);
                Ok(())
            }),
            Op::CompleteId(id) => self.on_id(*id, |m, key| m.complete(key)),
            Op::OutputId(id, blocks) => self.on_id(*id, |m, key| m.output(key, *blocks)),
            Op::MoveId(id, to) => self.on_id(*id, |m, key| m.move_to(key, *to)),
            Op::FreeId(id) => Outcome::Flag(self.free_id(*id, None)),
            Op::FreeAttempt(id, back) => match self.attempt(*id, *back) {
                Some(attempt) => Outcome::Flag(self.free_id(*id, Some(attempt))),
                None => Outcome::Nothing,
            },
            Op::Export => Outcome::Live(self.export()),
            Op::Expire(now) => self.expire(*now),
            Op::Close => {
                self.closed = true;
                Outcome::Done(Ok(()))
            }
            Op::Observe(rank, said, now) => {
                self.clock = self.clock.max(*now);
                Outcome::Flag(self.observe(*rank, *said))
            }
            Op::Peer(event, now) => Outcome::Applied(self.apply_peer(event, *now)),
            Op::PeerGone(router) => Outcome::Count(self.peer_gone(*router)),
            Op::Pair(op) => self.at_pair(op),
            Op::Leg(nth, leg) => self.leg(*nth, leg),
            Op::DropHold(nth) => self.drop_hold(*nth),
            Op::TakeHold(id) => Outcome::Flag(self.take_hold(*id)),
            Op::ReturnHold(id, nth) => self.return_hold(*id, *nth),
        }
    }

    /// Applies a change of the fleet and says what lost its rank by it.
    fn losing(&mut self, change: impl FnOnce(&mut Model)) -> BTreeMap<Rank, LostLoad> {
        let before = self.fleet.clone();
        change(self);
        let mut lost = BTreeMap::<Rank, LostLoad>::new();
        for b in self.bookings.values() {
            if b.counts() && b.stands(&before) && !b.stands(&self.fleet) {
                let entry = lost.entry(b.rank).or_default();
                entry.requests += 1;
                entry.ids.extend(b.id);
            }
        }
        lost
    }

    fn upsert(&mut self, spec: WorkerSpec) -> Result<BTreeMap<Rank, LostLoad>, Refusal> {
        let bad = fleet::invalid(&spec);
        if !bad.is_empty() {
            return Err(Refusal::Config(bad));
        }
        Ok(self.losing(|m| m.fleet.upsert(spec)))
    }

    fn reconcile(&mut self, specs: &[WorkerSpec]) -> Result<BTreeMap<Rank, LostLoad>, Refusal> {
        let mut bad: Vec<&str> = specs.iter().flat_map(fleet::invalid).collect();
        if (0..specs.len()).any(|i| specs[..i].iter().any(|s| s.id == specs[i].id)) {
            bad.push("worker");
        }
        if !bad.is_empty() {
            return Err(Refusal::Config(bad));
        }
        Ok(self.losing(|m| {
            m.fleet.workers.retain(|id, _| specs.iter().any(|s| s.id == *id));
            specs.iter().for_each(|s| m.fleet.upsert(s.clone()));
        }))
    }

    /// Marks a worker; false if it is unknown.
    fn mark(&mut self, worker: WorkerId, mark: impl FnOnce(&mut fleet::Worker)) -> bool {
        self.fleet.workers.get_mut(&worker).map(mark).is_some()
    }

    fn set_thresholds(&mut self, t: Thresholds) -> Result<(), Refusal> {
        let bad = limits::invalid(&t);
        if !bad.is_empty() {
            return Err(Refusal::Config(bad));
        }
        self.thresholds = t;
        if let Some(pair) = &mut self.pair
            && self.config.shared_rejects
        {
            pair.thresholds = t;
        }
        Ok(())
    }

    fn choose(&mut self, request: &Request, id: Option<RequestId>, of: For) -> Outcome {
        let pick = self.checked(request, id).and_then(|()| self.view().pick(request));
        match &pick {
            Ok(pick) => {
                let request = request.clone();
                self.pending = Some(Pending { pick: pick.clone(), request, id, of, hold: None });
            }
            Err(why) => self.count(why),
        }
        Outcome::Pick(pick)
    }

    fn count(&mut self, why: &Refusal) {
        let other = matches!(why, Refusal::Is(Error::Closed | Error::DeadlineExceeded));
        self.counters.rejected += u64::from(!other);
    }

    /// Whether the way from `before` to here is one of the events of SPEC section 2. Silence is one
    /// when the timers run.
    fn room_may_have_appeared(&self, before: &Model, timers: bool) -> bool {
        let lighter = |a: &Live, b: &Live| {
            b.rank != a.rank || b.load.prefill < a.load.prefill || b.life != a.life
        };
        let taken_off = before.bookings.iter().any(|(key, a)| {
            // What lost its rank has nothing left to take off.
            a.stands(&self.fleet)
                && match self.bookings.get(key) {
                    Some(b) => lighter(a, b),
                    // Converted, it may have left all its blocks to the leg.
                    None if a.kind.is_hold() => {
                        let blocks = |m: &Model| m.view().row(a.rank).kv_blocks;
                        blocks(self) < blocks(before)
                    }
                    None => true,
                }
        });
        let policy = *self.queue.policy != *before.queue.policy;
        taken_off
            || policy
            || self.head_withdrawn
            || self.unlatched(before, timers)
            || fleet::loosened(&before.fleet, &self.fleet)
            || limits::loosened(&before.thresholds, &self.thresholds)
    }
}
