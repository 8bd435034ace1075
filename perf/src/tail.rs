//! The long tail: how long select + book takes while two threads churn, every call timed.
//!
//! Names are what they say: `p99.9` is the value below which 99.9 % of the calls lie, `max` is the
//! slowest call of all. On a machine with other work on it, the tail is mostly the others' time
//! slices; the record says how loaded it was.

use crate::Verdict;
use crate::place::Args;
use crate::record;
use crate::table::{Table, time};
use serde_json::json;
use std::time::{Duration, Instant};
use vacancy_bench::engine::{Bench, Mode};

/// Bookings that each thread keeps alive, so that rows move all the time.
const KEPT: usize = 64;

pub fn run(words: &[String]) -> Result<Verdict, String> {
    let args = Args::parse(words, &["--json", "--record"], &["--seconds"])?;
    let seconds = args.number("--seconds", 5)?;
    let mut rows = Vec::new();
    for ranks in [64, 4096] {
        rows.push((ranks, churn(ranks, Duration::from_secs(seconds as u64))));
    }
    let figures = json!({
        "threads": 2,
        "kept_per_thread": KEPT,
        "tail": rows.iter().map(|(ranks, times)| json!({
            "ranks": ranks,
            "calls": times.len(),
            "p50_ns": at(times, 0.5),
            "p99_ns": at(times, 0.99),
            "p99.9_ns": at(times, 0.999),
            "max_ns": at(times, 1.0),
        })).collect::<Vec<_>>(),
    });
    if args.has("--json") {
        println!("{figures:#}");
    } else {
        let mut table =
            Table::new(&["select + book, two threads", "calls", "p50", "p99", "p99.9", "max"]);
        for (ranks, times) in &rows {
            let of = |q: f64| time(f64::from(at(times, q)));
            table.row(vec![
                format!("{ranks} ranks"),
                times.len().to_string(),
                of(0.5),
                of(0.99),
                of(0.999),
                of(1.0),
            ]);
        }
        println!("{}", table.text());
    }
    if args.has("--record") {
        record::write("tail", figures)?;
    }
    Ok(Verdict::Holds)
}

/// The value at quantile `q` of sorted times: the smallest that at least that share does not
/// exceed.
fn at(sorted: &[u32], q: f64) -> u32 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// Every call's time in nanoseconds, sorted.
fn churn(ranks: usize, time: Duration) -> Vec<u32> {
    let bench = Bench::new(ranks, Mode::Reject);
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let work: Vec<_> = (0..2)
            .map(|thread| {
                let (pool, bench) = (bench.pool.clone(), &bench);
                scope.spawn(move || {
                    let mut times = Vec::new();
                    let mut kept = std::collections::VecDeque::with_capacity(KEPT + 1);
                    let mut at = thread * bench.requests.len() / 2;
                    let end = Instant::now() + time;
                    loop {
                        at += 1;
                        let start = Instant::now();
                        let booking = pool.book(bench.request(at));
                        let done = Instant::now();
                        let booking = booking.expect("most ranks have room");
                        bench.check_rank(booking.choice().rank);
                        let ns = (done - start).as_nanos();
                        times.push(u32::try_from(ns).unwrap_or(u32::MAX));
                        kept.push_back(booking);
                        if kept.len() > KEPT {
                            kept.pop_front();
                        }
                        if done >= end {
                            return times;
                        }
                    }
                })
            })
            .collect();
        work.into_iter().flat_map(|thread| thread.join().expect("no check failed")).collect()
    });
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_time_that_was_measured() {
        let times: Vec<u32> = (1..=1000).collect();
        assert_eq!(at(&times, 0.5), 500);
        assert_eq!(at(&times, 0.999), 999);
        assert_eq!(at(&times, 1.0), 1000);
        assert_eq!(at(&[7], 0.5), 7);
        assert_eq!(at(&[], 0.5), 0);
    }
}
