//! A hold under an id is turned into its booking, and reclaimed, while its lease is renewed.

use super::load::ids::Ids;
use super::load::row::{Load, Row};
use super::load::slot::{replace, take_off};
use super::names::RequestId;
use super::time::Time;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["converted", "cancelled", "expired", "renewed and kept", "expired before it was renewed"];

const ID: RequestId = RequestId(7);
const HELD: Load = Load::new(0, 3);
const LEG: Load = Load::new(2, 3);
const LEASE: Duration = Duration::from_nanos(10);

/// A hold, as the engine's: a value that gives its load back once, when it is over.
struct Hold(Load);

struct World {
    holds: Ids<Hold>,
    row: AtomicU64,
}

impl World {
    fn give_back(&self, hold: Hold) {
        take_off(&self.row, hold.0).expect("the rank lives");
    }
}

pub(crate) fn run() {
    let world = Arc::new(World {
        holds: Ids::new(Some(LEASE)),
        row: AtomicU64::new(Row::EMPTY.plus(HELD).expect("it fits").bits()),
    });
    world.holds.reserve(ID).expect("the id is free");
    world.holds.fill(ID, Hold(HELD), Time::ZERO);
    let leg = spawn({
        let world = world.clone();
        move || match world.holds.remove(ID, None) {
            Some(hold) => {
                replace(&world.row, hold.0, LEG, |_| true).expect("the rank lives and has room");
                true
            }
            None => false,
        }
    });
    let timer = spawn({
        let world = world.clone();
        move || {
            let lapsed = world.holds.expire(Time::from_nanos(10));
            let expired = lapsed.len();
            lapsed.into_iter().for_each(|lapsed| world.give_back(lapsed.value));
            expired == 1
        }
    });
    let renewed = world.holds.with(ID, Time::from_nanos(5), |_| ()).is_some();
    let cancelled = match world.holds.remove(ID, None) {
        Some(hold) => {
            world.give_back(hold);
            true
        }
        None => false,
    };
    let converted = leg.join().expect("the leg ends");
    let expired = timer.join().expect("the timer ends");
    let ends = [converted, cancelled, expired];
    assert_eq!(ends.iter().filter(|end| **end).count(), 1, "a hold ends once");
    assert!(!(renewed && expired), "a lease was renewed and the hold reclaimed all the same");
    for (end, branch) in ends.into_iter().zip(BRANCHES) {
        if end {
            reached(branch);
        }
    }
    if renewed {
        reached("renewed and kept");
    } else if expired {
        reached("expired before it was renewed");
    }
    let row = Row::from_bits(world.row.load(Ordering::Relaxed));
    let left = if converted { LEG } else { Load::new(0, 0) };
    assert_eq!((row.tokens(), row.blocks()), (left.tokens, left.blocks), "given back exactly once");
}
