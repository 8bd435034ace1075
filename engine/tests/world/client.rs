//! Clients: a request's life as a state machine, one stage between two awaits.
//!
//! ```text
//! arrive -> waiting -> in (prefill runs) -> done -> leg (decode runs) -> over
//! ```
//!
//! At each stage it may be dropped, unwind, fall silent or be refused, once.

use crate::fleet::Asks;
use crate::ledger::{Record, What};
use crate::plan::{Demand, Door, Fault, Hop};
use crate::sim::{Breach, MS, World};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use vacancy::{
    Admit, AdmitAs, Attempt, Booking, Choice, Constraints, Error, Hold, Overlap, Prompt, Rank,
    Request, RequestId, Target, Time,
};

/// A future of either kind.
pub enum Waiting {
    /// `admit`.
    Value(Admit),
    /// `admit_as`.
    Id(AdmitAs),
}

impl Waiting {
    /// Whether it waits still, as the engine says.
    pub fn is_waiting(&self) -> bool {
        match self {
            Waiting::Value(admit) => admit.is_waiting(),
            Waiting::Id(admit) => admit.is_waiting(),
        }
    }
}

/// Load that a client has: as a value, or under its id.
pub enum Held {
    /// A value.
    Value(Box<Booking>),
    /// An id, and the attempt.
    Id(Attempt),
}

/// A hold that a client has.
pub enum Kept {
    /// A value.
    Value(Box<Hold>),
    /// Under its id.
    Id,
}

/// Where a client is in its life.
pub enum Stage {
    /// It waits to be let in.
    Waiting(Waiting),
    /// It is in at the hop where it came.
    In {
        /// The load.
        booked: Held,
        /// What the books say of it.
        record: Record,
        /// The hold, and what the books say of that.
        hold: Option<(Kept, Record)>,
        /// How often its decode leg was refused.
        tries: u8,
    },
    /// Its decode leg runs.
    Leg {
        /// The load.
        booked: Held,
        /// What the books say of it.
        record: Record,
    },
    /// It is over.
    Over,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it was done.
    Completed,
    /// It was refused.
    Refused,
    /// Its owner dropped it.
    Cancelled,
    /// Its owner unwound.
    Panicked,
    /// Its lease ran out.
    Reclaimed,
    /// Its decode leg was refused too often.
    GaveUp,
    /// The world ended.
    Stopped,
}

impl End {
    /// What it is called in tables.
    pub fn key(self) -> &'static str {
        match self {
            End::Completed => "completed",
            End::Refused => "refused",
            End::Cancelled => "cancelled",
            End::Panicked => "unwound",
            End::Reclaimed => "reclaimed",
            End::GaveUp => "leg refused",
            End::Stopped => "stopped",
        }
    }
}

/// What decides a waiter's place.
#[derive(Clone, Debug)]
pub struct Place {
    /// Arrival sequence.
    pub sequence: u64,
    /// When it arrived (ns).
    pub arrival: u64,
    /// Prompt tokens that no eligible rank had cached.
    pub uncached: u64,
    /// When it must be in (ns).
    pub due: Option<u64>,
    /// Who should have gone before it, as seen when it was woken.
    pub overtook: Vec<u32>,
    /// It was woken, after it had waited.
    pub woken: bool,
    /// At a moment when everything was known.
    pub woken_fresh: bool,
    /// The clock before time last passed, when it was woken (ns).
    pub woken_after: u64,
    /// The same, if it was let in or refused before it was ever polled: nobody was to be woken.
    pub over_after: Option<u64>,
    /// The lives of ranks that had begun at each pool when its wait was over.
    pub lives: Option<[u64; 2]>,
    /// How many of its class were let in while it waited.
    pub passed: u32,
}

/// One client.
pub struct Client {
    /// Its request.
    pub demand: Rc<Demand>,
    /// Where it came in.
    pub hop: Hop,
    /// Whether it uses its id.
    pub by_id: bool,
    /// Where it is in its life.
    pub stage: Stage,
    /// Its place, if it waited.
    pub place: Place,
    /// It does nothing any more.
    pub silent: bool,
    /// How often its request ended.
    pub ends: u32,
}

impl Client {
    /// Its decode-side or own constraints at a hop, with its adapter.
    pub fn asks_at(&self, hop: Hop) -> Asks<'_> {
        let wants = if hop == self.hop { &self.demand.own } else { &self.demand.leg };
        Asks { wants, lora: self.demand.lora }
    }

    /// Whether what is known of its class's gate for everybody holds for it.
    pub fn is_plain(&self) -> bool {
        let demand = &self.demand;
        demand.own.is_empty() && demand.leg.is_empty() && !demand.lora
    }
}

fn constraints(wants: &crate::plan::Wants) -> Constraints {
    let mut constraints = Constraints::new();
    if let Some((worker, dp_rank)) = wants.pin {
        constraints = constraints.pin(match dp_rank {
            Some(dp_rank) => Target::rank(worker, dp_rank),
            None => Target::worker(worker),
        });
    }
    if let Some(worker) = wants.deny {
        constraints = constraints.deny([worker]);
    }
    if wants.taint {
        constraints = constraints.taint("x");
    }
    constraints
}

/// The request of a demand at the hop where it comes in, due at an instant of the pool's clock.
fn request(demand: &Demand, hop: Hop, now: u64, due: Option<u64>) -> Request {
    let mut request = Request::new(demand.isl.into())
        .at(Time::from_nanos(now.saturating_sub(demand.behind_ms * MS)))
        .strict_priority(demand.priority)
        .priority_jump(demand.jump);
    request.due = due.map(Time::from_nanos);
    request.do_not_queue = demand.do_not_queue;
    if let Some(chain) = &demand.chain {
        request = request.prompt(Prompt::new(chain.clone()).expect("chains are valid"));
    }
    let overlap = |&(worker, dp_rank, blocks): &(u64, u32, u32)| {
        Overlap::device(Rank::new(worker, dp_rank), blocks.into())
    };
    request = request.overlaps(demand.cached.iter().map(overlap).collect::<Vec<_>>());
    if let Some(class) = demand.class {
        request = request.class(class);
    }
    if !demand.own.is_empty() {
        request = request.constraints(constraints(&demand.own));
    }
    if hop == Hop::Prefill && !demand.leg.is_empty() {
        request = request.decode(constraints(&demand.leg));
    }
    if demand.lora {
        request = request.lora("a");
    }
    if demand.poison {
        request = request.seed(crate::host::POISON);
    }
    request
}

/// The request of a demand's decode leg, with its hashes if they are of blocks of that hop.
fn leg(demand: &Demand, now: u64, hashed: bool) -> Request {
    let mut request = Request::new(demand.isl.into()).at(Time::from_nanos(now)).upstream();
    if let Some(chain) = demand.chain.as_ref().filter(|_| hashed) {
        request = request.prompt(Prompt::new(chain.clone()).expect("chains are valid"));
    }
    if !demand.leg.is_empty() {
        request = request.constraints(Arc::new(constraints(&demand.leg)));
    }
    if demand.lora {
        request = request.lora("a");
    }
    request
}

impl World<'_> {
    /// What the books are to say of a request on a rank.
    fn record(&self, client: u32, hop: Hop, what: What, rank: Rank) -> Record {
        let of = &self.clients[&client];
        let demand = &of.demand;
        let cached = demand.cached.iter().map(|&(w, r, blocks)| (Rank::new(w, r), blocks));
        let block_size = self.side(hop).ledger.block_size;
        // Hashes of blocks of another size say nothing of what is shared here.
        let hashed = block_size == self.side(of.hop).ledger.block_size;
        let chain = demand.chain.as_ref().filter(|_| hashed).map(|chain| Rc::from(&chain[..]));
        Record {
            what,
            rank,
            life: 0,
            isl: demand.isl,
            // The prefill side's overlaps never apply at the other hop.
            cached: if hop == of.hop { cached.collect() } else { Rc::new([]) },
            blocks: demand.isl.div_ceil(block_size),
            chain,
            output: 0,
            done: false,
            id: of.by_id.then_some(u128::from(client)),
        }
    }

    /// A request comes in.
    pub fn arrive(
        &mut self,
        client: u32,
        hop: Hop,
        door: Door,
        demand: &Demand,
        lazy: bool,
    ) -> Result<(), Breach> {
        if self.clients.contains_key(&client) {
            return Ok(());
        }
        self.out.requests += 1;
        if demand.behind_ms > 0 {
            self.suffered(Fault::ClockBehind);
        }
        let now = self.now;
        self.sequence += 1;
        let due = demand.due_in_ms.map(|ms| now + ms * MS);
        let uncached = self.uncached(hop, demand);
        let place = Place {
            sequence: self.sequence,
            arrival: now,
            uncached,
            due: due.or_else(|| {
                let side = self.side(hop);
                let class = &side.policy.classes[side.policy.resolve(demand.class, uncached)];
                class.max_wait_ms.map(|ms| now + ms * MS)
            }),
            overtook: Vec::new(),
            woken: false,
            woken_fresh: false,
            woken_after: 0,
            over_after: None,
            lives: None,
            passed: 0,
        };
        let by_id = matches!(door, Door::AdmitAs | Door::BookAs);
        let stage = Stage::Over;
        let demand = Rc::new(demand.clone());
        let new =
            Client { demand: Rc::clone(&demand), hop, by_id, stage, place, silent: false, ends: 0 };
        self.clients.insert(client, new);
        let request = request(&demand, hop, now, due);
        let id = RequestId(client.into());
        let side = self.side_mut(hop);
        match door {
            Door::Book => match side.pool.book(&request) {
                Ok(booking) => {
                    let choice = booking.choice().clone();
                    self.trace.arrives(client, hop, door, &demand, due, None);
                    self.landed(client, Held::Value(Box::new(booking)), &choice, None, false)
                }
                Err(error) => {
                    self.trace.arrives(client, hop, door, &demand, due, Some(&error));
                    self.refused(client, &error)
                }
            },
            Door::BookAs => match side.pool.book_as(id, &request) {
                Ok(placed) => {
                    self.trace.arrives(client, hop, door, &demand, due, None);
                    self.landed(client, Held::Id(placed.attempt), &placed.choice, None, false)
                }
                Err(error) => {
                    self.trace.arrives(client, hop, door, &demand, due, Some(&error));
                    self.refused(client, &error)
                }
            },
            Door::Admit | Door::AdmitAs => {
                let future = match door {
                    Door::Admit => Waiting::Value(side.pool.admit(request)),
                    _ => Waiting::Id(side.pool.admit_as(id, request)),
                };
                let newcomer = self.clients.get_mut(&client).expect("it came");
                newcomer.stage = Stage::Waiting(future);
                self.waiting.push(client);
                self.trace.arrives(client, hop, door, &demand, due, None);
                if lazy {
                    self.executor.spawn(client);
                    return Ok(());
                }
                // Who was let in by this very call has gone before it.
                self.settle_wakes();
                self.poll(client)
            }
        }
    }

    fn settle_wakes(&mut self) {
        let wakes = self.executor.collect();
        for (i, &woken) in wakes.iter().enumerate() {
            self.saw(u64::from(woken));
            self.note_wake(woken, &wakes[i + 1..]);
            // What it landed on is not known yet, so nothing that follows is judged.
            self.fresh = false;
        }
    }

    fn uncached(&self, hop: Hop, demand: &Demand) -> u64 {
        let side = self.side(hop);
        let asks = Asks { wants: &demand.own, lora: demand.lora };
        let eligible = side.fleet.eligible(asks, false);
        let on = |&(w, r, blocks): &(u64, u32, u32)| {
            let cached = demand.isl.min(blocks * side.ledger.block_size);
            if eligible.contains(&Rank::new(w, r)) { cached } else { 0 }
        };
        // Of two entries for one rank the last one stands.
        let stands = |&(i, &(w, r, _)): &(usize, &(u64, u32, u32))| {
            !demand.cached[i + 1..].iter().any(|&(w2, r2, _)| (w, r) == (w2, r2))
        };
        let cached = demand.cached.iter().enumerate().filter(stands).map(|(_, o)| on(o)).max();
        u64::from(demand.isl - cached.unwrap_or(0))
    }

    /// Polls a client that was woken, or has never run.
    pub fn poll(&mut self, client: u32) -> Result<(), Breach> {
        let waker = self.executor.waker(client);
        let mut cx = Context::from_waker(&waker);
        let Some(of) = self.clients.get_mut(&client) else { return Ok(()) };
        let Stage::Waiting(future) = &mut of.stage else { return Ok(()) };
        let polled = match future {
            Waiting::Value(admit) => Pin::new(admit).poll(&mut cx).map(|answer| {
                answer.map(|a| {
                    let (choice, rank) = (a.booking.choice().clone(), a.booking.rank());
                    let hold = a.hold.map(|h| (h.rank(), Kept::Value(Box::new(h))));
                    let booked = Held::Value(Box::new(a.booking));
                    (booked, choice, rank, hold, a.class, a.waited)
                })
            }),
            Waiting::Id(admit) => Pin::new(admit).poll(&mut cx).map(|answer| {
                answer.map(|a| {
                    let rank = a.placed.choice.rank;
                    let hold = a.hold.map(|rank| (Some(rank), Kept::Id));
                    (Held::Id(a.placed.attempt), a.placed.choice, rank, hold, a.class, a.waited)
                })
            }),
        };
        match polled {
            Poll::Pending => Ok(()),
            Poll::Ready(answer) => {
                of.stage = Stage::Over;
                self.waiting.retain(|&c| c != client);
                self.executor.forget(client);
                match answer {
                    Err(error) => self.refused(client, &error),
                    Ok((booked, choice, rank, hold, class, waited)) => {
                        self.saw_text(&class);
                        if rank != choice.rank {
                            let what = format!("{client} is on {rank}, chosen was {}", choice.rank);
                            return Err(Breach::of("each_row_is_the_sum_of_what_is_live", what));
                        }
                        self.class_is(client, &class)?;
                        self.in_turn(client, waited)?;
                        let hold = match hold {
                            None => None,
                            Some((Some(rank), kept)) => Some((rank, kept)),
                            Some((None, _)) => unreachable!("the pair is one of this library"),
                        };
                        self.landed(client, booked, &choice, hold, true)
                    }
                }
            }
        }
    }

    /// The lives of ranks that have begun at each pool.
    pub fn lives(&self) -> [u64; 2] {
        [Hop::Prefill, Hop::Decode].map(|hop| self.side(hop).fleet.lives)
    }

    /// Notes of those whose wait is over, seen or not, on which lives of ranks that was.
    pub fn note_lives(&mut self) {
        let lives = self.lives();
        for client in &self.waiting {
            let of = self.clients.get_mut(client).expect("it waits");
            if let Stage::Waiting(future) = &of.stage
                && !future.is_waiting()
            {
                of.place.lives.get_or_insert(lives);
            }
        }
    }

    /// A request is in: judged, then entered into the books.
    fn landed(
        &mut self,
        client: u32,
        booked: Held,
        choice: &Choice,
        hold: Option<(Rank, Kept)>,
        admitted: bool,
    ) -> Result<(), Breach> {
        let hop = self.clients[&client].hop;
        self.saw(choice.rank.worker.0 << 32 | u64::from(choice.rank.dp_rank));
        self.landing_was_within_limits(client, choice, hold.as_ref().map(|(r, _)| *r), admitted)?;
        // What it landed on may be gone by the time that it sees it.
        let lives = self.clients[&client].place.lives.unwrap_or_else(|| self.lives());
        let mut record = self.record(client, hop, What::Booking, choice.rank);
        self.side_mut(hop).ledger.land_in(&mut record, lives[hop as usize]);
        let now = self.now;
        if let Held::Id(_) = booked {
            self.side_mut(hop).ids.insert(client.into(), now);
        }
        let hold = hold.map(|(rank, kept)| {
            self.saw(rank.worker.0 << 32 | u64::from(rank.dp_rank));
            let mut record = self.record(client, Hop::Decode, What::Hold, rank);
            let lives = lives[Hop::Decode as usize];
            self.side_mut(Hop::Decode).ledger.land_in(&mut record, lives);
            if let Kept::Id = kept {
                self.side_mut(hop).holds.insert(client.into(), now);
            }
            (kept, record)
        });
        let of = self.clients.get_mut(&client).expect("it came");
        of.stage = Stage::In { booked, record, hold, tries: 0 };
        Ok(())
    }

    /// A request is refused.
    fn refused(&mut self, client: u32, error: &Error) -> Result<(), Breach> {
        self.saw_text(error.name());
        if matches!(error, Error::PolicyFailed { .. }) {
            self.suffered(Fault::HostPanic);
        }
        self.refusal_is_true(client, error)?;
        self.ended(client, End::Refused)
    }

    /// A request has ended.
    pub fn ended(&mut self, client: u32, end: End) -> Result<(), Breach> {
        *self.out.ends.entry(end.key()).or_default() += 1;
        self.waiting.retain(|&c| c != client);
        self.executor.forget(client);
        let of = self.clients.get_mut(&client).expect("it came");
        of.ends += 1;
        let over = matches!(of.stage, Stage::Over);
        if of.ends != 1 || !over {
            let what = format!("request {client} ended {} times, now {}", of.ends, end.key());
            return Err(Breach::of("every_request_ends_exactly_once", what));
        }
        Ok(())
    }

    /// The client does the next thing of its life.
    pub fn step(&mut self, client: u32) -> Result<(), Breach> {
        let Some(of) = self.clients.get_mut(&client) else { return Ok(()) };
        if of.silent {
            return Ok(());
        }
        match &of.stage {
            Stage::Waiting(_) | Stage::Over => Ok(()),
            Stage::In { record, .. } if !record.done => self.complete_prefill(client),
            Stage::In { .. } if of.hop == Hop::Prefill => self.go_to_decode(client),
            Stage::In { .. } | Stage::Leg { .. } => {
                self.leave(client, End::Completed);
                Ok(())
            }
        }
    }

    fn complete_prefill(&mut self, client: u32) -> Result<(), Breach> {
        let of = self.clients.get_mut(&client).expect("it came");
        let hop = of.hop;
        let mut stage = std::mem::replace(&mut of.stage, Stage::Over);
        if let Stage::In { booked, record, .. } = &mut stage {
            let now = self.now;
            let side = self.side_mut(hop);
            let known = match booked {
                Held::Value(booking) => {
                    booking.prefill_completed();
                    Ok(())
                }
                Held::Id(_) => {
                    side.renew(client.into(), now);
                    side.pool.prefill_completed(RequestId(client.into()))
                }
            };
            side.ledger.complete(record);
            if let Err(error) = known {
                let what = format!("request {client} is live, and not: {error}");
                return Err(Breach::of("every_request_ends_exactly_once", what));
            }
        }
        self.clients.get_mut(&client).expect("it came").stage = stage;
        self.trace.one("prefill_completed", client);
        Ok(())
    }

    /// The decode leg is booked, out of the hold if there is one; then the prefill leg is over.
    fn go_to_decode(&mut self, client: u32) -> Result<(), Breach> {
        let of = self.clients.get_mut(&client).expect("it came");
        let (demand, by_id) = (Rc::clone(&of.demand), of.by_id);
        let stage = std::mem::replace(&mut of.stage, Stage::Over);
        let Stage::In { booked, record, hold, tries } = stage else { unreachable!("it is in") };
        let (now, id) = (self.now, RequestId(client.into()));
        let [prefill, decode] = Hop::BOTH.map(|hop| self.side(hop).ledger.block_size);
        let request = leg(&demand, now, prefill == decode);
        let (hold, hold_record) = match hold {
            None => (None, None),
            Some((Kept::Value(hold), record)) => (Some(*hold), Some(record)),
            Some((Kept::Id, record)) => {
                self.side_mut(Hop::Prefill).holds.remove(&id.0);
                match self.side(Hop::Prefill).pool.take_hold(id) {
                    Some(hold) => (Some(hold), Some(record)),
                    None => {
                        let what = format!("the hold of {client} is gone before its time");
                        return Err(Breach::of("every_request_ends_exactly_once", what));
                    }
                }
            }
        };
        if let Some(record) = &hold_record {
            // Judged as if its own hold were not there.
            self.side_mut(Hop::Decode).ledger.take_off(record);
        }
        let pool = self.side(Hop::Decode).pool.clone();
        let place = |placed: Result<Booking, Box<vacancy::RefusedLeg>>| match placed {
            Ok(booking) => Ok((booking.choice().clone(), Held::Value(Box::new(booking)))),
            Err(refused) => Err((refused.error, Some(Box::new(refused.hold)))),
        };
        let booked_leg = match (hold, by_id) {
            (Some(hold), true) => match pool.book_leg_as(id, hold, &request) {
                Ok(placed) => Ok((placed.choice, Held::Id(placed.attempt))),
                Err(refused) => Err((refused.error, Some(Box::new(refused.hold)))),
            },
            (Some(hold), false) if demand.afresh => place(pool.book_leg_afresh(hold, &request)),
            (Some(hold), false) => place(pool.book_leg(hold, &request)),
            (None, true) => match pool.book_as(id, &request) {
                Ok(placed) => Ok((placed.choice, Held::Id(placed.attempt))),
                Err(error) => Err((error, None)),
            },
            (None, false) => match pool.book(&request) {
                Ok(booking) => Ok((booking.choice().clone(), Held::Value(Box::new(booking)))),
                Err(error) => Err((error, None)),
            },
        };
        self.trace.leg(client, booked_leg.as_ref().err().map(|(error, _)| error));
        match booked_leg {
            Ok((choice, leg)) => {
                self.saw(choice.rank.worker.0 << 32 | u64::from(choice.rank.dp_rank));
                let afresh = demand.afresh && !by_id;
                self.leg_was_within_limits(client, &choice, hold_record.as_ref(), afresh)?;
                let mut new = self.record(client, Hop::Decode, What::Booking, choice.rank);
                self.side_mut(Hop::Decode).ledger.land(&mut new);
                if by_id {
                    self.side_mut(Hop::Decode).ids.insert(id.0, now);
                }
                self.trace.free_leg(client);
                self.give_back(client, Hop::Prefill, booked, &record);
                let of = self.clients.get_mut(&client).expect("it came");
                of.stage = Stage::Leg { booked: leg, record: new };
                Ok(())
            }
            Err((error, hold)) => {
                self.saw_text(error.name());
                self.leg_refusal_is_true(client, &error)?;
                let hold = match (hold, hold_record) {
                    (Some(hold), Some(mut record)) => {
                        // As it was: on its rank, in the life of that.
                        let side = self.side_mut(Hop::Decode);
                        if side.ledger.is_alive(&record) {
                            side.ledger.land(&mut record);
                        }
                        let kept = match by_id {
                            true => {
                                let prefill = self.side_mut(Hop::Prefill);
                                prefill.pool.return_hold(id, *hold);
                                prefill.holds.insert(id.0, now);
                                Kept::Id
                            }
                            false => Kept::Value(hold),
                        };
                        Some((kept, record))
                    }
                    _ => None,
                };
                let of = self.clients.get_mut(&client).expect("it came");
                of.stage = Stage::In { booked, record, hold, tries: tries + 1 };
                if tries + 1 == 3 {
                    self.leave(client, End::GaveUp);
                }
                Ok(())
            }
        }
    }

    fn give_back(&mut self, client: u32, hop: Hop, booked: Held, record: &Record) {
        let side = self.side_mut(hop);
        side.ledger.take_off(record);
        match booked {
            Held::Value(booking) => drop(booking),
            Held::Id(attempt) => {
                side.ids.remove(&u128::from(client));
                if !side.pool.free_attempt(RequestId(client.into()), attempt) {
                    let what = format!("request {client} was not live when it was freed");
                    self.broken = Some(Breach::of("every_request_ends_exactly_once", what));
                }
            }
        }
    }

    /// The client leaves, with everything it has.
    pub fn leave(&mut self, client: u32, end: End) {
        self.trace.leaves(client, end);
        let of = self.clients.get_mut(&client).expect("it came");
        let hop = of.hop;
        match std::mem::replace(&mut of.stage, Stage::Over) {
            Stage::Waiting(future) => drop(future),
            Stage::In { booked, record, hold, .. } => {
                if let Some((kept, record)) = hold {
                    self.side_mut(Hop::Decode).ledger.take_off(&record);
                    match kept {
                        Kept::Value(hold) => drop(hold),
                        Kept::Id => {
                            let side = self.side_mut(Hop::Prefill);
                            side.holds.remove(&u128::from(client));
                            drop(side.pool.take_hold(RequestId(client.into())));
                        }
                    }
                }
                self.give_back(client, hop, booked, &record);
            }
            Stage::Leg { booked, record } => self.give_back(client, Hop::Decode, booked, &record),
            Stage::Over => return,
        }
        if let Err(breach) = self.ended(client, end) {
            self.broken.get_or_insert(breach);
        }
    }
}
