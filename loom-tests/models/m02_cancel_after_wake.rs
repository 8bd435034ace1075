//! Three wait, two places are released by two threads, and the first to wait is cancelled, before
//! it is chosen or after.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::{Cancelled, Fate};
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["cancelled while it waited", "cancelled after it was chosen"];

pub(crate) fn run() {
    // Two places, both taken.
    let pool = Pool::new(1, 2, u64::MAX, None);
    let entries = [(); 3].map(|()| Entry::new());
    for entry in &entries {
        pool.enqueue(entry).expect("the pool is open");
    }
    let releasers = ["one", "other"].map(|name| {
        let pool = pool.clone();
        spawn(name, move || pool.release(ONE))
    });
    match pool.cancel(&entries[0]) {
        Cancelled::Withdrawn { .. } => reached("cancelled while it waited"),
        Cancelled::Chosen(()) => reached("cancelled after it was chosen"),
        Cancelled::Over => panic!("it was neither waiting nor chosen"),
    }
    for releaser in releasers {
        releaser.join().expect("the releaser ends");
    }
    let ready: Vec<bool> =
        entries[1..].iter().map(|e| e.fate(false) == Some(Fate::Ready(()))).collect();
    let booked = ready.iter().filter(|ready| **ready).count() as u32;
    assert_eq!(pool.carries(), booked, "what nobody holds was given back");
    assert_eq!(booked, 2, "a waiter sleeps beside room");
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
