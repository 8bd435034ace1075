//! A waiter: one who is in the queue, and how its wait ends.
//!
//! One atomic says how it stands, and whether it holds the [baton](super::baton):
//!
//! ```text
//! waiting  --deliver-->  ready      with a payload       \
//!          --refuse-->   refused    with the reason       |  the drainer, by CAS
//!          --expire-->   expired                          |
//!          --close-->    closed                          /
//!          --cancel-->   cancelled                          the owner, by swap
//! waiting  <--hand_baton / poll-->  waiting with the baton
//! ```
//!
//! *Deliver against cancel.* Delivery is a compare-and-swap: it fails on a waiter that has left,
//! and the payload stays with the drainer. A cancel is a swap: one that finds itself chosen takes
//! the payload, and its caller gives that back and drains, so that the next waiter gets the room.
//! A store in place of either would overwrite the other, and the payload would be nobody's.
//!
//! *Poll against deliver.* Poll stores the waker, then looks again; delivery changes the state,
//! then takes the waker. The waker's lock makes one of them second: the second look finds the
//! state, or the delivery finds the waker.
//!
//! *Payload.* The state changes to ready inside the payload's lock, so whoever has seen `ready`
//! and takes that lock finds the payload there.
//!
//! Both locks order what they guard, so the state's own accesses are relaxed. No host code runs
//! under either: a waker is cloned before, woken and dropped after.
#![forbid(unsafe_code)]

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

/// The low bits: how the wait stands.
const STATE: u32 = 0b111;
const WAITING: u32 = 0;
const READY: u32 = 1;
const REFUSED: u32 = 2;
const EXPIRED: u32 = 3;
const CLOSED: u32 = 4;
const CANCELLED: u32 = 5;
/// The owner has taken what it waited for.
const TAKEN: u32 = 6;
/// Beside `WAITING`: was handed the baton and has not taken it yet.
const BATON: u32 = 0b1000;

/// How a wait ended, told to the one who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate<T, R> {
    /// Let in, with what was delivered.
    Ready(T),
    /// Can never be let in, and why.
    Refused(R),
    /// Its due time passed.
    Expired,
    /// The pool was closed.
    Closed,
}

/// What a poll found.
#[must_use]
#[derive(Debug)]
pub(crate) enum Polled<T, R> {
    /// Waits on; the waker is stored.
    Pending,
    /// The caller holds the baton: drain, then poll again.
    Baton,
    /// The wait is over.
    Done(Fate<T, R>),
}

/// What a cancel found.
#[must_use = "a payload is to be given back, and a baton to be passed on"]
#[derive(Debug)]
pub(crate) enum Cancelled<T> {
    /// It waited; it leaves the queue. With the baton: drain. A head that leaves: drain too.
    Withdrawn {
        /// Whether it held the baton.
        baton: bool,
    },
    /// It had been let in: give the payload back, then drain.
    Chosen(T),
    /// It had ended otherwise: nothing to do.
    Over,
}

/// A waiter whose state was changed and who is to be woken, once no lock is held.
#[must_use = "the waiter sleeps until it is woken"]
#[derive(Debug, Default)]
pub(crate) struct Wake(Option<Waker>);

impl Wake {
    /// Wakes the waiter, if it has been polled; otherwise its first poll will see.
    pub(crate) fn wake(self) {
        if let Some(waker) = self.0 {
            waker.wake();
        }
    }
}

/// The end of a wait without a payload.
#[must_use]
#[derive(Debug)]
pub(crate) struct Left {
    /// Wakes the waiter.
    pub(crate) wake: Wake,
    /// Whether it held the baton; then, outside a drain, drain.
    pub(crate) baton: bool,
}

#[derive(Debug)]
enum Slot<T, R> {
    Empty,
    Payload(T),
    Reason(R),
}

/// One who waits, for a payload `T` or a reason `R`. See the head of this file.
///
/// The owner (a future, or a parked thread through its waker) calls [`Waiter::poll`] and
/// [`Waiter::cancel`], one at a time; everybody else may call everything else at any time.
#[derive(Debug)]
pub(crate) struct Waiter<T, R> {
    state: AtomicU32,
    slot: Mutex<Slot<T, R>>,
    waker: Mutex<Option<Waker>>,
}

impl<T, R> Waiter<T, R> {
    /// One who waits.
    pub(crate) fn new() -> Waiter<T, R> {
        Waiter {
            state: AtomicU32::new(WAITING),
            slot: Mutex::new(Slot::Empty),
            waker: Mutex::new(None),
        }
    }

    /// Whether it waits still. A hint: it may have ended by the time this returns.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE == WAITING
    }

    /// Lets it in. `Err`: it has left; the payload is still the caller's.
    ///
    /// Takes the baton away from one who held it: a delivery is made by a drain, which began after
    /// that baton was handed on.
    pub(crate) fn deliver(&self, payload: T) -> Result<Wake, T> {
        {
            let mut slot = self.slot.lock();
            if self.end(READY).is_none() {
                drop(slot);
                return Err(payload);
            }
            *slot = Slot::Payload(payload);
        }
        Ok(self.take_waker())
    }

    /// Refuses it for `reason`. `Err`: it has left.
    pub(crate) fn refuse(&self, reason: R) -> Result<Left, R> {
        let baton = {
            let mut slot = self.slot.lock();
            let Some(baton) = self.end(REFUSED) else {
                drop(slot);
                return Err(reason);
            };
            *slot = Slot::Reason(reason);
            baton
        };
        Ok(Left { wake: self.take_waker(), baton })
    }

    /// Its due time is past. `None`: it has left.
    pub(crate) fn expire(&self) -> Option<Left> {
        let baton = self.end(EXPIRED)?;
        Some(Left { wake: self.take_waker(), baton })
    }

    /// The pool is closed. `None`: it has left.
    pub(crate) fn close(&self) -> Option<Left> {
        let baton = self.end(CLOSED)?;
        Some(Left { wake: self.take_waker(), baton })
    }

    /// Hands it the baton: it will drain when it is polled. `None`: it has left, choose another.
    pub(crate) fn hand_baton(&self) -> Option<Wake> {
        self.change(WAITING | BATON)?;
        Some(self.take_waker())
    }

    /// The owner looks. Pending: the waker of `cx` is woken at the next change.
    ///
    /// # Panics
    ///
    /// When polled again after [`Polled::Done`], or after a cancel.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Polled<T, R> {
        match self.look() {
            Polled::Pending => {}
            done => return done,
        }
        self.store_waker(cx.waker());
        self.look()
    }

    /// The owner looks without leaving a waker.
    pub(crate) fn look(&self) -> Polled<T, R> {
        match self.state.load(Ordering::Relaxed) {
            WAITING => Polled::Pending,
            // The baton is taken by compare-and-swap: lost against an end, look at that.
            held if held == WAITING | BATON => match self.swap(held, WAITING) {
                Ok(()) => Polled::Baton,
                Err(end) => self.done(end),
            },
            end => self.done(end),
        }
    }

    /// The owner leaves.
    pub(crate) fn cancel(&self) -> Cancelled<T> {
        let before = self.state.swap(CANCELLED, Ordering::Relaxed);
        match before & STATE {
            WAITING => Cancelled::Withdrawn { baton: before & BATON != 0 },
            READY => match self.take_slot() {
                Slot::Payload(payload) => Cancelled::Chosen(payload),
                Slot::Empty | Slot::Reason(_) => unreachable!("ready comes with a payload"),
            },
            _ => Cancelled::Over,
        }
    }

    fn done(&self, end: u32) -> Polled<T, R> {
        let fate = match end {
            READY | REFUSED => match self.take_slot() {
                Slot::Payload(payload) => Fate::Ready(payload),
                Slot::Reason(reason) => Fate::Refused(reason),
                Slot::Empty => unreachable!("ready and refused come with a payload or a reason"),
            },
            EXPIRED => Fate::Expired,
            CLOSED => Fate::Closed,
            _ => panic!("a waiter was polled after it was done"),
        };
        self.state.swap(TAKEN, Ordering::Relaxed);
        Polled::Done(fate)
    }

    /// From waiting, with or without the baton, to an end; gives whether it held the baton.
    fn end(&self, end: u32) -> Option<bool> {
        self.change(end).map(|before| before & BATON != 0)
    }

    /// From waiting, with or without the baton, to `next`; `None` if it does not wait any more.
    fn change(&self, next: u32) -> Option<u32> {
        let mut before = self.state.load(Ordering::Relaxed);
        while before & STATE == WAITING {
            match self.swap(before, next) {
                Ok(()) => return Some(before),
                Err(live) => before = live,
            }
        }
        None
    }

    fn swap(&self, from: u32, to: u32) -> Result<(), u32> {
        self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }

    fn take_slot(&self) -> Slot<T, R> {
        std::mem::replace(&mut *self.slot.lock(), Slot::Empty)
    }

    fn take_waker(&self) -> Wake {
        Wake(self.waker.lock().take())
    }

    fn store_waker(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|stored| stored.will_wake(waker)) {
            return;
        }
        let waker = waker.clone();
        let old = self.waker.lock().replace(waker);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    type Seat = Waiter<u32, &'static str>;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(waiter: &Seat, count: &Arc<Count>) -> Polled<u32, &'static str> {
        waiter.poll(&mut Context::from_waker(&Waker::from(count.clone())))
    }

    #[test]
    fn a_delivered_payload_is_taken_by_the_next_poll() {
        let (waiter, count) = (Seat::new(), Arc::new(Count::default()));
        assert!(matches!(poll(&waiter, &count), Polled::Pending));
        waiter.deliver(7).unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(poll(&waiter, &count), Polled::Done(Fate::Ready(7))));
        assert!(matches!(waiter.cancel(), Cancelled::Over));
    }

    #[test]
    fn one_who_was_never_polled_finds_the_payload_at_its_first_poll() {
        let (waiter, count) = (Seat::new(), Arc::new(Count::default()));
        waiter.deliver(7).unwrap().wake();
        assert!(matches!(poll(&waiter, &count), Polled::Done(Fate::Ready(7))));
    }

    #[test]
    fn one_who_has_left_is_not_let_in_and_the_payload_stays_with_the_drainer() {
        let waiter = Seat::new();
        assert!(matches!(waiter.cancel(), Cancelled::Withdrawn { baton: false }));
        assert_eq!(waiter.deliver(7).unwrap_err(), 7);
        assert_eq!(waiter.refuse("no").unwrap_err(), "no");
        assert!(waiter.expire().is_none() && waiter.close().is_none());
        assert!(waiter.hand_baton().is_none());
    }

    #[test]
    fn one_who_leaves_after_it_was_chosen_gets_the_payload_to_give_back() {
        let waiter = Seat::new();
        waiter.deliver(7).unwrap().wake();
        assert!(matches!(waiter.cancel(), Cancelled::Chosen(7)));
    }

    #[test]
    fn a_wait_ends_once() {
        let (waiter, count) = (Seat::new(), Arc::new(Count::default()));
        assert!(waiter.is_waiting());
        waiter.expire().unwrap().wake.wake();
        assert!(!waiter.is_waiting());
        assert!(waiter.close().is_none());
        assert_eq!(waiter.deliver(7).unwrap_err(), 7);
        assert!(matches!(poll(&waiter, &count), Polled::Done(Fate::Expired)));

        let waiter = Seat::new();
        waiter.close().unwrap().wake.wake();
        assert!(matches!(poll(&waiter, &count), Polled::Done(Fate::Closed)));

        let waiter = Seat::new();
        waiter.refuse("gone").unwrap().wake.wake();
        assert!(waiter.expire().is_none());
        assert!(matches!(poll(&waiter, &count), Polled::Done(Fate::Refused("gone"))));
    }

    #[test]
    fn the_baton_is_taken_by_a_poll_and_the_wait_goes_on() {
        let (waiter, count) = (Seat::new(), Arc::new(Count::default()));
        assert!(matches!(poll(&waiter, &count), Polled::Pending));
        waiter.hand_baton().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(poll(&waiter, &count), Polled::Baton));
        assert!(matches!(poll(&waiter, &count), Polled::Pending));
        waiter.hand_baton().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "the waker was stored again");
    }

    #[test]
    fn one_who_leaves_with_the_baton_says_so() {
        let waiter = Seat::new();
        waiter.hand_baton().unwrap().wake();
        assert!(matches!(waiter.cancel(), Cancelled::Withdrawn { baton: true }));

        let waiter = Seat::new();
        waiter.hand_baton().unwrap().wake();
        let left = waiter.expire().unwrap();
        assert!(left.baton);
        left.wake.wake();
    }

    #[test]
    fn a_thread_can_wait_parked() {
        let waiter = Arc::new(Seat::new());
        let owner = waiter.clone();
        let thread = std::thread::spawn(move || {
            crate::room::park::block_on(std::future::poll_fn(|cx| match owner.poll(cx) {
                Polled::Done(Fate::Ready(payload)) => std::task::Poll::Ready(payload),
                Polled::Done(other) => panic!("{other:?}"),
                Polled::Pending | Polled::Baton => std::task::Poll::Pending,
            }))
        });
        waiter.deliver(7).unwrap().wake();
        assert_eq!(thread.join().unwrap(), 7);
    }
}
