//! A count of row operations without a difference to plain integers. `VACANCY_LONG=1` makes it a
//! hundred million, to be run in release.
#![forbid(unsafe_code)]

use vacancy_fuzz_targets::{rows_alone, rows_among_threads};

fn count() -> u64 {
    let long = std::env::var("VACANCY_LONG").is_ok_and(|long| long == "1");
    if long { 100_000_000 } else { 1_000_000 }
}

#[test]
fn row_operations_do_to_the_word_what_they_do_to_plain_integers() {
    rows_alone(1, count());
    println!("{} row operations without a difference", count());
}

#[test]
fn two_threads_on_one_row_leave_the_sum_of_what_they_put_there() {
    let each = count() / 4;
    rows_among_threads(2, each);
    println!("{} row operations from two threads, and the sums are right", 2 * each);
}
