//! Three threads each change something and want a drain; whoever drains must see all three.

use super::queue::baton::{Baton, Drained, Step, Work};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::atomic::AtomicU64 as Unseen;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["left a mark", "drained its own alone", "drained another's as well"];

struct World {
    baton: Baton,
    /// What each thread changed; published by its mark alone.
    changed: [AtomicU64; 3],
    /// What drains have answered; handed from drain to drain by the baton alone.
    answered: [AtomicU64; 3],
    /// Whether somebody is inside a step, and how many changes drains have answered. Not loom's:
    /// they order nothing.
    draining: Unseen,
    count: Unseen,
}

impl Work for World {
    fn step(&self, _now: u64) -> Step {
        let draining = self.draining.fetch_add(1, Ordering::Relaxed);
        assert_eq!(draining, 0, "one drains at a time");
        let next = (0..3).find(|&i| {
            self.changed[i].load(Ordering::Relaxed) == 1
                && self.answered[i].load(Ordering::Relaxed) == 0
        });
        if let Some(i) = next {
            let before = self.answered[i].fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, 0, "a drain sees what the one before it did");
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.draining.fetch_sub(1, Ordering::Relaxed);
        if next.is_some() { Step::Went } else { Step::Rest }
    }

    fn hand_on(&self) {
        unreachable!("no bound, no panic");
    }
}

fn change(world: &World, i: usize) {
    world.changed[i].store(1, Ordering::Relaxed);
    let before = world.count.load(Ordering::Relaxed);
    match world.baton.drain(world, u64::MAX) {
        Drained::Marked => reached("left a mark"),
        Drained::Rested if world.count.load(Ordering::Relaxed) - before > 1 => {
            reached("drained another's as well");
        }
        Drained::Rested => reached("drained its own alone"),
        Drained::HandedOn => unreachable!("no bound, no panic"),
    }
}

pub(crate) fn run() {
    let world = Arc::new(World {
        baton: Baton::new(),
        changed: [(); 3].map(|()| AtomicU64::new(0)),
        answered: [(); 3].map(|()| AtomicU64::new(0)),
        draining: Unseen::new(0),
        count: Unseen::new(0),
    });
    let threads = [1, 2].map(|i| {
        let world = world.clone();
        spawn(move || change(&world, i))
    });
    change(&world, 0);
    for thread in threads {
        thread.join().expect("the thread ends");
    }
    for answered in &world.answered {
        assert_eq!(answered.load(Ordering::Relaxed), 1, "a mark was lost");
    }
}
