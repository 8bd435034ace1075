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
#![forbid(unsafe_code)]

pub mod choose;
pub mod custom;
pub mod fleet;
pub mod limits;
pub mod op;
pub mod queue;
pub mod rows;
#[cfg(test)]
mod tests;

use choose::{Pick, View};
use custom::Custom;
use fleet::Fleet;
use limits::Row;
use op::{Mixture, Nth, Op};
use queue::{Policy, Queue, Turns, Waiting};
use rows::{Live, Load, MAX_BLOCKS};
use std::collections::BTreeMap;
use std::time::Duration;
use vacancy::{
    Error, Name, Rank, Request, RequestId, Thresholds, Time, Weights, WorkerId, WorkerSpec,
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
        }
    }
}

/// Why a call must be refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// With exactly this error.
    Is(Error),
    /// With an `InvalidRequest` that names one of these fields.
    Request(Vec<&'static str>),
    /// With an `InvalidConfig` that names one of these fields.
    Config(Vec<&'static str>),
    /// With a `PolicyFailed`, whatever it says.
    PolicyFailed,
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        Refusal::Is(e)
    }
}

impl Refusal {
    /// The name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::Is(error) => error.name(),
            Refusal::Request(_) => "InvalidRequest",
            Refusal::Config(_) => "InvalidConfig",
            Refusal::PolicyFailed => "PolicyFailed",
        }
    }

    /// Whether `error` is what the contract asks for.
    pub fn admits(&self, error: &Error) -> bool {
        match (self, error) {
            (Refusal::Is(want), got) => want == got,
            (Refusal::Request(fields), Error::InvalidRequest { field, .. }) => {
                fields.contains(field)
            }
            (Refusal::Config(fields), Error::InvalidConfig { field, .. }) => {
                fields.iter().any(|f| field.ends_with(f))
            }
            (Refusal::PolicyFailed, Error::PolicyFailed { .. }) => true,
            _ => false,
        }
    }
}

/// A rank that is gone, and what it carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostLoad {
    /// Requests.
    pub requests: u64,
    /// Those of them that were booked by id, with their attempts.
    pub ids: BTreeMap<RequestId, u64>,
}

/// A booking by id, as `export` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Which attempt of the id.
    pub attempt: u64,
    /// The rank.
    pub rank: Rank,
    /// Prefill tokens outstanding.
    pub prefill_tokens: u64,
    /// Prompt blocks, shared or not, whether or not the pool tracks blocks.
    pub prompt_blocks: u64,
    /// Output blocks.
    pub output_blocks: u64,
}

/// What a step must have answered.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing was there to do it to: the caller does nothing either.
    Nothing,
    /// It worked or was refused.
    Done(Result<(), Refusal>),
    /// It did something or not.
    Flag(bool),
    /// The ranks that are gone and carried something.
    Lost(Result<BTreeMap<Rank, LostLoad>, Refusal>),
    /// Any of the candidates. If the call books, [`Model::settle`] must be told which one.
    Pick(Result<Pick, Refusal>),
    /// The ids whose lease ran out, with attempt and rank, and the workers whose mark ended.
    Expired(BTreeMap<RequestId, (u64, Rank)>, Vec<WorkerId>),
    /// The live bookings by id.
    Live(BTreeMap<RequestId, Exported>),
    /// The ticket under which an `admit` is known from now on, or why it neither goes nor waits.
    Ticket(Result<u64, Refusal>),
    /// The ticket that was withdrawn.
    Withdrawn(u64),
}

/// What happens to somebody who asked to be admitted.
#[derive(Clone, Debug)]
pub enum Event {
    /// It goes in, on any of the candidates. [`Model::settle`] must be told which one.
    Admitted(u64, Pick),
    /// It is refused.
    Refused(u64, Refusal),
}

/// What a step must have done.
#[derive(Clone, Debug)]
pub struct Step {
    /// The answer.
    pub outcome: Outcome,
    /// Whether room may have appeared, so that the epoch must be another one now.
    pub epoch_moves: bool,
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answers given by select and book.
    pub selected: u64,
    /// Errors given by select and book, other than expired and closed.
    pub rejected: u64,
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
}

/// A choice made but for the rank.
#[derive(Clone, Debug)]
struct Pending {
    pick: Pick,
    request: Request,
    id: Option<RequestId>,
    of: For,
}

/// A pool, as the contract has it.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    fleet: Fleet,
    thresholds: Thresholds,
    /// Every live booking by a number of its own.
    bookings: BTreeMap<u64, Live>,
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
    /// Whether somebody who headed a class or a lane was withdrawn in this step.
    head_withdrawn: bool,
}

impl Model {
    /// A pool of these settings.
    pub fn new(config: Config) -> Model {
        let mut fleet = Fleet::default();
        config.fleet.iter().for_each(|spec| fleet.upsert(spec.clone()));
        let policy = config.policy.clone().unwrap_or_else(Policy::none);
        Model {
            config,
            queue: Queue::new(policy),
            tickets: 0,
            newcomer: None,
            admitted_in: 0,
            head_withdrawn: false,
            fleet,
            thresholds: Thresholds::NONE,
            bookings: BTreeMap::new(),
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

    /// Whether `worker` is available, and whether it is marked.
    pub fn marks(&self, worker: WorkerId) -> (bool, bool) {
        (self.fleet.workers[&worker].available, self.fleet.overloaded(worker, self.clock))
    }

    /// How many bookings the host holds as values: what [`Nth`] counts in.
    pub fn values(&self) -> usize {
        self.values.len()
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

    /// How many bookings are live.
    pub fn live(&self) -> usize {
        self.bookings.len()
    }

    fn view(&self) -> View<'_> {
        View {
            config: &self.config,
            fleet: &self.fleet,
            thresholds: &self.thresholds,
            bookings: self.bookings.values().collect(),
            now: self.clock,
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
        let outcome = self.apply(op);
        Step { outcome, epoch_moves: self.room_may_have_appeared(&before) }
    }

    /// Says which candidate of the last [`Outcome::Pick`] was taken, and books it there if the
    /// call books: `Err(RowOverflow)` if its row cannot hold that.
    ///
    /// # Panics
    /// If `rank` was no candidate.
    pub fn settle(&mut self, rank: Rank) -> Result<(), Error> {
        let pending = self.pending.take().expect("a choice to settle");
        let chosen = pending.pick.candidates.into_iter().find(|c| c.rank == rank);
        let chosen = chosen.expect("a candidate");
        let books = !matches!(pending.of, For::Nothing);
        if books && !chosen.fits {
            self.counters.rejected += 1;
            if let For::Waiter(ticket, _) = pending.of {
                self.queue.leave(ticket);
            }
            return Err(Error::RowOverflow { rank });
        }
        if let For::Newcomer(class) = pending.of {
            self.admitted_in = class;
        }
        if let For::Waiter(ticket, turns) = pending.of {
            self.admitted_in = self.queue.waiting[&ticket].class;
            self.queue.admitted(ticket, turns, rank, &self.fleet);
        }
        if books {
            self.land(rank, chosen.load, pending.request, pending.id);
        }
        self.counters.selected += 1;
        Ok(())
    }

    /// What happens next to those who asked to be admitted, until nothing more does: due times
    /// first, then what has become impossible, then whoever's turn it is.
    ///
    /// # Panics
    /// If the last choice was not settled.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some((ticket, pick)) = self.newcomer.take() {
            return Some(Event::Admitted(ticket, pick));
        }
        assert!(self.pending.is_none(), "the last choice was not settled");
        let refused = self.queue.waiting.iter().find_map(|(ticket, w)| {
            let why = if self.closed {
                Error::Closed
            } else if w.due.is_some_and(|due| self.clock >= due) {
                Error::DeadlineExceeded
            } else if queue::impossible(&self.fleet, &w.request) {
                Error::NoEndpoints
            } else {
                return None;
            };
            Some((*ticket, Refusal::from(why)))
        });
        if let Some((ticket, why)) = refused {
            return Some(self.refuse(ticket, why));
        }
        let (ticket, turns) = self.queue.next(&self.view())?;
        let waiter = &self.queue.waiting[&ticket];
        let (id, request) = (waiter.id, waiter.request.clone());
        let barred = self.queue.barred(ticket, &self.fleet);
        match self.pick_in(waiter.class, &request, &barred) {
            Ok(pick) => {
                let of = For::Waiter(ticket, turns);
                self.pending = Some(Pending { pick: pick.clone(), request, id, of });
                Some(Event::Admitted(ticket, pick))
            }
            Err(why) => Some(self.refuse(ticket, why)),
        }
    }

    /// Every right answer to a request of this class, on ranks that are not barred.
    fn pick_in(&self, class: usize, request: &Request, barred: &[Rank]) -> Result<Pick, Refusal> {
        let view = self.view();
        let mut among = self.fleet.eligible(request)?;
        among.retain(|r| !barred.contains(r));
        if self.config.class_room_only {
            among.retain(|r| !self.queue.full(class, *r, &view));
        }
        view.pick_among(request, Some(&among))
    }

    fn refuse(&mut self, ticket: u64, why: Refusal) -> Event {
        self.queue.leave(ticket);
        self.count(&why);
        Event::Refused(ticket, why)
    }

    /// The tickets of those who wait, in the order of arrival: what [`Nth`] counts in.
    pub fn waiting(&self) -> Vec<u64> {
        self.queue.waiting.keys().copied().collect()
    }

    /// Whether somebody waits who may not be passed any more.
    pub fn guarded(&self) -> bool {
        self.queue.waiting.values().any(|w| w.passed >= queue::PASSES)
    }

    /// Who waits, class by class, and whose turn it is, for whoever reads a difference.
    pub fn queue_in_words(&self) -> String {
        let mut text = format!("{:?}", self.queue.turns());
        for (i, class) in self.queue.policy.classes.iter().enumerate() {
            let line = self.queue.line(i);
            let costs = line.iter().map(|t| (*t, self.queue.waiting[t].cost()));
            text += &format!("\n  {} (ticket, cost): {:?}", class.name, costs.collect::<Vec<_>>());
        }
        text
    }

    /// The class of whoever was let in last.
    pub fn admitted_in(&self) -> &Name {
        &self.queue.policy.classes[self.admitted_in].name
    }

    /// What the class of this name has waiting.
    pub fn depth(&self, class: &str) -> queue::Depth {
        let named = |c: &queue::Class| c.name.as_str() == class;
        let class = self.queue.policy.classes.iter().position(named).expect("a class");
        self.queue.depth(class)
    }

    fn land(&mut self, rank: Rank, load: Load, request: Request, id: Option<RequestId>) {
        let key = self.next;
        self.next += 1;
        let life = self.fleet.life(rank).expect("declared");
        let attempt = id.map(|id| {
            let attempt = self.attempts.entry(id).or_default();
            *attempt += 1;
            self.ids.insert(id, key);
            (id, *attempt)
        });
        if id.is_none() {
            self.values.push(key);
        }
        let renewed = self.clock;
        let completed = false;
        let id = attempt;
        self.bookings.insert(key, Live { rank, life, load, request, completed, id, renewed });
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
        }
    }

    /// Applies a change of the fleet and says what lost its rank by it.
    fn losing(&mut self, change: impl FnOnce(&mut Model)) -> BTreeMap<Rank, LostLoad> {
        let before = self.fleet.clone();
        change(self);
        let mut lost = BTreeMap::<Rank, LostLoad>::new();
        for b in self.bookings.values() {
            if b.stands(&before) && !b.stands(&self.fleet) {
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
        Ok(())
    }

    fn choose(&mut self, request: &Request, id: Option<RequestId>, of: For) -> Outcome {
        let pick = self.checked(request, id).and_then(|()| self.view().pick(request));
        match &pick {
            Ok(pick) => {
                let request = request.clone();
                self.pending = Some(Pending { pick: pick.clone(), request, id, of });
            }
            Err(why) => self.count(why),
        }
        Outcome::Pick(pick)
    }

    fn count(&mut self, why: &Refusal) {
        let other = matches!(why, Refusal::Is(Error::Closed | Error::DeadlineExceeded));
        self.counters.rejected += u64::from(!other);
    }

    fn admit(&mut self, request: &Request, id: Option<RequestId>) -> Result<u64, Refusal> {
        let admitted = self.try_admit(request, id);
        if let Err(why) = &admitted {
            self.count(why);
        }
        admitted
    }

    /// Goes in at once, or joins the queue: whether it is let in from there, the next events say.
    fn try_admit(&mut self, request: &Request, id: Option<RequestId>) -> Result<u64, Refusal> {
        self.checked(request, id)?;
        let eligible = self.fleet.eligible(request)?;
        if let Some(class) = &request.class
            && request.strict_class
            && !self.queue.policy.knows(class)
        {
            return Err(Error::UnknownClass { class: class.clone() }.into());
        }
        let view = self.view();
        let uncached = queue::uncached(&view, request, &eligible);
        let class = self.queue.policy.class(request.class.as_ref(), uncached);
        let settings = self.queue.policy.classes[class].clone();
        let (name, waiting) = (settings.name.clone(), self.queue.depth(class));
        let ticket = self.tickets;

        let straight = request.upstream || settings.thresholds == Thresholds::NONE;
        let never_queues = settings.limits.contains(&Some(0));
        let behind =
            if never_queues { waiting.requests > 0 } else { !self.queue.waiting.is_empty() };
        if straight || (!behind && self.queue.gate(class, &eligible, &view)) {
            let pick = match straight {
                true => view.pick(request)?,
                false => self.pick_in(class, request, &[])?,
            };
            self.tickets += 1;
            self.newcomer = Some((ticket, pick.clone()));
            let request = request.clone();
            self.pending = Some(Pending { pick, request, id, of: For::Newcomer(class) });
            return Ok(ticket);
        }

        let due = request.due.or(settings.max_wait.map(|wait| self.clock.after(wait)));
        let waiter = Waiting {
            request: request.clone(),
            id,
            class,
            uncached,
            arrived: self.clock,
            due,
            passed: 0,
        };
        let mut queue = self.queue.clone();
        queue.waiting.insert(ticket, waiter);
        if request.do_not_queue {
            // Nobody who waits could go, so the newcomer's turn comes now or it waits.
            if queue.candidate(class, &view) != Some(ticket) {
                return Err(Error::WouldQueue { class: name, waiting: waiting.requests }.into());
            }
        } else {
            let workers = self.fleet.workers.len() as u64;
            let limits = waiting.by_kind().into_iter().zip(settings.limits);
            let limits = limits.filter_map(|((kind, n), limit)| Some((kind, n, limit?)));
            // A class that never queues says so, whatever other limit is reached.
            let asked = limits.filter(|(_, _, limit)| !never_queues || *limit == 0);
            for (kind, current, limit) in asked {
                let limit = limit.saturating_mul(workers);
                if current >= limit {
                    let class = name;
                    return Err(Error::QueueRejected { class, kind, current, limit }.into());
                }
            }
        }
        self.queue = queue;
        self.tickets += 1;
        Ok(ticket)
    }

    fn withdraw(&mut self, ticket: u64) -> Outcome {
        let class = self.queue.waiting[&ticket].class;
        self.head_withdrawn = self.queue.heads(class).contains(&ticket);
        self.queue.leave(ticket);
        Outcome::Withdrawn(ticket)
    }

    /// What is looked at before any rank is. The clock moves on only for a request that the pool
    /// can read.
    fn checked(&mut self, request: &Request, id: Option<RequestId>) -> Result<(), Refusal> {
        self.acceptable(request)?;
        self.unknown(id)?;
        if !request.upstream && request.due.is_some_and(|due| self.clock >= due) {
            return Err(Error::DeadlineExceeded.into());
        }
        Ok(())
    }

    fn acceptable(&mut self, request: &Request) -> Result<(), Refusal> {
        if self.closed {
            return Err(Error::Closed.into());
        }
        let bad = invalid(request, self.config.block_size);
        if !bad.is_empty() {
            return Err(Refusal::Request(bad));
        }
        self.clock = self.clock.max(request.now);
        Ok(())
    }

    /// Whether nothing lives or waits under `id`.
    fn unknown(&self, id: Option<RequestId>) -> Result<(), Refusal> {
        let waits = |id| self.queue.waiting.values().any(|w| w.id == Some(id));
        match id {
            Some(id) if self.ids.contains_key(&id) || waits(id) => {
                Err(Error::DuplicateRequest { id }.into())
            }
            _ => Ok(()),
        }
    }

    fn import(&mut self, id: RequestId, rank: Rank, request: &Request) -> Result<(), Refusal> {
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

    fn on_value(
        &mut self,
        nth: Nth,
        call: impl FnOnce(&mut Model, u64) -> Result<(), Refusal>,
    ) -> Outcome {
        match nth.of(self.values.len()) {
            Some(i) => Outcome::Done(call(self, self.values[i])),
            None => Outcome::Nothing,
        }
    }

    fn on_id(
        &mut self,
        id: RequestId,
        call: impl FnOnce(&mut Model, u64) -> Result<(), Refusal>,
    ) -> Outcome {
        let Some(&key) = self.ids.get(&id) else {
            return Outcome::Done(Err(Error::UnknownRequest { id }.into()));
        };
        let clock = self.clock;
        self.booking(key).renewed = clock;
        Outcome::Done(call(self, key))
    }

    fn booking(&mut self, key: u64) -> &mut Live {
        self.bookings.get_mut(&key).expect("live")
    }

    fn complete(&mut self, key: u64) -> Result<(), Refusal> {
        let booking = self.booking(key);
        booking.load.prefill = 0;
        booking.completed = true;
        Ok(())
    }

    fn output(&mut self, key: u64, blocks: u32) -> Result<(), Refusal> {
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

    fn move_to(&mut self, key: u64, to: Rank) -> Result<(), Refusal> {
        let life = self.fleet.life(to).filter(|_| self.fleet.workers[&to.worker].available);
        let Some(life) = life else {
            return Err(Error::NoEndpoints.into());
        };
        let booking = &self.bookings[&key];
        if booking.rank == to && booking.life == life {
            return Ok(());
        }
        let mut load = self.view().load(&booking.request, to);
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

    fn free(&mut self, key: u64) {
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

    fn free_id(&mut self, id: RequestId, only: Option<u64>) -> bool {
        let Some(&key) = self.ids.get(&id) else {
            return false;
        };
        if only.is_some() && only != self.bookings[&key].id.map(|(_, attempt)| attempt) {
            return false;
        }
        self.free(key);
        true
    }

    fn export(&self) -> BTreeMap<RequestId, Exported> {
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

    fn expire(&mut self, now: Time) -> Outcome {
        self.clock = self.clock.max(now);
        let clock = self.clock;
        let mut marks = Vec::new();
        for (id, w) in &mut self.fleet.workers {
            if w.overloaded.flatten().is_some_and(|until| clock >= until) {
                w.overloaded = None;
                marks.push(*id);
            }
        }
        let silent = |b: &Live| self.config.lease.is_some_and(|l| clock >= b.renewed.after(l));
        let over: BTreeMap<RequestId, (u64, Rank)> = self
            .bookings
            .values()
            .filter(|b| silent(b))
            .filter_map(|b| b.id.map(|(id, attempt)| (id, (attempt, b.rank))))
            .collect();
        over.keys().for_each(|id| {
            self.free_id(*id, None);
        });
        Outcome::Expired(over, marks)
    }

    /// Whether the way from `before` to here is one of the events of SPEC section 2.
    fn room_may_have_appeared(&self, before: &Model) -> bool {
        let lighter = |a: &Live, b: &Live| {
            b.rank != a.rank || b.load.prefill < a.load.prefill || b.life != a.life
        };
        let taken_off = before.bookings.iter().any(|(key, a)| {
            // What lost its rank has nothing left to take off.
            a.stands(&self.fleet) && self.bookings.get(key).is_none_or(|b| lighter(a, b))
        });
        let policy = self.queue.policy != before.queue.policy;
        taken_off
            || policy
            || self.head_withdrawn
            || fleet::loosened(&before.fleet, &self.fleet)
            || limits::loosened(&before.thresholds, &self.thresholds)
    }
}

/// Names of the fields of `request` that a pool with this block size cannot take.
pub fn invalid(request: &Request, block_size: u32) -> Vec<&'static str> {
    let mut bad = Vec::new();
    let mut refuse = |field, wrong: bool| {
        if wrong {
            bad.push(field);
        }
    };
    let weight = |v: f64| !v.is_finite() || v < 0.0;
    let over = |v: Option<f64>| v.is_some_and(weight);

    refuse("isl", request.isl > u64::from(u32::MAX));
    let whole = request.isl.div_ceil(u64::from(block_size));
    let too_many = request.prompt.as_ref().is_some_and(|p| p.hashes().len() as u64 > whole);
    refuse("block_hashes", too_many);
    for o in request.overlaps.iter().flat_map(|list| list.iter()) {
        refuse("overlaps.device", weight(o.device));
        refuse("overlaps.host", weight(o.host));
        refuse("overlaps.disk", weight(o.disk));
    }
    for c in request.constraints.iter().chain(&request.decode) {
        refuse("prefer", c.prefer.iter().any(|(_, f)| f.is_nan() || *f <= 0.0 || *f > 1.0));
    }
    if let Some(o) = request.overrides {
        refuse("override.device", over(o.device));
        refuse("override.prefill_scale", over(o.prefill_scale));
        refuse("override.shared", over(o.shared));
        refuse("override.temperature", over(o.temperature));
    }
    bad
}
