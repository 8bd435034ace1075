//! What a world does, written down as a scenario file: the steps that `vacancy scenario` knows as
//! steps, what it does not know as comments.

use crate::client::End;
use crate::ops::spec;
use crate::plan::{Demand, Door, Hop, Line, PeerSays, PolicyPlan, Setup, Wants, WorkerPlan};
use crate::sim::MS;
use std::fmt::Write;
use vacancy::{Error, Rank, RejectScope};

/// The steps so far; nothing, if nobody asked for them.
pub struct Trace {
    text: Option<String>,
    now: u64,
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn wants(out: &mut String, of: &Wants) {
    if let Some((worker, dp_rank)) = of.pin {
        let rank = dp_rank.map_or(String::new(), |r| format!(", rank: {r}"));
        let _ = write!(out, ", pin: {{worker: {worker}{rank}}}");
    }
    if let Some(worker) = of.deny {
        let _ = write!(out, ", deny: [{worker}]");
    }
    if of.taint {
        out.push_str(", taints: [x]");
    }
}

fn worker(plan: &WorkerPlan) -> String {
    let spec = spec(plan);
    let mut out = format!("worker: {}, dp_start: {}, ranks: {}", plan.id, plan.start, plan.ranks);
    for (key, value) in [
        ("max_num_batched_tokens", spec.max_num_batched_tokens),
        ("total_kv_blocks", spec.total_kv_blocks),
    ] {
        if let Some(value) = value {
            let _ = write!(out, ", {key}: {value}");
        }
    }
    if plan.taint {
        out.push_str(", taints: [x]");
    }
    if plan.lora {
        out.push_str(", loras: [a]");
    }
    out
}

/// A policy as a policy file, each line after `indent`.
fn policy(policy: &PolicyPlan, indent: &str) -> String {
    let mut out = format!(
        "{indent}default_policy_family: standard\n{indent}uncached_isl_buckets: [{{min_tokens: 0, \
         bucket: small}}, {{min_tokens: {}, bucket: large}}]\n{indent}policy_classes:\n",
        crate::plan::LARGE
    );
    for class in &policy.classes {
        let mut line = format!(
            "name: {}, quantum: {}, queue_policy: {}",
            class.name, class.quantum, class.order
        );
        if let Some(bucket) = class.bucket {
            let _ = write!(line, ", policy_family: standard, cache_bucket: {bucket}");
        }
        let waits = !class.line.is_none();
        for (key, value) in [
            ("prefill_busy_threshold", class.line.prefill_tokens.map(|v| v.to_string())),
            ("prefill_busy_threshold_frac", class.line.prefill_frac.map(|v| v.to_string())),
            ("decode_busy_threshold_frac", class.line.decode_frac.map(|v| v.to_string())),
            ("busy_worker_ratio", class.ratio.filter(|_| waits).map(|v| v.to_string())),
            ("request_queue_limit_per_worker", class.limit.map(|v| v.to_string())),
            ("max_wait_ms", class.max_wait_ms.map(|v| v.to_string())),
        ] {
            if let Some(value) = value {
                let _ = write!(line, ", {key}: {value}");
            }
        }
        let _ = writeln!(out, "{indent}  - {{{line}}}");
    }
    out
}

impl Trace {
    /// A trace of a world of that setup.
    pub fn new(wanted: bool, setup: &Setup) -> Trace {
        let text = wanted.then(|| {
            let scope = match setup.scope {
                RejectScope::Rank => "rank",
                _ => "worker",
            };
            let lease = setup
                .lease_ms
                .map_or(String::new(), |ms| format!("    lease_s: {}\n", ms as f64 / 1e3));
            let mut out = format!("# The world of seed {}.\n", setup.seed);
            if setup.host != Default::default() || setup.class_room_only {
                let _ = writeln!(
                    out,
                    "# Not in this file: {:?}, class_room_only: {}.",
                    setup.host, setup.class_room_only
                );
            }
            out.push_str("pools:\n");
            for hop in Hop::BOTH {
                let at = hop as usize;
                let (tokens, blocks) = match hop {
                    Hop::Decode => (setup.track_prefill, true),
                    Hop::Prefill => (true, setup.track_blocks),
                };
                let _ = write!(
                    out,
                    "  {}:\n    block_size: {}\n    track_prefill: {tokens}\n    track_blocks: \
                     {blocks}\n    reject_scope: {scope}\n    signal_ttl_ms: {}\n    router_id: \
                     {at}\n{lease}",
                    hop.key(),
                    setup.block_size[at],
                    setup.ttl_ms
                );
                if hop == Hop::Prefill {
                    let _ = writeln!(out, "    pair: decode\n    holds: {}", setup.holds);
                }
                let _ = write!(out, "    policy:\n{}", policy(&setup.policy[at], "      "));
            }
            out.push_str("steps:\n");
            out
        });
        Trace { text, now: 0 }
    }

    /// All that was written down.
    pub fn finish(&mut self) -> Option<String> {
        self.text.take()
    }

    /// A step.
    pub fn step(&mut self, op: &str, keys: String) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "  - {op}: {{{keys}}}");
        }
    }

    fn expecting(&mut self, op: &str, keys: String, error: Option<&Error>) {
        self.step(op, keys);
        if let (Some(text), Some(error)) = (&mut self.text, error) {
            let _ = writeln!(text, "    expect: {{error: {}}}", error.name());
        }
    }

    /// What is not a step of a scenario.
    pub fn note(&mut self, what: &str) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "  # {what}");
        }
    }

    /// A step on one request.
    pub fn one(&mut self, op: &str, client: u32) {
        if self.text.is_some() {
            self.step(op, format!("as: r{client}"));
        }
    }

    /// A worker is declared.
    pub fn upsert(&mut self, hop: Hop, plan: &WorkerPlan) {
        if self.text.is_some() {
            self.step("upsert", format!("pool: {}, {}", hop.key(), worker(plan)));
        }
    }

    /// The whole set at once.
    pub fn reconcile(&mut self, hop: Hop, plans: &[WorkerPlan]) {
        if self.text.is_some() {
            let workers = list(plans.iter().map(|plan| format!("{{{}}}", worker(plan))));
            self.step("reconcile", format!("pool: {}, workers: {workers}", hop.key()));
        }
    }

    /// Availability or an overload mark.
    pub fn mark(&mut self, op: &str, hop: Hop, id: u64, is: bool, lease: Option<u64>, known: bool) {
        if self.text.is_none() {
            return;
        }
        if !known {
            return self.note(&format!("{op} of worker {id}, which is not there"));
        }
        let lease = lease.map_or(String::new(), |ms| format!(", lease_ms: {ms}"));
        self.step(op, format!("pool: {}, worker: {id}, is: {is}{lease}", hop.key()));
    }

    /// Other reject thresholds.
    pub fn thresholds(&mut self, hop: Hop, line: &Line) {
        if self.text.is_none() {
            return;
        }
        let mut keys = format!("pool: {}, set: true", hop.key());
        for (key, value) in [
            ("prefill_tokens", line.prefill_tokens.map(|v| v.to_string())),
            ("prefill_frac", line.prefill_frac.map(|v| v.to_string())),
            ("decode_frac", line.decode_frac.map(|v| v.to_string())),
        ] {
            if let Some(value) = value {
                let _ = write!(keys, ", {key}: {value}");
            }
        }
        self.step("thresholds", keys);
    }

    /// Another policy.
    pub fn policy(&mut self, hop: Hop, plan: &PolicyPlan) {
        if let Some(text) = &mut self.text {
            let body = policy(plan, "          ");
            let _ = write!(text, "  - policy:\n      pool: {}\n      policy:\n{body}", hop.key());
        }
    }

    /// A worker says what it uses.
    pub fn observe(&mut self, hop: Hop, rank: Rank, used: Option<u64>, active: Option<u64>) {
        if self.text.is_none() {
            return;
        }
        let mut keys =
            format!("pool: {}, worker: {}, rank: {}", hop.key(), rank.worker, rank.dp_rank);
        for (key, value) in [("kv_used_blocks", used), ("active_decode_blocks", active)] {
            if let Some(value) = value {
                let _ = write!(keys, ", {key}: {value}");
            }
        }
        self.step("observe", keys);
    }

    /// Another router tells.
    pub fn peer(&mut self, hop: Hop, (router, seq, id): (u64, u64, u64), says: PeerSays) {
        if self.text.is_none() {
            return;
        }
        let rank = |(worker, rank): (u64, u32)| format!(", worker: {worker}, rank: {rank}");
        let (event, more) = match says {
            PeerSays::Add { rank: at, tokens, blocks } => {
                ("add", format!("{}, prefill_tokens: {tokens}, kv_blocks: {blocks}", rank(at)))
            }
            PeerSays::Done => ("prefill_completed", String::new()),
            PeerSays::Output(blocks) => ("output", format!(", blocks: {blocks}")),
            PeerSays::Move(to) => ("move", rank(to)),
            PeerSays::Free => ("free", String::new()),
        };
        let of = format!("pool: {}, router: {router}, seq: {seq}, id: b{id}", hop.key());
        self.step("peer", format!("{of}, event: {event}{more}"));
    }

    /// Another router is gone.
    pub fn peer_gone(&mut self, hop: Hop, router: u64) {
        if self.text.is_some() {
            let keys = format!("pool: {}, router: {router}, event: gone", hop.key());
            self.step("peer", keys);
        }
    }

    /// Time has passed.
    pub fn advance_to(&mut self, now: u64) {
        if self.text.is_none() {
            return;
        }
        // Steps are whole milliseconds; timers between them run on the way.
        let (from, to) = (self.now.div_ceil(MS), now.div_ceil(MS));
        self.now = now;
        if to > from {
            self.step("advance", format!("ms: {}", to - from));
        }
    }

    /// A request comes in.
    pub fn arrives(
        &mut self,
        client: u32,
        hop: Hop,
        door: Door,
        demand: &Demand,
        due: Option<u64>,
        error: Option<&Error>,
    ) {
        if self.text.is_none() {
            return;
        }
        let op = match door {
            Door::Admit | Door::AdmitAs => "admit",
            Door::Book | Door::BookAs => "book",
        };
        let mut keys = format!("pool: {}, as: r{client}, isl: {}", hop.key(), demand.isl);
        if let Some(chain) = &demand.chain {
            let _ = write!(keys, ", hashes: {}", list(chain.iter().map(u64::to_string)));
        }
        if !demand.cached.is_empty() {
            let overlap = |&(worker, rank, device): &(u64, u32, u32)| {
                format!("{{worker: {worker}, rank: {rank}, device: {device}}}")
            };
            let _ = write!(keys, ", overlaps: {}", list(demand.cached.iter().map(overlap)));
        }
        if let Some(class) = demand.class {
            let _ = write!(keys, ", class: {class}");
        }
        if demand.priority != 0 {
            let _ = write!(keys, ", strict_priority: {}", demand.priority);
        }
        if demand.jump != 0.0 {
            let _ = write!(keys, ", priority_jump: {}", demand.jump);
        }
        if let Some(due) = due {
            let _ = write!(keys, ", due_ms: {}", due / MS);
        }
        wants(&mut keys, &demand.own);
        if hop == Hop::Prefill && !demand.leg.is_empty() {
            let mut leg = String::new();
            wants(&mut leg, &demand.leg);
            let _ = write!(keys, ", decode: {{{}}}", leg.trim_start_matches(", "));
        }
        if demand.lora {
            keys.push_str(", lora: a");
        }
        if demand.do_not_queue {
            keys.push_str(", do_not_queue: true");
        }
        self.expecting(op, keys, error);
        if demand.poison {
            self.note(&format!("r{client} is one that the host's code panics over"));
        }
    }

    /// A decode leg is booked, or refused.
    pub fn leg(&mut self, client: u32, error: Option<&Error>) {
        if self.text.is_some() {
            self.expecting("decode", format!("as: r{client}, pool: decode"), error);
        }
    }

    /// The prefill leg is over, once the decode leg runs.
    pub fn free_leg(&mut self, client: u32) {
        if self.text.is_some() {
            self.step("free", format!("as: r{client}, leg: prefill"));
        }
    }

    /// A request is moved.
    pub fn moves(&mut self, client: u32, to: Rank, error: Option<&Error>) {
        if self.text.is_some() {
            let keys = format!("as: r{client}, worker: {}, rank: {}", to.worker, to.dp_rank);
            self.expecting("move", keys, error);
        }
    }

    /// A client leaves with everything it has.
    pub fn leaves(&mut self, client: u32, end: End) {
        match end {
            End::Cancelled | End::Stopped => self.one("cancel", client),
            End::Panicked => {
                self.note(&format!("r{client} unwinds"));
                self.one("cancel", client);
            }
            End::Completed | End::GaveUp => self.one("free", client),
            End::Refused | End::Reclaimed => {}
        }
    }
}
