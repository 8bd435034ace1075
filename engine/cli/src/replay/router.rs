//! What the simulator asks of a strategy, and what it gets back.
//!
//! A request may be answered at once or later: a strategy that lets requests wait says so, and
//! hands out what became of them when the simulator asks after its next event.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use std::time::Instant;
use vacancy::Name;

/// Which of the two legs of a request is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The prefill leg; in one pool, the whole request.
    Prefill,
    /// The decode leg of a request whose prefill leg ran on another rank.
    Decode,
}

/// One request to place at one hop.
pub struct Ask<'a> {
    /// The request's number within the run.
    pub request: u32,
    /// What arrived.
    pub arrival: &'a Arrival,
    /// The virtual clock, in ns.
    pub now: u64,
    /// Ranks that have some of the prompt cached, with how many of its blocks. Empty for a
    /// strategy that does not look at them.
    pub overlaps: &'a [(u32, u32)],
}

/// Where a leg landed.
#[derive(Clone, Debug, PartialEq)]
pub struct Landing {
    /// The rank, counted through the pool.
    pub rank: u32,
    /// Prompt tokens that the strategy took for cached there, if it looked.
    pub expected_cached: Option<u32>,
    /// The decode rank on which room was set aside with it, counted through the decode pool.
    pub hold: Option<u32>,
}

/// What became of a leg.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// It has a rank.
    Landed(Landing),
    /// It waits; [`Router::settled`] tells when it no longer does.
    Waits,
    /// It was refused.
    Refused(vacancy::Error),
}

/// A placement, and what finding it took.
pub struct Answer {
    /// What became of the leg.
    pub placement: Placement,
    /// The policy class that the strategy puts the request into, if it knows classes.
    pub class: Option<Name>,
    /// Wall time of the decision alone, in ns.
    pub decision_ns: u64,
}

/// Runs one decision and takes its time: nothing but `decide` is inside the two clock readings.
pub fn timed<T>(decide: impl FnOnce() -> T) -> (T, u64) {
    let start = Instant::now();
    let answer = decide();
    let ns = start.elapsed().as_nanos();
    (answer, u64::try_from(ns).unwrap_or(u64::MAX))
}

/// A strategy: who places requests, and is told what became of them.
pub trait Router {
    /// Whether it looks at overlaps at this hop; finding them costs the simulator time.
    fn wants_overlaps(&self, hop: Hop) -> bool;

    /// Places one leg.
    fn place(&mut self, hop: Hop, ask: Ask<'_>) -> Answer;

    /// The prefill of a request is done: its tokens no longer weigh on its rank.
    fn prefill_completed(&mut self, request: u32, now: u64);

    /// The answer of a request has grown into `blocks` further KV blocks.
    fn output(&mut self, request: u32, blocks: u32, now: u64);

    /// One leg of a request is over.
    fn free(&mut self, hop: Hop, request: u32, now: u64);

    /// Appends what the calls since the last one let in or refused among those that waited.
    fn settled(&mut self, to: &mut Vec<(u32, Placement)>);

    /// When [`expire`](Router::expire) has something to do, in ns on the virtual clock.
    fn next_due(&self) -> Option<u64>;

    /// Runs the timers that are due at `now`.
    fn expire(&mut self, now: u64);

    /// KV blocks that it believes a decode rank to carry, holds included; `None`: it does not
    /// count them.
    fn decode_blocks(&self, rank: u32) -> Option<u64>;

    /// Bookings and waiting requests that are still there.
    fn bookings_left(&self) -> u64;
}
