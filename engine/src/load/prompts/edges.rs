//! The edges of one rank's tree of runs: from (parent, first hash) to the child.
//!
//! Open addressing over node numbers, with the keys left in the nodes: a byte a place in a small
//! tree, four in a large one, and no marks left behind, since a removal moves back what lies after
//! it. A tree that was large once keeps its large table.
#![forbid(unsafe_code)]

use super::chain::mix;

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
    /// A power of two of node numbers, once the small ones are not enough.
    large: Vec<u32>,
    len: usize,
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
        Edges { small: [EMPTY; SMALL], large: Vec::new(), len: 0 }
    }

    #[inline]
    fn mask(&self) -> usize {
        if self.large.is_empty() { SMALL - 1 } else { self.large.len() - 1 }
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        if self.large.is_empty() {
            match self.small[at] {
                EMPTY => NONE,
                node => u32::from(node),
            }
        } else {
            self.large[at]
        }
    }

    #[inline]
    fn set(&mut self, at: usize, node: u32) {
        if self.large.is_empty() {
            self.small[at] = if node == NONE { EMPTY } else { node as u8 };
        } else {
            self.large[at] = node;
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
            if nodes[node as usize].edge() == (parent, first) {
                return Some(node);
            }
            at = (at + 1) & mask;
        }
    }

    /// Enters a node, under an edge that is free.
    pub(super) fn insert<N: Hung>(&mut self, nodes: &[N], node: u32) {
        let outgrown = self.large.is_empty() && node >= u32::from(EMPTY);
        if outgrown || (self.len + 1) * 3 > (self.mask() + 1) * 2 {
            let count = (self.mask() + 1) * 2;
            let old: Vec<u32> = (0..=self.mask()).map(|at| self.get(at)).collect();
            self.large = vec![NONE; count];
            for node in old.into_iter().filter(|&node| node != NONE) {
                self.place(nodes, node);
            }
        }
        self.place(nodes, node);
        self.len += 1;
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
        self.len -= 1;
    }
}
