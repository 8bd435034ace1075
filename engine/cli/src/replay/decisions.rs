//! `--decisions`: one JSON line per request (and strategy, with `--compare`), with all that the
//! figures are made of. Instants are ns on the virtual clock; `null` is what never happened.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use super::record::{Outcome, Record};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Line<'a> {
    strategy: &'a str,
    request: usize,
    class: Option<&'a str>,
    isl: u32,
    osl: u32,
    prefill_worker: Option<u64>,
    prefill_dp_rank: Option<u32>,
    decode_worker: Option<u64>,
    decode_dp_rank: Option<u32>,
    expected_cached_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    arrival_ns: u64,
    admitted_ns: Option<u64>,
    prefill_start_ns: Option<u64>,
    prefill_end_ns: Option<u64>,
    first_token_ns: Option<u64>,
    end_ns: Option<u64>,
    decision_ns: Option<u64>,
    decode_decision_ns: Option<u64>,
    /// The hold's landing, at `admitted_ns`: where, and the rank's blocks before it.
    hold_worker: Option<u64>,
    hold_dp_rank: Option<u32>,
    hold_blocks: Option<u64>,
    hold_added: Option<u64>,
    hold_limit: Option<u64>,
    /// The decode leg's landing, at `prefill_end_ns`, unless it became of the hold in its place.
    leg_blocks: Option<u64>,
    leg_added: Option<u64>,
    leg_limit: Option<u64>,
    outcome: &'a str,
    error: Option<&'a str>,
}

/// Writes the records of one strategy. `dp` is how many ranks a worker has.
///
/// # Errors
/// Those of the writer.
pub fn write(
    to: &mut impl Write,
    strategy: &str,
    arrivals: &[Arrival],
    records: &[Record],
    dp: u32,
) -> io::Result<()> {
    let worker = |rank: u32| u64::from(rank / dp);
    let dp_rank = |rank: u32| rank % dp;
    for (request, (a, r)) in arrivals.iter().zip(records).enumerate() {
        let (outcome, error) = match &r.outcome {
            Outcome::Open => ("open", None),
            Outcome::Done => ("done", None),
            Outcome::Refused(e) if r.expired() => ("expired", Some(e.name())),
            Outcome::Refused(e) => ("rejected", Some(e.name())),
            Outcome::TooLarge => ("rejected", Some("LargerThanKvMemory")),
        };
        let line = Line {
            strategy,
            request,
            class: r.class.as_deref(),
            isl: a.isl,
            osl: a.osl,
            prefill_worker: r.prefill_rank.map(worker),
            prefill_dp_rank: r.prefill_rank.map(dp_rank),
            decode_worker: r.decode_rank.map(worker),
            decode_dp_rank: r.decode_rank.map(dp_rank),
            expected_cached_tokens: r.expected_cached,
            cached_tokens: r.cached,
            arrival_ns: a.at,
            admitted_ns: r.admitted,
            prefill_start_ns: r.prefill_start,
            prefill_end_ns: r.prefill_end,
            first_token_ns: r.first_token,
            end_ns: r.end,
            decision_ns: r.decision_ns,
            decode_decision_ns: r.decode_decision_ns,
            hold_worker: r.hold_rank.map(worker),
            hold_dp_rank: r.hold_rank.map(dp_rank),
            hold_blocks: r.hold.map(|j| j.blocks),
            hold_added: r.hold.map(|j| j.added),
            hold_limit: r.hold.map(|j| j.limit),
            leg_blocks: r.leg.map(|j| j.blocks),
            leg_added: r.leg.map(|j| j.added),
            leg_limit: r.leg.map(|j| j.limit),
            outcome,
            error,
        };
        serde_json::to_writer(&mut *to, &line)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}
