//! The prompt blocks that one rank holds, counted: the truth that rows are charged by.
//!
//! A radix tree whose nodes are *runs*, stretches of a chain between the places where live
//! bookings part or end, each with the number of bookings that pass through it. A booking remembers
//! the node it ends at; leaving walks up from there. So a booking costs what its few edges cost,
//! whatever the length of its prompt: a run is matched by its last hash alone, and the place where
//! a chain leaves it is found by a binary search.
//!
//! What always holds:
//! - a node's count is the number of bookings that end at it or below it, and is not 0;
//! - a node keeps its number as long as a booking ends at it: a cut gives the *upper* part a new
//!   one, a merge keeps the lower one's;
//! - the sum of the nodes' lengths is what bookings were charged less what was given back. This
//!   needs nothing of the hashes: of chains that are none (`[1, 2]` and `[9, 2]`) some blocks may
//!   be counted as not shared, but what comes in goes out.
//!
//! Nodes share the prompt's own hashes. A node keeps one prompt's hashes alive, there are at most
//! two nodes per live booking, and a node that others pass through changes to the shorter of two
//! prompts, if it is less than half as long, when it can: so what is kept is bounded by twice the
//! live bookings' number times the longest prompt, and comes down as long prompts leave.
//!
//! All of it is plain data: the caller holds the rank's lock, from [`RankPrompts::missing`] over
//! its change of the row to [`RankPrompts::enter`].
#![forbid(unsafe_code)]

use super::chain::common;
use super::edges::{Edges, Hung, NONE};
use super::index::PromptIndex;
use crate::grace::Guard;
use std::sync::Arc;

/// The prompt blocks one rank holds.
#[derive(Debug)]
pub(crate) struct RankPrompts {
    nodes: Vec<Node>,
    edges: Edges,
    /// First of the nodes not in use, linked by `parent`; by the side of the thread that dropped
    /// them (see [`Guard::side`]): who books and frees here in turn with another thread has the
    /// nodes of its own bookings in its own cache.
    free: [u32; 2],
    /// Blocks held. A row shows no more than 31 bits of them.
    held: u32,
    /// Blocks entered in the index and not removed again.
    indexed: u32,
    /// Moves when everything is dropped at once, so that bookings of before are known as such.
    life: u32,
}

/// Blocks `start .. start + len` of `chain`, below `parent`. On one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    first: u64,
    last: u64,
    chain: Option<Arc<[u64]>>,
    start: u32,
    len: u32,
    parent: u32,
    /// Live bookings that end here or below.
    count: u32,
    children: u32,
    /// The children's numbers, xor-ed: with one child, its number.
    child: u32,
}

/// What a rank does not hold of a chain; see [`RankPrompts::missing`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Missing<'c> {
    chain: &'c Arc<[u64]>,
    /// The last node matched, and how many of its blocks.
    node: u32,
    within: u32,
    /// How many blocks of the chain were matched in all.
    pos: u32,
}

/// What one booking holds at its rank; given back by [`RankPrompts::leave`], once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Held {
    node: u32,
    life: u32,
}

/// Where a rank's changes are entered for all to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// The pool's index.
    pub(crate) index: &'a PromptIndex,
    /// The rank's slot: block * 64 + lane.
    pub(crate) slot: u32,
    /// A pin of the index's domain.
    pub(crate) guard: &'a Guard<'a>,
}

impl Hung for Node {
    fn edge(&self) -> (u32, u64) {
        (self.parent, self.first)
    }
}

impl Node {
    fn hashes(&self) -> &[u64] {
        match &self.chain {
            Some(chain) => &chain[self.start as usize..][..self.len as usize],
            None => &[],
        }
    }

    /// How many leading blocks of `rest` it covers, the first one being known to be equal.
    fn covers(&self, rest: &[u64]) -> usize {
        let len = self.len as usize;
        if rest.len() >= len && rest[len - 1] == self.last {
            return len;
        }
        common(self.hashes(), rest)
    }
}

impl Missing<'_> {
    /// How many blocks of the chain the rank does not hold.
    pub(crate) fn blocks(&self) -> u32 {
        self.chain.len() as u32 - self.pos
    }
}

impl Held {
    /// What a booking without prompt hashes holds.
    pub(crate) const NOTHING: Held = Held { node: NONE, life: 0 };
}

impl Default for RankPrompts {
    fn default() -> Self {
        RankPrompts::new()
    }
}

impl RankPrompts {
    /// Nothing held. Allocates nothing until something is.
    pub(crate) const fn new() -> RankPrompts {
        RankPrompts {
            nodes: Vec::new(),
            edges: Edges::new(),
            free: [NONE; 2],
            held: 0,
            indexed: 0,
            life: 0,
        }
    }

    /// How many blocks are held: of bookings that share a block, it counts once.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// What the rank does not hold of `chain`. `O(edges passed)`, and a binary search. Good until
    /// the next `enter`, `leave` or `clear`.
    pub(crate) fn missing<'c>(&self, chain: &'c Arc<[u64]>) -> Missing<'c> {
        let (mut node, mut within, mut pos) = (NONE, 0, 0);
        while pos < chain.len() {
            let Some(next) = self.edges.find(&self.nodes, node, chain[pos]) else { break };
            let run = &self.nodes[next as usize];
            let covered = run.covers(&chain[pos..]);
            (node, within) = (next, covered as u32);
            pos += covered;
            if within < run.len {
                break;
            }
        }
        Missing { chain, node, within, pos: pos as u32 }
    }

    /// The rank as it would be without one booking: how many blocks that one alone holds, and how
    /// many leading blocks of `chain` the others hold. Changes nothing.
    pub(crate) fn without(&self, held: Held, chain: Option<&Arc<[u64]>>) -> (u32, u32) {
        let known = held.life == self.life;
        let (mut alone, mut top, mut up) = (0, NONE, if known { held.node } else { NONE });
        while let Some(run) = self.nodes.get(up as usize).filter(|run| run.count == 1) {
            alone += run.len;
            (top, up) = (up, run.parent);
        }
        let Some(chain) = chain else { return (alone, 0) };
        let (mut node, mut pos) = (NONE, 0);
        while pos < chain.len() {
            let Some(next) = self.edges.find(&self.nodes, node, chain[pos]) else { break };
            // Below the topmost run that would go, all would.
            if next == top {
                break;
            }
            let run = &self.nodes[next as usize];
            let covered = run.covers(&chain[pos..]);
            (node, pos) = (next, pos + covered);
            if covered < run.len as usize {
                break;
            }
        }
        (alone, pos as u32)
    }

    /// Enters a booking's chain, here and in the index.
    pub(crate) fn enter(&mut self, missing: Missing<'_>, at: At<'_>) -> Held {
        let Missing { chain, mut node, within, pos } = missing;
        if chain.is_empty() {
            return Held::NOTHING;
        }
        if node != NONE && within < self.nodes[node as usize].len {
            node = self.cut(node, within, chain, at);
        }
        let end = chain.len() as u32;
        if pos < end {
            node = self.add(
                Node {
                    first: chain[pos as usize],
                    last: chain[end as usize - 1],
                    chain: Some(chain.clone()),
                    start: pos,
                    len: end - pos,
                    parent: node,
                    count: 0,
                    children: 0,
                    child: 0,
                },
                at,
            );
            self.held += end - pos;
            let entered = at.index.gain(at.guard, at.slot, chain, pos, end);
            self.indexed = self.indexed.saturating_add(entered);
        }
        let mut up = node;
        while up != NONE {
            let run = &mut self.nodes[up as usize];
            run.count += 1;
            run.adopt(chain);
            up = run.parent;
        }
        Held { node, life: self.life }
    }

    /// Takes a booking's chain off, here and in the index. Returns how many blocks nobody holds
    /// any more. `O(edges passed)`. A booking of before the last `clear` holds nothing.
    pub(crate) fn leave(&mut self, held: Held, at: At<'_>) -> u32 {
        let known = self.nodes.get(held.node as usize);
        if held.life != self.life || known.is_none_or(|run| run.chain.is_none()) {
            return 0;
        }
        let mut node = held.node;
        // The lowest run that goes, whose chain covers all that go, and the end of what goes.
        let mut gone: Option<(Arc<[u64]>, u32)> = None;
        let (mut from, mut kept) = (0, NONE);
        while node != NONE {
            let run = &mut self.nodes[node as usize];
            run.count = run.count.saturating_sub(1);
            let (parent, start, end) = (run.parent, run.start, run.start + run.len);
            if run.count == 0 {
                from = start;
                let chain = self.drop_node(node, at);
                if gone.is_none() {
                    gone = chain.map(|chain| (chain, end));
                }
            } else if kept == NONE {
                kept = node;
            }
            node = parent;
        }
        let mut left = 0;
        if let Some((chain, to)) = gone {
            left = to - from;
            self.held -= left;
            let removed = at.index.lose(at.guard, at.slot, &chain, from, to);
            self.settle(removed, at);
        }
        if kept != NONE {
            self.merge(kept, at);
        }
        left
    }

    /// Drops everything, here and in the index: the rank is gone. What bookings of before hand in
    /// later is nothing. Returns how many blocks were held.
    pub(crate) fn clear(&mut self, at: At<'_>) -> u32 {
        let held = self.held;
        for leaf in 0..self.nodes.len() as u32 {
            let mut node = leaf;
            // Upwards from each leaf, as far as nothing else hangs there.
            while node != NONE {
                let run = &self.nodes[node as usize];
                if run.chain.is_none() || run.children > 0 {
                    break;
                }
                let (parent, start, end) = (run.parent, run.start, run.start + run.len);
                if let Some(chain) = self.drop_node(node, at) {
                    self.held -= end - start;
                    let removed = at.index.lose(at.guard, at.slot, &chain, start, end);
                    self.indexed = self.indexed.saturating_sub(removed);
                }
                node = parent;
            }
        }
        self.settle(0, at);
        self.life = self.life.wrapping_add(1);
        held
    }

    /// Keeps the balance with the index. When nothing is held and yet something is entered, hashes
    /// were no chains, and the index is swept.
    fn settle(&mut self, removed: u32, at: At<'_>) {
        self.indexed = self.indexed.saturating_sub(removed);
        if self.held == 0 && self.indexed != 0 {
            at.index.scrub(at.guard, at.slot);
            self.indexed = 0;
        }
    }

    /// How many runs it is made of.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.iter().filter(|run| run.chain.is_some()).count()
    }

    /// How many nodes there is memory for.
    #[cfg(test)]
    pub(crate) fn nodes_made(&self) -> usize {
        self.nodes.len()
    }

    fn add(&mut self, node: Node, at: At<'_>) -> u32 {
        // One of the other side rather than more memory.
        let own = at.guard.side();
        let from = if self.free[own] == NONE && self.nodes.len() == self.nodes.capacity() {
            own ^ 1
        } else {
            own
        };
        let number = if self.free[from] == NONE {
            if self.nodes.capacity() == 0 {
                self.nodes.reserve(32);
            }
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let number = self.free[from];
            self.free[from] = self.nodes[number as usize].parent;
            self.nodes[number as usize] = node;
            number
        };
        self.hang(number);
        number
    }

    /// Enters a node's edge, and its number at its parent.
    fn hang(&mut self, node: u32) {
        self.edges.insert(&self.nodes, node);
        let parent = self.nodes[node as usize].parent;
        if parent != NONE {
            let parent = &mut self.nodes[parent as usize];
            parent.children += 1;
            parent.child ^= node;
        }
    }

    /// The opposite of `hang`.
    fn unhang(&mut self, node: u32) {
        self.edges.remove(&self.nodes, node);
        let parent = self.nodes[node as usize].parent;
        if parent != NONE {
            let parent = &mut self.nodes[parent as usize];
            parent.children -= 1;
            parent.child ^= node;
        }
    }

    /// Frees a node without children; returns its chain.
    fn drop_node(&mut self, node: u32, at: At<'_>) -> Option<Arc<[u64]>> {
        self.unhang(node);
        let run = &mut self.nodes[node as usize];
        run.parent = std::mem::replace(&mut self.free[at.guard.side()], node);
        run.chain.take()
    }

    /// Cuts a node behind its first `upper` blocks, which `chain` has as well; returns the new, upper
    /// one.
    fn cut(&mut self, node: u32, upper: u32, chain: &Arc<[u64]>, at: At<'_>) -> u32 {
        self.unhang(node);
        let run = &mut self.nodes[node as usize];
        let hashes = run.hashes();
        let (last, first) = (hashes[upper as usize - 1], hashes[upper as usize]);
        // The booking's own hashes, unless they are far more or no chain: those of another thread's
        // booking lie on a line that counting one more user of them would take away from it.
        let (start, end) = (run.start as usize, (run.start + upper) as usize);
        let short = run.chain.as_ref().is_some_and(|own| chain.len() / 2 <= own.len());
        let own = short && chain[start] == run.first && chain[end - 1] == last;
        let above = Node {
            first: run.first,
            last,
            chain: if own { Some(chain.clone()) } else { run.chain.clone() },
            start: run.start,
            len: upper,
            parent: run.parent,
            count: run.count,
            children: 0,
            child: 0,
        };
        run.first = first;
        run.start += upper;
        run.len -= upper;
        let above = self.add(above, at);
        self.nodes[node as usize].parent = above;
        self.hang(node);
        above
    }

    /// Joins a node with its only child if no booking ends between the two.
    fn merge(&mut self, node: u32, at: At<'_>) {
        let run = &self.nodes[node as usize];
        if run.children != 1 {
            return;
        }
        let below = run.child;
        let child = &self.nodes[below as usize];
        let whole = child.count == run.count;
        let (parent, first, start, len) = (run.parent, run.first, run.start, run.len);
        // The child's chain goes on from here, unless the hashes are no chain.
        let follows = child.chain.as_ref().is_some_and(|chain| {
            chain[start as usize] == first && chain[(start + len) as usize - 1] == run.last
        });
        if !follows {
            return;
        }
        if !whole {
            let chain = child.chain.clone();
            if let Some(chain) = chain {
                self.nodes[node as usize].adopt(&chain);
            }
            return;
        }
        self.unhang(below);
        self.drop_node(node, at);
        let child = &mut self.nodes[below as usize];
        child.parent = parent;
        child.first = first;
        child.start = start;
        child.len += len;
        self.hang(below);
    }
}

impl Node {
    /// Changes to another prompt's hashes, if they are far fewer.
    fn adopt(&mut self, chain: &Arc<[u64]>) {
        let end = (self.start + self.len) as usize;
        if let Some(own) = &self.chain
            && own.len() / 2 > chain.len()
            && end <= chain.len()
            && chain[self.start as usize] == self.first
            && chain[end - 1] == self.last
        {
            self.chain = Some(chain.clone());
        }
    }
}
