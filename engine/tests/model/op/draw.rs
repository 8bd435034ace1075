//! The parts of an operation, drawn one by one.

use super::super::Config;
use super::super::queue::{Class, Order, Policy};
use super::{Dice, Leg, LegRequest, Mixture, Nth, STALE, pair};
use std::sync::Arc;
use std::time::Duration;
use vacancy::{
    Change, Constraints, LoadChange, LoadEvent, Overlap, Overrides, Prompt, Rank, Request,
    RequestId, RouterId, Signals, Target, Thresholds, ThresholdsUpdate, Time, WorkerId, WorkerSpec,
};

pub(super) fn of<T: Clone>(d: &mut dyn Dice, choices: &[T]) -> T {
    choices[d.roll(choices.len() as u32) as usize].clone()
}

pub(super) fn some<T>(d: &mut dyn Dice, draw: impl FnOnce(&mut dyn Dice) -> T) -> Option<T> {
    (d.roll(2) == 1).then(|| draw(d))
}

pub(super) fn rarely<T>(d: &mut dyn Dice, draw: impl FnOnce(&mut dyn Dice) -> T) -> Option<T> {
    (d.roll(8) == 7).then(|| draw(d))
}

pub(super) fn nth(d: &mut dyn Dice) -> Nth {
    Nth(d.roll(64))
}

pub(super) fn id(d: &mut dyn Dice) -> RequestId {
    RequestId(u128::from(d.roll(6)))
}

/// A whole set; for a crowd mostly the one that it started with.
pub(super) fn fleet(d: &mut dyn Dice, config: &Config) -> Vec<WorkerSpec> {
    if config.mixture == Mixture::Crowd && d.roll(4) != 3 {
        return config.fleet.clone();
    }
    (0..d.roll(5)).map(|_| spec(d)).collect()
}

/// Five workers are declared now and then; the sixth never is.
pub(super) fn worker(d: &mut dyn Dice) -> WorkerId {
    WorkerId(u64::from(of(d, &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6u32])))
}

pub(super) fn rank(d: &mut dyn Dice) -> Rank {
    Rank { worker: worker(d), dp_rank: d.roll(4) }
}

pub(super) fn output(d: &mut dyn Dice) -> u32 {
    of(d, &[1, 0, 2, 5, 2, 1, 3, (1 << 31) - 4, u32::MAX])
}

/// Milliseconds from the clock on.
pub(super) fn after(d: &mut dyn Dice) -> u64 {
    of(d, &[50, 1, 200, 0])
}

pub(super) fn now(d: &mut dyn Dice) -> Time {
    match d.roll(8) {
        0..=3 => Time::ZERO,
        4 => STALE,
        5 => Time::from_nanos(1),
        6 => Time::from_millis(20),
        _ => Time::from_millis(120),
    }
}

pub(super) const TAINTS: [&str; 3] = ["x", "y", "z"];
pub(super) const ZONES: [&str; 2] = ["a", "b"];
pub(super) const LORAS: [&str; 2] = ["l", "m"];

pub(super) fn spec(d: &mut dyn Dice) -> WorkerSpec {
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

pub(super) fn valid(d: &mut dyn Dice, id: u64) -> WorkerSpec {
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

pub(super) fn thresholds(d: &mut dyn Dice) -> Thresholds {
    let mut t = Thresholds::NONE;
    t.decode_frac = some(d, decode_frac);
    t.prefill_frac = some(d, prefill_frac);
    t.prefill_tokens = some(d, |d| of(d, &[64, 0, 16, 150]));
    t
}

pub(super) fn update(d: &mut dyn Dice) -> ThresholdsUpdate {
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

pub(super) fn decode_frac(d: &mut dyn Dice) -> f64 {
    of(d, &[0.5, 0.0, 0.29, 0.75, 1.0, 0.5, 0.25, 0.9, 1.01, -0.1, f64::NAN])
}

pub(super) fn prefill_frac(d: &mut dyn Dice) -> f64 {
    of(d, &[1.0, 0.0, 0.29, 0.5, 2.0, 1.5, 0.9, 0.5, -0.1, f64::INFINITY])
}

/// Two families over one or two buckets, and some explicit classes.
pub(super) fn policy(d: &mut dyn Dice) -> Policy {
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

pub(super) fn class(
    d: &mut dyn Dice,
    name: &str,
    cell: Option<(vacancy::Name, vacancy::Name)>,
) -> Class {
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
pub(super) fn waiting(d: &mut dyn Dice, config: &Config) -> Request {
    if config.mixture != Mixture::Plain && d.roll(8) != 7 {
        return one_of_a_crowd(d, config);
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
pub(super) fn one_of_a_crowd(d: &mut dyn Dice, config: &Config) -> Request {
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
    if config.mixture == Mixture::Pair {
        r = over_two_hops(d, config, r);
    }
    r
}

/// Now and then a shared prompt, an adapter, or wishes for the decode hop.
fn over_two_hops(d: &mut dyn Dice, config: &Config, mut r: Request) -> Request {
    if d.roll(2) == 1 {
        let whole = r.isl.div_ceil(u64::from(config.block_size));
        r = r.prompt(chain(u64::from(d.roll(3)), whole.min(64)));
    }
    if d.roll(8) == 7 {
        r = r.lora(of(d, &["l", "m", "n"]));
    }
    if d.roll(6) == 5 {
        r = r.decode(constraints(d));
    }
    r
}

/// A chain whose hashes stand for the whole prefix up to them: two blocks that all prompts share,
/// then those of one of three conversations.
pub(in super::super) fn chain(conversation: u64, blocks: u64) -> Prompt {
    let hash = |i: u64| if i < 2 { i + 1 } else { 1000 * (conversation + 1) + i };
    Prompt::new((0..blocks).map(hash).collect::<Vec<_>>()).expect("no hash twice")
}

pub(super) fn request(d: &mut dyn Dice, config: &Config) -> Request {
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

pub(super) fn overlap(d: &mut dyn Dice) -> Overlap {
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

pub(super) fn overrides(d: &mut dyn Dice) -> Overrides {
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

pub(super) fn target(d: &mut dyn Dice) -> Target {
    Target { worker: worker(d), dp_rank: some(d, |d| d.roll(4)) }
}

pub(super) fn constraints(d: &mut dyn Dice) -> Constraints {
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

/// What a worker says of one of its ranks.
pub(super) fn signals(d: &mut dyn Dice) -> Signals {
    let values = [100, 0, 8, 4, 5, 50];
    Signals {
        kv_used_blocks: (d.roll(3) != 2).then(|| of(d, &values)),
        active_decode_blocks: (d.roll(3) == 2).then(|| of(d, &values)),
    }
}

/// What another router tells: of few bookings, in no order.
pub(super) fn event(d: &mut dyn Dice) -> LoadEvent {
    let router = RouterId(of(d, &[1, 1, 1, 2, 2, 0]));
    let (booking, seq) = (u128::from(d.roll(5)), 1 + u64::from(d.roll(40)));
    let change = match d.roll(10) {
        0..=3 => {
            let rank = rank(d);
            let prefill_tokens = of(d, &[16, 0, 64, 100, 3, 16, 64, 16, u32::MAX]);
            let kv_blocks = of(d, &[1, 0, 4, 8, 2, 30, 2, 3, u32::MAX]);
            LoadChange::Add { rank, prefill_tokens, kv_blocks }
        }
        4 | 5 => LoadChange::Free,
        6 => LoadChange::PrefillCompleted,
        7 | 8 => LoadChange::Move { rank: rank(d) },
        _ => LoadChange::Output { blocks: output(d) },
    };
    LoadEvent::new(router, seq, booking, change)
}

/// A decode leg: mostly of the very request that its room was set aside for.
pub(super) fn leg(d: &mut dyn Dice, config: &Config, id: Option<RequestId>) -> Leg {
    let request = match d.roll(8) {
        0..=3 => LegRequest::Same(None),
        4 => LegRequest::Hashed(u64::from(d.roll(3))),
        5 | 6 => LegRequest::Same(Some(Arc::new(constraints(d)))),
        _ => LegRequest::Other(Box::new(request(d, pair(config)))),
    };
    Leg { id, afresh: false, request }
}
