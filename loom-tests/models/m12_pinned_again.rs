//! Somebody looks, unpins, and pins again at once, while what it looked at is unlinked and used
//! again: who moves the epoch may see the second pin alone, and has to know of the look before it.

use super::seats::Seats;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, UnsafeCell};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["looked at it", "found it unlinked", "passed", "somebody may still look"];

struct World {
    seats: Seats,
    /// The link: 1 while it can be found.
    link: AtomicU64,
    what: UnsafeCell<u64>,
}

pub(crate) fn run() {
    let world =
        Arc::new(World { seats: Seats::new(), link: AtomicU64::new(1), what: UnsafeCell::new(7) });
    let reader = spawn({
        let world = world.clone();
        move || {
            let guard = world.seats.pin_at(0);
            if world.link.load(Ordering::Acquire) == 1 {
                // SAFETY: pinned, and found by the link: that nobody writes now is what the model
                // checks.
                let seen = world.what.with(|what| unsafe { *what });
                assert_eq!(seen, 7, "used again while somebody looks");
                reached("looked at it");
            } else {
                reached("found it unlinked");
            }
            drop(guard);
            drop(world.seats.pin_at(0));
        }
    });
    world.link.swap(0, Ordering::Release);
    let stamp = world.seats.stamp();
    if world.seats.passed(stamp) {
        // SAFETY: the grace period has passed: nobody looks.
        world.what.with_mut(|what| unsafe { *what = 8 });
        reached("passed");
    } else {
        reached("somebody may still look");
    }
    reader.join().expect("the reader ends");
}
