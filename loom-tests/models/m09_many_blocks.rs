//! Two blocks that are summed up as one, changed by two threads: a sum of versions stands for each
//! of them, if it is taken after the seal.

use super::fleet::seal::{Sealed, Turns, Versions};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["believed", "believed the later one", "summed up"];

struct World {
    rows: [AtomicU64; 2],
    told: [AtomicU64; 2],
    versions: Versions,
    turns: Turns,
    whole: Sealed<2>,
    /// What somebody found later who went by the sum that `whole` was found valid for.
    later: Sealed<2>,
}

impl World {
    fn change(&self, block: usize) {
        self.rows[block].store(1, Ordering::Relaxed);
        self.versions.bump(block, 0);
    }

    fn look(&self) -> [u64; 2] {
        if let Some((_, rows)) = self.later.read_sum(&self.versions) {
            reached("believed the later one");
            return rows;
        }
        let now = || [0, 1].map(|block: usize| self.rows[block].load(Ordering::Relaxed));
        if let Some((sum, rows)) = self.whole.read_sum(&self.versions) {
            reached("believed");
            if let Some(turn) = self.turns.take() {
                self.later.put(&turn, sum, now());
            }
            return rows;
        }
        let sum = self.versions.of(0) + self.versions.of(1);
        let rows = now();
        reached("summed up");
        if let Some(turn) = self.turns.take() {
            self.whole.put(&turn, sum, rows);
        }
        rows
    }
}

pub(crate) fn run() {
    let zeros = || [(); 2].map(|()| AtomicU64::new(0));
    let world = Arc::new(World {
        rows: zeros(),
        told: zeros(),
        versions: Versions::new(),
        turns: Turns::new(),
        whole: Sealed::default(),
        later: Sealed::default(),
    });
    // It changes the one block and sums up both: it knows of its own change.
    let first = spawn({
        let world = world.clone();
        move || {
            world.change(0);
            let seen = world.look();
            assert_eq!(seen[0], 1, "a look is older than what was known before it");
        }
    });
    // It changes the other one, and says so.
    let second = spawn({
        let world = world.clone();
        move || {
            world.change(1);
            world.told[1].store(1, Ordering::Release);
        }
    });
    for _ in 0..2 {
        let told = world.told[1].load(Ordering::Acquire);
        let seen = world.look();
        assert!(seen[1] >= told, "a look is older than what was known before it");
    }
    first.join().expect("the first ends");
    second.join().expect("the second ends");
    for _ in 0..3 {
        assert_eq!(world.look(), [1, 1], "at rest a summary is out of date");
    }
}
