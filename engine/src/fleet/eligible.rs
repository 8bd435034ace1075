//! Structural eligibility: one `u64` per block. In this order: the caller's allowed and denied
//! sets, availability, required taints and domains, LoRA; a pin is hard. Soft marks and limits are
//! judged later, at selection, on what is left here.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::fleet::tags::Tag;
use crate::fleet::view::{BlockView, View};
use crate::names::{Name, WorkerId};
use crate::request::{Constraints, Target};
use bumpalo::Bump;
use smallvec::SmallVec;

/// The lanes that a request may use, block by block.
#[derive(Clone, Copy)]
pub(crate) enum Eligible<'a> {
    /// Every available rank.
    All,
    /// These, and of them only the available ones (availability is in the sets already).
    Only(&'a [u64]),
}

impl Eligible<'_> {
    #[inline(always)]
    pub(crate) fn lanes(&self, view: &View, block: usize) -> u64 {
        match self {
            Eligible::All => view.blocks[block].available,
            Eligible::Only(sets) => sets[block],
        }
    }

    /// Whether any rank is eligible.
    pub(crate) fn any(&self, view: &View) -> bool {
        match self {
            Eligible::All => view.blocks.iter().any(|b| b.available != 0),
            Eligible::Only(sets) => sets.iter().any(|&set| set != 0),
        }
    }
}

/// Whether availability counts: it refuses newcomers, but what waits already keeps waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Only available ranks.
    Required,
    /// Every declared rank.
    Ignored,
}

/// A pin outside its own allowed set can never be met, whatever the fleet.
pub(crate) fn check_pin(constraints: Option<&Constraints>) -> Result<(), Error> {
    if let Some(c) = constraints
        && let (Some(pin), Some(allow)) = (c.pin, &c.allow)
        && !allow.contains(&pin.worker)
    {
        return Err(Error::PinnedWorkerNotAllowed { worker: pin.worker });
    }
    Ok(())
}

/// Resolves constraints and LoRA against a view. `O(blocks)` for a constrained request.
pub(crate) fn resolve<'a>(
    view: &View,
    constraints: Option<&Constraints>,
    lora: Option<&Name>,
    availability: Availability,
    arena: &'a Bump,
) -> Eligible<'a> {
    let constraints = constraints.filter(|c| c.restricts());
    if constraints.is_none() && lora.is_none() && availability == Availability::Required {
        return Eligible::All;
    }
    let sets = arena.alloc_slice_fill_iter(view.blocks.iter().map(|b| match availability {
        Availability::Required => b.available,
        Availability::Ignored => b.declared,
    }));
    if let Some(c) = constraints {
        narrow(view, c, sets, arena);
    }
    // A pin inside the set is always kept: the worker loads the adapter when it is asked to.
    if let Some(adapter) = lora
        && constraints.is_none_or(|c| c.pin.is_none())
        && let Some(number) = view.tags.number(&Tag::Lora(adapter.clone()))
    {
        let serves = |block: &BlockView| block.tagged(number);
        if sets.iter().zip(&view.blocks).any(|(set, block)| set & serves(block) != 0) {
            for (set, block) in sets.iter_mut().zip(&view.blocks) {
                *set &= serves(block);
            }
        }
        // Nobody serves it yet: the un-narrowed set stands, and the chosen one loads it.
    }
    Eligible::Only(sets)
}

fn narrow(view: &View, c: &Constraints, sets: &mut [u64], arena: &Bump) {
    if let Some(allow) = &c.allow {
        let allowed = arena.alloc_slice_fill_copy(sets.len(), 0u64);
        for_slots(view, allow, |slot| allowed[slot.block()] |= slot.bit());
        for (set, allowed) in sets.iter_mut().zip(allowed) {
            *set &= *allowed;
        }
    }
    for_slots(view, &c.deny, |slot| sets[slot.block()] &= !slot.bit());
    if let Some(pin) = c.pin {
        let pinned = arena.alloc_slice_fill_copy(sets.len(), 0u64);
        for slot in slots_of(view, pin) {
            pinned[slot.block()] |= slot.bit();
        }
        for (set, pinned) in sets.iter_mut().zip(pinned) {
            *set &= *pinned;
        }
    }
    let taints = c.taints.iter().map(|t| Tag::Taint(t.clone()));
    let domains = c.domain.iter().map(|(l, v)| Tag::Domain(l.clone(), v.clone()));
    for tag in taints.chain(domains) {
        let number = view.tags.number(&tag);
        for (set, block) in sets.iter_mut().zip(&view.blocks) {
            *set &= number.map_or(0, |n| block.tagged(n));
        }
    }
}

fn for_slots(view: &View, workers: &[WorkerId], mut f: impl FnMut(SlotId)) {
    for &id in workers {
        if let Some(worker) = view.workers.get(id) {
            worker.slots.iter().copied().for_each(&mut f);
        }
    }
}

/// The slots that a pin or an affinity target names; none if the fleet does not have them.
pub(crate) fn slots_of(view: &View, target: Target) -> SmallVec<[SlotId; 4]> {
    let Some(worker) = view.workers.get(target.worker) else { return SmallVec::new() };
    match target.dp_rank {
        None => worker.slots.clone(),
        Some(dp_rank) => worker.slot(dp_rank).into_iter().collect(),
    }
}
