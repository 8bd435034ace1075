//! Grace periods: what was unlinked is used again only when everybody who may still look at it has
//! stopped looking.
//!
//! A reader *pins* (its seat shows the epoch it read, then a fence); what is unlinked gets a
//! *stamp* (a fence, then the epoch). The epoch goes from `e` to `e + 1` only while every pinned
//! seat shows `e`, so once it is two past a stamp, all who were pinned when the stamp was taken
//! have unpinned.
//!
//! This is the scheme of `crossbeam-epoch`, and why it is not that crate: there a grace period can
//! only be waited for by handing over a function, which is kept in bags on the heap, one
//! allocation for every 64. Here the owner of retired things keeps them in a queue of its own and
//! *asks* whether a stamp has passed, so that settled operation allocates nothing, what is
//! recycled is recycled where it is used, and a slot that is still looked at can be passed over
//! for another.
//!
//! Who may write what: a seat's words belong to the thread that took it; the epoch is moved by
//! whoever asks. Seats are never freed before their domain, only taken again.

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::marker::PhantomData;
use std::ptr;

/// A set of readers, and the epoch they are counted by.
#[derive(Debug)]
pub(crate) struct Domain {
    epoch: AtomicU64,
    /// All seats ever made, linked; pushed to the front, never removed.
    seats: AtomicPtr<Seat>,
}

/// A reader's place. Alone on its cache lines: its owner writes it at every pin.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Seat {
    /// 0: not pinned; else twice the epoch, plus one.
    state: AtomicU64,
    /// Guards alive on this seat. Only its owner reads or writes it.
    depth: AtomicU32,
    taken: AtomicBool,
    /// How many seats were there before.
    number: u32,
    next: *const Seat,
}

/// A moment after which nobody new can find what was unlinked before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// While it lives, nothing that could be found when it was made is used again.
///
/// Stays on its thread, and must not be held across an await, a lock that may block for long, or
/// code of the host.
#[derive(Debug)]
#[must_use]
pub(crate) struct Guard<'d> {
    domain: &'d Domain,
    seat: &'d Seat,
    /// The seat was taken for this guard alone.
    lent: bool,
    /// Unpinning writes the seat without a read-modify-write: the seat's own thread must do it.
    _stays: PhantomData<*mut ()>,
}

// SAFETY: the pointer leads to seats, which are made of atomics, are shared by reference only, and
// live as long as the domain.
unsafe impl Send for Seat {}
// SAFETY: as above; `number` and `next` are written before the seat is published and never after.
unsafe impl Sync for Seat {}

impl Domain {
    pub(crate) fn new() -> Domain {
        Domain { epoch: AtomicU64::new(0), seats: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes a free seat, or makes one. Walks all seats: done once per thread.
    pub(crate) fn seat(&self) -> &Seat {
        // Acquire: pairs with the release below, for the seat's fields.
        let mut at = self.seats.load(Ordering::Acquire).cast_const();
        // SAFETY: seats are published whole and freed only with the domain.
        while let Some(seat) = unsafe { at.as_ref() } {
            // Acquire: pairs with the release in `leave`, so that `depth` and `state` are seen as
            // the former owner left them.
            if !seat.taken.load(Ordering::Relaxed)
                && seat
                    .taken
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return seat;
            }
            at = seat.next;
        }
        let seat = Box::into_raw(Box::new(Seat {
            state: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            taken: AtomicBool::new(true),
            number: 0,
            next: ptr::null(),
        }));
        let mut head = self.seats.load(Ordering::Acquire);
        loop {
            // SAFETY: published seats live as long as the domain.
            let number = unsafe { head.as_ref() }.map_or(0, |head| head.number + 1);
            // SAFETY: not published yet, so nobody else looks at it.
            unsafe {
                (*seat).number = number;
                (*seat).next = head;
            }
            // Release: publishes the seat's fields. Acquire: the chain behind a new head.
            match self.seats.compare_exchange(head, seat, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: published seats live as long as the domain.
                Ok(_) => return unsafe { &*seat },
                Err(now) => head = now,
            }
        }
    }

    /// Gives a seat back. A seat with guards alive (they were forgotten) is not used again.
    pub(crate) fn leave(&self, seat: &Seat) {
        if seat.depth.load(Ordering::Relaxed) == 0 {
            // Release: pairs with the acquire in `seat`.
            seat.taken.store(false, Ordering::Release);
        }
    }

    /// Pins the calling thread, which must own `seat`. Does not block; nests.
    #[inline]
    pub(crate) fn pin<'d>(&'d self, seat: &'d Seat) -> Guard<'d> {
        let depth = seat.depth.load(Ordering::Relaxed);
        seat.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            let epoch = self.epoch.load(Ordering::Relaxed);
            // Release: whoever moves the epoch and sees this pin does not see the unpinning before
            // it, and has to know all the same of what was looked at until then.
            seat.state.store(epoch << 1 | 1, Ordering::Release);
            // Pairs with the fences in `stamp` and `advance`: either the one who moves the epoch
            // sees this seat, or what is loaded from here on is what it unlinked before. An old
            // epoch read above does no harm: it only holds the epoch back.
            fence(Ordering::SeqCst);
        }
        Guard { domain: self, seat, lent: false, _stays: PhantomData }
    }

    /// Pins on a seat taken for this guard alone; for threads that have none any more.
    #[cold]
    pub(crate) fn pin_apart(&self) -> Guard<'_> {
        let mut guard = self.pin(self.seat());
        guard.lent = true;
        guard
    }

    /// The moment from which on a grace period counts; taken after the unlinking.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        // Pairs with the fence in `pin`: whoever pins after it and shows a later epoch than the
        // one read here finds the unlinking done.
        fence(Ordering::SeqCst);
        Stamp(self.epoch.load(Ordering::Relaxed))
    }

    /// Whether all who were pinned when `stamp` was taken have unpinned. Moves the epoch on if it
    /// can: looks at every seat then, and never waits.
    pub(crate) fn passed(&self, stamp: Stamp) -> bool {
        if self.has_passed(stamp) {
            return true;
        }
        while self.advance() {
            if self.has_passed(stamp) {
                return true;
            }
        }
        false
    }

    /// Like [`Domain::passed`], from what is known already.
    #[inline]
    pub(crate) fn has_passed(&self, stamp: Stamp) -> bool {
        // Acquire: pairs with the release in `advance`, and through it with the unpinning of all
        // who were looking.
        self.epoch.load(Ordering::Acquire).wrapping_sub(stamp.0) >= 2
    }

    fn advance(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Pairs with the fence in `pin`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `seat`.
        let mut at = self.seats.load(Ordering::Acquire).cast_const();
        // SAFETY: seats live as long as the domain.
        while let Some(seat) = unsafe { at.as_ref() } {
            let state = seat.state.load(Ordering::Relaxed);
            if state != 0 && state >> 1 != epoch {
                return false;
            }
            at = seat.next;
        }
        // Pairs with the release in the guard's drop: what those who have unpinned did comes
        // before whatever is done once the epoch has moved.
        fence(Ordering::Acquire);
        // Release: hands the above on to `has_passed`.
        self.epoch.compare_exchange(epoch, epoch + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let mut at = self.seats.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: nobody borrows the domain any more, so nobody uses a seat.
            let seat = unsafe { Box::from_raw(at) };
            at = seat.next.cast_mut();
        }
    }
}

impl<'d> Guard<'d> {
    /// The domain it pins.
    pub(crate) fn domain(&self) -> &'d Domain {
        self.domain
    }

    /// The number of the thread's seat: different for threads that live at the same time, and low.
    pub(crate) fn seat(&self) -> usize {
        self.seat.number as usize
    }

    /// Which of two sides the thread is on, for what is kept apart so that two threads do not take
    /// its lines away from each other.
    pub(crate) fn side(&self) -> usize {
        self.seat() % 2
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.seat.depth.load(Ordering::Relaxed) - 1;
        self.seat.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            // Release: pairs with the acquire fence in `advance`.
            self.seat.state.store(0, Ordering::Release);
            if self.lent {
                self.domain.leave(self.seat);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_passes_only_when_all_who_were_pinned_have_unpinned() {
        let domain = Domain::new();
        let (a, b) = (domain.seat(), domain.seat());
        let old = domain.pin(a);
        let stamp = domain.stamp();
        assert!(!domain.passed(stamp));
        let young = domain.pin(b);
        assert!(!domain.passed(stamp));
        let later = domain.stamp();
        drop(old);
        assert!(domain.passed(stamp), "the other one came later");
        assert!(!domain.passed(later));
        drop(young);
        assert!(domain.passed(later));
    }

    #[test]
    fn guards_nest_and_the_last_one_unpins() {
        let domain = Domain::new();
        let seat = domain.seat();
        let outer = domain.pin(seat);
        let inner = domain.pin(seat);
        let stamp = domain.stamp();
        drop(outer);
        assert!(!domain.passed(stamp));
        drop(inner);
        assert!(domain.passed(stamp));
    }

    #[test]
    fn a_seat_is_taken_again_once_left() {
        let domain = Domain::new();
        let first: *const Seat = domain.seat();
        // SAFETY: seats live as long as the domain.
        domain.leave(unsafe { &*first });
        assert_eq!(first, domain.seat() as *const Seat);
        drop(domain.pin_apart());
        assert_ne!(first, domain.seat() as *const Seat);
    }
}
