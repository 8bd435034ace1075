//! The operations that a pool is driven with, and how one is drawn.
//!
//! An operation is drawn from a [`Dice`], so that whoever has a source of numbers (a property test
//! that shrinks, a fuzzer's bytes) gets the same mixture. A roll of 0 is always the plainest choice:
//! numbers that shrink make operations that are simpler.

mod draw;
mod settings;

use super::Config;
use super::queue::Policy;
pub(super) use draw::chain;
use draw::*;
pub use settings::config;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use vacancy::{
    Constraints, LoadEvent, Rank, Request, RequestId, RouterId, Signals, Thresholds,
    ThresholdsUpdate, Time, WorkerId, WorkerSpec,
};

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
    /// `observe`.
    Observe(Rank, Signals, Time),
    /// `apply_peer`.
    Peer(LoadEvent, Time),
    /// `peer_gone`.
    PeerGone(RouterId),
    /// The same call on the paired pool.
    Pair(Box<Op>),
    /// The decode leg of the request that this hold was set aside for.
    Leg(Nth, Leg),
    /// A hold dropped.
    DropHold(Nth),
    /// `take_hold`.
    TakeHold(RequestId),
    /// `return_hold`.
    ReturnHold(RequestId, Nth),
}

/// A decode leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    /// The id that it is booked under.
    pub id: Option<RequestId>,
    /// Whether the hold's rank is one among the others.
    pub afresh: bool,
    /// What is booked.
    pub request: LegRequest,
}

/// What a decode leg asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum LegRequest {
    /// What the room was set aside for, with these constraints.
    Same(Option<Arc<Constraints>>),
    /// As much, with the hashes of this conversation by blocks of the pair's size.
    Hashed(u64),
    /// Something else.
    Other(Box<Request>),
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
    /// Two pools, of which the first has the second as its pair.
    Pair,
}

/// How to draw one kind of operation.
pub type Draw = fn(&mut dyn Dice, &Config) -> Op;

/// Every kind of operation on one pool, its share in each mixture, and how it is drawn. A tape of
/// zeros gives the first.
pub const KINDS: [(&str, [u32; 3], Draw); 32] = [
    ("export", [10, 10, 0], |_, _| Op::Export),
    ("select", [40, 10, 12], |d, c| Op::Select(request(d, c))),
    ("book", [60, 20, 12], |d, c| Op::Book(request(d, c))),
    ("book_as", [50, 10, 0], |d, c| Op::BookAs(id(d), request(d, c))),
    ("admit", [160, 260, 160], |d, c| Op::Admit(waiting(d, c))),
    ("admit_as", [110, 100, 70], |d, c| Op::AdmitAs(id(d), waiting(d, c))),
    ("cancel", [35, 40, 20], |d, _| Op::Cancel(nth(d))),
    ("reload", [12, 10, 12], |d, _| Op::Reload(policy(d))),
    ("import_as", [30, 10, 0], |d, c| Op::ImportAs(id(d), rank(d), request(d, c))),
    ("complete", [20, 30, 20], |d, _| Op::Complete(nth(d))),
    ("output", [20, 10, 0], |d, _| Op::Output(nth(d), output(d))),
    ("move", [20, 10, 12], |d, _| Op::Move(nth(d), rank(d))),
    ("free", [45, 120, 50], |d, _| Op::Free(nth(d))),
    ("drop", [25, 50, 15], |d, _| Op::Drop(nth(d))),
    ("complete_id", [20, 20, 15], |d, _| Op::CompleteId(id(d))),
    ("output_id", [20, 10, 0], |d, _| Op::OutputId(id(d), output(d))),
    ("move_id", [15, 10, 12], |d, _| Op::MoveId(id(d), rank(d))),
    ("free_id", [40, 80, 40], |d, _| Op::FreeId(id(d))),
    ("free_attempt", [15, 10, 0], |d, _| Op::FreeAttempt(id(d), d.roll(3))),
    ("upsert", [40, 20, 15], |d, _| Op::Upsert(spec(d))),
    ("remove", [12, 10, 12], |d, _| Op::Remove(worker(d))),
    ("reconcile", [10, 10, 0], |d, c| Op::Reconcile(fleet(d, c))),
    ("available", [25, 20, 15], |d, _| Op::Available(worker(d), d.roll(3) != 1)),
    ("overloaded", [20, 15, 15], |d, _| {
        Op::Overloaded(worker(d), d.roll(2) == 1, some(d, |d| Time::from_millis(after(d))))
    }),
    ("update_thresholds", [10, 10, 12], |d, _| Op::UpdateThresholds(update(d))),
    ("set_thresholds", [20, 10, 12], |d, _| Op::SetThresholds(thresholds(d))),
    ("clear_thresholds", [11, 10, 12], |_, _| Op::ClearThresholds),
    ("expire", [25, 15, 25], |d, _| Op::Expire(now(d))),
    ("observe", [30, 20, 20], |d, _| Op::Observe(rank(d), signals(d), now(d))),
    ("peer", [30, 10, 20], |d, _| Op::Peer(event(d), now(d))),
    ("peer_gone", [10, 10, 0], |d, _| Op::PeerGone(RouterId(u64::from(d.roll(3))))),
    ("close", [10, 10, 12], |_, _| Op::Close),
];

/// Every kind of operation on a pair and on what is set aside there, with its share.
pub const PAIR_KINDS: [(&str, u32, Draw); 26] = [
    ("pair book", 25, |d, c| at_pair(Op::Book(request(d, pair(c))))),
    ("pair book_as", 20, |d, c| at_pair(Op::BookAs(id(d), request(d, pair(c))))),
    ("pair admit", 30, |d, c| at_pair(Op::Admit(waiting(d, pair(c))))),
    ("pair admit_as", 15, |d, c| at_pair(Op::AdmitAs(id(d), waiting(d, pair(c))))),
    ("pair cancel", 12, |d, _| at_pair(Op::Cancel(nth(d)))),
    ("pair output", 15, |d, _| at_pair(Op::Output(nth(d), output(d)))),
    ("pair output_id", 12, |d, _| at_pair(Op::OutputId(id(d), output(d)))),
    ("pair move", 12, |d, _| at_pair(Op::Move(nth(d), rank(d)))),
    ("pair free", 50, |d, _| at_pair(Op::Free(nth(d)))),
    ("pair free_id", 30, |d, _| at_pair(Op::FreeId(id(d)))),
    ("pair upsert", 15, |d, _| at_pair(Op::Upsert(spec(d)))),
    ("pair remove", 12, |d, _| at_pair(Op::Remove(worker(d)))),
    ("pair available", 15, |d, _| at_pair(Op::Available(worker(d), d.roll(3) != 1))),
    ("pair overloaded", 12, |d, _| {
        let until = some(d, |d| Time::from_millis(after(d)));
        at_pair(Op::Overloaded(worker(d), d.roll(2) == 1, until))
    }),
    ("pair set_thresholds", 12, |d, _| at_pair(Op::SetThresholds(thresholds(d)))),
    ("pair clear_thresholds", 12, |_, _| at_pair(Op::ClearThresholds)),
    ("pair observe", 20, |d, _| at_pair(Op::Observe(rank(d), signals(d), now(d)))),
    ("pair peer", 25, |d, _| at_pair(Op::Peer(event(d), now(d)))),
    ("pair peer_gone", 12, |d, _| at_pair(Op::PeerGone(RouterId(u64::from(d.roll(3)))))),
    ("pair close", 12, |_, _| at_pair(Op::Close)),
    ("leg", 60, |d, c| Op::Leg(nth(d), leg(d, c, None))),
    ("leg_afresh", 15, |d, c| Op::Leg(nth(d), Leg { afresh: true, ..leg(d, c, None) })),
    ("leg_as", 30, |d, c| {
        let id = id(d);
        Op::Leg(nth(d), leg(d, c, Some(id)))
    }),
    ("drop_hold", 20, |d, _| Op::DropHold(nth(d))),
    ("take_hold", 30, |d, _| Op::TakeHold(id(d))),
    ("return_hold", 12, |d, _| Op::ReturnHold(id(d), nth(d))),
];

fn at_pair(op: Op) -> Op {
    Op::Pair(Box::new(op))
}

/// The settings of the pair; without one, the pool's own.
fn pair(config: &Config) -> &Config {
    config.pair.as_deref().unwrap_or(config)
}

/// The kinds of a mixture with their shares, and how each is drawn.
pub fn kinds(mixture: Mixture) -> impl Iterator<Item = (&'static str, u32, Draw)> {
    let own =
        KINDS.iter().map(move |(name, shares, draw)| (*name, shares[mixture as usize], *draw));
    let paired = PAIR_KINDS.iter().filter(move |_| mixture == Mixture::Pair).copied();
    own.filter(|(_, share, _)| *share > 0).chain(paired)
}

/// A relative instant that stands for one before everything seen.
const STALE: Time = Time::from_nanos(u64::MAX - 1);

impl Op {
    /// Draws an operation for a pool with these settings. Its times are relative to the clock.
    pub fn draw(dice: &mut dyn Dice, config: &Config) -> Op {
        let total = kinds(config.mixture).map(|k| k.1).sum();
        let mut at = dice.roll(total);
        for (_, share, draw) in kinds(config.mixture) {
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
            Op::Expire(now) | Op::Observe(_, _, now) | Op::Peer(_, now) => *now = anchor(*now),
            Op::Pair(op) => **op = Op::clone(op).anchored(clock),
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
            Op::Leg(_, Leg { request: LegRequest::Other(r), .. }) => {
                r.now = anchor(r.now);
                r.due = r.due.map(anchor);
            }
            _ => {}
        }
        self
    }

    /// The instant that it brings along.
    pub fn now(&self) -> Option<Time> {
        match self {
            Op::Select(r)
            | Op::Book(r)
            | Op::BookAs(_, r)
            | Op::Admit(r)
            | Op::AdmitAs(_, r)
            | Op::ImportAs(_, _, r) => Some(r.now),
            Op::Leg(_, Leg { request: LegRequest::Other(r), .. }) => Some(r.now),
            Op::Observe(_, _, now) | Op::Peer(_, now) => Some(*now),
            Op::Pair(op) => op.now(),
            _ => None,
        }
    }

    /// The name of its kind, as [`kinds`] has it.
    pub fn kind(&self) -> Cow<'static, str> {
        let name = match self {
            Op::Pair(op) => return format!("pair {}", op.kind()).into(),
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
            Op::Observe(..) => "observe",
            Op::Peer(..) => "peer",
            Op::PeerGone(..) => "peer_gone",
            Op::Leg(_, Leg { id: Some(_), .. }) => "leg_as",
            Op::Leg(_, Leg { afresh: true, .. }) => "leg_afresh",
            Op::Leg(..) => "leg",
            Op::DropHold(..) => "drop_hold",
            Op::TakeHold(..) => "take_hold",
            Op::ReturnHold(..) => "return_hold",
        };
        name.into()
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn twenty_kinds_and_more_are_drawn_each_at_least_once_in_a_hundred() {
        for mixture in [Mixture::Plain, Mixture::Crowd, Mixture::Pair] {
            let config = config(&mut Seeded(1), mixture);
            let mut dice = Seeded(7);
            let mut seen = BTreeMap::<_, u32>::new();
            for _ in 0..100_000 {
                *seen.entry(Op::draw(&mut dice, &config).kind()).or_default() += 1;
            }
            let total: u32 = kinds(mixture).map(|k| k.1).sum();
            assert!(kinds(mixture).count() >= 20 && seen.len() == kinds(mixture).count());
            for (name, share, _) in kinds(mixture) {
                let expected = 1e5 * f64::from(share) / f64::from(total);
                assert!(seen[name] >= 1_000 || expected < 1_050.0, "{name}: {}", seen[name]);
                assert!(share * 100 >= total, "{name}: {share} of {total}");
                let off = (f64::from(seen[name]) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{name}: {} of 100,000", seen[name]);
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
