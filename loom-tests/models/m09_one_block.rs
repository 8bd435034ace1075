//! One block: a rank changes twice while two look. A look, whether it believes a summary or sums
//! up itself, says nothing that was out of date when it began, and nothing mixed; at rest a summary
//! that is believed says what the row says.

use super::fleet::seal::{Sealed, Turns, Versions};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["believed", "summed up", "not published"];

struct World {
    row: AtomicU64,
    /// What whoever has seen it knows to be in the row.
    told: AtomicU64,
    versions: Versions,
    turns: Turns,
    each: Sealed<2>,
}

impl World {
    fn change(&self, to: u64) {
        self.row.store(to, Ordering::Relaxed);
        self.versions.bump(0, 0);
        self.told.store(to, Ordering::Release);
    }

    fn look(&self) -> u64 {
        let version = self.versions.of(0);
        if let Some([one, other]) = self.each.read(version) {
            assert_eq!(one, other, "the words are of two summaries");
            reached("believed");
            return one;
        }
        let row = self.row.load(Ordering::Relaxed);
        reached("summed up");
        match self.turns.take() {
            Some(turn) => {
                self.each.put(&turn, version, [row, row]);
            }
            None => reached("not published"),
        }
        row
    }

    fn check(&self) {
        let told = self.told.load(Ordering::Acquire);
        let seen = self.look();
        assert!(seen >= told, "a look is older than what was known before it");
    }
}

pub(crate) fn run() {
    let world = Arc::new(World {
        row: AtomicU64::new(0),
        told: AtomicU64::new(0),
        versions: Versions::new(),
        turns: Turns::new(),
        each: Sealed::default(),
    });
    let writer = spawn({
        let world = world.clone();
        move || {
            world.change(1);
            world.change(2);
        }
    });
    let other = spawn({
        let world = world.clone();
        move || world.check()
    });
    world.check();
    world.check();
    writer.join().expect("the writer ends");
    other.join().expect("the other one ends");
    for _ in 0..2 {
        assert_eq!(world.look(), 2, "at rest a summary is out of date");
    }
}
