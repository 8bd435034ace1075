//! A head that cannot go stands before one who can, and is cancelled: nothing else happens, and
//! the one behind it goes in.

use super::pool::{Entry, Pool, spawn};
use super::queue::waiter::{Cancelled, Fate};
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &["let in by the cancel", "let in by its own look"];

pub(crate) fn run() {
    let pool = Pool::new(1, 1, u64::MAX, None);
    let (head, behind) = (Entry::needing(0), Entry::new());
    pool.enqueue(&head).expect("the pool is open");
    let canceller = spawn("canceller", {
        let pool = pool.clone();
        move || assert!(matches!(pool.cancel(&head), Cancelled::Withdrawn { .. }))
    });
    pool.enqueue(&behind).expect("the pool is open");
    canceller.join().expect("the canceller ends");
    assert_eq!(behind.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    match pool.let_in_by.lock().expect("not poisoned")[..] {
        ["canceller"] => reached("let in by the cancel"),
        ["main"] => reached("let in by its own look"),
        ref other => panic!("let in by {other:?}"),
    }
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
