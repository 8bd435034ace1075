//! What a selection answers, and what it weighs.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::names::{Name, Rank};
use crate::request::Overrides;

/// What the cost of a rank is made of. Credits are per cached KV block; the cost is in blocks.
///
/// ```text
/// raw_prefill = active_prefill_tokens + isl                    (0 if prefill is not tracked)
/// credit      = device * device_blocks + host * host_blocks + disk * disk_blocks
///             + shared * shared_beyond_device
/// cost        = prefill_scale * max(0, raw_prefill / block_size - credit)
///             + KV blocks held + prompt blocks not held yet    (0 if blocks are not tracked)
///             + request * active_requests
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Weights {
    /// Credit for a block cached on the device (default 1).
    pub device: f64,
    /// Credit for a block cached in host memory (default 0.75).
    pub host: f64,
    /// Credit for a block cached on disk (default 0.25).
    pub disk: f64,
    /// Credit for a block of a shared cache beyond the device's blocks (default 0).
    pub shared: f64,
    /// Factor on the prefill part (default 1).
    pub prefill_scale: f64,
    /// Cost of one active request (default 0).
    pub request: f64,
    /// How fast `device` decays with the rank's prefill backlog over the least loaded eligible
    /// rank (default 0, no decay).
    pub decay: f64,
    /// Temperature of the choice (default 0: the minimum).
    pub temperature: f64,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights {
            device: 1.0,
            host: 0.75,
            disk: 0.25,
            shared: 0.0,
            prefill_scale: 1.0,
            request: 0.0,
            decay: 0.0,
            temperature: 0.0,
        }
    }
}

impl Weights {
    /// Checks that every weight is finite and `>= 0`.
    ///
    /// # Errors
    /// `InvalidConfig` naming the weight.
    pub fn validate(&self) -> Result<(), Error> {
        for (field, v) in [
            ("weights.device", self.device),
            ("weights.host", self.host),
            ("weights.disk", self.disk),
            ("weights.shared", self.shared),
            ("weights.prefill_scale", self.prefill_scale),
            ("weights.request", self.request),
            ("weights.decay", self.decay),
            ("weights.temperature", self.temperature),
        ] {
            if !(v.is_finite() && v >= 0.0) {
                return Err(Error::config(field, v));
            }
        }
        Ok(())
    }

    /// These weights with a request's own values put in.
    pub(crate) fn with(mut self, over: Option<&Overrides>) -> Weights {
        if let Some(o) = over {
            self.device = o.device.unwrap_or(self.device);
            self.prefill_scale = o.prefill_scale.unwrap_or(self.prefill_scale);
            self.shared = o.shared.unwrap_or(self.shared);
            self.temperature = o.temperature.unwrap_or(self.temperature);
        }
        self
    }
}

/// What a selection answers: the rank, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The rank that takes the request.
    pub rank: Rank,
    /// Its worker's stable id, if it has one.
    pub stable_id: Option<Name>,
    /// Its cost, in blocks.
    pub cost: f64,
    /// Prompt tokens that it has cached.
    pub cached_tokens: u32,
    /// Blocks that it has cached, per tier: device, host, disk.
    pub overlap: [f64; 3],
    /// How many ranks were structurally eligible.
    pub eligible: u32,
    /// How many of them were past the reject thresholds.
    pub full: u32,
    /// The eligible rank with more cached blocks (all tiers) than the chosen one, if there was
    /// one: what the choice gave up.
    pub forgone: Option<Forgone>,
}

/// A larger overlap that a choice gave up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Forgone {
    /// The rank that has it.
    pub rank: Rank,
    /// Its cached blocks, all tiers.
    pub blocks: f64,
}
