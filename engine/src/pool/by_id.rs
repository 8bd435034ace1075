//! Bookings under a request id, for hosts that cannot keep a value. Each call takes the lock of
//! one of 64 tables; rows change under it, signals and drops come after it.
#![forbid(unsafe_code)]

use crate::booking::{Booking, Landed, Live, Placed};
use crate::choice::Choice;
use crate::error::Error;
use crate::load::events::LoadChange;
use crate::load::slot::Refusal;
use crate::names::{Attempt, Rank, RequestId};
use crate::pins::pin;
use crate::pool::choose::{Checked, Placement, Purpose};
use crate::pool::hold::Hold;
use crate::pool::land::Target;
use crate::pool::{Handle, Inner, Pool};
use crate::request::Request;
use crate::sync::Arc;

/// An id taken for a call; given up when the call does not end in a booking, panics included.
pub(crate) struct Reservation {
    handle: Arc<Handle>,
    id: RequestId,
    pub(crate) attempt: Attempt,
    filled: bool,
}

impl Reservation {
    /// Keeps a hold under the id. A hold that an earlier request of this id has left behind is
    /// given back.
    pub(crate) fn keep_hold(&self, hold: Hold) {
        self.handle.inner.keep_hold(self.id, hold);
    }

    pub(crate) fn fill(mut self, mut landed: Landed) -> Attempt {
        self.filled = true;
        let inner = &self.handle.inner;
        // Before anybody can free it.
        inner.tell_add(&mut landed, Some(self.id));
        inner.ids.fill(self.id, landed, inner.time());
        self.attempt
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.filled {
            self.handle.inner.ids.forget(self.id);
        }
    }
}

impl Handle {
    pub(crate) fn reserve(self: &Arc<Self>, id: RequestId) -> Result<Reservation, Error> {
        let attempt = self.inner.ids.reserve(id).ok_or(Error::DuplicateRequest { id })?;
        Ok(Reservation { handle: Arc::clone(self), id, attempt, filled: false })
    }
}

impl Inner {
    /// Puts known live load on a rank.
    fn land_known(&self, rank: Rank, request: &Request, checked: Checked) -> Result<Landed, Error> {
        let guard = pin();
        let view = self.view.load(&guard);
        let slot = view.slot(rank).ok_or(Error::NoEndpoints)?;
        let origin = self.origin(request, checked.prompt_blocks);
        let uncached = origin.isl - self.cached_on(&origin, rank);
        let tokens = if origin.track_prefill { uncached } else { 0 };
        self.land(view, &guard, slot, tokens, origin, |_| true).map_err(|refusal| match refusal {
            Refusal::Overflow => Error::RowOverflow { rank },
            Refusal::Dead | Refusal::Full(_) => Error::NoEndpoints,
        })
    }

    /// Calls `f` on a live booking, and renews its lease and that of its hold.
    fn with_id<R>(&self, id: RequestId, f: impl FnOnce(&mut Landed) -> R) -> Option<R> {
        let now = self.time();
        let done = self.ids.with(id, now, f)?;
        if self.settings.holds && self.settings.lease.is_some() && self.pair.load().is_some() {
            self.holds.with(id, now, |_| ());
        }
        Some(done)
    }

    fn keep_hold(&self, id: RequestId, hold: Hold) {
        drop(self.holds.remove(id, None));
        if self.holds.reserve(id).is_some() {
            self.holds.fill(id, hold, self.time());
        }
    }
}

impl Pool {
    /// Takes the hold of a request that was admitted by id, to be handed to the decode pool's
    /// [`book_leg_as`](Self::book_leg_as). Until it is taken its lease is the id's: any call on the
    /// id renews it while the prefill booking lives, and after that it ends by as much silence.
    pub fn take_hold(&self, id: RequestId) -> Option<Hold> {
        self.inner().holds.remove(id, None)
    }

    /// Puts a hold back under an id, after its decode leg was refused.
    pub fn return_hold(&self, id: RequestId, hold: Hold) {
        self.inner().keep_hold(id, hold);
    }

    /// As [`book`](Self::book), under an id. The booking lives until it is freed or silent for the
    /// whole lease; any call on the id renews it.
    ///
    /// # Errors
    /// As `book`, and `DuplicateRequest` if the id is live already (the first one is untouched).
    pub fn book_as(&self, id: RequestId, request: &Request) -> Result<Placed, Error> {
        let inner = self.inner();
        let checked = inner.counted(inner.check(request))?;
        let reservation = inner.counted(self.handle.reserve(id))?;
        let placed = inner.counted(self.handle.place_checked(request, checked, Purpose::Book))?;
        let Placement { choice, landed } = placed;
        let attempt = reservation.fill(landed.expect("a booking has landed"));
        Ok(Placed { choice, attempt })
    }

    /// The prefill of a request has completed: takes its prefill tokens off; again is a no-op.
    ///
    /// # Errors
    /// `UnknownRequest`; nothing changed.
    pub fn prefill_completed(&self, id: RequestId) -> Result<(), Error> {
        let inner = self.inner();
        let done = inner.with_id(id, |landed| (inner.complete_prefill(landed), landed.told));
        let (done, told) = done.ok_or(Error::UnknownRequest { id })?;
        inner.prefill_was_completed(done, told);
        Ok(())
    }

    /// A request has grown by `blocks` output blocks.
    ///
    /// # Errors
    /// `UnknownRequest`, or `RowOverflow`; nothing changed.
    pub fn add_output_blocks(&self, id: RequestId, blocks: u32) -> Result<(), Error> {
        let inner = self.inner();
        let added =
            inner.with_id(id, |landed| inner.add_output(landed, blocks).map(|()| landed.told));
        let told = added.ok_or(Error::UnknownRequest { id })??;
        inner.tell(told, LoadChange::Output { blocks });
        Ok(())
    }

    /// Moves a request's load to another rank; see [`Booking::move_to`](crate::Booking::move_to).
    ///
    /// # Errors
    /// `UnknownRequest`, `NoEndpoints`, `RowOverflow`; nothing changed.
    pub fn move_to(&self, id: RequestId, target: Rank) -> Result<(), Error> {
        let inner = self.inner();
        let moved = inner.with_id(id, |landed| {
            let room = inner.move_landed(landed, target, Target::Available)?;
            Ok((room, inner.numbered(landed.told)))
        });
        let (room, told) = moved.ok_or(Error::UnknownRequest { id })??;
        inner.was_moved(room, told, target);
        Ok(())
    }

    /// Gives a request's load back, whichever its attempt. `false`: nothing of that id was live.
    pub fn free(&self, id: RequestId) -> bool {
        self.free_one(id, None)
    }

    /// Gives a request's load back if `attempt` is its current one: an old attempt never frees a
    /// newer one.
    pub fn free_attempt(&self, id: RequestId, attempt: Attempt) -> bool {
        self.free_one(id, Some(attempt))
    }

    fn free_one(&self, id: RequestId, attempt: Option<Attempt>) -> bool {
        let inner = self.inner();
        let Some(mut landed) = inner.ids.remove(id, attempt) else { return false };
        inner.end(&mut landed);
        true
    }

    /// Where a request's load is.
    pub fn rank_of(&self, id: RequestId) -> Option<Rank> {
        self.inner().with_id(id, |landed| landed.rank)
    }

    /// Books known live load on a rank without judging limits (after a restart). The booking's
    /// choice tells the rank and what is cached there; nothing was weighed, so its cost is 0.
    ///
    /// # Errors
    /// `InvalidRequest`, `NoEndpoints` (the rank is not declared), `RowOverflow`, `Closed`; nothing
    /// changed.
    pub fn import(&self, rank: Rank, request: &Request) -> Result<Booking, Error> {
        let checked = self.inner().check(request)?;
        let landed = self.inner().land_known(rank, request, checked)?;
        let cached_tokens = self.inner().cached_on(&landed.origin, rank);
        let choice = Choice {
            rank,
            stable_id: None,
            cost: 0.0,
            cached_tokens,
            overlap: [0.0; 3],
            eligible: 1,
            full: 0,
            forgone: None,
        };
        Ok(self.booking(Placement { choice, landed: Some(landed) }))
    }

    /// As [`import`](Self::import), under an id.
    ///
    /// # Errors
    /// As `import`, and `DuplicateRequest`.
    pub fn import_as(
        &self,
        id: RequestId,
        rank: Rank,
        request: &Request,
    ) -> Result<Attempt, Error> {
        let inner = self.inner();
        let checked = inner.check(request)?;
        let reservation = self.handle.reserve(id)?;
        Ok(reservation.fill(inner.land_known(rank, request, checked)?))
    }

    /// The live bookings by id, in the order of their ids: what an [`import_as`](Self::import_as)
    /// after a restart needs. Bookings by value end with the process that holds them; a peer that
    /// comes late is told those as well, by [`export_events`](Self::export_events).
    pub fn export(&self) -> Vec<Live> {
        let mut live = Vec::new();
        self.inner().ids.for_each(|id, attempt, landed| {
            live.push(Live {
                id,
                attempt,
                rank: landed.rank,
                prefill_tokens: landed.tokens,
                prompt_blocks: landed.origin.prompt_blocks,
                output_blocks: landed.output(),
            });
        });
        live.sort_by_key(|l| l.id);
        live
    }
}
