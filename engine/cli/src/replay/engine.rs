//! The strategy under test: every decision is the engine's, by the calls that a router would make.
//!
//! One pool: a request is admitted when it arrives, with its block hashes, the overlaps that the
//! simulated caches have, and its class if it names one; its booking is told when the prefill is
//! done and when the answer grows, and is given back at the end.
//!
//! Two pools: a prefill pool, which counts prompt tokens, is paired with a decode pool, which
//! counts KV blocks. A request is admitted at the prefill pool, with a hold on a decode rank if
//! holds are on. When its prefill is done, the hold is turned into the booking of the decode leg;
//! without one, the leg is booked as one admitted upstream. Decode legs come without overlaps: hold
//! and leg are chosen alike, by load.
#![forbid(unsafe_code)]

use super::args::{Args, Switch};
use super::arrivals::Arrival;
use super::classes::Classes;
use super::router::{Answer, Ask, Hop, Landing, Placement, Router, timed};
use super::sim::{Layout, Model};
use super::waiting::{Settled, Waiting};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use vacancy::{
    Admitted, Booking, Error, Hold, Overlap, Pool, PoolBuilder, Rank, RejectThresholds, Request,
    Thresholds, Time, WorkerSpec,
};

/// The engine behind the simulator.
pub struct Engine {
    /// The only pool, or the prefill pool.
    first: Pool,
    decode: Option<Pool>,
    classes: Classes,
    live: FxHashMap<u32, Legs>,
    waiting: Waiting,
    settled: Vec<Settled>,
    block: u32,
    dp_size: u32,
}

/// What a request has.
#[derive(Default)]
struct Legs {
    first: Option<Booking>,
    hold: Option<Hold>,
    decode: Option<Booking>,
}

impl Legs {
    fn none_left(&self) -> bool {
        self.first.is_none() && self.hold.is_none() && self.decode.is_none()
    }
}

impl Engine {
    /// A pool, or a pair of them, with one worker per `dp_size` ranks of the layout.
    ///
    /// # Errors
    /// What the engine refuses, as it says it.
    pub fn new(
        args: &Args,
        model: &Model,
        layout: Layout,
        classes: &Classes,
    ) -> Result<Engine, String> {
        let said = |e: Error| e.to_string();
        let mut reject = Thresholds::NONE;
        reject.prefill_frac = args.reject_prefill_frac;
        reject.decode_frac = args.reject_decode_frac;
        let rejects = RejectThresholds::new(reject).map_err(said)?;
        let pool = |ranks: usize, builder: PoolBuilder| -> Result<Pool, Error> {
            let settings = builder.block_size(model.block).seed(args.seed);
            let pool = settings.reject_thresholds(rejects.clone()).build()?;
            let workers = ranks as u64 / u64::from(args.dp_size);
            let spec = |id| {
                WorkerSpec::new(id)
                    .ranks(0, args.dp_size)
                    .max_num_batched_tokens(args.batch_tokens)
                    .total_kv_blocks(model.kv_blocks)
            };
            pool.reconcile(&(0..workers).map(spec).collect::<Vec<_>>())?;
            Ok(pool)
        };
        let mut first = Pool::builder();
        if let Some(profile) = classes.profile() {
            first = first.policy(profile);
        }
        let (first, decode) = if layout.decode == 0 {
            (pool(layout.prefill, first).map_err(said)?, None)
        } else {
            let holds = args.holds != Some(Switch::Off);
            let decode = Pool::builder().track_prefill(false);
            let decode = pool(layout.decode, decode).map_err(said)?;
            let first = first.track_blocks(false).holds(holds);
            let first = pool(layout.prefill, first).map_err(said)?;
            first.pair_with(&decode);
            (first, Some(decode))
        };
        Ok(Engine {
            first,
            decode,
            classes: classes.clone(),
            live: FxHashMap::default(),
            waiting: Waiting::default(),
            settled: Vec::new(),
            block: model.block,
            dp_size: args.dp_size,
        })
    }

    /// A rank of a pool by its place in the simulator's count.
    fn rank(&self, at: u32) -> Rank {
        Rank::new(u64::from(at / self.dp_size), at % self.dp_size)
    }

    /// The place of a rank in the simulator's count.
    fn at(&self, rank: Rank) -> u32 {
        rank.worker.0 as u32 * self.dp_size + rank.dp_rank
    }

    /// The most prompt tokens that some rank has cached, as the class of a request goes by.
    fn best_cached(&self, ask: &Ask<'_>) -> u64 {
        let blocks = ask.overlaps.iter().map(|&(_, blocks)| blocks).max().unwrap_or(0);
        (u64::from(blocks) * u64::from(self.block)).min(u64::from(ask.arrival.isl))
    }

    /// Admits at the first hop.
    fn admit(&mut self, ask: &Ask<'_>) -> Answer {
        let overlap = |&(at, n): &(u32, u32)| Overlap::device(self.rank(at), f64::from(n));
        let overlaps: Arc<[Overlap]> = ask.overlaps.iter().map(overlap).collect();
        let mut request = request(ask.arrival, ask.now).overlaps(overlaps);
        request.class.clone_from(&ask.arrival.class);
        let class =
            self.classes.of(ask.arrival, u64::from(ask.arrival.isl) - self.best_cached(ask));
        let ((admit, answer), decision_ns) = timed(|| {
            let mut admit = self.first.admit(request);
            let answer = admit.try_take();
            (admit, answer)
        });
        let placement = match answer.or_else(|| self.waiting.enter(ask.request, admit)) {
            Some(answer) => self.answered(ask.request, answer),
            None => Placement::Waits,
        };
        Answer { placement, class, decision_ns }
    }

    /// Keeps what an admission gave.
    fn answered(&mut self, request: u32, answer: Result<Admitted, Error>) -> Placement {
        let admitted = match answer {
            Ok(admitted) => admitted,
            Err(error) => return Placement::Refused(error),
        };
        let Admitted { booking, hold, .. } = admitted;
        let landing = Landing {
            rank: self.at(booking.rank()),
            expected_cached: Some(booking.choice().cached_tokens),
            hold: hold.as_ref().and_then(Hold::rank).map(|rank| self.at(rank)),
        };
        self.live.insert(request, Legs { first: Some(booking), hold, decode: None });
        Placement::Landed(landing)
    }

    /// Books the decode leg of a request whose prefill has run.
    fn book_leg(&mut self, ask: &Ask<'_>) -> Answer {
        let Some(decode) = &self.decode else {
            let placement = Placement::Refused(Error::NoEndpoints);
            return Answer { placement, class: None, decision_ns: 0 };
        };
        let legs = self.live.entry(ask.request).or_default();
        let request = request(ask.arrival, ask.now);
        let (booked, decision_ns) = match legs.hold.take() {
            // A hold that comes back with a refusal is given back at once.
            Some(hold) => timed(|| decode.book_leg(hold, &request).map_err(|leg| leg.error)),
            None => {
                let request = request.upstream();
                timed(|| decode.book(&request))
            }
        };
        let placement = match booked {
            Ok(booking) => {
                let rank = booking.rank();
                legs.decode = Some(booking);
                Placement::Landed(Landing {
                    rank: self.at(rank),
                    expected_cached: None,
                    hold: None,
                })
            }
            Err(error) => Placement::Refused(error),
        };
        Answer { placement, class: None, decision_ns }
    }
}

/// The part of a request that both legs have.
fn request(arrival: &Arrival, now: u64) -> Request {
    let mut request = Request::new(u64::from(arrival.isl)).at(Time::from_nanos(now));
    request.prompt.clone_from(&arrival.prompt);
    request
}

impl Router for Engine {
    fn wants_overlaps(&self, hop: Hop) -> bool {
        hop == Hop::Prefill
    }

    fn place(&mut self, hop: Hop, ask: Ask<'_>) -> Answer {
        match hop {
            Hop::Prefill => self.admit(&ask),
            Hop::Decode => self.book_leg(&ask),
        }
    }

    fn prefill_completed(&mut self, request: u32, _now: u64) {
        if let Some(booking) = self.live.get(&request).and_then(|legs| legs.first.as_ref()) {
            booking.prefill_completed();
        }
    }

    fn output(&mut self, request: u32, blocks: u32, _now: u64) {
        if let Some(legs) = self.live.get(&request)
            && let Some(booking) = legs.decode.as_ref().or(legs.first.as_ref())
        {
            // A row that cannot take them says so and stays as it is; the answer goes on.
            let _ = booking.add_output_blocks(blocks);
        }
    }

    fn free(&mut self, hop: Hop, request: u32, _now: u64) {
        let Some(legs) = self.live.get_mut(&request) else { return };
        let over = match hop {
            Hop::Prefill => legs.first.take(),
            Hop::Decode => legs.decode.take(),
        };
        if legs.none_left() {
            self.live.remove(&request);
        }
        drop(over);
    }

    fn settled(&mut self, to: &mut Vec<(u32, Placement)>) {
        let mut settled = std::mem::take(&mut self.settled);
        self.waiting.settled(&mut settled);
        for (request, answer) in settled.drain(..) {
            to.push((request, self.answered(request, answer)));
        }
        self.settled = settled;
    }

    fn next_due(&self) -> Option<u64> {
        // Nothing else is due: no leases without ids, no marks.
        if self.waiting.is_empty() { None } else { self.first.next_due().map(Time::as_nanos) }
    }

    fn expire(&mut self, now: u64) {
        let now = Time::from_nanos(now);
        if let Some(decode) = &self.decode {
            decode.expire(now);
        }
        self.first.expire(now);
    }

    fn decode_blocks(&self, rank: u32) -> Option<u64> {
        let load = self.decode.as_ref()?.load(self.rank(rank))?;
        Some(u64::from(load.kv_blocks) + u64::from(load.held_blocks))
    }

    /// Requests on all rows, and those that wait; a row that kept tokens or blocks of nobody
    /// counts as one.
    fn bookings_left(&self) -> u64 {
        let pools = [Some(&self.first), self.decode.as_ref()].into_iter().flatten();
        let on_rows: u64 = pools
            .flat_map(|pool| pool.snapshot().ranks)
            .map(|(_, load)| match load.requests {
                0 => {
                    u64::from(load.prefill_tokens > 0 || load.kv_blocks > 0 || load.held_blocks > 0)
                }
                n => u64::from(n),
            })
            .sum();
        on_rows + self.waiting.len() as u64
    }
}
