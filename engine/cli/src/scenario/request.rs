//! From the keys of a file to the engine's own types.
#![forbid(unsafe_code)]

use super::file::{Ask, ConstraintKeys, OverrideKeys, PoolKeys, Scope, TargetKeys, ThresholdKeys};
use super::file::{WeightKeys, WorkerKeys};
use super::yaml::{Flag, Int, Pairs, Real};
use vacancy::{
    Change, Constraints, Error, Name, Overlap, Overrides, Pool, PoolBuilder, Prompt, Rank,
    RejectScope, Request, RequestId, Target, Thresholds, ThresholdsUpdate, Time, Weights, WorkerId,
    WorkerSpec,
};

/// The id of a name: its 128-bit FNV-1a hash, the same on every machine and in every version.
pub fn id_of(name: &str) -> RequestId {
    const BASIS: u128 = 0x6c62272e07bb014262b821756295c58d;
    const PRIME: u128 = 0x0000000001000000000000000000013b;
    RequestId(name.bytes().fold(BASIS, |h, b| (h ^ u128::from(b)).wrapping_mul(PRIME)))
}

/// A pool as `keys` declare it, but for its policy and its pair.
pub fn builder(keys: &PoolKeys, seed: u64) -> PoolBuilder {
    // A lease would end what a scenario holds on to; it says so if it wants one.
    let mut b = Pool::builder().seed(seed).lease(keys.lease_s.map(|s| s.duration()));
    if let Some(Int(tokens)) = keys.block_size {
        b = b.block_size(tokens);
    }
    if let Some(Flag(track)) = keys.track_prefill {
        b = b.track_prefill(track);
    }
    if let Some(Flag(track)) = keys.track_blocks {
        b = b.track_blocks(track);
    }
    if let Some(w) = &keys.weights {
        b = b.weights(weights(w));
    }
    if let Some(scope) = keys.reject_scope {
        b = b.reject_scope(match scope {
            Scope::Worker => RejectScope::Worker,
            Scope::Rank => RejectScope::Rank,
        });
    }
    if let Some(ttl) = keys.signal_ttl_ms {
        b = b.signal_ttl(ttl.duration());
    }
    if let Some(Int(router)) = keys.router_id {
        b = b.router_id(router);
    }
    if let Some(Flag(holds)) = keys.holds {
        b = b.holds(holds);
    }
    b
}

fn weights(keys: &WeightKeys) -> Weights {
    let mut w = Weights::default();
    for (to, from) in [
        (&mut w.device, keys.device),
        (&mut w.host, keys.host),
        (&mut w.disk, keys.disk),
        (&mut w.shared, keys.shared),
        (&mut w.prefill_scale, keys.prefill_scale),
        (&mut w.request, keys.request),
        (&mut w.decay, keys.decay),
        (&mut w.temperature, keys.temperature),
    ] {
        if let Some(Real(v)) = from {
            *to = v;
        }
    }
    w
}

/// A worker as `keys` declare it.
///
/// # Errors
/// `InvalidConfig`: a number that the engine's field could not even hold.
pub fn worker(keys: &WorkerKeys) -> Result<WorkerSpec, Error> {
    let narrow = |field: &'static str, v: Option<Int<u64>>, default: u32| match v {
        None => Ok(default),
        Some(Int(v)) => u32::try_from(v)
            .map_err(|_| Error::InvalidConfig { field: field.into(), value: v.to_string() }),
    };
    let start = narrow("data_parallel_start_rank", keys.dp_start, 0)?;
    let size = narrow("data_parallel_size", keys.ranks, 1)?;
    let mut spec = WorkerSpec::new(keys.worker.0).ranks(start, size);
    spec.total_kv_blocks = keys.total_kv_blocks.map(|n| n.0);
    spec.max_num_batched_tokens = keys.max_num_batched_tokens.map(|n| n.0);
    spec.taints = names(&keys.taints);
    spec.loras = names(&keys.loras);
    spec.domains = domain(&keys.domains);
    Ok(spec)
}

fn names(texts: &Option<Vec<String>>) -> Vec<Name> {
    texts.iter().flatten().map(|t| Name::new(t)).collect()
}

fn domain(pairs: &Option<Pairs<String>>) -> Vec<(Name, Name)> {
    let pairs = pairs.iter().flat_map(|p| &p.0);
    pairs.map(|(level, value)| (Name::new(level), Name::new(value))).collect()
}

fn target(keys: &TargetKeys) -> Target {
    Target { worker: WorkerId(keys.worker.0), dp_rank: keys.rank.map(|r| r.0) }
}

fn workers(ids: &[Int<u64>]) -> Vec<WorkerId> {
    ids.iter().map(|id| WorkerId(id.0)).collect()
}

fn constraints(keys: &ConstraintKeys) -> Constraints {
    let mut c = Constraints::new();
    c.pin = keys.pin.as_ref().map(target);
    c.affinity = keys.affinity.as_ref().map(target);
    c.allow = keys.allow.as_deref().map(workers);
    c.deny = keys.deny.as_deref().map(workers).unwrap_or_default();
    c.taints = names(&keys.taints);
    c.domain = domain(&keys.domain);
    let prefer = keys.prefer.iter().flat_map(|p| &p.0);
    c.prefer = prefer.map(|(taint, factor)| (Name::new(taint), factor.0)).collect();
    c
}

/// The constraints that a request has at its own hop.
pub fn own_constraints(ask: &Ask) -> Constraints {
    constraints(&ConstraintKeys {
        pin: ask.pin.clone(),
        affinity: ask.affinity.clone(),
        allow: ask.allow.clone(),
        deny: ask.deny.clone(),
        taints: ask.taints.clone(),
        prefer: ask.prefer.clone(),
        domain: ask.domain.clone(),
    })
}

fn overrides(keys: &OverrideKeys) -> Overrides {
    let mut o = Overrides::default();
    o.device = keys.device.map(|v| v.0);
    o.prefill_scale = keys.prefill_scale.map(|v| v.0);
    o.shared = keys.shared.map(|v| v.0);
    o.temperature = keys.temperature.map(|v| v.0);
    o.track_prefill = keys.track_prefill.map(|v| v.0);
    o
}

/// The request that `ask` makes at `now`; `first_rank` gives the rank of a worker for overlaps
/// that name none.
///
/// # Errors
/// `InvalidRequest`: the hashes are no chain.
pub fn request(ask: &Ask, now: Time, first_rank: impl Fn(u64) -> u32) -> Result<Request, Error> {
    let mut r = Request::new(ask.isl.0).at(now);
    if let Some(hashes) = &ask.hashes {
        let hashes: Vec<u64> = hashes.iter().map(|h| h.0).collect();
        r = r.prompt(Prompt::new(hashes)?);
    }
    let blocks = |v: Option<Real>| v.map_or(0.0, |v| v.0);
    let overlaps = ask.overlaps.iter().flatten().map(|o| Overlap {
        rank: Rank::new(o.worker.0, o.rank.map_or_else(|| first_rank(o.worker.0), |r| r.0)),
        device: blocks(o.device),
        host: blocks(o.host),
        disk: blocks(o.disk),
    });
    r = r.overlaps(overlaps.collect::<Vec<_>>());
    r = r.shared(ask.shared.iter().flatten().map(|(from, to)| from.0..to.0));
    let own = own_constraints(ask);
    if own != Constraints::new() {
        r = r.constraints(own);
    }
    r.decode = ask.decode.as_ref().map(|c| constraints(c).into());
    r.lora = ask.lora.as_deref().map(Name::new);
    r.class = ask.class.as_deref().map(Name::new);
    r.strict_priority = ask.strict_priority.map_or(0, |p| p.0);
    r.priority_jump = ask.priority_jump.map_or(0.0, |p| p.0);
    r.due = ask.due_ms.map(|ms| ms.instant());
    r.overrides = ask.weights.as_ref().map(overrides);
    r.do_not_queue = ask.do_not_queue.is_some_and(|f| f.0);
    r.upstream = ask.upstream.is_some_and(|f| f.0);
    Ok(r)
}

/// Does to a pool's reject thresholds what `keys` say.
///
/// # Errors
/// `InvalidConfig`; what was in force stays.
pub fn put_thresholds(pool: &Pool, keys: &ThresholdKeys) -> Result<(), Error> {
    let rejects = pool.reject_thresholds();
    if keys.clear.is_some_and(|f| f.0) {
        rejects.clear();
        return Ok(());
    }
    let tokens = keys.prefill_tokens.map(|v| v.map(|v| v.0));
    let prefill = keys.prefill_frac.map(|v| v.map(|v| v.0));
    let decode = keys.decode_frac.map(|v| v.map(|v| v.0));
    if keys.set.is_some_and(|f| f.0) {
        let mut all = Thresholds::NONE;
        all.prefill_tokens = tokens.flatten();
        all.prefill_frac = prefill.flatten();
        all.decode_frac = decode.flatten();
        return rejects.set(all);
    }
    fn change<T>(given: Option<Option<T>>) -> Change<T> {
        match given {
            None => Change::Keep,
            Some(None) => Change::Unset,
            Some(Some(v)) => Change::Set(v),
        }
    }
    rejects.update(ThresholdsUpdate {
        prefill_tokens: change(tokens),
        prefill_frac: change(prefill),
        decode_frac: change(decode),
    })
}

/// The decode leg of a request that was admitted at the prefill hop: the same prompt and adapter,
/// the constraints it brought for this hop, and nothing of what it said about the other one. Its
/// hashes are of the first pool's blocks; where the second's have another size they say nothing.
pub fn leg(first: &Request, now: Time, pools: [&Pool; 2]) -> Request {
    let mut leg = Request::new(first.isl).at(now).upstream();
    let [first_pool, second] = pools;
    if first_pool.block_size() == second.block_size() {
        leg.prompt = first.prompt.clone();
    }
    leg.constraints = first.decode.clone();
    leg.lora = first.lora.clone();
    leg
}

/// A pool that could not be built.
pub fn unbuilt(name: &str, error: &Error) -> String {
    format!("pool `{name}` cannot be built: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_fnv_1a_hash_of_its_name() {
        // The test vectors that FNV publishes for 128 bits.
        assert_eq!(id_of("").0, 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(id_of("a").0, 0xd228cb696f1a8caf78912b704e4a8964);
        assert_eq!(id_of("foobar").0, 0x343e1662793c64bf6f0d3597ba446f18);
    }
}
