//! Input that somebody made to hurt: each is refused with its typed error, or served, in bounded
//! time and memory. The bounds are wide for a busy machine and far below what they guard against:
//! an expansion without end, or work that grows with the square of what was sent.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vacancy::{
    Constraints, Error, LoadChange, LoadEvent, Overlap, Policy, Pool, Prompt, Rank, Request,
    RequestId, RouterId, Time, WorkerSpec,
};

/// The system's allocator, with a count of the bytes in use and of the most there ever were.
struct Measuring;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: all of it is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// One test at a time: what one allocates must not count for another.
static ALONE: Mutex<()> = Mutex::new(());

const MB: usize = 1 << 20;

/// Runs `f`, which may take so long and as many bytes beyond those in use before.
fn bounded<R>(what: &str, time: Duration, bytes: usize, f: impl FnOnce() -> R) -> R {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let result = f();
    let (took, most) = (start.elapsed(), PEAK.load(Ordering::Relaxed).saturating_sub(before));
    println!("{what}: {took:?}, {most} bytes");
    assert!(took < time, "{what}: {took:?}");
    assert!(most < bytes, "{what}: {most} bytes");
    result
}

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn a_policy_file_of_50_mb_is_refused_by_its_length_alone() {
    let _alone = alone();
    let text = "policy_classes: []\n".repeat(50 * MB / 19 + 1);
    assert!(text.len() > 50 * MB);
    // Not even a copy of it is made.
    let refused = bounded("50 MB", SECONDS(1), MB, || Policy::from_yaml(&text).unwrap_err());
    assert!(matches!(&refused, Error::InvalidConfig { field, .. } if field == "policy file"));
}

#[test]
fn deep_nesting_and_alias_bombs_are_refused_before_they_unfold() {
    let _alone = alone();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..30 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb += &format!("a{i}: &a{i} [{refs}]\n");
    }
    let merged: String = (1..25)
        .map(|i| format!("m{i}: &m{i} {{<<: [*m{}, *m{}], k{i}: 1}}\n", i - 1, i - 1))
        .collect();
    let block: String = (0..1400).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    for (what, text) in [
        ("deep lists", "[".repeat(MB - 64)),
        ("deep maps", "{a: ".repeat(MB / 4 - 64)),
        ("deep blocks", block),
        ("deep sequences", "- ".repeat(MB / 2 - 64)),
        ("closed as well", "[".repeat(100_000) + &"]".repeat(100_000)),
        ("alias bomb", bomb.clone()),
        ("where nobody looks", format!("router:\n  {}", bomb.replace('\n', "\n  "))),
        ("an alias of itself", "router: &a {b: *a}\n".into()),
        ("merge keys", format!("m0: &m0 {{k: 1}}\n{merged}")),
        ("anchors for ever", (0..60_000).map(|i| format!("&a{i} a: b\n")).collect()),
    ] {
        let refused =
            bounded(what, SECONDS(5), 64 * MB, || Policy::from_yaml(&text)).expect_err(what);
        assert!(matches!(refused, Error::InvalidConfig { .. }), "{what}: {refused}");
        assert!(refused.to_string().len() < 400, "{what}: {refused}");
    }
}

/// A chain whose hashes differ in their upper bits only.
fn upper(block: u64, of: u64) -> u64 {
    (of << 32 | block) << 20
}

#[test]
fn a_prompt_of_a_million_hashes_is_served_and_given_back() {
    let _alone = alone();
    const MANY: u64 = 1_000_000;
    let pool = Pool::builder().build().expect("plain settings");
    pool.reconcile(&(1..=64).map(WorkerSpec::new).collect::<Vec<_>>()).expect("valid");
    for hash in [|i: u64| i, |i: u64| upper(i, 7)] {
        let time = SECONDS(5);
        let request = bounded("a million hashes", time, 100 * MB, || {
            let prompt = Prompt::new((0..MANY).map(hash).collect::<Vec<_>>()).expect("distinct");
            Request::new(MANY * 16).prompt(prompt)
        });
        let bookings = bounded("booked eight times", time, 16 * MB, || {
            (0..8).map(|_| pool.book(&request).expect("there is room")).collect::<Vec<_>>()
        });
        // One block a hash, on each rank that has it.
        let blocks: u64 = pool.snapshot().ranks.iter().map(|(_, l)| u64::from(l.kv_blocks)).sum();
        let mut ranks: Vec<Rank> = bookings.iter().map(|b| b.rank()).collect();
        ranks.sort();
        ranks.dedup();
        assert_eq!(blocks, ranks.len() as u64 * MANY);
        bounded("given back", time, 100 * MB, || drop(bookings));
        assert!(pool.snapshot().ranks.iter().all(|(_, l)| l.kv_blocks == 0 && l.requests == 0));
    }
    // A hash twice, and more hashes than blocks.
    let twice = (0..MANY).chain([3]).collect::<Vec<_>>();
    let refused = bounded("a hash twice", SECONDS(5), 100 * MB, || Prompt::new(twice));
    assert!(matches!(refused, Err(Error::InvalidRequest { field: "block_hashes", .. })));
    let prompt = Prompt::new((0..MANY).collect::<Vec<_>>()).expect("distinct");
    let long = Request::new(16).prompt(prompt);
    let refused = bounded("more than fit", SECONDS(1), MB, || pool.select(&long).unwrap_err());
    assert!(matches!(refused, Error::InvalidRequest { field: "block_hashes", .. }));
}

#[test]
fn request_ids_that_were_chosen_to_collide_cost_what_others_do() {
    let _alone = alone();
    const MANY: u128 = 50_000;
    type Ids = fn(u128) -> u128;
    let kinds: [(&str, Ids); 5] = [
        ("in order", |i| i),
        ("upper bits only", |i| i << 96),
        ("upper word only", |i| i << 64),
        ("multiples of a table's size", |i| i << 30),
        ("both words alike", |i| i << 64 | i),
    ];
    for (what, id) in kinds {
        let pool = Pool::builder().build().expect("plain settings");
        pool.upsert(WorkerSpec::new(1)).expect("valid");
        bounded(what, SECONDS(5), 64 * MB, || {
            let request = Request::new(16);
            for i in 0..MANY {
                pool.book_as(RequestId(id(i)), &request).expect("there is room");
            }
            let again = pool.book_as(RequestId(id(7)), &request).unwrap_err();
            assert!(matches!(again, Error::DuplicateRequest { .. }));
            for i in 0..MANY {
                pool.prefill_completed(RequestId(id(i))).expect("it is live");
                assert!(pool.free(RequestId(id(i))));
            }
        });
        assert_eq!(pool.snapshot().ids, 0);
    }
}

#[test]
fn workers_and_hashes_that_collide_cost_what_others_do() {
    let _alone = alone();
    for shift in [0, 20, 44, 50] {
        let pool = Pool::builder().build().expect("plain settings");
        let specs: Vec<_> = (0..8_000u64).map(|i| WorkerSpec::new(i << shift)).collect();
        bounded("eight thousand workers", SECONDS(5), 64 * MB, || {
            pool.reconcile(&specs).expect("valid");
            for i in 0..2_000u64 {
                let allow = Constraints::new().allow([i << shift]);
                assert_eq!(
                    pool.select(&Request::new(16).constraints(allow)).unwrap().rank.worker.0,
                    i << shift
                );
            }
        });
    }
    // Twenty thousand conversations whose first hashes differ in their upper bits only.
    let pool = Pool::builder().build().expect("plain settings");
    pool.reconcile(&(1..=64).map(WorkerSpec::new).collect::<Vec<_>>()).expect("valid");
    bounded("twenty thousand chains", SECONDS(5), 64 * MB, || {
        let chain = |of: u64| Prompt::new((0..4).map(|i| upper(i, of)).collect::<Vec<_>>());
        let book = |of| pool.book(&Request::new(64).prompt(chain(of).expect("distinct")));
        let bookings: Vec<_> = (0..20_000).map(|of| book(of).expect("there is room")).collect();
        drop(bookings);
    });
    assert!(pool.snapshot().ranks.iter().all(|(_, load)| load.kv_blocks == 0));
}

#[test]
fn lists_without_measure_are_read_once() {
    let _alone = alone();
    let pool = Pool::builder().build().expect("plain settings");
    pool.reconcile(&(1..=64).map(WorkerSpec::new).collect::<Vec<_>>()).expect("valid");
    let overlaps: Vec<_> =
        (0..200_000).map(|i| Overlap::device(Rank::new(i % 64 + 1, 0), 1.0)).collect();
    let request = Request::new(1600).overlaps(overlaps);
    bounded("two hundred thousand overlaps", SECONDS(5), 64 * MB, || {
        assert_eq!(pool.select(&request).expect("there is room").cached_tokens, 16);
    });
    let c = (0..20_000).fold(Constraints::new(), |c, i| c.prefer(format!("t{i}"), 0.5));
    let request = Request::new(16).constraints(c.deny(0..100_000).allow(0..100_000));
    let refused = bounded("sets", SECONDS(5), 64 * MB, || pool.select(&request).unwrap_err());
    assert_eq!(refused, Error::NoEndpoints);
}

#[test]
fn a_router_that_tells_of_bookings_for_ever_is_remembered_in_bounded_memory() {
    let _alone = alone();
    let pool = Pool::builder().build().expect("plain settings");
    pool.upsert(WorkerSpec::new(1)).expect("valid");
    bounded("a million events", SECONDS(20), 8 * MB, || {
        for i in 0..1_000_000u64 {
            let change = match i % 3 {
                0 => LoadChange::Free,
                1 => LoadChange::PrefillCompleted,
                _ => LoadChange::Output { blocks: 1 },
            };
            let event = LoadEvent::new(RouterId(9), i, u128::from(i), change);
            pool.apply_peer(&event, Time::ZERO);
        }
    });
    assert_eq!((pool.mirrored(), pool.peer_gone(RouterId(9))), (0, 0));
}
