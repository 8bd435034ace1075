//! A booking is freed while its worker is removed and comes back to the same slot.

use super::load::row::{Load, Row};
use super::load::slot::{add, alive, kill, reopen, take_off};
use super::seats::Seats;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &[
    "freed before the removal",
    "freed while dead",
    "freed in the next life",
    "the slot was in quarantine",
];

const ONE: Load = Load::new(1, 0);

pub(crate) fn run() {
    let row = Arc::new(AtomicU64::new(Row::EMPTY.plus(ONE).expect("it fits").bits()));
    let life = Arc::new(AtomicU64::new(1));
    let seats = Arc::new(Seats::new());
    let writer = spawn({
        let (row, life, seats) = (row.clone(), life.clone(), seats.clone());
        move || {
            kill(&row);
            if !seats.passed(seats.stamp()) {
                reached("the slot was in quarantine");
                return false;
            }
            reopen(&row, &life, 2);
            add(&row, Load::new(5, 0), |_| true).expect("the new life is open");
            true
        }
    });
    let guard = seats.pin_at(0);
    if alive(&row, &life, 1) {
        if take_off(&row, ONE).is_some() {
            reached("freed before the removal");
        } else {
            reached("freed while dead");
        }
    } else if life.load(Ordering::Relaxed) == 2 {
        reached("freed in the next life");
    }
    drop(guard);
    let reopened = writer.join().expect("the writer ends");
    let row = Row::from_bits(row.load(Ordering::Relaxed));
    assert_eq!(row.is_dead(), !reopened, "a row lives if and only if it was reopened");
    if reopened {
        assert_eq!(row.tokens(), 5, "a former life took load off the next one");
    }
}
