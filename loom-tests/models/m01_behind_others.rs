//! Somebody enters behind a waiter that is registered already, while room for both is released, one by one.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["the second was let in by a release", "the second was let in by its own look"];

pub(crate) fn run() {
    // A place for each token that is taken off.
    let pool = Pool::new(1, 2, u64::MAX, None);
    let (first, second) = (Entry::new(), Entry::new());
    pool.enqueue(&first).expect("the pool is open");
    let releaser = spawn("releaser", {
        let pool = pool.clone();
        move || {
            pool.release(ONE);
            pool.release(ONE);
        }
    });
    pool.enqueue(&second).expect("the pool is open");
    releaser.join().expect("the releaser ends");
    for entry in [&first, &second] {
        assert_eq!(entry.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    }
    match pool.let_in_by.lock().expect("not poisoned")[..] {
        [_, "releaser"] => reached("the second was let in by a release"),
        [_, "main"] => reached("the second was let in by its own look"),
        ref other => panic!("let in by {other:?}"),
    }
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
