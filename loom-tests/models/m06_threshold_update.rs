//! A limit is raised while somebody enters the queue: it is in force for whoever looks after.

use super::pool::{Entry, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &["its own look let it in", "the update let it in"];

pub(crate) fn run() {
    let pool = Pool::new(0, 1, u64::MAX, None);
    let updater = spawn("updater", {
        let pool = pool.clone();
        move || pool.set_limit(1)
    });
    let entry = Entry::new();
    pool.enqueue(&entry).expect("the pool is open");
    updater.join().expect("the updater ends");
    assert_eq!(
        entry.fate(false),
        Some(Fate::Ready(())),
        "a waiter sleeps under a limit that is no longer in force"
    );
    match pool.let_in_by.lock().expect("not poisoned")[..] {
        ["main"] => reached("its own look let it in"),
        ["updater"] => reached("the update let it in"),
        ref other => panic!("let in by {other:?}"),
    }
    assert_eq!(pool.carries(), 2, "the row is what was booked");
}
