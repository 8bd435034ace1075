//! Settled operation touches the heap not at all: prompts come and go, tree nodes and runs are made
//! and removed, and all of it happens in memory that was there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use vacancy::{Pool, Prompt, Request, RequestId, WorkerSpec};

/// The system's allocator, counting per thread.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is being torn down is not counted.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all of it is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PROMPTS: u64 = 10_000;

/// Distinct prompts of 16 blocks over 20 prefixes of 8.
fn requests() -> Vec<Request> {
    let mut state = 1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..PROMPTS)
        .map(|i| {
            let prefix = (0..8).map(|block| (i % 20) * 1_000 + block);
            let hashes: Vec<u64> = prefix.chain((0..8).map(|_| random())).collect();
            Request::new(256).prompt(Prompt::new(hashes).expect("distinct"))
        })
        .collect()
}

fn pool() -> Pool {
    let pool = Pool::builder().build().expect("the defaults are valid");
    for worker in 0..256 {
        let spec = WorkerSpec::new(worker).total_kv_blocks(100_000);
        pool.upsert(spec).expect("the spec is valid");
    }
    pool
}

/// Runs `round` until it settles (some rounds, for every place has to have been as full as it
/// gets), and checks that the next one calls the allocator for nothing.
fn settles(what: &str, mut round: impl FnMut()) {
    let mut calls = Vec::new();
    for _ in 0..12 {
        let before = CALLS.get();
        round();
        calls.push(CALLS.get() - before);
        if calls.ends_with(&[0, 0]) {
            return;
        }
    }
    panic!("{what}: calls of the allocator per {PROMPTS} bookings, round by round: {calls:?}");
}

#[test]
fn settled_bookings_by_value_touch_no_heap() {
    let (pool, requests) = (pool(), requests());
    let mut live = VecDeque::with_capacity(2_000);
    settles("by value", || {
        for (i, request) in requests.iter().enumerate() {
            let booking = pool.book(request).expect("there is room");
            booking.prefill_completed();
            if i % 2 == 0 {
                if live.len() == 2_000 {
                    live.pop_front();
                }
                live.push_back(booking);
            }
        }
    });
}

#[test]
fn settled_bookings_by_id_touch_no_heap() {
    let (pool, requests) = (pool(), requests());
    settles("by id", || {
        for (i, request) in requests.iter().enumerate() {
            let i = i as u128;
            pool.book_as(RequestId(i), request).expect("there is room");
            pool.prefill_completed(RequestId(i)).expect("it is live");
            // Half of them leave at once, the others 2,000 bookings later.
            pool.free(RequestId(if i.is_multiple_of(2) { i } else { (i + 8_000) % 10_000 }));
        }
    });
}
