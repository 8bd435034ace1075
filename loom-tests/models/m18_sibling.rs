//! A booking on a full rank stands because a sibling has room; the sibling is filled.

use super::load::row::{Limit, Load, MAX_BLOCKS, Row};
use super::load::slot::{Refusal, add, land_beside, take_off};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["stands", "given back", "the sibling was full before the landing"];

const ONE: Load = Load::new(1, 0);

fn has_room(row: &AtomicU64) -> bool {
    !Row::from_bits(row.load(Ordering::Acquire)).exceeds(Limit::new(0, MAX_BLOCKS))
}

pub(crate) fn run() {
    let full = Arc::new(AtomicU64::new(Row::EMPTY.plus(ONE).expect("it fits").bits()));
    let sibling = Arc::new(AtomicU64::new(Row::EMPTY.bits()));
    let filled = Arc::new(AtomicU64::new(0));
    let filler = spawn({
        let (sibling, filled) = (sibling.clone(), filled.clone());
        move || {
            add(&sibling, ONE, |row| !row.exceeds(Limit::new(0, MAX_BLOCKS))).expect("it has room");
            filled.store(1, Ordering::Release);
        }
    });
    // The pass: the rank is full, its worker is not.
    let proposed = has_room(&sibling);
    let mut was_filled = false;
    let landed = proposed.then(|| {
        let land = || {
            was_filled = filled.load(Ordering::Acquire) == 1;
            add(&full, ONE, |_| true)
        };
        let give_back = |row| {
            take_off(&full, ONE).expect("the rank lives");
            Refusal::Full(row)
        };
        land_beside(land, || has_room(&sibling), give_back)
    });
    filler.join().expect("the filler ends");
    if was_filled {
        reached("the sibling was full before the landing");
    }
    let carries = Row::from_bits(full.load(Ordering::Relaxed)).tokens();
    match landed {
        Some(Ok(_)) => {
            assert!(!was_filled, "landed on a worker that was full");
            reached("stands");
            assert_eq!(carries, 2);
        }
        Some(Err(_)) => {
            reached("given back");
            assert_eq!(carries, 1, "what was refused was given back");
        }
        None => assert_eq!(carries, 1),
    }
}
