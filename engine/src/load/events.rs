//! Changes of load as events between routers: what is told, and by whom.
#![forbid(unsafe_code)]

use crate::names::{Rank, RequestId};

/// One router's name among routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterId(pub u64);

/// What happened to a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadChange {
    /// It was put on a rank.
    Add {
        /// The rank.
        rank: Rank,
        /// Prefill tokens that it put there.
        prefill_tokens: u32,
        /// KV blocks that it put there; those it shares with others there are not counted again.
        kv_blocks: u32,
    },
    /// Its prefill tokens came off.
    PrefillCompleted,
    /// It grew.
    Output {
        /// By how many KV blocks.
        blocks: u32,
    },
    /// It moved.
    Move {
        /// To this rank.
        rank: Rank,
    },
    /// All that was left of it came off.
    Free,
}

/// One change of one router's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadEvent {
    /// The router whose load it is.
    pub router: RouterId,
    /// Counts the router's events, from 1.
    pub seq: u64,
    /// Which of the router's bookings: the same request booked by two routers is two bookings.
    pub booking: u128,
    /// The request, if it was booked by id.
    pub request: Option<RequestId>,
    /// What happened.
    pub change: LoadChange,
}

impl LoadEvent {
    /// An event of another router.
    pub fn new(router: RouterId, seq: u64, booking: u128, change: LoadChange) -> LoadEvent {
        LoadEvent { router, seq, booking, request: None, change }
    }
}

/// Takes a pool's own changes of load, to hand them to other routers.
pub trait EventSink: Send + Sync {
    /// Takes one event. Called on the thread that made the change, with no lock of ours held; must
    /// not block. A panic is logged and goes no further.
    fn event(&self, event: &LoadEvent);

    /// Whether output is told as well (default no).
    fn wants_output(&self) -> bool {
        false
    }
}
