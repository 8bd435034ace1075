//! Everything at once on real threads: two paired pools with holds, a third with a fixed limit, and
//! every call of the library from every thread, with the invariants looked at when all stand still.
//!
//! `VACANCY_STRESS_SECONDS=120 cargo test --release -p vacancy --test stress` runs for minutes.
//!
//! At a quiet point each thread says what it has; the rows of workers that never leave must be the
//! sum of that, those of workers that come and go at most that. Nobody may wait beside room, and no
//! future may be over whose waker was not called. Nobody may wait still whom the order of the class
//! puts before somebody who came later and was let in. While it runs, no rank of the third pool ever
//! carries more than its limit and the one booking that crossed it.

#[path = "world/rng.rs"]
#[expect(dead_code, reason = "worlds draw in more ways")]
mod rng;
#[path = "stress/sums.rs"]
mod sums;

use rng::Rng;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use sums::{Shape, Sums};
use vacancy::*;

const THREADS: usize = 4;
const OPS_PER_ROUND: usize = 300;
/// Workers that never leave, by id, and workers that come and go.
const STABLE: std::ops::Range<u64> = 0..4;
const PASSING: std::ops::Range<u64> = 100..103;
/// The third pool: blocks per rank under its limit, and the most that one booking adds.
const STRICT_LIMIT: u32 = 32;
const STRICT_MOST: u32 = 4;

enum Load {
    Value(Box<Booking>),
    Id(RequestId),
}

/// What a thread has on a rank.
struct Item {
    decode: bool,
    load: Load,
    shape: Shape,
    output: u32,
    done: bool,
    hold: Option<Hold>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

enum Waiting {
    Value(Admit),
    Id(AdmitAs),
}

/// A future that a thread has polled, and the flag that its waker sets.
struct Waiter {
    future: Waiting,
    flag: Arc<Flag>,
    shape: Shape,
    id: RequestId,
    /// It has constraints.
    picky: bool,
    place: Place,
}

/// What decides who goes first, of those without constraints: they can go at the same moments.
#[derive(Clone, Copy, Debug)]
struct Place {
    priority: i64,
    due: Option<Time>,
    /// Read off one clock of all threads, before it asked and when it was known to wait.
    asked: u64,
    waited: u64,
}

impl Place {
    /// Whether the order of the class puts it before `other`, which asked when it waited already: so
    /// it arrived at no later instant, and its number is smaller.
    fn goes_before(&self, other: &Place) -> bool {
        let due = |place: &Place| place.due.unwrap_or(Time::NEVER);
        let priorities = other.priority.cmp(&self.priority).then(due(self).cmp(&due(other)));
        self.waited < other.asked && priorities.is_le()
    }
}

/// What all threads share.
struct Shared {
    pools: [Pool; 2],
    rejects: [RejectThresholds; 2],
    strict: Pool,
    clock: AtomicU64,
    stop: AtomicBool,
    barrier: Barrier,
    sums: Mutex<Sums>,
    waiting: AtomicUsize,
    /// Those of them with constraints.
    picky: AtomicUsize,
    ids: AtomicU64,
    rounds: AtomicU64,
    ops: AtomicU64,
    ends: [AtomicU64; 4],
    strict_bookings: AtomicU64,
    /// Counts askings and waits, in the order in which they happen.
    turns: AtomicU64,
    /// Those without constraints that were let in since the last quiet point.
    let_in: Mutex<Vec<Place>>,
    /// How often somebody was let in while another waited, of those without constraints.
    compared: AtomicU64,
}

const ADMITTED: usize = 0;
const REFUSED: usize = 1;
const WITHDRAWN: usize = 2;
const STARTED: usize = 3;

/// The class that everybody waits in.
fn class(quantum: u64, prefill: f64) -> ClassSpec {
    let thresholds = Thresholds::NONE.prefill_frac(prefill).decode_frac(0.5);
    ClassSpec::new("all", quantum).family("all", "any").thresholds(thresholds)
}

fn profile(quantum: u64, prefill: f64) -> Arc<Profile> {
    let profile = Profile::new("all", [(0, Name::new("any"))], [class(quantum, prefill)]);
    Arc::new(profile.expect("it is valid"))
}

fn spec(id: u64, blocks: u64) -> WorkerSpec {
    WorkerSpec::new(id).ranks(0, 2).max_num_batched_tokens(600).total_kv_blocks(blocks)
}

impl Shared {
    fn new() -> Shared {
        let rejects = [RejectThresholds::default(), RejectThresholds::default()];
        let pool = |decode: usize| {
            Pool::builder()
                .block_size(sums::BLOCK)
                .track_prefill(decode == 0)
                .policy(&profile(64, 0.5))
                .reject_thresholds(rejects[decode].clone())
                .lease(Some(Duration::from_secs(2)))
                .signal_ttl(Duration::from_millis(100))
                .router_id(decode as u64)
                .build()
                .expect("the settings are valid")
        };
        let pools = [pool(0), pool(1)];
        for pool in &pools {
            for id in STABLE.chain(PASSING) {
                pool.upsert(spec(id, 60)).expect("it is valid");
            }
        }
        pools[0].pair_with(&pools[1]);
        let limit = RejectThresholds::new(Thresholds::NONE.decode_frac(0.5)).expect("valid");
        let strict = Pool::builder()
            .block_size(sums::BLOCK)
            .reject_scope(RejectScope::Rank)
            .reject_thresholds(limit)
            .build()
            .expect("the settings are valid");
        strict.upsert(spec(1, u64::from(STRICT_LIMIT) * 2)).expect("it is valid");
        Shared {
            pools,
            rejects,
            strict,
            clock: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            barrier: Barrier::new(THREADS),
            sums: Mutex::default(),
            waiting: AtomicUsize::new(0),
            picky: AtomicUsize::new(0),
            ids: AtomicU64::new(1),
            rounds: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            ends: Default::default(),
            strict_bookings: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            let_in: Mutex::default(),
            compared: AtomicU64::new(0),
        }
    }

    fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst)
    }

    fn now(&self) -> Time {
        Time::from_millis(self.clock.load(Ordering::Relaxed))
    }

    fn ended(&self, how: usize) {
        self.ends[how].fetch_add(1, Ordering::Relaxed);
    }
}

/// One booking that this thread mirrors into the pools, as a router of its own.
struct Mirrored {
    decode: bool,
    booking: u128,
    rank: Rank,
    tokens: u32,
    blocks: u32,
    done: bool,
}

struct Thread<'s> {
    shared: &'s Shared,
    pools: [Pool; 2],
    strict: Pool,
    rng: Rng,
    router: RouterId,
    seq: u64,
    items: Vec<Item>,
    waiters: Vec<Waiter>,
    mirrors: Vec<Mirrored>,
    strict_bookings: Vec<Booking>,
}

impl<'s> Thread<'s> {
    fn new(shared: &'s Shared, number: usize, seed: u64) -> Thread<'s> {
        Thread {
            shared,
            pools: shared.pools.clone(),
            strict: shared.strict.clone(),
            rng: Rng::new(seed.wrapping_mul(THREADS as u64) + number as u64),
            router: RouterId(50 + number as u64),
            seq: 0,
            items: Vec::new(),
            waiters: Vec::new(),
            mirrors: Vec::new(),
            strict_bookings: Vec::new(),
        }
    }

    fn worker(&mut self) -> u64 {
        if self.rng.chance(70) {
            self.rng.below(STABLE.end)
        } else {
            PASSING.start + self.rng.below(PASSING.end - PASSING.start)
        }
    }

    fn item(&mut self) -> Option<usize> {
        let n = self.items.len() as u64;
        (n > 0).then(|| self.rng.below(n) as usize)
    }

    fn fresh_id(&self) -> RequestId {
        RequestId(self.shared.ids.fetch_add(1, Ordering::Relaxed).into())
    }

    fn op(&mut self) {
        let decode = self.rng.chance(30);
        let pool = self.pools[usize::from(decode)].clone();
        let now = self.shared.now();
        match self.rng.below(100) {
            0..20 => self.admit(now),
            20..25 => self.book(decode, now),
            25..45 => self.go_on(now),
            45..58 => {
                if let Some(at) = self.item() {
                    self.free(at);
                }
            }
            58..61 => {
                if !self.waiters.is_empty() {
                    let at = self.rng.below(self.waiters.len() as u64) as usize;
                    drop(self.waiters.swap_remove(at));
                    self.shared.ended(WITHDRAWN);
                }
            }
            61..64 => self.grow(),
            64..67 => self.move_to(),
            67..70 => self.run_woken(),
            70..74 => {
                self.shared.clock.fetch_add(self.rng.below(4), Ordering::Relaxed);
                pool.expire(self.shared.now());
                let _ = pool.next_due();
            }
            74..76 => {
                let update = ThresholdsUpdate {
                    decode_frac: match self.rng.below(3) {
                        0 => Change::Unset,
                        n => Change::Set(0.4 + 0.3 * n as f64 - 0.1),
                    },
                    ..ThresholdsUpdate::default()
                };
                self.shared.rejects[usize::from(decode)].update(update).expect("it is valid");
            }
            76..78 => {
                let id = PASSING.start + self.rng.below(PASSING.end - PASSING.start);
                if self.rng.chance(50) {
                    pool.remove(WorkerId(id));
                } else {
                    pool.upsert(spec(id, 60)).expect("it is valid");
                }
            }
            78..80 => {
                let (id, blocks) = (self.rng.below(STABLE.end), 40 + self.rng.below(40));
                assert!(pool.upsert(spec(id, blocks)).expect("it is valid").is_empty());
            }
            80..82 => {
                let (id, is) = (WorkerId(self.worker()), self.rng.chance(60));
                match self.rng.chance(50) {
                    true => pool.set_available(id, is),
                    false => {
                        pool.set_overloaded(id, !is, Some(now.after(Duration::from_millis(9))))
                    }
                };
            }
            82..84 => {
                let rank = Rank::new(self.worker(), self.rng.below(2) as u32);
                let used = Some(self.rng.below(80));
                let signals = Signals { kv_used_blocks: used, active_decode_blocks: None };
                pool.observe(rank, signals, now);
            }
            84..91 => self.mirror(decode, now),
            91..93 => pool.set_policy(&profile(1 + self.rng.below(256), 0.5)),
            93..95 => self.select(&pool, now),
            _ => self.book_strictly(),
        }
    }

    fn admit(&mut self, now: Time) {
        let id = self.fresh_id();
        let shape = Shape::of(id.0 as u64);
        let request = match self.rng.below(10) {
            0 => shape.request(now).due(now.after(Duration::from_millis(self.rng.below(60)))),
            1 => shape.request(now).constraints(Constraints::new().deny([self.rng.below(4)])),
            2 => shape.request(now).decode(Constraints::new().deny([self.rng.below(4)])),
            3 => shape.request(now).strict_priority(1),
            _ => shape.request(now),
        };
        let picky = request.constraints.is_some() || request.decode.is_some();
        let (priority, due) = (request.strict_priority, request.due);
        self.shared.ended(STARTED);
        let asked = self.shared.turn();
        let future = match self.rng.chance(50) {
            true => Waiting::Value(self.pools[0].admit(request)),
            false => Waiting::Id(self.pools[0].admit_as(id, request)),
        };
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let place = Place { priority, due, asked, waited: self.shared.turn() };
        self.waiters.push(Waiter { future, flag, shape, id, picky, place });
        if self.rng.chance(80) {
            self.run_woken();
        }
    }

    /// Polls those whose wakers were called, and nobody else.
    fn run_woken(&mut self) {
        let mut at = 0;
        while at < self.waiters.len() {
            let waiter = &mut self.waiters[at];
            if !waiter.flag.0.swap(false, Ordering::SeqCst) {
                at += 1;
                continue;
            }
            let waker = Waker::from(Arc::clone(&waiter.flag));
            let mut cx = Context::from_waker(&waker);
            let (shape, id, picky, place) = (waiter.shape, waiter.id, waiter.picky, waiter.place);
            let answer = match &mut waiter.future {
                Waiting::Value(admit) => Pin::new(admit).poll(&mut cx).map(|answer| {
                    answer.map(|admitted| (Load::Value(Box::new(admitted.booking)), admitted.hold))
                }),
                Waiting::Id(admit) => Pin::new(admit).poll(&mut cx).map(|answer| {
                    let held = answer.map(|admitted| admitted.hold.is_some());
                    held.map(|held| {
                        (Load::Id(id), held.then(|| self.pools[0].take_hold(id)).flatten())
                    })
                }),
            };
            match answer {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    drop(self.waiters.swap_remove(at));
                    match answer {
                        Ok((load, hold)) => {
                            self.shared.ended(ADMITTED);
                            if !picky {
                                self.nobody_was_passed(&place);
                                self.shared.let_in.lock().unwrap().push(place);
                            }
                            let (output, done) = (0, false);
                            self.items.push(Item {
                                decode: false,
                                load,
                                shape,
                                output,
                                done,
                                hold,
                            });
                        }
                        Err(_) => self.shared.ended(REFUSED),
                    }
                }
            }
        }
    }

    /// Whoever was let in has passed nobody of this thread who goes before it and waits still.
    fn nobody_was_passed(&self, let_in: &Place) {
        for waiter in self.waiters.iter().filter(|w| !w.picky && w.place.waited < let_in.asked) {
            // It is a hand-over that is seen here: what came before it is seen as well.
            if waiter.is_waiting() {
                self.shared.compared.fetch_add(1, Ordering::Relaxed);
                let passed = waiter.place.goes_before(let_in);
                assert!(!passed, "{let_in:?} was let in, and {:?} waits", waiter.place);
            }
        }
    }

    fn book(&mut self, decode: bool, now: Time) {
        let id = self.fresh_id();
        let shape = Shape::of(id.0 as u64);
        let pool = &self.pools[usize::from(decode)];
        let load = match self.rng.chance(50) {
            true => pool.book(&shape.request(now)).map(|booking| Load::Value(Box::new(booking))),
            false => pool.book_as(id, &shape.request(now)).map(|_| Load::Id(id)),
        };
        if let Ok(load) = load {
            let (output, done, hold) = (0, false, None);
            self.items.push(Item { decode, load, shape, output, done, hold });
        }
    }

    /// Prefill is over; then the decode leg is booked, out of the hold if there is one.
    fn go_on(&mut self, now: Time) {
        let Some(at) = self.item() else { return };
        let item = &mut self.items[at];
        if !item.done {
            item.done = true;
            match &item.load {
                Load::Value(booking) => booking.prefill_completed(),
                // Unknown: its lease has run out.
                Load::Id(id) => {
                    let _ = self.pools[usize::from(item.decode)].prefill_completed(*id);
                }
            }
            return;
        }
        if item.decode {
            return self.free(at);
        }
        let decode = &self.pools[1];
        let request = item.shape.request(now).upstream();
        let booked = match item.hold.take() {
            Some(hold) if self.rng.chance(80) => decode.book_leg(hold, &request),
            Some(hold) => decode.book_leg_afresh(hold, &request),
            None => match decode.book(&request) {
                Ok(booking) => Ok(booking),
                Err(_) => return self.free(at),
            },
        };
        match booked {
            Ok(booking) => {
                let shape = item.shape;
                self.free(at);
                let load = Load::Value(Box::new(booking));
                let (output, hold) = (0, None);
                self.items.push(Item { decode: true, load, shape, output, done: true, hold });
            }
            Err(refused) => {
                item.hold = Some(refused.hold);
                if self.rng.chance(30) {
                    self.free(at);
                }
            }
        }
    }

    fn free(&mut self, at: usize) {
        let item = self.items.swap_remove(at);
        if let Load::Id(id) = item.load {
            self.pools[usize::from(item.decode)].free(id);
        }
    }

    fn grow(&mut self) {
        let Some(at) = self.item() else { return };
        let item = &mut self.items[at];
        match &item.load {
            Load::Value(booking) => {
                booking.add_output_blocks(1).expect("rows are wide");
                item.output += 1;
            }
            Load::Id(id) => {
                let _ = self.pools[usize::from(item.decode)].add_output_blocks(*id, 1);
            }
        }
    }

    fn move_to(&mut self) {
        let to = Rank::new(self.worker(), self.rng.below(2) as u32);
        let Some(at) = self.item() else { return };
        let item = &self.items[at];
        let moved = match &item.load {
            Load::Value(booking) => booking.move_to(to),
            Load::Id(id) => self.pools[usize::from(item.decode)].move_to(*id, to),
        };
        assert!(matches!(
            moved,
            Ok(()) | Err(Error::NoEndpoints) | Err(Error::UnknownRequest { .. })
        ));
    }

    fn tell(&mut self, decode: bool, booking: u128, change: LoadChange) -> Applied {
        self.seq += 1;
        let event = LoadEvent::new(self.router, self.seq, booking, change);
        let pool = &self.pools[usize::from(decode)];
        let applied = pool.apply_peer(&event, self.shared.now());
        if self.rng.chance(20) {
            pool.apply_peer(&event, self.shared.now());
        }
        applied
    }

    /// Another router, which sometimes says things twice, or loses all that it has.
    fn mirror(&mut self, decode: bool, _now: Time) {
        match self.rng.below(10) {
            0..5 => {
                let rank = Rank::new(self.rng.below(STABLE.end), self.rng.below(2) as u32);
                let (tokens, blocks) = (self.rng.below(80) as u32, self.rng.below(6) as u32);
                self.seq += 1;
                let booking = u128::from(self.seq);
                let add = LoadChange::Add { rank, prefill_tokens: tokens, kv_blocks: blocks };
                assert_eq!(self.tell(decode, booking, add), Applied::Taken);
                self.mirrors.push(Mirrored { decode, booking, rank, tokens, blocks, done: false });
            }
            5..7 => {
                if let Some(mirror) = self.mirrors.last_mut() {
                    mirror.done = true;
                    let (decode, booking) = (mirror.decode, mirror.booking);
                    self.tell(decode, booking, LoadChange::PrefillCompleted);
                }
            }
            7..9 => {
                if let Some(mirror) = self.mirrors.pop() {
                    self.tell(mirror.decode, mirror.booking, LoadChange::Free);
                }
            }
            _ => {
                self.pools[usize::from(decode)].peer_gone(self.router);
                self.mirrors.retain(|mirror| mirror.decode != decode);
            }
        }
    }

    fn select(&mut self, pool: &Pool, now: Time) {
        let _ = pool.select(&Shape::of(self.rng.next()).request(now));
        let epoch = pool.epoch();
        let thresholds = Thresholds::NONE.decode_frac(0.5);
        pool.any_rank_has_room(&thresholds, RoomFilter::ALL);
        drop(pool.room_changed(epoch));
        let snapshot = pool.snapshot();
        assert!(snapshot.workers >= STABLE.end as usize);
    }

    /// The third pool: whoever books leaves no rank beyond its limit by more than one booking.
    fn book_strictly(&mut self) {
        let isl = u64::from(sums::BLOCK) * (1 + self.rng.below(STRICT_MOST.into()));
        if let Ok(booking) = self.strict.book(&Request::new(isl)) {
            self.shared.strict_bookings.fetch_add(1, Ordering::Relaxed);
            let load = self.strict.load(booking.rank()).expect("it is there");
            assert!(load.kv_blocks <= STRICT_LIMIT + STRICT_MOST, "{load:?}");
            self.strict_bookings.push(booking);
        }
        if self.strict_bookings.len() > 12 || self.rng.chance(30) {
            self.strict_bookings.clear();
        }
    }

    /// Everybody stands still: whatever may close a gate but load is taken off, the woken run, and
    /// each says what it has.
    fn quiet(&mut self, number: usize, until: Instant) {
        let shared = self.shared;
        shared.barrier.wait();
        if number == 0 {
            self.open_all();
        }
        shared.barrier.wait();
        self.run_woken();
        shared.barrier.wait();
        self.say();
        shared.barrier.wait();
        if number == 0 {
            self.judge();
            // Said while all stand still, or one that is late in asking whether this was the last
            // round would hear of the next one, leave, and be missed at its barriers for ever.
            shared.stop.store(Instant::now() >= until, Ordering::Relaxed);
        }
        shared.barrier.wait();
    }

    fn open_all(&mut self) {
        *self.shared.sums.lock().unwrap() = Sums::default();
        self.shared.waiting.store(0, Ordering::Relaxed);
        self.shared.picky.store(0, Ordering::Relaxed);
        for (pool, rejects) in self.pools.iter().zip(&self.shared.rejects) {
            rejects.clear();
            for id in PASSING {
                pool.upsert(spec(id, 60)).expect("it is valid");
            }
            for id in STABLE.chain(PASSING) {
                pool.set_overloaded(WorkerId(id), false, None);
                pool.set_available(WorkerId(id), true);
            }
        }
    }

    fn say(&mut self) {
        let mut sums = self.shared.sums.lock().unwrap();
        for item in &self.items {
            if let Load::Value(booking) = &item.load {
                let sum = sums.add(item.decode, booking.rank(), item.shape);
                sum.requests += 1;
                sum.unshared += u64::from(item.output);
                if !item.decode && !item.done {
                    sum.tokens += u64::from(item.shape.isl);
                }
            }
            if let Some(rank) = item.hold.as_ref().and_then(Hold::rank) {
                sums.add(true, rank, item.shape);
            }
        }
        for mirror in &self.mirrors {
            let nothing = Shape { isl: 0, chain: None };
            let sum = sums.add(mirror.decode, mirror.rank, nothing);
            sum.requests += 1;
            sum.unshared += u64::from(mirror.blocks);
            if !mirror.decode && !mirror.done {
                sum.tokens += u64::from(mirror.tokens);
            }
        }
        let let_in = self.shared.let_in.lock().unwrap().clone();
        for place in &let_in {
            self.nobody_was_passed(place);
        }
        for waiter in &self.waiters {
            assert!(waiter.is_waiting(), "a future is over, and its waker was not called");
            assert!(!waiter.is_beside_room(), "the head waits, and its gate is open");
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            self.shared.picky.fetch_add(waiter.picky.into(), Ordering::Relaxed);
        }
    }

    fn judge(&mut self) {
        let mut sums = std::mem::take(&mut *self.shared.sums.lock().unwrap());
        for (decode, pool) in self.pools.iter().enumerate() {
            for live in pool.export() {
                let sum = sums.add(decode == 1, live.rank, Shape::of(live.id.0 as u64));
                sum.requests += 1;
                sum.tokens += u64::from(live.prefill_tokens);
                sum.unshared += u64::from(live.output_blocks);
            }
            for (rank, load) in pool.snapshot().ranks {
                let sum = sums.0[decode].remove(&rank).unwrap_or_default();
                let blocks = u64::from(load.kv_blocks) + u64::from(load.held_blocks);
                let shown = (u64::from(load.prefill_tokens), blocks, u64::from(load.requests));
                let summed = (sum.tokens, sum.blocks(), sum.requests);
                let holds = if STABLE.contains(&rank.worker.0) {
                    shown == summed
                } else {
                    // Some of it may have been lost with an earlier life of the rank.
                    shown.0 <= summed.0 && shown.1 <= summed.1 && shown.2 <= summed.2
                };
                assert!(holds, "{rank} of pool {decode}: {shown:?}, the sum is {summed:?}");
            }
        }
        let (waiting, count) =
            (self.shared.waiting.load(Ordering::Relaxed), self.pools[0].snapshot().waiting);
        assert_eq!(waiting, count, "who waits is counted, and nobody else");
        let own = Thresholds::NONE.prefill_frac(0.5);
        let pair = Thresholds::NONE.decode_frac(0.5);
        let has_room = |pool: &Pool, line| pool.any_rank_has_room(line, RoomFilter::ALL);
        // One that is picky may wait beside room that it may not use, and others behind it.
        if waiting > 0 && self.shared.picky.load(Ordering::Relaxed) == 0 {
            let room = has_room(&self.pools[0], &own) && has_room(&self.pools[1], &pair);
            assert!(!room, "{waiting} wait beside room");
        }
        self.shared.let_in.lock().unwrap().clear();
        self.shared.rounds.fetch_add(1, Ordering::Relaxed);
    }

    fn live(&mut self, number: usize, until: Instant) {
        loop {
            for _ in 0..OPS_PER_ROUND {
                self.op();
            }
            self.shared.ops.fetch_add(OPS_PER_ROUND as u64, Ordering::Relaxed);
            self.quiet(number, until);
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Gives everything back.
    fn leave(mut self) {
        for _ in 0..self.waiters.len() {
            self.shared.ended(WITHDRAWN);
        }
        self.waiters.clear();
        while !self.items.is_empty() {
            self.free(0);
        }
        for pool in &self.pools {
            pool.peer_gone(self.router);
        }
    }
}

impl Waiter {
    fn is_waiting(&self) -> bool {
        match &self.future {
            Waiting::Value(admit) => admit.is_waiting(),
            Waiting::Id(admit) => admit.is_waiting(),
        }
    }

    fn is_beside_room(&self) -> bool {
        let standing = match &self.future {
            Waiting::Value(admit) => admit.standing(),
            Waiting::Id(admit) => admit.standing(),
        };
        // Its own gate is open, and it is the first.
        standing.is_some_and(|s| s.why == Why::Behind && s.ahead == 0)
    }
}

#[test]
fn everything_at_once_keeps_every_invariant_at_quiet_points() {
    let seconds = std::env::var("VACANCY_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(5, |s| s.parse().expect("VACANCY_STRESS_SECONDS is a number"));
    let seed = std::env::var("VACANCY_SEED").ok().map_or(1, |s| s.parse().expect("a number"));
    let shared = Shared::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                // One thread that fails must not leave the others at the barrier.
                let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let mut thread = Thread::new(shared, number, seed);
                    thread.live(number, until);
                    thread.leave();
                }));
                if lived.is_err() {
                    eprintln!("seed {seed}: an invariant is broken");
                    std::process::exit(101);
                }
            });
        }
    });
    for pool in &shared.pools {
        // What was left under an id by somebody whose lease ran is gone as well.
        pool.expire(Time::from_millis(u64::MAX / 2_000_000));
        let snapshot = pool.snapshot();
        for (rank, load) in &snapshot.ranks {
            let on = [load.prefill_tokens, load.kv_blocks, load.held_blocks, load.requests];
            assert_eq!(on, [0; 4], "{rank}");
        }
        assert_eq!((snapshot.waiting, snapshot.ids, pool.mirrored()), (0, 0, 0));
    }
    let [admitted, refused, withdrawn, started] =
        shared.ends.each_ref().map(|n| n.load(Ordering::Relaxed));
    assert_eq!(admitted + refused + withdrawn, started, "every request ends exactly once");
    let rounds = shared.rounds.load(Ordering::Relaxed);
    println!(
        "{THREADS} threads, {rounds} quiet points ({} thread-rounds), {} operations; of {started} \
         requests {admitted} admitted, {refused} refused, {withdrawn} withdrawn; {} bookings under \
         a fixed limit; {} times one was let in while another waited",
        rounds * THREADS as u64,
        shared.ops.load(Ordering::Relaxed),
        shared.strict_bookings.load(Ordering::Relaxed),
        shared.compared.load(Ordering::Relaxed)
    );
    assert!(rounds > 0 && admitted > 0 && withdrawn > 0);
}
