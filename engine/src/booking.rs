//! What a caller holds: a booking, given back exactly once.
#![forbid(unsafe_code)]

use crate::choice::Choice;
use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::load::events::{LoadChange, RouterId};
use crate::load::prompts::Held;
use crate::names::{Attempt, Rank, RequestId, WorkerId};
use crate::pool::Handle;
use crate::pool::land::Target;
use crate::pool::peers::Told;
use crate::request::{Overlap, Prompt};
use crate::sync::{Arc, Mutex};
use std::fmt;

/// What one attempt of one request has on one rank, and what it needs to be moved to another.
pub(crate) struct Landed {
    pub(crate) slot: SlotId,
    pub(crate) life: u64,
    pub(crate) rank: Rank,
    /// Prefill tokens still on the row.
    pub(crate) tokens: u32,
    pub(crate) prefill_done: bool,
    /// Blocks on the row that are shared with nobody: a prompt without hashes, and output.
    pub(crate) unshared: u32,
    /// Prompt blocks that may be shared with other requests on the rank.
    pub(crate) held: Option<Held>,
    /// Blocks of the row that were set aside by this, for a hold; `None`: a booking, which counts
    /// as a request instead.
    pub(crate) set_aside: Option<u32>,
    /// Blocks that it put on the row when it landed.
    pub(crate) added: u32,
    /// Its name among this router's bookings, if its changes are told to others.
    pub(crate) told: Told,
    pub(crate) origin: Origin,
}

/// The request behind a booking, as far as another rank would need it.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) isl: u32,
    pub(crate) prompt_blocks: u32,
    pub(crate) track_prefill: bool,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) overlaps: Option<Arc<[Overlap]>>,
}

/// Load put on one rank for one attempt of one request, given back when this value is dropped.
///
/// It is tied to the rank's life at the time: if the rank is removed meanwhile, giving back is a
/// quiet no-op, also when a rank of the same name has come back since. All methods may be called
/// from any thread, in any order and number; none waits for anything but another call on this same
/// booking.
#[must_use = "dropping a booking gives its load back at once"]
pub struct Booking {
    pub(crate) handle: Arc<Handle>,
    pub(crate) choice: Choice,
    pub(crate) landed: Mutex<Landed>,
}

impl Booking {
    /// What was chosen when it was booked, and why. After a [`move_to`](Self::move_to) this still
    /// tells the first choice; [`rank`](Self::rank) tells where the load is.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The rank that carries the load.
    pub fn rank(&self) -> Rank {
        self.landed.lock().rank
    }

    /// Takes the prefill tokens off the rank; again is a no-op.
    pub fn prefill_completed(&self) {
        let inner = &self.handle.inner;
        let (done, told) = {
            let mut landed = self.landed.lock();
            (inner.complete_prefill(&mut landed), landed.told)
        };
        inner.prefill_was_completed(done, told);
    }

    /// Adds `blocks` output blocks, shared with nobody. Limits are not judged.
    ///
    /// # Errors
    /// `RowOverflow`: the row could not show them; nothing changed.
    pub fn add_output_blocks(&self, blocks: u32) -> Result<(), Error> {
        let inner = &self.handle.inner;
        let (added, told) = {
            let mut landed = self.landed.lock();
            (inner.add_output(&mut landed, blocks), landed.told)
        };
        added.map(|()| inner.tell(told, LoadChange::Output { blocks }))
    }

    /// Moves the load to another rank (fail-over): added there first, then taken off here, so that
    /// a reader may see both and never neither. Limits are not judged. What the request has cached
    /// there, and which of its blocks that rank holds, counts as it would for a new booking.
    ///
    /// # Errors
    /// `NoEndpoints`: the target is unknown or unavailable. `RowOverflow`: its row is out of bits.
    /// Nothing changed.
    pub fn move_to(&self, target: Rank) -> Result<(), Error> {
        let inner = &self.handle.inner;
        let (signal, told) = {
            let mut landed = self.landed.lock();
            let signal = inner.move_landed(&mut landed, target, Target::Available)?;
            (signal, inner.numbered(landed.told))
        };
        inner.was_moved(signal, told, target);
        Ok(())
    }

    /// Gives the load back now; the same as dropping the booking.
    pub fn free(self) {}
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.handle.inner.end(self.landed.get_mut());
    }
}

impl fmt::Debug for Booking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Booking").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

/// What a booking by id answers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Placed {
    /// The rank, and why.
    pub choice: Choice,
    /// Names this try of the request: see [`Pool::free_attempt`](crate::Pool::free_attempt).
    pub attempt: Attempt,
}

/// A rank that was removed while load was on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The rank.
    pub rank: Rank,
    /// Requests that were on it, booked by value or by id.
    pub requests: u32,
    /// Those of them that were booked by id. They stay known, without load, until they are freed
    /// or moved to another rank.
    pub ids: Vec<(RequestId, Attempt)>,
}

/// A live booking, as [`Pool::export`](crate::Pool::export) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Its request id.
    pub id: RequestId,
    /// Which try of the request.
    pub attempt: Attempt,
    /// The rank that carries it.
    pub rank: Rank,
    /// Prefill tokens still on the rank.
    pub prefill_tokens: u32,
    /// Prompt blocks, shared or not.
    pub prompt_blocks: u32,
    /// Output blocks added since.
    pub output_blocks: u32,
}

/// What ended because time passed; see [`Pool::expire`](crate::Pool::expire).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired {
    /// Bookings by id whose lease ran out, and the rank each was on.
    pub leases: Vec<(RequestId, Attempt, Rank)>,
    /// Other routers that were silent for the whole lease.
    pub peers: Vec<RouterId>,
    /// Holds by id whose lease ran out, and the decode rank each was on.
    pub holds: Vec<(RequestId, Option<Rank>)>,
    /// Workers whose overload mark ended.
    pub marks: Vec<WorkerId>,
    /// Waiting requests that were refused because their due time came.
    pub overdue: usize,
}
