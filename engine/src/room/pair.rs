//! The paired pool: what the prefill hop asks of the decode hop before it lets a request go.

use crate::names::Name;
use crate::request::Request;

use crate::sync::{Arc, Weak};
use std::any::Any;
use std::fmt;

/// What is asked of a paired pool.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PairAsk<'a> {
    /// The request. Of its fields, `lora` and `decode` say which ranks of the pair it may use;
    /// `constraints` and `overlaps` are the asking pool's own.
    pub request: &'a Request,
    /// Its class.
    pub class: &'a Name,
    /// The class's `decode_busy_threshold_frac`.
    pub decode_frac: f64,
}

/// What a paired pool answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairRoom {
    /// Some rank that the request may use is at or under the class's limit.
    Room,
    /// None is, or none is reachable: the request waits until the pair says that room may have
    /// appeared.
    NoRoom,
    /// No rank that the pair knows meets the request's decode-side constraints: it is refused with
    /// `NoEndpoints`.
    NoEndpoints,
}

/// What a paired pool answers when it is asked to set room aside.
#[non_exhaustive]
pub enum HoldOffer {
    /// It does not hold: the gate is a check only.
    NotOffered,
    /// Set aside until the value is dropped.
    Held(Box<dyn Any + Send>),
    /// The room has gone since it was checked.
    NoRoom,
}

impl fmt::Debug for HoldOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldOffer::NotOffered => "NotOffered",
            HoldOffer::Held(_) => "Held",
            HoldOffer::NoRoom => "NoRoom",
        })
    }
}

/// A paired pool of the host's own making. The built-in one is another [`Pool`](crate::Pool).
///
/// Called on the thread that admits or drains, with no lock and no pin of ours held, for classes
/// with a `decode_busy_threshold_frac` only. A panic fails the request that was asked about, with
/// `PolicyFailed`, and nothing else.
pub trait PairedPool: Send + Sync {
    /// Whether there is room for a request.
    fn room(&self, ask: &PairAsk<'_>) -> PairRoom;

    /// Takes in whom to tell when room may have appeared. Called once, when the pair is installed.
    /// What was refused is asked about again only when `waker` is told.
    fn subscribe(&self, waker: PairWaker);

    /// Sets room aside for a request that is going in. By default nothing is offered.
    fn hold(&self, ask: &PairAsk<'_>) -> HoldOffer {
        let _ = ask;
        HoldOffer::NotOffered
    }
}

/// Tells a pool that its pair may have room. Cheap when nothing waits there; harmless when the pool
/// is gone.
///
/// When the last clone is dropped, nobody could tell any more: what waits is looked at once, as by
/// [`wake`](Self::wake). So a hook that is gone, and its wakers with it, leaves nobody asleep.
#[derive(Clone)]
pub struct PairWaker {
    told: Arc<Told>,
}

/// A pool, as the one who is told by its pair.
pub(crate) trait PairTold: Send + Sync {
    fn pair_may_have_room(&self);
}

struct Told {
    pool: Weak<dyn PairTold>,
}

impl Told {
    fn tell(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.pair_may_have_room();
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.tell();
    }
}

impl PairWaker {
    pub(crate) fn new(pool: Weak<dyn PairTold>) -> PairWaker {
        PairWaker { told: Arc::new(Told { pool }) }
    }

    /// Room may have appeared: what waits for it is looked at on this thread. No lock that
    /// [`PairedPool::room`] takes may be held.
    pub fn wake(&self) {
        self.told.tell();
    }
}

impl fmt::Debug for PairWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairWaker")
    }
}
