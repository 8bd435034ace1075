//! Placing with the host's own filter, scorer, picker or observer.
//!
//! What the pass saw is copied into columns, the pin and the view are let go, and only then is host
//! code run: it may block for as long as it likes. Whatever it picks is looked up again in the
//! view of that moment and judged again on its row, so it cannot choose what is not eligible, book
//! past a limit, or book on a rank that has gone meanwhile.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::fleet::block::lanes;
use crate::fleet::view::View;
use crate::load::slot::Refusal;
use crate::pass::custom::{Entry, Table};
use crate::pass::full::{Ask, Look, Pass, Proposal, Tools, Verdict};
use crate::pass::lanes::Column;
use crate::pins::pin;
use crate::pool::Handle;
use crate::pool::choose::{Checked, Placement, Purpose, with_arena};
use crate::request::{Request, Target};
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use std::sync::atomic::Ordering;

/// Every rank that host code may look at, and which of them may be chosen.
struct Gathered<'a> {
    table: Table<'a>,
    may: ArenaVec<'a, bool>,
    verdict: Verdict,
    /// The largest overlap of an eligible rank.
    most: Option<(crate::names::Rank, f64)>,
    generation: u64,
}

impl Handle {
    /// As [`place_exact`](Self::place_exact), with the host's say.
    pub(crate) fn place_custom(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
    ) -> Result<Placement, Error> {
        loop {
            let round = with_arena(|arena| self.custom_round(request, checked, purpose, arena));
            match round? {
                Some(placement) => return Ok(placement),
                None => {
                    self.stripe().reselections.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// One round: gather, ask the host, land. `None`: what was picked no longer stands.
    fn custom_round(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
        arena: &Bump,
    ) -> Result<Option<Placement>, Error> {
        let custom = &self.inner.custom;
        let mut rng = self.rng(request);
        let Gathered { mut table, may, verdict, most, generation } =
            self.gather(request, checked, arena);
        self.stripe().passes.fetch_add(1, Ordering::Relaxed);
        if let Some(observer) = &custom.observer {
            table.observe(&**observer);
        }
        table.retain(|i| may[i]);
        if table.is_empty() {
            let guard = pin();
            if self.inner.view.load(&guard).generation != generation {
                return Ok(None);
            }
            return Err(self.inner.refusal(request, &verdict));
        }
        if let Some(filter) = &custom.filter {
            table.filter(&**filter)?;
            if table.is_empty() {
                return Err(Error::AllEligibleWorkersFiltered);
            }
        }
        if let Some(target) = request.constraints.as_ref().and_then(|c| c.affinity)
            && (0..table.len()).any(|i| names(target, &table.entry(i)))
        {
            let keep: ArenaVec<'_, bool> = ArenaVec::from_iter_in(
                (0..table.len()).map(|i| names(target, &table.entry(i))),
                arena,
            );
            table.retain(|i| keep[i]);
        }
        if let Some(scorer) = &custom.scorer {
            table.score(&**scorer)?;
        }
        let weights = self.inner.settings.weights.with(request.overrides.as_ref());
        let picked = match &custom.picker {
            Some(picker) => table.pick(&**picker, &mut rng)?,
            None => table.choose(weights.temperature, &mut rng).expect("the table is not empty"),
        };
        let entry = table.entry(picked);

        let guard = pin();
        let view = self.inner.view.load(&guard);
        let ask = self.inner.ask(request, checked, view, arena);
        if view.generation != generation && !still_stands(view, &ask, &entry) {
            return Ok(None);
        }
        let own: f64 = entry.overlap.iter().sum();
        let proposal = Proposal {
            slot: entry.slot,
            rank: entry.rank,
            life: entry.life,
            cost: entry.cost,
            overlap: entry.overlap,
            cached_tokens: entry.cached_tokens,
            by_sibling: entry.full,
            class_room: !entry.class_full,
            forgone: most.filter(|&(_, blocks)| blocks > own),
        };
        let landed = match purpose {
            Purpose::Select => None,
            Purpose::Book => {
                match self.inner.land_proposal(view, &guard, &ask, &proposal, |_| true) {
                    Ok(landed) => Some(landed),
                    Err(Refusal::Overflow) => {
                        return Err(Error::RowOverflow { rank: proposal.rank });
                    }
                    Err(Refusal::Full(_) | Refusal::Dead) => return Ok(None),
                }
            }
        };
        let choice = self.inner.choice(view, &verdict, &proposal);
        Ok(Some(Placement { choice, landed }))
    }

    /// Copies what host code may look at, under one pin, and lets go of it.
    fn gather<'a>(&self, request: &'a Request, checked: Checked, arena: &'a Bump) -> Gathered<'a> {
        let inner = &*self.inner;
        let guard = pin();
        let view = inner.view.load(&guard);
        let ask = inner.ask(request, checked, view, arena);
        let tools = Tools { kernel: inner.kernel, index: &inner.index, arena };
        let everyone = inner.custom.observer.is_some();
        let look = if everyone { Look::All } else { Look::Eligible };
        let ranks = view.ranks as usize;
        let mut gathered = Gathered {
            table: Table::new(request, inner.settings.block_size, ranks, arena),
            may: ArenaVec::with_capacity_in(ranks, arena),
            verdict: Verdict::default(),
            most: None,
            generation: view.generation,
        };
        let mut pass = Pass::new(view, &tools, &guard, &ask);
        let mut costs = Column::<f64>::default();
        for b in 0..view.blocks.len() {
            let weighed = pass.weigh(b, f64::INFINITY, look, &mut costs);
            let verdict = &mut gathered.verdict;
            verdict.eligible += weighed.eligible.count_ones();
            verdict.full += (weighed.full & weighed.eligible).count_ones();
            verdict.class_full += (weighed.class_full & weighed.eligible).count_ones();
            let shown = if everyone { view.blocks[b].declared } else { weighed.may };
            for lane in lanes(shown | weighed.may) {
                let entry = pass.entry(b, lane, &weighed, &costs);
                gathered.table.push(&entry);
                gathered.may.push(weighed.may >> lane & 1 == 1);
            }
            for lane in lanes(weighed.eligible & pass.listed(b)) {
                let slot = crate::fleet::block::SlotId::new(b, lane);
                let blocks: f64 = pass.overlap_of(slot).iter().sum();
                if gathered.most.is_none_or(|(_, most)| blocks > most) {
                    gathered.most = Some((view.blocks[b].ranks[lane], blocks));
                }
            }
        }
        gathered
    }
}

fn names(target: Target, entry: &Entry) -> bool {
    entry.rank.worker == target.worker && target.dp_rank.is_none_or(|r| r == entry.rank.dp_rank)
}

/// Whether a rank that was picked under an older view is the same, eligible and unmarked now.
fn still_stands(view: &View, ask: &Ask<'_>, entry: &Entry) -> bool {
    let block = view.block(entry.slot);
    let eligible = ask.eligible.lanes(view, entry.slot.block()) & !block.marked(ask.now);
    eligible & entry.slot.bit() != 0 && view.life(entry.slot) == entry.life
}
