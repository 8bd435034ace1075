//! The paired pool: whether it has room, what is set aside there, and the decode leg.
//!
//! Where the contract is silent:
//!
//! - A decode pool that was closed counts as one that is gone: it reports room, and holds nothing.
//! - Preferences and a session-affinity target of the decode side are no constraints: nobody is
//!   refused for them. Nor is anybody for an adapter.
//! - Decode-side constraints are looked at for classes with a decode fraction only.
//! - A hold that the cheapest rank's row cannot show refuses the request with `RowOverflow` of that
//!   rank, as the booking would have been.
//! - A hold that is kept under an id replaces one that is there; its lease is counted from then on.
//!   That is when the host takes the answer, and not before: until then the admission may be
//!   withdrawn, which leaves the old one as it was ("If it was already booked but not yet seen, the
//!   booking is given back").
//! - A leg in its hold's place is judged by the row without the hold; nothing but its rank is
//!   looked at, so that the answer's other figures are of that rank alone.

use super::answer::{LegPick, Outcome, Refusal};
use super::choose::Pick;
use super::limits::is_full;
use super::op::{Leg, LegRequest, Nth, Op, chain};
use super::rows::Kind;
use super::{For, Model, Pending, Scope};
use std::collections::BTreeMap;
use vacancy::{Constraints, Error, Rank, Request, RequestId, Thresholds};

/// The request as the decode pool sees it: none of the prefill side's constraints or overlaps.
pub fn at_decode(request: &Request) -> Request {
    let mut leg = Request::new(request.isl).at(request.now);
    leg.prompt = request.prompt.clone();
    leg.constraints = request.decode.clone();
    leg.lora = request.lora.clone();
    leg.seed = request.seed;
    leg
}

fn hard(c: &Constraints) -> bool {
    c.pin.is_some()
        || c.allow.is_some()
        || !c.deny.is_empty()
        || !c.taints.is_empty()
        || !c.domain.is_empty()
}

impl Model {
    /// The paired pool.
    pub fn pair(&self) -> Option<&Model> {
        self.pair.as_deref()
    }

    /// The paired pool, for its own next events and choices.
    pub fn pair_mut(&mut self) -> Option<&mut Model> {
        self.pair.as_deref_mut()
    }

    /// The pair's ranks that room may be set aside on, if the last choice asks for that.
    pub fn hold_offered(&self) -> Option<&Pick> {
        self.pending.as_ref()?.hold.as_ref()
    }

    /// The ids that a hold is kept under.
    pub fn held_ids(&self) -> Vec<RequestId> {
        self.held.keys().copied().collect()
    }

    /// The request of the decode leg `leg` of the hold `nth`.
    pub fn leg_request(&self, nth: usize, leg: &LegRequest) -> Request {
        match leg {
            LegRequest::Other(request) => Request::clone(request),
            LegRequest::Same(constraints) => {
                let pair = self.pair.as_ref().expect("a pair");
                let mut request = pair.bookings[&self.holds[nth]].request.clone();
                request.constraints = constraints.clone();
                request
            }
            LegRequest::Hashed(conversation) => {
                let pair = self.pair.as_ref().expect("a pair");
                let mut request = pair.bookings[&self.holds[nth]].request.clone();
                request.constraints = None;
                let whole = request.isl.div_ceil(u64::from(pair.config.block_size));
                request.prompt(chain(*conversation, whole.min(64)))
            }
        }
    }

    /// Does `op` at the pair.
    pub(super) fn at_pair(&mut self, op: &Op) -> Outcome {
        let rejects =
            matches!(op, Op::UpdateThresholds(_) | Op::SetThresholds(_) | Op::ClearThresholds);
        if rejects && self.config.shared_rejects {
            return self.apply(op);
        }
        self.pair.as_mut().expect("a pair").apply(op)
    }

    // The decode pool's side.

    /// The ranks that the decode leg of `request` may use.
    fn decode_ranks(&self, request: &Request) -> Vec<Rank> {
        let unconstrained = Constraints::new();
        let c = request.decode.as_deref().unwrap_or(&unconstrained);
        self.fleet.meets(c, request.lora.as_ref()).unwrap_or_default()
    }

    /// Those of them that are at or under the fraction.
    fn under(&self, request: &Request, frac: f64) -> Vec<Rank> {
        let limit = Thresholds::NONE.decode_frac(frac);
        let view = self.view();
        let mut ranks = self.decode_ranks(request);
        ranks.retain(|r| !is_full(&limit, view.row(*r), self.fleet.capacity(*r)));
        ranks
    }

    /// Whether there is room for the decode leg of `request`.
    pub(super) fn has_room(&self, request: &Request, frac: f64) -> bool {
        self.closed || !self.under(request, frac).is_empty()
    }

    /// The ranks that room may be set aside on.
    ///
    /// The request's hashes are of blocks of `block_size` tokens: they say nothing here if blocks
    /// have another size.
    fn offer(&mut self, request: &Request, frac: f64, block_size: u32) -> Option<Pick> {
        if self.closed {
            return None;
        }
        self.clock = self.clock.max(request.now);
        let under = self.under(request, frac);
        let mut leg = at_decode(request);
        if block_size != self.config.block_size {
            leg.prompt = None;
        }
        let eligible = self.decode_ranks(request);
        let view = self.view();
        // Unmarked ranks under the reject thresholds, if there are any.
        let mut among = view.open(&eligible);
        among.retain(|r| under.contains(r));
        if among.is_empty() {
            among = under;
        }
        let mut pick = view.pick_of(&leg, &eligible, &among).expect("plain costs, of some rank");
        for c in &mut pick.candidates {
            c.load.prefill = 0;
            c.fits = view.fits(c.rank, &c.load);
        }
        Some(pick)
    }

    // The prefill pool's side.

    /// Whether no declared rank of the pair meets the decode-side constraints of `request`.
    pub(super) fn pair_can_never(&self, class: usize, request: &Request) -> bool {
        let judged = self.queue.policy.classes[class].thresholds.decode_frac.is_some();
        let (Some(pair), Some(c)) = (&self.pair, &request.decode) else { return false };
        if !judged || !hard(c) || pair.closed {
            return false;
        }
        let mut reachable = pair.fleet.clone();
        reachable.workers.values_mut().for_each(|w| w.available = true);
        reachable.meets(c, None).is_err()
    }

    /// The ranks that room is set aside on for `request` of `class`, if that is asked for. Its gate
    /// is open.
    pub(super) fn hold_for(&mut self, class: usize, request: &Request) -> Option<Pick> {
        let frac = self.queue.policy.classes[class].thresholds.decode_frac?;
        if !self.config.holds {
            return None;
        }
        self.pair.as_mut()?.offer(request, frac, self.config.block_size)
    }

    /// Sets room aside on `rank` of the pair.
    pub(super) fn set_aside(
        &mut self,
        rank: Rank,
        offered: &Pick,
        request: &Request,
        id: Option<(RequestId, u64)>,
    ) {
        let pair = self.pair.as_mut().expect("a pair");
        let chosen = offered.candidates.iter().find(|c| c.rank == rank).expect("a candidate");
        let charged = chosen.load.new_blocks(&pair.view().held(rank));
        let kind = Kind::Hold { charged };
        let mut leg = at_decode(request);
        if self.config.block_size != pair.config.block_size {
            leg.prompt = None;
        }
        let key = pair.put(kind, rank, chosen.load.clone(), leg);
        match id {
            None => self.holds.push(key),
            Some((id, ticket)) if self.held.contains_key(&id) => {
                self.untold.insert(ticket, (id, key));
            }
            Some((id, _)) => self.keep(id, key),
        }
    }

    /// The first of those who were let in and whose hold replaces another takes its answer. False:
    /// there is none. What happens next, the next events say.
    pub fn tell_next(&mut self) -> bool {
        let Some((_, (id, key))) = self.untold.pop_first() else { return false };
        self.keep(id, key);
        true
    }

    /// Whether a hold of `id` would replace another.
    pub fn keeps_hold(&self, id: RequestId) -> bool {
        self.held.contains_key(&id)
    }

    fn keep(&mut self, id: RequestId, key: u64) {
        if let Some((old, _)) = self.held.insert(id, (key, self.clock)) {
            self.pair.as_mut().expect("a pair").bookings.remove(&old);
        }
    }

    pub(super) fn drop_hold(&mut self, nth: Nth) -> Outcome {
        let Some(i) = nth.of(self.holds.len()) else { return Outcome::Nothing };
        let key = self.holds.remove(i);
        self.pair.as_mut().expect("a pair").bookings.remove(&key);
        Outcome::Done(Ok(()))
    }

    pub(super) fn take_hold(&mut self, id: RequestId) -> bool {
        let taken = self.held.remove(&id);
        self.holds.extend(taken.map(|(key, _)| key));
        taken.is_some()
    }

    pub(super) fn return_hold(&mut self, id: RequestId, nth: Nth) -> Outcome {
        let Some(i) = nth.of(self.holds.len()) else { return Outcome::Nothing };
        let key = self.holds.remove(i);
        self.keep(id, key);
        Outcome::Done(Ok(()))
    }

    /// Ends the holds by id that were silent for the whole lease.
    pub(super) fn expire_holds(&mut self) -> BTreeMap<RequestId, Rank> {
        let Some(lease) = self.config.lease else { return BTreeMap::new() };
        let clock = self.clock;
        let silent = |since: &vacancy::Time| since.after(lease) <= clock;
        let held = self.held.iter();
        let over: Vec<_> =
            held.filter(|(_, (_, t))| silent(t)).map(|(id, (k, _))| (*id, *k)).collect();
        let mut ended = BTreeMap::new();
        for (id, key) in over {
            self.held.remove(&id);
            let hold = self.pair.as_mut().expect("a pair").bookings.remove(&key);
            ended.insert(id, hold.expect("it stands").rank);
        }
        ended
    }

    /// Books a decode leg at the pair, out of a hold that stays if it is refused.
    pub(super) fn leg(&mut self, nth: Nth, leg: &Leg) -> Outcome {
        let Some(i) = nth.of(self.holds.len()) else { return Outcome::Nothing };
        let request = self.leg_request(i, &leg.request);
        let key = self.holds[i];
        let pair = self.pair.as_mut().expect("a pair");
        let answer = pair.convert(key, &request, leg.id, leg.afresh);
        if let Err(why) = &answer {
            pair.count(why);
        }
        Outcome::Leg(answer)
    }

    /// The last leg went in: its hold is over.
    pub fn leg_went_in(&mut self, nth: Nth) {
        let i = nth.of(self.holds.len()).expect("a hold");
        self.holds.remove(i);
    }

    fn convert(
        &mut self,
        key: u64,
        request: &Request,
        id: Option<RequestId>,
        afresh: bool,
    ) -> Result<LegPick, Refusal> {
        self.acceptable(request)?;
        self.unknown(id)?;
        let eligible = self.fleet.eligible(request);
        let hold = &self.bookings[&key];
        let at = hold.rank;
        let stands = hold.stands(&self.fleet);
        // Judged as if the hold were not there.
        let mut view = self.view();
        view.bookings = self.bookings.iter().filter(|(k, _)| **k != key).map(|(_, b)| b).collect();
        let mine = stands && eligible.as_ref().is_ok_and(|e| e.contains(&at));
        let in_place = mine && !afresh;
        let pick = if in_place {
            let eligible = eligible?;
            let worker = |r: &&Rank| r.worker == at.worker;
            let full = match self.config.scope {
                Scope::Rank => view.full(at),
                Scope::Worker => eligible.iter().filter(worker).all(|r| view.full(*r)),
            };
            if full || view.marked(at) {
                let pin = request.constraints.as_ref().and_then(|c| c.pin);
                return Err(match pin {
                    Some(pin) => Error::PinnedWorkerOverloaded { worker: pin.worker },
                    None => Error::AllEligibleWorkersOverloaded,
                }
                .into());
            }
            view.pick_of(request, &[at], &[at])?
        } else {
            view.pick(request)?
        };
        let of = For::Leg(key);
        let request = request.clone();
        self.pending = Some(Pending { pick: pick.clone(), request, id, of, hold: None });
        Ok(LegPick { pick, in_place, beside: mine && afresh })
    }
}
