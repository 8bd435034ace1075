//! Something is unlinked and used again while somebody looks at it and a third moves the epoch.

use super::seats::Seats;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, UnsafeCell};
use std::sync::atomic::AtomicU64 as Unseen;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &[
    "looked at it",
    "found it unlinked",
    "passed by another's moves",
    "passed by its own moves",
    "somebody may still look",
];

struct World {
    seats: Seats,
    /// The link: 1 while it can be found.
    link: AtomicU64,
    what: UnsafeCell<u64>,
    /// Readers that look at it. Not loom's.
    looking: Unseen,
}

pub(crate) fn run() {
    let world = Arc::new(World {
        seats: Seats::new(),
        link: AtomicU64::new(1),
        what: UnsafeCell::new(7),
        looking: Unseen::new(0),
    });
    let early = world.seats.stamp();
    let reader = spawn({
        let world = world.clone();
        move || {
            let guard = world.seats.pin_at(0);
            if world.link.load(Ordering::Acquire) == 1 {
                world.looking.fetch_add(1, Ordering::Relaxed);
                // SAFETY: pinned, and found by the link: that nobody writes now is what the model
                // checks.
                let seen = world.what.with(|what| unsafe { *what });
                assert_eq!(seen, 7, "used again while somebody looks");
                world.looking.fetch_sub(1, Ordering::Relaxed);
                reached("looked at it");
            } else {
                reached("found it unlinked");
            }
            drop(guard);
        }
    });
    let mover = spawn({
        let world = world.clone();
        move || world.seats.passed(early)
    });
    world.link.swap(0, Ordering::Release);
    let stamp = world.seats.stamp();
    let passed = if world.seats.has_passed(stamp) {
        reached("passed by another's moves");
        true
    } else if world.seats.passed(stamp) {
        reached("passed by its own moves");
        true
    } else {
        reached("somebody may still look");
        false
    };
    if passed {
        let looking = world.looking.load(Ordering::Relaxed);
        assert_eq!(looking, 0, "used again while somebody looks");
        // SAFETY: the grace period has passed: nobody looks.
        world.what.with_mut(|what| unsafe { *what = 8 });
    }
    reader.join().expect("the reader ends");
    mover.join().expect("the mover ends");
}
