//! Two wait for the epoch to move; one of them is dropped; the epoch moves.

use super::room::signal::{RoomChanged, RoomSignal};
use crate::sync::Arc;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["was woken", "found the epoch moved"];

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn run() {
    let signal = Arc::new(RoomSignal::new());
    let since = signal.epoch();
    let releaser = spawn({
        let signal = signal.clone();
        move || signal.release_and_tell()
    });
    let other = spawn({
        let signal = signal.clone();
        move || {
            let waker = Waker::from(Arc::new(Woken::default()));
            let mut change = pin!(RoomChanged::new(signal, since));
            // Polled, perhaps woken, and dropped: it must take nothing from the other.
            let _ = change.as_mut().poll(&mut Context::from_waker(&waker));
        }
    });
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut change = pin!(RoomChanged::new(signal.clone(), since));
    let first = change.as_mut().poll(&mut Context::from_waker(&waker));
    releaser.join().expect("the releaser ends");
    other.join().expect("the other ends");
    match first {
        Poll::Ready(_) => reached("found the epoch moved"),
        Poll::Pending => {
            assert_ne!(
                woken.0.load(Ordering::Relaxed),
                0,
                "a subscriber sleeps though the epoch has moved"
            );
            reached("was woken");
            assert!(change.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        }
    }
    assert_eq!(signal.registered(), 0, "nobody is left registered");
}
