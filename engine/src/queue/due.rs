//! When waiting requests are due: an index that costs next to nothing for far due times.
//!
//! A heap whose entries are not taken out when their request leaves: they are dropped when they
//! come up, or all together once they outnumber the living. Always: the top is alive.
#![forbid(unsafe_code)]

use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Dead entries that are kept without looking at their number.
const SLACK: usize = 64;

#[derive(Debug, Default)]
pub(super) struct DueIndex {
    /// Due time, slot, arrival sequence.
    heap: BinaryHeap<Reverse<(Time, u32, u64)>>,
    dead: usize,
}

impl DueIndex {
    /// O(1) for a time that is later than most, O(log n) at worst.
    pub(super) fn insert(&mut self, due: Time, slot: u32, sequence: u64) {
        self.heap.push(Reverse((due, slot, sequence)));
    }

    /// Says that an entry that was inserted is of no interest any more. `alive` tells so of the
    /// others. Amortised O(log n).
    pub(super) fn forget(&mut self, alive: impl Fn(u32, u64) -> bool) {
        self.dead += 1;
        while let Some(&Reverse((_, slot, sequence))) = self.heap.peek()
            && !alive(slot, sequence)
        {
            self.heap.pop();
            self.dead -= 1;
        }
        if self.dead > SLACK && self.dead * 2 > self.heap.len() {
            self.heap.retain(|&Reverse((_, slot, sequence))| alive(slot, sequence));
            self.dead = 0;
        }
    }

    /// The earliest due time, its slot and sequence.
    pub(super) fn first(&self) -> Option<(Time, u32, u64)> {
        self.heap.peek().map(|&Reverse(first)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_first_is_always_the_earliest_that_is_alive(
            ops in prop::collection::vec((0u8..3, 0u64..50, any::<prop::sample::Index>()), 1..400)
        ) {
            let mut index = DueIndex::default();
            let mut naive: BTreeSet<(Time, u32, u64)> = BTreeSet::new();
            for (i, (op, due, which)) in ops.into_iter().enumerate() {
                if op < 2 {
                    let entry = (Time::from_nanos(due), i as u32, i as u64);
                    index.insert(entry.0, entry.1, entry.2);
                    naive.insert(entry);
                } else if !naive.is_empty() {
                    let gone = *naive.iter().nth(which.index(naive.len())).unwrap();
                    naive.remove(&gone);
                    index.forget(|s, q| naive.iter().any(|&(_, slot, seq)| (slot, seq) == (s, q)));
                }
                prop_assert_eq!(index.first(), naive.first().copied());
                prop_assert!(index.heap.len() <= 2 * naive.len() + SLACK + 1);
            }
        }
    }
}
