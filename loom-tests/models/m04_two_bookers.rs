//! Two book on a rank with room for one, and on a rank with room for both.

use super::load::row::{Limit, Load, MAX_BLOCKS, Row};
use super::load::slot::{Refusal, add};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["the first was refused", "the second was refused"];

const ONE: Load = Load::new(1, 0);

fn book(row: &AtomicU64, most: u32) -> bool {
    match add(row, ONE, |row| !row.exceeds(Limit::new(most, MAX_BLOCKS))) {
        Ok(_) => true,
        Err(Refusal::Full(row)) => {
            assert!(
                row.exceeds(Limit::new(most, MAX_BLOCKS)),
                "refused on a value that has room: a lost swap is not a no"
            );
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

pub(crate) fn run() {
    let rows = Arc::new([(); 2].map(|()| AtomicU64::new(Row::EMPTY.bits())));
    let other = spawn({
        let rows = rows.clone();
        move || (book(&rows[0], 0), book(&rows[1], 1))
    });
    let mine = (book(&rows[0], 0), book(&rows[1], 1));
    let theirs = other.join().expect("the other ends");
    let carries = |row: &AtomicU64| Row::from_bits(row.load(Ordering::Relaxed)).tokens();
    assert_eq!(carries(&rows[0]), 1, "one was booked past the limit");
    assert_ne!(mine.0, theirs.0, "one of the two was booked");
    reached(if mine.0 { "the second was refused" } else { "the first was refused" });
    assert!(mine.1 && theirs.1, "both were booked where there was room for both");
    assert_eq!(carries(&rows[1]), 2, "both are in the row");
}
