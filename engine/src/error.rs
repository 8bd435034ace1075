//! Why a call was refused. Every refusal is typed, names what was wrong, and changes nothing.
#![forbid(unsafe_code)]

use crate::names::{Name, Rank, RequestId, WorkerId};
use std::borrow::Cow;
use std::fmt;

/// Which limit of a class queue refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitKind {
    /// `request_queue_limit_per_worker`: requests waiting.
    Requests,
    /// `raw_isl_token_queue_limit_per_worker`: prompt tokens waiting.
    RawIslTokens,
    /// `cached_token_queue_limit_per_worker`: cached prompt tokens waiting.
    CachedTokens,
}

impl LimitKind {
    /// The key of the limit in a policy file.
    pub fn key(self) -> &'static str {
        match self {
            LimitKind::Requests => "request_queue_limit_per_worker",
            LimitKind::RawIslTokens => "raw_isl_token_queue_limit_per_worker",
            LimitKind::CachedTokens => "cached_token_queue_limit_per_worker",
        }
    }
}

/// Why a call was refused.
///
/// When several apply, the first in this order is given: `Closed`, `InvalidRequest`,
/// `DuplicateRequest`, `DeadlineExceeded`, `PinnedWorkerNotAllowed`, `NoEndpoints`, `WouldQueue`,
/// `QueueRejected`, then what selection finds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// There is no rank at all, or none is structurally eligible.
    NoEndpoints,
    /// Ranks are eligible, but each was marked or full at some moment of the call.
    AllEligibleWorkersOverloaded,
    /// The pinned worker (or rank) was marked or full.
    PinnedWorkerOverloaded {
        /// The worker that the request is pinned to.
        worker: WorkerId,
    },
    /// The pinned worker is outside the request's own allowed set.
    PinnedWorkerNotAllowed {
        /// The worker that the request is pinned to.
        worker: WorkerId,
    },
    /// A custom filter refused every rank that was neither marked nor full.
    AllEligibleWorkersFiltered,
    /// A filter, scorer, picker or classifier failed, panicked, or gave a non-finite cost; or the
    /// host's own paired pool panicked.
    PolicyFailed {
        /// What failed, and how.
        what: String,
    },
    /// A limit of the class's queue is reached.
    QueueRejected {
        /// The class.
        class: Name,
        /// Which limit.
        kind: LimitKind,
        /// What is waiting already, in the limit's unit.
        current: u64,
        /// The limit: the configured one times the workers known.
        limit: u64,
    },
    /// The request said `do_not_queue` and would have to wait.
    WouldQueue {
        /// The class.
        class: Name,
        /// Requests of the class that wait already.
        waiting: u64,
    },
    /// The due time had passed, on arrival or while waiting.
    DeadlineExceeded,
    /// The request id is live already; the first request is untouched.
    DuplicateRequest {
        /// The id.
        id: RequestId,
    },
    /// No live booking has this id.
    UnknownRequest {
        /// The id.
        id: RequestId,
    },
    /// No class or family has this name (strict form only).
    UnknownClass {
        /// The name.
        class: Name,
    },
    /// A field of the request cannot be taken.
    InvalidRequest {
        /// The field.
        field: &'static str,
        /// What it held.
        value: String,
    },
    /// The booking would overflow the row of the rank it was to land on.
    RowOverflow {
        /// The rank.
        rank: Rank,
    },
    /// A worker spec, threshold, policy or pool setting cannot be taken.
    InvalidConfig {
        /// The field, with its place where it has one.
        field: Cow<'static, str>,
        /// What it held.
        value: String,
    },
    /// The pool was shut down.
    Closed,
}

impl Error {
    pub(crate) fn config(field: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Error {
        Error::InvalidConfig { field: field.into(), value: value.to_string() }
    }

    pub(crate) fn request(field: &'static str, value: impl fmt::Display) -> Error {
        Error::InvalidRequest { field, value: value.to_string() }
    }

    /// The name of the variant, stable across versions: scenario files and metrics use it.
    pub fn name(&self) -> &'static str {
        match self {
            Error::NoEndpoints => "NoEndpoints",
            Error::AllEligibleWorkersOverloaded => "AllEligibleWorkersOverloaded",
            Error::PinnedWorkerOverloaded { .. } => "PinnedWorkerOverloaded",
            Error::PinnedWorkerNotAllowed { .. } => "PinnedWorkerNotAllowed",
            Error::AllEligibleWorkersFiltered => "AllEligibleWorkersFiltered",
            Error::PolicyFailed { .. } => "PolicyFailed",
            Error::QueueRejected { .. } => "QueueRejected",
            Error::WouldQueue { .. } => "WouldQueue",
            Error::DeadlineExceeded => "DeadlineExceeded",
            Error::DuplicateRequest { .. } => "DuplicateRequest",
            Error::UnknownRequest { .. } => "UnknownRequest",
            Error::UnknownClass { .. } => "UnknownClass",
            Error::InvalidRequest { .. } => "InvalidRequest",
            Error::RowOverflow { .. } => "RowOverflow",
            Error::InvalidConfig { .. } => "InvalidConfig",
            Error::Closed => "Closed",
        }
    }

    /// The HTTP status that a host should map the error to; `None` for configuration errors,
    /// which no request meets.
    pub fn http_status(&self) -> Option<u16> {
        Some(match self {
            Error::NoEndpoints | Error::AllEligibleWorkersFiltered | Error::Closed => 503,
            Error::AllEligibleWorkersOverloaded | Error::PinnedWorkerOverloaded { .. } => 529,
            Error::PinnedWorkerNotAllowed { .. }
            | Error::UnknownClass { .. }
            | Error::InvalidRequest { .. } => 400,
            Error::PolicyFailed { .. } | Error::RowOverflow { .. } => 500,
            Error::QueueRejected { .. } | Error::WouldQueue { .. } => 429,
            Error::DeadlineExceeded => 504,
            Error::DuplicateRequest { .. } => 409,
            Error::UnknownRequest { .. } => 404,
            Error::InvalidConfig { .. } => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoEndpoints => f.write_str("no rank is eligible for this request"),
            Error::AllEligibleWorkersOverloaded => f.write_str(
                "every eligible rank is marked overloaded or past the reject thresholds",
            ),
            Error::PinnedWorkerOverloaded { worker } => {
                write!(f, "worker {worker}, which the request is pinned to, is overloaded")
            }
            Error::PinnedWorkerNotAllowed { worker } => {
                write!(
                    f,
                    "worker {worker}, which the request is pinned to, is outside its allowed set"
                )
            }
            Error::AllEligibleWorkersFiltered => {
                f.write_str("the custom filter refused every rank that has room")
            }
            Error::PolicyFailed { what } => write!(f, "custom policy failed: {what}"),
            Error::QueueRejected { class, kind, current, limit } => {
                let key = kind.key();
                write!(f, "queue of class {class} is at its limit: {key} {current} of {limit}")
            }
            Error::WouldQueue { class, waiting } => {
                write!(f, "would have to wait in class {class} behind {waiting} request(s)")
            }
            Error::DeadlineExceeded => f.write_str("the due time has passed"),
            Error::DuplicateRequest { id } => write!(f, "request {id} is live already"),
            Error::UnknownRequest { id } => write!(f, "request {id} is not known"),
            Error::UnknownClass { class } => {
                write!(f, "no policy class or family is named {class}")
            }
            Error::InvalidRequest { field, value } => {
                write!(f, "invalid request: {field} is {value}")
            }
            Error::RowOverflow { rank } => {
                write!(f, "the load would overflow the row of rank {rank}")
            }
            Error::InvalidConfig { field, value } => {
                write!(f, "invalid configuration: {field} is {value}")
            }
            Error::Closed => f.write_str("the pool is closed"),
        }
    }
}

impl std::error::Error for Error {}
