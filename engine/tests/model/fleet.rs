//! Who there is, and who may take a request.

use super::Refusal;
use super::limits::Capacity;
use super::shared::Shared;
use std::collections::BTreeMap;
use vacancy::{Constraints, Error, Name, Rank, Request, Target, Time, WorkerId, WorkerSpec};

/// One worker: what it declared, the host's marks, and which life each of its ranks is in.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What the host declared last.
    pub spec: WorkerSpec,
    /// Whether the host lets it take requests.
    pub available: bool,
    /// The host's overload mark and when it ends by itself (`None` inside: never).
    pub overloaded: Option<Option<Time>>,
    /// The incarnation of each rank; a rank that leaves and returns gets another one.
    pub lives: BTreeMap<u32, u64>,
}

/// All workers.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// By id.
    pub workers: Shared<BTreeMap<WorkerId, Worker>>,
    lives_given: u64,
}

impl Fleet {
    /// Takes a spec that was found valid. An upsert keeps the marks of the worker, which it does
    /// not speak of, and the lives of the ranks it still declares.
    pub fn upsert(&mut self, spec: WorkerSpec) {
        let before = self.workers.remove(&spec.id);
        let (available, overloaded, old) = match before {
            Some(w) => (w.available, w.overloaded, w.lives),
            None => (true, None, BTreeMap::new()),
        };
        let start = spec.data_parallel_start_rank;
        let mut lives = BTreeMap::new();
        for i in 0..spec.data_parallel_size {
            let dp_rank = start + i;
            let life = old.get(&dp_rank).copied().unwrap_or_else(|| {
                self.lives_given += 1;
                self.lives_given
            });
            lives.insert(dp_rank, life);
        }
        self.workers.insert(spec.id, Worker { spec, available, overloaded, lives });
    }

    /// Every rank there is.
    pub fn ranks(&self) -> Vec<Rank> {
        let of = |(id, w): (&WorkerId, &Worker)| {
            w.lives.keys().map(|&dp_rank| Rank { worker: *id, dp_rank }).collect::<Vec<_>>()
        };
        self.workers.iter().flat_map(of).collect()
    }

    /// The life that `rank` is in now, if it is declared.
    pub fn life(&self, rank: Rank) -> Option<u64> {
        self.workers.get(&rank.worker)?.lives.get(&rank.dp_rank).copied()
    }

    /// What `rank` can carry.
    pub fn capacity(&self, rank: Rank) -> Capacity {
        let spec = &self.workers[&rank.worker].spec;
        Capacity {
            max_num_batched_tokens: spec.max_num_batched_tokens,
            total_kv_blocks: spec.total_kv_blocks,
        }
    }

    /// Whether the host's overload mark is on `worker` at `now`. A lease that ends at `now` is
    /// over: past means `now >= due`, here as everywhere.
    pub fn overloaded(&self, worker: WorkerId, now: Time) -> bool {
        match self.workers[&worker].overloaded {
            None => false,
            Some(None) => true,
            Some(Some(until)) => now < until,
        }
    }

    /// The structurally eligible ranks of `request` at this hop, in the order of SPEC section 5.
    pub fn eligible(&self, request: &Request) -> Result<Vec<Rank>, Refusal> {
        let unconstrained = Constraints::new();
        let c = request.constraints.as_deref().unwrap_or(&unconstrained);
        self.meets(c, request.lora.as_ref())
    }

    /// The ranks that meet `c` and `lora`.
    ///
    /// A pinned worker outside the allowed set is an error of its own, whether or not that worker
    /// exists; one that is denied is not eligible like any other denied worker.
    pub fn meets(&self, c: &Constraints, lora: Option<&Name>) -> Result<Vec<Rank>, Refusal> {
        if let (Some(pin), Some(allow)) = (c.pin, &c.allow)
            && !allow.contains(&pin.worker)
        {
            return Err(Error::PinnedWorkerNotAllowed { worker: pin.worker }.into());
        }
        let base: Vec<Rank> = self.ranks().into_iter().filter(|r| self.passes(c, *r)).collect();
        let adapted: Vec<Rank> = base.iter().copied().filter(|r| self.serves(lora, *r)).collect();
        let narrowed = if adapted.is_empty() { &base } else { &adapted };
        let eligible: Vec<Rank> = match c.pin {
            // A pin inside the set is kept, whatever the worker has loaded.
            Some(pin) => base.iter().copied().filter(|r| names(pin, *r)).collect(),
            None => narrowed.clone(),
        };
        if eligible.is_empty() { Err(Error::NoEndpoints.into()) } else { Ok(eligible) }
    }

    fn passes(&self, c: &Constraints, rank: Rank) -> bool {
        let w = &self.workers[&rank.worker];
        let allowed = c.allow.as_ref().is_none_or(|a| a.contains(&rank.worker));
        let denied = c.deny.contains(&rank.worker);
        let tainted = c.taints.iter().all(|t| w.spec.taints.contains(t));
        let placed = c.domain.iter().all(|want| w.spec.domains.contains(want));
        allowed && !denied && w.available && tainted && placed
    }

    fn serves(&self, lora: Option<&Name>, rank: Rank) -> bool {
        lora.is_none_or(|l| self.workers[&rank.worker].spec.loras.contains(l))
    }
}

/// Whether `target` names `rank`.
pub fn names(target: Target, rank: Rank) -> bool {
    target.worker == rank.worker && target.dp_rank.is_none_or(|d| d == rank.dp_rank)
}

/// Names of the fields of `spec` that no pool may take.
pub fn invalid(spec: &WorkerSpec) -> Vec<&'static str> {
    let mut bad = Vec::new();
    if spec.data_parallel_size == 0 || spec.data_parallel_size > 4096 {
        bad.push("data_parallel_size");
    }
    let end = u64::from(spec.data_parallel_start_rank) + u64::from(spec.data_parallel_size);
    if end > 1 << 32 {
        bad.push("data_parallel_start_rank");
    }
    let levels: Vec<&Name> = spec.domains.iter().map(|(level, _)| level).collect();
    if (0..levels.len()).any(|i| levels[..i].contains(&levels[i])) {
        bad.push("domains");
    }
    bad
}

/// Whether going from `old` to `new` can give a request room or a worker it may use: every event
/// of SPEC section 2 that is about the fleet. Marks that end by the clock are the caller's.
pub fn loosened(old: &Fleet, new: &Fleet) -> bool {
    let same =
        |(id, w): (&WorkerId, &Worker)| new.workers.get(id).is_some_and(|now| now.lives == w.lives);
    if old.workers.len() != new.workers.len() || !old.workers.iter().all(same) {
        return true;
    }
    let raised = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(_), None) => true,
        (Some(a), Some(b)) => b > a,
        (None, _) => false,
    };
    // 0 blocks is unknown as well, and no check distinguishes the two.
    let blocks = |s: &WorkerSpec| s.total_kv_blocks.filter(|&b| b > 0);
    old.workers.iter().any(|(id, a)| {
        let b = &new.workers[id];
        raised(a.spec.max_num_batched_tokens, b.spec.max_num_batched_tokens)
            || raised(blocks(&a.spec), blocks(&b.spec))
            || others(&a.spec.taints, &b.spec.taints)
            || others(&a.spec.domains, &b.spec.domains)
            || others(&a.spec.loras, &b.spec.loras)
            || (!a.available && b.available)
            || (a.overloaded.is_some() && b.overloaded.is_none())
    })
}

/// Whether there are others in a list, whatever their order.
fn others<T: Ord + Clone>(a: &[T], b: &[T]) -> bool {
    a != b && sorted(a) != sorted(b)
}

fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort();
    list.dedup();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(specs: impl IntoIterator<Item = WorkerSpec>) -> Fleet {
        let mut f = Fleet::default();
        specs.into_iter().for_each(|s| f.upsert(s));
        f
    }

    fn may(f: &Fleet, c: Constraints, lora: Option<&str>) -> Result<Vec<(u64, u32)>, Refusal> {
        let ranks = f.meets(&c, lora.map(Name::new).as_ref())?;
        Ok(ranks.into_iter().map(|r| (r.worker.0, r.dp_rank)).collect())
    }

    fn none() -> Result<Vec<(u64, u32)>, Refusal> {
        Err(Error::NoEndpoints.into())
    }

    #[test]
    fn a_rank_that_an_upsert_keeps_stays_in_its_life_and_a_returned_one_does_not() {
        let mut f = fleet([WorkerSpec::new(1).ranks(0, 2)]);
        let (zero, one) = (f.life(Rank::new(1, 0)), f.life(Rank::new(1, 1)));
        f.upsert(WorkerSpec::new(1).ranks(1, 2));
        assert_eq!(f.life(Rank::new(1, 0)), None);
        assert_eq!(f.life(Rank::new(1, 1)), one);
        f.upsert(WorkerSpec::new(1).ranks(0, 2));
        assert_ne!(f.life(Rank::new(1, 0)), zero);
        assert_eq!(f.life(Rank::new(1, 1)), one);
    }

    #[test]
    fn a_given_but_empty_allowed_set_allows_nobody() {
        let f = fleet([WorkerSpec::new(1), WorkerSpec::new(2)]);
        assert_eq!(may(&f, Constraints::new().allow([]), None), none());
        assert_eq!(may(&f, Constraints::new(), None), Ok(vec![(1, 0), (2, 0)]));
        assert_eq!(may(&f, Constraints::new().allow([2, 3]), None), Ok(vec![(2, 0)]));
        assert_eq!(may(&f, Constraints::new().deny([2]), None), Ok(vec![(1, 0)]));
    }

    #[test]
    fn a_pin_outside_the_allowed_set_differs_from_one_that_is_denied_or_unknown() {
        let f = fleet([WorkerSpec::new(1).ranks(4, 2), WorkerSpec::new(2)]);
        let pin = |t| Constraints::new().pin(t);
        let refused = Error::PinnedWorkerNotAllowed { worker: WorkerId(1) }.into();
        assert_eq!(may(&f, pin(Target::worker(1)).allow([2]), None), Err(refused));
        assert_eq!(may(&f, pin(Target::worker(1)).deny([1]), None), none());
        assert_eq!(may(&f, pin(Target::worker(3)), None), none());
        assert_eq!(may(&f, pin(Target::rank(1, 3)), None), none());
        assert_eq!(may(&f, pin(Target::rank(1, 5)), None), Ok(vec![(1, 5)]));
        assert_eq!(may(&f, pin(Target::worker(1)), None), Ok(vec![(1, 4), (1, 5)]));
    }

    #[test]
    fn an_adapter_narrows_unless_that_would_leave_nobody() {
        let f = fleet([
            WorkerSpec::new(1).lora("a"),
            WorkerSpec::new(2).taint("x"),
            WorkerSpec::new(3).taint("x").lora("b"),
        ]);
        assert_eq!(may(&f, Constraints::new(), Some("a")), Ok(vec![(1, 0)]));
        assert_eq!(may(&f, Constraints::new().taint("x"), Some("b")), Ok(vec![(3, 0)]));
        // Nobody with the taint has the adapter: the set before narrowing stands.
        assert_eq!(may(&f, Constraints::new().taint("x"), Some("a")), Ok(vec![(2, 0), (3, 0)]));
        // A pin inside the set is kept although another worker serves the adapter.
        let pinned = Constraints::new().pin(Target::worker(2));
        assert_eq!(may(&f, pinned, Some("a")), Ok(vec![(2, 0)]));
    }

    #[test]
    fn taints_and_domains_must_all_be_met_and_unavailable_workers_are_out() {
        let mut f = fleet([
            WorkerSpec::new(1).taint("x").taint("y").domain("zone", "a").domain("rack", "1"),
            WorkerSpec::new(2).taint("x").domain("zone", "a"),
        ]);
        assert_eq!(may(&f, Constraints::new().taint("x").taint("y"), None), Ok(vec![(1, 0)]));
        let both = Constraints::new().domain("zone", "a").domain("rack", "1");
        assert_eq!(may(&f, both, None), Ok(vec![(1, 0)]));
        assert_eq!(may(&f, Constraints::new().domain("zone", "b"), None), none());
        f.workers.get_mut(&WorkerId(1)).unwrap().available = false;
        assert_eq!(may(&f, Constraints::new().taint("x"), None), Ok(vec![(2, 0)]));
        assert_eq!(may(&f, Constraints::new().taint("y"), None), none());
    }

    #[test]
    fn a_mark_with_a_lease_ends_by_itself_at_that_time() {
        let mut f = fleet([WorkerSpec::new(1)]);
        let until = Time::from_millis(50);
        f.workers.get_mut(&WorkerId(1)).unwrap().overloaded = Some(Some(until));
        assert!(f.overloaded(WorkerId(1), Time::from_millis(49)));
        assert!(!f.overloaded(WorkerId(1), until));
    }

    #[test]
    fn bad_specs_name_the_field() {
        assert_eq!(invalid(&WorkerSpec::new(1).ranks(0, 0)), ["data_parallel_size"]);
        assert_eq!(invalid(&WorkerSpec::new(1).ranks(0, 4097)), ["data_parallel_size"]);
        assert_eq!(invalid(&WorkerSpec::new(1).ranks(u32::MAX, 2)), ["data_parallel_start_rank"]);
        assert!(invalid(&WorkerSpec::new(1).ranks(u32::MAX, 1)).is_empty());
        assert!(invalid(&WorkerSpec::new(1).ranks(0, 4096)).is_empty());
        let twice = WorkerSpec::new(1).domain("zone", "a").domain("zone", "b");
        assert_eq!(invalid(&twice), ["domains"]);
    }
}
