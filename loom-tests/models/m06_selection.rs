//! A limit is lowered while two book: nobody is booked past the limit that the booking judged, and
//! once the update has returned, nobody past the new one.

use super::load::row::{Limit, Load, MAX_BLOCKS, Row};
use super::load::slot::add;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Published};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["booked under the old limit", "booked under the new limit", "refused under the new limit"];

pub(crate) fn run() {
    let row = Arc::new(AtomicU64::new(Row::EMPTY.plus(Load::new(1, 0)).expect("it fits").bits()));
    // One more may go while the row carries at most one token; afterwards, none.
    let limit = Arc::new(Published::new(Limit::new(1, MAX_BLOCKS)));
    let updated = Arc::new(AtomicU64::new(0));
    let updater = spawn({
        let (limit, updated) = (limit.clone(), updated.clone());
        move || {
            limit.store(Arc::new(Limit::new(0, MAX_BLOCKS)));
            updated.store(1, Ordering::Release);
        }
    });
    let freer = spawn({
        let row = row.clone();
        move || {
            super::load::slot::take_off(&row, Load::new(1, 0)).expect("the rank lives");
        }
    });
    let after = updated.load(Ordering::Acquire) == 1;
    let judged = *limit.load();
    let booked = add(&row, Load::new(1, 0), |row| !row.exceeds(judged)).is_ok();
    let new = judged == Limit::new(0, MAX_BLOCKS);
    assert!(!after || new, "a selection that began after the update judged by the old limit");
    match (booked, new) {
        (true, false) => reached("booked under the old limit"),
        (true, true) => reached("booked under the new limit"),
        (false, true) => reached("refused under the new limit"),
        (false, false) => panic!("refused though it was under the limit throughout"),
    }
    updater.join().expect("the updater ends");
    freer.join().expect("the freer ends");
    let carries = Row::from_bits(row.load(Ordering::Relaxed)).tokens();
    assert_eq!(carries, u32::from(booked), "the row is what was booked");
}
