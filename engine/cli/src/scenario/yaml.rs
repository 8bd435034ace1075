//! Reading YAML strictly: the options and budgets every scenario is read under, where an error
//! stands, and value types that do not guess.
//!
//! The parser converts scalars towards the type that is asked for, so that `isl: "96"` would pass
//! for a number. A scenario attached to a bug report must mean one thing only; the types below ask
//! what the scalar *is* and refuse anything else.
#![forbid(unsafe_code)]

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use vacancy::Time;

/// Longest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// Deepest nesting of maps and lists. The format itself needs 6; a policy document adds a few.
const MAX_DEPTH: usize = 24;
/// Most nodes (maps, lists, scalars).
const MAX_NODES: usize = 500_000;

/// Why a file cannot be run: where it is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Line and column, from 1; `None` if the whole file is meant.
    pub at: Option<(u64, u64)>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Wrong {
    /// The whole file is wrong.
    pub fn file(message: impl Into<String>) -> Wrong {
        Wrong { at: None, message: message.into() }
    }

    /// What stands at `at` is wrong.
    pub fn at(at: Place, message: impl Into<String>) -> Wrong {
        Wrong { at: Some((at.line, at.column)), message: message.into() }
    }
}

/// Where a value stands in its file; lines and columns count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

impl From<serde_saphyr::Location> for Place {
    fn from(at: serde_saphyr::Location) -> Place {
        Place { line: at.line(), column: at.column() }
    }
}

/// Reads one YAML document of type `T`.
///
/// # Errors
/// [`Wrong`] for anything but exactly one document that is a `T`, within the budgets.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Wrong::file(too_long(text.len() as u64)));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let at = e.location().filter(|at| at.line() > 0).map(|at| (at.line(), at.column()));
        Wrong { at, message: explain(e.without_snippet(), at) }
    })
}

/// The parser's refusal, in the words of somebody who wrote the file.
fn explain(e: &serde_saphyr::Error, at: Option<(u64, u64)>) -> String {
    use serde_saphyr::Error as E;
    use serde_saphyr::budget::BudgetBreach as B;
    match e {
        E::Unexpected { expected: "mapping start", .. } => {
            "a map is expected here: write {key: value, ...}, {} for none".into()
        }
        E::Unexpected { expected: "sequence start", .. } => {
            "a list is expected here: write [a, b, ...], [] for none".into()
        }
        E::Unexpected { expected: "string scalar", .. } => "a text is expected here".into(),
        E::NullIntoString { .. } => "a text is expected here: null is none".into(),
        E::Eof { .. } => "the text ends here: a scenario has `pools` and `steps`".into(),
        E::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            format!("`{key}` is given twice in one map: keep one of them")
        }
        E::MultipleDocuments { .. } | E::Budget { breach: B::Documents { .. }, .. } => {
            "a second document: a scenario is one YAML document, so split the file".into()
        }
        E::Budget { breach: B::Depth { .. }, .. } => {
            format!("nested deeper than {MAX_DEPTH} levels: no step needs that")
        }
        E::Budget { breach: B::Nodes { .. } | B::Events { .. }, .. } => {
            format!("more than {MAX_NODES} values in one file: split it")
        }
        E::RecursiveReferencesRequireWeakTypes { .. } => {
            "an anchor that refers to itself: write the value out".into()
        }
        e => {
            // The place is given in front; the parser's own sentence repeats it.
            let message = e.to_string();
            match at {
                Some((line, column)) => message
                    .replace(&format!(" at line {line}, column {column}"), "")
                    .replace(&format!("line {line} column {column}: "), ""),
                None => message,
            }
        }
    }
}

/// The sentence for a file past [`MAX_FILE_BYTES`].
pub fn too_long(bytes: u64) -> String {
    format!("the file has {bytes} bytes; {MAX_FILE_BYTES} are read at most: split it")
}

/// A whole number that fits `T`, and is written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int<T>(pub T);

/// The types that [`Int`] reads, with how a message names them.
pub trait Whole: TryFrom<i128> {
    /// What is wanted, for messages.
    const WANTED: &'static str;
}

impl Whole for u32 {
    const WANTED: &'static str = "a whole number from 0 to 4294967295";
}
impl Whole for u64 {
    const WANTED: &'static str = "a whole number from 0 to 18446744073709551615";
}
impl Whole for i64 {
    const WANTED: &'static str = "a whole number of 64 bits, with sign";
}

impl<'de, T: Whole> Deserialize<'de> for Int<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<T: Whole> V<T> {
            fn fit<E: de::Error>(n: i128) -> Result<Int<T>, E> {
                T::try_from(n).map(Int).map_err(|_| wanted(n, T::WANTED))
            }
        }
        impl<T: Whole> Visitor<'_> for V<T> {
            type Value = Int<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WANTED)
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Int<T>, E> {
                V::fit(n.into())
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Int<T>, E> {
                V::fit(n.into())
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Int<T>, E> {
                Err(wanted(n, T::WANTED))
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}

fn wanted<E: de::Error>(got: impl fmt::Display, wanted: &str) -> E {
    E::custom(format_args!("{got} does not fit here: write {wanted}"))
}

/// A number, whole or not; `.nan` and `.inf` are read too, for the engine to refuse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Real(pub f64);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Real;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E>(self, n: f64) -> Result<Real, E> {
                Ok(Real(n))
            }
            fn visit_u64<E>(self, n: u64) -> Result<Real, E> {
                Ok(Real(n as f64))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Real, E> {
                Ok(Real(n as f64))
            }
        }
        d.deserialize_any(V)
    }
}

/// `true` or `false`, nothing that could be read as one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Flag;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false")
            }
            fn visit_bool<E>(self, is: bool) -> Result<Flag, E> {
                Ok(Flag(is))
            }
        }
        d.deserialize_any(V)
    }
}

/// A length of time or an instant, in whole or fractional units of `NANOS` nanoseconds, `>= 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const NANOS: u64>(u64);

/// Milliseconds.
pub type Millis = Span<1_000_000>;
/// Seconds.
pub type Seconds = Span<1_000_000_000>;

impl<const NANOS: u64> Span<NANOS> {
    /// As a length of time.
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// As an instant on a clock that started at 0.
    pub fn instant(self) -> Time {
        Time::from_nanos(self.0)
    }
}

impl<'de, const NANOS: u64> Deserialize<'de> for Span<NANOS> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        const WANTED: &str = "a time of 0 or more";
        struct V<const NANOS: u64>;
        impl<const NANOS: u64> Visitor<'_> for V<NANOS> {
            type Value = Span<NANOS>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WANTED)
            }
            fn visit_u64<E>(self, n: u64) -> Result<Span<NANOS>, E> {
                Ok(Span(n.saturating_mul(NANOS)))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Span<NANOS>, E> {
                u64::try_from(n).map_or_else(|_| Err(wanted(n, WANTED)), |n| self.visit_u64(n))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Span<NANOS>, E> {
                if n.is_finite() && n >= 0.0 {
                    // A float that is too large saturates, as the whole numbers do.
                    Ok(Span((n * NANOS as f64).round() as u64))
                } else {
                    Err(wanted(n, WANTED))
                }
            }
        }
        d.deserialize_any(V::<NANOS>)
    }
}

/// A map in the order in which it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs<V>(pub Vec<(String, V)>);

impl<V> Default for Pairs<V> {
    fn default() -> Pairs<V> {
        Pairs(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Map<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Map<V> {
            type Value = Pairs<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        d.deserialize_map(Map(PhantomData))
    }
}

/// One whole number, or a list of them of which any will do.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyOf<T>(pub Vec<T>);

impl<'de, T: Whole> Deserialize<'de> for AnyOf<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Whole> Visitor<'de> for V<T> {
            type Value = AnyOf<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of them", T::WANTED)
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<AnyOf<T>, E> {
                T::try_from(n.into()).map(|n| AnyOf(vec![n])).map_err(|_| wanted(n, T::WANTED))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<AnyOf<T>, E> {
                Err(wanted(n, T::WANTED))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<AnyOf<T>, E> {
                Err(wanted(n, T::WANTED))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<AnyOf<T>, A::Error> {
                let mut any = Vec::new();
                while let Some(Int(n)) = seq.next_element()? {
                    any.push(n);
                }
                if any.is_empty() {
                    return Err(de::Error::custom(
                        "an empty list can never match: name one value at least",
                    ));
                }
                Ok(AnyOf(any))
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}

/// A policy document, or a string that holds one.
pub type Document = vacancy::PolicyDocument;

/// For keys where `null` says something else than leaving the key out: `None` is left out,
/// `Some(None)` is `null`.
pub fn given<'de, T, D>(d: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(d).map(Some)
}
