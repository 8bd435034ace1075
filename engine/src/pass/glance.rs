//! A full pass at a glance: for a request that every rank is weighed for by its row alone, it is
//! enough to know of each block how many of its ranks are full and what the lowest cost is. Who is
//! full, who has which cost and who ties is asked of the cheapest blocks only.
#![forbid(unsafe_code)]

use crate::fleet::block::LANES;
use crate::fleet::view::Limits;
use crate::limits::rules::RejectScope;
use crate::pass::full::{Look, Pass, Verdict};
use crate::pass::lanes::Column;
use crate::pass::pick::{Best, Rng};
use smallvec::SmallVec;

/// What there is to see.
pub(super) struct Glance {
    /// Counts only.
    verdict: Verdict,
    /// The lowest cost, in tokens.
    min: f64,
    /// The blocks where somebody had it.
    blocks: SmallVec<[u32; 16]>,
}

impl Pass<'_> {
    /// Looks at every block at a glance; `None`: they have to be weighed.
    pub(super) fn glance(&self) -> Option<Glance> {
        let (ask, view) = (self.ask, self.view);
        let applies = !self.terms.needs_more_than_rows()
            && ask.class.is_none()
            && ask.discount.is_none()
            && ask.barred.is_none()
            && ask.weights.temperature == 0.0
            && self.shares_nothing();
        // Whether soft marks have a say.
        let marks = !ask.hard_only && view.unmarked != view.available;
        if !applies || marks {
            return None;
        }
        let rejects = !ask.hard_only && !view.rules.reject.is_none();
        // A full rank may stand by its sibling, and then be the cheapest.
        let by_worker = rejects && view.rules.scope == RejectScope::Worker;
        let (kernel, terms) = (self.tools.kernel, self.terms);
        let (mut eligible, mut room) = (0, 0);
        let (mut min, mut blocks) = (f64::INFINITY, SmallVec::new());
        for (b, block) in view.blocks.iter().enumerate() {
            let here = ask.eligible.lanes(view, b);
            let limits = if rejects { &block.reject.0 } else { &Limits::NONE.0 };
            let (least, fit) = kernel.glance(&terms, &block.live.rows, limits, here);
            let of = if here == u64::MAX { LANES as u32 } else { here.count_ones() };
            if by_worker && fit < of && here & block.multi != 0 {
                return None;
            }
            eligible += of;
            room += fit;
            if least <= min {
                if least < min {
                    min = least;
                    blocks.clear();
                }
                blocks.push(b as u32);
            }
        }
        let verdict = Verdict { eligible, full: eligible - room, may: room, ..Verdict::default() };
        Some(Glance { verdict, min, blocks })
    }

    /// Chooses among the cheapest; `None`: they have changed since the glance.
    pub(super) fn settle(&mut self, glance: Glance, rng: &mut Rng) -> Option<Verdict> {
        let Glance { mut verdict, min, blocks } = glance;
        if verdict.may == 0 {
            return Some(verdict);
        }
        let mut best = Best::new();
        let mut costs = Column::default();
        for b in blocks.into_iter().map(|b| b as usize) {
            let weighed = self.weigh(b, min, Look::Eligible, &mut costs);
            let (least, ties) = weighed.min?;
            if least == min {
                best.offer(b, min, ties, rng);
            }
        }
        let (place, cost) = best.get()?;
        verdict.proposal = Some(self.proposal(place.slot(), cost, false, true, None));
        Some(verdict)
    }
}
