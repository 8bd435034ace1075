//! A pool is closed while somebody enters its queue.

use super::pool::{Entry, Pool, spawn};
use super::queue::waiter::Fate;
use super::queue::waiting::Closed;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &["refused at the door", "told that it is closed"];

pub(crate) fn run() {
    let pool = Pool::new(0, 1, u64::MAX, None);
    let closer = spawn("closer", {
        let pool = pool.clone();
        move || pool.close()
    });
    let entry = Entry::new();
    let entered = pool.enqueue(&entry);
    closer.join().expect("the closer ends");
    match entered {
        Err(Closed) => reached("refused at the door"),
        Ok(()) => {
            let fate = entry.fate(false);
            assert_eq!(fate, Some(Fate::Closed), "a waiter sleeps in a closed pool");
            reached("told that it is closed");
        }
    }
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
