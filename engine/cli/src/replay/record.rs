//! What a run keeps of each request: enough to recompute every figure.
#![forbid(unsafe_code)]

use vacancy::{Error, Name};

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The run is not over.
    Open,
    /// Answered to its last token.
    Done,
    /// Refused by the strategy, at either hop.
    Refused(Error),
    /// Prompt and answer together exceed the KV memory of a rank: no strategy could serve it, and
    /// none was asked.
    TooLarge,
}

/// What a decode rank carried when a hold or a leg landed on it, and what the request's class
/// would have it carry at most. In KV blocks, booked and held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Blocks on the rank just before.
    pub blocks: u64,
    /// Blocks that the landing added.
    pub added: u64,
    /// The class limit.
    pub limit: u64,
}

/// One request's way through a run. Instants are ns on the virtual clock.
#[derive(Clone, Debug)]
pub struct Record {
    /// Policy class, where there are classes.
    pub class: Option<Name>,
    /// Rank of the prefill leg (in one pool: of the request), counted through its pool.
    pub prefill_rank: Option<u32>,
    /// Rank of the decode leg, counted through its pool.
    pub decode_rank: Option<u32>,
    /// Prompt tokens that the strategy expected to be cached on the prefill rank.
    pub expected_cached: Option<u32>,
    /// Prompt tokens that were cached there when the prefill started.
    pub cached: Option<u32>,
    /// When the strategy placed it.
    pub admitted: Option<u64>,
    /// When its prefill started.
    pub prefill_start: Option<u64>,
    /// When its prefill ended.
    pub prefill_end: Option<u64>,
    /// When its first token was there.
    pub first_token: Option<u64>,
    /// When it was over, however it ended.
    pub end: Option<u64>,
    /// Wall time of the decision at its first hop, in ns.
    pub decision_ns: Option<u64>,
    /// Wall time of the decision at its second hop, in ns.
    pub decode_decision_ns: Option<u64>,
    /// Rank on which room for the decode leg was set aside at admission, counted through its pool.
    pub hold_rank: Option<u32>,
    /// The landing of the hold, if a class limit speaks of it.
    pub hold: Option<Judged>,
    /// The landing of the decode leg, if a class limit speaks of it. A hold that became the
    /// booking on its own rank is no further landing.
    pub leg: Option<Judged>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Record {
    /// A request that has not arrived.
    pub fn new() -> Record {
        Record {
            class: None,
            prefill_rank: None,
            decode_rank: None,
            expected_cached: None,
            cached: None,
            admitted: None,
            prefill_start: None,
            prefill_end: None,
            first_token: None,
            end: None,
            decision_ns: None,
            decode_decision_ns: None,
            hold_rank: None,
            hold: None,
            leg: None,
            outcome: Outcome::Open,
        }
    }

    /// The landings that a class limit speaks of.
    pub fn judged(&self) -> impl Iterator<Item = Judged> {
        [self.hold, self.leg].into_iter().flatten()
    }

    /// From when until when the strategy let it wait, if it did. `arrival` is when it arrived.
    pub fn waited(&self, arrival: u64) -> Option<(u64, u64)> {
        // Who is refused waits until then.
        let until = self.admitted.or(self.end).unwrap_or(u64::MAX);
        (until > arrival).then_some((arrival, until))
    }

    /// Whether its due time passed before it could be placed.
    pub fn expired(&self) -> bool {
        self.outcome == Outcome::Refused(Error::DeadlineExceeded)
    }

    /// Whether it was refused for another reason.
    pub fn rejected(&self) -> bool {
        !self.expired() && matches!(self.outcome, Outcome::Refused(_) | Outcome::TooLarge)
    }
}
