//! What must hold after every step, each under its own name.
//!
//! | name | when |
//! |---|---|
//! | `each_row_is_the_sum_of_what_is_live` | always; exactly, when all who were let in know it |
//! | `no_booking_lands_past_a_limit_judged` | at each landing that nothing unknown came before |
//! | `nobody_waits_with_room` | when all who were woken have run |
//! | `every_request_ends_exactly_once` | always |
//! | `order_within_a_class_is_respected` | at each wake |
//! | `nothing_is_left` | at the end |

use crate::client::{Client, Place, Stage};
use crate::fleet::Asks;
use crate::ledger::Record;
use crate::plan::{ClassPlan, Hop};
use crate::sim::{Breach, Side, World};
use std::cmp::Ordering;
use vacancy::{Choice, Error, QueuePolicy, Rank, Request, RequestId};

/// How many entries behind a blocked head are looked at, says the contract.
const LOOK_AHEAD: usize = 32;

/// How often a head may be passed on ranks that it may use, says the contract.
const PASSES: u32 = 16;

/// Whether one goes before the other in a class.
fn order(policy: QueuePolicy, a: &Client, b: &Client) -> Ordering {
    let due = |p: &Place| p.due.unwrap_or(u64::MAX);
    let last = due(&a.place).cmp(&due(&b.place));
    let arrival = a.place.sequence.cmp(&b.place.sequence);
    let score = |c: &Client| match policy {
        QueuePolicy::Wspt => (1.0 + c.demand.jump) / c.place.uncached.max(1) as f64,
        _ => c.demand.jump - c.place.arrival as f64 / 1e9,
    };
    match policy {
        QueuePolicy::Edf => last.then(arrival),
        _ => {
            let priority = b.demand.priority.cmp(&a.demand.priority);
            let score = score(b).partial_cmp(&score(a)).expect("scores are finite");
            priority.then(last).then(score).then(arrival)
        }
    }
}

impl World<'_> {
    /// Looks at everything.
    pub fn check(&mut self) -> Result<(), Breach> {
        if let Some(breach) = self.broken.take() {
            return Err(breach);
        }
        self.each_row_is_the_sum_of_what_is_live()?;
        if self.executor.is_idle() {
            self.nobody_waits_with_room()?;
        }
        Ok(())
    }

    fn class_of(&self, client: &Client) -> usize {
        let side = self.side(client.hop);
        side.policy.resolve(client.demand.class, client.place.uncached)
    }

    fn each_row_is_the_sum_of_what_is_live(&mut self) -> Result<(), Breach> {
        const NAME: &str = "each_row_is_the_sum_of_what_is_live";
        let exact = self.executor.is_idle();
        let audit = self.out.steps.is_multiple_of(16);
        for hop in Hop::BOTH {
            let side = self.side(hop);
            let mut folded = 0u64;
            for (&rank, row) in &side.ledger.rows {
                let Some(load) = side.pool.load(rank) else {
                    return Err(Breach::of(NAME, format!("{rank} of {hop:?} is not there")));
                };
                let blocks = u64::from(load.kv_blocks) + u64::from(load.held_blocks);
                let shown = [u64::from(load.prefill_tokens), blocks, u64::from(load.requests)];
                let summed = [row.tokens, row.blocks(), row.requests];
                let [most, least] = row.held.map(|held| held.min(row.blocks()));
                let held = (least..=most).contains(&u64::from(load.held_blocks));
                let same = match exact {
                    true => shown == summed && held,
                    // Who was let in and has not seen it is on the rows and not in the books.
                    false => shown.iter().zip(&summed).all(|(shown, summed)| shown >= summed),
                };
                if !same {
                    return Err(Breach::of(
                        NAME,
                        format!(
                            "{rank} of {hop:?} shows (tokens, blocks, requests) {shown:?}, held \
                             {}, and the sum is {summed:?}, held {least} to {most}",
                            load.held_blocks
                        ),
                    ));
                }
                for n in shown {
                    folded = folded.wrapping_mul(31).wrapping_add(n);
                }
            }
            if audit {
                let snapshot = side.pool.snapshot();
                let declared = snapshot.ranks.iter().map(|(rank, _)| rank);
                if !declared.eq(side.ledger.rows.keys()) {
                    return Err(Breach::of(NAME, format!("the ranks of {hop:?} are others")));
                }
                if side.pool.mirrored() != side.routers.mirrored() {
                    return Err(Breach::of(NAME, format!("{hop:?} mirrors other bookings")));
                }
            }
            self.saw(folded);
        }
        Ok(())
    }

    /// The class's gate: the own pool's part and the pair's.
    fn gate_is_open(&self, side: &Side, class: &ClassPlan, client: &Client) -> bool {
        let line = side.own_line(&class.line);
        let own = client.asks_at(side.hop);
        side.fleet.gate_is_open(class, &line, own, &side.ledger, self.now)
            && self.pair_has_room(side, class, client)
    }

    fn pair_has_room(&self, side: &Side, class: &ClassPlan, client: &Client) -> bool {
        let (Hop::Prefill, Some(frac)) = (side.hop, class.line.decode_frac) else { return true };
        let decode = self.side(Hop::Decode);
        let leg = Asks { wants: &client.demand.leg, lora: client.demand.lora };
        // One that is shut down will not come back, and nobody waits for it.
        decode.closed || decode.fleet.has_decode_room(frac, leg, &decode.ledger)
    }

    fn nobody_waits_with_room(&mut self) -> Result<(), Breach> {
        const NAME: &str = "nobody_waits_with_room";
        let mut judged = 0;
        for hop in Hop::BOTH {
            let side = self.side(hop);
            let of_hop = |c: &&u32| self.clients[c].hop == hop;
            let waiting: Vec<u32> = self.waiting.iter().filter(of_hop).copied().collect();
            if waiting.is_empty() {
                continue;
            }
            for &client in &waiting {
                let of = &self.clients[&client];
                let Stage::Waiting(future) = &of.stage else { unreachable!("it waits") };
                if !future.is_waiting() {
                    let what = format!("request {client} is over and was not woken");
                    return Err(Breach::of(NAME, what));
                }
                if side.closed {
                    return Err(Breach::of(NAME, format!("{client} waits in a closed pool")));
                }
                if of.place.due.is_some_and(|due| due <= self.now) {
                    let what = format!("request {client} waits past its due time");
                    return Err(Breach::of(NAME, what));
                }
                if side.fleet.eligible(of.asks_at(hop), true).is_empty() {
                    let what = format!("request {client} waits for ranks that can not come");
                    return Err(Breach::of(NAME, what));
                }
            }
            for (c, class) in side.policy.classes.iter().enumerate() {
                let in_class = |id: &&u32| self.class_of(&self.clients[id]) == c;
                let mut queue: Vec<&Client> =
                    waiting.iter().filter(in_class).map(|id| &self.clients[id]).collect();
                queue.sort_by(|a, b| order(class.order, a, b));
                let (lanes, main): (Vec<&Client>, Vec<&Client>) =
                    queue.into_iter().partition(|c| c.demand.own.pin.is_some());
                let mut everybody = None;
                let head = main.first();
                let barred = head.is_some_and(|h| !h.is_plain() && h.place.passed >= PASSES);
                let reach = if barred { 1 } else { 1 + LOOK_AHEAD };
                let mut heads: Vec<&Client> = main.iter().copied().take(reach).collect();
                if !barred {
                    // Pinned: the head of each lane. Behind a head that was passed often enough
                    // they may have to wait for its ranks.
                    let mut pins = Vec::new();
                    for client in lanes {
                        if !pins.contains(&client.demand.own.pin) {
                            pins.push(client.demand.own.pin);
                            heads.push(client);
                        }
                    }
                }
                for client in heads {
                    judged += 1;
                    let open = match client.is_plain() {
                        true => {
                            *everybody.get_or_insert_with(|| self.gate_is_open(side, class, client))
                        }
                        false => self.gate_is_open(side, class, client),
                    };
                    if open {
                        let what = format!(
                            "request {} waits in class {} of {hop:?} beside room",
                            client.place.sequence, class.name
                        );
                        return Err(Breach::of(NAME, what));
                    }
                }
            }
        }
        self.out.waits_judged += judged;
        Ok(())
    }

    /// A client was woken, with `later` after it: who was to go before it?
    pub fn note_wake(&mut self, client: u32, later: &[u32]) {
        let Some(of) = self.clients.get(&client) else { return };
        let class = self.class_of(of);
        let policy = self.side(of.hop).policy.classes[class].order;
        let waits = |id: u32, other: &Client| match &other.stage {
            // Told after it: it was still there.
            Stage::Waiting(future) => future.is_waiting() || later.contains(&id),
            _ => false,
        };
        let mut overtook = Vec::new();
        let mut passed = Vec::new();
        for &id in &self.waiting {
            let other = &self.clients[&id];
            if id == client || other.hop != of.hop || self.class_of(other) != class {
                continue;
            }
            if !waits(id, other) {
                continue;
            }
            passed.push(id);
            let first = order(policy, other, of) == Ordering::Less;
            if of.is_plain() && other.is_plain() && first {
                overtook.push(id);
            }
        }
        for id in passed {
            self.clients.get_mut(&id).expect("it waits").place.passed += 1;
        }
        let (fresh, earlier) = (self.fresh, self.earlier);
        let of = self.clients.get_mut(&client).expect("it waits");
        of.place.overtook = overtook;
        of.place.woken = true;
        of.place.woken_fresh = fresh;
        of.place.woken_after = earlier;
    }

    /// Who was never polled is not woken: when its wait is over is seen, not told.
    pub fn note_who_was_never_polled(&mut self) {
        for client in &self.waiting {
            let of = self.clients.get_mut(client).expect("it waits");
            let over = matches!(&of.stage, Stage::Waiting(future) if !future.is_waiting());
            if over && !of.place.woken {
                of.place.over_after.get_or_insert(self.earlier);
            }
        }
    }

    fn note_passing(&mut self, client: u32) {
        let of = &self.clients[&client];
        let (hop, class) = (of.hop, self.class_of(of));
        let same = |id: &u32| {
            let other = &self.clients[id];
            other.hop == hop && self.class_of(other) == class
        };
        let passed: Vec<u32> = self.waiting.iter().copied().filter(same).collect();
        for id in passed {
            self.clients.get_mut(&id).expect("it waits").place.passed += 1;
        }
    }

    /// One that is let in was in its turn, and in time.
    pub fn in_turn(&mut self, client: u32, waited: bool) -> Result<(), Breach> {
        const NAME: &str = "order_within_a_class_is_respected";
        if !self.clients[&client].place.woken {
            // Let in by its own call, maybe through the queue: it passed whoever waits there.
            self.note_passing(client);
        }
        let of = &self.clients[&client];
        // The pair's timers run first, so that at the instant itself it may still be let in.
        let Place { woken, woken_after, over_after, .. } = of.place;
        let after = if woken { woken_after } else { over_after.unwrap_or(self.earlier) };
        if waited && of.place.due.is_some_and(|due| due <= after) {
            return Err(Breach::of(NAME, format!("request {client} was let in late")));
        }
        if let Some(first) = of.place.overtook.first() {
            let what = format!("request {client} was let in before {first}, which goes first");
            return Err(Breach::of(NAME, what));
        }
        if !waited && of.is_plain() {
            // A newcomer that did not wait: nobody of its class did who goes first.
            let class = self.class_of(of);
            let policy = self.side(of.hop).policy.classes[class].order;
            let first = self.waiting.iter().find(|id| {
                let other = &self.clients[id];
                let waits = matches!(&other.stage, Stage::Waiting(f) if f.is_waiting());
                let same = other.hop == of.hop && self.class_of(other) == class;
                waits
                    && same
                    && other.is_plain()
                    && other.place.sequence < of.place.sequence
                    && order(policy, other, of) == Ordering::Less
            });
            // Seen later than it was decided, it may have been another policy.
            if let Some(first) = first.filter(|_| self.fresh) {
                let what = format!("newcomer {client} was let in before {first}");
                return Err(Breach::of(NAME, what));
            }
        }
        Ok(())
    }

    /// The class that somebody was let in by is the one its name and tokens give it.
    pub fn class_is(&mut self, client: u32, class: &str) -> Result<(), Breach> {
        let of = &self.clients[&client];
        let expected = self.side(of.hop).policy.classes[self.class_of(of)].name;
        if !self.fresh || expected == class {
            return Ok(());
        }
        let what = format!("request {client} was let in as {class} and not as {expected}");
        Err(Breach::of("order_within_a_class_is_respected", what))
    }

    /// Whether what is in the books is what the engine saw when it judged.
    fn may_judge(&self, client: u32, admitted: bool) -> bool {
        let place = &self.clients[&client].place;
        self.fresh || (admitted && place.woken_fresh)
    }

    /// A booking has landed where it may.
    pub fn landing_was_within_limits(
        &mut self,
        client: u32,
        choice: &Choice,
        hold: Option<Rank>,
        admitted: bool,
    ) -> Result<(), Breach> {
        const NAME: &str = "no_booking_lands_past_a_limit_judged";
        if !self.may_judge(client, admitted) || !self.fresh {
            return Ok(());
        }
        self.out.landings_judged += 1;
        let of = &self.clients[&client];
        let side = self.side(of.hop);
        let rank = choice.rank;
        let breach = |what: String| Err(Breach::of(NAME, format!("request {client}: {what}")));
        let asks = of.asks_at(of.hop);
        if !side.fleet.eligible(asks, false).contains(&rank) {
            return breach(format!("{rank} is not eligible"));
        }
        if side.fleet.is_marked(rank, self.now) {
            return breach(format!("{rank} carries a mark"));
        }
        if !side.fleet.lets_land(rank, &side.ledger) {
            return breach(format!("{rank} is past the reject thresholds"));
        }
        let on = of.demand.cached.iter().rfind(|(w, r, _)| Rank::new(*w, *r) == rank);
        let blocks = on.map_or(0, |&(.., blocks)| blocks);
        let cached = of.demand.isl.min(blocks * side.ledger.block_size);
        if choice.cached_tokens != cached {
            return breach(format!("{} cached on {rank} and not {cached}", choice.cached_tokens));
        }
        if !admitted {
            return Ok(());
        }
        let class = &side.policy.classes[self.class_of(of)];
        if class.line.is_none() {
            return Ok(());
        }
        if !self.gate_is_open(side, class, of) {
            return breach(format!("the gate of class {} is closed", class.name));
        }
        let line = side.own_line(&class.line);
        if self.setup.class_room_only && side.fleet.is_past(&line, rank, &side.ledger) {
            return breach(format!("{rank} has no room for class {}", class.name));
        }
        if let Some(held) = hold {
            let decode = self.side(Hop::Decode);
            let leg = Asks { wants: &of.demand.leg, lora: of.demand.lora };
            let line = crate::plan::Line { prefill_tokens: None, prefill_frac: None, ..class.line };
            if !decode.fleet.eligible(leg, false).contains(&held) {
                return breach(format!("its hold is on {held}, which is not eligible"));
            }
            if decode.fleet.is_past(&line, held, &decode.ledger) {
                return breach(format!("its hold is on {held}, past the class's limit"));
            }
        } else if self.setup.holds
            && of.hop == Hop::Prefill
            && class.line.decode_frac.is_some()
            && !self.side(Hop::Decode).closed
        {
            return breach("it was let in without a hold".to_owned());
        }
        Ok(())
    }

    /// A decode leg has landed where it may; the books do without its hold.
    pub fn leg_was_within_limits(
        &mut self,
        client: u32,
        choice: &Choice,
        hold: Option<&Record>,
        afresh: bool,
    ) -> Result<(), Breach> {
        const NAME: &str = "no_booking_lands_past_a_limit_judged";
        if !self.executor.is_idle() {
            return Ok(());
        }
        self.out.landings_judged += 1;
        let side = self.side(Hop::Decode);
        let asks = self.clients[&client].asks_at(Hop::Decode);
        let eligible = side.fleet.eligible(asks, false);
        let rank = choice.rank;
        let breach = |what: String| Err(Breach::of(NAME, format!("leg of {client}: {what}")));
        if !eligible.contains(&rank) {
            return breach(format!("{rank} is not eligible"));
        }
        if side.fleet.is_marked(rank, self.now) {
            return breach(format!("{rank} carries a mark"));
        }
        if !side.fleet.lets_land(rank, &side.ledger) {
            return breach(format!("{rank} is past the reject thresholds"));
        }
        if let Some(hold) = hold.filter(|_| !afresh)
            && side.ledger.is_alive(hold)
            && eligible.contains(&hold.rank)
            && hold.rank != rank
        {
            return breach(format!("it landed on {rank}, its hold was on {}", hold.rank));
        }
        Ok(())
    }

    /// A leg that is refused has nowhere to go; the books do without its hold.
    pub fn leg_refusal_is_true(&mut self, client: u32, error: &Error) -> Result<(), Breach> {
        const NAME: &str = "nobody_waits_with_room";
        let side = self.side(Hop::Decode);
        let asks = self.clients[&client].asks_at(Hop::Decode);
        let eligible = side.fleet.eligible(asks, false);
        let true_refusal = match error {
            Error::Closed => side.closed,
            Error::NoEndpoints => eligible.is_empty(),
            // In the place of its hold it is judged by that rank alone.
            Error::AllEligibleWorkersOverloaded | Error::PinnedWorkerOverloaded { .. } => {
                !eligible.is_empty()
            }
            _ => false,
        };
        if true_refusal {
            return Ok(());
        }
        Err(Breach::of(NAME, format!("the leg of {client} was refused: {error}")))
    }

    /// A refusal is one that the contract gives, for what is so.
    pub fn refusal_is_true(&mut self, client: u32, error: &Error) -> Result<(), Breach> {
        const NAME: &str = "nobody_waits_with_room";
        let of = &self.clients[&client];
        let side = self.side(of.hop);
        let asks = of.asks_at(of.hop);
        let eligible = side.fleet.eligible(asks, false);
        let class = &side.policy.classes[self.class_of(of)];
        let line = side.own_line(&class.line);
        let past = |rank: &Rank| {
            let own = side.fleet.is_past(&side.fleet.reject, *rank, &side.ledger);
            let barred =
                self.setup.class_room_only && side.fleet.is_past(&line, *rank, &side.ledger);
            own || barred || side.fleet.is_marked(*rank, self.now)
        };
        // What waited was refused in the middle of a step, which may have made room after that.
        let known = self.fresh && !of.place.woken;
        let true_refusal = match error {
            Error::Closed => side.closed,
            Error::DeadlineExceeded => of.place.due.is_some_and(|due| due <= self.now),
            Error::NoEndpoints => {
                let decode = self.side(Hop::Decode);
                let leg = Asks { wants: &of.demand.leg, lora: of.demand.lora };
                let asks_more = of.hop == Hop::Prefill && !of.demand.leg.is_empty();
                let nowhere = asks_more && decode.fleet.eligible(leg, true).is_empty();
                !known || eligible.is_empty() || nowhere
            }
            Error::AllEligibleWorkersOverloaded | Error::PinnedWorkerOverloaded { .. } => {
                !known || (!eligible.is_empty() && eligible.iter().all(past))
            }
            Error::QueueRejected { current, limit, .. } => current >= limit,
            Error::WouldQueue { .. } => of.demand.do_not_queue,
            Error::PolicyFailed { .. } => of.demand.poison,
            _ => false,
        };
        if true_refusal {
            return Ok(());
        }
        Err(Breach::of(NAME, format!("request {client} was refused: {error}")))
    }

    /// At the end nothing is left, in neither pool.
    pub fn nothing_is_left(&mut self) -> Result<(), Breach> {
        const NAME: &str = "nothing_is_left";
        for (client, of) in &self.clients {
            if of.ends != 1 {
                let what = format!("request {client} ended {} times", of.ends);
                return Err(Breach::of("every_request_ends_exactly_once", what));
            }
        }
        for hop in Hop::BOTH {
            let side = self.side(hop);
            let pool = &side.pool;
            // An id that is live, or only reserved still, is one that is left.
            let ids = self.clients.iter().filter(|(_, of)| of.by_id).map(|(&id, _)| id);
            for id in ids.map(|id| RequestId(id.into())) {
                let again = pool.book_as(id, &Request::new(0).at(self.time()));
                if matches!(again, Err(Error::DuplicateRequest { .. })) {
                    return Err(Breach::of(NAME, format!("id {id} is taken in {hop:?}")));
                }
                pool.free(id);
                if pool.take_hold(id).is_some() {
                    return Err(Breach::of(NAME, format!("a hold is under {id} in {hop:?}")));
                }
            }
            if let Some((rank, row)) = side.ledger.rows.iter().find(|(_, row)| !row.is_empty()) {
                return Err(Breach::of(NAME, format!("in the books, on {rank}: {row:?}")));
            }
            let snapshot = side.pool.snapshot();
            for (rank, load) in &snapshot.ranks {
                let on = [load.prefill_tokens, load.kv_blocks, load.held_blocks, load.requests];
                if on != [0; 4] {
                    let what = format!("{rank} of {hop:?}: tokens, blocks, held, requests {on:?}");
                    return Err(Breach::of(NAME, what));
                }
            }
            let left = [
                snapshot.waiting,
                snapshot.classes.iter().map(|c| (c.waiting + c.tokens) as usize).sum(),
                snapshot.ids,
                side.pool.export().len(),
                side.pool.mirrored(),
            ];
            if left != [0; 5] {
                let what =
                    format!("{hop:?}: waiting, in classes, ids, exported, mirrored {left:?}");
                return Err(Breach::of(NAME, what));
            }
        }
        Ok(())
    }
}
