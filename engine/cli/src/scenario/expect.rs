//! `expect`: what a step should have come to, and where it did not.
//!
//! Only the keys that are named are checked. Counts must be equal, costs agree to 1e-6 relative.
#![forbid(unsafe_code)]

use super::file::Op;
use super::outcome::{At, ClassStats, Outcome, State, Stats, StepOutcome};
use super::yaml::{AnyOf, Int, Pairs, Real, given};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use std::fmt;

/// Relative error within which two costs are the same.
const COST_TOLERANCE: f64 = 1e-6;

/// The names of all errors a step can meet.
pub const ERRORS: &[&str] = &[
    "NoEndpoints",
    "AllEligibleWorkersOverloaded",
    "PinnedWorkerOverloaded",
    "PinnedWorkerNotAllowed",
    "AllEligibleWorkersFiltered",
    "PolicyFailed",
    "QueueRejected",
    "WouldQueue",
    "DeadlineExceeded",
    "DuplicateRequest",
    "UnknownRequest",
    "UnknownClass",
    "InvalidRequest",
    "RowOverflow",
    "InvalidConfig",
    "Closed",
];

/// Everything that can be expected, of a step, of one of its `each`, or of an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The request's name (in `each` and `events`).
    #[serde(rename = "as")]
    pub name: Option<String>,
    /// The error; `null` or `false`: none.
    #[serde(default, deserialize_with = "given")]
    pub error: Option<Option<WantError>>,
    /// How far the request has come.
    pub state: Option<State>,
    /// The worker, or a list of which any will do.
    pub worker: Option<AnyOf<u64>>,
    /// The rank, or a list of which any will do.
    pub rank: Option<AnyOf<u32>>,
    /// Prompt tokens that the rank has cached.
    pub cached_tokens: Option<Int<u64>>,
    /// The cost, in blocks.
    pub cost: Option<Real>,
    /// The class of a request; what waits by class in `stats`.
    pub class: Option<WantClass>,
    /// Room set aside; `null`: none.
    #[serde(default, deserialize_with = "given")]
    pub hold: Option<Option<WantHold>>,
    /// Names of the bookings that lost their rank, in any order.
    pub lost: Option<Vec<String>>,
    /// See `load`.
    pub prefill_tokens: Option<Int<u64>>,
    /// See `load`.
    pub kv_blocks: Option<Int<u64>>,
    /// See `load`.
    pub requests: Option<Int<u64>>,
    /// See `load`.
    pub held_blocks: Option<Int<u64>>,
    /// Whether the rank is full in `load`; how many are in `stats`.
    pub full: Option<WantFull>,
    /// See `stats`.
    pub ranks: Option<Int<u64>>,
    /// See `stats`.
    pub waiting: Option<Int<u64>>,
    /// See `stats`.
    pub epoch: Option<Int<u64>>,
    /// See `stats`.
    pub selected: Option<Int<u64>>,
    /// See `stats`.
    pub rejected: Option<Int<u64>>,
    /// See `stats`.
    pub admitted: Option<Int<u64>>,
    /// See `stats`.
    pub expired: Option<Int<u64>>,
    /// See `stats`.
    pub cancelled: Option<Int<u64>>,
    /// After `times`: how many each eligible worker got.
    pub spread: Option<Spread>,
    /// After `times`: each request, in order.
    pub each: Option<Vec<Expect>>,
    /// What the step made happen to others: exactly these, in this order.
    pub events: Option<Vec<Expect>>,
}

/// The error that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantError {
    /// None.
    None,
    /// Any.
    Any,
    /// This one.
    Named(String),
}

/// `class`: a name, or what waits in classes.
#[derive(Clone, Debug)]
pub enum WantClass {
    /// The class of the request.
    Name(String),
    /// Of each class that is named.
    Stats(Pairs<WantStats>),
}

/// What waits in one class.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantStats {
    /// Requests.
    pub waiting: Option<Int<u64>>,
    /// Their prompt tokens.
    pub tokens: Option<Int<u64>>,
}

/// Where a hold should be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantHold {
    /// The worker.
    pub worker: Option<AnyOf<u64>>,
    /// The rank.
    pub rank: Option<AnyOf<u32>>,
}

/// `full`: of a rank, or how many ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantFull {
    /// Whether the rank is.
    Is(bool),
    /// How many are.
    Count(u64),
}

/// How many of the requests of a step each eligible worker may have got.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// At least.
    pub min: Option<Int<u64>>,
    /// At most.
    pub max: Option<Int<u64>>,
}

impl<'de> Deserialize<'de> for WantError {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = WantError;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an error, or true for any")
            }
            fn visit_bool<E>(self, any: bool) -> Result<WantError, E> {
                Ok(if any { WantError::Any } else { WantError::None })
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<WantError, E> {
                if ERRORS.contains(&name) {
                    return Ok(WantError::Named(name.to_owned()));
                }
                let known = ERRORS.join(", ");
                Err(E::custom(format_args!(
                    "there is no error `{name}`: use true or one of {known}"
                )))
            }
        }
        d.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for WantClass {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WantClass;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a class, or a map from classes to what waits in them")
            }
            fn visit_str<E>(self, name: &str) -> Result<WantClass, E> {
                Ok(WantClass::Name(name.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WantClass, A::Error> {
                Pairs::deserialize(MapAccessDeserializer::new(map)).map(WantClass::Stats)
            }
        }
        d.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for WantFull {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = WantFull;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false for a rank, a whole number for a pool")
            }
            fn visit_bool<E>(self, is: bool) -> Result<WantFull, E> {
                Ok(WantFull::Is(is))
            }
            fn visit_u64<E>(self, n: u64) -> Result<WantFull, E> {
                Ok(WantFull::Count(n))
            }
        }
        d.deserialize_any(V)
    }
}

/// What steps about one request return.
const REQUEST: &[&str] = &["state", "worker", "rank", "cached_tokens", "cost", "class", "hold"];
/// What `load` returns.
const LOAD: &[&str] = &["prefill_tokens", "kv_blocks", "requests", "held_blocks", "full"];
/// What `stats` returns.
const STATS: &[&str] = &[
    "ranks",
    "full",
    "waiting",
    "epoch",
    "selected",
    "rejected",
    "admitted",
    "expired",
    "cancelled",
    "class",
];

/// What the step returns besides `error` and `events`.
fn returned(op: &Op) -> Vec<&'static str> {
    let mut keys = vec!["error", "events"];
    match op {
        Op::Upsert(_) | Op::Remove(_) | Op::Reconcile(_) => keys.push("lost"),
        Op::Load(_) => keys.extend(LOAD),
        Op::Stats(_) => keys.extend(STATS),
        Op::Select(_) | Op::Book(_) | Op::Admit(_) => {
            keys.extend(REQUEST);
            if op.times().is_some() {
                keys.extend(["each", "spread"]);
            }
        }
        Op::Decode(_)
        | Op::PrefillCompleted(_)
        | Op::Free(_)
        | Op::Cancel(_)
        | Op::State(_)
        | Op::Output(_)
        | Op::Move(_) => keys.extend(REQUEST),
        Op::Available(_)
        | Op::Overloaded(_)
        | Op::Thresholds(_)
        | Op::Policy(_)
        | Op::Observe(_)
        | Op::Peer(_)
        | Op::Advance(_)
        | Op::Close(_) => {}
    }
    keys
}

impl Expect {
    /// Checks that every key named is one that `op` returns, in the form in which it does.
    ///
    /// # Errors
    /// A sentence that names the key and what could be expected instead.
    pub fn check(&self, op: &Op) -> Result<(), String> {
        let keys = returned(op);
        self.only(&keys).map_err(|key| {
            let returns = keys.join(", ");
            format!("`{}` returns no `{key}` to expect: it returns {returns}", op.key())
        })?;
        let of_stats = matches!(op, Op::Stats(_));
        match &self.full {
            Some(WantFull::Is(_)) if of_stats => {
                return Err("`full` of `stats` is a number of ranks".into());
            }
            Some(WantFull::Count(_)) if !of_stats => {
                return Err("`full` of `load` is true or false".into());
            }
            _ => {}
        }
        match &self.class {
            Some(WantClass::Name(_)) if of_stats => {
                return Err("`class` of `stats` is a map: {name: {waiting, tokens}}".into());
            }
            Some(WantClass::Stats(_)) if !of_stats => {
                return Err("`class` of a request is a name".into());
            }
            _ => {}
        }
        if let Some(each) = &self.each
            && Some(each.len() as u64) != op.times()
        {
            return Err(format!(
                "`each` has {} entries for {} requests",
                each.len(),
                op.times().unwrap_or(1),
            ));
        }
        let mut of_one = vec!["as", "error"];
        of_one.extend(REQUEST);
        for (list, inner) in [("each", &self.each), ("events", &self.events)] {
            for inner in inner.iter().flatten() {
                inner.only(&of_one).map_err(|key| {
                    format!("`{list}` has no `{key}`: it has {}", of_one.join(", "))
                })?;
                if matches!(inner.class, Some(WantClass::Stats(_))) {
                    return Err("`class` of a request is a name".into());
                }
            }
        }
        Ok(())
    }

    /// The first key that is named though it is not among `keys`.
    fn only(&self, keys: &[&str]) -> Result<(), &'static str> {
        let named = [
            ("as", self.name.is_some()),
            ("error", self.error.is_some()),
            ("state", self.state.is_some()),
            ("worker", self.worker.is_some()),
            ("rank", self.rank.is_some()),
            ("cached_tokens", self.cached_tokens.is_some()),
            ("cost", self.cost.is_some()),
            ("class", self.class.is_some()),
            ("hold", self.hold.is_some()),
            ("lost", self.lost.is_some()),
            ("prefill_tokens", self.prefill_tokens.is_some()),
            ("kv_blocks", self.kv_blocks.is_some()),
            ("requests", self.requests.is_some()),
            ("held_blocks", self.held_blocks.is_some()),
            ("full", self.full.is_some()),
            ("ranks", self.ranks.is_some()),
            ("waiting", self.waiting.is_some()),
            ("epoch", self.epoch.is_some()),
            ("selected", self.selected.is_some()),
            ("rejected", self.rejected.is_some()),
            ("admitted", self.admitted.is_some()),
            ("expired", self.expired.is_some()),
            ("cancelled", self.cancelled.is_some()),
            ("spread", self.spread.is_some()),
            ("each", self.each.is_some()),
            ("events", self.events.is_some()),
        ];
        match named.into_iter().find(|(key, is)| *is && !keys.contains(key)) {
            Some((key, _)) => Err(key),
            None => Ok(()),
        }
    }

    /// Whether nothing at all is named.
    fn is_empty(&self) -> bool {
        self.only(&[]).is_ok()
    }
}

/// Holds a step against what was expected of it, and marks it (and each of its requests) `ok` or
/// not. `got` counts, for `spread`, how many requests each eligible worker got. Says what did not
/// hold, one sentence each; none: all held.
pub fn judge(expect: Option<&Expect>, step: &mut StepOutcome, got: &[(u64, u64)]) -> Vec<String> {
    let expect = expect.filter(|e| !e.is_empty());
    let mut f = Failures::default();
    // A `state` step reports a refusal; it is not refused itself.
    let reports = step.op == "state" && step.one.state.is_some();
    let many = step.each.is_some();
    let ones = match &mut step.each {
        Some(each) => each.as_mut_slice(),
        None => std::slice::from_mut(&mut step.one),
    };
    for one in ones {
        let before = f.0.len();
        match expect {
            Some(expect) => {
                let label = one.name.clone().filter(|_| many);
                f.one(expect, one, label.as_deref());
            }
            None if !reports => f.fine(one),
            None => {}
        }
        one.ok = Some(f.0.len() == before);
    }
    if let Some(expect) = expect {
        f.whole(expect, step, got);
    }
    step.one.ok = Some(f.0.is_empty());
    f.0
}

#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    /// What is expected of the step as a whole.
    fn whole(&mut self, expect: &Expect, step: &StepOutcome, got: &[(u64, u64)]) {
        if let (Some(want), Some(each)) = (&expect.each, &step.each) {
            for (i, (want, got)) in want.iter().zip(each).enumerate() {
                self.one(want, got, Some(&format!("each[{i}]")));
            }
        }
        if let Some(want) = expect.spread {
            for &(worker, n) in got {
                let low = want.min.is_some_and(|min| n < min.0);
                let high = want.max.is_some_and(|max| n > max.0);
                if low || high {
                    let min = want.min.map_or("any".into(), |n| n.0.to_string());
                    let max = want.max.map_or("any".into(), |n| n.0.to_string());
                    self.0.push(format!(
                        "expected spread {min} to {max}, but worker {worker} got {n}"
                    ));
                }
            }
        }
        if let Some(want) = &expect.lost {
            let mut want = want.clone();
            let mut lost = step.lost.clone().unwrap_or_default();
            want.sort();
            lost.sort();
            if want != lost {
                self.0.push(format!("expected lost {want:?}, got {lost:?}"));
            }
        }
        if let Some(load) = step.load {
            self.count("prefill_tokens", &expect.prefill_tokens, load.prefill_tokens);
            self.count("kv_blocks", &expect.kv_blocks, load.kv_blocks);
            self.count("requests", &expect.requests, load.requests);
            self.count("held_blocks", &expect.held_blocks, load.held_blocks);
            if let Some(want) = expect.full
                && want != WantFull::Is(load.full)
            {
                self.0.push(format!("expected full {}, got {}", !load.full, load.full));
            }
        } else if step.stats.is_none() && step.op == "load" {
            self.none(expect, LOAD, &step.one);
        }
        match &step.stats {
            Some(stats) => self.stats(expect, stats),
            None if step.op == "stats" => self.none(expect, STATS, &step.one),
            None => {}
        }
        if let Some(want) = &expect.events {
            self.events(want, &step.events);
        }
    }

    /// Without an expectation, a step that fails is itself a failure.
    fn fine(&mut self, one: &Outcome) {
        if let Some(error) = one.error.refused() {
            let who = one.name.as_deref().map(|n| format!("{n}: ")).unwrap_or_default();
            self.0.push(format!("{who}expected no error, got {} ({error})", error.name()));
        }
    }

    /// A query that was refused returned none of its keys.
    fn none(&mut self, expect: &Expect, keys: &[&str], one: &Outcome) {
        if let Err(key) = expect.only(&["error", "events"])
            && keys.contains(&key)
        {
            self.0.push(format!("expected {key}, got {one}"));
        }
    }

    fn count(&mut self, key: &str, want: &Option<Int<u64>>, got: u64) {
        if let Some(Int(want)) = want
            && *want != got
        {
            self.0.push(format!("expected {key} {want}, got {got}"));
        }
    }

    fn one(&mut self, want: &Expect, got: &Outcome, label: Option<&str>) {
        let who = label.map(|l| format!("{l}: ")).unwrap_or_default();
        // Every sentence ends with all that is known of the outcome: the next question of whoever
        // reads the report.
        let mut wrong = |what: String| self.0.push(format!("{who}expected {what}, got {got}"));
        if let Some(name) = &want.name
            && got.name.as_ref() != Some(name)
        {
            wrong(format!("as {name}"));
        }
        if let Some(error) = &want.error {
            let error = error.as_ref().unwrap_or(&WantError::None);
            let refused = got.error.refused();
            match (error, refused) {
                (WantError::None, Some(_)) => wrong("no error".into()),
                (WantError::Any, None) => wrong("an error".into()),
                (WantError::Named(name), e) if e.is_none_or(|e| e.name() != name) => {
                    wrong(format!("error {name}"));
                }
                _ => {}
            }
        }
        if let Some(state) = want.state
            && got.state != Some(state)
        {
            wrong(format!("state {state}"));
        }
        if let Some(AnyOf(workers)) = &want.worker
            && !got.worker.is_some_and(|w| workers.contains(&w))
        {
            wrong(format!("worker {}", list(workers)));
        }
        if let Some(AnyOf(ranks)) = &want.rank
            && !got.rank.is_some_and(|r| ranks.contains(&r))
        {
            wrong(format!("rank {}", list(ranks)));
        }
        if let Some(Int(cached)) = want.cached_tokens
            && got.cached_tokens.map(u64::from) != Some(cached)
        {
            wrong(format!("cached_tokens {cached}"));
        }
        if let Some(Real(cost)) = want.cost
            && !got.cost.is_some_and(|c| same_cost(cost, c))
        {
            wrong(format!("cost {cost}"));
        }
        if let Some(WantClass::Name(class)) = &want.class
            && got.class.as_ref() != Some(class)
        {
            wrong(format!("class {class}"));
        }
        match (&want.hold, got.hold) {
            (Some(None), Some(_)) => wrong("no hold".into()),
            (Some(Some(hold)), at) if !at.is_some_and(|at| hold.is(at)) => {
                wrong(hold.to_string());
            }
            _ => {}
        }
    }

    fn stats(&mut self, want: &Expect, got: &Stats) {
        self.count("ranks", &want.ranks, got.ranks);
        self.count("waiting", &want.waiting, got.waiting);
        self.count("epoch", &want.epoch, got.epoch);
        self.count("selected", &want.selected, got.selected);
        self.count("rejected", &want.rejected, got.rejected);
        self.count("admitted", &want.admitted, got.admitted);
        self.count("expired", &want.expired, got.expired);
        self.count("cancelled", &want.cancelled, got.cancelled);
        if let Some(WantFull::Count(full)) = want.full
            && full != got.full
        {
            self.0.push(format!("expected full {full}, got {}", got.full));
        }
        if let Some(WantClass::Stats(Pairs(classes))) = &want.class {
            for (name, want) in classes {
                let Some(&ClassStats { waiting, tokens }) = got.class.get(name) else {
                    let known: Vec<_> = got.class.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    self.0.push(format!("expected class {name}, got classes {known}"));
                    continue;
                };
                self.count(&format!("class.{name}.waiting"), &want.waiting, waiting);
                self.count(&format!("class.{name}.tokens"), &want.tokens, tokens);
            }
        }
    }

    fn events(&mut self, want: &[Expect], got: &[Outcome]) {
        if want.len() != got.len() {
            let all: Vec<_> = got.iter().map(|e| format!("[{e}]")).collect();
            let all = if all.is_empty() { "none".into() } else { all.join(" ") };
            self.0.push(format!("expected {} event(s), got {all}", want.len()));
            return;
        }
        for (i, (want, got)) in want.iter().zip(got).enumerate() {
            self.one(want, got, Some(&format!("events[{i}]")));
        }
    }
}

impl WantHold {
    fn is(&self, at: At) -> bool {
        self.worker.as_ref().is_none_or(|w| w.0.contains(&at.worker))
            && self.rank.as_ref().is_none_or(|r| r.0.contains(&at.rank))
    }
}

impl fmt::Display for WantHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hold")?;
        if let Some(AnyOf(workers)) = &self.worker {
            write!(f, " on worker {}", list(workers))?;
        }
        if let Some(AnyOf(ranks)) = &self.rank {
            write!(f, " rank {}", list(ranks))?;
        }
        Ok(())
    }
}

fn list(any: &[impl fmt::Display]) -> String {
    any.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// Costs are compared relatively; next to 0, where that would ask for the very same bits,
/// absolutely.
fn same_cost(want: f64, got: f64) -> bool {
    (want - got).abs() <= COST_TOLERANCE * want.abs().max(got.abs()).max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::outcome::{Answer, Load};
    use crate::scenario::yaml;
    use vacancy::Error;

    fn expect(text: &str) -> Expect {
        yaml::read(text).expect("a valid expectation")
    }

    fn admitted(name: &str, worker: u64, rank: u32) -> Outcome {
        Outcome {
            name: Some(name.into()),
            state: Some(State::Admitted),
            worker: Some(worker),
            rank: Some(rank),
            cached_tokens: Some(32),
            cost: Some(7.0),
            ..Outcome::fine()
        }
    }

    fn booked() -> StepOutcome {
        StepOutcome { op: "book", one: admitted("a", 3, 1), ..StepOutcome::default() }
    }

    fn holds(text: &str, mut step: StepOutcome) -> bool {
        let failures = judge(Some(&expect(text)), &mut step, &[(1, 2), (2, 0)]);
        assert_eq!(step.one.ok, Some(failures.is_empty()));
        failures.is_empty()
    }

    #[test]
    fn only_the_keys_that_are_named_are_checked() {
        assert!(holds("{}", booked()));
        assert!(holds("{worker: 3}", booked()));
        assert!(!holds("{worker: 4}", booked()));
        assert!(holds("{worker: [4, 3], rank: [0, 1]}", booked()));
        assert!(!holds("{worker: [4, 5]}", booked()));
        assert!(!holds("{worker: 3, rank: 0}", booked()));
        assert!(holds("{state: admitted, cached_tokens: 32}", booked()));
        assert!(!holds("{state: waiting}", booked()));
        assert!(!holds("{cached_tokens: 33}", booked()));
        assert!(!holds("{class: c}", booked()));
    }

    #[test]
    fn costs_agree_to_a_millionth() {
        assert!(holds("{cost: 7}", booked()));
        assert!(holds("{cost: 7.000005}", booked()));
        assert!(!holds("{cost: 7.00001}", booked()));
        assert!(!holds("{cost: 6.9999}", booked()));
        assert!(!holds("{cost: .nan}", booked()));
        let mut free = booked();
        free.one.cost = Some(0.0);
        assert!(holds("{cost: 0}", free.clone()));
        assert!(!holds("{cost: 0.001}", free));
    }

    #[test]
    fn errors_are_expected_by_name_or_at_all() {
        let refused = StepOutcome {
            op: "book",
            one: Outcome::refused(Error::NoEndpoints),
            ..StepOutcome::default()
        };
        assert!(holds("{error: NoEndpoints}", refused.clone()));
        assert!(holds("{error: true}", refused.clone()));
        assert!(!holds("{error: Closed}", refused.clone()));
        assert!(!holds("{error: null}", refused.clone()));
        assert!(!holds("{error: false}", refused.clone()));
        assert!(!holds("{worker: 3}", refused.clone()));
        assert!(!holds("{}", refused), "no key named is no expectation");
        assert!(!holds("{error: true}", booked()));
        assert!(!holds("{error: NoEndpoints}", booked()));
        assert!(holds("{error: null}", booked()));
    }

    #[test]
    fn holds_are_expected_there_or_not_there() {
        let mut held = booked();
        held.one.hold = Some(At { worker: 4, rank: 0 });
        assert!(holds("{hold: {worker: 4}}", held.clone()));
        assert!(holds("{hold: {worker: [3, 4], rank: 0}}", held.clone()));
        assert!(!holds("{hold: {worker: 5}}", held.clone()));
        assert!(!holds("{hold: null}", held));
        assert!(holds("{hold: null}", booked()));
        assert!(!holds("{hold: {}}", booked()));
    }

    #[test]
    fn every_request_of_a_step_is_held_against_the_keys_and_its_own() {
        let mut many = booked();
        many.each = Some(vec![admitted("a-1", 1, 0), admitted("a-2", 1, 1)]);
        assert!(holds("{worker: 1, each: [{as: a-1, rank: 0}, {rank: 1}]}", many.clone()));
        assert!(!holds("{rank: 0}", many.clone()));
        assert!(!holds("{each: [{rank: 1}, {rank: 0}]}", many.clone()));
        assert!(holds("{spread: {max: 2}}", many.clone()));
        assert!(!holds("{spread: {min: 1}}", many.clone()), "worker 2 got none");
        assert!(!holds("{spread: {max: 1}}", many.clone()));
        judge(Some(&expect("{rank: 0}")), &mut many, &[]);
        let each: Vec<_> = many.each.expect("as above").iter().map(|o| o.ok).collect();
        assert_eq!(each, [Some(true), Some(false)]);
    }

    #[test]
    fn events_are_exactly_those_that_are_listed() {
        let mut step = booked();
        let refused = Outcome {
            name: Some("x".into()),
            state: Some(State::Refused),
            error: Answer::Refused(Error::DeadlineExceeded),
            ..Outcome::default()
        };
        step.events = vec![admitted("w", 1, 0), refused];
        let both = "{as: w, state: admitted}, {as: x, error: DeadlineExceeded}";
        assert!(holds(&format!("{{events: [{both}]}}"), step.clone()));
        assert!(!holds("{events: [{as: w}]}", step.clone()));
        assert!(!holds("{events: [{as: x}, {as: w}]}", step.clone()));
        assert!(!holds("{events: []}", step));
        assert!(holds("{events: []}", booked()));
    }

    #[test]
    fn loads_and_stats_are_compared_exactly() {
        let load = StepOutcome {
            op: "load",
            one: Outcome::fine(),
            load: Some(Load {
                prefill_tokens: 1,
                kv_blocks: 2,
                requests: 3,
                held_blocks: 4,
                full: true,
            }),
            ..StepOutcome::default()
        };
        let right = "{prefill_tokens: 1, kv_blocks: 2, requests: 3, held_blocks: 4, full: true}";
        assert!(holds(right, load.clone()));
        for wrong in [
            "{prefill_tokens: 2}",
            "{kv_blocks: 1}",
            "{requests: 4}",
            "{held_blocks: 3}",
            "{full: false}",
        ] {
            assert!(!holds(wrong, load.clone()), "{wrong}");
        }
        let gone = StepOutcome { load: None, one: Outcome::refused(Error::NoEndpoints), ..load };
        assert!(!holds("{requests: 0}", gone.clone()), "what is not there has no load of 0");
        assert!(holds("{error: NoEndpoints}", gone));

        let stats = StepOutcome {
            op: "stats",
            one: Outcome::fine(),
            stats: Some(Stats {
                ranks: 1,
                full: 2,
                waiting: 3,
                epoch: 4,
                selected: 5,
                rejected: 6,
                admitted: 7,
                expired: 8,
                cancelled: 9,
                class: [("a".to_owned(), ClassStats { waiting: 3, tokens: 64 })].into(),
            }),
            ..StepOutcome::default()
        };
        for key in [
            "ranks: 1",
            "full: 2",
            "waiting: 3",
            "epoch: 4",
            "selected: 5",
            "rejected: 6",
            "admitted: 7",
            "expired: 8",
            "cancelled: 9",
            "class: {a: {waiting: 3}}",
            "class: {a: {tokens: 64}}",
        ] {
            assert!(holds(&format!("{{{key}}}"), stats.clone()), "{key}");
            let wrong = key.replace(|c: char| c.is_ascii_digit(), "77");
            assert!(!holds(&format!("{{{wrong}}}"), stats.clone()), "{wrong}");
        }
        assert!(!holds("{class: {b: {}}}", stats));
    }

    #[test]
    fn lost_bookings_are_expected_in_any_order() {
        let mut step = StepOutcome { op: "remove", one: Outcome::fine(), ..StepOutcome::default() };
        assert!(holds("{lost: []}", step.clone()));
        step.lost = Some(vec!["b".into(), "a".into()]);
        assert!(holds("{lost: [a, b]}", step.clone()));
        assert!(!holds("{lost: [a]}", step.clone()));
        assert!(!holds("{lost: []}", step));
    }

    #[test]
    fn the_names_of_all_errors_are_known() {
        for error in [
            Error::NoEndpoints,
            Error::AllEligibleWorkersOverloaded,
            Error::AllEligibleWorkersFiltered,
            Error::DeadlineExceeded,
            Error::Closed,
        ] {
            assert!(ERRORS.contains(&error.name()));
        }
        assert_eq!(ERRORS.len(), 16);
    }
}
