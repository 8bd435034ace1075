//! Policy files: no text panics or takes long; what is taken is whole, says the same when it is
//! written down again, and lets a pool admit.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::sync::Arc;
use vacancy::{ClassSpec, Name, Policy, Pool, Profile, Request, Time, WorkerSpec};

/// Reads `data` as a policy file, and uses what it is.
///
/// # Panics
/// If what was accepted is not whole, or is another policy once it is written down and read again.
pub fn policy(data: &[u8]) -> u64 {
    let Ok(text) = std::str::from_utf8(data) else { return 0 };
    let policy = match Policy::from_yaml(text) {
        Ok(policy) => policy,
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 4096, "a refusal of {} bytes", said.len());
            return 1;
        }
    };
    let models = policy.models();
    let profiles = std::iter::once(None).chain(models.into_iter().map(Some));
    let mut looked_at = 1;
    for profile in profiles.map(|model| policy.profile(model)) {
        whole(profile);
        let again = written(profile);
        let read = Policy::from_yaml(&again).unwrap_or_else(|e| panic!("{e}\n{again}\n{text}"));
        assert_eq!(read.profile(None), profile, "{again}\n{text}");
        behaves(profile);
        looked_at += 1;
    }
    looked_at
}

/// Whatever a request asks for, and however long it is, it has a class.
fn whole(profile: &Profile) {
    assert!(!profile.classes().is_empty());
    let bounds = profile.buckets().flat_map(|(min, _)| [min.saturating_sub(1), min]);
    for uncached in bounds.chain([u64::MAX]) {
        let class = profile.resolve(None, uncached, true).expect("a default class");
        assert!(profile.class(class).policy_family.is_some());
    }
    for class in profile.classes() {
        assert!(class.quantum > 0);
        let name = class.policy_family.as_ref().unwrap_or(&class.name);
        assert!(profile.resolve(Some(name), 0, true).is_ok());
    }
}

/// One who waits, or not, in each class; and nobody is left.
fn behaves(profile: &Arc<Profile>) {
    let pool = Pool::builder().policy(profile).build().expect("plain settings");
    pool.upsert(WorkerSpec::new(1).total_kv_blocks(8).max_num_batched_tokens(64)).expect("valid");
    let names: Vec<Name> = profile.classes().iter().take(8).map(|c| c.name.clone()).collect();
    for round in 0..3u64 {
        let at = Time::from_millis(round);
        let asked: Vec<_> = names
            .iter()
            .map(|name| pool.admit(Request::new(100).class(name.clone()).at(at)))
            .collect();
        for mut admit in asked {
            if let Some(Ok(admitted)) = admit.try_take() {
                admitted.booking.prefill_completed();
            }
        }
    }
    let left = pool.snapshot();
    assert_eq!(left.waiting, 0);
    assert!(left.ranks.iter().all(|(_, load)| load.requests == 0 && load.kv_blocks == 0));
}

/// The profile as a file.
fn written(profile: &Profile) -> String {
    let mut out = format!("default_policy_family: {:?}\n", profile.default_family().as_str());
    out += "uncached_isl_buckets:\n";
    for (min, bucket) in profile.buckets() {
        let _ = writeln!(out, "  - {{min_tokens: {min}, bucket: {:?}}}", bucket.as_str());
    }
    out += "policy_classes:\n";
    for class in profile.classes() {
        let _ = writeln!(out, "  - {{{}}}", keys(class).join(", "));
    }
    out
}

fn keys(class: &ClassSpec) -> Vec<String> {
    fn put(keys: &mut Vec<String>, key: &str, value: Option<impl std::fmt::Debug>) {
        keys.extend(value.map(|value| format!("{key}: {value:?}")));
    }
    let mut keys = vec![format!("name: {:?}", class.name.as_str())];
    let k = &mut keys;
    put(k, "policy_family", class.policy_family.as_ref().map(Name::as_str));
    put(k, "cache_bucket", class.cache_bucket.as_ref().map(Name::as_str));
    put(k, "quantum", Some(class.quantum));
    put(k, "queue_policy", Some(class.queue_policy.key()));
    put(k, "prefill_busy_threshold", class.thresholds.prefill_tokens);
    put(k, "prefill_busy_threshold_frac", class.thresholds.prefill_frac);
    put(k, "decode_busy_threshold_frac", class.thresholds.decode_frac);
    put(k, "busy_worker_ratio", class.busy_worker_ratio);
    put(k, "request_queue_limit_per_worker", class.limits.requests);
    put(k, "raw_isl_token_queue_limit_per_worker", class.limits.raw_isl_tokens);
    put(k, "cached_token_queue_limit_per_worker", class.limits.cached_tokens);
    put(k, "max_wait_ms", class.max_wait.map(|wait| wait.as_millis()));
    keys
}
