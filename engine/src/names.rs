//! What things are called: worker, rank and request ids, and names that are hashed once.
#![forbid(unsafe_code)]

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// One inference engine process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// One data-parallel rank of one worker: the unit that is loaded, judged and chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The worker that runs the rank.
    pub worker: WorkerId,
    /// The rank's number, as the worker counts: from `data_parallel_start_rank` on.
    pub dp_rank: u32,
}

impl Rank {
    /// The rank `dp_rank` of worker `worker`.
    pub const fn new(worker: u64, dp_rank: u32) -> Rank {
        Rank { worker: WorkerId(worker), dp_rank }
    }
}

/// A request's id, for hosts that cannot keep a [`Booking`](crate::Booking) value (FFI, HTTP).
/// Hosts with string ids hash them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

/// Which try of a request a booking by id stands for. Numbers grow within one request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.dp_rank)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A name (taint, adapter, domain level or value, class, stable id), hashed once when it is made
/// so that no later look-up hashes a string. Cloning shares the text.
#[derive(Clone, Eq)]
pub struct Name {
    hash: u64,
    text: Arc<str>,
}

impl Name {
    /// Makes a name. Costs one allocation and one hash of `text`.
    pub fn new(text: &str) -> Name {
        let mut h = rustc_hash::FxHasher::default();
        text.hash(&mut h);
        Name { hash: h.finish(), text: Arc::from(text) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By text, so that lists read well.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::new(&text)
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
