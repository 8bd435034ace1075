//! Draining a worker: wait until no request is left on it.
#![forbid(unsafe_code)]

use crate::names::WorkerId;
use crate::pool::Pool;
use crate::room::signal::RoomChanged;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Ready once no request is left on a worker; see [`Pool::idle`].
#[must_use = "futures do nothing unless polled"]
pub struct Idle {
    pool: Pool,
    worker: WorkerId,
    changed: Option<RoomChanged>,
}

impl Pool {
    /// Waits until no request is left on a worker: booked here, by value or by id. To drain one,
    /// make it unavailable first. A worker that is not declared is idle. Any executor can poll it;
    /// [`Idle::wait`] blocks a thread.
    pub fn idle(&self, worker: WorkerId) -> Idle {
        Idle { pool: self.clone(), worker, changed: None }
    }

    /// Whether no request is on a worker now.
    pub fn is_idle(&self, worker: WorkerId) -> bool {
        self.inner().requests_on(worker) == 0
    }
}

impl Idle {
    /// Blocks this thread until the worker is idle.
    pub fn wait(self) {
        loop {
            let epoch = self.pool.epoch();
            if self.pool.is_idle(self.worker) {
                return;
            }
            self.pool.room_changed(epoch).wait();
        }
    }
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // The epoch before the look: every request that leaves moves it after its count.
            let epoch = self.pool.epoch();
            if self.pool.is_idle(self.worker) {
                self.changed = None;
                return Poll::Ready(());
            }
            let changed = self.pool.room_changed(epoch);
            let changed = self.changed.insert(changed);
            if Pin::new(changed).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("worker", &self.worker).finish_non_exhaustive()
    }
}
