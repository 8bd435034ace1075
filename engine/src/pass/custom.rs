//! The host's own say in a choice: filters, scorers, pickers and observers, over columns.
//!
//! The engine gathers what it knows of the ranks that may be chosen into a [`Table`] of plain
//! columns, and host code sees slices of that: at most [`CHUNK`] ranks at a time, eligible ones
//! only, as they were when the pass copied them. It cannot reach the live rows, so it cannot
//! bypass eligibility, reservation or accounting: whatever it answers, the booking judges the row
//! again. Everything here runs without a lock, a pin or a borrow of ours, so host code may block,
//! fail, panic, or call the pool again, and harms only its own request.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::names::Rank;
use crate::pass::pick::{Rng, draw};
use crate::request::Request;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most ranks that a filter, a scorer or an observer sees at a time.
pub const CHUNK: usize = 64;

/// Why a filter, a scorer or a picker could not answer. The request fails with
/// [`Error::PolicyFailed`], which carries the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl PolicyError {
    /// An error with a text for whoever reads the refusal.
    pub fn new(what: impl Into<String>) -> PolicyError {
        PolicyError(what.into())
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

impl From<String> for PolicyError {
    fn from(what: String) -> PolicyError {
        PolicyError(what)
    }
}

impl From<&str> for PolicyError {
    fn from(what: &str) -> PolicyError {
        PolicyError(what.to_owned())
    }
}

/// Up to [`CHUNK`] ranks, a column per property; all columns are of one length, and one index means
/// one rank in all of them. Values are those of the pass: they may have changed since.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Columns<'a> {
    /// The request that is being placed.
    pub request: &'a Request,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Who.
    pub ranks: &'a [Rank],
    /// Active prefill tokens.
    pub prefill_tokens: &'a [u32],
    /// KV blocks booked, held and mirrored.
    pub kv_blocks: &'a [u32],
    /// Active requests.
    pub requests: &'a [u32],
    /// Prefill tokens that the request would add.
    pub added_tokens: &'a [u32],
    /// KV blocks that the request would add: its prompt blocks that the rank does not hold yet.
    pub added_blocks: &'a [u32],
    /// The engine's own cost, in blocks.
    pub cost: &'a [f64],
    /// Prompt tokens that the rank has cached.
    pub cached_tokens: &'a [u32],
    /// Prompt blocks cached in device memory.
    pub device: &'a [f64],
    /// Prompt blocks cached in host memory, beyond those in device memory.
    pub host: &'a [f64],
    /// Prompt blocks cached on disk, beyond those in device and host memory.
    pub disk: &'a [f64],
    /// Tokens that the rank batches at most, if known.
    pub max_num_batched_tokens: &'a [Option<u64>],
    /// KV blocks that the rank has, if known.
    pub total_kv_blocks: &'a [Option<u64>],
}

impl Columns<'_> {
    /// How many ranks these columns hold, 1 to [`CHUNK`].
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether they hold none; the engine never passes such.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }
}

/// What an observer is handed: some of the declared ranks, with what the pass judged of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The ranks: projection, cost and capacity.
    pub columns: Columns<'a>,
    /// Structurally eligible for the request.
    pub eligible: &'a [bool],
    /// Past the reject thresholds.
    pub full: &'a [bool],
    /// Under a host overload mark or a monitor mark.
    pub marked: &'a [bool],
    /// How many ranks of the pass came before these.
    pub first: usize,
    /// How many ranks the pass looked at in all: every declared one.
    pub of: usize,
}

/// Refuses ranks that the engine would allow.
///
/// Called on the caller's thread, once per chunk of the ranks that are eligible, neither marked nor
/// full. If nothing is kept of all of them, the request fails with
/// [`Error::AllEligibleWorkersFiltered`]. It may block; it may be called again for one request if
/// the choice could not be booked.
pub trait Filter: Send + Sync {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Sets `keep[i]` to `false` for each rank to refuse; all are `true` at first.
    ///
    /// # Errors
    /// Any error, and a panic, fails the request with [`Error::PolicyFailed`].
    fn filter(&self, columns: &Columns<'_>, keep: &mut [bool]) -> Result<(), PolicyError>;
}

/// Adjusts or replaces the costs that the choice is made by.
///
/// Called on the caller's thread, once per chunk of the ranks that may be chosen (after the
/// filter). It may block; it may be called again for one request if the choice could not be booked.
pub trait Scorer: Send + Sync {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Changes `cost`, in blocks, which holds the engine's own at first. The lowest wins; values
    /// may be negative but must be finite.
    ///
    /// # Errors
    /// Any error, a panic, and a cost that is not finite fail the request with
    /// [`Error::PolicyFailed`].
    fn score(&self, columns: &Columns<'_>, cost: &mut [f64]) -> Result<(), PolicyError>;
}

/// What a picker picks from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Candidates<'a> {
    /// The request that is being placed.
    pub request: &'a Request,
    /// Every rank that may be chosen; at least one.
    pub ranks: &'a [Rank],
    /// Their costs, in blocks, as the scorer left them.
    pub costs: &'a [f64],
    /// 64 random bits of the request's own: a seed makes them, and so the choice, reproducible.
    pub random: u64,
}

/// Chooses among the candidates, in place of the lowest cost or the draw by temperature.
///
/// Called on the caller's thread. It may block; it may be called again for one request if the
/// choice could not be booked.
pub trait Picker: Send + Sync {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Answers the index of the rank to take.
    ///
    /// # Errors
    /// Any error, a panic, and an index out of range fail the request with
    /// [`Error::PolicyFailed`].
    fn pick(&self, candidates: &Candidates<'_>) -> Result<usize, PolicyError>;
}

/// Is shown every declared rank as a pass saw it, and has no say.
///
/// Called on the caller's thread, once per chunk, before the choice is made. A panic is logged and
/// goes no further. It may block, which delays its own request only.
pub trait Observer: Send + Sync {
    /// Its name, for logs.
    fn name(&self) -> &str;

    /// Looks at some of the ranks.
    fn observe(&self, observed: &Observed<'_>);
}

/// One rank, as a pass saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) slot: SlotId,
    /// The life that the view meant.
    pub(crate) life: u64,
    pub(crate) prefill_tokens: u32,
    pub(crate) kv_blocks: u32,
    pub(crate) requests: u32,
    pub(crate) added_tokens: u32,
    pub(crate) added_blocks: u32,
    /// In blocks.
    pub(crate) cost: f64,
    pub(crate) cached_tokens: u32,
    /// Device, host, disk.
    pub(crate) overlap: [f64; 3],
    pub(crate) max_num_batched_tokens: Option<u64>,
    pub(crate) total_kv_blocks: Option<u64>,
    pub(crate) eligible: bool,
    pub(crate) full: bool,
    pub(crate) marked: bool,
    pub(crate) class_full: bool,
}

/// Ranks of one pass in columns of their own, which outlive the pin that the pass ran under.
pub(crate) struct Table<'a> {
    request: &'a Request,
    block_size: u32,
    slots: ArenaVec<'a, (SlotId, u64)>,
    ranks: ArenaVec<'a, Rank>,
    prefill_tokens: ArenaVec<'a, u32>,
    kv_blocks: ArenaVec<'a, u32>,
    requests: ArenaVec<'a, u32>,
    added_tokens: ArenaVec<'a, u32>,
    added_blocks: ArenaVec<'a, u32>,
    cost: ArenaVec<'a, f64>,
    /// What the choice is made by: the engine's cost, or what a scorer made of it.
    scored: ArenaVec<'a, f64>,
    cached_tokens: ArenaVec<'a, u32>,
    device: ArenaVec<'a, f64>,
    host: ArenaVec<'a, f64>,
    disk: ArenaVec<'a, f64>,
    max_num_batched_tokens: ArenaVec<'a, Option<u64>>,
    total_kv_blocks: ArenaVec<'a, Option<u64>>,
    eligible: ArenaVec<'a, bool>,
    full: ArenaVec<'a, bool>,
    marked: ArenaVec<'a, bool>,
    class_full: ArenaVec<'a, bool>,
}

/// Does one thing to every column of a table.
macro_rules! each_column {
    ($table:expr, $column:ident => $what:expr) => {{
        let table = $table;
        macro_rules! one {
            ($name:ident) => {{
                let $column = &mut table.$name;
                $what;
            }};
        }
        one!(slots);
        one!(ranks);
        one!(prefill_tokens);
        one!(kv_blocks);
        one!(requests);
        one!(added_tokens);
        one!(added_blocks);
        one!(cost);
        one!(scored);
        one!(cached_tokens);
        one!(device);
        one!(host);
        one!(disk);
        one!(max_num_batched_tokens);
        one!(total_kv_blocks);
        one!(eligible);
        one!(full);
        one!(marked);
        one!(class_full);
    }};
}

impl<'a> Table<'a> {
    /// An empty table with place for `ranks` ranks.
    pub(crate) fn new(
        request: &'a Request,
        block_size: u32,
        ranks: usize,
        arena: &'a Bump,
    ) -> Table<'a> {
        macro_rules! column {
            () => {
                ArenaVec::with_capacity_in(ranks, arena)
            };
        }
        Table {
            request,
            block_size,
            slots: column!(),
            ranks: column!(),
            prefill_tokens: column!(),
            kv_blocks: column!(),
            requests: column!(),
            added_tokens: column!(),
            added_blocks: column!(),
            cost: column!(),
            scored: column!(),
            cached_tokens: column!(),
            device: column!(),
            host: column!(),
            disk: column!(),
            max_num_batched_tokens: column!(),
            total_kv_blocks: column!(),
            eligible: column!(),
            full: column!(),
            marked: column!(),
            class_full: column!(),
        }
    }

    pub(crate) fn push(&mut self, e: &Entry) {
        self.slots.push((e.slot, e.life));
        self.ranks.push(e.rank);
        self.prefill_tokens.push(e.prefill_tokens);
        self.kv_blocks.push(e.kv_blocks);
        self.requests.push(e.requests);
        self.added_tokens.push(e.added_tokens);
        self.added_blocks.push(e.added_blocks);
        self.cost.push(e.cost);
        self.scored.push(e.cost);
        self.cached_tokens.push(e.cached_tokens);
        self.device.push(e.overlap[0]);
        self.host.push(e.overlap[1]);
        self.disk.push(e.overlap[2]);
        self.max_num_batched_tokens.push(e.max_num_batched_tokens);
        self.total_kv_blocks.push(e.total_kv_blocks);
        self.eligible.push(e.eligible);
        self.full.push(e.full);
        self.marked.push(e.marked);
        self.class_full.push(e.class_full);
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The rank at `i`; its cost is the one that the choice is made by.
    pub(crate) fn entry(&self, i: usize) -> Entry {
        Entry {
            rank: self.ranks[i],
            slot: self.slots[i].0,
            life: self.slots[i].1,
            prefill_tokens: self.prefill_tokens[i],
            kv_blocks: self.kv_blocks[i],
            requests: self.requests[i],
            added_tokens: self.added_tokens[i],
            added_blocks: self.added_blocks[i],
            cost: self.scored[i],
            cached_tokens: self.cached_tokens[i],
            overlap: [self.device[i], self.host[i], self.disk[i]],
            max_num_batched_tokens: self.max_num_batched_tokens[i],
            total_kv_blocks: self.total_kv_blocks[i],
            eligible: self.eligible[i],
            full: self.full[i],
            marked: self.marked[i],
            class_full: self.class_full[i],
        }
    }

    /// Keeps the ranks that `keep` says yes to, in their order.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        let kept: usize = (0..self.len()).filter(|&i| keep(i)).count();
        if kept == self.len() {
            return;
        }
        each_column!(self, column => {
            let mut to = 0;
            for from in 0..column.len() {
                if keep(from) {
                    column[to] = column[from];
                    to += 1;
                }
            }
            column.truncate(to);
        });
    }

    /// The chunks, as ranges.
    fn chunks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let n = self.len();
        (0..n).step_by(CHUNK).map(move |from| from..n.min(from + CHUNK))
    }

    fn columns(&self, at: std::ops::Range<usize>) -> Columns<'_> {
        Columns {
            request: self.request,
            block_size: self.block_size,
            ranks: &self.ranks[at.clone()],
            prefill_tokens: &self.prefill_tokens[at.clone()],
            kv_blocks: &self.kv_blocks[at.clone()],
            requests: &self.requests[at.clone()],
            added_tokens: &self.added_tokens[at.clone()],
            added_blocks: &self.added_blocks[at.clone()],
            cost: &self.cost[at.clone()],
            cached_tokens: &self.cached_tokens[at.clone()],
            device: &self.device[at.clone()],
            host: &self.host[at.clone()],
            disk: &self.disk[at.clone()],
            max_num_batched_tokens: &self.max_num_batched_tokens[at.clone()],
            total_kv_blocks: &self.total_kv_blocks[at],
        }
    }

    /// Shows every rank to an observer. Its panic ends its showing and nothing else.
    pub(crate) fn observe(&self, observer: &dyn Observer) {
        let shown = guarded(
            "observer",
            || observer.name(),
            || {
                for at in self.chunks() {
                    observer.observe(&Observed {
                        columns: self.columns(at.clone()),
                        eligible: &self.eligible[at.clone()],
                        full: &self.full[at.clone()],
                        marked: &self.marked[at.clone()],
                        first: at.start,
                        of: self.len(),
                    });
                }
                Ok(())
            },
        );
        if let Err(error) = shown {
            tracing::warn!(%error, "an observer failed; the request goes on without it");
        }
    }

    /// Leaves the ranks that a filter keeps; it may leave none.
    ///
    /// # Errors
    /// `PolicyFailed`.
    pub(crate) fn filter(&mut self, filter: &dyn Filter) -> Result<(), Error> {
        let mut keep = ArenaVec::with_capacity_in(self.len(), self.ranks.bump());
        keep.resize(self.len(), true);
        guarded(
            "filter",
            || filter.name(),
            || {
                self.chunks()
                    .try_for_each(|at| filter.filter(&self.columns(at.clone()), &mut keep[at]))
            },
        )?;
        self.retain(|i| keep[i]);
        Ok(())
    }

    /// Lets a scorer change the costs.
    ///
    /// # Errors
    /// `PolicyFailed`, also for a cost that is not finite.
    pub(crate) fn score(&mut self, scorer: &dyn Scorer) -> Result<(), Error> {
        let mut scored = ArenaVec::from_iter_in(self.scored.iter().copied(), self.ranks.bump());
        guarded(
            "scorer",
            || scorer.name(),
            || {
                for at in self.chunks() {
                    let costs = &mut scored[at.clone()];
                    scorer.score(&self.columns(at.clone()), costs)?;
                    if let Some(i) = costs.iter().position(|cost| !cost.is_finite()) {
                        let rank = self.ranks[at.start + i];
                        return Err(format!("gave the cost {} to rank {rank}", costs[i]).into());
                    }
                }
                Ok(())
            },
        )?;
        self.scored = scored;
        Ok(())
    }

    /// The index that a picker picks. The table is not empty.
    ///
    /// # Errors
    /// `PolicyFailed`, also for an index out of range.
    pub(crate) fn pick(&self, picker: &dyn Picker, rng: &mut Rng) -> Result<usize, Error> {
        let candidates = Candidates {
            request: self.request,
            ranks: &self.ranks,
            costs: &self.scored,
            random: rng.bits(),
        };
        guarded(
            "picker",
            || picker.name(),
            || {
                let i = picker.pick(&candidates)?;
                let n = self.len();
                if i < n { Ok(i) } else { Err(format!("picked {i} of {n} candidates").into()) }
            },
        )
    }

    /// The engine's own choice by the costs as they stand: the minimum, equals broken without bias,
    /// or a draw by temperature. `None` for an empty table.
    pub(crate) fn choose(&self, temperature: f64, rng: &mut Rng) -> Option<usize> {
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut best, mut ties) = (None, 0);
        for (i, &cost) in self.scored.iter().enumerate() {
            max = max.max(cost);
            if cost < min || best.is_none() {
                (min, best, ties) = (cost, Some(i), 1);
            } else if cost == min {
                ties += 1;
                if rng.below(ties) == 0 {
                    best = Some(i);
                }
            }
        }
        if temperature > 0.0 {
            let cost = |i: usize| Some(self.scored[i]);
            return draw(self.len(), cost, (min, max), temperature, rng);
        }
        best
    }
}

/// Runs host code. Its error, and its panic, become a `PolicyFailed` that says who.
fn guarded<'n, T>(
    role: &str,
    name: impl FnOnce() -> &'n str,
    call: impl FnOnce() -> Result<T, PolicyError>,
) -> Result<T, Error> {
    // What host code leaves broken behind itself is the host's own; of ours, only columns that are
    // thrown away with the failed request are within its reach.
    let what = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error.0,
        Err(panic) => format!("panicked: {}", text_of(panic)),
    };
    let name = catch_unwind(AssertUnwindSafe(|| name().to_owned()));
    let name = name.unwrap_or_else(|panic| format!("(name panicked: {})", text_of(panic)));
    Err(Error::PolicyFailed { what: format!("{role} {name}: {what}") })
}

/// The text of a panic. The payload is dropped here, under guard: that is host code as well.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = match panic.downcast_ref::<&'static str>() {
        Some(text) => (*text).to_owned(),
        None => match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "(no text)".to_owned(),
        },
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
        // A payload that panics when it is dropped, and may do so again: it is left alone.
        std::mem::forget(again);
    }
    text
}

#[cfg(test)]
mod tests;
