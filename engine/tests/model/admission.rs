//! Who is let in: the newcomer's way in, and the next one of those who wait.

use super::answer::{Event, Outcome, Refusal};
use super::choose::Pick;
use super::queue::{self, Waiting};
use super::{For, Model, Pending};
use vacancy::{Error, Name, Rank, Request, RequestId, Thresholds};

impl Model {
    /// What happens next to those who asked to be admitted, until nothing more does: due times
    /// first, then what has become impossible, then whoever's turn it is.
    ///
    /// # Panics
    /// If the last choice was not settled.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some((ticket, pick)) = self.newcomer.take() {
            return Some(Event::Admitted(ticket, pick));
        }
        assert!(self.pending.is_none(), "the last choice was not settled");
        let refused = self.queue.waiting.iter().find_map(|(ticket, w)| {
            let why = if self.closed {
                Error::Closed
            } else if w.due.is_some_and(|due| self.clock >= due) {
                Error::DeadlineExceeded
            } else if queue::impossible(&self.fleet, &w.request)
                || self.pair_can_never(w.class, &w.request)
            {
                Error::NoEndpoints
            } else {
                return None;
            };
            Some((*ticket, Refusal::from(why)))
        });
        if let Some((ticket, why)) = refused {
            if let Refusal::Is(Error::DeadlineExceeded) = why {
                self.counters.expired += 1;
            }
            return Some(self.refuse(ticket, why));
        }
        let (ticket, turns) = self.queue.next(&self.view())?;
        let waiter = &self.queue.waiting[&ticket];
        let (id, request) = (waiter.id, self.refreshed(ticket));
        let barred = self.queue.barred(ticket, &self.fleet);
        let class = waiter.class;
        match self.pick_in(class, &request, &barred) {
            Ok(pick) => {
                let of = For::Waiter(ticket, turns);
                let hold = self.hold_for(class, &request);
                self.pending = Some(Pending { pick: pick.clone(), request, id, of, hold });
                Some(Event::Admitted(ticket, pick))
            }
            Err(why) => Some(self.refuse(ticket, why)),
        }
    }

    /// Every right answer to a request of this class, on ranks that are not barred.
    pub(super) fn pick_in(
        &self,
        class: usize,
        request: &Request,
        barred: &[Rank],
    ) -> Result<Pick, Refusal> {
        let view = self.view();
        let mut among = self.fleet.eligible(request)?;
        among.retain(|r| !barred.contains(r));
        if self.config.class_room_only {
            among.retain(|r| !self.queue.full(class, *r, &view));
        }
        view.pick_among(request, Some(&among))
    }

    pub(super) fn refuse(&mut self, ticket: u64, why: Refusal) -> Event {
        self.queue.leave(ticket);
        self.count(&why);
        Event::Refused(ticket, why)
    }

    /// The tickets of those who wait, in the order of arrival: what [`Nth`] counts in.
    pub fn waiting(&self) -> Vec<u64> {
        self.queue.waiting.keys().copied().collect()
    }

    /// Whether somebody waits who may not be passed any more.
    pub fn guarded(&self) -> bool {
        self.queue.waiting.values().any(|w| w.passed >= queue::PASSES)
    }

    /// Who waits, class by class, and whose turn it is, for whoever reads a difference.
    pub fn queue_in_words(&self) -> String {
        let mut text = format!("{:?}", self.queue.turns());
        for (i, class) in self.queue.policy.classes.iter().enumerate() {
            let line = self.queue.line(i);
            let costs = line.iter().map(|t| (*t, self.queue.waiting[t].cost()));
            text += &format!("\n  {} (ticket, cost): {:?}", class.name, costs.collect::<Vec<_>>());
        }
        text
    }

    /// The class of whoever was let in last.
    pub fn admitted_in(&self) -> &Name {
        &self.queue.policy.classes[self.admitted_in].name
    }

    /// What the class of this name has waiting.
    pub fn depth(&self, class: &str) -> queue::Depth {
        let named = |c: &queue::Class| c.name.as_str() == class;
        let class = self.queue.policy.classes.iter().position(named).expect("a class");
        self.queue.depth(class)
    }

    pub(super) fn admit(
        &mut self,
        request: &Request,
        id: Option<RequestId>,
    ) -> Result<u64, Refusal> {
        let admitted = self.try_admit(request, id);
        if let Err(why) = &admitted {
            self.count(why);
        }
        admitted
    }

    /// Goes in at once, or joins the queue: whether it is let in from there, the next events say.
    pub(super) fn try_admit(
        &mut self,
        request: &Request,
        id: Option<RequestId>,
    ) -> Result<u64, Refusal> {
        self.checked(request, id)?;
        let eligible = self.fleet.eligible(request)?;
        if let Some(class) = &request.class
            && request.strict_class
            && !self.queue.policy.knows(class)
        {
            return Err(Error::UnknownClass { class: class.clone() }.into());
        }
        let said = self.classify(request, &eligible)?;
        let request = &said.request;
        self.in_time(request)?;
        let view = self.view();
        let uncached = queue::uncached(&view, request, &eligible);
        let class = self.queue.policy.class(request.class.as_ref(), uncached);
        let settings = self.queue.policy.classes[class].clone();
        let (name, waiting) = (settings.name.clone(), self.queue.depth(class));
        let ticket = self.tickets;

        let straight = request.upstream || settings.thresholds == Thresholds::NONE;
        if !straight && self.pair_can_never(class, request) {
            return Err(Error::NoEndpoints.into());
        }
        let never_queues = settings.limits.contains(&Some(0));
        let behind =
            if never_queues { waiting.requests > 0 } else { !self.queue.waiting.is_empty() };
        if straight || (!behind && self.queue.gate(class, request, &eligible, &view)) {
            let pick = match straight {
                true => view.pick(request)?,
                false => self.pick_in(class, request, &[])?,
            };
            let hold = if straight { None } else { self.hold_for(class, request) };
            self.tickets += 1;
            self.newcomer = Some((ticket, pick.clone()));
            let request = request.clone();
            self.pending = Some(Pending { pick, request, id, of: For::Newcomer(class), hold });
            return Ok(ticket);
        }

        let due = request.due.or(settings.max_wait.map(|wait| self.clock.after(wait)));
        let waiter = Waiting {
            request: request.clone(),
            id,
            class,
            uncached,
            costs: said.cost,
            arrived: self.clock,
            due,
            passed: 0,
        };
        let mut queue = self.queue.clone();
        queue.waiting.insert(ticket, waiter);
        if request.do_not_queue {
            // Nobody who waits could go, so the newcomer's turn comes now or it waits.
            if queue.candidate(class, &view) != Some(ticket) {
                return Err(Error::WouldQueue { class: name, waiting: waiting.requests }.into());
            }
        } else {
            let workers = self.fleet.workers.len() as u64;
            let limits = waiting.by_kind().into_iter().zip(settings.limits);
            let limits = limits.filter_map(|((kind, n), limit)| Some((kind, n, limit?)));
            // A class that never queues says so, whatever other limit is reached.
            let asked = limits.filter(|(_, _, limit)| !never_queues || *limit == 0);
            for (kind, current, limit) in asked {
                let limit = limit.saturating_mul(workers);
                if current >= limit {
                    let class = name;
                    return Err(Error::QueueRejected { class, kind, current, limit }.into());
                }
            }
        }
        self.queue = queue;
        self.tickets += 1;
        Ok(ticket)
    }

    /// Takes out one who waits.
    pub(super) fn withdraw(&mut self, ticket: u64) -> Outcome {
        let class = self.queue.waiting[&ticket].class;
        self.head_withdrawn = self.queue.heads(class).contains(&ticket);
        self.queue.leave(ticket);
        self.counters.cancelled += 1;
        Outcome::Withdrawn(ticket)
    }
}
