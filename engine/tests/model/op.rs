//! The operations that a pool is driven with, and how one is drawn.
//!
//! An operation is drawn from a [`Dice`], so that whoever has a source of numbers (a property test
//! that shrinks, a fuzzer's bytes) gets the same mixture. A roll of 0 is always the plainest choice:
//! numbers that shrink make operations that are simpler.

use std::time::Duration;
use vacancy::{
    Change, Constraints, Overlap, Overrides, Prompt, Rank, Request, RequestId, Target, Thresholds,
    ThresholdsUpdate, Time, Weights, WorkerId, WorkerSpec,
};

use super::custom::{Custom, Filter, Picker, Scorer};
use super::queue::{Class, Order, Policy};
use super::{Config, Scope};

/// Which of the bookings that the host holds as values, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nth(pub u32);

impl Nth {
    /// Its index among `len`; `None` if there is none.
    pub fn of(self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.0 as usize % len)
    }
}

/// One call on a pool. Times are absolute once [`Op::anchored`] has been called.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `upsert`.
    Upsert(WorkerSpec),
    /// `remove`.
    Remove(WorkerId),
    /// `reconcile`.
    Reconcile(Vec<WorkerSpec>),
    /// `set_available`.
    Available(WorkerId, bool),
    /// `set_overloaded`, with the end of the lease.
    Overloaded(WorkerId, bool, Option<Time>),
    /// Merge into the reject thresholds.
    UpdateThresholds(ThresholdsUpdate),
    /// Replace the reject thresholds.
    SetThresholds(Thresholds),
    /// Turn the reject thresholds off.
    ClearThresholds,
    /// `select`.
    Select(Request),
    /// `book`, by value.
    Book(Request),
    /// `book_as`.
    BookAs(RequestId, Request),
    /// `import_as`.
    ImportAs(RequestId, Rank, Request),
    /// `prefill_completed` on a value.
    Complete(Nth),
    /// `add_output_blocks` on a value.
    Output(Nth, u32),
    /// `move_to` on a value.
    Move(Nth, Rank),
    /// `free` of a value.
    Free(Nth),
    /// A value dropped.
    Drop(Nth),
    /// `prefill_completed` by id.
    CompleteId(RequestId),
    /// `add_output_blocks` by id.
    OutputId(RequestId, u32),
    /// `move_to` by id.
    MoveId(RequestId, Rank),
    /// `free` by id.
    FreeId(RequestId),
    /// `free_attempt` of the attempt so many before the last one of the id.
    FreeAttempt(RequestId, u32),
    /// `export`.
    Export,
    /// `expire`.
    Expire(Time),
    /// `close`.
    Close,
    /// `admit`, by value.
    Admit(Request),
    /// `admit_as`.
    AdmitAs(RequestId, Request),
    /// A waiting future dropped: which of those that wait, in the order of arrival.
    Cancel(Nth),
    /// Another policy.
    Reload(Policy),
}

/// Where numbers come from.
pub trait Dice {
    /// A number below `sides` (at least 1); 0 for ever once the source is spent.
    fn roll(&mut self, sides: u32) -> u32;
}

/// A finite tape of numbers.
#[derive(Clone, Debug)]
pub struct Tape<I>(pub I);

impl<I: Iterator<Item = u16>> Dice for Tape<I> {
    fn roll(&mut self, sides: u32) -> u32 {
        u32::from(self.0.next().unwrap_or(0)) % sides
    }
}

/// Numbers without end from a seed (a linear congruential generator).
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Dice for Seeded {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % sides
    }
}

/// What a stream of operations is mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixture {
    /// Everything, on a fleet with room.
    Plain,
    /// Classes that wait for few ranks.
    Crowd,
}

/// How to draw one kind of operation.
type Draw = fn(&mut dyn Dice, &Config) -> Op;

/// Every kind of operation, its share in 1,000 of either mixture, and how it is drawn. A tape of
/// zeros gives the first.
pub const KINDS: [(&str, [u32; 2], Draw); 29] = [
    ("export", [10, 10], |_, _| Op::Export),
    ("select", [40, 10], |d, c| Op::Select(request(d, c))),
    ("book", [70, 20], |d, c| Op::Book(request(d, c))),
    ("book_as", [60, 10], |d, c| Op::BookAs(id(d), request(d, c))),
    ("admit", [180, 280], |d, c| Op::Admit(waiting(d, c))),
    ("admit_as", [120, 110], |d, c| Op::AdmitAs(id(d), waiting(d, c))),
    ("cancel", [35, 40], |d, _| Op::Cancel(nth(d))),
    ("reload", [12, 10], |d, _| Op::Reload(policy(d))),
    ("import_as", [30, 10], |d, c| Op::ImportAs(id(d), rank(d), request(d, c))),
    ("complete", [20, 30], |d, _| Op::Complete(nth(d))),
    ("output", [20, 10], |d, _| Op::Output(nth(d), output(d))),
    ("move", [20, 10], |d, _| Op::Move(nth(d), rank(d))),
    ("free", [45, 120], |d, _| Op::Free(nth(d))),
    ("drop", [25, 50], |d, _| Op::Drop(nth(d))),
    ("complete_id", [20, 20], |d, _| Op::CompleteId(id(d))),
    ("output_id", [20, 10], |d, _| Op::OutputId(id(d), output(d))),
    ("move_id", [15, 10], |d, _| Op::MoveId(id(d), rank(d))),
    ("free_id", [50, 90], |d, _| Op::FreeId(id(d))),
    ("free_attempt", [15, 10], |d, _| Op::FreeAttempt(id(d), d.roll(3))),
    ("upsert", [40, 20], |d, _| Op::Upsert(spec(d))),
    ("remove", [12, 10], |d, _| Op::Remove(worker(d))),
    ("reconcile", [10, 10], |d, c| Op::Reconcile(fleet(d, c))),
    ("available", [25, 20], |d, _| Op::Available(worker(d), d.roll(3) != 1)),
    ("overloaded", [25, 20], |d, _| {
        Op::Overloaded(worker(d), d.roll(2) == 1, some(d, |d| Time::from_millis(after(d))))
    }),
    ("update_thresholds", [15, 10], |d, _| Op::UpdateThresholds(update(d))),
    ("set_thresholds", [20, 10], |d, _| Op::SetThresholds(thresholds(d))),
    ("clear_thresholds", [11, 10], |_, _| Op::ClearThresholds),
    ("expire", [25, 20], |d, _| Op::Expire(now(d))),
    ("close", [10, 10], |_, _| Op::Close),
];

/// A relative instant that stands for one before everything seen.
const STALE: Time = Time::from_nanos(u64::MAX - 1);

impl Op {
    /// Draws an operation for a pool with these settings. Its times are relative to the clock.
    pub fn draw(dice: &mut dyn Dice, config: &Config) -> Op {
        let share = |shares: &[u32; 2]| shares[config.mixture as usize];
        let total = KINDS.iter().map(|k| share(&k.1)).sum();
        let mut at = dice.roll(total);
        for (_, shares, draw) in &KINDS {
            let share = share(shares);
            if at < share {
                return draw(dice, config);
            }
            at -= share;
        }
        unreachable!("a roll is below the total")
    }

    /// The operation with its relative times counted from `clock`.
    pub fn anchored(mut self, clock: Time) -> Op {
        let anchor = |t: Time| match t {
            STALE => Time::ZERO,
            t => clock.after(Duration::from_nanos(t.as_nanos())),
        };
        match &mut self {
            Op::Expire(now) => *now = anchor(*now),
            Op::Overloaded(_, _, lease) => *lease = lease.map(anchor),
            Op::Select(r)
            | Op::Book(r)
            | Op::Admit(r)
            | Op::AdmitAs(_, r)
            | Op::BookAs(_, r)
            | Op::ImportAs(_, _, r) => {
                r.now = anchor(r.now);
                r.due = r.due.map(anchor);
            }
            _ => {}
        }
        self
    }

    /// The instant that it brings along with a request.
    pub fn now(&self) -> Option<Time> {
        match self {
            Op::Select(r)
            | Op::Book(r)
            | Op::BookAs(_, r)
            | Op::Admit(r)
            | Op::AdmitAs(_, r)
            | Op::ImportAs(_, _, r) => Some(r.now),
            _ => None,
        }
    }

    /// The name of its kind, as [`KINDS`] has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Upsert(..) => "upsert",
            Op::Remove(..) => "remove",
            Op::Reconcile(..) => "reconcile",
            Op::Available(..) => "available",
            Op::Overloaded(..) => "overloaded",
            Op::UpdateThresholds(..) => "update_thresholds",
            Op::SetThresholds(..) => "set_thresholds",
            Op::ClearThresholds => "clear_thresholds",
            Op::Select(..) => "select",
            Op::Book(..) => "book",
            Op::BookAs(..) => "book_as",
            Op::ImportAs(..) => "import_as",
            Op::Complete(..) => "complete",
            Op::Output(..) => "output",
            Op::Move(..) => "move",
            Op::Free(..) => "free",
            Op::Drop(..) => "drop",
            Op::CompleteId(..) => "complete_id",
            Op::OutputId(..) => "output_id",
            Op::MoveId(..) => "move_id",
            Op::FreeId(..) => "free_id",
            Op::FreeAttempt(..) => "free_attempt",
            Op::Export => "export",
            Op::Expire(..) => "expire",
            Op::Close => "close",
            Op::Admit(..) => "admit",
            Op::AdmitAs(..) => "admit_as",
            Op::Cancel(..) => "cancel",
            Op::Reload(..) => "reload",
        }
    }
}

/// Draws the settings of a pool.
pub fn config(d: &mut dyn Dice, mixture: Mixture) -> Config {
    match mixture {
        Mixture::Plain => plain(d),
        Mixture::Crowd => crowd(d),
    }
}

/// Few ranks, and classes that wait for them; costs and reject thresholds as they come.
fn crowd(d: &mut dyn Dice) -> Config {
    let mut config = Config { mixture: Mixture::Crowd, ..Config::default() };
    config.weights.device = of(d, &[1.0, 1.0, 4.0]);
    config.track_blocks = d.roll(3) != 2;
    config.class_room_only = d.roll(6) == 5;
    config.lease = of(d, &[None, None, Some(Duration::from_millis(400))]);
    config.fleet = (1..=1 + u64::from(d.roll(3)))
        .map(|id| {
            let spec = WorkerSpec::new(id).ranks(0, of(d, &[1, 1, 2]));
            spec.max_num_batched_tokens(64).total_kv_blocks(16).taint(TAINTS[id as usize % 2])
        })
        .collect();
    let explicit = 2 + d.roll(3);
    let names = ["e", "f", "g", "h"];
    let mut classes = vec![class(d, "u", Some(("u".into(), "all".into())))];
    for name in &names[..explicit as usize] {
        let mut class = class(d, name, None);
        class.quantum = of(d, &[10, 10, 100, 16, 400, 1, 3]);
        class.thresholds.prefill_tokens = Some(of(d, &[0, 0, 0, 16]));
        class.limits = [None; 3];
        classes.push(class);
    }
    let buckets = vec![(0, "all".into())];
    config.policy = Some(Policy { default_family: "u".into(), buckets, classes });
    config
}

fn plain(d: &mut dyn Dice) -> Config {
    let mut weights = Weights::default();
    weights.device = of(d, &[1.0, 1.0, 0.0, 2.0, 0.5]);
    weights.host = of(d, &[0.75, 0.0, 1.0]);
    weights.disk = of(d, &[0.25, 0.0, 3.0]);
    weights.shared = of(d, &[0.0, 0.5, 1.5]);
    weights.prefill_scale = of(d, &[1.0, 1.0, 0.0, 2.5]);
    weights.request = of(d, &[0.0, 0.0, 1.0, 0.3]);
    weights.decay = of(d, &[0.0, 0.0, 1.0, 0.1]);
    weights.temperature = of(d, &[0.0, 0.0, 0.0, 0.5, 5.0]);
    Config {
        block_size: of(d, &[16, 16, 1, 128, 3]),
        track_prefill: d.roll(4) != 3,
        track_blocks: d.roll(4) != 3,
        weights,
        scope: of(d, &[Scope::Worker, Scope::Worker, Scope::Rank]),
        lease: of(d, &[Some(Duration::from_millis(200)), None]),
        custom: Custom {
            filter: rarely(d, |d| {
                of(
                    d,
                    &[Filter::EvenRanks, Filter::AtMostRequests(1), Filter::Nobody, Filter::Fails],
                )
            }),
            scorer: rarely(d, |d| {
                of(
                    d,
                    &[
                        Scorer::AddPerWorker(2.0),
                        Scorer::Requests,
                        Scorer::NotFinite(2),
                        Scorer::Fails,
                        Scorer::Panics,
                    ],
                )
            }),
            picker: rarely(d, |d| of(d, &[Picker::Dearest, Picker::Fails])),
        },
        policy: some(d, policy),
        class_room_only: d.roll(6) == 5,
        mixture: Mixture::Plain,
        fleet: (0..d.roll(4)).map(|i| valid(d, u64::from(i) + 1)).collect(),
    }
}

fn of<T: Clone>(d: &mut dyn Dice, choices: &[T]) -> T {
    choices[d.roll(choices.len() as u32) as usize].clone()
}

fn some<T>(d: &mut dyn Dice, draw: impl FnOnce(&mut dyn Dice) -> T) -> Option<T> {
    (d.roll(2) == 1).then(|| draw(d))
}

fn rarely<T>(d: &mut dyn Dice, draw: impl FnOnce(&mut dyn Dice) -> T) -> Option<T> {
    (d.roll(8) == 7).then(|| draw(d))
}

fn nth(d: &mut dyn Dice) -> Nth {
    Nth(d.roll(64))
}

fn id(d: &mut dyn Dice) -> RequestId {
    RequestId(u128::from(d.roll(6)))
}

/// A whole set; for a crowd mostly the one that it started with.
fn fleet(d: &mut dyn Dice, config: &Config) -> Vec<WorkerSpec> {
    if config.mixture == Mixture::Crowd && d.roll(4) != 3 {
        return config.fleet.clone();
    }
    (0..d.roll(5)).map(|_| spec(d)).collect()
}

/// Five workers are declared now and then; the sixth never is.
fn worker(d: &mut dyn Dice) -> WorkerId {
    WorkerId(u64::from(of(d, &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6u32])))
}

fn rank(d: &mut dyn Dice) -> Rank {
    Rank { worker: worker(d), dp_rank: d.roll(4) }
}

fn output(d: &mut dyn Dice) -> u32 {
    of(d, &[1, 0, 2, 5, 2, 1, 3, (1 << 31) - 4, u32::MAX])
}

/// Milliseconds from the clock on.
fn after(d: &mut dyn Dice) -> u64 {
    of(d, &[50, 1, 200, 0])
}

fn now(d: &mut dyn Dice) -> Time {
    match d.roll(8) {
        0..=3 => Time::ZERO,
        4 => STALE,
        5 => Time::from_nanos(1),
        6 => Time::from_millis(20),
        _ => Time::from_millis(120),
    }
}

const TAINTS: [&str; 3] = ["x", "y", "z"];
const ZONES: [&str; 2] = ["a", "b"];
const LORAS: [&str; 2] = ["l", "m"];

fn spec(d: &mut dyn Dice) -> WorkerSpec {
    let id = of(d, &[1, 2, 3, 4, 5u64]);
    let spec = valid(d, id);
    match d.roll(40) {
        37 => spec.ranks(0, 0),
        38 => spec.ranks(u32::MAX, 2),
        39 => spec.ranks(0, 4097),
        36 => spec.ranks(u32::MAX, 1),
        35 => spec.domain("rack", "c").domain("rack", "d"),
        _ => spec,
    }
}

fn valid(d: &mut dyn Dice, id: u64) -> WorkerSpec {
    let mut spec = WorkerSpec::new(id).ranks(of(d, &[0, 0, 0, 1]), of(d, &[1, 2, 1, 3, 4]));
    spec.total_kv_blocks = of(d, &[None, Some(8), Some(16), Some(100), Some(0), Some(12)]);
    spec.max_num_batched_tokens = of(d, &[None, Some(64), Some(256), Some(100), Some(0)]);
    for taint in TAINTS {
        if d.roll(3) == 1 {
            spec = spec.taint(taint);
        }
    }
    if d.roll(3) == 1 {
        spec = spec.domain("zone", of(d, &ZONES));
    }
    if d.roll(6) == 1 {
        spec = spec.domain("rack", of(d, &ZONES));
    }
    for lora in LORAS {
        if d.roll(4) == 1 {
            spec = spec.lora(lora);
        }
    }
    spec.stable_id = rarely(d, |_| format!("host-{id}").into());
    spec
}

fn thresholds(d: &mut dyn Dice) -> Thresholds {
    let mut t = Thresholds::NONE;
    t.decode_frac = some(d, decode_frac);
    t.prefill_frac = some(d, prefill_frac);
    t.prefill_tokens = some(d, |d| of(d, &[64, 0, 16, 150]));
    t
}

fn update(d: &mut dyn Dice) -> ThresholdsUpdate {
    fn change<T>(d: &mut dyn Dice, draw: impl FnOnce(&mut dyn Dice) -> T) -> Change<T> {
        match d.roll(4) {
            0 | 1 => Change::Keep,
            2 => Change::Set(draw(d)),
            _ => Change::Unset,
        }
    }
    ThresholdsUpdate {
        decode_frac: change(d, decode_frac),
        prefill_frac: change(d, prefill_frac),
        prefill_tokens: change(d, |d| of(d, &[64, 0, 16, 150])),
    }
}

fn decode_frac(d: &mut dyn Dice) -> f64 {
    of(d, &[0.5, 0.0, 0.29, 0.75, 1.0, 0.5, 0.25, 0.9, 1.01, -0.1, f64::NAN])
}

fn prefill_frac(d: &mut dyn Dice) -> f64 {
    of(d, &[1.0, 0.0, 0.29, 0.5, 2.0, 1.5, 0.9, 0.5, -0.1, f64::INFINITY])
}

/// Two families over one or two buckets, and some explicit classes.
fn policy(d: &mut dyn Dice) -> Policy {
    let buckets: Vec<(u64, vacancy::Name)> = match d.roll(3) {
        2 => vec![(0, "small".into()), (of(d, &[17, 64, 1]), "large".into())],
        _ => vec![(0, "all".into())],
    };
    let mut classes = Vec::new();
    for i in 0..d.roll(3) {
        classes.push(class(d, ["e", "f"][i as usize], None));
    }
    for family in &["u", "v"][..1 + d.roll(2) as usize] {
        for (_, bucket) in &buckets {
            let cell = ((*family).into(), bucket.clone());
            classes.push(class(d, &format!("{family}_{bucket}"), Some(cell)));
        }
    }
    Policy { default_family: "u".into(), buckets, classes }
}

fn class(d: &mut dyn Dice, name: &str, cell: Option<(vacancy::Name, vacancy::Name)>) -> Class {
    let mut class = Class::new(name, of(d, &[16, 10, 1, 64, 400, 1_000_000]));
    class.cell = cell;
    class.order = of(d, &[Order::Fcfs, Order::Fcfs, Order::Wspt, Order::Edf]);
    class.thresholds.prefill_tokens = (d.roll(3) != 2).then(|| of(d, &[0, 0, 16, 64]));
    class.thresholds.prefill_frac = (d.roll(4) == 3).then(|| of(d, &[0.5, 0.0, 1.0]));
    class.thresholds.decode_frac = (d.roll(4) == 3).then(|| of(d, &[0.5, 0.0, 0.29]));
    if class.thresholds != Thresholds::NONE && d.roll(4) == 3 {
        class.busy_worker_ratio = Some(of(d, &[0.5, 0.3, 0.67, 1.0]));
    }
    for limit in &mut class.limits {
        *limit = (d.roll(8) == 7).then(|| of(d, &[1, 2, 40, 0]));
    }
    class.max_wait = (d.roll(6) == 5).then(|| Duration::from_millis(of(d, &[150, 40, 20])));
    class
}

/// A request that may wait.
fn waiting(d: &mut dyn Dice, config: &Config) -> Request {
    if config.mixture == Mixture::Crowd && d.roll(8) != 7 {
        return one_of_a_crowd(d);
    }
    let mut r = request(d, config);
    if d.roll(2) == 1 {
        r = r.class(of(d, &["v", "e", "u", "f", "w", "u_all"]));
        r.strict_class = d.roll(8) == 7;
    }
    r.strict_priority = of(d, &[0, 0, 0, 0, 1, -1, i64::MAX, i64::MIN]);
    r.priority_jump = of(d, &[0.0, 0.0, 0.0, 0.05, 3.0, 1000.0, -1.0, f64::NAN]);
    if r.due.is_none() && d.roll(6) == 5 {
        r.due = Some(Time::from_millis(of(d, &[150, 40, 300])));
    }
    r.do_not_queue = d.roll(12) == 11;
    r
}

/// A plain request of some class, now and then with a wish of its own.
fn one_of_a_crowd(d: &mut dyn Dice) -> Request {
    let mut r = Request::new(of(d, &[3, 3, 10, 16, 40, 100, 1, 0]));
    r = r.class(of(d, &["e", "f", "g", "h", "u"]));
    r.now = of(d, &[Time::ZERO, Time::ZERO, Time::from_millis(1), Time::from_millis(5)]);
    r.strict_priority = of(d, &[0, 0, 0, 0, 0, 0, 1, -1]);
    r.priority_jump = of(d, &[0.0, 0.0, 0.0, 0.0, 0.001, 2.0]);
    if d.roll(8) == 7 {
        r.due = Some(Time::from_millis(of(d, &[10, 3, 50])));
    }
    let near = |d: &mut dyn Dice| of(d, &[1, 1, 2, 3u64]);
    let mut c = Constraints::new();
    match d.roll(10) {
        5 => c = c.pin(Target { worker: WorkerId(near(d)), dp_rank: some(d, |d| d.roll(2)) }),
        6 => c = c.allow([near(d)]),
        7 => c = c.deny([near(d)]),
        8 => c = c.taint(of(d, &TAINTS)),
        9 => c = c.affinity(Target::worker(near(d))),
        _ => {}
    }
    if c != Constraints::new() {
        r = r.constraints(c);
    }
    if d.roll(3) == 2 {
        r = r.overlaps([Overlap::device(Rank::new(near(d), 0), of(d, &[1.0, 4.0, 16.0]))]);
    }
    r
}

/// A chain whose hashes stand for the whole prefix up to them: two blocks that all prompts share,
/// then those of one of three conversations.
fn chain(conversation: u64, blocks: u64) -> Prompt {
    let hash = |i: u64| if i < 2 { i + 1 } else { 1000 * (conversation + 1) + i };
    Prompt::new((0..blocks).map(hash).collect::<Vec<_>>()).expect("no hash twice")
}

fn request(d: &mut dyn Dice, config: &Config) -> Request {
    let size = u64::from(config.block_size);
    let isl = match d.roll(40) {
        0..=31 => u64::from(d.roll(8)) * size + of(d, &[0, 1, size - 1]),
        32..=35 => 0,
        36 => u64::from(u32::MAX),
        37 => 1 << 32,
        38 => 1 << 31,
        _ => 40 * size,
    };
    let mut r = Request::new(isl).at(now(d));
    if d.roll(3) != 0 {
        let whole = isl.div_ceil(size).min(64);
        let blocks = match d.roll(20) {
            0..=13 => whole,
            14..=17 => whole / 2,
            18 => 0,
            _ => whole + 1,
        };
        r = r.prompt(chain(u64::from(d.roll(3)), blocks));
    }
    if d.roll(2) == 1 {
        r = r.overlaps((0..d.roll(4)).map(|_| overlap(d)).collect::<Vec<_>>());
    }
    if d.roll(6) == 1 {
        let hit = |d: &mut dyn Dice| {
            let from = d.roll(6);
            from..from + d.roll(4)
        };
        r = r.shared((0..d.roll(3)).map(|_| hit(d)).collect::<Vec<_>>());
    }
    if d.roll(3) == 1 {
        r = r.constraints(constraints(d));
    }
    if d.roll(8) == 1 {
        r = r.lora(of(d, &["l", "m", "n"]));
    }
    if d.roll(8) == 1 {
        r = r.overrides(overrides(d));
    }
    if d.roll(10) == 1 {
        r = r.due(Time::from_millis(after(d)));
    }
    if d.roll(20) == 1 {
        r = r.upstream();
    }
    if d.roll(4) == 1 {
        r = r.seed(u64::from(d.roll(1000)));
    }
    r
}

fn overlap(d: &mut dyn Dice) -> Overlap {
    let device = of(d, &[1.0, 0.0, 2.0, 3.0, 0.5, 4.25, 2.0, 100.0]);
    let host = of(d, &[0.0, 0.0, 1.0, 2.5]);
    let disk = of(d, &[0.0, 0.0, 1.0, 7.0]);
    let mut o = Overlap { rank: rank(d), device, host, disk };
    match d.roll(200) {
        57 => o.device = f64::NAN,
        58 => o.host = -1.0,
        59 => o.disk = f64::INFINITY,
        _ => {}
    }
    o
}

fn overrides(d: &mut dyn Dice) -> Overrides {
    let mut o = Overrides::default();
    o.device = some(d, |d| of(d, &[0.0, 2.0, 1.0, 0.5]));
    o.prefill_scale = some(d, |d| of(d, &[0.0, 2.0, 0.5, 1.0]));
    o.shared = some(d, |d| of(d, &[0.5, 0.0, 1.0, 2.0]));
    o.temperature = some(d, |d| of(d, &[0.0, 0.0, 1.0, 0.2]));
    o.track_prefill = some(d, |d| d.roll(2) == 1);
    match d.roll(40) {
        36 => o.device = Some(f64::NAN),
        37 => o.prefill_scale = Some(-1.0),
        38 => o.shared = Some(f64::INFINITY),
        39 => o.temperature = Some(-0.5),
        _ => {}
    }
    o
}

fn target(d: &mut dyn Dice) -> Target {
    Target { worker: worker(d), dp_rank: some(d, |d| d.roll(4)) }
}

fn constraints(d: &mut dyn Dice) -> Constraints {
    let mut c = Constraints::new();
    c.pin = (d.roll(3) == 1).then(|| target(d));
    c.affinity = (d.roll(4) == 1).then(|| target(d));
    c.allow = (d.roll(5) == 1).then(|| (0..d.roll(5)).map(|_| worker(d)).collect());
    if d.roll(5) == 1 {
        c.deny = (0..d.roll(3)).map(|_| worker(d)).collect();
    }
    if d.roll(6) == 1 {
        c = c.taint(of(d, &TAINTS));
    }
    if d.roll(3) == 1 {
        // One factor a taint: it is a map.
        for taint in TAINTS {
            if d.roll(2) == 1 {
                c = c.prefer(taint, of(d, &[0.5, 1.0, 0.1, 0.25, 0.9]));
            }
        }
    }
    match d.roll(40) {
        38 => c = c.prefer("w", 1.5),
        39 => c = c.prefer("w", 0.0),
        _ => {}
    }
    if d.roll(6) == 1 {
        c = c.domain("zone", of(d, &ZONES));
    }
    if d.roll(12) == 1 {
        c = c.domain("rack", of(d, &ZONES));
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn twenty_kinds_and_more_are_drawn_each_at_least_once_in_a_hundred() {
        for mixture in [Mixture::Plain, Mixture::Crowd] {
            let config = Config { mixture, ..Config::default() };
            let mut dice = Seeded(7);
            let mut seen = BTreeMap::<_, u32>::new();
            for _ in 0..20_000 {
                *seen.entry(Op::draw(&mut dice, &config).kind()).or_default() += 1;
            }
            assert!(seen.len() >= 20);
            let share = |shares: [u32; 2]| shares[mixture as usize];
            let total: u32 = KINDS.iter().map(|k| share(k.1)).sum();
            assert_eq!(total, 1000);
            for (name, shares, _) in KINDS {
                let share = share(shares);
                assert!(share >= 10, "{name}");
                let expected = f64::from(share) * 20.0;
                let off = (f64::from(seen[name]) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{name}: {} of 20,000", seen[name]);
            }
        }
    }

    #[test]
    fn a_spent_tape_gives_the_plainest_operation() {
        let op = Op::draw(&mut Tape(std::iter::empty()), &Config::default());
        assert_eq!(op, Op::Export);
    }

    #[test]
    fn times_count_from_the_clock_and_a_stale_one_lies_before_it() {
        let clock = Time::from_millis(500);
        let op = Op::Expire(Time::from_millis(20)).anchored(clock);
        assert_eq!(op, Op::Expire(Time::from_millis(520)));
        assert_eq!(Op::Expire(STALE).anchored(clock), Op::Expire(Time::ZERO));
    }
}
