//! Drives pools and the reference with the same operations and compares what they answer.

mod build;
mod host;
mod side;
mod words;

pub use build::build;
pub use side::{Difference, Seen};
pub use words::brief;

use crate::model::op::{Leg, Nth, Op};
use crate::model::{Config, Model, Outcome};
use side::{Side, same};
use vacancy::{RejectThresholds, Time};

/// A pool, its pair if it has one, and the reference.
pub struct Driver {
    config: Config,
    reference: Config,
    own: Side,
    pair: Option<Side>,
    model: Model,
    /// After how many steps everything that can be looked at is compared.
    every: u64,
    steps: u64,
}

impl Driver {
    /// A pool of these settings, and its reference.
    pub fn new(config: Config) -> Driver {
        Driver::against(config.clone(), config)
    }

    /// A pool, and a reference with settings of its own.
    pub fn against(config: Config, reference: Config) -> Driver {
        // Whatever a driver that came to a difference has left behind.
        host::take_seen();
        let rejects = RejectThresholds::default();
        let pool = build(&config, &rejects);
        let pair = config.pair.as_ref().map(|pair| {
            let rejects = match config.shared_rejects {
                true => rejects.clone(),
                false => RejectThresholds::default(),
            };
            let decode = build(pair, &rejects);
            pool.pair_with(&decode);
            Side::new(decode, rejects)
        });
        let mut driver = Driver {
            own: Side::new(pool, rejects),
            pair,
            model: Model::new(reference.clone()),
            every: 1,
            steps: 0,
            config,
            reference,
        };
        // Time 0 is left behind, so that there is something before the clock.
        driver.pass(Time::from_millis(1)).expect("nothing is there");
        driver
    }

    /// Answers, and who is let in, are compared at every step as ever; rows, marks and counters only
    /// at every so many steps, and at the end.
    pub fn compare_every(mut self, steps: u64) -> Driver {
        self.every = steps;
        self
    }

    /// Does all of `ops`, whose times count from the clock at their turn. A closed pool is checked
    /// by the operation after it (a closed pair by a few) and then followed by new ones.
    pub fn run(self, ops: Vec<Op>) -> Result<Seen, Difference> {
        self.run_from(ops.into_iter())
    }

    /// As [`Driver::run`], for operations that are drawn one by one.
    pub fn run_from(mut self, ops: impl Iterator<Item = Op>) -> Result<Seen, Difference> {
        let mut left = None;
        for (i, op) in ops.enumerate() {
            let op = op.anchored(self.model.clock());
            for side in [Some(&mut self.own), self.pair.as_mut()].into_iter().flatten() {
                std::mem::swap(&mut side.pool, &mut side.other);
            }
            // The timers come first. Whoever is overdue is "refused at its time (the host's timer,
            // or the next pass, whichever is first)": whether a call that looks at no queue, as a
            // booking, brings a pass along is left open. Two pools of one host have one clock, also
            // after one of them alone was shown an instant.
            if let Some(now) = op.now()
                && now > self.clock()
                && (self.own.waits() || self.pair.is_some())
            {
                self.pass(now).map_err(|why| format!("before {i}: {why}"))?;
            }
            self.step(&op).map_err(|why| format!("operation {i}, {}: {why}", brief(&op)))?;
            match &op {
                Op::Close => left = Some(1),
                Op::Pair(op) if **op == Op::Close => left = left.or(Some(8)),
                _ => {}
            }
            if left == Some(0) {
                left = None;
                let mut new = Driver::against(self.config.clone(), self.reference.clone())
                    .compare_every(self.every);
                new.own.seen = std::mem::take(&mut self.own.seen);
                if let (Some(new), Some(old)) = (&mut new.pair, &mut self.pair) {
                    new.seen = std::mem::take(&mut old.seen);
                }
                let old = std::mem::replace(&mut self, new);
                old.end()?;
            }
            left = left.map(|n| n - 1);
        }
        self.end()
    }

    /// The largest instant that both pools have seen.
    fn clock(&self) -> Time {
        let own = self.model.clock();
        self.model.pair().map_or(own, |pair| pair.clock().min(own))
    }

    /// Time passes, at the pair first.
    fn pass(&mut self, now: Time) -> Result<(), Difference> {
        if self.pair.is_some() {
            self.step(&Op::Pair(Box::new(Op::Expire(now))))?;
        }
        self.step(&Op::Expire(now))
    }

    /// Gives everything back: nothing may be left.
    fn end(mut self) -> Result<Seen, Difference> {
        self.give_back(|op| op)?;
        for id in self.model.held_ids() {
            self.step(&Op::TakeHold(id))?;
        }
        while !self.own.holds.is_empty() {
            self.step(&Op::DropHold(Nth(0)))?;
        }
        let mut seen = std::mem::take(&mut self.own.seen);
        if self.pair.is_some() {
            self.give_back(|op| Op::Pair(Box::new(op)))?;
        }
        self.compare()?;
        for side in [Some(&self.own), self.pair.as_ref()].into_iter().flatten() {
            for (rank, load) in side.pool.snapshot().ranks {
                let left = (load.prefill_tokens, load.kv_blocks, load.requests, load.held_blocks);
                same(&format!("left on {rank}"), left, (0, 0, 0, 0))?;
            }
            for (what, n) in &side.seen {
                *seen.entry(what).or_default() += n;
            }
        }
        same("live at the end", self.model.live(), 0)?;
        same("live at the pair's end", self.model.pair().map_or(0, Model::live), 0)?;
        Ok(seen)
    }

    fn give_back(&mut self, at: fn(Op) -> Op) -> Result<(), Difference> {
        let paired = matches!(at(Op::Export), Op::Pair(_));
        let side = |d: &Driver| -> (bool, bool) {
            let side = if paired { d.pair.as_ref().expect("a pair") } else { &d.own };
            (side.waits(), !side.values.is_empty())
        };
        while side(self).0 {
            self.step(&at(Op::Cancel(Nth(0))))?;
        }
        while side(self).1 {
            self.step(&at(Op::Drop(Nth(0))))?;
        }
        let (of, model) = match (paired, &self.pair, self.model.pair()) {
            (true, Some(side), Some(model)) => (side, model),
            _ => (&self.own, &self.model),
        };
        let ids: Vec<_> = of.attempts.keys().copied().collect();
        for router in model.routers() {
            self.step(&at(Op::PeerGone(router)))?;
        }
        for id in ids {
            self.step(&at(Op::FreeId(id)))?;
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), Difference> {
        let epochs = (self.own.pool.epoch(), self.pair.as_ref().map(|side| side.pool.epoch()));
        let step = self.model.step(op);
        self.answer(op, step.outcome)?;
        let seen = host::take_seen();
        if !seen.is_empty() {
            *self.own.seen.entry("classified").or_default() += 1;
        }
        same("what the classifier saw", seen, self.model.take_seen())?;
        let told = self.events();
        told.map_err(|why| format!("{why}\nwho waits then: {}", self.model.queue_in_words()))?;
        if step.epoch_moves && self.own.pool.epoch() == epochs.0 {
            return Err("room may have appeared, but the epoch stands still".into());
        }
        if let Some(side) = &self.pair
            && step.pair_epoch_moves
            && Some(side.pool.epoch()) == epochs.1
        {
            return Err("room may have appeared, but the pair's epoch stands still".into());
        }
        self.steps += 1;
        if self.steps.is_multiple_of(self.every) { self.compare() } else { Ok(()) }
    }

    /// Compares everything that can be looked at.
    fn compare(&self) -> Result<(), Difference> {
        self.own.compare(&self.model)?;
        if let (Some(side), Some(model)) = (&self.pair, self.model.pair()) {
            side.compare(model).map_err(|why| format!("the pair: {why}"))?;
        }
        Ok(())
    }

    /// Does `op` with the engine and compares the answer.
    fn answer(&mut self, op: &Op, want: Outcome) -> Result<(), Difference> {
        let (Some(pair), Some(model)) = (&mut self.pair, self.model.pair_mut()) else {
            self.own.note(&want);
            return self.own.answer(op, want, &mut self.model);
        };
        match (op, want) {
            (Op::Pair(op), want) => {
                pair.note(&want);
                pair.answer(op, want, model)
            }
            (Op::Leg(nth, leg), Outcome::Leg(want)) => {
                pair.note(&Outcome::Leg(want.clone()));
                self.leg(*nth, leg, &want)
            }
            (op, want) => {
                self.own.note(&want);
                self.own.answer(op, want, &mut self.model)
            }
        }
    }

    fn leg(
        &mut self,
        nth: Nth,
        leg: &Leg,
        want: &Result<crate::model::answer::LegPick, crate::model::Refusal>,
    ) -> Result<(), Difference> {
        let i = nth.of(self.own.holds.len()).expect("as many as the model has");
        let request = self.model.leg_request(i, &leg.request);
        let hold = self.own.holds.remove(i);
        let (pair, model) = (self.pair.as_mut(), self.model.pair_mut());
        let (pair, model) = (pair.expect("a pair"), model.expect("a pair"));
        match pair.leg(hold, &request, leg, want, model)? {
            None => self.model.leg_went_in(nth),
            Some(hold) => self.own.holds.insert(i, hold),
        }
        Ok(())
    }

    /// Compares who was let in and who was refused: at the pair first.
    fn events(&mut self) -> Result<(), Difference> {
        loop {
            if let (Some(pair), Some(model)) = (&mut self.pair, self.model.pair_mut()) {
                pair.events(model).map_err(|why| format!("the pair: {why}"))?;
            }
            self.own.events(&mut self.model)?;
            if !self.model.tell_next() {
                break;
            }
            *self.own.seen.entry("hold replaced").or_default() += 1;
        }
        if let (Some(pair), Some(model)) = (&mut self.pair, self.model.pair()) {
            pair.rest(model).map_err(|why| format!("the pair: {why}"))?;
        }
        self.own.rest(&self.model)
    }
}
