//! The edges of one rank's tree of runs: from (parent, first hash) to the child.
//!
//! Open addressing over node numbers, with the keys left in the nodes: four bytes a place, and no
//! marks left behind, since a removal moves back what lies after it.
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
    /// A power of two of node numbers, or none at all.
    places: Vec<u32>,
    len: usize,
}

fn hash((parent, first): (u32, u64)) -> usize {
    mix(first ^ u64::from(parent).rotate_left(32)) as usize
}

impl Edges {
    pub(super) const fn new() -> Edges {
        Edges { places: Vec::new(), len: 0 }
    }

    pub(super) fn find<N: Hung>(&self, nodes: &[N], parent: u32, first: u64) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = hash((parent, first)) & mask;
        loop {
            let node = self.places[at];
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
        if (self.len + 1) * 3 > self.places.len() * 2 {
            let count = (self.places.len() * 2).max(64);
            let old = std::mem::replace(&mut self.places, vec![NONE; count]);
            for node in old.into_iter().filter(|&node| node != NONE) {
                self.place(nodes, node);
            }
        }
        self.place(nodes, node);
        self.len += 1;
    }

    fn place<N: Hung>(&mut self, nodes: &[N], node: u32) {
        let mask = self.places.len() - 1;
        let mut at = hash(nodes[node as usize].edge()) & mask;
        while self.places[at] != NONE {
            at = (at + 1) & mask;
        }
        self.places[at] = node;
    }

    /// Takes out a node, whose edge is still the one it was entered under.
    pub(super) fn remove<N: Hung>(&mut self, nodes: &[N], node: u32) {
        let mask = self.places.len() - 1;
        let mut gap = hash(nodes[node as usize].edge()) & mask;
        while self.places[gap] != node {
            debug_assert_ne!(self.places[gap], NONE, "entered before");
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let next = self.places[at];
            if next == NONE {
                break;
            }
            let home = hash(nodes[next as usize].edge()) & mask;
            // It may move back to the gap only if it is still found there: its home does not lie
            // behind the gap.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.places[gap] = next;
                gap = at;
            }
        }
        self.places[gap] = NONE;
        self.len -= 1;
    }
}
