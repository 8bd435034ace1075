//! The strategies to compare with: blind to prefixes, and to everything but active requests.
#![forbid(unsafe_code)]

use super::router::{Answer, Ask, Hop, Landing, Placement, Router, timed};

/// How a baseline picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The ranks in turn.
    RoundRobin,
    /// A rank at random.
    Random,
    /// Two ranks at random; the one with fewer active requests.
    TwoChoices,
    /// The rank with the fewest active requests; ties are drawn.
    LeastLoaded,
}

/// A strategy without a memory of prefixes.
pub struct Baseline {
    pick: Pick,
    rng: fastrand::Rng,
    legs: [Legs; 2],
}

/// What a baseline knows of one pool.
struct Legs {
    /// Active requests per rank.
    active: Vec<u32>,
    /// Where each live leg is; a table by request would be sparse in a long run.
    at: rustc_hash::FxHashMap<u32, u32>,
    next: usize,
}

impl Baseline {
    /// A baseline over one pool, or two: `ranks` of the first and of the second hop.
    pub fn new(pick: Pick, ranks: [usize; 2], seed: u64) -> Baseline {
        let legs = ranks.map(|n| Legs { active: vec![0; n], at: Default::default(), next: 0 });
        Baseline { pick, rng: fastrand::Rng::with_seed(seed), legs }
    }
}

impl Legs {
    /// Picks a rank. The pool must have one.
    fn pick(&mut self, pick: Pick, rng: &mut fastrand::Rng) -> usize {
        let n = self.active.len();
        match pick {
            Pick::RoundRobin => {
                let rank = self.next;
                self.next = (rank + 1) % n;
                rank
            }
            Pick::Random => rng.usize(..n),
            Pick::TwoChoices if n == 1 => 0,
            Pick::TwoChoices => {
                let a = rng.usize(..n);
                let b = (a + rng.usize(1..n)) % n;
                if self.active[b] < self.active[a] { b } else { a }
            }
            Pick::LeastLoaded => {
                let (mut best, mut least, mut ties) = (0, u32::MAX, 0);
                for (rank, &active) in self.active.iter().enumerate() {
                    if active < least {
                        (best, least, ties) = (rank, active, 1);
                    } else if active == least {
                        // The k-th of equals takes the place with probability 1/k.
                        ties += 1;
                        if rng.u32(..ties) == 0 {
                            best = rank;
                        }
                    }
                }
                best
            }
        }
    }
}

impl Router for Baseline {
    fn wants_overlaps(&self, _hop: Hop) -> bool {
        false
    }

    fn place(&mut self, hop: Hop, ask: Ask<'_>) -> Answer {
        let (pick, rng) = (self.pick, &mut self.rng);
        let legs = &mut self.legs[hop as usize];
        if legs.active.is_empty() {
            let placement = Placement::Refused(vacancy::Error::NoEndpoints);
            return Answer { placement, class: None, decision_ns: 0 };
        }
        // Booking belongs to the decision, as it does for the engine.
        let (rank, decision_ns) = timed(|| {
            let rank = legs.pick(pick, rng);
            legs.active[rank] += 1;
            legs.at.insert(ask.request, rank as u32);
            rank as u32
        });
        let landing = Landing { rank, expected_cached: None, hold: None };
        Answer { placement: Placement::Landed(landing), class: None, decision_ns }
    }

    fn prefill_completed(&mut self, _request: u32, _now: u64) {}

    fn output(&mut self, _request: u32, _blocks: u32, _now: u64) {}

    fn free(&mut self, hop: Hop, request: u32, _now: u64) {
        let legs = &mut self.legs[hop as usize];
        if let Some(rank) = legs.at.remove(&request) {
            legs.active[rank as usize] -= 1;
        }
    }

    fn settled(&mut self, _to: &mut Vec<(u32, Placement)>) {}

    fn next_due(&self) -> Option<u64> {
        None
    }

    fn expire(&mut self, _now: u64) {}

    fn decode_blocks(&self, _rank: u32) -> Option<u64> {
        None
    }

    fn bookings_left(&self) -> u64 {
        self.legs.iter().map(|l| l.at.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::Arrival;
    use super::*;

    fn place(router: &mut Baseline, request: u32) -> u32 {
        let arrival = Arrival { at: 0, isl: 1, osl: 1, prompt: None, class: None };
        let ask = Ask { request, arrival: &arrival, now: 0, overlaps: &[] };
        match router.place(Hop::Prefill, ask).placement {
            Placement::Landed(landing) => landing.rank,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn round_robin_takes_turns() {
        let mut router = Baseline::new(Pick::RoundRobin, [3, 0], 1);
        let seen: Vec<_> = (0..7).map(|i| place(&mut router, i)).collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn least_loaded_fills_what_was_freed_and_spreads_ties() {
        let mut router = Baseline::new(Pick::LeastLoaded, [4, 0], 1);
        let mut seen: Vec<_> = (0..4).map(|i| place(&mut router, i)).collect();
        let third = seen[2];
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        router.free(Hop::Prefill, 2, 0);
        assert_eq!(place(&mut router, 9), third);
        let mut first = [0; 4];
        for seed in 0..4000 {
            first[place(&mut Baseline::new(Pick::LeastLoaded, [4, 0], seed), 0) as usize] += 1;
        }
        assert!(first.iter().all(|n| (900..1100).contains(n)), "{first:?}");
    }

    #[test]
    fn two_choices_never_take_the_busier_of_two() {
        let mut router = Baseline::new(Pick::TwoChoices, [2, 0], 1);
        for i in 0..100 {
            place(&mut router, i);
            let [a, b] = router.legs[0].active[..] else { unreachable!() };
            assert!(a.abs_diff(b) <= 1);
        }
    }

    #[test]
    fn random_reaches_every_rank_evenly() {
        let mut router = Baseline::new(Pick::Random, [4, 0], 1);
        for i in 0..4000 {
            place(&mut router, i);
        }
        let active = &router.legs[0].active;
        assert!(active.iter().all(|n| (900..1100).contains(n)), "{active:?}");
    }

    #[test]
    fn what_is_freed_twice_counts_once_and_nothing_is_left() {
        for pick in [Pick::RoundRobin, Pick::Random, Pick::TwoChoices, Pick::LeastLoaded] {
            let mut router = Baseline::new(pick, [4, 2], 1);
            for i in 0..50 {
                place(&mut router, i);
            }
            assert_eq!(router.bookings_left(), 50);
            for i in (0..50).chain(0..50) {
                router.free(Hop::Prefill, i, 0);
            }
            assert_eq!(router.bookings_left(), 0);
            assert!(router.legs[0].active.iter().all(|&n| n == 0));
        }
    }
}
