//! From a seed to a plan. Each world draws its own mix first, so that worlds differ in what happens
//! to them and not only in when.

use crate::plan::{
    ClassPlan, Demand, Door, Event, Fault, Hop, HostCode, LARGE, Line, Op, PeerSays, Plan,
    PolicyPlan, Setup, Wants, WorkerPlan,
};
use crate::rng::Rng;
use vacancy::{QueuePolicy, RejectScope};

/// The fewest events of a world.
pub const EVENTS: usize = 520;

/// How often (in 1,000 events) each kind of thing happens in one world.
#[derive(Clone, Debug)]
struct Mix {
    weights: Vec<(Kind, u64)>,
    lazy: u64,
    run: u64,
    by_id: u64,
    constrained: u64,
    poison: u64,
    behind: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Arrive,
    Step,
    Output,
    Move,
    Cancel,
    CancelChosen,
    Panic,
    Silence,
    Duplicate,
    StaleFree,
    Advance,
    Jump,
    Upsert,
    Return,
    Remove,
    Reconcile,
    Available,
    Overloaded,
    Thresholds,
    Policy,
    Observe,
    Peer,
    PeerGone,
    Close,
}

/// The kinds of event that bring a fault about, for worlds that are about one fault.
fn kinds_of(fault: Fault) -> &'static [Kind] {
    match fault {
        Fault::CancelWaiting | Fault::CancelHolding => &[Kind::Cancel],
        Fault::CancelChosen => &[Kind::CancelChosen],
        Fault::ClientPanic => &[Kind::Panic],
        Fault::HostPanic | Fault::ClockBehind => &[],
        Fault::SlowWorker => &[Kind::Overloaded],
        Fault::SilentWorker => &[Kind::Observe],
        Fault::SilentClient => &[Kind::Silence],
        Fault::WorkerLeaves => &[Kind::Remove],
        Fault::WorkerReturns => &[Kind::Remove, Kind::Return],
        Fault::Capacity => &[Kind::Upsert],
        Fault::Unavailable => &[Kind::Available],
        Fault::ThresholdChange => &[Kind::Thresholds],
        Fault::PolicyReload => &[Kind::Policy],
        Fault::ClockJump => &[Kind::Jump],
        Fault::PeerDuplicate | Fault::PeerReorder => &[Kind::Peer],
        Fault::PeerVanish => &[Kind::Peer, Kind::PeerGone],
        Fault::Shutdown => &[Kind::Close],
    }
}

fn mix(rng: &mut Rng, about: Option<Fault>) -> Mix {
    let always = [(Kind::Arrive, 250), (Kind::Step, 480), (Kind::Output, 40), (Kind::Advance, 90)];
    let sometimes = [
        (Kind::Move, 20),
        (Kind::Cancel, 40),
        (Kind::CancelChosen, 60),
        (Kind::Panic, 20),
        (Kind::Silence, 10),
        (Kind::Duplicate, 10),
        (Kind::StaleFree, 10),
        (Kind::Jump, 6),
        (Kind::Upsert, 16),
        (Kind::Return, 12),
        (Kind::Remove, 8),
        (Kind::Reconcile, 3),
        (Kind::Available, 16),
        (Kind::Overloaded, 16),
        (Kind::Thresholds, 16),
        (Kind::Policy, 8),
        (Kind::Observe, 40),
        (Kind::Peer, 80),
        (Kind::PeerGone, 6),
        (Kind::Close, 1),
    ];
    let focus = about.map_or(&[][..], kinds_of);
    let mut weights = always.to_vec();
    for (kind, weight) in sometimes {
        if focus.contains(&kind) {
            weights.push((kind, if kind == Kind::Close { 2 } else { weight * 3 }));
        } else if rng.chance(60) {
            weights.push((kind, weight));
        }
    }
    let likely = |fault: Fault, rng: &mut Rng, percent| {
        if about == Some(fault) { percent } else { rng.pick(&[0, percent / 2]) }
    };
    Mix {
        weights,
        lazy: rng.pick(&[0, 10]),
        run: if about == Some(Fault::CancelChosen) { 50 } else { rng.pick(&[60, 80, 100]) },
        by_id: if about == Some(Fault::SilentClient) { 60 } else { rng.pick(&[10, 40, 70]) },
        constrained: rng.pick(&[0, 15, 40]),
        poison: likely(Fault::HostPanic, rng, 10),
        behind: likely(Fault::ClockBehind, rng, 20),
    }
}

fn line(rng: &mut Rng, hop: Hop) -> Line {
    let prefill = hop == Hop::Prefill;
    Line {
        prefill_tokens: rng.maybe(15, |r| r.within(0, 600)),
        prefill_frac: rng.maybe(if prefill { 70 } else { 10 }, |r| r.within(0, 12) as f64 / 10.0),
        decode_frac: rng.maybe(60, |r| r.within(0, 10) as f64 / 10.0),
    }
}

fn class(rng: &mut Rng, hop: Hop, name: &'static str, bucket: Option<&'static str>) -> ClassPlan {
    ClassPlan {
        name,
        bucket,
        quantum: rng.pick(&[1, 64, 256, 1024]),
        order: rng.pick(&[QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::Edf]),
        line: if rng.chance(85) { line(rng, hop) } else { Line::default() },
        ratio: rng.maybe(20, |r| r.within(3, 10) as f64 / 10.0),
        limit: rng.maybe(10, |r| r.within(1, 8)),
        max_wait_ms: rng.maybe(15, |r| r.within(5, 400)),
    }
}

fn policy(rng: &mut Rng, hop: Hop) -> PolicyPlan {
    let mut classes = vec![
        class(rng, hop, "std_small", Some("small")),
        class(rng, hop, "std_large", Some("large")),
    ];
    if rng.chance(80) {
        classes.push(class(rng, hop, "express", None));
    }
    if rng.chance(50) {
        let mut probe = class(rng, hop, "probe", None);
        probe.limit = Some(0);
        classes.push(probe);
    }
    PolicyPlan { classes }
}

fn worker(rng: &mut Rng, hop: Hop, id: u64) -> WorkerPlan {
    let (tokens, blocks) = match hop {
        Hop::Prefill => (rng.within(100, 1200), rng.within(10, 120)),
        Hop::Decode => (rng.within(200, 2000), rng.within(12, 90)),
    };
    WorkerPlan {
        id,
        start: rng.pick(&[0, 0, 0, 1, 2]),
        ranks: rng.pick(&[1, 1, 2, 3]),
        tokens: rng.maybe(90, |_| tokens),
        blocks: rng.maybe(95, |_| blocks),
        taint: rng.chance(40),
        lora: rng.chance(40),
    }
}

/// Workers that a pool may have, by id.
fn ids(hop: Hop) -> std::ops::Range<u64> {
    match hop {
        Hop::Prefill => 10..14,
        Hop::Decode => 20..24,
    }
}

fn some_worker(rng: &mut Rng, hop: Hop) -> u64 {
    rng.within(ids(hop).start, ids(hop).end - 1)
}

fn wants(rng: &mut Rng, hop: Hop) -> Wants {
    let mut wants = Wants::default();
    match rng.below(3) {
        0 => wants.pin = Some((some_worker(rng, hop), rng.maybe(50, |r| r.below(2) as u32))),
        1 => wants.taint = true,
        _ => wants.deny = Some(some_worker(rng, hop)),
    }
    wants
}

/// A chain of hashes out of a small tree, so that prompts share prefixes.
fn chain(rng: &mut Rng, blocks: u64) -> Vec<u64> {
    let mut hash = rng.below(3) + 1;
    (0..blocks)
        .map(|_| {
            let branch = if rng.chance(85) { 0 } else { rng.below(3) };
            hash = hash.wrapping_mul(0x9E37_79B9).wrapping_add(branch * 7 + 1).rotate_left(21);
            // Scenario files hold integers of 63 bits.
            hash >> 1
        })
        .collect()
}

fn demand(rng: &mut Rng, hop: Hop, setup: &Setup, mix: &Mix) -> Demand {
    let isl = match rng.below(20) {
        0 => 0,
        1..=4 => rng.within(LARGE, 420) as u32,
        _ => rng.within(1, 150) as u32,
    };
    let block_size = setup.block_size[hop as usize];
    let most = isl.div_ceil(block_size);
    let hashed = rng.chance(60) && most > 0;
    Demand {
        isl,
        chain: hashed.then(|| {
            let mut chain = chain(rng, most.into());
            let mut seen = std::collections::HashSet::new();
            chain.retain(|hash| seen.insert(*hash));
            chain
        }),
        cached: if rng.chance(25) {
            let n = rng.within(1, 2);
            (0..n)
                .map(|_| {
                    let blocks = rng.below(u64::from(most) + 2) as u32;
                    (some_worker(rng, hop), rng.below(3) as u32, blocks)
                })
                .collect()
        } else {
            Vec::new()
        },
        class: rng.pick(&[
            None,
            None,
            Some("standard"),
            Some("express"),
            Some("express"),
            Some("probe"),
            Some("nobody"),
        ]),
        priority: rng.pick(&[0, 0, 0, 1, -1]),
        jump: rng.pick(&[0.0, 0.0, 0.5, 3.0]),
        due_in_ms: rng.maybe(20, |r| r.within(0, 300)),
        own: if rng.chance(mix.constrained) { wants(rng, hop) } else { Wants::default() },
        leg: if hop == Hop::Prefill && rng.chance(mix.constrained) {
            wants(rng, Hop::Decode)
        } else {
            Wants::default()
        },
        lora: rng.chance(mix.constrained / 2),
        do_not_queue: rng.chance(4),
        behind_ms: if rng.chance(mix.behind) { rng.within(1, 5_000) } else { 0 },
        poison: rng.chance(mix.poison),
        afresh: rng.chance(15),
    }
}

/// The story of another router's booking, told later in any order.
fn peer_story(rng: &mut Rng, hop: Hop, router: u64, seq: &mut u64, booking: u64) -> Vec<Op> {
    let rank = |rng: &mut Rng| (some_worker(rng, hop), rng.below(2) as u32);
    let mut says = vec![PeerSays::Add {
        rank: rank(rng),
        tokens: rng.within(0, 200) as u32,
        blocks: rng.within(0, 12) as u32,
    }];
    if rng.chance(60) {
        says.push(PeerSays::Done);
    }
    for _ in 0..rng.below(3) {
        says.push(PeerSays::Output(rng.within(1, 3) as u32));
    }
    if rng.chance(30) {
        let at = rng.within(1, says.len() as u64) as usize;
        says.insert(at, PeerSays::Move(rank(rng)));
    }
    if rng.chance(85) {
        says.push(PeerSays::Free);
    }
    says.into_iter()
        .map(|says| {
            *seq += 1;
            Op::Peer(hop, router, *seq, booking, says)
        })
        .collect()
}

struct Generator {
    rng: Rng,
    mix: Mix,
    setup: Setup,
    next_client: u32,
    /// Clients that may have something left to do, and how much.
    busy: Vec<(u32, u32)>,
    /// What other routers have still to say, and the last sequence number of each.
    gossip: Vec<Op>,
    said: Vec<Op>,
    seq: [u64; 4],
    bookings: u64,
}

impl Generator {
    fn hop(&mut self) -> Hop {
        self.rng.pick(&Hop::BOTH)
    }

    fn client(&mut self) -> u32 {
        if self.busy.is_empty() {
            return 0;
        }
        let at = self.rng.below(self.busy.len() as u64) as usize;
        self.busy[at].0
    }

    fn kind(&mut self) -> Kind {
        let total = self.mix.weights.iter().map(|(_, w)| w).sum();
        let mut at = self.rng.below(total);
        for &(kind, weight) in &self.mix.weights {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        unreachable!("it is below the sum")
    }

    fn arrive(&mut self) -> Op {
        let client = self.next_client;
        self.next_client += 1;
        let hop = if self.rng.chance(80) { Hop::Prefill } else { Hop::Decode };
        let by_id = self.rng.chance(self.mix.by_id);
        let door = match (self.rng.chance(85), by_id) {
            (true, false) => Door::Admit,
            (true, true) => Door::AdmitAs,
            (false, false) => Door::Book,
            (false, true) => Door::BookAs,
        };
        let demand = demand(&mut self.rng, hop, &self.setup, &self.mix);
        self.busy.push((client, 4));
        if self.busy.len() > 40 {
            self.busy.remove(0);
        }
        Op::Arrive { client, hop, door, demand, lazy: self.rng.chance(self.mix.lazy) }
    }

    fn peer(&mut self) -> Op {
        if self.gossip.is_empty() {
            for _ in 0..self.rng.within(1, 4) {
                let hop = self.hop();
                // Router numbers of the two pools themselves are 0 and 1.
                let router = self.rng.within(7, 8);
                self.bookings += 1;
                let seq = &mut self.seq[(router - 7) as usize * 2 + hop as usize];
                let story = peer_story(&mut self.rng, hop, router, seq, self.bookings);
                self.gossip.extend(story);
            }
            // Mostly in order, sometimes not at all.
            if self.rng.chance(50) {
                for _ in 0..self.gossip.len() / 2 {
                    let n = self.gossip.len() as u64;
                    let (a, b) = (self.rng.below(n) as usize, self.rng.below(n) as usize);
                    self.gossip.swap(a, b);
                }
            }
        }
        if !self.said.is_empty() && self.rng.chance(15) {
            let at = self.rng.below(self.said.len() as u64) as usize;
            return self.said[at].clone();
        }
        let op = self.gossip.remove(0);
        self.said.push(op.clone());
        if self.said.len() > 20 {
            self.said.remove(0);
        }
        op
    }

    fn op(&mut self) -> Op {
        let kind = self.kind();
        let hop = self.hop();
        let id = some_worker(&mut self.rng, hop);
        let rng = &mut self.rng;
        match kind {
            Kind::Arrive => self.arrive(),
            Kind::Step => {
                let client = self.client();
                if let Some(at) = self.busy.iter().position(|&(c, _)| c == client) {
                    self.busy[at].1 -= 1;
                    if self.busy[at].1 == 0 {
                        self.busy.remove(at);
                    }
                }
                Op::Step(client)
            }
            Kind::Output => Op::Output(self.client(), self.rng.within(1, 6) as u32),
            Kind::Move => Op::Move(self.client(), id, self.rng.below(3) as u32),
            Kind::Cancel => Op::Cancel(self.client()),
            Kind::CancelChosen => Op::CancelChosen,
            Kind::Panic => Op::Panic(self.client()),
            Kind::Silence => Op::Silence(self.client()),
            Kind::Duplicate => Op::Duplicate(self.client()),
            Kind::StaleFree => Op::StaleFree(self.client()),
            Kind::Advance => Op::Advance(rng.within(1, 60)),
            Kind::Jump => Op::Jump(rng.within(500, 20_000)),
            Kind::Upsert | Kind::Return => Op::Upsert(hop, worker(rng, hop, id)),
            Kind::Remove => Op::Remove(hop, id),
            Kind::Reconcile => {
                let all: Vec<u64> = ids(hop).filter(|_| rng.chance(60)).collect();
                Op::Reconcile(hop, all.into_iter().map(|id| worker(rng, hop, id)).collect())
            }
            Kind::Available => Op::Available(hop, id, rng.chance(60)),
            Kind::Overloaded => {
                Op::Overloaded(hop, id, rng.chance(60), rng.maybe(70, |r| r.within(0, 200)))
            }
            Kind::Thresholds => {
                let line = if rng.chance(60) { line(rng, hop) } else { Line::default() };
                Op::Thresholds(hop, line)
            }
            Kind::Policy => Op::Policy(hop, policy(rng, hop)),
            Kind::Observe => {
                let used = rng.maybe(70, |r| r.below(100));
                let active = rng.maybe(50, |r| r.below(100));
                Op::Observe(hop, id, rng.below(3) as u32, used, active)
            }
            Kind::Peer => self.peer(),
            Kind::PeerGone => Op::PeerGone(hop, rng.within(7, 8)),
            Kind::Close => Op::Close(hop),
        }
    }
}

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    plan_about(seed, None)
}

/// The plan of a seed, of a world that is about one fault more than others.
pub fn plan_about(seed: u64, about: Option<Fault>) -> Plan {
    let mut rng = Rng::new(seed);
    let mix = mix(&mut rng, about);
    let host_panics = about == Some(Fault::HostPanic);
    let poisons = mix.poison > 0;
    let mut host = |percent| poisons && rng.chance(if host_panics { 60 } else { percent });
    let host =
        HostCode { scorer: host(25), observer: host(20), classifier: host(50), sink: host(30) };
    let setup = Setup {
        seed,
        block_size: [16, rng.pick(&[16, 16, 32, 8])],
        track_blocks: rng.chance(60),
        track_prefill: rng.chance(30),
        holds: rng.chance(75),
        scope: if rng.chance(60) { RejectScope::Worker } else { RejectScope::Rank },
        class_room_only: rng.chance(25),
        lease_ms: rng.maybe(85, |r| r.within(100, 3_000)),
        ttl_ms: rng.within(20, 400),
        policy: [policy(&mut rng, Hop::Prefill), policy(&mut rng, Hop::Decode)],
        host,
    };
    let mut events: Vec<Event> = Vec::new();
    for hop in Hop::BOTH {
        for id in ids(hop) {
            if rng.chance(75) {
                events.push(Event { op: Op::Upsert(hop, worker(&mut rng, hop, id)), run: true });
            }
        }
        if rng.chance(40) {
            events.push(Event { op: Op::Thresholds(hop, line(&mut rng, hop)), run: true });
        }
    }
    let run = mix.run;
    let mut generator = Generator {
        rng,
        mix,
        setup,
        next_client: 1,
        busy: Vec::new(),
        gossip: Vec::new(),
        said: Vec::new(),
        seq: [0; 4],
        bookings: 0,
    };
    let length = EVENTS + generator.rng.below(200) as usize;
    while events.len() < length {
        let op = generator.op();
        let run = generator.rng.chance(run);
        events.push(Event { op, run });
    }
    Plan { setup: generator.setup, events }
}
