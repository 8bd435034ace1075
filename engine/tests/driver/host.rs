//! The host's own policies, as the engine is given them.

use crate::model::custom::{
    ASKED, Classifier, Filter, Gives, Picker, Refresh, Say, Scorer, Seen, When,
};
use std::cell::RefCell;
use std::sync::Arc;
use vacancy::{Candidates, Classification, Columns, Overlap, PolicyError, Request};

thread_local! {
    /// What classifiers have seen: they are called on the caller's thread.
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

/// What classifiers have seen since this was last asked.
pub fn take_seen() -> Vec<Seen> {
    SEEN.take()
}

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

impl vacancy::Classifier for Host<Classifier> {
    fn name(&self) -> &str {
        "classifier"
    }

    fn wants_ranks(&self) -> bool {
        true
    }

    fn classify(&self, seen: &mut Classification<'_>) -> Result<(), PolicyError> {
        let reject = seen.reject_thresholds();
        let mut ranks: Vec<_> = seen.ranks().to_vec();
        ranks.sort_by_key(|r| r.rank);
        let rank = |r: &vacancy::SeenRank| {
            let caps = [r.max_num_batched_tokens, r.total_kv_blocks];
            let (tokens, blocks) = (r.prefill_tokens.into(), r.kv_blocks.into());
            (r.rank, r.overlap, tokens, blocks, caps, r.has_room(&reject))
        };
        SEEN.with_borrow_mut(|all| {
            all.push(Seen {
                tokens: (seen.prompt_tokens(), seen.cached_tokens().into()),
                class: (seen.class().clone(), seen.thresholds()),
                others: ASKED.map(|name| seen.thresholds_of(&name.into())).into(),
                reject,
                ranks: ranks.iter().map(rank).collect(),
                after: None,
            });
        });
        let speaks = match self.0.when {
            When::Always => true,
            When::Above(tokens) => seen.uncached_tokens() > tokens,
            When::NoRoom => !ranks.iter().any(|r| r.has_room(&seen.thresholds())),
        };
        for say in self.0.says.iter().filter(|_| speaks) {
            match say {
                // What is refused here fails the request, whatever the host makes of it.
                Say::Class(name) => drop(seen.set_class(&(*name).into())),
                Say::Due(wait) => {
                    let due = wait.map(|wait| seen.request().now.after(wait));
                    seen.set_due(due);
                }
                Say::Cost(tokens) => drop(seen.set_cost(*tokens)),
                Say::Target(target) => seen.set_target(*target),
                Say::Fails => return Err("the classifier fails".into()),
                Say::Panics => std::panic::resume_unwind(Box::new("the classifier panics")),
            }
        }
        let after = (seen.class().clone(), seen.thresholds());
        SEEN.with_borrow_mut(|all| all.last_mut().expect("it was seen").after = Some(after));
        Ok(())
    }
}

impl vacancy::OverlapRefresh for Host<Refresh> {
    fn refresh(&self, _: &Request) -> Option<Arc<[Overlap]>> {
        match self.0.gives {
            Gives::Blocks(rank, blocks) => Some([Overlap::device(rank, blocks)].into()),
            Gives::Nothing => Some([].into()),
            Gives::NoAnswer => None,
            Gives::Invalid => Some([Overlap::device(vacancy::Rank::new(1, 0), f64::NAN)].into()),
            Gives::Panics => std::panic::resume_unwind(Box::new("the refresh panics")),
        }
    }
}
