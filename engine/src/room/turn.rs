//! Turns: one thread runs one drain at a time.
//!
//! A drain books, and what it cannot keep it gives back; a give-back at another pool is a release
//! there, and a release drains. Run from inside the first drain this would nest without a bound,
//! through every pool that is paired with another. So a thread that is in the middle of a turn
//! only notes who is to be told; the outermost turn tells them when it ends, one after another,
//! each in a turn of its own.
//!
//! Always: what was put off is run before the outermost call returns to the host, so "put off" is
//! never "left to somebody else".
#![forbid(unsafe_code)]

use crate::sync::{Arc, thread_local};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// One who wants to know that there may be room.
pub(crate) trait Party: Send + Sync {
    /// There may be room: look, on this thread.
    ///
    /// Called with no lock of this crate held. A party with nothing waiting returns at once.
    fn room(&self);
}

#[derive(Default)]
struct Turns {
    /// Whether this thread is inside a turn.
    taken: bool,
    /// Whom to tell when it ends.
    later: VecDeque<Arc<dyn Party>>,
}

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::new(Turns::default());
}

/// A turn of this thread. The outermost one, when dropped, tells those that were put off.
#[must_use = "the turn ends when this is dropped"]
pub(crate) struct Turn {
    outermost: bool,
}

impl Turn {
    /// Begins a turn, or joins the one this thread is in.
    pub(crate) fn begin() -> Turn {
        // A thread that is being torn down has no turns left: what it tells, it runs at once.
        let outermost = TURNS
            .try_with(|turns| !std::mem::replace(&mut turns.borrow_mut().taken, true))
            .unwrap_or(false);
        Turn { outermost }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let mut panic = None;
        loop {
            let next = TURNS.with(|turns| {
                let turns = &mut *turns.borrow_mut();
                let next = turns.later.pop_front();
                turns.taken = next.is_some();
                next
            });
            let Some(party) = next else { break };
            // A party that panics must not leave the others untold.
            if let Err(caught) = catch_unwind(AssertUnwindSafe(|| {
                party.room();
                drop(party);
            })) {
                panic.get_or_insert(caught);
            }
        }
        if let Some(caught) = panic
            && !std::thread::panicking()
        {
            resume_unwind(caught);
        }
    }
}

/// Tells `party` now, or at the end of the turn this thread is in.
pub(crate) fn tell(party: Arc<dyn Party>) {
    let put_off = TURNS.try_with(|turns| {
        let turns = &mut *turns.borrow_mut();
        if turns.taken {
            turns.later.push_back(party.clone());
        }
        turns.taken
    });
    if !put_off.unwrap_or(false) {
        let _turn = Turn::begin();
        party.room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Nested {
        depth: AtomicUsize,
        deepest: AtomicUsize,
        left: AtomicUsize,
        other: Mutex<Option<Arc<Nested>>>,
    }

    impl Nested {
        fn new(left: usize) -> Arc<Nested> {
            Arc::new(Nested {
                depth: AtomicUsize::new(0),
                deepest: AtomicUsize::new(0),
                left: AtomicUsize::new(left),
                other: Mutex::new(None),
            })
        }
    }

    impl Party for Nested {
        fn room(&self) {
            let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
            self.deepest.fetch_max(depth, Ordering::Relaxed);
            if self.left.load(Ordering::Relaxed) > 0 {
                self.left.fetch_sub(1, Ordering::Relaxed);
                let other = self.other.lock().unwrap().clone();
                if let Some(other) = other {
                    tell(other);
                }
            }
            self.depth.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn two_pools_that_tell_each_other_never_nest() {
        let (a, b) = (Nested::new(1_000), Nested::new(1_000));
        *a.other.lock().unwrap() = Some(b.clone());
        *b.other.lock().unwrap() = Some(a.clone());
        tell(a.clone());
        assert_eq!(a.left.load(Ordering::Relaxed), 0);
        assert_eq!(b.left.load(Ordering::Relaxed), 0);
        assert_eq!(a.deepest.load(Ordering::Relaxed), 1);
        assert_eq!(b.deepest.load(Ordering::Relaxed), 1);
        *a.other.lock().unwrap() = None;
        *b.other.lock().unwrap() = None;
    }

    #[test]
    fn who_is_told_inside_a_turn_is_run_when_it_ends() {
        let party = Nested::new(1);
        let turn = Turn::begin();
        tell(party.clone());
        assert_eq!(party.left.load(Ordering::Relaxed), 1);
        drop(turn);
        assert_eq!(party.left.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_party_that_panics_leaves_no_other_untold() {
        struct Panics;
        impl Party for Panics {
            fn room(&self) {
                panic!("host code");
            }
        }
        let party = Nested::new(1);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _turn = Turn::begin();
            tell(Arc::new(Panics));
            tell(party.clone());
        }));
        assert!(caught.is_err());
        assert_eq!(party.left.load(Ordering::Relaxed), 0);
        let after = Nested::new(1);
        tell(after.clone());
        assert_eq!(after.left.load(Ordering::Relaxed), 0, "the thread is out of its turn");
    }
}
