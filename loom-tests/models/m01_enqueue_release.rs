//! Somebody enters the queue while the room it needs is released, in two steps.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["its own look let it in", "the release let it in", "nobody was registered at the release"];

pub(crate) fn run() {
    // Full until both tokens are off.
    let pool = Pool::new(0, 2, u64::MAX, None);
    let releaser = spawn("releaser", {
        let pool = pool.clone();
        move || {
            pool.release(ONE);
            if pool.signal.registered() == 0 {
                reached("nobody was registered at the release");
            }
            pool.release(ONE);
        }
    });
    let entry = Entry::new();
    pool.enqueue(&entry).expect("the pool is open");
    releaser.join().expect("the releaser ends");
    assert_eq!(entry.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    match pool.let_in_by.lock().expect("not poisoned")[..] {
        ["main"] => reached("its own look let it in"),
        ["releaser"] => reached("the release let it in"),
        ref other => panic!("let in by {other:?}"),
    }
    assert_eq!(pool.carries(), 1, "the row is what was booked");
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
