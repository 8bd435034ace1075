//! Every back-end against the scalar one to the bit, and the scalar one against the contract's
//! formula, written out rank by rank.

use super::*;
use crate::choice::Weights;
use crate::load::row::{Limit, MAX_BLOCKS as U31};
use crate::pass::lanes::{Column, Tracking};
use crate::pass::pick::Rng;

fn kernels() -> Vec<Kernel> {
    let mut all: Vec<Kernel> = Backend::ALL.iter().filter_map(|&b| Kernel::new(b).ok()).collect();
    #[cfg(not(target_arch = "aarch64"))]
    all.push(Kernel::wide());
    all
}

fn scalar() -> Kernel {
    Kernel::new(Backend::Scalar).expect("always there")
}

fn row(tokens: u32, blocks: u32) -> u64 {
    u64::from(blocks) << 32 | u64::from(tokens)
}

/// One block and one request, in the contract's own terms.
#[derive(Clone, Debug)]
struct Case {
    weights: Weights,
    track: Tracking,
    isl: u32,
    prompt_blocks: u32,
    tokens: [u32; 64],
    blocks: [u32; 64],
    dead: u64,
    limits: [(u32, u32); 64],
    class_limits: Option<[(u32, u32); 64]>,
    /// In blocks, weights applied.
    credit: Option<[f64; 64]>,
    held: Option<[u32; 64]>,
    requests: Option<[u32; 64]>,
    candidates: u64,
    bar: f64,
}

impl Case {
    fn idle() -> Case {
        Case {
            weights: Weights::default(),
            track: Tracking { block_size: 16, prefill: true, blocks: true, overlaps: false },
            isl: 256,
            prompt_blocks: 16,
            tokens: [0; 64],
            blocks: [0; 64],
            dead: 0,
            limits: [(u32::MAX, u32::MAX); 64],
            class_limits: None,
            credit: None,
            held: None,
            requests: None,
            candidates: u64::MAX,
            bar: f64::INFINITY,
        }
    }

    fn run(&self, kernel: &Kernel) -> (Found, Column<f64>) {
        let (mut rows, mut limits) = (Column::default(), Column::default());
        let mut class = Column::default();
        for i in 0..64 {
            rows[i] = row(self.tokens[i], self.blocks[i]) | (self.dead >> i & 1) << 63;
            limits[i] = Limit::new(self.limits[i].0, self.limits[i].1).bits();
            if let Some(l) = self.class_limits {
                class[i] = Limit::new(l[i].0, l[i].1).bits();
            }
        }
        let credit = self.credit.map(|c| c.map(|blocks| blocks * f64::from(self.track.block_size)));
        let terms = Terms::new(&self.weights, self.track, self.isl, self.prompt_blocks);
        let inputs = Inputs {
            class_limits: self.class_limits.is_some().then_some(&*class),
            credit: credit.as_ref(),
            held: self.held.as_ref(),
            requests: self.requests.as_ref(),
            ..Inputs::new(&rows, &limits)
        };
        let mut costs = Column::default();
        let found = kernel.walk(&terms, &inputs, self.candidates, self.bar, &mut costs);
        assert_eq!(kernel.past(&rows, &limits), found.full, "{kernel:?}");
        // Alone and fused, the minimum is the same.
        let alone = kernel.cheapest(&costs, self.candidates & !found.full);
        let ties = if found.min <= self.bar { alone.1 } else { 0 };
        assert_eq!((found.min.to_bits(), found.ties), (alone.0.to_bits(), ties), "{kernel:?}");
        if !terms.needs_more_than_rows() && self.credit.is_none() && self.held.is_none() {
            // So is what a glance at the live rows shows.
            let live = rows.map(AtomicU64::new);
            let (min, fits) = kernel.glance(&terms, &live, &limits, self.candidates);
            let fit = (self.candidates & !found.full).count_ones();
            assert_eq!((min.to_bits(), fits), (found.min.to_bits(), fit), "{kernel:?}");
        }
        (found, costs)
    }

    /// Full, by the contract: either count exceeds its limit.
    fn full(&self, limits: &[(u32, u32); 64]) -> u64 {
        (0..64).fold(0, |bits, i| {
            let (tokens, blocks) = limits[i];
            let past = tokens != u32::MAX && self.tokens[i] > tokens
                || blocks != u32::MAX && self.blocks[i] > blocks
                || self.dead >> i & 1 == 1;
            bits | u64::from(past) << i
        })
    }

    /// The contract's cost, in blocks.
    fn cost(&self, i: usize) -> f64 {
        let w = &self.weights;
        let credit = self.credit.map_or(0.0, |c| c[i]);
        let blocks = if self.track.blocks {
            let missing = self.prompt_blocks - self.held.map_or(0, |h| h[i]);
            f64::from(self.blocks[i]) + f64::from(missing)
        } else {
            0.0
        };
        let load = if !self.track.prefill && w.device > 0.0 && self.track.overlaps {
            (blocks - credit).max(0.0)
        } else {
            let raw = if self.track.prefill {
                f64::from(self.tokens[i]) + f64::from(self.isl)
            } else {
                0.0
            };
            let block_size = f64::from(self.track.block_size);
            w.prefill_scale * (raw / block_size - credit).max(0.0) + blocks
        };
        load + w.request * f64::from(self.requests.map_or(0, |r| r[i]))
    }

    /// Holds every back-end against the contract, and all of them against the scalar one.
    fn check(&self) {
        let (expected, expected_costs) = self.run(&scalar());
        for i in (0..64).filter(|i| self.dead >> i & 1 == 0) {
            let (got, want) = (expected_costs[i] / f64::from(self.track.block_size), self.cost(i));
            assert!(
                got == want || (got - want).abs() <= 1e-9 * want.abs().max(1.0),
                "{got} {want} {self:?}"
            );
        }
        assert_eq!(expected.full, self.full(&self.limits), "{self:?}");
        assert_eq!(expected.class_full, self.class_limits.map_or(0, |l| self.full(&l)), "{self:?}");
        let free = self.candidates & !expected.full;
        let chosen = (0..64).filter(|i| free >> i & 1 == 1);
        let min = chosen.clone().map(|i| expected_costs[i]).fold(f64::INFINITY, f64::min);
        let ties = chosen.filter(|&i| expected_costs[i] == min).fold(0, |bits, i| bits | 1 << i);
        assert_eq!(expected.min, min, "{self:?}");
        assert_eq!(expected.ties, if min <= self.bar { ties } else { 0 }, "{self:?}");
        for kernel in kernels() {
            let (found, costs) = self.run(&kernel);
            assert_eq!(found.min.to_bits(), expected.min.to_bits(), "{kernel:?} {self:?}");
            assert_eq!(found, expected, "{kernel:?} {self:?}");
            assert_eq!(costs.map(f64::to_bits), expected_costs.map(f64::to_bits), "{kernel:?}");
        }
    }
}

#[test]
fn every_back_end_of_this_machine_is_tested() {
    assert!(kernels().len() >= 2);
    assert!(Backend::Scalar.is_available());
    assert_eq!(Kernel::detect().backend(), Backend::detect());
    let missing = Backend::ALL.into_iter().find(|b| !b.is_available()).expect("one is elsewhere");
    let error = Kernel::new(missing).expect_err("not here");
    assert!(matches!(error, Error::InvalidConfig { ref field, .. } if field == "backend"));
}

#[test]
fn all_ranks_of_an_idle_fleet_tie() {
    let case = Case::idle();
    case.check();
    for kernel in kernels() {
        let (found, _) = case.run(&kernel);
        assert_eq!((found.min, found.ties, found.full), (512.0, u64::MAX, 0));
    }
}

#[test]
fn every_length_around_the_block_size_is_masked_right() {
    for length in 0..=64u32 {
        let candidates = if length == 0 { 0 } else { u64::MAX >> (64 - length) };
        for candidates in [candidates, !candidates, candidates.rotate_left(31)] {
            let mut case = Case { candidates, ..Case::idle() };
            case.check();
            // The cheapest rank is none of the candidates.
            case.tokens = [9; 64];
            if let Some(outside) = (0..64).find(|i| candidates >> i & 1 == 0) {
                case.tokens[outside] = 0;
            }
            case.check();
            assert_eq!(case.run(&scalar()).0.ties, candidates);
        }
    }
}

#[test]
fn every_tie_pattern_of_a_few_lanes_is_told_at_every_offset() {
    for pattern in 0..256u64 {
        for offset in [0, 3, 4, 7, 8, 28, 56, 60] {
            let ties = pattern.rotate_left(offset);
            let mut case = Case::idle();
            for i in 0..64 {
                case.tokens[i] = if ties >> i & 1 == 1 { 7 } else { 8 };
            }
            case.check();
            let want = if ties == 0 { u64::MAX } else { ties };
            assert_eq!(case.run(&scalar()).0.ties, want);
        }
    }
}

#[test]
fn equal_costs_are_equal_bits_for_any_block_size() {
    // 48 tokens against one block of 48; a third of a block each way would not survive division.
    for block_size in [1, 3, 7, 16, 48, 100, 1000, 4096] {
        let mut case = Case::idle();
        case.track.block_size = block_size;
        case.isl = block_size;
        case.prompt_blocks = 1;
        for i in 0..64u32 {
            case.tokens[i as usize] = (63 - i) * block_size;
            case.blocks[i as usize] = i;
        }
        case.check();
        assert_eq!(case.run(&scalar()).0.ties, u64::MAX, "{block_size}");
        // Three quarters of four blocks in host memory make good for three blocks.
        case.credit = Some([0.0; 64]);
        case.tokens[5] += 3 * block_size;
        case.credit.as_mut().expect("set")[5] = 0.75 * 4.0;
        case.check();
        assert_eq!(case.run(&scalar()).0.ties, u64::MAX, "{block_size}");
    }
}

#[test]
fn equal_is_not_over_and_one_more_is() {
    let mut case = Case::idle();
    for (i, n) in [0, 1, 2, U31 - 1, U31, u32::MAX - 1, u32::MAX].into_iter().enumerate() {
        case.tokens[2 * i] = n;
        case.limits[2 * i] = (n, u32::MAX);
        case.blocks[2 * i + 1] = n.min(U31);
        case.limits[2 * i + 1] = (u32::MAX, n.min(U31));
    }
    case.check();
    assert_eq!(case.run(&scalar()).0.full, 0);
    for limit in &mut case.limits {
        if limit.0 != u32::MAX {
            limit.0 = limit.0.saturating_sub(1);
        }
        if limit.1 != u32::MAX {
            limit.1 = limit.1.saturating_sub(1);
        }
    }
    case.check();
    // The pairs of 0 stay as they are, and u32::MAX means no limit.
    assert_eq!(case.run(&scalar()).0.full, 0b10_1111_1111_1100);
}

#[test]
fn a_dead_row_is_past_every_limit_and_never_chosen() {
    let mut case = Case { dead: 0x8000_0001_0000_0010, ..Case::idle() };
    case.tokens = [5; 64];
    case.tokens[4] = 0;
    case.class_limits = Some([(u32::MAX, u32::MAX); 64]);
    case.check();
    let (found, _) = case.run(&scalar());
    assert_eq!((found.full, found.class_full, found.ties), (case.dead, case.dead, !case.dead));
}

#[test]
fn a_block_that_cannot_win_tells_no_ties() {
    let case = Case { bar: 511.0, ..Case::idle() };
    case.check();
    let case = Case { bar: 512.0, ..case };
    case.check();
    assert_eq!(case.run(&scalar()).0.ties, u64::MAX);
}

#[test]
fn a_decode_pool_takes_credit_off_its_blocks() {
    let mut case = Case::idle();
    case.track.prefill = false;
    case.track.overlaps = true;
    case.blocks = std::array::from_fn(|i| i as u32);
    case.credit = Some(std::array::from_fn(|i| (i % 5) as f64 * 7.5));
    case.requests = Some([2; 64]);
    case.weights.request = 0.25;
    case.check();
    case.weights.device = 0.0;
    case.check();
    case.track.blocks = false;
    case.check();
    case.weights.device = 1.0;
    case.check();
}

#[test]
fn extremes_neither_wrap_nor_round_differently() {
    for block_size in [1, 16, 4096, u32::MAX] {
        let mut case = Case::idle();
        case.track.block_size = block_size;
        case.isl = u32::MAX;
        case.prompt_blocks = u32::MAX;
        case.tokens = std::array::from_fn(|i| u32::MAX - (i % 3) as u32);
        case.blocks = std::array::from_fn(|i| U31 - (i % 4) as u32);
        case.check();
        case.held = Some(std::array::from_fn(|i| u32::MAX - i as u32));
        case.check();
        case.requests = Some([u32::MAX; 64]);
        case.weights.request = 1e100;
        case.check();
        // Costs beyond every float are still costs: all alike, and all of them ties.
        case.weights.request = f64::MAX;
        let (found, _) = case.run(&scalar());
        assert_eq!((found.min, found.ties), (f64::INFINITY, u64::MAX));
        for kernel in kernels() {
            assert_eq!(case.run(&kernel).0, found);
        }
        // ... but a rank without requests pays nothing for them.
        case.requests.as_mut().expect("set")[7] = 0;
        let (found, _) = case.run(&scalar());
        assert_eq!(found.ties, 1 << 7);
        for kernel in kernels() {
            assert_eq!(case.run(&kernel).0, found);
        }
        case.requests = None;
        case.credit = Some([f64::MAX; 64]);
        let (found, _) = case.run(&scalar());
        for kernel in kernels() {
            assert_eq!(case.run(&kernel).0, found);
        }
    }
}

/// A random value that likes the ends of its range.
fn edgy(rng: &mut Rng, max: u32) -> u32 {
    match rng.below(8) {
        0 => 0,
        1 => max,
        2 => max - rng.below(3) as u32,
        3 => rng.below(3) as u32,
        4 => rng.below(u64::from(max) + 1) as u32,
        _ => rng.below(5000) as u32,
    }
}

fn columns<T>(rng: &mut Rng, mut f: impl FnMut(&mut Rng) -> T) -> [T; 64] {
    std::array::from_fn(|_| f(rng))
}

fn any_case(rng: &mut Rng) -> Case {
    let mut case = Case::idle();
    let w = &mut case.weights;
    if rng.below(2) == 0 {
        w.prefill_scale = [0.0, 1.0, 0.37, 2.5][rng.below(4) as usize];
        w.device = [0.0, 1.0, 3.3][rng.below(3) as usize];
        w.request = [0.0, 1.0, 0.1][rng.below(3) as usize];
    }
    case.track = Tracking {
        block_size: [1, 16, 48, 64, 1000][rng.below(5) as usize],
        prefill: rng.below(4) != 0,
        blocks: rng.below(4) != 0,
        overlaps: rng.below(2) == 0,
    };
    case.isl = edgy(rng, u32::MAX);
    case.prompt_blocks = edgy(rng, u32::MAX);
    // Few distinct values make ties; many make none.
    let narrow = rng.below(2) == 0;
    let of = |rng: &mut Rng, max| if narrow { rng.below(3) as u32 } else { edgy(rng, max) };
    case.tokens = columns(rng, |r| of(r, u32::MAX));
    case.blocks = columns(rng, |r| of(r, U31));
    case.dead = if rng.below(4) == 0 { rng.bits() & rng.bits() & rng.bits() } else { 0 };
    let limit = |r: &mut Rng| {
        let one = |r: &mut Rng| if r.below(3) == 0 { u32::MAX } else { of(r, u32::MAX) };
        (one(r), one(r))
    };
    if rng.below(4) != 0 {
        case.limits = columns(rng, limit);
    }
    if rng.below(2) == 0 {
        case.class_limits = Some(columns(rng, limit));
    }
    if rng.below(2) == 0 {
        case.credit = Some(columns(rng, |r| r.below(9) as f64 * 0.25 * r.below(40) as f64));
    }
    if rng.below(2) == 0 {
        let most = u64::from(case.prompt_blocks) + 1;
        case.held = Some(columns(rng, |r| r.below(most) as u32));
    }
    if rng.below(2) == 0 {
        case.requests = Some(columns(rng, |r| edgy(r, u32::MAX)));
    }
    case.candidates = match rng.below(4) {
        0 => u64::MAX,
        1 => rng.bits(),
        2 => 1 << rng.below(64),
        _ => rng.bits() & rng.bits() & rng.bits(),
    };
    case
}

#[test]
fn every_back_end_agrees_with_the_contract_on_random_blocks() {
    let mut rng = Rng::new(0x5eed);
    for round in 0..4000 {
        let mut case = any_case(&mut rng);
        case.check();
        // At, just below and just above the minimum.
        let min = case.run(&scalar()).0.min;
        case.bar = [min, min.next_down(), min.next_up()][round % 3];
        case.check();
    }
}

#[test]
fn minima_and_extents_of_any_costs_agree() {
    let mut rng = Rng::new(7);
    for round in 0..4000u64 {
        let costs = columns(&mut rng, |r| match r.below(6) {
            0 => -0.0,
            1 => 0.0,
            2 => -(r.below(5) as f64),
            3 => f64::INFINITY,
            4 => f64::MAX,
            _ => r.unit() * 1e6,
        });
        let candidates = if round == 0 { 0 } else { rng.bits() & rng.bits() };
        let (min, ties) = scalar().cheapest(&costs, candidates);
        let extent = scalar().extent(&costs, candidates);
        assert_eq!(extent.0.to_bits(), min.to_bits());
        let chosen: Vec<f64> =
            (0..64).filter(|i| candidates >> i & 1 == 1).map(|i| costs[i]).collect();
        assert_eq!(min, chosen.iter().copied().fold(f64::INFINITY, f64::min));
        assert_eq!(extent.1, chosen.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        assert_eq!(ties == 0, candidates == 0);
        for kernel in kernels() {
            let (m, t) = kernel.cheapest(&costs, candidates);
            assert_eq!((m.to_bits(), t), (min.to_bits(), ties), "{kernel:?} {costs:?}");
            let (a, b) = kernel.extent(&costs, candidates);
            assert_eq!((a.to_bits(), b.to_bits()), (extent.0.to_bits(), extent.1.to_bits()));
        }
    }
}

#[test]
fn the_least_backlog_is_that_of_the_candidates_only() {
    let mut rng = Rng::new(11);
    for _ in 0..2000 {
        let rows = columns(&mut rng, |r| row(edgy(r, u32::MAX), edgy(r, U31)) | r.below(2) << 63);
        let candidates = rng.bits() & rng.bits() & rng.bits() & rng.bits();
        let lanes = (0..64).filter(|i| candidates >> i & 1 == 1);
        let want = lanes.map(|i| (rows[i] & 0xffff_ffff) as u32).min();
        for kernel in kernels() {
            assert_eq!(kernel.least_tokens(&rows, candidates), want, "{kernel:?}");
        }
    }
}

#[test]
fn one_rank_alone_costs_what_its_lane_costs() {
    let mut rng = Rng::new(13);
    for _ in 0..500 {
        let case = any_case(&mut rng);
        let (_, costs) = case.run(&Kernel::detect());
        let terms = Terms::new(&case.weights, case.track, case.isl, case.prompt_blocks);
        for i in 0..64 {
            let credit = case.credit.map_or(0.0, |c| c[i] * f64::from(case.track.block_size));
            let one = terms.cost(
                row(case.tokens[i], case.blocks[i]) | (case.dead >> i & 1) << 63,
                credit,
                case.held.map_or(0, |h| h[i]),
                case.requests.map_or(0, |r| r[i]),
            );
            assert_eq!(one.to_bits(), costs[i].to_bits());
        }
    }
}

#[test]
fn every_back_end_finds_the_same_few_cheapest() {
    let mut rng = Rng::new(78);
    for round in 0..3000 {
        let mut costs = Column([0.0; LANES]);
        let spread = [1, 4, 1000][round % 3];
        for cost in costs.iter_mut() {
            *cost = if rng.below(20) == 0 { f64::INFINITY } else { rng.below(spread) as f64 };
        }
        let candidates = match round % 5 {
            0 => u64::MAX,
            1 => 1 << rng.below(64),
            2 => 0,
            _ => rng.bits() & rng.bits(),
        };
        let (edge, near) = scalar().nearest(&costs, candidates);
        let mut finite: Vec<usize> = crate::fleet::block::lanes(candidates).collect();
        finite.retain(|&i| costs[i].is_finite());
        let within: Vec<usize> = finite.iter().copied().filter(|&i| costs[i] <= edge).collect();
        assert_eq!(near, within.iter().fold(0, |set, i| set | 1 << i));
        let (min, ties) = scalar().cheapest(&costs, candidates);
        assert!(min.is_infinite() || near & ties == ties && !within.is_empty());
        assert!(finite.len() < 64 || within.len() >= 4);
        for kernel in kernels() {
            assert_eq!(kernel.nearest(&costs, candidates), (edge, near), "{kernel:?}");
        }
    }
}
