//! The figures of a run, each computed from its records alone, so that `--decisions` is enough to
//! compute them again.
//!
//! A percentile is the nearest rank: the smallest sample that at least so large a share of the
//! samples does not exceed. No samples: `null`.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use super::classes::Classes;
use super::record::Record;
use super::sim::{Layout, Run};
use serde::Serialize;

/// What `--json` prints of one strategy.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub requests: u64,
    /// Requests that got a rank at their first hop.
    pub admitted: u64,
    /// Requests refused, at either hop, but not for their due time.
    pub rejected: u64,
    pub expired: u64,
    pub workers: u64,
    pub ranks: u64,
    pub mode: &'static str,
    pub strategy: &'static str,
    pub seed: u64,
    /// Over every decision; two per request with two pools.
    pub decision_ns: DecisionNs,
    /// From arrival to first token.
    pub ttft_ms: TtftMs,
    /// From arrival to admission.
    pub queue_wait_ms: QueueWaitMs,
    /// Prompt tokens found cached when their prefill started, over the prompt tokens of all
    /// requests that started.
    pub cached_token_share: f64,
    /// Busy time of the busiest prefill rank over the mean of all; 1 if none was busy.
    pub prefill_imbalance: f64,
    /// Decode legs and holds that landed on a rank already past the limit of their class. A hold
    /// that became the leg's booking in its place is one landing.
    pub landings_past_limit: u64,
    /// The most blocks by which such a rank was past it.
    pub decode_overshoot_blocks: u64,
    /// Landings that a class limit speaks of.
    pub landings_judged: u64,
    pub bookings_left: u64,
    pub wall_s: f64,
    /// Class by class, in the order of the policy; none without one.
    pub classes: Vec<OfClass>,
}

/// What became of the requests of one class.
#[derive(Clone, Debug, Serialize)]
pub struct OfClass {
    pub class: String,
    pub requests: u64,
    pub admitted: u64,
    pub rejected: u64,
    pub expired: u64,
    /// Requests that waited for longer than no time, whatever became of them.
    pub waited: u64,
    /// The most that waited at once.
    pub most_waiting: u64,
    /// From arrival to admission.
    pub queue_wait_ms: QueueWaitMs,
}

#[derive(Clone, Debug, Serialize)]
pub struct DecisionNs {
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TtftMs {
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct QueueWaitMs {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// What a run was, as far as its records do not say.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub workers: u64,
    pub layout: Layout,
    pub classes: &'a Classes,
    pub mode: &'static str,
    pub strategy: &'static str,
    pub seed: u64,
}

/// Computes the figures of one run. `O(n log n)`.
pub fn figures(arrivals: &[Arrival], run: &Run, about: About<'_>) -> Figures {
    let records = &run.records;
    let all = || arrivals.iter().zip(records);
    let decisions = sorted(records.iter().flat_map(|r| [r.decision_ns, r.decode_decision_ns]));
    let ttft = sorted(all().map(|(a, r)| Some(r.first_token? - a.at)));
    let started = || all().filter_map(|(a, r)| Some((u64::from(a.isl), u64::from(r.cached?))));
    let (tokens, cached) = started().fold((0, 0), |(t, c), (isl, hit)| (t + isl, c + hit));
    let judged = || records.iter().flat_map(Record::judged);
    let overshoot = judged().map(|j| j.blocks.saturating_sub(j.limit)).max().unwrap_or(0);
    Figures {
        requests: records.len() as u64,
        admitted: records.iter().filter(|r| r.admitted.is_some()).count() as u64,
        rejected: records.iter().filter(|r| r.rejected()).count() as u64,
        expired: records.iter().filter(|r| r.expired()).count() as u64,
        workers: about.workers,
        ranks: (about.layout.prefill + about.layout.decode) as u64,
        mode: about.mode,
        strategy: about.strategy,
        seed: about.seed,
        decision_ns: DecisionNs {
            p50: percentile(&decisions, 500),
            p99: percentile(&decisions, 990),
            p999: percentile(&decisions, 999),
            max: decisions.last().copied(),
        },
        ttft_ms: TtftMs {
            p50: percentile(&ttft, 500).map(ms),
            p90: percentile(&ttft, 900).map(ms),
            p99: percentile(&ttft, 990).map(ms),
        },
        queue_wait_ms: queue_wait(all()),
        cached_token_share: if tokens == 0 { 0.0 } else { cached as f64 / tokens as f64 },
        prefill_imbalance: imbalance(&busy_ns(records, about.layout.prefill)),
        landings_past_limit: judged().filter(|j| j.blocks > j.limit).count() as u64,
        decode_overshoot_blocks: overshoot,
        landings_judged: judged().count() as u64,
        bookings_left: run.bookings_left,
        wall_s: run.wall.as_secs_f64(),
        classes: about.classes.names().map(|name| of_class(name, all())).collect(),
    }
}

fn queue_wait<'a>(all: impl Iterator<Item = (&'a Arrival, &'a Record)>) -> QueueWaitMs {
    let waits = sorted(all.map(|(a, r)| Some(r.admitted? - a.at)));
    QueueWaitMs { p50: percentile(&waits, 500).map(ms), p99: percentile(&waits, 990).map(ms) }
}

fn of_class<'a>(
    class: &str,
    all: impl Iterator<Item = (&'a Arrival, &'a Record)> + Clone,
) -> OfClass {
    let here = || all.clone().filter(|(_, r)| r.class.as_deref() == Some(class));
    let count = |what: fn(&Record) -> bool| here().filter(|(_, r)| what(r)).count() as u64;
    let waits: Vec<_> = here().filter_map(|(a, r)| r.waited(a.at)).collect();
    OfClass {
        class: class.into(),
        requests: count(|_| true),
        admitted: count(|r| r.admitted.is_some()),
        rejected: count(Record::rejected),
        expired: count(Record::expired),
        waited: waits.len() as u64,
        most_waiting: most_at_once(&waits),
        queue_wait_ms: queue_wait(here()),
    }
}

/// How many of the spans there are at once, at most. At one instant, ends come before starts.
fn most_at_once(spans: &[(u64, u64)]) -> u64 {
    let mut changes: Vec<(u64, i64)> = spans.iter().flat_map(|&(s, e)| [(s, 1), (e, -1)]).collect();
    changes.sort_unstable();
    let (mut count, mut most) = (0, 0);
    for (_, change) in changes {
        count += change;
        most = most.max(count);
    }
    most as u64
}

/// How many requests decoded on each decode rank, on average until the last one ended.
pub fn mean_decoding(records: &[Record], ranks: usize) -> Vec<f64> {
    let end = records.iter().filter_map(|r| r.end).max().unwrap_or(0).max(1);
    let mut sums = vec![0; ranks];
    for r in records {
        if let (Some(rank), Some(start), Some(end)) = (r.decode_rank, r.first_token, r.end) {
            sums[rank as usize] += u128::from(end - start);
        }
    }
    sums.into_iter().map(|sum| sum as f64 / end as f64).collect()
}

/// How long each prefill rank computed, in ns.
pub fn busy_ns(records: &[Record], ranks: usize) -> Vec<u64> {
    let mut busy = vec![0; ranks];
    for r in records {
        if let (Some(rank), Some(start), Some(end)) =
            (r.prefill_rank, r.prefill_start, r.prefill_end)
        {
            busy[rank as usize] += end - start;
        }
    }
    busy
}

/// Share of the time until the last arrival in which the prefill ranks computed, on average. (What
/// comes after is a few stragglers on a fleet that empties.)
pub fn prefill_utilisation(arrivals: &[Arrival], records: &[Record], ranks: usize) -> f64 {
    let until = arrivals.last().map_or(0, |a| a.at);
    let spans = records.iter().filter_map(|r| Some((r.prefill_start?, r.prefill_end?)));
    let busy: u128 = spans.map(|(s, e)| u128::from(e.min(until).saturating_sub(s))).sum();
    if until == 0 { 0.0 } else { busy as f64 / (until as f64 * ranks as f64) }
}

/// The samples there are, in order.
pub fn sorted(samples: impl Iterator<Item = Option<u64>>) -> Vec<u64> {
    let mut there: Vec<u64> = samples.flatten().collect();
    there.sort_unstable();
    there
}

/// Nanoseconds in milliseconds.
pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The nearest-rank percentile, `per_mille` of 1000.
fn percentile(sorted: &[u64], per_mille: usize) -> Option<u64> {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.max(1) - 1).copied()
}

fn imbalance(busy: &[u64]) -> f64 {
    let sum: u128 = busy.iter().map(|&ns| u128::from(ns)).sum();
    let max = busy.iter().max().copied().unwrap_or(0);
    if sum == 0 { 1.0 } else { max as f64 * busy.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::record::Judged;
    use super::super::record::Outcome;
    use super::*;
    use std::time::Duration;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples: Vec<u64> = (1..=1000).collect();
        assert_eq!(percentile(&samples, 500), Some(500));
        assert_eq!(percentile(&samples, 990), Some(990));
        assert_eq!(percentile(&samples, 999), Some(999));
        assert_eq!(percentile(&[7], 500), Some(7));
        assert_eq!(percentile(&[7, 9], 500), Some(7));
        assert_eq!(percentile(&[7, 9], 990), Some(9));
        assert_eq!(percentile(&[], 500), None);
    }

    #[test]
    fn the_figures_of_a_run_are_those_of_its_records() {
        let arrival = |at, isl| Arrival { at, isl, osl: 1, prompt: None, class: None };
        let classes = Classes::decode_busy(0.5);
        let class = classes.names().next().cloned();
        let arrivals = [arrival(0, 100), arrival(1_000_000, 300), arrival(5, 7), arrival(6, 7)];
        let open = Record::new();
        let records = vec![
            Record {
                prefill_rank: Some(0),
                cached: Some(0),
                admitted: Some(0),
                prefill_start: Some(0),
                prefill_end: Some(3_000_000),
                first_token: Some(3_000_000),
                decision_ns: Some(10),
                outcome: Outcome::Done,
                class: class.clone(),
                hold: Some(Judged { blocks: 9, added: 3, limit: 4 }),
                leg: Some(Judged { blocks: 6, added: 3, limit: 4 }),
                ..open.clone()
            },
            Record {
                prefill_rank: Some(1),
                cached: Some(100),
                admitted: Some(3_000_000),
                prefill_start: Some(3_000_000),
                prefill_end: Some(4_000_000),
                first_token: Some(4_000_000),
                decision_ns: Some(30),
                decode_decision_ns: Some(20),
                outcome: Outcome::Done,
                class: class.clone(),
                leg: Some(Judged { blocks: 4, added: 1, limit: 4 }),
                ..open.clone()
            },
            Record {
                class,
                end: Some(1_000_005),
                outcome: Outcome::Refused(vacancy::Error::DeadlineExceeded),
                ..open.clone()
            },
            Record { outcome: Outcome::TooLarge, ..open },
        ];
        let wall = Duration::from_millis(1500);
        let run = Run { records, bookings_left: 0, stuck: 0, miscounted: 0, wall };
        let layout = Layout { prefill: 4, decode: 0 };
        let classes = &classes;
        let about = About { workers: 2, layout, classes, mode: "m", strategy: "s", seed: 3 };
        let f = figures(&arrivals, &run, about);
        assert_eq!((f.requests, f.admitted, f.rejected, f.expired), (4, 2, 1, 1));
        assert_eq!((f.workers, f.ranks, f.bookings_left, f.wall_s), (2, 4, 0, 1.5));
        assert_eq!((f.decision_ns.p50, f.decision_ns.max), (Some(20), Some(30)));
        assert_eq!((f.ttft_ms.p50, f.ttft_ms.p99), (Some(3.0), Some(3.0)));
        assert_eq!((f.queue_wait_ms.p50, f.queue_wait_ms.p99), (Some(0.0), Some(2.0)));
        assert_eq!(f.cached_token_share, 0.25);
        assert_eq!(f.prefill_imbalance, 3.0);
        assert_eq!((f.landings_past_limit, f.decode_overshoot_blocks), (2, 5));
        assert_eq!(f.landings_judged, 3);
        let [c] = &f.classes[..] else { panic!("{:?}", f.classes) };
        assert_eq!((&*c.class, c.requests, c.admitted, c.expired), ("default", 3, 2, 1));
        // One waited from 1 ms on, one from 5 ns until 5 ns after that.
        assert_eq!((c.waited, c.most_waiting, c.queue_wait_ms.p99), (2, 2, Some(2.0)));
    }

    #[test]
    fn who_goes_at_an_instant_makes_place_for_who_comes() {
        assert_eq!(most_at_once(&[(0, 5), (5, 9), (5, 7), (8, 9)]), 2);
        assert_eq!(most_at_once(&[]), 0);
    }
}
