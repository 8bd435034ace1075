//! Select and book: from a request to a rank.
//!
//! A pass proposes; booking lands the proposal or learns why not, and then a pass is run again:
//! every such round is another call's progress. "No room" is only ever concluded from a pass, never
//! from a refused landing.

use crate::booking::{Booking, Landed, Origin};
use crate::choice::{Choice, Forgone};
use crate::error::Error;
use crate::fleet::eligible::{Availability, check_pin, resolve};
use crate::fleet::view::View;
use crate::grace::Guard;
use crate::load::row::{Limit, Row};
use crate::load::slot::{self, Refusal};
use crate::names::Name;
use crate::pass::full::{Ask, Proposal, Tools, Verdict, sibling_with_room};
use crate::pass::pick::Rng;
use crate::pass::summary::pick_for;
use crate::pins::pin;
use crate::pool::admit::Why;
use crate::pool::hold::Hold;
use crate::pool::pair::Consulted;
use crate::pool::{Handle, Inner, Pool, Stripe};
use crate::queue::policy::{ClassId, Profile};
use crate::request::Request;
use crate::sync::{Arc, Mutex};
use crate::time::Time;
use bumpalo::Bump;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// What a placement is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Only the answer.
    Select,
    /// The answer and the load on the row.
    Book,
}

/// A placement: the answer, and what was put on the row if it was booked.
pub(crate) struct Placement {
    pub(crate) choice: Choice,
    pub(crate) landed: Option<Landed>,
}

/// A request that was checked: what every way of placing it needs.
#[derive(Clone, Copy)]
pub(crate) struct Checked {
    pub(crate) prompt_blocks: u32,
    pub(crate) now: Time,
}

thread_local! {
    /// Scratch that must be large, while no call has it.
    static ARENA: Cell<Option<Box<Bump>>> = const { Cell::new(None) };
}

/// A thread's scratch, taken for the length of one call; a call inside a call (host code that
/// selects) gets one of its own.
///
/// It is taken out rather than borrowed where it lies: what a call answers would pass through the
/// borrowing function, copied in and out again.
struct Scratch(Option<Box<Bump>>);

impl Drop for Scratch {
    fn drop(&mut self) {
        // At the end of a thread there is nowhere to put it.
        let _ = ARENA.try_with(|home| home.set(self.0.take()));
    }
}

/// Runs `f` with this thread's scratch, emptied.
#[inline(always)]
pub(crate) fn with_arena<R>(f: impl FnOnce(&Bump) -> R) -> R {
    let mut scratch = Scratch(ARENA.try_with(Cell::take).ok().flatten());
    let arena = scratch.0.get_or_insert_default();
    arena.reset();
    f(arena)
}

impl Pool {
    /// Answers which rank would take the request now. Books nothing, waits for nothing. Lock-free;
    /// `O(ranks / 1024)`, and a look at every rank only where something has changed since the last
    /// call, or if the request has constraints or a temperature.
    ///
    /// # Errors
    /// See [`Error`], in its order.
    pub fn select(&self, request: &Request) -> Result<Choice, Error> {
        let checked = self.inner().counted(self.inner().check(request))?;
        let placed = self.handle.place_checked(request, checked, Purpose::Select);
        Ok(self.inner().counted(placed)?.choice)
    }

    /// Chooses a rank and books the request on it, or fails now. The rank had, at the instant the
    /// booking landed, the room under the reject thresholds that it was judged to have, however
    /// many threads book at once. As costly as [`select`](Pool::select), lock-free; with prompt hashes it takes one short
    /// lock, of the one rank chosen.
    ///
    /// # Errors
    /// See [`Error`], in its order.
    pub fn book(&self, request: &Request) -> Result<Booking, Error> {
        let checked = self.inner().counted(self.inner().check(request))?;
        let placed = self.handle.place_checked(request, checked, Purpose::Book);
        Ok(self.booking(self.inner().counted(placed)?))
    }

    #[inline(always)]
    pub(crate) fn booking(&self, placement: Placement) -> Booking {
        let mut landed = placement.landed.expect("a booking has landed");
        self.inner().tell_add(&mut landed, None);
        Booking {
            handle: Arc::clone(&self.handle),
            choice: placement.choice,
            landed: Mutex::new(landed),
        }
    }
}

impl Inner {
    /// What a pass of this pool works with.
    pub(crate) fn tools<'a>(&'a self, arena: &'a Bump) -> Tools<'a> {
        Tools { kernel: self.kernel, index: &self.index, arena, plain: self.plain }
    }

    /// Counts a refusal.
    #[inline(always)]
    pub(crate) fn counted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.rejected.count(error);
        }
        result
    }

    /// What is refused before the fleet is looked at, in the order of the contract.
    pub(crate) fn check(&self, request: &Request) -> Result<Checked, Error> {
        self.check_open()?;
        let prompt_blocks = request.blocks(self.settings.block_size)?;
        let now = self.show(request.now);
        Ok(Checked { prompt_blocks, now })
    }

    /// What is refused once the request's id is known to be free.
    pub(crate) fn check_due(&self, request: &Request, now: Time) -> Result<(), Error> {
        if !request.upstream && request.due.is_some_and(|due| now >= due) {
            return Err(Error::DeadlineExceeded);
        }
        check_pin(request.constraints.as_deref())
    }

    pub(crate) fn origin(&self, request: &Request, prompt_blocks: u32) -> Origin {
        Origin {
            isl: request.isl as u32,
            prompt_blocks,
            track_prefill: self.tracks_prefill(request),
            prompt: request.prompt.clone(),
            overlaps: request.overlaps.clone(),
        }
    }

    pub(crate) fn tracks_prefill(&self, request: &Request) -> bool {
        let over = request.overrides.as_ref().and_then(|o| o.track_prefill);
        over.unwrap_or(self.settings.track_prefill)
    }

    /// Folds a request into what a pass weighs.
    pub(crate) fn ask<'a>(
        &self,
        request: &'a Request,
        checked: Checked,
        view: &View,
        arena: &'a Bump,
    ) -> Ask<'a> {
        let constraints = request.constraints.as_deref();
        Ask {
            request,
            prompt_blocks: checked.prompt_blocks,
            weights: self.settings.weights.with(request.overrides.as_ref()),
            track_prefill: self.tracks_prefill(request),
            track_blocks: self.settings.track_blocks,
            block_size: self.settings.block_size,
            now: checked.now,
            eligible: resolve(
                view,
                constraints,
                request.lora.as_ref(),
                Availability::Required,
                arena,
            ),
            books: false,
            class: None,
            class_room_only: false,
            hard_only: false,
            discount: None,
            barred: None,
        }
    }

    /// What a pass without a proposal means.
    pub(crate) fn refusal(&self, request: &Request, verdict: &Verdict) -> Error {
        if verdict.eligible == 0 {
            return Error::NoEndpoints;
        }
        match request.constraints.as_ref().and_then(|c| c.pin) {
            Some(pin) => Error::PinnedWorkerOverloaded { worker: pin.worker },
            None => Error::AllEligibleWorkersOverloaded,
        }
    }

    /// Lands a proposal: the reject thresholds are judged again on the row that is added to.
    #[inline(always)]
    pub(crate) fn land_proposal(
        &self,
        view: &View,
        guard: &Guard<'_>,
        ask: &Ask<'_>,
        proposal: &Proposal,
        also: impl Fn(Row) -> bool,
    ) -> Result<Landed, Refusal> {
        let block = view.block(proposal.slot);
        let lane = proposal.slot.lane();
        // A pick from summaries has done so already, a little earlier.
        block.live.prefetch(lane);
        let limit = block.reject.at(lane);
        let origin = self.origin(ask.request, ask.prompt_blocks);
        let uncached = ask.request.isl as u32 - proposal.cached_tokens;
        let tokens = if ask.track_prefill { uncached } else { 0 };
        let judge = |row: Row| (proposal.by_sibling || !row.exceeds(limit)) && also(row);
        let land = || self.land(view, guard, proposal.slot, tokens, origin, judge);
        if !proposal.by_sibling {
            return land();
        }
        let give_back = |mut landed: Landed| {
            let row = block.live.row(lane);
            let room = self.give_back(&mut landed);
            self.owe_signal(room);
            Refusal::Full(row)
        };
        let has_room = || {
            sibling_with_room(view, &ask.eligible, block, lane)
                || Inner::hold_leaves_room_beside(view, ask, proposal.slot)
        };
        slot::land_beside(land, has_room, give_back)
    }

    /// The public answer.
    pub(crate) fn choice(&self, view: &View, verdict: &Verdict, proposal: &Proposal) -> Choice {
        let owner = view.block(proposal.slot).owners[proposal.slot.lane()].as_ref();
        Choice {
            rank: proposal.rank,
            stable_id: owner.and_then(|w| w.spec.stable_id.clone()),
            cost: proposal.cost,
            cached_tokens: proposal.cached_tokens,
            overlap: proposal.overlap,
            eligible: verdict.eligible,
            full: verdict.full,
            forgone: proposal.forgone.map(|(rank, blocks)| Forgone { rank, blocks }),
        }
    }
}

impl Handle {
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { inner: &self.inner, stripe: self.stripe(), draining: false }
    }

    /// Places a request that was checked, after what is left to refuse without a look.
    #[inline(always)]
    pub(crate) fn place_checked(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
    ) -> Result<Placement, Error> {
        self.inner.check_due(request, checked.now)?;
        self.caller().place(request, checked, purpose)
    }
}

/// One call into a pool: the pool, and the stripe that the caller counts on.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) stripe: &'a Stripe,
    /// Whether this is the pool's own drain, which looks again by itself.
    pub(crate) draining: bool,
}

/// What a class asks of a placement. Without one, class thresholds are not looked at.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a> {
    pub(crate) class: ClassId,
    /// The profile that `class` is an id of.
    pub(crate) profile: &'a Arc<Profile>,
    /// The head that would be passed, and whether its ranks are barred.
    pub(crate) passing: Option<(&'a Request, bool)>,
}

/// What came of a placement.
pub(crate) enum Tried {
    /// Placed.
    In {
        /// Whether a head was passed on a rank of its own.
        passed: bool,
        /// Room set aside at the pair.
        hold: Option<Hold>,
    },
    /// The gate is closed.
    Closed(Closed),
    /// The policy was reloaded: the class id means nothing any more.
    Stale,
}

/// What a gate was found closed by. Which of its own limits, if those, is for who asks
/// ([`Caller::why_closed`]): it takes a look at every rank, and nobody who waits needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosedBy {
    /// The ranks of the class.
    Own,
    /// The pair's ranks.
    Pair,
    /// Those that are left are kept for the head of the queue.
    Barred,
}

/// A gate that was found closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) by: ClosedBy,
    /// Until when that may be believed without a look, if the epoch does not move.
    pub(crate) until: Time,
}

impl Gate<'_> {
    /// Whether the class waits, given what a pass found.
    fn is_closed(&self, verdict: &Verdict) -> bool {
        let spec = self.profile.class(self.class);
        let (full, of) = (u64::from(verdict.class_full), u64::from(verdict.eligible));
        of == 0 || (spec.waits() && full >= spec.full_ranks_to_wait(of))
    }
}

impl<'a> Caller<'a> {
    /// Draws for one call: from the request's own seed, or from the stripe's.
    pub(crate) fn rng(&self, request: &Request) -> Rng {
        match request.seed {
            Some(seed) => Rng::new(seed),
            None => {
                // A load and a store, not a read-modify-write: two threads on one stripe may draw
                // alike, which biases nothing.
                let random = &self.stripe.random;
                let state = random.load(Ordering::Relaxed);
                random.store(state.wrapping_add(0xD1B5_4A32_D192_ED03), Ordering::Relaxed);
                Rng::new(state)
            }
        }
    }

    /// Places a request that was checked, whatever its class.
    #[inline(always)]
    pub(crate) fn place(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
    ) -> Result<Placement, Error> {
        let mut into = None;
        self.attempt(request, checked, purpose, None, &mut into)?;
        Ok(into.expect("there was no gate"))
    }

    /// Places a request that was checked, through its class's gate if there is one. `into` gets the
    /// placement: it is large, and written where it is needed.
    pub(crate) fn attempt(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
        gate: Option<Gate<'_>>,
        into: &mut Option<Placement>,
    ) -> Result<Tried, Error> {
        // The pair is asked first: with no pin held, for it may be the host's own, and before the
        // own rank is taken, so that a refusal costs no roll-back.
        let pair = gate.and_then(|gate| self.pair_of(gate));
        loop {
            if let Some((class, frac)) = pair
                && let Consulted::NoRoom = self.inner.consult(request, class, frac)?
            {
                return Ok(Tried::Closed(Closed { by: ClosedBy::Pair, until: Time::NEVER }));
            }
            let round = with_arena(|arena| {
                if self.inner.custom.is_none() {
                    self.exact_round(request, checked, purpose, gate, arena, into)
                } else {
                    self.custom_round(request, checked, purpose, gate, arena, into)
                }
            });
            self.inner.pay_signal();
            self.stripe.passes.fetch_add(1, Ordering::Relaxed);
            if let Some(mut tried) = round? {
                if let Tried::In { hold, .. } = &mut tried {
                    if let Some((class, frac)) = pair
                        && let Some(landed) = into.as_mut().and_then(|p| p.landed.as_mut())
                    {
                        match self.inner.hold_at_pair(request, class, frac) {
                            Ok(held) => *hold = held,
                            Err(failed) => {
                                // Both land or neither does. The roll-back is told to all; only a
                                // drain does not tell itself, for what it would find is what it
                                // has just found. A newcomer does: a drain may have looked while
                                // the rank was taken, and rests.
                                if self.inner.give_back(landed) {
                                    match self.draining {
                                        true => {
                                            self.inner.signal.release_and_tell_others(self.inner);
                                        }
                                        false => self.inner.signal.release_and_tell(),
                                    }
                                }
                                if let Some(error) = failed {
                                    return Err(error);
                                }
                                let until = Time::NEVER;
                                return Ok(Tried::Closed(Closed { by: ClosedBy::Pair, until }));
                            }
                        }
                    }
                    // A look through a gate that books nothing answers nobody.
                    if gate.is_none() || purpose == Purpose::Book {
                        self.stripe.selected.fetch_add(1, Ordering::Relaxed);
                    }
                }
                return Ok(tried);
            }
            self.stripe.reselections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Why a gate is closed that was found so.
    pub(crate) fn why_closed(
        &self,
        closed: Closed,
        request: &Request,
        checked: Checked,
        gate: Gate<'_>,
    ) -> Why {
        match closed.by {
            ClosedBy::Pair => Why::Pair,
            ClosedBy::Barred => Why::Behind,
            ClosedBy::Own => with_arena(|arena| {
                let guard = pin();
                let view = self.inner.view.load(&guard);
                let ask = self.inner.ask_through(request, checked, view, Some(gate), arena);
                // A class of a policy that was replaced meanwhile: it waits for its turn.
                ask.map_or(Why::Behind, |ask| self.inner.shown_by_all(view, &ask))
            }),
        }
    }

    /// The class and its decode fraction, if a pair judges it.
    fn pair_of<'g>(&self, gate: Gate<'g>) -> Option<(&'g Name, f64)> {
        let spec = gate.profile.class(gate.class);
        let frac = spec.thresholds.decode_frac?;
        self.inner.pair.load().is_some().then_some((&spec.name, frac))
    }

    /// One pass and the landing of what it proposes. `None`: it no longer stands, look again.
    #[inline(always)]
    fn exact_round(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
        gate: Option<Gate<'_>>,
        arena: &Bump,
        into: &mut Option<Placement>,
    ) -> Result<Option<Tried>, Error> {
        let inner = self.inner;
        let mut rng = self.rng(request);
        let guard = pin();
        let view = inner.view.load(&guard);
        view.ask_for_versions();
        let Some(mut ask) = inner.ask_through(request, checked, view, gate, arena) else {
            return Ok(Some(Tried::Stale));
        };
        ask.books = purpose == Purpose::Book;
        let tools = inner.tools(arena);
        let verdict = pick_for(view, &tools, &guard, &ask, &mut rng);
        if let Some(closed) = inner.closed_gate(view, &ask, &verdict, gate) {
            return Ok(inner.is_current(view.generation).then_some(Tried::Closed(closed)));
        }
        let Some(proposal) = verdict.proposal else {
            // A rank that was removed meanwhile reads as full: what it was found to be must not
            // be concluded from a view that is no longer in force.
            return match inner.is_current(view.generation) {
                true => Err(inner.refusal(request, &verdict)),
                false => Ok(None),
            };
        };
        self.conclude(view, &guard, &ask, purpose, gate, &verdict, &proposal, into)
    }

    /// Lands a proposal if that is what it is for.
    #[expect(clippy::too_many_arguments, reason = "what one round has found, used once")]
    #[inline(always)]
    pub(crate) fn conclude(
        &self,
        view: &View,
        guard: &Guard<'_>,
        ask: &Ask<'_>,
        purpose: Purpose,
        gate: Option<Gate<'_>>,
        verdict: &Verdict,
        proposal: &Proposal,
        into: &mut Option<Placement>,
    ) -> Result<Option<Tried>, Error> {
        let slot = proposal.slot;
        let landed = match purpose {
            Purpose::Select => None,
            Purpose::Book => {
                // Chosen for having room in its class, it must still have it when it is booked.
                let limit = gate.filter(|_| proposal.class_room).map_or(Limit::NONE, |gate| {
                    view.block(slot).classes[gate.class.index()].at(slot.lane())
                });
                let room = |row: Row| !row.exceeds(limit);
                match self.inner.land_proposal(view, guard, ask, proposal, room) {
                    Ok(landed) => Some(landed),
                    Err(Refusal::Overflow) => {
                        return Err(Error::RowOverflow { rank: proposal.rank });
                    }
                    Err(Refusal::Full(_) | Refusal::Dead) => return Ok(None),
                }
            }
        };
        let passed = gate.and_then(|gate| gate.passing).is_some_and(|(head, _)| {
            with_arena(|arena| {
                let constraints = head.constraints.as_deref();
                let may =
                    resolve(view, constraints, head.lora.as_ref(), Availability::Required, arena);
                may.lanes(view, slot.block()) & slot.bit() != 0
            })
        });
        let choice = self.inner.choice(view, verdict, proposal);
        *into = Some(Placement { choice, landed });
        Ok(Some(Tried::In { passed, hold: None }))
    }
}

impl Inner {
    /// Itself, shared. Not on the path of a request: all threads write the count of references.
    pub(crate) fn me(&self) -> Arc<Inner> {
        self.me.upgrade().expect("whoever calls holds a handle")
    }

    /// Whether the view of that generation is still the one in force.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        let guard = pin();
        self.view.load(&guard).generation == generation
    }

    /// Folds a request into what a pass weighs, its class's limits included; `None`: the class is
    /// one of a policy that is no longer in force.
    pub(crate) fn ask_through<'a>(
        &self,
        request: &'a Request,
        checked: Checked,
        view: &View,
        gate: Option<Gate<'_>>,
        arena: &'a Bump,
    ) -> Option<Ask<'a>> {
        let mut ask = self.ask(request, checked, view, arena);
        if let Some(gate) = gate {
            if !Arc::ptr_eq(gate.profile, &view.rules.profile) {
                return None;
            }
            ask.class = Some(gate.class.index());
            ask.class_room_only = self.settings.class_room_only;
            if let Some((head, true)) = gate.passing {
                let constraints = head.constraints.as_deref();
                let barred =
                    resolve(view, constraints, head.lora.as_ref(), Availability::Required, arena);
                let lanes = (0..view.blocks.len()).map(|b| barred.lanes(view, b));
                ask.barred = Some(arena.alloc_slice_fill_iter(lanes));
            }
        }
        Some(ask)
    }

    /// Whether the gate is closed, and why. A newcomer without an eligible rank has been refused
    /// before; what waits for one that is unavailable finds its gate closed.
    pub(crate) fn closed_gate(
        &self,
        view: &View,
        ask: &Ask<'_>,
        verdict: &Verdict,
        gate: Option<Gate<'_>>,
    ) -> Option<Closed> {
        let gate = gate?;
        let lapse = view.next_lapse;
        if gate.is_closed(verdict) {
            return Some(Closed { by: ClosedBy::Own, until: lapse });
        }
        // With its head's ranks barred it may have nowhere to go.
        if ask.barred.is_some() && verdict.may == 0 {
            return Some(Closed { by: ClosedBy::Barred, until: lapse });
        }
        None
    }

    /// What closes a gate: the first of marks, own prefill load, own decode load that every
    /// eligible rank shows. `O(ranks)`.
    fn shown_by_all(&self, view: &View, ask: &Ask<'_>) -> Why {
        let class = ask.class.unwrap_or(0);
        let (mut all_marked, mut all_tokens) = (true, true);
        for (b, block) in view.blocks.iter().enumerate() {
            let marked = block.marked(ask.now);
            for lane in crate::fleet::block::lanes(ask.eligible.lanes(view, b)) {
                if marked >> lane & 1 == 1 {
                    continue;
                }
                all_marked = false;
                let tokens_only = block.classes[class].at(lane).tokens_only();
                all_tokens &= block.live.row(lane).exceeds(tokens_only);
            }
        }
        match (all_marked, all_tokens) {
            (true, _) => Why::Mark,
            (false, true) => Why::OwnPrefill,
            (false, false) => Why::OwnDecode,
        }
    }
}
