//! The order inside a class, as one key of integers: the smallest goes first.
//!
//! Scores are floats, but keys compare as integers: a finite float is mapped to bits that sort the
//! same way, so the order is total and two equal scores fall to the arrival sequence.
#![forbid(unsafe_code)]

use crate::queue::policy::QueuePolicy;
use crate::time::Time;

/// What the place of a request in its class is made of. It is taken once, at arrival, and stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rating {
    /// Higher goes first.
    pub strict_priority: i64,
    /// When it must have been admitted; `Time::NEVER` is the same as none.
    pub due: Option<Time>,
    /// Finite and `>= 0`.
    pub priority_jump: f64,
    /// When it arrived.
    pub arrival: Time,
    /// Prompt tokens that no eligible rank had cached.
    pub uncached: u64,
    /// What it costs its class's turn, if not its uncached tokens.
    pub cost: Option<u64>,
}

/// The place of a request in its class. Unique, for it ends in the arrival sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrderKey {
    priority: u64,
    due: u64,
    score: u64,
    sequence: u64,
}

impl OrderKey {
    /// Before every other.
    pub(super) const FIRST: OrderKey = OrderKey { priority: 0, due: 0, score: 0, sequence: 0 };

    pub(super) fn new(policy: QueuePolicy, rating: &Rating, sequence: u64) -> OrderKey {
        let due = rating.due.unwrap_or(Time::NEVER).as_nanos();
        let score = match policy {
            QueuePolicy::Edf => return OrderKey { priority: 0, due, score: 0, sequence },
            QueuePolicy::Fcfs => rating.priority_jump - rating.arrival.as_secs_f64(),
            QueuePolicy::Wspt => (1.0 + rating.priority_jump) / rating.uncached.max(1) as f64,
        };
        // Flipping the sign bit sorts signed numbers as unsigned ones; the complement puts the
        // highest first.
        let priority = !(rating.strict_priority.cast_unsigned() ^ 1 << 63);
        OrderKey { priority, due, score: !ascending(score), sequence }
    }
}

/// Bits that sort like the float, with -0 and 0 as one.
fn ascending(v: f64) -> u64 {
    let bits = (v + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn rating(strict_priority: i64, due: Option<u64>, jump: f64, arrival: u64) -> Rating {
        Rating {
            strict_priority,
            due: due.map(Time::from_millis),
            priority_jump: jump,
            arrival: Time::from_millis(arrival),
            uncached: 100,
            cost: None,
        }
    }

    fn sorted(policy: QueuePolicy, of: &[Rating]) -> Vec<usize> {
        let key = |&i: &usize| OrderKey::new(policy, &of[i], i as u64);
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by_key(key);
        order
    }

    #[test]
    fn strict_priority_comes_first_then_due_time_then_score_then_sequence() {
        let of = [
            rating(0, None, 0.0, 0),
            rating(0, None, 2.0, 1000),
            rating(0, Some(9000), 0.0, 2000),
            rating(0, Some(8000), 0.0, 3000),
            rating(1, None, 0.0, 4000),
            rating(i64::MIN, Some(1), 1e9, 0),
            rating(i64::MAX, None, 0.0, 9999),
            rating(0, None, 0.0, 0),
        ];
        assert_eq!(sorted(QueuePolicy::Fcfs, &of), [6, 4, 3, 2, 1, 0, 7, 5]);
    }

    #[test]
    fn wspt_puts_little_uncached_work_first_and_a_jump_divides_it() {
        let with = |uncached, jump| Rating { uncached, ..rating(0, None, jump, 0) };
        let of = [with(1000, 0.0), with(10, 0.0), with(1000, 199.0), with(0, 0.0), with(1, 0.0)];
        assert_eq!(sorted(QueuePolicy::Wspt, &of), [3, 4, 2, 1, 0]);
    }

    #[test]
    fn edf_knows_due_time_and_sequence_only() {
        let of = [
            rating(9, None, 5.0, 0),
            rating(0, Some(20), 0.0, 1),
            rating(9, Some(20), 9.0, 2),
            rating(-1, Some(10), 0.0, 3),
            Rating { due: Some(Time::NEVER), ..rating(99, None, 0.0, 0) },
        ];
        assert_eq!(sorted(QueuePolicy::Edf, &of), [3, 1, 2, 0, 4]);
    }

    #[test]
    fn equal_scores_fall_to_the_sequence_also_across_the_zeros() {
        let zero = Rating { priority_jump: -0.0, ..rating(0, None, 0.0, 0) };
        let of = [rating(0, None, 0.0, 0), zero, rating(0, None, 0.0, 0)];
        assert_eq!(sorted(QueuePolicy::Fcfs, &of), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn keys_sort_as_the_floats_do(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(a.is_finite() && b.is_finite());
            let expected = a.partial_cmp(&b).unwrap();
            prop_assert_eq!(ascending(a).cmp(&ascending(b)), expected);
            prop_assert_eq!(ascending(a).cmp(&ascending(a)), Ordering::Equal);
        }
    }
}
