//! What the workers say themselves: the last value of each signal, and when it was heard.

use super::Model;
use super::Scope;
use super::choose::View;
use super::limits::over;
use std::collections::BTreeMap;
use std::time::Duration;
use vacancy::{Rank, Signals, Time};

/// The last value of each of a rank's two signals, and when it was heard.
type Heard = [Option<(u64, Time)>; 2];

/// Everything heard, by rank and the life that it was in.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    heard: BTreeMap<(Rank, u64), Heard>,
}

impl Monitor {
    /// Whether the monitor marks `rank`: all declared ranks of its worker are latched, or, if each
    /// is judged on its own, it is.
    pub fn marks(&self, view: &View<'_>, rank: Rank) -> bool {
        match view.config.scope {
            Scope::Rank => self.latched(view, rank),
            Scope::Worker => {
                let worker = &view.fleet.workers[&rank.worker];
                worker.lives.keys().all(|&r| self.latched(view, Rank { dp_rank: r, ..rank }))
            }
        }
    }

    /// Whether a signal that still counts is over the line.
    pub fn latched(&self, view: &View<'_>, rank: Rank) -> bool {
        let Some(life) = view.fleet.life(rank) else { return false };
        let Some(signals) = self.heard.get(&(rank, life)) else { return false };
        let line = view.thresholds.decode_frac;
        let blocks = view.fleet.capacity(rank).total_kv_blocks.filter(|b| *b > 0);
        let (Some(frac), Some(blocks)) = (line, blocks) else { return false };
        signals.iter().flatten().any(|(value, at)| {
            let counts = view.now <= at.after(view.config.signal_ttl);
            counts && over(*value, frac, blocks)
        })
    }
}

impl Model {
    /// Takes in what was said of a rank; false if it is not declared.
    pub(super) fn observe(&mut self, rank: Rank, said: Signals) -> bool {
        let Some(life) = self.fleet.life(rank) else { return false };
        let heard = self.monitor.heard.entry((rank, life)).or_default();
        for (slot, value) in heard.iter_mut().zip([said.kv_used_blocks, said.active_decode_blocks])
        {
            if let Some(value) = value {
                *slot = Some((value, self.clock));
            }
        }
        true
    }

    /// Whether a rank that `before` had latched is there and is no longer. Silence ends a latch for
    /// whoever waits when the `timers` run.
    pub(super) fn unlatched(&self, before: &Model, timers: bool) -> bool {
        // Nothing was heard: nothing is latched.
        if before.monitor.heard.is_empty() {
            return false;
        }
        let ranks = before.fleet.ranks().into_iter();
        let mut there = ranks.filter(|r| before.fleet.life(*r) == self.fleet.life(*r));
        let (mut then, now) = (before.view(), self.view());
        if !timers {
            then.now = self.clock;
        }
        there.any(|r| then.monitor.latched(&then, r) && !now.monitor.latched(&now, r))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Op, Outcome};
    use super::*;
    use vacancy::{Thresholds, WorkerSpec};

    fn said(kv: Option<u64>, active: Option<u64>) -> Signals {
        Signals { kv_used_blocks: kv, active_decode_blocks: active }
    }

    fn marked(m: &mut Model, rank: Rank, signals: Signals, ms: u64) -> bool {
        m.step(&Op::Observe(rank, signals, Time::from_millis(ms)));
        m.marks(rank).1
    }

    fn pool(scope: Scope) -> Model {
        let config = Config {
            scope,
            signal_ttl: Duration::from_millis(100),
            fleet: vec![WorkerSpec::new(1).ranks(0, 2).total_kv_blocks(8)],
            ..Config::default()
        };
        let mut m = Model::new(config);
        m.step(&Op::SetThresholds(Thresholds::NONE.decode_frac(0.5)));
        m
    }

    #[test]
    fn a_latch_clears_when_every_signal_is_at_or_under_the_line() {
        let mut m = pool(Scope::Rank);
        let rank = Rank::new(1, 0);
        assert!(!marked(&mut m, rank, said(Some(4), None), 1));
        assert!(marked(&mut m, rank, said(Some(5), None), 2));
        assert!(marked(&mut m, rank, said(None, Some(9)), 3));
        assert!(marked(&mut m, rank, said(Some(0), None), 4));
        assert!(!marked(&mut m, rank, said(None, Some(4)), 5));
    }

    #[test]
    fn a_signal_counts_for_its_time_to_live_and_a_worker_when_all_its_ranks_are_latched() {
        let mut m = pool(Scope::Worker);
        let (zero, one) = (Rank::new(1, 0), Rank::new(1, 1));
        assert!(!marked(&mut m, zero, said(Some(8), None), 1));
        assert!(marked(&mut m, one, said(Some(8), None), 50));
        m.step(&Op::Expire(Time::from_millis(101)));
        assert!(m.marks(zero).1);
        m.step(&Op::Expire(Time::from_millis(102)));
        assert!(!m.marks(zero).1);
        let unknown = m.step(&Op::Observe(Rank::new(1, 2), said(Some(8), None), Time::ZERO));
        assert!(matches!(unknown.outcome, Outcome::Flag(false)));
    }
}
