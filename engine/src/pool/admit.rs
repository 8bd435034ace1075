//! Admit: place a request now, or let it wait in its class until it can be placed.
//!
//! With nothing waiting, admission is one pass that judges the class's gate as well, and takes no
//! queue lock. Otherwise the request enters the queue and the drain decides (`pool::drain`); who
//! is behind others of its class, with the gate known to be closed, does not even run a pass.

use crate::booking::{Booking, Placed};
use crate::error::Error;
use crate::fleet::eligible::{Availability, resolve};
use crate::fleet::view::View;
use crate::names::{Attempt, Name, Rank, RequestId};
use crate::pass::full::cached_tokens;
use crate::pins::pin;
use crate::pool::by_id::Reservation;
use crate::pool::choose::{Checked, Gate, Placement, Purpose, Tried, with_arena};
use crate::pool::hold::Hold;
use crate::pool::{Handle, Inner, Pool};
use crate::queue::policy::{ClassId, ClassSpec, Profile};
use crate::queue::waiter::{Cancelled, Fate, Polled, Waiter};
use crate::queue::{Arrival, EntryId, Rating};
use crate::request::Request;
use crate::room::park::block_on;
use crate::sync::Arc;
use crate::time::Time;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Every eligible rank is past the class's prefill threshold.
    OwnPrefill,
    /// Every eligible rank is past one of the class's thresholds, the decode part among them.
    OwnDecode,
    /// The paired pool has no room for the class.
    Pair,
    /// Every eligible rank is unavailable or carries a host's or a monitor's overload mark.
    Mark,
    /// Others of its class or lane go first.
    Behind,
}

/// How a waiting request stands; see [`Admit::standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// What holds it up.
    pub why: Why,
    /// How many of its class and lane go first.
    pub ahead: usize,
}

/// An admission by value.
#[derive(Debug)]
#[non_exhaustive]
pub struct Admitted {
    /// The load on the rank.
    pub booking: Booking,
    /// Room set aside at the paired pool for the decode leg.
    pub hold: Option<Hold>,
    /// The policy class that it was admitted in.
    pub class: Name,
    /// Whether it waited.
    pub waited: bool,
}

/// An admission by id.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdmittedAs {
    /// The rank, why, and which try this is.
    pub placed: Placed,
    /// The decode rank that room was set aside on; see [`Pool::take_hold`].
    pub hold: Option<Rank>,
    /// The policy class that it was admitted in.
    pub class: Name,
    /// Whether it waited.
    pub waited: bool,
}

/// What a drain delivers.
pub(crate) struct Delivered {
    pub(crate) placement: Placement,
    pub(crate) class: Name,
    pub(crate) hold: Option<Hold>,
}

/// A request that waits.
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) checked: Checked,
    pub(crate) waiter: Waiter<Delivered, Error>,
}

impl Pending {
    /// What was checked at arrival, with the clock of now.
    pub(crate) fn checked_at(&self, now: Time) -> Checked {
        Checked { now, ..self.checked }
    }
}

/// A request on its way in: in already, refused already, or waiting.
enum State {
    Over(Option<Box<Result<(Delivered, bool), Error>>>),
    Waiting(Arc<Pending>, EntryId),
}

/// The part of an admission that does not know whether it is by value or by id.
struct Ticket {
    handle: Arc<Handle>,
    state: State,
}

/// A request that is being admitted: a future for any executor, or for a thread that blocks.
///
/// The first attempt was made when [`Pool::admit`] was called. Dropping it withdraws the request
/// at once, in `O(log n)` however many wait; if it was booked already but not yet seen, the booking
/// is given back and the next waiter gets the room.
#[must_use = "dropping it withdraws the request"]
pub struct Admit(Ticket);

/// As [`Admit`], for a request with an id; see [`Pool::admit_as`].
#[must_use = "dropping it withdraws the request"]
pub struct AdmitAs {
    ticket: Ticket,
    reservation: Option<Reservation>,
}

impl Pool {
    /// Admits a request: places it now if its class has room and nobody who could go is ahead of
    /// it, else lets it wait in its class. Never blocks: the answer is a future. With nothing
    /// waiting it costs one pass and takes no queue lock.
    ///
    /// The future fails as [`book`](Self::book) does, and with `UnknownClass`, `WouldQueue`,
    /// `QueueRejected`, `DeadlineExceeded` while waiting (at the due time, if the host calls
    /// [`expire`](Self::expire) then; else at the next event), `NoEndpoints` when the last rank
    /// that could ever take it has gone, and `Closed`.
    pub fn admit(&self, request: Request) -> Admit {
        let inner = self.inner();
        let ticket = match inner.check(&request) {
            Ok(checked) => self.handle.enter(request, checked),
            Err(error) => self.handle.refused(error),
        };
        Admit(ticket)
    }

    /// As [`admit`](Self::admit), under an id: from now until it is refused, withdrawn or freed,
    /// the id is taken. Once it is in, the booking lives under the id and the future can be
    /// dropped.
    pub fn admit_as(&self, id: RequestId, request: Request) -> AdmitAs {
        let inner = self.inner();
        let entered = inner.check(&request).and_then(|checked| {
            let reservation = self.handle.reserve(id)?;
            Ok((self.handle.enter(request, checked), reservation))
        });
        match entered {
            Ok((ticket, reservation)) => AdmitAs { ticket, reservation: Some(reservation) },
            Err(error) => AdmitAs { ticket: self.handle.refused(error), reservation: None },
        }
    }
}

impl Handle {
    fn refused(self: &Arc<Self>, error: Error) -> Ticket {
        self.inner.rejected.count(&error);
        Ticket { handle: Arc::clone(self), state: over(Err(error)) }
    }

    fn enter(self: &Arc<Self>, mut request: Request, checked: Checked) -> Ticket {
        let first = self.inner.check_due(&request, checked.now).and_then(|()| {
            self.inner.classify(&mut request)?;
            self.first_attempt(&request, checked)
        });
        let state = match first {
            Ok(First::In(delivered)) => {
                self.stripe().admitted.fetch_add(1, Ordering::Relaxed);
                over(Ok((delivered, false)))
            }
            Ok(First::Wait(newcomer)) => self.wait(request, checked, newcomer),
            Err(error) => over(Err(self.inner.refused(error))),
        };
        Ticket { handle: Arc::clone(self), state }
    }

    /// Everything that can be said without the queue's lock.
    fn first_attempt(&self, request: &Request, checked: Checked) -> Result<First, Error> {
        let inner = &*self.inner;
        // A classifier may have changed it.
        if self.inner.classifier.is_some() {
            inner.check_due(request, checked.now)?;
        }
        loop {
            let newcomer = inner.newcomer(request)?;
            let spec = newcomer.spec();
            let class = spec.name.clone();
            if request.upstream || !spec.waits() {
                let placement = self.caller().place(request, checked, Purpose::Book)?;
                return Ok(First::In(Delivered { placement, class, hold: None }));
            }
            if spec.thresholds.decode_frac.is_some() && !inner.pair_may_ever(request) {
                return Err(Error::NoEndpoints);
            }
            // Behind a backlog a newcomer runs no pass of its own. A class that never queues has
            // no backlog to be behind.
            let backlog = inner.bench.count() > 0;
            if backlog && spec.never_queues().is_none() {
                return Ok(First::Wait(newcomer));
            }
            if backlog && inner.bench.with(|bench| bench.waiting(newcomer.class)) > 0 {
                return Ok(First::Wait(newcomer));
            }
            let gate = Gate { class: newcomer.class, profile: &newcomer.profile, passing: None };
            let mut into = None;
            match self.caller().attempt(request, checked, Purpose::Book, Some(gate), &mut into)? {
                Tried::In { hold, .. } => {
                    let placement = into.expect("it is in");
                    return Ok(First::In(Delivered { placement, class, hold }));
                }
                Tried::Closed(_) => return Ok(First::Wait(newcomer)),
                Tried::Stale => {}
            }
        }
    }

    /// Enters the queue, and drains: that is the look which finds room that came in between.
    fn wait(self: &Arc<Self>, request: Request, checked: Checked, newcomer: Newcomer) -> State {
        let inner = &self.inner;
        let do_not_queue = request.do_not_queue;
        let workers = inner.totals().0 as u64;
        let pin = request.constraints.as_ref().and_then(|c| c.pin);
        let constrained = request.is_constrained();
        let rating = Rating {
            strict_priority: request.strict_priority,
            due: request.due,
            priority_jump: request.jump(),
            arrival: checked.now,
            uncached: newcomer.uncached(&request),
            cost: request.cost,
        };
        let class = request.class.clone();
        let isl = request.isl;
        let pending = Arc::new(Pending { request, checked, waiter: Waiter::new() });
        let entered = inner.bench.enter(|bench| {
            let arrival = Arrival {
                class,
                rating,
                pin: pin.map(|pin| bench.lane(pin)),
                constrained,
                isl,
                payload: Arc::clone(&pending),
            };
            bench.push(arrival, workers, do_not_queue)
        });
        let entry = match entered {
            Err(_) => return over(Err(Error::Closed)),
            Ok(Err(error)) => return over(Err(inner.refused(error))),
            Ok(Ok(entry)) => entry,
        };
        if do_not_queue || !inner.is_known_closed(entry) {
            inner.drain_soon();
        }
        let mut ticket = Ticket { handle: Arc::clone(self), state: State::Waiting(pending, entry) };
        if do_not_queue {
            // It is in now, or it would have to wait.
            if let Some(result) = ticket.look() {
                return over(result.map(|(delivered, _)| (delivered, false)));
            }
            let waiting = inner.bench.with(|bench| bench.waiting(newcomer.class));
            let class = newcomer.spec().name.clone();
            return match ticket.withdraw() {
                Some(delivered) => over(Ok((delivered, false))),
                None => {
                    let waiting = waiting.saturating_sub(1);
                    over(Err(inner.refused(Error::WouldQueue { class, waiting })))
                }
            };
        }
        self.stripe().queued.fetch_add(1, Ordering::Relaxed);
        ticket.state_taken()
    }
}

/// What a newcomer is, in the policy of the moment.
struct Newcomer {
    class: ClassId,
    profile: Arc<Profile>,
    /// Best cached tokens over the structurally eligible ranks, at arrival.
    cached: u32,
}

#[expect(clippy::large_enum_variant, reason = "lives for one call; a box would be an allocation")]
enum First {
    In(Delivered),
    Wait(Newcomer),
}

impl Newcomer {
    fn spec(&self) -> &ClassSpec {
        self.profile.class(self.class)
    }

    fn uncached(&self, request: &Request) -> u64 {
        request.isl - u64::from(self.cached)
    }
}

impl Inner {
    /// Resolves a newcomer's class: by name, or by family and uncached tokens.
    ///
    /// # Errors
    /// `UnknownClass`, `NoEndpoints`, and `DeadlineExceeded` if its class gives it a due time that
    /// has passed.
    fn newcomer(&self, request: &Request) -> Result<Newcomer, Error> {
        let guard = pin();
        let view = self.view.load(&guard);
        let profile = Arc::clone(&view.rules.profile);
        let cached = self.best_cached(view, request)?;
        let uncached = request.isl - u64::from(cached);
        let class = profile.resolve(request.class.as_ref(), uncached, request.strict_class)?;
        Ok(Newcomer { class, profile, cached })
    }

    /// The most cached tokens that a structurally eligible rank has.
    pub(crate) fn best_cached(&self, view: &View, request: &Request) -> Result<u32, Error> {
        with_arena(|arena| {
            let constraints = request.constraints.as_deref();
            let lora = request.lora.as_ref();
            let eligible = resolve(view, constraints, lora, Availability::Required, arena);
            if !eligible.any(view) {
                return Err(Error::NoEndpoints);
            }
            let mut best = 0;
            // Of two entries for one rank the last one stands: an earlier one must not count.
            for (i, o) in request.overlaps.iter().flat_map(|list| list.iter()).enumerate() {
                let Some(slot) = view.slot(o.rank) else { continue };
                if eligible.lanes(view, slot.block()) & slot.bit() == 0 {
                    continue;
                }
                let tiers = [o.device, o.host, o.disk];
                let settings = &self.settings;
                let isl = request.isl as u32;
                let cached = cached_tokens(&settings.weights, settings.block_size, isl, tiers);
                let later = request.overlaps.iter().flat_map(|list| list[i + 1..].iter());
                if cached > best && !later.into_iter().any(|later| later.rank == o.rank) {
                    best = cached;
                }
            }
            Ok(best)
        })
    }

    /// Whether an entry that was just pushed waits behind a gate that is known to be closed.
    fn is_known_closed(&self, entry: EntryId) -> bool {
        // Read after the push has announced itself: a release that this misses has seen it.
        let epochs = self.epochs();
        let now = self.time();
        self.bench.with(|bench| bench.is_closed_for(entry, epochs, now))
    }
}

fn over(result: Result<(Delivered, bool), Error>) -> State {
    State::Over(Some(Box::new(result)))
}

impl Ticket {
    /// Takes the state out, leaving nothing to withdraw.
    fn state_taken(mut self) -> State {
        std::mem::replace(&mut self.state, State::Over(None))
    }

    fn finish(&mut self, fate: Fate<Delivered, Error>) -> Result<(Delivered, bool), Error> {
        self.state = State::Over(None);
        match fate {
            Fate::Ready(delivered) => Ok((delivered, true)),
            Fate::Refused(error) => Err(error),
            Fate::Expired => Err(Error::DeadlineExceeded),
            Fate::Closed => Err(Error::Closed),
        }
    }

    /// Takes the result if there is one.
    fn look(&mut self) -> Option<Result<(Delivered, bool), Error>> {
        self.advance(None)
    }

    fn advance(
        &mut self,
        mut cx: Option<&mut Context<'_>>,
    ) -> Option<Result<(Delivered, bool), Error>> {
        loop {
            let polled = match &mut self.state {
                State::Over(result) => return result.take().map(|result| *result),
                State::Waiting(pending, _) => match cx.as_deref_mut() {
                    Some(cx) => pending.waiter.poll(cx),
                    None => pending.waiter.look(),
                },
            };
            match polled {
                Polled::Pending => return None,
                Polled::Baton => self.handle.inner.drain_soon(),
                Polled::Done(fate) => return Some(self.finish(fate)),
            }
        }
    }

    /// Leaves. What was delivered and not seen comes back.
    fn withdraw(&mut self) -> Option<Delivered> {
        let State::Waiting(pending, entry) = std::mem::replace(&mut self.state, State::Over(None))
        else {
            return None;
        };
        match pending.waiter.cancel() {
            Cancelled::Withdrawn { baton } => {
                self.handle.inner.withdrawn(entry, baton);
                None
            }
            Cancelled::Chosen(delivered) => Some(delivered),
            Cancelled::Over => None,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(&self.state, State::Waiting(pending, _) if pending.waiter.is_waiting())
    }

    fn standing(&self) -> Option<Standing> {
        match &self.state {
            State::Waiting(pending, entry) => self.handle.standing(pending, *entry),
            State::Over(_) => None,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let waited = matches!(self.state, State::Waiting(..));
        let unseen = match std::mem::replace(&mut self.state, State::Over(None)) {
            State::Over(result) => {
                result.and_then(|result| result.ok()).map(|(delivered, _)| delivered)
            }
            waiting => {
                self.state = waiting;
                if self.is_waiting() {
                    self.handle.stripe().cancelled.fetch_add(1, Ordering::Relaxed);
                }
                self.withdraw()
            }
        };
        if let Some(mut delivered) = unseen {
            let inner = &self.handle.inner;
            if let Some(landed) = &mut delivered.placement.landed {
                let room = inner.give_back(landed);
                inner.signal_if(room);
            }
            drop(delivered.hold);
            if waited {
                // The room was promised to somebody who has gone: the next one is looked at now.
                inner.drain_soon();
            }
        }
    }
}

impl Admit {
    fn admitted(&self, (delivered, waited): (Delivered, bool)) -> Admitted {
        let Delivered { placement, class, hold } = delivered;
        let pool = Pool { handle: Arc::clone(&self.0.handle) };
        Admitted { booking: pool.booking(placement), hold, class, waited }
    }

    /// Takes the answer if there is one, without waiting. After it was taken: `None`.
    pub fn try_take(&mut self) -> Option<Result<Admitted, Error>> {
        let result = self.0.look()?;
        Some(result.map(|delivered| self.admitted(delivered)))
    }

    /// Whether it waits still.
    pub fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }

    /// What holds it up, by a look at the ranks and the queue: `O(ranks)` and `O(those ahead)`.
    /// `None`: it does not wait any more.
    pub fn standing(&self) -> Option<Standing> {
        self.0.standing()
    }

    /// Blocks this thread until it is admitted or refused. Due times come to pass only if somebody
    /// calls [`Pool::expire`].
    ///
    /// # Errors
    /// As [`Pool::admit`].
    pub fn wait(self) -> Result<Admitted, Error> {
        block_on(self)
    }
}

impl Future for Admit {
    type Output = Result<Admitted, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.advance(Some(cx)) {
            Some(result) => Poll::Ready(result.map(|delivered| self.admitted(delivered))),
            None => Poll::Pending,
        }
    }
}

impl AdmitAs {
    fn admitted(&mut self, (delivered, waited): (Delivered, bool)) -> AdmittedAs {
        let Delivered { placement: Placement { choice, landed }, class, hold } = delivered;
        let landed = landed.expect("an admission has landed");
        let hold_rank = hold.as_ref().and_then(Hold::rank);
        if let (Some(hold), Some(reservation)) = (hold, &self.reservation) {
            reservation.keep_hold(hold);
        }
        let reservation = self.reservation.take().expect("an id is filled once");
        let attempt: Attempt = reservation.fill(landed);
        AdmittedAs { placed: Placed { choice, attempt }, hold: hold_rank, class, waited }
    }

    fn settle(&mut self, result: Result<(Delivered, bool), Error>) -> Result<AdmittedAs, Error> {
        match result {
            Ok(delivered) => Ok(self.admitted(delivered)),
            Err(error) => {
                // The id is free again as soon as its refusal is seen.
                self.reservation = None;
                Err(error)
            }
        }
    }

    /// Takes the answer if there is one, without waiting. After it was taken: `None`.
    pub fn try_take(&mut self) -> Option<Result<AdmittedAs, Error>> {
        let result = self.ticket.look()?;
        Some(self.settle(result))
    }

    /// Whether it waits still.
    pub fn is_waiting(&self) -> bool {
        self.ticket.is_waiting()
    }

    /// As [`Admit::standing`].
    pub fn standing(&self) -> Option<Standing> {
        self.ticket.standing()
    }

    /// As [`Admit::wait`].
    ///
    /// # Errors
    /// As [`Pool::admit_as`].
    pub fn wait(self) -> Result<AdmittedAs, Error> {
        block_on(self)
    }
}

impl Future for AdmitAs {
    type Output = Result<AdmittedAs, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.ticket.advance(Some(cx)) {
            Some(result) => Poll::Ready(self.settle(result)),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").field("waiting", &self.is_waiting()).finish_non_exhaustive()
    }
}

impl fmt::Debug for AdmitAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmitAs").field("waiting", &self.is_waiting()).finish_non_exhaustive()
    }
}
