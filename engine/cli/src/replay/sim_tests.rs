use super::super::arrivals::chain;
use super::super::baselines::{Baseline, Pick};
use super::super::router::{Answer, Landing};
use super::*;
use std::collections::{HashMap, HashSet};
use vacancy::{Error, Prompt};

const MS: u64 = 1_000_000;

/// 16 tokens to a block, one prompt token per ms, one output token per 10 ms.
const MODEL: Model = Model {
    block: 16,
    prefill_tps: 1000.0,
    token_ns: 10 * MS,
    kv_blocks: 100,
    transfer_tps: f64::INFINITY,
};

fn request(at_ms: u64, isl: u32, osl: u32, ids: &[u64]) -> Arrival {
    let prompt = (!ids.is_empty()).then(|| Prompt::new(chain(ids)).unwrap());
    Arrival { at: at_ms * MS, isl, osl, prompt, class: None }
}

fn run(arrivals: &[Arrival], model: Model, layout: Layout, router: &mut dyn Router) -> Run {
    simulate(arrivals, model, layout, &Classes::decode_busy(0.9), router, &mut |_| {})
}

const ONE: Layout = Layout { prefill: 1, decode: 0 };

#[test]
fn one_rank_prefills_in_turn_and_decodes_beside_it() {
    let arrivals = [request(0, 100, 11, &[]), request(50, 40, 1, &[])];
    let mut router = Baseline::new(Pick::RoundRobin, [1, 0], 1);
    let Run { records, bookings_left, stuck, .. } = run(&arrivals, MODEL, ONE, &mut router);
    assert_eq!((bookings_left, stuck), (0, 0));
    let [a, b] = &records[..] else { panic!() };
    assert_eq!(
        (a.admitted, a.prefill_start, a.prefill_end, a.first_token, a.end),
        (Some(0), Some(0), Some(100 * MS), Some(100 * MS), Some(200 * MS))
    );
    assert_eq!(
        (b.admitted, b.prefill_start, b.prefill_end, b.end),
        (Some(50 * MS), Some(100 * MS), Some(140 * MS), Some(140 * MS))
    );
}

#[test]
fn a_prefix_that_was_computed_is_not_computed_again() {
    let arrivals = [
        request(0, 64, 1, &[1, 2, 3, 4]),
        request(0, 64, 1, &[1, 2, 8, 9]),
        request(500, 64, 1, &[1, 2, 3, 4]),
        request(600, 40, 1, &[1, 2, 3]),
    ];
    let mut router = Baseline::new(Pick::RoundRobin, [1, 0], 1);
    let records = run(&arrivals, MODEL, ONE, &mut router).records;
    let cached: Vec<_> = records.iter().map(|r| r.cached.unwrap()).collect();
    // All of a prompt cached: its last token is still computed. The third id of the last one
    // stands for a block that it fills by half.
    assert_eq!(cached, [0, 32, 63, 32]);
    assert_eq!(records[2].prefill_end, Some(501 * MS));
}

#[test]
fn a_request_waits_for_kv_memory_and_one_that_never_fits_is_refused() {
    let model = Model { kv_blocks: 6, ..MODEL };
    let arrivals = [
        request(0, 64, 11, &[]),
        request(0, 32, 1, &[]),
        request(0, 96, 1, &[]),
        request(1, 16, 1, &[]),
    ];
    let mut router = Baseline::new(Pick::RoundRobin, [1, 0], 1);
    let Run { records, bookings_left, .. } = run(&arrivals, model, ONE, &mut router);
    // 5 of 6 blocks until 164 ms: the second one (3 blocks) starts then, and holds up the last.
    assert_eq!(records[1].prefill_start, Some(164 * MS));
    assert_eq!(records[3].prefill_start, Some(196 * MS));
    assert_eq!(records[2].outcome, Outcome::TooLarge);
    assert!(records[2].rejected() && records[2].prefill_rank.is_none());
    assert_eq!(bookings_left, 0);
}

/// Lets `seats` requests in at a time, on rank 0, and counts what it is told.
#[derive(Default)]
struct Seats {
    seats: usize,
    due_ns: Option<u64>,
    /// Legs, by request and hop.
    inside: HashSet<(u32, usize)>,
    waiting: VecDeque<(u32, u64)>,
    settled: Vec<(u32, Placement)>,
    outputs: HashMap<u32, Vec<u64>>,
    prefills: u32,
}

impl Seats {
    fn landed() -> Placement {
        Placement::Landed(Landing { rank: 0, expected_cached: Some(0), hold: None })
    }
}

impl Router for Seats {
    fn wants_overlaps(&self, _hop: Hop) -> bool {
        true
    }
    fn place(&mut self, hop: Hop, ask: Ask<'_>) -> Answer {
        let placement = if hop == Hop::Decode || self.inside.len() < self.seats {
            assert!(self.inside.insert((ask.request, hop as usize)));
            Seats::landed()
        } else {
            self.waiting.push_back((ask.request, ask.now));
            Placement::Waits
        };
        Answer { placement, class: Some("slow".into()), decision_ns: 1 }
    }
    fn prefill_completed(&mut self, request: u32, _now: u64) {
        assert!(self.inside.contains(&(request, 0)));
        self.prefills += 1;
    }
    fn output(&mut self, request: u32, blocks: u32, now: u64) {
        assert_eq!(blocks, 1);
        self.outputs.entry(request).or_default().push(now);
    }
    fn free(&mut self, hop: Hop, request: u32, _now: u64) {
        assert!(self.inside.remove(&(request, hop as usize)));
        if let Some((next, _)) = self.waiting.pop_front() {
            self.inside.insert((next, 0));
            self.settled.push((next, Seats::landed()));
        }
    }
    fn settled(&mut self, to: &mut Vec<(u32, Placement)>) {
        to.append(&mut self.settled);
    }
    fn next_due(&self) -> Option<u64> {
        Some(self.waiting.front()?.1 + self.due_ns?)
    }
    fn expire(&mut self, now: u64) {
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some((late, _)) = self.waiting.pop_front() {
                self.settled.push((late, Placement::Refused(Error::DeadlineExceeded)));
            }
        }
    }
    fn decode_blocks(&self, _rank: u32) -> Option<u64> {
        None
    }
    fn bookings_left(&self) -> u64 {
        self.inside.len() as u64
    }
}

#[test]
fn what_waits_is_let_in_by_the_event_that_makes_room() {
    let arrivals = [request(0, 100, 11, &[]), request(10, 50, 1, &[]), request(20, 50, 1, &[])];
    let mut router = Seats { seats: 1, ..Seats::default() };
    let Run { records, stuck, .. } = run(&arrivals, MODEL, ONE, &mut router);
    let admitted: Vec<_> = records.iter().map(|r| r.admitted.unwrap() / MS).collect();
    assert_eq!(admitted, [0, 200, 250]);
    assert_eq!(records[1].class.as_deref(), Some("slow"));
    assert_eq!((stuck, router.bookings_left(), router.prefills), (0, 0, 3));
}

#[test]
fn what_waits_too_long_expires_at_its_time_with_no_other_event() {
    let arrivals = [request(0, 100, 11, &[]), request(10, 50, 1, &[])];
    let mut router = Seats { seats: 1, due_ns: Some(30 * MS), ..Seats::default() };
    let records = run(&arrivals, MODEL, ONE, &mut router).records;
    assert!(records[1].expired() && !records[1].rejected());
    assert_eq!((records[1].end, records[1].admitted), (Some(40 * MS), None));
}

#[test]
fn nobody_is_left_waiting_without_being_told() {
    let arrivals = [request(0, 100, 11, &[]), request(10, 50, 1, &[])];
    let mut router = Seats::default();
    assert_eq!(run(&arrivals, MODEL, ONE, &mut router).stuck, 2);
}

#[test]
fn output_blocks_are_announced_when_their_first_token_comes() {
    // 40 tokens of prompt leave 8 free in the third block: tokens 9 and 25 start new ones.
    let arrivals = [request(0, 40, 30, &[]), request(1000, 32, 1, &[]), request(2000, 8, 0, &[])];
    let mut router = Seats { seats: 9, ..Seats::default() };
    run(&arrivals, MODEL, ONE, &mut router);
    assert_eq!(router.outputs[&0], [(40 + 80) * MS, (40 + 240) * MS]);
    assert_eq!(router.outputs[&1], [1032 * MS]);
    assert!(!router.outputs.contains_key(&2));
}

#[test]
fn with_two_pools_a_request_prefills_on_one_rank_and_decodes_on_another() {
    let two = Layout { prefill: 1, decode: 1 };
    let model = Model { kv_blocks: 5, ..MODEL };
    let arrivals = [request(0, 64, 11, &[1, 2, 3, 4]), request(0, 64, 11, &[5, 6, 7, 8])];
    let mut router = Seats { seats: 9, ..Seats::default() };
    let Run { records, bookings_left, .. } = run(&arrivals, model, two, &mut router);
    let [a, b] = &records[..] else { panic!() };
    assert_eq!(
        (a.prefill_end, a.first_token, a.end),
        (Some(64 * MS), Some(64 * MS), Some(164 * MS))
    );
    // The decode rank has room for one: the second one's first token waits for the first one's end.
    assert_eq!((b.prefill_end, b.first_token), (Some(128 * MS), Some(164 * MS)));
    assert_eq!((a.decode_rank, bookings_left), (Some(0), 0));
}

#[test]
fn every_baseline_ends_with_nothing_booked_on_one_pool_and_two() {
    let mut rng = fastrand::Rng::with_seed(3);
    let arrivals: Vec<_> = (0..500)
        .map(|i| {
            let ids: Vec<u64> = (0..rng.u64(1..20)).map(|d| d * 10 + rng.u64(..2)).collect();
            request(i * 20, ids.len() as u32 * 16 - rng.u32(..16), rng.u32(..60), &ids)
        })
        .collect();
    for layout in [Layout { prefill: 4, decode: 0 }, Layout { prefill: 3, decode: 2 }] {
        for pick in [Pick::RoundRobin, Pick::Random, Pick::TwoChoices, Pick::LeastLoaded] {
            let mut router = Baseline::new(pick, [layout.prefill, layout.decode], 5);
            let Run { records, bookings_left, stuck, .. } =
                run(&arrivals, MODEL, layout, &mut router);
            assert_eq!((bookings_left, stuck), (0, 0));
            for (r, a) in records.iter().zip(&arrivals) {
                assert_eq!(r.outcome, Outcome::Done);
                let times =
                    [Some(a.at), r.admitted, r.prefill_start, r.prefill_end, r.first_token, r.end];
                assert!(times.is_sorted() && times.iter().all(Option::is_some));
            }
        }
    }
}

#[test]
fn kv_blocks_take_their_time_to_the_decode_rank_and_hold_up_the_prefill_rank_until_then() {
    let two = Layout { prefill: 1, decode: 1 };
    // One token moves per ms. The prefill rank holds the blocks of one request at a time.
    let model = Model { kv_blocks: 5, transfer_tps: 1000.0, ..MODEL };
    let ids = [1, 2, 3, 4];
    let arrivals = [request(0, 64, 11, &ids), request(0, 64, 11, &[1, 2, 8, 9])];
    let mut router = Seats { seats: 9, ..Seats::default() };
    let records = run(&arrivals, model, two, &mut router).records;
    let [a, b] = &records[..] else { panic!() };
    let ms = |at: Option<u64>| at.unwrap() / MS;
    assert_eq!((ms(a.prefill_end), ms(a.first_token), ms(a.end)), (64, 128, 228));
    // Two of its blocks are cached at either rank: 32 tokens to compute, 32 to move. Neither rank
    // has room for both requests.
    assert_eq!((ms(b.prefill_start), ms(b.prefill_end)), (128, 160));
    assert_eq!((ms(b.first_token), ms(b.end)), (228 + 32, 228 + 132));
}

/// Takes everything at the first hop and, but for every third request, nothing at the second.
#[derive(Default)]
struct Choosy(Seats);

impl Router for Choosy {
    fn wants_overlaps(&self, hop: Hop) -> bool {
        self.0.wants_overlaps(hop)
    }
    fn place(&mut self, hop: Hop, ask: Ask<'_>) -> Answer {
        if hop == Hop::Decode && !ask.request.is_multiple_of(3) {
            let placement = Placement::Refused(Error::AllEligibleWorkersOverloaded);
            return Answer { placement, class: None, decision_ns: 1 };
        }
        self.0.place(hop, ask)
    }
    fn prefill_completed(&mut self, request: u32, now: u64) {
        self.0.prefill_completed(request, now);
    }
    fn output(&mut self, request: u32, blocks: u32, now: u64) {
        self.0.output(request, blocks, now);
    }
    fn free(&mut self, hop: Hop, request: u32, now: u64) {
        self.0.free(hop, request, now);
    }
    fn settled(&mut self, to: &mut Vec<(u32, Placement)>) {
        self.0.settled(to);
    }
    fn next_due(&self) -> Option<u64> {
        self.0.next_due()
    }
    fn expire(&mut self, now: u64) {
        self.0.expire(now);
    }
    fn decode_blocks(&self, _rank: u32) -> Option<u64> {
        None
    }
    fn bookings_left(&self) -> u64 {
        self.0.bookings_left()
    }
}

#[test]
fn a_refused_decode_leg_leaves_nothing_on_the_prefill_rank() {
    let two = Layout { prefill: 1, decode: 1 };
    let model = Model { kv_blocks: 5, ..MODEL };
    let arrivals: Vec<_> = (0..6).map(|i| request(0, 64, 1, &[i, 90, 91, 92])).collect();
    let mut router = Choosy(Seats { seats: 9, ..Seats::default() });
    let Run { records, bookings_left, .. } = run(&arrivals, model, two, &mut router);
    assert_eq!(bookings_left, 0);
    for (i, r) in records.iter().enumerate() {
        assert_eq!(r.prefill_end, Some((i as u64 + 1) * 64 * MS), "its room is free again");
        assert_eq!(r.rejected(), i % 3 > 0);
        assert_eq!(r.outcome == Outcome::Done, i % 3 == 0);
    }
}
