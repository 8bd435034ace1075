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
use crate::pass::custom::{Entry, Table};
use crate::pass::full::{Ask, Look, Pass, Proposal, Verdict};
use crate::pass::lanes::Column;
use crate::pins::pin;
use crate::pool::choose::{Caller, Checked, Closed, Gate, Placement, Purpose, Tried};
use crate::request::{Request, Target};
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;

/// Every rank that host code may look at, and which of them may be chosen.
struct Gathered<'a> {
    table: Table<'a>,
    may: ArenaVec<'a, bool>,
    verdict: Verdict,
    /// The class's gate was found closed.
    closed: Option<Closed>,
    /// The largest overlap of an eligible rank.
    most: Option<(crate::names::Rank, f64)>,
    generation: u64,
}

impl Caller<'_> {
    /// One round: gather, ask the host, land. `None`: what was picked no longer stands.
    pub(crate) fn custom_round(
        &self,
        request: &Request,
        checked: Checked,
        purpose: Purpose,
        gate: Option<Gate<'_>>,
        arena: &Bump,
        into: &mut Option<Placement>,
    ) -> Result<Option<Tried>, Error> {
        let custom = &self.inner.custom;
        let mut rng = self.rng(request);
        let Some(gathered) = self.gather(request, checked, gate, arena) else {
            return Ok(Some(Tried::Stale));
        };
        let Gathered { mut table, may, verdict, closed, most, generation } = gathered;
        if let Some(closed) = closed {
            return Ok(self.inner.is_current(generation).then_some(Tried::Closed(closed)));
        }
        if let Some(observer) = &custom.observer {
            table.observe(&**observer);
        }
        table.retain(|i| may[i]);
        if table.is_empty() {
            return match self.inner.is_current(generation) {
                true => Err(self.inner.refusal(request, &verdict)),
                false => Ok(None),
            };
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
        let Some(ask) = self.inner.ask_through(request, checked, view, gate, arena) else {
            return Ok(Some(Tried::Stale));
        };
        if view.generation != generation && !still_stands(view, &ask, &entry) {
            return Ok(None);
        }
        let own: f64 = entry.overlap.iter().sum();
        let proposal = Proposal {
            slot: entry.slot,
            rank: entry.rank,
            cost: entry.cost,
            overlap: entry.overlap,
            cached_tokens: entry.cached_tokens,
            by_sibling: entry.full,
            class_room: !entry.class_full,
            forgone: most.filter(|&(_, blocks)| blocks > own),
        };
        self.conclude(view, &guard, &ask, purpose, gate, &verdict, &proposal, into)
    }

    /// Copies what host code may look at, under one pin, and lets go of it.
    fn gather<'a>(
        &self,
        request: &'a Request,
        checked: Checked,
        gate: Option<Gate<'_>>,
        arena: &'a Bump,
    ) -> Option<Gathered<'a>> {
        let inner = self.inner;
        let guard = pin();
        let view = inner.view.load(&guard);
        let ask = inner.ask_through(request, checked, view, gate, arena)?;
        let tools = inner.tools(arena);
        let everyone = inner.custom.observer.is_some();
        let look = if everyone { Look::All } else { Look::Eligible };
        let ranks = view.ranks as usize;
        let mut gathered = Gathered {
            table: Table::new(request, inner.settings.block_size, ranks, arena),
            may: ArenaVec::with_capacity_in(ranks, arena),
            verdict: Verdict::default(),
            closed: None,
            most: None,
            generation: view.generation,
        };
        let mut pass = Pass::new(view, &tools, &guard, &ask);
        let mut costs = Column::<f64>::default();
        for b in 0..view.blocks.len() {
            let weighed = pass.weigh(b, f64::INFINITY, look, &mut costs);
            gathered.verdict.count(&weighed);
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
        gathered.closed = inner.closed_gate(view, &ask, &gathered.verdict, gate);
        Some(gathered)
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
