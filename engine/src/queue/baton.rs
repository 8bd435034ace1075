//! The baton: who drains, and how a drain is handed over without losing a mark.
//!
//! ```text
//! want a drain                            drain (whoever found 0)
//!   clock: largest of it and now            seen = 1
//!   marks + 1      (RMW)                    until nothing can go: read the clock, look, let one in
//!   found 0? drain : done                   marks - seen  (RMW); what is left? 0: done
//!                                           seen = what is left; look again
//! ```
//!
//! Marks are a counter, left and taken by read-modify-write. Who adds to a count above zero has
//! left a mark for a drainer whose subtraction is still to come: it acquires the mark, and with it
//! everything that was done before the mark was left (the entry, the row, the clock). A state that
//! is loaded first loses marks: "somebody drains" is read, and the drainer has let go meanwhile.
//!
//! A bounded drain stops after so many steps. It lets go first (takes *all* marks, by a swap),
//! then hands the baton to somebody who waits, who drains when next polled. The other order loses
//! it: the one it was handed to finds the count above zero, leaves a mark, and the swap takes that
//! mark away. A holder that leaves the queue passes the baton on, see `waiter`.
//!
//! Each step gets the clock as it is then, and must look at the fleet and the limits as they are
//! then: the mark of a change that comes while a drain is running is answered by the next round,
//! and only a round that looks afresh sees the change.
//!
//! A panic that gets out of a step lets go and hands on like a bound that was reached, so that the
//! count never stays up. (Steps catch the panics of host code themselves and refuse the request.)
#![forbid(unsafe_code)]

use crate::sync::atomic::{AtomicU64, Ordering};

/// What one step of a drain did.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something left the queue or moved: there may be more.
    Went,
    /// Nothing can go as things are.
    Rest,
}

/// What a drain works on.
pub(crate) trait Work {
    /// Looks at the queue, the fleet and the limits afresh, at `now`, and lets one go if it can.
    fn step(&self, now: u64) -> Step;

    /// A drain has let go with work left, or by a panic: wakes somebody who will drain, see
    /// [`super::waiter::Waiter::hand_baton`]; a drain that finds nobody has nobody to drain for.
    fn hand_on(&self);
}

/// How a call for a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Somebody else drains, and will look again.
    Marked,
    /// This call drained until nothing could go.
    Rested,
    /// This call drained up to its bound and handed on.
    HandedOn,
}

/// The right to drain a queue, and the clock that drains go by. See the head of this file.
#[derive(Debug)]
pub(crate) struct Baton {
    marks: AtomicU64,
    clock: AtomicU64,
}

impl Baton {
    /// Nobody drains; the clock is at zero.
    pub(crate) fn new() -> Baton {
        Baton { marks: AtomicU64::new(0), clock: AtomicU64::new(0) }
    }

    /// Shows the clock an instant (nanoseconds), and gives the largest one that it was shown.
    pub(crate) fn show(&self, now: u64) -> u64 {
        // Relaxed: a mark left afterwards publishes it.
        self.clock.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The largest instant that the clock was shown (nanoseconds).
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Drains until nothing can go, or for `bound` steps (`u64::MAX`: no bound); if somebody else
    /// drains, leaves a mark and returns. An instant that it is to be done at is shown to the clock
    /// first. Runs host code: no lock may be held.
    pub(crate) fn drain(&self, work: &impl Work, bound: u64) -> Drained {
        // Release: publishes what the caller did. Acquire: what the last drainer saw. Both pair
        // with the subtraction in `Held::round_is_over` and the swap in `Held::drop`.
        if self.marks.fetch_add(1, Ordering::AcqRel) != 0 {
            return Drained::Marked;
        }
        let mut held = Held { baton: self, work, seen: 1 };
        let mut steps = 0;
        loop {
            if steps >= bound {
                drop(held);
                return Drained::HandedOn;
            }
            steps += 1;
            let step = work.step(self.now());
            if step == Step::Rest && held.round_is_over() {
                return Drained::Rested;
            }
        }
    }
}

/// The baton in the hand of the one who drains. Dropped with marks seen: it lets go and hands on.
struct Held<'a, W: Work> {
    baton: &'a Baton,
    work: &'a W,
    /// Marks that this drain answers for; 0: let go.
    seen: u64,
}

impl<W: Work> Held<'_, W> {
    /// Takes down the marks that the last round answered. True: none is left, the baton is let go.
    fn round_is_over(&mut self) -> bool {
        // Acquire: sees what the marks left meanwhile publish. Release: the next drainer sees what
        // this one did. Both pair with the addition in `drain`.
        self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::AcqRel) - self.seen;
        self.seen == 0
    }
}

impl<W: Work> Drop for Held<'_, W> {
    fn drop(&mut self) {
        if self.seen == 0 {
            return;
        }
        // Lets go, then hands on. All marks are taken: the next holder looks at everything they
        // were left for. Acquire and release as in `round_is_over`.
        self.baton.marks.swap(0, Ordering::AcqRel);
        self.work.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    type During = Box<dyn Fn(&Count<'_>)>;

    /// Work that lets one of `left` in per step.
    struct Count<'a> {
        baton: &'a Baton,
        left: Cell<u64>,
        handed_on: Cell<u64>,
        at: RefCell<Vec<u64>>,
        during: RefCell<Option<During>>,
    }

    impl<'a> Count<'a> {
        fn new(baton: &'a Baton, left: u64) -> Self {
            Count {
                baton,
                left: Cell::new(left),
                handed_on: Cell::new(0),
                at: RefCell::default(),
                during: RefCell::new(None),
            }
        }
    }

    impl Work for Count<'_> {
        fn step(&self, now: u64) -> Step {
            self.at.borrow_mut().push(now);
            let during = self.during.borrow_mut().take();
            if let Some(during) = during {
                during(self);
            }
            if self.left.get() == 0 {
                return Step::Rest;
            }
            self.left.set(self.left.get() - 1);
            Step::Went
        }

        fn hand_on(&self) {
            assert_eq!(self.baton.marks.load(Ordering::Relaxed), 0, "lets go before it hands on");
            self.handed_on.set(self.handed_on.get() + 1);
        }
    }

    #[test]
    fn a_drain_goes_on_until_nothing_can_go() {
        let baton = Baton::new();
        let work = Count::new(&baton, 5);
        assert_eq!(baton.drain(&work, u64::MAX), Drained::Rested);
        assert_eq!((work.left.get(), work.handed_on.get()), (0, 0));
        assert_eq!(baton.marks.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_mark_left_during_a_drain_is_answered_by_another_look_at_the_new_time() {
        let baton = Baton::new();
        let work = Count::new(&baton, 0);
        *work.during.borrow_mut() = Some(Box::new(|work| {
            work.baton.show(7);
            assert_eq!(work.baton.drain(work, u64::MAX), Drained::Marked);
        }));
        baton.show(3);
        assert_eq!(baton.drain(&work, u64::MAX), Drained::Rested);
        assert_eq!(*work.at.borrow(), [3, 7]);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let baton = Baton::new();
        assert_eq!(baton.show(9), 9);
        assert_eq!(baton.show(4), 9);
        assert_eq!(baton.now(), 9);
    }

    #[test]
    fn a_bounded_drain_lets_go_and_then_hands_on() {
        let baton = Baton::new();
        let work = Count::new(&baton, 5);
        assert_eq!(baton.drain(&work, 2), Drained::HandedOn);
        assert_eq!((work.left.get(), work.handed_on.get()), (3, 1));
        assert_eq!(baton.drain(&work, u64::MAX), Drained::Rested);
        assert_eq!(work.left.get(), 0);
    }

    #[test]
    fn a_panic_in_a_step_lets_go_and_hands_on() {
        let baton = Baton::new();
        let work = Count::new(&baton, 5);
        *work.during.borrow_mut() = Some(Box::new(|_| panic!("host code")));
        assert!(catch_unwind(AssertUnwindSafe(|| baton.drain(&work, u64::MAX))).is_err());
        assert_eq!(work.handed_on.get(), 1);
        assert_eq!(baton.drain(&work, u64::MAX), Drained::Rested);
        assert_eq!(work.left.get(), 0);
    }
}
