//! The room signal of a pool: its epoch, and who is told when it moves.
//!
//! One word holds the epoch (high bits) and the number of registered parties (low bits).
//!
//! ```text
//! release                                 wait
//!   row: load taken off                     own count: I am here
//!   word: epoch + 1        (RMW, A)         word: parties + 1        (RMW, B)
//!   parties in what came back?              look at the rows
//!     tell them all                         sleep until the epoch is another than B's
//! ```
//!
//! Both sides announce and look in one read-modify-write of the same word, so one of A and B comes
//! second and reads what the first wrote (or a later read-modify-write that carries it on). B
//! second: it acquires the row that A released, and the look finds the room. A second: it sees the
//! party, acquires its count, and tells it. No fence is needed. Nobody may *load* the word to
//! announce: a load may come first and read an old value at the same time.
//!
//! Interest is a level: a party stays registered while something waits and withdraws when nothing
//! does, so a release takes nothing away from the next one. A party counts its waiter before it
//! registers: told in between, it would find nothing waiting and leave it asleep.
//!
//! A party is a queue or a pool, not a waiter, and registers for its first waiter alone: from then
//! on every release tells it, and both what it does when told and what enters it later take the
//! queue's lock. What enters before is found; what enters after has acquired, by the lock, all
//! that the release did.
//!
//! One release tells **all** parties: the pool's own queue, every pool that has this one as its
//! pair, and all who wait on [`RoomChanged`]. Nobody eats another's wake-up. With nobody
//! registered, a release touches the word and nothing else.
//!
//! A cached "no room" is kept with the epoch read *before* the rows; releases move the epoch
//! *after* the row. A waiter may believe it if the epoch, read after it registered, is that one.
//!
//! Nothing is called under a lock: the list of parties is read without one, wakers are taken out
//! of theirs first.
#![forbid(unsafe_code)]

use super::park::block_on;
use super::turn::{self, Party};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, Published, Weak};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The low bits of the word count the parties. 24: parties are queues and pools.
const PARTY_BITS: u32 = 24;
/// One party in the word.
const PARTY: u64 = 1;
/// All bits that count parties.
const PARTIES: u64 = (1 << PARTY_BITS) - 1;
/// One step of the epoch in the word. The epoch has 40 bits and wraps: at ten million releases a
/// second it returns to a value after thirty hours, and is only ever compared for being another.
const EPOCH: u64 = 1 << PARTY_BITS;

/// A moment in the life of a pool's load: it moves whenever room may have come free.
///
/// Two epochs of one pool are equal if nothing was released in between, and can be compared for
/// that alone; epochs of two pools mean nothing to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(u64);

impl Epoch {
    fn of(word: u64) -> Epoch {
        Epoch(word >> PARTY_BITS)
    }

    /// The number behind it, below 2^40: to be kept in an atomic or printed, never ordered.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({})", self.0)
    }
}

/// What a release found.
#[must_use = "parties that are registered sleep until they are told"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Nobody waits for room: done.
    Quiet,
    /// Somebody does: call [`RoomSignal::tell`], with no lock held.
    Tell,
}

/// A pool's room signal. See the head of this file for the protocol.
///
/// Alone on its cache lines: every release moves the word, and what lay beside it would move along.
#[repr(align(128))]
pub(crate) struct RoomSignal {
    word: AtomicU64,
    /// Who can register. Replaced by [`RoomSignal::add_party`] under `writers`, read without a lock.
    parties: Published<Vec<Weak<dyn Party>>>,
    writers: Mutex<()>,
    /// How many wait on [`RoomChanged`]; written under their lock, before the word.
    subscribed: AtomicUsize,
    subscribers: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    next_key: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Default for RoomSignal {
    fn default() -> Self {
        RoomSignal::new()
    }
}

impl RoomSignal {
    /// A signal that nobody listens to yet.
    pub(crate) fn new() -> RoomSignal {
        RoomSignal {
            word: AtomicU64::new(0),
            parties: Published::new(Vec::new()),
            writers: Mutex::new(()),
            subscribed: AtomicUsize::new(0),
            subscribers: Mutex::new(Subscribers::default()),
        }
    }

    /// Load was taken off: moves the epoch. Call it after the row (and the block's version).
    #[inline]
    pub(crate) fn release(&self) -> Released {
        // Release: publishes the row to who registers later. Acquire: sees the count that a party
        // raised before it registered. Both pair with `register`.
        let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);
        if word & PARTIES == 0 { Released::Quiet } else { Released::Tell }
    }

    /// Where the epoch lies, for who is going to move it.
    #[inline(always)]
    pub(crate) fn place(&self) -> &AtomicU64 {
        &self.word
    }

    /// Moves the epoch and tells everybody who is registered; with no lock held.
    #[inline]
    pub(crate) fn release_and_tell(&self) {
        if self.release() == Released::Tell {
            self.tell();
        }
    }

    /// Moves the epoch and tells everybody but `own`, whose own roll-back this is.
    pub(crate) fn release_and_tell_others(&self, own: &dyn Party) {
        if self.release() == Released::Tell {
            self.tell_all_but(Some(own));
        }
    }

    /// Registers one party, which has counted its waiter already and looks for room next.
    ///
    /// The epoch given back is the one to sleep at: room that came before it is found by the look,
    /// room that comes after it is told. A party registers once while anything of it waits.
    pub(crate) fn register(&self) -> Epoch {
        // Release: publishes the party's count. Acquire: sees the rows of earlier releases. Both
        // pair with `release`.
        let word = self.word.fetch_add(PARTY, Ordering::AcqRel);
        assert!(word & PARTIES < PARTIES / 2, "too many parties at one room signal");
        Epoch::of(word)
    }

    /// Takes one party off: nothing of it waits any more.
    pub(crate) fn withdraw(&self) {
        // Relaxed: who leaves publishes nothing. As a read-modify-write it carries earlier
        // releases on.
        let word = self.word.fetch_sub(PARTY, Ordering::Relaxed);
        debug_assert!(word & PARTIES != 0, "withdrawn without being registered");
    }

    /// The epoch now. To keep a finding, read this *before* the rows it is made from.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // Acquire, pairs with `release`: rows read after this are at least as new as the epoch.
        Epoch::of(self.word.load(Ordering::Acquire))
    }

    /// How many parties are registered, for reports.
    pub(crate) fn registered(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & PARTIES
    }

    /// Adds a party to the list of those that are told. It is told while it (or anybody) is
    /// registered, and forgotten when its last strong reference is gone. Again: once is enough.
    /// O(parties).
    pub(crate) fn add_party(&self, party: Weak<dyn Party>) {
        let _writer = self.writers.lock();
        let mut parties: Vec<_> = self.parties.load().iter().cloned().collect();
        let again = |known: &Weak<dyn Party>| std::ptr::addr_eq(known.as_ptr(), party.as_ptr());
        parties.retain(|known| known.strong_count() > 0 && !again(known));
        parties.push(party);
        // Seen by a release that sees the party's registration, which comes later.
        self.parties.store(Arc::new(parties));
    }

    /// Tells all parties and all subscribers. O(parties + subscribers); calls host code (drains,
    /// wakers), so no lock may be held.
    #[cold]
    pub(crate) fn tell(&self) {
        self.tell_all_but(None);
    }

    fn tell_all_but(&self, own: Option<&dyn Party>) {
        // One turn around all of them: each party is noted first and run when the turn ends, so
        // that one that panics keeps nobody else from being told.
        let _turn = turn::Turn::begin();
        for party in self.parties.load().iter() {
            if let Some(party) = party.upgrade() {
                let same = |own: &dyn Party| std::ptr::addr_eq(&*party, own);
                if !own.is_some_and(same) {
                    turn::tell(party);
                }
            }
        }
        // Relaxed: raised before the word was, which `release` acquired.
        if self.subscribed.load(Ordering::Relaxed) != 0 {
            self.wake_subscribers();
        }
    }

    fn wake_subscribers(&self) {
        let told = {
            let mut subscribers = self.subscribers.lock();
            let told = std::mem::take(&mut subscribers.wakers);
            if !told.is_empty() {
                self.subscribed.store(0, Ordering::Relaxed);
                self.withdraw();
            }
            told
        };
        for waker in told.into_values() {
            turn::tell(Arc::new(WakeOne(waker)));
        }
    }

    /// Stores `waker` under `key` (a new one, if there is none), then looks at the epoch.
    fn subscribe(&self, key: &mut Option<u64>, waker: Waker) -> Epoch {
        let (epoch, old) = {
            let mut subscribers = self.subscribers.lock();
            let key = *key.get_or_insert_with(|| {
                subscribers.next_key += 1;
                subscribers.next_key
            });
            let old = subscribers.wakers.insert(key, waker);
            let count = subscribers.wakers.len();
            self.subscribed.store(count, Ordering::Relaxed);
            // All subscribers are one party, registered while there is one. Behind others, a load
            // is enough: a release that has told them took this lock, one that has not finds us.
            let first = old.is_none() && count == 1;
            (if first { self.register() } else { self.epoch() }, old)
        };
        drop(old);
        epoch
    }

    fn unsubscribe(&self, key: u64) {
        let old = {
            let mut subscribers = self.subscribers.lock();
            let old = subscribers.wakers.remove(&key);
            let count = subscribers.wakers.len();
            if old.is_some() {
                self.subscribed.store(count, Ordering::Relaxed);
                if count == 0 {
                    self.withdraw();
                }
            }
            old
        };
        drop(old);
    }
}

impl fmt::Debug for RoomSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomSignal")
            .field("epoch", &self.epoch())
            .field("registered", &self.registered())
            .finish_non_exhaustive()
    }
}

/// A subscriber's waker as a party, so that it is woken like one: outside any lock, panics apart.
struct WakeOne(Waker);

impl Party for WakeOne {
    fn room(&self) {
        self.0.wake_by_ref();
    }
}

/// Waits until the epoch of a pool is another than it was when this was made.
///
/// Any executor can poll it; [`RoomChanged::wait`] blocks the thread instead. Each subscriber is
/// told by itself: one that is woken and dropped takes nothing from the others. Polled again after
/// it was done, it gives the epoch of that moment.
#[must_use = "futures do nothing unless polled"]
pub struct RoomChanged {
    signal: Arc<RoomSignal>,
    since: Epoch,
    key: Option<u64>,
}

impl RoomChanged {
    /// Waits for an epoch other than `since`.
    pub(crate) fn new(signal: Arc<RoomSignal>, since: Epoch) -> RoomChanged {
        RoomChanged { signal, since, key: None }
    }

    /// Blocks this thread until the epoch has moved, and gives the new one back.
    pub fn wait(self) -> Epoch {
        block_on(self)
    }

    fn done(&mut self) {
        if let Some(key) = self.key.take() {
            self.signal.unsubscribe(key);
        }
    }
}

impl Future for RoomChanged {
    type Output = Epoch;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Epoch> {
        let this = &mut *self;
        let mut epoch = this.signal.epoch();
        if epoch == this.since {
            // Store the waker, look again.
            epoch = this.signal.subscribe(&mut this.key, cx.waker().clone());
        }
        if epoch == this.since {
            return Poll::Pending;
        }
        this.done();
        Poll::Ready(epoch)
    }
}

impl Drop for RoomChanged {
    fn drop(&mut self) {
        self.done();
    }
}

impl fmt::Debug for RoomChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomChanged").field("since", &self.since).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Seen(AtomicUsize);

    impl Party for Seen {
        fn room(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Flag(AtomicUsize);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flag() -> (Arc<Flag>, Waker) {
        let flag = Arc::new(Flag(AtomicUsize::new(0)));
        (flag.clone(), Waker::from(flag))
    }

    #[test]
    fn a_release_with_nobody_registered_is_quiet_and_moves_the_epoch() {
        let signal = RoomSignal::new();
        let before = signal.epoch();
        assert_eq!(signal.release(), Released::Quiet);
        assert_ne!(signal.epoch(), before);
    }

    #[test]
    fn registering_does_not_move_the_epoch_and_lasts_until_it_is_withdrawn() {
        let signal = RoomSignal::new();
        let before = signal.epoch();
        assert_eq!(signal.register(), before);
        assert_eq!(signal.epoch(), before);
        assert_eq!(signal.release(), Released::Tell);
        assert_eq!(signal.release(), Released::Tell);
        signal.withdraw();
        assert_eq!(signal.release(), Released::Quiet);
    }

    #[test]
    fn one_release_tells_every_party_and_every_subscriber() {
        let signal = Arc::new(RoomSignal::new());
        let parties = [(); 3].map(|()| Arc::new(Seen(AtomicUsize::new(0))));
        for party in &parties {
            let party: Arc<dyn Party> = party.clone();
            signal.add_party(Arc::downgrade(&party));
            signal.register();
        }
        let mut changes = [(); 2].map(|()| {
            let (flag, waker) = flag();
            (flag, waker, RoomChanged::new(signal.clone(), signal.epoch()))
        });
        for (_, waker, change) in &mut changes {
            assert!(Pin::new(change).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert_eq!(signal.registered(), 4);
        signal.release_and_tell();
        assert!(parties.iter().all(|party| party.0.load(Ordering::Relaxed) == 1));
        for (flag, waker, change) in &mut changes {
            assert_eq!(flag.0.load(Ordering::Relaxed), 1);
            assert!(Pin::new(change).poll(&mut Context::from_waker(waker)).is_ready());
        }
        assert_eq!(signal.registered(), 3, "subscribers are told once for each time they ask");
    }

    #[test]
    fn a_party_that_is_gone_is_forgotten() {
        let signal = RoomSignal::new();
        let gone: Arc<dyn Party> = Arc::new(Seen(AtomicUsize::new(0)));
        signal.add_party(Arc::downgrade(&gone));
        drop(gone);
        signal.register();
        signal.release_and_tell();
        let here: Arc<dyn Party> = Arc::new(Seen(AtomicUsize::new(0)));
        signal.add_party(Arc::downgrade(&here));
        assert_eq!(signal.parties.load().len(), 1);
    }

    #[test]
    fn a_subscriber_that_is_dropped_leaves_nothing_behind() {
        let signal = Arc::new(RoomSignal::new());
        let (_, waker) = flag();
        let mut change = RoomChanged::new(signal.clone(), signal.epoch());
        assert!(Pin::new(&mut change).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Pin::new(&mut change).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(signal.registered(), 1);
        drop(change);
        assert_eq!(signal.registered(), 0);
        assert_eq!(signal.release(), Released::Quiet);
    }

    #[test]
    fn a_thread_can_wait_for_the_epoch_to_move() {
        let signal = Arc::new(RoomSignal::new());
        let since = signal.epoch();
        let change = RoomChanged::new(signal.clone(), since);
        let thread = std::thread::spawn(move || change.wait());
        while signal.registered() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        signal.release_and_tell();
        assert_ne!(thread.join().unwrap(), since);
    }

    #[test]
    fn the_epoch_wraps_without_touching_the_parties() {
        let signal = RoomSignal::new();
        signal.word.store(!PARTIES | 3, Ordering::Relaxed);
        assert_eq!(signal.release(), Released::Tell);
        assert_eq!(signal.registered(), 3);
        assert_eq!(signal.epoch(), Epoch(0));
    }
}
