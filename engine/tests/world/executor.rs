//! Who is polled, and when: only those who were woken, in the order of their wakes.
//!
//! There is no runtime that would poll somebody for another reason, so a wake-up that is lost shows:
//! its client sleeps, and the world sees a future that is over and whose owner was never told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

/// The wakes of all clients, as they come.
type Wakes = Arc<Mutex<Vec<u32>>>;

struct Flag {
    client: u32,
    woken: AtomicBool,
    wakes: Wakes,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.wakes.lock().expect("nobody panics under it").push(self.client);
        }
    }
}

/// Wakers, and the clients that are to be polled.
#[derive(Default)]
pub struct Executor {
    wakes: Wakes,
    flags: BTreeMap<u32, Arc<Flag>>,
    /// To be polled, in this order.
    ready: VecDeque<u32>,
}

impl Executor {
    /// Takes a client in, to be polled as soon as anybody runs.
    pub fn spawn(&mut self, client: u32) {
        self.waker(client);
        self.ready.push_back(client);
    }

    /// The client's waker, unset.
    pub fn waker(&mut self, client: u32) -> Waker {
        let wakes = &self.wakes;
        let flag = self.flags.entry(client).or_insert_with(|| {
            let woken = AtomicBool::new(false);
            Arc::new(Flag { client, woken, wakes: Arc::clone(wakes) })
        });
        flag.woken.store(false, Ordering::Relaxed);
        Waker::from(Arc::clone(flag))
    }

    /// Takes in the wakes since the last call; returns them in their order.
    pub fn collect(&mut self) -> Vec<u32> {
        let wakes = std::mem::take(&mut *self.wakes.lock().expect("nobody panics under it"));
        self.ready.extend(&wakes);
        wakes
    }

    /// Who is to be polled next; it is taken out.
    pub fn next(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Who would be polled next.
    pub fn peek(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// Whether somebody is to be polled.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// A client is over.
    pub fn forget(&mut self, client: u32) {
        self.flags.remove(&client);
        self.ready.retain(|&c| c != client);
    }
}
