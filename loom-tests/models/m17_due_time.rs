//! A due time passes while a drain is running.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::baton::Drained;
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["refused by who brought the time", "refused by the drain that was running"];

pub(crate) fn run() {
    let pool = Pool::new(0, 2, u64::MAX, None);
    let entry = Entry::due_at(10);
    pool.enqueue(&entry).expect("the pool is open");
    let releaser = spawn("releaser", {
        let pool = pool.clone();
        // Frees something, and not enough.
        move || pool.release(ONE)
    });
    let drained = pool.drain_at(10);
    releaser.join().expect("the releaser ends");
    assert_eq!(entry.fate(false), Some(Fate::Expired), "a waiter sleeps past its due time");
    reached(match drained {
        Drained::Marked => "refused by the drain that was running",
        _ => "refused by who brought the time",
    });
    assert_eq!(pool.carries(), 1);
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
