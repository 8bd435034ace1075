//! What workers say of themselves; see `load::monitor`.
#![forbid(unsafe_code)]

use crate::load::monitor::Signals;
use crate::names::Rank;
use crate::pool::Pool;
use crate::time::Time;

impl Pool {
    /// Takes in what a worker says of one of its ranks at `now`. A worker all of whose ranks are
    /// above the reject thresholds' `decode_frac` is skipped like an overloaded one (with
    /// [`RejectScope::Rank`](crate::RejectScope::Rank), each such rank by itself). `false`: the rank
    /// is not declared, and nothing was taken in. Blocks on changes of the fleet only.
    pub fn observe(&self, rank: Rank, signals: Signals, now: Time) -> bool {
        let now = self.inner().show(now);
        self.inner().edit_known(|writer| writer.observe(rank, signals, now))
    }
}
