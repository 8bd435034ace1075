//! The edges of one rank's tree of runs: from (parent, first hash) to the child.
//!
//! Open addressing over node numbers, with the keys left in the nodes: a byte a place in a small
//! tree, four in a large one, and no marks left behind, since a removal moves back what lies after
//! it. A tree that was large once keeps its large table.
#![forbid(unsafe_code)]

use super::chain::mix;
use crate::prefetch::for_writing;

/// No node; as a parent, the root.
pub(super) const NONE: u32 = u32::MAX;

/// Where a node hangs.
pub(super) trait Hung {
    /// Its parent, and its first hash.
    fn edge(&self) -> (u32, u64);
}

#[derive(Debug)]
pub(super) struct Edges {
    /// Places of a tree that is small, beside its owner's other fields.
    small: [u8; SMALL],
    /// Once the small ones are not enough. Behind one pointer: few trees have it, and the others
    /// are to fit on two lines with their lock.
    large: Option<Box<Large>>,
}

#[derive(Debug)]
struct Large {
    /// Node numbers, a power of two of places.
    places: Box<[u32]>,
}

/// Places in the small table: a line of them.
const SMALL: usize = 64;
/// An empty place in the small table.
const EMPTY: u8 = u8::MAX;

fn hash((parent, first): (u32, u64)) -> usize {
    mix(first ^ u64::from(parent).rotate_left(32)) as usize
}

impl Edges {
    pub(super) const fn new() -> Edges {
        Edges { small: [EMPTY; SMALL], large: None }
    }

    #[inline]
    fn mask(&self) -> usize {
        self.large.as_ref().map_or(SMALL, |large| large.places.len()) - 1
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        match &self.large {
            Some(large) => large.places[at],
            None => match self.small[at] {
                EMPTY => NONE,
                node => u32::from(node),
            },
        }
    }

    #[inline]
    fn set(&mut self, at: usize, node: u32) {
        match &mut self.large {
            Some(large) => large.places[at] = node,
            None => self.small[at] = if node == NONE { EMPTY } else { node as u8 },
        }
    }

    pub(super) fn find<N: Hung>(&self, nodes: &[N], parent: u32, first: u64) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash((parent, first)) & mask;
        loop {
            let node = self.get(at);
            if node == NONE {
                return None;
            }
            let found = &nodes[node as usize];
            // Whoever comes by changes the number of bookings that do.
            for_writing(found);
            if found.edge() == (parent, first) {
                return Some(node);
            }
            at = (at + 1) & mask;
        }
    }

    /// Enters a node, under an edge that is free.
    pub(super) fn insert<N: Hung>(&mut self, nodes: &[N], node: u32) {
        // There are no more nodes than the highest number says, and that one was entered once: the
        // table never gets smaller.
        if (node as usize + 1) * 3 > (self.mask() + 1) * 2 {
            let count = (node as usize + 1).next_power_of_two() * 2;
            let old: Vec<u32> = (0..=self.mask()).map(|at| self.get(at)).collect();
            self.large = Some(Box::new(Large { places: vec![NONE; count].into() }));
            for node in old.into_iter().filter(|&node| node != NONE) {
                self.place(nodes, node);
            }
        }
        self.place(nodes, node);
    }

    fn place<N: Hung>(&mut self, nodes: &[N], node: u32) {
        let mask = self.mask();
        let mut at = hash(nodes[node as usize].edge()) & mask;
        while self.get(at) != NONE {
            at = (at + 1) & mask;
        }
        self.set(at, node);
    }

    /// Takes out a node, whose edge is still the one it was entered under.
    pub(super) fn remove<N: Hung>(&mut self, nodes: &[N], node: u32) {
        let mask = self.mask();
        let mut gap = hash(nodes[node as usize].edge()) & mask;
        while self.get(gap) != node {
            debug_assert_ne!(self.get(gap), NONE, "entered before");
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let next = self.get(at);
            if next == NONE {
                break;
            }
            let home = hash(nodes[next as usize].edge()) & mask;
            // It may move back to the gap only if it is still found there: its home does not lie
            // behind the gap.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.set(gap, next);
                gap = at;
            }
        }
        self.set(gap, NONE);
    }
}
