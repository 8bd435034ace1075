//! The host's own policies, as the engine is given them.

use crate::model::custom::{Filter, Picker, Scorer};
use vacancy::{Candidates, Columns, PolicyError};

/// A policy of the reference, for the engine.
pub struct Host<T>(pub T);

impl vacancy::Filter for Host<Filter> {
    fn name(&self) -> &str {
        "filter"
    }

    fn filter(&self, columns: &Columns<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        for (i, keep) in keep.iter_mut().enumerate() {
            *keep = match self.0 {
                Filter::EvenRanks => columns.ranks[i].dp_rank.is_multiple_of(2),
                Filter::AtMostRequests(n) => u64::from(columns.requests[i]) <= n,
                Filter::Nobody => false,
                Filter::Fails => return Err("the filter fails".into()),
            };
        }
        Ok(())
    }
}

impl vacancy::Scorer for Host<Scorer> {
    fn name(&self) -> &str {
        "scorer"
    }

    fn score(&self, columns: &Columns<'_>, cost: &mut [f64]) -> Result<(), PolicyError> {
        for (i, cost) in cost.iter_mut().enumerate() {
            let worker = columns.ranks[i].worker.0;
            match self.0 {
                Scorer::AddPerWorker(blocks) => *cost += blocks * worker as f64,
                Scorer::Requests => *cost = f64::from(columns.requests[i]),
                Scorer::NotFinite(of) if of == worker => *cost = f64::INFINITY,
                Scorer::NotFinite(_) => {}
                Scorer::Fails => return Err("the scorer fails".into()),
                // Without the message that a panic prints.
                Scorer::Panics => std::panic::resume_unwind(Box::new("the scorer panics")),
            }
        }
        Ok(())
    }
}

impl vacancy::Picker for Host<Picker> {
    fn name(&self) -> &str {
        "picker"
    }

    fn pick(&self, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        match self.0 {
            Picker::Fails => Err("the picker fails".into()),
            Picker::Dearest => {
                let dearer =
                    |a: &usize, b: &usize| candidates.costs[*a].total_cmp(&candidates.costs[*b]);
                Ok((0..candidates.ranks.len()).max_by(dearer).expect("at least one"))
            }
        }
    }
}
