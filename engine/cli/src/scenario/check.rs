//! What a scenario file must hold beyond its types: pools that are declared, keys that go together,
//! expectations about what the step returns, and sizes that end.
#![forbid(unsafe_code)]

use super::file::{Ask, Op, PeerEvent, PeerKeys, Scenario, Step, ThresholdKeys};
use super::yaml::{Place, Wrong};

/// Most requests that all `times` of one file may add up to.
const MAX_REQUESTS: u64 = 1_000_000;
/// Most pools of one file.
const MAX_POOLS: usize = 256;

impl Scenario {
    /// Checks what can be checked without running it.
    ///
    /// # Errors
    /// [`Wrong`], with the place of the pool or the step.
    pub fn check(&self) -> Result<(), Wrong> {
        if self.pools.is_empty() {
            return Err(Wrong::file("`pools` is empty: declare one pool at least"));
        }
        if self.pools.len() > MAX_POOLS {
            let n = self.pools.len();
            return Err(Wrong::file(format!("{n} pools, of which {MAX_POOLS} are allowed")));
        }
        for (name, keys) in &self.pools {
            if let Some(pair) = &keys.value.pair {
                let at = keys.referenced.into();
                if pair == name {
                    let message =
                        format!("pool `{name}` is paired with itself: name its decode pool");
                    return Err(Wrong::at(at, message));
                }
                self.known(pair, at)?;
                if self.depth(name).is_none() {
                    let message = format!("pool `{name}` waits on itself through its pairs");
                    return Err(Wrong::at(at, message));
                }
            }
        }
        let mut requests = 0u64;
        for step in &self.steps {
            requests = requests.saturating_add(step.op.times().unwrap_or(1));
            if requests > MAX_REQUESTS {
                return Err(Wrong::at(
                    step.at,
                    format!("more than {MAX_REQUESTS} requests in one file: lower `times`"),
                ));
            }
            if let Some(pool) = step.op.pool() {
                self.known(pool, step.at)?;
            }
            step.check().map_err(|message| Wrong::at(step.at, message))?;
        }
        Ok(())
    }

    /// How many pairs stand behind a pool, one behind the other; `None` if they run in a circle.
    fn depth(&self, name: &str) -> Option<usize> {
        let pair_of = |name: &str| {
            let (_, keys) = self.pools.iter().find(|(n, _)| n == name)?;
            keys.value.pair.as_deref()
        };
        let mut at = name;
        for depth in 0..=self.pools.len() {
            match pair_of(at) {
                None => return Some(depth),
                Some(pair) => at = pair,
            }
        }
        None
    }

    /// The pools by index, each after the pool it is paired with.
    pub fn pairs_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.pools.len()).collect();
        order.sort_by_cached_key(|&i| self.depth(&self.pools[i].0));
        order
    }

    fn known(&self, pool: &str, at: Place) -> Result<(), Wrong> {
        if self.pools.iter().any(|(name, _)| name == pool) {
            return Ok(());
        }
        let names: Vec<_> = self.pools.iter().map(|(name, _)| name.as_str()).collect();
        Err(Wrong::at(
            at,
            format!("there is no pool `{pool}`: `pools` declares {}", names.join(", ")),
        ))
    }
}

impl Step {
    fn check(&self) -> Result<(), String> {
        match &self.op {
            Op::Upsert(k) if k.pool.is_none() => {
                return Err("`upsert` needs `pool`".into());
            }
            Op::Reconcile(k) if k.workers.iter().any(|w| w.pool.is_some()) => {
                return Err("`pool` inside `workers`: `reconcile` names its pool once, beside \
                            `workers`"
                    .into());
            }
            Op::Thresholds(k) => k.check()?,
            Op::Select(k) | Op::Book(k) | Op::Admit(k) => k.check(self.op.key())?,
            Op::Peer(k) => k.check()?,
            _ => {}
        }
        match &self.expect {
            Some(expect) => expect.check(&self.op),
            None => Ok(()),
        }
    }
}

impl ThresholdKeys {
    fn check(&self) -> Result<(), String> {
        let clear = self.clear.is_some_and(|f| f.0);
        let set = self.set.is_some_and(|f| f.0);
        let fields = self.prefill_tokens.is_some()
            || self.prefill_frac.is_some()
            || self.decode_frac.is_some();
        if clear && (set || fields) {
            return Err("`clear: true` turns all thresholds off: leave out everything else".into());
        }
        Ok(())
    }
}

impl Ask {
    fn check(&self, op: &str) -> Result<(), String> {
        if self.name.is_none() && (op != "select" || self.times.is_some()) {
            return Err(format!("`{op}` needs `as`: the request's name"));
        }
        if self.times.is_some_and(|n| n.0 == 0) {
            return Err("`times: 0` asks for nothing: leave the step out".into());
        }
        for (from, to) in self.shared.iter().flatten() {
            if from.0 > to.0 {
                return Err(format!(
                    "`shared: [[{}, {}]]` ends before it starts: write [from, to)",
                    from.0, to.0
                ));
            }
        }
        Ok(())
    }
}

impl PeerKeys {
    /// Each event has its own keys, and needs them all.
    fn check(&self) -> Result<(), String> {
        use PeerEvent::*;
        let given = [
            ("seq", self.seq.is_some()),
            ("id", self.id.is_some()),
            ("worker", self.worker.is_some()),
            ("prefill_tokens", self.prefill_tokens.is_some()),
            ("kv_blocks", self.kv_blocks.is_some()),
            ("blocks", self.blocks.is_some()),
        ];
        let needed: &[&str] = match self.event {
            Add | Move => &["seq", "id", "worker"],
            PrefillCompleted | Free => &["seq", "id"],
            Output => &["seq", "id", "blocks"],
            Gone => &[],
        };
        match given.iter().find(|(key, there)| needed.contains(key) && !there) {
            Some((key, _)) => Err(format!("this `peer` event needs `{key}`")),
            None => Ok(()),
        }
    }
}
