//! Sentences of the contract about a paired pool of the host's own making.
//!
//! The pair here is a second implementation: blocks counted in one atomic of its own, a signal of
//! its own, holds of its own. It takes nothing from the engine but the trait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use vacancy::*;

/// A decode pool somewhere else: so many KV blocks in all, some of them used.
struct Blocks {
    used: AtomicU64,
    total: u64,
    /// Whether it sets room aside.
    holds: bool,
    /// Says that there is no room when it is asked to set some aside.
    refuses_holds: AtomicBool,
    wakers: Mutex<Vec<PairWaker>>,
    asked: AtomicUsize,
    asked_to_hold: AtomicUsize,
    /// What was asked last.
    question: Mutex<Option<Question>>,
    /// Its one worker has gone: no constraint that names it can be met.
    worker_gone: AtomicBool,
}

/// What a question is about.
#[derive(Debug, PartialEq)]
struct Question {
    class: String,
    decode_frac: f64,
    adapter: Option<String>,
    isl: u64,
}

impl Blocks {
    fn new(total: u64, holds: bool) -> Arc<Blocks> {
        Arc::new(Blocks {
            used: AtomicU64::new(0),
            total,
            holds,
            refuses_holds: AtomicBool::new(false),
            wakers: Mutex::default(),
            asked: AtomicUsize::new(0),
            asked_to_hold: AtomicUsize::new(0),
            question: Mutex::default(),
            worker_gone: AtomicBool::new(false),
        })
    }

    /// The most blocks that may be used for a class to have room.
    fn line(&self, frac: f64) -> u64 {
        (frac * self.total as f64).floor() as u64
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Blocks come free, and nobody is told.
    fn free_quietly(&self, blocks: u64) {
        self.used.fetch_sub(blocks, Ordering::SeqCst);
    }

    fn take(&self, blocks: u64) {
        self.used.fetch_add(blocks, Ordering::SeqCst);
    }

    fn signal(&self) {
        let wakers = self.wakers.lock().unwrap().clone();
        wakers.iter().for_each(PairWaker::wake);
    }

    fn free(&self, blocks: u64) {
        self.free_quietly(blocks);
        self.signal();
    }
}

impl PairedPool for Blocks {
    fn room(&self, ask: &PairAsk<'_>) -> PairRoom {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let request = ask.request;
        *self.question.lock().unwrap() = Some(Question {
            class: ask.class.as_str().to_owned(),
            decode_frac: ask.decode_frac,
            adapter: request.lora.as_ref().map(|name| name.as_str().to_owned()),
            isl: request.isl,
        });
        let gone = self.worker_gone.load(Ordering::SeqCst);
        match request.decode.as_ref().and_then(|c| c.pin) {
            // It has one worker, 1.
            Some(pin) if gone || pin.worker != WorkerId(1) => PairRoom::NoEndpoints,
            _ if self.used() <= self.line(ask.decode_frac) => PairRoom::Room,
            _ => PairRoom::NoRoom,
        }
    }

    fn subscribe(&self, waker: PairWaker) {
        self.wakers.lock().unwrap().push(waker);
    }
}

/// The same, with room set aside.
struct Holding(Arc<Blocks>);

/// Blocks set aside, given back when dropped.
struct Aside {
    blocks: u64,
    of: Arc<Blocks>,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.of.free(self.blocks);
    }
}

impl PairedPool for Holding {
    fn room(&self, ask: &PairAsk<'_>) -> PairRoom {
        self.0.room(ask)
    }

    fn subscribe(&self, waker: PairWaker) {
        self.0.subscribe(waker);
    }

    fn hold(&self, ask: &PairAsk<'_>) -> HoldOffer {
        let of = &self.0;
        of.asked_to_hold.fetch_add(1, Ordering::SeqCst);
        if !of.holds {
            return HoldOffer::NotOffered;
        }
        if of.refuses_holds.load(Ordering::SeqCst) {
            return HoldOffer::NoRoom;
        }
        let blocks = ask.request.isl.div_ceil(16);
        let line = of.line(ask.decode_frac);
        let add = |used: u64| (used <= line).then_some(used + blocks);
        match of.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add) {
            Ok(_) => HoldOffer::Held(Box::new(Aside { blocks, of: of.clone() })),
            Err(_) => HoldOffer::NoRoom,
        }
    }
}

const RANK: Rank = Rank::new(1, 0);

/// A prefill pool of one rank with three classes: `both` is judged here and at the pair, `never`
/// does so without queueing, and `own` has no decode limit.
fn prefill() -> Pool {
    let pair = Thresholds::NONE.decode_frac(0.5);
    let mut own = Thresholds::NONE;
    own.prefill_tokens = Some(1_000);
    let classes = [
        ClassSpec::new("both", 100).family("f", "all").thresholds(pair),
        ClassSpec::new("never", 100).thresholds(pair).request_queue_limit_per_worker(0),
        ClassSpec::new("own", 100).thresholds(own),
    ];
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], classes).unwrap());
    let pool = Pool::builder().track_blocks(false).policy(&profile).build().unwrap();
    pool.upsert(WorkerSpec::new(1).max_num_batched_tokens(8192)).unwrap();
    pool
}

fn with_blocks(total: u64) -> (Pool, Arc<Blocks>) {
    let (pool, blocks) = (prefill(), Blocks::new(total, false));
    pool.pair_with_hook(blocks.clone());
    (pool, blocks)
}

fn with_holds(total: u64) -> (Pool, Arc<Blocks>) {
    let (pool, blocks) = (prefill(), Blocks::new(total, true));
    pool.pair_with_hook(Arc::new(Holding(blocks.clone())));
    (pool, blocks)
}

fn assert_empty(pool: &Pool) {
    let load = pool.load(RANK).unwrap();
    assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0));
    assert_eq!(pool.snapshot().waiting, 0);
}

fn taken(admit: &mut Admit) -> Admitted {
    admit.try_take().expect("it is in").expect("it was admitted")
}

#[test]
fn a_request_is_held_until_the_signal_and_not_by_room_alone() {
    let (pool, blocks) = with_blocks(10);
    blocks.take(6);
    let mut admit = pool.admit(Request::new(16));
    let standing = admit.standing().unwrap();
    assert_eq!((standing.why, standing.ahead), (Why::Pair, 0));
    // There is room, and nobody says so.
    blocks.free_quietly(1);
    let asked = blocks.asked();
    pool.expire(Time::from_millis(10));
    assert!(admit.is_waiting() && admit.try_take().is_none());
    assert_eq!(blocks.asked(), asked, "what was refused is asked about again when it is told");
    blocks.signal();
    let admitted = taken(&mut admit);
    assert!(admitted.waited && admitted.hold.is_none());
    assert_eq!(pool.load(RANK).unwrap().prefill_tokens, 16);
    drop(admitted);
    assert_empty(&pool);
}

#[test]
fn a_newcomer_behind_a_refusal_waits_for_the_signal_as_well() {
    let (pool, blocks) = with_blocks(10);
    blocks.take(6);
    let mut first = pool.admit(Request::new(16));
    blocks.free_quietly(6);
    // It asks nothing: its class is known to have no room, and somebody is ahead of it.
    let asked = blocks.asked();
    let mut second = pool.admit(Request::new(16));
    assert!(second.is_waiting());
    assert_eq!(blocks.asked(), asked);
    assert_eq!(second.standing().unwrap().ahead, 1);
    blocks.signal();
    for admit in [&mut first, &mut second] {
        assert!(taken(admit).waited);
    }
    assert_empty(&pool);
}

#[test]
fn equal_is_not_over_and_the_question_says_class_fraction_adapter_and_tokens() {
    let (pool, blocks) = with_blocks(10);
    blocks.take(5);
    drop(taken(&mut pool.admit(Request::new(40).lora("a"))));
    let question = Question {
        class: "both".to_owned(),
        decode_frac: 0.5,
        adapter: Some("a".to_owned()),
        isl: 40,
    };
    assert_eq!(blocks.question.lock().unwrap().take(), Some(question));
    blocks.take(1);
    assert!(pool.admit(Request::new(40)).is_waiting());
}

#[test]
fn a_class_that_never_queues_agrees_with_the_queue() {
    let (pool, blocks) = with_blocks(10);
    blocks.take(6);
    let never = || Request::new(16).class("never");
    assert_eq!(
        pool.admit(never()).wait().unwrap_err(),
        Error::QueueRejected {
            class: Name::new("never"),
            kind: LimitKind::Requests,
            current: 0,
            limit: 0
        }
    );
    assert_eq!(
        pool.admit(never().do_not_queue()).wait().unwrap_err(),
        Error::WouldQueue { class: Name::new("never"), waiting: 0 }
    );
    let mut waits = pool.admit(Request::new(16));
    assert!(waits.is_waiting());
    assert_empty_but_waiting(&pool, 1);
    blocks.free(1);
    assert!(taken(&mut waits).waited);
    // Its gate is open and nobody of its own class waits: in, without having waited.
    let admitted = taken(&mut pool.admit(never()));
    assert_eq!((admitted.class.as_str(), admitted.waited), ("never", false));
    // Room that came without a signal is room to one who asks.
    blocks.take(1);
    assert!(pool.admit(never()).wait().is_err());
    blocks.free_quietly(1);
    assert!(taken(&mut pool.admit(never())).hold.is_none());
    let counters = pool.counters();
    assert_eq!((counters.rejected, counters.admitted, counters.queued), (3, 3, 1));
    drop(admitted);
    assert_empty(&pool);
}

fn assert_empty_but_waiting(pool: &Pool, waiting: usize) {
    let load = pool.load(RANK).unwrap();
    assert_eq!((load.prefill_tokens, load.requests), (0, 0));
    assert_eq!(pool.snapshot().waiting, waiting);
}

#[test]
fn classes_without_a_decode_limit_do_not_ask_and_are_set_nothing_aside() {
    let (pool, blocks) = with_holds(10);
    blocks.take(10);
    let admitted = taken(&mut pool.admit(Request::new(16).class("own")));
    assert!(!admitted.waited && admitted.hold.is_none());
    // Nor do they wait behind those that do. All of it stays: what is freed looks at who waits.
    let waits = pool.admit(Request::new(16));
    let asked = blocks.asked();
    let behind = taken(&mut pool.admit(Request::new(16).class("own")));
    assert!(behind.hold.is_none());
    // And a request that was admitted upstream asks nobody, whatever its class.
    let upstream = taken(&mut pool.admit(Request::new(16).upstream()));
    assert!(!upstream.waited && upstream.hold.is_none());
    // `select` and `book` know no class.
    assert_eq!(pool.select(&Request::new(16)).unwrap().rank, RANK);
    let booked = pool.book(&Request::new(16)).unwrap();
    assert_eq!(blocks.asked(), asked);
    assert_eq!(blocks.asked_to_hold.load(Ordering::SeqCst), 0);
    drop((behind, upstream, booked));
    drop((waits, admitted));
    assert_empty(&pool);
}

#[test]
fn constraints_that_the_pair_can_not_meet_are_refused_at_once() {
    let (pool, blocks) = with_blocks(10);
    let pinned = |worker| Request::new(16).decode(Constraints::new().pin(Target::worker(worker)));
    assert_eq!(pool.admit(pinned(2)).wait().unwrap_err(), Error::NoEndpoints);
    assert!(!taken(&mut pool.admit(pinned(1))).waited);
    // One that waits is refused when its turn finds that out, and not the one behind it.
    blocks.take(6);
    let mut waits = pool.admit(pinned(1));
    let mut behind = pool.admit(Request::new(16));
    assert!(waits.is_waiting() && behind.is_waiting());
    blocks.worker_gone.store(true, Ordering::SeqCst);
    blocks.signal();
    assert_eq!(waits.try_take().unwrap().unwrap_err(), Error::NoEndpoints);
    assert!(behind.is_waiting());
    blocks.free(6);
    drop(taken(&mut behind));
    assert_empty(&pool);
}

#[test]
fn a_hook_that_is_dropped_has_room_and_lets_in_what_waits_for_it() {
    let (pool, blocks) = (prefill(), Blocks::new(10, false));
    let weak: Weak<dyn PairedPool> = Arc::downgrade(&blocks) as _;
    pool.pair_with_weak_hook(weak);
    blocks.take(10);
    let mut waits = pool.admit(Request::new(16));
    assert_eq!(waits.standing().unwrap().why, Why::Pair);
    // It is gone, full as it was, and its wakers with it: nobody else could tell any more.
    drop(blocks);
    let admitted = taken(&mut waits);
    assert!(admitted.waited && admitted.hold.is_none());
    assert!(!taken(&mut pool.admit(Request::new(16).class("never"))).waited);
    drop(admitted);
    assert_empty(&pool);
}

#[test]
fn a_hook_that_is_dropped_while_its_waker_lives_on_has_room_when_that_is_told() {
    let (pool, blocks) = (prefill(), Blocks::new(10, false));
    let weak: Weak<dyn PairedPool> = Arc::downgrade(&blocks) as _;
    pool.pair_with_weak_hook(weak);
    blocks.take(10);
    let waker = blocks.wakers.lock().unwrap()[0].clone();
    let mut waits = pool.admit(Request::new(16));
    drop(blocks);
    assert!(waits.is_waiting(), "room alone does not let it in");
    waker.wake();
    assert!(taken(&mut waits).waited);
    // A weak hook that was never there is room as well.
    pool.pair_with_weak_hook(Weak::<Blocks>::new());
    assert!(!taken(&mut pool.admit(Request::new(16))).waited);
    drop(pool);
    waker.wake(); // and harmless when the pool is gone
}

#[test]
fn a_hook_that_replaces_another_is_asked_at_once_and_the_old_one_no_more() {
    let (pool, old) = with_blocks(10);
    old.take(10);
    let mut waits = pool.admit(Request::new(16));
    let new = Blocks::new(10, false);
    new.take(6);
    let asked = old.asked();
    pool.pair_with_hook(new.clone());
    assert!(waits.is_waiting());
    assert!(new.asked() >= 1, "what waits was asked about");
    old.used.store(0, Ordering::SeqCst);
    old.signal();
    assert!(waits.is_waiting());
    assert_eq!(old.asked(), asked);
    new.free(1);
    assert!(taken(&mut waits).waited);
    assert_empty(&pool);
}

#[test]
fn without_holds_a_burst_goes_in_while_the_check_shows_room() {
    let (pool, blocks) = with_blocks(100);
    blocks.take(50);
    let mut burst: Vec<Admit> = (0..10).map(|_| pool.admit(Request::new(160))).collect();
    assert!(burst.iter_mut().map(taken).all(|a| a.hold.is_none() && !a.waited));
    assert_eq!(blocks.used(), 50);
    assert_empty(&pool);
}

#[test]
fn with_holds_a_burst_is_past_the_line_by_at_most_the_request_that_crossed() {
    let (pool, blocks) = with_holds(100);
    // 10 blocks each, the line at 50: the sixth crosses.
    let mut burst: Vec<Admit> = (0..10).map(|_| pool.admit(Request::new(160))).collect();
    assert_eq!(blocks.used(), 60);
    assert_eq!(burst.iter().filter(|admit| admit.is_waiting()).count(), 4);
    let mut inside: Vec<Admitted> = burst[..6].iter_mut().map(taken).collect();
    assert!(inside.iter().all(|a| a.hold.as_ref().is_some_and(|h| h.rank().is_none())));
    assert_eq!(pool.load(RANK).unwrap().prefill_tokens, 960);
    // The value is the host's again: the engine gives nothing back.
    let aside = inside[0].hold.take().unwrap().into_foreign().unwrap();
    assert_eq!(aside.downcast_ref::<Aside>().unwrap().blocks, 10);
    assert_eq!(blocks.used(), 60);
    // Dropped by the host, by the engine with its hold, and by a release: one after another goes in.
    drop(aside);
    assert_eq!(blocks.used(), 60, "the next one has taken it");
    assert_eq!(burst[6..].iter().filter(|admit| admit.is_waiting()).count(), 3);
    inside[1].hold.take().unwrap().release();
    drop(inside[2].hold.take());
    assert_eq!(burst[6..].iter().filter(|admit| admit.is_waiting()).count(), 1);
    assert_eq!((blocks.used(), pool.load(RANK).unwrap().requests), (60, 9));
    drop((inside, burst));
    assert_eq!(blocks.used(), 0, "each was given back once");
    assert_empty(&pool);
}

#[test]
fn a_pool_with_holds_turned_off_asks_for_none() {
    let blocks = Blocks::new(10, true);
    let profile = Arc::clone(&prefill().policy());
    let pool = Pool::builder().holds(false).policy(&profile).build().unwrap();
    pool.upsert(WorkerSpec::new(1)).unwrap();
    pool.pair_with_hook(Arc::new(Holding(blocks.clone())));
    assert!(taken(&mut pool.admit(Request::new(160))).hold.is_none());
    assert_eq!((blocks.asked(), blocks.asked_to_hold.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_hold_that_is_refused_leaves_no_trace_and_is_asked_for_again_at_the_signal() {
    let (pool, blocks) = with_holds(10);
    blocks.refuses_holds.store(true, Ordering::SeqCst);
    let mut waits = pool.admit(Request::new(16));
    assert_eq!(waits.standing().unwrap().why, Why::Behind, "the check alone shows room");
    assert_empty_but_waiting(&pool, 1);
    assert_eq!(blocks.used(), 0);
    // The newcomer's own try and its look from inside the queue, and no more.
    assert_eq!(blocks.asked_to_hold.load(Ordering::SeqCst), 2);
    assert!(pool.admit(Request::new(16).class("never")).wait().is_err());
    let told = blocks.asked_to_hold.load(Ordering::SeqCst);
    blocks.signal();
    assert_eq!(blocks.asked_to_hold.load(Ordering::SeqCst), told + 1, "once for the signal");
    blocks.refuses_holds.store(false, Ordering::SeqCst);
    assert!(waits.is_waiting());
    blocks.signal();
    let admitted = taken(&mut waits);
    assert_eq!((blocks.used(), admitted.hold.is_some()), (1, true));
    drop(admitted);
    assert_eq!(blocks.used(), 0);
    assert_empty(&pool);
}

#[test]
fn spurious_signals_let_nobody_in_and_disturb_nobody() {
    let (pool, blocks) = with_blocks(10);
    for _ in 0..100 {
        blocks.signal();
    }
    assert_eq!(blocks.asked(), 0, "nothing waits: nothing is asked");
    blocks.take(6);
    let mut waits = pool.admit(Request::new(16));
    let asked = blocks.asked();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1_000).for_each(|_| blocks.signal()));
        }
    });
    assert!(waits.is_waiting());
    let more = blocks.asked() - asked;
    assert!((1..=2_000).contains(&more), "{more} questions for 2,000 signals");
    blocks.free(1);
    assert!(taken(&mut waits).waited);
}

/// Runs something from inside one of its own answers.
struct Reentrant {
    blocks: Arc<Blocks>,
    inside: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    in_hold: bool,
}

impl Reentrant {
    fn run(&self) {
        let inside = self.inside.lock().unwrap().take();
        if let Some(inside) = inside {
            inside();
        }
    }
}

impl PairedPool for Reentrant {
    fn room(&self, ask: &PairAsk<'_>) -> PairRoom {
        let room = self.blocks.room(ask);
        if !self.in_hold {
            // After it was found: what it says is old when it is heard.
            self.run();
        }
        room
    }

    fn subscribe(&self, waker: PairWaker) {
        waker.wake();
        self.blocks.subscribe(waker);
    }

    fn hold(&self, _: &PairAsk<'_>) -> HoldOffer {
        if self.in_hold {
            let refused = self.inside.lock().unwrap().is_some();
            self.run();
            if refused {
                return HoldOffer::NoRoom;
            }
        }
        HoldOffer::NotOffered
    }
}

#[test]
fn a_signal_that_comes_while_the_answer_is_on_its_way_is_not_lost() {
    for in_hold in [false, true] {
        let pool = prefill();
        let blocks = Blocks::new(10, false);
        let hook =
            Arc::new(Reentrant { blocks: blocks.clone(), inside: Mutex::default(), in_hold });
        pool.pair_with_hook(hook.clone());
        if !in_hold {
            blocks.take(6);
        }
        let release = {
            let blocks = blocks.clone();
            move || if in_hold { blocks.signal() } else { blocks.free(1) }
        };
        *hook.inside.lock().unwrap() = Some(Box::new(release));
        let mut admit = pool.admit(Request::new(16));
        assert!(!admit.is_waiting(), "in a hold: {in_hold}");
        taken(&mut admit);
        assert_empty(&pool);
    }
}

#[test]
fn a_hook_may_use_the_pool_that_asks_it() {
    let pool = prefill();
    let blocks = Blocks::new(10, false);
    let hook =
        Arc::new(Reentrant { blocks: blocks.clone(), inside: Mutex::default(), in_hold: false });
    pool.pair_with_hook(hook.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = {
        let (pool, seen) = (pool.clone(), seen.clone());
        move || {
            let booking = pool.book(&Request::new(32)).unwrap();
            seen.lock().unwrap().push(pool.load(RANK).unwrap().prefill_tokens);
            pool.upsert(WorkerSpec::new(2)).unwrap();
            pool.remove(WorkerId(2));
            drop(pool.admit(Request::new(16)));
            drop(booking);
        }
    };
    *hook.inside.lock().unwrap() = Some(Box::new(inside));
    taken(&mut pool.admit(Request::new(16)));
    assert_eq!(*seen.lock().unwrap(), [32]);
    assert_empty(&pool);
}

/// Panics when it is told to: 1, in its check; 2, in its hold.
struct Panics(AtomicUsize, Mutex<Vec<PairWaker>>);

impl PairedPool for Panics {
    fn room(&self, ask: &PairAsk<'_>) -> PairRoom {
        match self.0.load(Ordering::SeqCst) {
            1 if ask.request.isl == 16 => panic!("no answer"),
            3 => PairRoom::NoRoom,
            _ => PairRoom::Room,
        }
    }

    fn subscribe(&self, waker: PairWaker) {
        self.1.lock().unwrap().push(waker);
    }

    fn hold(&self, ask: &PairAsk<'_>) -> HoldOffer {
        if self.0.load(Ordering::SeqCst) == 2 && ask.request.isl == 16 {
            panic!("no hold");
        }
        HoldOffer::NotOffered
    }
}

#[test]
fn a_hook_that_panics_fails_the_request_it_was_asked_about_and_nothing_else() {
    for (at, text) in [(1, "no answer"), (2, "no hold")] {
        let pool = prefill();
        let hook = Arc::new(Panics(AtomicUsize::new(at), Mutex::default()));
        pool.pair_with_hook(hook.clone());
        let failed = |error: &Error| match error {
            Error::PolicyFailed { what } => what.contains("paired pool") && what.contains(text),
            _ => false,
        };
        let error = pool.admit(Request::new(16)).wait().unwrap_err();
        assert!(failed(&error), "{error:?}");
        assert_empty(&pool);
        // The same for one that waits; the one behind it goes in, and who signals does not notice.
        hook.0.store(3, Ordering::SeqCst);
        let mut doomed = pool.admit(Request::new(16));
        let mut behind = pool.admit(Request::new(32));
        assert!(doomed.is_waiting() && behind.is_waiting());
        hook.0.store(at, Ordering::SeqCst);
        let waker = hook.1.lock().unwrap()[0].clone();
        waker.wake();
        let error = doomed.try_take().unwrap().unwrap_err();
        assert!(failed(&error), "{error:?}");
        assert!(taken(&mut behind).waited);
        assert_empty(&pool);
    }
}

#[test]
fn one_signal_wakes_every_pool_that_shares_the_pair() {
    let blocks = Blocks::new(10, false);
    let pools = [(); 4].map(|()| prefill());
    for pool in &pools {
        pool.pair_with_hook(blocks.clone());
    }
    blocks.take(6);
    let mut waits: Vec<Admit> = pools.iter().map(|p| p.admit(Request::new(16))).collect();
    assert!(waits.iter().all(Admit::is_waiting));
    blocks.free(1);
    for admit in &mut waits {
        assert!(taken(admit).waited);
    }
}

/// Small pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn delay(&mut self) {
        // Both threads may share a core: then only this mixes them.
        if self.below(4) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..self.below(200) {
            std::hint::spin_loop();
        }
    }
}

/// Two threads that take every step of a round together.
#[derive(Default)]
struct Steps(AtomicUsize);

impl Steps {
    fn step(&self) {
        let end = (self.0.fetch_add(1, Ordering::AcqRel) / 2 + 1) * 2;
        let mut spins = 0u32;
        while self.0.load(Ordering::Acquire) < end {
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// Races run one at a time, so that both of their threads run.
static RACE: Mutex<()> = Mutex::new(());

fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("VACANCY_LONG").is_some() { long } else { short }
}

/// One thread enters while another frees and signals. When both calls have returned, whoever came
/// second has seen the other.
fn enqueue_against_signal(pool: &Pool, blocks: &Arc<Blocks>, holds: bool) {
    let _alone = RACE.lock().unwrap_or_else(PoisonError::into_inner);
    let rounds = rounds(50_000, 1_000_000);
    let steps = Steps::default();
    let (mut asleep, mut waited) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut draw = Draw(7);
            for _ in 0..rounds {
                steps.step();
                draw.delay();
                blocks.free(6);
                if draw.below(4) == 0 {
                    blocks.signal();
                }
                steps.step();
            }
        });
        let mut draw = Draw(11);
        for _ in 0..rounds {
            blocks.take(6);
            steps.step();
            draw.delay();
            let mut admit = pool.admit(Request::new(16));
            steps.step();
            match admit.try_take() {
                None => asleep += 1,
                Some(admitted) => {
                    let admitted = admitted.unwrap();
                    waited += usize::from(admitted.waited);
                    assert_eq!(admitted.hold.is_some(), holds);
                }
            }
        }
    });
    assert_eq!(asleep, 0, "waiters that sleep beside room, of {rounds}");
    assert!((1..rounds).contains(&waited), "one of the two orders never came about");
    assert_eq!(blocks.used(), 0);
    assert_empty(pool);
    println!("{rounds} rounds, {waited} waited");
}

#[test]
fn no_signal_during_the_enqueue_is_lost() {
    let (pool, blocks) = with_blocks(10);
    enqueue_against_signal(&pool, &blocks, false);
}

#[test]
fn no_signal_during_the_enqueue_is_lost_with_holds() {
    let (pool, blocks) = with_holds(10);
    enqueue_against_signal(&pool, &blocks, true);
}

#[test]
fn a_hook_dropped_during_the_enqueue_leaves_nobody_asleep() {
    let _alone = RACE.lock().unwrap_or_else(PoisonError::into_inner);
    let rounds = rounds(20_000, 200_000);
    let pool = prefill();
    let steps = Steps::default();
    let slot: Mutex<Option<Arc<Blocks>>> = Mutex::new(None);
    let mut asleep = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut draw = Draw(3);
            for _ in 0..rounds {
                steps.step();
                let blocks = slot.lock().unwrap().take();
                draw.delay();
                drop(blocks);
                steps.step();
            }
        });
        let mut draw = Draw(5);
        for _ in 0..rounds {
            let blocks = Blocks::new(10, false);
            blocks.take(10);
            let weak: Weak<dyn PairedPool> = Arc::downgrade(&blocks) as _;
            pool.pair_with_weak_hook(weak);
            *slot.lock().unwrap() = Some(blocks);
            steps.step();
            draw.delay();
            let admit = pool.admit(Request::new(16));
            steps.step();
            asleep += usize::from(admit.is_waiting());
        }
    });
    assert_eq!(asleep, 0, "waiters that sleep for a pair that is gone, of {rounds}");
    assert_empty(&pool);
}
