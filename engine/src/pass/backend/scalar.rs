//! One rank at a time, in the words of the formula: there on every machine, and the oracle that
//! the other back-ends are held against. It shares no walk with them.
#![forbid(unsafe_code)]

use crate::fleet::seal::SPAN;
use crate::load::row::{Limit, Row};
use crate::pass::lanes::{CLASSES, Found, LANES, NO_COUNT, NO_CREDIT, Terms, Walk};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::array::from_fn;

pub(super) static FUNCTIONS: super::Functions =
    super::Functions { walk, glance, within, past, cheapest, extent, least_tokens, nearest };

fn walk(walk: &Walk<'_>, costs: &mut [f64; LANES]) -> Found {
    let Walk { terms, inputs, candidates, bar } = *walk;
    let credit = inputs.credit.unwrap_or(&NO_CREDIT);
    let held = inputs.held.unwrap_or(&NO_COUNT);
    let requests = inputs.requests.unwrap_or(&NO_COUNT);
    for lane in 0..LANES {
        costs[lane] = terms.cost(inputs.rows[lane], credit[lane], held[lane], requests[lane]);
    }
    let full = past(inputs.rows, inputs.limits);
    let class_full = inputs.class_limits.map_or(0, |limits| past(inputs.rows, limits));
    let (min, ties) = cheapest(costs, candidates & !full);
    Found { full, class_full, min, ties: if min <= bar { ties } else { 0 } }
}

fn glance(
    terms: &Terms,
    rows: &[AtomicU64; LANES],
    limits: &[u64; LANES],
    candidates: u64,
) -> (f64, u32) {
    let rows = from_fn(|lane| rows[lane].load(Ordering::Relaxed));
    let costs = rows.map(|row| terms.cost(row, 0.0, 0, 0));
    let may = candidates & !past(&rows, limits);
    (extent(&costs, may).0, may.count_ones())
}

fn within(costs: &[AtomicU64; SPAN], added: f64, bar: f64) -> u64 {
    let cost = |at: usize| f64::from_bits(costs[at].load(Ordering::Relaxed));
    (0..SPAN).fold(0, |set, at| set | u64::from(cost(at) + added <= bar) << at)
}

fn past(rows: &[u64; LANES], limits: &[u64; LANES]) -> u64 {
    let mut bits = 0;
    for lane in 0..LANES {
        let past = Row::from_bits(rows[lane]).exceeds(Limit::from_bits(limits[lane]));
        bits |= u64::from(past) << lane;
    }
    bits
}

fn cheapest(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
    let (min, _) = extent(costs, candidates);
    let mut ties = 0;
    for (lane, &cost) in costs.iter().enumerate() {
        ties |= u64::from(cost == min) << lane;
    }
    (min, ties & candidates)
}

fn extent(costs: &[f64; LANES], candidates: u64) -> (f64, f64) {
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for (lane, &cost) in costs.iter().enumerate() {
        if candidates >> lane & 1 == 1 {
            min = if cost < min { cost } else { min };
            max = if cost > max { cost } else { max };
        }
    }
    // -0 comes out as 0.
    (min + 0.0, max + 0.0)
}

fn least_tokens(rows: &[u64; LANES], candidates: u64) -> Option<u32> {
    let lanes = (0..LANES).filter(|lane| candidates >> lane & 1 == 1);
    lanes.map(|lane| rows[lane] as u32).min()
}

fn nearest(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
    let mut edge = f64::NEG_INFINITY;
    for class in 0..CLASSES {
        let lanes = (class..LANES).step_by(CLASSES).filter(|lane| candidates >> lane & 1 == 1);
        let least = lanes.map(|lane| costs[lane]).fold(f64::INFINITY, f64::min);
        if least < f64::INFINITY {
            edge = edge.max(least);
        }
    }
    let within = |set: u64, lane: usize| set | u64::from(costs[lane] <= edge) << lane;
    (edge + 0.0, (0..LANES).fold(0, within) & candidates)
}
