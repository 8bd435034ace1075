//! Sentences of the contract about a request with two legs: what is taken at both hops is given
//! back once, wherever it stops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use vacancy::*;

const PREFILL: u64 = 1;
const DECODE: u64 = 2;

fn profile(thresholds: Thresholds) -> Arc<Profile> {
    let class = ClassSpec::new("c", 100).family("f", "all").thresholds(thresholds);
    Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap())
}

/// A prefill pool of one worker with two ranks, and a decode pool of the same shape, 20 blocks a
/// rank: the prefill class waits past 64 tokens a rank, and past half of a decode rank.
fn two_pools() -> (Pool, Pool) {
    let mut thresholds = Thresholds::NONE.decode_frac(0.5);
    thresholds.prefill_tokens = Some(64);
    let decode = Pool::builder().track_prefill(false).build().unwrap();
    decode.upsert(WorkerSpec::new(DECODE).ranks(0, 2).total_kv_blocks(20)).unwrap();
    let prefill = Pool::builder().policy(&profile(thresholds)).build().unwrap();
    prefill.upsert(WorkerSpec::new(PREFILL).ranks(0, 2).total_kv_blocks(1000)).unwrap();
    prefill.pair_with(&decode);
    (prefill, decode)
}

/// Tokens, blocks, blocks held, requests of all ranks; and how many wait.
type Sum = (u32, u32, u32, u32, usize);

fn sum(pool: &Pool) -> Sum {
    let snapshot = pool.snapshot();
    let mut sum = (0, 0, 0, 0, snapshot.waiting);
    for (_, load) in snapshot.ranks {
        sum.0 += load.prefill_tokens;
        sum.1 += load.kv_blocks;
        sum.2 += load.held_blocks;
        sum.3 += load.requests;
    }
    sum
}

const NOTHING: Sum = (0, 0, 0, 0, 0);

#[track_caller]
fn assert_nothing_left(prefill: &Pool, decode: &Pool) {
    assert_eq!((sum(prefill), sum(decode)), (NOTHING, NOTHING));
    assert_eq!((prefill.export(), decode.export()), (vec![], vec![]));
    assert_eq!((prefill.snapshot().ids, decode.snapshot().ids), (0, 0));
    // What was entered of the prompt has gone as well: the same blocks are charged afresh.
    for pool in [prefill, decode] {
        let booking = pool.book(&request()).unwrap();
        assert_eq!(sum(pool).1, 4);
        drop(booking);
        assert_eq!(sum(pool), NOTHING);
    }
}

/// 64 tokens in 4 blocks, one of them shared by everybody.
fn request() -> Request {
    Request::new(64).prompt(Prompt::new([1, 2, 3, 4]).unwrap())
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Polls once, with a waker that counts.
fn poll(admit: &mut Admit) -> Arc<Woken> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let polled = std::pin::Pin::new(admit).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    woken
}

#[test]
fn when_the_decode_leg_is_refused_the_prefill_row_goes_back_and_a_waiter_is_woken() {
    let (prefill, decode) = two_pools();
    let rejects = decode.reject_thresholds().clone();
    // Three prompts of 4 unshared blocks a rank go in at decode (0, 4, 8 of 10), and two of 64
    // tokens a rank at prefill.
    let mut first: Vec<Admitted> =
        (0..4).map(|_| prefill.admit(Request::new(64)).wait().unwrap()).collect();
    let mut waits = prefill.admit(Request::new(64));
    assert_eq!(waits.standing().unwrap().why, Why::OwnPrefill);
    let woken = poll(&mut waits);
    assert_eq!(sum(&prefill), (256, 16, 0, 4, 1));
    assert_eq!(sum(&decode), (0, 0, 16, 0, 0));

    // Decode refuses: 8 blocks a rank, and without the leg's own hold 4, over 2.
    rejects.set(Thresholds::NONE.decode_frac(0.1)).unwrap();
    let Admitted { booking, hold, .. } = first.remove(0);
    let held_on = hold.as_ref().unwrap().rank();
    let refused = decode.book_leg(hold.unwrap(), &Request::new(64)).unwrap_err();
    assert_eq!(refused.error, Error::AllEligibleWorkersOverloaded);
    assert_eq!(refused.hold.rank(), held_on, "the hold stays with the caller");
    assert_eq!(sum(&decode), (0, 0, 16, 0, 0));
    assert!(waits.is_waiting() && woken.times() == 0);

    // The host gives the request up: its prefill row goes back, and that is what wakes.
    drop(booking);
    assert_eq!(woken.times(), 1);
    assert!(!waits.is_waiting());
    assert_eq!(sum(&prefill), (256, 16, 0, 4, 0), "the waiter has it");
    assert_eq!(sum(&decode), (0, 0, 20, 0, 0));
    drop(refused);
    assert_eq!(sum(&decode), (0, 0, 16, 0, 0));
    let admitted = waits.try_take().unwrap().unwrap();
    assert!(admitted.waited && admitted.hold.is_some());
    rejects.clear();
    drop((admitted, first));
    assert_nothing_left(&prefill, &decode);
}

#[test]
fn when_the_decode_leg_is_refused_its_hold_going_back_wakes_one_who_waits_for_decode() {
    let (prefill, decode) = two_pools();
    // 12 blocks on each rank: past the line of 10. The prefill rows are empty again.
    let mut first: Vec<Admitted> = (0..6)
        .map(|_| {
            let admitted = prefill.admit(Request::new(64)).wait().unwrap();
            admitted.booking.prefill_completed();
            admitted
        })
        .collect();
    assert_eq!(sum(&decode), (0, 0, 24, 0, 0));
    let mut waits = prefill.admit(Request::new(64));
    assert_eq!(waits.standing().unwrap().why, Why::Pair);
    let woken = poll(&mut waits);
    decode.set_overloaded(WorkerId(DECODE), true, None);
    let Admitted { booking, hold, .. } = first.pop().unwrap();
    let refused = decode.book_leg(hold.unwrap(), &Request::new(64)).unwrap_err();
    assert_eq!(refused.error, Error::AllEligibleWorkersOverloaded);
    drop(booking);
    assert!(woken.times() == 0 && waits.is_waiting(), "that is not what it waits for");
    drop(refused);
    assert_eq!(woken.times(), 1);
    assert!(waits.try_take().unwrap().unwrap().hold.is_some());
    decode.set_overloaded(WorkerId(DECODE), false, None);
    drop(first);
    assert_nothing_left(&prefill, &decode);
}

#[test]
fn a_leg_lands_on_its_holds_rank_unless_that_is_gone_or_excluded_or_a_fresh_choice_is_asked_for() {
    type Leg = fn(&Pool, Hold) -> Result<Booking, Box<RefusedLeg>>;
    let on = |rank: u32| Constraints::new().pin(Target::rank(DECODE, rank));
    let legs: [(&str, Leg, u32); 5] = [
        ("as it is", |pool, hold| pool.book_leg(hold, &Request::new(64)), 0),
        // Dearer by 4 blocks, and chosen all the same.
        (
            "with a dear rank",
            |pool, hold| {
                let _dear = pool.import(Rank::new(DECODE, 0), &Request::new(64)).unwrap();
                pool.book_leg(hold, &Request::new(64))
            },
            0,
        ),
        (
            "afresh",
            |pool, hold| {
                let _dear = pool.import(Rank::new(DECODE, 0), &Request::new(64)).unwrap();
                pool.book_leg_afresh(hold, &Request::new(64))
            },
            1,
        ),
        (
            "excluded",
            |pool, hold| {
                let constraints = Constraints::new().pin(Target::rank(DECODE, 1));
                pool.book_leg(hold, &Request::new(64).constraints(constraints))
            },
            1,
        ),
        (
            "gone",
            |pool, hold| {
                pool.upsert(WorkerSpec::new(DECODE).ranks(1, 1).total_kv_blocks(20)).unwrap();
                let leg = pool.book_leg(hold, &Request::new(64));
                pool.upsert(WorkerSpec::new(DECODE).ranks(0, 2).total_kv_blocks(20)).unwrap();
                leg
            },
            1,
        ),
    ];
    for (name, book, lands_on) in legs {
        let (prefill, decode) = two_pools();
        let admitted = prefill.admit(Request::new(64).decode(on(0))).wait().unwrap();
        let hold = admitted.hold.unwrap();
        assert_eq!(hold.rank(), Some(Rank::new(DECODE, 0)), "{name}");
        let leg = book(&decode, hold).expect(name);
        assert_eq!(leg.rank(), Rank::new(DECODE, lands_on), "{name}");
        assert_eq!(sum(&decode), (0, 4, 0, 1, 0), "{name}: the hold is over");
        drop((leg, admitted.booking));
        assert_nothing_left(&prefill, &decode);
    }
}

#[test]
fn a_hold_of_another_pool_is_given_back_once_the_leg_is_booked_and_kept_if_it_is_refused() {
    let (prefill, decode) = two_pools();
    let (_, other) = two_pools();
    let admitted = prefill.admit(Request::new(64)).wait().unwrap();
    other.set_overloaded(WorkerId(DECODE), true, None);
    let refused = other.book_leg(admitted.hold.unwrap(), &Request::new(64)).unwrap_err();
    assert_eq!(refused.error, Error::AllEligibleWorkersOverloaded);
    assert_eq!(sum(&decode), (0, 0, 4, 0, 0));
    other.set_overloaded(WorkerId(DECODE), false, None);
    let leg = other.book_leg(refused.hold, &Request::new(64)).unwrap();
    assert_eq!((sum(&decode), sum(&other)), (NOTHING, (0, 4, 0, 1, 0)));
    drop((leg, admitted.booking));
    assert_nothing_left(&prefill, &decode);
    assert_eq!(sum(&other), NOTHING);
}

/// The steps of a request with two legs. At each of them it can be cancelled.
const STEPS: [&str; 13] = [
    "waiting",
    "delivered and not taken",
    "taken with its hold",
    "prefill completed",
    "prefill moved",
    "hold in hand",
    "decode leg refused",
    "hold put back",
    "decode leg booked",
    "decode leg moved",
    "output added",
    "prefill leg ended",
    "decode ranks gone and back",
];

const ID: RequestId = RequestId(77);

/// What a host has of one request: values, or an id at both pools and the hold while it is out.
#[derive(Default)]
struct Hand {
    admit: Option<Admit>,
    booking: Option<Booking>,
    leg: Option<Booking>,
    admit_as: Option<AdmitAs>,
    hold: Option<Hold>,
}

const PARTS: usize = 3;

/// In which order the parts are given up.
const ORDERS: [[usize; PARTS]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl Hand {
    /// Gives up one part: the wait and the hold, the prefill leg, or the decode leg.
    fn give_up(&mut self, part: usize, prefill: &Pool, decode: &Pool) {
        match part {
            0 => {
                drop((self.admit.take(), self.admit_as.take(), self.hold.take()));
                drop(prefill.take_hold(ID));
            }
            1 => {
                drop(self.booking.take());
                prefill.free(ID);
            }
            _ => {
                drop(self.leg.take());
                decode.free(ID);
            }
        }
    }
}

/// Two pools in which a request blocks both hops for all others while any of it is there: the class
/// waits as soon as a prefill rank has any tokens and a decode rank more than 3 blocks, and the
/// second rank of both is taken by the bookings given back.
fn two_pools_with_one_seat() -> (Pool, Pool, [Booking; 2]) {
    let mut thresholds = Thresholds::NONE.decode_frac(0.15);
    thresholds.prefill_tokens = Some(0);
    let (prefill, decode) = two_pools();
    prefill.set_policy(&profile(thresholds));
    let taken = [
        prefill.import(Rank::new(PREFILL, 1), &Request::new(64)).unwrap(),
        decode.import(Rank::new(DECODE, 1), &Request::new(64)).unwrap(),
    ];
    (prefill, decode, taken)
}

/// Brings a request to a step, through all those before it.
fn bring_to(step: usize, by_id: bool, prefill: &Pool, decode: &Pool) -> Hand {
    let mut hand = Hand::default();
    let full = prefill.import(Rank::new(PREFILL, 0), &Request::new(64)).unwrap();
    match by_id {
        false => hand.admit = Some(prefill.admit(request())),
        true => hand.admit_as = Some(prefill.admit_as(ID, request())),
    }
    assert_eq!(prefill.snapshot().waiting, 1);
    if step == 0 {
        // It stays full for as long as it waits: what is behind it waits for the same.
        hand.booking = Some(full);
        return hand;
    }
    drop(full);
    assert_eq!(prefill.snapshot().waiting, 0, "delivered");
    for step in &STEPS[2..=step.max(1)] {
        take_step(step, by_id, &mut hand, prefill, decode);
    }
    hand
}

fn take_step(step: &str, by_id: bool, hand: &mut Hand, prefill: &Pool, decode: &Pool) {
    match step {
        "taken with its hold" => {
            if by_id {
                let admitted = hand.admit_as.take().unwrap().try_take().unwrap().unwrap();
                assert!(admitted.waited);
                assert_eq!(admitted.hold, Some(Rank::new(DECODE, 0)));
            } else {
                let admitted = hand.admit.take().unwrap().try_take().unwrap().unwrap();
                assert!(admitted.waited);
                (hand.booking, hand.hold) = (Some(admitted.booking), admitted.hold);
            }
            assert_eq!((sum(prefill).0, sum(decode).2), (128, 4));
        }
        "prefill completed" => {
            match &hand.booking {
                Some(booking) => booking.prefill_completed(),
                None => prefill.prefill_completed(ID).unwrap(),
            }
            assert_eq!(sum(prefill).0, 64);
        }
        "prefill moved" => {
            let to = Rank::new(PREFILL, 1);
            match &hand.booking {
                Some(booking) => booking.move_to(to).unwrap(),
                None => prefill.move_to(ID, to).unwrap(),
            }
            assert_eq!(prefill.load(Rank::new(PREFILL, 0)).unwrap().kv_blocks, 0);
        }
        "hold in hand" => {
            if by_id {
                hand.hold = prefill.take_hold(ID);
            }
            assert!(hand.hold.is_some());
        }
        "decode leg refused" => {
            decode.set_overloaded(WorkerId(DECODE), true, None);
            let hold = hand.hold.take().unwrap();
            let refused = match by_id {
                false => decode.book_leg(hold, &request()).unwrap_err(),
                true => decode.book_leg_as(ID, hold, &request()).unwrap_err(),
            };
            assert_eq!(refused.error, Error::AllEligibleWorkersOverloaded);
            hand.hold = Some(refused.hold);
            decode.set_overloaded(WorkerId(DECODE), false, None);
            assert_eq!(sum(decode).2, 4);
        }
        "hold put back" => {
            if by_id {
                prefill.return_hold(ID, hand.hold.take().unwrap());
            }
            assert_eq!(sum(decode).2, 4);
        }
        "decode leg booked" => {
            if by_id {
                let hold = prefill.take_hold(ID).unwrap();
                decode.book_leg_as(ID, hold, &request()).unwrap();
            } else {
                let hold = hand.hold.take().unwrap();
                hand.leg = Some(decode.book_leg(hold, &request()).unwrap());
            }
            assert_eq!((sum(decode).1, sum(decode).2), (8, 0));
        }
        "decode leg moved" => {
            let to = Rank::new(DECODE, 1);
            match &hand.leg {
                Some(leg) => leg.move_to(to).unwrap(),
                None => decode.move_to(ID, to).unwrap(),
            }
            assert_eq!(decode.load(to).unwrap().kv_blocks, 8);
        }
        "output added" => {
            match &hand.leg {
                Some(leg) => leg.add_output_blocks(3).unwrap(),
                None => decode.add_output_blocks(ID, 3).unwrap(),
            }
            assert_eq!(sum(decode).1, 11);
        }
        "prefill leg ended" => {
            hand.give_up(1, prefill, decode);
            assert_eq!(sum(prefill), (64, 4, 0, 1, 0));
        }
        "decode ranks gone and back" => {
            let lost = decode.remove(WorkerId(DECODE));
            assert_eq!(lost.iter().map(|lost| lost.requests).sum::<u32>(), 2);
            let spec = WorkerSpec::new(DECODE).ranks(0, 2).total_kv_blocks(20);
            decode.upsert(spec).unwrap();
        }
        step => panic!("{step}"),
    }
}

/// Whether both hops have a rank that the class may use now.
fn both_have_room(prefill: &Pool, decode: &Pool) -> bool {
    let some = |pool: &Pool, room: fn(&RankLoad) -> bool| {
        pool.snapshot().ranks.iter().any(|(_, load)| room(load))
    };
    some(prefill, |load| load.prefill_tokens == 0)
        && some(decode, |load| load.kv_blocks + load.held_blocks <= 3)
}

#[test]
fn cancelled_at_every_step_of_the_hand_over_both_pools_are_empty_again() {
    let mut cases = 0;
    for (step, name) in STEPS.iter().enumerate() {
        for (by_id, order, behind) in [false, true]
            .into_iter()
            .flat_map(|by_id| ORDERS.map(|order| (by_id, order)))
            .flat_map(|(by_id, order)| [false, true].map(|behind| (by_id, order, behind)))
        {
            let case = format!("{name}, by id: {by_id}, {order:?}, somebody behind: {behind}");
            let (prefill, decode, taken) = two_pools_with_one_seat();
            let mut hand = bring_to(step, by_id, &prefill, &decode);
            let next = behind.then(|| prefill.admit(Request::new(32)));
            for part in order {
                hand.give_up(part, &prefill, &decode);
                if let Some(next) = &next {
                    let sleeps = next.is_waiting() && both_have_room(&prefill, &decode);
                    assert!(!sleeps, "{case}: sleeps beside room");
                }
            }
            if let Some(mut next) = next {
                let admitted = next.try_take().unwrap_or_else(|| panic!("{case}: sleeps"));
                assert!(admitted.unwrap().hold.is_some(), "{case}");
            }
            drop(taken);
            assert_nothing_left(&prefill, &decode);
            cases += 1;
        }
    }
    assert_eq!(cases, STEPS.len() * 2 * ORDERS.len() * 2);
    println!("{cases} cases");
}

/// Small pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn rounds() -> usize {
    if std::env::var_os("VACANCY_LONG").is_some() { 200_000 } else { 10_000 }
}

/// What happened to the requests of one thread, by where they were given up.
type Ends = std::collections::BTreeMap<&'static str, usize>;

/// One request of a thread that takes random steps and gives up at a random one. Gives where.
struct Random<'a> {
    prefill: &'a Pool,
    decode: &'a Pool,
    id: Option<RequestId>,
    hand: Hand,
    at: &'static str,
}

impl Random<'_> {
    fn start(&mut self, draw: &mut Draw, now: Time) {
        // Prompts that share their beginning, prompts without hashes, adapters and constraints.
        let length = draw.below(5);
        let mut request = Request::new(16 * length).at(now);
        if draw.below(2) == 0 {
            let chain: Vec<u64> = (0..length).map(|i| i + 10 * draw.below(2) * (i / 2)).collect();
            request = request.prompt(Prompt::new(chain).unwrap());
        }
        match draw.below(6) {
            0 => request = request.lora("a"),
            1 => request = request.decode(Constraints::new().pin(Target::rank(DECODE, 1))),
            2 => request = request.due(now.after(Duration::from_nanos(1 + draw.below(200)))),
            _ => {}
        }
        match self.id {
            Some(id) => self.hand.admit_as = Some(self.prefill.admit_as(id, request)),
            None => self.hand.admit = Some(self.prefill.admit(request)),
        }
        self.at = "waiting";
    }

    /// Takes a step; `false`: it is over.
    fn step(&mut self, draw: &mut Draw, now: Time) -> bool {
        let leg = Request::new(16 * draw.below(5)).at(now);
        let (prefill, decode) = (self.prefill, self.decode);
        let hand = &mut self.hand;
        if let Some(admit) = &mut hand.admit {
            match admit.try_take() {
                Some(Ok(admitted)) => {
                    (hand.booking, hand.hold) = (Some(admitted.booking), admitted.hold);
                    hand.admit = None;
                    self.at = "admitted";
                }
                Some(Err(_)) => return false,
                None => std::thread::yield_now(),
            }
            return true;
        }
        if let Some(admit) = &mut hand.admit_as {
            match admit.try_take() {
                Some(Ok(admitted)) => {
                    // Somebody else takes the lease for run out at times: then there is no hold.
                    assert!(admitted.hold.is_some());
                    hand.admit_as = None;
                    self.at = "admitted";
                }
                Some(Err(_)) => return false,
                None => std::thread::yield_now(),
            }
            return true;
        }
        let id = self.id.unwrap_or(RequestId(u128::MAX));
        match draw.below(7) {
            0 => match &hand.booking {
                Some(booking) => booking.prefill_completed(),
                None => drop(prefill.prefill_completed(id)),
            },
            1 => {
                let to = Rank::new(PREFILL, draw.below(2) as u32);
                match &hand.booking {
                    Some(booking) => drop(booking.move_to(to)),
                    None => drop(prefill.move_to(id, to)),
                }
            }
            2 => {
                let to = Rank::new(DECODE, draw.below(2) as u32);
                match &hand.leg {
                    Some(leg) => drop((leg.move_to(to), leg.add_output_blocks(1))),
                    None => drop((decode.move_to(id, to), decode.add_output_blocks(id, 1))),
                }
            }
            3 => {
                drop(hand.booking.take());
                prefill.free(id);
            }
            _ => {
                let hold = hand.hold.take().or_else(|| prefill.take_hold(id));
                let Some(hold) = hold else { return true };
                let kept = match (self.id, draw.below(2)) {
                    (Some(id), _) => decode.book_leg_as(id, hold, &leg).err(),
                    (None, 0) => decode.book_leg(hold, &leg).map(|leg| hand.leg = Some(leg)).err(),
                    (None, _) => {
                        decode.book_leg_afresh(hold, &leg).map(|leg| hand.leg = Some(leg)).err()
                    }
                };
                self.at = if kept.is_some() { "leg refused" } else { "leg booked" };
                match (kept, self.id) {
                    (Some(kept), Some(id)) => prefill.return_hold(id, kept.hold),
                    (Some(kept), None) => hand.hold = Some(kept.hold),
                    (None, _) => {}
                }
            }
        }
        true
    }

    fn give_up(mut self, draw: &mut Draw) -> &'static str {
        let id = self.id.unwrap_or(RequestId(u128::MAX));
        for part in ORDERS[draw.below(6) as usize] {
            match part {
                0 => {
                    let hand = &mut self.hand;
                    drop((hand.admit.take(), hand.admit_as.take(), hand.hold.take()));
                    drop(self.prefill.take_hold(id));
                }
                1 => {
                    drop(self.hand.booking.take());
                    self.prefill.free(id);
                }
                _ => {
                    drop(self.hand.leg.take());
                    self.decode.free(id);
                }
            }
        }
        self.at
    }
}

fn random_rounds(prefill: &Pool, decode: &Pool, thread: u64, rounds: usize) -> Ends {
    let mut draw = Draw(thread + 1);
    let mut ends = Ends::new();
    let mut running: Vec<Random<'_>> = Vec::new();
    for round in 0..rounds {
        let now = Time::from_nanos(round as u64);
        let id = (draw.below(2) == 0).then(|| RequestId(u128::from(thread) << 64 | round as u128));
        let mut request = Random { prefill, decode, id, hand: Hand::default(), at: "" };
        request.start(&mut draw, now);
        running.push(request);
        for _ in 0..draw.below(12) {
            let at = draw.below(running.len() as u64) as usize;
            let goes_on = running[at].step(&mut draw, now);
            if !goes_on || draw.below(8) == 0 {
                let end = running.swap_remove(at).give_up(&mut draw);
                *ends.entry(end).or_default() += 1;
                if running.is_empty() {
                    break;
                }
            }
        }
        if running.len() > 6 {
            *ends.entry(running.remove(0).give_up(&mut draw)).or_default() += 1;
        }
        if draw.below(16) == 0 {
            prefill.expire(now);
            decode.expire(now);
        }
    }
    for request in running {
        *ends.entry(request.give_up(&mut draw)).or_default() += 1;
    }
    ends
}

#[test]
fn after_ten_thousand_random_rounds_on_each_of_three_threads_both_pools_are_empty() {
    let (prefill, decode) = two_pools();
    let ends = Mutex::new(Ends::new());
    let done = AtomicUsize::new(0);
    const THREADS: usize = 3;
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (prefill, decode, ends, done) = (prefill.clone(), decode.clone(), &ends, &done);
            scope.spawn(move || {
                let run = || random_rounds(&prefill, &decode, thread, rounds());
                let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                done.fetch_add(1, Ordering::SeqCst);
                for (end, n) in own.expect("no round panics") {
                    *ends.lock().unwrap().entry(end).or_default() += n;
                }
            });
        }
        // Meanwhile a rank of each hop goes and comes back, and limits are raised and lowered.
        let mut draw = Draw(99);
        let rejects = decode.reject_thresholds().clone();
        while done.load(Ordering::SeqCst) < THREADS {
            match draw.below(6) {
                0 => {
                    decode.upsert(WorkerSpec::new(DECODE).ranks(0, 1).total_kv_blocks(20)).unwrap();
                    decode.upsert(WorkerSpec::new(DECODE).ranks(0, 2).total_kv_blocks(20)).unwrap();
                }
                1 => {
                    prefill.upsert(WorkerSpec::new(PREFILL).ranks(0, 1)).unwrap();
                    prefill.upsert(WorkerSpec::new(PREFILL).ranks(0, 2)).unwrap();
                }
                2 => rejects.set(Thresholds::NONE.decode_frac(0.3)).unwrap(),
                3 => rejects.clear(),
                4 => {
                    decode.set_overloaded(WorkerId(DECODE), true, None);
                    decode.set_overloaded(WorkerId(DECODE), false, None);
                }
                _ => std::thread::yield_now(),
            }
        }
        rejects.clear();
    });
    let ends = ends.into_inner().unwrap();
    assert_eq!(ends.values().sum::<usize>(), THREADS * rounds());
    for end in ["waiting", "admitted", "leg refused", "leg booked"] {
        assert!(ends.get(end).is_some_and(|&n| n > 100), "too few ended there: {ends:?}");
    }
    println!("{} rounds on {THREADS} threads: {ends:?}", THREADS * rounds());
    assert_nothing_left(&prefill, &decode);
}
