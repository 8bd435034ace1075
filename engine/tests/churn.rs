//! Workers that come and go ten thousand times with bookings in flight: memory, prompts and ids are
//! back where they were.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use vacancy::*;

/// The system's allocator, counting the bytes that live.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: all of it is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: what lives is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const CYCLES: u64 = 10_000;
/// After so many cycles every table has been as large as it gets.
const WARM: u64 = 1_000;
/// What may differ between two moments of the same state: tables that grow by doubling, and garbage
/// that is kept until the next call.
const SLACK: i64 = 32 * 1024;

struct World {
    prefill: Pool,
    decode: Pool,
    now: u64,
}

impl World {
    fn new() -> World {
        let thresholds = Thresholds::NONE.prefill_frac(0.5).decode_frac(0.5);
        let policy = Profile::single(thresholds).map(std::sync::Arc::new).expect("it is valid");
        let pool = || Pool::builder().policy(&policy).build().expect("the settings are valid");
        let (prefill, decode) = (pool(), pool());
        for pool in [&prefill, &decode] {
            pool.upsert(Self::spec(1)).expect("it is valid");
        }
        prefill.pair_with(&decode);
        World { prefill, decode, now: 0 }
    }

    fn spec(id: u64) -> WorkerSpec {
        WorkerSpec::new(id)
            .ranks(0, 1 + (id % 3) as u32)
            .max_num_batched_tokens(4_096)
            .total_kv_blocks(1_000)
            .taint("x")
            .lora(format!("adapter-{}", id % 5))
    }

    fn request(&self, cycle: u64, n: u64) -> Request {
        // Prompts that nobody has had before, over a few prefixes that all have.
        let prefix = (0..4).map(|block| n % 4 * 100 + block);
        let own = (0..4).map(|block| 1_000_000 + (cycle * 10 + n) * 10 + block);
        let chain: Vec<u64> = prefix.chain(own).collect();
        Request::new(128).at(Time::from_millis(self.now)).prompt(Prompt::new(chain).expect("chain"))
    }

    /// A worker comes to both pools, is given work of every kind, and goes with all of it in
    /// flight; what was on it is given back afterwards. Some of it is for ids that never come back.
    fn cycle(&mut self, cycle: u64) {
        self.now += 1;
        let worker = 2 + cycle % 7;
        for pool in [&self.prefill, &self.decode] {
            pool.upsert(Self::spec(worker)).expect("it is valid");
        }
        let to = Constraints::new().pin(Target::worker(worker));
        let mut values = Vec::new();
        let mut holds = Vec::new();
        for n in 0..4 {
            let request = self.request(cycle, n).constraints(to.clone()).decode(to.clone());
            let id = RequestId(u128::from(cycle * 10 + n));
            if n % 2 == 0 {
                let admitted = self.prefill.admit(request).try_take().expect("there is room");
                let admitted = admitted.expect("there is room");
                values.push(admitted.booking);
                holds.extend(admitted.hold);
            } else {
                self.prefill.admit_as(id, request).try_take().expect("room").expect("room");
            }
        }
        assert_eq!(holds.len(), 2, "room was set aside at the pair");
        let leg = self.request(cycle, 0).upstream();
        values.push(self.decode.book_leg(holds.pop().expect("two"), &leg).expect("there is room"));
        let said = Signals { kv_used_blocks: Some(1), active_decode_blocks: None };
        self.decode.observe(Rank::new(worker, 0), said, Time::from_millis(self.now));
        let add = LoadChange::Add { rank: Rank::new(worker, 0), prefill_tokens: 9, kv_blocks: 2 };
        let router = RouterId(100 + cycle % 3);
        let event = LoadEvent::new(router, cycle + 1, cycle.into(), add);
        assert_eq!(self.decode.apply_peer(&event, Time::from_millis(self.now)), Applied::Taken);
        // One that waits for it and is told that it will not come.
        let full = self.request(cycle, 9).constraints(to);
        self.prefill.set_overloaded(WorkerId(worker), true, None);
        let mut waiting = self.prefill.admit(full);
        assert!(waiting.is_waiting());
        let lost = self.prefill.remove(WorkerId(worker));
        assert_eq!(lost.iter().map(|l| l.requests).sum::<u32>(), 4);
        let refused = waiting.try_take().expect("it was told").expect_err("nowhere to go");
        assert_eq!(refused, Error::NoEndpoints);
        self.decode.remove(WorkerId(worker));
        drop(values);
        drop(holds);
        for n in [1, 3] {
            let id = RequestId(u128::from(cycle * 10 + n));
            drop(self.prefill.take_hold(id));
            assert!(self.prefill.free(id));
        }
        self.decode.peer_gone(router);
    }

    fn assert_empty(&self) {
        for pool in [&self.prefill, &self.decode] {
            let snapshot = pool.snapshot();
            assert_eq!((snapshot.waiting, snapshot.ids, pool.mirrored()), (0, 0, 0));
            for (rank, load) in snapshot.ranks {
                let on = [load.prefill_tokens, load.kv_blocks, load.held_blocks, load.requests];
                assert_eq!(on, [0; 4], "{rank}");
            }
        }
    }
}

#[test]
fn ten_thousand_workers_that_come_and_go_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new();
    for cycle in 0..WARM {
        world.cycle(cycle);
    }
    world.assert_empty();
    let warm = LIVE.load(Ordering::Relaxed);
    for cycle in WARM..WARM + CYCLES {
        world.cycle(cycle);
    }
    world.assert_empty();
    let grown = LIVE.load(Ordering::Relaxed) - warm;
    println!("{CYCLES} cycles: {warm} bytes live after {WARM}, {grown} more at the end");
    assert!(grown.abs() <= SLACK, "{grown} bytes more than after {WARM} cycles");
    // The prompts that the workers had are forgotten: one that shares them starts from nothing.
    let booking = world.decode.book(&world.request(3, 0)).expect("there is room");
    assert_eq!(world.decode.load(booking.rank()).expect("it is there").kv_blocks, 8);
}

/// The same with two threads that book and free while a third lets workers come and go, so that
/// slots leave with readers pinned and bookings landing.
#[test]
fn workers_that_come_and_go_under_bookings_from_other_threads_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = Pool::builder().build().expect("the defaults are valid");
    pool.upsert(World::spec(1)).expect("it is valid");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (pool, stop) = (pool.clone(), &stop);
            scope.spawn(move || {
                let mut live = std::collections::VecDeque::new();
                let mut n = thread;
                while !stop.load(Ordering::Relaxed) {
                    n += 2;
                    let chain: Vec<u64> = (0..4).chain((0..4).map(|b| 100 + n * 10 + b)).collect();
                    let request = Request::new(128).prompt(Prompt::new(chain).expect("a chain"));
                    live.push_back(pool.book(&request).expect("nothing sheds"));
                    if live.len() > 50 {
                        live.pop_front();
                    }
                }
            });
        }
        for cycle in 0..CYCLES {
            let worker = 2 + cycle % 7;
            pool.upsert(World::spec(worker)).expect("it is valid");
            pool.remove(WorkerId(worker));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let snapshot = pool.snapshot();
    assert_eq!(snapshot.ranks.len(), 2, "worker 1 has two ranks");
    for (rank, load) in snapshot.ranks {
        let on = [load.prefill_tokens, load.kv_blocks, load.held_blocks, load.requests];
        assert_eq!(on, [0; 4], "{rank}");
    }
}
