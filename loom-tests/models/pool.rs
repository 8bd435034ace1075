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
use crate::sync::atomic::{AtomicU64, AtomicUsize, fence};
use crate::sync::{Arc, Mutex, Published, Weak};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex as Unseen;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

pub(crate) const ONE: Load = Load::new(1, 0);

/// One who waits, and what the checks need to know of it.
pub(crate) struct Entry {
    pub(crate) waiter: Waiter<(), &'static str>,
    pub(crate) due: u64,
    /// What its class calls full, if it is less than the pool's limit.
    most: u32,
    /// Whether its class has to do with the pair.
    paired: bool,
    /// Wakes so far. Not loom's: read only after all threads are joined.
    pub(crate) woken: AtomicU32,
}

impl Entry {
    pub(crate) fn new() -> Arc<Entry> {
        Entry::with(u64::MAX, u32::MAX, true)
    }

    pub(crate) fn due_at(due: u64) -> Arc<Entry> {
        Entry::with(due, u32::MAX, true)
    }

    /// One of a class that calls a rank full past `most` tokens.
    pub(crate) fn needing(most: u32) -> Arc<Entry> {
        Entry::with(u64::MAX, most, true)
    }

    /// One of a class that has nothing to do with the pair.
    pub(crate) fn unpaired() -> Arc<Entry> {
        Entry::with(u64::MAX, u32::MAX, false)
    }

    fn with(due: u64, most: u32, paired: bool) -> Arc<Entry> {
        Arc::new(Entry { waiter: Waiter::new(), due, most, paired, woken: AtomicU32::new(0) })
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
    /// The pair: nobody whose class has to do with it goes in while it is full.
    pair: Pair,
    /// References to this pool, as `Arc` counts them, for those that hold it weakly. Its maker has
    /// one.
    references: AtomicUsize,
    /// Whether room is set aside at the pair for each that goes in.
    holds: bool,
    /// Whether its pair went while it was asked, so that whoever asked had the last reference. Not
    /// loom's.
    pub(crate) let_go_last: AtomicBool,
    /// Whom each let in was let in by, in order. Not loom's.
    pub(crate) let_in_by: Unseen<Vec<&'static str>>,
}

/// How a pool finds its pair.
enum Pair {
    None,
    /// It stays for ever.
    Kept(Arc<Pool>),
    /// It may go, and has room then. Found under a lock, as the engine finds it.
    Weak(Arc<Pool>, Mutex<()>),
    /// It is replaced.
    Late(Published<Arc<Pool>>),
}

/// Why an attempt took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The own rank is full.
    Own,
    /// The pair is full.
    Pair,
    /// The pair had room when it was looked at, and none to set aside.
    RolledBack,
}

pub(crate) fn tokens(limit: u32) -> Limit {
    Limit::new(limit, MAX_BLOCKS)
}

impl Pool {
    /// A rank that is full once it carries more than `limit` tokens, and carries `carries`.
    pub(crate) fn new(limit: u32, carries: u32, bound: u64, pair: Option<Arc<Pool>>) -> Arc<Pool> {
        Pool::build(limit, carries, bound, pair.map_or(Pair::None, Pair::Kept), false)
    }

    /// One that sets room aside at its pair.
    pub(crate) fn holding(limit: u32, carries: u32, pair: Arc<Pool>) -> Arc<Pool> {
        Pool::build(limit, carries, u64::MAX, Pair::Kept(pair), true)
    }

    /// One whose pair is gone, and has room, once its maker has let go of it.
    pub(crate) fn weakly_paired(limit: u32, pair: Arc<Pool>) -> Arc<Pool> {
        Pool::build(limit, 0, u64::MAX, Pair::Weak(pair, Mutex::new(())), false)
    }

    /// One that gets another pair by [`Pool::install`].
    pub(crate) fn to_be_paired(limit: u32, first: &Arc<Pool>) -> Arc<Pool> {
        Pool::build(limit, 0, u64::MAX, Pair::Late(Published::new(first.clone())), false)
    }

    fn build(limit: u32, carries: u32, bound: u64, pair: Pair, holds: bool) -> Arc<Pool> {
        let signal = Arc::new(RoomSignal::new());
        let pool = Arc::new(Pool {
            row: AtomicU64::new(Row::EMPTY.plus(Load::new(carries, 0)).expect("it fits").bits()),
            limit: Published::new(tokens(limit)),
            signal: Arc::clone(&signal),
            waiting: Waiting::new(VecDeque::new(), signal),
            baton: Baton::new(),
            bound,
            pair,
            references: AtomicUsize::new(1),
            holds,
            let_go_last: AtomicBool::new(false),
            let_in_by: Unseen::new(Vec::new()),
        });
        let party: Arc<dyn Party> = pool.clone();
        pool.signal.add_party(Arc::downgrade(&party));
        if let Some(pair) = pool.pair() {
            pool.subscribe(&pair);
        }
        pool
    }

    fn subscribe(self: &Arc<Self>, pair: &Pool) {
        let party: Arc<dyn Party> = self.clone();
        pair.signal.add_party(Arc::downgrade(&party));
        self.waiting.attach(Arc::clone(&pair.signal));
    }

    /// Makes `pair` this pool's pair.
    pub(crate) fn install(self: &Arc<Self>, pair: &Arc<Pool>) {
        let Pair::Late(late) = &self.pair else { panic!("it keeps its pair") };
        self.subscribe(pair);
        late.store(Arc::new(pair.clone()));
        self.signal.release_and_tell();
    }

    fn pair(&self) -> Option<Arc<Pool>> {
        match &self.pair {
            Pair::None => None,
            Pair::Kept(pair) | Pair::Weak(pair, _) => Some(pair.clone()),
            Pair::Late(pair) => Some(Arc::clone(&pair.load())),
        }
    }

    /// Another reference to this pool, if there is one still.
    fn upgrade(&self) -> bool {
        let mut references = self.references.load(Ordering::Relaxed);
        while references > 0 {
            let more = references + 1;
            // Acquire and, below, release and acquire: as `Arc` does.
            match self.references.compare_exchange(
                references,
                more,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(_) => references = self.references.load(Ordering::Relaxed),
            }
        }
        false
    }

    /// Lets go of a reference; with the last one the pool is gone, and says so. Gives whether it was
    /// that.
    pub(crate) fn let_go(&self) -> bool {
        let last = self.references.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
            self.signal.release_and_tell();
        }
        last
    }

    fn pair_has_room(&self, pair: &Pool) -> bool {
        let Pair::Weak(_, known) = &self.pair else { return pair.has_room() };
        let there = {
            let _known = known.lock();
            pair.upgrade()
        };
        if !there {
            return true;
        }
        let room = pair.has_room();
        let last = pair.let_go();
        self.let_go_last.fetch_or(last, Ordering::Relaxed);
        room
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
            Cancelled::Chosen(()) => self.give_back(entry),
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

    /// Takes the own rank, and then sets room aside at the pair: both or neither.
    pub(crate) fn attempt(&self, entry: &Entry, draining: bool) -> Result<(), Refused> {
        let pair = self.pair().filter(|_| entry.paired);
        if pair.as_ref().is_some_and(|pair| !self.pair_has_room(pair)) {
            return Err(Refused::Pair);
        }
        let limit = *self.limit.load();
        let class = tokens(entry.most);
        if slot::add(&self.row, ONE, |row| !row.exceeds(limit) && !row.exceeds(class)).is_err() {
            return Err(Refused::Own);
        }
        if let Some(pair) = pair.filter(|_| self.holds) {
            let limit = *pair.limit.load();
            if slot::add(&pair.row, ONE, |row| !row.exceeds(limit)).is_err() {
                slot::take_off(&self.row, ONE).expect("the rank lives");
                // A drain looks again by itself; a newcomer tells the own queue as well.
                if draining {
                    self.signal.release_and_tell_others(self);
                } else {
                    self.signal.release_and_tell();
                }
                return Err(Refused::RolledBack);
            }
        }
        Ok(())
    }

    /// Gives back what [`Pool::attempt`] took.
    fn give_back(&self, entry: &Entry) {
        self.release(ONE);
        if let Some(pair) = self.pair().filter(|_| entry.paired && self.holds) {
            pair.release(ONE);
        }
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
        if self.attempt(&head, true).is_err() {
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
                self.give_back(&head);
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
) -> vacancy_loom_tests::explore::JoinHandle<()> {
    vacancy_loom_tests::explore::spawn(move || {
        NAME.with(|n| n.set(name));
        run();
    })
}
