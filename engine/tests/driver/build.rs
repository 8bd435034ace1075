//! The engine's pools, of the reference's settings.

use super::host::Host;
use crate::model::queue::{Order, Policy};
use crate::model::{Config, Scope};
use std::sync::Arc;
use vacancy::{ClassSpec, Pool, Profile, QueuePolicy, RejectScope, RejectThresholds};

/// The engine's pool of these settings and workers.
pub fn build(config: &Config, rejects: &RejectThresholds) -> Pool {
    let mut pool = Pool::builder()
        .block_size(config.block_size)
        .track_prefill(config.track_prefill)
        .track_blocks(config.track_blocks)
        .weights(config.weights)
        .reject_scope(match config.scope {
            Scope::Worker => RejectScope::Worker,
            Scope::Rank => RejectScope::Rank,
        })
        .lease(config.lease)
        .signal_ttl(config.signal_ttl)
        .router_id(config.router.0)
        .holds(config.holds)
        .reject_thresholds(rejects.clone());
    if let Some(policy) = &config.policy {
        pool = pool.policy(&profile(policy));
    }
    pool = pool.class_room_only(config.class_room_only);
    if let Some(filter) = config.custom.filter {
        pool = pool.filter(Arc::new(Host(filter)));
    }
    if let Some(scorer) = config.custom.scorer {
        pool = pool.scorer(Arc::new(Host(scorer)));
    }
    if let Some(picker) = config.custom.picker {
        pool = pool.picker(Arc::new(Host(picker)));
    }
    if let Some(classifier) = &config.custom.classifier {
        pool = pool.classifier(Arc::new(Host(classifier.clone())));
    }
    if let Some(refresh) = config.custom.refresh {
        pool = pool.refresh(refresh.after, Arc::new(Host(refresh)));
    }
    let pool = pool.build().expect("valid settings");
    pool.reconcile(&config.fleet).expect("valid workers");
    pool
}

/// The engine's form of a policy.
pub fn profile(policy: &Policy) -> Arc<Profile> {
    let classes = policy.classes.iter().map(|c| {
        let mut spec = ClassSpec::new(c.name.clone(), c.quantum).thresholds(c.thresholds);
        if let Some((family, bucket)) = &c.cell {
            spec = spec.family(family.clone(), bucket.clone());
        }
        spec.queue_policy = match c.order {
            Order::Fcfs => QueuePolicy::Fcfs,
            Order::Wspt => QueuePolicy::Wspt,
            Order::Edf => QueuePolicy::Edf,
        };
        spec.busy_worker_ratio = c.busy_worker_ratio;
        [spec.limits.requests, spec.limits.raw_isl_tokens, spec.limits.cached_tokens] = c.limits;
        spec.max_wait = c.max_wait;
        spec
    });
    let profile = Profile::new(policy.default_family.clone(), policy.buckets.clone(), classes);
    Arc::new(profile.expect("a valid policy"))
}
