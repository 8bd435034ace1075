//! Lock-free admission and placement for LLM inference routers.

mod booking;
mod choice;
mod error;
mod fleet;
mod grace;
mod limits;
mod load;
mod names;
mod pass;
mod pins;
mod pool;
mod queue;
mod request;
mod room;
mod sync;
mod time;

pub use booking::{Booking, Expired, Live, Lost, Placed};
pub use choice::{Choice, Forgone, Weights};
pub use error::{Error, LimitKind};
pub use fleet::spec::{MAX_DP_SIZE, WorkerSpec};
pub use limits::handle::RejectThresholds;
pub use limits::rules::RejectScope;
pub use limits::thresholds::{Change, Thresholds, ThresholdsUpdate};
pub use load::monitor::Signals;
pub use names::{Attempt, Name, Rank, RequestId, WorkerId};
pub use pass::backend::Backend;
pub use pass::custom::{
    CHUNK, Candidates, Columns, Filter, Observed, Observer, Picker, PolicyError, Scorer,
};
pub use pool::{
    Admit, AdmitAs, Admitted, AdmittedAs, Counters, DEFAULT_LEASE, DEFAULT_SIGNAL_TTL, Hold, Idle,
    Pool, PoolBuilder, RankLoad, RefusedLeg, RoomFilter, Snapshot, Standing, Why,
};
pub use queue::policy::{ClassId, ClassSpec, Policy, Profile, QueueLimits, QueuePolicy};
pub use request::{Constraints, Overlap, Overrides, Prompt, Request, Target};
pub use room::pair::{HoldOffer, PairAsk, PairRoom, PairWaker, PairedPool};
pub use room::signal::{Epoch, RoomChanged};
pub use time::Time;
