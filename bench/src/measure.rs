//! Ratios on a machine that is not ours alone: two things are timed in turn, in short batches, and
//! the ratio is taken batch by batch. What slows the machine slows both; a batch that was
//! interrupted is one of many, and the median does not see it.

use cpu_time::ThreadTime;
use std::time::{Duration, Instant};

/// What a time is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The time that this thread was on a core: what others on the machine take is not in it. For
    /// work that one thread does alone.
    #[default]
    Thread,
    /// The wall's. For work in which threads wait for each other.
    Wall,
}

impl Clock {
    /// How long `work` takes.
    pub fn time(self, work: impl FnOnce()) -> Duration {
        match self {
            Clock::Thread => {
                let start = ThreadTime::now();
                work();
                start.elapsed()
            }
            Clock::Wall => {
                let start = Instant::now();
                work();
                start.elapsed()
            }
        }
    }
}

/// Times per operation of two things that were measured in turn, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// Of the first.
    pub a: Vec<f64>,
    /// Of the second, round by round.
    pub b: Vec<f64>,
}

impl Pair {
    /// Runs both `rounds` times, in turn; who goes first alternates. Each is called for one batch
    /// and answers the time per operation.
    pub fn measure(rounds: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> Pair {
        // Once each for caches, branch predictors and lazily built tables.
        a();
        b();
        let mut pair = Pair::default();
        for round in 0..rounds {
            let (at, bt) = if round % 2 == 0 {
                let at = a();
                (at, b())
            } else {
                let bt = b();
                (a(), bt)
            };
            pair.a.push(at);
            pair.b.push(bt);
        }
        pair
    }

    /// How many times as long the second takes: median of the ratios, round by round.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios())
    }

    /// The quartiles of the ratios: how far the rounds disagree.
    pub fn spread(&self) -> (f64, f64) {
        let ratios = self.ratios();
        (quantile(&ratios, 0.25), quantile(&ratios, 0.75))
    }

    fn ratios(&self) -> Vec<f64> {
        self.a.iter().zip(&self.b).map(|(a, b)| b / a).collect()
    }
}

/// The middle of `values`; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share `q` of `values` lies (nearest rank, linear between two).
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Runs `op` `times` times; nanoseconds on a core per run.
pub fn per_op(times: usize, mut op: impl FnMut()) -> f64 {
    let elapsed = Clock::Thread.time(|| {
        for _ in 0..times {
            op();
        }
    });
    elapsed.as_nanos() as f64 / times as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine is ten times slower in every third round.
        let paces = [1.0, 1.0, 10.0, 10.0, 1.0, 1.0];
        let (mut a, mut b) = (paces.into_iter().cycle(), paces.into_iter().cycle());
        let pair = Pair::measure(
            6,
            || 10.0 * a.next().expect("it cycles"),
            || 30.0 * b.next().expect("it cycles"),
        );
        assert_eq!(pair.ratio(), 3.0);
        assert_eq!(pair.spread(), (3.0, 3.0));
    }

    #[test]
    fn quantiles_are_taken_between_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert_eq!(median(&[]), 0.0);
    }
}
