//! What a step must have answered, in the reference's own words.

use super::choose::Pick;
use std::collections::BTreeMap;
use vacancy::{Applied, Error, Rank, RequestId, RouterId, WorkerId};

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
    /// What ended because time passed.
    Expired(Ended),
    /// The live bookings by id.
    Live(BTreeMap<RequestId, Exported>),
    /// The ticket under which an `admit` is known from now on, or why it neither goes nor waits.
    Ticket(Result<u64, Refusal>),
    /// The ticket that was withdrawn.
    Withdrawn(u64),
    /// What becomes of another router's event.
    Applied(Applied),
    /// So many.
    Count(usize),
    /// As [`Outcome::Pick`], for a decode leg.
    Leg(Result<LegPick, Refusal>),
}

/// Every right answer to a decode leg.
#[derive(Clone, Debug)]
pub struct LegPick {
    /// The ranks that may be chosen.
    pub pick: Pick,
    /// Whether it must be the hold's own rank, where nothing else is looked at.
    pub in_place: bool,
    /// Whether the hold's own rank is one of the others that it is weighed against.
    pub beside: bool,
}

/// What ended because time passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The ids whose lease ran out, with attempt and rank.
    pub leases: BTreeMap<RequestId, (u64, Rank)>,
    /// The ids whose hold's lease ran out, with the rank that it was on.
    pub holds: BTreeMap<RequestId, Rank>,
    /// Routers that were silent for the whole lease.
    pub peers: Vec<RouterId>,
    /// Workers whose mark ended.
    pub marks: Vec<WorkerId>,
    /// Those who waited past their due time.
    pub overdue: usize,
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
    /// The same of the pair.
    pub pair_epoch_moves: bool,
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answers given by select, book and admit.
    pub selected: u64,
    /// Errors other than expired and closed.
    pub rejected: u64,
    /// Those who asked to be admitted and went in.
    pub admitted: u64,
    /// Those who waited past their due time.
    pub expired: u64,
    /// Those who waited and were withdrawn.
    pub cancelled: u64,
}
