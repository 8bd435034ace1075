//! One who enters the queue while another pair, with room, is installed.

use super::pool::{Entry, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &["let in by its own look", "let in by the installation"];

pub(crate) fn run() {
    let old = Pool::new(0, 1, u64::MAX, None);
    let new = Pool::new(0, 0, u64::MAX, None);
    let prefill = Pool::to_be_paired(3, &old);
    let installer = spawn("installer", {
        let prefill = prefill.clone();
        move || prefill.install(&new)
    });
    let entry = Entry::new();
    prefill.enqueue(&entry).expect("the pool is open");
    installer.join().expect("the installer ends");
    assert_eq!(entry.fate(false), Some(Fate::Ready(())), "a waiter sleeps for the pair it had");
    match prefill.let_in_by.lock().expect("not poisoned")[..] {
        ["main"] => reached("let in by its own look"),
        ["installer"] => reached("let in by the installation"),
        ref by => panic!("let in by {by:?}"),
    }
}
