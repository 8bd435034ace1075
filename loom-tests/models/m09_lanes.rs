//! Two lanes of one block change, on two threads, while a third brings a summary up to date by the
//! lanes that are remembered to have changed.

use super::fleet::seal::{Sealed, Turns, Versions, changed, is_as_late};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["believed", "brought up to date", "summed up"];

struct World {
    rows: [AtomicU64; 2],
    told: [AtomicU64; 2],
    versions: Versions,
    turns: Turns,
    each: Sealed<2>,
}

impl World {
    fn change(&self, lane: usize) {
        self.rows[lane].store(1, Ordering::Relaxed);
        self.versions.bump(0, lane);
        self.told[lane].store(1, Ordering::Release);
    }

    fn look(&self) -> [u64; 2] {
        let version = self.versions.of(0);
        if let Some(rows) = self.each.read(version) {
            reached("believed");
            return rows;
        }
        let row = |lane: usize| self.rows[lane].load(Ordering::Relaxed);
        let amended = self.each.latest().and_then(|(known, mut rows)| {
            if is_as_late(known, version) {
                return Some(rows);
            }
            let changed = changed(known, version)?;
            for lane in [0, 1] {
                if changed >> lane & 1 == 1 {
                    rows[lane] = row(lane);
                }
            }
            reached("brought up to date");
            Some(rows)
        });
        let rows = amended.unwrap_or_else(|| {
            reached("summed up");
            [row(0), row(1)]
        });
        if let Some(turn) = self.turns.take() {
            self.each.put(&turn, version, rows);
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
        each: Sealed::default(),
    });
    // What there was before anything changed.
    assert_eq!(world.look(), [0, 0]);
    let writers = [0, 1].map(|lane| {
        let world = world.clone();
        spawn(move || world.change(lane))
    });
    for _ in 0..2 {
        let told = [0, 1].map(|lane: usize| world.told[lane].load(Ordering::Acquire));
        let seen = world.look();
        assert!(
            seen[0] >= told[0] && seen[1] >= told[1],
            "a look is older than what was known before it"
        );
    }
    for writer in writers {
        writer.join().expect("the writer ends");
    }
    for _ in 0..2 {
        assert_eq!(world.look(), [1, 1], "at rest a summary is out of date");
    }
}
