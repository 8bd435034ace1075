//! The policy: which classes there are, what each asks for, and which class a request belongs to.
//!
//! Owns the configuration as values, their validation, and the table that resolves a request to a
//! class. A [`Profile`] that exists is valid: every class has a quantum, every family has a class
//! for every bucket, and every name resolves to one thing only.
#![forbid(unsafe_code)]

use crate::error::{Error, LimitKind};
use crate::limits::thresholds::Thresholds;
use crate::names::Name;
use rustc_hash::FxHashMap;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most classes (and the most buckets) of one profile.
pub const MAX_CLASSES: usize = 4_096;

/// How requests of one class are ordered, after `strict_priority` and due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueuePolicy {
    /// First come, first served; `priority_jump` seconds earlier counts as having come earlier.
    #[default]
    Fcfs,
    /// Weighted shortest processing time: `(1 + priority_jump) / uncached tokens`, highest first.
    Wspt,
    /// Earliest due time first, those without one last; priorities play no part.
    Edf,
}

impl QueuePolicy {
    /// The name in a policy file.
    pub fn key(self) -> &'static str {
        match self {
            QueuePolicy::Fcfs => "fcfs",
            QueuePolicy::Wspt => "wspt",
            QueuePolicy::Edf => "edf",
        }
    }
}

impl fmt::Display for QueuePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// How much may wait in one class, per worker known to the pool. `None` is no limit; any limit of
/// 0 means that the class never queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLimits {
    /// Requests.
    pub requests: Option<u64>,
    /// Prompt tokens.
    pub raw_isl_tokens: Option<u64>,
    /// Prompt tokens that some eligible rank had cached when the request arrived.
    pub cached_tokens: Option<u64>,
}

impl QueueLimits {
    /// The limits that are set, with their kinds, in the order in which they are looked at.
    pub fn iter(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        [
            (LimitKind::Requests, self.requests),
            (LimitKind::RawIslTokens, self.raw_isl_tokens),
            (LimitKind::CachedTokens, self.cached_tokens),
        ]
        .into_iter()
        .filter_map(|(kind, limit)| Some((kind, limit?)))
    }
}

/// One policy class, as the host writes it.
///
/// ```
/// use vacancy::{ClassSpec, QueuePolicy, Thresholds};
/// let large = ClassSpec::new("standard_large", 4096)
///     .family("standard", "large")
///     .queue_policy(QueuePolicy::Wspt)
///     .thresholds(Thresholds::NONE.prefill_frac(2.0))
///     .request_queue_limit_per_worker(4);
/// assert_eq!(large.quantum, 4096);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassSpec {
    /// Its name: unique in the profile, of `[A-Za-z0-9_.-]`.
    pub name: Name,
    /// The family it serves; together with `cache_bucket`, or neither (an explicit class).
    pub policy_family: Option<Name>,
    /// The bucket of uncached tokens it serves within its family.
    pub cache_bucket: Option<Name>,
    /// Uncached tokens that it may admit per round of deficit round robin; at least 1.
    pub quantum: u64,
    /// How its requests are ordered.
    pub queue_policy: QueuePolicy,
    /// When a rank counts as full for this class. None set: the class never waits.
    pub thresholds: Thresholds,
    /// The share of the eligible ranks, in `(0, 1]`, that must be full for the class to wait;
    /// `None`: all of them.
    pub busy_worker_ratio: Option<f64>,
    /// How much may wait.
    pub limits: QueueLimits,
    /// The due time, after its arrival, of a request that brings none; at least 1 ns.
    pub max_wait: Option<Duration>,
}

impl ClassSpec {
    /// An explicit class (reached by its name) without thresholds or limits.
    pub fn new(name: impl Into<Name>, quantum: u64) -> ClassSpec {
        ClassSpec {
            name: name.into(),
            policy_family: None,
            cache_bucket: None,
            quantum,
            queue_policy: QueuePolicy::Fcfs,
            thresholds: Thresholds::NONE,
            busy_worker_ratio: None,
            limits: QueueLimits::default(),
            max_wait: None,
        }
    }

    /// Makes it the class of a family for a bucket.
    #[must_use]
    pub fn family(mut self, family: impl Into<Name>, bucket: impl Into<Name>) -> Self {
        self.policy_family = Some(family.into());
        self.cache_bucket = Some(bucket.into());
        self
    }

    /// Sets the order of its requests.
    #[must_use]
    pub fn queue_policy(mut self, policy: QueuePolicy) -> Self {
        self.queue_policy = policy;
        self
    }

    /// Sets when a rank counts as full for it.
    #[must_use]
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// Sets the share of ranks that must be full for it to wait.
    #[must_use]
    pub fn busy_worker_ratio(mut self, ratio: f64) -> Self {
        self.busy_worker_ratio = Some(ratio);
        self
    }

    /// Limits how many requests may wait, per worker.
    #[must_use]
    pub fn request_queue_limit_per_worker(mut self, limit: u64) -> Self {
        self.limits.requests = Some(limit);
        self
    }

    /// Limits how many prompt tokens may wait, per worker.
    #[must_use]
    pub fn raw_isl_token_queue_limit_per_worker(mut self, limit: u64) -> Self {
        self.limits.raw_isl_tokens = Some(limit);
        self
    }

    /// Limits how many cached prompt tokens may wait, per worker.
    #[must_use]
    pub fn cached_token_queue_limit_per_worker(mut self, limit: u64) -> Self {
        self.limits.cached_tokens = Some(limit);
        self
    }

    /// Gives requests that bring no due time one, this long after their arrival.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// Whether it has a threshold, without which it never waits.
    pub fn waits(&self) -> bool {
        !self.thresholds.is_none()
    }

    /// The limit of 0, if it has one: such a class never queues.
    pub fn never_queues(&self) -> Option<LimitKind> {
        self.limits.iter().find(|&(_, limit)| limit == 0).map(|(kind, _)| kind)
    }

    /// How many of `ranks` eligible ranks must be full for the class to wait: all of them, or with
    /// `busy_worker_ratio` r the smallest `k` with `k >= r * ranks` or `k / ranks >= r`, so that
    /// equal counts as reached also where binary floats miss the decimal that was written.
    pub fn full_ranks_to_wait(&self, ranks: u64) -> u64 {
        let Some(ratio) = self.busy_worker_ratio else { return ranks };
        let product = ratio * ranks as f64;
        let mut k = (product.ceil() as u64).min(ranks);
        // The quotient form can only reach a neighbour: both are within an ulp or two.
        while k > 1 && (k - 1) as f64 / ranks as f64 >= ratio {
            k -= 1;
        }
        k
    }

    fn validate(&self, place: &str) -> Result<(), Error> {
        let at = |key: &str| format!("{place}.{key}");
        check_name(&self.name, || at("name"))?;
        if let Some(family) = &self.policy_family {
            check_name(family, || at("policy_family"))?;
        }
        if let Some(bucket) = &self.cache_bucket {
            check_name(bucket, || at("cache_bucket"))?;
        }
        match (&self.policy_family, &self.cache_bucket) {
            (Some(_), None) => return Err(Error::config(at("cache_bucket"), "missing")),
            (None, Some(_)) => return Err(Error::config(at("policy_family"), "missing")),
            _ => {}
        }
        if self.quantum == 0 {
            return Err(Error::config(at("quantum"), 0));
        }
        if let Some(f) = self.thresholds.prefill_frac
            && !(f.is_finite() && f >= 0.0)
        {
            return Err(Error::config(at("prefill_busy_threshold_frac"), f));
        }
        if let Some(f) = self.thresholds.decode_frac
            && !(0.0..=1.0).contains(&f)
        {
            return Err(Error::config(at("decode_busy_threshold_frac"), f));
        }
        if let Some(r) = self.busy_worker_ratio {
            if !(r > 0.0 && r <= 1.0) {
                return Err(Error::config(at("busy_worker_ratio"), r));
            }
            if self.thresholds.is_none() {
                let value = format!("{r} without any busy threshold");
                return Err(Error::config(at("busy_worker_ratio"), value));
            }
        }
        if self.max_wait == Some(Duration::ZERO) {
            return Err(Error::config(at("max_wait_ms"), 0));
        }
        Ok(())
    }
}

/// A class of one [`Profile`]: its index, in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

impl ClassId {
    /// The index of the class in [`Profile::classes`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a name that a request may carry stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Named {
    Class(ClassId),
    /// Index of the family's row in `cells`.
    Family(u32),
}

/// A valid set of classes, and the table that gives each request its class.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    classes: Vec<ClassSpec>,
    /// Explicit classes and families; matrix classes are not names that a request can use.
    names: FxHashMap<Name, Named>,
    /// Least uncached tokens of each bucket; strictly increasing from 0.
    floors: Vec<u64>,
    buckets: Vec<Name>,
    default_family: Name,
    default_row: u32,
    /// Families x buckets.
    cells: Vec<ClassId>,
}

impl Profile {
    /// Makes a profile of a default family, buckets of uncached tokens (least tokens, name), and
    /// classes.
    ///
    /// # Errors
    /// `InvalidConfig`, whose field says where, in the words of a policy file
    /// (`policy_classes[2].quantum`): a name that stands twice or is outside `[A-Za-z0-9_.-]`, a
    /// quantum of 0, a class with one of family and bucket, an unknown bucket, a cell of family and
    /// bucket that is missing or given twice, buckets that do not start at 0 or do not increase, a
    /// default family that no class has, an explicit class named like a family, a fraction or
    /// ratio out of range, a ratio without a threshold, a wait of 0, no class, or more than
    /// [`MAX_CLASSES`].
    pub fn new(
        default_family: impl Into<Name>,
        buckets: impl IntoIterator<Item = (u64, Name)>,
        classes: impl IntoIterator<Item = ClassSpec>,
    ) -> Result<Profile, Error> {
        let buckets = buckets.into_iter().collect();
        let classes = classes.into_iter().collect();
        Profile::build("", default_family.into(), buckets, classes)
    }

    /// The profile that stands where no policy is given: one class, `default`, for everything,
    /// which waits only if `thresholds` has one.
    ///
    /// # Errors
    /// `InvalidConfig`: a fraction out of range.
    pub fn single(thresholds: Thresholds) -> Result<Profile, Error> {
        let class = ClassSpec::new("default", 1).family("default", "all").thresholds(thresholds);
        Profile::new("default", [(0, Name::new("all"))], [class])
    }

    /// `prefix` is the place of the profile, with its dot: empty, or `models.NAME.`.
    pub(super) fn build(
        prefix: &str,
        default_family: Name,
        buckets: Vec<(u64, Name)>,
        classes: Vec<ClassSpec>,
    ) -> Result<Profile, Error> {
        let at = |key: &str| format!("{prefix}{key}");
        check_name(&default_family, || at("default_policy_family"))?;
        let bucket_index = check_buckets(prefix, &buckets)?;
        if classes.is_empty() {
            return Err(Error::config(at("policy_classes"), "empty"));
        }
        if classes.len() > MAX_CLASSES {
            let value = format!("{} classes, of which {MAX_CLASSES} are allowed", classes.len());
            return Err(Error::config(at("policy_classes"), value));
        }

        let mut class_names = HashSet::with_capacity(classes.len());
        let mut families: HashMap<&Name, u32> = HashMap::new();
        let mut cells: HashMap<(u32, u32), ClassId> = HashMap::new();
        for (i, class) in classes.iter().enumerate() {
            let place = at(&format!("policy_classes[{i}]"));
            class.validate(&place)?;
            if !class_names.insert(class.name.as_str()) {
                let value = format!("{}, which stands twice", short(&class.name));
                return Err(Error::config(format!("{place}.name"), value));
            }
            let (Some(family), Some(bucket)) = (&class.policy_family, &class.cache_bucket) else {
                continue;
            };
            let Some(&column) = bucket_index.get(bucket.as_str()) else {
                let value = format!("{}, an unknown bucket", short(bucket));
                return Err(Error::config(format!("{place}.cache_bucket"), value));
            };
            let next_row = families.len() as u32;
            let row = *families.entry(family).or_insert(next_row);
            if cells.insert((row, column), ClassId(i as u32)).is_some() {
                let (family, bucket) = (short(family), short(bucket));
                let value = format!("{bucket}, for which family {family} has a class already");
                return Err(Error::config(format!("{place}.cache_bucket"), value));
            }
        }

        let Some(&default_row) = families.get(&default_family) else {
            let value = format!("{}, which no class has as its family", short(&default_family));
            return Err(Error::config(at("default_policy_family"), value));
        };
        let mut names = FxHashMap::default();
        for (i, class) in classes.iter().enumerate() {
            if class.policy_family.is_some() {
                continue;
            }
            if families.contains_key(&class.name) {
                let value = format!("{}, which is the name of a family", short(&class.name));
                return Err(Error::config(at(&format!("policy_classes[{i}].name")), value));
            }
            names.insert(class.name.clone(), Named::Class(ClassId(i as u32)));
        }

        let mut by_row: Vec<&Name> = vec![&default_family; families.len()];
        for (&family, &row) in &families {
            by_row[row as usize] = family;
        }
        // Cells are no more than the classes, so the first gap is found after as many steps.
        let mut table = Vec::with_capacity(cells.len());
        for (row, family) in by_row.iter().enumerate() {
            for (column, (_, bucket)) in buckets.iter().enumerate() {
                let Some(&class) = cells.get(&(row as u32, column as u32)) else {
                    let (family, bucket) = (short(family), short(bucket));
                    let value = format!("without a class for family {family}, bucket {bucket}");
                    return Err(Error::config(at("policy_classes"), value));
                };
                table.push(class);
            }
            names.insert((*family).clone(), Named::Family(row as u32));
        }

        let (floors, buckets) = buckets.into_iter().unzip();
        Ok(Profile { classes, names, floors, buckets, default_family, default_row, cells: table })
    }

    /// The class of a request: an explicit class of the name `class`; else the class of the family
    /// of that name (of the default family if the name is neither, or none is given) for the bucket
    /// that `uncached` tokens fall into. Neither allocates nor hashes a string.
    ///
    /// # Errors
    /// `UnknownClass`, if `strict`: the name is neither an explicit class nor a family.
    pub fn resolve(
        &self,
        class: Option<&Name>,
        uncached: u64,
        strict: bool,
    ) -> Result<ClassId, Error> {
        let row = match class.map(|name| (name, self.names.get(name))) {
            Some((_, Some(&Named::Class(id)))) => return Ok(id),
            Some((_, Some(&Named::Family(row)))) => row,
            Some((name, None)) if strict => {
                return Err(Error::UnknownClass { class: name.clone() });
            }
            _ => self.default_row,
        };
        // The first floor is 0, so at least one is not above.
        let column = self.floors.partition_point(|&floor| floor <= uncached) - 1;
        Ok(self.cells[row as usize * self.floors.len() + column])
    }

    /// The classes, in the order of declaration.
    pub fn classes(&self) -> &[ClassSpec] {
        &self.classes
    }

    /// The class `id`.
    ///
    /// # Panics
    /// If `id` comes from a profile with more classes.
    pub fn class(&self, id: ClassId) -> &ClassSpec {
        &self.classes[id.index()]
    }

    /// The buckets: least uncached tokens, name.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, &Name)> {
        self.floors.iter().copied().zip(&self.buckets)
    }

    /// The family of requests that name none.
    pub fn default_family(&self) -> &Name {
        &self.default_family
    }

    /// Whether some class may wait.
    pub fn waits(&self) -> bool {
        self.classes.iter().any(ClassSpec::waits)
    }
}

/// Checks the buckets and gives each name its index.
fn check_buckets<'a>(
    prefix: &str,
    buckets: &'a [(u64, Name)],
) -> Result<HashMap<&'a str, u32>, Error> {
    let at = |i: usize, key: &str| format!("{prefix}uncached_isl_buckets[{i}].{key}");
    if buckets.is_empty() {
        return Err(Error::config(format!("{prefix}uncached_isl_buckets"), "empty"));
    }
    if buckets.len() > MAX_CLASSES {
        let value = format!("{} buckets, of which {MAX_CLASSES} are allowed", buckets.len());
        return Err(Error::config(format!("{prefix}uncached_isl_buckets"), value));
    }
    if buckets[0].0 != 0 {
        return Err(Error::config(at(0, "min_tokens"), buckets[0].0));
    }
    let mut index = HashMap::with_capacity(buckets.len());
    for (i, (floor, name)) in buckets.iter().enumerate() {
        check_name(name, || at(i, "bucket"))?;
        if i > 0 && *floor <= buckets[i - 1].0 {
            return Err(Error::config(at(i, "min_tokens"), floor));
        }
        if index.insert(name.as_str(), i as u32).is_some() {
            let value = format!("{}, which stands twice", short(name));
            return Err(Error::config(at(i, "bucket"), value));
        }
    }
    Ok(index)
}

fn check_name(name: &Name, place: impl FnOnce() -> String) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Error::config(place(), format!("{:?}", short(name))));
    }
    Ok(())
}

/// The first characters of a text, so that no error repeats megabytes of its input.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// A root profile, and profiles for single models that replace it whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    root: Arc<Profile>,
    models: HashMap<String, Arc<Profile>>,
    pub(super) unused: Vec<&'static str>,
}

impl Policy {
    /// The policy with this root profile and no others.
    pub fn new(root: Profile) -> Policy {
        Policy { root: Arc::new(root), models: HashMap::new(), unused: Vec::new() }
    }

    /// Adds the profile of a model, or replaces it.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>, profile: Profile) -> Self {
        self.models.insert(model.into(), Arc::new(profile));
        self
    }

    /// The profile of a model: its own, or else the root profile.
    pub fn profile(&self, model: Option<&str>) -> &Arc<Profile> {
        model.and_then(|m| self.models.get(m)).unwrap_or(&self.root)
    }

    /// The models that have a profile of their own, by name.
    pub fn models(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.models.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The sections of the policy file that are accepted and not used here: some of `router`,
    /// `worker_selection` and `request_classifier`.
    pub fn unused_sections(&self) -> &[&'static str] {
        &self.unused
    }
}

impl Default for Policy {
    /// One class, `default`, that never waits.
    fn default() -> Policy {
        Policy::new(Profile::single(Thresholds::NONE).expect("no threshold is out of range"))
    }
}

impl From<Profile> for Policy {
    fn from(root: Profile) -> Policy {
        Policy::new(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Profile {
        let buckets = [(0, Name::new("small")), (8192, Name::new("large"))];
        let classes = [
            ClassSpec::new("a_small", 1).family("a", "small"),
            ClassSpec::new("probe", 1),
            ClassSpec::new("b_large", 1).family("b", "large"),
            ClassSpec::new("a_large", 1).family("a", "large"),
            ClassSpec::new("b_small", 1).family("b", "small"),
        ];
        Profile::new("b", buckets, classes).unwrap()
    }

    fn resolved(profile: &Profile, class: Option<&str>, uncached: u64) -> String {
        let class = class.map(Name::new);
        let id = profile.resolve(class.as_ref(), uncached, false).unwrap();
        profile.class(id).name.to_string()
    }

    #[test]
    fn a_request_gets_its_explicit_class_or_the_cell_of_its_family_and_bucket() {
        let p = matrix();
        for (class, uncached, expected) in [
            (Some("probe"), 0, "probe"),
            (Some("probe"), u64::MAX, "probe"),
            (Some("a"), 0, "a_small"),
            (Some("a"), 8191, "a_small"),
            (Some("a"), 8192, "a_large"),
            (Some("a"), u64::MAX, "a_large"),
            (None, 1, "b_small"),
            (None, 8192, "b_large"),
            (Some("nobody"), 9000, "b_large"),
            // Matrix classes are not names: a caller cannot choose its own bucket.
            (Some("a_large"), 0, "b_small"),
        ] {
            assert_eq!(resolved(&p, class, uncached), expected, "{class:?} {uncached}");
        }
    }

    #[test]
    fn the_strict_form_refuses_what_is_neither_class_nor_family() {
        let p = matrix();
        for known in ["probe", "a", "b"] {
            assert!(p.resolve(Some(&Name::new(known)), 0, true).is_ok());
        }
        for unknown in ["nobody", "a_large", ""] {
            let class = Name::new(unknown);
            assert_eq!(p.resolve(Some(&class), 0, true), Err(Error::UnknownClass { class }));
        }
        assert!(p.resolve(None, 0, true).is_ok());
    }

    #[test]
    fn without_a_policy_there_is_one_class_that_never_waits() {
        let policy = Policy::default();
        let p = policy.profile(Some("any"));
        assert_eq!(resolved(p, None, 7), "default");
        assert_eq!(resolved(p, Some("x"), u64::MAX), "default");
        assert_eq!(p.classes().len(), 1);
        assert!(!p.waits());
        assert!(Profile::single(Thresholds::NONE.prefill_frac(1.0)).unwrap().waits());
        assert!(Profile::single(Thresholds::NONE.decode_frac(2.0)).is_err());
    }

    #[test]
    fn a_models_profile_replaces_the_root_profile_whole() {
        let policy = Policy::default().model("m/1", matrix());
        assert_eq!(resolved(policy.profile(Some("m/1")), Some("probe"), 0), "probe");
        assert_eq!(resolved(policy.profile(Some("m/2")), Some("probe"), 0), "default");
        assert_eq!(resolved(policy.profile(None), Some("probe"), 0), "default");
        assert_eq!(policy.models(), ["m/1"]);
    }

    #[test]
    fn the_ranks_that_must_be_full_are_the_least_that_either_form_of_the_ratio_admits() {
        let with = |r: f64| {
            let t = Thresholds::NONE.prefill_frac(1.0);
            ClassSpec::new("c", 1).thresholds(t).busy_worker_ratio(r)
        };
        assert_eq!(ClassSpec::new("c", 1).full_ranks_to_wait(7), 7);
        assert_eq!(with(1.0).full_ranks_to_wait(7), 7);
        assert_eq!(with(0.5).full_ranks_to_wait(7), 4);
        assert_eq!(with(1e-300).full_ranks_to_wait(7), 1);
        for n in 1..=300u64 {
            for hundredths in 1..=100u64 {
                let r = hundredths as f64 / 100.0;
                let admits = |k: u64| k as f64 >= r * n as f64 || k as f64 / n as f64 >= r;
                let least = (1..=n).find(|&k| admits(k)).unwrap();
                assert_eq!(with(r).full_ranks_to_wait(n), least, "{r} of {n}");
                assert_eq!(least, (hundredths * n).div_ceil(100), "{r} of {n}");
            }
        }
    }

    #[test]
    fn any_limit_of_zero_means_that_the_class_never_queues() {
        let c = ClassSpec::new("c", 1).request_queue_limit_per_worker(3);
        assert_eq!(c.never_queues(), None);
        let c = c.cached_token_queue_limit_per_worker(0);
        assert_eq!(c.never_queues(), Some(LimitKind::CachedTokens));
    }

    #[test]
    fn too_many_classes_or_buckets_are_refused() {
        let one = ClassSpec::new("c", 1).family("f", "b");
        let many = (0..MAX_CLASSES).map(|i| ClassSpec::new(format!("c{i}"), 1));
        let e = Profile::new("f", [(0, Name::new("b"))], many.chain([one.clone()])).unwrap_err();
        assert!(matches!(e, Error::InvalidConfig { field, .. } if field == "policy_classes"));
        let many = (0..=MAX_CLASSES as u64).map(|i| (i, Name::new("b")));
        let e = Profile::new("f", many, [one]).unwrap_err();
        assert!(matches!(e, Error::InvalidConfig { field, .. } if field == "uncached_isl_buckets"));
    }

    #[test]
    fn errors_do_not_repeat_long_input() {
        let long = "x y".repeat(100_000);
        let e = Profile::new("f", [(0, Name::new(&long))], []).unwrap_err();
        assert!(e.to_string().len() < 300, "{}", e.to_string().len());
    }
}
