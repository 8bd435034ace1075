//! The strategy under test: every decision is the engine's, by the calls that a router would make.
//!
//! One pool: a request is booked when it arrives, with its block hashes and the overlaps that the
//! simulated caches have; the booking is told when the prefill is done and when the answer grows,
//! and is given back at the end.
#![forbid(unsafe_code)]

use super::args::Args;
use super::router::{Answer, Ask, Hop, Landing, Placement, Router, timed};
use super::sim::{Layout, Model};
use std::sync::Arc;
use vacancy::{Booking, Overlap, Pool, Rank, Request, Time, WorkerSpec};

/// The engine behind the simulator.
pub struct Engine {
    pool: Pool,
    /// By request, while it is live.
    bookings: Vec<Option<Booking>>,
    dp_size: u32,
}

impl Engine {
    /// A pool with one worker per `dp_size` ranks of the layout.
    ///
    /// # Errors
    /// What the engine refuses, as it says it.
    pub fn new(
        args: &Args,
        model: &Model,
        layout: Layout,
        requests: usize,
    ) -> Result<Engine, String> {
        let pool = Pool::builder()
            .block_size(model.block)
            .seed(args.seed)
            .build()
            .map_err(|e| e.to_string())?;
        let workers = layout.prefill as u64 / u64::from(args.dp_size);
        let specs: Vec<WorkerSpec> = (0..workers)
            .map(|id| {
                WorkerSpec::new(id)
                    .ranks(0, args.dp_size)
                    .max_num_batched_tokens(args.batch_tokens)
                    .total_kv_blocks(model.kv_blocks)
            })
            .collect();
        pool.reconcile(&specs).map_err(|e| e.to_string())?;
        let bookings = (0..requests).map(|_| None).collect();
        Ok(Engine { pool, bookings, dp_size: args.dp_size })
    }

    /// A rank of the pool by its place in the simulator's count.
    fn rank(&self, at: u32) -> Rank {
        Rank::new(u64::from(at / self.dp_size), at % self.dp_size)
    }

    /// The place of a rank in the simulator's count.
    fn at(&self, rank: Rank) -> u32 {
        rank.worker.0 as u32 * self.dp_size + rank.dp_rank
    }
}

impl Router for Engine {
    fn wants_overlaps(&self) -> bool {
        true
    }

    fn place(&mut self, _hop: Hop, ask: Ask<'_>) -> Answer {
        let overlap = |&(at, n): &(u32, u32)| Overlap::device(self.rank(at), f64::from(n));
        let overlaps: Arc<[Overlap]> = ask.overlaps.iter().map(overlap).collect();
        let mut request = Request::new(u64::from(ask.arrival.isl))
            .at(Time::from_nanos(ask.now))
            .overlaps(overlaps);
        request.prompt.clone_from(&ask.arrival.prompt);
        let (booked, decision_ns) = timed(|| self.pool.book(&request));
        let placement = match booked {
            Ok(booking) => {
                let landing = Landing {
                    rank: self.at(booking.rank()),
                    expected_cached: Some(booking.choice().cached_tokens),
                    judged: None,
                    class: None,
                };
                self.bookings[ask.request as usize] = Some(booking);
                Placement::Landed(landing)
            }
            Err(e) => Placement::Refused(e),
        };
        Answer { placement, decision_ns }
    }

    fn prefill_completed(&mut self, request: u32, _now: u64) {
        if let Some(booking) = &self.bookings[request as usize] {
            booking.prefill_completed();
        }
    }

    fn output(&mut self, request: u32, blocks: u32, _now: u64) {
        if let Some(booking) = &self.bookings[request as usize] {
            // A row that cannot take them says so and stays as it is; the answer goes on.
            let _ = booking.add_output_blocks(blocks);
        }
    }

    fn free(&mut self, _hop: Hop, request: u32, _now: u64) {
        self.bookings[request as usize] = None;
    }

    fn settled(&mut self, _to: &mut Vec<(u32, Placement)>) {}

    fn next_due(&self) -> Option<u64> {
        None
    }

    fn expire(&mut self, _now: u64) {}

    /// Requests on all rows; a row that kept tokens or blocks of nobody counts as one.
    fn bookings_left(&self) -> u64 {
        let rows = self.pool.snapshot().ranks.into_iter();
        rows.map(|(_, load)| match load.requests {
            0 => u64::from(load.prefill_tokens > 0 || load.kv_blocks > 0 || load.held_blocks > 0),
            n => u64::from(n),
        })
        .sum()
    }
}
