//! A hold is turned into its booking on a rank that is full but for it, while another books there.

use super::load::row::{Limit, Load, Row};
use super::load::slot::{Refusal, add, replace};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["the other was refused", "the leg came second"];

const HELD: Load = Load::new(0, 3);
const LEG: Load = Load::new(2, 3);
const OTHER: Load = Load::new(0, 1);

pub(crate) fn run() {
    // Full with the hold: nobody else may land here before or after.
    let limit = Limit::new(u32::MAX, 2);
    let row = Arc::new(AtomicU64::new(Row::EMPTY.plus(HELD).expect("it fits").bits()));
    let other = spawn({
        let row = row.clone();
        // Output of somebody who is on the rank already: changes the row, asks for no room.
        move || add(&row, OTHER, |_| true).expect("the rank lives")
    });
    let newcomer = spawn({
        let row = row.clone();
        move || match add(&row, OTHER, |row| !row.exceeds(limit)) {
            Ok(_) => panic!("somebody landed in the room of a hold"),
            Err(Refusal::Full(_)) => reached("the other was refused"),
            Err(other) => panic!("{other:?}"),
        }
    });
    let converted = replace(&row, HELD, LEG, |row| !row.exceeds(limit));
    let converted = converted.expect("judged as if its own hold were not there");
    if converted.blocks() == 4 {
        reached("the leg came second");
    }
    other.join().expect("the other ends");
    newcomer.join().expect("the newcomer ends");
    let row = Row::from_bits(row.load(Ordering::Relaxed));
    assert_eq!((row.tokens(), row.blocks()), (2, 4), "the row is what was booked");
}
