//! One rank at a time, in the words of the formula: there on every machine, and the oracle that
//! the other back-ends are held against. It shares no walk with them.
#![forbid(unsafe_code)]

use crate::pass::lanes::{Found, Inputs, LANES, Terms, is_past};

pub(super) static FUNCTIONS: super::Functions =
    super::Functions { walk, past, cheapest, extent, least_tokens };

fn walk(
    terms: &Terms,
    inputs: &Inputs<'_>,
    candidates: u64,
    bar: f64,
    costs: &mut [f64; LANES],
) -> Found {
    for lane in 0..LANES {
        costs[lane] = terms.cost(
            inputs.rows[lane],
            inputs.credit.map_or(0.0, |c| c[lane]),
            inputs.held.map_or(0, |h| h[lane]),
            inputs.requests.map_or(0, |r| r[lane]),
        );
    }
    let full = past(inputs.rows, inputs.limits);
    let class_full = inputs.class_limits.map_or(0, |limits| past(inputs.rows, limits));
    let (min, ties) = cheapest(costs, candidates & !full);
    Found { full, class_full, min, ties: if min <= bar { ties } else { 0 } }
}

fn past(rows: &[u64; LANES], limits: &[u64; LANES]) -> u64 {
    let mut bits = 0;
    for lane in 0..LANES {
        bits |= u64::from(is_past(rows[lane], limits[lane])) << lane;
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
