//! One who waits for a full pair while another pair, which is full as well, is installed and then
//! has room.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["let in by the installation", "let in by the new pair's release"];

pub(crate) fn run() {
    let old = Pool::new(0, 1, u64::MAX, None);
    let new = Pool::new(0, 1, u64::MAX, None);
    let prefill = Pool::to_be_paired(3, &old);
    let waits = Entry::new();
    prefill.enqueue(&waits).expect("the pool is open");
    let installer = spawn("installer", {
        let (prefill, new) = (prefill.clone(), new.clone());
        move || prefill.install(&new)
    });
    new.release(ONE);
    installer.join().expect("the installer ends");
    assert_eq!(waits.fate(false), Some(Fate::Ready(())), "a waiter sleeps for the pair it had");
    match prefill.let_in_by.lock().expect("not poisoned")[..] {
        ["installer"] => reached("let in by the installation"),
        ["main"] => reached("let in by the new pair's release"),
        ref by => panic!("let in by {by:?}"),
    }
}
