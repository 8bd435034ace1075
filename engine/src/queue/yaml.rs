//! Policy files: from text, or from a document that stands inside another file, to a [`Policy`].
//!
//! Reading has two steps. The first takes any serde format into a plain tree of bounded depth; the
//! second walks that tree and names the place of whatever it cannot take. So every refusal says
//! where in the same words, whatever the format and its parser's own idea of a position.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::limits::thresholds::Thresholds;
use crate::names::Name;
use crate::queue::policy::{ClassSpec, Policy, Profile, QueueLimits, QueuePolicy, short};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::time::Duration;

/// The longest policy file that is read, in bytes.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// How deep a policy document may nest. Its own sections need five levels; the rest is for the
/// sections that are not used here.
const MAX_DEPTH: u32 = 32;

/// How many values a document may hold once its aliases are expanded.
const MAX_NODES: usize = 200_000;

/// The keys of a profile.
const ROOT: [&str; 3] = ["default_policy_family", "uncached_isl_buckets", "policy_classes"];

/// The sections that are accepted and not used here.
const IGNORED: [&str; 3] = ["router", "worker_selection", "request_classifier"];

/// The keys of a class.
const CLASS: [&str; 13] = [
    "name",
    "policy_family",
    "cache_bucket",
    "quantum",
    "queue_policy",
    "prefill_busy_threshold",
    "prefill_busy_threshold_frac",
    "decode_busy_threshold_frac",
    "busy_worker_ratio",
    "request_queue_limit_per_worker",
    "raw_isl_token_queue_limit_per_worker",
    "cached_token_queue_limit_per_worker",
    "max_wait_ms",
];

/// A policy document as it was read, not judged yet: a value of any serde format, for files that
/// embed a policy. It may also be a string that holds a policy file.
///
/// ```
/// use vacancy::{Policy, PolicyDocument};
/// # fn main() -> Result<(), vacancy::Error> {
/// let text = "
///   default_policy_family: f
///   uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
///   policy_classes: [{name: a, policy_family: f, cache_bucket: all, quantum: 1}]";
/// let document: PolicyDocument = serde_saphyr::from_str(text).unwrap();
/// assert_eq!(Policy::try_from(document)?, Policy::from_yaml(text)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDocument(Node);

impl<'de> Deserialize<'de> for PolicyDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tree { depth: 0 }.deserialize(deserializer).map(PolicyDocument)
    }
}

impl TryFrom<PolicyDocument> for Policy {
    type Error = Error;

    /// # Errors
    /// As [`Policy::from_yaml`].
    fn try_from(document: PolicyDocument) -> Result<Policy, Error> {
        match document.0 {
            Node::Str(text) => Policy::from_yaml(&text),
            root => policy(root),
        }
    }
}

impl Policy {
    /// Reads a policy file.
    ///
    /// Time and memory are bounded whatever the text holds: at most [`MAX_POLICY_BYTES`] are read,
    /// and nesting, aliases and their expansion are limited.
    ///
    /// # Errors
    /// `InvalidConfig`, whose field says where: a place like `policy_classes[2].quantum` or
    /// `models.NAME.policy_classes[0]`, or a line and column where the text is not YAML. Besides
    /// what [`Profile::new`] refuses: an unknown key at any level, a key given twice, a missing or
    /// empty section, a value of another type, and a file in which neither a root profile nor
    /// models nor one of the sections that are not used here stands.
    pub fn from_yaml(text: &str) -> Result<Policy, Error> {
        if text.len() > MAX_POLICY_BYTES {
            let value =
                format!("{} bytes long, of which {MAX_POLICY_BYTES} are allowed", text.len());
            return Err(Error::config("policy file", value));
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_events: 2 * MAX_NODES,
                max_nodes: MAX_NODES,
                max_aliases: 1_000,
                max_anchors: 1_000,
                max_recorded_anchor_events: MAX_NODES,
                max_recorded_anchor_bytes: 4 * MAX_POLICY_BYTES,
                max_depth: MAX_DEPTH as usize,
                flow_nesting_limit: MAX_DEPTH as usize,
                max_documents: 1,
                max_total_scalar_bytes: MAX_POLICY_BYTES,
                max_merge_keys: 1_000,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: MAX_NODES,
                max_replay_stack_depth: MAX_DEPTH as usize,
                max_alias_expansions_per_anchor: 1_000,
            },
            // Judged by the second step, which knows the place.
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
            strict_booleans: true,
            emit_comments: false,
            with_snippet: false,
        };
        match serde_saphyr::from_str_with_options::<PolicyDocument>(text, options) {
            // A file that is one string is no policy: strings are looked into once only.
            Ok(PolicyDocument(root)) => policy(root),
            Err(error) => {
                let place = match error.location() {
                    Some(at) => format!("policy file, line {}, column {}", at.line(), at.column()),
                    None => "policy file".to_string(),
                };
                Err(Error::config(place, short(&error.without_snippet().to_string())))
            }
        }
    }
}

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    /// In the order written; keys may repeat.
    Map(Vec<(String, Node)>),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Null => f.write_str("null"),
            Node::Bool(v) => v.fmt(f),
            Node::Int(v) => v.fmt(f),
            Node::Float(v) => v.fmt(f),
            Node::Str(v) => write!(f, "{:?}", short(v)),
            Node::Seq(_) => f.write_str("a list"),
            Node::Map(_) => f.write_str("a map"),
        }
    }
}

/// Reads a [`Node`] whose parent lies `depth` levels below the root.
#[derive(Clone, Copy)]
struct Tree {
    depth: u32,
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Node;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Tree {
    fn deeper<E: serde::de::Error>(self) -> Result<Tree, E> {
        match self.depth {
            MAX_DEPTH.. => Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels"))),
            depth => Ok(Tree { depth: depth + 1 }),
        }
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy document")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Node, E> {
        Ok(Node::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Node, E> {
        Ok(Node::Int(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Node, E> {
        Ok(Node::Int(v.into()))
    }
    fn visit_i128<E>(self, v: i128) -> Result<Node, E> {
        Ok(Node::Int(v))
    }
    fn visit_u128<E: serde::de::Error>(self, v: u128) -> Result<Node, E> {
        i128::try_from(v).map(Node::Int).map_err(|_| E::custom(format!("{v} is too large")))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Node, E> {
        Ok(Node::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Node, E> {
        Ok(Node::Str(v.to_string()))
    }
    fn visit_string<E>(self, v: String) -> Result<Node, E> {
        Ok(Node::Str(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let below = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(below)? {
            items.push(item);
        }
        Ok(Node::Seq(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let below = self.deeper()?;
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            entries.push((key, map.next_value_seed(below)?));
        }
        Ok(Node::Map(entries))
    }
}

/// The entries of one map, taken out key by key.
struct Fields {
    place: String,
    entries: Vec<(String, Node)>,
}

impl Fields {
    /// A null value counts as a key that was left out. Keys outside `known` are refused before any
    /// value is looked at: an unknown key is often a known one, misspelt.
    fn new(place: String, node: Node, known: &[&str]) -> Result<Fields, Error> {
        let fields = Fields::any(place, node)?;
        match fields.entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => Err(Error::config(fields.at(&short(key)), "an unknown key")),
            None => Ok(fields),
        }
    }

    fn any(place: String, node: Node) -> Result<Fields, Error> {
        let Node::Map(mut entries) = node else {
            return Err(Error::config(place, node));
        };
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = entries.windows(2).find(|w| w[0].0 == w[1].0) {
            let twice = format!("{}{}", dotted(&place), short(&pair[0].0));
            return Err(Error::config(twice, "given twice"));
        }
        Ok(Fields { place, entries })
    }

    fn at(&self, key: &str) -> String {
        format!("{}{key}", dotted(&self.place))
    }

    fn take(&mut self, key: &str) -> Option<Node> {
        let i = self.entries.iter().position(|(k, _)| k == key)?;
        match self.entries.swap_remove(i).1 {
            Node::Null => None,
            node => Some(node),
        }
    }

    fn require(&mut self, key: &str) -> Result<Node, Error> {
        self.take(key).ok_or_else(|| Error::config(self.at(key), "missing"))
    }

    fn name(&self, key: &str, node: Node) -> Result<Name, Error> {
        match node {
            Node::Str(text) => Ok(Name::new(&text)),
            other => Err(Error::config(self.at(key), format!("{other}, which is not a string"))),
        }
    }

    fn whole(&self, key: &str, node: Node) -> Result<u64, Error> {
        match node {
            Node::Int(v) => u64::try_from(v).map_err(|_| Error::config(self.at(key), v)),
            other => Err(Error::config(self.at(key), other)),
        }
    }

    fn require_name(&mut self, key: &str) -> Result<Name, Error> {
        let node = self.require(key)?;
        self.name(key, node)
    }

    fn require_whole(&mut self, key: &str) -> Result<u64, Error> {
        let node = self.require(key)?;
        self.whole(key, node)
    }

    fn require_list(&mut self, key: &str) -> Result<Vec<Node>, Error> {
        match self.require(key)? {
            Node::Seq(items) => Ok(items),
            other => Err(Error::config(self.at(key), other)),
        }
    }

    fn take_whole(&mut self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key).map(|node| self.whole(key, node)).transpose()
    }

    fn take_number(&mut self, key: &str) -> Result<Option<f64>, Error> {
        match self.take(key) {
            None => Ok(None),
            Some(Node::Int(v)) => Ok(Some(v as f64)),
            Some(Node::Float(v)) => Ok(Some(v)),
            Some(other) => Err(Error::config(self.at(key), other)),
        }
    }

    fn take_name(&mut self, key: &str) -> Result<Option<Name>, Error> {
        self.take(key).map(|node| self.name(key, node)).transpose()
    }
}

/// A place as a prefix of what lies in it.
fn dotted(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}.") }
}

fn policy(root: Node) -> Result<Policy, Error> {
    let root = match root {
        Node::Null => Node::Map(Vec::new()),
        Node::Map(_) => root,
        other => return Err(Error::config("policy file", other)),
    };
    let known = [&ROOT[..], &IGNORED, &["models"]].concat();
    let mut fields = Fields::new(String::new(), root, &known)?;
    let unused: Vec<&'static str> =
        IGNORED.into_iter().filter(|key| fields.take(key).is_some()).collect();
    let models = match fields.take("models") {
        None => Vec::new(),
        Some(models) => Fields::any("models".to_string(), models)?.entries,
    };
    fields.entries.retain(|(_, value)| *value != Node::Null);

    let root = if fields.entries.is_empty() { None } else { Some(profile(fields)?) };
    if root.is_none() && models.is_empty() && unused.is_empty() {
        return Err(Error::config(
            "policy file",
            "without a root profile, models or other section",
        ));
    }
    let mut policy = root.map_or_else(Policy::default, Policy::new);
    policy.unused = unused;
    for (model, node) in models {
        if model.is_empty() {
            return Err(Error::config("models", "a profile for a model without a name"));
        }
        let fields = Fields::new(format!("models.{}", short(&model)), node, &ROOT)?;
        policy = policy.model(model, profile(fields)?);
    }
    Ok(policy)
}

fn profile(mut fields: Fields) -> Result<Profile, Error> {
    let family = fields.require_name("default_policy_family")?;
    let buckets = fields
        .require_list("uncached_isl_buckets")?
        .into_iter()
        .enumerate()
        .map(|(i, node)| bucket(fields.at(&format!("uncached_isl_buckets[{i}]")), node))
        .collect::<Result<_, _>>()?;
    let classes = fields
        .require_list("policy_classes")?
        .into_iter()
        .enumerate()
        .map(|(i, node)| class(fields.at(&format!("policy_classes[{i}]")), node))
        .collect::<Result<_, _>>()?;
    Profile::build(&dotted(&fields.place), family, buckets, classes)
}

fn bucket(place: String, node: Node) -> Result<(u64, Name), Error> {
    let mut fields = Fields::new(place, node, &["min_tokens", "bucket"])?;
    Ok((fields.require_whole("min_tokens")?, fields.require_name("bucket")?))
}

fn class(place: String, node: Node) -> Result<ClassSpec, Error> {
    let mut fields = Fields::new(place, node, &CLASS)?;
    Ok(ClassSpec {
        name: fields.require_name("name")?,
        policy_family: fields.take_name("policy_family")?,
        cache_bucket: fields.take_name("cache_bucket")?,
        quantum: fields.require_whole("quantum")?,
        queue_policy: match fields.take("queue_policy") {
            None => QueuePolicy::Fcfs,
            Some(Node::Str(key)) => [QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::Edf]
                .into_iter()
                .find(|policy| policy.key() == key)
                .ok_or_else(|| Error::config(fields.at("queue_policy"), short(&key)))?,
            Some(other) => return Err(Error::config(fields.at("queue_policy"), other)),
        },
        thresholds: Thresholds {
            prefill_tokens: fields.take_whole("prefill_busy_threshold")?,
            prefill_frac: fields.take_number("prefill_busy_threshold_frac")?,
            decode_frac: fields.take_number("decode_busy_threshold_frac")?,
        },
        busy_worker_ratio: fields.take_number("busy_worker_ratio")?,
        limits: QueueLimits {
            requests: fields.take_whole("request_queue_limit_per_worker")?,
            raw_isl_tokens: fields.take_whole("raw_isl_token_queue_limit_per_worker")?,
            cached_tokens: fields.take_whole("cached_token_queue_limit_per_worker")?,
        },
        max_wait: fields.take_whole("max_wait_ms")?.map(Duration::from_millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const SAMPLE: &str = "
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: small}
  - {min_tokens: 8192, bucket: large}
policy_classes:
  - {name: standard_small, policy_family: standard, cache_bucket: small, quantum: 8192, queue_policy: fcfs, prefill_busy_threshold_frac: 4.0, decode_busy_threshold_frac: 0.9}
  - {name: standard_large, policy_family: standard, cache_bucket: large, quantum: 4096, queue_policy: wspt, prefill_busy_threshold_frac: 2.0, request_queue_limit_per_worker: 4}
  - {name: probe, quantum: 1, request_queue_limit_per_worker: 0}     # explicit class, never queues
models: {}        # per-model profiles that replace the root profile whole
";

    /// A profile of one class that carries `keys` besides its own.
    fn one(keys: &str) -> String {
        format!(
            "{{default_policy_family: f, uncached_isl_buckets: [{{min_tokens: 0, bucket: all}}], \
             policy_classes: [{{name: c, policy_family: f, cache_bucket: all, {keys}}}]}}"
        )
    }

    fn refusal(text: &str) -> (String, String) {
        match Policy::from_yaml(text) {
            Err(Error::InvalidConfig { field, value }) => (field.into_owned(), value),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_policy_file_of_the_field_is_read() {
        let policy = Policy::from_yaml(SAMPLE).unwrap();
        let p = policy.profile(None);
        let buckets = [(0, Name::new("small")), (8192, Name::new("large"))];
        let expected = Profile::new(
            "standard",
            buckets,
            [
                ClassSpec::new("standard_small", 8192)
                    .family("standard", "small")
                    .thresholds(Thresholds::NONE.prefill_frac(4.0).decode_frac(0.9)),
                ClassSpec::new("standard_large", 4096)
                    .family("standard", "large")
                    .queue_policy(QueuePolicy::Wspt)
                    .thresholds(Thresholds::NONE.prefill_frac(2.0))
                    .request_queue_limit_per_worker(4),
                ClassSpec::new("probe", 1).request_queue_limit_per_worker(0),
            ],
        );
        assert_eq!(**p, expected.unwrap());
        assert!(policy.unused_sections().is_empty());
    }

    #[test]
    fn every_key_of_a_class_is_read() {
        let policy =
            Policy::from_yaml(&one("quantum: 3, queue_policy: edf, prefill_busy_threshold: 0, \
             prefill_busy_threshold_frac: 2, decode_busy_threshold_frac: 1, busy_worker_ratio: 1, \
             request_queue_limit_per_worker: 1, raw_isl_token_queue_limit_per_worker: 2, \
             cached_token_queue_limit_per_worker: null, max_wait_ms: 1500"));
        let policy = policy.unwrap();
        let c = &policy.profile(None).classes()[0];
        assert_eq!(c.quantum, 3);
        assert_eq!(c.queue_policy, QueuePolicy::Edf);
        assert_eq!(c.thresholds.prefill_tokens, Some(0));
        assert_eq!(c.thresholds.prefill_frac, Some(2.0));
        assert_eq!(c.thresholds.decode_frac, Some(1.0));
        assert_eq!(c.busy_worker_ratio, Some(1.0));
        assert_eq!(
            c.limits,
            QueueLimits { requests: Some(1), raw_isl_tokens: Some(2), cached_tokens: None }
        );
        assert_eq!(c.max_wait, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn every_refusal_says_where() {
        let family = "name: c, policy_family: f, cache_bucket: all";
        let classes = |list: &str| {
            format!(
                "{{default_policy_family: f, uncached_isl_buckets: [{{min_tokens: 0, bucket: \
                 all}}, {{min_tokens: 5, bucket: b}}], policy_classes: [{list}]}}"
            )
        };
        let buckets = |list: &str| {
            format!(
                "{{default_policy_family: f, uncached_isl_buckets: [{list}], policy_classes: \
                 [{{{family}, quantum: 1}}]}}"
            )
        };
        let both = "{name: x, policy_family: f, cache_bucket: all, quantum: 1}, {name: y, \
                    policy_family: f, cache_bucket: b, quantum: 1}";
        let c = |key: &str| format!("policy_classes[0].{key}");
        let b = |i: u32, key: &str| format!("uncached_isl_buckets[{i}].{key}");
        let cases: Vec<(String, String, &str)> = vec![
            // Unknown keys, at every level.
            ("{typo: 1}".into(), "typo".into(), "an unknown key"),
            (one("quantum: 1, typo: 2"), c("typo"), "an unknown key"),
            (one("quantums: 1"), c("quantums"), "an unknown key"),
            (buckets("{min_tokens: 0, bucket: all, typo: 1}"), b(0, "typo"), "an unknown key"),
            ("{models: {m: {typo: 1}}}".into(), "models.m.typo".into(), "an unknown key"),
            // A key given twice.
            (one("quantum: 1, quantum: 1"), c("quantum"), "given twice"),
            ("{models: {m: 1, m: 1}}".into(), "models.m".into(), "given twice"),
            ("{router: 1, router: 1}".into(), "router".into(), "given twice"),
            // Quantum.
            (one("queue_policy: edf"), c("quantum"), "missing"),
            (one("quantum: null"), c("quantum"), "missing"),
            (one("quantum: 0"), c("quantum"), "0"),
            (one("quantum: -1"), c("quantum"), "-1"),
            (one("quantum: 1.5"), c("quantum"), "1.5"),
            (one("quantum: 18446744073709551616"), c("quantum"), "18446744073709552000"),
            (one("quantum: many"), c("quantum"), "\"many\""),
            (one("quantum: [1]"), c("quantum"), "a list"),
            // Names.
            (one("quantum: 1").replace("name: c", "name: 'a b'"), c("name"), "\"a b\""),
            (one("quantum: 1").replace("name: c", "name: ''"), c("name"), "\"\""),
            (one("quantum: 1").replace("name: c", "name: é"), c("name"), "\"é\""),
            (one("quantum: 1").replace("name: c, ", ""), c("name"), "missing"),
            (
                one("quantum: 1").replace("name: c", "name: 7"),
                c("name"),
                "7, which is not a string",
            ),
            (
                one("quantum: 1").replace("c, policy_family: f", "c, policy_family: f/g"),
                c("policy_family"),
                "\"f/g\"",
            ),
            (
                one("quantum: 1").replace("cache_bucket: all", "cache_bucket: a,l"),
                c("l"),
                "an unknown key",
            ),
            (
                one("quantum: 1").replace("cache_bucket: all", "cache_bucket: a:l"),
                c("cache_bucket"),
                "\"a:l\"",
            ),
            (
                one("quantum: 1").replace("family: f,", "family: f f,"),
                "default_policy_family".into(),
                "\"f f\"",
            ),
            (buckets("{min_tokens: 0, bucket: a/b}"), b(0, "bucket"), "\"a/b\""),
            (
                classes(&format!("{both}, {{name: x, quantum: 1}}")),
                "policy_classes[2].name".into(),
                "x, which stands twice",
            ),
            (
                buckets("{min_tokens: 0, bucket: all}, {min_tokens: 1, bucket: all}"),
                b(1, "bucket"),
                "all, which stands twice",
            ),
            // Cells.
            (classes("{name: x, policy_family: f, quantum: 1}"), c("cache_bucket"), "missing"),
            (classes("{name: x, cache_bucket: b, quantum: 1}"), c("policy_family"), "missing"),
            (
                classes("{name: x, policy_family: f, cache_bucket: no, quantum: 1}"),
                c("cache_bucket"),
                "no, an unknown bucket",
            ),
            (
                classes("{name: x, policy_family: f, cache_bucket: all, quantum: 1}"),
                "policy_classes".into(),
                "without a class for family f, bucket b",
            ),
            (
                classes(&format!(
                    "{both}, {{name: z, policy_family: f, cache_bucket: b, quantum: 1}}"
                )),
                "policy_classes[2].cache_bucket".into(),
                "b, for which family f has a class already",
            ),
            (
                classes(&format!("{both}, {{name: f, quantum: 1}}")),
                "policy_classes[2].name".into(),
                "f, which is the name of a family",
            ),
            (
                classes(both).replace("default_policy_family: f", "default_policy_family: g"),
                "default_policy_family".into(),
                "g, which no class has as its family",
            ),
            (
                classes("{name: x, quantum: 1}"),
                "default_policy_family".into(),
                "f, which no class has as its family",
            ),
            // Buckets.
            (buckets("{min_tokens: 1, bucket: all}"), b(0, "min_tokens"), "1"),
            (
                buckets("{min_tokens: 0, bucket: all}, {min_tokens: 0, bucket: b}"),
                b(1, "min_tokens"),
                "0",
            ),
            (
                buckets(
                    "{min_tokens: 0, bucket: all}, {min_tokens: 9, bucket: b}, \
                     {min_tokens: 8, bucket: c}",
                ),
                b(2, "min_tokens"),
                "8",
            ),
            (buckets("{bucket: all}"), b(0, "min_tokens"), "missing"),
            (buckets("{min_tokens: 0}"), b(0, "bucket"), "missing"),
            (buckets("{min_tokens: -1, bucket: all}"), b(0, "min_tokens"), "-1"),
            (buckets("{min_tokens: 0.5, bucket: all}"), b(0, "min_tokens"), "0.5"),
            (buckets(""), "uncached_isl_buckets".into(), "empty"),
            (buckets("3"), "uncached_isl_buckets[0]".into(), "3"),
            // Thresholds and ratios.
            (one("quantum: 1, prefill_busy_threshold: -1"), c("prefill_busy_threshold"), "-1"),
            (one("quantum: 1, prefill_busy_threshold: 0.5"), c("prefill_busy_threshold"), "0.5"),
            (
                one("quantum: 1, prefill_busy_threshold_frac: -0.1"),
                c("prefill_busy_threshold_frac"),
                "-0.1",
            ),
            (
                one("quantum: 1, prefill_busy_threshold_frac: .inf"),
                c("prefill_busy_threshold_frac"),
                "inf",
            ),
            (
                one("quantum: 1, prefill_busy_threshold_frac: .nan"),
                c("prefill_busy_threshold_frac"),
                "NaN",
            ),
            (
                one("quantum: 1, prefill_busy_threshold_frac: 1e999"),
                c("prefill_busy_threshold_frac"),
                "inf",
            ),
            (
                one("quantum: 1, decode_busy_threshold_frac: 1.01"),
                c("decode_busy_threshold_frac"),
                "1.01",
            ),
            (
                one("quantum: 1, decode_busy_threshold_frac: -1"),
                c("decode_busy_threshold_frac"),
                "-1",
            ),
            (
                one("quantum: 1, decode_busy_threshold_frac: .nan"),
                c("decode_busy_threshold_frac"),
                "NaN",
            ),
            (
                one("quantum: 1, decode_busy_threshold_frac: half"),
                c("decode_busy_threshold_frac"),
                "\"half\"",
            ),
            (
                one("quantum: 1, prefill_busy_threshold: 1, busy_worker_ratio: 0"),
                c("busy_worker_ratio"),
                "0",
            ),
            (
                one("quantum: 1, prefill_busy_threshold: 1, busy_worker_ratio: 1.5"),
                c("busy_worker_ratio"),
                "1.5",
            ),
            (
                one("quantum: 1, prefill_busy_threshold: 1, busy_worker_ratio: .nan"),
                c("busy_worker_ratio"),
                "NaN",
            ),
            (
                one("quantum: 1, busy_worker_ratio: 0.5"),
                c("busy_worker_ratio"),
                "0.5 without any busy threshold",
            ),
            // The rest of a class.
            (one("quantum: 1, queue_policy: lcfs"), c("queue_policy"), "lcfs"),
            (one("quantum: 1, queue_policy: 1"), c("queue_policy"), "1"),
            (
                one("quantum: 1, request_queue_limit_per_worker: -4"),
                c("request_queue_limit_per_worker"),
                "-4",
            ),
            (
                one("quantum: 1, raw_isl_token_queue_limit_per_worker: x"),
                c("raw_isl_token_queue_limit_per_worker"),
                "\"x\"",
            ),
            (
                one("quantum: 1, cached_token_queue_limit_per_worker: true"),
                c("cached_token_queue_limit_per_worker"),
                "true",
            ),
            (one("quantum: 1, max_wait_ms: 0"), c("max_wait_ms"), "0"),
            (one("quantum: 1, max_wait_ms: 1.5"), c("max_wait_ms"), "1.5"),
            // Sections.
            (classes(""), "policy_classes".into(), "empty"),
            (classes("7"), c("").trim_end_matches('.').into(), "7"),
            ("{policy_classes: []}".into(), "default_policy_family".into(), "missing"),
            ("{default_policy_family: f}".into(), "uncached_isl_buckets".into(), "missing"),
            (
                "{default_policy_family: f, uncached_isl_buckets: []}".into(),
                "policy_classes".into(),
                "missing",
            ),
            (
                "{default_policy_family: f, uncached_isl_buckets: {}, policy_classes: []}".into(),
                "uncached_isl_buckets".into(),
                "a map",
            ),
            ("{models: 3}".into(), "models".into(), "3"),
            ("{models: {m: 3}}".into(), "models.m".into(), "3"),
            ("{models: {'': {}}}".into(), "models".into(), "a profile for a model without a name"),
            (
                format!("models: {{foo: {}}}", one("quantum: 0")),
                "models.foo.policy_classes[0].quantum".into(),
                "0",
            ),
            (
                format!("models: {{a/b: {}}}", buckets("{min_tokens: 3, bucket: all}")),
                "models.a/b.uncached_isl_buckets[0].min_tokens".into(),
                "3",
            ),
            ("{models: {m: {}}}".into(), "models.m.default_policy_family".into(), "missing"),
        ];
        for (text, field, value) in &cases {
            let refused = refusal(text);
            assert_eq!(
                (refused.0.as_str(), refused.1.as_str()),
                (field.as_str(), *value),
                "{text}"
            );
        }
        let nothing = "without a root profile, models or other section";
        for empty in ["", "# nothing", "~", "{}", "{models: {}}", "{models: null, router: }"] {
            assert_eq!(refusal(empty), ("policy file".into(), nothing.into()), "{empty:?}");
        }
        for (text, value) in [("[]", "a list"), ("7", "7"), ("'a: b'", "\"a: b\"")] {
            assert_eq!(refusal(text), ("policy file".into(), value.into()));
        }
    }

    #[test]
    fn text_that_is_not_yaml_is_refused_with_its_line() {
        let (field, value) = refusal("default_policy_family: f\npolicy_classes: [\n  {name: a\n");
        assert!(field.starts_with("policy file, line "), "{field}: {value}");
        for bad in ["a: b: c", "\t- x", "{a: *nobody}", "a: 1\n---\nb: 2\n", "\u{0}"] {
            assert!(refusal(bad).0.starts_with("policy file"), "{bad:?}");
        }
    }

    #[test]
    fn sections_that_are_not_used_are_reported() {
        let text = format!(
            "request_classifier: {{a: [1]}}\nrouter: {{deep: {{deeper: x}}}}\nmodels: {{m: {}}}\n",
            one("quantum: 1")
        );
        let policy = Policy::from_yaml(&text).unwrap();
        assert_eq!(policy.unused_sections(), ["router", "request_classifier"]);
        // Without a root profile the one that never waits stands.
        assert_eq!(policy.profile(None).classes()[0].name, Name::new("default"));
        assert_eq!(policy.profile(Some("m")).classes()[0].name, Name::new("c"));
        let policy = Policy::from_yaml("worker_selection: {aggregated: default}").unwrap();
        assert_eq!(policy.unused_sections(), ["worker_selection"]);
    }

    #[test]
    fn a_document_in_place_and_one_as_a_string_say_the_same() {
        let direct = Policy::from_yaml(SAMPLE).unwrap();
        let parsed: PolicyDocument = serde_saphyr::from_str(SAMPLE).unwrap();
        assert_eq!(Policy::try_from(parsed).unwrap(), direct);
        let quoted = format!("{SAMPLE:?}");
        let parsed: PolicyDocument = serde_saphyr::from_str(&quoted).unwrap();
        assert_eq!(Policy::try_from(parsed).unwrap(), direct);
    }

    #[test]
    fn hostile_text_is_refused_in_bounded_time() {
        let started = Instant::now();
        let bomb = {
            let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
            for i in 1..20 {
                let refs = vec![format!("*a{}", i - 1); 10].join(", ");
                text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
            }
            text
        };
        let fits = MAX_POLICY_BYTES - 64;
        let many = |head: &str, item: &str| {
            let mut text = head.to_string();
            while text.len() + item.len() < fits {
                text.push_str(item);
            }
            text
        };
        for (what, text) in [
            ("50 MB", "a: b\n".repeat(10_000_000)),
            ("deep flow", "[".repeat(fits)),
            ("deep flow maps", "{a: ".repeat(fits / 4)),
            ("deep block", (0..1_000).map(|i| " ".repeat(i) + "a:\n").collect()),
            ("deep sequence", "- ".repeat(fits / 2)),
            ("alias bomb", bomb.clone()),
            (
                "alias bomb in an unused section",
                format!("router:\n  {}", bomb.replace('\n', "\n  ")),
            ),
            ("alias of itself", "a: &a [*a]".to_string()),
            ("wide aliases", {
                let item = "*a, ";
                many("a: &a [x, x, x, x, x, x, x, x]\nb: [", item) + "]"
            }),
            ("one key for ever", many("router: {", "a: 1, ") + "}"),
            ("one long name", format!("default_policy_family: {}", "f".repeat(fits - 100))),
            ("many documents", many("", "---\na\n")),
            ("many classes", many("policy_classes:\n", "- {name: a, quantum: 1}\n")),
            ("comments", many("", "# x\n")),
            ("quoted", format!("\"{}", "\\n".repeat(fits / 2 - 1))),
        ] {
            let one = Instant::now();
            let refused = Policy::from_yaml(&text).expect_err(what);
            let said = refused.to_string();
            assert!(said.len() < 400, "{what}: {said}");
            assert!(one.elapsed().as_secs() < 10, "{what}: {:?}", one.elapsed());
        }
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    }
}
