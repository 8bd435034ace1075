//! The waiting room: the lock around a queue, the count that the fast path reads, and the
//! queue's interest in room signals.
//!
//! ```text
//! enter                                   leave
//!   lock                                    lock
//!     closed? refused                         the entry is still there? out with it
//!     push; count + 1                         count - 1
//!     first? register                         last? withdraw
//!   unlock; drain (that is the look)        unlock; wake, give back, drop
//! ```
//!
//! Always: the count is the number of entries, and changes with them, under the lock, once each.
//! An entry stays, and is counted, until it leaves for good: one that was taken out to be tried
//! and put back would be missed by a release, or by a newcomer's fast path, in between. Who leaves
//! is settled by whether the entry was still there, so a canceller and a drainer that both try
//! take one from the count and not two.
//!
//! Always: while the count is above zero the queue is registered at each of its signals, its own
//! and its pair's. It counts first and registers then, as `room::signal` asks.
//!
//! *Closed* is looked at under the lock that `close` empties the queue under: an entry is either
//! seen by the close or refused by it. Looked at before the lock, it can enter a closed queue and
//! sleep there.
//!
//! The fast path reads the count and takes no lock: at zero, nobody waits who could be overtaken.
#![forbid(unsafe_code)]

use crate::room::signal::RoomSignal;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

/// The pool is closed: nothing enters any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// A queue `Q` behind its lock. See the head of this file.
pub(crate) struct Waiting<Q> {
    count: AtomicUsize,
    inner: Mutex<Inner<Q>>,
}

struct Inner<Q> {
    queue: Q,
    /// Where the queue is registered while something waits.
    signals: Vec<Arc<RoomSignal>>,
    closed: bool,
}

impl<Q> Waiting<Q> {
    /// An empty queue, interested in its own pool's signal.
    pub(crate) fn new(queue: Q, own: Arc<RoomSignal>) -> Waiting<Q> {
        Waiting {
            count: AtomicUsize::new(0),
            inner: Mutex::new(Inner { queue, signals: vec![own], closed: false }),
        }
    }

    /// How many wait. Lock-free; what a party that is told looks at.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        // Relaxed: a release that saw the registration has acquired the count, which came first.
        self.count.load(Ordering::Relaxed)
    }

    /// Lets one in, or nobody if `push` refuses. `push` runs under the lock and must run no host
    /// code. Then drain: that is the look that finds the room which came in between.
    pub(crate) fn enter<E, R>(
        &self,
        push: impl FnOnce(&mut Q) -> Result<E, R>,
    ) -> Result<Result<E, R>, Closed> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Closed);
        }
        let entered = match push(&mut inner.queue) {
            Ok(entered) => entered,
            Err(refused) => return Ok(Err(refused)),
        };
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            for signal in &inner.signals {
                signal.register();
            }
        }
        Ok(Ok(entered))
    }

    /// Takes one out for good: `take` gives it if it is still there. Runs under the lock; wake,
    /// give back and drop afterwards.
    pub(crate) fn leave<E>(&self, take: impl FnOnce(&mut Q) -> Option<E>) -> Option<E> {
        let mut inner = self.inner.lock();
        let left = take(&mut inner.queue)?;
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            inner.signals.iter().for_each(|signal| signal.withdraw());
        }
        Some(left)
    }

    /// Looks at the queue, or changes it without anybody entering or leaving; under the lock.
    pub(crate) fn with<A>(&self, look: impl FnOnce(&mut Q) -> A) -> A {
        look(&mut self.inner.lock().queue)
    }

    /// Closes: nobody enters any more. Gives what `empty` takes out of the queue, which must be
    /// all of it; wake and drop it afterwards.
    pub(crate) fn close<A>(&self, empty: impl FnOnce(&mut Q) -> A) -> A {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let emptied = empty(&mut inner.queue);
        if self.count.swap(0, Ordering::Relaxed) > 0 {
            inner.signals.iter().for_each(|signal| signal.withdraw());
        }
        emptied
    }

    /// Adds a signal that may let somebody in. If something waits, drain afterwards: it may have
    /// room already.
    pub(crate) fn attach(&self, signal: Arc<RoomSignal>) {
        let mut inner = self.inner.lock();
        if self.count() > 0 {
            signal.register();
        }
        inner.signals.push(signal);
    }

    /// Takes away a signal that was attached. Gives whether it was there.
    pub(crate) fn detach(&self, signal: &Arc<RoomSignal>) -> bool {
        let detached = {
            let mut inner = self.inner.lock();
            let Some(at) = inner.signals.iter().rposition(|s| Arc::ptr_eq(s, signal)) else {
                return false;
            };
            if self.count() > 0 {
                signal.withdraw();
            }
            inner.signals.swap_remove(at)
        };
        drop(detached);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> (Waiting<Vec<u32>>, Arc<RoomSignal>) {
        let signal = Arc::new(RoomSignal::new());
        (Waiting::new(Vec::new(), signal.clone()), signal)
    }

    fn push(waiting: &Waiting<Vec<u32>>, entry: u32) -> Result<(), Closed> {
        let push = |queue: &mut Vec<u32>| {
            queue.push(entry);
            Ok::<(), ()>(())
        };
        waiting.enter(push).map(|pushed| pushed.expect("it takes anybody"))
    }

    #[test]
    fn one_who_is_refused_has_not_entered() {
        let (waiting, signal) = waiting();
        assert_eq!(waiting.enter(|_| Err::<(), _>("full")), Ok(Err("full")));
        assert_eq!((waiting.count(), signal.registered()), (0, 0));
    }

    #[test]
    fn the_queue_is_one_party_while_something_waits() {
        let (waiting, signal) = waiting();
        push(&waiting, 1).unwrap();
        push(&waiting, 2).unwrap();
        assert_eq!((waiting.count(), signal.registered()), (2, 1));
        assert_eq!(waiting.leave(|queue| queue.pop()), Some(2));
        assert_eq!((waiting.count(), signal.registered()), (1, 1));
        assert_eq!(waiting.leave(|queue| queue.pop()), Some(1));
        assert_eq!((waiting.count(), signal.registered()), (0, 0));
    }

    #[test]
    fn one_who_is_gone_already_is_not_counted_out_again() {
        let (waiting, signal) = waiting();
        push(&waiting, 1).unwrap();
        assert_eq!(waiting.leave(|_| None::<u32>), None);
        assert_eq!((waiting.count(), signal.registered()), (1, 1));
    }

    #[test]
    fn nothing_enters_once_it_is_closed() {
        let (waiting, signal) = waiting();
        push(&waiting, 1).unwrap();
        assert_eq!(waiting.close(std::mem::take), [1]);
        assert_eq!((waiting.count(), signal.registered()), (0, 0));
        assert_eq!(push(&waiting, 2), Err(Closed));
        assert!(waiting.with(|queue| queue.is_empty()));
    }

    #[test]
    fn a_signal_that_is_attached_late_counts_at_once() {
        let (waiting, own) = waiting();
        let pair = Arc::new(RoomSignal::new());
        push(&waiting, 1).unwrap();
        waiting.attach(pair.clone());
        assert_eq!((own.registered(), pair.registered()), (1, 1));
        assert!(waiting.detach(&pair));
        assert!(!waiting.detach(&pair));
        assert_eq!((own.registered(), pair.registered()), (1, 0));
    }
}
