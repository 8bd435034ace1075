//! What a host says of a request.
//!
//! A [`Request`] owns what it carries, so that it can wait; what both hops need and may be large
//! (prompt hashes, constraints) is shared, so that neither hop copies it.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::names::{Name, Rank, WorkerId};
use crate::time::Time;
use std::ops::Range;
use std::sync::Arc;

/// The block hashes of a prompt: a chain, each hash standing for the whole prefix up to it.
///
/// Checked once, when it is made, and shared by every call of the request after that.
#[derive(Clone, PartialEq, Eq)]
pub struct Prompt {
    hashes: Arc<[u64]>,
}

impl Prompt {
    /// Takes a chain of block hashes. `O(n)`.
    ///
    /// # Errors
    /// `InvalidRequest` if a hash stands in the chain twice.
    pub fn new(hashes: impl Into<Arc<[u64]>>) -> Result<Prompt, Error> {
        let hashes = hashes.into();
        match repeated(&hashes) {
            Some(hash) => Err(Error::request("block_hashes", format!("{hash:#x} twice"))),
            None => Ok(Prompt { hashes }),
        }
    }

    /// The chain.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// How many blocks it names.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub(crate) fn shared(&self) -> &Arc<[u64]> {
        &self.hashes
    }
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prompt({} blocks)", self.len())
    }
}

/// The first hash found to stand in `chain` twice. Short chains are compared pairwise, which
/// allocates nothing; longer ones are sorted aside.
fn repeated(chain: &[u64]) -> Option<u64> {
    if chain.len() <= 32 {
        return chain.iter().enumerate().find(|(i, h)| chain[..*i].contains(h)).map(|(_, &h)| h);
    }
    let mut sorted = chain.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|w| w[0] == w[1]).map(|w| w[0])
}

/// How much of a prompt one rank has cached, in KV blocks per tier. Tiers are disjoint: `host` is
/// what lies beyond `device`, `disk` what lies beyond both. Fractions are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// The rank.
    pub rank: Rank,
    /// Blocks in device memory.
    pub device: f64,
    /// Blocks in host memory, beyond those in device memory.
    pub host: f64,
    /// Blocks on disk, beyond those in device and host memory.
    pub disk: f64,
}

impl Overlap {
    /// An overlap of `blocks` in device memory.
    pub fn device(rank: Rank, blocks: f64) -> Overlap {
        Overlap { rank, device: blocks, host: 0.0, disk: 0.0 }
    }

    fn validate(&self) -> Result<(), Error> {
        for (field, v) in [
            ("overlaps.device", self.device),
            ("overlaps.host", self.host),
            ("overlaps.disk", self.disk),
        ] {
            if !(v.is_finite() && v >= 0.0) {
                return Err(Error::request(field, v));
            }
        }
        Ok(())
    }
}

/// A worker, and maybe one of its ranks: a pin (hard) or a session-affinity target (soft).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The worker.
    pub worker: WorkerId,
    /// The rank; `None`: any rank of the worker.
    pub dp_rank: Option<u32>,
}

impl Target {
    /// Any rank of `worker`.
    pub const fn worker(worker: u64) -> Target {
        Target { worker: WorkerId(worker), dp_rank: None }
    }

    /// The rank `dp_rank` of `worker`.
    pub const fn rank(worker: u64, dp_rank: u32) -> Target {
        Target { worker: WorkerId(worker), dp_rank: Some(dp_rank) }
    }
}

/// Which ranks a request may use at one hop.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Constraints {
    /// Hard: never another worker, never another rank than the one named.
    pub pin: Option<Target>,
    /// Soft: exclusive if it passes every check, ignored otherwise.
    pub affinity: Option<Target>,
    /// Only these workers; given but empty allows nobody.
    pub allow: Option<Vec<WorkerId>>,
    /// Not these workers.
    pub deny: Vec<WorkerId>,
    /// Taints that the worker must have, all of them.
    pub taints: Vec<Name>,
    /// Soft taints: the cost of a rank whose worker has the taint is multiplied by the factor,
    /// in `(0, 1]`.
    pub prefer: Vec<(Name, f64)>,
    /// The worker's domain at each of these topology levels must be equal.
    pub domain: Vec<(Name, Name)>,
}

impl Constraints {
    /// No constraint.
    pub fn new() -> Constraints {
        Constraints::default()
    }

    /// Pins the request.
    #[must_use]
    pub fn pin(mut self, target: Target) -> Self {
        self.pin = Some(target);
        self
    }

    /// Sets the session-affinity target.
    #[must_use]
    pub fn affinity(mut self, target: Target) -> Self {
        self.affinity = Some(target);
        self
    }

    /// Allows these workers only.
    #[must_use]
    pub fn allow(mut self, workers: impl IntoIterator<Item = u64>) -> Self {
        self.allow = Some(workers.into_iter().map(WorkerId).collect());
        self
    }

    /// Denies these workers.
    #[must_use]
    pub fn deny(mut self, workers: impl IntoIterator<Item = u64>) -> Self {
        self.deny = workers.into_iter().map(WorkerId).collect();
        self
    }

    /// Requires a taint.
    #[must_use]
    pub fn taint(mut self, taint: impl Into<Name>) -> Self {
        self.taints.push(taint.into());
        self
    }

    /// Prefers a taint, with its cost factor.
    #[must_use]
    pub fn prefer(mut self, taint: impl Into<Name>, factor: f64) -> Self {
        self.prefer.push((taint.into(), factor));
        self
    }

    /// Requires a domain at a topology level.
    #[must_use]
    pub fn domain(mut self, level: impl Into<Name>, value: impl Into<Name>) -> Self {
        self.domain.push((level.into(), value.into()));
        self
    }

    /// Whether it takes any rank out (soft preferences do not).
    pub(crate) fn restricts(&self) -> bool {
        self.pin.is_some() || self.restricts_beside_pin()
    }

    fn restricts_beside_pin(&self) -> bool {
        self.allow.is_some()
            || !self.deny.is_empty()
            || !self.taints.is_empty()
            || !self.domain.is_empty()
    }

    fn validate(&self) -> Result<(), Error> {
        for (taint, factor) in &self.prefer {
            if !(*factor > 0.0 && *factor <= 1.0) {
                return Err(Error::request("prefer", format!("{taint}: {factor}")));
            }
        }
        Ok(())
    }
}

/// Per-request values for some of the pool's [`Weights`](crate::Weights).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Overrides {
    /// Credit for a block cached on the device.
    pub device: Option<f64>,
    /// Factor on the prefill part of the cost.
    pub prefill_scale: Option<f64>,
    /// Credit for a shared hit beyond the device's.
    pub shared: Option<f64>,
    /// Temperature of the choice; 0 takes the minimum.
    pub temperature: Option<f64>,
    /// Whether the prefill part of the cost is looked at and the prompt's tokens are booked.
    pub track_prefill: Option<bool>,
}

impl Overrides {
    fn validate(&self) -> Result<(), Error> {
        for (field, v) in [
            ("override.device", self.device),
            ("override.prefill_scale", self.prefill_scale),
            ("override.shared", self.shared),
            ("override.temperature", self.temperature),
        ] {
            if let Some(v) = v
                && !(v.is_finite() && v >= 0.0)
            {
                return Err(Error::request(field, v));
            }
        }
        Ok(())
    }
}

/// One request at one hop.
///
/// ```
/// use vacancy::{Constraints, Overlap, Prompt, Rank, Request, Target};
/// # fn main() -> Result<(), vacancy::Error> {
/// let request = Request::new(4096)
///     .prompt(Prompt::new([1, 2, 3, 4])?)
///     .overlaps([Overlap::device(Rank::new(7, 0), 2.0)])
///     .constraints(Constraints::new().taint("gold"));
/// assert_eq!(request.isl, 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Prompt length in tokens (input sequence length); must fit 32 bits.
    pub isl: u64,
    /// When it arrived, on the host's clock.
    pub now: Time,
    /// The prompt's block hashes; without them its blocks are never shared.
    pub prompt: Option<Prompt>,
    /// What ranks have cached of the prompt; ranks not listed have nothing. Of two entries for one
    /// rank the last one stands.
    pub overlaps: Option<Arc<[Overlap]>>,
    /// Block positions that a shared cache holds, sorted and disjoint.
    pub shared: Vec<Range<u32>>,
    /// Which ranks it may use at this hop.
    pub constraints: Option<Arc<Constraints>>,
    /// The LoRA adapter it needs.
    pub lora: Option<Name>,
    /// Which ranks it may use at the decode hop, if that is known at the prefill hop.
    pub decode: Option<Arc<Constraints>>,
    /// Policy class or family.
    pub class: Option<Name>,
    /// Refuse (`UnknownClass`) a `class` that names neither a class nor a family.
    pub strict_class: bool,
    /// Higher goes first within its class.
    pub strict_priority: i64,
    /// Seconds (fcfs) or a factor (wspt) by which it jumps the queue; not finite or negative
    /// counts as 0.
    pub priority_jump: f64,
    /// When it must have been admitted.
    pub due: Option<Time>,
    /// Refuse (`WouldQueue`) rather than wait.
    pub do_not_queue: bool,
    /// Its prefill leg runs already: no class wait, no due time, ahead of the backlog.
    pub upstream: bool,
    /// Per-request weights.
    pub overrides: Option<Overrides>,
    /// Makes the drawing of this request (ties, temperature) reproducible on its own.
    pub seed: Option<u64>,
    /// Tokens it costs its class's turn, if a classifier said so; else its uncached tokens.
    pub(crate) cost: Option<u64>,
}

impl Request {
    /// A request with a prompt of `isl` tokens and nothing else.
    pub fn new(isl: u64) -> Request {
        Request {
            isl,
            now: Time::ZERO,
            prompt: None,
            overlaps: None,
            shared: Vec::new(),
            constraints: None,
            lora: None,
            decode: None,
            class: None,
            strict_class: false,
            strict_priority: 0,
            priority_jump: 0.0,
            due: None,
            do_not_queue: false,
            upstream: false,
            overrides: None,
            seed: None,
            cost: None,
        }
    }

    /// Sets when it arrived.
    #[must_use]
    pub fn at(mut self, now: Time) -> Self {
        self.now = now;
        self
    }

    /// Sets the block hashes.
    #[must_use]
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        self.prompt = Some(prompt);
        self
    }

    /// Sets what ranks have cached.
    #[must_use]
    pub fn overlaps(mut self, overlaps: impl Into<Arc<[Overlap]>>) -> Self {
        let overlaps = overlaps.into();
        self.overlaps = (!overlaps.is_empty()).then_some(overlaps);
        self
    }

    /// Sets the block positions that a shared cache holds, as half-open ranges in any order; they
    /// may touch or overlap.
    #[must_use]
    pub fn shared(mut self, hits: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut hits: Vec<_> = hits.into_iter().filter(|r| r.start < r.end).collect();
        hits.sort_unstable_by_key(|r| r.start);
        let mut merged: Vec<Range<u32>> = Vec::with_capacity(hits.len());
        for hit in hits {
            match merged.last_mut() {
                Some(last) if hit.start <= last.end => last.end = last.end.max(hit.end),
                _ => merged.push(hit),
            }
        }
        self.shared = merged;
        self
    }

    /// Sets which ranks it may use at this hop.
    #[must_use]
    pub fn constraints(mut self, constraints: impl Into<Arc<Constraints>>) -> Self {
        self.constraints = Some(constraints.into());
        self
    }

    /// Sets which ranks it may use at the decode hop.
    #[must_use]
    pub fn decode(mut self, constraints: impl Into<Arc<Constraints>>) -> Self {
        self.decode = Some(constraints.into());
        self
    }

    /// Sets the LoRA adapter.
    #[must_use]
    pub fn lora(mut self, adapter: impl Into<Name>) -> Self {
        self.lora = Some(adapter.into());
        self
    }

    /// Names its policy class or family.
    #[must_use]
    pub fn class(mut self, class: impl Into<Name>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Sets its strict priority.
    #[must_use]
    pub fn strict_priority(mut self, priority: i64) -> Self {
        self.strict_priority = priority;
        self
    }

    /// Sets its priority jump.
    #[must_use]
    pub fn priority_jump(mut self, jump: f64) -> Self {
        self.priority_jump = jump;
        self
    }

    /// Sets its due time.
    #[must_use]
    pub fn due(mut self, due: Time) -> Self {
        self.due = Some(due);
        self
    }

    /// Refuses to wait.
    #[must_use]
    pub fn do_not_queue(mut self) -> Self {
        self.do_not_queue = true;
        self
    }

    /// Says that its prefill leg runs already.
    #[must_use]
    pub fn upstream(mut self) -> Self {
        self.upstream = true;
        self
    }

    /// Sets per-request weights.
    #[must_use]
    pub fn overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = Some(overrides);
        self
    }

    /// Makes its drawing reproducible.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The request as its decode pool sees it: none of the prefill side's constraints or overlaps.
    pub(crate) fn at_decode(&self) -> Request {
        let mut leg = Request::new(self.isl).at(self.now);
        leg.prompt = self.prompt.clone();
        leg.constraints = self.decode.clone();
        leg.lora = self.lora.clone();
        leg.seed = self.seed;
        leg
    }

    /// Whether its class's answer for everybody says nothing of it, pin aside.
    pub(crate) fn is_constrained(&self) -> bool {
        self.lora.is_some()
            || self.decode.is_some()
            || self.constraints.as_ref().is_some_and(|c| c.restricts_beside_pin())
    }

    /// Whether its class's answer for everybody says nothing of it.
    pub(crate) fn is_constrained_or_pinned(&self) -> bool {
        self.is_constrained() || self.constraints.as_ref().is_some_and(|c| c.pin.is_some())
    }

    /// The priority jump that counts: not finite or negative is 0.
    pub(crate) fn jump(&self) -> f64 {
        if self.priority_jump.is_finite() { self.priority_jump.max(0.0) } else { 0.0 }
    }

    /// Checks the fields, against the pool's block size, and counts the prompt's blocks.
    ///
    /// # Errors
    /// `InvalidRequest` naming the field.
    pub fn blocks(&self, block_size: u32) -> Result<u32, Error> {
        let Ok(isl) = u32::try_from(self.isl) else {
            return Err(Error::request("isl", self.isl));
        };
        let whole = isl.div_ceil(block_size);
        let blocks = match &self.prompt {
            None => whole,
            Some(p) if p.len() > whole as usize => {
                let value = format!("{} hashes for {whole} blocks", p.len());
                return Err(Error::request("block_hashes", value));
            }
            Some(p) => p.len() as u32,
        };
        for o in self.overlaps.iter().flat_map(|o| o.iter()) {
            o.validate()?;
        }
        if let Some(c) = &self.constraints {
            c.validate()?;
        }
        if let Some(c) = &self.decode {
            c.validate()?;
        }
        if let Some(o) = &self.overrides {
            o.validate()?;
        }
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_twice_in_a_chain_is_refused() {
        assert!(Prompt::new([1, 2, 1]).is_err());
        let mut long: Vec<u64> = (0..1000).collect();
        assert!(Prompt::new(long.clone()).is_ok());
        long[999] = 3;
        assert!(Prompt::new(long).is_err());
    }

    #[test]
    fn shared_ranges_are_merged() {
        let r = Request::new(1).shared([5..7, 0..2, 1..3, 9..9]);
        assert_eq!(r.shared, [0..3, 5..7]);
    }

    #[test]
    fn more_hashes_than_blocks_and_wide_prompts_are_refused() {
        let p = Prompt::new([1, 2, 3]).unwrap();
        assert_eq!(Request::new(33).prompt(p.clone()).blocks(16), Ok(3));
        assert_eq!(Request::new(100).prompt(p.clone()).blocks(16), Ok(3));
        assert!(Request::new(32).prompt(p).blocks(16).is_err());
        assert_eq!(Request::new(0).blocks(16), Ok(0));
        assert!(Request::new(1 << 32).blocks(16).is_err());
    }
}
