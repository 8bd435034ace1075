//! Which ranks may be chosen: the cost of SPEC section 6, one rank at a time, in plain f64.

use super::custom::Custom;
use super::fleet::{Fleet, names};
use super::limits::{Row, is_full};
use super::monitor::Monitor;
use super::rows::{self, Live, Load};
use super::{Config, Model, Refusal, Scope};
use std::collections::BTreeSet;
use vacancy::{Constraints, Error, Name, Overlap, Rank, Request, Thresholds, Time, Weights};

/// Two costs closer than this, relatively, are the same cost.
pub const TOLERANCE: f64 = 1e-6;

/// Whether two costs are the same to the precision that is promised.
pub fn same_cost(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

/// A rank that may be the answer, and the answer that it would be.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The rank.
    pub rank: Rank,
    /// Its worker's stable id.
    pub stable_id: Option<Name>,
    /// Its cost, in blocks.
    pub cost: f64,
    /// How likely it is the answer. Ranks that a temperature of 0 leaves equal share evenly.
    pub probability: f64,
    /// Prompt tokens that it has cached.
    pub cached_tokens: u64,
    /// Blocks that it has cached: device, host, disk.
    pub overlap: [f64; 3],
    /// The largest overlap among eligible ranks and who has it, if it is larger than this one's.
    pub forgone: Option<(f64, Vec<Rank>)>,
    /// What the request would put on it.
    pub load: Load,
    /// Whether its row can hold that.
    pub fits: bool,
}

/// Every answer that is right.
#[derive(Clone, Debug)]
pub struct Pick {
    /// The ranks that may be chosen.
    pub candidates: Vec<Candidate>,
    /// How many ranks were structurally eligible.
    pub eligible: u32,
    /// How many of those were, each by itself, past the reject thresholds; marks do not count.
    pub full: u32,
}

/// What a choice looks at.
pub struct View<'a> {
    /// The pool's settings.
    pub config: &'a Config,
    /// Who there is.
    pub fleet: &'a Fleet,
    /// The reject thresholds.
    pub thresholds: &'a Thresholds,
    /// Every live booking.
    pub bookings: Vec<&'a Live>,
    /// What the workers said.
    pub monitor: &'a Monitor,
    /// The instant.
    pub now: Time,
    /// The paired pool.
    pub pair: Option<&'a Model>,
}

impl View<'_> {
    /// The bookings on `rank`.
    fn on(&self, rank: Rank) -> Vec<&Live> {
        rows::on(self.fleet, self.bookings.iter().copied(), rank).collect()
    }

    /// What `rank` carries.
    pub fn row(&self, rank: Rank) -> Row {
        rows::sum(self.on(rank).into_iter())
    }

    /// The prompt blocks that `rank` holds.
    pub fn held(&self, rank: Rank) -> BTreeSet<u64> {
        rows::held(self.on(rank).into_iter())
    }

    /// Whether `rank` by itself is past the reject thresholds.
    pub fn full(&self, rank: Rank) -> bool {
        is_full(self.thresholds, self.row(rank), self.fleet.capacity(rank))
    }

    /// Whether `request`'s tokens are looked at and booked.
    pub fn tracks_prefill(&self, request: &Request) -> bool {
        request.overrides.and_then(|o| o.track_prefill).unwrap_or(self.config.track_prefill)
    }

    /// What `request` puts on `rank`.
    pub fn load(&self, request: &Request, rank: Rank) -> Load {
        let uncached = request.isl - self.cached_tokens(request, rank);
        let whole = request.isl.div_ceil(u64::from(self.config.block_size));
        let mut load = Load::default();
        if self.tracks_prefill(request) {
            load.prefill = uncached;
        }
        if self.config.track_blocks {
            match &request.prompt {
                Some(chain) => load.hashes = chain.hashes().to_vec(),
                None => load.own_blocks = whole,
            }
        }
        load
    }

    /// Whether `rank` can hold `load` on top of what it carries.
    pub fn fits(&self, rank: Rank, load: &Load) -> bool {
        rows::fits(self.row(rank), &self.held(rank), load)
    }

    /// Prompt tokens that `rank` has cached; a device block counts as one here whatever the
    /// device weight, and no request overrides the other two.
    pub fn cached_tokens(&self, request: &Request, rank: Rank) -> u64 {
        let w = &self.config.weights;
        let [device, host, disk] = overlap(request, rank);
        let blocks = device + w.host * host + w.disk * disk;
        let tokens = (f64::from(self.config.block_size) * blocks).floor();
        if tokens >= request.isl as f64 { request.isl } else { tokens as u64 }
    }

    /// The structurally eligible ranks that are neither marked nor full.
    ///
    /// Under the worker-wide rule a worker is judged by its structurally eligible ranks: a pin to
    /// one rank excludes its siblings, whose room is of no use to the request.
    pub fn open(&self, eligible: &[Rank]) -> Vec<Rank> {
        let open = |rank: &Rank| {
            let siblings: Vec<Rank> =
                eligible.iter().copied().filter(|s| s.worker == rank.worker).collect();
            let full = match self.config.scope {
                Scope::Rank => self.full(*rank),
                Scope::Worker => siblings.iter().all(|s| self.full(*s)),
            };
            !full && !self.marked(*rank)
        };
        eligible.iter().copied().filter(open).collect()
    }

    /// Whether `rank` carries the host's mark or the monitor's.
    pub fn marked(&self, rank: Rank) -> bool {
        self.fleet.overloaded(rank.worker, self.now) || self.monitor.marks(self, rank)
    }

    /// Every right answer to `request`.
    pub fn pick(&self, request: &Request) -> Result<Pick, Refusal> {
        self.pick_among(request, None)
    }

    /// Every right answer to `request` on the ranks `among`, if not on all that it may use.
    pub fn pick_among(&self, request: &Request, among: Option<&[Rank]>) -> Result<Pick, Refusal> {
        let eligible = self.fleet.eligible(request)?;
        let unconstrained = Constraints::new();
        let constraints = request.constraints.as_deref().unwrap_or(&unconstrained);
        let mut open = self.open(&eligible);
        open.retain(|r| among.is_none_or(|a| a.contains(r)));
        if open.is_empty() {
            return Err(match constraints.pin {
                Some(pin) => Error::PinnedWorkerOverloaded { worker: pin.worker },
                None => Error::AllEligibleWorkersOverloaded,
            }
            .into());
        }
        self.pick_of(request, &eligible, &open)
    }

    /// Every right answer to `request` on the ranks `open`, at least one, of those it may use.
    pub fn pick_of(
        &self,
        request: &Request,
        eligible: &[Rank],
        open: &[Rank],
    ) -> Result<Pick, Refusal> {
        let unconstrained = Constraints::new();
        let constraints = request.constraints.as_deref().unwrap_or(&unconstrained);
        let custom = &self.config.custom;
        let mut kept = Vec::new();
        for &rank in open {
            if custom.keeps(self, request, rank)? {
                kept.push(rank);
            }
        }
        if kept.is_empty() {
            return Err(Error::AllEligibleWorkersFiltered.into());
        }
        // A target that passes every check is exclusive; one that does not is ignored.
        if let Some(target) = constraints.affinity
            && kept.iter().any(|r| names(target, *r))
        {
            kept.retain(|r| names(target, *r));
        }
        let mut costs = Vec::new();
        for &rank in &kept {
            costs.push(self.cost(request, rank, eligible, custom)?);
        }
        let temperature = self.weights(request).temperature;
        let shares = custom.shares(&costs, temperature)?;
        let candidates = kept
            .iter()
            .zip(&costs)
            .zip(shares)
            .filter(|(_, share)| *share > 0.0)
            .map(|((rank, cost), share)| self.candidate(request, *rank, *cost, share, eligible))
            .collect();
        Ok(Pick {
            candidates,
            eligible: eligible.len() as u32,
            full: eligible.iter().filter(|r| self.full(**r)).count() as u32,
        })
    }

    fn candidate(
        &self,
        request: &Request,
        rank: Rank,
        cost: f64,
        probability: f64,
        eligible: &[Rank],
    ) -> Candidate {
        let blocks = |r: Rank| overlap(request, r).iter().sum::<f64>();
        let most = eligible.iter().map(|r| blocks(*r)).fold(0.0, f64::max);
        let forgone = (most > blocks(rank)).then(|| {
            (most, eligible.iter().copied().filter(|r| blocks(*r) == most).collect::<Vec<_>>())
        });
        let load = self.load(request, rank);
        Candidate {
            rank,
            stable_id: self.fleet.workers[&rank.worker].spec.stable_id.clone(),
            cost,
            probability,
            cached_tokens: self.cached_tokens(request, rank),
            overlap: overlap(request, rank),
            forgone,
            fits: self.fits(rank, &load),
            load,
        }
    }

    fn weights(&self, request: &Request) -> Weights {
        let mut w = self.config.weights;
        if let Some(o) = request.overrides {
            w.device = o.device.unwrap_or(w.device);
            w.prefill_scale = o.prefill_scale.unwrap_or(w.prefill_scale);
            w.shared = o.shared.unwrap_or(w.shared);
            w.temperature = o.temperature.unwrap_or(w.temperature);
        }
        w
    }

    fn cost(
        &self,
        request: &Request,
        rank: Rank,
        eligible: &[Rank],
        custom: &Custom,
    ) -> Result<f64, Refusal> {
        let block_size = f64::from(self.config.block_size);
        let w = self.weights(request);
        let row = self.row(rank);
        let prefill = |r: Rank| self.row(r).prefill_tokens;
        let tracked = self.tracks_prefill(request);

        // The least loaded eligible rank, marked or not, and the request's own size in whole blocks.
        let least = eligible.iter().map(|r| prefill(*r)).min().unwrap_or(0);
        let excess_blocks = (row.prefill_tokens - least) as f64 / block_size;
        let request_blocks = request.isl.div_ceil(u64::from(self.config.block_size)) as f64;
        let decay = 1.0 + w.decay * excess_blocks / request_blocks.max(1.0);

        let [device, host, disk] = overlap(request, rank);
        let beyond = shared_beyond(request, device) as f64;
        let credit = w.device / decay * device + w.host * host + w.disk * disk + w.shared * beyond;

        let load = self.load(request, rank);
        let held = self.held(rank);
        let blocks = if self.config.track_blocks {
            (row.kv_blocks + load.new_blocks(&held)) as f64
        } else {
            0.0
        };
        let requests = w.request * row.requests as f64;

        let plain = if tracked {
            let raw_prefill = (row.prefill_tokens + request.isl) as f64;
            w.prefill_scale * (raw_prefill / block_size - credit).max(0.0) + blocks + requests
        } else if w.device > 0.0 && request.overlaps.is_some() {
            (blocks - credit).max(0.0) + requests
        } else {
            blocks + requests
        };
        // A host's scorer has the last word: it sees the cost with the preferred taints in it.
        custom.score(self, request, rank, plain * self.preference(request, rank))
    }

    /// The product of the factors of all preferred taints that the rank's worker has.
    fn preference(&self, request: &Request, rank: Rank) -> f64 {
        let taints = &self.fleet.workers[&rank.worker].spec.taints;
        let prefer = request.constraints.iter().flat_map(|c| &c.prefer);
        prefer.filter(|(t, _)| taints.contains(t)).map(|(_, factor)| factor).product()
    }
}

/// What `rank` has cached of the prompt: device, host, disk. Of two entries the last stands.
pub fn overlap(request: &Request, rank: Rank) -> [f64; 3] {
    let of = |o: &Overlap| [o.device, o.host, o.disk];
    let listed = request.overlaps.iter().flat_map(|list| list.iter());
    listed.rev().find(|o| o.rank == rank).map_or([0.0; 3], of)
}

/// How many shared hits lie at positions `>= device`; ranges are half-open.
pub fn shared_beyond(request: &Request, device: f64) -> u64 {
    let first = device.ceil().min(4_294_967_296.0) as u64;
    let beyond =
        |r: &std::ops::Range<u32>| u64::from(r.end).saturating_sub(first.max(u64::from(r.start)));
    request.shared.iter().map(beyond).sum()
}

/// How likely each of `costs` is drawn.
///
/// At temperature 0 all costs that equal the minimum to the promised precision share evenly. Above
/// it each weighs `exp(-(cost - min) / (max - min) / T)`, and all the same if they are all equal.
pub fn shares(costs: &[f64], temperature: f64) -> Vec<f64> {
    let min = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let max = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weigh = |cost: f64| {
        if temperature == 0.0 {
            f64::from(u8::from(same_cost(cost, min)))
        } else if max == min {
            1.0
        } else {
            (-(cost - min) / (max - min) / temperature).exp()
        }
    };
    let weights: Vec<f64> = costs.iter().map(|c| weigh(*c)).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: &[f64], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        got.iter().zip(want).for_each(|(g, w)| assert!((g - w).abs() < 1e-9, "{got:?} {want:?}"));
    }

    #[test]
    fn at_temperature_0_the_equal_minima_share() {
        close(&shares(&[2.0, 1.0, 1.0, 3.0], 0.0), &[0.0, 0.5, 0.5, 0.0]);
        close(&shares(&[5.0], 0.0), &[1.0]);
        close(&shares(&[0.0, 0.0], 0.0), &[0.5, 0.5]);
    }

    #[test]
    fn temperature_follows_the_exponential_of_the_scaled_distance() {
        // exp(0), exp(-1/2 / 0.5), exp(-1 / 0.5): 1, 0.36788, 0.13534.
        let total = 1.0 + (-1.0f64).exp() + (-2.0f64).exp();
        let want = [1.0 / total, (-1.0f64).exp() / total, (-2.0f64).exp() / total];
        close(&shares(&[10.0, 11.0, 12.0], 0.5), &want);
        close(&shares(&[4.0, 4.0], 0.5), &[0.5, 0.5]);
    }

    #[test]
    fn shared_hits_are_counted_from_the_device_blocks_on() {
        let r = Request::new(64).shared([0..3, 5..7]);
        assert_eq!(shared_beyond(&r, 0.0), 5);
        assert_eq!(shared_beyond(&r, 2.0), 3);
        assert_eq!(shared_beyond(&r, 2.5), 2);
        assert_eq!(shared_beyond(&r, 6.0), 1);
        assert_eq!(shared_beyond(&r, 1e12), 0);
    }

    #[test]
    fn of_two_overlaps_for_one_rank_the_last_stands() {
        let rank = Rank::new(1, 0);
        let r = Request::new(64).overlaps([Overlap::device(rank, 3.0), Overlap::device(rank, 1.0)]);
        assert_eq!(overlap(&r, rank), [1.0, 0.0, 0.0]);
        assert_eq!(overlap(&r, Rank::new(1, 1)), [0.0; 3]);
    }
}
