//! Holds: room set aside on a decode rank while the prefill leg of the same request runs.
//!
//! A hold is a value and ends once: converted into the decode leg's booking, dropped, or (under an
//! id) reclaimed with its lease. It puts the request's prompt blocks on the rank's row, where every
//! judgement of the rank sees them.

use crate::booking::{Booking, Landed, Placed};
use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::fleet::eligible::{Availability, Eligible, resolve};
use crate::fleet::view::View;
use crate::grace::Guard;
use crate::load::row::{Load, Row};
use crate::load::slot::{self, Refusal};
use crate::names::{Rank, RequestId};
use crate::pass::full::{self, Ask, Proposal, Verdict, sibling_with_room};
use crate::pins::pin;
use crate::pool::choose::{Caller, Checked, Placement, Purpose, with_arena};
use crate::pool::{Inner, Pool};
use crate::request::Request;
use crate::sync::Arc;
use std::any::Any;
use std::fmt;

/// Room set aside for a request's decode leg; given back when it is dropped, exactly once.
///
/// It outlives the prefill booking. Hand it to [`Pool::book_leg`] of the decode pool to turn it
/// into a booking.
#[must_use = "dropping a hold gives its room back at once"]
pub struct Hold(Kind);

enum Kind {
    /// On a rank of a pool of this library.
    Own { inner: Arc<Inner>, landed: Option<Landed> },
    /// A foreign pair's.
    Foreign(Option<Box<dyn Any + Send>>),
}

/// A decode leg that was refused: why, and the hold, which stays with the caller.
#[derive(Debug)]
#[non_exhaustive]
pub struct RefusedLeg {
    /// Why.
    pub error: Error,
    /// The hold, as it was.
    pub hold: Hold,
}

impl RefusedLeg {
    fn new(error: Error, hold: Hold) -> Box<RefusedLeg> {
        Box::new(RefusedLeg { error, hold })
    }
}

impl Hold {
    fn new(inner: Arc<Inner>, landed: Landed) -> Hold {
        Hold(Kind::Own { inner, landed: Some(landed) })
    }

    pub(crate) fn foreign(held: Box<dyn Any + Send>) -> Hold {
        Hold(Kind::Foreign(Some(held)))
    }

    /// The decode rank that the room is on; `None` for a foreign pair's hold.
    pub fn rank(&self) -> Option<Rank> {
        match &self.0 {
            Kind::Own { landed, .. } => landed.as_ref().map(|landed| landed.rank),
            Kind::Foreign(_) => None,
        }
    }

    /// What a foreign pair gave; the hold is over then, and ends when that value is dropped.
    /// `None`, and the hold given back, if it is not foreign.
    pub fn into_foreign(mut self) -> Option<Box<dyn Any + Send>> {
        match &mut self.0 {
            Kind::Foreign(held) => held.take(),
            Kind::Own { .. } => None,
        }
    }

    /// Gives the room back now; the same as dropping the hold.
    pub fn release(self) {}

    /// Gives the room back and tells nobody: answers whom to tell that there is room.
    pub(crate) fn give_back_untold(mut self) -> Option<Arc<Inner>> {
        let Kind::Own { inner, landed } = &mut self.0 else { return None };
        let room = inner.give_back(&mut landed.take()?);
        room.then(|| Arc::clone(inner))
    }

    fn landed_in(&mut self, inner: &Inner) -> Option<&mut Landed> {
        match &mut self.0 {
            Kind::Own { inner: own, landed } if std::ptr::eq(&**own, inner) => landed.as_mut(),
            _ => None,
        }
    }

    /// Converted: nothing is left to give back.
    fn converted(mut self) {
        if let Kind::Own { landed, .. } = &mut self.0 {
            *landed = None;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Kind::Own { inner, landed: Some(landed) } = &mut self.0 {
            let room = inner.give_back(landed);
            inner.signal_if(room);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

/// Why no room was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// No rank has room: that is waited for.
    NoRoom,
    /// The rank has room, and no bits to show what would be set aside: nothing to wait for.
    Overflow(Rank),
}

impl Inner {
    /// Sets the request's prompt blocks aside on the cheapest rank under the class limit `frac`,
    /// if there is one: an unmarked rank under the reject thresholds if possible, else any. The
    /// request's hashes are of blocks of `block_size` tokens: if they are not this pool's, its
    /// blocks are counted without them.
    pub(crate) fn set_aside_for(
        self: &Arc<Self>,
        request: &Request,
        frac: f64,
        block_size: u32,
    ) -> Result<Hold, NotHeld> {
        let inner = &**self;
        // The prefill side's pin, sets, affinity, domain and overlaps never apply here.
        let mut leg = request.at_decode();
        if block_size != inner.settings.block_size {
            leg.prompt = None;
        }
        let Ok(prompt_blocks) = leg.blocks(inner.settings.block_size) else {
            return Err(NotHeld::NoRoom);
        };
        let checked = Checked { prompt_blocks, now: inner.show(request.now) };
        let caller = Caller { inner, stripe: &inner.stripes[0], draining: false };
        let mut rng = caller.rng(&leg);
        loop {
            let column = inner.column_for(frac);
            let round = with_arena(|arena| {
                let guard = pin();
                let view = inner.view.load(&guard);
                if view.rules.column_for(frac) != Some(column) {
                    return None;
                }
                let tools = inner.tools(arena);
                let mut ask = inner.ask(&leg, checked, view, arena);
                ask.class = Some(column);
                ask.class_room_only = true;
                let mut verdict = full::pass(view, &tools, &guard, &ask, &mut rng);
                if verdict.proposal.is_none() {
                    ask.hard_only = true;
                    verdict = full::pass(view, &tools, &guard, &ask, &mut rng);
                }
                let Some(proposal) = verdict.proposal else {
                    let current = inner.view.load(&guard).generation == view.generation;
                    return current.then_some(Err(NotHeld::NoRoom));
                };
                let slot = proposal.slot;
                let limit = view.block(slot).classes[column].at(slot.lane());
                let origin = inner.origin(&leg, prompt_blocks);
                match inner.set_aside(view, &guard, slot, origin, |row| !row.exceeds(limit)) {
                    Ok(landed) => Some(Ok(Hold::new(Arc::clone(self), landed))),
                    Err(Refusal::Overflow) => Some(Err(NotHeld::Overflow(proposal.rank))),
                    Err(Refusal::Full(_) | Refusal::Dead) => None,
                }
            });
            if let Some(set_aside) = round {
                return set_aside;
            }
        }
    }
}

impl Pool {
    /// Books the decode leg of a request whose prefill was admitted with `hold`. It is judged as if
    /// the hold were not there, against the reject thresholds and marks only, and lands on the
    /// hold's rank in one step, unless that rank has gone or the leg's own constraints exclude it.
    /// Admitted upstream already: no class wait, no due time. With a hold of a foreign pair or of
    /// another pool it is booked like any other, and the hold given back.
    ///
    /// # Errors
    /// As [`book`](Self::book); the hold comes back with the error.
    pub fn book_leg(&self, hold: Hold, request: &Request) -> Result<Booking, Box<RefusedLeg>> {
        self.leg(hold, request, false).map(|placement| self.booking(placement))
    }

    /// As [`book_leg`](Self::book_leg), choosing afresh: the hold's rank is one among the others.
    ///
    /// # Errors
    /// As `book_leg`.
    pub fn book_leg_afresh(
        &self,
        hold: Hold,
        request: &Request,
    ) -> Result<Booking, Box<RefusedLeg>> {
        self.leg(hold, request, true).map(|placement| self.booking(placement))
    }

    /// As [`book_leg`](Self::book_leg), under an id.
    ///
    /// # Errors
    /// As `book_leg`, and `DuplicateRequest`.
    pub fn book_leg_as(
        &self,
        id: RequestId,
        hold: Hold,
        request: &Request,
    ) -> Result<Placed, Box<RefusedLeg>> {
        if let Err(error) = self.inner().check(request) {
            return Err(RefusedLeg::new(self.inner().refused(error), hold));
        }
        let reservation = match self.handle.reserve(id) {
            Ok(reservation) => reservation,
            Err(error) => return Err(RefusedLeg::new(self.inner().refused(error), hold)),
        };
        let Placement { choice, landed } = self.leg(hold, request, false)?;
        let attempt = reservation.fill(landed.expect("a booking has landed"));
        Ok(Placed { choice, attempt })
    }

    fn leg(
        &self,
        mut hold: Hold,
        request: &Request,
        afresh: bool,
    ) -> Result<Placement, Box<RefusedLeg>> {
        let inner = self.inner();
        let placed = inner.check(request).and_then(|checked| {
            crate::fleet::eligible::check_pin(request.constraints.as_deref())?;
            self.handle.caller().convert(&mut hold, request, checked, afresh)
        });
        match placed {
            Ok((placement, converted)) => {
                if converted {
                    hold.converted();
                } else {
                    drop(hold);
                }
                Ok(placement)
            }
            Err(error) => Err(RefusedLeg::new(inner.refused(error), hold)),
        }
    }
}

impl Caller<'_> {
    /// Books a leg; `true`: out of its hold, which is over.
    fn convert(
        &self,
        hold: &mut Hold,
        request: &Request,
        checked: Checked,
        afresh: bool,
    ) -> Result<(Placement, bool), Error> {
        let inner = self.inner;
        loop {
            let Some(landed) = hold.landed_in(inner) else {
                return Ok((self.place(request, checked, Purpose::Book)?, false));
            };
            let round = with_arena(|arena| {
                let guard = pin();
                let view = inner.view.load(&guard);
                let mut ask = inner.ask(request, checked, view, arena);
                ask.discount = inner.own_load(view, landed, request);
                if !afresh && ask.discount.is_some() {
                    let eligible = ask.eligible.lanes(view, landed.slot.block());
                    if eligible & landed.slot.bit() != 0 {
                        let round = self.convert_in_place(view, &guard, &mut ask, landed, arena);
                        return round.map(|round| round.map(|p| (p, true)));
                    }
                }
                let tools = inner.tools(arena);
                let verdict = full::pass(view, &tools, &guard, &ask, &mut self.rng(request));
                let Some(proposal) = verdict.proposal else {
                    return match inner.is_current(view.generation) {
                        true => Err(inner.refusal(request, &verdict)),
                        false => Ok(None),
                    };
                };
                if ask.discount.is_some_and(|(slot, ..)| slot == proposal.slot) {
                    // Landed beside the hold, its own rank would be judged with it.
                    let round = self.take_place(view, &guard, &ask, &verdict, &proposal, landed);
                    return round.map(|round| round.map(|p| (p, true)));
                }
                let (book, mut into) = (Purpose::Book, None);
                self.conclude(view, &guard, &ask, book, None, &verdict, &proposal, &mut into)?;
                Ok(into.map(|placement| (placement, false)))
            });
            inner.pay_signal();
            if let Some(placed) = round? {
                self.stripe.selected.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                return Ok(placed);
            }
        }
    }

    /// Turns the hold into the booking on its own rank. `None`: look again.
    fn convert_in_place<'a>(
        &self,
        view: &View,
        guard: &Guard<'_>,
        ask: &mut Ask<'a>,
        hold: &mut Landed,
        arena: &'a bumpalo::Bump,
    ) -> Result<Option<Placement>, Error> {
        let inner = self.inner;
        let (slot, request) = (hold.slot, ask.request);
        let block = view.block(slot);
        let everybody = ask.eligible;
        let alone = arena.alloc_slice_fill_copy(view.blocks.len(), 0u64);
        alone[slot.block()] = slot.bit();
        ask.eligible = Eligible::Only(alone);
        // Its own row is judged below; here it is weighed, whatever it carries.
        ask.hard_only = true;
        let tools = inner.tools(arena);
        let verdict = full::pass(view, &tools, guard, ask, &mut self.rng(request));
        let Some(proposal) = verdict.proposal else { return Ok(None) };
        if block.marked(ask.now) & slot.bit() != 0 {
            return Err(inner.refusal(request, &verdict));
        }
        ask.eligible = everybody;
        self.take_place(view, guard, ask, &verdict, &proposal, hold)
    }

    /// Puts the booking in the place of the hold, on the rank that was proposed for it. `None`:
    /// look again.
    fn take_place(
        &self,
        view: &View,
        guard: &Guard<'_>,
        ask: &Ask<'_>,
        verdict: &Verdict,
        proposal: &Proposal,
        hold: &mut Landed,
    ) -> Result<Option<Placement>, Error> {
        let inner = self.inner;
        let (slot, request) = (hold.slot, ask.request);
        let (block, lane) = (view.block(slot), slot.lane());
        let limit = block.reject.at(lane);
        let by_sibling = view.rules.scope == crate::limits::rules::RejectScope::Worker
            && sibling_with_room(view, &ask.eligible, block, lane);
        let origin = inner.origin(request, ask.prompt_blocks);
        let uncached = request.isl as u32 - proposal.cached_tokens;
        let tokens = if ask.track_prefill { uncached } else { 0 };
        let judge = |row: Row| by_sibling || !row.exceeds(limit);
        match inner.convert(view, guard, hold, tokens, origin, judge) {
            Ok((landed, less)) => {
                // The row may have gone down: that is a release like any other.
                inner.owe_signal(less);
                let choice = inner.choice(view, verdict, proposal);
                Ok(Some(Placement { choice, landed: Some(landed) }))
            }
            Err(Refusal::Full(_)) if ask.hard_only => Err(inner.refusal(request, verdict)),
            // Filled since it was proposed, among others.
            Err(Refusal::Full(_)) => Ok(None),
            Err(Refusal::Overflow) => Err(Error::RowOverflow { rank: hold.rank }),
            Err(Refusal::Dead) => Ok(None),
        }
    }
}

impl Inner {
    /// Counts a refusal and hands it on.
    pub(crate) fn refused(&self, error: Error) -> Error {
        self.rejected.count(&error);
        error
    }

    /// What a hold alone has on its row, and how many of the request's blocks are there without it;
    /// if its rank is still the one it was set aside on.
    fn own_load(
        &self,
        view: &View,
        hold: &Landed,
        request: &Request,
    ) -> Option<(SlotId, Load, u32)> {
        let block = view.block(hold.slot);
        let (live, lane) = (&block.live, hold.slot.lane());
        let declared = block.declared & hold.slot.bit() != 0 && block.lives[lane] == hold.life;
        if !declared || !slot::alive(&live.rows[lane], &live.lives[lane], hold.life) {
            return None;
        }
        let (alone, without) = match hold.held {
            Some(held) => {
                let prompt = request.prompt.as_ref().map(|prompt| prompt.shared());
                live.prompts[lane].lock().without(held, prompt)
            }
            // It shares nothing; what others hold is told by the index.
            None => match &request.prompt {
                Some(prompt) if self.settings.track_blocks => {
                    let missing = live.prompts[lane].lock().missing(prompt.shared()).blocks();
                    (0, prompt.len() as u32 - missing)
                }
                _ => (0, 0),
            },
        };
        Some((hold.slot, Load::new(0, hold.unshared + alone), without))
    }

    /// Whether the worker of `beside` has room on the rank of the request's own hold, which is
    /// looked at as if that hold were not there.
    pub(crate) fn hold_leaves_room_beside(view: &View, ask: &Ask<'_>, beside: SlotId) -> bool {
        let Some((slot, load, _)) = ask.discount else { return false };
        let (block, lane) = (view.block(slot), slot.lane());
        let worker =
            |slot: SlotId| view.block(slot).owners[slot.lane()].as_ref().map(|w| w.spec.id);
        let eligible = ask.eligible.lanes(view, slot.block()) & slot.bit() != 0;
        slot != beside
            && eligible
            && worker(slot) == worker(beside)
            && !block.live.row(lane).minus(load).exceeds(block.reject.at(lane))
    }

    /// Whether the eligible ranks of a decode-side request are those of everybody.
    pub(crate) fn decode_lanes<'a>(
        view: &View,
        request: &Request,
        availability: Availability,
        arena: &'a bumpalo::Bump,
    ) -> Eligible<'a> {
        resolve(view, request.decode.as_deref(), request.lora.as_ref(), availability, arena)
    }
}
