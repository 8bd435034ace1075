//! Room is released beside a waiter who believes a summary that says there is none. He registers,
//! then looks: either his look finds the room, or the epoch moves after he has registered.

use super::fleet::seal::{Sealed, Turns, Versions};
use super::room::signal::RoomSignal;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["believed that there is no room", "found room", "was told"];

struct World {
    /// 1: full.
    row: AtomicU64,
    versions: Versions,
    turns: Turns,
    each: Sealed<1>,
    signal: RoomSignal,
}

impl World {
    fn release(&self) {
        self.row.store(0, Ordering::Relaxed);
        self.versions.bump(0, 0);
        let _ = self.signal.release();
    }

    /// Whether all are full, and whether a summary said so.
    fn look(&self) -> (bool, bool) {
        let version = self.versions.of(0);
        if let Some([full]) = self.each.read(version) {
            return (full == 1, true);
        }
        let full = self.row.load(Ordering::Relaxed);
        if let Some(turn) = self.turns.take() {
            self.each.put(&turn, version, [full]);
        }
        (full == 1, false)
    }
}

pub(crate) fn run() {
    let world = Arc::new(World {
        row: AtomicU64::new(1),
        versions: Versions::new(),
        turns: Turns::new(),
        each: Sealed::default(),
        signal: RoomSignal::new(),
    });
    let releaser = spawn({
        let world = world.clone();
        move || world.release()
    });
    // Somebody else sums up meanwhile, and leaves what he found.
    let looker = spawn({
        let world = world.clone();
        move || {
            world.look();
        }
    });
    let epoch = world.signal.register();
    let (full, believed) = world.look();
    releaser.join().expect("the releaser ends");
    looker.join().expect("the looker ends");
    if !full {
        reached("found room");
        return;
    }
    if believed {
        reached("believed that there is no room");
    }
    reached("was told");
    assert_ne!(world.signal.epoch(), epoch, "a waiter sleeps beside room");
}
