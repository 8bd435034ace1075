//! The thresholds that one pool is under, compiled into integer limits rank by rank.
#![forbid(unsafe_code)]

use crate::limits::thresholds::Thresholds;
use crate::load::row::Limit;
use crate::queue::policy::{ClassSpec, Profile};
use std::sync::Arc;

/// How the reject thresholds skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectScope {
    /// A worker is skipped when all of its ranks are full; while any has room, all stay candidates.
    #[default]
    Worker,
    /// Each rank is judged on its own.
    Rank,
}

/// Thresholds in force in one pool.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) reject: Thresholds,
    pub(crate) scope: RejectScope,
    /// One set per policy class, in the order of the classes.
    pub(crate) classes: Vec<Thresholds>,
    /// The policy that the classes are of: a class id means something only beside it.
    pub(crate) profile: Arc<Profile>,
    /// Whether a paired pool judges the decode part of the classes' thresholds.
    pub(crate) paired: bool,
    /// Decode fractions that pools which have this one as their pair ask for. Their limits stand
    /// behind those of the classes.
    pub(crate) asked: Vec<f64>,
}

impl Rules {
    /// These rules with another policy, or another judge of its decode part.
    pub(crate) fn under(&self, profile: &Arc<Profile>, paired: bool) -> Rules {
        let own = |class: &ClassSpec| Thresholds {
            decode_frac: class.thresholds.decode_frac.filter(|_| !paired),
            ..class.thresholds
        };
        let asked = self.asked.iter().map(|&frac| Thresholds::NONE.decode_frac(frac));
        Rules {
            classes: profile.classes().iter().map(own).chain(asked).collect(),
            profile: Arc::clone(profile),
            paired,
            ..self.clone()
        }
    }

    /// The column of limits for a decode fraction that a pair asks for.
    pub(crate) fn column_for(&self, frac: f64) -> Option<usize> {
        let at = self.asked.iter().position(|&asked| asked == frac)?;
        Some(self.profile.classes().len() + at)
    }

    /// These rules with a column for one more decode fraction.
    pub(crate) fn asking(&self, frac: f64) -> Rules {
        let mut rules = self.clone();
        rules.asked.push(frac);
        rules.under(&self.profile, self.paired)
    }
}

/// The integer limit of one rank under `thresholds`.
pub(crate) fn compile(
    thresholds: &Thresholds,
    max_num_batched_tokens: Option<u64>,
    total_kv_blocks: Option<u64>,
) -> Limit {
    // A row cannot show more than its bits hold, so a wider limit is no limit.
    let narrow = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
    Limit::new(
        narrow(thresholds.token_limit(max_num_batched_tokens)),
        narrow(thresholds.block_limit(total_kv_blocks)),
    )
}
