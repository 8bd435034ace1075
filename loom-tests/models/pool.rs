//! A pool of one rank, put together from the engine's files: what the queue models run on.
//!
//! The row, the signal, the waiting room, the baton, the waiters and the turns are the engine's.
//! The order in which a pool calls them is written here once more, as short as it can be; a
//! control that changes that order patches this file and says so.

pub(crate) use super::load::row::Load;
use super::load::row::{Limit, MAX_BLOCKS, Row};
use super::load::slot;
pub(crate) use super::queue::baton::Drained;
use super::queue::baton::{Baton, Step, Work};
use super::queue::waiter::{Cancelled, Fate, Polled, Waiter};
use super::queue::waiting::{Closed, Waiting};
use super::room::signal::RoomSignal;
use super::room::turn::{Party, Turn};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Arc, Published, Weak};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex as Unseen;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

pub(crate) const ONE: Load = Load::new(1, 0);

/// One who waits, and what the checks need to know of it.
pub(crate) struct Entry {
    pub(crate) waiter: Waiter<(), &'static str>,
    pub(crate) due: u64,
    /// What its class calls full, if it is less than the pool's limit.
    most: u32,
    /// Wakes so far. Not loom's: read only after all threads are joined.
    pub(crate) woken: AtomicU32,
}

impl Entry {
    pub(crate) fn new() -> Arc<Entry> {
        Entry::due_at(u64::MAX)
    }

    pub(crate) fn due_at(due: u64) -> Arc<Entry> {
        Arc::new(Entry { waiter: Waiter::new(), due, most: u32::MAX, woken: AtomicU32::new(0) })
    }

    /// One of a class that calls a rank full past `most` tokens.
    pub(crate) fn needing(most: u32) -> Arc<Entry> {
        Arc::new(Entry { waiter: Waiter::new(), due: u64::MAX, most, woken: AtomicU32::new(0) })
    }

    /// The owner polls.
    pub(crate) fn poll(self: &Arc<Self>) -> Polled<(), &'static str> {
        let waker = Waker::from(Arc::clone(self));
        self.waiter.poll(&mut Context::from_waker(&waker))
    }

    /// Once all threads are joined: how the wait ended. One who was polled and not woken sleeps
    /// on, whatever its state says.
    pub(crate) fn fate(&self, polled: bool) -> Option<Fate<(), &'static str>> {
        if polled && self.woken.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.waiter.look() {
            Polled::Done(fate) => Some(fate),
            Polled::Pending | Polled::Baton => None,
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) struct Pool {
    pub(crate) row: AtomicU64,
    /// The view: the limit in force.
    pub(crate) limit: Published<Limit>,
    pub(crate) signal: Arc<RoomSignal>,
    pub(crate) waiting: Waiting<VecDeque<Arc<Entry>>>,
    pub(crate) baton: Baton,
    /// Steps after which a drain hands on.
    bound: u64,
    /// The pair: nobody goes in while it is full.
    pair: Option<Arc<Pool>>,
    /// Whom each let in was let in by, in order. Not loom's.
    pub(crate) let_in_by: Unseen<Vec<&'static str>>,
}

pub(crate) fn tokens(limit: u32) -> Limit {
    Limit::new(limit, MAX_BLOCKS)
}

impl Pool {
    /// A rank that is full once it carries more than `limit` tokens, and carries `carries`.
    pub(crate) fn new(limit: u32, carries: u32, bound: u64, pair: Option<Arc<Pool>>) -> Arc<Pool> {
        let signal = Arc::new(RoomSignal::new());
        let pool = Arc::new(Pool {
            row: AtomicU64::new(Row::EMPTY.plus(Load::new(carries, 0)).expect("it fits").bits()),
            limit: Published::new(tokens(limit)),
            signal: Arc::clone(&signal),
            waiting: Waiting::new(VecDeque::new(), signal),
            baton: Baton::new(),
            bound,
            pair,
            let_in_by: Unseen::new(Vec::new()),
        });
        let party: Arc<dyn Party> = pool.clone();
        pool.signal.add_party(Arc::downgrade(&party));
        if let Some(pair) = &pool.pair {
            pair.signal.add_party(Arc::downgrade(&party));
            pool.waiting.attach(Arc::clone(&pair.signal));
        }
        pool
    }

    pub(crate) fn carries(&self) -> u32 {
        Row::from_bits(self.row.load(Ordering::Acquire)).tokens()
    }

    fn has_room(&self) -> bool {
        !Row::from_bits(self.row.load(Ordering::Acquire)).exceeds(*self.limit.load())
    }

    /// Enters the queue, then looks again.
    pub(crate) fn enqueue(&self, entry: &Arc<Entry>) -> Result<(), Closed> {
        self.push(|queue| queue.push_back(Arc::clone(entry)))?;
        self.drain();
        Ok(())
    }

    fn push(&self, push: impl FnOnce(&mut VecDeque<Arc<Entry>>)) -> Result<(), Closed> {
        let pushed = self.waiting.enter(|queue| Ok::<(), Infallible>(push(queue)))?;
        let Ok(()) = pushed;
        Ok(())
    }

    /// Takes load off, then tells.
    pub(crate) fn release(&self, load: Load) {
        slot::take_off(&self.row, load).expect("the rank lives");
        self.signal.release_and_tell();
    }

    /// Puts another limit in force, then tells.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(Arc::new(tokens(limit)));
        self.signal.release_and_tell();
    }

    /// The owner of `entry` leaves.
    pub(crate) fn cancel(&self, entry: &Arc<Entry>) -> Cancelled<()> {
        let cancelled = entry.waiter.cancel();
        match &cancelled {
            Cancelled::Withdrawn { baton } => {
                let head = self.leave(entry);
                if *baton || head {
                    self.drain();
                }
            }
            Cancelled::Chosen(()) => self.release(ONE),
            Cancelled::Over => {}
        }
        cancelled
    }

    pub(crate) fn close(&self) {
        let emptied = self.waiting.close(std::mem::take);
        for entry in emptied {
            if let Some(left) = entry.waiter.close() {
                left.wake.wake();
            }
        }
    }

    pub(crate) fn drain(&self) -> Drained {
        let _turn = Turn::begin();
        self.baton.drain(self, self.bound)
    }

    /// Shows the clock an instant, then drains.
    pub(crate) fn drain_at(&self, now: u64) -> Drained {
        self.baton.show(now);
        self.drain()
    }

    /// Takes an entry out of the queue; whether it was at its head.
    fn leave(&self, entry: &Arc<Entry>) -> bool {
        self.waiting
            .leave(|queue| {
                let at = queue.iter().position(|e| Arc::ptr_eq(e, entry))?;
                queue.remove(at).map(|_| at == 0)
            })
            .unwrap_or(false)
    }
}

impl Work for Pool {
    fn step(&self, now: u64) -> Step {
        let Some(head) = self.waiting.with(|queue| queue.front().cloned()) else {
            return Step::Rest;
        };
        if now >= head.due {
            if let Some(left) = head.waiter.expire() {
                self.leave(&head);
                left.wake.wake();
            }
            return Step::Went;
        }
        if self.pair.as_ref().is_some_and(|pair| !pair.has_room()) {
            return Step::Rest;
        }
        let limit = *self.limit.load();
        let class = tokens(head.most);
        if slot::add(&self.row, ONE, |row| !row.exceeds(limit) && !row.exceeds(class)).is_err() {
            return Step::Rest;
        }
        match head.waiter.deliver(()) {
            Ok(wake) => {
                self.leave(&head);
                self.let_in_by.lock().expect("not poisoned").push(who());
                wake.wake();
            }
            Err(()) => {
                // It has left, and may not be out of the queue yet.
                self.leave(&head);
                self.release(ONE);
            }
        }
        Step::Went
    }

    /// To the last in the queue: any waiter may be handed the baton, and one that is not the head
    /// has no other reason to drain when it leaves.
    fn hand_on(&self) {
        let entries: Vec<_> = self.waiting.with(|queue| queue.iter().cloned().collect());
        if let Some(wake) = entries.iter().rev().find_map(|entry| entry.waiter.hand_baton()) {
            wake.wake();
        }
    }
}

impl Party for Pool {
    fn room(&self) {
        if self.waiting.count() > 0 {
            self.drain();
        }
    }
}

crate::sync::thread_local! {
    static NAME: std::cell::Cell<&'static str> = std::cell::Cell::new("main");
}

/// The name of this thread of the model.
pub(crate) fn who() -> &'static str {
    NAME.with(std::cell::Cell::get)
}

/// A thread of the model with a name.
pub(crate) fn spawn(
    name: &'static str,
    run: impl FnOnce() + 'static,
) -> loom::thread::JoinHandle<()> {
    vacancy_loom_tests::explore::spawn(move || {
        NAME.with(|n| n.set(name));
        run();
    })
}
