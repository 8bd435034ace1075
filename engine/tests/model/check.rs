//! What is looked at before any rank is.

use super::Model;
use super::answer::Refusal;
use vacancy::{Error, Request, RequestId};

impl Model {
    /// What is looked at before any rank is. The clock moves on only for a request that the pool
    /// can read.
    pub(super) fn checked(
        &mut self,
        request: &Request,
        id: Option<RequestId>,
    ) -> Result<(), Refusal> {
        self.acceptable(request)?;
        self.unknown(id)?;
        self.in_time(request)
    }

    /// Whether its due time, if it has one that counts, is still to come.
    pub(super) fn in_time(&self, request: &Request) -> Result<(), Refusal> {
        if !request.upstream && request.due.is_some_and(|due| self.clock >= due) {
            return Err(Error::DeadlineExceeded.into());
        }
        Ok(())
    }

    pub(super) fn acceptable(&mut self, request: &Request) -> Result<(), Refusal> {
        if self.closed {
            return Err(Error::Closed.into());
        }
        let bad = invalid(request, self.config.block_size);
        if !bad.is_empty() {
            return Err(Refusal::Request(bad));
        }
        self.clock = self.clock.max(request.now);
        Ok(())
    }

    /// Whether nothing lives or waits under `id`.
    pub(super) fn unknown(&self, id: Option<RequestId>) -> Result<(), Refusal> {
        let waits = |id| self.queue.waiting.values().any(|w| w.id == Some(id));
        match id {
            Some(id) if self.ids.contains_key(&id) || waits(id) => {
                Err(Error::DuplicateRequest { id }.into())
            }
            _ => Ok(()),
        }
    }
}

/// Names of the fields of `request` that a pool with this block size cannot take.
pub fn invalid(request: &Request, block_size: u32) -> Vec<&'static str> {
    let mut bad = Vec::new();
    let mut refuse = |field, wrong: bool| {
        if wrong {
            bad.push(field);
        }
    };
    let weight = |v: f64| !v.is_finite() || v < 0.0;
    let over = |v: Option<f64>| v.is_some_and(weight);

    refuse("isl", request.isl > u64::from(u32::MAX));
    let whole = request.isl.div_ceil(u64::from(block_size));
    let too_many = request.prompt.as_ref().is_some_and(|p| p.hashes().len() as u64 > whole);
    refuse("block_hashes", too_many);
    for o in request.overlaps.iter().flat_map(|list| list.iter()) {
        refuse("overlaps.device", weight(o.device));
        refuse("overlaps.host", weight(o.host));
        refuse("overlaps.disk", weight(o.disk));
    }
    for c in request.constraints.iter().chain(&request.decode) {
        refuse("prefer", c.prefer.iter().any(|(_, f)| f.is_nan() || *f <= 0.0 || *f > 1.0));
    }
    if let Some(o) = request.overrides {
        refuse("override.device", over(o.device));
        refuse("override.prefill_scale", over(o.prefill_scale));
        refuse("override.shared", over(o.shared));
        refuse("override.temperature", over(o.temperature));
    }
    bad
}
