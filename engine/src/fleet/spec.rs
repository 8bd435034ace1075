//! What a host says of a worker.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::names::{Name, WorkerId};

/// Most ranks one worker may declare.
pub const MAX_DP_SIZE: u32 = 4096;

/// One worker as the host declares it: its ranks, what each of them can carry, and what may be
/// asked of it.
///
/// ```
/// use vacancy::WorkerSpec;
/// let spec = WorkerSpec::new(7)
///     .ranks(0, 8)
///     .max_num_batched_tokens(8192)
///     .total_kv_blocks(40_000)
///     .taint("gold")
///     .domain("zone", "a")
///     .lora("adapter-1");
/// assert!(spec.validate().is_ok());
/// assert!(spec.ranks(u32::MAX, 2).validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerSpec {
    /// The worker's id.
    pub id: WorkerId,
    /// Number of its first rank.
    pub data_parallel_start_rank: u32,
    /// How many ranks it has, 1 to 4,096.
    pub data_parallel_size: u32,
    /// Tokens one rank batches at most; unknown skips the checks that need it.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks one rank has; unknown (or 0) skips the checks that need it.
    pub total_kv_blocks: Option<u64>,
    /// Taints that requests may require or prefer.
    pub taints: Vec<Name>,
    /// Topology: the worker's domain at each level.
    pub domains: Vec<(Name, Name)>,
    /// LoRA adapters that are loaded.
    pub loras: Vec<Name>,
    /// An id that outlives the process; carried, without effect on the choice.
    pub stable_id: Option<Name>,
}

impl WorkerSpec {
    /// A worker with one rank, 0, of unknown capacity.
    pub fn new(id: u64) -> WorkerSpec {
        WorkerSpec {
            id: WorkerId(id),
            data_parallel_start_rank: 0,
            data_parallel_size: 1,
            max_num_batched_tokens: None,
            total_kv_blocks: None,
            taints: Vec::new(),
            domains: Vec::new(),
            loras: Vec::new(),
            stable_id: None,
        }
    }

    /// Declares the ranks `start .. start + size`.
    #[must_use]
    pub fn ranks(mut self, start: u32, size: u32) -> Self {
        self.data_parallel_start_rank = start;
        self.data_parallel_size = size;
        self
    }

    /// Sets what one rank batches at most, in tokens.
    #[must_use]
    pub fn max_num_batched_tokens(mut self, tokens: u64) -> Self {
        self.max_num_batched_tokens = Some(tokens);
        self
    }

    /// Sets how many KV blocks one rank has; 0 counts as unknown.
    #[must_use]
    pub fn total_kv_blocks(mut self, blocks: u64) -> Self {
        self.total_kv_blocks = Some(blocks);
        self
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, taint: impl Into<Name>) -> Self {
        self.taints.push(taint.into());
        self
    }

    /// Puts the worker into `value` at topology level `level`.
    #[must_use]
    pub fn domain(mut self, level: impl Into<Name>, value: impl Into<Name>) -> Self {
        self.domains.push((level.into(), value.into()));
        self
    }

    /// Adds a loaded LoRA adapter.
    #[must_use]
    pub fn lora(mut self, adapter: impl Into<Name>) -> Self {
        self.loras.push(adapter.into());
        self
    }

    /// Sets the id that outlives the process.
    #[must_use]
    pub fn stable_id(mut self, id: impl Into<Name>) -> Self {
        self.stable_id = Some(id.into());
        self
    }

    /// Checks what a pool would check.
    ///
    /// # Errors
    /// `InvalidConfig` for a size of 0 or above [`MAX_DP_SIZE`], a rank range past `u32::MAX`, or
    /// one topology level given twice.
    pub fn validate(&self) -> Result<(), Error> {
        if self.data_parallel_size == 0 || self.data_parallel_size > MAX_DP_SIZE {
            return Err(Error::config("data_parallel_size", self.data_parallel_size));
        }
        // The last rank must be a u32; the end of the half-open range may be one more.
        let last =
            u64::from(self.data_parallel_start_rank) + u64::from(self.data_parallel_size) - 1;
        if last > u64::from(u32::MAX) {
            return Err(Error::config(
                "data_parallel_start_rank",
                format!(
                    "{} (with {} ranks, past {})",
                    self.data_parallel_start_rank,
                    self.data_parallel_size,
                    u32::MAX
                ),
            ));
        }
        for (i, (level, _)) in self.domains.iter().enumerate() {
            if self.domains[..i].iter().any(|(l, _)| l == level) {
                return Err(Error::config("domains", format!("level {level} given twice")));
            }
        }
        Ok(())
    }
}
