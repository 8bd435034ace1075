//! Which of the ranks a pass found: draws that are fair, and the same again for the same seed.
#![forbid(unsafe_code)]

use super::lanes::LANES;
use crate::fleet::block::SlotId;

/// A small generator (SplitMix64: a counter, mixed). Not for secrets.
///
/// One word of state, no warm-up: any seed is a good one, and a request may bring its own.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    #[inline]
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, each as likely as the others. `n` must not be 0.
    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        let mut wide = u128::from(self.bits()) * u128::from(n);
        if (wide as u64) < n {
            // The numbers that the product's high half favours are drawn again.
            let excess = n.wrapping_neg() % n;
            while (wide as u64) < excess {
                wide = u128::from(self.bits()) * u128::from(n);
            }
        }
        (wide >> 64) as u64
    }

    /// A float in `[0, 1)`, in steps of 2^-53.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// The position of the `n`-th (from 0) set bit. There must be more than `n`.
#[inline]
pub(crate) fn nth_set(bits: u64, mut n: u32) -> u32 {
    debug_assert!(n < bits.count_ones());
    let mut rest = bits;
    let mut at = 0;
    for half in [32, 16, 8, 4, 2, 1] {
        let low = (rest & ((1 << half) - 1)).count_ones();
        if n >= low {
            n -= low;
            rest >>= half;
            at += half;
        }
    }
    at
}

/// A lane of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The block's number.
    pub(crate) block: usize,
    /// The lane in it, below 64.
    pub(crate) lane: u32,
}

impl Place {
    pub(crate) fn slot(self) -> SlotId {
        SlotId::new(self.block, self.lane as usize)
    }
}

/// The best rank seen so far, as a pass goes from block to block. Among equals each is kept with
/// the same likelihood, and none has to be remembered: of `n` seen and `k` new ones, a new one
/// takes the place with probability `k / (n + k)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Best {
    cost: f64,
    ties: u64,
    place: Place,
}

impl Best {
    /// Nothing seen yet.
    #[inline]
    pub(crate) fn new() -> Best {
        Best { cost: f64::INFINITY, ties: 0, place: Place { block: 0, lane: 0 } }
    }

    /// The cost to be at or below; infinite while nothing was seen. A walk takes it as its bar.
    #[inline(always)]
    pub(crate) fn bar(&self) -> f64 {
        self.cost
    }

    /// The best rank and its cost.
    #[inline]
    pub(crate) fn get(&self) -> Option<(Place, f64)> {
        (self.ties > 0).then_some((self.place, self.cost))
    }

    /// Looks at the lanes `ties` of a block, all of cost `cost` (not NaN). Draws once, and only if
    /// there is something to decide.
    #[inline(always)]
    pub(crate) fn offer(&mut self, block: usize, cost: f64, ties: u64, rng: &mut Rng) {
        // Most blocks of a busy fleet cannot win: one comparison.
        if ties != 0 && (cost <= self.cost) {
            self.take(block, cost, ties, rng);
        }
    }

    fn take(&mut self, block: usize, cost: f64, ties: u64, rng: &mut Rng) {
        let fresh = u64::from(ties.count_ones());
        let seen = if cost < self.cost { 0 } else { self.ties };
        let total = seen + fresh;
        let drawn = if total == 1 { 0 } else { rng.below(total) };
        if drawn < fresh {
            self.place = Place { block, lane: nth_set(ties, drawn as u32) };
        }
        self.cost = cost;
        self.ties = total;
    }
}

/// How often a draw by temperature tries its luck before it weighs every candidate.
const TRIES: u32 = 64;

/// Draws one of the candidates of a pass; see [`draw`]. `costs` and `masks` are its blocks.
pub(crate) fn by_temperature(
    costs: &[[f64; LANES]],
    masks: &[u64],
    extent: (f64, f64),
    temperature: f64,
    rng: &mut Rng,
) -> Option<Place> {
    let place = |i: usize| Place { block: i / LANES, lane: (i % LANES) as u32 };
    let cost = |i: usize| {
        let Place { block, lane } = place(i);
        (masks[block] >> lane & 1 == 1).then(|| costs[block][lane as usize])
    };
    draw(costs.len().min(masks.len()) * LANES, cost, extent, temperature, rng).map(place)
}

/// Draws one of the candidates among `0..n` with probability proportional to
/// `exp(-(cost - min) / (max - min) / temperature)`; each alike if all costs are equal. `None`
/// without candidates.
///
/// `cost` tells the cost of a candidate, and nothing for who is none; `extent` is the lowest and
/// the highest cost among the candidates; `temperature > 0`. The same seed gives the same draw.
///
/// A candidate drawn evenly and kept with its weight (at most 1) as probability is a draw by
/// weight, so most calls look at a few costs only. Where the weights are too small for that, what
/// is left is to weigh them all: that each attempt failed says nothing about the next, so the
/// mixture has the same distribution. Expected `O(min(n / sum of weights, n))`.
pub(crate) fn draw(
    n: usize,
    cost: impl Fn(usize) -> Option<f64>,
    (min, max): (f64, f64),
    temperature: f64,
    rng: &mut Rng,
) -> Option<usize> {
    if n == 0 {
        return None;
    }
    let weight = |cost: f64| (-relative(cost, min, max) / temperature).exp();
    for _ in 0..TRIES {
        let i = rng.below(n as u64) as usize;
        if cost(i).is_some_and(|cost| rng.unit() < weight(cost)) {
            return Some(i);
        }
    }
    let total: f64 = (0..n).filter_map(&cost).map(weight).sum();
    let mut left = rng.unit() * total;
    let mut last = None;
    for i in 0..n {
        let w = cost(i).map_or(0.0, weight);
        if w > 0.0 {
            last = Some(i);
            left -= w;
            if left < 0.0 {
                break;
            }
        }
    }
    last
}

/// Where `cost` lies between `min` (0) and `max` (1).
fn relative(cost: f64, min: f64, max: f64) -> f64 {
    if cost <= min {
        return 0.0;
    }
    if max == f64::INFINITY {
        // Next to an infinite cost all finite ones are alike.
        return if cost == f64::INFINITY { 1.0 } else { 0.0 };
    }
    // Halves, so that the span of two huge costs of opposite sign does not overflow.
    (cost / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::block::lanes;

    fn set_bits(bits: u64) -> impl Iterator<Item = u32> {
        lanes(bits).map(|lane| lane as u32)
    }

    /// The chi-square statistic of counts that should follow `weights`.
    fn chi_square(counts: &[u64], weights: &[f64]) -> f64 {
        let (n, total) = (counts.iter().sum::<u64>() as f64, weights.iter().sum::<f64>());
        let expected = weights.iter().map(|w| n * w / total);
        counts.iter().zip(expected).map(|(&c, e)| (c as f64 - e).powi(2) / e).sum()
    }

    /// A bound that chance exceeds about once in a million for `cells` cells (seeds are fixed, so
    /// it either always holds or never).
    fn bound(cells: usize) -> f64 {
        let df = (cells - 1) as f64;
        // Wilson and Hilferty's approximation, at 4.75 standard deviations.
        df * (1.0 - 2.0 / (9.0 * df) + 4.75 * (2.0 / (9.0 * df)).sqrt()).powi(3)
    }

    #[test]
    fn the_nth_set_bit_is_found() {
        let mut rng = Rng::new(1);
        for bits in (0..2000).map(|_| rng.bits() & rng.bits()).chain([1, 1 << 63, u64::MAX]) {
            for (n, at) in set_bits(bits).enumerate() {
                assert_eq!(nth_set(bits, n as u32), at, "{bits:x} {n}");
            }
        }
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut rng = Rng::new(2);
        for n in [1u64, 2, 3, 7, 64, 100] {
            let mut counts = vec![0; n as usize];
            for _ in 0..200 * n {
                counts[rng.below(n) as usize] += 1;
            }
            assert!(n == 1 || chi_square(&counts, &vec![1.0; n as usize]) < bound(n as usize));
        }
        // Two thirds of 2^64: without drawing again, the lower half would come twice as often.
        let n = (1 << 63) + (1 << 62) / 3;
        let low = (0..20_000).filter(|_| rng.below(n) < n / 2).count() as u64;
        assert!(chi_square(&[low, 20_000 - low], &[1.0, 1.0]) < bound(2));
    }

    #[test]
    fn floats_lie_in_the_unit_interval_and_fill_it() {
        let mut rng = Rng::new(3);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            let x = rng.unit();
            assert!((0.0..1.0).contains(&x));
            counts[(x * 10.0) as usize] += 1;
        }
        assert!(chi_square(&counts, &[1.0; 10]) < bound(10));
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut a, mut b) = (Rng::new(42), Rng::new(42));
        assert!((0..100).all(|_| a.bits() == b.bits()));
        assert_ne!(Rng::new(1).bits(), Rng::new(2).bits());
    }

    #[test]
    fn ties_across_blocks_are_broken_without_bias() {
        // Uneven blocks, one that loses, one without candidates, and a first one that is beaten.
        let blocks: [(f64, u64); 6] = [
            (2.0, u64::MAX),
            (1.0, 0b1),
            (1.0, 0),
            (3.0, u64::MAX),
            (1.0, 0xf000_0000_0000_0001),
            (1.0, 0xff << 20),
        ];
        let mut rng = Rng::new(4);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..50_000 {
            let mut best = Best::new();
            for (block, &(cost, ties)) in blocks.iter().enumerate() {
                best.offer(block, cost, ties, &mut rng);
            }
            let (place, cost) = best.get().expect("there are candidates");
            assert_eq!((cost, best.ties), (1.0, 14));
            assert_eq!(blocks[place.block].1 >> place.lane & 1, 1);
            *counts.entry((place.block, place.lane)).or_insert(0) += 1;
        }
        let counts: Vec<u64> = counts.into_values().collect();
        assert_eq!(counts.len(), 14);
        assert!(chi_square(&counts, &[1.0; 14]) < bound(14), "{counts:?}");
    }

    #[test]
    fn no_candidate_is_no_choice_and_an_infinite_cost_is_one() {
        let mut rng = Rng::new(5);
        let mut best = Best::new();
        best.offer(0, 1.0, 0, &mut rng);
        assert_eq!(best.get(), None);
        assert_eq!(best.bar(), f64::INFINITY);
        best.offer(3, f64::INFINITY, 1 << 9, &mut rng);
        assert_eq!(best.get(), Some((Place { block: 3, lane: 9 }, f64::INFINITY)));
        best.offer(4, 1e300, 1, &mut rng);
        assert_eq!(best.get(), Some((Place { block: 4, lane: 0 }, 1e300)));
    }

    /// How often each candidate is drawn, in the order of the blocks.
    fn draws(costs: &[[f64; 64]], masks: &[u64], t: f64, n: u64) -> (Vec<u64>, Vec<f64>) {
        let all: Vec<(usize, u32)> =
            (0..costs.len()).flat_map(|b| set_bits(masks[b]).map(move |lane| (b, lane))).collect();
        let cost = |&(b, lane): &(usize, u32)| costs[b][lane as usize];
        let min = all.iter().map(cost).fold(f64::INFINITY, f64::min);
        let max = all.iter().map(cost).fold(f64::NEG_INFINITY, f64::max);
        let mut rng = Rng::new(6);
        let mut counts = vec![0; all.len()];
        for _ in 0..n {
            let p = by_temperature(costs, masks, (min, max), t, &mut rng).expect("candidates");
            let i = all.iter().position(|&at| at == (p.block, p.lane)).expect("a candidate");
            counts[i] += 1;
        }
        let weight = |c: f64| if max > min { (-(c - min) / (max - min) / t).exp() } else { 1.0 };
        (counts, all.iter().map(|at| weight(cost(at))).collect())
    }

    #[test]
    fn temperature_draws_by_weight_hot_or_cold() {
        let mut costs = [[0.0; 64]; 3];
        for (i, cost) in costs.iter_mut().flatten().enumerate() {
            *cost = 50.0 + (i % 7) as f64;
        }
        // Excluded lanes would win if they were looked at.
        costs[2] = [0.0; 64];
        costs[2][33] = 57.0;
        let masks = [0x00ff, 0x0f, 1 << 33];
        for t in [0.2, 1.0, 10.0, 1e9] {
            let (counts, weights) = draws(&costs, &masks, t, 40_000);
            assert!(chi_square(&counts, &weights) < bound(13), "{t} {counts:?}");
        }
        // Cold: two of thirteen ranks have the minimum, and nearly all weight.
        let (counts, weights) = draws(&costs, &masks, 1e-3, 4000);
        let cold: Vec<u64> = (0..13).filter(|&i| weights[i] == 1.0).map(|i| counts[i]).collect();
        assert_eq!(cold.iter().sum::<u64>(), 4000);
        assert!(chi_square(&cold, &vec![1.0; cold.len()]) < bound(cold.len()));
    }

    #[test]
    fn the_draw_after_all_tries_failed_has_the_same_weights() {
        // One candidate in 4,096 lanes with weight, a few with little: most draws weigh them all.
        let mut costs = vec![[100.0; 64]; 64];
        let masks = vec![1 << 5; 64];
        costs[40][5] = 0.0;
        for (block, costs) in costs.iter_mut().enumerate().take(8) {
            costs[5] = 1.0 + block as f64;
        }
        let (counts, weights) = draws(&costs, &masks, 0.02, 4000);
        let (mut c, mut w) = (Vec::new(), Vec::new());
        for i in 0..64 {
            if weights[i] * 4000.0 >= 5.0 {
                c.push(counts[i]);
                w.push(weights[i]);
            }
        }
        assert!(c.len() >= 9);
        assert!(chi_square(&c, &w) < bound(c.len()), "{c:?} {w:?}");
    }

    #[test]
    fn equal_costs_are_drawn_evenly_at_any_temperature() {
        for cost in [0.0, 7.0, f64::INFINITY] {
            for t in [f64::MIN_POSITIVE, 1.0, f64::MAX] {
                let (counts, _) = draws(&[[cost; 64]; 2], &[0xff00, 0xff], t, 8000);
                assert!(chi_square(&counts, &[1.0; 16]) < bound(16), "{cost} {t}");
            }
        }
    }

    #[test]
    fn temperatures_and_costs_at_the_ends_of_their_range_still_choose() {
        let mut costs = [[f64::MAX; 64]];
        costs[0][0] = -f64::MAX;
        costs[0][1] = f64::INFINITY;
        for t in [f64::MIN_POSITIVE, 1e-300, 1.0, f64::MAX] {
            let mut rng = Rng::new(8);
            for (mask, max) in [(0b101, f64::MAX), (0b111, f64::INFINITY)] {
                let p = by_temperature(&costs, &[mask], (-f64::MAX, max), t, &mut rng);
                assert!(p.is_some_and(|p| mask >> p.lane & 1 == 1));
            }
        }
        let mut rng = Rng::new(9);
        assert_eq!(by_temperature(&costs, &[0], (f64::INFINITY, 0.0), 1.0, &mut rng), None);
        assert_eq!(by_temperature(&[], &[], (f64::INFINITY, 0.0), 1.0, &mut rng), None);
    }

    #[test]
    fn a_seed_makes_a_draw_by_temperature_reproducible() {
        let costs: Vec<[f64; 64]> = (0..4).map(|b| [b as f64; 64]).collect();
        let draw =
            |seed| by_temperature(&costs, &[u64::MAX; 4], (0.0, 3.0), 0.5, &mut Rng::new(seed));
        assert!((0..100).all(|seed| draw(seed) == draw(seed)));
        assert!((0..100).any(|seed| draw(seed) != draw(0)));
    }
}
