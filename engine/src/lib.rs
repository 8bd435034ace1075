//! Which worker rank takes this request; may it go now, must it wait, or must it be refused?
//!
//! `vacancy` is embedded by LLM inference routers and answers that for every request, on whatever
//! thread it arrives, without an actor, a channel or a global lock. It books load per data-parallel
//! rank, sheds by live reject thresholds, holds requests in policy-class queues, and in
//! disaggregated serving gates the prefill hop on the decode pool.
//!
//! ```
//! use vacancy::{Pool, Request, RejectThresholds, Thresholds, WorkerSpec};
//! # fn main() -> Result<(), vacancy::Error> {
//! let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.9))?;
//! let pool = Pool::builder().block_size(16).reject_thresholds(rejects).build()?;
//! for worker in 0..4 {
//!     pool.upsert(WorkerSpec::new(worker).ranks(0, 8).total_kv_blocks(40_000))?;
//! }
//! let booking = pool.book(&Request::new(2048))?; // the load is on the rank now
//! let rank = booking.rank();
//! booking.prefill_completed();                   // its prompt is computed
//! booking.add_output_blocks(1)?;                 // it has grown
//! drop(booking);                                 // all of it comes off, exactly once
//! assert_eq!(pool.load(rank).unwrap().kv_blocks, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # The calls
//!
//! | call | books | waits | when |
//! |---|---|---|---|
//! | [`Pool::select`] | no | no | only the answer is wanted |
//! | [`Pool::book`] | yes, or fails now | no | the router queues elsewhere, or not at all |
//! | [`Pool::admit`] | yes | in its policy class, as a future | the router queues here |
//! | [`Pool::book_leg`] | yes | no | the decode leg of a request admitted at the prefill hop |
//!
//! Hosts that cannot keep a value (FFI, HTTP) use the forms with a [`RequestId`]:
//! [`Pool::book_as`], [`Pool::admit_as`], [`Pool::free`].
//!
//! The clock is handed in: every [`Request`] carries its arrival ([`Request::at`]), and
//! [`Pool::expire`] ends what ends by itself, at [`Pool::next_due`] (or let `timers::drive`, with
//! the `tokio` feature).
//!
//! # How it works
//!
//! A *block* is 64 ranks: every property of a rank is a column of 64, every set of ranks one `u64`
//! per block. One *pass* walks the blocks and does everything that needs a look at a rank in one
//! go. What it concludes is a *proposal*; a compare-and-swap on the one row chosen makes it a
//! booking, and judges the limits again at that instant. Whatever frees load moves the pool's
//! *epoch*; whoever found no room waits on the epoch and nothing else, and is let in on the thread
//! that made the room.
//!
//! The rooms of the house, each using only those above it:
//!
//! - `fleet`: who can be chosen: specs, slots, blocks, the immutable view, eligibility;
//! - `load`: what ranks carry: packed rows, prompt blocks held, mirrors, what workers say;
//! - `limits`: when they are full: thresholds, compiled limits, the live handle;
//! - `pass`: the walk: kernels, cost, pick, the host's own filters and scorers;
//! - `room`: the epoch, who is told, the paired pool;
//! - `queue`: who waits: policy, classes, order, deficit round robin, the waiter, the baton;
//! - `pool`: the front door, and how the rooms work together.
//!
//! Two seams carry all of them: `sync` (atomics, locks and cells, so that the model checker can
//! stand in) and `grace` (what readers may still look at is not reused).
//!
//! # Consistency
//!
//! - A row is always one instant's load of its rank; rows of two ranks are not of one instant.
//! - A booking is judged by the row that it is added to, at that instant, however many threads book.
//! - Fleet, limits and classes of one call are one view, never a mix of two; a change is seen by
//!   the next call.
//! - An epoch taken before a look at rows, and still the same after it, means that nothing was
//!   taken off in between.
//!
//! # Where the field differs
//!
//! For those who migrate: an unknown `max_num_batched_tokens` skips the check (elsewhere: a
//! default); `cached_tokens` is rounded down; a preferred taint is a plain factor on the cost; a
//! class keeps its turn while its credit lasts, also across a time when nothing can go; LoRA counts
//! at the decode side too. Not taken on: prefill load that decays with modelled time, output
//! blocks weighted by expected length, last-come-first-served classes, wire formats of other
//! routers.

mod booking;
mod choice;
mod error;
mod fleet;
mod grace;
mod limits;
mod load;
mod lock;
#[cfg(feature = "metrics")]
pub mod metering;
mod names;
mod pass;
mod pins;
mod pool;
mod prefetch;
mod queue;
mod request;
mod room;
mod sync;
mod time;
#[cfg(feature = "tokio")]
pub mod timers;

pub use booking::{Booking, Expired, Live, Lost, Placed};
pub use choice::{Choice, Forgone, Weights};
pub use error::{Error, LimitKind};
pub use fleet::spec::{MAX_DP_SIZE, WorkerSpec};
pub use limits::handle::RejectThresholds;
pub use limits::rules::RejectScope;
pub use limits::thresholds::{Change, Thresholds, ThresholdsUpdate};
pub use load::events::{EventSink, LoadChange, LoadEvent, RouterId};
pub use load::monitor::Signals;
pub use names::{Attempt, Name, Rank, RequestId, WorkerId};
pub use pass::backend::Backend;
pub use pass::custom::{
    CHUNK, Candidates, Columns, Filter, Observed, Observer, Picker, PolicyError, Scorer,
};
pub use pool::{
    Admit, AdmitAs, Admitted, AdmittedAs, Applied, ClassLoad, Classification, Classifier, Counters,
    DEFAULT_LEASE, DEFAULT_SIGNAL_TTL, Hold, Idle, OverlapRefresh, Pool, PoolBuilder, RankLoad,
    RefusedLeg, RoomFilter, SeenRank, Snapshot, Standing, Why, has_room,
};
pub use queue::policy::{
    ClassId, ClassSpec, MAX_CLASSES, Policy, Profile, QueueLimits, QueuePolicy,
};
#[cfg(feature = "yaml")]
pub use queue::yaml::{MAX_POLICY_BYTES, PolicyDocument};
pub use request::{Constraints, Overlap, Overrides, Prompt, Request, Target};
pub use room::pair::{HoldOffer, PairAsk, PairRoom, PairWaker, PairedPool};
pub use room::signal::{Epoch, RoomChanged};
pub use time::Time;
