//! Lock-free admission and placement for LLM inference routers.

mod choice;
mod error;
mod fleet;
mod limits;
mod names;
mod queue;
mod request;
mod room;
mod sync;
mod time;

pub use choice::{Choice, Forgone, Weights};
pub use error::{Error, LimitKind};
pub use fleet::spec::{MAX_DP_SIZE, WorkerSpec};
pub use limits::thresholds::{Change, Thresholds, ThresholdsUpdate};
pub use names::{Attempt, Name, Rank, RequestId, WorkerId};
pub use request::{Constraints, Overlap, Overrides, Prompt, Request, Target};
pub use room::signal::{Epoch, RoomChanged};
pub use time::Time;
