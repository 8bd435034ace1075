//! The scenario file as it is written: every pool key, every step and its keys, as types.
//!
//! Reading checks the shape and nothing that only a run can know: a key that no step has, a value
//! of the wrong type, two operations in one step, and (in `check`) what no type says. A value the *engine* refuses (a fraction of NaN, a worker of no
//! ranks) is shape enough: the step that hands it over gets the engine's own error, so that a
//! scenario can expect it.
#![forbid(unsafe_code)]

use super::expect::Expect;
use super::yaml::{self, Document, Flag, Int, Millis, Pairs, Place, Real, Seconds, Wrong, given};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// One scenario: the pools, and what is done to them.
#[derive(Debug)]
pub struct Scenario {
    /// The pools by name, in the order in which they were written.
    pub pools: Vec<(String, Spanned<PoolKeys>)>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The document as the parser sees it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Top {
    pools: Pairs<Spanned<PoolKeys>>,
    steps: Vec<Spanned<RawStep>>,
}

/// What a pool is built with; whatever is left out has the engine's default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolKeys {
    /// Tokens per KV block (16).
    pub block_size: Option<Int<u32>>,
    /// Whether prompt tokens are booked (true).
    pub track_prefill: Option<Flag>,
    /// Whether KV blocks are booked (true).
    pub track_blocks: Option<Flag>,
    /// The decode pool of a prefill pool, by name.
    pub pair: Option<String>,
    /// Whether decode room is set aside at prefill admission (true). Without a pair it says
    /// nothing.
    pub holds: Option<Flag>,
    /// The policy file.
    pub policy: Option<Document>,
    /// What the cost is made of.
    pub weights: Option<WeightKeys>,
    /// What the reject check skips: whole workers, or ranks.
    pub reject_scope: Option<Scope>,
    /// How long a worker's signal counts (5000).
    pub signal_ttl_ms: Option<Millis>,
    /// Lease of bookings, in seconds (off).
    pub lease_s: Option<Seconds>,
    /// This router's number among its peers.
    pub router_id: Option<Int<u64>>,
}

/// `reject_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A worker is skipped when all of its ranks are full.
    Worker,
    /// Each rank is judged on its own.
    Rank,
}

/// `weights`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightKeys {
    /// Credit per block on the device.
    pub device: Option<Real>,
    /// Credit per block in host memory.
    pub host: Option<Real>,
    /// Credit per block on disk.
    pub disk: Option<Real>,
    /// Credit per shared block beyond the device's.
    pub shared: Option<Real>,
    /// Factor on the prefill part.
    pub prefill_scale: Option<Real>,
    /// Cost of one active request.
    pub request: Option<Real>,
    /// Decay of the device credit with the backlog.
    pub decay: Option<Real>,
    /// Temperature of the choice.
    pub temperature: Option<Real>,
}

/// `override`: the weights one request brings. The cost formula writes them with a `w_`, the pool
/// without: both are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideKeys {
    /// Credit per block on the device.
    #[serde(alias = "w_device")]
    pub device: Option<Real>,
    /// Factor on the prefill part.
    pub prefill_scale: Option<Real>,
    /// Credit per shared block beyond the device's.
    #[serde(alias = "w_shared")]
    pub shared: Option<Real>,
    /// Temperature of the choice.
    pub temperature: Option<Real>,
    /// Whether the prefill part counts.
    pub track_prefill: Option<Flag>,
}

/// One step: an operation, and what it should have done.
#[derive(Debug)]
pub struct Step {
    /// Where it stands.
    pub at: Place,
    /// The operation.
    pub op: Op,
    /// What is expected of it; `None`: that it does not fail.
    pub expect: Option<Expect>,
}

/// A worker as `upsert` and `reconcile` declare it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerKeys {
    /// The pool (`upsert` only: `reconcile` has one for all).
    pub pool: Option<String>,
    /// The worker's id.
    pub worker: Int<u64>,
    /// Number of its first rank (0).
    pub dp_start: Option<Int<u64>>,
    /// How many ranks it has (1).
    pub ranks: Option<Int<u64>>,
    /// KV blocks per rank.
    pub total_kv_blocks: Option<Int<u64>>,
    /// Tokens one rank batches at most.
    pub max_num_batched_tokens: Option<Int<u64>>,
    /// Taints.
    pub taints: Option<Vec<String>>,
    /// Topology: level to domain.
    pub domains: Option<Pairs<String>>,
    /// Adapters that are loaded.
    pub loras: Option<Vec<String>>,
}

/// `remove`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneWorker {
    /// The pool.
    pub pool: String,
    /// The worker.
    pub worker: Int<u64>,
}

/// `available`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Available {
    /// The pool.
    pub pool: String,
    /// The worker.
    pub worker: Int<u64>,
    /// Whether it is.
    pub is: Flag,
}

/// `overloaded`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overloaded {
    /// The pool.
    pub pool: String,
    /// The worker.
    pub worker: Int<u64>,
    /// Whether it is.
    pub is: Flag,
    /// How long the mark lasts from now on.
    pub lease_ms: Option<Millis>,
}

/// `thresholds`: merges, unless told to replace or to clear. `null` unsets a field.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdKeys {
    /// The pool.
    pub pool: String,
    /// Active prefill tokens.
    #[serde(default, deserialize_with = "given")]
    pub prefill_tokens: Option<Option<Int<u64>>>,
    /// Prefill tokens as a fraction of `max_num_batched_tokens`.
    #[serde(default, deserialize_with = "given")]
    pub prefill_frac: Option<Option<Real>>,
    /// KV blocks as a fraction of `total_kv_blocks`.
    #[serde(default, deserialize_with = "given")]
    pub decode_frac: Option<Option<Real>>,
    /// Replace all, so that what is left out is off.
    pub set: Option<Flag>,
    /// Turn all off.
    pub clear: Option<Flag>,
}

/// `reconcile`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// The pool.
    pub pool: String,
    /// The whole set of workers.
    pub workers: Vec<WorkerKeys>,
}

/// `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    /// The pool.
    pub pool: String,
    /// The new policy.
    pub policy: Document,
}

/// A worker, and maybe one of its ranks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetKeys {
    /// The worker.
    pub worker: Int<u64>,
    /// The rank; left out: any.
    pub rank: Option<Int<u32>>,
}

/// What one rank has cached of a prompt, in blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlapKeys {
    /// The worker.
    pub worker: Int<u64>,
    /// The rank; left out: the worker's first.
    pub rank: Option<Int<u32>>,
    /// Blocks on the device.
    pub device: Option<Real>,
    /// Blocks in host memory.
    pub host: Option<Real>,
    /// Blocks on disk.
    pub disk: Option<Real>,
}

/// `select`, `book`, `admit`: a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The pool.
    pub pool: String,
    /// The request's name, which is its id. `select` may do without.
    #[serde(rename = "as")]
    pub name: Option<String>,
    /// Prompt length in tokens.
    pub isl: Int<u64>,
    /// Block hashes of the prompt.
    pub hashes: Option<Vec<Int<u64>>>,
    /// What ranks have cached.
    pub overlaps: Option<Vec<OverlapKeys>>,
    /// Policy class or family.
    pub class: Option<String>,
    /// Higher goes first.
    pub strict_priority: Option<Int<i64>>,
    /// Jump of the queue.
    pub priority_jump: Option<Real>,
    /// When it must have been admitted, on the scenario's clock.
    pub due_ms: Option<Millis>,
    /// Hard target.
    pub pin: Option<TargetKeys>,
    /// Soft target.
    pub affinity: Option<TargetKeys>,
    /// Only these workers.
    pub allow: Option<Vec<Int<u64>>>,
    /// Not these.
    pub deny: Option<Vec<Int<u64>>>,
    /// Taints the worker must have.
    pub taints: Option<Vec<String>>,
    /// Taints that make a worker cheaper, with their factor.
    pub prefer: Option<Pairs<Real>>,
    /// The worker's domain at each level.
    pub domain: Option<Pairs<String>>,
    /// The adapter it needs.
    pub lora: Option<String>,
    /// Block positions that a shared cache holds, `[from, to)`.
    pub shared: Option<Vec<(Int<u32>, Int<u32>)>>,
    /// Its own weights.
    #[serde(rename = "override")]
    pub weights: Option<OverrideKeys>,
    /// Refuse rather than wait.
    pub do_not_queue: Option<Flag>,
    /// Its prefill leg runs already.
    pub upstream: Option<Flag>,
    /// Constraints of its decode leg.
    pub decode: Option<ConstraintKeys>,
    /// Ask as many times, under the names `as-1`, `as-2`, ...
    pub times: Option<Int<u64>>,
}

/// Constraints of a decode leg.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstraintKeys {
    /// Hard target.
    pub pin: Option<TargetKeys>,
    /// Soft target.
    pub affinity: Option<TargetKeys>,
    /// Only these workers.
    pub allow: Option<Vec<Int<u64>>>,
    /// Not these.
    pub deny: Option<Vec<Int<u64>>>,
    /// Taints the worker must have.
    pub taints: Option<Vec<String>>,
    /// Taints that make a worker cheaper, with their factor.
    pub prefer: Option<Pairs<Real>>,
    /// The worker's domain at each level.
    pub domain: Option<Pairs<String>>,
}

/// `decode`: the decode leg of an admitted request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeKeys {
    /// The request.
    #[serde(rename = "as")]
    pub name: String,
    /// The decode pool.
    pub pool: String,
}

/// `prefill_completed`, `cancel`, `state`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The request.
    #[serde(rename = "as")]
    pub name: String,
}

/// `free`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeKeys {
    /// The request.
    #[serde(rename = "as")]
    pub name: String,
    /// Only this leg; left out: all that it has.
    pub leg: Option<LegKey>,
}

/// One leg of a request that was routed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LegKey {
    /// The first.
    Prefill,
    /// The one that `decode` made.
    Decode,
}

/// `output`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputKeys {
    /// The request.
    #[serde(rename = "as")]
    pub name: String,
    /// Blocks of output.
    pub blocks: Int<u32>,
}

/// `move`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveKeys {
    /// The request.
    #[serde(rename = "as")]
    pub name: String,
    /// The new worker.
    pub worker: Int<u64>,
    /// The new rank; left out: the worker's first.
    pub rank: Option<Int<u32>>,
}

/// `observe`: what a rank says of itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveKeys {
    /// The pool.
    pub pool: String,
    /// The worker.
    pub worker: Int<u64>,
    /// The rank; left out: the worker's first.
    pub rank: Option<Int<u32>>,
    /// KV blocks in use.
    pub kv_used_blocks: Option<Int<u64>>,
    /// Blocks of active decodes.
    pub active_decode_blocks: Option<Int<u64>>,
}

/// `peer`: what another router says of its bookings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerKeys {
    /// The pool.
    pub pool: String,
    /// The other router.
    pub router: Int<u64>,
    /// Its sequence number; `gone` has none.
    pub seq: Option<Int<u64>>,
    /// What happened.
    pub event: PeerEvent,
    /// The request's name there.
    pub id: Option<String>,
    /// The worker.
    pub worker: Option<Int<u64>>,
    /// The rank; left out: the worker's first.
    pub rank: Option<Int<u32>>,
    /// Prefill tokens (`add`).
    pub prefill_tokens: Option<Int<u32>>,
    /// KV blocks (`add`).
    pub kv_blocks: Option<Int<u32>>,
    /// Blocks of output (`output`).
    pub blocks: Option<Int<u32>>,
}

/// `event` of a `peer` step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerEvent {
    /// A booking.
    Add,
    /// Its prefill is over.
    PrefillCompleted,
    /// It grew.
    Output,
    /// It went to another rank.
    Move,
    /// It ended.
    Free,
    /// The whole router left.
    Gone,
}

/// `advance`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvanceKeys {
    /// How far.
    pub ms: Millis,
}

/// `load`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadKeys {
    /// The pool.
    pub pool: String,
    /// The worker.
    pub worker: Int<u64>,
    /// The rank; left out: the worker's first.
    pub rank: Option<Int<u32>>,
}

/// `stats`, `close`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnePool {
    /// The pool.
    pub pool: String,
}

/// Declares the operations: the variant, the key of the step, and its arguments.
macro_rules! operations {
    ($($variant:ident $key:literal $keys:ty,)*) => {
        /// What a step does.
        #[derive(Clone, Debug)]
        pub enum Op {
            $(#[doc = concat!("`", $key, "`.")] $variant($keys),)*
        }

        /// The keys of all operations, in the order of the format's own table.
        pub const OPERATIONS: &[&str] = &[$($key),*];

        impl Op {
            /// The key of the step.
            pub fn key(&self) -> &'static str {
                match self { $(Op::$variant(_) => $key,)* }
            }

            /// Reads the arguments of operation `key`; `None` if there is no such operation.
            fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Op>, A::Error> {
                Ok(match key {
                    $($key => Some(Op::$variant(map.next_value()?)),)*
                    _ => None,
                })
            }
        }
    };
}

operations! {
    Upsert "upsert" WorkerKeys,
    Remove "remove" OneWorker,
    Available "available" Available,
    Overloaded "overloaded" Overloaded,
    Thresholds "thresholds" ThresholdKeys,
    Reconcile "reconcile" Reconcile,
    Policy "policy" Reload,
    Select "select" Ask,
    Book "book" Ask,
    Admit "admit" Ask,
    Decode "decode" DecodeKeys,
    PrefillCompleted "prefill_completed" Named,
    Free "free" FreeKeys,
    Cancel "cancel" Named,
    State "state" Named,
    Output "output" OutputKeys,
    Move "move" MoveKeys,
    Observe "observe" ObserveKeys,
    Peer "peer" PeerKeys,
    Advance "advance" AdvanceKeys,
    Load "load" LoadKeys,
    Stats "stats" OnePool,
    Close "close" OnePool,
}

impl Op {
    /// The pool it names, if it names one.
    pub fn pool(&self) -> Option<&str> {
        Some(match self {
            Op::Upsert(k) => k.pool.as_deref()?,
            Op::Remove(k) => &k.pool,
            Op::Available(k) => &k.pool,
            Op::Overloaded(k) => &k.pool,
            Op::Thresholds(k) => &k.pool,
            Op::Reconcile(k) => &k.pool,
            Op::Policy(k) => &k.pool,
            Op::Select(k) | Op::Book(k) | Op::Admit(k) => &k.pool,
            Op::Decode(k) => &k.pool,
            Op::Observe(k) => &k.pool,
            Op::Peer(k) => &k.pool,
            Op::Load(k) => &k.pool,
            Op::Stats(k) | Op::Close(k) => &k.pool,
            Op::PrefillCompleted(_)
            | Op::Free(_)
            | Op::Cancel(_)
            | Op::State(_)
            | Op::Output(_)
            | Op::Move(_)
            | Op::Advance(_) => return None,
        })
    }

    /// The request it names, if it names one.
    pub fn name(&self) -> Option<&str> {
        Some(match self {
            Op::Select(k) | Op::Book(k) | Op::Admit(k) => k.name.as_deref()?,
            Op::Decode(k) => &k.name,
            Op::PrefillCompleted(k) | Op::Cancel(k) | Op::State(k) => &k.name,
            Op::Free(k) => &k.name,
            Op::Output(k) => &k.name,
            Op::Move(k) => &k.name,
            _ => return None,
        })
    }

    /// How many requests it makes, if it says so.
    pub fn times(&self) -> Option<u64> {
        match self {
            Op::Select(k) | Op::Book(k) | Op::Admit(k) => k.times.map(|n| n.0),
            _ => None,
        }
    }
}

/// A step before it was checked against the rest of the file.
struct RawStep {
    op: Op,
    expect: Option<Expect>,
}

impl<'de> Deserialize<'de> for RawStep {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = RawStep;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step: a map with one operation and, optionally, `expect`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawStep, A::Error> {
                let mut op: Option<Op> = None;
                let mut expect: Option<Expect> = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "expect" {
                        expect = map.next_value()?;
                        continue;
                    }
                    if let Some(first) = &op {
                        return Err(de::Error::custom(format_args!(
                            "`{key}` beside `{}` in one step: a step has one operation and, \
                             optionally, `expect`; write each operation as a step of its own",
                            first.key(),
                        )));
                    }
                    op = Op::read(&key, &mut map)?;
                    if op.is_none() {
                        return Err(de::Error::custom(format_args!(
                            "there is no step `{key}`: use one of {}",
                            OPERATIONS.join(", "),
                        )));
                    }
                }
                match op {
                    Some(op) => Ok(RawStep { op, expect }),
                    None => Err(de::Error::custom(format_args!(
                        "a step without an operation: use one of {}",
                        OPERATIONS.join(", "),
                    ))),
                }
            }
        }
        d.deserialize_map(V)
    }
}

impl Scenario {
    /// Reads a scenario and checks what can be checked without running it.
    ///
    /// # Errors
    /// [`Wrong`], with the place where the parser knows it.
    pub fn read(text: &str) -> Result<Scenario, Wrong> {
        let top: Top = yaml::read(text)?;
        let steps = top
            .steps
            .into_iter()
            .map(|s| Step { at: s.referenced.into(), op: s.value.op, expect: s.value.expect })
            .collect();
        let scenario = Scenario { pools: top.pools.0, steps };
        scenario.check()?;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(steps: &str) -> Result<Scenario, Wrong> {
        Scenario::read(&format!("pools: {{p: {{}}, q: {{pair: p}}}}\nsteps:\n{steps}"))
    }

    fn one(step: &str) -> Op {
        let scenario = steps(&format!("  - {step}")).expect("a valid step");
        scenario.steps.into_iter().next().expect("one step").op
    }

    #[track_caller]
    fn refused(step: &str, says: &str) {
        let wrong = steps(&format!("  - {step}")).expect_err("should have been refused");
        assert!(wrong.message.contains(says), "{step}: {wrong:?}");
        assert!(wrong.at.is_some_and(|(line, _)| line >= 3), "{step}: {wrong:?}");
    }

    #[test]
    fn every_step_of_the_format_is_read() {
        for step in [
            "upsert: {pool: p, worker: 1, dp_start: 2, ranks: 3, total_kv_blocks: 4, \
             max_num_batched_tokens: 5, taints: [a], domains: {zone: b}, loras: [c]}",
            "remove: {pool: p, worker: 1}",
            "available: {pool: p, worker: 1, is: true}",
            "overloaded: {pool: p, worker: 1, is: false, lease_ms: 5}",
            "thresholds: {pool: p, prefill_tokens: 1, prefill_frac: 0.5, decode_frac: null}",
            "thresholds: {pool: p, set: true}",
            "thresholds: {pool: p, clear: true}",
            "reconcile: {pool: p, workers: [{worker: 1, ranks: 2}]}",
            "policy: {pool: p, policy: {a: b}}",
            "policy: {pool: p, policy: 'a: b'}",
            "select: {pool: p, isl: 1}",
            "book: {pool: p, as: a, isl: 1, hashes: [1], overlaps: [{worker: 1, rank: 0, device: 1, \
             host: 0.5, disk: 2}], class: c, strict_priority: -1, priority_jump: 0.5, due_ms: 5, \
             pin: {worker: 1, rank: 2}, affinity: {worker: 1}, allow: [1], deny: [2], taints: [t], \
             prefer: {t: 0.5}, domain: {zone: z}, lora: l, shared: [[0, 2]], override: {device: 1}, \
             do_not_queue: true, upstream: true, decode: {pin: {worker: 3}, taints: [x]}, times: 2}",
            "admit: {pool: p, as: a, isl: 1, due_ms: 500}",
            "decode: {as: a, pool: p}",
            "prefill_completed: {as: a}",
            "free: {as: a}",
            "free: {as: a, leg: prefill}",
            "cancel: {as: a}",
            "state: {as: a}",
            "output: {as: a, blocks: 3}",
            "move: {as: a, worker: 1, rank: 1}",
            "observe: {pool: p, worker: 1, rank: 0, kv_used_blocks: 3, active_decode_blocks: 4}",
            "peer: {pool: p, router: 1, seq: 1, event: add, id: a, worker: 1, rank: 0, \
             prefill_tokens: 1, kv_blocks: 2}",
            "peer: {pool: p, router: 1, seq: 2, event: output, id: a, blocks: 2}",
            "peer: {pool: p, router: 1, event: gone}",
            "advance: {ms: 250}",
            "load: {pool: p, worker: 1, rank: 0}",
            "stats: {pool: p}",
            "close: {pool: p}",
        ] {
            let key = step.split(':').next().expect("a key");
            assert_eq!(one(step).key(), key);
            assert!(OPERATIONS.contains(&key));
        }
    }

    #[test]
    fn null_is_told_from_left_out_in_thresholds() {
        let Op::Thresholds(keys) =
            one("thresholds: {pool: p, prefill_tokens: null, decode_frac: 0}")
        else {
            panic!("another step");
        };
        assert_eq!(keys.prefill_tokens, Some(None));
        assert_eq!(keys.prefill_frac, None);
        assert_eq!(keys.decode_frac, Some(Some(Real(0.0))));
    }

    #[test]
    fn what_only_the_engine_may_refuse_is_read() {
        one("thresholds: {pool: p, decode_frac: .nan, prefill_frac: -.inf}");
        one("upsert: {pool: p, worker: 1, ranks: 0, dp_start: 4294967296}");
        one("book: {pool: p, as: a, isl: 18446744073709551615, priority_jump: .nan}");
    }

    #[test]
    fn times_are_whole_or_fractional_and_never_negative() {
        let Op::Advance(keys) = one("advance: {ms: 0.5}") else { panic!("another step") };
        assert_eq!(keys.ms.duration().as_nanos(), 500_000);
        refused("advance: {ms: -1}", "0 or more");
        refused("advance: {ms: .nan}", "0 or more");
        refused("advance: {ms: soon}", "0 or more");
    }

    #[test]
    fn scalars_are_what_they_look_like() {
        refused("book: {pool: p, as: a, isl: '96'}", "a whole number");
        refused("book: {pool: p, as: a, isl: 1.5}", "a whole number");
        refused("book: {pool: p, as: a, isl: 99999999999999999999999}", "a whole number");
        refused("book: {pool: p, as: null, isl: 1}", "`as`");
        refused("book: {pool: p, as: [a], isl: 1}", "a text");
        refused("available: {pool: p, worker: 1, is: yes}", "true or false");
        refused("available: {pool: p, worker: 1, is: 'true'}", "true or false");
        refused("free: {as: null}", "a text");
        refused("free:", "a map");
    }

    #[test]
    fn a_step_is_checked_for_what_its_keys_mean_together() {
        refused("upsert: {worker: 1}", "needs `pool`");
        refused("reconcile: {pool: p, workers: [{pool: p, worker: 1}]}", "`pool` inside");
        refused("thresholds: {pool: p, clear: true, decode_frac: 0.5}", "leave out");
        refused("book: {pool: p, isl: 1}", "needs `as`");
        refused("select: {pool: p, isl: 1, times: 3}", "needs `as`");
        refused("book: {pool: p, as: a, isl: 1, times: 0}", "asks for nothing");
        refused("book: {pool: p, as: a, isl: 1, shared: [[3, 2]]}", "ends before it starts");
        refused("peer: {pool: p, router: 1, event: add, seq: 1, id: a}", "needs `worker`");
        refused("book: {pool: p, as: a, isl: 1, decode: {lora: a}}", "`lora`");
        refused("available: {pool: p, worker: 1, is: true, lease_ms: 5}", "`lease_ms`");
    }

    #[test]
    fn expectations_are_checked_against_what_the_step_returns() {
        refused("free: {as: a}\n    expect: {kv_blocks: 1}", "returns no `kv_blocks`");
        refused("book: {pool: p, as: a, isl: 1}\n    expect: {spread: {max: 1}}", "no `spread`");
        refused("book: {pool: p, as: a, isl: 1}\n    expect: {worker: []}", "never match");
        refused("load: {pool: p, worker: 1}\n    expect: {full: 1}", "true or false");
        refused("stats: {pool: p}\n    expect: {full: true}", "a number of ranks");
        refused("stats: {pool: p}\n    expect: {class: a}", "is a map");
        refused("state: {as: a}\n    expect: {state: gone}", "unknown variant");
        refused(
            "book: {pool: p, as: a, isl: 1, times: 3}\n    expect: {each: [{}, {}]}",
            "2 entries for 3 requests",
        );
        refused("advance: {ms: 1}\n    expect: {events: [{kv_blocks: 1}]}", "has no `kv_blocks`");
    }

    #[test]
    fn all_times_of_a_file_together_are_bounded() {
        let ask = "  - select: {pool: p, as: a, isl: 1, times: 600000}\n";
        assert!(steps(ask).is_ok());
        let wrong = steps(&ask.repeat(2)).expect_err("1,200,000 requests");
        assert_eq!(wrong.at, Some((4, 5)));
    }

    #[test]
    fn timers_of_a_pair_run_before_those_of_the_pools_that_wait_on_it() {
        let text = "pools: {a: {pair: b}, b: {pair: c}, c: {}, d: {}}\nsteps: []";
        let order = Scenario::read(text).expect("a valid file").pairs_first();
        assert_eq!(order, [2, 3, 1, 0]);
        let circle = "pools: {a: {pair: b}, b: {pair: a}}\nsteps: []";
        let wrong = Scenario::read(circle).expect_err("a circle");
        assert!(wrong.message.contains("waits on itself"), "{wrong:?}");
    }
}
