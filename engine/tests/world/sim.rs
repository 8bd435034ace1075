//! The world at work: two paired pools, the clients, the clock, and the books beside them.

use crate::client::{Client, End, Stage};
use crate::executor::Executor;
use crate::fleet::Fleet;
use crate::host;
use crate::ledger::{Ledger, Mistake};
use crate::peers::Routers;
use crate::plan::{Event, Fault, Hop, Line, Op, Plan, PolicyPlan, Setup};
use crate::trace::Trace;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use vacancy::{Pool, RejectThresholds, Time};

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

impl Breach {
    /// A breach of an invariant.
    pub fn of(invariant: &'static str, what: impl Into<String>) -> Breach {
        Breach { invariant, what: what.into() }
    }
}

/// How a world went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What broke, and the number of the event after which it was seen.
    pub breach: Option<(usize, Breach)>,
    /// Everything that could be seen from outside, folded.
    pub digest: u64,
    /// The digest after each step.
    pub history: Vec<u64>,
    /// Requests that came in.
    pub requests: u64,
    /// How often each fault was suffered.
    pub faults: BTreeMap<Fault, u64>,
    /// How requests ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// Steps of the world, timers included, after which the invariants were looked at.
    pub steps: u64,
    /// Looks at somebody who waited.
    pub waits_judged: u64,
    /// Landings judged.
    pub landings_judged: u64,
    /// The trace, if it was asked for.
    pub scenario: Option<String>,
}

/// One pool, and the books of it.
pub struct Side {
    /// Which.
    pub hop: Hop,
    /// The engine's.
    pub pool: Pool,
    /// The handle of its reject thresholds.
    pub rejects: RejectThresholds,
    /// Rows.
    pub ledger: Ledger,
    /// Workers.
    pub fleet: Fleet,
    /// The policy in force.
    pub policy: PolicyPlan,
    /// Live ids, and when each was heard of last.
    pub ids: BTreeMap<u128, u64>,
    /// Holds by id, and since when.
    pub holds: BTreeMap<u128, u64>,
    /// Other routers.
    pub routers: Routers,
    /// The lease of ids and routers (ns).
    pub lease: Option<u64>,
    /// Shut down.
    pub closed: bool,
}

impl Side {
    /// A call was made on an id: neither its booking nor its hold is silent.
    pub fn renew(&mut self, id: u128, now: u64) {
        self.ids.insert(id, now);
        if let Some(since) = self.holds.get_mut(&id) {
            *since = now;
        }
    }

    /// The part of a class's line that this pool judges.
    pub fn own_line(&self, line: &Line) -> Line {
        match self.hop {
            Hop::Prefill => Line { decode_frac: None, ..*line },
            Hop::Decode => *line,
        }
    }
}

/// A world that happens.
pub struct World<'p> {
    /// What it was made of.
    pub setup: &'p Setup,
    /// By the number of their hop.
    sides: [Side; 2],
    /// Everybody who ever came.
    pub clients: BTreeMap<u32, Client>,
    /// Who waits, as far as the clients know.
    pub waiting: Vec<u32>,
    /// Who is polled.
    pub executor: Executor,
    /// The clock (ns).
    pub now: u64,
    /// Arrival sequence.
    pub sequence: u64,
    /// Whether everything was known before this step.
    pub fresh: bool,
    /// The clock before time last passed (ns).
    pub earlier: u64,
    /// Workers that have left at some time.
    pub left: BTreeSet<(Hop, u64)>,
    /// Events of other routers that have come: pool, router, sequence number.
    pub heard: BTreeSet<(Hop, u64, u64)>,
    /// A breach that was seen where it could not be told.
    pub broken: Option<Breach>,
    /// What is told at the end.
    pub out: Outcome,
    /// What is written down for a scenario file.
    pub trace: Trace,
}

/// Milliseconds in nanoseconds.
pub const MS: u64 = 1_000_000;

/// How a plan is to be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Write down what happens.
    pub trace: bool,
    /// Keep wrong books.
    pub mistake: Option<Mistake>,
}

/// Runs a plan from beginning to end, or to the first breach.
pub fn run(plan: &Plan, options: Options) -> Outcome {
    // What panics in the engine (and is not the host's own code) is a breach like any other.
    let ran =
        catch_unwind(AssertUnwindSafe(|| World::new(&plan.setup, options).live(&plan.events)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let breach = Breach::of("the_engine_does_not_panic", text);
        Outcome { breach: Some((plan.events.len(), breach)), ..Outcome::default() }
    })
}

impl<'p> World<'p> {
    fn new(setup: &'p Setup, options: Options) -> World<'p> {
        let side = |hop: Hop| {
            let rejects = RejectThresholds::default();
            let at = hop as usize;
            let mut builder = Pool::builder()
                .block_size(setup.block_size[at])
                .track_prefill(hop == Hop::Prefill || setup.track_prefill)
                .track_blocks(hop == Hop::Decode || setup.track_blocks)
                .holds(setup.holds)
                .reject_scope(setup.scope)
                .class_room_only(setup.class_room_only)
                .reject_thresholds(rejects.clone())
                .lease(setup.lease_ms.map(Duration::from_millis))
                .signal_ttl(Duration::from_millis(setup.ttl_ms))
                .router_id(at as u64)
                .seed(setup.seed)
                .policy(&Arc::new(setup.policy[at].profile()));
            if hop == Hop::Prefill {
                builder = host::install(builder, setup.host);
            }
            Side {
                hop,
                pool: builder.build().expect("plans are valid"),
                rejects,
                ledger: Ledger {
                    rows: BTreeMap::new(),
                    tokens: hop == Hop::Prefill || setup.track_prefill,
                    blocks: hop == Hop::Decode || setup.track_blocks,
                    block_size: setup.block_size[at],
                    mistake: options.mistake,
                },
                fleet: Fleet::new(setup.scope, setup.ttl_ms * MS),
                policy: setup.policy[at].clone(),
                ids: BTreeMap::new(),
                holds: BTreeMap::new(),
                routers: Routers::default(),
                lease: setup.lease_ms.map(|ms| ms * MS),
                closed: false,
            }
        };
        let sides = [side(Hop::Prefill), side(Hop::Decode)];
        sides[0].pool.pair_with(&sides[1].pool);
        World {
            setup,
            sides,
            clients: BTreeMap::new(),
            waiting: Vec::new(),
            executor: Executor::default(),
            now: 0,
            sequence: 0,
            fresh: true,
            earlier: 0,
            left: BTreeSet::new(),
            heard: BTreeSet::new(),
            broken: None,
            out: Outcome { digest: 0xCBF2_9CE4_8422_2325, ..Outcome::default() },
            trace: Trace::new(options.trace, setup),
        }
    }

    /// One of the pools.
    pub fn side(&self, hop: Hop) -> &Side {
        &self.sides[hop as usize]
    }

    /// One of the pools, to be changed.
    pub fn side_mut(&mut self, hop: Hop) -> &mut Side {
        &mut self.sides[hop as usize]
    }

    /// The clock as the engine takes it.
    pub fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Folds something that was seen into the digest.
    pub fn saw(&mut self, what: u64) {
        let digest = &mut self.out.digest;
        *digest = (*digest ^ what).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }

    /// Folds a text that was seen into the digest.
    pub fn saw_text(&mut self, what: &str) {
        what.bytes().for_each(|byte| self.saw(u64::from(byte)));
    }

    /// A fault was suffered.
    pub fn suffered(&mut self, fault: Fault) {
        *self.out.faults.entry(fault).or_default() += 1;
    }

    fn live(mut self, events: &[Event]) -> Outcome {
        let mut lived = Ok(());
        let mut at = 0;
        for (i, event) in events.iter().enumerate() {
            at = i;
            lived = self.happen(event);
            if lived.is_err() {
                break;
            }
        }
        if lived.is_ok() {
            at = events.len();
            lived = self.end();
        }
        self.out.breach = lived.err().map(|breach| (at, breach));
        self.out.scenario = self.trace.finish();
        self.out
    }

    fn happen(&mut self, event: &Event) -> Result<(), Breach> {
        self.fresh = self.executor.is_idle();
        self.apply(&event.op)?;
        self.settle(event.run)
    }

    /// After something was done: notes who was woken, lets them run, and looks at the invariants.
    pub fn settle(&mut self, run: bool) -> Result<(), Breach> {
        self.note_lives();
        self.note_wakes()?;
        if run {
            while let Some(client) = self.executor.next() {
                self.poll(client)?;
            }
            self.note_wakes()?;
        }
        self.out.steps += 1;
        self.out.history.push(self.out.digest);
        self.check()
    }

    fn note_wakes(&mut self) -> Result<(), Breach> {
        let wakes = self.executor.collect();
        for (i, &client) in wakes.iter().enumerate() {
            self.saw(u64::from(client));
            self.note_wake(client, &wakes[i + 1..]);
        }
        self.note_who_was_never_polled();
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Result<(), Breach> {
        match op {
            Op::Upsert(hop, plan) => self.upsert(*hop, plan),
            Op::Remove(hop, id) => self.remove(*hop, *id),
            Op::Reconcile(hop, plans) => self.reconcile(*hop, plans),
            Op::Available(hop, id, is) => self.available(*hop, *id, *is),
            Op::Overloaded(hop, id, is, lease) => self.overloaded(*hop, *id, *is, *lease),
            Op::Thresholds(hop, line) => self.thresholds(*hop, line),
            Op::Policy(hop, policy) => self.policy(*hop, policy),
            Op::Observe(hop, id, dp_rank, used, active) => {
                self.observe(*hop, (*id, *dp_rank), [*used, *active])
            }
            Op::Peer(hop, router, seq, booking, says) => {
                self.peer(*hop, (*router, *seq, *booking), *says)
            }
            Op::PeerGone(hop, router) => self.peer_gone(*hop, *router),
            Op::Advance(ms) => self.advance(*ms),
            Op::Jump(ms) => {
                self.suffered(Fault::ClockJump);
                self.timers(self.now + ms * MS)
            }
            Op::Arrive { client, hop, door, demand, lazy } => {
                self.arrive(*client, *hop, *door, demand, *lazy)
            }
            Op::Step(client) => self.step(*client),
            Op::Output(client, blocks) => self.output(*client, *blocks),
            Op::Move(client, worker, dp_rank) => self.move_to(*client, *worker, *dp_rank),
            Op::Cancel(client) => self.cancel(*client),
            Op::CancelChosen => match self.executor.peek() {
                Some(client) => self.cancel(client),
                None => Ok(()),
            },
            Op::Panic(client) => self.panic(*client),
            Op::Silence(client) => self.silence(*client),
            Op::Duplicate(client) => self.duplicate(*client),
            Op::StaleFree(client) => self.stale_free(*client),
            Op::Close(hop) => self.close(*hop),
        }
    }

    /// Everything that is left goes, the ordinary way, and nothing may be left after it.
    fn end(&mut self) -> Result<(), Breach> {
        self.fresh = self.executor.is_idle();
        self.settle(true)?;
        // What is silent under an id goes with its lease, if there is one.
        self.timers(self.now + 3_600_000 * MS)?;
        self.settle(true)?;
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            self.clients.get_mut(&client).expect("it came").silent = false;
            if !matches!(self.clients[&client].stage, Stage::Over) {
                self.leave(client, End::Stopped);
                self.fresh = self.executor.is_idle();
                self.settle(true)?;
            }
        }
        for hop in Hop::BOTH {
            for router in self.side(hop).routers.names() {
                self.peer_gone(hop, router)?;
            }
        }
        self.settle(true)?;
        self.nothing_is_left()
    }
}
