//! Custom policies of a host, as plain functions of what they are shown.

use super::Refusal;
use super::choose::{View, same_cost, shares};
use vacancy::{Rank, Request};

/// Which ranks a host's filter keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Ranks with an even number.
    EvenRanks,
    /// Ranks that carry at most this many requests.
    AtMostRequests(u64),
    /// Nobody.
    Nobody,
    /// Fails.
    Fails,
}

/// What a host's scorer makes of the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scorer {
    /// Adds this many blocks for each number of the worker.
    AddPerWorker(f64),
    /// Replaces the cost by the number of requests.
    Requests,
    /// Gives a cost that is not finite for this worker.
    NotFinite(u64),
    /// Fails.
    Fails,
    /// Panics.
    Panics,
}

/// Whom a host's picker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picker {
    /// A rank of the largest cost.
    Dearest,
    /// Fails.
    Fails,
}

/// What a host installed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Custom {
    /// Refuses ranks that are neither marked nor full.
    pub filter: Option<Filter>,
    /// Changes costs.
    pub scorer: Option<Scorer>,
    /// Chooses.
    pub picker: Option<Picker>,
}

impl Custom {
    /// Whether the filter keeps `rank`.
    pub fn keeps(&self, view: &View<'_>, _: &Request, rank: Rank) -> Result<bool, Refusal> {
        match self.filter {
            None => Ok(true),
            Some(Filter::EvenRanks) => Ok(rank.dp_rank.is_multiple_of(2)),
            Some(Filter::AtMostRequests(n)) => Ok(view.row(rank).requests <= n),
            Some(Filter::Nobody) => Ok(false),
            Some(Filter::Fails) => Err(Refusal::PolicyFailed),
        }
    }

    /// What the scorer makes of `plain`.
    pub fn score(
        &self,
        view: &View<'_>,
        _: &Request,
        rank: Rank,
        plain: f64,
    ) -> Result<f64, Refusal> {
        match self.scorer {
            None => Ok(plain),
            Some(Scorer::AddPerWorker(blocks)) => Ok(plain + blocks * rank.worker.0 as f64),
            Some(Scorer::Requests) => Ok(view.row(rank).requests as f64),
            Some(Scorer::NotFinite(worker)) if rank.worker.0 != worker => Ok(plain),
            Some(Scorer::NotFinite(_) | Scorer::Fails | Scorer::Panics) => {
                Err(Refusal::PolicyFailed)
            }
        }
    }

    /// How likely each of `ranks` is chosen.
    pub fn shares(&self, costs: &[f64], temperature: f64) -> Result<Vec<f64>, Refusal> {
        match self.picker {
            None => Ok(shares(costs, temperature)),
            Some(Picker::Fails) => Err(Refusal::PolicyFailed),
            Some(Picker::Dearest) => {
                let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let dearest: Vec<f64> =
                    costs.iter().map(|c| f64::from(u8::from(same_cost(*c, most)))).collect();
                let n: f64 = dearest.iter().sum();
                Ok(dearest.into_iter().map(|d| d / n).collect())
            }
        }
    }
}
