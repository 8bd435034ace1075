//! One pool of the engine, and what its host holds of it.

use super::build::profile;
use crate::model::answer::LegPick;
use crate::model::choose::{Candidate, Pick, same_cost};
use crate::model::op::{Leg, Op};
use crate::model::queue::LOOK_AHEAD;
use crate::model::{Event, LostLoad, Model, Outcome, Refusal};
use std::collections::BTreeMap;
use vacancy::{
    Admit, AdmitAs, Admitted, AdmittedAs, Attempt, Booking, Choice, Error, Hold, Lost, Pool, Rank,
    RejectThresholds, RequestId,
};

/// A difference, in words.
pub type Difference = String;

/// What was met on the way, and how often.
pub type Seen = BTreeMap<&'static str, u64>;

/// Somebody who asked to be admitted, by value or by id.
enum Asked {
    Value(Admit),
    Id(RequestId, AdmitAs),
}

/// What somebody was told.
#[expect(clippy::large_enum_variant, reason = "few, and short-lived")]
enum Told {
    Value(Admitted),
    Id(RequestId, AdmittedAs),
}

impl Asked {
    fn is_over(&self) -> bool {
        match self {
            Asked::Value(admit) => !admit.is_waiting(),
            Asked::Id(_, admit) => !admit.is_waiting(),
        }
    }

    fn look(&mut self) -> Option<Result<Told, Error>> {
        match self {
            Asked::Value(admit) => Some(admit.try_take()?.map(Told::Value)),
            Asked::Id(id, admit) => Some(admit.try_take()?.map(|told| Told::Id(*id, told))),
        }
    }
}

impl Told {
    fn choice(&self) -> &Choice {
        match self {
            Told::Value(told) => told.booking.choice(),
            Told::Id(_, told) => &told.placed.choice,
        }
    }

    fn hold(&self) -> Option<Rank> {
        match self {
            Told::Value(told) => told.hold.as_ref().and_then(Hold::rank),
            Told::Id(_, told) => told.hold,
        }
    }

    fn class(&self) -> &vacancy::Name {
        match self {
            Told::Value(told) => &told.class,
            Told::Id(_, told) => &told.class,
        }
    }
}

/// What there is to see of a rank.
#[derive(Debug, PartialEq)]
struct Looks {
    prefill: u64,
    blocks: u64,
    held: u64,
    requests: u64,
    full: bool,
    /// Available, and marked.
    marks: (bool, bool),
}

/// The pool.
pub struct Side {
    pub pool: Pool,
    /// Another handle of the same pool: calls take turns.
    pub other: Pool,
    pub rejects: RejectThresholds,
    /// The bookings held as values, in the model's order.
    pub values: Vec<Booking>,
    /// The holds at its pair that are held as values, in the model's order.
    pub holds: Vec<Hold>,
    /// The engine's number of each attempt of each id, from the first one on.
    pub attempts: BTreeMap<RequestId, Vec<Attempt>>,
    /// Those that ask to be admitted, by the model's ticket.
    waiting: BTreeMap<u64, Asked>,
    /// The ticket of this very step.
    newest: Option<u64>,
    /// What some of them were told in this step.
    told: BTreeMap<u64, Result<Told, Error>>,
    pub seen: Seen,
}

pub fn differ<T>(
    what: &str,
    got: impl std::fmt::Debug,
    want: impl std::fmt::Debug,
) -> Result<T, Difference> {
    Err(format!("{what}: the engine has {got:?}, the reference {want:?}"))
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), Difference> {
    if got == want { Ok(()) } else { differ(what, got, want) }
}

impl Side {
    pub fn new(pool: Pool, rejects: RejectThresholds) -> Side {
        Side {
            other: pool.clone(),
            pool,
            rejects,
            values: Vec::new(),
            holds: Vec::new(),
            attempts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            newest: None,
            told: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Whether somebody waits.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Counts what a step has to do with.
    pub fn note(&mut self, outcome: &Outcome) {
        let mut see = |what| *self.seen.entry(what).or_default() += 1;
        match outcome {
            Outcome::Leg(Err(why)) => {
                see("leg refused");
                see(why.name());
            }
            Outcome::Leg(Ok(leg)) => see(match (leg.in_place, leg.beside) {
                (true, _) => "leg in its hold's place",
                (false, true) => "leg weighed afresh",
                (false, false) => "leg elsewhere",
            }),
            Outcome::Pick(Err(why))
            | Outcome::Done(Err(why))
            | Outcome::Lost(Err(why))
            | Outcome::Ticket(Err(why)) => see(why.name()),
            Outcome::Pick(Ok(pick)) => {
                see("choice");
                for (what, met) in [
                    ("one of several", pick.candidates.len() > 1),
                    ("some eligible rank full", pick.full > 0),
                    ("overlap forgone", pick.candidates.iter().any(|c| c.forgone.is_some())),
                    ("uneven draw", {
                        let share = pick.candidates[0].probability;
                        pick.candidates.iter().any(|c| !same_cost(c.probability, share))
                    }),
                ] {
                    if met {
                        see(what);
                    }
                }
            }
            Outcome::Lost(Ok(lost)) if !lost.is_empty() => see("load lost its rank"),
            Outcome::Expired(ended) => {
                for (what, met) in [
                    ("lease ran out", !ended.leases.is_empty()),
                    ("hold ran out", !ended.holds.is_empty()),
                    ("router fell silent", !ended.peers.is_empty()),
                    ("mark ended", !ended.marks.is_empty()),
                ] {
                    if met {
                        see(what);
                    }
                }
            }
            Outcome::Applied(applied) => see(match applied {
                vacancy::Applied::Taken => "peer taken",
                vacancy::Applied::Echo => "peer echo",
                _ => "peer dropped",
            }),
            Outcome::Flag(false) => see("no"),
            _ => {}
        }
    }

    /// Does `op` with the engine and compares the answer.
    pub fn answer(&mut self, op: &Op, want: Outcome, model: &mut Model) -> Result<(), Difference> {
        let pool = self.pool.clone();
        match (op, want) {
            (_, Outcome::Nothing) => Ok(()),
            (Op::Upsert(spec), Outcome::Lost(want)) => self.lost(pool.upsert(spec.clone()), want),
            (Op::Remove(worker), Outcome::Lost(want)) => self.lost(Ok(pool.remove(*worker)), want),
            (Op::Reconcile(specs), Outcome::Lost(want)) => self.lost(pool.reconcile(specs), want),
            (Op::Available(worker, is), Outcome::Flag(want)) => {
                same("known", pool.set_available(*worker, *is), want)
            }
            (Op::Overloaded(worker, is, until), Outcome::Flag(want)) => {
                same("known", pool.set_overloaded(*worker, *is, *until), want)
            }
            (Op::UpdateThresholds(t), Outcome::Done(want)) => done(self.rejects.update(*t), want),
            (Op::SetThresholds(t), Outcome::Done(want)) => done(self.rejects.set(*t), want),
            (Op::ClearThresholds, Outcome::Done(_)) => {
                self.rejects.clear();
                Ok(())
            }
            (Op::Select(request), Outcome::Pick(want)) => {
                let got = pool.select(request);
                self.picked(model, got.as_ref(), None, &want)
            }
            (Op::Book(request), Outcome::Pick(want)) => {
                let got = pool.book(request);
                self.picked(model, got.as_ref().map(Booking::choice), None, &want)?;
                if let Ok(booking) = got {
                    same("where it is booked", booking.rank(), booking.choice().rank)?;
                    self.values.push(booking);
                }
                Ok(())
            }
            (Op::BookAs(id, request), Outcome::Pick(want)) => {
                let got = pool.book_as(*id, request);
                self.picked(model, got.as_ref().map(|p| &p.choice), None, &want)?;
                if let Ok(placed) = got {
                    self.attempt(*id, placed.attempt)?;
                }
                Ok(())
            }
            (Op::Admit(request), Outcome::Ticket(want)) => {
                self.asked(Asked::Value(pool.admit(request.clone())), want)
            }
            (Op::AdmitAs(id, request), Outcome::Ticket(want)) => {
                self.asked(Asked::Id(*id, pool.admit_as(*id, request.clone())), want)
            }
            (Op::Cancel(_), Outcome::Withdrawn(ticket)) => {
                drop(self.waiting.remove(&ticket));
                Ok(())
            }
            (Op::Reload(policy), Outcome::Done(_)) => {
                pool.set_policy(&profile(policy));
                Ok(())
            }
            (Op::ImportAs(id, rank, request), Outcome::Done(want)) => {
                match (pool.import_as(*id, *rank, request), want) {
                    (Ok(attempt), Ok(())) => self.attempt(*id, attempt),
                    (got, want) => done(got.map(drop), want),
                }
            }
            (Op::Complete(nth), Outcome::Done(_)) => {
                self.value(nth.of(self.values.len())).prefill_completed();
                Ok(())
            }
            (Op::Output(nth, blocks), Outcome::Done(want)) => {
                let i = nth.of(self.values.len());
                done(self.value(i).add_output_blocks(*blocks), want)
            }
            (Op::Move(nth, to), Outcome::Done(want)) => {
                let i = nth.of(self.values.len());
                let booking = self.value(i);
                done(booking.move_to(*to), want)?;
                same("where it is", booking.rank(), model.value_rank(i.expect("one")))
            }
            (Op::Free(nth), Outcome::Done(_)) => {
                let i = nth.of(self.values.len()).expect("as many as the model has");
                self.values.swap_remove(i).free();
                Ok(())
            }
            (Op::Drop(nth), Outcome::Done(_)) => {
                let i = nth.of(self.values.len()).expect("as many as the model has");
                drop(self.values.swap_remove(i));
                Ok(())
            }
            (Op::CompleteId(id), Outcome::Done(want)) => done(pool.prefill_completed(*id), want),
            (Op::OutputId(id, blocks), Outcome::Done(want)) => {
                done(pool.add_output_blocks(*id, *blocks), want)
            }
            (Op::MoveId(id, to), Outcome::Done(want)) => done(pool.move_to(*id, *to), want),
            (Op::FreeId(id), Outcome::Flag(want)) => same("freed", pool.free(*id), want),
            (Op::FreeAttempt(id, back), Outcome::Flag(want)) => {
                let known = &self.attempts[id];
                let attempt = known[known.len() - 1 - *back as usize];
                same("freed", pool.free_attempt(*id, attempt), want)
            }
            (Op::Export, Outcome::Live(want)) => {
                let got: BTreeMap<_, _> = pool.export().into_iter().map(|l| (l.id, l)).collect();
                same("ids", got.keys().collect::<Vec<_>>(), want.keys().collect())?;
                for (id, want) in want {
                    let l = &got[&id];
                    let attempt = self.number(id, want.attempt);
                    same("attempt", l.attempt, attempt)?;
                    same("rank", l.rank, want.rank)?;
                    same("prefill", u64::from(l.prefill_tokens), want.prefill_tokens)?;
                    same("prompt blocks", u64::from(l.prompt_blocks), want.prompt_blocks)?;
                    same("output blocks", u64::from(l.output_blocks), want.output_blocks)?;
                }
                Ok(())
            }
            (Op::Expire(now), Outcome::Expired(want)) => {
                let got = pool.expire(*now);
                let leases: Vec<_> = want
                    .leases
                    .into_iter()
                    .map(|(id, (a, rank))| (id, self.number(id, a), rank))
                    .collect();
                same("leases", got.leases, leases)?;
                let holds: Vec<_> =
                    want.holds.into_iter().map(|(id, rank)| (id, Some(rank))).collect();
                same("holds", got.holds, holds)?;
                same("peers", got.peers, want.peers)?;
                same("marks", got.marks, want.marks)?;
                same("overdue", got.overdue, want.overdue)
            }
            (Op::Observe(rank, said, now), Outcome::Flag(want)) => {
                same("known", pool.observe(*rank, *said, *now), want)
            }
            (Op::Peer(event, now), Outcome::Applied(want)) => {
                same("applied", pool.apply_peer(event, *now), want)
            }
            (Op::PeerGone(router), Outcome::Count(want)) => {
                same("gone", pool.peer_gone(*router), want)
            }
            (Op::DropHold(nth), Outcome::Done(_)) => {
                let i = nth.of(self.holds.len()).expect("as many as the model has");
                drop(self.holds.remove(i));
                Ok(())
            }
            (Op::TakeHold(id), Outcome::Flag(want)) => {
                let taken = pool.take_hold(*id);
                same("taken", taken.is_some(), want)?;
                self.holds.extend(taken);
                Ok(())
            }
            (Op::ReturnHold(id, nth), Outcome::Done(_)) => {
                let i = nth.of(self.holds.len()).expect("as many as the model has");
                pool.return_hold(*id, self.holds.remove(i));
                Ok(())
            }
            (Op::Close, Outcome::Done(_)) => {
                pool.close();
                Ok(())
            }
            (op, want) => unreachable!("{op:?} does not answer {want:?}"),
        }
    }

    fn asked(&mut self, mut asked: Asked, want: Result<u64, Refusal>) -> Result<(), Difference> {
        let why = match want {
            Ok(ticket) => {
                self.waiting.insert(ticket, asked);
                self.newest = Some(ticket);
                return Ok(());
            }
            Err(why) => why,
        };
        match asked.look() {
            Some(Err(error)) if why.admits(&error) => Ok(()),
            Some(Ok(told)) => differ("answer", told.choice(), why),
            Some(Err(error)) => differ("answer", error, why),
            None => differ("answer", "to wait", why),
        }
    }

    /// Takes all answers that there are. Whoever replaces a hold by that comes last, one by one:
    /// what it gives back may let others in.
    fn listen(&mut self, model: &Model) {
        let replaces = |asked: &Asked| match asked {
            Asked::Value(_) => false,
            Asked::Id(id, _) => model.keeps_hold(*id),
        };
        let Side { waiting, told, .. } = self;
        loop {
            let mut last = None;
            for (ticket, asked) in waiting.iter_mut() {
                if told.contains_key(ticket) {
                    continue;
                }
                if replaces(asked) {
                    last = last.or(asked.is_over().then_some(*ticket));
                } else if let Some(result) = asked.look() {
                    told.insert(*ticket, result);
                }
            }
            let Some(ticket) = last else { break };
            let asked = waiting.get_mut(&ticket).expect("it waits");
            told.extend(asked.look().map(|result| (ticket, result)));
        }
    }

    /// Compares who was let in and who was refused, in the reference's order, until the reference
    /// has nobody who could go.
    pub fn events(&mut self, model: &mut Model) -> Result<(), Difference> {
        self.listen(model);
        while let Some(event) = model.next_event() {
            let (ticket, pick) = match event {
                Event::Admitted(ticket, pick) => (ticket, Ok(pick)),
                Event::Refused(ticket, why) => (ticket, Err(why)),
            };
            let waited = Some(ticket) != self.newest;
            *self
                .seen
                .entry(match pick {
                    Ok(_) if waited => "let in after a wait",
                    Ok(_) => "let in",
                    Err(_) if waited => "refused while waiting",
                    Err(_) => "refused",
                })
                .or_default() += 1;
            let Some(got) = self.told.remove(&ticket) else {
                let told: Vec<_> = self
                    .told
                    .iter()
                    .map(|(t, r)| (*t, r.as_ref().map(|c| c.choice().rank)))
                    .collect();
                return differ(&format!("ticket {ticket}"), told, pick);
            };
            self.waiting.remove(&ticket);
            let what = |why| format!("ticket {ticket}: {why}");
            let hold = got.as_ref().map_or(None, Told::hold);
            if hold.is_some() {
                *self.seen.entry("let in with a hold").or_default() += 1;
            }
            self.picked(model, got.as_ref().map(Told::choice), hold, &pick).map_err(what)?;
            if let Ok(told) = got {
                same("class", told.class().as_str(), model.admitted_in().as_str())?;
                match told {
                    Told::Value(told) => {
                        self.values.push(told.booking);
                        self.holds.extend(told.hold);
                    }
                    Told::Id(id, told) => self.attempt(id, told.placed.attempt)?,
                }
            }
        }
        Ok(())
    }

    /// Compares who waits after all that has happened in a step.
    pub fn rest(&mut self, model: &Model) -> Result<(), Difference> {
        self.newest = None;
        for (what, met) in [
            ("ten wait", self.waiting.len() >= 10),
            ("more than L wait", self.waiting.len() > 1 + LOOK_AHEAD),
            ("a head is guarded", model.guarded()),
        ] {
            if met {
                *self.seen.entry(what).or_default() += 1;
            }
        }
        let left: Vec<String> = std::mem::take(&mut self.told)
            .into_iter()
            .map(|(ticket, got)| format!("{ticket}: {:?}", got.as_ref().map(Told::choice)))
            .collect();
        same("told, of those who wait", left, Vec::new())?;
        same("who waits", self.waiting.keys().copied().collect(), model.waiting())
    }

    fn value(&self, i: Option<usize>) -> &Booking {
        &self.values[i.expect("as many as the model has")]
    }

    /// The engine's number of an attempt.
    fn number(&self, id: RequestId, attempt: u64) -> Attempt {
        self.attempts[&id][attempt as usize - 1]
    }

    fn attempt(&mut self, id: RequestId, attempt: Attempt) -> Result<(), Difference> {
        let known = self.attempts.entry(id).or_default();
        if known.last().is_some_and(|last| *last >= attempt) {
            return Err(format!("attempt {attempt:?} of {id} comes after {known:?}"));
        }
        known.push(attempt);
        Ok(())
    }

    fn lost(
        &self,
        got: Result<Vec<Lost>, Error>,
        want: Result<BTreeMap<Rank, LostLoad>, Refusal>,
    ) -> Result<(), Difference> {
        let (got, want) = match (got, want) {
            (Ok(got), Ok(want)) => (got, want),
            (got, want) => return done(got.map(drop), want.map(drop)),
        };
        let got: BTreeMap<_, _> =
            got.into_iter().map(|l| (l.rank, (u64::from(l.requests), l.ids))).collect();
        let want: BTreeMap<_, _> = want
            .into_iter()
            .map(|(rank, l)| {
                let ids: Vec<_> =
                    l.ids.into_iter().map(|(id, a)| (id, self.number(id, a))).collect();
                (rank, (l.requests, ids))
            })
            .collect();
        same("lost", got, want)
    }

    /// Compares an answer with all the right ones, and lets the reference book what was chosen.
    fn picked(
        &mut self,
        model: &mut Model,
        got: Result<&Choice, &Error>,
        hold: Option<Rank>,
        want: &Result<Pick, Refusal>,
    ) -> Result<(), Difference> {
        let pick = match (got, want) {
            (_, Ok(pick)) => pick,
            (Err(got), Err(want)) if want.admits(got) => return Ok(()),
            (got, Err(want)) => return differ("answer", got, want),
        };
        let offered = model.hold_offered();
        match (got, hold, offered) {
            (Ok(_), None, None) | (Err(_), _, _) => {}
            (Ok(_), Some(rank), Some(offered))
                if offered.candidates.iter().any(|c| c.rank == rank) => {}
            (_, hold, offered) => {
                let offered = offered.map(|o| o.candidates.iter().map(|c| (c.rank, c.cost)));
                return differ("hold", hold, offered.map(Iterator::collect::<Vec<_>>));
            }
        }
        let (rank, over) = match got {
            Ok(choice) => (choice.rank, None),
            Err(Error::RowOverflow { rank }) => {
                // Of its own rank, or of the one where room would have been set aside: then it fitted
                // its own, whichever that was.
                let own = pick.candidates.iter().any(|c| c.rank == *rank && !c.fits);
                let fits = pick.candidates.iter().find(|c| c.fits).unwrap_or(&pick.candidates[0]);
                if own { (*rank, None) } else { (fits.rank, Some(*rank)) }
            }
            Err(other) => return differ("answer", other, pick),
        };
        let Some(candidate) = pick.candidates.iter().find(|c| c.rank == rank) else {
            return differ("rank", got, pick);
        };
        match (got, model.settle_with(rank, hold.or(over))) {
            (Ok(choice), Ok(())) => explained(choice, candidate, pick),
            (Err(got), Err(want)) => same("overflow", got, &want),
            (got, booked) => differ("row", got, booked),
        }
    }

    /// Books a decode leg at this pool; gives the hold that is left.
    pub fn leg(
        &mut self,
        hold: Hold,
        request: &vacancy::Request,
        leg: &Leg,
        want: &Result<LegPick, Refusal>,
        model: &mut Model,
    ) -> Result<Option<Hold>, Difference> {
        let pool = self.pool.clone();
        let (got, placed) = match leg.id {
            Some(id) => match pool.book_leg_as(id, hold, request) {
                Ok(placed) => (Ok(placed.choice.clone()), Ok(Some((id, placed.attempt)))),
                Err(refused) => (Err(refused.error), Err(refused.hold)),
            },
            None => {
                let booked = match leg.afresh {
                    true => pool.book_leg_afresh(hold, request),
                    false => pool.book_leg(hold, request),
                };
                match booked {
                    Ok(booking) => {
                        let choice = booking.choice().clone();
                        self.values.push(booking);
                        (Ok(choice), Ok(None))
                    }
                    Err(refused) => (Err(refused.error), Err(refused.hold)),
                }
            }
        };
        match (&got, want) {
            // Alone, nothing but its rank is looked at.
            (Ok(choice), Ok(leg)) if leg.in_place => {
                let candidate = &leg.pick.candidates[0];
                same("rank", choice.rank, candidate.rank)?;
                same("cached tokens", u64::from(choice.cached_tokens), candidate.cached_tokens)?;
                if let Err(over) = model.settle(candidate.rank) {
                    return differ("row", choice, over);
                }
            }
            (got, want) => {
                let want = want.as_ref().map(|leg| leg.pick.clone()).map_err(Refusal::clone);
                self.picked(model, got.as_ref(), None, &want)?;
            }
        }
        match placed {
            Ok(Some((id, attempt))) => self.attempt(id, attempt).map(|()| None),
            Ok(None) => Ok(None),
            Err(hold) => Ok(Some(hold)),
        }
    }

    /// Compares everything that can be looked at.
    pub fn compare(&self, model: &Model) -> Result<(), Difference> {
        let snapshot = self.pool.snapshot();
        let ranks: Vec<Rank> = snapshot.ranks.iter().map(|(rank, _)| *rank).collect();
        same("ranks", ranks, model.ranks())?;
        for (rank, got) in &snapshot.ranks {
            let row = model.row(*rank).expect("declared");
            let held = model.held_blocks(*rank);
            let want = Looks {
                prefill: row.prefill_tokens,
                blocks: row.kv_blocks - held,
                held,
                requests: row.requests,
                full: model.full(*rank),
                marks: model.marks(*rank),
            };
            let looks = Looks {
                prefill: got.prefill_tokens.into(),
                blocks: got.kv_blocks.into(),
                held: got.held_blocks.into(),
                requests: got.requests.into(),
                full: got.full,
                marks: (got.available, got.marked),
            };
            if looks != want {
                return differ(&rank.to_string(), looks, want);
            }
            let load = self.pool.load(*rank);
            if load != Some(*got) {
                return Err(format!("{rank}: its load is {load:?}, in the snapshot {got:?}"));
            }
        }
        let full = snapshot.ranks.iter().filter(|(_, l)| l.full).count();
        same("full", snapshot.full, full)?;
        same("ids", snapshot.ids, model.ids())?;
        same("waiting", snapshot.waiting, self.waiting.len())?;
        let (got, want) = (&snapshot.counters, model.counters());
        same("selected", got.selected, want.selected)?;
        same("rejected", got.rejected, want.rejected)?;
        same("admitted", got.admitted, want.admitted)?;
        same("expired", got.expired, want.expired)?;
        same("cancelled", got.cancelled, want.cancelled)?;
        same("mirrored", self.pool.mirrored(), model.mirrored())?;
        same("dropped", self.pool.peer_events_dropped(), model.peer_events_dropped())?;
        same("now", self.pool.now(), model.clock())
    }
}

fn done(got: Result<(), Error>, want: Result<(), Refusal>) -> Result<(), Difference> {
    match (&got, &want) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Err(refusal)) if refusal.admits(error) => Ok(()),
        _ => differ("answer", got, want),
    }
}

/// Whether a choice says of its rank what there is to say.
fn explained(got: &Choice, want: &Candidate, pick: &Pick) -> Result<(), Difference> {
    if !same_cost(got.cost, want.cost) {
        return differ("cost", got.cost, want.cost);
    }
    same("stable id", &got.stable_id, &want.stable_id)?;
    same("cached tokens", u64::from(got.cached_tokens), want.cached_tokens)?;
    same("overlap", got.overlap, want.overlap)?;
    same("eligible", got.eligible, pick.eligible)?;
    same("full", got.full, pick.full)?;
    match (&got.forgone, &want.forgone) {
        (None, None) => Ok(()),
        (Some(got), Some((blocks, ranks)))
            if got.blocks == *blocks && ranks.contains(&got.rank) =>
        {
            Ok(())
        }
        (got, want) => differ("forgone", got, want),
    }
}
