//! What a step came to: the JSON line it prints, and what its expectation is held against.
#![forbid(unsafe_code)]

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use vacancy::{Choice, Error, Rank};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In the queue.
    Waiting,
    /// Booked.
    Admitted,
    /// Turned away, on arrival or while it waited.
    Refused,
    /// Given back: freed, its lease run out, or cancelled after it was admitted.
    Freed,
    /// Withdrawn while it waited.
    Cancelled,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Waiting => "waiting",
            State::Admitted => "admitted",
            State::Refused => "refused",
            State::Freed => "freed",
            State::Cancelled => "cancelled",
        })
    }
}

/// A rank, as answers write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct At {
    /// The worker.
    pub worker: u64,
    /// The rank.
    pub rank: u32,
}

impl From<Rank> for At {
    fn from(rank: Rank) -> At {
        At { worker: rank.worker.0, rank: rank.dp_rank }
    }
}

/// What `load` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Active prefill tokens.
    pub prefill_tokens: u64,
    /// KV blocks, booked and mirrored.
    pub kv_blocks: u64,
    /// Active requests.
    pub requests: u64,
    /// KV blocks set aside by holds.
    pub held_blocks: u64,
    /// Whether the rank is past the reject thresholds.
    pub full: bool,
}

/// What waits in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassStats {
    /// Requests.
    pub waiting: u64,
    /// Their prompt tokens.
    pub tokens: u64,
}

/// What `stats` returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Ranks of the pool.
    pub ranks: u64,
    /// Those past the reject thresholds.
    pub full: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// The epoch; only its changes mean anything.
    pub epoch: u64,
    /// Answers given by select, book, admit.
    pub selected: u64,
    /// Errors other than expired, cancelled, closed.
    pub rejected: u64,
    /// Admits that went in.
    pub admitted: u64,
    /// Requests whose due time passed.
    pub expired: u64,
    /// Requests withdrawn while they waited.
    pub cancelled: u64,
    /// By class.
    pub class: BTreeMap<String, ClassStats>,
}

/// What became of one request, in a step of its own, among the `each` of a step, or among the
/// `events`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The request's name.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the expectation holds; absent in `events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Why it was refused. `null` in a step that was not; absent in such an event.
    #[serde(skip_serializing_if = "Answer::is_silent")]
    pub error: Answer,
    /// How far it has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The chosen worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<u64>,
    /// The chosen rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Prompt tokens that the rank has cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
    /// The cost of the rank, in blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The policy class it was resolved to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Room set aside at the decode hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<At>,
}

/// Whether, and why, an operation was refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// It was not; nothing is printed.
    #[default]
    Silent,
    /// It was not; `null` is printed.
    Fine,
    /// It was.
    Refused(Error),
}

impl Answer {
    fn is_silent(&self) -> bool {
        *self == Answer::Silent
    }

    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<&Error> {
        match self {
            Answer::Refused(error) => Some(error),
            Answer::Silent | Answer::Fine => None,
        }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.refused() {
            Some(error) => s.serialize_str(error.name()),
            None => s.serialize_none(),
        }
    }
}

impl Outcome {
    /// Nothing but that it went well.
    pub fn fine() -> Outcome {
        Outcome { error: Answer::Fine, ..Outcome::default() }
    }

    /// Nothing but that it was refused.
    pub fn refused(error: Error) -> Outcome {
        Outcome { error: Answer::Refused(error), ..Outcome::default() }
    }

    /// Says which rank was chosen, and why.
    pub fn chose(&mut self, choice: &Choice) {
        self.placed(choice.rank);
        self.cached_tokens = Some(choice.cached_tokens);
        self.cost = Some(choice.cost);
    }

    /// Says on which rank it is.
    pub fn placed(&mut self, rank: Rank) {
        self.worker = Some(rank.worker.0);
        self.rank = Some(rank.dp_rank);
    }
}

/// For a person: what happened, in a few words.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let r = write!(f, "{gap}{text}");
            gap = ", ";
            r
        };
        if let Some(name) = &self.name {
            part(f, format_args!("{name}"))?;
        }
        if let Some(state) = self.state {
            part(f, format_args!("{state}"))?;
        }
        if let Some(error) = self.error.refused() {
            part(f, format_args!("{} ({error})", error.name()))?;
        }
        if let Some(worker) = self.worker {
            part(f, format_args!("worker {worker} rank {}", self.rank.unwrap_or(0)))?;
        }
        if let Some(cached) = self.cached_tokens {
            part(f, format_args!("cached_tokens {cached}"))?;
        }
        if let Some(cost) = self.cost {
            part(f, format_args!("cost {cost}"))?;
        }
        if let Some(class) = &self.class {
            part(f, format_args!("class {class}"))?;
        }
        if let Some(hold) = self.hold {
            part(f, format_args!("hold on worker {} rank {}", hold.worker, hold.rank))?;
        }
        Ok(())
    }
}

/// What a whole step came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepOutcome {
    /// Number of the step, from 0.
    pub step: usize,
    /// Its operation.
    pub op: &'static str,
    /// What became of its request, if it has one; the error, if it has none.
    #[serde(flatten)]
    pub one: Outcome,
    /// Names of the bookings that lost their rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Vec<String>>,
    /// What `load` returned.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// What `stats` returned.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// What became of each request of a step with `times`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<Vec<Outcome>>,
    /// What the step made happen to others, in order.
    pub events: Vec<Outcome>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &StepOutcome) -> String {
        serde_json::to_string(step).expect("plain data")
    }

    #[test]
    fn a_line_has_the_keys_of_the_format_in_their_order() {
        let one = Outcome {
            name: Some("r1".into()),
            ok: Some(true),
            error: Answer::Fine,
            state: Some(State::Admitted),
            worker: Some(1),
            rank: Some(0),
            cached_tokens: Some(0),
            cost: Some(7.0),
            class: None,
            hold: Some(At { worker: 4, rank: 0 }),
        };
        let event = Outcome {
            name: Some("q1".into()),
            state: Some(State::Admitted),
            worker: Some(2),
            rank: Some(0),
            ..Outcome::default()
        };
        let step =
            StepOutcome { step: 3, op: "book", one, events: vec![event], ..StepOutcome::default() };
        assert_eq!(
            line(&step),
            r#"{"step":3,"op":"book","as":"r1","ok":true,"error":null,"state":"admitted","worker":1,"rank":0,"cached_tokens":0,"cost":7.0,"hold":{"worker":4,"rank":0},"events":[{"as":"q1","state":"admitted","worker":2,"rank":0}]}"#
        );
    }

    #[test]
    fn load_and_stats_stand_at_the_top_level() {
        let load =
            Load { prefill_tokens: 1, kv_blocks: 2, requests: 3, held_blocks: 4, full: true };
        let step = StepOutcome {
            op: "load",
            one: Outcome { ok: Some(true), ..Outcome::fine() },
            load: Some(load),
            ..StepOutcome::default()
        };
        assert_eq!(
            line(&step),
            r#"{"step":0,"op":"load","ok":true,"error":null,"prefill_tokens":1,"kv_blocks":2,"requests":3,"held_blocks":4,"full":true,"events":[]}"#
        );
        let stats = Stats {
            ranks: 2,
            class: [("a".to_owned(), ClassStats { waiting: 1, tokens: 64 })].into(),
            ..Stats::default()
        };
        let step = StepOutcome {
            op: "stats",
            one: Outcome { ok: Some(true), ..Outcome::fine() },
            stats: Some(stats),
            ..StepOutcome::default()
        };
        assert_eq!(
            line(&step),
            r#"{"step":0,"op":"stats","ok":true,"error":null,"ranks":2,"full":0,"waiting":0,"epoch":0,"selected":0,"rejected":0,"admitted":0,"expired":0,"cancelled":0,"class":{"a":{"waiting":1,"tokens":64}},"events":[]}"#
        );
    }

    #[test]
    fn an_error_is_printed_by_its_name() {
        let one = Outcome { ok: Some(false), ..Outcome::refused(Error::NoEndpoints) };
        let step = StepOutcome { op: "book", one, ..StepOutcome::default() };
        assert_eq!(
            line(&step),
            r#"{"step":0,"op":"book","ok":false,"error":"NoEndpoints","events":[]}"#
        );
    }
}
