//! A slot is removed, drained and reused, while one books with the view of the old life and one
//! frees a booking of it.

use super::load::row::{Load, Row};
use super::load::slot::{Refusal, add, alive, kill, reopen, take_off};
use super::seats::Seats;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &[
    "booked in the old life",
    "booked in the new life",
    "refused: dead",
    "the view has no such rank",
    "the slot was reused",
    "the slot was in quarantine",
];

const OLD: Load = Load::new(1, 0);

struct World {
    row: AtomicU64,
    life: AtomicU64,
    /// The view: which life the rank has, 0 for none. An index, as the view's pointer is.
    view: AtomicU64,
    removed: AtomicU64,
    seats: Seats,
}

/// Books with the view that it finds; gives the life it booked in.
fn book(world: &World) -> Option<u64> {
    let guard = world.seats.pin_at(0);
    let life = world.view.load(Ordering::Acquire);
    let mut booked = None;
    if life == 0 {
        reached("the view has no such rank");
    } else {
        let removed = world.removed.load(Ordering::Acquire) >= life;
        match add(&world.row, OLD, |_| true) {
            Ok(_) => {
                assert!(!removed, "booked on a rank that was removed");
                booked = Some(life);
            }
            Err(Refusal::Dead) => reached("refused: dead"),
            Err(other) => panic!("{other:?}"),
        }
    }
    drop(guard);
    booked
}

pub(crate) fn run() {
    let world = Arc::new(World {
        row: AtomicU64::new(Row::EMPTY.plus(OLD).expect("it fits").bits()),
        life: AtomicU64::new(1),
        view: AtomicU64::new(1),
        removed: AtomicU64::new(0),
        seats: Seats::new(),
    });
    let booker = spawn({
        let world = world.clone();
        move || book(&world)
    });
    let holder = spawn({
        let world = world.clone();
        move || {
            let _guard = world.seats.pin_at(1);
            if alive(&world.row, &world.life, 1) {
                take_off(&world.row, OLD);
            }
        }
    });
    world.view.store(0, Ordering::Release);
    kill(&world.row);
    world.removed.store(1, Ordering::Release);
    let reused = world.seats.passed(world.seats.stamp());
    if reused {
        reached("the slot was reused");
        reopen(&world.row, &world.life, 2);
        add(&world.row, Load::new(5, 0), |_| true).expect("the new life is open");
        world.view.store(2, Ordering::Release);
    } else {
        reached("the slot was in quarantine");
    }
    let booked = booker.join().expect("the booker ends");
    holder.join().expect("the holder ends");
    match booked {
        Some(1) => reached("booked in the old life"),
        Some(_) => reached("booked in the new life"),
        None => {}
    }
    let row = Row::from_bits(world.row.load(Ordering::Relaxed));
    assert_eq!(row.is_dead(), !reused, "a row lives if and only if it was reopened");
    if reused {
        let expected = 5 + u32::from(booked == Some(2));
        assert_eq!(row.tokens(), expected, "two lives of one slot are mixed");
    }
}
