//! The policy of a run: which class a request belongs to, and what that class would have a decode
//! rank carry at most.
//!
//! Both answers are this side's own, from the same table that the engine resolves requests by, so
//! that the figures of a run do not rest on what the engine says of itself; and they hold for
//! strategies without classes too, which are judged by the same lines.
#![forbid(unsafe_code)]

use super::args::{Args, Mode, Order};
use super::arrivals::Arrival;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use vacancy::{ClassSpec, MAX_POLICY_BYTES, Name, Policy, Profile, QueuePolicy, Thresholds};

/// The share of its KV blocks past which a decode rank is full, with two pools and no policy file.
pub const DECODE_BUSY_FRAC: f64 = 0.9;

/// Uncached tokens per round of the built-in policy's only class.
const QUANTUM: u64 = 8192;

/// The classes of a run.
#[derive(Clone, Debug)]
pub struct Classes {
    /// `None`: no policy, and nobody waits.
    profile: Option<Arc<Profile>>,
    /// What was said about it, in a few words.
    told: String,
}

impl Classes {
    /// The classes that the arguments ask for: those of a file, or one with the thresholds given.
    /// With two pools and neither, one that waits while every decode rank is past
    /// [`DECODE_BUSY_FRAC`].
    ///
    /// # Errors
    /// The file cannot be read, or is no policy; the text says where.
    pub fn new(args: &Args) -> Result<Classes, String> {
        if let Some(path) = &args.policy {
            let refused = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
            let text = read(path).map_err(|e| refused(&e))?;
            let policy = Policy::from_yaml(&text).map_err(|e| refused(&e))?;
            let profile = Some(Arc::clone(policy.profile(None)));
            return Ok(Classes { profile, told: path.display().to_string() });
        }
        let mut thresholds = Thresholds::NONE;
        thresholds.prefill_frac = args.prefill_busy_frac;
        thresholds.decode_frac = args.decode_busy_frac;
        if args.mode == Mode::Disaggregated && args.decode_busy_frac.is_none() {
            thresholds.decode_frac = Some(DECODE_BUSY_FRAC);
        }
        if thresholds.is_none() {
            return Ok(Classes { profile: None, told: "none: nobody waits".into() });
        }
        let order = match args.queue_policy {
            Order::Fcfs => QueuePolicy::Fcfs,
            Order::Wspt => QueuePolicy::Wspt,
        };
        let class = ClassSpec::new("default", QUANTUM)
            .family("default", "all")
            .queue_policy(order)
            .thresholds(thresholds);
        let profile =
            Profile::new("default", [(0, Name::new("all"))], [class]).map_err(|e| e.to_string())?;
        let part = |frac: Option<f64>, of| frac.map(|f| format!(" past {f} of {of}"));
        let parts = [
            part(thresholds.prefill_frac, "its token batch"),
            part(thresholds.decode_frac, "its KV blocks"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let told = format!("one class ({order}), a rank is full{}", parts.join(" or"));
        Ok(Classes { profile: Some(Arc::new(profile)), told })
    }

    /// The only class of a profile that waits for decode ranks under `frac`.
    #[cfg(test)]
    pub fn decode_busy(frac: f64) -> Classes {
        let profile = Profile::single(Thresholds::NONE.decode_frac(frac)).unwrap();
        Classes { profile: Some(Arc::new(profile)), told: String::new() }
    }

    /// What it is, for a headline.
    pub fn told(&self) -> &str {
        &self.told
    }

    /// What pools are built with.
    pub fn profile(&self) -> Option<&Arc<Profile>> {
        self.profile.as_ref()
    }

    /// Their names, in the order of the policy.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.profile.iter().flat_map(|p| p.classes()).map(|class| &class.name)
    }

    /// The class of a request with so many uncached prompt tokens.
    pub fn of(&self, arrival: &Arrival, uncached: u64) -> Option<Name> {
        let profile = self.profile.as_ref()?;
        let id = profile.resolve(arrival.class.as_ref(), uncached, false);
        Some(profile.class(id.expect("only a strict look-up is refused")).name.clone())
    }

    /// The KV blocks that a class would have a decode rank of `capacity` carry at most; `None`: as
    /// many as there are.
    pub fn block_limit(&self, class: &Name, capacity: u64) -> Option<u64> {
        let spec = self.profile.as_ref()?.classes().iter().find(|spec| spec.name == *class)?;
        spec.thresholds.decode_frac?;
        Some(spec.thresholds.block_limit(Some(capacity)))
    }
}

/// Reads a policy file, but no further than the longest that is taken.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_POLICY_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(change: impl FnOnce(&mut Args)) -> Classes {
        let mut args = Args::default();
        change(&mut args);
        Classes::new(&args).unwrap()
    }

    #[test]
    fn two_pools_always_have_a_gate_and_one_pool_only_if_asked() {
        let arrival = Arrival { at: 0, isl: 10, osl: 1, prompt: None, class: None };
        let built_in = classes(|_| {});
        let class = built_in.of(&arrival, 10).unwrap();
        assert_eq!(built_in.block_limit(&class, 100), Some(90));
        let lower = classes(|args| args.decode_busy_frac = Some(0.29));
        assert_eq!(lower.block_limit(&class, 100), Some(29));
        let one_pool = classes(|args| args.mode = Mode::Aggregated);
        assert!(one_pool.of(&arrival, 10).is_none() && one_pool.names().count() == 0);
        let asked = classes(|args| {
            args.mode = Mode::Aggregated;
            args.prefill_busy_frac = Some(2.0);
        });
        assert_eq!(asked.block_limit(&asked.of(&arrival, 10).unwrap(), 100), None);
    }

    #[test]
    fn a_class_is_that_of_the_name_or_of_the_bucket() {
        let text = "
            default_policy_family: f
            uncached_isl_buckets: [{min_tokens: 0, bucket: s}, {min_tokens: 100, bucket: l}]
            policy_classes:
              - {name: small, policy_family: f, cache_bucket: s, quantum: 1}
              - {name: large, policy_family: f, cache_bucket: l, quantum: 1}
              - {name: probe, quantum: 1}";
        let profile = Some(Arc::clone(Policy::from_yaml(text).unwrap().profile(None)));
        let classes = Classes { profile, told: String::new() };
        let class = |named: Option<&str>, uncached| {
            let class = named.map(Name::new);
            let arrival = Arrival { at: 0, isl: 200, osl: 1, prompt: None, class };
            classes.of(&arrival, uncached).unwrap().to_string()
        };
        assert_eq!(class(None, 99), "small");
        assert_eq!(class(None, 100), "large");
        assert_eq!(class(Some("probe"), 100), "probe");
        assert_eq!(class(Some("nobody knows it"), 0), "small");
    }
}
