//! Deficit round robin between classes: who may go next, and what it costs its class.
//!
//! Owns the credits and the turn. Nothing here is granted for good before somebody goes: a look
//! ([`Drr::next`]) makes a plan, and only [`Drr::went`] carries it out. So a class that turns out to
//! be blocked, or a time when nothing at all can go, leaves credits and turn as they were.
//!
//! The rules:
//! - A turn is kept while the credit covers the class's next head, whatever time passes.
//! - A turn brings one quantum. It is granted when the credit does not cover the head; credit
//!   carried over is spent first.
//! - A turn that is over goes round the ring, in the order of declaration, to the first class that
//!   can pay for its head, with its quantum if need be; every open class on the way was visited in
//!   vain and keeps its quantum.
//! - If nobody can pay, the ring goes round as often as it takes until one can. That is computed,
//!   not walked: the fewest whole rounds are granted at once. Who comes after the one that can pay
//!   gets its quantum of the last of them when its own turn comes, so that after any number of
//!   turns all open classes were granted the same number of quanta, give or take one.
//! - A class that is blocked is stepped over: it earns nothing and loses nothing but its turn. When
//!   the ring comes round again it first spends what its turn had left, which was granted already.
//! - A class whose queue empties loses its credit.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

/// What the ring needs to know of a class: its next head that is not known to be blocked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// In tokens; at least 1.
    pub cost: u64,
    /// Whether its gate was seen open since anybody last went.
    pub open: bool,
}

/// What the ring says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The head of this class goes next.
    Go(u32),
    /// First say whether the head of this class is open: the class would lose its turn or earn a
    /// grant because it cannot pay for that head, which only matters if that head could go.
    Ask(u32),
    /// No class has a head that is not known to be blocked.
    Nobody,
}

#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    quantum: u64,
    /// In tokens. Wide, so that a grant on top of any cost fits.
    tokens: u128,
    /// It lost its turn because it was blocked, with the quantum of that turn already granted.
    interrupted: bool,
}

/// How the holder of the turn comes to lose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    #[default]
    Keeps,
    Spent,
    Blocked,
}

#[derive(Debug, Default)]
struct Plan {
    go: Option<u32>,
    holder: Holder,
    /// Whether the quantum of the turn is still to be granted after this.
    fresh: bool,
    /// Quanta that classes are granted.
    grants: Vec<(u32, u64)>,
    /// The first two classes that cannot pay for a head that is not known to be open.
    unknown: [Option<u32>; 2],
}

#[derive(Debug)]
pub(super) struct Drr {
    credits: Vec<Credit>,
    turn: u32,
    /// Whether the turn has its quantum still to come.
    fresh: bool,
    plan: Plan,
    /// Scratch: classes that cannot pay, with what their heads cost beyond their credit.
    short: Vec<(u32, u128)>,
}

impl Drr {
    /// The ring starts with the first class.
    pub(super) fn new(quanta: impl Iterator<Item = u64>) -> Drr {
        let credits: Vec<Credit> =
            quanta.map(|quantum| Credit { quantum, ..Credit::default() }).collect();
        let turn = credits.len().saturating_sub(1) as u32;
        Drr { credits, turn, fresh: false, plan: Plan::default(), short: Vec::new() }
    }

    /// Who goes next among `backlogged` classes, of which `head` gives the next head that is not
    /// known to be blocked. Changes nothing but the plan. O(classes with a backlog).
    pub(super) fn next(
        &mut self,
        backlogged: &BTreeSet<u32>,
        mut head: impl FnMut(u32) -> Option<Head>,
    ) -> Next {
        self.plan.go = None;
        self.plan.grants.clear();
        self.plan.unknown = [None; 2];
        self.plan.holder = Holder::Keeps;
        self.plan.fresh = self.fresh;

        let turn = self.turn;
        let mut of_holder = None;
        if backlogged.contains(&turn) {
            of_holder = head(turn);
            match of_holder {
                Some(h) => match self.visit(turn, h) {
                    Some(next) => return next,
                    None => self.plan.holder = Holder::Spent,
                },
                None => self.plan.holder = Holder::Blocked,
            }
        }

        self.short.clear();
        let ring = backlogged.range(turn + 1..).chain(backlogged.range(..=turn));
        for &class in ring {
            let h = if class == turn { of_holder } else { head(class) };
            let Some(h) = h else { continue };
            let granted: u64 = if class == turn { self.planned(turn) } else { 0 };
            let credit = &self.credits[class as usize];
            let quantum = u128::from(credit.quantum);
            let have = credit.tokens + u128::from(granted) * quantum;
            let cost = u128::from(h.cost);
            if have >= cost {
                self.plan.fresh = !credit.interrupted;
                return self.go(class);
            }
            self.grant(class, h, 1);
            if have + quantum >= cost {
                self.plan.fresh = false;
                return self.go(class);
            }
            self.short.push((class, cost - have - quantum));
        }

        // One whole round was in vain: how many more until one can pay, and who is first to.
        let mut best: Option<(u128, usize)> = None;
        for (i, &(class, missing)) in self.short.iter().enumerate() {
            let rounds = missing.div_ceil(u128::from(self.credits[class as usize].quantum));
            if best.is_none_or(|(fewest, _)| rounds < fewest) {
                best = Some((rounds, i));
            }
        }
        let Some((rounds, first)) = best else { return Next::Nobody };
        for (i, &(class, _)) in self.short.iter().enumerate() {
            // No more than the missing tokens of the one that moves, which fit 64 bits.
            let granted = if i <= first { rounds } else { rounds - 1 };
            self.plan.grants.push((class, granted as u64));
        }
        self.plan.fresh = false;
        self.go(self.short[first].0)
    }

    /// What the holder of the turn does; `None` if its turn is over.
    fn visit(&mut self, class: u32, head: Head) -> Option<Next> {
        let credit = &self.credits[class as usize];
        let cost = u128::from(head.cost);
        if credit.tokens >= cost {
            return Some(self.go(class));
        }
        if !self.fresh {
            // With nothing left it could not pay for another head either.
            if credit.tokens > 0 {
                self.doubt(class, head);
            }
            return None;
        }
        let pays = credit.tokens + u128::from(credit.quantum) >= cost;
        self.grant(class, head, 1);
        self.plan.fresh = false;
        pays.then(|| self.go(class))
    }

    /// Settles the plan on `class`, unless it rests on a head that may be blocked.
    fn go(&mut self, class: u32) -> Next {
        let unknown = self.plan.unknown.into_iter().flatten().find(|&c| c != class);
        if let Some(unknown) = unknown {
            return Next::Ask(unknown);
        }
        self.plan.go = Some(class);
        Next::Go(class)
    }

    fn grant(&mut self, class: u32, head: Head, quanta: u64) {
        self.plan.grants.push((class, quanta));
        self.doubt(class, head);
    }

    /// Notes that the plan rests on a head that may be blocked.
    fn doubt(&mut self, class: u32, head: Head) {
        if !head.open
            && !self.plan.unknown.contains(&Some(class))
            && let Some(free) = self.plan.unknown.iter_mut().find(|u| u.is_none())
        {
            *free = Some(class);
        }
    }

    fn planned(&self, class: u32) -> u64 {
        self.plan.grants.iter().filter(|g| g.0 == class).map(|g| g.1).sum()
    }

    /// Says that the head of `class` went, at `cost`: carries the plan out and takes the cost.
    pub(super) fn went(&mut self, class: u32, cost: u64) {
        if self.plan.go == Some(class) {
            if self.turn != class {
                let left = &mut self.credits[self.turn as usize];
                left.interrupted = self.plan.holder == Holder::Blocked && !self.fresh;
            }
            for (class, quanta) in self.plan.grants.drain(..) {
                let credit = &mut self.credits[class as usize];
                credit.tokens += u128::from(quanta) * u128::from(credit.quantum);
                credit.interrupted = false;
            }
            self.turn = class;
            self.fresh = self.plan.fresh;
            self.credits[class as usize].interrupted = false;
        }
        self.plan.go = None;
        let credit = &mut self.credits[class as usize];
        // Covered, unless somebody went who was not next.
        credit.tokens = credit.tokens.saturating_sub(u128::from(cost));
    }

    /// Says that the queue of `class` is empty: its credit is dropped, and what was planned for it.
    pub(super) fn emptied(&mut self, class: u32) {
        let credit = &mut self.credits[class as usize];
        credit.tokens = 0;
        credit.interrupted = false;
        self.plan.grants.retain(|g| g.0 != class);
        if self.plan.go == Some(class) {
            self.plan.go = None;
        }
        if self.turn == class {
            self.fresh = false;
        }
    }

    /// The credit of a class, in tokens.
    #[cfg(test)]
    pub(super) fn credit(&self, class: u32) -> u128 {
        self.credits[class as usize].tokens
    }
}
