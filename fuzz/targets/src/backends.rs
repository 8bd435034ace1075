//! The back-ends of a pass: each against the scalar one to the bit, and that one against plain
//! arithmetic, rank by rank.
#![forbid(unsafe_code)]

use crate::bytes::Bytes;
use crate::choice::Weights;
use crate::load::row::{Limit, MAX_BLOCKS};
use crate::model::op::Dice;
use crate::pass::backend::{Backend, Kernel};
use crate::pass::lanes::{Column, Found, Inputs, Terms, Tracking};

/// One block and one request, as it is drawn.
#[derive(Clone, Debug)]
struct Block {
    tokens: [u32; 64],
    blocks: [u32; 64],
    dead: u64,
    limits: [(u32, u32); 64],
    class: Option<[(u32, u32); 64]>,
    credit: Option<Column<f64>>,
    held: Option<[u32; 64]>,
    requests: Option<[u32; 64]>,
    candidates: u64,
    bar: f64,
    terms: Terms,
}

/// Counts of ranks that are alike more often than not, so that ties are met.
fn count(b: &mut Bytes<'_>) -> u32 {
    match b.byte() {
        0..=127 => u32::from(b.byte() % 8) * 16,
        128..=239 => u32::from(b.byte()),
        240..=250 => b.u32(),
        251..=253 => u32::MAX,
        _ => MAX_BLOCKS,
    }
}

fn weight(b: &mut Bytes<'_>) -> f64 {
    match b.byte() % 8 {
        0 | 1 => 1.0,
        2 => 0.0,
        3 => 0.75,
        4 => f64::from(b.byte()) / 16.0,
        5 => f64::from(b.u32()) / 7.0,
        6 => f64::from_bits(b.u64()).abs(),
        _ => 1e300,
    }
}

/// A weight as pools take it.
fn finite(w: f64) -> f64 {
    if w.is_finite() { w } else { 0.1 }
}

fn limit(b: &mut Bytes<'_>) -> (u32, u32) {
    (
        if b.roll(3) == 0 { u32::MAX } else { count(b) },
        if b.roll(3) == 0 { u32::MAX } else { count(b) },
    )
}

impl Block {
    fn draw(b: &mut Bytes<'_>) -> Block {
        let weights = Weights {
            device: finite(weight(b)),
            prefill_scale: finite(weight(b)),
            request: finite(weight(b)),
            ..Weights::default()
        };
        let track = Tracking {
            block_size: [16, 1, 48, 128, 3, u32::MAX][b.roll(6) as usize],
            prefill: b.roll(4) != 3,
            blocks: b.roll(4) != 3,
            overlaps: b.roll(2) == 1,
        };
        let prompt_blocks = count(b);
        let column = |b: &mut Bytes<'_>, most: u32| -> [u32; 64] {
            std::array::from_fn(|_| count(b).min(most))
        };
        let terms = Terms::new(&weights, track, count(b), prompt_blocks);
        let some = |b: &mut Bytes<'_>| b.roll(3) == 1;
        Block {
            tokens: column(b, u32::MAX),
            blocks: column(b, MAX_BLOCKS),
            dead: if some(b) { b.u64() & b.u64() } else { 0 },
            limits: std::array::from_fn(|_| limit(b)),
            class: some(b).then(|| std::array::from_fn(|_| limit(b))),
            credit: some(b).then(|| Column(std::array::from_fn(|_| finite(weight(b)) * 16.0))),
            held: some(b).then(|| column(b, prompt_blocks)),
            requests: some(b).then(|| column(b, u32::MAX)),
            candidates: if some(b) { b.u64() } else { u64::MAX },
            bar: if some(b) { finite(weight(b)) * 256.0 } else { f64::INFINITY },
            terms,
        }
    }

    fn rows(&self) -> Column<u64> {
        let dead = |i: usize| (self.dead >> i & 1) << 63;
        let row = |i| dead(i) | u64::from(self.blocks[i]) << 32 | u64::from(self.tokens[i]);
        Column(std::array::from_fn(row))
    }

    fn run(&self, kernel: Kernel) -> (Found, Column<f64>) {
        let bits = |l: (u32, u32)| Limit::new(l.0, l.1).bits();
        let (rows, limits) = (self.rows(), Column(self.limits.map(bits)));
        let class = self.class.map(|class| Column(class.map(bits)));
        let inputs = Inputs {
            class_limits: class.as_deref(),
            credit: self.credit.as_deref(),
            held: self.held.as_ref(),
            requests: self.requests.as_ref(),
            ..Inputs::new(&rows, &limits)
        };
        let mut costs = Column::default();
        let found = kernel.walk(&self.terms, &inputs, self.candidates, self.bar, &mut costs);
        assert_eq!(kernel.past(&rows, &limits), found.full, "{kernel:?} {self:?}");
        (found, costs)
    }

    /// Past a limit, rank by rank.
    fn past(&self, limits: &[(u32, u32); 64]) -> u64 {
        (0..64).fold(0, |bits, i| {
            let (tokens, blocks) = limits[i];
            let past = self.tokens[i] > tokens
                || self.blocks[i] > blocks.min(MAX_BLOCKS)
                || self.dead >> i & 1 == 1;
            bits | u64::from(past) << i
        })
    }

    fn check(&self) {
        let scalar = Kernel::new(Backend::Scalar).expect("there on every machine");
        let (want, costs) = self.run(scalar);
        assert_eq!(want.full, self.past(&self.limits), "{self:?}");
        assert_eq!(want.class_full, self.class.map_or(0, |l| self.past(&l)), "{self:?}");
        let (rows, alive) = (self.rows(), !self.dead);
        for i in (0..64).filter(|i| alive >> i & 1 == 1) {
            let credit = self.credit.map_or(0.0, |c| c[i]);
            let (held, requests) =
                (self.held.map_or(0, |h| h[i]), self.requests.map_or(0, |r| r[i]));
            let alone = self.terms.cost(rows[i], credit, held, requests);
            assert_eq!(costs[i].to_bits(), alone.to_bits(), "rank {i} of {self:?}");
        }
        let may = self.candidates & !want.full;
        let of = |set: u64| (0..64).filter(move |i| set >> i & 1 == 1);
        let min = of(may).map(|i| costs[i]).fold(f64::INFINITY, f64::min);
        let ties = of(may).filter(|i| costs[*i] == min).fold(0, |bits, i| bits | 1u64 << i);
        assert_eq!(want.min.to_bits(), min.to_bits(), "{self:?}");
        assert_eq!(want.ties, if min <= self.bar { ties } else { 0 }, "{self:?}");
        let max = of(may).map(|i| costs[i]).fold(f64::NEG_INFINITY, f64::max);
        let least = of(may).map(|i| self.tokens[i]).min();
        for kernel in Backend::ALL.into_iter().filter_map(|b| Kernel::new(b).ok()) {
            let (found, other) = self.run(kernel);
            assert_eq!(found, want, "{kernel:?} {self:?}");
            for i in of(alive) {
                assert_eq!(other[i].to_bits(), costs[i].to_bits(), "{kernel:?} rank {i} {self:?}");
            }
            // Dead rows have costs that mean nothing, and nobody looks at them.
            let alone = kernel.cheapest(&other, may);
            assert_eq!((alone.0.to_bits(), alone.1), (min.to_bits(), ties), "{kernel:?} {self:?}");
            assert_eq!(kernel.extent(&other, may), (min, max), "{kernel:?} {self:?}");
            assert_eq!(kernel.least_tokens(&rows, may), least, "{kernel:?} {self:?}");
        }
    }
}

/// Draws blocks from `data` and runs every back-end that this machine has on them.
///
/// # Panics
/// If one of them differs.
pub fn backends(data: &[u8]) -> u64 {
    let mut bytes = Bytes::new(data);
    let mut blocks = 0;
    while !bytes.spent() && blocks < 8 {
        Block::draw(&mut bytes).check();
        blocks += 1;
    }
    blocks * 64 * Backend::ALL.into_iter().filter(|b| b.is_available()).count() as u64
}
